/* Consumers, and events: what a broker would send unasked.
 *
 * A channel's thread asks for the next event; consumers take their turn then.  Prefetch counts what a consumer (or all of the
 * channel's) has out.  Who takes a message is decided when somebody asks for it:
 *   - nobody while a consumer of higher priority has room, whether its channel asks or not;
 *   - within a priority, whoever asks, but for messages that others wait for who come before him in turn. */
#include "consume.h"

#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "deliveries.h"
#include "enter.h"
#include "error.h"
#include "levels.h"
#include "limits.h"
#include "pager.h"
#include "park.h"
#include "queue_life.h"
#include "receive.h"
#include "record.h"
#include "returns.h"
#include "settle.h"
#include "store.h"
#include "topology.h"
#include "turns.h"
#include "wake.h"

#include <stdio.h>
#include <string.h>

/* ---- consumers ---- */

struct consume_call {
    struct qsi_slice tag; /* empty: the store makes one up */
    struct qsi_slice arguments;
    uint32_t flags;
};

static struct store_consumer *find_consumer(struct qs_channel *channel, struct qsi_slice tag)
{
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        struct store_consumer *consumer = QSI_LIST_OWNER(node, struct store_consumer, in_channel);
        if (qsi_slice_equals(consumer->tag, tag)) {
            return consumer;
        }
    }
    return NULL;
}

static qs_status check_exclusive(const struct store_queue *queue, bool exclusive, qs_error *error)
{
    if (queue->exclusive_consumer ||
        (exclusive && (queue->consumer_count > 0 || queue->policy.single_active_consumer))) {
        return qsi_fail(error, QS_ACCESS_REFUSED, "queue '%.*s' in exclusive use",
                        (int)queue->name.bytes, (const char *)queue->name.data);
    }
    return QS_OK;
}

static struct qsi_slice make_up_tag(struct qs_channel *channel, char tag_out[32])
{
    struct qsi_slice tag;

    do {
        snprintf(tag_out, 32, "amq.ctag-%llu", (unsigned long long)++channel->next_consumer_name);
        tag = qsi_slice_make(tag_out, (uint32_t)strlen(tag_out));
    } while (find_consumer(channel, tag) != NULL);
    return tag;
}

static qs_status name_consumer(struct store_consumer *consumer, struct qsi_slice tag,
                               struct qsi_slice queue_name)
{
    char made_up[32];
    uint8_t *at;

    if (tag.bytes == 0) {
        tag = make_up_tag(consumer->channel, made_up);
    }
    consumer->names = qsi_chunk_create((size_t)tag.bytes + queue_name.bytes);
    if (consumer->names == NULL) {
        return QS_ENOMEM;
    }
    at = consumer->names->data;
    memcpy(at, tag.data, tag.bytes);
    memcpy(at + tag.bytes, queue_name.data, queue_name.bytes);
    consumer->tag = qsi_slice_make(at, tag.bytes);
    consumer->queue_name = qsi_slice_make(at + tag.bytes, queue_name.bytes);
    return QS_OK;
}

/* A message for the consumer, or about it, tells its names for as long as it is held. */
static void share_names(const struct store_consumer *consumer, qs_message *message)
{
    message->consumer_tag = qs_slice_of(consumer->tag);
    message->queue = qs_slice_of(consumer->queue_name);
    message->hold_names = qsi_chunk_ref(consumer->names);
}

#define GRACE_US 20000u /* a consumer that waits is awake by then */

/* What is to expire at once may still go to a consumer who is there. */
static void note_consumers(struct store_queue *queue)
{
    for (uint32_t i = 0; i < qsi_level_count(queue); i++) {
        qsi_queue_set_grace(&qsi_level_at(queue, i)->core,
                            queue->consumer_count > 0 ? GRACE_US : 0);
    }
}

/* Behind the others of its priority, before those of lower ones. */
static void line_up(struct store_queue *queue, struct store_consumer *consumer)
{
    struct qsi_list *place = &queue->consumers;

    while (place->previous != &queue->consumers &&
           qsi_consumer_in_queue(place->previous)->priority < consumer->priority) {
        place = place->previous;
    }
    qsi_list_insert_before(place, &consumer->in_queue);
}

