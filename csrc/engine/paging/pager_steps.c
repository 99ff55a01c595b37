/* Keeps memory within its budget, and reads messages back before they are needed.
 *
 * Everything here works in steps: a job is begun with the lock, run without it and ended with it.
 * The pager's thread runs them; a caller that cannot wait for it (a consumer whose message is on
 * the disk, a store without threads) runs them itself.
 *
 * Memory is freed in this order: content of the queue that exceeds its target most, behind the
 * messages that its consumers will take next; then content of the largest queue, heads included;
 * then bitmaps that the disk has as well.
 *
 * This file has the steps, the choice of queues, and the thread.  Room for publishers is in
 * pager_room.c, writing in pager_flush.c, reading in pager_load.c, space on the disk in
 * pager_space.c and compact.c, what jobs share in pager_jobs.c. */
#include "pager_steps.h"

#include "budget.h"
#include "check.h"
#include "enter.h"
#include "pager.h"
#include "paging.h"
#include "queue_life.h"
#include "rates.h"
#include "space.h"
#include "store.h"
#include "thread_safety.h"

#include <math.h>

#define DROP_BYTES (8u << 20)  /* in one step: other threads need the lock as well */
#define UNPAGED_NS 1000000000u /* a queue that could not be paged is left alone */
#define RESTS_NS 1000000000u   /* content read ahead in a lazy queue waits so long for a consumer */
#define IDLE_NS 1000000000u    /* between looks while there is nothing to do */
#define COMPACT_NS 50000000u   /* between looks for garbage while there is other work */

/* From here on paging hurries; qsi_pager_low_mark is where it begins. */
static uint64_t high_mark(const struct qs_store *store)
{
    return store->options.memory_budget / 4 * 3;
}

static bool is_left_alone(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->unpaged_ns != 0 &&
           store->env->monotonic_ns(store->env) - queue->unpaged_ns < UNPAGED_NS;
}

/* ---- out of memory ---- */

/* The queue that exceeds its target by most bytes; if none does and by_size is set, all bytes
 * count. */
static struct qsi_store_queue *choose_queue(struct qs_store *store, bool by_size)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    struct qsi_store_queue *chosen = NULL;
    double most = 0;

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        double excess =
            (double)queue->container.ram_count - (by_size ? 0 : qsi_target_ram_count(store, queue));
        excess *= qsi_pager_average_bytes(queue);
        if (excess > most && !is_left_alone(store, queue)) {
            most = excess;
            chosen = queue;
        }
    }
    return chosen;
}

/* The stream with most content in memory: reading its messages from files changes no order, so
 * streams are paged before queues.  NULL: none has any. */
static struct qsi_store_queue *choose_stream(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    struct qsi_store_queue *chosen = NULL;

    while (store->stream_count > 0 && qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (!qsi_takes(queue) && queue->messages->ram_bytes > 0 && !is_left_alone(store, queue) &&
            (chosen == NULL || queue->messages->ram_bytes > chosen->messages->ram_bytes)) {
            chosen = queue;
        }
    }
    return chosen;
}

/* Releases the lock meanwhile. */
static bool page_out(struct qs_store *store, struct qsi_store_queue *queue, uint64_t keep_count,
                     uint64_t bytes) QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_container_drop_content(queue->messages, keep_count, bytes) > 0) {
        qsi_container_drop_states(queue->messages);
        return true;
    }
    if (!qsi_container_is_flushed(queue->messages) && !store->paging.space_is_short) {
        uint64_t before = queue->messages->flushed_seq;
        qs_status status;
        queue->jobs += 1;
        status = qsi_pager_flush(store, queue, NULL);
        QS_DCHECK(queue->jobs > 0);
        queue->jobs -= 1;
        if (status == QS_EEMPTY && queue->messages->flushed_seq > before) {
            status = QS_OK;
        }
        qsi_free_queue_if_done(queue);
        return status == QS_OK;
    }
    return qsi_pager_write_state(store, queue);
}

static uint64_t keep_count(struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    double target = qsi_target_ram_count(store, queue);
    uint64_t ahead = qsi_pager_is_read(store, queue) ? qsi_pager_ahead_count(store, queue) : 0;

    QS_DCHECK(!isinf(target)); /* otherwise it has no excess */
    return target > (double)ahead ? (uint64_t)target : ahead;
}

/* In one step: not so little that the next message needs another step, because a step looks at
 * everything that stays. */
static uint64_t bytes_to_drop(const struct qs_store *store, uint64_t excess)
{
    uint64_t least = qsi_part_of_budget(store);

    excess = excess > least ? excess : least;
    return excess < DROP_BYTES ? excess : DROP_BYTES;
}

