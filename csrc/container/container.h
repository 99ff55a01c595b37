/* Containers: the interface of the engine to an object that has the messages published to a name.
 *
 * A kind of container fills in a table of operations, and begins its own structure with a struct
 * qsi_container.  The engine appends, takes, settles, pages, replays and deletes through the table.
 * It reads the fields of struct qsi_container; only the kind writes them.  Functions of one kind
 * only (a queue delays messages, expires them, and has states) are in the kind's own header.
 *
 * A message has a sequence: 64 bits, counting up, never reused in its container.
 *
 * The operations of a kind are its abilities.  Taking and settling are for kinds whose messages
 * leave when they are acknowledged; they are NULL in a kind that keeps messages for any number of
 * readers (qsi_container_takes).  Appending is NULL in a kind whose messages belong to another
 * container (qsi_container_appends).  Trimming, files and writing directly are for kinds with block
 * files, whose oldest messages leave together.
 *
 * REQUIRES the engine's lock for every call, except those that say otherwise.  Chunks are immutable
 * and may be read without it by holders of references. */
#ifndef QSI_CONTAINER_H
#define QSI_CONTAINER_H

#include "check.h"
#include "container_jobs.h"
#include "record.h"
#include "run.h"
#include "thread_safety.h"

struct qsi_container_kind;
struct qsi_segment;               /* has the states of messages; defined by the kind */
struct qsi_stream_direct_options; /* stream.h, with the job's other steps */
struct qsi_stream_flush_job;
struct qsi_stream_written; /* stream_record.h */

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_container {
    const struct qsi_container_kind *kind;
    uint64_t id; /* never reused */
    bool durable;
    uint64_t next_seq GUARDED;    /* sequence of the next appended message */
    uint64_t flushed_seq GUARDED; /* live messages below this are in the container's own files */
    uint64_t ram_bytes GUARDED;   /* of runs */
    uint64_t ram_count GUARDED;   /* live messages of runs */
    /* Counts since the open, for the rates. */
    uint64_t in_count GUARDED, taken_count GUARDED, settled_count GUARDED;
};
#undef GUARDED

/* Consecutive messages of one run, in one word of their segment's bitmaps. */
struct qsi_stretch {
    struct qsi_segment *segment;
    const struct qsi_run *run;
    uint32_t slot;    /* in the segment */
    uint32_t run_row; /* in the run */
    uint32_t count;
};

enum qsi_take {
    QSI_TAKE_TAKEN,
    QSI_TAKE_EMPTY, /* none is ready */
    QSI_TAKE_PAGED, /* the first ready message is not in memory */
};

typedef void qsi_range_visitor(void *context, uint64_t first_seq, uint32_t count);

/* The operations.  The function below that calls an operation describes it. */
struct qsi_container_kind {
    const char *name;
    bool keeps_all; /* transient messages survive, too: all are journalled, with their time */
    /* The most bytes carried by a checkpoint; 0: as many as the checkpoint allows. */
    uint64_t carried_max;

    qs_status (*reserve)(struct qsi_container *container, uint32_t run_count,
                         uint64_t message_count, bool any_transient);
    qs_status (*reserve_one)(struct qsi_container *container, struct qsi_chunk *chunk,
                             bool journalled);
    /* NULL: messages have no expiry and no delay of their own. */
    qs_status (*reserve_times)(struct qsi_container *container, const uint8_t *record,
                               uint64_t count);
    uint64_t (*append)(struct qsi_container *container, struct qsi_run *run);
    uint64_t (*append_one)(struct qsi_container *container, struct qsi_chunk *chunk,
                           uint32_t record_at, uint32_t ram_bytes, bool journalled, bool stored);

    enum qsi_take (*take)(struct qsi_container *container, uint32_t max_count,
                          struct qsi_stretch *stretch_out);
    void (*untake)(struct qsi_container *container, struct qsi_stretch *stretch,
                   uint32_t keep_count);

    void (*settle)(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                   uint64_t mask);
    void (*requeue)(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                    uint64_t mask);
    void (*give_back)(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask);
    uint64_t (*purge)(struct qsi_container *container, qsi_range_visitor *visit, void *context);
    uint64_t (*purge_ranges)(const struct qsi_container *container);
    qs_status (*reserve_purge)(struct qsi_container *container); /* NULL: no room is needed */

