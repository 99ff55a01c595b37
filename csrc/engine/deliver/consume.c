/* Consumers.
 *
 * A channel's thread asks for the next event, and its consumers then take their turns.  Prefetch
 * limits the unacknowledged messages of a consumer, or of all consumers of the channel.  A queue's
 * messages go to its consumers that have room, of the highest priority, in turn (deals.c). */
#include "consume.h"

#include "alloc.h"
#include "argument_values.h"
#include "check.h"
#include "cursor_record.h"
#include "deals.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "notify.h"
#include "priorities.h"
#include "queue_life.h"
#include "record.h"
#include "store.h"
#include "stream_consume.h"
#include "thread_safety.h"
#include "title.h"
#include "topology.h"
#include "turns.h"

#include <stdio.h>
#include <string.h>

/* ---- consumers ---- */

static struct qsi_store_consumer *find_in(const struct qsi_list *list, struct qsi_slice tag)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (struct qsi_list *node = list->next; node != list; node = node->next) {
        struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel);
        if (qsi_slice_equals(consumer->tag, tag)) {
            return consumer;
        }
    }
    return NULL;
}

static struct qsi_store_consumer *find_consumer(const struct qs_channel *channel,
                                                struct qsi_slice tag) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *found = find_in(&channel->consumers, tag);

    if (found == NULL) {
        found = find_in(&channel->resting, tag);
    }
    return found != NULL ? found : find_in(&channel->cancelled, tag);
}

static qs_status check_exclusive(const struct qs_store *store, const struct qsi_store_queue *queue,
                                 bool exclusive, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if (queue->exclusive_consumer ||
        (exclusive && (queue->consumer_count > 0 || queue->policy.single_active_consumer))) {
        return qsi_fail(error, QS_ACCESS_REFUSED, "queue '%.*s'%s in exclusive use",
                        QSI_NAME(queue->name), store->place);
    }
    return QS_OK;
}

static struct qsi_slice make_up_tag(struct qs_channel *channel, char tag_out[32])
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice tag;

    do {
        snprintf(tag_out, 32, "amq.ctag-%llu", (unsigned long long)++channel->next_consumer_name);
        tag = qsi_slice_make(tag_out, (uint32_t)strlen(tag_out));
    } while (find_consumer(channel, tag) != NULL);
    return tag;
}

static qs_status name_consumer(struct qsi_store_consumer *consumer, struct qsi_slice tag,
                               struct qsi_slice queue_name) QSI_REQUIRES(qsi_store_mutex)
{
    char made_up[32];
    uint8_t *at;

    QS_DCHECK(consumer->names == NULL);
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

void qsi_consumer_share_names(const struct qsi_store_consumer *consumer, qs_message *message)
{
    message->consumer_tag = qs_slice_of(consumer->tag);
    message->queue = qs_slice_of(consumer->queue_name);
    message->hold_names = qsi_chunk_ref(consumer->names);
}

#define GRACE_US 20000u /* a consumer that waits is awake by then */

/* A message that expires at once may still go to a consumer that waits. */
static void record_consumers(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        qsi_queue_set_grace(&qsi_subqueue_at(queue, i)->core,
                            queue->consumer_count > 0 ? GRACE_US : 0);
    }
    if (queue->kind->consumers_changed != NULL) {
        queue->kind->consumers_changed(store, queue);
    }
}

static void join_queue(struct qsi_store_queue *queue, struct qsi_store_consumer *consumer,
                       bool exclusive) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(!queue->exclusive_consumer && !queue->deleted);
    consumer->queue = queue;
    qsi_consumer_line_up(queue, consumer);
    queue->consumer_count += 1;
    queue->exclusive_consumer = exclusive;
    if (queue->policy.single_active_consumer && queue->active == NULL) {
        queue->active = consumer;
    }
    record_consumers(consumer->channel->store, queue);
}

