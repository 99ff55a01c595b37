/* Messages that leave a queue without a consumer: they expired, exceed a limit, were rejected, or
 * delivered too often.
 *
 * They are reserved: out, as if delivered, in the unacked messages of an internal channel.  From
 * there they are dropped, or moved to the queue's dead-letter exchange: the publish there and the
 * end of the message here are one atomic group of the journal, so a crash leaves the message in one
 * of the two places.  If the process dies, reserved messages are back in their queues.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_REMOVALS_H
#define QSI_REMOVALS_H

#include "limits.h"
#include "thread_safety.h"

/* ---- drain.c ---- */

/* May release the lock.  Removes the listed messages in their order, as far as possible; the others
 * are tried again.  It moves a few dead letters at a time if a timer can move the others, else all.
 * If the caller must not wait, the lock is kept: messages above a limit leave the queue, and dead
 * letters are the timer's. */
void qsi_drain_removals(struct qs_store *store, enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex);
/* Messages that could not leave are tried again, before later ones.  REQUIRES that no thread drains
 * the removal list: its list must not change then. */
void qsi_retry_stuck(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
bool qsi_is_retry_due(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether the list has messages other than those that wait to be tried again. */
bool qsi_has_leaving(const struct qsi_removals *removals) QSI_REQUIRES(qsi_store_mutex);

/* ---- internal_channel.c ---- */

qs_status qsi_removals_open(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Before the threads start: adds messages that expired meanwhile, or exceed a limit after a
 * crash. */
qs_status qsi_removals_after_recovery(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES no threads; releases the lock meanwhile.  Messages that cannot leave are requeued. */
void qsi_removals_shut(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_removals_free(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- timer.c ---- */

void *qsi_run_timer(void *store);

/* ---- dead_letter.c ---- */

/* May release the lock.  Moves the removal's messages, or drops those without a destination;
 * messages that must not be dropped are left in *stuck_out.  After a failure the remaining messages
 * stay reserved. */
qs_status qsi_dead_letter(struct qs_store *store, const struct qsi_removal *removal,
                          struct qsi_buf *stuck_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock.  Adds the outcome of the channel's rejected messages to its open
 * transaction. */
qs_status qsi_dead_letter_in_tx(struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
