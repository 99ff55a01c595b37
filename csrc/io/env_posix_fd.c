/* Errors and descriptors of the real environment: what its directories, files and locks share. */
#define _GNU_SOURCE 1 /* statx */
#include "above_stdio.h"
#include "check.h"
#include "env_posix_internal.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define FILE_MODE 0600
#define MODE_BITS 0777

/* -- errors ----------------------------------------------------------------------------------- */

static qs_status status_of_errno(int os_errno)
{
    switch (os_errno) {
    case ENOMEM:
        return QS_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return QS_ENOSPC;
    case EMFILE:
    case ENFILE:
        return QS_EMFILE;
    case EINTR:
        return QS_EINTR;
    case ENOENT:
        return QS_ENOENT;
    case EEXIST:
        return QS_EEXIST;
    default:
        return QS_EIO;
    }
}

qs_status qsi_posix_fail(qs_error *error, const char *what, const char *name)
{
    int os_errno = errno;
    qs_status status =
        qsi_fail_errno(error, status_of_errno(os_errno), os_errno, "%s '%s'", what, name);

    qsi_error_set_path(error, name);
    return status;
}

qs_status qsi_posix_fail_kind(qs_error *error, const char *name, const char *what)
{
    qs_status status = qsi_fail(error, QS_EIO, "'%s' %s", name, what);

    qsi_error_set_path(error, name);
    return status;
}

qs_status qsi_posix_fail_open(qs_error *error, const char *name)
{
    if (errno == ELOOP) { /* strerror's text would be about levels of links */
        return qsi_posix_fail_kind(error, name, "is a symbolic link, which is never followed");
    }
    return qsi_posix_fail(error, "open", name);
}

/* -- descriptors ------------------------------------------------------------------------------ */

/* O_NONBLOCK: opening a FIFO must not wait for its other end.  The flag has no effect on regular
 * files. */
int qsi_posix_open_at(int dir_fd, const char *name, int flags)
{
    QS_DCHECK((flags & (O_APPEND | O_TRUNC)) == 0); /* writes have explicit offsets */
    return qsi_move_above_stdio(
        openat(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, FILE_MODE));
}

qs_status qsi_posix_check_regular(int fd, const char *name, bool may_be_linked,
                                  struct stat *stat_out, qs_error *error)
{
    if (fstat(fd, stat_out) != 0) {
        return qsi_posix_fail(error, "stat", name);
    }
    if (!S_ISREG(stat_out->st_mode)) {
        return qsi_posix_fail_kind(error, name, "is not a regular file");
    }
    if (stat_out->st_nlink == 0 || (stat_out->st_nlink != 1 && !may_be_linked)) {
        return qsi_posix_fail_kind(error, name,
                                   "has other names as well (hard links), or none any more");
    }
    return QS_OK;
}

qs_status qsi_posix_set_file_mode(int fd, const char *name, const struct stat *stat,
                                  qs_error *error)
{
    if ((stat->st_mode & MODE_BITS) != FILE_MODE && fchmod(fd, FILE_MODE) != 0) {
        return qsi_posix_fail(error, "chmod", name);
    }
    return QS_OK;
}

int qsi_posix_open_directory_at(int parent_fd, const char *name, int more_flags)
{
    return qsi_move_above_stdio(
        openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | more_flags));
}

/* Every commit calls this, so it does not ask for times.  Since Linux 6.13 a file whose times were
 * read gets a new time at its next write, and the sync of that write then writes the inode, too,
 * which takes half as long again.  musl has statx since 1.2.4. */
bool qsi_posix_is_unlinked(int fd)
{
#ifdef STATX_NLINK
    struct statx stat;

    return fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &stat) == 0 && stat.stx_nlink == 0;
#else
    struct stat stat;

    return fd >= 0 && fstat(fd, &stat) == 0 && stat.st_nlink == 0;
#endif
}
