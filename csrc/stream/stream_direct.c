/* Large records that go straight into the active file.
 *
 * Invariants: a job writes after the contents that the files had when it began, or into files that
 * it made; the stream changes when it ends, and only if no other publisher appended meanwhile;
 * bytes that the journal names are never written again. */
#include "alloc.h"
#include "block_read.h"
#include "check.h"
#include "error.h"
#include "stream_flush_job.h"

/* A record can be lost, which a checkpoint cannot: the next record repeats its segments. */
static void record_written(struct qsi_stream *stream, uint64_t next,
                           const struct qsi_stream_segment *active) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t before = stream->named_segment;

    qsi_stream_record_named(stream, next, stream->in_bytes, active);
    stream->named_before = before;
}

/* ---- begin ---- */

static const struct qsi_job_kind direct_kind = {.run = qsi_stream_flush_blocks,
                                                .end = qsi_stream_flush_end};

static uint32_t count_of(const struct qsi_buf *segments)
{
    return (uint32_t)(segments->bytes / sizeof(struct qsi_stream_segment));
}

/* Segments that were sealed, or left, since the last record or checkpoint; and, if they are not too
 * many, those that only the last record named. */
static qs_status take_unnamed(const struct qsi_stream *stream, struct qsi_stream_direct *direct)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = stream->table_first; i < qsi_stream_table_count(stream); i++) {
        const struct qsi_stream_segment *segment = &stream->table->segments[i];
        if (segment->first >= stream->named_segment) {
            QS_TRY(qsi_buf_append(&direct->unnamed, segment, sizeof *segment));
        } else if (segment->first >= stream->named_before) {
            QS_TRY(qsi_buf_append(&direct->again, segment, sizeof *segment));
        }
    }
    if (count_of(&direct->again) + count_of(&direct->unnamed) > QSI_STREAM_UNNAMED_SEGMENTS_MAX) {
        direct->again.bytes = 0;
    }
    direct->has_unnamed =
        stream->container.next_seq > stream->named_next || direct->unnamed.bytes > 0;
    return count_of(&direct->unnamed) <= QSI_STREAM_UNNAMED_SEGMENTS_MAX ? QS_OK : QS_EEMPTY;
}

static qs_status begin_direct(struct qsi_stream *stream, struct qsi_stream_flush_job *job,
                              const struct qsi_stream_direct_options *options)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_direct *direct;
    uint64_t last_us = stream->last_time_us;

    if (job->end_seq != stream->container.next_seq) {
        return QS_EEMPTY;
    }
    direct = job->direct = qsi_zalloc(sizeof *direct);
    if (direct == NULL) {
        return QS_ENOMEM;
    }
    direct->records = options->records;
    direct->record_count = options->record_count;
    direct->staged = options->staged;
    direct->staged_count = options->staged_count;
    direct->reaches_disk = options->reaches_disk;
    direct->first_offset = stream->container.next_seq;
    direct->time_us = options->now_us > last_us ? options->now_us : last_us;
    for (uint32_t i = 0; i < options->record_count; i++) {
        QS_DCHECK(options->records[i].rows > 0);
        job->end_seq += options->records[i].rows;
    }
    for (uint32_t i = 0; i < options->staged_count; i++) {
        job->end_seq += options->staged[i].rows;
    }
    return take_unnamed(stream, direct);
}

/* All records of a job must be in one file, which retention drops or keeps as a whole. */
uint64_t qsi_stream_direct_max(const struct qsi_container *container)
{
    const struct qsi_stream_limits *limits =
        &((const struct qsi_stream *)(const void *)container)->limits;

    return limits->segments_follow && limits->max_bytes > 0 ? limits->segment_bytes : UINT64_MAX;
}

qs_status qsi_stream_begin_direct(struct qsi_container *container,
                                  const struct qsi_stream_direct_options *options,
                                  struct qsi_stream_flush_job **job_out)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    qs_status status;

    *job_out = NULL;
    QS_ASSERT(!stream->is_flushing && (options->record_count > 0) != (options->staged_count > 0));
    QS_DCHECK(stream->named_next <= stream->container.next_seq);
    if (stream->is_deleted || stream->shared->recovers ||
        !qsi_stream_may_be_named(stream, QSI_STREAM_UNNAMED_BYTES)) {
        return QS_EEMPTY;
    }
    QS_TRY(qsi_stream_flush_job_make(stream, &direct_kind, UINT64_MAX, job_out));
    stream->is_flushing = true;
    status = begin_direct(stream, *job_out, options);
    if (status != QS_OK) {
        qsi_stream_direct_end(*job_out, false);
        *job_out = NULL;
    }
    return status;
}

/* ---- run, and its result ---- */

