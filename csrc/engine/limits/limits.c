/* Limits: which messages exceed those of their queue, and which queues have to be looked at. */
#include "limits.h"

#include "clock.h"
#include "queue_columns.h"
#include "wake.h"

bool qsi_is_too_much(const struct qsi_store_queue *queue, uint64_t ready, uint64_t body_bytes)
{
    return ready > queue->policy.messages_max ||
           (qsi_policy_counts_bytes(&queue->policy) && body_bytes > queue->policy.body_bytes_max);
}

bool qsi_is_over(const struct qsi_store_queue *queue)
{
    return (queue->policy.messages_max != QSI_UNLIMITED ||
            qsi_policy_counts_bytes(&queue->policy)) &&
           qsi_is_too_much(queue, qsi_ready_count(queue), qsi_ready_bytes(queue));
}

uint64_t qsi_idle_end_us(const struct qsi_store_queue *queue)
{
    return queue->policy.expires_ms == QSI_UNLIMITED || queue->consumer_count > 0 ||
                   !qsi_list_is_empty(&queue->waiting)
               ? QSI_NEVER
               : queue->used_at_us + queue->policy.expires_ms * QSI_US_PER_MS;
}

void qsi_schedule_expiry(struct qs_store *store, struct qsi_store_queue *queue, uint64_t earliest)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_list_is_empty(&queue->in_timed)) {
        qsi_list_push_back(&store->removals.timed, &queue->in_timed);
    }
    if (earliest < store->removals.wakes_at_us ||
        qsi_idle_end_us(queue) < store->removals.wakes_at_us) {
        qsi_wake_timer(store);
    }
}

void qsi_record_use(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    if (queue->policy.expires_ms != QSI_UNLIMITED) {
        queue->used_at_us = qsi_clock_us(store);
        qsi_schedule_expiry(store, queue, QSI_NEVER);
    }
}

void qsi_check_growth(struct qs_store *store, struct qsi_store_queue *subqueue)
{
    struct qsi_store_queue *queue = qsi_owner_of(subqueue);

    QS_ASSERT_HELD(&store->mutex);
    if (queue->policy.overflow == QSI_DROP_HEAD && qsi_is_over(queue) &&
        qsi_list_is_empty(&queue->in_trimming)) {
        qsi_list_push_back(&store->removals.trimming, &queue->in_trimming);
    }
    if (qsi_queue_earliest(&subqueue->core) != QSI_NEVER) {
        qsi_schedule_expiry(store, queue, qsi_queue_earliest(&subqueue->core));
    }
}

uint32_t qsi_refused_count(struct qsi_store_queue *subqueue, uint64_t first_seq, uint32_t count)
{
    const struct qsi_queue *core = &subqueue->core;
    const struct qsi_store_queue *queue = qsi_owner_of(subqueue);
    uint64_t ready = qsi_ready_count(queue), bytes = qsi_ready_bytes(queue);
    uint32_t refused = 0;

    while (refused < count && qsi_is_too_much(queue, ready, bytes)) {
        refused += 1;
        ready -= 1;
        bytes -= qsi_policy_counts_bytes(&queue->policy)
                     ? qsi_queue_body_bytes(core, first_seq + count - refused)
                     : 0;
    }
    return refused;
}
