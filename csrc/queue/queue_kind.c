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

static uint64_t purge_ranges(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_purge_ranges((const struct qsi_queue *)(const void *)container);
}

static uint64_t ready_count(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_ready_count((const struct qsi_queue *)(const void *)container);
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

const struct qsi_container_kind qsi_queue_kind = {
    .name = "queue",
    .reserve = qsi_queue_reserve,
    .reserve_one = qsi_queue_reserve_message,
    .reserve_times = qsi_queue_reserve_times,
    .append = qsi_queue_push_run,
    .append_one = qsi_queue_push_message,
    .take = qsi_queue_take,
    .untake = qsi_queue_untake,
    .settle = qsi_queue_settle,
    .requeue = qsi_queue_requeue,
    .give_back = qsi_queue_give_back,
    .purge = qsi_queue_purge,
    .purge_ranges = purge_ranges,
    .ready_count = ready_count,
    .drop_content = qsi_queue_drop_content,
    .drop_states = qsi_queue_drop_states,
    .unflushed_bytes = unflushed_bytes,
    .checkpoint_bytes = checkpoint_bytes,
    .begin_flush = qsi_queue_begin_flush,
    .begin_state = qsi_queue_begin_state,
    .snapshot = qsi_queue_snapshot,
    .restore = qsi_queue_restore_record,
    .start_at = qsi_queue_start_at,
    .skip_to = qsi_queue_skip_to,
    .replay_settle = qsi_queue_replay_settle,
    .mark_all_seen = qsi_queue_mark_all_seen,
    .abandon = qsi_queue_abandon,
    .fini = qsi_queue_fini,
};

/* Nothing is appended: its messages are its source's. */
const struct qsi_container_kind qsi_work_kind = {
    .name = "work queue",
    .take = qsi_work_take,
    .untake = qsi_queue_untake,
    .settle = qsi_queue_settle,
    .requeue = qsi_queue_requeue,
    .give_back = qsi_queue_give_back,
    .purge = qsi_work_purge,
    .purge_ranges = qsi_work_purge_ranges,
    .reserve_purge = qsi_work_reserve_purge,
    .ready_count = ready_count,
    .drop_content = qsi_queue_drop_content,
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
    .fini = qsi_queue_fini,
};
