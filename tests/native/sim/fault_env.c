/* The fault environment: passes every call on to an inner one, except for those it was told to
 * fail.
 *
 * Directories are the inner environment's own handles; files are wrapped, because a broken write
 * leaves a mark on its file. */
#include "alloc.h"
#include "check.h"
#include "env_test.h"
#include "error.h"
#include "lock.h"

#define PARTS_SHORT_MAX 8 /* a short write may be shorter than half: few parts are enough */

struct fault_env {
    qs_env env;
    qs_env *inner;
    struct qsi_mutex mutex; /* over what follows */
    enum qsi_fault_kind kind;
    enum qsi_fault_how how;
    uint64_t n; /* 0: off */
    bool is_sticky;
    bool has_fired;
    bool was_interrupted; /* the last counted call got QS_EINTR */
    uint64_t calls;
};

struct fault_file {
    qs_file *inner;
    bool is_broken; /* half of a write landed: the next one fails */
};

static struct fault_env *fault_of(qs_env *env)
{
    return env->data;
}

static qs_env *inner_of(qs_env *env)
{
    return fault_of(env)->inner;
}

static struct fault_file *fault_file_of(qs_file *file)
{
    return (struct fault_file *)(void *)file;
}

/* -- decisions -------------------------------------------------------------------------------- */

static bool is_due(struct fault_env *fault)
{
    if (fault->n == 0 || fault->calls < fault->n) {
        return false;
    }
    if (fault->has_fired && !fault->is_sticky) {
        return false;
    }
    /* A caller that repeats interrupted calls, as it should, must get through some time. */
    return !(fault->how == QSI_FAULT_EINTR && fault->was_interrupted);
}

/* Counts the call; true if it is one to fail, in the way of *how_out. */
static bool draw_fault(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how *how_out)
{
    struct fault_env *fault = fault_of(env);
    bool due = false;

    qsi_mutex_lock(&fault->mutex);
    if (fault->kind == QSI_FAULT_ANY || fault->kind == kind) {
        fault->calls++;
        due = is_due(fault);
        fault->was_interrupted = due && fault->how == QSI_FAULT_EINTR;
        fault->has_fired = fault->has_fired || due;
    }
    *how_out = fault->how;
    qsi_mutex_unlock(&fault->mutex);
    return due;
}

static qs_status fail_injected(qs_error *error, enum qsi_fault_how how, const char *what)
{
    switch (how) {
    case QSI_FAULT_ENOSPC:
        return qsi_fail(error, QS_ENOSPC, "%s: injected: no space left", what);
    case QSI_FAULT_EMFILE:
        return qsi_fail(error, QS_EMFILE, "%s: injected: too many open files", what);
    case QSI_FAULT_EINTR:
        return qsi_fail(error, QS_EINTR, "%s: injected: interrupted", what);
    case QSI_FAULT_EIO:
    case QSI_FAULT_SHORT_EIO:
    case QSI_FAULT_SHORT:
    case QSI_FAULT_SYNC_LOST:
        break;
    }
    return qsi_fail(error, QS_EIO, "%s: injected: input/output error", what);
}

/* For a call that is done or not, with nothing in between. */
static qs_status pass_or_fail(qs_env *env, enum qsi_fault_kind kind, const char *what,
                              qs_error *error)
{
    enum qsi_fault_how how;

    if (!draw_fault(env, kind, &how) || how == QSI_FAULT_SHORT) {
        return QS_OK;
    }
    return fail_injected(error, how, what);
}

/* -- directories and names -------------------------------------------------------------------- */

static qs_status fault_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                     bool *created_out, qs_error *error)
{
    qs_env *inner = inner_of(env);

    *dir_out = NULL;
    *created_out = false;
    QS_TRY(pass_or_fail(env, QSI_FAULT_OPEN, "open directory", error));
    return inner->dir_open_root(inner, path, create, dir_out, created_out, error);
}

static qs_status fault_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                                qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_env *inner = inner_of(env);

    *dir_out = NULL;
    *created_out = false;
    QS_TRY(pass_or_fail(env, QSI_FAULT_OPEN, "open directory", error));
    return inner->dir_open(inner, parent, name, create, dir_out, created_out, error);
}

static qs_status fault_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_env *inner = inner_of(env);
    enum qsi_fault_how how;

    if (draw_fault(env, QSI_FAULT_DIR_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_dir(inner, dir);
        }
        return fail_injected(error, how, "sync directory");
    }
    return inner->dir_sync(inner, dir, error);
}

static qs_status fault_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_env *inner = inner_of(env);
    enum qsi_fault_how how;

    if (draw_fault(env, QSI_FAULT_DIR_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_dir_entry(inner, dir);
        }
        return fail_injected(error, how, "sync parent directory");
    }
    return inner->dir_sync_parent(inner, dir, error);
}

