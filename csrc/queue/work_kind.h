/* Inside the floor: the operations of a work queue that differ from other queues (container.h
 * describes them). work_state.c has snapshot and restore. */
#ifndef QSI_WORK_KIND_H
#define QSI_WORK_KIND_H

#include "container.h"
#include "thread_safety.h"

enum qsi_take qsi_work_take(struct qsi_container *container, uint32_t max_count,
                            struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
uint64_t qsi_work_purge(struct qsi_container *container, qsi_range_visitor *visit, void *context)
    QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_work_purge_ranges(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_work_reserve_purge(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
uint64_t qsi_work_unflushed_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_work_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                               struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_work_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                            struct qsi_snapshot **snapshot_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_work_restore(struct qsi_container *container, const uint8_t *record,
                           uint64_t *next_seq_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_work_start_at(struct qsi_container *container, uint64_t seq) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_work_skip_to(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_work_replay_settle(struct qsi_container *container, const struct qsi_settle *settled)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_work_mark_all_seen(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_work_abandon(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);

#endif
