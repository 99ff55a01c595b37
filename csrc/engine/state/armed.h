/* Channels of event loops: armed for notification, they wait without a thread until their
 * eventfd is signalled. */
#ifndef QSI_PARK_H
#define QSI_PARK_H

#include "store.h"

/* REQUIRES lock, and that nothing of these kinds is there.  Its eventfd is signalled once when
 * something is. */
qs_status qsi_channel_arm(struct qs_channel *channel, uint32_t kinds,
                          qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Was it armed? */
bool qsi_channel_disarm(struct qs_channel *channel);
/* REQUIRES lock. */
void qsi_channel_note_deferred(struct qs_channel *channel);
/* REQUIRES lock and an armed channel. */
void qsi_channel_signal(struct qs_channel *channel);
/* The same, if there is something for it; else it is seen to that commits ask it. */
void qsi_signal_if_due(struct qs_channel *channel);
void qsi_signal_changes(struct qs_store *store);
/* REQUIRES lock.  Something is durable, or never will be. */
void qsi_signal_confirmed(struct qs_store *store);
/* REQUIRES lock.  It was closed: whoever listens finds out. */
void qsi_channel_signal_shut(struct qs_channel *channel);

#endif
