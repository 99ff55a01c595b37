/* Space: creating files ahead, truncating files, and removing them.
 *
 * Invariant: a file leaves store->unsettled only when it is neither current nor next, no place in
 * it is open, no mark of it waits for a sync, and it has been truncated to its last record and
 * synced at that size. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "message_file.h"

/* -- settling --------------------------------------------------------------------------------- */

/* The first unsettled file that gets no further writes, or NULL. */
static struct qsi_message_file *find_full(struct qsi_message_store *store)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->unsettled.next; node != &store->unsettled;
         node = node->next) {
        struct qsi_message_file *file = QSI_LIST_OWNER(node, struct qsi_message_file, in_unsettled);

        if (file != store->current && file != store->next && file->place_count == 0 &&
            !file->is_dirty && !file->is_taken && file->pack_syncs == file->pack_marks &&
            !file->is_going) {
            return file;
        }
    }
    return NULL;
}

/* Releases the lock meanwhile. */
static qs_status settle_file(struct qsi_message_store *store, struct qsi_message_file *file,
                             qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    const uint64_t end = file->end; /* final: a full file gets no writes */
    qs_file *evicted;
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&store->mutex);
    file->refs++;
    if (end < file->bytes) {
        qsi_message_store_unlock(store);
        status = qsi_message_file_truncate(store, file->id, file->handle, end, error);
        qsi_message_store_lock(store);
    }
    if (status == QS_OK) {
        file->bytes = end;
        file->is_final = true; /* a checkpoint may name it as settled */
        qsi_list_remove(&file->in_unsettled);
        store->open_count++;
    }
    evicted = qsi_message_file_unref(store, file);
    if (evicted != NULL) {
        qsi_message_store_unlock(store);
        store->env->close(store->env, evicted);
        qsi_message_store_lock(store);
    }
    return status;
}

static qs_status settle_full(struct qsi_message_store *store, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = find_full(store);

    QS_ASSERT_HELD(&store->mutex);
    while (file != NULL) {
        QS_TRY(settle_file(store, file, error));
        file = find_full(store);
    }
    return QS_OK;
}

/* -- maintenance ------------------------------------------------------------------------------ */

/* Creating a file takes less time than filling half of one, and an idle store has at most one
 * unused file. */
static bool wants_next(const struct qsi_message_store *store) QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->current != NULL && store->next == NULL && !store->is_creating &&
           store->current->end > store->current->bytes / 2;
}

static qs_status check_alive(const struct qsi_message_store *store, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    if (store->is_failed) {
        return qsi_fail(error, QS_ESTORE_FAILED, "an earlier sync of a message file failed");
    }
    return QS_OK;
}

bool qsi_message_store_needs_maintenance(struct qsi_message_store *store)
{
    bool needs;

    qsi_message_store_lock(store);
    needs = !store->is_failed && (wants_next(store) || find_full(store) != NULL);
    qsi_message_store_unlock(store);
    return needs;
}

qs_status qsi_message_store_maintain(struct qsi_message_store *store, qs_error *error)
{
    qs_status status;

    qsi_message_store_lock(store);
    status = check_alive(store, error);
    /* Truncating comes first: on a full disk it makes room for the next file. */
    if (status == QS_OK) {
        status = settle_full(store, error);
    }
    if (status == QS_OK && wants_next(store)) {
        uint64_t bytes = store->file_bytes;
        status = qsi_message_file_make(store, bytes, &store->next, error);
        if (qsi_is_full(status)) {
            (void)qsi_message_file_shrink(store, bytes, QSI_MESSAGE_FILE_BYTES_MIN);
        }
    }
    qsi_message_store_unlock(store);
    return status;
}

/* Retires current and next, which get no further writes; an unused next is removed from the table
 * and returned. */
static struct qsi_message_file *retire(struct qsi_message_store *store)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *unused;

    QS_ASSERT_HELD(&store->mutex);
    while (store->is_creating) {
        (void)qsi_cond_wait(&store->created, &store->mutex, QSI_WAIT_FOREVER);
    }
    unused = store->next;
    store->current = NULL;
    store->next = NULL;
    if (unused != NULL) {
        qsi_message_table_remove(store, unused);
    }
    return unused;
}

qs_status qsi_message_store_settle(struct qsi_message_store *store, qs_error *error)
{
    struct qsi_message_file *unused = NULL;
    qs_status status;

    qsi_message_store_lock(store);
    status = check_alive(store, error);
    if (status == QS_OK) {
        unused = retire(store);
        status = settle_full(store, error);
    }
    qsi_message_store_unlock(store);
    if (unused != NULL) {
        qsi_message_file_discard(store, unused);
    }
    return status;
}
