/* Looking at a stream's messages: a position is an offset.  Blocks are read through the shared
 * cache. */
#include "browse_internal.h"
#include "check.h"
#include "error.h"
#include "queue_life.h"
#include "store_stream.h"

#define ROWS_MAX 1024u /* of the tail, in one step */

/* Adds the durable messages of the batch that fit. */
static qs_status add_batch(struct qsi_browse *browse, const struct qsi_stream_batch *batch,
                           struct qsi_chunk *chunk, uint64_t end)
{
    for (uint32_t i = 0; i < batch->count && batch->first_offset + i < end; i++) {
        struct qsi_taken next = {.chunk = chunk, .count = 1, .first_tag = batch->first_offset + i};
        struct qsi_messages view;
        uint32_t bytes;
        next.record = qsi_stream_batch_record(batch, i, &next.row);
        qsi_messages_view(&view, next.record);
        bytes = qsi_messages_body_bytes(&view, next.row);
        if (qsi_browse_is_full(browse) ||
            (bytes > browse->bytes_left && browse->batch.message_count > 0)) {
            browse->bytes_left = 0;
            return QS_OK;
        }
        QS_TRY(qsi_browse_add(browse, &next, bytes));
        QS_DCHECK(next.first_tag >= browse->position);
        browse->position = next.first_tag + 1;
    }
    return QS_OK;
}

/* Releases the lock meanwhile. */
static qs_status read_and_add(struct qsi_browse *browse, struct qsi_store_queue *queue,
                              struct qsi_stream_view *view, uint64_t end, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_batch batch;
    qs_status status;

    queue->jobs += 1;
    qsi_store_unlock(browse->store);
    status = qsi_stream_read(view, browse->position, NULL, NULL, &batch, error);
    qsi_store_lock(browse->store);
    QS_DCHECK(queue->jobs > 0);
    queue->jobs -= 1;
    if (status == QS_OK) {
        struct qsi_chunk *chunk =
            batch.tail != NULL ? batch.tail->messages.chunk : batch.block.chunk;
        status = add_batch(browse, &batch, chunk, end);
        qsi_stream_batch_fini(&batch);
    } else if (status == QS_EEMPTY && batch.first_offset > browse->position) {
        browse->position = batch.first_offset;
        status = QS_OK;
    } else if (qsi_is_unreadable(status)) {
        browse->behind_damage =
            batch.first_offset > browse->position ? batch.first_offset : browse->position + 1;
    }
    qsi_free_queue_if_done(queue);
    return status;
}

qs_status qsi_browse_stream(struct qsi_browse *browse, struct qsi_store_queue *queue,
                            qs_error *error)
{
    struct qsi_stream *log = &queue->stream->log;
    uint64_t end = qsi_stream_durable_next(browse->store, queue->stream);
    uint32_t rows = browse->messages_left < ROWS_MAX ? (uint32_t)browse->messages_left : ROWS_MAX;
    struct qsi_stream_view view;
    qs_status status;

    QS_ASSERT_HELD(&browse->store->mutex);
    browse->position = browse->position > log->first ? browse->position : log->first;
    if (browse->position >= end) {
        return QS_EEMPTY;
    }
    QS_DCHECK(end <= log->container.next_seq && rows > 0);
    status = qsi_stream_view_take(&view, log, browse->position, rows, browse->bytes_left);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    status = read_and_add(browse, queue, &view, end, error);
    qsi_stream_view_fini(&view);
    return status == QS_ENOMEM ? qsi_fail(error, status, "messages of a stream") : status;
}
