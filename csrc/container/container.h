/* Containers: what keeps the messages that were published to a name, and what the engine may ask of
 * it.
 *
 * A kind of container fills a table of operations and puts a struct qsi_container first into a
 * structure of its own.  The engine appends, takes, settles, pages, replays and deletes through the
 * table.  It reads the fields of the head; only the kind writes them.  What one kind alone can do
 * (a queue delays messages, expires them, has a state for each) is in that kind's own header.
 *
 * A message has a sequence: 64 bits, counting up, never reused in its container.
 *
 * What a kind can do is what it has operations for.  Those of taking and settling belong to kinds
 * whose messages leave when they are acknowledged, and are NULL in a kind that keeps them for any
 * number of readers (qsi_container_takes).  Those of appending are NULL in a kind whose messages
 * are another container's (qsi_container_appends).
 *
 * REQUIRES lock: the engine's covers every call, but for the few that say so.  Chunks are immutable
 * and may be read without it while referenced. */
#ifndef QSI_CONTAINER_H
#define QSI_CONTAINER_H

#include "check.h"
#include "container_jobs.h"
#include "record.h"
#include "run.h"
#include "thread_safety.h"

struct qsi_container_kind;
struct qsi_segment; /* what the states of messages stand in: the kind's own */

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_container {
    const struct qsi_container_kind *kind;
    uint64_t id; /* never reused */
    bool durable;
    uint64_t next_seq GUARDED;    /* of the message that is appended next */
    uint64_t flushed_seq GUARDED; /* what is below and live is in the container's own files */
    uint64_t ram_bytes GUARDED;   /* of runs */
    uint64_t ram_count GUARDED;   /* live messages of runs */
    /* since open, for the rates */
    uint64_t in_count GUARDED, taken_count GUARDED, settled_count GUARDED;
};
#undef GUARDED

/* Consecutive messages of one run, within one word of their segment's bitmaps. */
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

/* Each operation is described at the function below that calls it. */
struct qsi_container_kind {
    const char *name;
    bool keeps_all;       /* transient messages as well: all are journalled, and tell their time */
    uint64_t carried_max; /* bytes that a checkpoint carries at most; 0: as many as it may */

    qs_status (*reserve)(struct qsi_container *container, uint32_t run_count,
                         uint64_t message_count, bool any_transient);
    qs_status (*reserve_one)(struct qsi_container *container, struct qsi_chunk *chunk,
                             bool journalled);
    qs_status (*reserve_times)(struct qsi_container *container, const uint8_t *record,
                               uint64_t count); /* NULL: none expires by itself or is delayed */
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
    qs_status (*reserve_purge)(struct qsi_container *container); /* NULL: it needs no room */

    uint64_t (*ready_count)(const struct qsi_container *container);
    uint64_t (*drop_content)(struct qsi_container *container, uint64_t keep_count, uint64_t bytes);
    void (*drop_states)(struct qsi_container *container); /* NULL: it has none */
    uint64_t (*unflushed_bytes)(const struct qsi_container *container);
    uint64_t (*checkpoint_bytes)(const struct qsi_container *container);
    qs_status (*begin_flush)(struct qsi_container *container, uint64_t bytes_max,
                             struct qsi_job **job_out);
    bool (*is_flushing)(const struct qsi_container *container); /* NULL: begin_flush alone knows */
    qs_status (*begin_state)(struct qsi_container *container,
                             struct qsi_job **job_out); /* NULL: it has none */

    qs_status (*snapshot)(struct qsi_container *container, struct qsi_carried *carried,
                          struct qsi_snapshot **snapshot_out);
    qs_status (*restore)(struct qsi_container *container, const uint8_t *record,
                         uint64_t *next_seq_io, qs_error *error);

    void (*start_at)(struct qsi_container *container, uint64_t seq);
    qs_status (*skip_to)(struct qsi_container *container, uint64_t seq);
    qs_status (*replay_settle)(struct qsi_container *container, const struct qsi_settle *settle);
    qs_status (*mark_all_seen)(struct qsi_container *container);
    qs_status (*sync_named)(struct qsi_container *container,
                            qs_error *error); /* NULL: the journal names none of its files */

    void (*abandon)(struct qsi_container *container);
    void (*fini)(struct qsi_container *container);
};

