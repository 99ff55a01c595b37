/* The statistics of a store. */
#include "check.h"
#include "clock.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "pager_steps.h"
#include "paging.h"
#include "prefetch.h"
#include "priorities.h"
#include "queue_life.h"
#include "rates.h"
#include "store.h"
#include "thread_safety.h"
#include "turns.h"
#include "watch.h"

#include <string.h>

static qs_file_system file_system_of(struct qs_store *store)
{
    qs_file_system system = {.kind = QS_FS_UNKNOWN};

    if (store->env->file_system != NULL) {
        store->env->file_system(store->env, store->root, &system);
    }
    return system;
}

/* The findings of the open. */
static void report_recovery(const struct qsi_recovery *found, qs_stats *stats)
{
    stats->recovered_lsn = found->from_lsn;
    stats->recovery_us = found->took_us;
    stats->recovered_messages = found->messages;
    stats->recovered_records = found->records;
    stats->recovered_bytes = found->bytes;
    stats->torn_bytes = found->torn_bytes;
    stats->lost_ranges = found->lost_ranges;
    stats->lost_bytes = found->lost_bytes;
    stats->lost_segments = found->lost_segments;
    stats->lost_messages = found->lost_messages;
    stats->recovered_queues = found->queues;
    stats->ignored_arguments = found->ignored_arguments;
}

static void report_inbox(const struct qs_store *store, qs_stats *stats)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    stats->inbox_adopted = store->inbox.adopted;
    stats->inbox_refused = store->inbox.refused;
    stats->inbox_failing = store->inbox.failing;
    stats->inbox_adopting = store->inbox.adopting;
    memcpy(stats->inbox_error, store->inbox.error, sizeof store->inbox.error);
}

/* Published and delivered messages.  A channel in confirm mode has numbered its publishes. */
static void report_churn(const struct qs_store *store, qs_stats *stats)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t in_confirm_mode = store->stats.received_confirm;

    for (const struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        const struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
        in_confirm_mode += channel->closed ? 0 : channel->confirms.last_number;
    }
    stats->messages_received_confirm = in_confirm_mode;
    stats->connections_opened = store->last_connection_number;
    stats->connections_closed = store->stats.connections_closed;
    stats->channels_opened = store->last_channel_number;
    stats->channels_closed = store->stats.channels_closed;
    stats->queues_declared = store->stats.queues_declared;
    stats->queues_created = store->stats.queues_created;
    stats->queues_deleted = store->stats.queues_deleted;
}

/* Of other processes, of clients and consumers. */
static void report_others(struct qs_store *store, qs_stats *stats_out) QSI_REQUIRES(qsi_store_mutex)
{
    report_inbox(store, stats_out);
    report_churn(store, stats_out);
    stats_out->slow_consumers = qsi_slow_count(store);
}

void qs_store_stats(qs_store *store, qs_stats *stats_out)
{
    struct qsi_journal_counts counts = {0};
    struct qsi_message_space space;
    bool read_only = store->options.read_only; /* there is no journal to write to */

    memset(stats_out, 0, sizeof *stats_out);
    if (qsi_store_enter(store, NULL) != QS_OK) {
        return;
    }
    if (!read_only) {
        counts = qsi_journal_counts(store->journal);
    }
    qsi_message_store_space(store->messages, &space);
    *stats_out = (qs_stats){
        .durable_lsn =
            read_only ? store->recovery.read_lsn : qsi_journal_durable_lsn(store->journal),
        .appended_lsn =
            read_only ? store->recovery.read_lsn : qsi_journal_appended_lsn(store->journal),
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
        .messages_expired = store->stats.expired,
        .messages_dead_lettered = store->stats.dead_lettered,
        .messages_refused = store->stats.refused,
        .commit_latency_p50_us = qsi_histogram_percentile_us(&store->commit.latency, 50),
        .commit_latency_p99_us = qsi_histogram_percentile_us(&store->commit.latency, 99),
        .commit_latency_max_us = store->commit.latency.max_us,
        .confirm_latency_p50_us = qsi_histogram_percentile_us(&store->commit.confirm_latency, 50),
        .confirm_latency_p99_us = qsi_histogram_percentile_us(&store->commit.confirm_latency, 99),
        .confirm_latency_max_us = store->commit.confirm_latency.max_us,
        .sync = store->options.sync,
        .failed = store->failed,
        .ram_bytes = qsi_budget_bytes(store->budget),
        .checkpoints = store->stats.checkpoints,
        .checkpoint_lsn = store->checkpoint.lsn,
        .bytes_checkpointed = store->stats.bytes_checkpointed + store->shared.flushed_bytes,
        .segments_written = store->stats.segments_written,
        .messages_paged_out = store->stats.messages_paged_out,
        .messages_paged_in = store->stats.messages_paged_in,
        .message_files = space.file_count,
        .message_bytes_live = space.live_bytes,
        .message_bytes_total = space.total_bytes + space.doomed_bytes,
        .commit_running_ms = qsi_commit_running_ns(store) / 1000000,
        .commit_stalls = store->stats.commit_stalls,
        .clock_ahead_us = qsi_clock_ahead_us(store),
        .file_system = file_system_of(store),
    };
    report_recovery(&store->recovery, stats_out);
    report_others(store, stats_out);
    qsi_store_leave(store);
}