static qs_status fault_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                                qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_READ, "list directory", error));
    return inner->dir_list(inner, dir, visit, context, error);
}

static void fault_dir_close(qs_env *env, qs_dir *dir)
{
    qs_env *inner = inner_of(env);

    inner->dir_close(inner, dir);
}

static qs_status fault_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                              qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_RENAME, "rename", error));
    return inner->rename(inner, dir, from, to, error);
}

static qs_status fault_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_REMOVE, "remove", error));
    return inner->remove(inner, dir, name, error);
}

/* -- files ------------------------------------------------------------------------------------ */

static struct fault_file *create_handle(void)
{
    return qsi_zalloc(sizeof(struct fault_file));
}

static qs_status fault_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                            qs_file **file_out, qs_error *error)
{
    qs_env *inner = inner_of(env);
    struct fault_file *file;
    qs_status status;

    *file_out = NULL;
    QS_TRY(pass_or_fail(env, QSI_FAULT_OPEN, "open", error));
    file = create_handle();
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "open '%s': out of memory", name);
    }
    status = inner->open(inner, dir, name, flags, &file->inner, error);
    if (status != QS_OK) {
        qsi_free(file);
        return status;
    }
    *file_out = (qs_file *)(void *)file;
    return QS_OK;
}

typedef qs_status lock_call(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                            uint64_t *pid_out, qs_error *error);

static qs_status lock_with(qs_env *env, lock_call *call, qs_dir *dir, const char *name,
                           qs_file **lock_out, uint64_t *pid_out, qs_error *error)
{
    struct fault_file *file;
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    QS_TRY(pass_or_fail(env, QSI_FAULT_OPEN, "lock", error));
    file = create_handle();
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "lock '%s': out of memory", name);
    }
    status = call(inner_of(env), dir, name, &file->inner, pid_out, error);
    if (status != QS_OK || file->inner == NULL) {
        qsi_free(file);
        return status;
    }
    *lock_out = (qs_file *)(void *)file;
    return QS_OK;
}

static qs_status fault_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                            uint64_t *pid_out, qs_error *error)
{
    return lock_with(env, inner_of(env)->lock, dir, name, lock_out, pid_out, error);
}

static qs_status fault_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                   uint64_t *pid_out, qs_error *error)
{
    return lock_with(env, inner_of(env)->lock_shared, dir, name, lock_out, pid_out, error);
}

static qs_status fault_check_linked(qs_env *env, qs_file *file, qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_CHECK_LINKED, "stat", error));
    return inner->check_linked(inner, fault_file_of(file)->inner, error);
}

static void fault_close(qs_env *env, qs_file *file)
{
    qs_env *inner = inner_of(env);

    if (file != NULL) {
        inner->close(inner, fault_file_of(file)->inner);
        qsi_free(file);
    }
}

static qs_status fault_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                            size_t *read_out, qs_error *error)
{
    qs_env *inner = inner_of(env);
    enum qsi_fault_how how;

    *read_out = 0;
    if (draw_fault(env, QSI_FAULT_READ, &how)) {
        if (how != QSI_FAULT_SHORT) {
            return fail_injected(error, how, "read");
        }
        bytes = bytes / 2 + bytes % 2; /* 0 bytes would mean the end of the file */
    }
    return inner->read(inner, fault_file_of(file)->inner, data, bytes, offset, read_out, error);
}

/* The first parts up to bytes, without the empty ones; their number. */
static size_t take_parts(qs_part *taken, const qs_part *parts, size_t part_count, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < part_count && count < PARTS_SHORT_MAX && bytes > 0; i++) {
        if (parts[i].bytes == 0) {
            continue;
        }
        taken[count] = parts[i];
        if (taken[count].bytes > bytes) {
            taken[count].bytes = bytes;
        }
        bytes -= taken[count].bytes;
        count++;
    }
    return count;
}

static size_t total_bytes(const qs_part *parts, size_t part_count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < part_count; i++) {
        bytes += parts[i].bytes;
    }
    return bytes;
}

static qs_status write_half(qs_env *inner, qs_file *file, const qs_part *parts, size_t part_count,
                            uint64_t offset, size_t *written_out, qs_error *error)
{
    qs_part taken[PARTS_SHORT_MAX];
    size_t bytes = total_bytes(parts, part_count);
    size_t count = take_parts(taken, parts, part_count, bytes / 2 + bytes % 2);

    return inner->write(inner, file, taken, count, offset, written_out, error);
}

