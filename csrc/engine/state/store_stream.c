/* A stream's part of a queue. */
#include "store_stream.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "journal.h"
#include "lock.h"
#include "policy.h"
#include "queue_life.h"
#include "store.h"
#include "store_kind.h"
#include "store_work.h"
#include "wake.h"

#include <string.h>

static uint64_t or_none(uint64_t limit)
{
    return limit == QSI_UNLIMITED ? 0 : limit;
}

/* ---- the kind ---- */

/* Without memory NULL. */
static struct qsi_store_stream *create(struct qsi_stream_shared *shared, uint64_t id,
                                       const struct qsi_stream_policy *policy)
{
    struct qsi_store_stream *stream = qsi_zalloc(sizeof *stream);
    struct qsi_stream_limits limits;

    if (stream == NULL) {
        return NULL;
    }
    qsi_list_init(&stream->work_queues);
    qsi_list_init(&stream->in_sources);
    limits = (struct qsi_stream_limits){
        .segment_bytes = policy->segment_bytes,
        .segments_follow = policy->segments_follow,
        .max_bytes = or_none(policy->bytes_max),
        .max_age_us = or_none(policy->age_us_max),
        .max_messages = or_none(policy->messages_max),
    };
    if (qsi_stream_init(&stream->log, shared, id, &limits) != QS_OK) {
        qsi_free(stream);
        return NULL;
    }
    qsi_list_init(&stream->in_grown);
    return stream;
}

/* The queue of the stream itself stays empty. */
static qs_status make(struct qs_store *store, struct qsi_store_queue *queue, uint64_t id,
                      const struct qsi_arguments *asked, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_init(&queue->core, &store->shared, id, (queue->flags & QS_DURABLE) != 0);
    queue->stream = create(&store->streams, id, &asked->stream);
    if (queue->stream == NULL) {
        return qsi_fail(error, QS_ENOMEM, "stream '%.*s'", QSI_NAME(queue->name));
    }
    queue->stream->queue = queue;
    queue->messages = &queue->stream->log.container;
    return QS_OK;
}

static void added(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    (void)queue;
    store->stream_count += 1;
    qsi_wake_timer(store);
}

static void abandoned(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    store->stream_count -= 1;
    qsi_list_remove(&queue->stream->in_grown);
    qsi_work_detach_readers(queue->stream);
    qsi_container_abandon(queue->messages);
}

static uint64_t out_count(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return queue->stream->out_count;
}

/* Nothing is in a queue's states: what files alone have is delta. */
static void tell(const struct qsi_store_queue *queue, qs_queue_status *status)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &queue->stream->log;
    uint64_t tail = qsi_stream_tail_begin(log);

    QS_DCHECK(log->first <= tail && tail <= log->container.next_seq);
    status->stream = true;
    status->first = log->first;
    status->next = log->container.next_seq;
    status->segments = qsi_stream_segment_count(log);
    status->alpha = log->container.next_seq - tail;
    status->delta = tail - log->first;
    status->disk_bytes = qsi_stream_bytes(log);
}

static void fini(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_stream *stream = queue->stream;
    struct qsi_map_cursor walk;

    if (stream == NULL) { /* there was no memory for it */
        return;
    }
    qsi_list_remove(&stream->in_sources);
    while (!qsi_list_is_empty(&stream->work_queues)) { /* the store is closed: they go, too */
        qsi_list_remove(stream->work_queues.next);
    }
    walk = qsi_map_begin(&stream->cursors);
    while (qsi_map_next(&stream->cursors, &walk)) {
        qsi_free(walk.value);
    }
    qsi_map_fini(&stream->cursors);
    qsi_container_fini(&stream->log.container);
    qsi_list_remove(&stream->in_grown);
    qsi_free(stream);
}

const struct qsi_store_kind qsi_stream_queue = {
    .arguments = QSI_STREAM_QUEUE,
    .declares = QSI_RECORD_STREAM_DECLARE,
    .make = make,
    .added = added,
    .abandoned = abandoned,
    .out_count = out_count,
    .tell = tell,
    .fini = fini,
};

/* ---- cursors ---- */

const struct qsi_store_cursor *qsi_cursor_find(const struct qsi_store_stream *stream,
                                               struct qsi_slice group)
{
    const struct qsi_store_cursor *cursor = qsi_map_get(&stream->cursors, group.data, group.bytes);

    return cursor != NULL && cursor->offset != QSI_CURSOR_GONE ? cursor : NULL;
}

uint64_t qsi_cursor_count(const struct qsi_store_stream *stream)
{
    struct qsi_map_cursor walk = qsi_map_begin(&stream->cursors);
    uint64_t count = 0;

    while (qsi_map_next(&stream->cursors, &walk)) {
        count += ((const struct qsi_store_cursor *)walk.value)->offset != QSI_CURSOR_GONE ? 1 : 0;
    }
    return count;
}

qs_status qsi_cursor_reserve(struct qsi_store_stream *stream, struct qsi_slice group)
{
    struct qsi_store_cursor *cursor;

    if (qsi_map_get(&stream->cursors, group.data, group.bytes) != NULL) {
        return QS_OK;
    }
    cursor = qsi_zalloc(sizeof *cursor);
    if (cursor == NULL) {
        return QS_ENOMEM;
    }
    cursor->offset = QSI_CURSOR_GONE;
    if (qsi_map_put(&stream->cursors, group.data, group.bytes, cursor) != QS_OK) {
        qsi_free(cursor);
        return QS_ENOMEM;
    }
    return QS_OK;
}

void qsi_cursor_set(struct qsi_store_stream *stream, const struct qsi_cursor_record *record)
{
    struct qsi_store_cursor *cursor =
        qsi_map_get(&stream->cursors, record->group.data, record->group.bytes);

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

void qsi_stream_note_pushed(const struct qs_store *store, struct qsi_store_stream *stream,
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
