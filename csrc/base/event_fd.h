/* An eventfd: a descriptor that an event loop watches.  Signalling it twice is signalling it
 * once.  On macOS it is a kqueue, which a loop can watch as well, and reads with kevent. */
#ifndef QSI_EVENT_FD_H
#define QSI_EVENT_FD_H

#include "qstore/status.h"

#define QSI_NO_EVENT_FD (-1)

/* QS_EIO: no descriptor is left.  The event loop closes it, when it does not watch it any more and
 * nobody signals it any more. */
qs_status qsi_event_fd_open(int *event_fd_out, qs_error *error) QS_MUST_CHECK;
void qsi_event_fd_signal(int event_fd);
/* Does not wait: whether or not it was signalled, it is not any more. */
void qsi_event_fd_read(int event_fd);

#endif
