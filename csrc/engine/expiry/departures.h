/* Messages that leave a queue although no consumer took them: they expired, are too many, were rejected, or delivered too often.
 *
 * They are held: out, as if delivered, in the unacked messages of a channel that belongs to nobody.  From there they are dropped, or
 * moved to the queue's dead-letter exchange: what is published there and the end of the message here are one atomic group of the
 * journal, so that a crash leaves it in one of the two places.  Whatever is held when the process dies is back in its queue.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_DEPARTURES_H
#define QSI_DEPARTURES_H

#include "levels.h"

enum qsi_reason { QSI_EXPIRED, QSI_MAXLEN, QSI_REJECTED, QSI_DELIVERY_LIMIT };

struct departure {
    uint64_t first_tag, last_tag; /* of the holder */
    enum qsi_reason reason;
};

/* ---- departures.c ---- */

/* Room for stretch_count stretches to depart: depart cannot fail then. */
qs_status qsi_depart_reserve(struct qs_store *store, uint32_t stretch_count) QS_MUST_CHECK;
/* Messages of the queue that are out already are on their way. */
void qsi_depart(struct qs_store *store, struct store_queue *queue,
                const struct qsi_stretch *stretch, enum qsi_reason reason);
/* More messages of the level are ready than before: some may be too many, or expire. */
void qsi_note_growth(struct qs_store *store, struct store_queue *level);
/* The queue is in use: it does not go for want of it. */
void qsi_note_use(struct qs_store *store, struct store_queue *queue);
/* What has expired departs, as far as its state is in memory.  Without memory for it, QS_ENOMEM: it is
 * there still, and nobody may have it. */
qs_status qsi_expire_now(struct qs_store *store, struct store_queue *queue,
                         qs_error *error) QS_MUST_CHECK;
static inline qs_status qsi_expire(struct qs_store *store, struct store_queue *queue,
                                   qs_error *error)
{
    return qsi_earliest(queue) != QSI_NEVER ? qsi_expire_now(store, queue, error) : QS_OK;
}
/* What is too much is nobody's any more: before others get the lock.  May release it, to read
 * what is on the disk. */
void qsi_trim(struct qs_store *store);
/* The same, and what is on the disk as well: before anybody is told how many messages there
 * are.  May release the lock. */
void qsi_expire_to_tell(struct qs_store *store, struct store_queue *queue);
/* May release the lock.  What is to leave does, in its order, as far as it can: what cannot is
 * tried again.  Of dead letters a few at a time where a timer can go on with the others, else
 * all.  With a caller who must not wait the lock is kept: what is too much is nobody's any more,
 * and dead letters are the timer's. */
void qsi_see_off(struct qs_store *store);
/* Is there anything to see off?  What could not leave is the timer's business, if there is one. */
static inline bool qsi_has_departures(const struct qs_store *store)
{
    return store->departures.leaving_at < store->departures.leaving.bytes ||
           store->departures.fresh.bytes > 0 || !qsi_list_is_empty(&store->departures.trimming) ||
           (store->departures.stuck.bytes > 0 && !store->timer_running);
}

static inline bool qsi_has_dead_letters(const struct store_queue *queue)
{
    return queue->policy.has_dead_letter_exchange && !queue->deleted;
}
/* Does the queue refuse messages rather than drop others? */
static inline bool qsi_queue_refuses(const struct store_queue *queue)
{
    return queue->policy.overflow != QSI_DROP_HEAD;
}
/* Does what it refuses go on to its dead-letter exchange? */
static inline bool qsi_queue_passes_on(const struct store_queue *queue)
{
    return queue->policy.overflow == QSI_REJECT_PUBLISH_DLX && qsi_has_dead_letters(queue);
}
/* Would the queue refuse one of so many more messages, with so many bytes of bodies together? */
static inline bool qsi_queue_would_refuse(const struct store_queue *queue, uint64_t count,
                                          uint64_t body_bytes)
{
    return qsi_queue_refuses(queue) &&
           (qsi_ready_count(queue) + count > queue->policy.messages_max ||
            (queue->core.counts_bytes &&
             qsi_ready_bytes(queue) + body_bytes > queue->policy.body_bytes_max));
}
/* How many of the messages [first_seq, first_seq + count), just pushed to a level, its queue refuses: the last ones. */
uint32_t qsi_refused_count(struct store_queue *level, uint64_t first_seq, uint32_t count);

qs_status qsi_departures_open(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* Before the threads start: what expired meanwhile, and what is too much after a crash, is to leave. */
qs_status qsi_departures_after_recovery(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock, and no threads; releases it meanwhile.  What cannot leave goes back to its queue. */
void qsi_departures_shut(struct qs_store *store);
void qsi_departures_free(struct qs_store *store);
/* The thread that wakes when something expires. */
/* REQUIRES lock.  The clock was set: the timer is to look again. */
void qsi_departures_look_again(struct qs_store *store);
void *qsi_run_timer(void *store);

/* ---- dead_letter.c ---- */

/* May release the lock.  Moves the departure's messages, or drops those that have nowhere to go; those that must not be dropped are left
 * in *stuck_out.  A failure leaves all that was not moved held. */
qs_status qsi_dead_letter(struct qs_store *store, const struct departure *departure,
                          struct qsi_buf *stuck_out, qs_error *error) QS_MUST_CHECK;
/* May release the lock.  Adds what becomes of the channel's rejected messages to its open transaction. */
qs_status qsi_dead_letter_in_tx(struct qs_channel *channel, qs_error *error) QS_MUST_CHECK;

#endif
