/* A running flush of a stream: shared by making the job, running it and ending it. */
#ifndef QSI_STREAM_FLUSH_JOB_H
#define QSI_STREAM_FLUSH_JOB_H

#include "block_write.h"
#include "stream_internal.h"

#define QSI_STREAM_TABLE_FIRST \
    16u /* segments for which a new table has room, and twice those there are */

/* What a job writes after the tail. */
struct qsi_stream_direct {
    const struct qsi_stream_direct_record *records;
    uint32_t record_count;
    const struct qsi_stream_staged *staged;
    uint32_t staged_count;
    uint64_t first_offset, time_us;
    struct qsi_block_unsynced unsynced; /* where run wrote */
    struct qsi_buf unnamed;             /* struct qsi_stream_segment: sealed before the job began */
    struct qsi_buf again;               /* likewise, those that only the last record named */
    uint32_t crc;                       /* of the headers of the blocks */
    bool has_unnamed;                   /* files have, or get, messages not named yet */
    bool reaches_disk;
};

struct qsi_stream_flush_job {
    struct qsi_job job;
    uint64_t from_seq, end_seq;
    struct qsi_stream_limits limits;
    struct qsi_buf pieces; /* struct qsi_stream_tail */
    struct qsi_carried *carried;
    struct qsi_stream_direct *direct; /* NULL: the tail alone */
    void (*report)(void *context);
    void *context;

    /* as the stream has it: */
    struct qsi_stream_segment base;
    struct qsi_block_index *base_index; /* NULL: it was not read yet */
    bool page_aligned;
    uint32_t table_count;

    /* what run makes of it: */
    struct qsi_stream_segment active;
    struct qsi_buf entries; /* struct qsi_block_entry: of the active file */
    struct qsi_buf sealed;  /* struct qsi_stream_segment */
    struct qsi_stream_table *table;
    struct qsi_block_index *index;
    uint64_t last_time_us;
    uint64_t written_bytes;
    bool has_written;     /* to the active file */
    bool cannot_read;     /* the file that it was to add to */
    struct qsi_buf stray; /* struct qsi_block_file: made by a run that failed */
};

static inline struct qsi_stream_flush_job *qsi_stream_flush_job_of(struct qsi_job *job)
{
    return (struct qsi_stream_flush_job *)(void *)job;
}

static inline struct qsi_stream *qsi_stream_flushed(const struct qsi_stream_flush_job *self)
{
    return qsi_stream_of(self->job.container);
}

static inline struct qsi_stream_tail *
qsi_stream_flush_pieces(const struct qsi_stream_flush_job *self)
{
    return (struct qsi_stream_tail *)(void *)self->pieces.data;
}

static inline uint32_t qsi_stream_flush_piece_count(const struct qsi_stream_flush_job *self)
{
    return (uint32_t)(self->pieces.bytes / sizeof(struct qsi_stream_tail));
}

/* Of kind: from flushed_seq on. */
qs_status qsi_stream_flush_job_make(struct qsi_stream *stream, const struct qsi_job_kind *kind,
                                    uint64_t bytes_max, struct qsi_stream_flush_job **job_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* End. */
void qsi_stream_flush_end(struct qsi_job *job, bool done) QSI_REQUIRES(qsi_store_mutex);
/* Without the lock: removes what run wrote, as far as possible.  The job ends undone. */
void qsi_stream_flush_undo(struct qsi_stream_flush_job *self);
/* Run: the tail becomes blocks, in the active file and those that follow it. */
qs_status qsi_stream_flush_blocks(struct qsi_job *job, qs_error *error);
/* Run: the tail becomes records that a checkpoint carries. */
qs_status qsi_stream_flush_carried(struct qsi_job *job, qs_error *error);

#endif
