/* The engine's own structures.
 *
 * One lock (qs_store.mutex) covers everything below it: topology, queues, channels, the open end of the journal.  It is
 * held for moments: never during input or output, and never while a batch is copied.  What runs without it: encoding a batch, the
 * leader's write and sync, making spare files, reading bodies.
 *
 * Lock order: qs_store.mutex, then the message store's own.  The sync helper has a mutex of its own, taken alone, and so has the manifest. */
#ifndef QSI_ENGINE_H
#define QSI_ENGINE_H

#include "qstore/qstore.h"

#include "commit_state.h"
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
#include "transaction_keys.h"
#include "watch.h"

#include <pthread.h>

#define QSI_EXCHANGE_BYTES_MAX QSI_ROUTE_NAME_BYTES_MAX
#define QSI_UNSYNCED_BYTES_MAX \
    (64u << 20)                        /* accepted and not durable: publishers then wait and help */
#define QSI_PIECE_BYTES_MAX (1u << 20) /* of one record of a batch */
#define QSI_ARENA_BYTES_MAX (256u << 10) /* chunk that small records share */

struct store_stats {
    uint64_t checkpoints, bytes_checkpointed, messages_paged_out, messages_paged_in,
        segments_written;
    uint64_t commits, published, routed, confirmed, returned, delivered, acked, requeued;
    uint64_t message_syncs;
    uint64_t expired, dead_lettered, refused;
    uint64_t commit_stalls;
};

/* What a floor has done by floors above it, which it does not know.  Each REQUIRES the lock. */
struct qsi_upcalls {
    /* An AMQP error ends the channel, or the connection. */
    void (*shut_channel)(struct qs_channel *channel);
    void (*shut_connection)(struct qs_connection *connection);
    /* May release the lock.  On the way out: messages on the removal list leave. */
    void (*drain)(struct qs_store *store);
    /* Releases the lock meanwhile.  Makes a checkpoint: to have space back, or because it is due
     * and there are no threads. */
    qs_status (*checkpoint)(struct qs_store *store, qs_error *error);
    /* Releases the lock meanwhile.  Keys of transactions go to a file, if they are too many for
     * memory; false: they stayed where they are. */
    bool (*spill_keys)(struct qs_store *store);
    /* May release the lock.  Adds what becomes of the channel's rejected messages to its open
     * transaction. */
    qs_status (*dead_letter_in_tx)(struct qs_channel *channel, qs_error *error);
};

struct qsi_checkpoints {
    enum qsi_checkpoint_state state;
    bool is_wanted;
    bool sleeps;     /* the thread that makes them */
    bool is_held_up; /* one could not be made for want of a file: held_by tells */
    qs_error held_by;
    uint64_t lsn;   /* of the last one; 0: none */
    uint64_t at_ns; /* when it was */
    uint64_t
        failed_ns; /* when one could not be made for want of space; 0: the last one went well */
    struct qsi_cond due;
    pthread_t thread;
    bool is_running;
};

/* Threads and event loops that wait for messages, confirms and the like. */
struct qsi_events {
    struct qsi_cond came; /* a message or a confirm for somebody who waits */
    uint64_t count;       /* announced: who looked before one of them looks again before it waits */
    uint32_t waiters;
    uint32_t deferred_waiters;          /* of those: who left a message to another consumer */
    uint32_t armed_count;               /* channels whose bell is to be rung: park.c */
    struct qsi_list armed_for_changes;  /* of those: whatever happens, to whomever */
    struct qsi_list armed_for_confirms; /* of those: who have published what is not durable yet */
};

/* What the open found. */
struct qsi_recovery {
    uint64_t from_lsn; /* where the replay began */
    uint64_t read_lsn; /* where it ended, in a store that was opened for reading only */
    uint64_t took_us;
    uint64_t messages, records, bytes;
    uint64_t torn_bytes;
    uint64_t lost_ranges, lost_bytes, lost_segments, lost_messages;
    uint64_t queues;       /* that salvage made for messages whose declaration was lost */
    bool has_lost_records; /* perhaps declarations of queues among them: salvage only */
};

