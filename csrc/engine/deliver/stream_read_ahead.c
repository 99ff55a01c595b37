/* Reading ahead for a consumer of a stream, from the publishers' chunks or from blocks, and
 * choosing the messages that its filter wants.
 *
 * A filter selects messages by a header, which a block's dictionary does not have: each message is
 * checked once, when the batch is read. */
#include "stream_read_ahead.h"

#include "alloc.h"
#include "check.h"
#include "consume.h"
#include "content.h"
#include "enter.h"
#include "error.h"
#include "field_table.h"
#include "notify.h"
#include "properties.h"
#include "queue_life.h"
#include "record.h"
#include "wake.h"

#include <string.h>

#define ROWS_MAX 256u /* of the tail: how much is held, or checked under the lock */
#define VALUE "x-stream-filter-value"

/* ---- filters ---- */

static bool wants(const struct qsi_stream_filter *filter, struct qsi_slice properties)
{
    struct qsi_slice headers = qsi_properties_headers(properties.data, properties.bytes);
    struct qsi_field field;

    if (headers.data == NULL || !qsi_table_find(headers, QSI_SLICE_LITERAL(VALUE), &field) ||
        field.type != 'S') {
        return filter->takes_unfiltered;
    }
    for (uint32_t i = 0; i < filter->count; i++) {
        if (qsi_slice_equals(filter->values[i], field.value)) {
            return true;
        }
    }
    return false;
}

/* A message whose properties cannot be read is wanted: its receiver gets the error. */
static qs_status wants_row(struct qs_store *store, const struct qsi_stream_filter *filter,
                           const struct qsi_messages *view, uint32_t row, bool *wants_out,
                           qs_error *error)
{
    struct qsi_stored stored;
    struct qsi_body body;
    qs_status status;

    qsi_messages_read_body(view, row, &body);
    if (body.kind == QSI_BODY_EMBEDDED) {
        *wants_out = wants(filter, qsi_messages_properties(view, row));
        return QS_OK;
    }
    *wants_out = true;
    status = qsi_read_stored(store, &body, &stored, error);
    if (status == QS_OK) {
        *wants_out = wants(filter, stored.properties);
        qsi_chunk_unref(stored.chunk);
    }
    return qsi_is_unreadable(status) ? QS_OK : status;
}

/* Without the lock, unless all bodies are in memory.  *wanted_out: NULL without a filter. */
static qs_status choose(struct qs_store *store, const struct qsi_stream_filter *filter,
                        const struct qsi_stream_batch *batch, uint64_t **wanted_out,
                        qs_error *error)
{
    uint64_t *wanted;

    *wanted_out = NULL;
    if (filter->count == 0) {
        return QS_OK;
    }
    wanted = qsi_zalloc(((size_t)batch->count + QSI_WORD_BITS) / QSI_WORD_BITS * sizeof *wanted);
    if (wanted == NULL) {
        return qsi_fail(error, QS_ENOMEM, "filter");
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct qsi_messages view;
        uint32_t row;
        bool is_wanted;
        qs_status status;
        qsi_messages_view(&view, qsi_stream_batch_record(batch, i, &row));
        status = wants_row(store, filter, &view, row, &is_wanted, error);
        if (status != QS_OK) {
            qsi_free(wanted);
            return status;
        }
        wanted[i / QSI_WORD_BITS] |= (uint64_t)is_wanted << i % QSI_WORD_BITS;
    }
    *wanted_out = wanted;
    return QS_OK;
}

/* ---- what was read ---- */

/* The first wanted message at or behind i; count: there is none. */
static uint32_t next_wanted(const struct qsi_stream_cursor *cursor, uint32_t i)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = cursor->batch.count;

    while (cursor->wanted != NULL && i < count) {
        uint64_t bits = cursor->wanted[i / QSI_WORD_BITS] >> i % QSI_WORD_BITS;
        if (bits != 0) {
            i += (uint32_t)__builtin_ctzll(bits);
            break;
        }
        i = (i / QSI_WORD_BITS + 1) * QSI_WORD_BITS;
    }
    return i < count ? i : count;
}

bool qsi_stream_next_row(struct qsi_store_consumer *consumer, uint32_t *row_out)
{
    struct qsi_stream_cursor *cursor = consumer->cursor;
    struct qsi_store_stream *stream = consumer->queue->stream;
    uint64_t end = qsi_stream_durable_next(consumer->channel->store, stream);
    const struct qsi_stream_batch *batch = &cursor->batch;
    uint64_t first = batch->first_offset, offset;

    QS_ASSERT_HELD(&consumer->channel->store->mutex);
    if (cursor->position < stream->log.first) { /* retention was faster */
        cursor->position = stream->log.first;
    }
    if (cursor->position < first || cursor->position >= first + batch->count) {
        qsi_stream_cursor_drop_batch(cursor);
        return false;
    }
    *row_out = next_wanted(cursor, (uint32_t)(cursor->position - first));
    offset = first + *row_out;
    if (offset >= end || *row_out == batch->count) {
        cursor->position = offset < end ? offset : end;
        if (cursor->position == first + batch->count) { /* none of it is wanted any more */
            qsi_stream_cursor_drop_batch(cursor);
        }
        return false;
    }
    cursor->position = offset;
    return true;
}

