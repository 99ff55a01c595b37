/* Work queues of the store: their arguments, their streams, and what they have of them. */
#include "store_work.h"

#include "qstore/qstore.h"

#include "armed.h"
#include "check.h"
#include "error.h"
#include "properties.h"
#include "queue_life.h"
#include "stream_policy.h"
#include "turns.h"
#include "work.h"

#include <string.h>

#define SOURCE "x-stream-source"
#define PIN "x-stream-pin"
#define COUNT(table) ((uint32_t)(sizeof(table) / sizeof(table)[0]))

static bool is_text(struct qsi_slice slice, const char *text)
{
    return qsi_slice_equals(slice, qsi_slice_make(text, (uint32_t)strlen(text)));
}

/* ---- arguments ---- */

/* What the arguments of a work queue ask for. */
struct work_policy {
    struct qsi_slice source; /* x-stream-source; in the arguments */
    bool pins;               /* x-stream-pin: retention waits for it */
};

bool qsi_is_work_type(struct qsi_slice arguments)
{
    struct qsi_field field;

    return qsi_table_find(arguments, QSI_SLICE_LITERAL(SOURCE), &field);
}

static qs_status refuse(const char *what, struct qsi_slice queue, const char *why, qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid arg '%s' for queue %.*s: %s", what,
                    QSI_NAME(queue), why);
}

static qs_status check_flags(uint32_t flags, bool is_server_named, struct qsi_slice queue,
                             qs_error *error)
{
    const char *property = (flags & QS_AUTO_DELETE) != 0 ? "auto-delete"
                           : (flags & QS_EXCLUSIVE) != 0 ? "exclusive-owner"
                           : (flags & QS_DURABLE) == 0   ? "non-durable"
                                                         : NULL;

    if (is_server_named) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "Cannot declare a server-named queue that reads a stream");
    }
    return property == NULL ? QS_OK
                            : qsi_fail(error, QS_PRECONDITION_FAILED,
                                       "invalid property '%s' for queue %.*s: it reads a stream",
                                       property, QSI_NAME(queue));
}

/* The messages are the stream's: when they go, how many there are and in which order is for it to
 * say. */
static qs_status check_field(const struct qsi_field *field, struct qsi_slice queue, qs_error *error)
{
    static const char *const refused[] = {
        "x-message-ttl", "x-max-length",   "x-max-length-bytes",
        "x-overflow",    "x-max-priority", "x-queue-mode",
        "x-max-age",     "x-max-messages", "x-stream-max-segment-size-bytes",
    };

    if (is_text(field->name, SOURCE) && (field->type != 'S' || field->value.bytes == 0)) {
        return refuse(SOURCE, queue, "the name of a stream is needed", error);
    }
    if (is_text(field->name, PIN) && field->type != 't') {
        return refuse(PIN, queue, "a boolean is needed", error);
    }
    for (uint32_t i = 0; i < COUNT(refused); i++) {
        if (is_text(field->name, refused[i])) {
            return refuse(refused[i], queue, "a queue with '" SOURCE "' has its stream's messages",
                          error);
        }
    }
    return QS_OK;
}

qs_status qsi_work_policy_check(struct qsi_slice arguments, uint32_t flags, bool is_server_named,
                                struct qsi_slice queue, qs_error *error)
{
    struct qsi_field_walk walk = qsi_table_walk(arguments);
    struct qsi_stream_start_spec start;
    struct qsi_field field;

    if (qsi_is_stream_type(arguments)) {
        return refuse(SOURCE, queue, "a stream reads no other", error);
    }
    QS_TRY(check_flags(flags, is_server_named, queue, error));
    while (qsi_field_next(&walk, &field)) {
        QS_TRY(check_field(&field, queue, error));
    }
    return qsi_stream_start_parse(&start, arguments, 0, queue, error);
}

/* REQUIRES arguments that were checked once; what makes no sense is not there. */
static void parse_policy(struct work_policy *policy_out, struct qsi_slice arguments)
{
    struct qsi_field field;

    *policy_out = (struct work_policy){.source = QSI_SLICE_NULL};
    if (qsi_table_find(arguments, QSI_SLICE_LITERAL(SOURCE), &field) && field.type == 'S') {
        policy_out->source = field.value;
    }
    policy_out->pins = qsi_table_find(arguments, QSI_SLICE_LITERAL(PIN), &field) &&
                       field.type == 't' && field.value.data[0] != 0;
}

