/* Whose turn it is. */
#ifndef QSI_TURNS_H
#define QSI_TURNS_H

#include "priorities.h"
#include "store.h"
#include "thread_safety.h"

static inline struct store_consumer *qsi_consumer_in_queue(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct store_consumer, in_queue);
}
/* REQUIRES consumer_count > 0. */
static inline struct store_consumer *qsi_any_consumer(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_consumer_in_queue(qsi_list_is_empty(&queue->consumers) ? queue->full.next
                                                                      : queue->consumers.next);
}
/* Does its limit allow another message? */
bool qsi_channel_has_room(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Has it as many as its prefetch allows? */
bool qsi_consumer_is_used_up(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* It has a message more: its queue's growth counts from here on, if its prefetch is used up. */
static inline void qsi_consumer_note_full(struct store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (consumer->prefetch != 0 && qsi_consumer_is_used_up(consumer)) {
        consumer->full_ready = qsi_ready_count(consumer->queue);
        if (qsi_list_is_empty(&consumer->in_full)) {
            qsi_list_push_back(&consumer->channel->store->watch.full, &consumer->in_full);
        }
    }
}
/* Has its queue grown by as many messages as its prefetch since that was used up, while it
 * acknowledged none? */
bool qsi_consumer_is_slow(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* How many of the store's are. */
uint64_t qsi_slow_count(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Do its prefetch and its channel's allow another message? */
bool qsi_consumer_has_room(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* Was it dealt a message, or does its queue have one that it may have? */
bool qsi_consumer_can_take(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

/* Of many consumers of a channel those alone are looked at that may have a message.  Others rest:
 * until their queue has one, or something that they have is settled. */

/* REQUIRES that it cannot take a message.  Behind some others that could not it rests. */
void qsi_consumer_looked_at(struct store_consumer *consumer, uint32_t *in_vain)
    QSI_REQUIRES(qsi_store_mutex);
/* It may have room again. */
void qsi_consumer_has_settled(struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* The queue has messages again: those that rest for want of one are looked at. */
void qsi_wake_awaiting(struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* For checks: does none rest that could take a message? */
bool qsi_rest_is_right(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

/* How many ready messages are left for a get: behind those of consumers who wait and have room.  Of
 * a queue with priorities: the one that was declared. */
uint64_t qsi_left_for_get(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* Would asking for these kinds of events bring one?  Perhaps not, if what is ready has expired.
 * Messages are dealt (deals.h) to find out. */
bool qsi_has_event(struct qs_channel *channel, uint32_t kinds) QSI_REQUIRES(qsi_store_mutex);

/* There may be messages for who could not have them before: consumers of armed channels are called,
 * and of the threads that wait to get some one.  Of a queue with priorities: the one that was
 * declared. */
void qsi_signal_who_asks(struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_signal_consumers(struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_UNLIKELY(!qsi_list_is_empty(&queue->awaiting))) {
        qsi_wake_awaiting(queue);
    }
    if (store->events.armed_count > 0) {
        qsi_signal_who_asks(store, queue);
    }
}

#endif
