/* Eventfds for event loops. */
#include "event_fd.h"

#include "error.h"

#include <errno.h>
#include <sys/eventfd.h>

qs_status qsi_event_fd_open(int *event_fd_out, qs_error *error)
{
    *event_fd_out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*event_fd_out < 0) {
        *event_fd_out = QSI_NO_EVENT_FD;
        return qsi_fail_errno(error, QS_EIO, errno, "eventfd");
    }
    return QS_OK;
}

void qsi_event_fd_signal(int event_fd)
{
    /* It fails only when nobody has read it 2^64 - 2 times, and is readable all the same then. */
    (void)eventfd_write(event_fd, 1);
}
