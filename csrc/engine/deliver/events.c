/* Events: what a broker would send unasked, for callers that ask and for listeners. */
#include "armed.h"
#include "check.h"
#include "commit.h"
#include "consume.h"
#include "content.h"
#include "counts.h"
#include "deals.h"
#include "deliveries.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "notify.h"
#include "prefetch.h"
#include "priorities.h"
#include "queue_life.h"
#include "receive.h"
#include "returns.h"
#include "settle.h"
#include "store.h"
#include "stream_deliver.h"
#include "trace.h"
#include "turns.h"
#include "wake.h"
#include "ways.h"

#include <string.h>

/* ---- confirm mode ---- */

qs_status qs_channel_confirm_select(qs_channel *channel, qs_error *error)
{
    qs_status status = QS_OK;

    QS_TRY(qsi_channel_enter(channel, error));
    if (channel->tx_selected) {
        status = qsi_fail(error, QS_PRECONDITION_FAILED, "cannot switch from tx to confirm mode");
    } else {
        channel->confirms.selected = true;
    }
    return qsi_channel_leave_after(channel, QSI_MUST_NOT_WAIT, status);
}

uint64_t qs_channel_next_publish_number(qs_channel *channel)
{
    uint64_t number = 0;

    if (qsi_channel_enter(channel, NULL) == QS_OK) {
        number = channel->confirms.selected ? channel->confirms.last_number + 1 : 0;
        qsi_store_leave(channel->store);
    }
    return number;
}

qs_status qs_channel_wait_confirms(qs_channel *channel, uint64_t timeout_ns, bool *nacked_out,
                                   qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_confirms *confirms = &channel->confirms;
    uint64_t lsn;
    qs_status status;

    *nacked_out = false;
    QS_TRY(qsi_channel_enter(channel, error));
    if (!confirms->selected) {
        return qsi_channel_leave(
            channel, qsi_fail(error, QS_PRECONDITION_FAILED, "channel is not in confirm mode"));
    }
    lsn = qsi_confirms_last_lsn(confirms);
    status = qsi_commit_wait(store, lsn, timeout_ns, error);
    if (qsi_confirms_last_lsn(confirms) <= qsi_journal_durable_lsn(store->journal)) {
        status = QS_OK; /* the rest was confirmed meanwhile, ahead of the disk */
    } else if (status == QS_ESTORE_FAILED) { /* what is pending is nacked */
        confirms->nacked = true;
        confirms->nack_reported = true;
        status = QS_OK;
    }
    if (status == QS_OK) {
        *nacked_out = confirms->nacked;
        confirms->nacked = false;
    }
    return qsi_channel_leave(channel, status);
}

/* ---- events ---- */

/* refusing: the id of the full queue; 0: the store failed. */
static void report_why(struct qs_store *store, uint64_t refusing, qs_event *event)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue = refusing != 0 ? qsi_find_by_id(store, refusing) : NULL;
    struct qsi_chunk *name = queue != NULL ? qsi_chunk_create(queue->name.bytes) : NULL;

    event->reason = refusing != 0 ? QS_EQUEUE_FULL : QS_ESTORE_FAILED;
    if (name != NULL) {
        memcpy(name->data, queue->name.data, queue->name.bytes);
        name->used = queue->name.bytes;
        event->message.queue = (qs_slice){name->data, name->used};
        event->message.hold_names = name;
    }
}

