/* Calls of an environment, repeated if a signal interrupted them before they did anything, so that
 * callers need not handle that.  Transfers are in file.h, and so are syncs, which are never
 * repeated. */
#ifndef QSI_ENV_CALL_H
#define QSI_ENV_CALL_H

#include "qstore/env.h"

#include "error.h"

#define QSI_UNTIL_DONE(call)               \
    do {                                   \
        qs_status qsi_status_;             \
        do {                               \
            qsi_status_ = (call);          \
        } while (qsi_status_ == QS_EINTR); \
        return qsi_status_;                \
    } while (0)

static inline QS_MUST_CHECK qs_status qsi_env_dir_open_root(qs_env *env, const char *path,
                                                            bool create, qs_dir **dir_out,
                                                            bool *created_out, qs_error *error)
{
    QSI_UNTIL_DONE(env->dir_open_root(env, path, create, dir_out, created_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_dir_open(qs_env *env, qs_dir *parent,
                                                       const char *name, bool create,
                                                       qs_dir **dir_out, bool *created_out,
                                                       qs_error *error)
{
    QSI_UNTIL_DONE(env->dir_open(env, parent, name, create, dir_out, created_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_dir_list(qs_env *env, qs_dir *dir,
                                                       qs_name_visitor *visit, void *context,
                                                       qs_error *error)
{
    QSI_UNTIL_DONE(env->dir_list(env, dir, visit, context, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_rename(qs_env *env, qs_dir *dir, const char *from,
                                                     const char *to, qs_error *error)
{
    QSI_UNTIL_DONE(env->rename(env, dir, from, to, error));
}

/* QS_NOT_IMPLEMENTED, too, if the environment has no links. */
static inline QS_MUST_CHECK qs_status qsi_env_link(qs_env *env, qs_dir *from_dir, const char *from,
                                                   qs_dir *to_dir, const char *to, qs_error *error)
{
    if (env->link == NULL) {
        return qsi_fail(error, QS_NOT_IMPLEMENTED, "link '%s': there are no links here", from);
    }
    QSI_UNTIL_DONE(env->link(env, from_dir, from, to_dir, to, error));
}

/* Callers may ignore the status. */
static inline qs_status qsi_env_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    QSI_UNTIL_DONE(env->remove(env, dir, name, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_open(qs_env *env, qs_dir *dir, const char *name,
                                                   uint32_t flags, qs_file **file_out,
                                                   qs_error *error)
{
    QSI_UNTIL_DONE(env->open(env, dir, name, flags, file_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_size(qs_env *env, qs_file *file, uint64_t *bytes_out,
                                                   qs_error *error)
{
    QSI_UNTIL_DONE(env->size(env, file, bytes_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_truncate(qs_env *env, qs_file *file, uint64_t bytes,
                                                       qs_error *error)
{
    QSI_UNTIL_DONE(env->truncate(env, file, bytes, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_lock(qs_env *env, qs_dir *dir, const char *name,
                                                   qs_file **lock_out, uint64_t *pid_out,
                                                   qs_error *error)
{
    QSI_UNTIL_DONE(env->lock(env, dir, name, lock_out, pid_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_check_linked(qs_env *env, qs_file *file,
                                                           qs_error *error)
{
    QSI_UNTIL_DONE(env->check_linked(env, file, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_lock_shared(qs_env *env, qs_dir *dir,
                                                          const char *name, qs_file **lock_out,
                                                          uint64_t *pid_out, qs_error *error)
{
    QSI_UNTIL_DONE(env->lock_shared(env, dir, name, lock_out, pid_out, error));
}

static inline QS_MUST_CHECK qs_status qsi_env_random(qs_env *env, void *data, size_t bytes,
                                                     qs_error *error)
{
    QSI_UNTIL_DONE(env->random(env, data, bytes, error));
}

#endif
