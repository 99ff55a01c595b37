/* Counters of channels and queues (qstore/counts.def): plain additions under the lock.  Those of
 * exchanges are the router's, as are those of exchange and queue together (tally.h). */
#ifndef QSI_COUNTS_H
#define QSI_COUNTS_H

#include "priorities.h"
#include "store.h"
#include "thread_safety.h"

/* Makes them.  Without memory for them nothing is counted: the counts go to counters that are never
 * read. */
struct qsi_queue_counts *qsi_counts_make(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* The counters of the queue, for all its priorities.  Made at their first use: queues are many, and
 * most of many are unused. */
static inline struct qsi_queue_counts *qsi_counts_of(struct qs_store *store,
                                                     struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->counts != NULL) ? queue->counts : qsi_counts_make(store, queue);
}

/* The counters of a delivery to a consumer and to a get, by whether it is to be acknowledged. */
#define QSI_COUNT_TAKEN(name, no_ack_name)    \
    if (QS_UNLIKELY(no_ack)) {                \
        channel->counts.no_ack_name += count; \
        counts->no_ack_name += count;         \
    } else {                                  \
        channel->counts.name += count;        \
        counts->name += count;                \
    }
/* Messages of the queue go to the caller of the channel. */
static inline void qsi_count_delivered(struct qs_channel *channel, struct qsi_store_queue *queue,
                                       uint32_t count, uint32_t redelivered, bool by_get,
                                       bool no_ack) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue_counts *counts = qsi_counts_of(channel->store, queue);

    channel->store->stats.delivered += count;
    if (QS_UNLIKELY(redelivered > 0)) {
        channel->counts.redeliver += redelivered;
        counts->redeliver += redelivered;
    }
    if (by_get) {
        QSI_COUNT_TAKEN(get, get_no_ack)
    } else {
        QSI_COUNT_TAKEN(deliver, deliver_no_ack)
    }
}
#undef QSI_COUNT_TAKEN
static inline void qsi_count_empty(struct qs_channel *channel, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    channel->counts.get_empty += 1;
    qsi_counts_of(channel->store, queue)->get_empty += 1;
}
/* By a consumer, or by a caller that got them. */
static inline void qsi_count_acked(struct qs_channel *channel, struct qsi_store_queue *queue,
                                   uint32_t count) QSI_REQUIRES(qsi_store_mutex)
{
    channel->counts.ack += count;
    qsi_counts_of(channel->store, queue)->ack += count;
}
/* The channel has closed: its counts stay in the sums of all channels. */
void qsi_counts_keep(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Counts a settle of this kind of messages of the queue; on the internal channel it only says that
 * their dead letters were published. */
void qsi_count_settled(struct qs_channel *channel, struct qsi_store_queue *queue, uint8_t kind,
                       uint32_t count) QSI_REQUIRES(qsi_store_mutex);

#endif
