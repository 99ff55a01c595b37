/* The disk in memory, and the functions of its qs_env; those of files and locks are in ram_file.c.
 *
 * Each function holds the disk's mutex while it runs, so any number of threads may call.  The only
 * exception is dir_list, whose visitor may call the environment. */
#include "alloc.h"
#include "buf.h"
#include "check.h"
#include "name.h"
#include "ram_handle.h"

#include <string.h>

/* -- directories ------------------------------------------------------------------------------ */

/* The caller unrefs a node in *node_out, also on failure. */
static qs_status find_or_make_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *parent,
                                  const char *name, bool create, struct qsi_ram_node **node_out,
                                  bool *created_out)
{
    struct qsi_ram_node *node = qsi_ram_find(&parent->names, name);
    qs_status status;

    QS_ASSERT_HELD(&disk->mutex);
    if (node != NULL) {
        qsi_ram_node_ref(node);
        *node_out = node;
        return QS_OK;
    }
    if (!create) {
        return QS_ENOENT;
    }
    node = qsi_ram_node_create(disk, true);
    if (node == NULL) {
        return QS_ENOMEM;
    }
    *node_out = node;
    status = disk->ops->move_name(disk, parent, NULL, name, node);
    *created_out = status == QS_OK;
    return status;
}

static qs_status open_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *parent, const char *name,
                          bool create, qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_status status;
    struct qsi_ram_node *node = NULL;
    struct qsi_ram_dir *dir = qsi_alloc(sizeof *dir);

    QS_ASSERT_HELD(&disk->mutex);
    if (dir == NULL) {
        return qsi_ram_report(error, QS_ENOMEM, "open directory", name);
    }
    status = find_or_make_dir(disk, parent, name, create, &node, created_out);
    if (status != QS_OK) {
        qsi_ram_report(error, status, "open directory", name);
        goto out;
    }
    if (!node->is_dir) {
        status = qsi_ram_fail_kind(error, name, "is not a directory");
        goto out;
    }
    QS_DCHECK(parent->is_dir && node->refs > 1);
    qsi_ram_node_ref(parent);
    *dir = (struct qsi_ram_dir){.node = node, .parent = parent};
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
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);
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
    disk = qsi_ram_lock_disk(env);
    status =
        open_dir(disk, qsi_ram_dir_of(parent)->node, name, create, dir_out, created_out, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status sync_names(qs_env *env, struct qsi_ram_node *node, qs_error *error)
{
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);
    qs_status status = disk->ops->sync(disk, node);

    qsi_mutex_unlock(&disk->mutex);
    return qsi_ram_report(error, status, "sync directory", ".");
}

static qs_status ram_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    return sync_names(env, qsi_ram_dir_of(dir)->node, error);
}

static qs_status ram_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    return sync_names(env, qsi_ram_dir_of(dir)->parent, error);
}

/* Collects the names one after another, each with its NUL. */
static qs_status collect_names(const struct qsi_map *names, struct qsi_buf *list)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    while (qsi_map_next(names, &cursor)) {
        QS_TRY(qsi_buf_append(list, cursor.key, cursor.key_bytes));
        QS_TRY(qsi_buf_append(list, "", 1));
    }
    return QS_OK;
}