qs_status qsi_work_find_source(struct qs_store *store, struct qsi_slice arguments,
                               struct qsi_slice queue, struct store_queue **source_out,
                               qs_error *error)
{
    struct work_policy policy;

    QS_ASSERT_HELD(&store->mutex);
    parse_policy(&policy, arguments);
    *source_out = qsi_find_queue(store, policy.source);
    if (*source_out == NULL) {
        return refuse(SOURCE, queue, "there is no such stream in this store", error);
    }
    return (*source_out)->stream != NULL
               ? QS_OK
               : refuse(SOURCE, queue, "the queue of that name is no stream", error);
}

/* ---- which stream ---- */

static struct store_queue *in_source(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct store_queue, in_source);
}

void qsi_work_attach(struct qs_store *store, struct store_queue *queue, struct store_queue *source,
                     uint64_t first)
{
    struct work_policy policy;

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(qsi_queue_is_work(&queue->core) && queue->source == NULL);
    parse_policy(&policy, queue->arguments);
    queue->pins = policy.pins;
    queue->work_first = first;
    qsi_container_start_at(&queue->container, first);
    if (source == NULL) {
        return;
    }
    queue->source = source;
    if (qsi_list_is_empty(&source->stream->work_queues)) {
        source->stream->told_next = 0; /* while it had none nobody was told */
        qsi_list_push_back(&store->sources, &source->stream->in_sources);
    }
    (void)qsi_work_raise(&queue->core, source->stream->told_next);
    qsi_list_push_back(&source->stream->work_queues, &queue->in_source);
}

void qsi_work_detach(struct store_queue *queue)
{
    struct store_queue *source = queue->source;

    if (source == NULL) {
        return;
    }
    qsi_list_remove(&queue->in_source);
    if (qsi_list_is_empty(&source->stream->work_queues)) {
        qsi_list_remove(&source->stream->in_sources);
    }
    queue->source = NULL;
}

void qsi_work_detach_readers(struct store_stream *stream)
{
    while (!qsi_list_is_empty(&stream->work_queues)) {
        struct store_queue *queue = in_source(stream->work_queues.next);
        QS_ASSERT(queue->source != NULL && queue->source->stream == stream);
        qsi_work_detach(queue);
    }
}

struct store_queue *qsi_work_reader(const struct store_stream *stream)
{
    return qsi_list_is_empty(&stream->work_queues) ? NULL : in_source(stream->work_queues.next);
}

/* ---- how far ---- */

static void raise_all(struct qs_store *store, struct store_stream *stream, uint64_t end)
    QSI_REQUIRES(qsi_store_mutex)
{
    stream->told_next = end;
    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        struct store_queue *queue = in_source(node);
        if (qsi_work_raise(&queue->core, end) > 0) {
            qsi_signal_consumers(store, queue);
        }
    }
}

void qsi_work_advance_all(struct qs_store *store)
{
    struct qsi_list *node = store->sources.next;

    QS_ASSERT_HELD(&store->mutex);
    while (node != &store->sources) {
        struct store_stream *stream = QSI_LIST_OWNER(node, struct store_stream, in_sources);
        uint64_t end = qsi_stream_durable_next(store, stream);
        node = node->next;
        if (end > stream->told_next) {
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
        struct store_queue *queue = cursor.value;
        if (!qsi_queue_is_work(&queue->core)) {
            continue;
        }
        if (queue->source == NULL) { /* salvage: nobody has its messages */
            qsi_work_lose(&queue->core, 0, UINT64_MAX);
            continue;
        }
        queue->source->stream->told_next = queue->source->messages->next_seq;
        (void)qsi_work_raise(&queue->core, queue->source->stream->told_next);
        qsi_work_lose(&queue->core, 0, queue->source->stream->log.first);
    }
}

/* ---- retention ---- */

void qsi_work_pass(struct store_stream *stream)
{
    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        qsi_work_lose(&in_source(node)->core, 0, stream->log.first);
    }
}

bool qsi_work_pass_one(struct store_queue *queue, uint64_t seq)
{
    if (!qsi_queue_is_work(&queue->core) ||
        (queue->source != NULL && seq >= queue->source->stream->log.first)) {
        return false;
    }
    queue->core.work.passed_count += 1;
    return true;
}

uint64_t qsi_work_pinned_from(const struct store_stream *stream)
{
    uint64_t from = UINT64_MAX;

    for (struct qsi_list *node = stream->work_queues.next; node != &stream->work_queues;
         node = node->next) {
        const struct store_queue *queue = in_source(node);
        uint64_t low = queue->pins ? qsi_work_low_water(&queue->core) : UINT64_MAX;
        from = low < from ? low : from;
    }
    return from;
}
