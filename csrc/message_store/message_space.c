/* Space: creating files ahead, truncating files, and removing them.
 *
 * Invariant: a file leaves messages->unsettled only when it is neither current nor next, no place
 * in it is open, no mark of it waits for a sync, and it has been truncated to its last record and
 * synced at that size. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "message_file.h"

/* -- settling --------------------------------------------------------------------------------- */

/* The first unsettled file that gets no further writes, or NULL. */
static struct qsi_message_file *find_full(struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&messages->mutex);
    for (struct qsi_list *node = messages->unsettled.next; node != &messages->unsettled;
         node = node->next) {
        struct qsi_message_file *file = QSI_LIST_OWNER(node, struct qsi_message_file, in_unsettled);

        if (file != messages->current && file != messages->next && file->place_count == 0 &&
            !file->is_dirty && !file->is_taken && file->pack_syncs == file->pack_marks &&
            !file->is_going) {
            return file;
        }
    }
    return NULL;
}

/* Releases the lock meanwhile. */
static qs_status settle_file(struct qsi_message_store *messages, struct qsi_message_file *file,
                             qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    const uint64_t end = file->end; /* final: a full file gets no writes */
    qs_file *evicted;
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&messages->mutex);
    file->refs++;
    if (end < file->bytes) {
        qsi_message_store_unlock(messages);
        status = qsi_message_file_truncate(messages, file->id, file->handle, end, error);
        qsi_message_store_lock(messages);
    }
    if (status == QS_OK) {
        file->bytes = end;
        file->is_final = true; /* a checkpoint may name it as settled */
        qsi_list_remove(&file->in_unsettled);
        messages->open_count++;
        qsi_message_file_count_doomed(messages, file);
    }
    evicted = qsi_message_file_unref(messages, file);
    if (evicted != NULL) {
        qsi_message_store_unlock(messages);
        messages->env->close(messages->env, evicted);
        qsi_message_store_lock(messages);
    }
    return status;
}

static qs_status settle_full(struct qsi_message_store *messages, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = find_full(messages);

    QS_ASSERT_HELD(&messages->mutex);
    while (file != NULL) {
        QS_TRY(settle_file(messages, file, error));
        file = find_full(messages);
    }
    return QS_OK;
}

/* -- maintenance ------------------------------------------------------------------------------ */

/* Creating a file takes less time than filling half of one, and an idle message store has at most
 * one unused file. */
static bool wants_next(const struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&messages->mutex);
    return messages->current != NULL && messages->next == NULL && !messages->is_creating &&
           messages->current->end > messages->current->bytes / 2;
}

static qs_status check_alive(const struct qsi_message_store *messages, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    QS_ASSERT_HELD(&messages->mutex);
    if (messages->is_failed) {
        return qsi_fail(error, QS_ESTORE_FAILED, "an earlier sync of a message file failed");
    }
    return QS_OK;
}

bool qsi_message_store_needs_maintenance(struct qsi_message_store *messages)
{
    bool needs;

    qsi_message_store_lock(messages);
    needs = !messages->is_failed && (wants_next(messages) || find_full(messages) != NULL);
    qsi_message_store_unlock(messages);
    return needs;
}

qs_status qsi_message_store_maintain(struct qsi_message_store *messages, qs_error *error)
{
    qs_status status;

    qsi_message_store_lock(messages);
    status = check_alive(messages, error);
    /* Truncating comes first: on a full disk it makes room for the next file. */
    if (status == QS_OK) {
        status = settle_full(messages, error);
    }
    if (status == QS_OK && wants_next(messages)) {
        uint64_t bytes = messages->file_bytes;
        status = qsi_message_file_make(messages, bytes, &messages->next, error);
        if (qsi_is_full(status)) {
            (void)qsi_message_file_shrink(messages, bytes, QSI_MESSAGE_FILE_BYTES_MIN);
        }
    }
    qsi_message_store_unlock(messages);
    return status;
}

/* Retires current and next, which get no further writes; an unused next is removed from the table
 * and returned. */
static struct qsi_message_file *retire(struct qsi_message_store *messages)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *unused, *last;

    QS_ASSERT_HELD(&messages->mutex);
    while (messages->is_creating) {
        (void)qsi_cond_wait(&messages->created, &messages->mutex, QSI_WAIT_FOREVER);
    }
    unused = messages->next;
    last = messages->current;
    messages->current = NULL;
    messages->next = NULL;
    if (last != NULL) {
        qsi_message_file_count_doomed(messages, last);
    }
    if (unused != NULL) {
        qsi_message_table_remove(messages, unused);
    }
    return unused;
}

qs_status qsi_message_store_settle(struct qsi_message_store *messages, qs_error *error)
{
    struct qsi_message_file *unused = NULL;
    qs_status status;

    qsi_message_store_lock(messages);
    status = check_alive(messages, error);
    if (status == QS_OK) {
        unused = retire(messages);
        status = settle_full(messages, error);
    }
    qsi_message_store_unlock(messages);
    if (unused != NULL) {
        qsi_message_file_discard(messages, unused);
    }
    return status;
}
