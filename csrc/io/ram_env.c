/* The functions of a qs_env over the disk in RAM.
 *
 * Each takes the disk's mutex for its whole length, so that any number of threads may call; the
 * only exception is dir_list, which lets the visitor call back into the environment. */
#include "alloc.h"
#include "buf.h"
#include "check.h"
#include "error.h"
#include "name.h"
#include "ram_disk.h"
#include "splitmix.h"

#include <stdio.h>
#include <string.h>

#define NS_PER_US 1000u
#define WALL_US_AT_START UINT64_C(1735689600000000) /* 2025-01-01 00:00 UTC */

struct ram_dir {
    struct qsi_ram_node *node; /* counted, as the next */
    struct qsi_ram_node *parent;
};

struct ram_file {
    struct qsi_ram_node *node; /* counted; of a lock: the directory */
    struct qsi_ram_node *dir;  /* counted: where it was opened; of a lock: the directory's parent */
    bool is_writable;
    bool is_lock;
    bool is_shared;                   /* a lock that others who read may have as well */
    char name[QS_NAME_BYTES_MAX + 1]; /* as it was opened, for error text */
};

static struct ram_dir *ram_dir_of(qs_dir *dir)
{
    return (struct ram_dir *)(void *)dir;
}

static struct ram_file *ram_file_of(qs_file *file)
{
    return (struct ram_file *)(void *)file;
}

static struct qsi_ram_disk *lock_disk(qs_env *env)
{
    struct qsi_ram_disk *disk = env->data;

    qsi_mutex_lock(&disk->mutex);
    return disk;
}

/* Words for what a step answered; returns status. */
static qs_status report(qs_error *error, qs_status status, const char *what, const char *name)
{
    if (status != QS_OK) {
        qsi_fail(error, status, "%s '%s': %s", what, name, qs_status_text(status));
        qsi_error_set_path(error, name);
    }
    return status;
}

static qs_status fail_kind(qs_error *error, const char *name, const char *what)
{
    qs_status status = qsi_fail(error, QS_EIO, "'%s' %s", name, what);

    qsi_error_set_path(error, name);
    return status;
}

/* -- directories ------------------------------------------------------------------------------ */

/* A node in *node_out is the caller's to unref, also on failure. */
static qs_status find_or_make_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *parent,
                                  const char *name, bool create, struct qsi_ram_node **node_out,
                                  bool *created_out)
{
    struct qsi_ram_node *node = qsi_ram_find(&parent->names, name);
    qs_status status;

    if (node != NULL) {
        qsi_ram_node_ref(node);
        *node_out = node;
        return QS_OK;
    }
    if (!create) {
        return QS_ENOENT;
    }
    node = qsi_ram_node_create(true);
    if (node == NULL) {
        return QS_ENOMEM;
    }
    *node_out = node;
    status = qsi_ram_move_name(disk, parent, NULL, name, node);
    *created_out = status == QS_OK;
    return status;
}

static qs_status open_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *parent, const char *name,
                          bool create, qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_status status;
    struct qsi_ram_node *node = NULL;
    struct ram_dir *dir = qsi_alloc(sizeof *dir);

    if (dir == NULL) {
        return report(error, QS_ENOMEM, "open directory", name);
    }
    status = find_or_make_dir(disk, parent, name, create, &node, created_out);
    if (status != QS_OK) {
        report(error, status, "open directory", name);
        goto out;
    }
    if (!node->is_dir) {
        status = fail_kind(error, name, "is not a directory");
        goto out;
    }
    qsi_ram_node_ref(parent);
    *dir = (struct ram_dir){.node = node, .parent = parent};
    disk->handle_count++;
    *dir_out = (qs_dir *)(void *)dir;
    node = NULL;
    dir = NULL;
out:
    qsi_ram_node_unref(disk, node);
    qsi_free(dir);
    return status;
}