bool qsi_pager_step(struct qs_store *store)
{
    uint64_t used = qsi_pager_memory_used(store);
    struct qsi_store_queue *queue;
    uint64_t bytes;

    QS_ASSERT_HELD(&store->mutex);
    if (store->failed || used <= qsi_pager_low_mark(store)) {
        return false;
    }
    qsi_update_targets(store, true);
    bytes = bytes_to_drop(store, used - qsi_pager_low_mark(store));
    queue = choose_stream(store);
    if (queue != NULL && page_out(store, queue, 0, bytes)) {
        return true;
    }
    queue = choose_queue(store, false);
    if (queue != NULL && page_out(store, queue, keep_count(store, queue), bytes)) {
        return true;
    }
    if (qsi_pager_write_any_state(store)) {
        return true;
    }
    if (used <= high_mark(store) && store->paging.memory_waiters == 0) {
        return false;
    }
    queue = choose_queue(store, true);
    if (queue == NULL) {
        return false;
    }
    /* The next message of a consumer stays: it would only be read again. */
    return page_out(store, queue,
                    qsi_pager_is_read(store, queue) ? qsi_pager_ahead_count(store, queue) : 0,
                    bytes);
}

/* Messages of a lazy queue are in memory only on their way to the disk, and on their way back:
 * whether no consumer has come for them for a while. */
static bool rests(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = store->env->monotonic_ns(store->env);

    if (queue->rests_from_ns == 0 || queue->rest_taken != queue->container.taken_count) {
        queue->rest_taken = queue->container.taken_count;
        queue->rests_from_ns = now;
    }
    return now - queue->rests_from_ns >= RESTS_NS && !qsi_pager_is_read(store, queue);
}

static bool is_settled(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue *core = &queue->core;
    uint32_t count = qsi_queue_run_count(core);

    return qsi_container_is_flushed(&core->container) &&
           (count == 0 || (qsi_queue_run_at(core, count - 1)->was_loaded && !rests(store, queue)));
}

/* Content of a lazy queue that was not read from the disk, or, if the queue rests, all of it. */
static qs_status drop_runs(struct qsi_queue *queue, bool rests) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status = QS_OK;

    for (uint32_t i = qsi_queue_run_count(queue); i-- > 0;) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);
        if ((run->was_loaded && !rests) ||
            run->first_seq + run->count > queue->container.flushed_seq) {
            continue;
        }
        if (qsi_run_may_leave(queue, run)) {
            qsi_queue_drop_run(queue, i);
        } else {
            status = QS_ENOMEM;
        }
    }
    qsi_container_drop_states(&queue->container);
    return status;
}

qs_status qsi_pager_settle_queue(struct qs_store *store, struct qsi_store_queue *queue)
{
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&store->mutex);
    queue->jobs += 1;
    while (status == QS_OK && !store->failed && !store->paging.space_is_short && !queue->deleted &&
           !qsi_container_is_flushed(&queue->container)) {
        status = qsi_pager_flush(store, queue, NULL);
    }
    if (!queue->deleted) {
        qs_status dropped = drop_runs(&queue->core, rests(store, queue));
        status = dropped == QS_OK ? status : dropped;
    }
    qsi_end_queue_job(queue);
    return status;
}

bool qsi_pager_page_lazy(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    if (store->paging.lazy_count == 0 || store->paging.space_is_short || store->failed) {
        return false;
    }
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (queue->lazy && !is_settled(store, queue) && !is_left_alone(store, queue)) {
            qs_status status = qsi_pager_settle_queue(store, queue);
            return status == QS_OK || status == QS_EEMPTY || qsi_pager_leaves_file(status);
        }
    }
    return false;
}

/* ---- the thread ---- */

/* Releases the lock meanwhile.  False: there is nothing to do. */
static bool work(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    bool progress = qsi_pager_read_ahead(store) || qsi_pager_page_lazy(store);
    uint64_t now;

    if (!qsi_list_is_empty(&store->shared.releasing) ||
        !qsi_list_is_empty(&store->shared.retired)) {
        progress = qsi_pager_release(store, NULL) == QS_OK || progress;
    }
    progress = store->upcalls->spill_keys(store) || progress;
    progress = qsi_pager_step(store) || progress;
    now = store->env->monotonic_ns(store->env);
    if (!progress || now - store->paging.compacted_at_ns >=
                         COMPACT_NS) { /* it has its turn, whatever other work there is */
        store->paging.compacted_at_ns = now;
        progress = qsi_pager_compact(store, NULL) || progress;
    }
    return progress;
}

void *qsi_run_pager(void *argument)
{
    struct qs_store *store = argument;

    qsi_store_lock(store);
    while (store->life < QSI_LIFE_STOPS) {
        bool progress = work(store);
        qsi_sample_rates(store);
        store->paging.is_stuck = !progress;
        if (store->paging.memory_waiters > 0) {
            qsi_cond_broadcast(&store->paging.done);
        }
        if (!progress && store->life < QSI_LIFE_STOPS) {
            if (!qsi_cond_wait(&store->paging.wanted, &store->mutex, IDLE_NS)) {
                qsi_budget_drop_spares(store->budget); /* no consumer reads paged messages */
            }
            store->paging.space_is_short = false; /* perhaps there is some now */
        }
    }
    qsi_store_unlock(store);
    return NULL;
}
