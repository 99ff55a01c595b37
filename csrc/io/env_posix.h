/* What the files of the real environment share: system calls on descriptors. */
#ifndef QSI_ENV_POSIX_H
#define QSI_ENV_POSIX_H

#include "qstore/env.h"

#include <sys/stat.h>

/* For the system call that just failed: call it before anything else can change errno. */
qs_status qsi_posix_fail(qs_error *error, const char *what, const char *name);
/* The same for open, whose ELOOP means a symbolic link. */
qs_status qsi_posix_fail_open(qs_error *error, const char *name);
/* QS_EIO: "'name' what". */
qs_status qsi_posix_fail_kind(qs_error *error, const char *name, const char *what);

/* -1 with errno set on failure.  Close-on-exec, above the standard streams, never through a
 * symbolic link. */
int qsi_posix_open_at(int dir_fd, const char *name, int flags);
int qsi_posix_open_directory_at(int parent_fd, const char *name, int more_flags);

qs_status qsi_posix_check_regular(int fd, const char *name, struct stat *stat_out,
                                  qs_error *error) QS_MUST_CHECK;
/* The umask may have taken bits away from a file that was just made. */
qs_status qsi_posix_set_file_mode(int fd, const char *name, const struct stat *stat,
                                  qs_error *error) QS_MUST_CHECK;
/* Only what is certain counts: not that a call fails. */
bool qsi_posix_is_unlinked(int fd);

/* ---- the lock of a directory: env_posix_lock.c ---- */

struct qsi_posix_lock;

qs_status qsi_posix_lock_take(int dir_fd, const char *name, bool is_shared,
                              struct qsi_posix_lock **lock_out, uint64_t *pid_out,
                              qs_error *error) QS_MUST_CHECK;
/* In a forked child it frees memory only: the descriptors were closed when it was forked. */
void qsi_posix_lock_release(struct qsi_posix_lock *lock);
qs_status qsi_posix_lock_check(const struct qsi_posix_lock *lock, qs_error *error) QS_MUST_CHECK;

#endif