/* In the order of RabbitMQ's checks.  A stream's consumers are never exclusive. */
static qs_status check_consume(struct qs_channel *channel, struct qsi_slice queue_name,
                               const struct qsi_consume_call *call,
                               struct qsi_store_queue **queue_out, int64_t *priority_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_title title;

    if (call->tag.bytes > 0 && find_consumer(channel, call->tag) != NULL) {
        return qsi_fail(error, QS_NOT_ALLOWED, "attempt to reuse consumer tag '%.*s'",
                        (int)call->tag.bytes, (const char *)call->tag.data);
    }
    QS_TRY(qsi_require_queue(channel, queue_name, queue_out, error));
    if (qsi_is_stream(*queue_out)) {
        *priority_out = 0;
        return QS_OK;
    }
    QS_TRY(qsi_consumer_priority_parse(priority_out, call->arguments,
                                       qsi_title_of(&title, channel->store, (*queue_out)->name),
                                       error));
    return check_exclusive(channel->store, *queue_out, (call->flags & QS_EXCLUSIVE) != 0, error);
}

/* The most bytes that storing the consumer's position takes in the journal. */
static uint64_t tracking_bytes_of(const struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_cursor_record record = {.group = consumer->tag};

    return consumer->cursor != NULL && consumer->cursor->tracks ? qsi_cursor_record_bytes(&record)
                                                                : 0;
}

/* For a stream: its cursor.  May release the lock meanwhile, and then looks up the stream again.
 * The caller owns *cursor_out, whatever is returned. */
static qs_status find_cursor(struct qs_channel *channel, struct qsi_slice queue_name,
                             const struct qsi_consume_call *call, struct qsi_store_queue **queue_io,
                             int64_t *priority_io, struct qsi_stream_cursor **cursor_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    *cursor_out = NULL;
    while (qsi_is_stream(*queue_io)) {
        uint64_t id = (*queue_io)->container.id;
        QS_TRY(qsi_check_may_wait(qsi_wait_of(call->flags)));
        if (*cursor_out == NULL) {
            QS_TRY(qsi_stream_cursor_create(cursor_out, channel, *queue_io, call, error));
        }
        (*cursor_out)->stream_id = id;
        QS_TRY(qsi_stream_cursor_start(*cursor_out, channel->store, *queue_io, call, error));
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(check_consume(channel, queue_name, call, queue_io, priority_io, error));
        if ((*queue_io)->container.id == id) {
            return (*cursor_out)->tracks &&
                           qsi_cursor_reserve(qsi_cursors_of(*queue_io), call->tag) != QS_OK
                       ? qsi_fail(error, QS_ENOMEM, "cursor")
                       : QS_OK;
        }
    }
    qsi_stream_cursor_destroy(*cursor_out); /* a queue now has the stream's name */
    *cursor_out = NULL;
    return QS_OK;
}

/* The consumer owns the cursor from now on. */
static void give_cursor(struct qsi_store_consumer *consumer, struct qsi_stream_cursor *cursor)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (cursor == NULL) {
        return;
    }
    cursor->consumer = consumer;
    consumer->cursor = cursor;
    consumer->channel->reads_streams = true;
    consumer->channel->tracking_bytes += tracking_bytes_of(consumer);
}

static qs_status make_consumer(struct qs_channel *channel, struct qsi_slice queue_name,
                               const struct qsi_consume_call *call,
                               struct qsi_store_consumer **consumer_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *consumer = qsi_zalloc(sizeof *consumer);

    if (consumer != NULL) {
        consumer->channel = channel;
        if (name_consumer(consumer, call->tag, queue_name) != QS_OK) {
            qsi_free(consumer);
            consumer = NULL;
        }
    }
    *consumer_out = consumer;
    return consumer != NULL ? QS_OK : qsi_fail(error, QS_ENOMEM, "consumer");
}

