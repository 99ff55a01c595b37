/* The contents of traces. */
#include "trace.h"

#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "journal.h"
#include "list.h"
#include "priorities.h"
#include "wake.h"

#include <string.h>

#define BYTES_MAX (8u << 20)         /* of each list of a trace */
#define AWAITED_BYTES_MAX (1u << 20) /* all of them are looked at for each verdict */

struct traced_content {
    qs_traced_content shown; /* whose slices point to bytes */
    size_t size;             /* of all this */
    uint8_t bytes[];
};

struct traced {
    struct qsi_list in_list;
    struct traced_content *content; /* NULL: none */
    qs_trace_step step;
    uint64_t time_us, lsn, number, last_number, count, channel;
    uint8_t exchange_bytes, key_bytes;
    uint32_t queues_bytes;
    uint8_t bytes[]; /* exchange, key, queues */
};

static struct traced *traced_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct traced, in_list);
}

static size_t bytes_of(const struct traced *traced)
{
    return sizeof *traced + traced->exchange_bytes + traced->key_bytes + traced->queues_bytes;
}

/* The memory that it takes. */
static size_t size_of(const struct traced *traced)
{
    return bytes_of(traced) + (traced->content != NULL ? traced->content->size : 0);
}

void qsi_traced_free(struct traced *traced)
{
    if (traced != NULL) {
        qsi_free(traced->content);
        qsi_free(traced);
    }
}

/* ---- keeping ---- */

/* A copy of a message is none itself. */
static bool is_content(const struct qsi_trace_step *step)
{
    return step->content != NULL &&
           !qsi_slice_equals(*step->exchange, QSI_SLICE_LITERAL("amq.rabbitmq.trace"));
}

static bool is_wanted(const struct qs_trace *trace, const struct qsi_trace_step *step)
{
    bool leads_there = !trace->of_queue;

    for (uint32_t i = 0; !leads_there && i < step->queue_count; i++) {
        leads_there = qsi_slice_equals(step->queues[i]->name, trace->queue);
    }
    return leads_there && (!trace->of_content || is_content(step)) &&
           (!trace->of_exchange ||
            (step->exchange != NULL && qsi_slice_equals(*step->exchange, trace->exchange)));
}

static uint32_t queues_bytes(const struct qsi_trace_step *step)
{
    uint32_t bytes = 0;

    /* Before the routing it is unknown. */
    for (uint32_t i = 0; step->step != QS_TRACE_PUBLISH && i < step->queue_count; i++) {
        bytes += 1 + step->queues[i]->name.bytes;
    }
    return bytes;
}

static void put_queues(uint8_t *to, const struct qsi_trace_step *step)
{
    for (uint32_t i = 0; i < step->queue_count; i++) {
        struct qsi_slice name = step->queues[i]->name;
        QS_DCHECK(name.bytes <= UINT8_MAX);
        *to++ = (uint8_t)name.bytes;
        qsi_slice_put(to, name);
        to += name.bytes;
    }
}

static qs_slice put(uint8_t **to, struct qsi_slice from)
{
    qs_slice put = {*to, from.bytes};

    qsi_slice_put(*to, from);
    *to += from.bytes;
    return put;
}

/* NULL: no memory. */
static struct traced_content *make_content(const struct qsi_trace_content *content)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_connection *connection = content->channel->connection;
    const qs_client none = {0}, *client = connection->client != NULL ? connection->client : &none;
    struct qsi_slice peer = qsi_slice_of(client->peer), user = qsi_slice_of(client->user);
    size_t size = sizeof(struct traced_content) + content->properties.bytes + content->body.bytes +
                  peer.bytes + user.bytes;
    struct traced_content *made = qsi_alloc(size);
    uint8_t *to;

    if (made == NULL) {
        return NULL;
    }
    to = made->bytes;
    made->size = size;
    made->shown = (qs_traced_content){.properties = put(&to, content->properties),
                                      .body = put(&to, content->body),
                                      .peer = put(&to, peer),
                                      .user = put(&to, user),
                                      .connection = connection->number,
                                      .client = client->number,
                                      .client_channel = content->channel->client_number,
                                      .redelivered = content->redelivered};
    QS_DCHECK(to == (uint8_t *)made + size);
    return made;
}