void qsi_stream_direct_undo(struct qsi_stream_flush_job *job)
{
    struct qsi_stream_shared *shared = qsi_stream_flushed(job)->shared;

    qsi_block_unsynced_close(shared->blocks, &job->direct->unsynced);
    qsi_stream_flush_undo(job);
}

qs_status qsi_stream_direct_run(struct qsi_stream_flush_job *job, qs_error *error)
{
    return qsi_stream_flush_blocks(&job->job, error);
}

bool qsi_stream_direct_is_next(const struct qsi_stream_flush_job *job)
{
    const struct qsi_stream *stream = qsi_stream_flushed(job);

    return !stream->is_deleted && stream->container.next_seq == job->direct->first_offset;
}

static uint32_t segment_count_of(const struct qsi_stream_flush_job *job)
{
    const struct qsi_stream_direct *direct = job->direct;

    return count_of(&direct->again) + count_of(&direct->unnamed) + count_of(&job->sealed) +
           (direct->staged_count > 0 ? 0 : 1);
}

uint64_t qsi_stream_direct_bytes(const struct qsi_stream_flush_job *job)
{
    return qsi_stream_written_bytes(segment_count_of(job));
}

static void put_segments(uint8_t *record, const struct qsi_buf *segments, uint32_t *index_io)
{
    const struct qsi_stream_segment *at =
        (const struct qsi_stream_segment *)(const void *)segments->data;

    for (uint32_t i = 0; i < count_of(segments); i++) {
        const struct qsi_stream_state_segment named = qsi_stream_segment_to_state(&at[i]);
        qsi_stream_written_put_segment(record, (*index_io)++, &named);
    }
}

void qsi_stream_direct_encode(struct qsi_stream_flush_job *job, uint8_t *record_out,
                              struct qsi_block_unsynced *unsynced_out)
{
    struct qsi_stream_direct *direct = job->direct;
    struct qsi_stream_written written = {
        .stream_id = job->job.container->id,
        .first = direct->first_offset,
        .next = job->end_seq,
        .block_count = direct->record_count,
        .crc = direct->crc,
        .segment_count = segment_count_of(job),
        .adopts = direct->staged_count > 0,
    };
    uint32_t index = 0;

    qsi_stream_written_encode(record_out, &written);
    put_segments(record_out, &direct->again, &index);
    put_segments(record_out, &direct->unnamed, &index);
    put_segments(record_out, &job->sealed, &index);
    if (!written.adopts) {
        const struct qsi_stream_state_segment active = qsi_stream_segment_to_state(&job->active);
        QS_DCHECK(job->active.next == job->end_seq &&
                  job->active.block_count >= direct->record_count);
        qsi_stream_written_put_segment(record_out, index, &active);
    }
    *unsynced_out = direct->unsynced;
    direct->unsynced.handle = NULL;
}

void qsi_stream_direct_push_staged(struct qsi_stream_flush_job *job)
{
    struct qsi_stream *stream = qsi_stream_flushed(job);
    struct qsi_container *container = &stream->container;

    QS_ASSERT(qsi_stream_direct_is_next(job) && job->direct->staged_count > 0);
    container->in_count += job->end_seq - container->next_seq;
    container->next_seq = job->end_seq;
    stream->last_time_us = job->direct->time_us;
}

void qsi_stream_direct_end(struct qsi_stream_flush_job *job, bool done)
{
    struct qsi_stream *stream = qsi_stream_flushed(job);
    bool leaves_gap = done && job->direct != NULL && job->direct->staged_count > 0;

    if (done) {
        QS_ASSERT(!stream->is_deleted && stream->container.next_seq == job->end_seq);
        record_written(stream, job->end_seq, &job->active);
    }
    qsi_stream_flush_end(&job->job, done);
    if (leaves_gap) { /* what is in memory has none: readers go from run to run */
        (void)qsi_stream_drop_content(&stream->container, 0, UINT64_MAX);
        QS_ASSERT(stream->run_count == 0);
    }
}

/* ---- recovery ---- */

/* The segments that the record does not repeat. */
static uint32_t kept_count(const struct qsi_stream *stream, uint64_t first)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t end = stream->table_first;

    while (end < qsi_stream_table_count(stream) && stream->table->segments[end].first < first) {
        end++;
    }
    return end - stream->table_first;
}

