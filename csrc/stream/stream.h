/* One stream: a retained log of messages, which any number of readers read and which are never
 * settled.
 *
 * An offset is a message's sequence: 64 bits, ascending, never reused.  Messages below flushed_seq
 * are in the stream's files (blocks/); later ones are in runs of memory, the tail, whose records
 * the journal has.  Flushed runs stay in memory until they are dropped, so readers that keep up
 * never read a file.  A stream keeps transient messages like others.
 *
 * A file is a segment: consecutive offsets.  One file at a time grows; when it has segment_bytes it
 * is sealed, and a new one begins.  Retention drops whole sealed segments from the front.
 *
 * Times never decrease: a message's time is that of its record, or the last one's if that is later.
 *
 * REQUIRES lock: the engine's covers every call, except those that say "without the lock": these
 * read files and memory that does not change, through a view or a job that holds it. */
#ifndef QSI_STREAM_H
#define QSI_STREAM_H

#include "block_cache.h"
#include "block_file.h"
#include "budget.h"
#include "buf.h"
#include "container.h"
#include "message_store.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

/* What a checkpoint carries is in no segment: retention drops none of it, and bodies of the message
 * store leave that with the flush.  So a checkpoint flushes a stream that has more. */
#define QSI_STREAM_CARRIED_MAX (UINT64_C(64) << 10)
#define QSI_STREAM_SEGMENT_BYTES UINT64_C(500000000) /* unless the stream's arguments say more */
/* If it follows from limits: at least so many, and an eighth of what is kept. */
#define QSI_STREAM_SEGMENT_LEAST (UINT64_C(1) << 20)
#define QSI_STREAM_SEGMENTS_KEPT 8u

/* Shared by the streams of a store. */
struct qsi_stream_shared {
    struct qsi_message_store *messages; /* bodies that queues have too; NULL: there are none */
    struct qsi_budget *budget;          /* NULL: nobody counts */
    struct qsi_block_dir *blocks;       /* streams/ */
    struct qsi_block_cache *cache;
    struct qsi_buf dead;    /* struct qsi_block_file: no stream has them any more */
    uint64_t flushed_bytes; /* written to files */
    bool recovers;          /* the journal is read, and may be read again before a checkpoint */
    bool salvages;          /* parts of it may be lost */
};

/* Zero: no limit, but for segment_bytes. */
struct qsi_stream_limits {
    uint64_t segment_bytes;
    uint64_t max_bytes, max_age_us, max_messages;
    /* segment_bytes is an eighth of max_bytes, because the arguments do not set it: a segment ends
     * by max_messages and max_age_us as well, and a longer batch is not written directly. */
    bool segments_follow;
};

/* A segment as memory and checkpoints know it: 64 bytes. */
struct qsi_stream_segment {
    uint64_t first;   /* offset of its first row, which is its file's number */
    uint64_t next;    /* after its last row */
    uint64_t end;     /* of the file; 0: no file yet */
    uint64_t last_at; /* as of struct qsi_block_file */
    uint64_t first_time_us, last_time_us;
    uint64_t salt;
    uint32_t block_count;
    uint32_t flags; /* of enum qsi_stream_segment_flag */
};
enum qsi_stream_segment_flag {
    QSI_STREAM_SEALED = 1,
    QSI_STREAM_ADOPTED = 2, /* it was staged: all its rows have first_time_us */
};