/* NULL: no memory. */
static struct traced *make(const struct qs_store *store, const struct qsi_trace_step *step)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice exchange = step->exchange != NULL ? *step->exchange : qsi_slice_make("", 0);
    uint32_t queues = queues_bytes(step);
    struct traced *made = qsi_alloc(sizeof *made + exchange.bytes + step->key.bytes + queues);

    if (made == NULL) {
        return NULL;
    }
    QS_DCHECK(exchange.bytes <= UINT8_MAX && step->key.bytes <= UINT8_MAX);
    *made =
        (struct traced){.step = step->step,
                        .time_us = step->time_us != 0 ? step->time_us : qsi_clock_us(store),
                        .lsn = step->lsn,
                        .number = step->number,
                        .last_number = step->last_number != 0 ? step->last_number : step->number,
                        .count = step->count,
                        .channel = step->channel,
                        .exchange_bytes = (uint8_t)exchange.bytes,
                        .key_bytes = (uint8_t)step->key.bytes,
                        .queues_bytes = queues};
    qsi_slice_put(made->bytes, exchange);
    qsi_slice_put(made->bytes + exchange.bytes, step->key);
    if (queues > 0) {
        put_queues(made->bytes + exchange.bytes + step->key.bytes, step);
    }
    return made;
}

/* One has room where nothing else is, as a message may be larger than all there is. */
static bool has_room(const struct qsi_traced_list *list, size_t bytes)
{
    return list->bytes == 0 || list->bytes + bytes <= BYTES_MAX;
}

/* NULL: no memory, or no room, which is seen before a body is copied. */
static struct traced *make_with_content(const struct qs_trace *trace,
                                        const struct qsi_trace_step *step)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct traced *made =
        has_room(&trace->unread, step->content->body.bytes) ? make(trace->store, step) : NULL;

    if (made != NULL) {
        made->content = make_content(step->content);
        if (made->content == NULL) {
            qsi_free(made);
            made = NULL;
        }
    }
    return made;
}

/* made: NULL, or the list's from now on; it is dropped where there is no room. */
static void keep(struct qs_trace *trace, struct qsi_traced_list *list, struct traced *made)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (made == NULL || !has_room(list, size_of(made))) {
        trace->dropped += 1;
        qsi_traced_free(made);
        return;
    }
    if (list == &trace->unread && qsi_list_is_empty(&list->steps)) {
        qsi_waiter_wake(trace->store, trace->waiter); /* which goes on until it is empty */
    }
    list->bytes += size_of(made);
    qsi_list_push_back(&list->steps, &made->in_list);
}

static void leave(struct qsi_traced_list *list, struct traced *traced) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(list->bytes >= size_of(traced));
    qsi_list_remove(&traced->in_list);
    list->bytes -= size_of(traced);
}

static void drop(struct qsi_traced_list *list, struct traced *traced) QSI_REQUIRES(qsi_store_mutex)
{
    leave(list, traced);
    qsi_traced_free(traced);
}

/* Publishers that never ask for their confirms leave room for those that do. */
static void make_room(struct qs_trace *trace, struct qsi_traced_list *list)
    QSI_REQUIRES(qsi_store_mutex)
{
    while (list->bytes > AWAITED_BYTES_MAX) {
        drop(list, traced_at(list->steps.next));
        trace->dropped += 1;
    }
}

static struct qs_trace *trace_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qs_trace, in_store);
}

