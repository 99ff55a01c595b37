/* The timer thread: it wakes when something expires. */
#include "alarms.h"
#include "check.h"
#include "clock.h"
#include "enter.h"
#include "limits.h"
#include "queue_life.h"
#include "removals.h"
#include "topology.h"
#include "watch.h"

#define NS_PER_US UINT64_C(1000)
/* between two groups of dead letters, so that others get the lock */
#define TIMER_NAP_NS 50000u

/* Streams drop messages by age that a checkpoint has named: whole files, so it is not urgent. */
#define RETAIN_US (10 * UINT64_C(1000000))

static uint64_t retain(struct qs_store *store, uint64_t now) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_removals *removals = &store->removals;

    QS_ASSERT_HELD(&store->mutex);
    if (store->stream_count == 0) {
        return QSI_NEVER;
    }
    if (now >= removals->retain_at_us) {
        qsi_retain_streams(store);
        removals->retain_at_us = now + RETAIN_US;
    }
    return removals->retain_at_us;
}

/* May release the lock.  Returns when to run again. */
static uint64_t keep_time(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_removals *removals = &store->removals;
    uint64_t now = qsi_clock_us(store), next = retain(store, now);
    struct qsi_list due;

    /* Queues may be made and deleted while the lock is released: each is taken from a list of its
     * own. */
    qsi_list_init(&due);
    while (!qsi_list_is_empty(&removals->timed)) {
        struct qsi_list *node = removals->timed.next;
        qsi_list_remove(node);
        qsi_list_push_back(&due, node);
    }
    while (!qsi_list_is_empty(&due)) {
        struct qsi_store_queue *queue = QSI_LIST_OWNER(due.next, struct qsi_store_queue, in_timed);
        uint64_t earliest;
        qsi_list_remove(&queue->in_timed);
        QS_DCHECK(!queue->deleted && queue->parent == NULL);
        if (qsi_idle_end_us(queue) <= now) {
            qsi_delete_queue_now(store, queue);
            continue;
        }
        qsi_list_push_back(&removals->timed, &queue->in_timed);
        if (qsi_earliest(queue) <= now) {
            queue->jobs += 1;
            qsi_expire_all(store, queue, false);
            QS_DCHECK(queue->jobs > 0);
            queue->jobs -= 1;
            if (queue->deleted) {
                qsi_free_queue_if_done(queue);
                continue;
            }
        }
        earliest = qsi_earliest(queue);
        next = earliest < next ? earliest : next;
        next = qsi_idle_end_us(queue) < next ? qsi_idle_end_us(queue) : next;
        if (earliest == QSI_NEVER && queue->policy.expires_ms == QSI_UNLIMITED) {
            qsi_list_remove(&queue->in_timed);
        }
    }
    return removals->stuck.bytes > 0 && now + QSI_RETRY_US < next ? now + QSI_RETRY_US : next;
}

void *qsi_run_timer(void *argument)
{
    struct qs_store *store = argument;
    struct qsi_removals *removals = &store->removals;

    qsi_store_lock(store);
    while (store->life < QSI_LIFE_STOPS) {
        uint64_t now, next, watch_us;
        removals->wakes_at_us = QSI_NEVER;
        removals->is_woken = false;
        qsi_watch_report(store);
        qsi_alarms_look(store);
        next = keep_time(store);
        if ((qsi_has_removals(store) || qsi_is_retry_due(store)) && !store->failed &&
            !removals->is_busy) {
            qsi_drain_removals(store, QSI_MAY_WAIT);
            if (qsi_has_leaving(removals)) {
                qsi_cond_wait(&removals->due, &store->mutex, TIMER_NAP_NS);
            }
            continue;
        }
        now = qsi_clock_us(store);
        if (store->life == QSI_LIFE_STOPS || removals->is_woken) { /* while the lock was released */
            continue;
        }
        removals->wakes_at_us = next;
        watch_us = qsi_watch_again_us(store);
        qsi_cond_wait(&removals->due, &store->mutex,
                      next <= now             ? NS_PER_US * QSI_US_PER_MS
                      : next - now > watch_us ? watch_us * NS_PER_US
                                              : (next - now) * NS_PER_US);
    }
    qsi_watch_report(store); /* what happened last */
    qsi_store_unlock(store);
    return NULL;
}