struct qsi_stream_table; /* segments before the active one, in order; shared with views */
struct qsi_stream_run;

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_stream {
    struct qsi_container container; /* next_seq: the next offset; flushed_seq: end of the files */
    struct qsi_stream_shared *shared;
    struct qsi_stream_limits limits;
    uint64_t first GUARDED;                   /* messages below were trimmed */
    uint64_t last_time_us GUARDED;            /* of the last message; 0: there was none */
    uint64_t flushed_time_us GUARDED;         /* of the last one that is flushed */
    uint64_t earlier_bytes GUARDED;           /* of the files in the table */
    struct qsi_stream_table *table GUARDED;   /* NULL: it was not needed yet */
    uint32_t table_first GUARDED;             /* messages before were trimmed */
    struct qsi_stream_segment active GUARDED; /* block_count 0: the next flush makes a file */
    /* its blocks; NULL: they were not read since the open */
    struct qsi_block_index *active_index GUARDED;
    /* in order; a gap between them is one of sequences */
    struct qsi_stream_run *runs GUARDED;
    uint32_t first_run GUARDED, run_count GUARDED, run_capacity GUARDED;
    /* struct qsi_body_ref: of messages that recovery flushed and dropped */
    struct qsi_buf kept GUARDED;
    struct qsi_run *spare GUARDED; /* for the next message that is appended alone; or NULL */
    /* Of the last checkpoint: it synced files whose rows are below it and which are not that
     * segment, or which end there.  The thread that makes a checkpoint has them: one at a time. */
    uint64_t synced_next, synced_segment, synced_end;
    /* Of the last checkpoint, or of the last record of blocks written directly if that is later:
     * the flushed end, and the last file then. */
    uint64_t named_next GUARDED, named_segment GUARDED;
    uint64_t named_before GUARDED; /* likewise, of the record before that one */
    uint64_t in_bytes GUARDED,
        named_bytes GUARDED;   /* of records: all that came; up to named_next */
    bool page_aligned GUARDED; /* a checkpoint names its contents */
    bool is_flushing GUARDED;  /* a job writes blocks */
    bool is_deleted GUARDED;
};
#undef GUARDED
extern const struct qsi_container_kind qsi_stream_kind;

void qsi_stream_shared_init(struct qsi_stream_shared *shared);
void qsi_stream_shared_fini(struct qsi_stream_shared *shared);

/* An empty stream whose first offset is 0.  qsi_container_fini ends it. */
qs_status qsi_stream_init(struct qsi_stream *stream, struct qsi_stream_shared *shared, uint64_t id,
                          const struct qsi_stream_limits *limits) QS_MUST_CHECK;
static inline struct qsi_stream *qsi_stream_of(struct qsi_container *container)
{
    return (struct qsi_stream *)(void *)container;
}

/* ---- appending: qsi_container_reserve, qsi_container_append and their like ----
 *
 * The record has the time of publishing (qsi_messages_put_time).  Recovery appends with the same
 * calls: qsi_container_skip_to sets the offset, and the replay skips messages below flushed_seq. */

