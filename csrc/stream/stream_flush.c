/* Flushing: the tail becomes blocks, or, for a checkpoint that carries it, records.
 *
 * Invariant: only the end of a job changes the stream, and it cannot fail. */
#include "alloc.h"
#include "check.h"
#include "stream_flush_job.h"

#include <string.h>

/* ---- begin ---- */

static void free_pieces(struct qsi_stream_flush_job *self)
{
    for (uint32_t i = 0; i < qsi_stream_flush_piece_count(self); i++) {
        qsi_stream_tail_fini(&qsi_stream_flush_pieces(self)[i]);
    }
    qsi_buf_fini(&self->pieces);
}

static void free_job(struct qsi_stream_flush_job *self)
{
    QS_DCHECK(self->from_seq <= self->end_seq || self->end_seq == 0);
    if (self->direct != NULL) {
        qsi_block_unsynced_close(qsi_stream_flushed(self)->shared->blocks, &self->direct->unsynced);
        qsi_buf_fini(&self->direct->unnamed);
        qsi_buf_fini(&self->direct->again);
        qsi_free(self->direct);
    }
    free_pieces(self);
    qsi_buf_fini(&self->entries);
    qsi_buf_fini(&self->sealed);
    qsi_buf_fini(&self->stray);
    qsi_stream_table_unref(self->table);
    qsi_block_index_unref(self->base_index);
    qsi_block_index_unref(self->index);
    qsi_free(self);
}

static qs_status take_pieces(struct qsi_stream_flush_job *self, uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *stream = qsi_stream_flushed(self);
    uint64_t bytes = 0;

    self->end_seq = self->from_seq;
    for (uint32_t i = qsi_stream_find_run(stream, self->from_seq);
         i < stream->run_count && bytes < bytes_max; i++) {
        const struct qsi_stream_run *run = qsi_stream_run_at(stream, i);
        uint32_t from = self->from_seq > run->run->first_seq
                            ? (uint32_t)(self->from_seq - run->run->first_seq)
                            : 0;
        struct qsi_stream_tail piece;
        qs_status status;
        QS_DCHECK(from < run->run->count);
        QS_TRY(qsi_stream_tail_take(&piece, run, from, run->run->count - from));
        status = qsi_buf_append(&self->pieces, &piece, sizeof piece);
        if (status != QS_OK) {
            qsi_stream_tail_fini(&piece);
            return status;
        }
        bytes += run->run->ram_bytes;
        self->end_seq = run->run->first_seq + run->run->count;
    }
    if (qsi_stream_find_run(stream, self->end_seq) == stream->run_count) {
        self->end_seq = stream->container.next_seq; /* with what was skipped behind the last one */
    }
    return QS_OK;
}

static void refresh(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_flush_job *self = qsi_stream_flush_job_of(job);
    const struct qsi_stream *stream = qsi_stream_flushed(self);

    qsi_block_index_unref(self->base_index);
    self->base = stream->active;
    self->base_index =
        stream->active_index != NULL ? qsi_block_index_ref(stream->active_index) : NULL;
    self->page_aligned = stream->page_aligned;
    self->table_count = qsi_stream_table_count(stream);
    self->last_time_us = stream->flushed_time_us;
}

/* ---- end ---- */

static void end_carried(struct qsi_job *job, bool done)
{
    (void)done;
    free_job(qsi_stream_flush_job_of(job));
}

static void put_sealed(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_segment *sealed =
        (const struct qsi_stream_segment *)(const void *)self->sealed.data;
    uint32_t count = (uint32_t)(self->sealed.bytes / sizeof *sealed);
    uint32_t present = qsi_stream_table_count(stream) - stream->table_first;

    if (count > 0 &&
        (stream->table == NULL || stream->table->count + count > stream->table->capacity)) {
        QS_ASSERT(present + count <= self->table->capacity);
        if (present > 0) {
            memcpy(self->table->segments, &stream->table->segments[stream->table_first],
                   present * sizeof *sealed);
        }
        self->table->count = present;
        qsi_stream_table_unref(stream->table);
        stream->table = self->table;
        stream->table_first = 0;
        self->table = NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        QS_ASSERT(stream->table->count < stream->table->capacity);
        stream->table->segments[stream->table->count++] = sealed[i];
        stream->earlier_bytes += sealed[i].end;
    }
}

static void install(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(self->end_seq <= stream->container.next_seq &&
              self->last_time_us >= stream->flushed_time_us);
    QS_ASSERT(stream->container.flushed_seq >= self->from_seq); /* no hole before the blocks */
    put_sealed(stream, self);
    stream->active = self->active;
    qsi_block_index_unref(stream->active_index);
    stream->active_index = self->index;
    self->index = NULL;
    stream->page_aligned = (stream->page_aligned && !self->has_written) || self->direct != NULL;
    stream->flushed_time_us = self->last_time_us;
    stream->shared->flushed_bytes += self->written_bytes;
    if (stream->container.flushed_seq < self->end_seq) {
        stream->container.flushed_seq = self->end_seq;
    }
    if (self->report != NULL) {
        self->report(self->context);
    }
}

