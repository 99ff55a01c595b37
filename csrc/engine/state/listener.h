/* Listeners: one eventfd for the channels of an event loop.
 *
 * A channel that would write to its own eventfd goes to the listener's list instead.  The
 * descriptor is written only if the loop has seen the list empty, so signals cost no system call
 * while the loop works. */
#ifndef QSI_LISTENER_H
#define QSI_LISTENER_H

#include "store.h"
#include "thread_safety.h"

#include <stdbool.h>

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qs_listener {
    struct qs_store *store;
    int event_fd;
    /* It was written and not read since; atomic. */
    bool is_written;
    /* A channel waits for a commit since qs_listener_hold; atomic, written under the lock. */
    bool is_awaited;
    bool is_idle GUARDED;         /* its list was seen empty, and nothing rang since */
    bool holds GUARDED;           /* between qs_listener_hold and qs_listener_go */
    struct qsi_list rang GUARDED; /* qs_channel.in_rang */
    struct qsi_list in_store GUARDED;
};
#undef GUARDED

/* With the lock or without: a later signal writes again. */
void qsi_listener_read(struct qs_listener *listener);
/* There is something for the loop. */
void qsi_listener_wake(struct qs_listener *listener) QSI_REQUIRES(qsi_store_mutex);
/* The listener is not notified of it any more.  NULL is fine. */
void qsi_channel_leave_listener(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

#endif
