/* pyqstore's engine: a store (one directory, one owner) and channels on it.
 *
 * Rules that hold for every function here:
 *   - Handles are not NULL unless said otherwise; *_close takes NULL.
 *   - Names and bodies are slices: bytes without a terminator, read during the call and not kept.
 *   - qs_error *error may be NULL; it is written only on failure.
 *   - An AMQP error (QS_ACCESS_REFUSED ... QS_NOT_IMPLEMENTED) closes the channel it happened on, as a broker
 *     would: later calls on it answer QS_ECHANNEL_CLOSED.  One of 500 or more closes all channels of its connection.
 *   - A store may be used from any thread.  A channel serves one thread at a time.
 *   - After fork() every call in the child answers QS_EFORKED; only the closes may be called there, and they
 *     free nothing but memory.
 *   - Every call may block for the store's lock; what else a call may wait for stands under Blocks. */
#ifndef QSTORE_QSTORE_H
#define QSTORE_QSTORE_H

#include "qstore/arrow.h"
#include "qstore/env.h"
#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct qs_store qs_store;
typedef struct qs_connection qs_connection;
typedef struct qs_channel qs_channel;

typedef struct qs_slice {
    const void *data; /* may be NULL when bytes is 0 */
    size_t bytes;
} qs_slice;

#define QS_FOREVER UINT64_MAX /* a timeout_ns */

/* ---- the store ---- */

enum { QS_SYNC_FDATASYNC = 0, QS_SYNC_NONE = 1 };
enum { QS_RECOVERY_STRICT = 0, QS_RECOVERY_SALVAGE = 1 };

enum { QS_NOTE_DEBUG = 10, QS_NOTE_INFO = 20, QS_NOTE_WARNING = 30, QS_NOTE_ERROR = 40 };