static bool next_confirm(struct qs_channel *channel, qs_event *event) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    uint64_t refusing;
    enum qsi_verdict verdict = qsi_confirms_next(
        &channel->confirms, qsi_journal_durable_lsn(store->journal), store->failed,
        &event->publish_number, &event->multiple, &event->count, &refusing);

    if (verdict == QSI_VERDICT_NONE) {
        return false;
    }
    if (QS_LIKELY(verdict == QSI_VERDICT_ACK)) {
        event->kind = QS_EVENT_ACK;
        store->stats.confirmed += event->count;
        channel->counts.confirm += event->count;
        if (event->publish_number <= channel->confirms.reported) {
            qsi_ways_reported(channel, event->publish_number);
        } else if (channel->confirms.has_early) {
            qsi_ways_reported_early(channel, event->publish_number);
        }
        if (channel->confirms.immediate.count == 0) {
            channel->confirms.has_early = false;
        }
    } else {
        event->kind = QS_EVENT_NACK;
        report_why(store, refusing, event);
    }
    if (qsi_is_traced(store)) {
        qsi_trace_verdict(&(struct qsi_traced_verdict){.channel = channel,
                                                       .number = event->publish_number,
                                                       .multiple = event->multiple,
                                                       .is_ack = verdict == QSI_VERDICT_ACK});
    }
    return true;
}

/* The outcome of calls that did not wait: durable, or never durable. */
static bool next_durable(struct qs_channel *channel, qs_event *event) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_store *store = channel->store;
    uint64_t durable = qsi_journal_durable_lsn(store->journal);
    uint64_t last = channel->awaited_last_lsn;

    if (channel->awaited_first_lsn == 0 ||
        (channel->awaited_first_lsn > durable && !store->failed)) {
        return false;
    }
    event->kind = QS_EVENT_DURABLE;
    event->lsn = channel->awaited_first_lsn <= durable ? durable : 0;
    channel->awaited_first_lsn = event->lsn != 0 && last > durable ? last : 0;
    channel->awaited_last_lsn = channel->awaited_first_lsn;
    return true;
}

/* A consumer whose queue was deleted: reported once, then forgotten. */
static bool next_cancel(struct qs_channel *channel, qs_event *event) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *consumer;

    if (QS_LIKELY(qsi_list_is_empty(&channel->cancelled))) {
        return false;
    }
    consumer = QSI_LIST_OWNER(channel->cancelled.next, struct qsi_store_consumer, in_channel);
    event->kind = QS_EVENT_CANCEL;
    qsi_consumer_share_names(consumer, &event->message);
    qsi_drop_consumer(consumer);
    return true;
}

/* Whether the consumer may have a message, once all expired messages are gone. */
static bool can_take(struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = consumer->queue;

    if (!qsi_consumer_can_take(consumer)) {
        return false;
    }
    return queue->consumer_count == 1 || consumer->dealt_count > 0 ||
           (qsi_expire(consumer->channel->store, queue, NULL) == QS_OK &&
            qsi_consumer_can_take(consumer));
}

/* The next consumer in turn that may have a ready message; it goes to the end of the line.  If
 * beside is not NULL, only consumers of other queues. */
static struct qsi_store_consumer *choose_in_turn(struct qs_channel *channel,
                                                 const struct qsi_store_queue *beside)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t in_vain = 0;
    struct qsi_list *next;

    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = next) {
        struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel);
        uint32_t dealt = channel->deals.count;
        enum qsi_turn turn;
        next = node->next;
        if (consumer->dealt_count > 0 || (beside != NULL && consumer->queue == beside)) {
            continue;
        }
        if (!can_take(consumer)) {
            qsi_consumer_looked_at(consumer, &in_vain);
            continue;
        }
        turn = qsi_deal_to(consumer);
        if (channel->deals.count > dealt) {
            return NULL; /* others of the channel came before it */
        }
        if (turn != QSI_TURN_OF_OTHERS) {
            qsi_list_remove(&consumer->in_channel);
            qsi_list_push_back(&channel->consumers, &consumer->in_channel);
            return consumer;
        }
    }
    return NULL;
}

/* The channel's next consumer that may have a message: consumers with dealt messages and consumers
 * without take turns. */
static struct qsi_store_consumer *choose_consumer(struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_deal *deal = qsi_deals_first(channel);
    struct qsi_store_consumer *consumer = NULL;

    if (QS_UNLIKELY(deal != NULL && !channel->had_deal)) {
        return deal->consumer;
    }
    if (qsi_channel_has_room(channel)) {
        consumer = choose_in_turn(channel, deal != NULL ? deal->consumer->queue : NULL);
    }
    deal = qsi_deals_first(channel);
    if (consumer == NULL && deal != NULL) {
        return deal->consumer;
    }
    QS_DCHECK(consumer != NULL || qsi_rest_is_right(channel) || !qsi_channel_has_room(channel));
    return consumer;
}

