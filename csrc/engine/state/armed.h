/* Channels that are armed for notification: of event loops, which wait without a thread until an
 * eventfd is signalled, and those of threads that sleep in a call until they are woken. */
#ifndef QSI_PARK_H
#define QSI_PARK_H

#include "store.h"
#include "thread_safety.h"

/* REQUIRES that nothing of these kinds is there.  Its eventfd is signalled once when something
 * is. */
qs_status qsi_channel_arm(struct qs_channel *channel, uint32_t kinds, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES the same.  The caller's thread sleeps until something is, or the channel is closed; it
 * may wake early. */
void qsi_channel_await(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex);
/* Was it armed? */
bool qsi_channel_disarm(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES an armed channel. */
void qsi_channel_signal(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* The same, if there is something for it; else it is seen to that commits ask it. */
void qsi_signal_if_due(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
void qsi_signal_changes(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something is durable, or never will be. */
void qsi_signal_confirmed(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* It was closed: listeners find out. */
void qsi_channel_signal_shut(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

#endif
