/* Cursors of a stream's consumers: what they hold, and whom a commit tells. */
#include "stream_cursor.h"

#include "alloc.h"
#include "check.h"
#include "store.h"
#include "turns.h"

void qsi_stream_cursor_drop_batch(struct stream_cursor *cursor)
{
    qsi_stream_batch_fini(&cursor->batch);
    qsi_free(cursor->wanted);
    cursor->wanted = NULL;
    if (cursor->has_view) {
        qsi_stream_view_fini(&cursor->view);
        cursor->has_view = false;
    }
}

void qsi_stream_cursor_destroy(struct stream_cursor *cursor)
{
    if (cursor == NULL) {
        return;
    }
    QS_ASSERT(!cursor->is_reading && !cursor->is_acked);
    qsi_stream_cursor_drop_batch(cursor);
    qsi_free(cursor->filter.values);
    qsi_free(cursor->arguments);
    qsi_free(cursor);
}

static uint64_t next_of(const struct stream_cursor *cursor, const struct store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex)
{
    return cursor->position < stream->log.first ? stream->log.first : cursor->position;
}

bool qsi_stream_cursor_has_next(const struct store_consumer *consumer)
{
    const struct stream_cursor *cursor = consumer->cursor;
    struct store_stream *stream = consumer->queue->stream;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return !cursor->is_reading &&
           next_of(cursor, stream) < qsi_stream_durable_next(consumer->channel->store, stream);
}

uint64_t qsi_streams_awaited_lsn(const struct qs_channel *channel)
{
    uint64_t lsn = 0;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (!channel->reads_streams || channel->store->failed) {
        return 0;
    }
    for (const struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        const struct store_consumer *consumer =
            QSI_LIST_OWNER(node, struct store_consumer, in_channel);
        struct store_stream *stream;
        if (consumer->cursor == NULL || consumer->queue == NULL) {
            continue;
        }
        stream = consumer->queue->stream;
        if (next_of(consumer->cursor, stream) < stream->log.container.next_seq &&
            next_of(consumer->cursor, stream) >= qsi_stream_durable_next(channel->store, stream)) {
            lsn = stream->marked_lsn > lsn ? stream->marked_lsn : lsn;
        }
    }
    return lsn;
}

void qsi_stream_note_consumers(struct qs_store *store, struct store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    if (queue->stream == NULL) {
        return;
    }
    qsi_list_remove(&queue->stream->in_consumed);
    if (queue->consumer_count > 0) {
        qsi_list_push_back(&store->events.consumed_streams, &queue->stream->in_consumed);
    }
}

void qsi_streams_signal(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    if (store->events.armed_count == 0) {
        return;
    }
    for (struct qsi_list *node = store->events.consumed_streams.next;
         node != &store->events.consumed_streams; node = node->next) {
        qsi_signal_consumers(store, QSI_LIST_OWNER(node, struct store_stream, in_consumed)->queue);
    }
}
