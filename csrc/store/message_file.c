/* Message files: making, opening and removing them, and which handles are open.
 *
 * Invariants: a handle with references stays open; store->idle holds exactly the open handles of
 * settled files without references, so at most handle_max handles, and those in use, are open
 * for reading. */
#include "message_file.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

/* -- errors ----------------------------------------------------------------------------------- */

qs_status qsi_message_file_fail(qs_error *error, qs_status status, uint32_t number)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, number);
    if (error != NULL) {
        qsi_error_prefix(error, "%s", path);
    }
    if (status == QS_ENOSPC) {
        status = QS_ESTORE_FULL;
        if (error != NULL) {
            error->status = status;
        }
    }
    return status;
}

static qs_status fail_missing(qs_error *error, uint32_t number)
{
    char path[QSI_MESSAGE_PATH_BYTES];

    qsi_message_path(path, number);
    return qsi_fail_corrupt(error, path, 0, "the file is missing");
}

/* -- one file --------------------------------------------------------------------------------- */

struct qsi_message_file *qsi_message_file_describe(uint32_t number)
{
    struct qsi_message_file *file = qsi_zalloc(sizeof *file);

    if (file == NULL) {
        return NULL;
    }
    file->number = number;
    qsi_list_init(&file->in_idle);
    qsi_list_init(&file->in_unsettled);
    qsi_mutex_init(&file->write_mutex);
    return file;
}

void qsi_message_file_destroy(struct qsi_message_store *store, struct qsi_message_file *file)
{
    if (file == NULL) {
        return;
    }
    QS_ASSERT(file->refs == 0 && qsi_list_is_empty(&file->in_idle));
    store->env->close(store->env, file->handle);
    qsi_mutex_fini(&file->write_mutex);
    qsi_free(file);
}

void qsi_message_file_discard(struct qsi_message_store *store, struct qsi_message_file *file)
{
    char name[QSI_MESSAGE_NAME_BYTES];

    qsi_message_name(name, file->number);
    qsi_message_file_destroy(store, file);
    /* If this fails the file stays until the next recovery finds that nothing names it. */
    (void)qsi_env_remove(store->env, store->dir, name, NULL);
}

static qs_status write_header(struct qsi_message_store *store, struct qsi_message_file *file,
                              qs_error *error)
{
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    const qs_part part = {header, sizeof header};

    QS_TRY(qsi_env_random(store->env, &file->salt, sizeof file->salt, error));
    qsi_message_header_encode(header, file->number, store->uuid, file->salt);
    return qsi_file_write(store->env, file->handle, &part, 1, 0, error);
}

static qs_status open_named(struct qsi_message_store *store, uint32_t number, uint32_t flags,
                            qs_file **handle_out, qs_error *error)
{
    char name[QSI_MESSAGE_NAME_BYTES];
    qs_status status;

    qsi_message_name(name, number);
    status = qsi_env_open(store->env, store->dir, name, flags, handle_out, error);
    return status;
}

/* Reserved and not filled with zeros: large bodies would be written twice, and that costs more
 * than what unwritten extents add to their syncs.  The name is synced last, when there is
 * something behind it. */
static qs_status fill(struct qsi_message_store *store, struct qsi_message_file *file,
                      qs_error *error)
{
    QS_TRY(qsi_file_allocate(store->env, file->handle, file->bytes, error));
    QS_TRY(write_header(store, file, error));
    QS_TRY(qsi_file_sync(store->env, file->handle, error));
    return qsi_dir_sync(store->env, store->dir, error);
}

/* A new file of this size, durable with its name.  On failure its name is gone again as far as
 * possible. */
static qs_status create(struct qsi_message_store *store, uint32_t number, uint64_t bytes,
                        struct qsi_message_file **file_out, qs_error *error)
{
    struct qsi_message_file *file;
    qs_status status;

    *file_out = NULL;
    file = qsi_message_file_describe(number);
    if (file == NULL) {
        status = qsi_fail(error, QS_ENOMEM, "out of memory");
        goto out;
    }
    file->end = QSI_MESSAGE_HEADER_BYTES;
    file->bytes = bytes;
    status = open_named(store, number, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file->handle, error);
    if (status != QS_OK) {
        goto out;
    }
    status = fill(store, file, error);
    if (status != QS_OK) {
        qsi_message_file_discard(store, file);
        file = NULL;
        goto out;
    }
    *file_out = file;
    file = NULL;
out:
    qsi_message_file_destroy(store, file);
    return status == QS_OK ? QS_OK : qsi_message_file_fail(error, status, number);
}

