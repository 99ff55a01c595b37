/* The turns of consumers. */
#ifndef QSI_TURNS_H
#define QSI_TURNS_H

#include "deals.h"
#include "store.h"
#include "thread_safety.h"

/* REQUIRES consumer_count > 0. */
static inline struct qsi_store_consumer *qsi_any_consumer(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_consumer_in_queue(qsi_list_is_empty(&queue->consumers) ? queue->full.next
                                                                      : queue->consumers.next);
}
/* Whether it was dealt a message, or its queue has one that it may have. */
bool qsi_consumer_can_take(const struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

/* Of a channel's many consumers only those are looked at that may have a message.  Others rest:
 * until their queue has one, or one of their messages is settled. */

/* REQUIRES that it cannot take a message.  After some others that could not, it rests. */
void qsi_consumer_looked_at(struct qsi_store_consumer *consumer, uint32_t *in_vain)
    QSI_REQUIRES(qsi_store_mutex);
/* It may have room again. */
void qsi_consumer_has_settled(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* The queue has messages again: consumers that rest because it had none are looked at. */
void qsi_wake_awaiting(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* For checks: whether no consumer rests that could take a message. */
bool qsi_rest_is_right(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

/* The number of ready messages that are left for a get, after those of consumers that wait and have
 * room.  For a queue with priorities: the declared one. */
uint64_t qsi_left_for_get(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* Whether asking for these kinds of events would return one.  It may turn out that it does not, if
 * the ready messages have expired.  Messages are dealt (deals.h) to find out. */
bool qsi_has_event(struct qs_channel *channel, uint32_t kinds) QSI_REQUIRES(qsi_store_mutex);

/* There may be messages for consumers that could not have them before: notifies consumers of armed
 * channels, and one of the threads that wait to get messages.  For a queue with priorities: the
 * declared one. */
void qsi_notify_waiting(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_notify_consumers(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_UNLIKELY(!qsi_list_is_empty(&queue->awaiting))) {
        qsi_wake_awaiting(queue);
    }
    if (store->events.armed_count > 0) {
        qsi_notify_waiting(store, queue);
    }
}

#endif