void qsi_trace(struct qs_store *store, const struct qsi_trace_step *step)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        struct qs_trace *trace = trace_at(node);
        if (is_wanted(trace, step)) {
            keep(trace, &trace->unread,
                 trace->of_content ? make_with_content(trace, step) : make(store, step));
        }
    }
}

void qsi_trace_await(struct qs_store *store, const struct qsi_trace_step *step, bool awaits_confirm)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(!awaits_confirm || step->number > 0);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        struct qs_trace *trace = trace_at(node);
        if (!is_wanted(trace, step)) {
            continue;
        }
        if (step->lsn != 0) {
            keep(trace, &trace->unsynced, make(store, step));
        }
        if (awaits_confirm) {
            make_room(trace, &trace->unconfirmed);
            keep(trace, &trace->unconfirmed, make(store, step));
        }
    }
}

/* ---- what was awaited ---- */

/* The same messages, one step further: so many of them. */
static void go_on(struct qs_trace *trace, const struct traced *awaited, qs_trace_step step,
                  uint64_t number, uint64_t count) QSI_REQUIRES(qsi_store_mutex)
{
    struct traced *made = qsi_alloc(bytes_of(awaited));

    QS_DCHECK(count > 0 && awaited->content == NULL);
    if (made != NULL) {
        memcpy(made, awaited, bytes_of(awaited));
        made->step = step;
        made->time_us = qsi_clock_us(trace->store);
        made->number = number;
        made->count = count;
        qsi_list_init(&made->in_list);
    }
    keep(trace, &trace->unread, made);
}

static void report_synced(struct qs_trace *trace, uint64_t durable) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_traced_list *list = &trace->unsynced;

    while (!qsi_list_is_empty(&list->steps)) { /* their LSNs ascend */
        struct traced *awaited = traced_at(list->steps.next);
        if (awaited->lsn > durable) {
            return;
        }
        go_on(trace, awaited, QS_TRACE_SYNC, awaited->number, awaited->count);
        drop(list, awaited);
    }
}

void qsi_trace_synced(struct qs_store *store)
{
    uint64_t durable = qsi_journal_durable_lsn(store->journal);

    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        report_synced(trace_at(node), durable);
    }
}

/* A message with a record is confirmed with it, when that is durable, or ahead of that by its
 * number; a message without a record, by its number. */
static bool is_confirmed(const struct traced *awaited, const struct qsi_traced_verdict *verdict)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t durable = qsi_journal_durable_lsn(verdict->channel->store->journal);

    if (awaited->lsn != 0 && awaited->number <= verdict->number && awaited->lsn <= durable) {
        return true;
    }
    return verdict->multiple ? awaited->last_number <= verdict->number
                             : awaited->last_number == verdict->number;
}

static void report_refused(struct qs_trace *trace, struct traced *awaited,
                           const struct qsi_traced_verdict *verdict) QSI_REQUIRES(qsi_store_mutex)
{
    bool is_whole = verdict->multiple || awaited->count == 1;

    go_on(trace, awaited, QS_TRACE_NACK, verdict->multiple ? awaited->number : verdict->number,
          is_whole ? awaited->count : 1);
    awaited->count -= 1;
    if (is_whole) {
        drop(&trace->unconfirmed, awaited);
    }
}

static bool is_refused(const struct traced *awaited, const struct qsi_traced_verdict *verdict)
{
    return awaited->number <= verdict->number &&
           (verdict->multiple || verdict->number <= awaited->last_number);
}

static void report_verdict(struct qs_trace *trace, const struct qsi_traced_verdict *verdict)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_traced_list *list = &trace->unconfirmed;
    struct qsi_list *next;

    for (struct qsi_list *at = list->steps.next; at != &list->steps; at = next) {
        struct traced *awaited = traced_at(at);
        next = at->next;
        if (awaited->channel != verdict->channel->number) {
            continue;
        }
        if (!verdict->is_ack && is_refused(awaited, verdict)) {
            report_refused(trace, awaited, verdict);
            if (!verdict->multiple) {
                return; /* in a batch the way of a single row is unknown */
            }
        } else if (verdict->is_ack && is_confirmed(awaited, verdict)) {
            go_on(trace, awaited, QS_TRACE_CONFIRM, awaited->number, awaited->count);
            drop(list, awaited);
        }
    }
}