/* The stream was deleted meanwhile: the files that this job made are dead like its others. */
static void kill_made(struct qsi_stream *stream, struct qsi_stream_flush_job *self)
{
    /* Without memory they stay until the next open, which has no stream for them. */
    qs_status ignored = qsi_buf_append(&stream->shared->dead, self->stray.data, self->stray.bytes);

    (void)ignored;
}

void qsi_stream_flush_end(struct qsi_job *job, bool done)
{
    struct qsi_stream_flush_job *self = qsi_stream_flush_job_of(job);
    struct qsi_stream *stream = qsi_stream_flushed(self);

    QS_ASSERT(stream->is_flushing);
    stream->is_flushing = false;
    if (done && stream->is_deleted) {
        kill_made(stream, self);
    } else if (done) {
        install(stream, self);
    }
    free_job(self);
}

/* The file stays in place with its contents; the next blocks go to a new one. */
static qs_status leave_file(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_flush_job *self = qsi_stream_flush_job_of(job);
    struct qsi_stream *stream = qsi_stream_flushed(self);
    struct qsi_stream_table *table;
    uint32_t present = qsi_stream_table_count(stream) - stream->table_first;

    if (!self->cannot_read || stream->active.block_count == 0) {
        return QS_ECORRUPT;
    }
    table = qsi_stream_table_create(2 * present + QSI_STREAM_TABLE_FIRST);
    if (table == NULL) {
        return QS_ENOMEM;
    }
    if (present > 0) {
        memcpy(table->segments, &stream->table->segments[stream->table_first],
               present * sizeof table->segments[0]);
    }
    QS_ASSERT(present < table->capacity);
    table->segments[present] = stream->active;
    table->count = present + 1;
    qsi_stream_table_unref(stream->table);
    stream->table = table;
    stream->table_first = 0;
    stream->earlier_bytes += stream->active.end;
    stream->active = (struct qsi_stream_segment){0};
    qsi_block_index_unref(stream->active_index);
    stream->active_index = NULL;
    refresh(job);
    return QS_OK;
}

static const struct qsi_job_kind block_kind = {.refresh = refresh,
                                               .run = qsi_stream_flush_blocks,
                                               .leave_file = leave_file,
                                               .end = qsi_stream_flush_end};
static const struct qsi_job_kind carried_kind = {.run = qsi_stream_flush_carried,
                                                 .end = end_carried};

/* ---- making jobs ---- */

qs_status qsi_stream_flush_job_make(struct qsi_stream *stream, const struct qsi_job_kind *kind,
                                    uint64_t bytes_max, struct qsi_stream_flush_job **job_out)
{
    struct qsi_stream_flush_job *self = qsi_zalloc(sizeof *self);
    qs_status status;

    *job_out = NULL;
    QS_ASSERT(!stream->is_flushing);
    if (self == NULL) {
        return QS_ENOMEM;
    }
    self->job.kind = kind;
    self->job.container = &stream->container;
    self->from_seq = stream->container.flushed_seq;
    self->limits = stream->limits;
    status = take_pieces(self, bytes_max);
    if (status != QS_OK) {
        free_job(self);
        return status;
    }
    refresh(&self->job);
    *job_out = self;
    return QS_OK;
}

qs_status qsi_stream_flush_job_begin(struct qsi_stream *stream, uint64_t bytes_max,
                                     struct qsi_carried *carried,
                                     struct qsi_stream_flush_job **job_out)
{
    *job_out = NULL;
    QS_ASSERT(carried != NULL || !stream->is_flushing);
    if (qsi_stream_find_run(stream, stream->container.flushed_seq) == stream->run_count) {
        stream->container.flushed_seq = stream->container.next_seq;
        return QS_EEMPTY;
    }
    QS_TRY(qsi_stream_flush_job_make(stream, carried != NULL ? &carried_kind : &block_kind,
                                     bytes_max, job_out));
    (*job_out)->carried = carried;
    stream->is_flushing = stream->is_flushing || carried == NULL;
    return QS_OK;
}

struct qsi_job *qsi_stream_flush_job(struct qsi_stream_flush_job *job)
{
    return &job->job;
}

void qsi_stream_flush_report(struct qsi_stream_flush_job *job, void (*report)(void *context),
                             void *context)
{
    job->report = report;
    job->context = context;
}

qs_status qsi_stream_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                                 struct qsi_job **job_out)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    struct qsi_stream_flush_job *job;

    *job_out = NULL;
    if (stream->shared->recovers &&
        (stream->shared->salvages ||
         qsi_stream_may_be_named(stream, 2 * QSI_STREAM_UNNAMED_BYTES))) {
        return QS_EEMPTY; /* files may have it already, like blocks that the journal names later */
    }
    QS_TRY(qsi_stream_flush_job_begin(stream, bytes_max, NULL, &job));
    *job_out = &job->job;
    return QS_OK;
}
