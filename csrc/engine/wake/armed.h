/* Arming channels for notification (notify.h): a channel of an event loop, or one of a thread that
 * sleeps in a call. */
#ifndef QSI_ARMED_H
#define QSI_ARMED_H

#include "store.h"
#include "thread_safety.h"

/* Arms the channel: its eventfd is signalled once, when an event of these kinds is there.  REQUIRES
 * that none is there now. */
qs_status qsi_channel_arm(struct qs_channel *channel, uint32_t kinds, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Sleeps until the channel has an event of these kinds or is closed, or for a shorter time.
 * REQUIRES that no such event is there now. */
void qsi_channel_await(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex);
/* The LSN that makes the next messages of one of its consumers durable; 0: there are none. */
uint64_t qsi_deliveries_awaited_lsn(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Notifies the channel if it has an event; else registers it for the commits that it waits for. */
void qsi_notify_if_due(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Notifies channels after a commit, or after the store failed. */
void qsi_notify_confirmed(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
