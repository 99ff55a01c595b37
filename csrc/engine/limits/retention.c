/* Retention of streams: the oldest messages are dropped by age, by bytes and by number.
 *
 * Only messages that the last checkpoint has as flushed are dropped.  So a replay, which begins
 * with that checkpoint, has in files whatever the journal says was dropped. */
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "limits.h"
#include "queue_life.h"
#include "store_stream.h"
#include "store_work.h"
#include "stream_record.h"
#include "wake.h"

/* Without memory or room it is tried again later. */
static void trim(struct qs_store *store, struct qsi_stream *stream, uint64_t first)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_trim trimmed = {.stream_id = stream->container.id, .first = first};
    struct qsi_chunk *chunk = NULL;
    uint64_t from;

    if (!qsi_journal_has_room(store->journal, QSI_STREAM_TRIM_BYTES, QSI_STREAM_TRIM_BYTES) ||
        qsi_journal_reserve(store->journal, 1) != QS_OK ||
        qsi_arena_place(store, true, QSI_STREAM_TRIM_BYTES, &chunk, NULL) != QS_OK ||
        qsi_container_trim_to(&stream->container, first) != QS_OK) {
        return;
    }
    from = chunk->used;
    qsi_stream_trim_encode(chunk->data + from, &trimmed);
    chunk->used += QSI_STREAM_TRIM_BYTES;
    qsi_store_append(store, chunk, from, QSI_STREAM_TRIM_BYTES, 1, false);
    qsi_commit_kick(store);
}

void qsi_retain_streams(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t now_us = qsi_clock_us(store);

    QS_ASSERT_HELD(&store->mutex);
    while (store->stream_count > 0 && !store->failed &&
           qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        struct qsi_stream *stream = queue->stream != NULL ? &queue->stream->log : NULL;
        uint64_t first = stream != NULL ? qsi_stream_trim_offset(stream, now_us) : 0;
        if (stream == NULL) {
            continue;
        }
        first = first < stream->synced_next ? first : stream->synced_next;
        if (first > stream->first) {
            uint64_t pinned = qsi_work_pinned_from(queue->stream);
            first = first < pinned ? first : pinned;
        }
        if (first > stream->first) {
            trim(store, stream, first);
            qsi_work_pass(queue->stream);
        }
    }
}
