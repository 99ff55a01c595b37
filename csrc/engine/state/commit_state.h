/* What the commit, the open end of the journal and space on the disk share under the lock. */
#ifndef QSI_COMMIT_STATE_H
#define QSI_COMMIT_STATE_H

#include "qstore/qstore.h"

#include "chunk.h"
#include "histogram.h"
#include "lock.h"
#include "message_store.h"
#include "phases.h"

#include <pthread.h>

struct sync_helper { /* fdatasyncs the message files while the leader syncs the journal */
    pthread_t thread;
    bool running;
    bool stop;
    bool busy;
    struct qsi_mutex mutex;
    struct qsi_cond cond;
    struct qsi_dirty_set set;
    qs_status status;
    qs_error error;
};

struct qsi_commit {
    enum qsi_lead lead;
    bool preparing; /* somebody makes a spare, without the lock */
    bool committer_sleeps;
    bool looks_for_quiet; /* the maintainer, to fill what is ahead of the journal with zeros, */
    bool fill_is_due;     /* and would now: whoever leads does a step of it behind the commit */
    bool is_awaited;      /* somebody waits for a commit without leading it */
    bool owes_sync;       /* what was written and not synced is not deliveries alone */
    uint32_t durable_waiters;
    uint32_t group_size;     /* waiters that the last commit served */
    uint64_t count_bytes;    /* of what waits to be written: counts of deliveries */
    uint64_t batch_began_ns; /* first append of the open batch */
    /* The commit under way, or the last one, went to the disk; 0: not yet. */
    uint64_t began_ns;
    struct qsi_cond durable;           /* a commit ended */
    struct qsi_cond prepared;          /* a spare was made, or not */
    struct qsi_cond work;              /* for the committer */
    struct qsi_cond chores;            /* for the maintainer */
    struct qsi_chunk *arena;           /* open chunk for journalled records */
    struct qsi_chunk *transient_arena; /* and for those that are not */
    struct qsi_histogram latency;
    struct qsi_histogram confirm_latency;
    pthread_t committer, maintainer;
    bool committer_running, maintainer_running;
    struct sync_helper helper;
};

/* Space on the disk: space.h. */
struct space {
    struct qsi_mutex mutex; /* over the reserve's file; taken alone */
    qs_file *reserve;       /* NULL: it is not there, or could not be opened */
    uint64_t reserve_bytes; /* that the file has */
    uint64_t whole_bytes;   /* that it should have */
    bool is_lent;           /* a checkpoint is using it up: nobody fills it meanwhile */
    bool is_whole;          /* atomic */
    /* under the lock */
    uint64_t open_upto;     /* an LSN: up to there publishing needs no look at the disk */
    uint64_t tried_at_ns;   /* when space was last tried to be had back; 0: never */
    uint64_t tried_changes; /* what had changed in the store until then */
    uint64_t carried_max;   /* what a checkpoint may carry itself */
    uint64_t named_bytes;   /* of the last checkpoint's file: the next is about as long */
    bool settles_in_memory; /* there is no room to journal them */
    uint64_t unjournalled;  /* settles that are in memory alone, ever */
    uint64_t covered;       /* of those: in a checkpoint */
};

#endif
