/* Space: files made ahead, ends given back, files removed, and fitting it all to what recovery
 * found.
 *
 * Invariant: a file leaves store->unsettled only when it is neither current nor next, no place
 * in it is open, no mark of it waits for a sync, and it has been truncated to its last record and
 * synced at that size. */
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "message_file.h"

/* -- settling --------------------------------------------------------------------------------- */

/* The first unsettled file that nobody will write to again, or NULL. */
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
    const uint64_t end = file->end; /* for good: nobody writes to a full file */
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
        file->is_final = true; /* a checkpoint may promise that it needs nothing at recovery */
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

/* Half a file is ample time to make one, and an idle store has at most one
 * to spare. */
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
    /* First what gives space back: on a full disk it makes room for the next file. */
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

/* Nobody writes to current or next any more; an unused next is out of the
 * table. */
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

uint32_t qsi_message_store_settled_below(struct qsi_message_store *store)
{
    const struct qsi_list *first;
    uint64_t number;

    qsi_message_store_lock(store);
    number = store->next_number - (store->is_creating ? 1 : 0);
    if (!qsi_list_is_empty(&store->unsettled)) {
        first = store->unsettled.next;
        number = QSI_LIST_OWNER(first, struct qsi_message_file, in_unsettled)->id.number;
    }
    qsi_message_store_unlock(store);
    return number <= UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* -- removal ---------------------------------------------------------------------------------- */

qs_status qsi_message_store_remove(struct qsi_message_store *store, uint32_t number,
                                   qs_error *error)
{
    struct qsi_message_file *file;

    qsi_message_store_lock(store);
    file = qsi_message_table_find(store, number);
    QS_ASSERT(file != NULL && qsi_message_file_is_settled(file));
    qsi_message_store_unlock(store);
    QS_TRY(qsi_message_file_remove_name(store, file->id, error));
    qsi_message_store_lock(store);
    qsi_message_table_remove(store, file);
    qsi_message_store_unlock(store);
    qsi_message_file_destroy(store, file);
    return qsi_dir_sync(store->env, store->dir, error);
}

/* -- after recovery --------------------------------------------------------------------------- */

static qs_status note_retained(struct qsi_message_store *store, const struct qsi_retained *retained,
                               qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_message_file *file = qsi_message_table_find(store, retained->file);
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, (struct qsi_message_id){retained->file, 0});
    if (file == NULL) {
        return qsi_fail_corrupt(error, path, 0, "the file is missing");
    }
    if (retained->end <= QSI_MESSAGE_HEADER_BYTES) {
        return qsi_fail_corrupt(error, path, retained->end, "no live record can end here");
    }
    if (retained->end > file->retained_end) {
        file->retained_end = retained->end;
    }
    return QS_OK;
}

static qs_status check_open_file(struct qsi_message_store *store, struct qsi_message_file *file,
                                 qs_file *handle, uint64_t bytes, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    if (bytes < file->retained_end) {
        qsi_message_path(path, file->id);
        return qsi_fail_corrupt(error, path, bytes, "the file ends before its last live record");
    }
    file->is_too_long = bytes > file->retained_end;
    return qsi_message_file_sync(store, file->id, handle, error);
}

static qs_status cut_open_file(struct qsi_message_store *store, struct qsi_message_file *file,
                               qs_file *handle, uint64_t bytes, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    (void)bytes;
    QS_TRY(qsi_message_file_truncate(store, file->id, handle, file->retained_end, error));
    file->is_too_long = false;
    file->bytes = file->retained_end; /* recovery may have left a handle open for reading */
    return QS_OK;
}

typedef qs_status open_file_visitor(struct qsi_message_store *store, struct qsi_message_file *file,
                                    qs_file *handle, uint64_t bytes, qs_error *error);

static qs_status with_open_file(struct qsi_message_store *store, struct qsi_message_file *file,
                                open_file_visitor *visit, qs_error *error)
{
    struct qsi_message_view view;
    qs_status status;

    QS_TRY(qsi_message_file_open(store, file->id, QS_OPEN_WRITE, &view, error));
    status = visit(store, file, view.handle, view.bytes, error);
    store->env->close(store->env, view.handle);
    return status;
}

/* What was read may never have reached the disk: a process that died syncs nothing. */
static qs_status sync_named(struct qsi_message_store *store, uint32_t settled_below,
                            qs_error *error) QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->files);

    while (qsi_map_next(&store->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        if (file->retained_end > 0 && file->id.number >= settled_below) {
            QS_TRY(with_open_file(store, file, check_open_file, error));
        }
    }
    return QS_OK;
}

static qs_status cut_named(struct qsi_message_store *store, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->files);

    while (qsi_map_next(&store->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        if (file->is_too_long) {
            QS_TRY(with_open_file(store, file, cut_open_file, error));
        }
    }
    return QS_OK;
}

static qs_status remove_unnamed(struct qsi_message_store *store, qs_error *error)
    QSI_REQUIRES(qsi_message_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->files);
    bool removed = false;

    QS_TRY(qsi_message_strays_remove(store, &removed, error));
    while (qsi_map_next(&store->files, &cursor)) {
        struct qsi_message_file *file = cursor.value;

        if (file->retained_end == 0) {
            QS_TRY(qsi_message_file_remove_name(store, file->id, error));
            qsi_message_table_remove(store, file);
            qsi_message_file_destroy(store, file);
            removed = true;
        }
    }
    return removed ? qsi_dir_sync(store->env, store->dir, error) : QS_OK;
}

/* Single-threaded by their contract, so the mutex is left alone in both. */
qs_status qsi_message_store_retain(struct qsi_message_store *store,
                                   const struct qsi_retained *files, size_t file_count,
                                   uint32_t settled_below, qs_error *error)
{
    qsi_message_store_is_private(store);
    QS_ASSERT(qsi_list_is_empty(&store->unsettled));
    for (size_t i = 0; i < file_count; i++) {
        QS_TRY(note_retained(store, &files[i], error));
    }
    return sync_named(store, settled_below, error);
}

qs_status qsi_message_store_trim(struct qsi_message_store *store, qs_error *error)
{
    qsi_message_store_is_private(store);
    QS_ASSERT(qsi_list_is_empty(&store->unsettled));
    QS_TRY(cut_named(store, error));
    return remove_unnamed(store, error);
}