typedef struct qs_options {
    uint64_t memory_budget; /* bytes */
    uint64_t embed_below;   /* properties + body smaller than this stay in the journal; 0: never */
    uint64_t journal_file_bytes; /* power of two, 64 KiB at least */
    uint64_t message_file_bytes; /* power of two, 64 KiB to 16 GiB */
    uint64_t body_bytes_max;     /* a larger body is refused; 128 MiB */
    uint32_t
        segment_entries; /* power of two, fixed at creation; 0: as it was created, 16384 when new */
    uint64_t
        checkpoint_bytes; /* of journal after which a checkpoint is made; 0: only when asked for */
    uint32_t checkpoint_interval_ms; /* and at the latest after this time; 0: by size alone */
    uint32_t commit_delay_us;        /* wait this long for a bigger group */
    uint32_t sync;                   /* QS_SYNC_* */
    uint32_t recovery;               /* QS_RECOVERY_* */
    bool create;                     /* make the store when there is none */
    bool read_only;  /* nothing is written: no channels; what is there can be listed and browsed */
    bool background; /* false: no threads; whoever waits commits (deterministic tests) */
    /* Called now and then while the journal is replayed: bytes of files that were read, and that there are.  NULL: nobody is told. */
    void (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *progress_context;
    /* Called with what no call tells, level being a QS_NOTE_*: a commit that has waited for the
     * disk for 30 s (while it waits), a clock that was set, that the disk is full and that it is no
     * longer, that no checkpoint can be made and that one can, each checkpoint, that the store has
     * failed.  From a thread of the store that holds no lock, never from one that others wait for;
     * until qs_store_close has returned, and only with background.  NULL: nobody is told. */
    void (*note)(void *context, uint32_t level, const char *text);
    void *note_context;
} qs_options;

/* qs_options_default - the defaults that docs/GUIDE.md lists. */
QS_API void qs_options_default(qs_options *options_out);

#define QS_PATH_MEMORY ":memory:"
/* qs_store_open - open or create the store in the directory path and recover it.
 *
 * In:      path      QS_PATH_MEMORY without an env: a new store in memory, which makes no files and
 *                    ends when it is closed
 *          options   NULL: the defaults; env  NULL: qs_env_posix()
 * Returns: QS_ESTORE_NOT_FOUND, QS_ESTORE_LOCKED (error->pid), QS_ECORRUPT, QS_EVERSION, QS_EIO, QS_EINVAL
 * Blocks:  for recovery: time in proportion to the journal */
QS_API QS_MUST_CHECK qs_status qs_store_open(qs_store **store_out, const char *path,
                                             const qs_options *options, qs_env *env,
                                             qs_error *error);

/* qs_store_close - requeue what channels hold, make everything durable, release the lock, free.
 *
 * Channels are closed with it, but their memory stays until qs_channel_close.  No call may be under way in another
 * thread other than on channels that wait: those answer QS_ESTORE_CLOSED.  The handle is freed whatever is returned.
 * Returns: QS_ESTORE_FAILED when something published could not be made durable; QS_ESTORE_FULL, QS_ENOSPC when all of it is, and
 *          there was no space to note that the journal ends there: the next open recovers, as after a crash */
QS_API qs_status qs_store_close(qs_store *store, qs_error *error);

/* qs_store_sync - return when everything published so far, by any channel, is durable.  Blocks: for a commit. */
QS_API QS_MUST_CHECK qs_status qs_store_sync(qs_store *store, qs_error *error);

/* qs_store_checkpoint - make a checkpoint now: what the journal says so far goes to other files, and its own files are used again.
 *
 * Publishers and consumers go on meanwhile.  QS_ESTORE_FULL: no space; the journal still has everything.
 * Blocks: for the flushing and syncing of what was published since the last one */
QS_API QS_MUST_CHECK qs_status qs_store_checkpoint(qs_store *store, qs_error *error);

/* qs_store_wait_durable - return when the journal is durable up to lsn (a position handed out by publish).
 * Blocks: for a commit, which the caller leads itself when nobody else does.  QS_ETIMEDOUT; QS_ESTORE_FAILED. */
QS_API QS_MUST_CHECK qs_status qs_store_wait_durable(qs_store *store, uint64_t lsn,
                                                     uint64_t timeout_ns, qs_error *error);
QS_API uint64_t qs_store_durable_lsn(qs_store *store);

typedef struct qs_stats {
    uint64_t durable_lsn, appended_lsn;
    uint64_t commits, fdatasyncs, bytes_journalled, bytes_stored, bytes_checkpointed;
    uint64_t messages_published, messages_routed /* copies in queues */, messages_confirmed,
        messages_returned, messages_delivered, messages_acked, messages_requeued;
    uint64_t messages_expired, messages_dead_lettered /* that an exchange led somewhere */,
        messages_refused /* by queues that were full */;
    uint64_t ram_bytes; /* messages and what is kept of them in memory: what memory_budget bounds */
    uint64_t checkpoints, checkpoint_lsn, segments_written /* files of the index begun */,
        messages_paged_out, messages_paged_in;
    uint64_t message_files, message_bytes_live, message_bytes_total;
    uint64_t commit_latency_p50_us, commit_latency_p99_us,
        commit_latency_max_us; /* write + fdatasync */
    uint64_t confirm_latency_p50_us, confirm_latency_p99_us,
        confirm_latency_max_us; /* append to durable, per commit */
    uint32_t sync;              /* QS_SYNC_* */
    bool failed;
    /* the recovery at open */
    uint64_t recovered_lsn; /* where the replay of the journal began: the checkpoint's */
    uint64_t recovery_us, recovered_messages, recovered_records, recovered_bytes, torn_bytes,
        lost_ranges, lost_bytes;
    /* with QS_RECOVERY_SALVAGE: segments that cannot be read, the messages that they held, and queues that are there as
     * "recovered.<id>" because their declaration is lost */
    uint64_t lost_segments, lost_messages, recovered_queues;
    uint64_t commit_running_ms; /* how long the commit under way has been at the disk; 0: none is */
    uint64_t commit_stalls;     /* commits that took 30 s and more, as far as the timer saw */
    int64_t
        clock_ahead_us; /* the machine's wall clock, seen from the store's (qs_store_accept_clock) */
    qs_file_system file_system;
} qs_stats;
/* qs_store_accept_clock - go by the machine's wall clock from now on.
 *
 * Messages expire by the store's clock.  While the store is open it goes on with the monotonic clock; at open it is the wall clock,
 * unless that is before the last time the store knows, or more than 30 days behind it: then time goes on from there, and
 * clock_ahead_us of the stats tells by how much the two differ.  Returns when it is durable.  QS_EIO, QS_ESTORE_FULL, and what is told
 * of a store that cannot be changed. */
QS_API QS_MUST_CHECK qs_status qs_store_accept_clock(qs_store *store, qs_error *error);
QS_API void qs_store_stats(qs_store *store, qs_stats *stats_out);
QS_API void qs_store_options(qs_store *store, qs_options *options_out);

typedef struct qs_queue_status {
    uint64_t messages_ready, messages_unacked, messages_delayed /* not due yet */, consumers;
    uint64_t alpha, beta, gamma, delta; /* messages in each state */
    uint64_t q1, q2, delta_len, q3, q4; /* ready messages in each sub-queue */
    uint64_t ram_bytes, disk_bytes;
    double target_ram_count;          /* infinity: no limit */
    double ingress_rate, egress_rate; /* messages a second */
    bool durable, exclusive, auto_delete, lazy;
} qs_queue_status;
/* QS_NOT_FOUND when there is no such queue (no channel is closed by it). */
QS_API QS_MUST_CHECK qs_status qs_store_queue_status(qs_store *store, qs_slice queue,
                                                     qs_queue_status *status_out, qs_error *error);

/* qs_store_set_queue_mode - lazy (what is published goes to the disk at once, and comes back a segment at a time) or not; survives a
 * restart with the queue.  What x-queue-mode=lazy sets when the queue is declared.  QS_NOT_FOUND.  Blocks: for a commit. */
QS_API QS_MUST_CHECK qs_status qs_store_set_queue_mode(qs_store *store, qs_slice queue, bool lazy,
                                                       qs_error *error);

typedef struct qs_exchange_info {
    qs_slice name, type;
    bool durable, auto_delete, internal;
    qs_slice arguments; /* the encoded table as declared */
} qs_exchange_info;
typedef struct qs_queue_info {
    qs_slice name;
    bool durable, exclusive, auto_delete;
    uint64_t messages_ready, messages_delayed;
    qs_slice arguments;
} qs_queue_info;
typedef struct qs_binding_info {
    qs_slice source, destination, routing_key, arguments;
    bool to_exchange;
} qs_binding_info;
/* Visitors run under the store's lock: copy what is needed and call nothing of this library. */
QS_API QS_MUST_CHECK qs_status qs_store_visit_queues(
    qs_store *store, void (*visit)(void *context, const qs_queue_info *), void *context);
QS_API QS_MUST_CHECK qs_status qs_store_visit_exchanges(
    qs_store *store, void (*visit)(void *context, const qs_exchange_info *), void *context);
QS_API QS_MUST_CHECK qs_status qs_store_visit_bindings(
    qs_store *store, void (*visit)(void *context, const qs_binding_info *), void *context);

typedef struct qs_verify_callbacks {
    /* Called now and then, and at the end.  False stops: qs_store_verify answers QS_EINTR. */
    bool (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    /* Called for each damage that is found: what->path, what->offset, and text for people. */
    void (*damage)(void *context, const qs_error *what);
    void *context;
} qs_verify_callbacks;       /* each may be NULL */
typedef struct qs_verified { /* what was read and checked */
    uint64_t journal_records, journal_bytes /* behind the checkpoint */, checkpoint_records;
    uint64_t segments, bodies /* references to the message store */, body_bytes;
    uint64_t queues; /* durable ones */
    uint64_t damages;
} qs_verified;
/* qs_store_verify - read everything that a store needs of its files, and check it: MANIFEST, the checkpoint, the journal, the segments
 * that the checkpoint names, the bodies of messages that are in queues.
 *
 * The store must not be open: its lock is shared with others who read.  Nothing is written, and nothing is repaired.  What a crash left
 * unfinished at the journal's end is no damage, and neither is damage in what nobody needs any more.
 * In:      callbacks  NULL: nobody is told
 * Returns: QS_ECORRUPT when anything is damaged (the first in error; what is behind is looked at where it can be), QS_ESTORE_NOT_FOUND,
 *          QS_ESTORE_LOCKED, QS_EVERSION, QS_EIO, QS_EINTR
 * Blocks:  for reading all of it */
QS_API QS_MUST_CHECK qs_status qs_store_verify(const char *path, qs_env *env,
                                               const qs_verify_callbacks *callbacks,
                                               qs_verified *verified_out, qs_error *error);

typedef struct qs_message qs_message;
/* qs_store_browse - the next messages of a queue, ready, unacked and delayed, as a record batch.  Nothing is delivered, no count changes, no
 * file is written; a store that is open for reading only has this in place of channels.
 *
 * Columns: those of qs_channel_get_batch with "sequence" in place of "delivery_tag", and "unacked" and "delayed"
 * behind them.
 * In-out:  position_io   where to begin, 0 at first; then where to go on, after an error as well.  It is the sequence of a message;
 *                        in a queue with priorities, the distance from the highest priority stands above 56 bits of it
 * In:      messages_max, bytes_max   of bodies; one message comes in any case
 * Returns: QS_EEMPTY (there is none), QS_NOT_FOUND, QS_ECORRUPT (one message, or one segment, cannot be read: go on behind it), QS_EIO
 * Blocks:  for reading what is not in memory */
QS_API QS_MUST_CHECK qs_status qs_store_browse(qs_store *store, qs_slice queue,
                                               uint64_t *position_io, uint64_t messages_max,
                                               uint64_t bytes_max, struct ArrowSchema *schema_out,
                                               struct ArrowArray *array_out, qs_error *error);
enum { QS_MESSAGE_READY, QS_MESSAGE_UNACKED, QS_MESSAGE_DELAYED };
/* qs_store_peek - the same for one message; its delivery_tag is its position.  state_out: QS_MESSAGE_*.  message_out: release it. */
QS_API QS_MUST_CHECK qs_status qs_store_peek(qs_store *store, qs_slice queue, uint64_t *position_io,
                                             uint32_t *state_out, qs_message *message_out,
                                             qs_error *error);

/* qs_store_transaction_known - has a transaction with this key been committed (durably) on this store, and not been forgotten?
 *
 * QS_ECORRUPT: the file that would tell is damaged.  Blocks: for a commit with that key that is under way; to read from a file. */
QS_API QS_MUST_CHECK qs_status qs_store_transaction_known(qs_store *store, qs_slice key,
                                                          bool *known_out, qs_error *error);

/* qs_store_forget_transaction - a key may be committed again.  Keys are kept until this is called, or the next function.
 *
 * Out:      count_out  0: there was no such key
 * Returns:  QS_ECORRUPT as above, QS_ESTORE_FULL.  Blocks: for a commit; to read from a file
 * Durable:  when it returns */
QS_API QS_MUST_CHECK qs_status qs_store_forget_transaction(qs_store *store, qs_slice key,
                                                           uint64_t *count_out, qs_error *error);
/* qs_store_forget_transactions - the same of all keys that were committed longer ago than this, in us of wall time; 0: of all.
 *
 * Blocks:   to read all keys */
QS_API QS_MUST_CHECK qs_status qs_store_forget_transactions(qs_store *store, uint64_t older_than_us,
                                                            uint64_t *count_out, qs_error *error);

/* ---- connections ---- */

/* qs_connection_open - what channels can share: exclusive queues belong to their connection, and go with it. */
QS_API QS_MUST_CHECK qs_status qs_connection_open(qs_connection **connection_out, qs_store *store,
                                                  qs_error *error);
/* qs_connection_close - close its channels, delete its exclusive queues, free.  Also after the store was closed.
 *
 * The channels' memory stays until qs_channel_close; a channel that waits in another thread answers QS_ECHANNEL_CLOSED. */
QS_API void qs_connection_close(qs_connection *connection);
/* qs_connection_is_closed - was it closed by an error, or with its store? */
QS_API bool qs_connection_is_closed(qs_connection *connection);
/* qs_connection_channel - open a channel.  QS_ECHANNEL_CLOSED when the connection is. */
QS_API QS_MUST_CHECK qs_status qs_connection_channel(qs_channel **channel_out,
                                                     qs_connection *connection, qs_error *error);

/* ---- channels ---- */

/* qs_channel_open - open a channel that is a connection of its own. */
QS_API QS_MUST_CHECK qs_status qs_channel_open(qs_channel **channel_out, qs_store *store,
                                               qs_error *error);
/* qs_channel_close - requeue everything unacked, cancel the consumers, free.  Also after the store was closed. */
QS_API void qs_channel_close(qs_channel *channel);

enum {
    QS_PASSIVE = 1,
    QS_DURABLE = 2,
    QS_EXCLUSIVE = 4,
    QS_AUTO_DELETE = 8,
    QS_INTERNAL = 16,
    QS_IF_UNUSED = 32,
    QS_IF_EMPTY = 64,
    QS_NO_ACK = 128,
    QS_MANDATORY = 256,
    QS_GLOBAL = 512,
    QS_MULTIPLE = 1024,
    QS_REQUEUE = 2048,
    QS_NO_WAIT = 4096,   /* of publish, get, ack, nack, settle_range; a kind of next_event */
    QS_REJECT = 8192,    /* of settle_range: as nack without QS_REQUEUE */
    QS_IN_TX = 16384,    /* of settle_range: part of the channel's transaction, if there is one */
    QS_WITHHELD = 32768, /* of recover: nothing but what was withheld */
    QS_IMMEDIATE = 32768,
    QS_BODY_CONSTANT = 65536, /* of publish: nobody changes the body during the call */
};

/* With QS_NO_WAIT a call waits for the store's lock and nothing else.  If it had to - for room in the journal or in memory, to write
 * a body to the message store, to read a message from a file - it answers QS_EWOULDBLOCK, and has done nothing; call again without. */

/* Arguments are AMQP field tables without the 4-byte length in front, keys in byte order; equal tables are equal bytes.
 * Declarations, bindings and deletions of durable things are journalled, and durable when the call returns.
 * Blocks: for a commit in that case. */
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_declare(qs_channel *channel, qs_slice exchange,
                                                           qs_slice type, uint32_t flags,
                                                           qs_slice arguments, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_delete(qs_channel *channel, qs_slice exchange,
                                                          uint32_t flags, qs_error *error);

/* From one exchange to another.  Every exchange passes a message on once, so circles end. */
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_bind(qs_channel *channel, qs_slice destination,
                                                        qs_slice source, qs_slice routing_key,
                                                        qs_slice arguments, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_exchange_unbind(qs_channel *channel, qs_slice destination,
                                                          qs_slice source, qs_slice routing_key,
                                                          qs_slice arguments, qs_error *error);

/* qs_queue_argument_name - the names of queue arguments that mean something, by index from 0; NULL
 * behind the last.  Any other is kept, and compared when the queue is declared again; but those that
 * ask for copies on other machines (x-queue-type other than classic, x-ha-*, x-quorum-*, ...) are
 * QS_PRECONDITION_FAILED. */
QS_API const char *qs_queue_argument_name(uint32_t index);

typedef struct qs_declare_ok {
    char queue[256]; /* NUL-terminated; the name made up by the store when "" was declared */
    uint64_t message_count, consumer_count;
} qs_declare_ok;
QS_API QS_MUST_CHECK qs_status qs_channel_queue_declare(qs_channel *channel, qs_slice queue,
                                                        uint32_t flags, qs_slice arguments,
                                                        qs_declare_ok *ok_out, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_queue_bind(qs_channel *channel, qs_slice queue,
                                                     qs_slice exchange, qs_slice routing_key,
                                                     qs_slice arguments, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_queue_unbind(qs_channel *channel, qs_slice queue,
                                                       qs_slice exchange, qs_slice routing_key,
                                                       qs_slice arguments, qs_error *error);
/* count_out: messages dropped, ready and delayed ones; unacked ones stay. */
QS_API QS_MUST_CHECK qs_status qs_channel_queue_purge(qs_channel *channel, qs_slice queue,
                                                      uint64_t *count_out, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_queue_delete(qs_channel *channel, qs_slice queue,
                                                       uint32_t flags, uint64_t *count_out,
                                                       qs_error *error);

/* ---- publishing ---- */

QS_API QS_MUST_CHECK qs_status qs_channel_confirm_select(qs_channel *channel, qs_error *error);
/* The number the next publish gets; 0 outside confirm mode. */
QS_API uint64_t qs_channel_next_publish_number(qs_channel *channel);

enum { QS_RECEIPT_ROWS = 8 };
typedef struct qs_receipt {
    uint64_t first_number, last_number; /* 0 outside confirm mode, or for an empty batch */
    uint64_t count;
    uint64_t lsn; /* durable when qs_store_durable_lsn() reaches it; 0: nothing to wait for */
    uint64_t unrouted_count; /* that no queue took; confirmed, and returned with QS_MANDATORY */
    uint64_t refused_count;  /* that a full queue refused: nacked */
    uint64_t refused_rows[QS_RECEIPT_ROWS]; /* the first of them, counted from 0 in the call */
} qs_receipt;

/* qs_channel_publish - hand one message to the queues that exchange, routing_key and headers lead to.  The strings in the headers
 * CC and BCC (arrays) are routing keys as well; BCC does not go with the message.
 *
 * In:      properties  encoded (codec: properties), or empty; delivery mode 2 in it makes the message persistent
 *          body        copied.  Another thread may change it meanwhile: then what was in it at some time is published, and with
 *                      QS_BODY_CONSTANT, which saves copying a large body twice, that would be a damaged message
 *          flags       QS_MANDATORY: an unroutable message comes back as an event
 * Returns: QS_OK accepted, not yet durable; QS_NOT_FOUND no such exchange; QS_ACCESS_REFUSED internal exchange;
 *          QS_NOT_IMPLEMENTED with QS_IMMEDIATE, which no broker has any more;
 *          QS_PRECONDITION_FAILED body too large, or the header CC or BCC is no array; QS_ESTORE_FULL nothing accepted, try
 *          again; QS_ESTORE_FAILED
 * Blocks:  when too much is waiting to be synced (it then helps to commit), and to write a large body
 * Durable: once receipt_out->lsn is */
QS_API QS_MUST_CHECK qs_status qs_channel_publish(qs_channel *channel, qs_slice exchange,
                                                  qs_slice routing_key, qs_slice properties,
                                                  qs_slice body, uint32_t flags,
                                                  qs_receipt *receipt_out, qs_error *error);

/* qs_channel_publish_delayed - the same, to be delivered delay_us from now at the earliest.
 *
 * The message is in its queues at once, and durable as any other, but not ready before it is due, by the store's clock, whatever
 * happens meanwhile.  Then it takes the place among ready messages that it was published at.  Its time to live begins when it is due.
 * In a transaction the delay begins with this call.
 * In:      delay_us  0: at once.  QS_EINVAL: more than 100 years */
QS_API QS_MUST_CHECK qs_status qs_channel_publish_delayed(qs_channel *channel, qs_slice exchange,
                                                          qs_slice routing_key, qs_slice properties,
                                                          qs_slice body, uint32_t flags,
                                                          uint64_t delay_us,
                                                          qs_receipt *receipt_out, qs_error *error);

/* qs_channel_ignore_returns - with ignored, unroutable mandatory messages are not kept for
 * QS_EVENT_RETURN from now on; in confirm mode they are counted, and the first is kept, for
 * qs_channel_take_ignored.
 *
 * Otherwise they are kept until they are read.  All channels together keep an eighth of
 * memory_budget of them (one always fits): a publish that would pass that is refused with
 * QS_ESTORE_FULL. */
QS_API QS_MUST_CHECK qs_status qs_channel_ignore_returns(qs_channel *channel, bool ignored,
                                                         qs_error *error);

typedef struct qs_batch {
    const struct ArrowSchema *schema; /* of a struct: the record batches' schema */
    const struct ArrowArray *const
        *arrays; /* array_count record batches; read in place, not released */
    size_t array_count;
    const char *body_column; /* NUL-terminated; "body" */
    qs_slice exchange;       /* where there is no such column (or it is null in a row) */
    qs_slice routing_key;
    qs_slice properties; /* encoded; a column beats it.  No delivery mode anywhere: persistent */
    uint32_t flags;      /* QS_MANDATORY */
} qs_batch;
/* qs_channel_publish_batch - publish every row of every array, in order, or nothing at all when anything is wrong.
 * The same statuses as qs_channel_publish, and QS_EINVAL for a batch that cannot be read (column or row named). */
QS_API QS_MUST_CHECK qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *batch,
                                                        qs_receipt *receipt_out, qs_error *error);

/* qs_channel_wait_confirms - return when every publish of this channel so far was confirmed or nacked.
 * Out: nacked_out  was any nacked since the last call.  QS_ETIMEDOUT.  Blocks: for a commit (leads it). */
QS_API QS_MUST_CHECK qs_status qs_channel_wait_confirms(qs_channel *channel, uint64_t timeout_ns,
                                                        bool *nacked_out, qs_error *error);

/* ---- transactions ---- */

QS_API QS_MUST_CHECK qs_status qs_channel_tx_select(qs_channel *channel, qs_error *error);
/* qs_channel_tx_commit - every publish and ack since the last commit, atomically, durable when this returns.
 * In:  key  not empty: recorded with the transaction; when it was committed before, nothing is done
 *           and *repeated_out is true (the buffered work is dropped) */
QS_API QS_MUST_CHECK qs_status qs_channel_tx_commit(qs_channel *channel, qs_slice key,
                                                    bool *repeated_out, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_tx_rollback(qs_channel *channel, qs_error *error);

/* ---- receiving ---- */

struct qs_message {
    uint64_t delivery_tag;
    uint32_t delivery_count; /* earlier deliveries */
    bool redelivered;
    qs_slice exchange, routing_key, properties, body, queue,
        consumer_tag; /* until qs_message_release */
    void *hold, *hold_names;
};
QS_API void qs_message_release(qs_message *message); /* zeroed is fine */

/* QS_EEMPTY: nothing ready. */
QS_API QS_MUST_CHECK qs_status qs_channel_get(qs_channel *channel, qs_slice queue,
                                              uint32_t flags /* QS_NO_ACK */,
                                              qs_message *message_out, qs_error *error);
/* qs_channel_get_batch - up to max_messages ready messages as one record batch (columns: docs/ARROW.md), which the caller
 * releases.  Zero rows when nothing came within timeout_ns.  bytes_max bounds the bodies, but one message always fits. */
QS_API QS_MUST_CHECK qs_status qs_channel_get_batch(qs_channel *channel, qs_slice queue,
                                                    uint64_t max_messages, uint64_t bytes_max,
                                                    uint32_t flags /* QS_NO_ACK */,
                                                    uint64_t timeout_ns,
                                                    struct ArrowSchema *schema_out,
                                                    struct ArrowArray *array_out, qs_error *error);

/* qs_channel_qos - how many messages may be unacknowledged, 0 for no limit: of each consumer to come or, with QS_GLOBAL, of all of the
 * channel's together; both hold.  A call without QS_GLOBAL lifts the channel's limit.  Got messages do not count.
 * prefetch_bytes: 0; QS_NOT_IMPLEMENTED otherwise, as from RabbitMQ */
QS_API QS_MUST_CHECK qs_status qs_channel_qos(qs_channel *channel, uint32_t prefetch_count,
                                              uint32_t prefetch_bytes,
                                              uint32_t flags /* QS_GLOBAL */, qs_error *error);
/* qs_channel_consume - register a consumer; qs_channel_next_event hands out what comes for it.
 *
 * In:      consumer_tag  "": made up; flags  QS_NO_ACK, QS_EXCLUSIVE; arguments  x-priority, others mean nothing
 * Out:     tag_out       the consumer's tag
 * Returns: QS_NOT_ALLOWED the channel has that tag; QS_NOT_FOUND; QS_RESOURCE_LOCKED; QS_PRECONDITION_FAILED x-priority is not a
 *          whole number; QS_ACCESS_REFUSED exclusive use; QS_EINVAL
 * A message goes to a consumer of the highest priority that has room in its prefetch, whether its channel asks or not. */
QS_API QS_MUST_CHECK qs_status qs_channel_consume(qs_channel *channel, qs_slice queue,
                                                  qs_slice consumer_tag, uint32_t flags,
                                                  qs_slice arguments, char tag_out[256],
                                                  qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_cancel(qs_channel *channel, qs_slice consumer_tag,
                                                 qs_error *error);

/* qs_channel_pause - have a consumer take no more messages, as when its prefetch is used up, or go on.  What it has stays with it.
 * For who reads the consumers of a channel one by one: what comes for the others meanwhile is bounded.  An unknown tag is no error. */
QS_API QS_MUST_CHECK qs_status qs_channel_pause(qs_channel *channel, qs_slice consumer_tag,
                                                bool paused, qs_error *error);

/* tag 0 with QS_MULTIPLE: all.  An unknown tag is QS_PRECONDITION_FAILED "unknown delivery tag N".  Not waited for. */
QS_API QS_MUST_CHECK qs_status qs_channel_ack(qs_channel *channel, uint64_t delivery_tag,
                                              uint32_t flags, qs_error *error);
QS_API QS_MUST_CHECK qs_status qs_channel_nack(qs_channel *channel, uint64_t delivery_tag,
                                               uint32_t flags /* QS_MULTIPLE, QS_REQUEUE */,
                                               qs_error *error);
/* qs_channel_nack_delayed - the same; what is requeued is not ready before delay_us are over, by the store's clock, whatever happens
 * meanwhile.  Then it is back in its place.  A message that was delivered as often as its queue lets it is dead-lettered at once.
 * In:      delay_us  0: no delay.  QS_EINVAL: more than 100 years, or a delay without QS_REQUEUE */
QS_API QS_MUST_CHECK qs_status qs_channel_nack_delayed(qs_channel *channel, uint64_t delivery_tag,
                                                       uint32_t flags, uint64_t delay_us,
                                                       qs_error *error);
/* Also what was withheld; with QS_WITHHELD only that. */
QS_API QS_MUST_CHECK qs_status qs_channel_recover(qs_channel *channel,
                                                  uint32_t flags /* QS_REQUEUE, QS_WITHHELD */,
                                                  qs_error *error);

/* qs_channel_withhold - these messages were taken, and could not be handed to whoever asked: none of the verbs above finds them any
 * more, and they take no room of a prefetch.  They stay unacked, and are ready again, as if they had not been taken, when the channel
 * is closed or recovers.  Messages whose body is damaged, or for which there is no memory, are withheld by the call that fails. */
QS_API QS_MUST_CHECK qs_status qs_channel_withhold(qs_channel *channel, uint64_t first_tag,
                                                   uint64_t last_tag, qs_error *error);

/* qs_channel_settle_range - what was taken for somebody who has it now, or never will: acknowledges what of these tags is outstanding
 * or, with QS_REQUEUE, puts it back, with QS_REJECT refuses it.  At once, whatever transaction is open, except for tags that it has
 * settled; with QS_IN_TX as part of it, as QS_MULTIPLE does that.
 * Returns: QS_EINVAL first_tag is 0 */
QS_API QS_MUST_CHECK qs_status qs_channel_settle_range(qs_channel *channel, uint64_t first_tag,
                                                       uint64_t last_tag, uint32_t flags,
                                                       qs_error *error);

/* The same, as qs_channel_nack_delayed. */
QS_API QS_MUST_CHECK qs_status qs_channel_settle_range_delayed(qs_channel *channel,
                                                               uint64_t first_tag,
                                                               uint64_t last_tag, uint32_t flags,
                                                               uint64_t delay_us, qs_error *error);

/* ---- events: what a broker would send unasked ---- */

enum {
    QS_EVENT_RETURN = 1,
    QS_EVENT_ACK = 2,
    QS_EVENT_NACK = 4,
    QS_EVENT_DELIVERY = 8,
    QS_EVENT_CANCEL = 16,
    QS_EVENT_CHANGE = 32, /* with QS_EVENT_ARM: whenever messages or confirms came, for whomever */
    QS_EVENT_ARM = 64,
};
typedef struct qs_event {
    uint32_t kind;
    uint64_t publish_number; /* ACK, NACK */
    bool multiple;           /* ACK, NACK: this number and all before it */
    uint64_t count;          /* ACK, NACK: of numbers of which nothing was said before */
    uint32_t reply_code;     /* RETURN: 312 */
    const char *reply_text;  /* RETURN: "NO_ROUTE" */
    qs_message message;      /* RETURN, DELIVERY; CANCEL: consumer_tag and queue only */
} qs_event;
/* qs_channel_next_event - the next event whose kind is in kinds, returns before acks.  ACK and NACK go
 * together: asking for one asks for both, so that numbers come in order.
 * QS_EEMPTY when none came within timeout_ns (0: do not wait).  The caller releases event_out->message.
 * A delivery counts against prefetch from here on.
 * With QS_EVENT_ARM in kinds and timeout_ns 0, an answer QS_EEMPTY arms qs_channel_event_fd: see there. */
QS_API QS_MUST_CHECK qs_status qs_channel_next_event(qs_channel *channel, uint32_t kinds,
                                                     uint64_t timeout_ns, qs_event *event_out,
                                                     qs_error *error);

/* qs_channel_take_ignored - how many mandatory messages came back in confirm mode while returns were
 * ignored, since the last call.
 *
 * Out: first_out  the first of them, as QS_EVENT_RETURN; kind 0 when there was none, or no room to
 *                 keep it.  The caller releases first_out->message */
QS_API QS_MUST_CHECK qs_status qs_channel_take_ignored(qs_channel *channel, qs_event *first_out,
                                                       uint64_t *count_out, qs_error *error);

/* qs_channel_event_fd - waiting without a thread: an eventfd for an event loop, non-blocking, close-on-exec.
 *
 * It is written once when an event of the kinds that it is armed for may be there, and when the channel is closed; armed by
 * qs_channel_next_event with QS_EVENT_ARM, under the same hold of the lock that found none, so none is missed.  A channel that is armed
 * waits as a thread in that call would: confirms are hurried, and consumers that come behind its own leave messages to them.
 * To wait: read the descriptor, take events until QS_EEMPTY, go back to the loop.  Unarmed it costs nothing.
 * The caller closes the descriptor, after qs_channel_close has returned, which writes to it a last time, and after the loop
 * has stopped watching it.  Nothing else closes it: a loop that watches a closed descriptor hears nothing, or reads what another
 * thread has opened under the same number.
 * Out:     fd_out    the same at each call; the caller's to close
 * Returns: QS_EINVAL the store has no background threads; QS_EIO no descriptor is left */
QS_API QS_MUST_CHECK qs_status qs_channel_event_fd(qs_channel *channel, int *fd_out,
                                                   qs_error *error);

#endif
