/* Channels that are to be notified: the eventfd of an event loop is signalled, or a thread that
 * sleeps in a call is woken. */
#include "notify.h"

#include "check.h"
#include "event_fd.h"
#include "listener.h"
#include "wake.h"

/* ---- listeners ---- */

void qsi_listener_read(struct qs_listener *listener)
{
    if (__atomic_exchange_n(&listener->is_written, false, __ATOMIC_ACQ_REL)) {
        qsi_event_fd_read(listener->event_fd);
    }
}

void qsi_listener_wake(struct qs_listener *listener)
{
    QS_ASSERT_HELD(&listener->store->mutex);
    if (listener->is_idle) {
        listener->is_idle = false;
        qsi_event_fd_signal(listener->event_fd);
        /* After it: a thread that sees this has something to read. */
        __atomic_store_n(&listener->is_written, true, __ATOMIC_RELEASE);
    }
}

/* Its listener is notified. */
static void ring(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(channel->listener != NULL);
    if (qsi_list_is_empty(&channel->in_rang)) {
        qsi_list_push_back(&channel->listener->rang, &channel->in_rang);
    }
    qsi_listener_wake(channel->listener);
}

void qsi_channel_leave_listener(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_list_remove(&channel->in_rang);
    channel->listener = NULL;
}

/* REQUIRES one of both. */
static void notify_loop(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK((channel->listener != NULL) != (channel->event_fd != QSI_NO_EVENT_FD));
    if (channel->listener != NULL) {
        ring(channel);
    } else {
        qsi_event_fd_signal(channel->event_fd);
    }
}

/* ---- armed channels ---- */

static void clear_kinds(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    if (channel->armed_kinds != 0) {
        QS_DCHECK(channel->is_armed && channel->store->events.armed_count > 0);
        channel->armed_kinds = 0;
        channel->store->events.armed_count -= 1;
        qsi_list_remove(&channel->in_changes);
        qsi_list_remove(&channel->in_confirms);
    }
}

void qsi_channel_notify(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    clear_kinds(channel);
    if (channel->is_armed_by_thread) {
        qsi_waiter_wake(channel->store, channel->waiter);
    } else {
        notify_loop(channel);
    }
}

bool qsi_channel_disarm(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (!channel->is_armed) {
        return false;
    }
    clear_kinds(channel);
    channel->is_armed = false;
    channel->waits = false;
    channel->is_armed_by_thread = false;
    return true;
}

/* ---- changes, and the end ---- */

void qsi_notify_changes(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    while (!qsi_list_is_empty(&store->events.armed_for_changes)) {
        qsi_channel_notify(
            QSI_LIST_OWNER(store->events.armed_for_changes.next, struct qs_channel, in_changes));
    }
}

void qsi_channel_notify_shut(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_channel_disarm(channel);
    qsi_waiter_wake(channel->store, channel->waiter);
    if (qsi_channel_is_listened_to(channel)) {
        notify_loop(channel);
    }
}