static qs_status ram_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                   bool *created_out, qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    qs_status status;

    *dir_out = NULL;
    *created_out = false;
    status = open_dir(disk, disk->top, path, create, dir_out, created_out, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status ram_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                              qs_dir **dir_out, bool *created_out, qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    *dir_out = NULL;
    *created_out = false;
    QS_TRY(qsi_name_check(name, error));
    disk = lock_disk(env);
    status = open_dir(disk, ram_dir_of(parent)->node, name, create, dir_out, created_out, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status sync_names(qs_env *env, struct qsi_ram_node *node, qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    qs_status status = qsi_ram_sync_dir(disk, node);

    qsi_mutex_unlock(&disk->mutex);
    return report(error, status, "sync directory", ".");
}

static qs_status ram_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    return sync_names(env, ram_dir_of(dir)->node, error);
}

static qs_status ram_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    return sync_names(env, ram_dir_of(dir)->parent, error);
}

/* Every name with its NUL, one behind the other. */
static qs_status collect_names(const struct qsi_map *names, struct qsi_buf *list)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    while (qsi_map_next(names, &cursor)) {
        QS_TRY(qsi_buf_append(list, cursor.key, cursor.key_bytes));
        QS_TRY(qsi_buf_append(list, "", 1));
    }
    return QS_OK;
}

/* Walks over a copy: the visitor may create and remove names. */
static qs_status ram_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                              qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    struct qsi_buf list = {0};
    qs_status status = collect_names(&ram_dir_of(dir)->node->names, &list);

    qsi_mutex_unlock(&disk->mutex);
    if (status != QS_OK) {
        report(error, status, "list directory", ".");
        goto out;
    }
    for (size_t at = 0; at < list.bytes;) {
        const char *name = (const char *)list.data + at;

        if (!visit(context, name)) {
            break;
        }
        at += strlen(name) + 1;
    }
out:
    qsi_buf_fini(&list);
    return status;
}

static void ram_dir_close(qs_env *env, qs_dir *handle)
{
    struct ram_dir *dir = ram_dir_of(handle);
    struct qsi_ram_disk *disk;

    if (dir == NULL) {
        return;
    }
    disk = lock_disk(env);
    disk->handle_count--;
    qsi_ram_node_unref(disk, dir->node);
    qsi_ram_node_unref(disk, dir->parent);
    qsi_mutex_unlock(&disk->mutex);
    qsi_free(dir);
}

/* -- names ------------------------------------------------------------------------------------ */

static qs_status rename_in(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                           const char *to, qs_error *error)
{
    struct qsi_ram_node *node = qsi_ram_find(&dir->names, from);
    const struct qsi_ram_node *target = qsi_ram_find(&dir->names, to);

    if (node == NULL) {
        return report(error, QS_ENOENT, "rename", from);
    }
    if (node == target) {
        return QS_OK;
    }
    if (target != NULL && (target->is_dir || node->is_dir)) {
        return fail_kind(error, to, "is there already, and one of the two is a directory");
    }
    return report(error, qsi_ram_move_name(disk, dir, from, to, node), "rename", from);
}