qs_status qs_store_visit_latencies(qs_store *store, uint32_t of,
                                   void (*visit)(void *context, uint64_t most_us, uint64_t count),
                                   void *context)
{
    const struct qsi_histogram *histogram;

    QS_TRY(qsi_store_enter(store, NULL));
    histogram = of == QS_LATENCY_COMMIT ? &store->commit.latency : &store->commit.confirm_latency;
    for (uint32_t i = 0; i < QSI_HISTOGRAM_BUCKETS; i++) {
        if (histogram->counts[i] > 0) {
            visit(context, qsi_histogram_top_us(i), histogram->counts[i]);
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}

void qs_store_options(qs_store *store, qs_options *options_out)
{
    *options_out = store->options; /* constant since open */
}

qs_status qs_store_set_place(qs_store *store, const char *place, qs_error *error)
{
    size_t bytes = strlen(place) + 1;

    if (bytes > QSI_PLACE_BYTES) {
        return qsi_fail(error, QS_EINVAL, "place of %zu bytes: %d at most", bytes - 1,
                        QSI_PLACE_BYTES - 1);
    }
    QS_TRY(qsi_store_enter(store, error));
    memcpy(store->place, place, bytes);
    qsi_store_leave(store);
    return QS_OK;
}

static void add_measure(struct qsi_queue_measure *sum, const struct qsi_queue_measure *subqueue)
{
    sum->alpha += subqueue->alpha;
    sum->beta += subqueue->beta;
    sum->gamma += subqueue->gamma;
    sum->delta += subqueue->delta;
    sum->q1 += subqueue->q1;
    sum->q2 += subqueue->q2;
    sum->delta_len += subqueue->delta_len;
    sum->q3 += subqueue->q3;
    sum->q4 += subqueue->q4;
    sum->disk_bytes += subqueue->disk_bytes;
}

/* A lazy queue has content that was read ahead of its consumers, q3, and then delta, wherever else
 * its messages may be as well. */
static void measure_lazily(struct qsi_queue_measure *measure)
{
    measure->delta_len += measure->q1 + measure->q2 + measure->q3 + measure->q4 - measure->ahead;
    measure->q3 = measure->ahead;
    measure->q1 = measure->q2 = measure->q4 = 0;
}

/* Adds the counts of one priority. */
static void measure_subqueue(struct qs_store *store, struct qsi_store_queue *subqueue,
                             struct qsi_queue_measure *sum) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_queue_measure measure;

    qsi_queue_measure(&subqueue->core, qsi_index_of(store, subqueue), &measure);
    measure.delta += qsi_work_rest(&subqueue->core);
    measure.delta_len += qsi_work_rest(&subqueue->core);
    if (subqueue->lazy && qsi_container_is_flushed(&subqueue->container)) {
        measure_lazily(&measure);
    }
    add_measure(sum, &measure);
}

/* By the clock of this moment. */
static void add_rates(struct qs_store *store, struct qsi_store_queue *subqueue,
                      qs_queue_status *status) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_update_rates(store, subqueue);
    status->target_ram_count += qsi_target_ram_count(store, subqueue);
    status->ingress_rate += qsi_rate(subqueue, subqueue->ingress_sum);
    status->egress_rate += qsi_rate(subqueue, subqueue->egress_sum);
}

static void add_counts(const struct qsi_store_queue *subqueue, qs_queue_status *status)
    QSI_REQUIRES(qsi_store_mutex)
{
    status->messages_ready += qsi_container_ready_count(subqueue->messages);
    status->messages_delayed += qsi_queue_delayed_count(&subqueue->core);
    status->messages_passed += subqueue->core.work.passed_count;
    status->messages_unacked += qsi_out_count(subqueue) + qsi_queue_aside_count(&subqueue->core);
    status->ram_bytes += subqueue->messages->ram_bytes;
}

static uint64_t slow_consumers_of(const struct qsi_list *consumers) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t found = 0;

    for (struct qsi_list *node = consumers->next; node != consumers; node = node->next) {
        found += qsi_consumer_is_slow(qsi_consumer_in_queue(node));
    }
    return found;
}