    uint64_t (*ready_count)(const struct qsi_container *container);
    uint64_t (*drop_content)(struct qsi_container *container, uint64_t keep_count, uint64_t bytes);
    void (*drop_states)(struct qsi_container *container); /* NULL: there are no states */
    uint64_t (*unflushed_bytes)(const struct qsi_container *container);
    uint64_t (*checkpoint_bytes)(const struct qsi_container *container);
    qs_status (*begin_flush)(struct qsi_container *container, uint64_t bytes_max,
                             struct qsi_job **job_out);
    bool (*is_flushing)(const struct qsi_container *container); /* NULL: only begin_flush knows */
    qs_status (*begin_state)(struct qsi_container *container,
                             struct qsi_job **job_out); /* NULL: there are no states */

    qs_status (*snapshot)(struct qsi_container *container, struct qsi_carried *carried,
                          struct qsi_snapshot **snapshot_out);
    qs_status (*restore)(struct qsi_container *container, const uint8_t *record,
                         uint64_t *next_seq_io, qs_error *error);

    void (*start_at)(struct qsi_container *container, uint64_t seq);
    qs_status (*skip_to)(struct qsi_container *container, uint64_t seq);
    qs_status (*replay_settle)(struct qsi_container *container, const struct qsi_settle *settle);
    qs_status (*mark_all_seen)(struct qsi_container *container);
    qs_status (*sync_named)(struct qsi_container *container,
                            qs_error *error); /* NULL: the journal names no files of this kind */

    qs_status (*trim_to)(struct qsi_container *container,
                         uint64_t first); /* NULL: each message leaves by itself */
    bool (*has_file)(const struct qsi_container *container, uint64_t number,
                     bool sealed); /* NULL: it has no block files */
    /* NULL, these three: it is not written directly. */
    uint64_t (*direct_max)(const struct qsi_container *container);
    qs_status (*begin_direct)(struct qsi_container *container,
                              const struct qsi_stream_direct_options *options,
                              struct qsi_stream_flush_job **job_out);
    qs_status (*replay_written)(struct qsi_container *container,
                                const struct qsi_stream_written *written, qs_error *error);

    void (*abandon)(struct qsi_container *container);
    void (*fini)(struct qsi_container *container);
};

/* Whether messages are taken by consumers, and leave when they are settled.  Otherwise they stay,
 * and are read. */
static inline bool qsi_container_takes(const struct qsi_container *container)
{
    return container->kind->take != NULL;
}
/* Whether transient messages survive the process like others.  Then all records have their time of
 * publishing. */
static inline bool qsi_container_keeps_all(const struct qsi_container *container)
{
    return container->kind->keeps_all;
}
/* Whether messages are published to it. */
static inline bool qsi_container_appends(const struct qsi_container *container)
{
    return container->kind->append != NULL;
}
/* Do its oldest messages leave together, whether they were settled or not? */
static inline bool qsi_container_is_trimmed(const struct qsi_container *container)
{
    return container->kind->trim_to != NULL;
}
/* May messages be written into its files before the journal names them? */
static inline bool qsi_container_is_direct(const struct qsi_container *container)
{
    return container->kind->begin_direct != NULL;
}

/* ---- append ---- */

/* Makes room for run_count more runs with message_count messages in all: append cannot fail then.
 * any_transient: some of them end with the process.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve(struct qsi_container *container,
                                                            uint32_t run_count,
                                                            uint64_t message_count,
                                                            bool any_transient)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve(container, run_count, message_count, any_transient);
}
/* Makes room for one message, with its record in chunk. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_one(struct qsi_container *container,
                                                                struct qsi_chunk *chunk,
                                                                bool journalled)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_one(container, chunk, journalled);
}
/* Makes room for expirations and due times of the next count messages, if the record has any.
 * REQUIRES the other room. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_times(struct qsi_container *container,
                                                                  const uint8_t *record,
                                                                  uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_times != NULL
               ? container->kind->reserve_times(container, record, count)
               : QS_OK;
}
/* Appends a run, which the container then owns.  Returns the sequence of its first message. */
static inline uint64_t qsi_container_append(struct qsi_container *container, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    QS_DCHECK(run->count > 0 && run->live_count == run->count);
    return container->kind->append(container, run);
}
/* Appends one message with its record at data[record_at] of chunk.  Returns its sequence. */
static inline uint64_t qsi_container_append_one(struct qsi_container *container,
                                                struct qsi_chunk *chunk, uint32_t record_at,
                                                uint32_t ram_bytes, bool journalled, bool stored)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(record_at < chunk->used && container->flushed_seq <= container->next_seq);
    return container->kind->append_one(container, chunk, record_at, ram_bytes, journalled, stored);
}

