/* The engine's own structures.
 *
 * One lock (qs_store.mutex) covers everything below it: topology, queues, channels, the open end of
 * the journal.  It is held for moments: never during input or output, and never while a batch is
 * copied.  Encoding a batch, the leader's write and sync, making spare files and reading bodies run
 * without it.
 *
 * Lock order: qs_store.mutex, then the message store's own.  The sync helper and the manifest each
 * have a mutex of their own, which is taken alone. */
#ifndef QSI_STORE_H
#define QSI_STORE_H

#include "qstore/qstore.h"

#include "commit_state.h"
#include "inbox_state.h"
#include "journal.h"
#include "list.h"
#include "lock.h"
#include "manifest.h"
#include "message_store.h"
#include "paging_state.h"
#include "phases.h"
#include "queue.h"
#include "removal_state.h"
#include "route.h"
#include "store_channel.h"
#include "store_queue.h"
#include "stream.h"
#include "thread_safety.h"
#include "watch_state.h"

#include <pthread.h>

#define QSI_EXCHANGE_BYTES_MAX QSI_ROUTE_NAME_BYTES_MAX
/* Follows the names of queues and exchanges in texts of errors. */
#define QSI_PLACE_DEFAULT QSI_ROUTE_PLACE_DEFAULT
#define QSI_PLACE_BYTES 272 /* with its NUL; " in vhost '...'", whose name may have 255 */
/* bytes accepted and not durable, beyond which publishers wait and help to commit */
#define QSI_UNSYNCED_BYTES_MAX (64u << 20)
#define QSI_BATCH_RECORD_BYTES_MAX (1u << 20) /* of one record of a batch */
#define QSI_ARENA_BYTES_MAX (256u << 10)      /* chunk that small records share */

struct qsi_store_stats {
    uint64_t checkpoints, bytes_checkpointed, messages_paged_out, messages_paged_in,
        segments_written;
    uint64_t commits, published, routed, confirmed, returned, delivered, acked, requeued;
    uint64_t message_syncs;
    uint64_t expired, dead_lettered, refused;
    uint64_t commit_stalls;
    uint64_t received_confirm; /* by channels that have closed */
    uint64_t connections_closed, channels_closed;
    uint64_t queues_declared, queues_created, queues_deleted;
};

/* Whether a call may release the lock to wait, or to read and write files.  With QS_NO_WAIT among
 * its flags it may not: a call that cannot go on then returns QS_EWOULDBLOCK. */
enum qsi_wait { QSI_MAY_WAIT, QSI_MUST_NOT_WAIT };

static inline enum qsi_wait qsi_wait_of(uint32_t flags)
{
    return (flags & QS_NO_WAIT) != 0 ? QSI_MUST_NOT_WAIT : QSI_MAY_WAIT;
}

/* Functions of higher floors that lower floors call.  Each is called with the lock held. */
struct qsi_upcalls {
    /* An AMQP error ends the channel, or the connection. */
    void (*shut_channel)(struct qs_channel *channel);
    void (*shut_connection)(struct qs_connection *connection);
    /* Removes the messages on the removal list, before a call returns.  May release the lock. */
    void (*drain)(struct qs_store *store, enum qsi_wait wait);
    /* Makes a checkpoint, to free space, or because one is due and the store has no threads.
     * Releases the lock meanwhile. */
    qs_status (*checkpoint)(struct qs_store *store, qs_error *error);
    /* Writes keys of transactions to a file if they are too many for memory; false: nothing was
     * written.  Releases the lock meanwhile. */
    bool (*spill_keys)(struct qs_store *store);
    /* Adds the dead letters and removals of the channel's rejected messages to its open
     * transaction.  May release the lock. */
    qs_status (*dead_letter_in_tx)(struct qs_channel *channel, qs_error *error);
};

