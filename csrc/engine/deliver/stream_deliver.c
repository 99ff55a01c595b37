/* Delivering messages of a stream, and settling their tags.
 *
 * A delivery takes nothing from the stream: the cursor advances.  An ack gives the consumer room,
 * and nothing more; unacknowledged messages of a channel do not concern the stream. */
#include "stream_deliver.h"

#include "check.h"
#include "consume.h"
#include "content.h"
#include "cursor_record.h"
#include "error.h"
#include "notify.h"
#include "priorities.h"
#include "queue_life.h"
#include "record.h"
#include "stream_offset.h"
#include "stream_read_ahead.h"

#include <string.h>

/* ---- delivering ---- */

static struct qsi_chunk *chunk_of(const struct qsi_stream_batch *batch)
{
    return batch->tail != NULL ? batch->tail->messages.chunk : batch->block.chunk;
}

/* QS_EWOULDBLOCK: its body is in a file. */
static qs_status deliver_row(struct qsi_store_consumer *consumer, uint32_t i, qs_message *message,
                             struct qsi_delivery *delivery, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_cursor *cursor = consumer->cursor;
    struct qs_channel *channel = consumer->channel;
    struct qsi_store_queue *queue = consumer->queue;
    const struct qsi_stream_batch *batch = &cursor->batch;
    struct qsi_messages view;
    uint32_t row;
    const uint8_t *record = qsi_stream_batch_record(batch, i, &row);

    qsi_messages_view(&view, record);
    if (wait == QSI_MUST_NOT_WAIT && qsi_messages_is_stored(&view, row)) {
        return QS_EWOULDBLOCK;
    }
    delivery->is_of_stream = true;
    delivery->offset = batch->first_offset + i;
    QS_DCHECK(delivery->offset == cursor->position);
    message->delivery_tag =
        qsi_unacked_add_offset(&channel->unacked, &queue->container, delivery->offset, consumer);
    qsi_view_row(chunk_of(batch), record, row, message, &delivery->body);
    cursor->position += 1;
    queue->stream->out_count += 1;
    if (i + 1 == batch->count && message->hold != NULL) {
        qsi_stream_cursor_drop_batch(cursor); /* the message holds the parts of it that it needs */
    }
    return QS_OK;
}

qs_status qsi_stream_deliver_one(struct qsi_store_consumer *consumer, qs_message *message_out,
                                 struct qsi_delivery *delivery_out, bool *released_out,
                                 enum qsi_wait wait, qs_error *error)
{
    uint32_t row;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    QS_DCHECK(!consumer->cursor->is_reading);
    memset(message_out, 0, sizeof *message_out);
    *released_out = false;
    if (!qsi_stream_next_row(consumer, &row)) {
        *released_out = true; /* at the durable end: there may be no message */
        if (!qsi_stream_cursor_has_next(consumer)) {
            return QS_OK;
        }
        return qsi_stream_read_ahead(consumer, released_out, wait, error);
    }
    return deliver_row(consumer, row, message_out, delivery_out, wait);
}

qs_status qsi_stream_set_offset(qs_message *message, uint64_t offset, qs_error *error)
{
    struct qsi_slice properties = qsi_slice_of(message->properties);
    struct qsi_slice tag = qsi_slice_of(message->consumer_tag),
                     queue = qsi_slice_of(message->queue);
    struct qsi_chunk *chunk = qsi_chunk_create((size_t)tag.bytes + queue.bytes + properties.bytes +
                                               QSI_STREAM_OFFSET_BYTES_MAX);
    uint8_t *at;

    if (chunk == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    at = chunk->data;
    message->consumer_tag = (qs_slice){at, tag.bytes};
    at = qsi_slice_put(at, tag);
    message->queue = (qs_slice){at, queue.bytes};
    at = qsi_slice_put(at, queue);
    message->properties = (qs_slice){at, qsi_stream_offset_put(at, properties, offset)};
    qsi_chunk_unref(message->hold_names);
    message->hold_names = chunk;
    return QS_OK;
}

/* ---- what becomes of tags ---- */

/* Messages that never reached the caller come again, and so do all behind them. */
static void rewind_to(struct qsi_store_consumer *consumer, uint64_t offset)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (offset < consumer->cursor->position) {
        consumer->cursor->position = offset; /* also if cancelled: it may store its position */
        if (consumer->queue != NULL) {
            qsi_events_notify(consumer->channel->store);
        }
    }
}