static qs_status fault_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                             uint64_t offset, size_t *written_out, qs_error *error)
{
    qs_env *inner = inner_of(env);
    struct fault_file *file = fault_file_of(handle);
    enum qsi_fault_how how;
    bool due = draw_fault(env, QSI_FAULT_WRITE, &how);

    *written_out = 0;
    if (file->is_broken) {
        file->is_broken = false;
        return fail_injected(error, QSI_FAULT_EIO, "write");
    }
    if (!due) {
        return inner->write(inner, file->inner, parts, part_count, offset, written_out, error);
    }
    if (how != QSI_FAULT_SHORT && how != QSI_FAULT_SHORT_EIO) {
        return fail_injected(error, how, "write");
    }
    file->is_broken = how == QSI_FAULT_SHORT_EIO;
    return write_half(inner, file->inner, parts, part_count, offset, written_out, error);
}

static qs_status fault_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    qs_env *inner = inner_of(env);
    qs_file *file = fault_file_of(handle)->inner;
    enum qsi_fault_how how;

    if (draw_fault(env, QSI_FAULT_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_file(inner, file);
        }
        return fail_injected(error, how, "sync");
    }
    return inner->sync(inner, file, error);
}

static qs_status fault_size(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error)
{
    qs_env *inner = inner_of(env);

    *bytes_out = 0;
    QS_TRY(pass_or_fail(env, QSI_FAULT_READ, "size", error));
    return inner->size(inner, fault_file_of(file)->inner, bytes_out, error);
}

static qs_status fault_allocate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_ALLOCATE, "allocate", error));
    return inner->allocate(inner, fault_file_of(file)->inner, bytes, error);
}

static qs_status fault_truncate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_ALLOCATE, "truncate", error));
    return inner->truncate(inner, fault_file_of(file)->inner, bytes, error);
}

static qs_status fault_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                             qs_error *error)
{
    qs_env *inner = inner_of(env);

    return inner->space(inner, dir, total_out, free_out, error);
}

/* -- clock and randomness --------------------------------------------------------------------- */

static uint64_t fault_monotonic_ns(qs_env *env)
{
    qs_env *inner = inner_of(env);

    return inner->monotonic_ns(inner);
}

static uint64_t fault_wall_us(qs_env *env)
{
    qs_env *inner = inner_of(env);

    return inner->wall_us(inner);
}

static qs_status fault_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    qs_env *inner = inner_of(env);

    QS_TRY(pass_or_fail(env, QSI_FAULT_RANDOM, "random", error));
    return inner->random(inner, data, bytes, error);
}

/* -- the environment -------------------------------------------------------------------------- */

static const qs_env fault_functions = {
    .version = QS_ENV_VERSION,
    .dir_open_root = fault_dir_open_root,
    .dir_sync_parent = fault_dir_sync_parent,
    .dir_open = fault_dir_open,
    .dir_sync = fault_dir_sync,
    .dir_list = fault_dir_list,
    .dir_close = fault_dir_close,
    .rename = fault_rename,
    .remove = fault_remove,
    .open = fault_open,
    .close = fault_close,
    .read = fault_read,
    .write = fault_write,
    .sync = fault_sync,
    .size = fault_size,
    .allocate = fault_allocate,
    .truncate = fault_truncate,
    .space = fault_space,
    .lock = fault_lock,
    .lock_shared = fault_lock_shared,
    .check_linked = fault_check_linked,
    .monotonic_ns = fault_monotonic_ns,
    .wall_us = fault_wall_us,
    .random = fault_random,
};

qs_env *qsi_env_fault_create(qs_env *inner)
{
    struct fault_env *fault = qsi_zalloc(sizeof *fault);

    if (fault == NULL) {
        return NULL;
    }
    fault->env = fault_functions;
    fault->env.data = fault;
    fault->inner = inner;
    qsi_mutex_init(&fault->mutex);
    return &fault->env;
}

void qsi_env_fault_destroy(qs_env *env)
{
    if (env != NULL) {
        qsi_mutex_fini(&fault_of(env)->mutex);
        qsi_free(fault_of(env));
    }
}

void qsi_env_fault_arm(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how how, uint64_t n,
                       bool sticky)
{
    struct fault_env *fault = fault_of(env);

    qsi_mutex_lock(&fault->mutex);
    fault->kind = kind;
    fault->how = how;
    fault->n = n;
    fault->is_sticky = sticky;
    fault->has_fired = false;
    fault->was_interrupted = false;
    fault->calls = 0;
    qsi_mutex_unlock(&fault->mutex);
}

bool qsi_env_fault_fired(qs_env *env)
{
    struct fault_env *fault = fault_of(env);
    bool fired;

    qsi_mutex_lock(&fault->mutex);
    fired = fault->has_fired;
    qsi_mutex_unlock(&fault->mutex);
    return fired;
}

uint64_t qsi_env_fault_calls(qs_env *env)
{
    struct fault_env *fault = fault_of(env);
    uint64_t calls;

    qsi_mutex_lock(&fault->mutex);
    calls = fault->calls;
    qsi_mutex_unlock(&fault->mutex);
    return calls;
}
