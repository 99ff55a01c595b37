/* Work queues of the store: their streams, and what they have of them. */
#include "store_work.h"

#include "qstore/qstore.h"

#include "argument_values.h"
#include "arguments.h"
#include "check.h"
#include "clock.h"
#include "error.h"
#include "queue_life.h"
#include "store_kinds.h"
#include "stream_start.h"
#include "title.h"
#include "turns.h"
#include "work.h"
#include "work_record.h"

#include <string.h>

#define SOURCE "x-stream-source"

static qs_status find_source(struct qs_store *store, struct qsi_slice arguments,
                             struct qsi_slice queue, struct qsi_store_queue **source_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_arguments asked;

    QS_ASSERT_HELD(&store->mutex);
    (void)qsi_arguments_read(&asked, QSI_WORK_QUEUE, arguments, queue, NULL);
    *source_out = qsi_find_queue(store, asked.work.source);
    if (*source_out == NULL) {
        return qsi_argument_invalid(SOURCE, queue, "there is no such stream in this store", error);
    }
    return qsi_is_stream(*source_out)
               ? QS_OK
               : qsi_argument_invalid(SOURCE, queue, "the queue of that name is no stream", error);
}

/* ---- which stream ---- */

static struct qsi_store_queue *in_source(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_store_queue, in_source);
}

/* The new queue reads source from offset first on.  source NULL: salvage found none. */
static void attach(struct qs_store *store, struct qsi_store_queue *queue,
                   struct qsi_store_queue *source, uint64_t first) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(qsi_queue_is_work(&queue->core) && queue->source == NULL);
    queue->work_first = first;
    qsi_container_start_at(&queue->container, first);
    if (source == NULL) {
        return;
    }
    queue->source = source;
    if (qsi_list_is_empty(&source->stream->work_queues)) {
        source->stream->notified_next = 0; /* while it had no queue none was notified */
        qsi_list_push_back(&store->sources, &source->stream->in_sources);
    }
    (void)qsi_work_raise(&queue->core, source->stream->notified_next);
    qsi_list_push_back(&source->stream->work_queues, &queue->in_source);
}

/* It reads no stream any more. */
static void detach(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *source = queue->source;

    if (source == NULL) {
        return;
    }
    qsi_list_remove(&queue->in_source);
    if (qsi_list_is_empty(&source->stream->work_queues)) {
        qsi_list_remove(&source->stream->in_sources);
    }
    queue->source = NULL;
}

void qsi_work_detach_readers(struct qsi_store_stream *stream)
{
    while (!qsi_list_is_empty(&stream->work_queues)) {
        struct qsi_store_queue *queue = in_source(stream->work_queues.next);
        QS_ASSERT(queue->source != NULL && queue->source->stream == stream);
        detach(queue);
    }
}

const struct qsi_store_queue *qsi_work_reader(const struct qsi_store_stream *stream)
{
    return qsi_list_is_empty(&stream->work_queues) ? NULL : in_source(stream->work_queues.next);
}

/* ---- how far ---- */

static void raise_all(struct qs_store *store, struct qsi_store_stream *stream, uint64_t end)
    QSI_REQUIRES(qsi_store_mutex)
{
    stream->notified_next = end;
    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        struct qsi_store_queue *queue = in_source(node);
        if (qsi_work_raise(&queue->core, end) > 0) {
            qsi_notify_consumers(store, queue);
        }
    }
}

void qsi_work_advance_all(struct qs_store *store)
{
    struct qsi_list *node = store->sources.next;

    QS_ASSERT_HELD(&store->mutex);
    while (node != &store->sources) {
        struct qsi_store_stream *stream = QSI_LIST_OWNER(node, struct qsi_store_stream, in_sources);
        uint64_t end = qsi_stream_durable_next(store, stream);
        node = node->next;
        if (end > stream->notified_next) {
            raise_all(store, stream, end);
        }
        if (end == stream->log.container.next_seq) {
            qsi_list_remove(&stream->in_sources);
        }
    }
}

void qsi_work_recover(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (!qsi_queue_is_work(&queue->core)) {
            continue;
        }
        if (queue->source == NULL) { /* salvage: no stream has its messages */
            qsi_work_lose(&queue->core, 0, UINT64_MAX);
            continue;
        }
        queue->source->stream->notified_next = queue->source->messages->next_seq;
        (void)qsi_work_raise(&queue->core, queue->source->stream->notified_next);
        qsi_work_lose(&queue->core, 0, queue->source->stream->log.first);
    }
}

/* ---- retention ---- */