/* The consumer got a message: the others' turn comes first now, if it does not already. */
static void record_delivery(struct qsi_store_consumer *consumer, bool was_dealt)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = consumer->queue;

    consumer->channel->had_deal = was_dealt;
    consumer->unacked_count += 1;
    consumer->channel->consumed_count += consumer->no_ack ? 0 : 1;
    if (!was_dealt) {
        qsi_consumer_mark_full(consumer);
    }
    if (queue->consumer_count > 1 && queue->active == NULL && !was_dealt && !consumer->is_full) {
        qsi_list_remove(&consumer->in_queue);
        qsi_consumer_line_up(queue, consumer);
    }
    if (QS_UNLIKELY(queue->left_for_sated) && !qsi_consumer_has_room(consumer)) {
        queue->left_for_sated = false; /* those of lower priorities may have some */
        qsi_events_notify(consumer->channel->store);
        qsi_notify_consumers(consumer->channel->store, queue);
    }
}

static qs_status deliver_dealt(struct qs_channel *channel, struct qsi_store_deal deal,
                               qs_message *message_out, struct qsi_body *body_out,
                               bool *released_out, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status =
        qsi_deliver_dealt(channel, deal, message_out, body_out, released_out, wait, error);

    if (status == QS_OK || status == QS_EWOULDBLOCK) {
        return status;
    }
    if (*released_out && qsi_deals_give_up(channel, &deal)) {
        qsi_check_growth(channel->store, qsi_queue_of_container(deal.container));
    }
    qsi_notify_others(channel); /* it is ready, perhaps for another consumer */
    return status;
}

/* A message for this consumer, which may not exist any more if the lock was released. */
static qs_status deliver_to(struct qsi_store_consumer *consumer, qs_message *message_out,
                            struct qsi_delivery *delivery_out, bool *released_out,
                            enum qsi_wait wait, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = consumer->channel;

    delivery_out->was_dealt = consumer->dealt_count > 0;
    if (QS_UNLIKELY(delivery_out->was_dealt)) {
        QS_DCHECK(qsi_deals_first(channel)->consumer == consumer);
        return deliver_dealt(channel, *qsi_deals_first(channel), message_out, &delivery_out->body,
                             released_out, wait, error);
    }
    if (QS_UNLIKELY(consumer->cursor != NULL)) {
        return qsi_stream_deliver_one(consumer, message_out, delivery_out, released_out, wait,
                                      error);
    }
    return qsi_deliver_one(channel, consumer->queue, consumer, message_out, &delivery_out->body,
                           released_out, wait, error);
}

/* A message for the channel's first consumer that may have one; its body may still have to be read.
 * May release the lock meanwhile.  QS_EEMPTY: no consumer can have a message. */
static qs_status deliver_next(struct qs_channel *channel, struct qsi_store_consumer **consumer_out,
                              qs_message *message_out, struct qsi_delivery *delivery_out,
                              enum qsi_wait wait, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *consumer = NULL;

    delivery_out->is_of_stream = false;
    delivery_out->was_dealt = false;

    /* Others may take the message, or delete the queue, while room is made or the message is read
     * from the disk. */
    for (bool released = true; released;) {
        qs_status status;
        released = false;
        consumer = choose_consumer(channel);
        if (consumer == NULL) {
            return QS_EEMPTY;
        }
        QS_TRY(qsi_make_settle_room(channel, consumer->no_ack, &released, wait, error));
        if (released) {
            continue;
        }
        QS_TRY(qsi_deliveries_make_room(channel, consumer->queue, &released, wait, error));
        if (released) {
            continue;
        }
        if (qsi_unacked_reserve(&channel->unacked, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "delivery");
        }
        status = deliver_to(consumer, message_out, delivery_out, &released, wait, error);
        if (status == QS_EEMPTY) {
            /* All of its messages had expired: perhaps another consumer has some. */
            released = true;
        } else if (status != QS_OK) {
            return status;
        }
    }
    qsi_count_delivered(channel, consumer->queue, 1, message_out->redelivered, false,
                        consumer->no_ack);
    *consumer_out = consumer;
    return QS_OK;
}

