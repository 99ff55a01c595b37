/* Traces: what they keep. */
#include "trace.h"

#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "journal.h"
#include "list.h"
#include "priorities.h"
#include "wake.h"

#include <string.h>

#define BYTES_MAX (8u << 20)

struct traced {
    struct qsi_list in_trace;
    qs_trace_step step;
    uint64_t time_us, lsn, number, last_number, count, channel;
    bool awaits_sync, awaits_confirm; /* in a list of what is pending */
    bool knows_exchange;
    uint8_t exchange_bytes, key_bytes;
    uint32_t queues_bytes;
    uint8_t bytes[]; /* exchange, key, queues */
};

static struct traced *traced_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct traced, in_trace);
}

static size_t bytes_of(const struct traced *traced)
{
    return sizeof *traced + traced->exchange_bytes + traced->key_bytes + traced->queues_bytes;
}

void qsi_traced_free(struct traced *traced)
{
    qsi_free(traced);
}

/* ---- keeping ---- */

static bool is_wanted(const struct qs_trace *trace, const struct trace_step *step)
{
    bool leads_there = !trace->of_queue;

    for (uint32_t i = 0; !leads_there && i < step->queue_count; i++) {
        leads_there = qsi_slice_equals(step->queues[i]->name, trace->queue);
    }
    return leads_there &&
           (!trace->of_exchange ||
            (step->exchange != NULL && qsi_slice_equals(*step->exchange, trace->exchange)));
}

static uint32_t queues_bytes(const struct trace_step *step)
{
    uint32_t bytes = 0;

    /* Before it is routed nobody knows. */
    for (uint32_t i = 0; step->step != QS_TRACE_PUBLISH && i < step->queue_count; i++) {
        bytes += 1 + step->queues[i]->name.bytes;
    }
    return bytes;
}

static void put_queues(uint8_t *to, const struct trace_step *step)
{
    for (uint32_t i = 0; i < step->queue_count; i++) {
        struct qsi_slice name = step->queues[i]->name;
        QS_DCHECK(name.bytes <= UINT8_MAX);
        *to++ = (uint8_t)name.bytes;
        qsi_slice_put(to, name);
        to += name.bytes;
    }
}

/* NULL: no memory. */
static struct traced *make(const struct qs_store *store, const struct trace_step *step)
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
                        .knows_exchange = step->exchange != NULL,
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

/* made: NULL, or the trace's from now on; it is dropped where there is no room. */
static void keep(struct qs_trace *trace, struct qsi_list *list, struct traced *made)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (made == NULL || trace->bytes + bytes_of(made) > BYTES_MAX) {
        trace->dropped += 1;
        qsi_traced_free(made);
        return;
    }
    trace->bytes += bytes_of(made);
    qsi_list_push_back(list, &made->in_trace);
    if (list == &trace->unread) {
        qsi_events_announce(trace->store);
    }
}

static void leave(struct qs_trace *trace, struct traced *traced) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(trace->bytes >= bytes_of(traced));
    qsi_list_remove(&traced->in_trace);
    trace->bytes -= bytes_of(traced);
}

static struct qs_trace *trace_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qs_trace, in_store);
}

void qsi_trace(struct qs_store *store, const struct trace_step *step)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        if (is_wanted(trace_at(node), step)) {
            keep(trace_at(node), &trace_at(node)->unread, make(store, step));
        }
    }
}

void qsi_trace_await(struct qs_store *store, const struct trace_step *step, bool awaits_confirm)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        struct traced *made;
        if (!is_wanted(trace_at(node), step) || (step->lsn == 0 && !awaits_confirm)) {
            continue;
        }
        made = make(store, step);
        if (made != NULL) {
            made->awaits_sync = step->lsn != 0;
            made->awaits_confirm = awaits_confirm;
        }
        keep(trace_at(node), &trace_at(node)->pending, made);
    }
}

/* ---- what was awaited ---- */

/* The same message, a step further. */
static void go_on(struct qs_trace *trace, const struct traced *pending, qs_trace_step step,
                  uint64_t number, uint64_t count) QSI_REQUIRES(qsi_store_mutex)
{
    struct traced *made = qsi_alloc(bytes_of(pending));

    if (made != NULL) {
        memcpy(made, pending, bytes_of(pending));
        made->step = step;
        made->time_us = qsi_clock_us(trace->store);
        made->number = number;
        made->count = count;
        qsi_list_init(&made->in_trace);
    }
    keep(trace, &trace->unread, made);
}

static void end_if_done(struct qs_trace *trace, struct traced *pending)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (!pending->awaits_sync && !pending->awaits_confirm) {
        leave(trace, pending);
        qsi_traced_free(pending);
    }
}