void qsi_work_pass(struct qsi_store_stream *stream)
{
    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        qsi_work_lose(&in_source(node)->core, 0, stream->log.first);
    }
}

bool qsi_work_pass_one(struct qsi_store_queue *queue, uint64_t seq)
{
    if (!qsi_queue_is_work(&queue->core) ||
        (queue->source != NULL && seq >= queue->source->stream->log.first)) {
        return false;
    }
    queue->core.work.passed_count += 1;
    return true;
}

uint64_t qsi_work_pinned_from(const struct qsi_store_stream *stream)
{
    uint64_t from = UINT64_MAX;

    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        const struct qsi_store_queue *queue = in_source(node);
        uint64_t low = queue->pins ? qsi_work_low_water(&queue->core) : UINT64_MAX;
        from = low < from ? low : from;
    }
    return from;
}

/* ---- the kind ---- */

static qs_status make(struct qs_store *store, struct qsi_store_queue *queue, uint64_t id,
                      const struct qsi_arguments *asked, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    (void)error;
    QS_ASSERT_HELD(&store->mutex);
    qsi_work_init(&queue->core, &store->shared, id);
    queue->messages = &queue->container;
    queue->pins = asked->work.pins;
    return QS_OK;
}

/* "first", a time or "1h" are looked up once.  The declaration in the journal has the resulting
 * offset, so a replay needs no look-up, and a queue that is declared again is the same.  As for
 * RabbitMQ's consumers, a missing offset becomes the nearest one. */
static qs_status find_start(struct qs_store *store, struct qsi_slice name, uint32_t flags,
                            struct qsi_slice arguments, uint64_t *start_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_start_spec spec;
    struct qsi_store_queue *source;
    struct qsi_title title;
    struct qsi_slice called = qsi_title_of(&title, store, name);
    qs_status status;

    QS_TRY(qsi_arguments_check(arguments, flags, name.bytes == 0, called, error));
    QS_TRY(find_source(store, arguments, called, &source, error));
    QS_TRY(qsi_stream_start_parse(&spec, arguments, qsi_clock_us(store), called, error));
    source->jobs += 1;
    status = qsi_stream_find_start(store, source, &spec, start_out, error);
    qsi_end_queue_job(source);
    return status;
}

/* Its start was looked up without the lock: retention may have dropped it since, or another stream
 * replaced the stream. */
static qs_status start(struct qs_store *store, struct qsi_store_queue *queue, uint64_t at,
                       qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *source;
    struct qsi_title title;
    uint64_t first, next;

    QS_TRY(find_source(store, queue->arguments, qsi_title_of(&title, store, queue->name), &source,
                       error));
    first = source->stream->log.first;
    next = source->messages->next_seq;
    QS_ASSERT(first <= next);
    attach(store, queue, source, at < first ? first : at > next ? next : at);
    qsi_work_advance(store);
    return QS_OK;
}

static void describe(const struct qsi_store_queue *queue, struct qsi_declaration *declaration)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_work_source_encode(declaration->source,
                           &(struct qsi_work_source){queue->source != NULL
                                                         ? queue->source->container.id
                                                         : QSI_WORK_SOURCE_LOST,
                                                     queue->work_first});
    declaration->topology.strings[2] =
        qsi_slice_make(declaration->source, sizeof declaration->source);
}

static qs_status replay(struct qs_store *store, struct qsi_store_queue *queue,
                        const struct qsi_topology *declaration, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_work_source from;
    struct qsi_store_queue *found;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_work_source_decode(&from, declaration->strings[2], error));
    found = qsi_map_get_number(&store->queues_by_id, from.stream_id);
    if (found != NULL && !qsi_is_stream(found)) {
        found = NULL;
    }
    if (found == NULL && from.stream_id != QSI_WORK_SOURCE_LOST &&
        store->options.recovery != QS_RECOVERY_SALVAGE) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' reads stream %llu, which is not there",
                        QSI_NAME(queue->name), (unsigned long long)from.stream_id);
    }
    if (from.first > UINT64_MAX / 4) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' begins at %llu", QSI_NAME(queue->name),
                        (unsigned long long)from.first);
    }
    attach(store, queue, found, from.first);
    return QS_OK;
}

static void abandoned(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    (void)store;
    detach(queue);
}

const struct qsi_store_kind qsi_work_queue = {
    .arguments = QSI_WORK_QUEUE,
    .declares = QSI_RECORD_WORK_QUEUE_DECLARE,
    .make = make,
    .describe = describe,
    .replay = replay,
    .find_start = find_start,
    .start = start,
    .abandoned = abandoned,
    .fini = detach,
};