static qs_status ram_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                            qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    disk = lock_disk(env);
    status = rename_in(disk, ram_dir_of(dir)->node, from, to, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status remove_in(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *name,
                           qs_error *error)
{
    struct qsi_ram_node *node = qsi_ram_find(&dir->names, name);

    if (node == NULL) {
        return report(error, QS_ENOENT, "remove", name);
    }
    if (node->is_dir && node->names.count > 0) {
        return fail_kind(error, name, "is a directory that is not empty");
    }
    return report(error, qsi_ram_move_name(disk, dir, name, NULL, node), "remove", name);
}

static qs_status ram_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(qsi_name_check(name, error));
    disk = lock_disk(env);
    status = remove_in(disk, ram_dir_of(dir)->node, name, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

/* -- files ------------------------------------------------------------------------------------ */

enum file_must { MUST_EXIST, MUST_NOT_EXIST, MAY_EXIST };

/* A node in *node_out is the caller's to unref, also on failure. */
static qs_status find_or_make_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir,
                                   const char *name, enum file_must must,
                                   struct qsi_ram_node **node_out)
{
    struct qsi_ram_node *node = qsi_ram_find(&dir->names, name);

    if (node != NULL) {
        qsi_ram_node_ref(node);
        *node_out = node;
        return must == MUST_NOT_EXIST ? QS_EEXIST : QS_OK;
    }
    if (must == MUST_EXIST) {
        return QS_ENOENT;
    }
    node = qsi_ram_node_create(false);
    if (node == NULL) {
        return QS_ENOMEM;
    }
    *node_out = node;
    return qsi_ram_move_name(disk, dir, NULL, name, node);
}

static qs_status open_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *name,
                           enum file_must must, struct ram_file **file_out, qs_error *error)
{
    qs_status status;
    struct qsi_ram_node *node = NULL;
    struct ram_file *file = qsi_zalloc(sizeof *file);

    if (file == NULL) {
        return report(error, QS_ENOMEM, "open", name);
    }
    status = find_or_make_file(disk, dir, name, must, &node);
    if (status != QS_OK) {
        report(error, status, "open", name);
        goto out;
    }
    if (node->is_dir) {
        status = fail_kind(error, name, "is not a regular file");
        goto out;
    }
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
    struct ram_file *file = NULL;
    struct qsi_ram_disk *disk;
    qs_status status;

    *file_out = NULL;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(qsi_open_flags_check(flags, name, error));
    disk = lock_disk(env);
    status = open_file(disk, ram_dir_of(dir)->node, name, must, &file, error);
    if (status == QS_OK) {
        file->is_writable = (flags & QS_OPEN_WRITE) != 0;
        *file_out = (qs_file *)(void *)file;
    }
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static void close_file(struct qsi_ram_disk *disk, struct ram_file *file)
{
    if (file->is_lock) {
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
    disk = lock_disk(env);
    close_file(disk, ram_file_of(file));
    qsi_mutex_unlock(&disk->mutex);
}

static qs_status ram_read(qs_env *env, qs_file *handle, void *data, size_t bytes, uint64_t offset,
                          size_t *read_out, qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);

    (void)error;
    *read_out = qsi_image_read(&ram_file_of(handle)->node->current, data, bytes, offset);
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

static qs_status check_writable(const struct ram_file *file, qs_error *error)
{
    return file->is_writable ? QS_OK : fail_kind(error, file->name, "is open for reading only");
}

/* ---- a limit of space ---- */

/* As on most file systems: what was reserved, and each page behind it that was written to.  (A page of zeros is taken when
 * something else is written to it.) */
static uint64_t used_bytes(const struct qsi_ram_node *node)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&node->names);
    uint64_t bytes = qsi_round_up(node->reserved_bytes, QSI_IMAGE_PAGE);

    if (!node->is_dir) {
        return bytes + qsi_image_pages(&node->current, bytes) * QSI_IMAGE_PAGE;
    }
    while (qsi_map_next(&node->names, &cursor)) {
        bytes += used_bytes(cursor.value);
    }
    return bytes;
}

/* REQUIRES the mutex.  Is there room for what is to be written, or made sure of, from offset to end? */
static bool has_space(const struct qsi_ram_disk *disk, const struct qsi_ram_node *node,
                      uint64_t offset, uint64_t end)
{
    uint64_t reserved = qsi_round_up(node->reserved_bytes, QSI_IMAGE_PAGE);
    uint64_t first = offset - offset % QSI_IMAGE_PAGE;
    uint64_t there;

    first = first > reserved ? first : reserved;
    end = qsi_round_up(end, QSI_IMAGE_PAGE);
    if (disk->capacity_bytes == 0 || end <= first) {
        return true;
    }
    there = qsi_image_pages(&node->current, first) - qsi_image_pages(&node->current, end);
    return used_bytes(disk->top) + (end - first) - there * QSI_IMAGE_PAGE <= disk->capacity_bytes;
}

