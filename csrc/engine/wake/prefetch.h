/* How many messages consumers and channels may have: their prefetch. */
#ifndef QSI_PREFETCH_H
#define QSI_PREFETCH_H

#include "priorities.h"
#include "store.h"
#include "thread_safety.h"

/* Whether its limit permits another message. */
static inline bool qsi_channel_has_room(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    return channel->prefetch_channel == 0 ||
           channel->consumed_count + channel->deals.count < channel->prefetch_channel;
}
/* Whether it has as many as its prefetch permits. */
static inline bool qsi_consumer_is_used_up(const struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return consumer->prefetch != 0 &&
           consumer->unacked_count + consumer->dealt_count >= consumer->prefetch;
}
/* Whether its prefetch and its channel's permit another message.  A full channel also stops its
 * no-ack consumers, though their messages do not count: as in RabbitMQ. */
static inline bool qsi_consumer_has_room(const struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return !consumer->paused && !qsi_consumer_is_used_up(consumer) &&
           qsi_channel_has_room(consumer->channel);
}
/* It has one more message: if its prefetch is used up, its queue's growth counts from here on. */
static inline void qsi_consumer_mark_full(struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (consumer->prefetch != 0 && qsi_consumer_is_used_up(consumer)) {
        consumer->full_ready = qsi_ready_count(consumer->queue);
        if (qsi_list_is_empty(&consumer->in_full)) {
            qsi_list_push_back(&consumer->channel->store->watch.full, &consumer->in_full);
        }
    }
}
/* Whether its queue has grown by as many messages as its prefetch since that was used up, while it
 * acknowledged none. */
bool qsi_consumer_is_slow(const struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* The number of such consumers in the store. */
uint64_t qsi_slow_count(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
