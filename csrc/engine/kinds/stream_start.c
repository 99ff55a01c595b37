/* Where a reader of a stream begins: at either end, at an offset, at a time, at the last block. */
#include "stream_start.h"

#include "error.h"
#include "queue_life.h"
#include "store.h"
#include "wake.h"

/* Files that retention drops meanwhile stay until end_reading. */
static uint32_t begin_reading(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->jobs += 1;
    return qsi_reader_begin(store);
}

static void end_reading(struct qs_store *store, struct qsi_store_queue *queue, uint32_t reader)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_reader_end(store, reader);
    qsi_end_queue_job(queue);
}

qs_status qsi_stream_find_time(struct qs_store *store, struct qsi_store_queue *queue,
                               uint64_t time_us, uint64_t *offset_out, qs_error *error)
{
    struct qsi_stream_seek seek;
    uint32_t reader;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    status = qsi_stream_seek_begin(&seek, &queue->stream->log, time_us);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    reader = begin_reading(store, queue);
    qsi_store_unlock(store);
    status = qsi_stream_seek_run(&seek, error);
    qsi_store_lock(store);
    *offset_out = seek.offset;
    qsi_stream_seek_end(&seek);
    end_reading(store, queue, reader);
    return status;
}

qs_status qsi_stream_find_last(struct qs_store *store, struct qsi_store_queue *queue,
                               uint64_t *offset_out, qs_error *error)
{
    struct qsi_stream *log = &queue->stream->log;
    struct qsi_stream_view view;
    uint32_t reader;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    *offset_out = log->container.next_seq;
    if (log->container.next_seq == log->first) {
        return QS_OK;
    }
    status = qsi_stream_view_take(&view, log, log->container.next_seq - 1, 1, 1);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    reader = begin_reading(store, queue);
    qsi_store_unlock(store);
    status = qsi_stream_block_start(&view, view.next - 1, offset_out, error);
    qsi_store_lock(store);
    qsi_stream_view_fini(&view);
    end_reading(store, queue, reader);
    return status;
}

qs_status qsi_stream_find_start(struct qs_store *store, struct qsi_store_queue *queue,
                                const struct qsi_stream_start_spec *start, uint64_t *offset_out,
                                qs_error *error)
{
    const struct qsi_stream *log = &queue->stream->log;

    QS_ASSERT_HELD(&store->mutex);
    switch (start->at) {
    case QSI_START_LAST:
        return qsi_stream_find_last(store, queue, offset_out, error);
    case QSI_START_TIME:
        return qsi_stream_find_time(store, queue, start->time_us, offset_out, error);
    case QSI_START_OFFSET:
        *offset_out = start->offset < log->first ? log->first : start->offset;
        return QS_OK;
    case QSI_START_FIRST:
        *offset_out = log->first;
        return QS_OK;
    case QSI_START_NEXT:
        break;
    }
    *offset_out = log->container.next_seq;
    return QS_OK;
}
