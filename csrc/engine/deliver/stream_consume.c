/* Beginning to consume from a stream: its arguments. */
#include "stream_consume.h"

#include "alloc.h"
#include "argument_values.h"
#include "clock.h"
#include "error.h"
#include "field_table.h"
#include "queue_life.h"
#include "stream_start.h"
#include "title.h"

#include <string.h>

#define FILTER "x-stream-filter"
#define UNFILTERED "x-stream-match-unfiltered"
#define TRACKING "x-stream-automatic-offset-tracking"
#define PRIORITY "x-priority"

/* queue: how texts call the stream (title.h). */
static qs_status invalid(const char *name, struct qsi_slice queue, const char *why, qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "invalid arg '%s' for queue %.*s: %s", name,
                    QSI_NAME(queue), why);
}

static qs_status read_flag(struct qsi_slice arguments, const char *name, struct qsi_slice queue,
                           bool *flag_out, qs_error *error)
{
    struct qsi_field field;

    *flag_out = false;
    if (!qsi_table_find(arguments, qsi_slice_make(name, (uint32_t)strlen(name)), &field)) {
        return QS_OK;
    }
    if (field.type != 't') {
        return invalid(name, queue, "true or false is needed", error);
    }
    *flag_out = field.value.data[0] != 0;
    return QS_OK;
}

/* One value, or an array of them. */
static qs_status read_filter(struct qsi_stream_filter *filter, struct qsi_slice arguments,
                             struct qsi_slice queue, qs_error *error)
{
    struct qsi_field field, entry;
    struct qsi_field_walk walk;

    QS_TRY(read_flag(arguments, UNFILTERED, queue, &filter->takes_unfiltered, error));
    if (!qsi_table_find(arguments, QSI_SLICE_LITERAL(FILTER), &field)) {
        return QS_OK;
    }
    if (field.type != 'S' && field.type != 'A') {
        return invalid(FILTER, queue, "text, or an array of texts, is needed", error);
    }
    /* An entry takes at least a byte. */
    filter->values = qsi_zalloc(((size_t)field.value.bytes + 1) * sizeof *filter->values);
    if (filter->values == NULL) {
        return qsi_fail(error, QS_ENOMEM, "consumer");
    }
    if (field.type == 'S') {
        filter->values[filter->count++] = field.value;
        return QS_OK;
    }
    walk = qsi_array_walk(field.value);
    while (qsi_field_next(&walk, &entry)) {
        if (entry.type != 'S') {
            return invalid(FILTER, queue, "text, or an array of texts, is needed", error);
        }
        filter->values[filter->count++] = entry.value;
    }
    return filter->count > 0 ? QS_OK : invalid(FILTER, queue, "the array is empty", error);
}

/* In the order of RabbitMQ's checks. */
static qs_status check_stream(const struct qs_channel *channel, const struct qsi_store_queue *queue,
                              const struct qsi_consume_call *call, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_field field;

    if (qsi_table_find(call->arguments, QSI_SLICE_LITERAL(PRIORITY), &field)) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "invalid arg '" PRIORITY "' for queue '%.*s'%s of queue type "
                        "rabbit_stream_queue",
                        QSI_NAME(queue->name), channel->store->place);
    }
    if ((call->flags & (QS_NO_ACK | QS_AUTO_ACK)) != 0) {
        return qsi_refuse_stream(channel->store, queue, "automatic acknowledgement", error);
    }
    if (channel->prefetch_new == 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "consumer prefetch count is not set for 'queue '%.*s'%s'",
                        QSI_NAME(queue->name), channel->store->place);
    }
    return QS_OK;
}

static qs_status read_arguments(struct qsi_stream_cursor *cursor, const struct qs_channel *channel,
                                const struct qsi_store_queue *queue,
                                const struct qsi_consume_call *call, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice arguments = {cursor->arguments, call->arguments.bytes};
    struct qsi_stream_start_spec start;
    struct qsi_title title;
    struct qsi_slice called = qsi_title_of(&title, channel->store, queue->name);

    QS_TRY(qsi_stream_start_parse(&start, arguments, qsi_clock_us(channel->store), called, error));
    QS_TRY(read_flag(arguments, TRACKING, called, &cursor->tracks, error));
    if (cursor->tracks && call->tag.bytes == 0) {
        return invalid(TRACKING, called, "a consumer tag is needed, under which it is noted",
                       error);
    }
    return read_filter(&cursor->filter, arguments, called, error);
}

qs_status qsi_stream_cursor_create(struct qsi_stream_cursor **cursor_out,
                                   const struct qs_channel *channel,
                                   const struct qsi_store_queue *queue,
                                   const struct qsi_consume_call *call, qs_error *error)
{
    struct qsi_stream_cursor *cursor;
    qs_status status;

    QS_ASSERT_HELD(&channel->store->mutex);
    *cursor_out = NULL;
    QS_TRY(check_stream(channel, queue, call, error));
    cursor = qsi_zalloc(sizeof *cursor);
    if (cursor == NULL) {
        return qsi_fail(error, QS_ENOMEM, "consumer");
    }
    qsi_list_init(&cursor->in_acked);
    cursor->arguments = qsi_alloc((size_t)call->arguments.bytes + 1);
    if (cursor->arguments == NULL) {
        status = qsi_fail(error, QS_ENOMEM, "consumer");
    } else {
        qsi_slice_put(cursor->arguments, call->arguments);
        status = read_arguments(cursor, channel, queue, call, error);
    }
    if (status != QS_OK) {
        qsi_stream_cursor_destroy(cursor);
        return status;
    }
    *cursor_out = cursor;
    return QS_OK;
}

qs_status qsi_stream_cursor_start(struct qsi_stream_cursor *cursor, struct qs_store *store,
                                  struct qsi_store_queue *queue,
                                  const struct qsi_consume_call *call, qs_error *error)
{
    const struct qsi_store_cursor *noted =
        cursor->tracks ? qsi_cursor_find(&queue->stream->cursors, call->tag) : NULL;
    struct qsi_stream_start_spec start;
    struct qsi_title title;

    QS_ASSERT_HELD(&store->mutex);
    if (noted != NULL) {
        start = (struct qsi_stream_start_spec){.at = QSI_START_OFFSET, .offset = noted->offset};
    } else {
        QS_TRY(qsi_stream_start_parse(&start, call->arguments, qsi_clock_us(store),
                                      qsi_title_of(&title, store, queue->name), error));
    }
    return qsi_stream_find_start(store, queue, &start, &cursor->position, error);
}
