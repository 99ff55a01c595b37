/* Administration of a store: statistics, listings, browsing of queues, verification, and settings
 * of an operator. */
#ifndef QSTORE_ADMIN_H
#define QSTORE_ADMIN_H

#include "qstore/arrow.h"
#include "qstore/channel.h"

/* ---- numbers ---- */

typedef struct qs_stats {
#define QS_STAT(type, name, kind, text) type name; /* text */
#include "qstore/stats.def"
#undef QS_STAT
    qs_file_system file_system;
    char inbox_error[QS_ERROR_TEXT_BYTES]; /* the last error of the inbox; "": there was none */
} qs_stats;

/* qs_store_stats - counters since the store was opened; all 0 for a closed store. */
QS_API void qs_store_stats(qs_store *store, qs_stats *stats_out);

enum { QS_STAT_COUNTER = 1, QS_STAT_GAUGE = 2, QS_STAT_FIXED = 3, QS_STAT_FLAG = 4 };

typedef struct qs_stat {
    const char *name; /* of the member */
    const char *text; /* what it counts, for people */
    uint32_t kind;    /* QS_STAT_* */
    int64_t value;
} qs_stat;

/* qs_stats_at - return a member of stats by its index from 0, to list or export all of them.
 *
 * Returns: false behind the last */
QS_API bool qs_stats_at(const qs_stats *stats, uint32_t index, qs_stat *stat_out);

enum { QS_LATENCY_COMMIT, QS_LATENCY_CONFIRM };

/* qs_store_visit_latencies - call visit for each bucket of latencies that is not empty, shortest
 * first.  A bucket counts the commits that took most_us at most, and longer than the bucket before.
 *
 * In:      of  QS_LATENCY_COMMIT: write and fdatasync; _CONFIRM: append to durable
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_latencies(
    qs_store *store, uint32_t of, void (*visit)(void *context, uint64_t most_us, uint64_t count),
    void *context);

/* ---- counters ----
 *
 * A channel has counters until it is closed, an exchange and a queue until they are deleted.  Sums
 * over channels, closed ones included, exist for each open connection and for the store; they have
 * a channel's counters.  Counters begin at 0 when the store is opened and are not durable. */

enum {
    QS_COUNTS_CHANNEL,
    QS_COUNTS_EXCHANGE,
    QS_COUNTS_QUEUE,
    QS_COUNTS_ROUTE,
    QS_COUNTS_ALL_CHANNELS,
    QS_COUNTS_CONNECTION
};

typedef struct qs_count {
    const char *name;
    const char *text; /* what it counts, for people */
} qs_count;

/* qs_count_at - return a counter of QS_COUNTS_* by its index from 0.
 *
 * Returns: false behind the last */
QS_API bool qs_count_at(uint32_t of, uint32_t index, qs_count *count_out);

typedef struct qs_counts {
    uint32_t of;       /* QS_COUNTS_* */
    uint32_t length;   /* of values */
    uint64_t channel;  /* number of a channel or of a connection */
    qs_slice exchange; /* name, of an exchange and a route */
    qs_slice queue;    /* name, of a queue and a route */
    const uint64_t *values;
} qs_counts;

/* qs_store_visit_counts - call visit with the counters of each channel, connection, exchange and
 * queue, of each pair of exchange and queue that messages have taken, and of all channels together.
 * All counters are of one moment.
 *
 * The visitor runs under the store's lock, as visitors of listings do.
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_counts(
    qs_store *store, void (*visit)(void *context, const qs_counts *), void *context);

typedef struct qs_queue_status {
    uint64_t messages_ready, messages_unacked, messages_delayed /* not due yet */, consumers;
    uint64_t messages_passed; /* of a work queue: dropped by its stream before being settled */
    uint64_t slow_consumers;  /* qs_consumer_info.is_slow */
    uint64_t alpha, beta, gamma, delta; /* messages in each state */
    /* ready messages in each sub-queue: q4 and q1 have the alphas before and behind the first
     * message of another state, q3 and q2 the betas and gammas before and behind the first delta */
    uint64_t q1, q2, delta_len, q3, q4;
    uint64_t ram_bytes, disk_bytes;
    double target_ram_count;          /* infinity: no limit, memory is not short */
    double ingress_rate, egress_rate; /* messages a second, now */
    bool durable, exclusive, auto_delete, lazy, stream;
    uint64_t first, next; /* of a stream: its offsets are [first, next) */
    uint64_t segments;    /* of a stream: files, and the one that grows */
} qs_queue_status;