/* ---- take ---- */

/* Takes the first ready messages, at most max_count: they become out. */
static inline QS_MUST_CHECK enum qsi_take qsi_container_take(struct qsi_container *container,
                                                             uint32_t max_count,
                                                             struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(max_count > 0);
    return container->kind->take(container, max_count, stretch_out);
}
/* Gives back the last messages of a stretch that was just taken, as if they were not taken. */
static inline void qsi_container_untake(struct qsi_container *container,
                                        struct qsi_stretch *stretch, uint32_t keep_count)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(keep_count <= stretch->count);
    container->kind->untake(container, stretch, keep_count);
}

/* ---- settle: masks of messages that are out, in one word (slot / 64) of a segment ---- */

/* Settles messages: acknowledged or dropped.  May retire the segment. */
static inline void qsi_container_settle(struct qsi_container *container,
                                        struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->settle(container, segment, word, mask);
}
/* Makes messages ready again, marked as delivered before.  Cannot fail. */
static inline void qsi_container_requeue(struct qsi_container *container,
                                         struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->requeue(container, segment, word, mask);
}
/* Makes messages ready again as if they were never taken: no delivery is counted. */
static inline void qsi_container_give_back(struct qsi_container *container,
                                           struct qsi_segment *segment, uint32_t word,
                                           uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->give_back(container, segment, word, mask);
}
/* Drops every message that is not out; visit gets ranges that have all of these and none that is
 * out.  Returns the number of dropped messages. */
static inline uint64_t qsi_container_purge(struct qsi_container *container,
                                           qsi_range_visitor *visit, void *context)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->purge(container, visit, context);
}
/* The most ranges that a purge would visit. */
static inline uint64_t qsi_container_purge_ranges(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->purge_ranges(container);
}
/* Makes room for a purge, which cannot fail then.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_purge(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_purge != NULL ? container->kind->reserve_purge(container)
                                                  : QS_OK;
}

/* ---- contents ---- */

/* The number of available messages: ready ones, or all that can be read. */
static inline uint64_t qsi_container_ready_count(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->ready_count(container);
}

/* ---- page ---- */

/* Whether all messages are in its own files. */
static inline bool qsi_container_is_flushed(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    return container->flushed_seq == container->next_seq;
}
/* Drops flushed content of messages that are out or after the first keep_count ready ones, until
 * bytes were dropped from its share.  Returns the dropped bytes. */
static inline uint64_t qsi_container_drop_content(struct qsi_container *container,
                                                  uint64_t keep_count, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->drop_content(container, keep_count, bytes);
}
/* Drops states of messages that are in its files, too. */
static inline void qsi_container_drop_states(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (container->kind->drop_states != NULL) {
        container->kind->drop_states(container);
    }
}
/* Bytes that are not flushed and would survive the process: a snapshot flushes or carries them. */
static inline uint64_t qsi_container_unflushed_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->unflushed_bytes(container);
}
/* The approximate bytes that a checkpoint would write to its files, at most. */
static inline uint64_t qsi_container_checkpoint_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->checkpoint_bytes(container);
}
/* Begins a job that writes messages from flushed_seq on to the container's files, about bytes_max
 * of content at most.  QS_EEMPTY: there is nothing to write, and flushed_seq is up to date. */
static inline QS_MUST_CHECK qs_status qsi_container_begin_flush(struct qsi_container *container,
                                                                uint64_t bytes_max,
                                                                struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    return container->kind->begin_flush(container, bytes_max, job_out);
}
/* Whether its files are being written, by a flush or by another writer without the lock.  Then no
 * flush may begin. */
static inline bool qsi_container_is_flushing(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->is_flushing != NULL && container->kind->is_flushing(container);
}
/* Begins a job that writes changed states, so that they can be dropped.  QS_EEMPTY: there are
 * none. */
static inline QS_MUST_CHECK qs_status qsi_container_begin_state(struct qsi_container *container,
                                                                struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->begin_state != NULL ? container->kind->begin_state(container, job_out)
                                                : QS_EEMPTY;
}

