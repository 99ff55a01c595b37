/* What a channel's confirms wait for: publish numbers, and the queues of their messages. */
#include "check.h"
#include "enter.h"
#include "priorities.h"
#include "store.h"
#include "ways.h"

#include <string.h>

struct unconfirmed_visit {
    void (*visit)(void *context, const qs_unconfirmed *info);
    void *context;
};

static void report_numbers(struct qs_channel *channel, const struct unconfirmed_visit *each)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_number_ranges *numbers = &channel->confirms.pending;
    uint64_t durable = qsi_journal_durable_lsn(channel->store->journal);

    for (uint32_t i = 0; i < numbers->count; i++) {
        const struct qsi_number_range *range = &numbers->items[numbers->first + i];
        if (range->lsn <= durable) {
            continue;
        }
        each->visit(each->context,
                    &(qs_unconfirmed){.first_number = range->first, .last_number = range->last});
    }
}

/* Deleted queues, and queues that keep nothing, are not waited for. */
static void report_queues(struct qs_channel *channel, const struct unconfirmed_visit *each,
                          const struct qsi_confirm_way *way, qs_unconfirmed *info)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < way->queue_count; i++) {
        const struct qsi_store_queue *queue =
            qsi_map_get_number(&channel->store->queues_by_id, qsi_queue_in(qsi_way_ids(way)[i]));
        if (queue != NULL &&
            (qsi_keeps_all(queue) || (way->persistent && (queue->flags & QS_DURABLE) != 0))) {
            info->queue = qs_slice_of(queue->name);
            each->visit(each->context, info);
        }
    }
}

/* Numbers that were confirmed ahead are left out. */
static void report_way(struct qs_channel *channel, const struct unconfirmed_visit *each,
                       const struct qsi_confirm_way *way) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice exchange = qsi_way_exchange(way);
    qs_unconfirmed info = {.has_queue = true, .exchange = qs_slice_of(exchange)};

    for (uint64_t from = way->first_number; qsi_confirms_next_pending(
             &channel->confirms, qsi_journal_durable_lsn(channel->store->journal), from,
             way->last_number, &info.first_number, &info.last_number);
         from = info.last_number + 1) {
        report_queues(channel, each, way, &info);
    }
}

qs_status qs_channel_visit_unconfirmed(qs_channel *channel,
                                       void (*visit)(void *context, const qs_unconfirmed *info),
                                       void *context, qs_error *error)
{
    const struct unconfirmed_visit each = {visit, context};
    uint64_t durable;

    QS_TRY(qsi_channel_enter(channel, error));
    durable = qsi_journal_durable_lsn(channel->store->journal);
    report_numbers(channel, &each);
    for (const struct qsi_confirm_way *way = qsi_ways_first(channel); way != NULL;
         way = qsi_ways_after(channel, way)) {
        if (way->lsn > durable) {
            report_way(channel, &each, way);
        }
    }
    qsi_store_leave(channel->store);
    return QS_OK;
}