static void join_queue(struct store_queue *queue, struct store_consumer *consumer, bool exclusive)
{
    consumer->queue = queue;
    line_up(queue, consumer);
    queue->consumer_count += 1;
    queue->exclusive_consumer = exclusive;
    if (queue->policy.single_active_consumer && queue->active == NULL) {
        queue->active = consumer;
    }
    note_consumers(queue);
}

/* In the order in which a broker looks. */
static qs_status check_consume(struct qs_channel *channel, struct qsi_slice queue_name,
                               const struct consume_call *call, struct store_queue **queue_out,
                               int64_t *priority_out, qs_error *error)
{
    if (call->tag.bytes > 0 && find_consumer(channel, call->tag) != NULL) {
        return qsi_fail(error, QS_NOT_ALLOWED, "attempt to reuse consumer tag '%.*s'",
                        (int)call->tag.bytes, (const char *)call->tag.data);
    }
    QS_TRY(qsi_require_queue(channel, queue_name, queue_out, error));
    QS_TRY(qsi_consumer_priority_parse(priority_out, call->arguments, (*queue_out)->name, error));
    return check_exclusive(*queue_out, (call->flags & QS_EXCLUSIVE) != 0, error);
}

static qs_status add_consumer(struct qs_channel *channel, struct qsi_slice queue_name,
                              const struct consume_call *call, char *tag_out, qs_error *error)
{
    struct store_queue *queue;
    struct store_consumer *consumer;
    int64_t priority;

    QS_TRY(check_consume(channel, queue_name, call, &queue, &priority, error));
    consumer = qsi_zalloc(sizeof *consumer);
    if (consumer == NULL) {
        return qsi_fail(error, QS_ENOMEM, "consumer");
    }
    consumer->channel = channel;
    if (name_consumer(consumer, call->tag, queue->name) != QS_OK) {
        qsi_free(consumer);
        return qsi_fail(error, QS_ENOMEM, "consumer");
    }
    consumer->priority = priority;
    consumer->no_ack = (call->flags & QS_NO_ACK) != 0;
    consumer->prefetch = consumer->no_ack ? 0 : channel->prefetch_new;
    qsi_list_push_back(&channel->consumers, &consumer->in_channel);
    join_queue(queue, consumer, (call->flags & QS_EXCLUSIVE) != 0);
    memcpy(tag_out, consumer->tag.data, consumer->tag.bytes);
    tag_out[consumer->tag.bytes] = '\0';
    return QS_OK;
}

qs_status qs_channel_consume(qs_channel *channel, qs_slice queue, qs_slice consumer_tag,
                             uint32_t flags, qs_slice arguments, char tag_out[256], qs_error *error)
{
    struct consume_call call = {qsi_slice_of(consumer_tag), qsi_slice_of(arguments), flags};
    qs_status status;

    QS_TRY(qsi_check_new_name(consumer_tag, "consumer tag", error));
    QS_TRY(qsi_channel_enter(channel, error));
    status = add_consumer(channel, qsi_slice_of(queue), &call, tag_out, error);
    return qsi_channel_leave(channel, status);
}

/* An auto-delete queue goes with its last consumer; what is ready is somebody else's turn now. */
static void leave_queue(struct store_queue *queue, struct store_consumer *consumer)
{
    struct qs_store *store = consumer->channel->store;

    consumer->queue = NULL;
    qsi_list_remove(&consumer->in_queue);
    queue->consumer_count -= 1;
    queue->exclusive_consumer = false;
    if (queue->active == consumer) {
        queue->active =
            queue->consumer_count > 0 ? qsi_consumer_in_queue(queue->consumers.next) : NULL;
    }
    note_consumers(queue);
    qsi_note_use(store, queue);
    if (queue->consumer_count > 0) {
        qsi_events_announce(store);
        qsi_ring_consumers(store, queue);
    } else if ((queue->flags & QS_AUTO_DELETE) != 0) {
        qsi_delete_queue_now(store, queue);
    }
}

