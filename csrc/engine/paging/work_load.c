/* Content for work queues: a view of the stream is taken under the lock and read without it.  The
 * result becomes a run of the queue, whose chunk is the block's or the publisher's.
 *
 * Invariant: a run of a work queue refers to no body in the message store, because only journal and
 * checkpoints count such references.  So a piece of the tail that has such bodies is flushed first:
 * in blocks all bodies are inside. */
#include "work_load.h"

#include "check.h"
#include "error.h"
#include "notify.h"
#include "pager.h"
#include "queue_life.h"
#include "store_stream.h"
#include "work.h"

#define ROWS_MAX 65536u           /* of the tail in one step */
#define TAIL_BYTES (2u << 20)     /* likewise */
#define DAMAGED_BLOCK_ROWS 65536u /* a block that cannot be read has no more */

struct work_load {
    struct qsi_stream_view view;
    struct qsi_stream_batch batch;
    uint64_t seq;
    bool is_out; /* it is about a message that a consumer has */
};

/* QS_EEXIST: the tail has the message, and must be flushed first. */
static qs_status begin(struct work_load *load, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *log = &queue->source->stream->log;
    bool is_flushed = load->seq < log->container.flushed_seq;

    QS_TRY(qsi_stream_view_take(&load->view, log, load->seq, ROWS_MAX, TAIL_BYTES));
    if (load->view.tail_count == 0 || !load->view.tail[0].has_stored) {
        return QS_OK;
    }
    qsi_stream_view_fini(&load->view);
    return is_flushed ? qsi_stream_view_take(&load->view, log, load->seq, 0, 0) : QS_EEXIST;
}

/* The message of a tail's piece where the batch begins, or the block's row. */
static qs_status install(struct qsi_store_queue *queue, const struct qsi_stream_batch *batch)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_container *log = queue->source->messages;
    struct qsi_messages_ref block = {.chunk = batch->block.chunk,
                                     .record_at = batch->block.record_at};

    if (batch->tail != NULL) { /* its share of the stream's memory, about */
        uint64_t each = log->ram_count > 0 ? log->ram_bytes / log->ram_count : 0;
        return qsi_work_install(&queue->core, batch->first_offset, batch->count,
                                &batch->tail->messages, batch->row, each * batch->count);
    }
    return qsi_work_install(&queue->core, batch->first_offset, batch->count, &block, batch->row,
                            block.chunk->capacity * batch->count / batch->block.rows);
}

/* The messages that could not be read: up to the next block, or, if an index is gone, some of
 * them. */
static qs_status install_damaged(struct qsi_store_queue *queue, uint64_t seq, uint64_t end)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t most = seq + DAMAGED_BLOCK_ROWS;

    end = end > seq ? end : seq + 1;
    return qsi_work_install_damaged(&queue->core, queue->source->container.id, seq,
                                    end < most ? end : most);
}

/* The stream has none of [from, to).  QS_ENOMEM: they still count as ready, and would be looked for
 * again and again. */
static qs_status lose(struct qsi_store_queue *queue, uint64_t from, uint64_t to)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t seq;

    QS_ASSERT(from <= to);
    qsi_work_lose(&queue->core, from, to);
    return qsi_work_first_missing(&queue->core, &seq) && seq >= from && seq < to ? QS_ENOMEM
                                                                                 : QS_OK;
}

static qs_status take_over(struct work_load *load, struct qsi_store_queue *queue, qs_status status)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = queue->source != NULL ? &queue->source->stream->log : NULL;
    uint64_t found = load->batch.first_offset;

    if (log == NULL) { /* the queue was deleted meanwhile */
        return QS_OK;
    }
    if (status == QS_OK && found == load->seq) {
        return install(queue, &load->batch);
    }
    if (status != QS_OK && status != QS_EEMPTY && !qsi_is_unreadable(status)) {
        return status;
    }
    if (load->is_out) { /* its consumer gets the error that it cannot be read any more */
        return install_damaged(queue, load->seq, load->seq + 1);
    }
    if (load->seq < log->first) { /* trimmed meanwhile */
        return lose(queue, 0, log->first);
    }
    if (qsi_is_unreadable(status)) {
        return install_damaged(queue, load->seq, found);
    }
    if (status != QS_OK) { /* the view has no later messages, nor a tail behind its files */
        found = load->seq < load->view.files_end ? load->view.files_end : load->view.next;
    }
    return lose(queue, load->seq, found > load->seq ? found : load->seq + 1);
}

/* Releases the lock meanwhile. */
static qs_status run(struct work_load *load, struct qs_store *store, struct qsi_store_queue *queue,
                     qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t count;
    qs_status status;

    qsi_pager_job_begin(store, queue);
    status = qsi_stream_read(&load->view, load->seq, NULL, NULL, &load->batch, error);
    qsi_store_lock(store);
    count = queue->container.ram_count;
    status = take_over(load, queue, status);
    if (status == QS_ENOMEM) {
        (void)!qsi_fail(error, status, "messages of a stream");
    }
    count = queue->container.ram_count > count ? queue->container.ram_count - count : 0;
    store->stats.messages_paged_in += load->batch.tail == NULL ? count : 0;
    qsi_stream_batch_fini(&load->batch);
    qsi_stream_view_fini(&load->view);
    qsi_pager_job_end(store, queue);
    qsi_events_notify(store);
    qsi_pager_wake(store);
    return status;
}

static qs_status load(struct qs_store *store, struct qsi_store_queue *queue, struct work_load *load,
                      qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *source = queue->source;
    qs_status status = begin(load, queue);

    if (status == QS_EEXIST && store->options.read_only) {
        return qsi_fail(error, QS_ESTORE_READ_ONLY,
                        "queue '%.*s': a message of its stream is still to be written to a file: "
                        "open the store without read_only once",
                        QSI_NAME(queue->name));
    }
    if (status == QS_EEXIST) {
        source->jobs += 1;
        status = qsi_pager_flush(store, source, error);
        qsi_end_queue_job(source);
        return status == QS_EEMPTY ? QS_OK : status; /* then it is looked for again */
    }
    return status == QS_OK ? run(load, store, queue, error)
                           : qsi_fail(error, status, "messages of a stream");
}

qs_status qsi_work_load_head(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
{
    struct work_load head = {.seq = 0};

    QS_ASSERT_HELD(&store->mutex);
    if (queue->source == NULL) {
        return QS_EEMPTY;
    }
    if (!qsi_work_first_missing(&queue->core, &head.seq)) {
        return QS_EEMPTY;
    }
    if (head.seq < queue->source->stream->log.first) { /* requeued after retention passed it */
        qs_status status = lose(queue, 0, queue->source->stream->log.first);
        return status == QS_OK ? QS_OK : qsi_fail(error, status, "messages of a stream");
    }
    return load(store, queue, &head, error);
}

qs_status qsi_work_load_one(struct qs_store *store, struct qsi_store_queue *queue, uint64_t seq,
                            qs_error *error)
{
    struct work_load one = {.seq = seq, .is_out = true};

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_queue_run_of(&queue->core, seq) != NULL) {
        return QS_EEMPTY;
    }
    if (queue->source == NULL) {
        return qsi_work_install_damaged(&queue->core, 0, seq, seq + 1);
    }
    return load(store, queue, &one, error);
}
