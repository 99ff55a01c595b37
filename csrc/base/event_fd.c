/* Eventfds for event loops. */
#include "event_fd.h"

#include "above_stdio.h"
#include "error.h"

#include <errno.h>
#ifdef __APPLE__
#include <fcntl.h>
#include <sys/event.h>
#include <time.h>
#include <unistd.h>
#else
#include <sys/eventfd.h>
#endif

#ifdef __APPLE__
/* One user event in a kqueue; reading it resets it (EV_CLEAR). */
static int change(int event_fd, uint16_t flags, uint32_t user_flags)
{
    struct kevent event;

    EV_SET(&event, 0, EVFILT_USER, flags, user_flags, 0, NULL);
    return kevent(event_fd, &event, 1, NULL, 0, NULL);
}

/* Returns -1 with errno set on failure. */
static int open_event_fd(void)
{
    int fd = qsi_move_above_stdio(kqueue());
    int os_errno;

    if (fd >= 0 && (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || change(fd, EV_ADD | EV_CLEAR, 0) != 0)) {
        os_errno = errno;
        close(fd);
        errno = os_errno;
        return -1;
    }
    return fd;
}
#else
static int open_event_fd(void)
{
    return qsi_move_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}
#endif

qs_status qsi_event_fd_open(int *event_fd_out, qs_error *error)
{
    *event_fd_out = open_event_fd();
    if (*event_fd_out < 0) {
        *event_fd_out = QSI_NO_EVENT_FD;
        return qsi_fail_errno(error, QS_EIO, errno, "eventfd");
    }
    return QS_OK;
}

void qsi_event_fd_signal(int event_fd)
{
#ifdef __APPLE__
    (void)change(event_fd, 0, NOTE_TRIGGER);
#else
    /* It fails only after 2^64 - 2 writes without a read, and the descriptor is readable then,
     * too. */
    (void)eventfd_write(event_fd, 1);
#endif
}

void qsi_event_fd_read(int event_fd)
{
#ifdef __APPLE__
    static const struct timespec at_once;
    struct kevent event;

    (void)kevent(event_fd, NULL, 0, &event, 1, &at_once);
#else
    eventfd_t count;

    (void)eventfd_read(event_fd, &count);
#endif
}