static void tell_synced(struct qs_trace *trace, uint64_t durable) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list *next;

    for (struct qsi_list *node = trace->pending.next; node != &trace->pending; node = next) {
        struct traced *pending = traced_at(node);
        next = node->next;
        if (pending->awaits_sync && pending->lsn <= durable) {
            go_on(trace, pending, QS_TRACE_SYNC, pending->number, pending->count);
            pending->awaits_sync = false;
            end_if_done(trace, pending);
        }
    }
}

void qsi_trace_synced(struct qs_store *store)
{
    uint64_t durable = qsi_journal_durable_lsn(store->journal);

    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        tell_synced(trace_at(node), durable);
    }
}

static bool is_of(const struct traced *pending, const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    return pending->awaits_confirm && pending->channel == channel->number;
}

void qsi_trace_confirmed(const struct qs_channel *channel, uint64_t number)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    for (struct qsi_list *node = channel->store->events.traces.next;
         node != &channel->store->events.traces; node = node->next) {
        struct qs_trace *trace = trace_at(node);
        struct qsi_list *next;
        for (struct qsi_list *at = trace->pending.next; at != &trace->pending; at = next) {
            struct traced *pending = traced_at(at);
            next = at->next;
            if (is_of(pending, channel) && pending->last_number <= number) {
                go_on(trace, pending, QS_TRACE_CONFIRM, pending->number, pending->count);
                pending->awaits_confirm = false;
                end_if_done(trace, pending);
            }
        }
    }
}

void qsi_trace_refused(const struct qs_channel *channel, uint64_t number)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    for (struct qsi_list *node = channel->store->events.traces.next;
         node != &channel->store->events.traces; node = node->next) {
        struct qs_trace *trace = trace_at(node);
        struct qsi_list *next;
        for (struct qsi_list *at = trace->pending.next; at != &trace->pending; at = next) {
            struct traced *pending = traced_at(at);
            next = at->next;
            if (is_of(pending, channel) && pending->number <= number &&
                number <= pending->last_number) {
                go_on(trace, pending, QS_TRACE_NACK, number, 1);
                pending->awaits_confirm = number < pending->last_number; /* the others' */
                end_if_done(trace, pending);
                break; /* which way of a batch it was nobody knows */
            }
        }
    }
}

void qsi_trace_channel_ended(const struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    for (struct qsi_list *node = channel->store->events.traces.next;
         node != &channel->store->events.traces; node = node->next) {
        struct qs_trace *trace = trace_at(node);
        struct qsi_list *next;
        for (struct qsi_list *at = trace->pending.next; at != &trace->pending; at = next) {
            struct traced *pending = traced_at(at);
            next = at->next;
            if (is_of(pending, channel)) {
                pending->awaits_confirm = false;
                end_if_done(trace, pending);
            }
        }
    }
}

void qsi_trace_taken(const struct qs_channel *channel, qs_trace_step step,
                     struct store_queue *queue, uint64_t first_tag, uint64_t count,
                     const qs_message *message)
{
    struct qsi_destination *const destination = &qsi_owner_of(queue)->destination;
    struct qsi_slice exchange;
    struct trace_step told = {.step = step,
                              .number = first_tag,
                              .count = count,
                              .channel = channel->number,
                              .key = qsi_slice_make("", 0),
                              .queues = &destination,
                              .queue_count = 1};

    QS_ASSERT_HELD(&channel->store->mutex);
    if (message != NULL) {
        exchange = qsi_slice_of(message->exchange);
        told.exchange = &exchange;
        told.key = qsi_slice_of(message->routing_key);
    }
    qsi_trace(channel->store, &told);
}

/* ---- reading ---- */

struct traced *qsi_trace_take(struct qs_trace *trace)
{
    struct traced *first;

    QS_ASSERT_HELD(&trace->store->mutex);
    if (qsi_list_is_empty(&trace->unread)) {
        return NULL;
    }
    first = traced_at(trace->unread.next);
    leave(trace, first);
    return first;
}

void qsi_traced_tell(const struct traced *traced, qs_trace_event *event_out)
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
    };
}

static void forget_all(struct qs_trace *trace, struct qsi_list *list) QSI_REQUIRES(qsi_store_mutex)
{
    while (!qsi_list_is_empty(list)) {
        struct traced *traced = traced_at(list->next);
        leave(trace, traced);
        qsi_traced_free(traced);
    }
}

void qsi_trace_forget(struct qs_trace *trace)
{
    QS_ASSERT_HELD(&trace->store->mutex);
    forget_all(trace, &trace->unread);
    forget_all(trace, &trace->pending);
    QS_DCHECK(trace->bytes == 0);
}
