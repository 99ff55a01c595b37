/* Counters of channels and queues, and the visit to all there are. */
#include "counts.h"

#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "settle_record.h"
#include "tally.h"
#include "trace.h"
#include "ways.h"

struct qsi_queue_counts *qsi_counts_make(struct qs_store *store, struct qsi_store_queue *queue)
{
    struct qsi_store_queue *owner = qsi_owner_of(queue);

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(queue->counts == NULL && owner->parent == NULL);
    if (owner->counts == NULL) {
        owner->counts = qsi_zalloc(sizeof *owner->counts);
    }
    queue->counts = owner->counts;
    return queue->counts != NULL ? queue->counts : &store->uncounted;
}

void qsi_count_settled(struct qs_channel *channel, struct qsi_store_queue *queue, uint8_t kind,
                       uint32_t count)
{
    struct qsi_queue_counts *counts = qsi_counts_of(channel->store, queue);

    QS_ASSERT_HELD(&channel->store->mutex);
    counts->dead_lettered += kind == QSI_SETTLE_DEAD_LETTERED ? count : 0;
    if (qsi_channel_is_internal(channel) || kind == QSI_SETTLE_NO_ACK) {
        return;
    }
    if (kind == QSI_SETTLE_ACK) {
        qsi_count_acked(channel, queue, count);
    } else if (qsi_settle_requeues(kind)) {
        channel->counts.requeue += count;
        counts->requeue += count;
    } else {
        channel->counts.reject += count;
        counts->reject += count;
    }
}

/* ---- telling ---- */

struct counts_visit {
    void (*visit)(void *context, const qs_counts *counts);
    void *context;
};

#define VALUES(counts) .values = (const uint64_t *)&(counts), .length = sizeof(counts) / 8

static void add_counts(struct qsi_channel_counts *to, const struct qsi_channel_counts *from)
{
    uint64_t *sums = (uint64_t *)to;
    const uint64_t *values = (const uint64_t *)from;

    for (size_t i = 0; i < sizeof *to / sizeof *sums; i++) {
        sums[i] += values[i];
    }
}

void qsi_counts_keep(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    QS_DCHECK(channel->closed);
    qsi_ways_leave(channel);
    if (qsi_is_traced(channel->store)) {
        qsi_trace_channel_ended(channel);
    }
    channel->store->stats.channels_closed += 1;
    channel->store->stats.received_confirm += channel->confirms.last_number;
    add_counts(&channel->store->closed_channels, &channel->counts);
    add_counts(&channel->connection->closed_channels, &channel->counts);
}

static void report_channels(const struct qs_store *store, const struct counts_visit *visit)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_channel_counts all = store->closed_channels;
    const qs_counts told_all = {.of = QS_COUNTS_ALL_CHANNELS, VALUES(all)};

    for (const struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        const struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
        const qs_counts visited = {
            .of = QS_COUNTS_CHANNEL, .channel = channel->number, VALUES(channel->counts)};
        if (!channel->closed) {
            visit->visit(visit->context, &visited);
            add_counts(&all, &channel->counts);
        }
    }
    visit->visit(visit->context, &told_all);
}

/* Those that are open, and not a lone channel's own. */
static void report_connections(const struct qs_store *store, const struct counts_visit *visit)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (const struct qsi_list *node = store->connections.next; node != &store->connections;
         node = node->next) {
        const struct qs_connection *connection =
            QSI_LIST_OWNER(node, struct qs_connection, in_store);
        struct qsi_channel_counts sums = connection->closed_channels;
        const qs_counts visited = {
            .of = QS_COUNTS_CONNECTION, .channel = connection->number, VALUES(sums)};
        for (const struct qsi_list *each = connection->channels.next; each != &connection->channels;
             each = each->next) {
            add_counts(&sums, &QSI_LIST_OWNER(each, struct qs_channel, in_connection)->counts);
        }
        visit->visit(visit->context, &visited);
    }
}

static void report_exchange(void *context, const struct qsi_exchange *exchange)
{
    const struct counts_visit *visit = context;
    const struct qsi_exchange_counts counts = {
        .publish_in = exchange->published_in,
        .publish_out = qsi_exchange_published_out(exchange),
        .confirm = exchange->confirmed,
        .return_unroutable = exchange->returned,
        .drop_unroutable = exchange->dropped,
    };
    const qs_counts visited = {
        .of = QS_COUNTS_EXCHANGE, .exchange = qs_slice_of(exchange->name), VALUES(counts)};

    visit->visit(visit->context, &visited);
}

static void report_queues(struct qs_store *store, const struct counts_visit *visit)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        struct qsi_queue_counts counts = {0};
        const qs_counts visited = {
            .of = QS_COUNTS_QUEUE, .queue = qs_slice_of(queue->name), VALUES(counts)};
        if (queue->parent != NULL) {
            continue;
        }
        if (queue->counts != NULL) {
            counts = *queue->counts;
        }
        counts.publish = qsi_destination_published(&queue->destination);
        counts.confirm = qsi_destination_confirmed(&queue->destination);
        visit->visit(visit->context, &visited);
    }
}

static void report_route(void *context, const struct qsi_tally *tally)
{
    const struct counts_visit *visit = context;
    const struct qsi_route_counts counts = {.publish = tally->published,
                                            .confirm = tally->confirmed};
    const qs_counts visited = {.of = QS_COUNTS_ROUTE,
                               .exchange = qs_slice_of(tally->exchange->name),
                               .queue = qs_slice_of(tally->destination->name),
                               VALUES(counts)};

    visit->visit(visit->context, &visited);
}

/* Confirms that could be visited by now. */
static void count_durable(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    for (struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        qsi_ways_leave(QSI_LIST_OWNER(node, struct qs_channel, in_store));
    }
}

qs_status qs_store_visit_counts(qs_store *store, void (*visit)(void *context, const qs_counts *),
                                void *context)
{
    struct counts_visit each = {visit, context};

    QS_TRY(qsi_store_enter(store, NULL));
    count_durable(store);
    report_channels(store, &each);
    report_connections(store, &each);
    qsi_router_visit_exchanges(&store->router, report_exchange, &each);
    report_queues(store, &each);
    qsi_router_visit_tallies(&store->router, report_route, &each);
    qsi_store_leave(store);
    return QS_OK;
}
