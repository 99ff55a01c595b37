/* Cursors of a stream's consumers: what they hold, and whom a commit tells. */
#include "stream_cursor.h"

#include "alloc.h"
#include "check.h"
#include "notify.h"
#include "store.h"
#include "turns.h"
#include "wake.h"

void qsi_stream_cursor_drop_batch(struct qsi_stream_cursor *cursor)
{
    qsi_stream_batch_fini(&cursor->batch);
    qsi_free(cursor->wanted);
    cursor->wanted = NULL;
    if (cursor->has_view) {
        qsi_stream_view_fini(&cursor->view);
        cursor->has_view = false;
    }
}

void qsi_stream_cursor_destroy(struct qsi_stream_cursor *cursor)
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

static uint64_t next_of(const struct qsi_stream_cursor *cursor,
                        const struct qsi_store_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    return cursor->position < stream->log.first ? stream->log.first : cursor->position;
}

bool qsi_stream_cursor_has_next(const struct qsi_store_consumer *consumer)
{
    const struct qsi_stream_cursor *cursor = consumer->cursor;
    struct qsi_store_stream *stream = consumer->queue->stream;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return !cursor->is_reading &&
           next_of(cursor, stream) < qsi_stream_durable_next(consumer->channel->store, stream);
}

bool qsi_stream_cursor_awaits(const struct qsi_store_consumer *consumer)
{
    struct qsi_store_stream *stream = consumer->queue->stream;
    uint64_t next = next_of(consumer->cursor, stream);

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    return next < stream->log.container.next_seq &&
           next >= qsi_stream_durable_next(consumer->channel->store, stream);
}

void qsi_stream_call_threads(struct qs_store *store, struct qsi_store_stream *stream)
{
    const struct qsi_list *consumers = &stream->queue->consumers;

    QS_ASSERT_HELD(&store->mutex);
    qsi_line_wake_all(store, stream->queue); /* readers lead the commit, or wait for it */
    if (store->events.stream_thread_count == 0) {
        return;
    }
    if (store->options.background) {
        qsi_commit_expedite(store);
        return;
    }
    for (const struct qsi_list *node = consumers->next; node != consumers; node = node->next) {
        struct qs_channel *channel =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_queue)->channel;
        if (channel->is_armed_by_thread && (channel->armed_kinds & QS_EVENT_DELIVERY) != 0) {
            qsi_channel_notify(channel); /* it commits for itself */
        }
    }
}

void qsi_stream_update_consumers(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_list_remove(&queue->stream->in_grown);
    if (queue->consumer_count > 0) { /* there may be what is not durable yet */
        qsi_list_push_back(&store->events.grown_streams, &queue->stream->in_grown);
    }
}

void qsi_streams_notify(struct qs_store *store)
{
    struct qsi_list *node = store->events.grown_streams.next;

    QS_ASSERT_HELD(&store->mutex);
    if (store->events.armed_count == 0) {
        return;
    }
    while (node != &store->events.grown_streams) {
        struct qsi_store_stream *stream = QSI_LIST_OWNER(node, struct qsi_store_stream, in_grown);
        node = node->next;
        qsi_notify_consumers(store, stream->queue);
        if (qsi_stream_durable_next(store, stream) == stream->log.container.next_seq) {
            qsi_list_remove(&stream->in_grown);
        }
    }
}
