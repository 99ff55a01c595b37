/* Retention of streams: the oldest messages are dropped by age, by bytes and by number. */
#include "clock.h"
#include "commit.h"
#include "limits.h"
#include "store_kind.h"
#include "stream_record.h"
#include "wake.h"

/* Without memory or room it is tried again later. */
static void trim(struct qs_store *store, struct qsi_store_queue *queue, uint64_t first)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_trim trimmed = {.stream_id = queue->container.id, .first = first};
    struct qsi_chunk *chunk = NULL;
    uint64_t from;

    if (!qsi_journal_has_room(store->journal, QSI_STREAM_TRIM_BYTES, QSI_STREAM_TRIM_BYTES) ||
        qsi_journal_reserve(store->journal, 1) != QS_OK ||
        qsi_arena_place(store, true, QSI_STREAM_TRIM_BYTES, &chunk, NULL) != QS_OK ||
        qsi_container_trim_to(queue->messages, first) != QS_OK) {
        return;
    }
    from = chunk->used;
    qsi_stream_trim_encode(chunk->data + from, &trimmed);
    chunk->used += QSI_STREAM_TRIM_BYTES;
    qsi_store_append(store, chunk, from, QSI_STREAM_TRIM_BYTES, 1, false);
    qsi_commit_wake(store);
    queue->kind->trimmed(queue);
}

void qsi_retain_streams(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t now_us = qsi_clock_us(store);

    QS_ASSERT_HELD(&store->mutex);
    while (store->stream_count > 0 && !store->failed &&
           qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        uint64_t first = queue->kind->kept_from != NULL ? queue->kind->kept_from(queue, now_us) : 0;
        if (first > 0) {
            trim(store, queue, first);
        }
    }
}
