/* Message files: creating, opening and removing them. */
#include "message_file.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <string.h>

/* -- errors ----------------------------------------------------------------------------------- */

qs_status qsi_message_file_fail(qs_error *error, qs_status status, struct qsi_message_id id)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, id);
    if (status == QS_ENOENT) { /* a file was to be created */
        return qsi_fail_corrupt(error, path, 0, "it cannot be made: the directory is missing");
    }
    return qsi_fail_file(error, status, path);
}

qs_status qsi_message_file_fail_unread(qs_error *error, qs_status status, struct qsi_message_id id)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, id);
    return qsi_fail_unread(error, status, path);
}

qs_status qsi_message_file_fail_missing(qs_error *error, struct qsi_message_id id)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, id);
    return qsi_fail_corrupt(error, path, 0, "the file is missing");
}

/* -- one file --------------------------------------------------------------------------------- */

struct qsi_message_file *qsi_message_file_describe(struct qsi_message_id id)
{
    struct qsi_message_file *file = qsi_zalloc(sizeof *file);

    QS_DCHECK(id.number > 0);
    if (file == NULL) {
        return NULL;
    }
    qsi_message_file_is_private(file);
    file->id = id;
    file->is_present = true;
    qsi_list_init(&file->in_idle);
    qsi_list_init(&file->in_unsettled);
    qsi_list_init(&file->in_replaced);
    qsi_mutex_init(&file->write_mutex);
    return file;
}

void qsi_message_file_destroy(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    if (file == NULL) {
        return;
    }
    qsi_message_file_is_private(file);
    QS_ASSERT(file->refs == 0 && qsi_list_is_empty(&file->in_idle));
    messages->env->close(messages->env, file->handle);
    qsi_mutex_fini(&file->write_mutex);
    qsi_counts_fini(&file->counts);
    qsi_buf_fini(&file->encoded);
    qsi_free(file);
}

void qsi_message_file_discard(struct qsi_message_store *messages, struct qsi_message_file *file)
{
    char name[QSI_MESSAGE_NAME_BYTES];

    qsi_message_name(name, file->id);
    qsi_message_file_destroy(messages, file);
    /* If this fails, the file stays until the next recovery finds that nothing names it. */
    (void)qsi_env_remove(messages->env, messages->dir, name, NULL);
}

static qs_status write_header(struct qsi_message_store *messages, struct qsi_message_file *file,
                              qs_error *error)
{
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    const qs_part part = {header, sizeof header};

    QS_TRY(qsi_env_random(messages->env, &file->header.salt, sizeof file->header.salt, error));
    qsi_message_header_encode(header, file->id.number, messages->uuid, file->header.salt);
    return qsi_file_write(messages->env, file->handle, &part, 1, 0, error);
}

static qs_status open_named(struct qsi_message_store *messages, struct qsi_message_id id,
                            uint32_t flags, qs_file **handle_out, qs_error *error)
{
    char name[QSI_MESSAGE_NAME_BYTES];

    qsi_message_name(name, id);
    return qsi_env_open(messages->env, messages->dir, name, flags, handle_out, error);
}

/* Reserves the space without writing zeros: that would write large bodies twice, which costs more
 * than the syncs of unwritten extents.  The name is synced last, after the file's content. */
static qs_status fill(struct qsi_message_store *messages, struct qsi_message_file *file,
                      qs_error *error)
{
    qsi_message_file_is_private(file);
    QS_DCHECK(file->handle != NULL && file->end == QSI_MESSAGE_HEADER_BYTES);
    QS_TRY(qsi_file_allocate(messages->env, file->handle, file->bytes, error));
    QS_TRY(write_header(messages, file, error));
    QS_TRY(qsi_file_sync_new(messages->env, file->handle, error));
    return qsi_dir_sync(messages->env, messages->dir, error);
}

/* Checks that leave_free bytes remain free. */
static qs_status check_space(struct qsi_message_store *messages, uint64_t bytes, qs_error *error)
{
    uint64_t leave_free = __atomic_load_n(&messages->leave_free, __ATOMIC_RELAXED);
    uint64_t total, free_bytes;

    if (leave_free == 0 || messages->env->space == NULL) {
        return QS_OK;
    }
    QS_TRY(messages->env->space(messages->env, messages->dir, &total, &free_bytes, error));
    return free_bytes >= leave_free && free_bytes - leave_free >= bytes
               ? QS_OK
               : qsi_fail(error, QS_ESTORE_FULL,
                          "the disk is full but for %llu bytes, which the store needs for other "
                          "things than new messages: consume or purge messages, or free some "
                          "space, and try again",
                          (unsigned long long)free_bytes);
}

