/* What a store tells about itself. */
#include "engine.h"
#include "error.h"

#include <math.h>
#include <string.h>

#define RATE_HALF_LIFE_S 5.0
#define RATE_INTERVAL_NS 100000000u

void qs_store_stats(qs_store *store, qs_stats *stats_out)
{
    struct qsi_journal_counts counts;

    memset(stats_out, 0, sizeof *stats_out);
    if (qsi_store_enter(store, NULL) != QS_OK) {
        return;
    }
    counts = qsi_journal_counts(store->journal);
    *stats_out = (qs_stats){
        .durable_lsn = qsi_journal_durable_lsn(store->journal),
        .appended_lsn = qsi_journal_appended_lsn(store->journal),
        .commits = store->stats.commits,
        .fdatasyncs = counts.fdatasyncs + store->stats.message_syncs,
        .bytes_journalled = counts.bytes_written,
        .bytes_stored = qsi_message_store_bytes_written(store->messages),
        .messages_published = store->stats.published,
        .messages_routed = store->stats.routed,
        .messages_confirmed = store->stats.confirmed,
        .messages_returned = store->stats.returned,
        .messages_delivered = store->stats.delivered,
        .messages_acked = store->stats.acked,
        .messages_requeued = store->stats.requeued,
        .commit_latency_p50_us = qsi_histogram_percentile_us(&store->commit_latency, 50),
        .commit_latency_p99_us = qsi_histogram_percentile_us(&store->commit_latency, 99),
        .commit_latency_max_us = store->commit_latency.max_us,
        .confirm_latency_p50_us = qsi_histogram_percentile_us(&store->confirm_latency, 50),
        .confirm_latency_p99_us = qsi_histogram_percentile_us(&store->confirm_latency, 99),
        .confirm_latency_max_us = store->confirm_latency.max_us,
        .sync = store->options.sync,
        .failed = store->failed,
        .recovery_us = store->recovery_us,
        .recovered_messages = store->recovered_messages,
        .recovered_records = store->recovered_records,
        .recovered_bytes = store->recovered_bytes,
        .torn_bytes = store->torn_bytes,
        .lost_ranges = store->lost_ranges,
        .lost_bytes = store->lost_bytes,
    };
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        stats_out->ram_bytes += ((struct store_queue *)cursor.value)->core.ram_bytes;
    }
    qsi_store_leave(store);
}

void qs_store_options(qs_store *store, qs_options *options_out)
{
    *options_out = store->options; /* constant since open */
}

/* Exponentially weighted, with RabbitMQ's half-life. */
static double blend(double old, double sample, double seconds)
{
    double weight = pow(0.5, seconds / RATE_HALF_LIFE_S);

    return sample * (1.0 - weight) + old * weight;
}

static void update_rates(struct qs_store *store, struct store_queue *queue)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    double seconds = (double)(now - queue->rate_at_ns) / 1e9;

    if (queue->rate_at_ns != 0 && now - queue->rate_at_ns < RATE_INTERVAL_NS) {
        return;
    }
    if (queue->rate_at_ns != 0) {
        queue->ingress_rate =
            blend(queue->ingress_rate, (double)(queue->core.in_count - queue->rate_in) / seconds,
                  seconds);
        queue->egress_rate =
            blend(queue->egress_rate,
                  ((double)queue->core.taken_count - (double)queue->rate_out) / seconds, seconds);
    }
    queue->rate_at_ns = now;
    queue->rate_in = queue->core.in_count;
    queue->rate_out = queue->core.taken_count;
}

qs_status qs_store_queue_status(qs_store *store, qs_slice name, qs_queue_status *status_out,
                                qs_error *error)
{
    struct store_queue *queue;
    uint64_t live;

    memset(status_out, 0, sizeof *status_out);
    QS_TRY(qsi_store_enter(store, error));
    queue = qsi_find_queue(store, qsi_slice_of(name));
    if (queue == NULL) {
        qsi_store_leave(store);
        return qsi_fail(error, QS_NOT_FOUND, "no queue '%.*s' in this store", (int)name.bytes,
                        (const char *)name.data);
    }
    update_rates(store, queue);
    live = queue->core.ready_count + queue->core.out_count;
    *status_out = (qs_queue_status){
        .messages_ready = queue->core.ready_count,
        .messages_unacked = queue->core.out_count,
        .consumers = queue->consumer_count,
        .alpha = live - queue->core.stored_count,
        .beta = queue->core.stored_count,
        .q4 = queue->core.ready_count,
        .ram_bytes = queue->core.ram_bytes,
        .target_ram_count = INFINITY,
        .ingress_rate = queue->ingress_rate,
        .egress_rate = queue->egress_rate,
        .durable = (queue->flags & QS_DURABLE) != 0,
        .exclusive = (queue->flags & QS_EXCLUSIVE) != 0,
        .auto_delete = (queue->flags & QS_AUTO_DELETE) != 0,
    };
    qsi_store_leave(store);
    return QS_OK;
}

/* ---- visiting ---- */

qs_status qs_store_visit_queues(qs_store *store,
                                void (*visit)(void *context, const qs_queue_info *), void *context)
{
    struct qsi_map_cursor cursor;

    QS_TRY(qsi_store_enter(store, NULL));
    cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct store_queue *queue = cursor.value;
        qs_queue_info info = {
            .name = qs_slice_of(queue->name),
            .durable = (queue->flags & QS_DURABLE) != 0,
            .exclusive = (queue->flags & QS_EXCLUSIVE) != 0,
            .auto_delete = (queue->flags & QS_AUTO_DELETE) != 0,
            .arguments = qs_slice_of(queue->arguments),
        };
        visit(context, &info);
    }
    qsi_store_leave(store);
    return QS_OK;
}

struct exchange_visit {
    void (*visit)(void *context, const qs_exchange_info *info);
    void *context;
};

static void visit_exchange(void *context, const struct qsi_exchange *exchange)
{
    struct exchange_visit *visit = context;
    qs_exchange_info info = {
        .name = qs_slice_of(exchange->name),
        .type = qs_slice_of(qsi_exchange_type_name(exchange)),
        .durable = exchange->durable,
        .auto_delete = exchange->auto_delete,
        .internal = exchange->internal,
        .arguments = qs_slice_of(exchange->arguments),
    };

    visit->visit(visit->context, &info);
}

qs_status qs_store_visit_exchanges(qs_store *store,
                                   void (*visit)(void *context, const qs_exchange_info *),
                                   void *context)
{
    struct exchange_visit each = {visit, context};

    QS_TRY(qsi_store_enter(store, NULL));
    qsi_router_visit_exchanges(&store->router, visit_exchange, &each);
    qsi_store_leave(store);
    return QS_OK;
}

struct binding_visit {
    void (*visit)(void *context, const qs_binding_info *info);
    void *context;
};

static void visit_binding(void *context, const struct qsi_binding *binding)
{
    struct binding_visit *visit = context;
    qs_binding_info info = {
        .source = qs_slice_of(binding->exchange->name),
        .destination = qs_slice_of(binding->destination->name),
        .routing_key = qs_slice_of(binding->key),
        .arguments = qs_slice_of(binding->arguments),
    };

    visit->visit(visit->context, &info);
}

qs_status qs_store_visit_bindings(qs_store *store,
                                  void (*visit)(void *context, const qs_binding_info *),
                                  void *context)
{
    struct binding_visit each = {visit, context};

    QS_TRY(qsi_store_enter(store, NULL));
    qsi_router_visit_bindings(&store->router, visit_binding, &each);
    qsi_store_leave(store);
    return QS_OK;
}
