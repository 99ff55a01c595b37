/* Expired messages leave their queue, delayed messages that are due become ready, and unused queues
 * are deleted. */
#include "check.h"
#include "clock.h"
#include "counts.h"
#include "error.h"
#include "limits.h"
#include "notify.h"
#include "pager.h"
#include "paging.h"
#include "queue_delays.h"
#include "queue_life.h"
#include "queue_take.h"
#include "turns.h"
#include "wake.h"

#define DUE_AT_ONCE 16384 /* messages that become ready in one hold of the lock */

/* Messages of the priority have become ready. */
static void notify_ready(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_check_growth(store, queue);
    qsi_notify_consumers(store, qsi_owner_of(queue));
    qsi_events_notify(store);
}

/* For one priority: makes due messages ready. */
static void release_due(struct qs_store *store, struct qsi_store_queue *queue,
                        struct qsi_segment **lacks_state_out) QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_queue_release_due(&queue->core, qsi_clock_us(store), DUE_AT_ONCE, lacks_state_out) >
        0) {
        notify_ready(store, queue);
    }
}

/* For one priority: makes due messages ready, and removes expired ones.  *lacks_state_out: a
 * segment whose state is needed, if there is one.  Messages without dead letters end at once, and
 * are not journalled: after a restart they have expired as well.  A store opened for reading only
 * moves none. */
static qs_status expire(struct qs_store *store, struct qsi_store_queue *queue,
                        struct qsi_segment **lacks_state_out) QSI_REQUIRES(qsi_store_mutex)
{
    bool dead_letters = qsi_has_dead_letters(queue) && !store->options.read_only;
    struct qsi_expiry_walk walk = {.now_us = qsi_clock_us(store)};
    struct qsi_stretch stretch;

    *lacks_state_out = NULL;
    if (qsi_queue_earliest(&queue->core) > walk.now_us) {
        return QS_OK;
    }
    release_due(store, queue, lacks_state_out);
    for (;;) {
        if (dead_letters) {
            QS_TRY(qsi_reserve_removals(store, 1));
        }
        if (!qsi_queue_reserve_expired(&queue->core, &walk, &stretch)) {
            break;
        }
        store->stats.expired += stretch.count;
        qsi_counts_of(store, queue)->expired += stretch.count;
        if (dead_letters) {
            qsi_add_removal(store, queue, &stretch, QSI_EXPIRED);
        } else {
            qsi_container_settle(&queue->container, stretch.segment, stretch.slot / QSI_WORD_BITS,
                                 qsi_stretch_mask(&stretch));
        }
    }
    *lacks_state_out = *lacks_state_out == NULL ? walk.lacks_state : *lacks_state_out;
    return QS_OK;
}

/* Delayed messages of the segment, of which some are due, count as ready until its state is
 * read. */
static void count_unread(struct qs_store *store, struct qsi_store_queue *subqueue,
                         struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    if (segment->delayed_count > 0 && segment->earliest_due <= qsi_clock_us(store)) {
        qsi_queue_release_unread(&subqueue->core, segment);
        notify_ready(store, subqueue);
    }
}

qs_status qsi_expire_now(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
{
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_earliest(queue) > qsi_clock_us(store)) {
        return QS_OK;
    }
    for (uint32_t i = 0; i < qsi_subqueue_count(queue) && status == QS_OK; i++) {
        struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
        struct qsi_segment *lacks_state;
        status = expire(store, subqueue, &lacks_state);
        if (status == QS_OK && lacks_state != NULL && !store->removals.has_timer) {
            /* No other thread reads its state, except to take its messages. */
            count_unread(store, subqueue, lacks_state);
        }
    }
    qsi_update_earliest(queue);
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "expired messages");
}

/* It is unknown when its messages expire: never, if it is damaged, and looked at again in a while
 * if not. */
static void put_off(struct qs_store *store, struct qsi_store_queue *queue,
                    struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t later_us = qsi_clock_us(store) + QSI_RETRY_US;

    segment->earliest = segment->is_damaged ? QSI_NEVER : later_us;
    if (segment->delayed_count > 0 && segment->is_damaged) {
        qsi_queue_release_unread(&queue->core, segment); /* callers get the error */
        notify_ready(store, queue);
    } else if (segment->earliest_due < later_us) {
        segment->earliest_due = later_us;
    }
}

/* Releases the lock.  Reads a state from the disk. */
static void load_state(struct qs_store *store, struct qsi_store_queue *queue,
                       struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t number = segment->number;
    struct qsi_page_in job;

    if (segment->is_damaged || qsi_page_in_state(&job, segment) != QS_OK) {
        put_off(store, queue, segment);
        return;
    }
    if (qsi_pager_run_page_in(store, queue, &job, NULL) == QS_OK) {
        if (!queue->deleted) {
            notify_ready(store, queue); /* there may be more than were known */
        }
        return;
    }
    segment = qsi_queue_find_segment(&queue->core, number); /* it may be deleted meanwhile */
    if (segment != NULL && segment->settled == NULL) {
        put_off(store, queue, segment);
    }
}

/* May release the lock. waits: for other threads that are about to read a state; otherwise the
 * timer tries again. */
static void expire_subqueue(struct qs_store *store, struct qsi_store_queue *queue, bool waits)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_segment *lacks_state;
    qs_status status = expire(store, queue, &lacks_state); /* if it fails, the timer comes again */
    uint64_t before = 0;

    queue->jobs += 1;
    while (status == QS_OK && lacks_state != NULL && lacks_state->number + 1 > before &&
           !queue->deleted && (waits || lacks_state->busy == 0)) {
        if (lacks_state->busy > 0) {
            (void)!qsi_pager_wait(store, queue);
        } else {
            before = lacks_state->number + 1;
            load_state(store, queue, lacks_state);
        }
        if (queue->deleted) {
            break;
        }
        status = expire(store, queue, &lacks_state);
    }
    qsi_end_queue_job(queue);
}

void qsi_expire_all(struct qs_store *store, struct qsi_store_queue *queue, bool waits)
{
    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = 0; !queue->deleted && i < qsi_subqueue_count(queue); i++) {
        expire_subqueue(store, qsi_subqueue_at(queue, i), waits);
    }
    qsi_update_earliest(queue);
}

void qsi_expire_for_status(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_earliest(queue) > qsi_clock_us(store)) {
        return;
    }
    queue->jobs += 1;
    qsi_expire_all(store, queue, true);
    QS_DCHECK(queue->jobs > 0);
    queue->jobs -= 1;
    if (store->removals.fresh.bytes > 0) { /* dead letters */
        qsi_wake_timer(store);
    }
    qsi_free_queue_if_done(queue);
}
