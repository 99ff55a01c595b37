/* Channels that are armed for notification: a channel of an event loop, whose eventfd the store
 * signals, or a channel of a thread that sleeps in a call, which the store wakes. */
#ifndef QSI_NOTIFY_H
#define QSI_NOTIFY_H

#include "event_fd.h"
#include "store.h"
#include "thread_safety.h"

/* Whether an event loop waits for it. */
static inline bool qsi_channel_is_listened_to(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    return channel->listener != NULL || channel->event_fd != QSI_NO_EVENT_FD;
}
/* Returns whether the channel was armed. */
bool qsi_channel_disarm(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Signals the channel's eventfd.  REQUIRES an armed channel. */
void qsi_channel_notify(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Notifies channels that listen for any change. */
void qsi_notify_changes(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something came: a thread that looked and released the lock looks again before it waits, and
 * channels that listen for any change are notified.  Waiting threads are woken where they are
 * known: qsi_notify_consumers, qsi_notify_confirmed, and for its own channel qsi_channel_leave. */
static inline void qsi_events_notify(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    store->events.count += 1;
    if (QS_UNLIKELY(!qsi_list_is_empty(&store->events.armed_for_changes))) {
        qsi_notify_changes(store);
    }
}
/* Notifies a channel that was closed, so that its listener finds out. */
void qsi_channel_notify_shut(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

#endif
