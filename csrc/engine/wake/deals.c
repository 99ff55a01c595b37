/* Dealing: of n consumers that have room, message m is for consumer m modulo n, whether its channel
 * asks or not.
 *
 * A queue's consumers stand in a line.  A consumer that asks for a message first deals to those
 * before it in the line: each gets one more message, which is out of the queue, and goes to the end
 * of the line.  A dealt message stays dealt until its consumer asks, pauses or ends.  Consumers
 * whose prefetch is used up are out of the line, so they are not looked at in vain.
 *
 * A queue with one consumer, or an active one, deals nothing: all messages are for that one. */
#include "deals.h"

#include "alloc.h"
#include "check.h"
#include "notify.h"
#include "prefetch.h"
#include "priorities.h"

/* To a consumer without a prefetch, or with a larger one: the others continue when it has so
 * many. */
#define DEALS_MAX 16384u
#define DEALS_FIRST 16u

/* ---- the line ---- */

void qsi_consumer_line_up(struct qsi_store_queue *queue, struct qsi_store_consumer *consumer)
{
    struct qsi_list *place = &queue->consumers;

    QS_DCHECK(consumer->queue == queue && !consumer->is_full);
    while (place->previous != &queue->consumers &&
           qsi_consumer_in_queue(place->previous)->priority < consumer->priority) {
        place = place->previous;
    }
    qsi_list_insert_before(place, &consumer->in_queue);
}

void qsi_consumer_back_in_line(struct qsi_store_consumer *consumer)
{
    if (consumer->is_full && !qsi_consumer_is_used_up(consumer)) {
        consumer->is_full = false;
        qsi_list_remove(&consumer->in_queue);
        qsi_consumer_line_up(consumer->queue, consumer);
    }
}

/* The first that may be dealt a message; never one of a lower priority than a consumer that has
 * room, even if that was dealt its maximum. */
static struct qsi_store_consumer *find_first(struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_consumer *sated = NULL;
    struct qsi_list *next;

    QS_DCHECK(queue->active == NULL && queue->parent == NULL);
    for (struct qsi_list *node = queue->consumers.next; node != &queue->consumers; node = next) {
        struct qsi_store_consumer *consumer = qsi_consumer_in_queue(node);
        next = node->next;
        if (sated != NULL && sated->priority > consumer->priority) {
            break;
        }
        if (qsi_consumer_is_used_up(consumer)) {
            consumer->is_full = true;
            qsi_list_remove(&consumer->in_queue);
            qsi_list_push_back(&queue->full, &consumer->in_queue);
        } else if (!qsi_consumer_has_room(consumer) || consumer->channel->closed) {
            continue;
        } else if (consumer->dealt_count < DEALS_MAX) {
            return consumer;
        } else {
            sated = consumer;
        }
    }
    return NULL;
}

/* ---- deals ---- */

static struct qsi_store_deal *deal_at(const struct qsi_store_deals *deals, uint32_t index)
{
    QS_DCHECK(index < deals->capacity);
    return &deals->deals[(deals->first + index) & (deals->capacity - 1)];
}

static bool make_place(struct qsi_store_deals *deals)
{
    uint32_t capacity = deals->capacity == 0 ? DEALS_FIRST : 2 * deals->capacity;
    struct qsi_store_deal *grown;

    if (deals->count < deals->capacity) {
        return true;
    }
    grown = qsi_zalloc(capacity * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < deals->count; i++) {
        grown[i] = *deal_at(deals, i);
    }
    qsi_free(deals->deals);
    *deals = (struct qsi_store_deals){.deals = grown, .count = deals->count, .capacity = capacity};
    return true;
}

/* Deals one ready message.  False: it is not in memory, or there is no memory. */
static bool deal_one(struct qsi_store_queue *queue, struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_container *container = &qsi_head_subqueue(queue)->container;
    struct qsi_store_deals *deals = &consumer->channel->deals;
    struct qsi_stretch stretch;

    QS_DCHECK(qsi_consumer_has_room(consumer) && !consumer->is_full);
    if (!make_place(deals) || qsi_container_take(container, 1, &stretch) != QSI_TAKE_TAKEN) {
        return false;
    }
    container->taken_count -= 1; /* only then the consumer has it */
    deals->count += 1;
    *deal_at(deals, deals->count - 1) =
        (struct qsi_store_deal){consumer, container, stretch.segment, stretch.slot};
    consumer->dealt_count += 1;
    qsi_consumer_mark_full(consumer);
    qsi_list_remove(&consumer->in_queue);
    qsi_consumer_line_up(queue, consumer);
    if ((consumer->channel->armed_kinds & QS_EVENT_DELIVERY) != 0) {
        qsi_channel_notify(consumer->channel);
    }
    return true;
}

enum qsi_turn qsi_deal_in_line(struct qsi_store_consumer *consumer)
{
    struct qsi_store_queue *queue = consumer->queue;

    QS_DCHECK(queue != NULL && !queue->deleted && consumer->dealt_count == 0);
    while (qsi_has_ready(queue)) {
        struct qsi_store_consumer *first = find_first(queue);
        if (first == NULL) {
            queue->left_for_sated = true;
            return QSI_TURN_OF_OTHERS;
        }
        if (first == consumer) {
            return QSI_TURN_IS_ITS;
        }
        if (!deal_one(queue, first)) {
            return QSI_TURN_UNKNOWN;
        }
    }
    return QSI_TURN_OF_OTHERS;
}

/* It is ready again. */
static void take_back(const struct qsi_store_deal *deal) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stretch stretch = {.segment = deal->segment, .slot = deal->slot, .count = 1};

    QS_DCHECK(deal->consumer->dealt_count > 0);
    deal->container->taken_count += 1; /* as it is given back */
    qsi_container_untake(deal->container, &stretch, 0);
    deal->consumer->dealt_count -= 1;
    qsi_consumer_back_in_line(deal->consumer);
}

static void remove_first(struct qsi_store_deals *deals)
{
    deals->first = (deals->first + 1) & (deals->capacity - 1);
    deals->count -= 1;
}

void qsi_deals_take(struct qs_channel *channel)
{
    const struct qsi_store_deal *deal = qsi_deals_first(channel);

    QS_DCHECK(deal != NULL && deal->consumer->dealt_count > 0);
    deal->consumer->dealt_count -= 1;
    deal->container->taken_count += 1;
    remove_first(&channel->deals);
}

bool qsi_deals_give_up(struct qs_channel *channel, const struct qsi_store_deal *deal)
{
    const struct qsi_store_deal *first = qsi_deals_first(channel);

    if (first == NULL || first->segment != deal->segment || first->slot != deal->slot) {
        return false;
    }
    take_back(first);
    remove_first(&channel->deals);
    return true;
}

bool qsi_deals_return(struct qsi_store_consumer *consumer)
{
    struct qsi_store_deals *deals = &consumer->channel->deals;
    uint32_t kept = 0;

    QS_DCHECK(consumer->dealt_count <= deals->count);
    if (consumer->dealt_count == 0) {
        return false;
    }
    for (uint32_t i = 0; i < deals->count; i++) {
        struct qsi_store_deal deal = *deal_at(deals, i);
        if (deal.consumer == consumer) {
            take_back(&deal);
        } else {
            *deal_at(deals, kept++) = deal;
        }
    }
    deals->count = kept;
    return true;
}

void qsi_deals_fini(struct qs_channel *channel)
{
    QS_ASSERT(channel->deals.count == 0);
    qsi_free(channel->deals.deals);
    channel->deals = (struct qsi_store_deals){.deals = NULL};
}
