/* Declarations shared by the files of the real environment: system calls on descriptors. */
#ifndef QSI_ENV_POSIX_INTERNAL_H
#define QSI_ENV_POSIX_INTERNAL_H

#include "qstore/env.h"

#include <sys/stat.h>

struct qsi_posix_dir {
    int fd;
};

struct qsi_posix_file {
    int fd;
    struct qsi_posix_lock *lock;      /* NULL: not a lock but a file */
    char name[QS_NAME_BYTES_MAX + 1]; /* as opened, for error texts */
};

static inline struct qsi_posix_dir *qsi_posix_dir_of(qs_dir *dir)
{
    return (struct qsi_posix_dir *)(void *)dir;
}

static inline struct qsi_posix_file *qsi_posix_file_of(qs_file *file)
{
    return (struct qsi_posix_file *)(void *)file;
}

/* ---- errors and descriptors: env_posix_fd.c ---- */

/* The error of the system call that just failed: call it before anything else changes errno. */
qs_status qsi_posix_fail(qs_error *error, const char *what, const char *name);
/* The same for open, whose ELOOP means a symbolic link. */
qs_status qsi_posix_fail_open(qs_error *error, const char *name);
/* QS_EIO: "'name' what". */
qs_status qsi_posix_fail_kind(qs_error *error, const char *name, const char *what);

/* Returns -1 with errno set on failure.  Descriptors are close-on-exec and above the standard
 * streams; a symbolic link is not followed. */
int qsi_posix_open_at(int dir_fd, const char *name, int flags);
int qsi_posix_open_directory_at(int parent_fd, const char *name, int more_flags);

qs_status qsi_posix_check_regular(int fd, const char *name, bool may_be_linked,
                                  struct stat *stat_out, qs_error *error) QS_MUST_CHECK;
/* Restores permission bits that the umask removed from a new file. */
qs_status qsi_posix_set_file_mode(int fd, const char *name, const struct stat *stat,
                                  qs_error *error) QS_MUST_CHECK;
/* False, too, if the system call fails: only certainty counts. */
bool qsi_posix_is_unlinked(int fd);

/* ---- calls of the environment: env_posix_dir.c ---- */

qs_status qsi_posix_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                  bool *created_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                             qs_dir **dir_out, bool *created_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_dir_sync(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                             qs_error *error) QS_MUST_CHECK;
void qsi_posix_dir_close(qs_env *env, qs_dir *dir);
qs_status qsi_posix_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                           qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_link(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                         const char *to, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_watch(qs_env *env, qs_dir *dir, int *fd_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_remove(qs_env *env, qs_dir *dir, const char *name,
                           qs_error *error) QS_MUST_CHECK;

/* ---- calls of the environment: env_posix_file.c ---- */

qs_status qsi_posix_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                         qs_file **file_out, qs_error *error) QS_MUST_CHECK;
void qsi_posix_close(qs_env *env, qs_file *handle);
qs_status qsi_posix_read(qs_env *env, qs_file *handle, void *data, size_t bytes, uint64_t offset,
                         size_t *read_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                          uint64_t offset, size_t *written_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_sync(qs_env *env, qs_file *handle, qs_error *error) QS_MUST_CHECK;
void qsi_posix_begin_sync(qs_env *env, qs_file *handle, uint64_t offset, uint64_t bytes);
qs_status qsi_posix_size(qs_env *env, qs_file *handle, uint64_t *bytes_out,
                         qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_allocate(qs_env *env, qs_file *handle, uint64_t bytes,
                             qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_truncate(qs_env *env, qs_file *handle, uint64_t bytes,
                             qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                          qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                uint64_t *pid_out, qs_error *error) QS_MUST_CHECK;
qs_status qsi_posix_check_linked(qs_env *env, qs_file *handle, qs_error *error) QS_MUST_CHECK;

/* ---- the lock of a directory: env_posix_lock.c ---- */

struct qsi_posix_lock;

qs_status qsi_posix_lock_take(int dir_fd, const char *name, bool is_shared,
                              struct qsi_posix_lock **lock_out, uint64_t *pid_out,
                              qs_error *error) QS_MUST_CHECK;
/* In a forked child it frees only memory: the descriptors were closed at the fork. */
void qsi_posix_lock_release(struct qsi_posix_lock *lock);
qs_status qsi_posix_lock_check(const struct qsi_posix_lock *lock, qs_error *error) QS_MUST_CHECK;

#endif