struct qsi_checkpoints {
    enum qsi_checkpoint_state state;
    /* Threads that make a checkpoint, or hold checkpoints off, take turns in the order of
     * asking. */
    uint64_t turns_asked, turns_ended;
    bool is_wanted;
    bool sleeps;     /* the thread that makes them */
    bool is_held_up; /* a file was missing for the last one: held_by names it */
    qs_error held_by;
    uint64_t number; /* of the last one, as MANIFEST says; 0: none */
    uint64_t lsn;
    uint64_t at_ns; /* when it was made */
    /* the end of the journal when the thread looked last, and since when it has been there */
    uint64_t seen_lsn, seen_ns;
    uint64_t tidied_lsn; /* that end when one was made for want of other work */
    /* when one failed for want of space; 0: the last one succeeded */
    uint64_t failed_ns;
    uint64_t direct_bytes; /* written into files of streams since the last one began */
    struct qsi_cond due;
    pthread_t thread;
    bool is_running;
};

/* The part of the journal that an archive has not read yet: checkpoint/keep.c. */
struct qsi_keep {
    bool is_active;
    bool is_lost;        /* keeping ended: too much was kept, or the disk is full */
    uint64_t lsn;        /* the archive has read the journal up to here */
    uint64_t bytes_max;  /* of journal and dead files that a checkpoint may leave */
    uint64_t held_bytes; /* of dead message files that the last checkpoint left for it, */
    uint64_t held_upto;  /* until lsn is here */
};

/* Threads and event loops that wait for messages, confirms and the like. */
struct qsi_events {
    uint64_t count; /* announced: a thread that looked before looks again before it waits */
    /* to be notified: armed channels, and waits at queues (wake.h) */
    uint32_t armed_count;
    uint32_t stream_thread_count;       /* threads that wait for consumers, some of streams */
    uint64_t woken_count;               /* how often threads that waited were woken */
    struct qsi_list armed_for_changes;  /* of those: whatever happens, to any channel */
    struct qsi_list armed_for_confirms; /* of those: that published what is not durable yet */
    struct qsi_list grown_streams; /* with consumers to be told of more: store_stream.in_grown */
    struct qsi_list listeners;     /* qs_listener.in_store */
    struct qsi_list traces;        /* qs_trace.in_store */
    uint32_t alarms;               /* QS_ALARM_* */
};

/* The findings of the open. */
struct qsi_recovery {
    uint64_t from_lsn; /* where the replay began */
    uint64_t read_lsn; /* where it ended, in a store that was opened for reading only */
    uint64_t took_us;
    uint64_t messages, records, bytes;
    uint64_t torn_bytes;
    uint64_t lost_ranges, lost_bytes, lost_segments, lost_messages;
    uint64_t queues;            /* that salvage made for messages whose declaration was lost */
    uint64_t ignored_arguments; /* of queues and bindings, that make no sense here */
    qs_error first_ignored;
    bool has_lost_records; /* perhaps declarations of queues among them: salvage only */
};

/* The thread that writes the manifest has its mutex, and takes no other. */
QSI_LOCK_CLASS(qsi_manifest_mutex);
#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)

struct qs_store {
    const struct qsi_upcalls *upcalls;
    qs_env *env;
    qs_env *own_env; /* of a store in memory, which ends with it; NULL otherwise */
    qs_options options;
    char path[256]; /* for people: truncated if it is longer */
    /* Opened by a verification: for reading only, and refused wherever an open for writing would
     * be. */
    bool judges;
    uint32_t fork_generation;
    struct qsi_mutex manifest_mutex;
    struct qsi_manifest manifest QSI_GUARDED_BY(qsi_manifest_mutex);
    qs_dir *root;
    qs_dir *journal_dir;
    qs_dir *messages_dir;
    qs_dir *index_dir;
    qs_dir *transient_dir;
    qs_dir *checkpoint_dir;
    qs_dir *streams_dir;
    qs_file *lock_file;
    struct qsi_journal *journal;
    struct qsi_message_store *messages;
    struct qsi_index *index;           /* segments of durable queues */
    struct qsi_index *transient_index; /* segments of messages that end with the process */
    struct qsi_budget *budget;
    /* of returned messages that wait to be read; touched with atomics only */
    uint64_t return_bytes;
    struct {
        _Atomic uint64_t offset_us; /* from the monotonic clock to the store's */
    } clock;