/* Bytes of all files. */
uint64_t qsi_stream_bytes(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);
uint32_t qsi_stream_segment_count(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* From this offset on messages are in memory; next_seq: none is. */
uint64_t qsi_stream_tail_begin(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);

/* ---- flushing and checkpoints: qsi_container_begin_flush, qsi_container_snapshot, restore ----
 *
 * A flush builds blocks from the tail and writes them one after another, seals the active file when
 * it is full and makes the next one.  One flush of a stream runs at a time.  Bodies in the message
 * store are copied into the blocks; the stream's references to them are dropped with the run.
 *
 * Bytes that a snapshot names are never written again: the next block begins on a page of its
 * own. */

/* ---- writing directly (stream_direct.c) ----
 *
 * Large records go straight into the active file, as blocks: a flush of the tail and of these
 * records, which are not in the stream yet.  It is begun under the lock and run without it.  Then
 * one hold of the lock checks that they are still the next ones, appends the records, and ends the
 * job.  The caller journals the encoded record, and counts it as durable when its file is synced,
 * too: run has synced everything except the blocks of these records, including names.
 *
 * Bytes that the journal names are never written again, so the next block begins on a page of its
 * own. */

/* A stream is not written directly if more offsets than these, or more bytes, are in no file that
 * was named since.  So a recovery that has more offsets in memory, or twice the bytes, knows that
 * no such record follows, and may flush them.  With fewer it must not: it would write where the
 * blocks of such a record are. */
#define QSI_STREAM_UNNAMED_MAX UINT64_C(16384)
#define QSI_STREAM_UNNAMED_BYTES (UINT64_C(1) << 20)
#define QSI_STREAM_UNNAMED_SEGMENTS_MAX 64u /* likewise, so that a record stays small */

/* A record of messages whose columns are aligned, with the stream as its only destination, to be
 * filled in; no other thread has it. */
struct qsi_stream_direct_record {
    uint8_t *record;
    uint32_t rows;
};
/* A staged file that becomes a segment as it is. */
struct qsi_stream_staged {
    const char *folder, *name;
    const struct qsi_block_file *file; /* as it was staged */
    uint64_t rows;
};
struct qsi_stream_direct_options {
    const struct qsi_stream_direct_record *records; /* stay until run returned */
    uint32_t record_count;
    const struct qsi_stream_staged *staged; /* likewise; instead of records */
    uint32_t staged_count;
    uint64_t now_us;
    bool reaches_disk;
};
struct qsi_stream_flush_job; /* qsi_container_begin_direct makes it */
/* Without the lock.  QS_NOT_IMPLEMENTED: a staged file cannot be linked. */
qs_status qsi_stream_direct_run(struct qsi_stream_flush_job *job, qs_error *error) QS_MUST_CHECK;
/* Without the lock, after a run that is not to be used. */
void qsi_stream_direct_undo(struct qsi_stream_flush_job *job);
/* After it.  Whether no other publisher appended meanwhile. */
bool qsi_stream_direct_is_next(const struct qsi_stream_flush_job *job)
    QSI_REQUIRES(qsi_store_mutex);
/* The staged files become the next of the stream, as pushing does for records. */
void qsi_stream_direct_push_staged(struct qsi_stream_flush_job *job) QSI_REQUIRES(qsi_store_mutex);
/* The record for the journal, and the file to be synced, which the caller then owns: none, for
 * staged files. */
uint64_t qsi_stream_direct_bytes(const struct qsi_stream_flush_job *job);
struct qsi_block_unsynced;
void qsi_stream_direct_encode(struct qsi_stream_flush_job *job, uint8_t *record_out,
                              struct qsi_block_unsynced *unsynced_out);
/* Frees it.  done: the records were appended. */
void qsi_stream_direct_end(struct qsi_stream_flush_job *job, bool done)
    QSI_REQUIRES(qsi_store_mutex);
/* Without the lock.  Whether the blocks exist.  QS_ECORRUPT if not. */
qs_status qsi_stream_check_written(struct qsi_stream_shared *shared,
                                   const struct qsi_stream_written *written,
                                   qs_error *error) QS_MUST_CHECK;

/* ---- retention ----
 *
 * Files that become unused by qsi_container_trim_to are in shared->dead: to be removed when a
 * checkpoint that was cut after it is durable. */

/* The first offset by the limits: above stream->first if a sealed segment may be dropped. */
uint64_t qsi_stream_trim_offset(const struct qsi_stream *stream, uint64_t now_us)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- reading ----
 *
 * A view is taken under the lock once for each call; blocks are read through it without the lock.
 * It has the contents of the files, and the requested part of the tail. */

/* A piece of the tail: messages of one run. */
struct qsi_stream_tail {
    struct qsi_messages_ref messages;
    uint64_t first_offset;
    uint64_t run_offset; /* of the run's first message */
    uint64_t floor_us;   /* times are that of the message's record, or this if it is later */
    uint32_t count;
    bool has_stored; /* some bodies are in the message store */
};

struct qsi_stream_view {
    struct qsi_stream_shared *shared;
    uint64_t id;
    uint64_t first, next; /* existing offsets: [first, next) */
    uint64_t files_end;   /* messages below are in files */
    struct qsi_stream_table *table;
    uint32_t table_from, table_to;
    struct qsi_stream_segment active;
    struct qsi_block_index *active_index; /* NULL: to be read */
    struct qsi_stream_tail *tail;
    uint32_t tail_count;
};
/* tail: from offset from on, if the runs in memory have it, about rows_max rows or bytes_max bytes
 * at most; otherwise none, and messages below files_end are read from files.  Bodies in the message
 * store to which it refers stay until fini.  QS_ENOMEM. */
qs_status qsi_stream_view_take(struct qsi_stream_view *view_out, struct qsi_stream *stream,
                               uint64_t from, uint32_t rows_max, uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Under the lock.  Batches outlive it, but not those of the tail. */
void qsi_stream_view_fini(struct qsi_stream_view *view) QSI_REQUIRES(qsi_store_mutex);

/* Consecutive messages that were read: rows of one block, or a piece of the tail. */
struct qsi_stream_batch {
    uint64_t first_offset; /* of the first row here */
    uint32_t count;
    struct qsi_block_view block;        /* chunk NULL: of the tail */
    uint32_t row;                       /* in the block, or message of the piece */
    const struct qsi_stream_tail *tail; /* of the view; NULL: of the block */
    uint64_t *wanted; /* bitmap over the block's routes; NULL: all, or the tail: ask the filter */
};
void qsi_stream_batch_fini(struct qsi_stream_batch *batch);
/* Row i of the batch: its record and its row there, and whether it is wanted. */
const uint8_t *qsi_stream_batch_record(const struct qsi_stream_batch *batch, uint32_t i,
                                       uint32_t *record_row_out);
/* The times of publishing of rows [from, from + count) of the batch. */
void qsi_stream_batch_times(const struct qsi_stream_batch *batch, uint32_t from, uint32_t count,
                            int64_t *times_out);

/* Whether a row of that route is wanted.  NULL in place of it: every row is. */
typedef bool qsi_stream_filter(void *context, struct qsi_slice exchange, struct qsi_slice key);
/* Without the lock: the first messages at or after offset, as many as are adjacent.  Blocks without
 * a wanted route are skipped.  QS_EEMPTY: the view has none; first_offset is the next offset to
 * read.  QS_ECORRUPT: a block is damaged, and first_offset is the first one after it; or its file
 * is missing: trimmed meanwhile, if the stream's first offset shows that. */
qs_status qsi_stream_read(const struct qsi_stream_view *view, uint64_t offset,
                          qsi_stream_filter *filter, void *context,
                          struct qsi_stream_batch *batch_out, qs_error *error) QS_MUST_CHECK;

/* The first offset at or after a time: a job in three steps.  At most an index and one block are
 * read. */
struct qsi_stream_seek {
    struct qsi_stream_view view;
    uint64_t time_us;
    uint64_t offset; /* the result; next if there is none */
    bool is_found;   /* run has nothing to do */
};
qs_status qsi_stream_seek_begin(struct qsi_stream_seek *seek, struct qsi_stream *stream,
                                uint64_t time_us) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_stream_seek_run(struct qsi_stream_seek *seek, qs_error *error) QS_MUST_CHECK;
void qsi_stream_seek_end(struct qsi_stream_seek *seek) QSI_REQUIRES(qsi_store_mutex);
/* Likewise the first offset of the block that has offset, or of the run: AMQP's "last" is that of
 * next - 1. */
qs_status qsi_stream_block_start(const struct qsi_stream_view *view, uint64_t offset,
                                 uint64_t *offset_out, qs_error *error) QS_MUST_CHECK;

/* ---- debug builds ---- */

/* Asserts that segments, runs and counts agree: between calls.  Empty in release builds. */
#ifdef NDEBUG
#define qsi_stream_check(stream) ((void)(stream))
#else
void qsi_stream_check(const struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex);
#endif

#endif