/* Whether it has the block file of that number; sealed: and never writes to it again. */
static inline bool qsi_container_has_file(const struct qsi_container *container, uint64_t number,
                                          bool sealed) QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->has_file != NULL &&
           container->kind->has_file(container, number, sealed);
}

/* ---- trim ---- */

/* Drops messages below first (at most flushed_seq; if it is not above the present first, nothing
 * happens).  REQUIRES qsi_container_is_trimmed.  QS_ENOMEM: nothing was done. */
static inline QS_MUST_CHECK qs_status qsi_container_trim_to(struct qsi_container *container,
                                                            uint64_t first)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(first <= container->next_seq);
    return container->kind->trim_to(container, first);
}

/* ---- write directly ----
 *
 * REQUIRES qsi_container_is_direct.  What is written, and the job, are those of streams: no other
 * kind can be written directly so far.  Operations are only what engine and recovery do by queue:
 * the bound, the beginning and the replay; stream.h has the steps of the job. */

/* The most bytes of records that one job may write. */
static inline uint64_t qsi_container_direct_max(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(qsi_container_is_direct(container));
    return container->kind->direct_max(container);
}
/* A job that writes large records, or takes staged files, before they are appended.  QS_EEMPTY: not
 * now; the journal takes them.  REQUIRES that nothing flushes. */
static inline QS_MUST_CHECK qs_status qsi_container_begin_direct(
    struct qsi_container *container, const struct qsi_stream_direct_options *options,
    struct qsi_stream_flush_job **job_out) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(qsi_container_is_direct(container) && !qsi_container_is_flushing(container));
    return container->kind->begin_direct(container, options, job_out);
}
/* Recovery: applies the record of such a job.  QS_ECORRUPT, QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_replay_written(
    struct qsi_container *container, const struct qsi_stream_written *written, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(qsi_container_is_direct(container));
    return container->kind->replay_written(container, written, error);
}

/* ---- checkpoints ---- */

/* Begins a snapshot of a durable container for a checkpoint, with the jobs that it needs
 * (container_jobs.h).  *snapshot_out: NULL, or must be ended, whatever is returned.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_snapshot(struct qsi_container *container,
                                                             struct qsi_carried *carried,
                                                             struct qsi_snapshot **snapshot_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->durable);
    *snapshot_out = NULL;
    return container->kind->snapshot(container, carried, snapshot_out);
}
/* For open: restores a record that a snapshot encoded, in the order of encoding, before anything
 * else is added.  *next_seq_io: lower sequences must not be assigned again, once the carried
 * messages are restored.  QS_ECORRUPT, QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_restore(struct qsi_container *container,
                                                            const uint8_t *record,
                                                            uint64_t *next_seq_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->restore(container, record, next_seq_io, error);
}

/* ---- replay ---- */

/* Begins at seq: lower messages were flushed.  REQUIRES that nothing was appended. */
static inline void qsi_container_start_at(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->ram_count == 0);
    container->kind->start_at(container, seq);
}
/* Does not assign sequences below seq any more.  Recovery needs this because transient messages
 * left gaps, a checkpoint because later slots must be on a new page.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_skip_to(struct qsi_container *container,
                                                            uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->skip_to(container, seq);
}
/* Settles, requeues or delays by sequence; missing sequences are skipped.  QS_ENOMEM: nothing was
 * done. */
static inline QS_MUST_CHECK qs_status qsi_container_replay_settle(struct qsi_container *container,
                                                                  const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(settle->queue_id == container->id);
    return container->kind->replay_settle(container, settle);
}
/* Marks every message as delivered before.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_mark_all_seen(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->mark_all_seen(container);
}
/* For open, after the replay: syncs the parts of its files that the journal named, which may be
 * only in the page cache. */
static inline QS_MUST_CHECK qs_status qsi_container_sync_named(struct qsi_container *container,
                                                               qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->sync_named != NULL ? container->kind->sync_named(container, error)
                                               : QS_OK;
}

/* ---- the end ---- */

/* Deletes it: purges it, and drops the references of messages that are out as well. */
static inline void qsi_container_abandon(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    container->kind->abandon(container);
}
/* Frees it.  REQUIRES that no job is running.  References are not dropped, because the process
 * ends, not the messages. */
static inline void qsi_container_fini(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    container->kind->fini(container);
}

#endif