qs_status qs_store_queue_status(qs_store *store, qs_slice name, qs_queue_status *status_out,
                                qs_error *error)
{
    struct qsi_store_queue *queue;
    struct qsi_queue_measure measure = {0};

    memset(status_out, 0, sizeof *status_out);
    QS_TRY(qsi_store_enter(store, error));
    queue = qsi_find_queue(store, qsi_slice_of(name));
    /* Messages on their way to the disk of a lazy queue are written first. */
    for (uint32_t i = 0;
         queue != NULL && queue->lazy && !store->options.read_only && i < qsi_subqueue_count(queue);
         i++) {
        (void)!qsi_pager_settle_queue(store, qsi_subqueue_at(queue, i)); /* if not, it shows */
        queue = qsi_find_queue(store, qsi_slice_of(name));
    }
    if (queue != NULL) {
        qsi_expire_for_status(store, queue);
        queue = qsi_find_queue(store, qsi_slice_of(name));
    }
    if (queue == NULL) {
        qsi_store_leave(store);
        return qsi_fail_no_queue(store, qsi_slice_of(name), error);
    }
    *status_out = (qs_queue_status){
        .consumers = queue->consumer_count,
        .slow_consumers = slow_consumers_of(&queue->consumers) + slow_consumers_of(&queue->full),
        .durable = (queue->flags & QS_DURABLE) != 0,
        .exclusive = (queue->flags & QS_EXCLUSIVE) != 0,
        .auto_delete = (queue->flags & QS_AUTO_DELETE) != 0,
        .lazy = queue->lazy,
    };
    qsi_update_targets(store, false);
    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
        measure_subqueue(store, subqueue, &measure);
        add_counts(subqueue, status_out);
        add_rates(store, subqueue, status_out);
    }
    status_out->alpha = measure.alpha;
    status_out->beta = measure.beta;
    status_out->gamma = measure.gamma;
    status_out->delta = measure.delta;
    status_out->q1 = measure.q1;
    status_out->q2 = measure.q2;
    status_out->delta_len = measure.delta_len;
    status_out->q3 = measure.q3;
    status_out->q4 = measure.q4;
    status_out->disk_bytes = measure.disk_bytes;
    if (queue->kind->report != NULL) {
        queue->kind->report(queue, status_out);
    }
    qsi_store_leave(store);
    return QS_OK;
}

/* ---- visiting ---- */

/* Queues may be made and deleted while one is examined. */
static qs_status expire_everywhere(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    struct qsi_buf ids = {0};
    qs_status status = QS_OK;

    while (status == QS_OK && qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        if (queue->parent == NULL && qsi_earliest(queue) != QSI_NEVER) {
            status = qsi_buf_append(&ids, &queue->container.id, sizeof queue->container.id);
        }
    }
    for (size_t at = 0; status == QS_OK && at < ids.bytes; at += sizeof(uint64_t)) {
        uint64_t id;
        struct qsi_store_queue *queue;
        memcpy(&id, ids.data + at, sizeof id);
        queue = qsi_find_by_id(store, id);
        if (queue != NULL) {
            qsi_expire_for_status(store, queue);
        }
    }
    qsi_buf_fini(&ids);
    return status;
}

static qs_queue_info info_of(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    qs_queue_status counts = {0};

    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        add_counts(qsi_subqueue_at(queue, i), &counts);
    }
    return (qs_queue_info){
        .name = qs_slice_of(queue->name),
        .durable = (queue->flags & QS_DURABLE) != 0,
        .exclusive = (queue->flags & QS_EXCLUSIVE) != 0,
        .auto_delete = (queue->flags & QS_AUTO_DELETE) != 0,
        .messages_ready = counts.messages_ready,
        .messages_delayed = counts.messages_delayed,
        .messages_unacked = counts.messages_unacked,
        .consumers = queue->consumer_count,
        .ram_bytes = counts.ram_bytes,
        .owner = queue->owner == NULL ? 0 : queue->owner->number,
        .arguments = qs_slice_of(queue->arguments),
    };
}

qs_status qs_store_visit_queues(qs_store *store,
                                void (*visit)(void *context, const qs_queue_info *), void *context)
{
    struct qsi_map_cursor cursor;

    QS_TRY(qsi_store_enter(store, NULL));
    if (expire_everywhere(store) != QS_OK) {
        qsi_store_leave(store);
        return QS_ENOMEM;
    }
    cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (queue->parent == NULL) {
            qs_queue_info info = info_of(queue);
            visit(context, &info);
        }
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