/* Releases the lock to read a stored body.  QS_EEMPTY: no consumer can have a message. */
static qs_status next_delivery(struct qs_channel *channel, qs_event *event, enum qsi_wait wait,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_store_consumer *consumer = NULL;
    struct qsi_delivery delivery;
    qs_status status;
    bool no_ack;

    QS_TRY(deliver_next(channel, &consumer, &event->message, &delivery, wait, error));
    no_ack = consumer->no_ack;
    record_delivery(consumer, delivery.was_dealt);
    event->kind = QS_EVENT_DELIVERY;
    qsi_consumer_share_names(consumer, &event->message);
    status = qsi_deliveries_write(channel, error);
    if (status != QS_OK) {
        qsi_hand_back_delivery(channel, event->message.delivery_tag);
        qs_message_release(&event->message);
        return status;
    }
    if (delivery.body.kind != QSI_BODY_EMBEDDED) {
        uint32_t reader = qsi_reader_begin(store);
        qsi_store_unlock(store);
        status = qsi_deliver_body(store, &event->message, &delivery.body, error);
        qsi_store_lock(store);
        qsi_reader_end(store, reader);
    }
    if (QS_UNLIKELY(delivery.is_of_stream) && status == QS_OK) {
        status = qsi_stream_set_offset(&event->message, delivery.offset, error);
    }
    if (status == QS_OK && qsi_is_traced(store) && !channel->closed) {
        qsi_trace_delivered(channel, qsi_slice_of(event->message.queue), &event->message);
    }
    if (status == QS_OK && no_ack && !channel->closed) {
        qsi_settle_no_ack(channel, event->message.delivery_tag, event->message.delivery_tag, wait);
    }
    if (status != QS_OK) {
        if (delivery.is_of_stream) {
            qsi_stream_take_back(channel, event->message.delivery_tag,
                                 status == QS_ECORRUPT ? QSI_STREAM_LOST : QSI_STREAM_COMES_AGAIN);
        } else {
            qsi_withhold_tags(channel, event->message.delivery_tag, event->message.delivery_tag);
        }
        qs_message_release(&event->message);
    }
    return status;
}

