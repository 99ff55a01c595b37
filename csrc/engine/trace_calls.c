/* Traces: opened, read, closed. */
#include "alloc.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "list.h"
#include "trace.h"
#include "wake.h"

static qs_status set_filters(struct qs_trace *trace, const qs_slice *exchange,
                             const qs_slice *queue, qs_error *error)
{
    if ((exchange != NULL && exchange->bytes > UINT8_MAX) ||
        (queue != NULL && queue->bytes > UINT8_MAX)) {
        return qsi_fail(error, QS_EINVAL,
                        "the name of an exchange or a queue has 255 bytes at most");
    }
    trace->of_exchange = exchange != NULL;
    trace->of_queue = queue != NULL;
    if (exchange != NULL) {
        qsi_slice_put(trace->names, qsi_slice_of(*exchange));
        trace->exchange = qsi_slice_make(trace->names, (uint32_t)exchange->bytes);
    }
    if (queue != NULL) {
        qsi_slice_put(trace->names + UINT8_MAX, qsi_slice_of(*queue));
        trace->queue = qsi_slice_make(trace->names + UINT8_MAX, (uint32_t)queue->bytes);
    }
    return QS_OK;
}

qs_status qs_trace_open(qs_trace **trace_out, qs_store *store, const qs_slice *exchange,
                        const qs_slice *queue, uint32_t flags, qs_error *error)
{
    struct qs_trace *trace = qsi_zalloc(sizeof *trace);
    qs_status status;

    *trace_out = NULL;
    if (flags > QS_TRACE_CONTENT) {
        qsi_free(trace);
        return qsi_fail(error, QS_EINVAL, "trace with flags %u", flags);
    }
    if (trace == NULL) {
        return qsi_fail(error, QS_ENOMEM, "trace");
    }
    status = set_filters(trace, exchange, queue, error);
    if (status != QS_OK) {
        qsi_free(trace);
        return status;
    }
    status = qsi_store_enter(store, error);
    if (status != QS_OK) {
        qsi_free(trace);
        return status;
    }
    trace->store = store;
    trace->of_content = (flags & QS_TRACE_CONTENT) != 0;
    qsi_list_init(&trace->unread.steps);
    qsi_list_init(&trace->unsynced.steps);
    qsi_list_init(&trace->unconfirmed.steps);
    qsi_list_push_back(&store->events.traces, &trace->in_store);
    store->references += 1;
    qsi_store_leave(store);
    *trace_out = trace;
    return QS_OK;
}

static bool is_ended(const struct qs_trace *trace) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_list_is_empty(&trace->in_store);
}

/* A step, or none in time.  In a store without threads of its own nothing happens meanwhile. */
static struct traced *await(struct qs_trace *trace, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = trace->store;
    uint64_t begin = 0;
    struct qsi_waiter waiter;
    struct traced *next = qsi_trace_take(trace);

    while (next == NULL && timeout_ns > 0 && store->life < QSI_LIFE_SHUT && !is_ended(trace)) {
        uint64_t now = store->env->monotonic_ns(store->env);
        begin = begin == 0 ? now : begin;
        if (now - begin >= timeout_ns) {
            break;
        }
        trace->waiter = &waiter;
        qsi_waiter_sleep(store, &waiter, timeout_ns - (now - begin));
        trace->waiter = NULL;
        next = qsi_trace_take(trace);
    }
    return next;
}

qs_status qs_trace_next(qs_trace *trace, uint64_t timeout_ns, qs_trace_event *event_out,
                        qs_error *error)
{
    struct qs_store *store = trace->store;
    struct traced *next;
    bool is_open;

    if (qsi_store_is_forked(store)) {
        return qsi_store_enter(store, error); /* which says so */
    }
    qsi_traced_free(trace->returned);
    trace->returned = NULL;
    qsi_store_lock(store);
    next = await(trace, timeout_ns);
    is_open = store->life < QSI_LIFE_SHUT;
    qsi_store_unlock(store);
    if (next == NULL) {
        return is_open ? QS_EEMPTY : qsi_fail(error, QS_ESTORE_CLOSED, "the store is closed");
    }
    trace->returned = next;
    qsi_traced_report(next, event_out);
    return QS_OK;
}

void qs_trace_end(qs_trace *trace)
{
    struct qs_store *store = trace->store;

    if (qsi_store_is_forked(store)) {
        return;
    }
    qsi_store_lock(store);
    qsi_list_remove(&trace->in_store);
    qsi_waiter_wake(store, trace->waiter);
    qsi_store_unlock(store);
}

uint64_t qs_trace_dropped(qs_trace *trace)
{
    struct qs_store *store = trace->store;
    uint64_t dropped;

    if (qsi_store_is_forked(store)) {
        return 0;
    }
    qsi_store_lock(store);
    dropped = trace->dropped;
    qsi_store_unlock(store);
    return dropped;
}

void qs_trace_close(qs_trace *trace)
{
    struct qs_store *store;

    if (trace == NULL || qsi_store_is_forked(trace->store)) {
        return;
    }
    store = trace->store;
    qsi_store_lock(store);
    qsi_list_remove(&trace->in_store);
    qsi_trace_forget(trace);
    qsi_traced_free(trace->returned);
    qsi_free(trace);
    qsi_store_unref(store);
}
