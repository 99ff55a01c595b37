/* Moving descriptors above the standard streams. */
#define _GNU_SOURCE 1
#include "above_stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* If the host has closed stdin, a file would get its number; a later stray printf of the host would
 * then write into a segment. */
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
