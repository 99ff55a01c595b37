/* What a store tells about itself. */
#include "engine.h"
#include "error.h"

#include <string.h>

void qs_store_stats(qs_store *store, qs_stats *stats_out)
{
    struct qsi_journal_counts counts;
    struct qsi_message_space space;

    memset(stats_out, 0, sizeof *stats_out);
    if (qsi_store_enter(store, NULL) != QS_OK) {
        return;
    }
    counts = qsi_journal_counts(store->journal);
    qsi_message_store_space(store->messages, &space);
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
        .ram_bytes = qsi_budget_bytes(store->budget),
        .checkpoints = store->stats.checkpoints,
        .checkpoint_lsn = store->checkpoint_lsn,
        .bytes_checkpointed = store->stats.bytes_checkpointed + store->shared.flushed_bytes,
        .segments_written = store->stats.segments_written,
        .messages_paged_out = store->stats.messages_paged_out,
        .messages_paged_in = store->stats.messages_paged_in,
        .message_files = space.file_count,
        .message_bytes_live = space.live_bytes,
        .message_bytes_total = space.total_bytes + space.doomed_bytes,
        .recovered_lsn = store->recovered_lsn,
        .recovery_us = store->recovery_us,
        .recovered_messages = store->recovered_messages,
        .recovered_records = store->recovered_records,
        .recovered_bytes = store->recovered_bytes,
        .torn_bytes = store->torn_bytes,
        .lost_ranges = store->lost_ranges,
        .lost_bytes = store->lost_bytes,
    };
    qsi_store_leave(store);
}

void qs_store_options(qs_store *store, qs_options *options_out)
{
    *options_out = store->options; /* constant since open */
}

/* A lazy queue has what was read ahead of its consumers, q3, and behind it delta, wherever else its messages happen to be as well. */
static void measure_lazily(struct qsi_queue_measure *measure)
{
    measure->q3 += measure->q4;
    *(measure->delta_len > 0 ? &measure->delta_len : &measure->q3) += measure->q2 + measure->q1;
    measure->q1 = measure->q2 = measure->q4 = 0;
}

qs_status qs_store_queue_status(qs_store *store, qs_slice name, qs_queue_status *status_out,
                                qs_error *error)
{
    struct store_queue *queue;
    struct qsi_queue_measure measure;

    memset(status_out, 0, sizeof *status_out);
    QS_TRY(qsi_store_enter(store, error));
    queue = qsi_find_queue(store, qsi_slice_of(name));
    if (queue != NULL && queue->lazy) { /* what is on its way to the disk arrives first */
        (void)!qsi_pager_settle_queue(store, queue); /* if it does not, it shows */
        queue = qsi_find_queue(store, qsi_slice_of(name));
    }
    if (queue == NULL) {
        qsi_store_leave(store);
        return qsi_fail(error, QS_NOT_FOUND, "no queue '%.*s' in this store", (int)name.bytes,
                        (const char *)name.data);
    }
    qsi_update_rates(store, queue);
    qsi_queue_measure(&queue->core, qsi_index_of(store, queue), &measure);
    if (queue->lazy && queue->core.flushed_seq == queue->core.next_seq) {
        measure_lazily(&measure);
    }
    *status_out = (qs_queue_status){
        .messages_ready = queue->core.ready_count,
        .messages_unacked = queue->core.out_count,
        .consumers = queue->consumer_count,
        .alpha = measure.alpha,
        .beta = measure.beta,
        .gamma = measure.gamma,
        .delta = measure.delta,
        .q1 = measure.q1,
        .q2 = measure.q2,
        .delta_len = measure.delta_len,
        .q3 = measure.q3,
        .q4 = measure.q4,
        .ram_bytes = queue->core.ram_bytes,
        .disk_bytes = measure.disk_bytes,
        .target_ram_count = queue->target_ram_count,
        .ingress_rate = queue->ingress_rate,
        .egress_rate = queue->egress_rate,
        .durable = (queue->flags & QS_DURABLE) != 0,
        .exclusive = (queue->flags & QS_EXCLUSIVE) != 0,
        .auto_delete = (queue->flags & QS_AUTO_DELETE) != 0,
        .lazy = queue->lazy,
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
            .messages_ready = queue->core.ready_count,
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
        .to_exchange = binding->destination->exchange != NULL,
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