void qsi_stream_settled(const struct qsi_extent *extent, uint64_t mask, enum qsi_stream_end end)
{
    struct qsi_store_consumer *consumer = extent->consumer;
    struct qsi_stream_cursor *cursor = consumer->cursor;
    struct qs_channel *channel = consumer->channel;
    struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);
    uint32_t count = qsi_popcount(mask);

    QS_ASSERT_HELD(&channel->store->mutex);
    QS_DCHECK(extent->segment == NULL && queue->stream->out_count >= count);
    queue->stream->out_count -= count;
    if (end == QSI_STREAM_ACKED) {
        channel->store->stats.acked += count;
        if (cursor->tracks && !cursor->is_acked && !queue->deleted) {
            cursor->is_acked = true;
            qsi_list_push_back(&channel->acked_cursors, &cursor->in_acked);
        }
    } else if (end == QSI_STREAM_COMES_AGAIN) {
        rewind_to(consumer, extent->first_offset + (uint32_t)__builtin_ctzll(mask));
    }
    qsi_consumer_settled(consumer, count);
    qsi_free_queue_if_done(queue);
}

void qsi_stream_withheld(const struct qsi_extent *extent, uint64_t mask)
{
    struct qsi_store_consumer *consumer = extent->consumer;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    rewind_to(consumer, extent->first_offset + (uint32_t)__builtin_ctzll(mask));
}

void qsi_stream_hand_back(const struct qsi_extent *extent, uint64_t mask)
{
    struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);

    QS_DCHECK(queue->stream->out_count >= qsi_popcount(mask));
    queue->stream->out_count -= qsi_popcount(mask);
    qsi_free_queue_if_done(queue);
}

struct taking_back {
    enum qsi_stream_end end;
};

static void take_back(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_stream_settled(extent, mask, ((const struct taking_back *)context)->end);
}

void qsi_stream_take_back(struct qs_channel *channel, uint64_t tag, enum qsi_stream_end end)
{
    struct taking_back taking = {end};

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_unacked_take(&channel->unacked, tag, tag, take_back, &taking);
    qsi_events_notify(channel->store);
}

qs_status qsi_stream_refuse_nack(const struct qs_channel *channel, uint64_t first_tag,
                                 uint64_t last_tag, qs_error *error)
{
    const struct qsi_extent *extent;

    if (QS_LIKELY(!channel->reads_streams)) {
        return QS_OK;
    }
    extent = qsi_unacked_find_stream(&channel->unacked, first_tag, last_tag);
    return extent == NULL
               ? QS_OK
               : qsi_refuse_stream(channel->store, qsi_queue_of_container(extent->container),
                                   "basic.nack and basic.reject", error);
}

/* ---- how far consumers are ---- */

/* Everything below it was acknowledged. */
static uint64_t progress_of(const struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t offset;

    return qsi_unacked_first_offset(&consumer->channel->unacked, consumer, &offset) &&
                   offset < consumer->cursor->position
               ? offset
               : consumer->cursor->position;
}

/* Only forward: another consumer with the name may be further.  Returns the number of records. */
static uint32_t record_progress(const struct qsi_store_consumer *consumer,
                                struct qsi_store_queue *queue, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_cursor_record record = {
        .stream_id = queue->container.id, .offset = progress_of(consumer), .group = consumer->tag};
    const struct qsi_store_cursor *noted = qsi_cursor_find(&queue->stream->cursors, consumer->tag);

    if (noted != NULL && noted->offset >= record.offset) {
        return 0;
    }
    if (chunk != NULL) {
        uint64_t bytes = qsi_cursor_record_bytes(&record);
        QS_ASSERT(chunk->capacity - chunk->used >= bytes);
        qsi_cursor_record_encode(chunk->data + chunk->used, &record);
        chunk->used += bytes;
    }
    qsi_cursor_set(&queue->stream->cursors, &record);
    return chunk != NULL ? 1 : 0;
}

uint32_t qsi_stream_record_acked(struct qs_channel *channel, struct qsi_chunk *chunk)
{
    uint32_t count = 0;

    QS_ASSERT_HELD(&channel->store->mutex);
    while (!qsi_list_is_empty(&channel->acked_cursors)) {
        struct qsi_stream_cursor *cursor =
            QSI_LIST_OWNER(channel->acked_cursors.next, struct qsi_stream_cursor, in_acked);
        struct qsi_store_consumer *consumer = cursor->consumer;
        struct qsi_store_queue *queue = qsi_find_by_id(channel->store, cursor->stream_id);
        qsi_list_remove(&cursor->in_acked);
        cursor->is_acked = false;
        if (queue != NULL) {
            count += record_progress(consumer, queue, chunk);
        }
        qsi_consumer_free_if_done(consumer);
    }
    return count;
}