static qs_status replace_segments(struct qsi_stream *stream,
                                  const struct qsi_stream_written *written, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_state_segment named;
    struct qsi_stream_table *table;
    uint32_t kept;

    if (qsi_stream_reserve_dead(stream, 1 + written->segment_count) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "files of a stream");
    }
    qsi_stream_written_segment(written, 0, &named);
    kept = kept_count(stream, named.first);
    table = qsi_stream_table_create(kept + 1 + written->segment_count);
    if (table == NULL) {
        return qsi_fail(error, QS_ENOMEM, "segments of a stream");
    }
    for (uint32_t i = 0; i < kept; i++) {
        table->segments[table->count++] = stream->table->segments[stream->table_first + i];
    }
    if (stream->active.block_count > 0 && stream->active.first < named.first) {
        if (stream->active.next > stream->first) {
            table->segments[table->count++] = stream->active;
        } else {
            qsi_stream_kill(stream, &stream->active); /* retention took it */
        }
    }
    if (table->count > 0 && table->segments[table->count - 1].next > named.first) {
        qsi_stream_table_unref(table);
        return qsi_fail(error, QS_ECORRUPT, "stream written record: its segments overlap others");
    }
    for (uint32_t i = 0; i < written->segment_count; i++) {
        bool is_earlier = i + 1 < written->segment_count || written->adopts;
        qsi_stream_written_segment(written, i, &named);
        stream->active = qsi_stream_segment_of_state(&named);
        if (is_earlier && named.next > stream->first) {
            table->segments[table->count++] = stream->active;
        } else if (is_earlier) {
            qsi_stream_kill(stream, &stream->active);
        }
    }
    stream->flushed_time_us = stream->active.last_time_us;
    if (written->adopts) {
        stream->active = (struct qsi_stream_segment){0};
    }
    stream->earlier_bytes = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        stream->earlier_bytes += table->segments[i].end;
    }
    qsi_stream_table_unref(stream->table);
    stream->table = table;
    stream->table_first = 0;
    return QS_OK;
}

qs_status qsi_stream_replay_written(struct qsi_container *container,
                                    const struct qsi_stream_written *written, qs_error *error)
{
    struct qsi_stream *stream = qsi_stream_of(container);

    if (written->first < container->next_seq) {
        return qsi_fail(error, QS_ECORRUPT, "stream %llu: offset %llu comes again",
                        (unsigned long long)container->id, (unsigned long long)written->first);
    }
    QS_TRY(replace_segments(stream, written, error));
    qsi_block_index_unref(stream->active_index);
    stream->active_index = NULL;
    container->next_seq = container->flushed_seq = written->next;
    container->in_count += written->next - written->first;
    if (stream->flushed_time_us > stream->last_time_us) {
        stream->last_time_us = stream->flushed_time_us;
    }
    stream->page_aligned = true;
    record_written(stream, written->next, &stream->active);
    /* The files have the messages in memory, and there is a gap after them. */
    (void)qsi_stream_drop_content(container, 0, UINT64_MAX);
    return stream->run_count == 0 ? QS_OK : qsi_fail(error, QS_ENOMEM, "stream");
}

qs_status qsi_stream_check_written(struct qsi_stream_shared *shared,
                                   const struct qsi_stream_written *written, qs_error *error)
{
    struct qsi_stream_state_segment named;
    struct qsi_stream_segment segment;
    struct qsi_block_file file;
    const struct qsi_block_last last = {
        .count = written->block_count,
        .crc = written->crc,
        .first_offset = written->first,
        .next_offset = written->next,
    };

    if (written->adopts) { /* durable before, names included */
        return QS_OK;
    }
    qsi_stream_written_segment(written, written->segment_count - 1, &named);
    segment = qsi_stream_segment_of_state(&named);
    file = qsi_stream_file(written->stream_id, &segment);
    return shared->blocks != NULL
               ? qsi_block_file_check_last(shared->blocks, &file, &last, error)
               : qsi_fail(error, QS_ECORRUPT, "the directory of streams is missing");
}

/* All of it or nothing is accepted: a file that cannot be opened refuses the store, like one of the
 * journal.  Other damage is found when it is read. */
static qs_status sync_named(const struct qsi_stream *stream,
                            const struct qsi_stream_segment *segment, qs_error *error)
{
    struct qsi_block_file file = qsi_stream_file(stream->container.id, segment);

    if (segment->next > stream->synced_next ||
        (segment->first == stream->synced_segment && segment->end != stream->synced_end)) {
        return qsi_block_file_sync_found(stream->shared->blocks, &file, error);
    }
    return QS_OK;
}

qs_status qsi_stream_sync_named(struct qsi_container *container, qs_error *error)
{
    struct qsi_stream *stream = qsi_stream_of(container);

    if (stream->named_next <= stream->synced_next) {
        return QS_OK;
    }
    for (uint32_t i = stream->table_first; i < qsi_stream_table_count(stream); i++) {
        QS_TRY(sync_named(stream, &stream->table->segments[i], error));
    }
    if (stream->active.block_count > 0) {
        QS_TRY(sync_named(stream, &stream->active, error));
    }
    return qsi_block_dir_sync_now(stream->shared->blocks, error);
}