static void free_consumer_if_done(struct store_consumer *consumer)
{
    if (consumer->is_gone && consumer->unacked_count == 0) {
        qsi_chunk_unref(consumer->names);
        qsi_free(consumer);
    }
}

/* What it has unacked stays so, and counts in the channel's limit. */
static void drop_consumer(struct store_consumer *consumer)
{
    qsi_list_remove(&consumer->in_channel);
    if (consumer->queue != NULL) {
        leave_queue(consumer->queue, consumer);
    }
    consumer->is_gone = true;
    free_consumer_if_done(consumer);
}

void qsi_consumer_settled(struct store_consumer *consumer, uint32_t count)
{
    consumer->unacked_count -= count;
    consumer->channel->consumed_count -= consumer->no_ack ? 0 : count;
    free_consumer_if_done(consumer);
}

void qsi_drop_consumers(struct qs_channel *channel)
{
    while (!qsi_list_is_empty(&channel->consumers)) {
        drop_consumer(QSI_LIST_OWNER(channel->consumers.next, struct store_consumer, in_channel));
    }
}

qs_status qs_channel_cancel(qs_channel *channel, qs_slice consumer_tag, qs_error *error)
{
    struct store_consumer *consumer;

    QS_TRY(qsi_channel_enter(channel, error));
    consumer = find_consumer(channel, qsi_slice_of(consumer_tag));
    if (consumer != NULL) {
        drop_consumer(consumer);
    }
    return qsi_channel_leave(channel, QS_OK);
}

/* Its room is another one: so may be what it leaves to the others. */
static void ring_beside(struct qs_channel *channel)
{
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        struct store_queue *queue = QSI_LIST_OWNER(node, struct store_consumer, in_channel)->queue;
        if (queue != NULL) {
            qsi_ring_consumers(channel->store, queue);
        }
    }
}

qs_status qs_channel_qos(qs_channel *channel, uint32_t prefetch_count, uint32_t prefetch_bytes,
                         uint32_t flags, qs_error *error)
{
    QS_TRY(qsi_channel_enter(channel, error));
    if (prefetch_bytes != 0) {
        return qsi_channel_leave(
            channel, qsi_fail(error, QS_NOT_IMPLEMENTED, "prefetch_size!=0 (%u)", prefetch_bytes));
    }
    if ((flags & QS_GLOBAL) != 0) {
        channel->prefetch_channel = prefetch_count;
    } else {
        channel->prefetch_new = prefetch_count;
        channel->prefetch_channel =
            0; /* as RabbitMQ: a later call without global lifts the channel's limit */
    }
    qsi_events_announce(channel->store);
    ring_beside(channel);
    return qsi_channel_leave(channel, QS_OK);
}

qs_status qs_channel_pause(qs_channel *channel, qs_slice consumer_tag, bool paused, qs_error *error)
{
    struct store_consumer *consumer;

    QS_TRY(qsi_channel_enter(channel, error));
    consumer = find_consumer(channel, qsi_slice_of(consumer_tag));
    if (consumer != NULL && consumer->paused != paused) {
        consumer->paused = paused;
        qsi_events_announce(channel->store); /* as when its prefetch changes */
        ring_beside(channel);
    }
    return qsi_channel_leave(channel, QS_OK);
}

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
    return qsi_channel_leave(channel, status);
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
    if (status == QS_ESTORE_FAILED) { /* what is pending is nacked */
        confirms->nacked = true;
        confirms->nack_told = true;
        status = QS_OK;
    }
    if (status == QS_OK) {
        *nacked_out = confirms->nacked;
        confirms->nacked = false;
    }
    return qsi_channel_leave(channel, status);
}

/* ---- events ---- */

static bool next_confirm(struct qs_channel *channel, qs_event *event)
{
    struct qs_store *store = channel->store;
    uint64_t count = 0;
    enum qsi_verdict verdict =
        qsi_confirms_next(&channel->confirms, qsi_journal_durable_lsn(store->journal),
                          store->failed, &event->publish_number, &event->multiple, &count);

    if (verdict == QSI_VERDICT_NONE) {
        return false;
    }
    event->kind = verdict == QSI_VERDICT_ACK ? QS_EVENT_ACK : QS_EVENT_NACK;
    event->count = count;
    store->stats.confirmed += verdict == QSI_VERDICT_ACK ? count : 0;
    return true;
}

