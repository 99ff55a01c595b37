/* Eventfds for event loops. */
#include "bell.h"

#include "error.h"

#include <errno.h>
#include <sys/eventfd.h>

qs_status qsi_bell_open(int *bell_out, qs_error *error)
{
    *bell_out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (*bell_out < 0) {
        *bell_out = QSI_NO_BELL;
        return qsi_fail_errno(error, QS_EIO, errno, "eventfd");
    }
    return QS_OK;
}

void qsi_bell_ring(int bell)
{
    /* It fails only when nobody has listened 2^64 - 2 times, and is rung all the same then. */
    (void)eventfd_write(bell, 1);
}