/* Are messages taken by who gets them, and leave when they are settled?  Else they stay, and are
 * read. */
static inline bool qsi_container_takes(const struct qsi_container *container)
{
    return container->kind->take != NULL;
}
/* Do transient messages outlive the process in it, as all others?  Then all are told when they were
 * published. */
static inline bool qsi_container_keeps_all(const struct qsi_container *container)
{
    return container->kind->keeps_all;
}
/* Are messages published to it? */
static inline bool qsi_container_appends(const struct qsi_container *container)
{
    return container->kind->append != NULL;
}

/* ---- append ---- */

/* Room for run_count more runs with message_count messages in all: append cannot fail then.
 * any_transient: some of them end with the process.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve(struct qsi_container *container,
                                                            uint32_t run_count,
                                                            uint64_t message_count,
                                                            bool any_transient)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve(container, run_count, message_count, any_transient);
}
/* Room for one message whose record will lie in chunk. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_one(struct qsi_container *container,
                                                                struct qsi_chunk *chunk,
                                                                bool journalled)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_one(container, chunk, journalled);
}
/* Room to note when the next count messages expire and are due, as far as the record says such a
 * thing of its rows.  REQUIRES the other room. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_times(struct qsi_container *container,
                                                                  const uint8_t *record,
                                                                  uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_times != NULL
               ? container->kind->reserve_times(container, record, count)
               : QS_OK;
}
/* Returns the sequence of the run's first message.  The container owns the run. */
static inline uint64_t qsi_container_append(struct qsi_container *container, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    QS_DCHECK(run->count > 0 && run->live_count == run->count);
    return container->kind->append(container, run);
}
/* One message whose record is at data[record_at] of chunk.  Returns its sequence. */
static inline uint64_t qsi_container_append_one(struct qsi_container *container,
                                                struct qsi_chunk *chunk, uint32_t record_at,
                                                uint32_t ram_bytes, bool journalled, bool stored)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(record_at < chunk->used && container->flushed_seq <= container->next_seq);
    return container->kind->append_one(container, chunk, record_at, ram_bytes, journalled, stored);
}

/* ---- take ---- */

/* The first ready messages, max_count at most; they are out from now on. */
static inline QS_MUST_CHECK enum qsi_take qsi_container_take(struct qsi_container *container,
                                                             uint32_t max_count,
                                                             struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(max_count > 0);
    return container->kind->take(container, max_count, stretch_out);
}
/* Gives the last messages of a stretch that was just taken back, as if they had not been. */
static inline void qsi_container_untake(struct qsi_container *container,
                                        struct qsi_stretch *stretch, uint32_t keep_count)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(keep_count <= stretch->count);
    container->kind->untake(container, stretch, keep_count);
}

/* ---- settle: masks of messages that are out, in one word (slot / 64) of a segment ---- */

/* Acked or dropped.  May retire the segment. */
static inline void qsi_container_settle(struct qsi_container *container,
                                        struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->settle(container, segment, word, mask);
}
/* Ready again, and delivered before.  It cannot fail. */
static inline void qsi_container_requeue(struct qsi_container *container,
                                         struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->requeue(container, segment, word, mask);
}
/* Ready again as if never taken: it does not count, and shows nowhere. */
static inline void qsi_container_give_back(struct qsi_container *container,
                                           struct qsi_segment *segment, uint32_t word,
                                           uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0);
    container->kind->give_back(container, segment, word, mask);
}
/* Drops every message that is not out; visit gets ranges that hold all of them and none that is
 * out.  Returns how many were dropped. */
static inline uint64_t qsi_container_purge(struct qsi_container *container,
                                           qsi_range_visitor *visit, void *context)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->purge(container, visit, context);
}
/* How many ranges a purge would visit at most. */
static inline uint64_t qsi_container_purge_ranges(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->purge_ranges(container);
}
/* Room for a purge, which cannot fail then.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_reserve_purge(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->reserve_purge != NULL ? container->kind->reserve_purge(container)
                                                  : QS_OK;
}

/* ---- what it has ---- */

/* Messages that are there to be had: ready ones, or all that may be read. */
static inline uint64_t qsi_container_ready_count(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->ready_count(container);
}

/* ---- page ---- */

