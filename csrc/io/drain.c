/* Reading the descriptor of qs_env.watch. */
#include "drain.h"

#include <unistd.h>

void qsi_drain_fd(int fd)
{
    char bytes[4096];

    while (fd >= 0 && read(fd, bytes, sizeof bytes) > 0) {
    }
}
