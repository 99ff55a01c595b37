/* Cursors: the positions of groups of readers of a stream.  A cursor is a record of its own, or one
 * of a transaction's. */
#include "cursors.h"

#include "qstore/stream.h"

#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "queue_life.h"
#include "store_stream.h"
#include "wake.h"

#include <string.h>

/* NULL: the stream was deleted. */
static struct qsi_map *find_cursors(struct qs_store *store, uint64_t id)
{
    struct qsi_store_queue *queue = qsi_map_get_number(&store->queues_by_id, id);

    return queue != NULL ? qsi_cursors_of(queue) : NULL;
}

/* ---- of a transaction ---- */

static const uint8_t *record_at(const struct qs_channel *channel, size_t at,
                                struct qsi_cursor_record *cursor_out) QSI_REQUIRES(qsi_store_mutex)
{
    const uint8_t *record = channel->tx_cursors.data + at;

    QS_ASSERT(qsi_cursor_record_decode(cursor_out, record, NULL) == QS_OK);
    return record;
}

qs_status qsi_tx_cursors_reserve(struct qs_channel *channel, qs_error *error)
{
    struct qsi_cursor_record cursor;

    QS_ASSERT_HELD(&channel->store->mutex);
    for (size_t at = 0; at < channel->tx_cursors.bytes;) {
        const uint8_t *record = record_at(channel, at, &cursor);
        struct qsi_map *cursors = find_cursors(channel->store, cursor.stream_id);
        if (cursors != NULL && qsi_cursor_reserve(cursors, cursor.group) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "cursor");
        }
        at += qsi_record_length(record);
    }
    return QS_OK;
}

uint32_t qsi_tx_cursors_put(struct qs_channel *channel, struct qsi_chunk *tail)
{
    struct qsi_cursor_record cursor;
    uint32_t count = 0;

    QS_ASSERT_HELD(&channel->store->mutex);
    for (size_t at = 0; at < channel->tx_cursors.bytes; count++) {
        const uint8_t *record = record_at(channel, at, &cursor);
        uint32_t bytes = qsi_record_length(record);
        struct qsi_map *cursors = find_cursors(channel->store, cursor.stream_id);
        if (cursors != NULL) { /* otherwise a replay skips the record */
            qsi_cursor_set(cursors, &cursor);
        }
        QS_ASSERT(bytes <= tail->capacity - tail->used); /* room was made for all */
        memcpy(tail->data + tail->used, record, bytes);
        tail->used += bytes;
        at += bytes;
    }
    return count;
}

static qs_status buffer(struct qs_channel *channel, const struct qsi_cursor_record *cursor,
                        qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = qsi_cursor_record_bytes(cursor);
    uint8_t *at;

    QS_DCHECK(channel->tx_selected);
    if (qsi_buf_reserve(&channel->tx_cursors, bytes, &at) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "transaction");
    }
    qsi_cursor_record_encode(at, cursor);
    channel->tx_cursors.bytes += bytes;
    return QS_OK;
}

/* ---- by itself ---- */

static qs_status require_stream(struct qs_channel *channel, struct qsi_slice name,
                                struct qsi_store_queue **queue_out, qs_error *error)
{
    QS_TRY(qsi_require_queue(channel, name, queue_out, error));
    return qsi_cursors_of(*queue_out) != NULL
               ? QS_OK
               : qsi_fail(error, QS_PRECONDITION_FAILED, "queue '%.*s'%s is no stream",
                          QSI_NAME((*queue_out)->name), channel->store->place);
}

static qs_status append(struct qs_store *store, struct qsi_map *cursors,
                        const struct qsi_cursor_record *cursor, uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t from, bytes = qsi_cursor_record_bytes(cursor);
    struct qsi_chunk *chunk = NULL;

    if (qsi_journal_reserve(store->journal, 1) != QS_OK ||
        qsi_cursor_reserve(cursors, cursor->group) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "cursor");
    }
    QS_TRY(qsi_arena_place(store, true, bytes, &chunk, error));
    from = chunk->used;
    QS_ASSERT(bytes <= chunk->capacity - from);
    qsi_cursor_record_encode(chunk->data + from, cursor);
    chunk->used += bytes;
    qsi_cursor_set(cursors, cursor);
    *lsn_out = qsi_store_append(store, chunk, from, bytes, 1, false);
    qsi_commit_wake(store);
    return QS_OK;
}