struct qs_store {
    const struct qsi_upcalls *upcalls;
    qs_env *env;
    qs_env *own_env; /* of a store in memory, which ends with it; NULL otherwise */
    qs_options options;
    char path[256]; /* for people: cut off where it is longer */
    /* Opened by a verification: for reading only, and refused where an open that writes would be. */
    bool judges;
    uint32_t fork_generation;
    struct qsi_mutex manifest_mutex; /* who writes the manifest; taken alone */
    struct qsi_manifest manifest;
    qs_dir *root;
    qs_dir *journal_dir;
    qs_dir *messages_dir;
    qs_dir *index_dir;
    qs_dir *transient_dir;
    qs_dir *checkpoint_dir;
    qs_file *lock_file;
    struct qsi_journal *journal;
    struct qsi_message_store *messages;
    struct qsi_index *index;           /* segments of durable queues */
    struct qsi_index *transient_index; /* and of what ends with the process */
    struct qsi_budget *budget;
    uint64_t
        return_bytes; /* of returned messages that wait to be read; touched with atomics only */
    struct {
        _Atomic uint64_t offset_us; /* from the monotonic clock to the store's */
    } clock;

    struct qsi_mutex mutex; /* over all that follows */
    uint32_t references;    /* the handle and each channel */
    enum qsi_life life;
    bool failed;
    /* The caller who has the lock must not let go of it, so nobody else meets this. */
    bool must_not_wait;
    qs_error failure;
    struct qsi_queue_shared shared;
    struct qsi_router router;
    struct qsi_map queues_by_id; /* u64 -> store_queue */
    uint64_t next_queue_id;
    uint64_t next_server_name;
    struct qsi_list connections;
    struct qsi_list channels;
    struct qsi_list deleted_queues;

    struct qsi_events events;
    struct qsi_commit commit;
    struct space space;
    struct qsi_paging paging;
    struct departures departures;
    struct transactions transactions; /* keys of those that were committed */
    struct qsi_checkpoints checkpoint;
    struct qsi_recovery recovery;
    struct qsi_watch watch;
    struct store_stats stats;
};

/* ---- the store's clock (clock.c) ---- */

/* Before anything is recovered: from what MANIFEST says. */
void qsi_clock_start(struct qs_store *store);
uint64_t qsi_clock_us(const struct qs_store *store); /* since 1970, more or less */
/* How far the machine's wall clock is ahead of it. */
int64_t qsi_clock_ahead_us(const struct qs_store *store);

/* ---- files that are missing (lost_files.c) ---- */

/* Where there is no MANIFEST: QS_ECORRUPT when there was one. */
/* A new store begins in a directory of its own.  QS_ESTORE_NOT_FOUND: there is no MANIFEST, and
 * something that is no store's. */
