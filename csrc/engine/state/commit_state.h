/* What the commit, the open end of the journal and space on the disk share under the lock. */
#ifndef QSI_COMMIT_STATE_H
#define QSI_COMMIT_STATE_H

#include "qstore/qstore.h"

#include "block_file.h"
#include "chunk.h"
#include "histogram.h"
#include "lock.h"
#include "message_store.h"
#include "phases.h"
#include "thread_safety.h"

#include <pthread.h>

/* The sync helper's mutex and the reserve's: each is taken without another one held. */
QSI_LOCK_CLASS(qsi_sync_helper_mutex);
QSI_LOCK_CLASS(qsi_space_mutex);

/* Block files that the journal names and that are to be synced. */
struct qsi_dirty_blocks {
    struct qsi_block_dir *dir;
    struct qsi_buf files; /* struct qsi_block_unsynced */
    uint64_t bytes;       /* that are to be synced */
};

#define GUARDED QSI_GUARDED_BY(qsi_sync_helper_mutex)
struct qsi_sync_helper { /* fdatasyncs message and block files while the leader syncs the journal */
    pthread_t thread;
    bool running; /* while other threads know of the store */
    struct qsi_mutex mutex;
    struct qsi_cond cond;
    bool stop GUARDED;
    bool busy GUARDED;
    struct qsi_dirty_set set GUARDED;
    const struct qsi_dirty_blocks *blocks GUARDED;
    qs_status status GUARDED;
    qs_error error GUARDED;
};
#undef GUARDED

static inline void qsi_sync_helper_lock(struct qsi_sync_helper *helper)
    QSI_ACQUIRES(qsi_sync_helper_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&helper->mutex);
}

static inline void qsi_sync_helper_unlock(struct qsi_sync_helper *helper)
    QSI_RELEASES(qsi_sync_helper_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&helper->mutex);
}

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_commit {
    enum qsi_lead lead GUARDED;
    bool copy_waits GUARDED; /* a thread that copies the journal's files leads next */
    bool preparing GUARDED;  /* a thread makes a spare, without the lock */
    bool committer_sleeps GUARDED;
    /* the maintainer, to fill what is ahead of the journal with zeros, */
    bool looks_for_quiet GUARDED;
    bool fill_is_due GUARDED; /* and would now: the leader does a step of it behind the commit */
    bool is_awaited GUARDED;  /* a call waits for a commit without leading it */
    bool owes_sync GUARDED;   /* what was written and not synced is not deliveries alone */
    uint32_t durable_waiters GUARDED;
    uint32_t group_size GUARDED;     /* waiters that the last commit served */
    uint64_t count_bytes GUARDED;    /* of what waits to be written: counts of deliveries */
    uint64_t batch_began_ns GUARDED; /* first append of the open batch */
    uint64_t took_ns GUARDED;        /* the last commit, on the disk */
    /* The commit under way, or the last one, went to the disk; 0: not yet. */
    uint64_t began_ns GUARDED;
    struct qsi_cond durable;                      /* a commit ended */
    struct qsi_cond prepared;                     /* a spare was made, or not */
    struct qsi_cond work;                         /* for the committer */
    struct qsi_cond chores;                       /* for the maintainer */
    struct qsi_dirty_blocks dirty_blocks GUARDED; /* what the journal names was written there */
    struct qsi_buf spare_blocks GUARDED;          /* empty: the memory of the last list */
    uint64_t syncing_bytes GUARDED;               /* of blocks, by the commit under way */
    struct qsi_chunk *arena GUARDED;              /* open chunk for journalled records */
    struct qsi_chunk *transient_arena GUARDED;    /* and for those that are not */
    struct early *early GUARDED;                  /* early.h; NULL: nothing was noted yet */
    struct qsi_histogram latency GUARDED;
    struct qsi_histogram confirm_latency GUARDED;
    pthread_t committer, maintainer;
    bool committer_running, maintainer_running;
    struct qsi_sync_helper helper;
};
#undef GUARDED

/* Space on the disk: space.h. */
#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
#define SPACE_GUARDED QSI_GUARDED_BY(qsi_space_mutex)
struct qsi_space {
    struct qsi_mutex mutex;               /* over the reserve's file; taken alone */
    qs_file *reserve SPACE_GUARDED;       /* NULL: it is not there, or could not be opened */
    uint64_t reserve_bytes SPACE_GUARDED; /* that the file has */
    uint64_t whole_bytes SPACE_GUARDED;   /* that it should have; written with atomics */
    bool is_lent SPACE_GUARDED; /* a checkpoint is using it up: it is not filled meanwhile */
    bool is_whole;              /* atomic */
    /* under the lock */
    uint64_t open_upto GUARDED;     /* an LSN: up to there publishing needs no look at the disk */
    uint64_t tried_at_ns GUARDED;   /* when space was last tried to be had back; 0: never */
    uint64_t tried_changes GUARDED; /* what had changed in the store until then */
    uint64_t named_bytes GUARDED;   /* of the last checkpoint's file: the next is about as long */
    bool settles_in_memory GUARDED; /* there is no room to journal them */
    uint64_t unjournalled GUARDED;  /* settles that are in memory alone, ever */
    uint64_t covered GUARDED;       /* of those: in a checkpoint */
};
#undef GUARDED
#undef SPACE_GUARDED

static inline void qsi_space_lock(struct qsi_space *space)
    QSI_ACQUIRES(qsi_space_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&space->mutex);
}

static inline void qsi_space_unlock(struct qsi_space *space)
    QSI_RELEASES(qsi_space_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&space->mutex);
}

#endif