static qs_status set_cursor(struct qs_channel *channel, struct qsi_slice name,
                            struct qsi_cursor_record *cursor, enum qsi_wait wait, uint64_t *lsn_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_store_queue *queue = NULL;
    uint64_t bytes = qsi_cursor_record_bytes(cursor);
    bool released = true;

    while (released) { /* the stream may be deleted meanwhile */
        released = false;
        QS_TRY(require_stream(channel, name, &queue, error));
        cursor->stream_id = queue->container.id;
        if (channel->tx_selected) {
            return buffer(channel, cursor, error);
        }
        QS_TRY(qsi_commit_make_room(store, bytes, bytes, QSI_ROOM_REMOVE, &released, wait, error));
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
    }
    QS_DCHECK(queue->container.id == cursor->stream_id);
    QS_TRY(append(store, qsi_cursors_of(queue), cursor, lsn_out, error));
    return wait == QSI_MUST_NOT_WAIT ? QS_OK : qsi_commit_wait(store, *lsn_out, QS_FOREVER, error);
}

static qs_status check_sizes(qs_slice group, qs_slice own, qs_error *error)
{
    if (group.bytes < 1 || group.bytes > QSI_CURSOR_GROUP_BYTES_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "a group's name of %zu bytes: 1 to %u",
                        group.bytes, QSI_CURSOR_GROUP_BYTES_MAX);
    }
    if (own.bytes > QSI_CURSOR_OWN_BYTES_MAX) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "%zu bytes of the client's own: %u at most",
                        own.bytes, QSI_CURSOR_OWN_BYTES_MAX);
    }
    return QS_OK;
}

static qs_status change(qs_channel *channel, qs_slice stream, qs_slice group, uint64_t offset,
                        qs_slice own, uint32_t flags, uint64_t *lsn_out, qs_error *error)
{
    struct qsi_cursor_record cursor = {.offset = offset};
    enum qsi_wait wait = qsi_wait_of(flags);
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status = check_sizes(group, own, error);
    if (status == QS_OK) {
        cursor.group = qsi_slice_of(group);
        cursor.own = qsi_slice_of(own);
        status = set_cursor(channel, qsi_slice_of(stream), &cursor, wait, &lsn, error);
    }
    if (lsn_out != NULL) {
        *lsn_out = lsn;
    }
    return qsi_channel_leave_after(channel, wait, status);
}

qs_status qs_channel_commit_offset(qs_channel *channel, qs_slice stream, qs_slice group,
                                   uint64_t offset, qs_slice own, uint32_t flags, uint64_t *lsn_out,
                                   qs_error *error)
{
    if (offset == QSI_CURSOR_GONE) {
        return qsi_fail(error, QS_EINVAL, "no message has the offset %llu",
                        (unsigned long long)offset);
    }
    return change(channel, stream, group, offset, own, flags, lsn_out, error);
}

qs_status qs_channel_forget_offset(qs_channel *channel, qs_slice stream, qs_slice group,
                                   uint32_t flags, uint64_t *lsn_out, qs_error *error)
{
    return change(channel, stream, group, QSI_CURSOR_GONE, (qs_slice){NULL, 0}, flags, lsn_out,
                  error);
}

/* ---- asking ---- */

static qs_status enter_stream(struct qs_store *store, qs_slice name, struct qsi_map **cursors_out,
                              qs_error *error) QSI_ACQUIRES_IF_OK(qsi_store_mutex)
{
    struct qsi_store_queue *queue;
    qs_status status;

    QS_TRY(qsi_store_enter(store, error));
    status = qsi_stream_find(store, qsi_slice_of(name), &queue, error);
    if (status != QS_OK) {
        qsi_store_leave(store);
    } else {
        *cursors_out = qsi_cursors_of(queue);
    }
    return status;
}

qs_status qs_store_cursor(qs_store *store, qs_slice stream, qs_slice group, qs_cursor *cursor_out,
                          qs_error *error)
{
    const struct qsi_store_cursor *cursor;
    struct qsi_map *cursors;

    memset(cursor_out, 0, sizeof *cursor_out);
    QS_TRY(enter_stream(store, stream, &cursors, error));
    cursor = qsi_cursor_find(cursors, qsi_slice_of(group));
    if (cursor != NULL) {
        cursor_out->offset = cursor->offset;
        cursor_out->own_bytes = cursor->own_bytes;
        QS_ASSERT(cursor->own_bytes <= sizeof cursor_out->own);
        memcpy(cursor_out->own, cursor->own, cursor->own_bytes);
    }
    qsi_store_leave(store);
    return cursor != NULL ? QS_OK : QS_EEMPTY;
}

qs_status qs_store_visit_cursors(qs_store *store, qs_slice stream,
                                 void (*visit)(void *context, const qs_cursor_info *),
                                 void *context, qs_error *error)
{
    struct qsi_map_cursor walk;
    struct qsi_map *cursors;

    QS_TRY(enter_stream(store, stream, &cursors, error));
    walk = qsi_map_begin(cursors);
    while (qsi_map_next(cursors, &walk)) {
        const struct qsi_store_cursor *cursor = walk.value;
        const qs_cursor_info info = {
            .group = {walk.key, walk.key_bytes},
            .own = {cursor->own, cursor->own_bytes},
            .offset = cursor->offset,
        };
        if (cursor->offset != QSI_CURSOR_GONE) {
            visit(context, &info);
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}
