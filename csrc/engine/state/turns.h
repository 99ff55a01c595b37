/* Whose turn it is. */
#ifndef QSI_TURNS_H
#define QSI_TURNS_H

#include "store.h"
#include "thread_safety.h"

static inline struct store_consumer *qsi_consumer_in_queue(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct store_consumer, in_queue);
}
/* Do its prefetch and its channel's allow another message? */
bool qsi_consumer_has_room(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* Does its queue have a message that it may have? */
bool qsi_consumer_can_take(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES qsi_consumer_can_take.  Are there messages beside those that are for consumers before
 * this one? */
bool qsi_is_turn_of(const struct store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex);

/* Would asking for these kinds of events bring one?  Perhaps not, if what is ready has expired. */
bool qsi_has_event(struct qs_channel *channel, uint32_t kinds) QSI_REQUIRES(qsi_store_mutex);

/* There may be messages for consumers of the queue who could not have them before: those of
 * armed channels are called.  Of a queue with priorities: the one that was declared. */
void qsi_signal_armed_consumers(struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_signal_consumers(const struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (store->events.armed_count > 0 && queue->consumer_count > 0) {
        qsi_signal_armed_consumers(queue);
    }
}

#endif