static qs_status poll_event(struct qs_channel *channel, uint32_t kinds, qs_event *event,
                            enum qsi_wait wait, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if ((kinds & QS_EVENT_RETURN) != 0 &&
        qsi_return_next(channel->store, &channel->returns, event)) {
        return QS_OK;
    }
    if ((kinds & QS_EVENT_DURABLE) != 0 && next_durable(channel, event)) {
        return QS_OK;
    }
    if ((kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0 && next_confirm(channel, event)) {
        return QS_OK;
    }
    if ((kinds & QS_EVENT_CANCEL) != 0 && next_cancel(channel, event)) {
        return QS_OK;
    }
    return (kinds & QS_EVENT_DELIVERY) != 0 ? next_delivery(channel, event, wait, error)
                                            : QS_EEMPTY;
}

/* Messages of a stream are being written: hurries the committer, or commits here.  True: they are
 * durable now. */
static bool await_rows(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    uint64_t lsn = (kinds & QS_EVENT_DELIVERY) != 0 ? qsi_deliveries_awaited_lsn(channel) : 0;

    if (lsn == 0) {
        return false;
    }
    if (store->options.background) {
        qsi_commit_expedite(store);
        return false;
    }
    return qsi_commit_wait(store, lsn, timeout_ns, NULL) == QS_OK;
}

/* Without threads of its own, a store commits when a caller waits for it. */
static void wait_for_event(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    uint64_t lsn = (kinds & QS_EVENT_ACK) != 0 ? qsi_confirms_last_lsn(&channel->confirms) : 0;
    uint64_t seen = store->events.count;

    if ((kinds & QS_EVENT_DURABLE) != 0 && channel->awaited_last_lsn > lsn) {
        lsn = channel->awaited_last_lsn;
    }
    if (!store->options.background && lsn > qsi_journal_durable_lsn(store->journal) &&
        !store->failed) {
        /* Whatever the outcome, there may be an event now, also of a failure. */
        (void)!qsi_commit_wait(store, lsn, timeout_ns, NULL);
        return;
    }
    if (await_rows(channel, kinds, timeout_ns) || seen != store->events.count) {
        return;
    }
    qsi_channel_await(channel, kinds, timeout_ns);
}

static qs_status closed_meanwhile(const struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_fail(error,
                    channel->store->life >= QSI_LIFE_SHUT ? QS_ESTORE_CLOSED : QS_ECHANNEL_CLOSED,
                    "closed meanwhile");
}

/* REQUIRES that there is no event.  QS_EEMPTY. */
static qs_status arm(struct qs_channel *channel, uint32_t kinds, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_TRY(qsi_channel_arm(channel, kinds, error));
    return QS_EEMPTY;
}

/* The next event; or QS_EEMPTY, and the channel is armed if kinds say so. */
static qs_status poll_or_arm(struct qs_channel *channel, uint32_t kinds, qs_event *event,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_store *store = channel->store;
    uint64_t seen;
    qs_status status;

    do { /* an event may come while the lock is released */
        seen = store->events.count;
        memset(event, 0, sizeof *event);
        status = poll_event(channel, kinds, event, qsi_wait_of(kinds), error);
        if (status != QS_EEMPTY || (kinds & QS_EVENT_ARM) == 0) {
            return status;
        }
        if (channel->closed) { /* likewise: no signal comes any more */
            return closed_meanwhile(channel, error);
        }
    } while (seen != store->events.count);
    return arm(channel, kinds, error);
}

qs_status qs_channel_next_events(qs_channel *channel, uint32_t kinds, uint32_t max,
                                 uint64_t bytes_max, qs_event *events_out, uint32_t *count_out,
                                 qs_error *error)
{
    uint64_t bytes = 0;
    qs_status status = QS_OK;

    *count_out = 0;
    QS_TRY(qsi_channel_enter(channel, error));
    qsi_channel_disarm(channel);
    while (status == QS_OK && *count_out < max && bytes < bytes_max) {
        qs_event *event = &events_out[*count_out];
        status = poll_or_arm(channel, kinds, event, error);
        if (status == QS_OK) {
            bytes += event->message.properties.bytes + event->message.body.bytes;
            *count_out += 1;
        }
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(kinds), status);
}

qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds, uint64_t timeout_ns,
                                qs_event *event_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    enum qsi_wait wait = qsi_wait_of(kinds);
    uint64_t deadline = 0; /* 0: there was no wait yet, so the clock was not read */
    qs_status status;

    memset(event_out, 0, sizeof *event_out);
    QS_TRY(qsi_channel_enter(channel, error));
    qsi_channel_disarm(channel);
    for (;;) {
        uint64_t now;
        uint64_t seen = store->events.count;
        status = poll_event(channel, kinds, event_out, wait, error);
        if (status != QS_EEMPTY || (timeout_ns == 0 && (kinds & QS_EVENT_ARM) == 0)) {
            break;
        }
        if (channel->closed) { /* while the lock was released: no signal comes any more */
            status = closed_meanwhile(channel, error);
            break;
        }
        if (seen != store->events.count) {
            continue; /* the same, and an event came */
        }
        if (timeout_ns == 0) {
            status = arm(channel, kinds, error);
            break;
        }
        now = store->env->monotonic_ns(store->env);
        if (deadline == 0) {
            deadline = now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
        }
        if (now >= deadline) {
            break;
        }
        wait_for_event(channel, kinds, deadline - now);
        if (channel->closed) {
            status = closed_meanwhile(channel, error);
            break;
        }
    }
    return qsi_channel_leave_after(channel, wait, status);
}
