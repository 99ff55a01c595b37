/* The internal channel, which has messages during their removal: opening it, after a recovery, and
 * closing it. */
#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "deliveries.h"
#include "error.h"
#include "event_fd.h"
#include "queue_columns.h"
#include "queue_life.h"
#include "queue_take.h"
#include "removals.h"
#include "returns.h"
#include "settle.h"
#include "states.h"
#include "thread_safety.h"
#include "tx.h"

qs_status qsi_removals_open(struct qs_store *store, qs_error *error)
{
    struct qsi_removals *removals = &store->removals;
    struct qs_channel *internal_channel = qsi_zalloc(sizeof *internal_channel);

    QS_ASSERT(removals->internal_channel == NULL);
    qsi_list_init(&removals->trimming);
    qsi_list_init(&removals->timed);
    if (internal_channel == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    internal_channel->store = store;
    internal_channel->tx_selected = true;
    internal_channel->event_fd = QSI_NO_EVENT_FD;
    qsi_list_init(&internal_channel->in_store);
    qsi_returns_init(internal_channel);
    qsi_list_init(&internal_channel->consumers);
    qsi_list_init(&internal_channel->resting);
    qsi_list_init(&internal_channel->cancelled);
    qsi_list_init(&internal_channel->acked_cursors);
    removals->internal_channel = internal_channel;
    return QS_OK;
}

/* Messages that a queue with dead letters for them refused, and that could not leave before the
 * store was closed: the last messages. */
static qs_status reserve_excess(struct qs_store *store, struct qsi_store_queue *subqueue,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue = qsi_owner_of(subqueue);
    uint64_t ready = qsi_ready_count(queue), body_bytes = qsi_ready_bytes(queue);
    uint64_t seq = subqueue->container.next_seq;
    struct qsi_stretch stretch;

    QS_TRY(qsi_load_all_states(store, subqueue, error));
    while (qsi_is_too_much(queue, ready, body_bytes) &&
           qsi_queue_ready_before(&subqueue->core, &seq)) {
        QS_DCHECK(ready > 0);
        ready -= 1;
        body_bytes -= qsi_policy_counts_bytes(&queue->policy)
                          ? qsi_queue_body_bytes(&subqueue->core, seq)
                          : 0;
    }
    for (;;) {
        if (qsi_reserve_removals(store, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                            (const char *)queue->name.data);
        }
        if (!qsi_queue_reserve_next(&subqueue->core, &seq, &stretch)) {
            return QS_OK;
        }
        qsi_add_removal(store, subqueue, &stretch, QSI_MAXLEN);
    }
}

/* REQUIRES all states of all priorities in memory, where bytes are counted. */
static qs_status refuse_excess(struct qs_store *store, struct qsi_store_queue *queue,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(queue->parent == NULL);
    if (!qsi_queue_passes_on(queue)) {
        return QS_OK;
    }
    for (uint32_t i = qsi_subqueue_count(queue); i-- > 0 && qsi_is_over(queue);) {
        QS_TRY(reserve_excess(store, qsi_subqueue_at(queue, i), error));
    }
    return QS_OK;
}

qs_status qsi_removals_after_recovery(struct qs_store *store, qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t now = qsi_clock_us(store);

    QS_ASSERT_HELD(&store->mutex);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        queue->used_at_us = now;
        if (qsi_policy_counts_bytes(&queue->policy)) {
            QS_TRY(qsi_load_all_states(store, queue, error));
            qsi_queue_recount_bytes(&queue->core);
        }
    }
    cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) { /* with all their priorities counted */
        struct qsi_store_queue *queue = cursor.value;
        qsi_check_growth(store, queue);
        if (qsi_policy_counts_deliveries(&queue->policy)) {
            QS_TRY(qsi_deliveries_reserve_worn_out(store, queue, error));
        }
        if (queue->parent == NULL) {
            QS_TRY(refuse_excess(store, queue, error));
        }
        if (queue->policy.expires_ms != QSI_UNLIMITED && queue->parent == NULL) {
            qsi_schedule_expiry(store, queue, QSI_NEVER);
        }
    }
    return QS_OK;
}

static void unreserve_extent(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);

    (void)context;
    QS_DCHECK(mask != 0);
    if (!queue->deleted) {
        qsi_queue_unreserve_removal(&queue->core, extent->segment, extent->word, mask);
    } else {
        qsi_container_settle(extent->container, extent->segment, extent->word, mask);
        qsi_free_queue_if_done(queue);
    }
}

/* Messages that no consumer had are requeued untouched: no delivery is counted. */
static void unreserve(struct qs_store *store, const struct qsi_buf *removals)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *internal_channel = store->removals.internal_channel;

    QS_ASSERT(!store->removals.is_busy);
    for (size_t at = 0; at < removals->bytes; at += sizeof(struct qsi_removal)) {
        const struct qsi_removal *removal =
            (const struct qsi_removal *)(const void *)(removals->data + at);
        if (removal->reason == QSI_EXPIRED || removal->reason == QSI_MAXLEN) {
            qsi_unacked_take(&internal_channel->unacked, removal->first_tag, removal->last_tag,
                             unreserve_extent, NULL);
        }
    }
}

void qsi_removals_shut(struct qs_store *store)
{
    struct qs_channel *internal_channel = store->removals.internal_channel;

    QS_ASSERT_HELD(&store->mutex);
    while (store->removals.is_busy) { /* a call that was running */
        qsi_cond_wait(&store->removals.quiet, &store->mutex, QSI_WAIT_FOREVER);
    }
    qsi_retry_stuck(store); /* the obstacle of a rejected message may be gone */
    qsi_drain_removals(store, QSI_MAY_WAIT);
    qsi_tx_drop(internal_channel);
    unreserve(store, &store->removals.leaving);
    unreserve(store, &store->removals.fresh);
    unreserve(store, &store->removals.stuck);
    qsi_requeue_tags(internal_channel, 1, internal_channel->unacked.last_tag);
    QS_ASSERT(internal_channel->unacked.outstanding_count == 0);
    qsi_buf_clear(&store->removals.leaving);
    store->removals.leaving_at = 0;
    qsi_buf_clear(&store->removals.fresh);
    qsi_buf_clear(&store->removals.stuck);
}

void qsi_removals_free(struct qs_store *store)
{
    struct qsi_removals *removals = &store->removals;

    if (removals->internal_channel != NULL) {
        QS_DCHECK(!removals->is_busy);
        qsi_tx_drop(removals->internal_channel);
        qsi_unacked_fini(&removals->internal_channel->unacked);
        qsi_buf_fini(&removals->internal_channel->tx_settles);
        qsi_buf_fini(&removals->internal_channel->tx_cursors);
        qsi_free(removals->internal_channel);
    }
    qsi_buf_fini(&removals->leaving);
    qsi_buf_fini(&removals->fresh);
    qsi_buf_fini(&removals->stuck);
}
