/* The holder of messages that leave: the channel that belongs to nobody, opened, after a recovery,
 * and closed. */
#include "alloc.h"
#include "bell.h"
#include "clock.h"
#include "deliveries.h"
#include "departures.h"
#include "error.h"
#include "queue_life.h"
#include "returns.h"
#include "settle.h"
#include "states.h"
#include "tx.h"

qs_status qsi_departures_open(struct qs_store *store, qs_error *error)
{
    struct departures *departures = &store->departures;
    struct qs_channel *holder = qsi_zalloc(sizeof *holder);

    qsi_list_init(&departures->trimming);
    qsi_list_init(&departures->timed);
    if (holder == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    holder->store = store;
    holder->tx_selected = true;
    holder->bell = QSI_NO_BELL;
    qsi_list_init(&holder->in_store);
    qsi_returns_init(holder);
    qsi_list_init(&holder->consumers);
    departures->holder = holder;
    return QS_OK;
}

/* What a queue refused that has dead letters for it, and that found no way out before the store went: the last messages. */
static qs_status hold_excess(struct qs_store *store, struct store_queue *level, qs_error *error)
{
    const struct store_queue *queue = qsi_owner_of(level);
    uint64_t ready = qsi_ready_count(queue), body_bytes = qsi_ready_bytes(queue);
    uint64_t seq = level->container.next_seq;
    struct qsi_stretch stretch;

    QS_TRY(qsi_load_all_states(store, level, error));
    while (qsi_is_too_much(queue, ready, body_bytes) &&
           qsi_queue_ready_before(&level->core, &seq)) {
        ready -= 1;
        body_bytes -=
            qsi_policy_counts_bytes(&queue->policy) ? qsi_queue_body_bytes(&level->core, seq) : 0;
    }
    for (;;) {
        if (qsi_depart_reserve(store, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                            (const char *)queue->name.data);
        }
        if (!qsi_queue_hold_next(&level->core, &seq, &stretch)) {
            return QS_OK;
        }
        qsi_depart(store, level, &stretch, QSI_MAXLEN);
    }
}

/* REQUIRES all states of all levels in memory, where bytes are counted. */
static qs_status refuse_excess(struct qs_store *store, struct store_queue *queue, qs_error *error)
{
    if (!qsi_queue_passes_on(queue)) {
        return QS_OK;
    }
    for (uint32_t i = qsi_level_count(queue); i-- > 0 && qsi_is_over(queue);) {
        QS_TRY(hold_excess(store, qsi_level_at(queue, i), error));
    }
    return QS_OK;
}

qs_status qsi_departures_after_recovery(struct qs_store *store, qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t now = qsi_clock_us(store);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct store_queue *queue = cursor.value;
        queue->used_at_us = now;
        if (qsi_policy_counts_bytes(&queue->policy)) {
            QS_TRY(qsi_load_all_states(store, queue, error));
            qsi_queue_recount_bytes(&queue->core);
        }
    }
    cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) { /* with all their levels counted */
        struct store_queue *queue = cursor.value;
        qsi_note_growth(store, queue);
        if (qsi_policy_counts_deliveries(&queue->policy)) {
            QS_TRY(qsi_deliveries_hold_worn_out(store, queue, error));
        }
        if (queue->parent == NULL) {
            QS_TRY(refuse_excess(store, queue, error));
        }
        if (queue->policy.expires_ms != QSI_UNLIMITED && queue->parent == NULL) {
            qsi_note_time(store, queue, QSI_NEVER);
        }
    }
    return QS_OK;
}

static void unhold_extent(void *context, const struct qsi_extent *extent, uint64_t tags)
{
    struct store_queue *queue = qsi_queue_of_core(extent->queue);

    (void)context;
    if (!queue->deleted) {
        qsi_queue_unhold(extent->queue, extent->segment, qsi_extent_word(extent),
                         qsi_extent_mask(extent, tags));
    } else {
        qsi_container_settle(&extent->queue->container, extent->segment, qsi_extent_word(extent),
                             qsi_extent_mask(extent, tags));
        qsi_free_queue_if_done(queue);
    }
}

/* What no consumer had goes back as if nobody had: no delivery is counted. */
static void unhold(struct qs_store *store, const struct qsi_buf *departures)
{
    struct qs_channel *holder = store->departures.holder;

    for (size_t at = 0; at < departures->bytes; at += sizeof(struct departure)) {
        const struct departure *departure =
            (const struct departure *)(const void *)(departures->data + at);
        if (departure->reason == QSI_EXPIRED || departure->reason == QSI_MAXLEN) {
            qsi_unacked_take(&holder->unacked, departure->first_tag, departure->last_tag,
                             unhold_extent, NULL);
        }
    }
}

void qsi_departures_shut(struct qs_store *store)
{
    struct qs_channel *holder = store->departures.holder;

    while (store->departures.is_busy) { /* a call that was under way */
        qsi_cond_wait(&store->departures.quiet, &store->mutex, QSI_WAIT_FOREVER);
    }
    qsi_retry_stuck(store); /* what was in the way of a rejected message may be gone */
    qsi_see_off(store);
    qsi_tx_drop(holder);
    unhold(store, &store->departures.leaving);
    unhold(store, &store->departures.fresh);
    unhold(store, &store->departures.stuck);
    qsi_settle_tags(holder, 1, holder->unacked.last_tag, QSI_SETTLE_REQUEUE);
    qsi_buf_clear(&store->departures.leaving);
    store->departures.leaving_at = 0;
    qsi_buf_clear(&store->departures.fresh);
    qsi_buf_clear(&store->departures.stuck);
}

void qsi_departures_free(struct qs_store *store)
{
    struct departures *departures = &store->departures;

    if (departures->holder != NULL) {
        qsi_tx_drop(departures->holder);
        qsi_unacked_fini(&departures->holder->unacked);
        qsi_buf_fini(&departures->holder->tx_settles);
        qsi_free(departures->holder);
    }
    qsi_buf_fini(&departures->leaving);
    qsi_buf_fini(&departures->fresh);
    qsi_buf_fini(&departures->stuck);
}