/* Is there nothing that its own files do not have? */
static inline bool qsi_container_is_flushed(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    return container->flushed_seq == container->next_seq;
}
/* Drops content that is flushed, of messages that are out or behind the first keep_count ready
 * ones, until bytes were dropped from its share.  Returns how many bytes. */
static inline uint64_t qsi_container_drop_content(struct qsi_container *container,
                                                  uint64_t keep_count, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->drop_content(container, keep_count, bytes);
}
/* Drops states of messages that its files have too. */
static inline void qsi_container_drop_states(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (container->kind->drop_states != NULL) {
        container->kind->drop_states(container);
    }
}
/* What is not flushed and would outlive the process: a snapshot flushes it or carries it. */
static inline uint64_t qsi_container_unflushed_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->unflushed_bytes(container);
}
/* About what a checkpoint would write to its files at most. */
static inline uint64_t qsi_container_checkpoint_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->checkpoint_bytes(container);
}
/* A job that writes what lies from flushed_seq on to the container's files, about bytes_max of
 * content at most.  QS_EEMPTY: nothing is left to be written, and flushed_seq says so. */
static inline QS_MUST_CHECK qs_status qsi_container_begin_flush(struct qsi_container *container,
                                                                uint64_t bytes_max,
                                                                struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    return container->kind->begin_flush(container, bytes_max, job_out);
}
/* Is something written to its files, by a flush or beside the lock?  Then none is to begin. */
static inline bool qsi_container_is_flushing(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->is_flushing != NULL && container->kind->is_flushing(container);
}
/* A job that writes changed states, so that they can be dropped.  QS_EEMPTY: there are none. */
static inline QS_MUST_CHECK qs_status qsi_container_begin_state(struct qsi_container *container,
                                                                struct qsi_job **job_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->begin_state != NULL ? container->kind->begin_state(container, job_out)
                                                : QS_EEMPTY;
}

/* ---- checkpoints ---- */

/* What a checkpoint says of a durable container as it is now, and the jobs which that takes
 * (container_jobs.h).  *snapshot_out: NULL, or to be ended, whatever is returned.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_snapshot(struct qsi_container *container,
                                                             struct qsi_carried *carried,
                                                             struct qsi_snapshot **snapshot_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->durable);
    *snapshot_out = NULL;
    return container->kind->snapshot(container, carried, snapshot_out);
}
/* Open: a record that a snapshot encoded, in the order in which it did, before anything else
 * comes into the container.  *next_seq_io: no sequence below is to be given out again, once what
 * the checkpoint carries is there.  QS_ECORRUPT, QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_restore(struct qsi_container *container,
                                                            const uint8_t *record,
                                                            uint64_t *next_seq_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->restore(container, record, next_seq_io, error);
}

/* ---- replay ---- */

/* Begins at seq: what is below was flushed.  REQUIRES that nothing was appended. */
static inline void qsi_container_start_at(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(container->ram_count == 0);
    container->kind->start_at(container, seq);
}
/* Gives out no sequence below seq any more (recovery: transient messages left gaps; checkpoints:
 * the next message shares no page of slots with the last).  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_skip_to(struct qsi_container *container,
                                                            uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->skip_to(container, seq);
}
/* Settles, requeues or delays by sequence; sequences that are not there are passed over.
 * QS_ENOMEM: nothing was done. */
static inline QS_MUST_CHECK qs_status qsi_container_replay_settle(struct qsi_container *container,
                                                                  const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(settle->queue_id == container->id);
    return container->kind->replay_settle(container, settle);
}
/* Every message counts as delivered before.  QS_ENOMEM. */
static inline QS_MUST_CHECK qs_status qsi_container_mark_all_seen(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->mark_all_seen(container);
}
/* Open, when all was replayed: syncs what the journal named of its files, which may be in the page
 * cache only. */
static inline QS_MUST_CHECK qs_status qsi_container_sync_named(struct qsi_container *container,
                                                               qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return container->kind->sync_named != NULL ? container->kind->sync_named(container, error)
                                               : QS_OK;
}

/* ---- the end ---- */

/* It is deleted: purges it, and drops the references of what is out as well. */
static inline void qsi_container_abandon(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex)
{
    container->kind->abandon(container);
}
/* REQUIRES that no job is under way.  References are not dropped: it is the process that ends. */
static inline void qsi_container_fini(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex)
{
    container->kind->fini(container);
}

#endif