/* ---- reading ---- */

struct read_ahead {
    struct qsi_store_consumer *consumer;
    struct qsi_store_queue *queue;
    struct qsi_stream_view view;
    struct qsi_stream_batch batch;
    uint64_t *wanted;
    uint64_t from;
};

/* Gives the batch to the consumer, or frees it. */
static void end(struct read_ahead *ahead, bool is_kept) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_cursor *cursor = ahead->consumer->cursor;

    if (is_kept) {
        qsi_stream_cursor_drop_batch(cursor);
        if (cursor->position < ahead->batch.first_offset) {
            cursor->position = ahead->batch.first_offset;
        }
        cursor->batch = ahead->batch;
        cursor->wanted = ahead->wanted;
        cursor->has_view = ahead->batch.tail != NULL;
        if (cursor->has_view) {
            cursor->view = ahead->view;
            return;
        }
    } else {
        qsi_stream_batch_fini(&ahead->batch);
        qsi_free(ahead->wanted);
    }
    qsi_stream_view_fini(&ahead->view);
}

/* The consumer skips messages that are missing, or cannot be read; retention may have dropped
 * them. */
static qs_status pass(struct read_ahead *ahead, qs_status status, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_cursor *cursor = ahead->consumer->cursor;
    uint64_t first = ahead->queue->stream->log.first, behind = ahead->batch.first_offset;

    if (cursor->position < first) {
        cursor->position = first;
        return QS_OK;
    }
    if (status == QS_EEMPTY && behind <= ahead->from) {
        return qsi_fail(error, QS_ECORRUPT, "stream '%.*s' lacks offset %llu",
                        QSI_NAME(ahead->queue->name), (unsigned long long)ahead->from);
    }
    if (cursor->position == ahead->from && cursor->position < behind &&
        (status == QS_EEMPTY || status == QS_ECORRUPT)) {
        cursor->position = behind;
    }
    return status == QS_EEMPTY ? QS_OK : status;
}

/* Releases the lock meanwhile. */
static qs_status read_unlocked(struct read_ahead *ahead, struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_consumer *consumer = ahead->consumer;
    struct qsi_stream_cursor *cursor = consumer->cursor;
    const struct qsi_stream_filter *filter = &cursor->filter;
    uint32_t reader = qsi_reader_begin(store);
    qs_error detail = {0};
    qs_status status;

    cursor->is_reading = true;
    ahead->queue->jobs += 1;
    qsi_store_unlock(store);
    status = qsi_stream_read(&ahead->view, ahead->from, NULL, NULL, &ahead->batch, &detail);
    if (status == QS_OK) {
        status = choose(store, filter, &ahead->batch, &ahead->wanted, &detail);
    }
    qsi_store_lock(store);
    qsi_reader_end(store, reader);
    cursor->is_reading = false;
    ahead->queue->jobs -= 1;
    if (status != QS_OK && consumer->queue != NULL) {
        qs_status passed = pass(ahead, status, &detail);
        if (passed != QS_OK && error != NULL) {
            *error = detail;
        }
        end(ahead, false);
        status = passed;
    } else {
        /* The consumer may have been moved, or its stream deleted. */
        end(ahead, status == QS_OK && consumer->queue != NULL && cursor->position == ahead->from);
        status = QS_OK;
    }
    qsi_consumer_free_if_done(consumer);
    qsi_free_queue_if_done(ahead->queue);
    qsi_events_notify(store); /* the channel looks again before it waits */
    return status;
}

/* Whether all of it is in memory, and cheap to check. */
static bool is_at_hand(const struct read_ahead *ahead) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream_tail *tail = ahead->view.tail;

    return ahead->view.tail_count > 0 && ahead->from >= tail->first_offset &&
           (ahead->consumer->cursor->filter.count == 0 || !tail->has_stored);
}

qs_status qsi_stream_read_ahead(struct qsi_store_consumer *consumer, bool *released_out,
                                enum qsi_wait wait, qs_error *error)
{
    struct qs_store *store = consumer->channel->store;
    struct read_ahead ahead = {
        .consumer = consumer, .queue = consumer->queue, .from = consumer->cursor->position};
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    /* One byte of the tail: one run, and only its own chunks are held. */
    status = qsi_stream_view_take(&ahead.view, &ahead.queue->stream->log, ahead.from, ROWS_MAX, 1);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(ahead.queue->name));
    }
    if (!is_at_hand(&ahead)) {
        status = qsi_check_may_wait(wait);
        if (status != QS_OK) {
            qsi_stream_view_fini(&ahead.view);
            return status;
        }
        *released_out = true;
        return read_unlocked(&ahead, store, error);
    }
    status = qsi_stream_read(&ahead.view, ahead.from, NULL, NULL, &ahead.batch, error);
    QS_ASSERT(status == QS_OK); /* it is there */
    status = choose(store, &consumer->cursor->filter, &ahead.batch, &ahead.wanted, error);
    end(&ahead, status == QS_OK);
    return status;
}
