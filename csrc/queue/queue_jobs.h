/* A queue's jobs and its snapshot, as any container has them: for queue_kind.c. */
#ifndef QSI_QUEUE_JOBS_H
#define QSI_QUEUE_JOBS_H

#include "container_jobs.h"
#include "paging.h"
#include "queue_records.h"

/* A segment's file in a snapshot. */
struct qsi_snapshot_file {
    struct qsi_segment_entry entry;
    bool is_wanted;   /* it is to be synced */
    bool has_content; /* messages that are in no synced file, and not a state alone */
};

struct qsi_flush_job {
    struct qsi_job job;
    struct qsi_flush flush;
    struct qsi_snapshot_file *file; /* that the flush writes to; NULL: of no interest */
    struct qsi_carried *carried;    /* encoded there instead; NULL: flushed */
};
struct qsi_state_job {
    struct qsi_job job;
    struct qsi_state_write write;
    struct qsi_snapshot_file *file; /* as of the flush */
};

/* QS_EEMPTY: nothing from from_seq on is to be flushed. */
qs_status qsi_flush_job_begin(struct qsi_queue *queue, uint64_t from_seq, uint64_t bytes_max,
                              struct qsi_carried *carried, struct qsi_flush_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* is_named: the state of the segment's file alone, by the checkpoint that is being made. */
qs_status qsi_state_job_begin(struct qsi_queue *queue, struct qsi_segment *segment, bool is_named,
                              struct qsi_state_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- the operations of container.h ---- */

qs_status qsi_queue_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                                struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_queue_begin_state(struct qsi_container *container, struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_queue_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                             struct qsi_snapshot **snapshot_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