/* REQUIRES the mutex. */
static qs_status install(struct qsi_message_store *store, struct qsi_message_file *file,
                         qs_error *error)
{
    if (qsi_message_table_add(store, file) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "table of message files");
    }
    qsi_list_push_back(&store->unsettled, &file->in_unsettled);
    return QS_OK;
}

qs_status qsi_message_file_make(struct qsi_message_store *store, uint64_t bytes,
                                struct qsi_message_file **file_out, qs_error *error)
{
    uint64_t number = store->next_number;
    struct qsi_message_file *file = NULL;
    qs_status status;

    *file_out = NULL;
    QS_ASSERT(!store->is_creating);
    if (number > UINT32_MAX) {
        return qsi_fail(error, QS_ESTORE_FULL, "no numbers are left for message files");
    }
    store->next_number++; /* for good: after a failure the name may still be there */
    store->is_creating = true;
    qsi_mutex_unlock(&store->mutex);
    status = create(store, (uint32_t)number, bytes, &file, error);
    qsi_mutex_lock(&store->mutex);
    store->is_creating = false;
    qsi_cond_broadcast(&store->created);
    if (status != QS_OK) {
        return status;
    }
    status = install(store, file, error);
    if (status != QS_OK) {
        qsi_message_file_discard(store, file);
        return status;
    }
    *file_out = file;
    return QS_OK;
}

static qs_status read_header(struct qsi_message_store *store, uint32_t number, qs_file *handle,
                             uint64_t *bytes_out, uint64_t *salt_out, qs_error *error)
{
    uint8_t header[QSI_MESSAGE_HEADER_BYTES];
    char path[QSI_MESSAGE_PATH_BYTES];
    qs_status status;
    size_t read;

    status = qsi_env_size(store->env, handle, bytes_out, error);
    if (status != QS_OK) {
        return status;
    }
    QS_TRY(qsi_file_read(store->env, handle, header, sizeof header, 0, &read, error));
    if (read < sizeof header) {
        qsi_message_path(path, number);
        return qsi_fail_corrupt(error, path, read, "the file ends in its header");
    }
    return qsi_message_header_check(header, number, store->uuid, salt_out, error);
}

/* Adds the file's name where the text does not have it yet. */
static qs_status name_failure(qs_error *error, qs_status status, uint32_t number)
{
    if (status == QS_ENOENT) {
        return fail_missing(error, number);
    }
    if (status == QS_ECORRUPT || status == QS_EVERSION) {
        return status;
    }
    return qsi_message_file_fail(error, status, number);
}

qs_status qsi_message_file_open(struct qsi_message_store *store, uint32_t number, uint32_t flags,
                                qs_file **handle_out, uint64_t *bytes_out, uint64_t *salt_out,
                                qs_error *error)
{
    qs_file *handle = NULL;
    qs_status status;

    *handle_out = NULL;
    status = open_named(store, number, flags, &handle, error);
    if (status != QS_OK) {
        goto out;
    }
    status = read_header(store, number, handle, bytes_out, salt_out, error);
    if (status != QS_OK) {
        goto out;
    }
    *handle_out = handle;
    handle = NULL;
out:
    store->env->close(store->env, handle);
    return status == QS_OK ? QS_OK : name_failure(error, status, number);
}

qs_status qsi_message_file_sync(struct qsi_message_store *store, uint32_t number, qs_file *handle,
                                qs_error *error)
{
    qs_status status = qsi_file_sync(store->env, handle, error);

    if (status == QS_OK) {
        return QS_OK;
    }
    qsi_mutex_lock(&store->mutex);
    store->is_failed = true;
    qsi_mutex_unlock(&store->mutex);
    if (error != NULL) {
        char path[QSI_MESSAGE_PATH_BYTES];

        qsi_message_path(path, number);
        qsi_error_prefix(error, "%s", path);
    }
    return status;
}

