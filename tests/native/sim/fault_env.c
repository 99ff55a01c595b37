/* The fault environment: passes every call on to an inner one, except for those it was told to
 * fail. Directories are the inner environment's own handles. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "fault_env_internal.h"

#include <errno.h>

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

bool qsi_fault_draw(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how *how_out)
{
    struct fault_env *fault = qsi_fault_of(env);
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

qs_status qsi_fault_fail(qs_error *error, enum qsi_fault_how how, const char *what)
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
    return qsi_fail_errno(error, QS_EIO, EIO, "%s: injected", what);
}

qs_status qsi_fault_pass_or_fail(qs_env *env, enum qsi_fault_kind kind, const char *what,
                                 qs_error *error)
{
    enum qsi_fault_how how;

    if (!qsi_fault_draw(env, kind, &how) || how == QSI_FAULT_SHORT) {
        return QS_OK;
    }
    return qsi_fault_fail(error, how, what);
}

/* -- directories and names -------------------------------------------------------------------- */

static qs_status fault_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                     bool *created_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    *dir_out = NULL;
    *created_out = false;
    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_OPEN, "open directory", error));
    return inner->dir_open_root(inner, path, create, dir_out, created_out, error);
}

static qs_status fault_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                                qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    *dir_out = NULL;
    *created_out = false;
    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_OPEN, "open directory", error));
    return inner->dir_open(inner, parent, name, create, dir_out, created_out, error);
}

static qs_status fault_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    enum qsi_fault_how how;

    if (qsi_fault_draw(env, QSI_FAULT_DIR_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_dir(inner, dir);
        }
        return qsi_fault_fail(error, how, "sync directory");
    }
    return inner->dir_sync(inner, dir, error);
}

static qs_status fault_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    enum qsi_fault_how how;

    if (qsi_fault_draw(env, QSI_FAULT_DIR_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_dir_entry(inner, dir);
        }
        return qsi_fault_fail(error, how, "sync parent directory");
    }
    return inner->dir_sync_parent(inner, dir, error);
}

static qs_status fault_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                                qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_READ, "list directory", error));
    return inner->dir_list(inner, dir, visit, context, error);
}

static void fault_dir_close(qs_env *env, qs_dir *dir)
{
    qs_env *inner = qsi_fault_inner(env);

    inner->dir_close(inner, dir);
}

static qs_status fault_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                              qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_RENAME, "rename", error));
    return inner->rename(inner, dir, from, to, error);
}

static qs_status fault_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_REMOVE, "remove", error));
    return inner->remove(inner, dir, name, error);
}

static qs_status fault_link(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                            const char *to, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_RENAME, "link", error));
    return inner->link(inner, from_dir, from, to_dir, to, error);
}

/* -- clock and randomness --------------------------------------------------------------------- */

static uint64_t fault_monotonic_ns(qs_env *env)
{
    qs_env *inner = qsi_fault_inner(env);

    return inner->monotonic_ns(inner);
}

static uint64_t fault_wall_us(qs_env *env)
{
    qs_env *inner = qsi_fault_inner(env);

    return inner->wall_us(inner);
}

static qs_status fault_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_RANDOM, "random", error));
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
    .open = qsi_fault_open,
    .close = qsi_fault_close,
    .read = qsi_fault_read,
    .write = qsi_fault_write,
    .sync = qsi_fault_sync,
    .size = qsi_fault_size,
    .allocate = qsi_fault_allocate,
    .truncate = qsi_fault_truncate,
    .space = qsi_fault_space,
    .lock = qsi_fault_lock,
    .lock_shared = qsi_fault_lock_shared,
    .check_linked = qsi_fault_check_linked,
    .link = fault_link,
    .monotonic_ns = fault_monotonic_ns,
    .wall_us = fault_wall_us,
    .random = fault_random,
};

qs_env *qsi_env_fault_create(qs_env *inner)
{
    struct fault_env *fault = qsi_zalloc(sizeof *fault);

    QS_ASSERT(fault != NULL);
    fault->env = fault_functions;
    fault->env.data = fault;
    fault->inner = inner;
    qsi_mutex_init(&fault->mutex);
    return &fault->env;
}

void qsi_env_fault_destroy(qs_env *env)
{
    if (env != NULL) {
        qsi_mutex_fini(&qsi_fault_of(env)->mutex);
        qsi_free(qsi_fault_of(env));
    }
}

void qsi_env_fault_arm(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how how, uint64_t n,
                       bool sticky)
{
    struct fault_env *fault = qsi_fault_of(env);

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
    struct fault_env *fault = qsi_fault_of(env);
    bool fired;

    qsi_mutex_lock(&fault->mutex);
    fired = fault->has_fired;
    qsi_mutex_unlock(&fault->mutex);
    return fired;
}

uint64_t qsi_env_fault_calls(qs_env *env)
{
    struct fault_env *fault = qsi_fault_of(env);
    uint64_t calls;

    qsi_mutex_lock(&fault->mutex);
    calls = fault->calls;
    qsi_mutex_unlock(&fault->mutex);
    return calls;
}
