/* Deliveries of queues that have a limit (x-delivery-limit): a delivery counts before the message
 * is handed out.
 *
 * A caller that takes messages from such a queue journals their deliveries, and the record is
 * written before the messages are handed out: a message that ends its process is counted.  The
 * record is synced with the next commit, so a power cut may lose the last counts.  A message that
 * was delivered as often as the queue permits is removed when it would be delivered once more, or
 * comes back. */
#ifndef QSI_DELIVERIES_H
#define QSI_DELIVERIES_H

#include "priorities.h"
#include "thread_safety.h"

/* Has it been delivered too often?  REQUIRES a queue that counts deliveries, all of them
 * counted. */
bool qsi_is_worn_out(const struct qsi_store_queue *queue, const struct qsi_segment *segment,
                     uint32_t slot) QSI_REQUIRES(qsi_store_mutex);

/* May release the lock meanwhile, and reports that.  Reserves room to count a stretch, if the queue
 * has a message.  QS_ESTORE_FULL: no message can be delivered. */
qs_status qsi_deliveries_find_room(struct qs_channel *channel, const struct qsi_store_queue *queue,
                                   bool *released_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline QS_MUST_CHECK qs_status qsi_deliveries_make_room(struct qs_channel *channel,
                                                               const struct qsi_store_queue *queue,
                                                               bool *released_out,
                                                               enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(!qsi_policy_counts_deliveries(&queue->policy))
               ? QS_OK
               : qsi_deliveries_find_room(channel, queue, released_out, wait, error);
}

/* REQUIRES a stretch that was just taken from a queue that counts.  Reduces the stretch to messages
 * that may be delivered, with memory to count them; count 0: the messages at its start were
 * removed, and the next stretch may be taken.  A failure leaves nothing. */
qs_status qsi_deliveries_screen(struct qs_store *store, struct qsi_store_queue *queue,
                                struct qsi_stretch *stretch, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* After recovery: removes messages at the head of a queue that counts that were delivered too often
 * before a crash.  Messages on the disk, or further back, are removed when they would be
 * delivered. */
qs_status qsi_deliveries_reserve_worn_out(struct qs_store *store, struct qsi_store_queue *queue,
                                          qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES a stretch that was screened, or the beginning of it. */
void qsi_deliveries_count(struct qs_channel *channel, struct qsi_store_queue *queue,
                          const struct qsi_stretch *stretch) QSI_REQUIRES(qsi_store_mutex);
/* May release the lock meanwhile.  Messages that the channel took and counted may be handed out;
 * after a failure the caller hands them back. */
qs_status qsi_deliveries_write_now(struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline QS_MUST_CHECK qs_status qsi_deliveries_write(struct qs_channel *channel,
                                                           qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(channel->counted_lsn == 0) ? QS_OK : qsi_deliveries_write_now(channel, error);
}
/* May release the lock meanwhile.  Reserves room to take back so many messages of the channel.
 * False: the channel was closed meanwhile. */
bool qsi_deliveries_room_to_take_back(struct qs_channel *channel, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Counted messages of a word did not reach the caller.  Without room for the record they stay
 * counted after a crash. */
void qsi_deliveries_take_back(struct qs_store *store, const struct qsi_store_queue *queue,
                              const struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex);

#endif
