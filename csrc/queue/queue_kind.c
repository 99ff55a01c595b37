/* A queue, and a work queue, as kinds of containers: the operations of container.h. */
#include "paging.h"
#include "queue.h"
#include "queue_jobs.h"
#include "queue_publish.h"
#include "queue_replay.h"
#include "queue_settle.h"
#include "queue_take.h"
#include "work_kind.h"

#include <stddef.h>

_Static_assert(offsetof(struct qsi_queue, container) == 0, "a queue is a container");

static inline struct qsi_queue *queue_of(struct qsi_container *container)
{
    return (struct qsi_queue *)(void *)container;
}

static qs_status reserve(struct qsi_container *container, uint32_t run_count,
                         uint64_t message_count, bool any_transient) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_reserve(queue_of(container), run_count, message_count, any_transient);
}

static qs_status reserve_one(struct qsi_container *container, struct qsi_chunk *chunk,
                             bool journalled) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_reserve_message(queue_of(container), chunk, journalled);
}

static qs_status reserve_times(struct qsi_container *container, const uint8_t *record,
                               uint64_t count) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_reserve_times(queue_of(container), record, count);
}

static uint64_t append(struct qsi_container *container, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_push_run(queue_of(container), run);
}

static uint64_t append_one(struct qsi_container *container, struct qsi_chunk *chunk,
                           uint32_t record_at, uint32_t ram_bytes, bool journalled, bool stored)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_push_message(queue_of(container), chunk, record_at, ram_bytes, journalled,
                                  stored);
}

static enum qsi_take take(struct qsi_container *container, uint32_t max_count,
                          struct qsi_stretch *stretch_out) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_take(queue_of(container), max_count, stretch_out);
}

static void untake(struct qsi_container *container, struct qsi_stretch *stretch,
                   uint32_t keep_count) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_untake(queue_of(container), stretch, keep_count);
}

static void settle(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                   uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_settle(queue_of(container), segment, word, mask);
}

static void requeue(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                    uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_requeue(queue_of(container), segment, word, mask);
}

static void give_back(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_give_back(queue_of(container), segment, word, mask);
}

static uint64_t purge(struct qsi_container *container, qsi_range_visitor *visit, void *context)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_purge(queue_of(container), visit, context);
}

static uint64_t purge_ranges(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_purge_ranges((const struct qsi_queue *)(const void *)container);
}

static uint64_t ready_count(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_ready_count((const struct qsi_queue *)(const void *)container);
}

static uint64_t drop_content(struct qsi_container *container, uint64_t keep_count, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_drop_content(queue_of(container), keep_count, bytes);
}

static void drop_states(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_drop_states(queue_of(container));
}

static uint64_t unflushed_bytes(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_unflushed_bytes((const struct qsi_queue *)(const void *)container);
}

static uint64_t checkpoint_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_checkpoint_bytes((const struct qsi_queue *)(const void *)container);
}

static qs_status begin_flush(struct qsi_container *container, uint64_t bytes_max,
                             struct qsi_job **job_out) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_begin_flush(queue_of(container), bytes_max, job_out);
}

static qs_status begin_state(struct qsi_container *container, struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_begin_state(queue_of(container), job_out);
}

static qs_status snapshot(struct qsi_container *container, struct qsi_carried *carried,
                          struct qsi_snapshot **snapshot_out) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_snapshot(queue_of(container), carried, snapshot_out);
}

static qs_status restore(struct qsi_container *container, const uint8_t *record,
                         uint64_t *next_seq_io, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_restore_record(queue_of(container), record, next_seq_io, error);
}

static void start_at(struct qsi_container *container, uint64_t seq) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_start_at(queue_of(container), seq);
}

static qs_status skip_to(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_skip_to(queue_of(container), seq);
}

static qs_status replay_settle(struct qsi_container *container, const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_replay_settle(queue_of(container), settle);
}

static qs_status mark_all_seen(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_mark_all_seen(queue_of(container));
}

static void abandon(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_abandon(queue_of(container));
}

static void fini(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_fini(queue_of(container));
}

const struct qsi_container_kind qsi_queue_kind = {
    .name = "queue",
    .reserve = reserve,
    .reserve_one = reserve_one,
    .reserve_times = reserve_times,
    .append = append,
    .append_one = append_one,
    .take = take,
    .untake = untake,
    .settle = settle,
    .requeue = requeue,
    .give_back = give_back,
    .purge = purge,
    .purge_ranges = purge_ranges,
    .ready_count = ready_count,
    .drop_content = drop_content,
    .drop_states = drop_states,
    .unflushed_bytes = unflushed_bytes,
    .checkpoint_bytes = checkpoint_bytes,
    .begin_flush = begin_flush,
    .begin_state = begin_state,
    .snapshot = snapshot,
    .restore = restore,
    .start_at = start_at,
    .skip_to = skip_to,
    .replay_settle = replay_settle,
    .mark_all_seen = mark_all_seen,
    .abandon = abandon,
    .fini = fini,
};

/* Nothing is appended: its messages are its source's. */
const struct qsi_container_kind qsi_work_kind = {
    .name = "work queue",
    .take = qsi_work_take,
    .untake = untake,
    .settle = settle,
    .requeue = requeue,
    .give_back = give_back,
    .purge = qsi_work_purge,
    .purge_ranges = qsi_work_purge_ranges,
    .reserve_purge = qsi_work_reserve_purge,
    .ready_count = ready_count,
    .drop_content = drop_content,
    .unflushed_bytes = qsi_work_unflushed_bytes,
    .checkpoint_bytes = checkpoint_bytes,
    .begin_flush = qsi_work_begin_flush,
    .snapshot = qsi_work_snapshot,
    .restore = qsi_work_restore,
    .start_at = qsi_work_start_at,
    .skip_to = qsi_work_skip_to,
    .replay_settle = qsi_work_replay_settle,
    .mark_all_seen = qsi_work_mark_all_seen,
    .abandon = qsi_work_abandon,
    .fini = fini,
};