    struct qsi_mutex mutex;      /* over all that follows */
    uint32_t references GUARDED; /* the handle and each channel */
    enum qsi_life life GUARDED;
    bool failed GUARDED;
    qs_error failure GUARDED;
    char place[QSI_PLACE_BYTES] GUARDED; /* qs_store_set_place */
    struct qsi_queue_shared shared GUARDED;
    struct qsi_stream_shared streams GUARDED;
    struct qsi_router router GUARDED;
    struct qsi_map queues_by_id GUARDED; /* u64 -> store_queue */
    uint64_t next_queue_id GUARDED;
    /* LSN of the last declaration, binding or deletion; the call that made it may not have
     * waited. */
    uint64_t topology_lsn GUARDED;
    uint32_t stream_count GUARDED; /* of the queues by id */
    uint64_t next_server_name GUARDED;
    uint64_t last_channel_number GUARDED, last_connection_number GUARDED;
    struct qsi_list connections GUARDED;
    struct qsi_list channels GUARDED;
    struct qsi_list deleted_queues GUARDED;
    /* streams with messages that their work queues have not been told of:
     * store_stream.in_sources */
    struct qsi_list sources GUARDED;

    struct qsi_events events GUARDED;
    struct qsi_commit commit;
    struct qsi_space space;
    struct qsi_paging paging GUARDED;
    struct qsi_removals removals GUARDED;
    struct qsi_transactions *
        transactions QSI_POINTEE_GUARDED_BY(qsi_store_mutex); /* keys of committed transactions */
    struct qsi_checkpoints checkpoint GUARDED;
    struct qsi_recovery recovery GUARDED;
    struct qsi_watch watch GUARDED;
    struct qsi_inbox inbox;
    struct qsi_store_stats stats GUARDED;
    struct qsi_channel_counts closed_channels GUARDED;
    struct qsi_queue_counts uncounted
        GUARDED; /* counts of queues that had no memory for their own */
    struct qsi_keep keep GUARDED;
};

/* The archive would have a gap: keeping ends, and the archive begins anew. */
static inline void qsi_keep_lose(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    store->keep.is_lost = store->keep.is_lost || store->keep.is_active;
    store->keep.is_active = false;
    store->keep.held_bytes = 0;
}

/* The bytes of dead message files that a checkpoint could give back. */
static inline uint64_t qsi_keep_free_bytes(const struct qs_store *store, uint64_t dead_bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    return dead_bytes > store->keep.held_bytes ? dead_bytes - store->keep.held_bytes : 0;
}
#undef GUARDED

static inline void qsi_store_lock(struct qs_store *store)
    QSI_ACQUIRES(qsi_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&store->mutex);
}

static inline void qsi_store_unlock(struct qs_store *store)
    QSI_RELEASES(qsi_store_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&store->mutex);
}

static inline void qsi_manifest_lock(struct qs_store *store)
    QSI_ACQUIRES(qsi_manifest_mutex) QSI_UNCHECKED
{
    qsi_mutex_lock(&store->manifest_mutex);
}

static inline void qsi_manifest_unlock(struct qs_store *store)
    QSI_RELEASES(qsi_manifest_mutex) QSI_UNCHECKED
{
    qsi_mutex_unlock(&store->manifest_mutex);
}

/* No other thread knows of the store: it is being opened, or freed. */
static inline void qsi_store_is_private(const struct qs_store *store)
    QSI_ASSUMES(qsi_store_mutex, qsi_manifest_mutex, qsi_space_mutex)
{
    (void)store;
}

/* Returns whether this is the channel that holds messages while they are removed; no caller uses
 * it. */
static inline bool qsi_channel_is_internal(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex)
{
    return channel == channel->store->removals.internal_channel;
}

static inline struct qsi_slice qsi_slice_of(qs_slice slice)
{
    /* An empty slice still is a present one. */
    return qsi_slice_make(slice.data != NULL ? slice.data : "", (uint32_t)slice.bytes);
}
static inline qs_slice qs_slice_of(struct qsi_slice slice)
{
    return (qs_slice){slice.data, slice.bytes};
}

static inline struct qsi_index *qsi_index_of(const struct qs_store *store,
                                             const struct qsi_store_queue *queue)
{
    return queue->container.durable ? store->index : store->transient_index;
}
/* The largest size of one part of memory, so that the budget has room for several. */
static inline uint64_t qsi_part_of_budget(const struct qs_store *store)
{
    return store->options.memory_budget / 16;
}

#endif
