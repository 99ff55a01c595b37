/* Whose turn it is: which consumers may have a message, and which channels an event.  The rule is
 * told in consume.c. */
#include "turns.h"

#include "armed.h"
#include "check.h"
#include "priorities.h"
#include "stream_cursor.h"
#include "thread_safety.h"

/* A full channel holds up its no-ack consumers as well, though what they get does not count: as
 * RabbitMQ. */
bool qsi_consumer_has_room(const struct store_consumer *consumer)
{
    const struct qs_channel *channel = consumer->channel;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return !consumer->paused &&
           (consumer->prefetch == 0 || consumer->unacked_count < consumer->prefetch) &&
           (channel->prefetch_channel == 0 || channel->consumed_count < channel->prefetch_channel);
}

bool qsi_consumer_can_take(const struct store_consumer *consumer)
{
    const struct store_queue *queue = consumer->queue;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return queue != NULL &&
           (QS_LIKELY(consumer->cursor == NULL) ? qsi_has_ready(queue)
                                                : qsi_stream_cursor_has_next(consumer)) &&
           (queue->active == NULL || queue->active == consumer) && qsi_consumer_has_room(consumer);
}

bool qsi_is_turn_of(const struct store_consumer *consumer)
{
    struct store_queue *queue = consumer->queue;
    uint64_t left = qsi_ready_count(queue);
    bool is_scarce = left <= consumer->channel->store->events.waiters;

    QS_DCHECK(queue != NULL && !queue->deleted);
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    if (queue->active == consumer || consumer->cursor != NULL) {
        return true; /* nobody else has a message of a cursor */
    }
    for (struct qsi_list *node = queue->consumers.next; node != &consumer->in_queue;
         node = node->next) {
        const struct store_consumer *other = qsi_consumer_in_queue(node);
        if (other->priority > consumer->priority) {
            if (qsi_consumer_has_room(other)) {
                return false;
            }
            continue;
        }
        if (!is_scarce) {
            return true;
        }
        left -= other->channel->waits && qsi_consumer_has_room(other) ? 1 : 0;
        if (left == 0) {
            return false;
        }
    }
    return true;
}

static bool has_delivery(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        const struct store_consumer *consumer =
            QSI_LIST_OWNER(node, struct store_consumer, in_channel);
        if (!qsi_consumer_can_take(consumer)) {
            continue;
        }
        if (qsi_is_turn_of(consumer)) {
            return true;
        }
        qsi_channel_note_deferred(channel);
    }
    return false;
}

void qsi_signal_armed_consumers(struct store_queue *queue)
{
    for (struct qsi_list *node = queue->consumers.next; node != &queue->consumers;
         node = node->next) {
        const struct store_consumer *consumer = qsi_consumer_in_queue(node);
        if ((consumer->channel->armed_kinds & QS_EVENT_DELIVERY) == 0 ||
            !qsi_consumer_can_take(consumer)) {
            continue;
        }
        if (qsi_is_turn_of(consumer)) {
            qsi_channel_signal(consumer->channel);
        } else {
            qsi_channel_note_deferred(consumer->channel);
        }
    }
}

static bool has_cancel(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    for (const struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        if (QSI_LIST_OWNER(node, struct store_consumer, in_channel)->cancelled) {
            return true;
        }
    }
    return false;
}

bool qsi_has_event(struct qs_channel *channel, uint32_t kinds)
{
    const struct qs_store *store = channel->store;

    QS_ASSERT_HELD(&channel->store->mutex);
    return ((kinds & QS_EVENT_RETURN) != 0 && !qsi_list_is_empty(&channel->returns)) ||
           ((kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0 &&
            qsi_confirms_has_verdict(&channel->confirms, qsi_journal_durable_lsn(store->journal),
                                     store->failed)) ||
           ((kinds & QS_EVENT_CANCEL) != 0 && has_cancel(channel)) ||
           ((kinds & QS_EVENT_DELIVERY) != 0 && has_delivery(channel));
}