/* qs_store_queue_status - counts and rates of one queue.
 *
 * For a stream, messages_ready counts the messages that it keeps, alpha those in memory, delta
 * those in files alone, and messages_unacked those that its consumers have not acknowledged.
 * Returns: QS_NOT_FOUND (no channel is closed by it)
 * Blocks:  for a lazy queue, until its published messages have left memory */
QS_API QS_MUST_CHECK qs_status qs_store_queue_status(qs_store *store, qs_slice queue,
                                                     qs_queue_status *status_out, qs_error *error);

/* ---- listings ----
 *
 * Visitors run under the store's lock: copy what is needed and call nothing of this library. */

typedef struct qs_exchange_info {
    qs_slice name, type;
    bool durable, auto_delete, internal;
    qs_slice arguments; /* the encoded table as declared */
} qs_exchange_info;
typedef struct qs_queue_info {
    qs_slice name;
    bool durable, exclusive, auto_delete;
    uint64_t messages_ready, messages_delayed, messages_unacked, consumers, ram_bytes;
    uint64_t owner; /* of an exclusive queue: the number of its connection; 0: none */
    qs_slice arguments;
} qs_queue_info;
typedef struct qs_binding_info {
    qs_slice source, destination, routing_key, arguments;
    bool to_exchange;
} qs_binding_info;

/* qs_store_visit_queues - call visit for each queue.
 *
 * Returns: QS_OK, or the common statuses
 * Blocks:  to read the states of queues with expired messages */
QS_API QS_MUST_CHECK qs_status qs_store_visit_queues(
    qs_store *store, void (*visit)(void *context, const qs_queue_info *), void *context);

/* qs_store_visit_exchanges - call visit for each exchange, predeclared ones included.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_exchanges(
    qs_store *store, void (*visit)(void *context, const qs_exchange_info *), void *context);

/* qs_store_visit_bindings - call visit for each binding.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_bindings(
    qs_store *store, void (*visit)(void *context, const qs_binding_info *), void *context);

/* ---- looking into queues ---- */

/* qs_store_browse - return the next messages of a queue, ready, unacknowledged and delayed, as a
 * record batch.
 *
 * Nothing is delivered, and no count changes.  A store that is open for reading only has this in
 * place of channels.  No file is written, with one exception: for a work queue, bodies in the
 * message store that its stream has not written to its files yet are written there first.  For a
 * stream it returns durable messages, and the sequence is the offset.
 * Columns: those of qs_channel_get_batch with "sequence" (uint64) in place of "delivery_tag", and
 * "unacked" and "delayed" (bool) behind them.
 * In-out:  position_io  the position to begin at, 0 at first; on return, also after an error, the
 *                       position to continue at.  A position is the sequence of a message; in a
 *                       queue with priorities, the bits above the lowest 56 have the distance from
 *                       the highest priority
 * In:      messages_max, bytes_max   of bodies; one message comes in any case
 * Returns: QS_EEMPTY (there is none), QS_NOT_FOUND, QS_ECORRUPT (one message, or one segment,
 *          cannot be read: continue behind it), QS_EIO
 * Blocks:  to read what is not in memory
 * Owns:    *schema_out and *array_out: their own release callbacks */
QS_API QS_MUST_CHECK qs_status qs_store_browse(qs_store *store, qs_slice queue,
                                               uint64_t *position_io, uint64_t messages_max,
                                               uint64_t bytes_max, struct ArrowSchema *schema_out,
                                               struct ArrowArray *array_out, qs_error *error);

enum { QS_MESSAGE_READY, QS_MESSAGE_UNACKED, QS_MESSAGE_DELAYED };

/* qs_store_peek - return the next message of a queue, as qs_store_browse does; its delivery_tag is
 * its position.
 *
 * Out:     state_out  QS_MESSAGE_*
 * Returns: as qs_store_browse
 * Blocks:  to read what is not in memory
 * Owns:    *message_out: qs_message_release */
QS_API QS_MUST_CHECK qs_status qs_store_peek(qs_store *store, qs_slice queue, uint64_t *position_io,
                                             uint32_t *state_out, qs_message *message_out,
                                             qs_error *error);