/* -- the table -------------------------------------------------------------------------------- */

qs_status qsi_message_table_add(struct qsi_message_store *store, struct qsi_message_file *file)
{
    return qsi_map_put(&store->files, &file->number, sizeof file->number, file);
}

void qsi_message_table_remove(struct qsi_message_store *store, struct qsi_message_file *file)
{
    QS_ASSERT(file->refs == 0);
    if (!qsi_list_is_empty(&file->in_idle)) {
        qsi_list_remove(&file->in_idle);
        store->open_count--;
    }
    qsi_list_remove(&file->in_unsettled);
    qsi_map_remove(&store->files, &file->number, sizeof file->number);
}

struct qsi_message_file *qsi_message_table_find(struct qsi_message_store *store, uint32_t number)
{
    return qsi_map_get(&store->files, &number, sizeof number);
}

static bool is_settled(const struct qsi_message_file *file)
{
    return qsi_list_is_empty(&file->in_unsettled);
}

/* Takes the handle of the idle file that was used longest ago, when there are too many. */
static qs_file *evict(struct qsi_message_store *store)
{
    struct qsi_message_file *file;
    qs_file *handle;

    if (store->open_count <= store->options.handle_max || qsi_list_is_empty(&store->idle)) {
        return NULL;
    }
    file = QSI_LIST_OWNER(store->idle.next, struct qsi_message_file, in_idle);
    qsi_list_remove(&file->in_idle);
    handle = file->handle;
    file->handle = NULL;
    store->open_count--;
    return handle;
}

qs_file *qsi_message_file_unref(struct qsi_message_store *store, struct qsi_message_file *file)
{
    QS_ASSERT(file->refs > 0);
    file->refs--;
    if (file->refs > 0 || !is_settled(file) || file->handle == NULL) {
        return NULL;
    }
    qsi_list_push_back(&store->idle, &file->in_idle);
    return evict(store);
}

/* Gives file a handle, unless another reader was faster.  REQUIRES a reference. */
static qs_status open_handle(struct qsi_message_store *store, struct qsi_message_file *file,
                             qs_error *error)
{
    qs_file *handle;
    uint64_t bytes;
    uint64_t salt;

    QS_TRY(qsi_message_file_open(store, file->number, QS_OPEN_READ, &handle, &bytes, &salt, error));
    qsi_mutex_lock(&store->mutex);
    if (file->handle == NULL) {
        file->handle = handle;
        file->bytes = bytes;
        file->salt = salt;
        store->open_count++;
        handle = NULL;
    }
    qsi_mutex_unlock(&store->mutex);
    store->env->close(store->env, handle);
    return QS_OK;
}

/* REQUIRES the mutex and a reference to file. */
static bool take_view(struct qsi_message_view *view_out, struct qsi_message_file *file)
{
    *view_out = (struct qsi_message_view){file, file->handle, file->bytes, file->salt};
    return file->handle != NULL;
}

qs_status qsi_message_file_acquire(struct qsi_message_store *store, uint32_t number,
                                   struct qsi_message_view *view_out, qs_error *error)
{
    struct qsi_message_file *file;
    bool is_open = false;
    qs_status status;

    qsi_mutex_lock(&store->mutex);
    file = qsi_message_table_find(store, number);
    if (file != NULL) {
        file->refs++;
        qsi_list_remove(&file->in_idle);
        is_open = take_view(view_out, file);
    }
    qsi_mutex_unlock(&store->mutex);
    if (file == NULL) {
        return fail_missing(error, number);
    }
    if (is_open) {
        return QS_OK;
    }
    status = open_handle(store, file, error);
    if (status != QS_OK) {
        qsi_message_file_release(store, file);
        return status;
    }
    qsi_mutex_lock(&store->mutex);
    (void)take_view(view_out, file);
    qsi_mutex_unlock(&store->mutex);
    return QS_OK;
}

void qsi_message_file_release(struct qsi_message_store *store, struct qsi_message_file *file)
{
    qs_file *handle;

    qsi_mutex_lock(&store->mutex);
    handle = qsi_message_file_unref(store, file);
    qsi_mutex_unlock(&store->mutex);
    store->env->close(store->env, handle);
}