static qs_status add_consumer(struct qs_channel *channel, struct qsi_slice queue_name,
                              const struct qsi_consume_call *call, char *tag_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue;
    struct qsi_store_consumer *consumer;
    struct qsi_stream_cursor *cursor = NULL;
    int64_t priority;
    qs_status status;

    QS_TRY(check_consume(channel, queue_name, call, &queue, &priority, error));
    status = find_cursor(channel, queue_name, call, &queue, &priority, &cursor, error);
    if (status == QS_OK) {
        status = make_consumer(channel, queue->name, call, &consumer, error);
    }
    if (status != QS_OK) {
        qsi_stream_cursor_destroy(cursor);
        return status;
    }
    give_cursor(consumer, cursor);
    consumer->priority = priority;
    consumer->no_ack = (call->flags & QS_NO_ACK) != 0;
    consumer->prefetch = consumer->no_ack ? 0 : channel->prefetch_new;
    qsi_list_init(&consumer->in_awaiting);
    qsi_list_init(&consumer->in_full);
    qsi_list_push_back(&channel->consumers, &consumer->in_channel);
    join_queue(queue, consumer, cursor == NULL && (call->flags & QS_EXCLUSIVE) != 0);
    memcpy(tag_out, consumer->tag.data, consumer->tag.bytes);
    tag_out[consumer->tag.bytes] = '\0';
    return QS_OK;
}

qs_status qs_channel_consume(qs_channel *channel, qs_slice queue, qs_slice consumer_tag,
                             uint32_t flags, qs_slice arguments, char tag_out[256], qs_error *error)
{
    struct qsi_consume_call call = {qsi_slice_of(consumer_tag), qsi_slice_of(arguments), flags};
    qs_status status;

    QS_TRY(qsi_check_new_name(consumer_tag, "consumer tag", error));
    QS_TRY(qsi_channel_enter(channel, error));
    status = add_consumer(channel, qsi_slice_of(queue), &call, tag_out, error);
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

/* Messages that were dealt to the consumer and not handed out are ready again. */
static void return_deals(struct qs_store *store, struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(consumer->dealt_count == 0 || consumer->queue != NULL);
    if (!qsi_deals_return(consumer)) {
        return;
    }
    for (uint32_t i = 0; i < qsi_subqueue_count(consumer->queue); i++) {
        qsi_check_growth(store, qsi_subqueue_at(consumer->queue, i));
    }
    qsi_events_notify(store);
}

static void return_all_deals(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_deal *deal;

    while ((deal = qsi_deals_first(channel)) != NULL) {
        return_deals(channel->store, deal->consumer);
    }
}

/* An auto-delete queue is deleted with its last consumer; ready messages are another consumer's
 * turn now. */
static void leave_queue(struct qsi_store_queue *queue, struct qsi_store_consumer *consumer)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = consumer->channel->store;

    QS_DCHECK(consumer->queue == queue && queue->consumer_count > 0);
    return_deals(store, consumer);
    consumer->queue = NULL;
    qsi_list_remove(&consumer->in_queue);
    qsi_list_remove(&consumer->in_awaiting);
    queue->consumer_count -= 1;
    queue->exclusive_consumer = false;
    if (queue->active == consumer) {
        queue->active = queue->consumer_count > 0 ? qsi_any_consumer(queue) : NULL;
    }
    QS_DCHECK((qsi_list_is_empty(&queue->consumers) && qsi_list_is_empty(&queue->full)) ==
              (queue->consumer_count == 0));
    record_consumers(store, queue);
    qsi_record_use(store, queue);
    if (queue->consumer_count == 0 && (queue->flags & QS_AUTO_DELETE) != 0) {
        qsi_delete_queue_now(store, queue);
    } else {
        qsi_events_notify(store);
        qsi_notify_consumers(store, queue);
    }
}

void qsi_consumer_free_if_done(struct qsi_store_consumer *consumer)
{
    const struct qsi_stream_cursor *cursor = consumer->cursor;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    if (consumer->is_gone && consumer->unacked_count == 0 &&
        (cursor == NULL || (!cursor->is_reading && !cursor->is_acked))) {
        consumer->channel->tracking_bytes -= tracking_bytes_of(consumer);
        qsi_stream_cursor_destroy(consumer->cursor);
        qsi_chunk_unref(consumer->names);
        qsi_free(consumer);
    }
}