void qsi_trace_verdict(const struct qsi_traced_verdict *verdict)
{
    struct qs_store *store = verdict->channel->store;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(verdict->number > 0);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        report_verdict(trace_at(node), verdict);
    }
}

void qsi_trace_channel_ended(const struct qs_channel *channel)
{
    struct qs_store *store = channel->store;

    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        struct qsi_traced_list *list = &trace_at(node)->unconfirmed;
        struct qsi_list *next;
        for (struct qsi_list *at = list->steps.next; at != &list->steps; at = next) {
            next = at->next;
            if (traced_at(at)->channel == channel->number) {
                drop(list, traced_at(at));
            }
        }
    }
}

void qsi_trace_taken(const struct qs_channel *channel, qs_trace_step step,
                     struct qsi_store_queue *queue, uint64_t first_tag, uint64_t count)
{
    struct qsi_destination *const destination = &qsi_owner_of(queue)->destination;
    struct qsi_trace_step shown = {.step = step,
                                   .number = first_tag,
                                   .count = count,
                                   .channel = channel->number,
                                   .key = qsi_slice_make("", 0),
                                   .queues = &destination,
                                   .queue_count = 1};

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_trace(channel->store, &shown);
}

void qsi_trace_delivered(const struct qs_channel *channel, struct qsi_slice queue,
                         const qs_message *message)
{
    struct qsi_destination named = {.name = queue}, *const destination = &named;
    struct qsi_slice exchange = qsi_slice_of(message->exchange);
    struct qsi_trace_content content = {.channel = channel,
                                        .properties = qsi_slice_of(message->properties),
                                        .body = qsi_slice_of(message->body),
                                        .redelivered = message->redelivered};
    struct qsi_trace_step shown = {.step = QS_TRACE_DELIVER,
                                   .number = message->delivery_tag,
                                   .count = 1,
                                   .channel = channel->number,
                                   .exchange = &exchange,
                                   .key = qsi_slice_of(message->routing_key),
                                   .queues = &destination,
                                   .queue_count = 1,
                                   .content = &content};

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_trace(channel->store, &shown);
}

/* ---- reading ---- */

struct traced *qsi_trace_take(struct qs_trace *trace)
{
    struct traced *first;

    QS_ASSERT_HELD(&trace->store->mutex);
    if (qsi_list_is_empty(&trace->unread.steps)) {
        return NULL;
    }
    first = traced_at(trace->unread.steps.next);
    leave(&trace->unread, first);
    return first;
}

void qsi_traced_report(const struct traced *traced, qs_trace_event *event_out)
{
    const uint8_t *key = traced->bytes + traced->exchange_bytes;

    *event_out = (qs_trace_event){
        .step = traced->step,
        .time_us = traced->time_us,
        .lsn = traced->lsn,
        .number = traced->number,
        .count = traced->count,
        .channel = traced->channel,
        .exchange = {traced->bytes, traced->exchange_bytes},
        .routing_key = {key, traced->key_bytes},
        .queues = {key + traced->key_bytes, traced->queues_bytes},
        .content = traced->content != NULL ? &traced->content->shown : NULL,
    };
}

void qsi_trace_forget(struct qs_trace *trace)
{
    struct qsi_traced_list *const lists[] = {&trace->unread, &trace->unsynced, &trace->unconfirmed};

    QS_ASSERT_HELD(&trace->store->mutex);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        while (!qsi_list_is_empty(&lists[i]->steps)) {
            drop(lists[i], traced_at(lists[i]->steps.next));
        }
        QS_DCHECK(lists[i]->bytes == 0);
    }
}