/* ---- verification ---- */

typedef struct qs_verify_callbacks { /* each may be NULL */
    /* Called now and then, and at the end.  If it returns false, qs_store_verify stops with
     * QS_EINTR. */
    bool (*progress)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    /* Called for each damaged place: what->path, what->offset, and a text for people. */
    void (*damage)(void *context, const qs_error *what);
    void *context;
} qs_verify_callbacks;

typedef struct qs_verified { /* what was read and checked */
    uint64_t journal_records, journal_bytes /* behind the checkpoint */, checkpoint_records;
    uint64_t segments, bodies /* references to the message store */, body_bytes;
    uint64_t queues; /* durable ones */
    uint64_t damages;
} qs_verified;

/* qs_store_verify - read and check all files that a store needs.
 *
 * These are MANIFEST, the checkpoint, the journal, the segments that the checkpoint names, and the
 * bodies of messages in queues.  The store must not be open for writing; other readers share the
 * lock.  Nothing is written or repaired.  An unfinished end of the journal after a crash is no
 * damage, nor is damage in bytes that are not needed any more.
 * In:      callbacks  NULL: there are no reports
 * Returns: QS_ECORRUPT (something is damaged: error has the first damage; the rest is checked as
 *          far as possible), QS_ESTORE_NOT_FOUND, QS_ESTORE_LOCKED, QS_EVERSION, QS_EIO, QS_EINTR
 * Blocks:  to read all of it */
QS_API QS_MUST_CHECK qs_status qs_store_verify(const char *path, qs_env *env,
                                               const qs_verify_callbacks *callbacks,
                                               qs_verified *verified_out, qs_error *error);

/* ---- settings of an operator ---- */

/* qs_store_set_queue_mode - make a queue lazy or not, as x-queue-mode does in a declaration.
 *
 * Messages published to a lazy queue go to the disk at once, and come back a segment at a time.
 * Returns: QS_NOT_FOUND
 * Blocks:  for a commit, if the queue is durable
 * Durable: when it returns, if the queue is */
QS_API QS_MUST_CHECK qs_status qs_store_set_queue_mode(qs_store *store, qs_slice queue, bool lazy,
                                                       qs_error *error);

/* qs_store_accept_clock - set the store's clock to the machine's wall clock.
 *
 * Messages expire by the store's clock.  While the store is open, it advances with the monotonic
 * clock.  At open it is the wall clock, unless that is before the last time the store knows, or
 * more than 30 days behind it.  Then it continues from that last time, and clock_ahead_us of the
 * stats has the difference.
 * Returns: QS_EIO, QS_ESTORE_FULL
 * Blocks:  for a commit
 * Durable: when it returns */
QS_API QS_MUST_CHECK qs_status qs_store_accept_clock(qs_store *store, qs_error *error);

/* qs_store_transaction_known - whether a transaction with this key was committed (durably) on this
 * store and not forgotten.
 *
 * Returns: QS_ECORRUPT (the file that may have the key is damaged)
 * Blocks:  for a running commit with that key; to read from a file */
QS_API QS_MUST_CHECK qs_status qs_store_transaction_known(qs_store *store, qs_slice key,
                                                          bool *known_out, qs_error *error);

/* qs_store_forget_transaction - forget a key, so that it may be committed again.  Keys are kept
 * until this function or the next one forgets them.
 *
 * Out:     count_out  0: there was no such key
 * Returns: QS_ECORRUPT (the file that may have the key is damaged), QS_ESTORE_FULL
 * Blocks:  for a commit; to read from a file
 * Durable: when it returns */
QS_API QS_MUST_CHECK qs_status qs_store_forget_transaction(qs_store *store, qs_slice key,
                                                           uint64_t *count_out, qs_error *error);

/* qs_store_forget_transactions - forget all keys that were committed longer ago than older_than_us.
 *
 * In:      older_than_us  of wall time; 0: all
 * Returns: as qs_store_forget_transaction
 * Blocks:  for a commit; to read all keys
 * Durable: when it returns */
QS_API QS_MUST_CHECK qs_status qs_store_forget_transactions(qs_store *store, uint64_t older_than_us,
                                                            uint64_t *count_out, qs_error *error);

#endif
