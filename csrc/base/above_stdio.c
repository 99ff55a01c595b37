/* Descriptors that no stray output of the host reaches. */
#define _GNU_SOURCE 1
#include "above_stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* A host that closed stdin would give us its number; a later stray printf would then write into a
 * segment. */
int qsi_move_above_stdio(int fd)
{
    int moved;
    int os_errno;

    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    os_errno = errno;
    close(fd);
    errno = os_errno;
    return moved;
}
