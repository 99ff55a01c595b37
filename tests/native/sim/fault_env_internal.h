/* The fault environment: which call fails, and the calls of files. */
#ifndef QSI_FAULT_ENV_INTERNAL_H
#define QSI_FAULT_ENV_INTERNAL_H

#include "env_test.h"
#include "lock.h"

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

static inline struct fault_env *qsi_fault_of(qs_env *env)
{
    return env->data;
}

static inline qs_env *qsi_fault_inner(qs_env *env)
{
    return qsi_fault_of(env)->inner;
}

static inline struct fault_file *qsi_fault_file_of(qs_file *file)
{
    return (struct fault_file *)(void *)file;
}

/* Counts the call; true if it is one to fail, in the way of *how_out. */
bool qsi_fault_draw(qs_env *env, enum qsi_fault_kind kind, enum qsi_fault_how *how_out);
qs_status qsi_fault_fail(qs_error *error, enum qsi_fault_how how, const char *what);
/* For a call that is done or not, with nothing in between. */
qs_status qsi_fault_pass_or_fail(qs_env *env, enum qsi_fault_kind kind, const char *what,
                                 qs_error *error);

qs_status qsi_fault_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                         qs_file **file_out, qs_error *error);
qs_status qsi_fault_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error);
qs_status qsi_fault_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                uint64_t *pid_out, qs_error *error);
qs_status qsi_fault_check_linked(qs_env *env, qs_file *file, qs_error *error);
void qsi_fault_close(qs_env *env, qs_file *file);
qs_status qsi_fault_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                         size_t *read_out, qs_error *error);
qs_status qsi_fault_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                          uint64_t offset, size_t *written_out, qs_error *error);
qs_status qsi_fault_sync(qs_env *env, qs_file *handle, qs_error *error);
qs_status qsi_fault_size(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error);
qs_status qsi_fault_allocate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
qs_status qsi_fault_truncate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
qs_status qsi_fault_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                          qs_error *error);

#endif