qs_status qsi_check_nothing_else(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
qs_status qsi_check_never_was(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
/* The same; else QS_ESTORE_NOT_FOUND. */
qs_status qsi_fail_no_manifest(qs_env *env, qs_dir *root, qs_error *error) QS_MUST_CHECK;
/* MANIFEST has no session: QS_ESTORE_NOT_FOUND to who does not create. */
qs_status qsi_fail_not_created(qs_error *error) QS_MUST_CHECK;
/* Where there is a MANIFEST: QS_ECORRUPT when it is missing. */
qs_status qsi_require_directory(qs_env *env, qs_dir *root, const char *name, qs_dir **dir_out,
                                qs_error *error) QS_MUST_CHECK;
/* Is there a checkpoint that proves that MANIFEST is an older copy, or that the journal does not
 * end at end_lsn? */
qs_status qsi_check_checkpoints(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                                uint64_t end_lsn, qs_error *error) QS_MUST_CHECK;

/* ---- entering and leaving (store.c) ---- */

/* Does a strict open that writes succeed?  Goes the same way as far as the first byte that it would
 * write. */
qs_status qsi_store_judge(const char *path, qs_env *env, qs_error *error) QS_MUST_CHECK;

/* Locks, after checking that the store may be used here; QS_OK means locked. */
qs_status qsi_store_enter(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* The same; QS_ESTORE_READ_ONLY for a store that was opened for reading only, which has no journal.
 */
qs_status qsi_store_enter_to_change(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
qs_status qsi_channel_enter(struct qs_channel *channel, qs_error *error) QS_MUST_CHECK;
/* The same for a caller who, with QS_NO_WAIT among his flags, must not wait. */
qs_status qsi_channel_enter_to(struct qs_channel *channel, uint32_t flags,
                               qs_error *error) QS_MUST_CHECK;
void qsi_store_leave(struct qs_store *store);
/* An AMQP error ends the channel, some of them its connection: call it on the way out, locked.  Returns status. */
qs_status qsi_channel_leave(struct qs_channel *channel, qs_status status);
/* REQUIRES lock.  Once: nothing is accepted any more, everything unconfirmed is nacked. */
void qsi_store_fail(struct qs_store *store, const qs_error *cause);
/* QS_ESTORE_FAILED when it has. */
qs_status qsi_store_check_failed(const struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_store_unref(struct qs_store *store); /* REQUIRES lock; unlocks; frees the last one */
bool qsi_store_is_forked(const struct qs_store *store);
/* The process that opens the store is the one that may use it. */
void qsi_store_note_process(struct qs_store *store);
/* REQUIRES lock; may release it meanwhile.  Room in the journal for what channels requeue when they are shut: without, the messages
 * would come again unflagged after an orderly close.  It can be done without: on a full disk, or in a failed store.
 * only: a channel, or the channels of a connection; NULL: all. */
void qsi_make_room_to_shut(struct qs_store *store, const void *only);

static inline struct qsi_slice qsi_slice_of(qs_slice slice)
{
    /* An empty slice still is a present one. */
    return qsi_slice_make(slice.data != NULL ? slice.data : "", (uint32_t)slice.bytes);
}
static inline qs_slice qs_slice_of(struct qsi_slice slice)
{
    return (qs_slice){slice.data, slice.bytes};
}

/* Is there anything to see off?  What could not leave is the timer's business, if there is one. */
static inline bool qsi_has_departures(const struct qs_store *store)
{
    return store->departures.leaving_at < store->departures.leaving.bytes ||
           store->departures.fresh.bytes > 0 || !qsi_list_is_empty(&store->departures.trimming) ||
           (store->departures.stuck.bytes > 0 && !store->departures.has_timer);
}

/* ---- threads.c: without the lock ---- */

qs_status qsi_start_threads(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_stop_threads(struct qs_store *store);

/* ---- connection.c ---- */

/* REQUIRES lock.  Requeues what is out, cancels, drops what is buffered. */
void qsi_channel_shut(struct qs_channel *channel);
/* REQUIRES lock.  Shuts its channels and deletes its exclusive queues. */
void qsi_connection_shut(struct qs_connection *connection);

/* ---- commit.c ---- */

/* REQUIRES lock. */
qs_status qsi_commit_start_threads(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_commit_join_threads(struct qs_store *store); /* without the lock, when it closes */
/* REQUIRES lock; may release it meanwhile.  Returns when durable up to lsn; QS_ETIMEDOUT, QS_ESTORE_FAILED. */
qs_status qsi_commit_wait(struct qs_store *store, uint64_t lsn, uint64_t timeout_ns,
                          qs_error *error) QS_MUST_CHECK;
/* The same as far as written: what is survives the process, and not a power cut. */
qs_status qsi_commit_write(struct qs_store *store, uint64_t lsn, qs_error *error) QS_MUST_CHECK;
/* The store goes quiet: its last commit gets a proof of its own.  REQUIRES the lock, nobody who
 * leads, no failure, and something that is unmarked; releases the lock meanwhile. */
void qsi_commit_mark(struct qs_store *store);
/* Some zeros ahead of the journal.  REQUIRES the lock, nobody who leads, and no failure;
 * releases the lock meanwhile. */
void qsi_commit_fill(struct qs_store *store);
/* REQUIRES lock.  After an append: somebody will commit it. */
void qsi_commit_kick(struct qs_store *store);
/* What room in the journal is for.  On a full disk publishers are refused first; what is kept for the others lets them go on. */
enum qsi_room_use {
    QSI_ROOM_PUBLISH,
    QSI_ROOM_LETTER, /* publishing too, by whoever sees departures off: it makes no checkpoint */
    QSI_ROOM_SETTLE, /* is always granted: without room it is done in memory alone, until the next checkpoint */
    QSI_ROOM_REMOVE,     /* what must be journalled: topology, purges, settles of transactions */
    QSI_ROOM_CHECKPOINT, /* not in the journal: what brings space back, opening and closing */
};
/* REQUIRES lock; may release it meanwhile, and tells so.  Makes sure that bytes more can be accepted. */
qs_status qsi_commit_make_room(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                               enum qsi_room_use use, bool *released_out,
                               qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Somebody waits for a commit whom the committer has to serve. */
void qsi_commit_hurry(struct qs_store *store);
/* REQUIRES lock.  QS_EWOULDBLOCK for a caller who must not wait: asked before the lock is let go. */
static inline qs_status qsi_check_may_wait(const struct qs_store *store)
{
    return store->must_not_wait ? QS_EWOULDBLOCK : QS_OK;
}
/* REQUIRES lock.  Something came: threads that wait look for themselves, and so does who listens for any change.  The bells of parked
 * channels are rung by who knows which: qsi_ring_consumers, qsi_ring_confirmed, and for its own channel qsi_channel_leave. */
void qsi_events_announce(struct qs_store *store);
/* REQUIRES lock.  Something expires earlier than the timer knows, or the clock was set. */
void qsi_wake_timer(struct qs_store *store);

/* REQUIRES lock.  A place for a record of bytes in the open chunk of small records. */
qs_status qsi_arena_place(struct qs_store *store, bool journalled, uint64_t bytes,
                          struct qsi_chunk **chunk_out, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock and qsi_journal_reserve.  Appends a record and notes when the batch began. */
uint64_t qsi_store_append(struct qs_store *store, struct qsi_chunk *chunk, uint64_t from,
                          uint64_t bytes, uint32_t record_count, bool more);

/* ---- queues.c ---- */

/* REQUIRES lock.  A queue that goes with its channel or its last consumer. */
void qsi_delete_queue_now(struct qs_store *store, struct store_queue *queue);

/* ---- exchanges.c ---- */

void qsi_journal_exchange_deleted(void *context,
                                  const struct qsi_exchange *exchange); /* the router's callback */
/* The record that makes the binding again; false: one of its ends does not survive a restart. */
struct qsi_topology;
bool qsi_describe_binding(const struct qsi_binding *binding, struct qsi_topology *topology_out);

/* ---- topology.c ---- */

qs_status qsi_replay_topology(struct qs_store *store, const struct qsi_topology *topology,
                              qs_error *error) QS_MUST_CHECK;

/* ---- settle.c ---- */

/* The most bytes that settling these tags can add to the journal. */
uint64_t qsi_settle_bytes(const struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                          uint8_t kind);
/* REQUIRES lock.  Takes [first_tag, last_tag] and acks (drops) or requeues them.  Records of what is journalled go to chunk,
 * which has that much room; NULL: nowhere.  due_us: of the kinds that have it, else 0.  Returns their number. */
uint32_t qsi_settle_into(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                         uint8_t kind, uint64_t due_us, struct qsi_chunk *chunk);
/* Room to delay what these tags are about: qsi_settle_into cannot fail. */
qs_status qsi_settle_cover_delays(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                  qs_error *error) QS_MUST_CHECK;
/* The same, and appends the records to the journal if it can. */
void qsi_settle_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                     uint8_t kind);
/* The same with room in the journal, or not at all.  May release the lock. */
qs_status qsi_settle_with_room(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                               uint8_t kind, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  These were taken and do not reach the caller: they stay out, and nothing that
 * settles a range of tags finds them, until they are handed back. */
void qsi_withhold_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag);
/* REQUIRES lock.  What is withheld, or what was taken just now, is ready again as if nobody had
 * taken it. */
void qsi_hand_back_withheld(struct qs_channel *channel);
void qsi_hand_back_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag);
/* REQUIRES lock.  One message, which may be a consumer's. */
void qsi_hand_back_delivery(struct qs_channel *channel, uint64_t tag);
/* REQUIRES lock; may release it meanwhile.  Acks what was delivered without ack, having made room for it in the journal: what was
 * free when the messages were taken may not be enough, or somebody else's by now. */
void qsi_settle_no_ack(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag);

/* ---- delays (clock.c) ---- */

/* QS_EINVAL: nobody waits for so long. */
qs_status qsi_check_delay(uint64_t delay_us, qs_error *error) QS_MUST_CHECK;
/* When that is over, by the store's clock; 0: at once. */
uint64_t qsi_due_us(const struct qs_store *store, uint64_t delay_us);

/* ---- returns.c: messages that no queue took, for who published them with QS_MANDATORY ---- */

void qsi_returns_init(struct qs_channel *channel);
void qsi_returns_fini(struct qs_channel *channel);
/* Is another return of this channel to be kept?  fresh: those of the call so far. */
bool qsi_wants_return(const struct qs_channel *channel, const struct qsi_list *fresh);
/* REQUIRES that it is.  Copies the message to the end of a list.  QS_ESTORE_FULL: too many wait to
 * be read; but where returns are ignored there is just no copy. */
qs_status qsi_return_make(struct qs_channel *channel, struct qsi_list *returns,
                          struct qsi_slice exchange, struct qsi_slice key,
                          struct qsi_slice properties, struct qsi_slice body,
                          qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  So many came back, copied or not. */
void qsi_note_returns(struct qs_channel *channel, uint64_t count);
/* The first of a list, as an event, out of the list.  Whether there is one. */
bool qsi_return_next(struct qs_store *store, struct qsi_list *returns, qs_event *event);
void qsi_free_return_list(struct qs_store *store, struct qsi_list *returns);
/* REQUIRES lock.  Where this channel's returns go now: to the publisher, aside until the
 * transaction commits, or to whoever asks for those that were ignored. */
struct qsi_list *qsi_returns_of(struct qs_channel *channel);
void qsi_move_returns(struct qsi_list *from, struct qsi_list *to);

/* ---- receive.c ---- */

/* REQUIRES lock and qsi_unacked_reserve(1).  Delivers the first ready message; QS_EEMPTY.  The body of a stored one is not read
 * yet: message_out->hold is NULL then, and *place_out tells where it is. */
qs_status qsi_deliver_one(struct qs_channel *channel, struct store_queue *queue,
                          struct store_consumer *consumer, qs_message *message_out,
                          struct qsi_stored_body *place_out, qs_error *error) QS_MUST_CHECK;
/* Without the lock: reads what qsi_deliver_one left out.  Ends in qs_message_release. */
qs_status qsi_deliver_body(struct qs_store *store, qs_message *message,
                           const struct qsi_stored_body *place, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock; may release it meanwhile, and tells so.  Room to settle as many messages at once. */
qs_status qsi_make_settle_room(struct qs_channel *channel, bool no_ack, uint64_t count,
                               bool *released_out, qs_error *error) QS_MUST_CHECK;

/* One row of a record in chunk, which the message holds; as below. */
void qsi_view_row(struct qsi_chunk *chunk, const uint8_t *record, uint32_t row, qs_message *message,
                  struct qsi_stored_body *place_out);
/* A message of a run; the body of a stored one is not read yet: hold is NULL then, and *place_out tells where it is. */
void qsi_view_message(const struct qsi_run *run, uint32_t run_row, qs_message *message,
                      struct qsi_stored_body *place_out);

/* ---- park.c ---- */

/* REQUIRES lock, and that nothing of these kinds is there.  The bell rings once when something is. */
qs_status qsi_channel_park(struct qs_channel *channel, uint32_t kinds,
                           qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Was it parked? */
bool qsi_channel_unpark(struct qs_channel *channel);
/* REQUIRES lock. */
void qsi_channel_note_deferred(struct qs_channel *channel);
/* REQUIRES lock and an armed channel. */
void qsi_channel_ring(struct qs_channel *channel);
/* The same, if there is something for it; else it is seen to that commits ask it. */
void qsi_ring_if_due(struct qs_channel *channel);
void qsi_ring_changes(struct qs_store *store);
/* REQUIRES lock.  Something is durable, or never will be. */
void qsi_ring_confirmed(struct qs_store *store);
/* REQUIRES lock.  It was closed: whoever listens finds out. */
void qsi_channel_ring_shut(struct qs_channel *channel);

/* ---- turns.c: all of it REQUIRES lock ---- */

static inline struct store_consumer *qsi_consumer_in_queue(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct store_consumer, in_queue);
}
/* Do its prefetch and its channel's allow another message? */
bool qsi_consumer_has_room(const struct store_consumer *consumer);
/* Does its queue have a message that it may have? */
bool qsi_consumer_can_take(const struct store_consumer *consumer);
/* REQUIRES qsi_consumer_can_take.  Are there messages beside those that are for consumers before
 * this one? */
bool qsi_is_turn_of(const struct store_consumer *consumer);

/* REQUIRES lock.  Would asking for these kinds of events bring one?  Perhaps not, if what is ready has expired. */
bool qsi_has_event(struct qs_channel *channel, uint32_t kinds);

/* REQUIRES lock.  There may be messages for consumers of the queue who could not have them before: those of parked channels are
 * called.  Of a queue with levels: the one that was declared. */
void qsi_ring_armed_consumers(struct store_queue *queue);
static inline void qsi_ring_consumers(const struct qs_store *store, struct store_queue *queue)
{
    if (store->events.armed_count > 0 && queue->consumer_count > 0) {
        qsi_ring_armed_consumers(queue);
    }
}

/* ---- consume.c ---- */

void qsi_drop_consumers(struct qs_channel *channel);
/* REQUIRES lock.  Deliveries of a consumer were settled: it has room for others.  It may be freed. */
void qsi_consumer_settled(struct store_consumer *consumer, uint32_t count);

/* ---- pager.c, pager_load.c, pager_space.c, promote.c: messages between memory and disk ---- */

/* Delivering: the next message has to be brought from the disk first (a status that means nothing else there). */
#define QSI_EPAGED QS_EEXIST

/* REQUIRES lock; releases it meanwhile.  Brings what the head of the queue lacks next, or waits for
 * whoever does.  The queue may be gone afterwards.  A segment whose state cannot be read is set
 * aside for the channel (NULL: for nobody), who is told: the next call brings what lies behind. */
qs_status qsi_page_in(struct qs_store *store, struct store_queue *queue, struct qs_channel *channel,
                      qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Segments that were set aside for this channel are everybody's again. */
void qsi_bring_back_aside(struct qs_channel *channel);
/* REQUIRES lock; releases it meanwhile.  Brings the content of a message that is out, or waits for whoever does. */
qs_status qsi_page_in_one(struct qs_store *store, struct store_queue *queue,
                          struct qsi_segment *segment, uint32_t slot,
                          qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  Somebody takes messages: the next segment is read before he comes to it. */
void qsi_pager_look_ahead(struct qs_store *store, struct store_queue *queue);
/* REQUIRES lock; may release it meanwhile, and tells so.  Returns when memory is within the budget, or cannot be brought there. */
qs_status qsi_pager_make_room(struct qs_store *store, bool *released_out,
                              qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  After something came into a queue. */
void qsi_pager_kick(struct qs_store *store);
/* REQUIRES lock; releases it meanwhile.  One step towards less memory; false: there is none to be made. */
bool qsi_pager_step(struct qs_store *store);
/* REQUIRES lock; releases it meanwhile.  A lazy queue: all to the disk.  What its last flush came to. */
qs_status qsi_pager_settle_queue(struct qs_store *store, struct store_queue *queue);
/* REQUIRES lock; releases it meanwhile.  One flush of the queue; QS_EEMPTY: there is nothing to flush. */
qs_status qsi_pager_flush(struct qs_store *store, struct store_queue *queue,
                          qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock; may release it meanwhile, and sets *released_io then.  Looks at the next bytes of content that are to be flushed: bodies that
 * other queues have as well move to the message store, a chunk at a time.  QS_EEMPTY: there are none (more). */
qs_status qsi_promote(struct qs_store *store, struct store_queue *queue, uint64_t bytes,
                      bool *released_io, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock; releases it meanwhile.  References of settled messages that were on the disk are dropped, and files of segments
 * that ended are seen to. */
qs_status qsi_pager_release(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock; releases it meanwhile.  Rewrites one sparse segment or compacts one message file; false: there is none. */
bool qsi_pager_compact(struct qs_store *store, qs_error *error);
/* How large one piece of memory may be, so that the budget divides into some. */
static inline uint64_t qsi_piece_of_budget(const struct qs_store *store)
{
    return store->options.memory_budget / 16;
}
static inline struct qsi_index *qsi_index_of(const struct qs_store *store,
                                             const struct store_queue *queue)
{
    return queue->container.durable ? store->index : store->transient_index;
}
void *qsi_run_pager(void *store);
void qsi_forget_dead_files(struct qs_store *store);

/* REQUIRES lock.  Around reading from the message store without it. */
static inline uint32_t qsi_reader_begin(struct qs_store *store)
{
    store->paging.readers.count[store->paging.readers.epoch & 1] += 1;
    return store->paging.readers.epoch & 1;
}
void qsi_reader_end(struct qs_store *store, uint32_t reader);

/* ---- rates.c ---- */

void qsi_update_rates(struct qs_store *store, struct store_queue *queue);
/* Once a second, by the pager: queues that moved are sampled, so that rates are right whenever
 * somebody looks. */
void qsi_sample_rates(struct qs_store *store);
static inline double qsi_rate(const struct store_queue *queue, double sum)
{
    return queue->rate_weight > 0 ? sum / queue->rate_weight : 0;
}
/* REQUIRES lock.  RabbitMQ's rule: how many messages each queue may keep in memory, by how fast it moves. */
void qsi_update_targets(struct qs_store *store);

/* ---- checkpoint.c ---- */

/* REQUIRES lock; releases it meanwhile.  What the journal says up to now is in other files when this returns, and journal files behind
 * it are used again. */
qs_status qsi_checkpoint(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock.  How much the journal has grown since the last checkpoint. */
uint64_t qsi_backlog_bytes(const struct qs_store *store);
/* REQUIRES lock.  Of files that go when the next one counts. */
uint64_t qsi_dead_bytes(const struct qs_store *store);
/* Are checkpoints made unasked?  Not in a salvaged store: they would let go of the journal that is damaged. */
static inline bool qsi_checkpoint_is_automatic(const struct qs_store *store)
{
    return store->options.checkpoint_bytes > 0 && store->options.recovery != QS_RECOVERY_SALVAGE;
}
/* REQUIRES lock.  Has the time come for one? */
bool qsi_checkpoint_is_due(const struct qs_store *store);
/* REQUIRES lock.  Has the journal grown enough for one?  Costs nothing: asked after each commit. */
bool qsi_checkpoint_wants_begin(const struct qs_store *store);
/* REQUIRES lock.  Are there files that only wait for one to go? */
bool qsi_checkpoint_would_free(const struct qs_store *store);
/* REQUIRES lock.  Does the journal grow faster than checkpoints can be made?  Publishers wait then. */
bool qsi_checkpoint_is_behind(const struct qs_store *store);
/* REQUIRES lock, and that is_held_up.  QS_ECORRUPT: publishers are refused, as the journal has grown to its bound. */
qs_status qsi_checkpoint_check_held(const struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void *qsi_run_checkpointer(void *store);

/* ---- restore.c ---- */

/* Loads the checkpoint that the manifest names, if it does. */
qs_status qsi_restore(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* The state of one segment, which has none in memory. */
qs_status qsi_load_segment_state(struct qs_store *store, struct store_queue *queue,
                                 struct qsi_segment *segment, qs_error *error) QS_MUST_CHECK;
/* Which segment files the checkpoint does not name.  Asked right after it was restored. */
qs_status qsi_note_leftovers(struct qs_store *store, struct qsi_buf *files_out,
                             qs_error *error) QS_MUST_CHECK;
/* Removes those that were not made again meanwhile, checkpoints that do not count, and what ended
 * with its process; salvage only the last. */
qs_status qsi_remove_leftovers(struct qs_store *store, const struct qsi_buf *files,
                               qs_error *error) QS_MUST_CHECK;
/* The states of segments that are needed to replay a settle. */
qs_status qsi_load_states(struct qs_store *store, struct store_queue *queue,
                          const struct qsi_settle *settle, qs_error *error) QS_MUST_CHECK;
/* The states of all its segments; who comes for the messages of one that is damaged is told so. */
qs_status qsi_load_all_states(struct qs_store *store, struct store_queue *queue,
                              qs_error *error) QS_MUST_CHECK;
/* The state of the segment where the first ready messages are. */
qs_status qsi_load_head(struct qs_store *store, struct store_queue *queue,
                        qs_error *error) QS_MUST_CHECK;

/* The bytes of the checkpoint that the manifest names, their checksum and header right: the caller's to free with qsi_free.
 * REQUIRES that it names one. */
struct qsi_checkpoint_header;
qs_status qsi_checkpoint_load(qs_env *env, qs_dir *dir, const struct qsi_manifest *manifest,
                              struct qsi_checkpoint_header *header_out, uint8_t **data_out,
                              size_t *bytes_out, qs_error *error) QS_MUST_CHECK;

/* ---- tx.c ---- */

#define QSI_TRANSACTION_KEY_BYTES_MAX 1024
_Static_assert(QSI_TRANSACTION_KEY_BYTES_MAX == QSI_KEY_BYTES_MAX, "of files");
void qsi_tx_drop(struct qs_channel *channel);
/* REQUIRES lock; may release it meanwhile.  The channel's open transaction as one group of the journal; *lsn_out: durable when that is. */
qs_status qsi_tx_apply(struct qs_channel *channel, uint64_t *lsn_out,
                       qs_error *error) QS_MUST_CHECK;

/* ---- recover.c ---- */

qs_status qsi_recover(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* Which rows of a checked record go to a destination: NULL for all, else the caller's.  QS_ECORRUPT when they are not as many as it says. */
qs_status qsi_destination_rows(const struct qsi_messages *view, uint32_t destination,
                               uint32_t **rows_out, qs_error *error) QS_MUST_CHECK;
/* One record of the journal or of a checkpoint, at data[at] of chunk. */
qs_status qsi_replay_record(struct qs_store *store, struct qsi_chunk *chunk, uint64_t at,
                            qs_error *error) QS_MUST_CHECK;

#endif