void qsi_drop_consumer(struct qsi_store_consumer *consumer)
{
    QS_DCHECK(!consumer->is_gone);
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    qsi_list_remove(&consumer->in_channel);
    qsi_list_remove(&consumer->in_full);
    if (consumer->queue != NULL) {
        leave_queue(consumer->queue, consumer);
    }
    consumer->is_gone = true;
    if (consumer->cursor != NULL) { /* the cursor stays as long as messages are unacknowledged */
        qsi_stream_cursor_drop_batch(consumer->cursor);
    }
    qsi_consumer_free_if_done(consumer);
}

void qsi_consumer_settled(struct qsi_store_consumer *consumer, uint32_t count)
{
    QS_DCHECK(consumer->no_ack || consumer->channel->consumed_count >= count);
    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    QS_DCHECK(consumer->unacked_count >= count);
    consumer->unacked_count -= count;
    consumer->channel->consumed_count -= consumer->no_ack ? 0 : count;
    qsi_consumer_has_settled(consumer);
    qsi_consumer_free_if_done(consumer);
}

void qsi_drop_consumers(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    struct qsi_list *lists[] = {&channel->consumers, &channel->resting, &channel->cancelled};

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        while (!qsi_list_is_empty(lists[i])) {
            qsi_drop_consumer(
                QSI_LIST_OWNER(lists[i]->next, struct qsi_store_consumer, in_channel));
        }
    }
}

qs_status qs_channel_cancel(qs_channel *channel, qs_slice consumer_tag, qs_error *error)
{
    struct qsi_store_consumer *consumer;

    QS_TRY(qsi_channel_enter(channel, error));
    consumer = find_consumer(channel, qsi_slice_of(consumer_tag));
    if (consumer != NULL) {
        qsi_drop_consumer(consumer);
    }
    return qsi_channel_leave_after(channel, QSI_MUST_NOT_WAIT, QS_OK);
}

void qsi_notify_others(struct qs_channel *channel)
{
    const struct qsi_store_queue *last = NULL; /* of which many may come behind each other */

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_events_notify(channel->store);
    for (struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        struct qsi_store_queue *queue =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel)->queue;
        if (queue != last) {
            qsi_notify_consumers(channel->store, queue);
        }
        last = queue;
    }
}

qs_status qs_channel_qos(qs_channel *channel, uint32_t prefetch_count, uint32_t prefetch_bytes,
                         uint32_t flags, qs_error *error)
{
    QS_TRY(qsi_channel_enter(channel, error));
    if (prefetch_bytes != 0) {
        return qsi_channel_leave_after(
            channel, QSI_MUST_NOT_WAIT,
            qsi_fail(error, QS_NOT_IMPLEMENTED, "prefetch_size!=0 (%u)", prefetch_bytes));
    }
    if ((flags & QS_GLOBAL) != 0) {
        channel->prefetch_channel = prefetch_count;
        return_all_deals(channel); /* a smaller limit applies to existing consumers, too */
    } else {
        channel->prefetch_new = prefetch_count;
        channel->prefetch_channel =
            0; /* as in RabbitMQ, a later call without global removes the channel's limit */
    }
    qsi_notify_others(channel);
    return qsi_channel_leave_after(channel, QSI_MUST_NOT_WAIT, QS_OK);
}

qs_status qs_channel_pause(qs_channel *channel, qs_slice consumer_tag, bool paused, qs_error *error)
{
    struct qsi_store_consumer *consumer;

    QS_TRY(qsi_channel_enter(channel, error));
    consumer = find_consumer(channel, qsi_slice_of(consumer_tag));
    if (consumer != NULL && consumer->paused != paused) {
        consumer->paused = paused;
        if (paused) {
            return_deals(channel->store, consumer);
        }
        qsi_notify_others(channel); /* as after a change of its prefetch */
    }
    return qsi_channel_leave(channel, QS_OK);
}
