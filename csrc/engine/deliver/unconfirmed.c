/* What a channel's confirms wait for: numbers, and the queues that got the messages. */
#include "check.h"
#include "enter.h"
#include "priorities.h"
#include "store.h"

#include <string.h>

static bool is_durable(const struct qs_store *store, const struct qsi_number_range *range)
    QSI_REQUIRES(qsi_store_mutex)
{
    return range->lsn <= qsi_journal_durable_lsn(store->journal);
}

qs_status qs_channel_visit_unconfirmed(qs_channel *channel,
                                       void (*visit)(void *context, const qs_unconfirmed *info),
                                       void *context, qs_error *error)
{
    const struct qsi_number_ranges *numbers = &channel->confirms.pending;
    const struct qsi_number_ranges *queues = &channel->confirms.queues;
    struct qs_store *store = channel->store;

    QS_TRY(qsi_channel_enter(channel, error));
    for (uint32_t i = 0; i < numbers->count; i++) {
        const struct qsi_number_range *range = &numbers->items[numbers->first + i];
        if (!is_durable(store, range)) {
            visit(context, &(qs_unconfirmed){range->first, range->last, {NULL, 0}});
        }
    }
    for (uint32_t i = 0; i < queues->count; i++) {
        const struct qsi_number_range *range = &queues->items[queues->first + i];
        const struct store_queue *queue =
            is_durable(store, range)
                ? NULL
                : qsi_map_get_number(&store->queues_by_id, qsi_queue_in(range->first));
        if (queue != NULL) { /* else it was deleted meanwhile */
            visit(context, &(qs_unconfirmed){0, 0, qs_slice_of(queue->name)});
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}