/* A consumer whose queue was deleted: told once, then forgotten. */
static bool next_cancel(struct qs_channel *channel, qs_event *event)
{
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        struct store_consumer *consumer = QSI_LIST_OWNER(node, struct store_consumer, in_channel);
        if (!consumer->cancelled) {
            continue;
        }
        event->kind = QS_EVENT_CANCEL;
        share_names(consumer, &event->message);
        drop_consumer(consumer);
        return true;
    }
    return false;
}

/* The next consumer in turn that may have a message; it goes to the end of the line. */
static struct store_consumer *choose_consumer(struct qs_channel *channel)
{
    channel->deferred = false;
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        struct store_consumer *consumer = QSI_LIST_OWNER(node, struct store_consumer, in_channel);
        if (!qsi_consumer_can_take(consumer)) {
            continue;
        }
        if (qsi_is_turn_of(consumer)) {
            qsi_list_remove(&consumer->in_channel);
            qsi_list_push_back(&channel->consumers, &consumer->in_channel);
            return consumer;
        }
        channel->deferred = true;
    }
    return NULL;
}

/* REQUIRES lock.  The channel waits no longer, or has no room: who left messages to it looks again, if it has left some, too. */
static void hand_on(struct qs_channel *channel)
{
    for (struct qsi_list *node = channel->consumers.next;
         channel->store->events.deferred_waiters > 0 && node != &channel->consumers;
         node = node->next) {
        struct store_queue *queue = QSI_LIST_OWNER(node, struct store_consumer, in_channel)->queue;
        if (queue != NULL && queue->consumer_count > 1 && qsi_has_ready(queue)) {
            qsi_events_announce(channel->store);
            qsi_ring_consumers(channel->store, queue);
        }
    }
}

/* REQUIRES lock.  The consumer has a message: the others' turn comes first now. */
static void note_delivery(struct store_consumer *consumer)
{
    struct store_queue *queue = consumer->queue;

    consumer->unacked_count += 1;
    consumer->channel->consumed_count += consumer->no_ack ? 0 : 1;
    if (queue->consumer_count > 1 && queue->active == NULL) {
        qsi_list_remove(&consumer->in_queue);
        line_up(queue, consumer);
    }
    if (!qsi_consumer_has_room(consumer)) {
        hand_on(consumer->channel);
    }
}

/* REQUIRES lock; releases it to read a stored body.  QS_EEMPTY: no consumer can have a message. */
static qs_status next_delivery(struct qs_channel *channel, qs_event *event, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct store_consumer *consumer = NULL;
    struct qsi_stored_body place;
    qs_status status = QS_OK;
    bool no_ack = false;

    /* Others may take the message, or delete the queue, while room is made or the message is brought from the disk. */
    for (bool released = true; released;) {
        released = false;
        consumer = choose_consumer(channel);
        if (consumer == NULL) {
            return QS_EEMPTY;
        }
        no_ack = consumer->no_ack;
        QS_TRY(qsi_make_settle_room(channel, no_ack, 1, &released, error));
        if (released) {
            continue;
        }
        QS_TRY(qsi_deliveries_make_room(channel, consumer->queue, &released, error));
        if (released) {
            continue;
        }
        if (qsi_unacked_reserve(&channel->unacked, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "delivery");
        }
        status =
            qsi_deliver_one(channel, consumer->queue, consumer, &event->message, &place, error);
        if (status == QSI_EPAGED) {
            released = true;
            status = qsi_page_in(store, consumer->queue, channel, error);
        } else if (status ==
                   QS_EEMPTY) { /* all of them had expired: perhaps another consumer has some */
            released = true;
            continue;
        }
        if (status != QS_OK) {
            return status;
        }
    }
    note_delivery(consumer);
    event->kind = QS_EVENT_DELIVERY;
    share_names(consumer, &event->message);
    status = qsi_deliveries_write(channel, error);
    if (status != QS_OK) {
        qsi_hand_back_delivery(channel, event->message.delivery_tag);
        qs_message_release(&event->message);
        return status;
    }
    if (event->message.hold == NULL) {
        uint32_t reader = qsi_reader_begin(store);
        qsi_mutex_unlock(&store->mutex);
        status = qsi_deliver_body(store, &event->message, &place, error);
        qsi_mutex_lock(&store->mutex);
        qsi_reader_end(store, reader);
    }
    if (status == QS_OK && no_ack && !channel->closed) {
        qsi_settle_no_ack(channel, event->message.delivery_tag, event->message.delivery_tag);
    }
    if (status != QS_OK) {
        qsi_withhold_tags(channel, event->message.delivery_tag, event->message.delivery_tag);
        qs_message_release(&event->message);
    }
    return status;
}

