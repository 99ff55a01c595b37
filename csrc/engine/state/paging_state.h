/* What paging shares under the lock. */
#ifndef QSI_PAGING_STATE_H
#define QSI_PAGING_STATE_H

#include "qstore/status.h"

#include "list.h"
#include "lock.h"
#include "phases.h"
#include "segment.h"
#include "thread_safety.h"

#include <pthread.h>

/* A segment file without messages that the last checkpoint still names. */
struct qsi_dead_file {
    struct qsi_list in_store;
    struct qsi_segment_file file;
    bool sealed; /* it was dead when the checkpoint that is being made began */
};

/* Readers of the message store, by the checkpoint that was the last when they began: files that
 * were released before it stay until these readers have finished. */
struct qsi_readers {
    uint32_t count[2];
    uint32_t epoch;
};

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_paging {
    enum qsi_flush_state flush GUARDED;
    /* Running jobs that a snapshot waits for: bits and counts, or names and areas, differ
     * meanwhile. */
    uint32_t releasing GUARDED, rewriting GUARDED;
    uint32_t writing GUARDED;       /* large batches into files of streams, and */
    uint64_t writing_bytes GUARDED; /* of how many bytes */
    bool is_stuck GUARDED;          /* over the budget, and nothing more can leave memory */
    bool space_is_short GUARDED;    /* a segment could not be written for want of space */
    qs_error unpaged GUARDED;       /* not QS_OK: the last that was to be paged could not be */
    /* Message files hold far more garbage than bodies: publishers wait for compaction. */
    bool garbage_is_much GUARDED;
    uint64_t compacted_at_ns GUARDED; /* when the pager last looked for garbage */
    uint32_t memory_waiters GUARDED;
    uint32_t lazy_count GUARDED; /* queues with x-queue-mode=lazy */
    /* memory was short at the last look at all queues, when that was, and for how many seconds
     * what queues have in memory may last */
    bool has_targets GUARDED;
    uint64_t targets_at_ns GUARDED;
    double target_duration GUARDED;
    uint64_t rates_at_ns GUARDED;  /* the last look for queues that moved */
    uint64_t rates_moved GUARDED;  /* what had moved by then */
    struct qsi_list ahead GUARDED; /* store_queue.in_ahead */
    struct qsi_list dead_files GUARDED;
    uint64_t dead_bytes GUARDED;
    uint64_t dead_since_ns GUARDED; /* 0: nothing is dead */
    struct qsi_readers readers GUARDED;
    struct qsi_cond wanted; /* for the pager */
    struct qsi_cond done;   /* a job of the pager, or of a thread that did it itself, ended */
    pthread_t thread;
    bool is_running GUARDED;
};
#undef GUARDED

#endif
