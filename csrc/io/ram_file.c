/* Files and locks of the environment in memory.  Each function holds the disk's mutex while it
 * runs. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "name.h"
#include "ram_handle.h"

#include <stdio.h>
#include <string.h>

/* -- errors ----------------------------------------------------------------------------------- */

qs_status qsi_ram_report(qs_error *error, qs_status status, const char *what, const char *name)
{
    if (status != QS_OK) {
        qsi_fail(error, status, "%s '%s': %s", what, name, qs_status_text(status));
        qsi_error_set_path(error, name);
    }
    return status;
}

qs_status qsi_ram_fail_kind(qs_error *error, const char *name, const char *what)
{
    qs_status status = qsi_fail(error, QS_EIO, "'%s' %s", name, what);

    qsi_error_set_path(error, name);
    return status;
}

/* -- files ------------------------------------------------------------------------------------ */

enum file_must { MUST_EXIST, MUST_NOT_EXIST, MAY_EXIST };

/* The caller unrefs a node in *node_out, also on failure. */
static qs_status find_or_make_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir,
                                   const char *name, enum file_must must,
                                   struct qsi_ram_node **node_out)
{
    struct qsi_ram_node *node = qsi_ram_find(&dir->names, name);

    QS_ASSERT_HELD(&disk->mutex);
    if (node != NULL) {
        qsi_ram_node_ref(node);
        *node_out = node;
        return must == MUST_NOT_EXIST ? QS_EEXIST : QS_OK;
    }
    if (must == MUST_EXIST) {
        return QS_ENOENT;
    }
    node = qsi_ram_node_create(disk, false);
    if (node == NULL) {
        return QS_ENOMEM;
    }
    *node_out = node;
    return disk->ops->move_name(disk, dir, NULL, name, node);
}

static qs_status open_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *name,
                           enum file_must must, struct qsi_ram_file **file_out, qs_error *error)
{
    qs_status status;
    struct qsi_ram_node *node = NULL;
    struct qsi_ram_file *file = qsi_zalloc(sizeof *file);

    QS_ASSERT_HELD(&disk->mutex);
    if (file == NULL) {
        return qsi_ram_report(error, QS_ENOMEM, "open", name);
    }
    status = find_or_make_file(disk, dir, name, must, &node);
    if (status != QS_OK) {
        qsi_ram_report(error, status, "open", name);
        goto out;
    }
    if (node->is_dir) {
        status = qsi_ram_fail_kind(error, name, "is not a regular file");
        goto out;
    }
    QS_DCHECK(dir->is_dir && node->refs > 1);
    file->node = node;
    file->dir = dir;
    qsi_ram_node_ref(dir);
    snprintf(file->name, sizeof file->name, "%s", name);
    disk->handle_count++;
    *file_out = file;
    node = NULL;
    file = NULL;
out:
    qsi_ram_node_unref(disk, node);
    qsi_free(file);
    return status;
}

static qs_status ram_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                          qs_file **file_out, qs_error *error)
{
    enum file_must must = (flags & QS_OPEN_CREATE_NEW) != 0 ? MUST_NOT_EXIST : MUST_EXIST;
    struct qsi_ram_file *file = NULL;
    struct qsi_ram_disk *disk;
    qs_status status;

    *file_out = NULL;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(qsi_open_flags_check(flags, name, error));
    disk = qsi_ram_lock_disk(env);
    status = open_file(disk, qsi_ram_dir_of(dir)->node, name, must, &file, error);
    if (status == QS_OK) {
        file->is_writable = (flags & QS_OPEN_WRITE) != 0;
        *file_out = (qs_file *)(void *)file;
    }
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static void close_file(struct qsi_ram_disk *disk, struct qsi_ram_file *file)
{
    QS_ASSERT(disk->handle_count > 0);
    QS_ASSERT_HELD(&disk->mutex);
    if (file->is_lock) {
        QS_DCHECK(file->node->is_locked && file->is_shared == (file->node->reader_count > 0));
        file->node->reader_count -= file->is_shared ? 1 : 0;
        file->node->is_locked = file->node->reader_count > 0;
    }
    disk->handle_count--;
    qsi_ram_node_unref(disk, file->node);
    qsi_ram_node_unref(disk, file->dir);
    qsi_free(file);
}

static void ram_close(qs_env *env, qs_file *file)
{
    struct qsi_ram_disk *disk;

    if (file == NULL) {
        return;
    }
    disk = qsi_ram_lock_disk(env);
    close_file(disk, qsi_ram_file_of(file));
    qsi_mutex_unlock(&disk->mutex);
}

static qs_status ram_read(qs_env *env, qs_file *handle, void *data, size_t bytes, uint64_t offset,
                          size_t *read_out, qs_error *error)
{
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);

    (void)error;
    *read_out = qsi_image_read(&qsi_ram_file_of(handle)->node->image, data, bytes, offset);
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

static qs_status check_writable(const struct qsi_ram_file *file, qs_error *error)
{
    return file->is_writable ? QS_OK
                             : qsi_ram_fail_kind(error, file->name, "is open for reading only");
}

static qs_status ram_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                           uint64_t offset, size_t *written_out, qs_error *error)
{
    struct qsi_ram_file *file = qsi_ram_file_of(handle);
    struct qsi_ram_disk *disk;
    qs_status status;
    size_t bytes = 0;

    QS_ASSERT(part_count <= QS_PARTS_MAX);
    *written_out = 0;
    QS_TRY(check_writable(file, error));
    for (size_t i = 0; i < part_count; i++) {
        bytes += parts[i].bytes;
    }
    if (bytes == 0) {
        return QS_OK;
    }
    disk = qsi_ram_lock_disk(env);
    status = disk->ops->write(disk, file->node, parts, part_count, offset, bytes);
    qsi_mutex_unlock(&disk->mutex);
    if (status == QS_OK) {
        *written_out = bytes;
    }
    return qsi_ram_report(error, status, "write", file->name);
}

