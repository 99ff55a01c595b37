/* An eventfd: a descriptor that an event loop watches.  Signalling it twice is like signalling it
 * once.  On macOS it is a kqueue, which a loop can watch as well, and which is read with kevent. */
#ifndef QSI_EVENT_FD_H
#define QSI_EVENT_FD_H

#include "qstore/status.h"

#define QSI_NO_EVENT_FD (-1)

/* QS_EIO: no descriptor is left.  The event loop closes it, after it has stopped watching it and no
 * thread signals it any more. */
qs_status qsi_event_fd_open(int *event_fd_out, qs_error *error) QS_MUST_CHECK;
void qsi_event_fd_signal(int event_fd);
/* Resets the descriptor without waiting, signalled or not. */
void qsi_event_fd_read(int event_fd);

#endif