qs_status qsi_message_file_create(struct qsi_message_store *messages, uint32_t number,
                                  uint64_t bytes, struct qsi_message_file **file_out,
                                  qs_error *error)
{
    const struct qsi_message_id id = {number, 0};
    struct qsi_message_file *file;
    qs_status status;

    QS_DCHECK(number > 0 && bytes > QSI_MESSAGE_HEADER_BYTES);
    *file_out = NULL;
    file = qsi_message_file_describe(id);
    /* A file for a single record has room for its counts, too. */
    if (file == NULL || qsi_counts_reserve(&file->counts, 1) != QS_OK) {
        status = qsi_fail(error, QS_ENOMEM, "out of memory");
        goto out;
    }
    qsi_message_file_is_private(file);
    file->end = QSI_MESSAGE_HEADER_BYTES;
    file->bytes = bytes;
    status = check_space(messages, bytes, error);
    if (status != QS_OK) {
        goto out;
    }
    status = open_named(messages, id, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file->handle, error);
    if (status != QS_OK) {
        goto out;
    }
    status = fill(messages, file, error);
    if (status != QS_OK) {
        qsi_message_file_discard(messages, file);
        file = NULL;
        goto out;
    }
    *file_out = file;
    file = NULL;
out:
    qsi_message_file_destroy(messages, file);
    return status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, id);
}

static qs_status read_header(struct qsi_message_store *messages, struct qsi_message_id id,
                             struct qsi_message_view *view, qs_error *error)
{
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    char path[QSI_MESSAGE_PATH_BYTES];
    uint64_t table_bytes;
    qs_status status;
    size_t read;

    status = qsi_env_size(messages->env, view->handle, &view->bytes, error);
    if (status != QS_OK) {
        return status;
    }
    QS_TRY(qsi_file_read(messages->env, view->handle, header, sizeof header, 0, &read, error));
    qsi_message_path(path, id);
    if (read < sizeof header) {
        return qsi_fail_corrupt(error, path, read, "the file ends in its header");
    }
    QS_TRY(qsi_message_header_check(header, id, messages->uuid, &view->header, error));
    table_bytes = qsi_message_table_bytes(view->header.table_slots);
    if (id.generation > 0 && (view->header.table_offset > view->bytes ||
                              table_bytes > view->bytes - view->header.table_offset)) {
        return qsi_fail_corrupt(error, path, view->bytes, "the file ends in its table of slots");
    }
    return QS_OK;
}

/* Adds the file's name, unless the text has it already. */
static qs_status name_failure(qs_error *error, qs_status status, struct qsi_message_id id)
{
    if (status == QS_ENOENT) {
        return qsi_message_file_fail_missing(error, id);
    }
    if (status == QS_ECORRUPT || status == QS_EVERSION) {
        return status;
    }
    return qsi_message_file_fail(error, status, id);
}

qs_status qsi_message_file_open(struct qsi_message_store *messages, struct qsi_message_id id,
                                uint32_t flags, struct qsi_message_view *view_out, qs_error *error)
{
    qs_status status;

    *view_out = (struct qsi_message_view){0};
    status = open_named(messages, id, flags, &view_out->handle, error);
    if (status != QS_OK) {
        view_out->handle = NULL;
        goto out;
    }
    status = read_header(messages, id, view_out, error);
    if (status != QS_OK) {
        messages->env->close(messages->env, view_out->handle);
        view_out->handle = NULL;
    }
out:
    return status == QS_OK ? QS_OK : name_failure(error, status, id);
}

qs_status qsi_message_file_sync(struct qsi_message_store *messages, struct qsi_message_id id,
                                qs_file *handle, qs_error *error)
{
    qs_status status = qsi_file_sync(messages->env, handle, error);

    if (status == QS_OK) {
        return QS_OK;
    }
    qsi_message_store_lock(messages);
    messages->is_failed = true;
    qsi_message_store_unlock(messages);
    if (error != NULL) {
        char path[QSI_MESSAGE_PATH_BYTES];

        qsi_message_path(path, id);
        qsi_error_prefix(error, "%s", path);
    }
    return status;
}

qs_status qsi_message_file_truncate(struct qsi_message_store *messages, struct qsi_message_id id,
                                    qs_file *handle, uint64_t bytes, qs_error *error)
{
    qs_status status;

    QS_DCHECK(bytes >= QSI_MESSAGE_HEADER_BYTES);
    status = qsi_env_truncate(messages->env, handle, bytes, error);
    if (status != QS_OK) {
        return qsi_message_file_fail(error, status, id);
    }
    return qsi_message_file_sync(messages, id, handle, error);
}

qs_status qsi_message_file_remove_name(struct qsi_message_store *messages, struct qsi_message_id id,
                                       qs_error *error)
{
    char name[QSI_MESSAGE_NAME_BYTES];
    qs_status status;

    qsi_message_name(name, id);
    status = qsi_env_remove(messages->env, messages->dir, name, error);
    if (status == QS_OK || status == QS_ENOENT) {
        return QS_OK;
    }
    return qsi_message_file_fail(error, status, id);
}

qs_status qsi_message_strays_add(struct qsi_message_store *messages, struct qsi_message_id id)
{
    return qsi_map_put(&messages->strays, &id, sizeof id, messages); /* any value but NULL */
}

bool qsi_message_strays_take(struct qsi_message_store *messages, struct qsi_message_id id)
{
    return qsi_map_remove(&messages->strays, &id, sizeof id) != NULL;
}

qs_status qsi_message_strays_remove(struct qsi_message_store *messages, bool *removed_out,
                                    qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&messages->strays);

    while (qsi_map_next(&messages->strays, &cursor)) {
        struct qsi_message_id id;

        memcpy(&id, cursor.key, sizeof id);
        QS_TRY(qsi_message_file_remove_name(messages, id, error));
        (void)qsi_message_strays_take(messages, id);
        *removed_out = true;
    }
    return QS_OK;
}