static qs_status ram_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                           qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);

    (void)dir;
    (void)error;
    *total_out = *free_out = UINT64_MAX / 4;
    if (disk->capacity_bytes > 0) {
        uint64_t used = used_bytes(disk->top);
        *total_out = disk->capacity_bytes;
        *free_out = used < disk->capacity_bytes ? disk->capacity_bytes - used : 0;
    }
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

void qsi_env_ram_limit(qs_env *env, uint64_t bytes)
{
    struct qsi_ram_disk *disk = lock_disk(env);

    disk->capacity_bytes = bytes;
    qsi_mutex_unlock(&disk->mutex);
}

uint64_t qsi_env_ram_used(qs_env *env)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    uint64_t bytes = used_bytes(disk->top);

    qsi_mutex_unlock(&disk->mutex);
    return bytes;
}

static qs_status ram_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                           uint64_t offset, size_t *written_out, qs_error *error)
{
    struct ram_file *file = ram_file_of(handle);
    struct qsi_ram_disk *disk;
    qs_status status;
    size_t bytes = 0;

    QS_ASSERT(part_count <= QS_PARTS_MAX);
    *written_out = 0;
    QS_TRY(check_writable(file, error));
    for (size_t i = 0; i < part_count; i++) {
        bytes += parts[i].bytes;
    }
    disk = lock_disk(env);
    status = bytes == 0 || has_space(disk, file->node, offset, offset + bytes)
                 ? qsi_ram_write(disk, file->node, parts, part_count, offset, bytes)
                 : QS_ENOSPC;
    qsi_mutex_unlock(&disk->mutex);
    if (status == QS_OK) {
        *written_out = bytes;
    }
    return report(error, status, "write", file->name);
}

static qs_status ram_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    struct ram_file *file = ram_file_of(handle);
    struct qsi_ram_disk *disk = lock_disk(env);
    qs_status status = qsi_ram_sync_file(disk, file->node);

    qsi_mutex_unlock(&disk->mutex);
    return report(error, status, "sync", file->name);
}

static qs_status ram_size(qs_env *env, qs_file *handle, uint64_t *bytes_out, qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);

    (void)error;
    *bytes_out = ram_file_of(handle)->node->current.bytes;
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

static qs_status ram_allocate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct ram_file *file = ram_file_of(handle);
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(check_writable(file, error));
    disk = lock_disk(env);
    status =
        has_space(disk, file->node, 0, bytes) ? qsi_ram_grow(disk, file->node, bytes) : QS_ENOSPC;
    if (status == QS_OK && bytes > file->node->reserved_bytes) {
        file->node->reserved_bytes = bytes;
    }
    qsi_mutex_unlock(&disk->mutex);
    return report(error, status, "allocate", file->name);
}

static qs_status ram_truncate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct ram_file *file = ram_file_of(handle);
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(check_writable(file, error));
    disk = lock_disk(env);
    status = qsi_ram_truncate(disk, file->node, bytes);
    if (status == QS_OK && bytes < file->node->reserved_bytes) {
        file->node->reserved_bytes = bytes;
    }
    qsi_mutex_unlock(&disk->mutex);
    return report(error, status, "truncate", file->name);
}

/* -- the lock, clock and randomness ----------------------------------------------------------- */

/* The lock file is made, where that is asked for, and its name written by nobody. */
static qs_status make_lock_file(struct qsi_ram_disk *disk, struct qsi_ram_node *dir,
                                const char *name, qs_error *error)
{
    struct ram_file *file;

    QS_TRY(open_file(disk, dir, name, MAY_EXIST, &file, error));
    close_file(disk, file);
    return QS_OK;
}