static qs_status poll_event(struct qs_channel *channel, uint32_t kinds, qs_event *event,
                            qs_error *error)
{
    if ((kinds & QS_EVENT_RETURN) != 0 &&
        qsi_return_next(channel->store, &channel->returns, event)) {
        return QS_OK;
    }
    if ((kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0 && next_confirm(channel, event)) {
        return QS_OK;
    }
    if ((kinds & QS_EVENT_CANCEL) != 0 && next_cancel(channel, event)) {
        return QS_OK;
    }
    return (kinds & QS_EVENT_DELIVERY) != 0 ? next_delivery(channel, event, error) : QS_EEMPTY;
}

/* REQUIRES lock.  Without threads of its own, a store commits when somebody waits for it. */
static void wait_for_event(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
{
    struct qs_store *store = channel->store;
    uint64_t lsn = qsi_confirms_last_lsn(&channel->confirms);

    if (!store->options.background && (kinds & QS_EVENT_ACK) != 0 &&
        lsn > qsi_journal_durable_lsn(store->journal) && !store->failed) {
        if (qsi_commit_wait(store, lsn, timeout_ns, NULL) == QS_OK) {
            return;
        }
    }
    channel->waits = (kinds & QS_EVENT_DELIVERY) != 0;
    store->events.waiters += 1;
    store->events.deferred_waiters += channel->deferred ? 1 : 0;
    qsi_cond_wait(&store->events.came, &store->mutex, timeout_ns);
    store->events.deferred_waiters -= channel->deferred ? 1 : 0;
    store->events.waiters -= 1;
    channel->waits = false;
}

static qs_status closed_meanwhile(const struct qs_channel *channel, qs_error *error)
{
    return qsi_fail(error,
                    channel->store->life >= QSI_LIFE_SHUT ? QS_ESTORE_CLOSED : QS_ECHANNEL_CLOSED,
                    "closed meanwhile");
}

/* REQUIRES lock, and that there is no event.  QS_EEMPTY. */
static qs_status arm(struct qs_channel *channel, uint32_t kinds, qs_error *error)
{
    QS_TRY(qsi_channel_park(channel, kinds, error));
    return QS_EEMPTY;
}

qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds, uint64_t timeout_ns,
                                qs_event *event_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    uint64_t deadline = 0; /* 0: nothing was waited for yet, so nobody looked at the clock */
    bool has_waited = false;
    qs_status status;

    memset(event_out, 0, sizeof *event_out);
    QS_TRY(qsi_channel_enter_to(channel, kinds & QS_NO_WAIT, error));
    has_waited = qsi_channel_unpark(channel);
    for (;;) {
        uint64_t now;
        uint64_t seen = store->events.count;
        status = poll_event(channel, kinds, event_out, error);
        if (status != QS_EEMPTY || (timeout_ns == 0 && (kinds & QS_EVENT_ARM) == 0)) {
            break;
        }
        if (channel->closed) { /* while the lock was released on the way: nobody rings any more */
            status = closed_meanwhile(channel, error);
            break;
        }
        if (seen != store->events.count) {
            continue; /* the same, and something came */
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
        has_waited = true;
        if (channel->closed) {
            status = closed_meanwhile(channel, error);
            break;
        }
    }
    if (has_waited && !channel->waits) {
        hand_on(channel);
    }
    return qsi_channel_leave(channel, status);
}
