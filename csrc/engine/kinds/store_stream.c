/* What the store has of a stream besides its log: cursors, and how far it is durable. */
#include "store_stream.h"

#include "alloc.h"
#include "check.h"
#include "journal.h"
#include "lock.h"
#include "store.h"

#include <string.h>

/* ---- cursors ---- */

const struct qsi_store_cursor *qsi_cursor_find(const struct qsi_map *cursors,
                                               struct qsi_slice group)
{
    const struct qsi_store_cursor *cursor = qsi_map_get(cursors, group.data, group.bytes);

    return cursor != NULL && cursor->offset != QSI_CURSOR_GONE ? cursor : NULL;
}

uint64_t qsi_cursor_count(const struct qsi_map *cursors)
{
    struct qsi_map_cursor walk = qsi_map_begin(cursors);
    uint64_t count = 0;

    while (qsi_map_next(cursors, &walk)) {
        count += ((const struct qsi_store_cursor *)walk.value)->offset != QSI_CURSOR_GONE ? 1 : 0;
    }
    return count;
}

qs_status qsi_cursor_reserve(struct qsi_map *cursors, struct qsi_slice group)
{
    struct qsi_store_cursor *cursor;

    if (qsi_map_get(cursors, group.data, group.bytes) != NULL) {
        return QS_OK;
    }
    cursor = qsi_zalloc(sizeof *cursor);
    if (cursor == NULL) {
        return QS_ENOMEM;
    }
    cursor->offset = QSI_CURSOR_GONE;
    if (qsi_map_put(cursors, group.data, group.bytes, cursor) != QS_OK) {
        qsi_free(cursor);
        return QS_ENOMEM;
    }
    return QS_OK;
}

void qsi_cursor_set(struct qsi_map *cursors, const struct qsi_cursor_record *record)
{
    struct qsi_store_cursor *cursor = qsi_map_get(cursors, record->group.data, record->group.bytes);

    QS_ASSERT(cursor != NULL && record->own.bytes <= sizeof cursor->own);
    cursor->offset = record->offset;
    cursor->own_bytes = record->own.bytes;
    if (record->own.bytes > 0) {
        memcpy(cursor->own, record->own.data, record->own.bytes);
    }
}

/* ---- what is durable ---- */

static struct qsi_stream_mark *mark_at(struct qsi_store_stream *stream, uint32_t i)
{
    QS_DCHECK(i < stream->mark_count);
    return &stream->marks[(stream->first_mark + i) % QSI_STREAM_MARKS];
}

uint64_t qsi_stream_durable_next(const struct qs_store *store, struct qsi_store_stream *stream)
{
    uint64_t durable;

    QS_ASSERT_HELD(&store->mutex);
    if (store->journal == NULL) { /* opened for reading only, or being opened */
        return stream->log.container.next_seq;
    }
    durable = qsi_journal_commits(store->journal).durable;
    while (stream->mark_count > 0 && mark_at(stream, 0)->commit < durable) {
        stream->durable_next = mark_at(stream, 0)->next;
        stream->first_mark = (stream->first_mark + 1) % QSI_STREAM_MARKS;
        stream->mark_count -= 1;
    }
    if (stream->mark_count == 0) {
        stream->durable_next = stream->log.container.next_seq;
    }
    return stream->durable_next;
}

void qsi_stream_mark_pushed(const struct qs_store *store, struct qsi_store_stream *stream,
                            uint64_t count)
{
    uint64_t next = stream->log.container.next_seq;
    uint64_t commit = qsi_journal_commits(store->journal).open;
    struct qsi_stream_mark *last;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(count > 0 && count <= next);
    if (stream->mark_count == 0) {
        stream->durable_next = next - count;
    }
    if (stream->mark_count == 0 || (mark_at(stream, stream->mark_count - 1)->commit < commit &&
                                    stream->mark_count < QSI_STREAM_MARKS)) {
        stream->mark_count += 1;
    }
    last = mark_at(stream, stream->mark_count - 1);
    QS_DCHECK(stream->mark_count == 1 || last->commit <= commit);
    *last = (struct qsi_stream_mark){.next = next, .commit = commit};
}

uint64_t qsi_stream_awaited_lsn(const struct qs_store *store)
{
    QS_DCHECK(qsi_journal_durable_lsn(store->journal) < qsi_journal_appended_lsn(store->journal));
    return qsi_journal_durable_lsn(store->journal) + 1;
}
