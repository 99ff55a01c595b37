/* Messages that leave a queue although no consumer took them: they expired, are too many, were
 * rejected, or delivered too often.
 *
 * They are reserved: out, as if delivered, in the unacked messages of an internal channel.  From
 * there they are dropped, or moved to the queue's dead-letter exchange: what is published there
 * and the end of the message here are one atomic group of the journal, so that a crash leaves it
 * in one of the two places.  Whatever is reserved when the process dies is back in its queue.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_REMOVALS_H
#define QSI_REMOVALS_H

#include "limits.h"
#include "thread_safety.h"

/* ---- drain.c ---- */

/* May release the lock.  What is to leave does, in its order, as far as it can: what cannot is
 * tried again.  Of dead letters a few at a time where a timer can go on with the others, else
 * all.  With a caller who must not wait the lock is kept: what is too much leaves the queue,
 * and dead letters are the timer's. */
void qsi_drain_removals(struct qs_store *store, enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex);
/* What found no way out tries again, before what came later.  REQUIRES that nobody drains the
 * removal list: its list must not change then. */
void qsi_retry_stuck(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
bool qsi_is_retry_due(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Of those that need not wait. */
bool qsi_has_leaving(const struct removals *removals) QSI_REQUIRES(qsi_store_mutex);

/* ---- internal_channel.c ---- */

qs_status qsi_removals_open(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Before the threads start: what expired meanwhile, and what is too much after a crash, is to
 * leave. */
qs_status qsi_removals_after_recovery(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES no threads; releases the lock meanwhile.  What cannot leave goes back to its
 * queue. */
void qsi_removals_shut(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_removals_free(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- timer.c ---- */

void *qsi_run_timer(void *store);

/* ---- dead_letter.c ---- */

/* May release the lock.  Moves the removal's messages, or drops those that have nowhere to go;
 * those that must not be dropped are left in *stuck_out.  A failure leaves all that was not
 * moved reserved. */
qs_status qsi_dead_letter(struct qs_store *store, const struct removal *removal,
                          struct qsi_buf *stuck_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock.  Adds what becomes of the channel's rejected messages to its open
 * transaction. */
qs_status qsi_dead_letter_in_tx(struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