/* Walks over a copy, because the visitor may create and remove names. */
static qs_status ram_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                              qs_error *error)
{
    struct qsi_ram_disk *disk = qsi_ram_lock_disk(env);
    struct qsi_buf list = {0};
    qs_status status = collect_names(&qsi_ram_dir_of(dir)->node->names, &list);

    qsi_mutex_unlock(&disk->mutex);
    if (status != QS_OK) {
        qsi_ram_report(error, status, "list directory", ".");
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
    struct qsi_ram_dir *dir = qsi_ram_dir_of(handle);
    struct qsi_ram_disk *disk;

    if (dir == NULL) {
        return;
    }
    disk = qsi_ram_lock_disk(env);
    QS_ASSERT(disk->handle_count > 0);
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

    QS_ASSERT_HELD(&disk->mutex);
    if (node == NULL) {
        return qsi_ram_report(error, QS_ENOENT, "rename", from);
    }
    if (node == target) {
        return QS_OK;
    }
    if (target != NULL && (target->is_dir || node->is_dir)) {
        return qsi_ram_fail_kind(error, to, "is there already, and one of the two is a directory");
    }
    return qsi_ram_report(error, disk->ops->move_name(disk, dir, from, to, node), "rename", from);
}

static qs_status ram_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                            qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    disk = qsi_ram_lock_disk(env);
    status = rename_in(disk, qsi_ram_dir_of(dir)->node, from, to, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status remove_in(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *name,
                           qs_error *error)
{
    struct qsi_ram_node *node = qsi_ram_find(&dir->names, name);

    QS_ASSERT_HELD(&disk->mutex);
    if (node == NULL) {
        return qsi_ram_report(error, QS_ENOENT, "remove", name);
    }
    if (node->is_dir && node->names.count > 0) {
        return qsi_ram_fail_kind(error, name, "is a directory that is not empty");
    }
    return qsi_ram_report(error, disk->ops->move_name(disk, dir, name, NULL, node), "remove", name);
}

static qs_status ram_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(qsi_name_check(name, error));
    disk = qsi_ram_lock_disk(env);
    status = remove_in(disk, qsi_ram_dir_of(dir)->node, name, error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

static qs_status link_in(struct qsi_ram_disk *disk, const struct qsi_ram_node *from_dir,
                         const char *from, struct qsi_ram_node *to_dir, const char *to,
                         qs_error *error)
{
    struct qsi_ram_node *node = qsi_ram_find(&from_dir->names, from);

    QS_ASSERT_HELD(&disk->mutex);
    if (node == NULL) {
        return qsi_ram_report(error, QS_ENOENT, "link", from);
    }
    if (node->is_dir) {
        return qsi_ram_fail_kind(error, from, "is not a regular file");
    }
    if (qsi_ram_find(&to_dir->names, to) != NULL) {
        return qsi_ram_report(error, QS_EEXIST, "link", to);
    }
    return qsi_ram_report(error, disk->ops->move_name(disk, to_dir, NULL, to, node), "link", from);
}

static qs_status ram_link(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                          const char *to, qs_error *error)
{
    struct qsi_ram_disk *disk;
    qs_status status;

    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    disk = qsi_ram_lock_disk(env);
    status = link_in(disk, qsi_ram_dir_of(from_dir)->node, from, qsi_ram_dir_of(to_dir)->node, to,
                     error);
    qsi_mutex_unlock(&disk->mutex);
    return status;
}

/* -- space, clock and randomness -------------------------------------------------------------- */

static qs_status ram_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                           qs_error *error)
{
    (void)env;
    (void)dir;
    (void)error;
    *total_out = *free_out = UINT64_MAX / 4;
    return QS_OK;
}

static void ram_file_system(qs_env *env, qs_dir *dir, qs_file_system *system_out)
{
    (void)env;
    (void)dir;
    *system_out = (qs_file_system){.name = "memory", .kind = QS_FS_VOLATILE};
}

static uint64_t ram_monotonic_ns(qs_env *env)
{
    (void)env;
    return qs_env_posix()->monotonic_ns(qs_env_posix());
}

static uint64_t ram_wall_us(qs_env *env)
{
    (void)env;
    return qs_env_posix()->wall_us(qs_env_posix());
}

static qs_status ram_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    (void)env;
    return qs_env_posix()->random(qs_env_posix(), data, bytes, error);
}

/* -- the disk --------------------------------------------------------------------------------- */

static void init_env(struct qsi_ram_disk *disk)
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
        .space = ram_space,
        .monotonic_ns = ram_monotonic_ns,
        .wall_us = ram_wall_us,
        .random = ram_random,
        .file_system = ram_file_system,
        .link = ram_link,
    };
    qsi_ram_file_env_init(&disk->env);
}

qs_status qsi_ram_disk_init(struct qsi_ram_disk *disk, const struct qsi_ram_ops *ops)
{
    *disk = (struct qsi_ram_disk){.ops = ops};
    disk->top = qsi_ram_node_create(disk, true);
    if (disk->top == NULL) {
        return QS_ENOMEM;
    }
    qsi_mutex_init(&disk->mutex);
    init_env(disk);
    return QS_OK;
}

void qsi_ram_disk_fini(struct qsi_ram_disk *disk)
{
    QS_ASSERT(disk->handle_count == 0);
    QS_ASSERT(disk->top->refs == 1);
    qsi_ram_node_unref(disk, disk->top);
    qsi_mutex_fini(&disk->mutex);
}

/* -- for environments built on this one ------------------------------------------------------- */

struct qsi_ram_node *qsi_ram_node_of_file(qs_file *file)
{
    return qsi_ram_file_of(file)->node;
}

struct qsi_ram_node *qsi_ram_node_of_dir(qs_dir *dir)
{
    return qsi_ram_dir_of(dir)->node;
}

struct qsi_ram_node *qsi_ram_parent_of_dir(qs_dir *dir)
{
    return qsi_ram_dir_of(dir)->parent;
}
