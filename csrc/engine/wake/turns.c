/* Which consumers may have a message, and which channels an event.  The turns of consumers:
 * deals.c. */
#include "turns.h"

#include "check.h"
#include "deals.h"
#include "notify.h"
#include "prefetch.h"
#include "priorities.h"
#include "store_kind.h"
#include "thread_safety.h"
#include "wake.h"

bool qsi_consumer_can_take(const struct qsi_store_consumer *consumer)
{
    const struct qsi_store_queue *queue = consumer->queue;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    if (QS_UNLIKELY(consumer->dealt_count > 0)) {
        return true;
    }
    return queue != NULL &&
           (QS_LIKELY(consumer->cursor == NULL) ? qsi_has_ready(queue)
                                                : queue->kind->has_next(consumer)) &&
           (queue->active == NULL || queue->active == consumer) && qsi_consumer_has_room(consumer);
}

/* ---- rest ---- */

/* Consumers of a channel that are looked at in vain, before others of them rest. */
#define IN_VAIN_MAX 8

/* Unless nothing would wake it. */
static void rest(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = consumer->queue;

    QS_DCHECK(!consumer->rests && queue != NULL);
    if (consumer->cursor != NULL) {
        return; /* a stream announces its messages otherwise */
    }
    if (!qsi_consumer_is_used_up(consumer)) {
        if (qsi_has_ready(queue)) {
            return;
        }
        qsi_list_push_back(&queue->awaiting, &consumer->in_awaiting);
    }
    consumer->rests = true;
    qsi_list_remove(&consumer->in_channel);
    qsi_list_push_back(&consumer->channel->resting, &consumer->in_channel);
}

void qsi_consumer_looked_at(struct qsi_store_consumer *consumer, uint32_t *in_vain)
{
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    *in_vain += 1;
    if (*in_vain > IN_VAIN_MAX) {
        rest(consumer);
    }
}

static void wake(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(consumer->rests);
    consumer->rests = false;
    qsi_list_remove(&consumer->in_awaiting);
    qsi_list_remove(&consumer->in_channel);
    qsi_list_push_back(&consumer->channel->consumers, &consumer->in_channel);
}

void qsi_consumer_has_settled(struct qsi_store_consumer *consumer)
{
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    if (consumer->queue == NULL) {
        return;
    }
    qsi_consumer_back_in_line(consumer);
    if (consumer->rests && qsi_list_is_empty(&consumer->in_awaiting)) {
        wake(consumer);
    }
}

void qsi_wake_awaiting(struct qsi_store_queue *queue)
{
    while (!qsi_list_is_empty(&queue->awaiting)) {
        wake(QSI_LIST_OWNER(queue->awaiting.next, struct qsi_store_consumer, in_awaiting));
    }
}

bool qsi_rest_is_right(const struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    for (const struct qsi_list *node = channel->resting.next; node != &channel->resting;
         node = node->next) {
        if (qsi_consumer_can_take(QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel))) {
            return false;
        }
    }
    return true;
}

/* ---- turns ---- */

/* The number of messages that it may still have. */
static uint64_t room_of(const struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_channel *channel = consumer->channel;
    uint64_t own = UINT64_MAX, shared = UINT64_MAX;

    if (!qsi_consumer_has_room(consumer)) {
        return 0;
    }
    if (consumer->prefetch != 0) {
        own = consumer->prefetch - consumer->unacked_count - consumer->dealt_count;
    }
    if (channel->prefetch_channel != 0) {
        shared = channel->prefetch_channel - channel->consumed_count - channel->deals.count;
    }
    return own < shared ? own : shared;
}

uint64_t qsi_left_for_get(const struct qsi_store_queue *queue)
{
    uint64_t left = qsi_ready_count(queue);

    QS_DCHECK(queue->parent == NULL);
    for (const struct qsi_list *node = queue->consumers.next; node != &queue->consumers;
         node = node->next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_queue);
        if (consumer->channel->waits && (queue->active == NULL || queue->active == consumer)) {
            uint64_t room = room_of(consumer);
            left = left > room ? left - room : 0;
        }
    }
    return left;
}

static bool has_delivery(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t in_vain = 0;
    struct qsi_list *next;

    if (QS_UNLIKELY(channel->deals.count > 0)) {
        return true;
    }
    if (!qsi_channel_has_room(channel)) {
        return false;
    }
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = next) {
        struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel);
        next = node->next;
        if (!qsi_consumer_can_take(consumer)) {
            qsi_consumer_looked_at(consumer, &in_vain);
            continue;
        }
        if (qsi_deal_to(consumer) != QSI_TURN_OF_OTHERS || channel->deals.count > 0) {
            return true;
        }
    }
    return false;
}

static struct qsi_store_consumer *find_armed(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (struct qsi_list *node = queue->consumers.next; node != &queue->consumers;
         node = node->next) {
        struct qsi_store_consumer *consumer = qsi_consumer_in_queue(node);
        if ((consumer->channel->armed_kinds & QS_EVENT_DELIVERY) != 0 &&
            qsi_consumer_can_take(consumer)) {
            return consumer;
        }
    }
    return NULL;
}

static void signal_armed_consumers(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *consumer;
    uint64_t unknown = 0; /* need unknown: one is signalled for each message */

    /* Dealing moves consumers in their line, and signals some: each search begins anew. */
    while ((consumer = find_armed(queue)) != NULL) {
        enum qsi_turn turn = qsi_deal_to(consumer);
        if (turn == QSI_TURN_OF_OTHERS) {
            return;
        }
        if ((consumer->channel->armed_kinds & QS_EVENT_DELIVERY) != 0) {
            qsi_channel_notify(consumer->channel);
        }
        unknown += turn == QSI_TURN_UNKNOWN ? 1 : 0;
        if (unknown > 0 && unknown >= qsi_ready_count(queue)) {
            return;
        }
    }
}

void qsi_notify_waiting(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    if (queue->consumer_count > 0) {
        signal_armed_consumers(queue);
    }
    if (!qsi_list_is_empty(&queue->waiting)) {
        qsi_line_wake_next(store, queue, qsi_ready_count(queue));
    }
}

bool qsi_has_event(struct qs_channel *channel, uint32_t kinds)
{
    const struct qs_store *store = channel->store;

    QS_ASSERT_HELD(&channel->store->mutex);
    return ((kinds & QS_EVENT_DURABLE) != 0 && channel->awaited_first_lsn != 0 &&
            (store->failed ||
             channel->awaited_first_lsn <= qsi_journal_durable_lsn(store->journal))) ||
           ((kinds & QS_EVENT_RETURN) != 0 && !qsi_list_is_empty(&channel->returns)) ||
           ((kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0 &&
            qsi_confirms_has_verdict(&channel->confirms, qsi_journal_durable_lsn(store->journal),
                                     store->failed)) ||
           ((kinds & QS_EVENT_CANCEL) != 0 && !qsi_list_is_empty(&channel->cancelled)) ||
           ((kinds & QS_EVENT_DELIVERY) != 0 && has_delivery(channel));
}