static qs_status lock_in(struct qsi_ram_disk *disk, const struct ram_dir *dir, const char *name,
                         bool is_shared, qs_file **lock_out, qs_error *error)
{
    struct qsi_ram_node *node = dir->node;
    struct ram_file *lock;

    if (node->is_locked && !(is_shared && node->reader_count > 0)) {
        return qsi_fail(error, QS_ESTORE_LOCKED, "'%s' is locked", name);
    }
    if (!is_shared) {
        QS_TRY(make_lock_file(disk, node, name, error));
    }
    lock = qsi_zalloc(sizeof *lock);
    if (lock == NULL) {
        return report(error, QS_ENOMEM, "lock", name);
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
    disk = lock_disk(env);
    status = lock_in(disk, ram_dir_of(dir), name, is_shared, lock_out, error);
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

static bool has_name_in(const struct qsi_map *names, const struct ram_file *file)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    if (qsi_ram_find(names, file->name) == file->node) {
        return true;
    }
    while (qsi_map_next(names, &cursor)) { /* it was renamed */
        if (cursor.value == file->node) {
            return true;
        }
    }
    return false;
}

static qs_status ram_check_linked(qs_env *env, qs_file *handle, qs_error *error)
{
    const struct ram_file *file = ram_file_of(handle);
    struct qsi_ram_disk *disk = lock_disk(env);
    bool is_linked = has_name_in(&file->dir->names, file);

    qsi_mutex_unlock(&disk->mutex);
    return is_linked ? QS_OK
                     : fail_kind(error, file->name,
                                 file->is_lock ? "locks a directory that is not there any more"
                                               : "was removed while it was in use");
}

/* Strictly increasing, so that code which waits for the clock to move cannot hang. */
static uint64_t ram_monotonic_ns(qs_env *env)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    uint64_t now;

    disk->clock_ns += NS_PER_US;
    now = disk->clock_ns;
    qsi_mutex_unlock(&disk->mutex);
    return now;
}

static uint64_t ram_wall_us(qs_env *env)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    uint64_t now = WALL_US_AT_START + disk->clock_ns / NS_PER_US;

    qsi_mutex_unlock(&disk->mutex);
    return now;
}

static qs_status ram_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    struct qsi_ram_disk *disk = lock_disk(env);
    uint8_t *next = data;

    (void)error;
    for (size_t i = 0; i < bytes; i++) {
        next[i] = (uint8_t)qsi_splitmix_next(&disk->random);
    }
    qsi_mutex_unlock(&disk->mutex);
    return QS_OK;
}

void qsi_ram_env_init(struct qsi_ram_disk *disk)
{
    disk->env = (qs_env){
        .version = QS_ENV_VERSION,
        .data = disk,
        .dir_open_root = ram_dir_open_root,
        .dir_sync_parent = ram_dir_sync_parent,
        .dir_open = ram_dir_open,
        .dir_sync = ram_dir_sync,
        .dir_list = ram_dir_list,
        .dir_close = ram_dir_close,
        .rename = ram_rename,
        .remove = ram_remove,
        .open = ram_open,
        .close = ram_close,
        .read = ram_read,
        .write = ram_write,
        .sync = ram_sync,
        .size = ram_size,
        .allocate = ram_allocate,
        .truncate = ram_truncate,
        .space = ram_space,
        .lock = ram_lock,
        .lock_shared = ram_lock_shared,
        .check_linked = ram_check_linked,
        .monotonic_ns = ram_monotonic_ns,
        .wall_us = ram_wall_us,
        .random = ram_random,
    };
}

/* -- for the environments built on it --------------------------------------------------------- */

struct qsi_ram_disk *qsi_ram_disk_of(qs_env *env)
{
    return env->sync == ram_sync ? env->data : NULL;
}

struct qsi_ram_node *qsi_ram_node_of_file(qs_file *file)
{
    return ram_file_of(file)->node;
}

struct qsi_ram_node *qsi_ram_node_of_dir(qs_dir *dir)
{
    return ram_dir_of(dir)->node;
}

struct qsi_ram_node *qsi_ram_parent_of_dir(qs_dir *dir)
{
    return ram_dir_of(dir)->parent;
}
