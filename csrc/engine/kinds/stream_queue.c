/* Streams as a kind of queues.  The queue itself stays empty: its messages are in the log. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "policy.h"
#include "store.h"
#include "store_kinds.h"
#include "store_stream.h"
#include "store_work.h"
#include "stream_cursor.h"
#include "wake.h"

static uint64_t or_none(uint64_t limit)
{
    return limit == QSI_UNLIMITED ? 0 : limit;
}

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

static qs_status make(struct qs_store *store, struct qsi_store_queue *queue, uint64_t id,
                      const struct qsi_arguments *asked, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
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
    QS_ASSERT_HELD(&store->mutex);
    store->stream_count += 1;
    qsi_wake_timer(store);
}

static void abandoned(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(store->stream_count > 0);
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
static void report(const struct qsi_store_queue *queue, qs_queue_status *status)
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

static qs_status check_delete(const struct qs_store *store, const struct qsi_store_queue *queue,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *reader = qsi_work_reader(queue->stream);

    return reader == NULL ? QS_OK
                          : qsi_fail(error, QS_PRECONDITION_FAILED,
                                     "queue '%.*s'%s is the x-stream-source of queue '%.*s'",
                                     QSI_NAME(queue->name), store->place, QSI_NAME(reader->name));
}

/* A commit looks only at streams that got messages and have consumers or work queues: there may be
 * thousands, and most of them wait.  It notifies the consumers. */
static void pushed(struct qs_store *store, struct qsi_store_queue *queue, uint64_t count,
                   bool journalled) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_stream *stream = queue->stream;

    QS_DCHECK(stream->queue == queue && count > 0);
    if (journalled) {
        qsi_stream_mark_pushed(store, stream, count);
    }
    if (queue->consumer_count > 0 && qsi_list_is_empty(&stream->in_grown)) {
        qsi_list_push_back(&store->events.grown_streams, &stream->in_grown);
    }
    if (store->events.armed_count > 0) {
        qsi_stream_call_threads(store, stream);
    }
    if (!qsi_list_is_empty(&stream->work_queues) && qsi_list_is_empty(&stream->in_sources)) {
        qsi_list_push_back(&store->sources, &stream->in_sources);
    }
}

static struct qsi_map *cursors(struct qsi_store_queue *queue)
{
    return &queue->stream->cursors;
}

/* Only messages that the last checkpoint has as flushed are dropped.  So a replay, which begins
 * with that checkpoint, has in files whatever the journal says was dropped. */
static uint64_t kept_from(const struct qsi_store_queue *queue, uint64_t now_us)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &queue->stream->log;
    uint64_t first = qsi_stream_trim_offset(log, now_us);

    first = first < log->synced_next ? first : log->synced_next;
    if (first > log->first) {
        uint64_t pinned = qsi_work_pinned_from(queue->stream);
        first = first < pinned ? first : pinned;
    }
    return first > log->first ? first : 0;
}

static void trimmed(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_work_pass(queue->stream);
}

static void check(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_stream *stream = queue->stream;

    QS_DCHECK(queue->messages == &stream->log.container && stream->queue == queue);
    QS_DCHECK(queue->container.next_seq == 0 || queue->container.ram_count == 0);
    QS_DCHECK(stream->durable_next <= queue->messages->next_seq);
    QS_DCHECK(stream->mark_count <= QSI_STREAM_MARKS);
    QS_DCHECK(queue->consumer_count > 0 || qsi_list_is_empty(&stream->in_grown));
    qsi_stream_check(&stream->log);
}

static void fini(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_stream *stream = queue->stream;
    struct qsi_map_cursor walk;

    if (stream == NULL) { /* there was no memory for it */
        return;
    }
    qsi_work_detach_readers(stream); /* the store is closed: they go, too */
    QS_DCHECK(qsi_list_is_empty(&stream->in_sources));
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
    .check_delete = check_delete,
    .abandoned = abandoned,
    .pushed = pushed,
    .consumers_changed = qsi_stream_update_consumers,
    .has_next = qsi_stream_cursor_has_next,
    .awaits_commit = qsi_stream_cursor_awaits,
    .out_count = out_count,
    .cursors = cursors,
    .kept_from = kept_from,
    .trimmed = trimmed,
    .report = report,
    .check = check,
    .fini = fini,
};
