/* Flushes and writes of states as jobs that any container has (container_jobs.h). */
#include "queue_jobs.h"

#include "alloc.h"
#include "paging.h"
#include "queue_internal.h"

static struct qsi_index *index_of(const struct qsi_queue *queue)
{
    return queue->container.durable ? queue->shared->index : queue->shared->transient_index;
}

/* ---- flushes ---- */

static struct qsi_flush_job *flush_job_of(struct qsi_job *job)
{
    return (struct qsi_flush_job *)(void *)job;
}

static void refresh_flush(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_flush_refresh(&flush_job_of(job)->flush);
}

static qs_status run_flush(struct qsi_job *job, qs_error *error)
{
    struct qsi_flush_job *self = flush_job_of(job);
    struct qsi_flush *flush = &self->flush;
    bool had_file = flush->file.heap_end > 0;

    QS_TRY(
        qsi_flush_run(flush, index_of(flush->queue), flush->queue->shared->transient_index, error));
    job->message_count = flush->message_count;
    job->made_file = !had_file && flush->file.heap_end > 0;
    if (self->file != NULL) {
        self->file->entry.file = flush->file;
        self->file->has_content = self->file->has_content || flush->message_count > 0;
    }
    return QS_OK;
}

static qs_status leave_flushed_file(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_flush_leave_file(&flush_job_of(job)->flush);
}

static void end_flush(struct qsi_job *job, bool done) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_flush_end(&flush_job_of(job)->flush, done);
    qsi_free(job);
}

static const struct qsi_job_kind flush_kind = {
    .refresh = refresh_flush,
    .run = run_flush,
    .leave_file = leave_flushed_file,
    .end = end_flush,
};

static qs_status run_carry(struct qsi_job *job, qs_error *error)
{
    struct qsi_flush_job *self = flush_job_of(job);

    (void)error;
    return qsi_flush_encode(&self->flush, self->carried);
}

static const struct qsi_job_kind carry_kind = {.run = run_carry, .end = end_flush};

qs_status qsi_flush_job_begin(struct qsi_queue *queue, uint64_t from_seq, uint64_t bytes_max,
                              struct qsi_carried *carried, struct qsi_flush_job **job_out)
{
    struct qsi_flush_job *job = qsi_zalloc(sizeof *job);
    qs_status status;

    if (job == NULL) {
        return QS_ENOMEM;
    }
    job->job.kind = carried != NULL ? &carry_kind : &flush_kind;
    job->job.container = &queue->container;
    job->carried = carried;
    status = qsi_flush_begin(&job->flush, queue, from_seq, bytes_max);
    if (status != QS_OK) {
        qsi_free(job);
        return status;
    }
    if (carried != NULL) {
        qsi_flush_detach(&job->flush);
    }
    *job_out = job;
    return QS_OK;
}

/* ---- states ---- */

static struct qsi_state_job *state_job_of(struct qsi_job *job)
{
    return (struct qsi_state_job *)(void *)job;
}

static qs_status run_state(struct qsi_job *job, qs_error *error)
{
    struct qsi_state_job *self = state_job_of(job);
    struct qsi_state_write *write = &self->write;

    if (self->file != NULL) {
        write->file = self->file->entry.file; /* which may have been made since */
    }
    QS_TRY(qsi_state_write_run(write, index_of(write->queue), write->queue->shared->transient_index,
                               error));
    if (self->file != NULL) {
        self->file->entry.file = write->file;
    }
    return QS_OK;
}

static qs_status leave_state_file(struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_state_write_leave_file(&state_job_of(job)->write);
}

static void end_state(struct qsi_job *job, bool done) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_state_write_end(&state_job_of(job)->write, done);
    qsi_free(job);
}

static const struct qsi_job_kind state_kind = {
    .run = run_state,
    .leave_file = leave_state_file,
    .end = end_state,
};

qs_status qsi_state_job_begin(struct qsi_queue *queue, struct qsi_segment *segment, bool is_named,
                              struct qsi_state_job **job_out)
{
    struct qsi_state_job *job = qsi_zalloc(sizeof *job);
    qs_status status;

    if (job == NULL) {
        return QS_ENOMEM;
    }
    job->job.kind = &state_kind;
    job->job.container = &queue->container;
    status = is_named ? qsi_state_write_begin_file(&job->write, queue, segment)
                      : qsi_state_write_begin(&job->write, queue, segment);
    if (status != QS_OK) {
        qsi_free(job);
        return status;
    }
    job->write.is_named = is_named;
    *job_out = job;
    return QS_OK;
}

/* ---- for the table of operations ---- */

qs_status qsi_queue_begin_flush(struct qsi_container *container, uint64_t bytes_max,
                                struct qsi_job **job_out)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    struct qsi_flush_job *job;

    QS_TRY(qsi_flush_job_begin(queue, queue->container.flushed_seq, bytes_max, NULL, &job));
    *job_out = &job->job;
    return QS_OK;
}

qs_status qsi_queue_begin_state(struct qsi_container *container, struct qsi_job **job_out)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    struct qsi_segment *segment = qsi_queue_dirty_state(queue);
    struct qsi_state_job *job;

    if (segment == NULL) {
        return QS_EEMPTY;
    }
    QS_TRY(qsi_state_job_begin(queue, segment, false, &job));
    *job_out = &job->job;
    return QS_OK;
}