static qs_status ram_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    struct qsi_ram_file *file = qsi_ram_file_of(handle);
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);
    qs_status status = disk->ops->sync(disk, file->node);

    qsi_mutex_unlock(&disk->mutex);
    return qsi_ram_report(error, status, "sync", file->name);
}

static qs_status ram_size(qs_env *env, qs_file *handle, uint64_t *bytes_out, qs_error *error)
{
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);

    (void)error;
    *bytes_out = qsi_ram_file_of(handle)->node->image.bytes;
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

static qs_status resize(qs_env *env, qs_file *handle, uint64_t bytes, const char *action,
                        bool allocates, qs_error *error)
{
    struct qsi_ram_file *file = qsi_ram_file_of(handle);
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(check_writable(file, error));
    disk = qsi_ram_lock_disk(env);
    status = allocates ? disk->ops->allocate(disk, file->node, bytes)
                       : disk->ops->truncate(disk, file->node, bytes);
    qsi_mutex_unlock(&disk->mutex);
    return qsi_ram_report(error, status, action, file->name);
}

static qs_status ram_allocate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    return resize(env, handle, bytes, "allocate", true, error);
}

static qs_status ram_truncate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    return resize(env, handle, bytes, "truncate", false, error);
}

/* -- locks ------------------------------------------------------------------------------------ */

/* Creates the lock file if wanted; its content stays empty. */
static qs_status make_lock_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir,
                                const char *name, qs_error *error)
{
    struct qsi_ram_file *file;

    QS_TRY(open_file(disk, dir, name, MAY_EXIST, &file, error));
    close_file(disk, file);
    return QS_OK;
}

static qs_status lock_in(struct qsi_ram_disk *disk, const struct qsi_ram_dir *dir, const char *name,
                         bool is_shared, qs_file **lock_out, qs_error *error)
{
    struct qsi_ram_node *node = dir->node;
    struct qsi_ram_file *lock;

    QS_DCHECK(node->is_locked || node->reader_count == 0);
    QS_ASSERT_HELD(&disk->mutex);
    if (node->is_locked && !(is_shared && node->reader_count > 0)) {
        return qsi_fail(error, QS_ESTORE_LOCKED, "'%s' is locked", name);
    }
    if (!is_shared) {
        QS_TRY(make_lock_file(disk, node, name, error));
    }
    lock = qsi_zalloc(sizeof *lock);
    if (lock == NULL) {
        return qsi_ram_report(error, QS_ENOMEM, "lock", name);
    }
    lock->node = node;
    lock->dir = dir->parent;
    lock->is_lock = true;
    lock->is_shared = is_shared;
    snprintf(lock->name, sizeof lock->name, "%s", name);
    qsi_ram_node_ref(lock->node);
    qsi_ram_node_ref(lock->dir);
    node->is_locked = true;
    node->reader_count += is_shared ? 1 : 0;
    disk->handle_count++;
    *lock_out = (qs_file *)(void *)lock;
    return QS_OK;
}

static qs_status lock_as(qs_env *env, qs_dir *dir, const char *name, bool is_shared,
                         qs_file **lock_out, uint64_t *pid_out, qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    QS_TRY(qsi_name_check(name, error));
    disk = qsi_ram_lock_disk(env);
    status = lock_in(disk, qsi_ram_dir_of(dir), name, is_shared, lock_out, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status ram_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                          uint64_t *pid_out, qs_error *error)
{
    return lock_as(env, dir, name, false, lock_out, pid_out, error);
}

static qs_status ram_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                 uint64_t *pid_out, qs_error *error)
{
    return lock_as(env, dir, name, true, lock_out, pid_out, error);
}

static bool has_name_in(const struct qsi_map *names, const struct qsi_ram_file *file)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    if (qsi_ram_find(names, file->name) == file->node) {
        return true;
    }
    while (qsi_map_next(names, &cursor)) { /* the file was renamed */
        if (cursor.value == file->node) {
            return true;
        }
    }
    return false;
}

static qs_status ram_check_linked(qs_env *env, qs_file *handle, qs_error *error)
{
    const struct qsi_ram_file *file = qsi_ram_file_of(handle);
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);
    bool is_linked = has_name_in(&file->dir->names, file);

    qsi_mutex_unlock(&disk->mutex);
    return is_linked
               ? QS_OK
               : qsi_ram_fail_kind(error, file->name,
                                   file->is_lock ? "locks a directory that is not there any more"
                                                 : "was removed while it was in use");
}

void qsi_ram_file_env_init(qs_env *env)
{
    env->open = ram_open;
    env->close = ram_close;
    env->read = ram_read;
    env->write = ram_write;
    env->sync = ram_sync;
    env->size = ram_size;
    env->allocate = ram_allocate;
    env->truncate = ram_truncate;
    env->lock = ram_lock;
    env->lock_shared = ram_lock_shared;
    env->check_linked = ram_check_linked;
}
