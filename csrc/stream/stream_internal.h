/* Inside the floor: segments, the tail's runs, and what jobs take from a stream. */
#ifndef QSI_STREAM_INTERNAL_H
#define QSI_STREAM_INTERNAL_H

#include "stream.h"
#include "stream_record.h"

struct qsi_stream_run {
    struct qsi_run *run;
    uint64_t floor_us; /* times of its messages are those of their records, or this if later */
};

/* Entries before `count` never change: views read them without the lock. */
#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_stream_table {
    uint32_t refs; /* touched with atomics only */
    uint32_t capacity;
    uint32_t count GUARDED; /* under the lock */
    struct qsi_stream_segment segments[];
};
#undef GUARDED
struct qsi_stream_table *qsi_stream_table_create(uint32_t capacity); /* NULL: out of memory */
struct qsi_stream_table *qsi_stream_table_ref(struct qsi_stream_table *table); /* NULL is fine */
void qsi_stream_table_unref(struct qsi_stream_table *table);                   /* NULL is fine */

static inline uint32_t qsi_stream_table_count(const struct qsi_stream *stream)
    QSI_REQUIRES(qsi_store_mutex)
{
    return stream->table != NULL ? stream->table->count : 0;
}

static inline struct qsi_stream_run *qsi_stream_run_at(const struct qsi_stream *stream, uint32_t i)
    QSI_REQUIRES(qsi_store_mutex)
{
    return &stream->runs[stream->first_run + i];
}
/* The first run that ends after offset; run_count if there is none. */
uint32_t qsi_stream_find_run(const struct qsi_stream *stream, uint64_t offset)
    QSI_REQUIRES(qsi_store_mutex);

static inline struct qsi_block_file qsi_stream_file(uint64_t id,
                                                    const struct qsi_stream_segment *segment)
{
    return (struct qsi_block_file){
        .owner = id,
        .number = segment->first,
        .salt = segment->salt,
        .end = segment->end,
        .last_at = segment->last_at,
        .block_count = segment->block_count,
        .sealed = (segment->flags & QSI_STREAM_SEALED) != 0,
        .adopted = (segment->flags & QSI_STREAM_ADOPTED) != 0,
        .time_us = segment->first_time_us,
    };
}

/* ---- the tail (stream_runs.c): operations of a container ---- */

qs_status qsi_stream_reserve(struct qsi_container *container, uint32_t run_count,
                             uint64_t message_count, bool any_transient)
    QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_stream_reserve_one(struct qsi_container *container, struct qsi_chunk *chunk,
                                 bool journalled) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_stream_append(struct qsi_container *container, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_stream_append_one(struct qsi_container *container, struct qsi_chunk *chunk,
                               uint32_t record_at, uint32_t ram_bytes, bool journalled, bool stored)
    QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_stream_drop_content(struct qsi_container *container, uint64_t keep_count,
                                 uint64_t bytes) QSI_REQUIRES(qsi_store_mutex);
uint64_t qsi_stream_unflushed_bytes(const struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops all runs: the stream is deleted. */
void qsi_stream_drop_runs(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* Frees their memory; references stay counted, because the process ends. */
void qsi_stream_free_runs(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);

/* ---- pieces of the tail: held runs, or parts of them ---- */

/* For messages [from, from + count) of the run.  QS_ENOMEM. */
qs_status qsi_stream_tail_take(struct qsi_stream_tail *tail_out, const struct qsi_stream_run *run,
                               uint32_t from, uint32_t count) QS_MUST_CHECK;
void qsi_stream_tail_fini(struct qsi_stream_tail *tail);
/* The time of publishing of message i of the piece. */
uint64_t qsi_stream_tail_time(const struct qsi_stream_tail *tail, uint32_t i);

/* Adds, or removes, one reference to the message store for each of the piece's stored bodies. */
void qsi_stream_count_refs(struct qsi_message_store *messages,
                           const struct qsi_messages_ref *messages_ref, uint32_t from,
                           uint32_t count, bool transient, bool adds) QSI_REQUIRES(qsi_store_mutex);

/* For the stored bodies of a run, from message from on. */
void qsi_stream_add_refs(struct qsi_stream *stream, const struct qsi_run *run, uint32_t from)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_stream_drop_refs(struct qsi_stream *stream, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);
/* The references of a dropped run stay, until drop_kept.  QS_ENOMEM: nothing was done. */
qs_status qsi_stream_keep_refs(struct qsi_stream *stream, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_stream_drop_kept(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);

/* A checkpoint counts the references to the message store of the messages that it carries, and a
 * process that restores it has no others.  So at its cut flushed runs have none, */
void qsi_stream_drop_stored(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* and unflushed messages with references are carried, however many: references are short. */
bool qsi_stream_has_stored_tail(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);

/* ---- jobs ---- */

qs_status qsi_stream_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                                 struct qsi_job **job_out) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_stream_snapshot(struct qsi_container *container, struct qsi_carried *carried,
                              struct qsi_snapshot **snapshot_out) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_stream_restore(struct qsi_container *container, const uint8_t *record,
                             uint64_t *next_seq_io, qs_error *error) QSI_REQUIRES(qsi_store_mutex);

qs_status qsi_stream_sync_named(struct qsi_container *container, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_stream_trim_to(struct qsi_container *container, uint64_t first)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

struct qsi_stream_flush_job;
uint64_t qsi_stream_direct_max(const struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);
qs_status qsi_stream_begin_direct(struct qsi_container *container,
                                  const struct qsi_stream_direct_options *options,
                                  struct qsi_stream_flush_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_stream_replay_written(struct qsi_container *container,
                                    const struct qsi_stream_written *written, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* carried not NULL: the job encodes the rows there instead of writing blocks. */
qs_status qsi_stream_flush_job_begin(struct qsi_stream *stream, uint64_t bytes_max,
                                     struct qsi_carried *carried,
                                     struct qsi_stream_flush_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
struct qsi_job *qsi_stream_flush_job(struct qsi_stream_flush_job *job);
/* end calls report, under the lock, if the job succeeded. */
void qsi_stream_flush_report(struct qsi_stream_flush_job *job, void (*report)(void *context),
                             void *context);

/* ---- files that checkpoints and the journal name (stream_segments.c) ---- */

struct qsi_stream_state_segment
qsi_stream_segment_to_state(const struct qsi_stream_segment *segment);
struct qsi_stream_segment qsi_stream_segment_of_state(const struct qsi_stream_state_segment *from);
/* Messages below next are in named files, of which active is the last; in_bytes: of all messages
 * that came until then. */
void qsi_stream_record_named(struct qsi_stream *stream, uint64_t next, uint64_t in_bytes,
                             const struct qsi_stream_segment *active) QSI_REQUIRES(qsi_store_mutex);
/* Whether a record of blocks written directly can follow.  It cannot after more messages, or more
 * bytes of them, than these without a file that was named. */
bool qsi_stream_may_be_named(const struct qsi_stream *stream, uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- dead files (stream_trim.c) ---- */

/* Removes the segments from the stream: their files are dead. */
qs_status qsi_stream_reserve_dead(struct qsi_stream *stream, uint32_t count) QS_MUST_CHECK;
void qsi_stream_kill(struct qsi_stream *stream, const struct qsi_stream_segment *segment);

#endif
