/* Reading a stream by offset: nothing is delivered, and the store knows nothing of who reads. */
#include "qstore/stream.h"

#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "queue_life.h"
#include "store_stream.h"
#include "taken.h"
#include "topic_pattern.h"
#include "wake.h"

#include <string.h>

#define BLOCKS_MAX 64u /* that one batch is made of */

struct qs_stream_reader {
    struct qs_store *store;
    uint64_t stream_id;
    uint64_t position;
    uint32_t columns;
    bool clamps;
    struct qsi_slice name;
    size_t key_count;
    struct qsi_slice *keys;
    uint8_t bytes[]; /* of name and keys */
};

_Static_assert((uint32_t)QS_STREAM_COLUMN_TIMESTAMP == (uint32_t)QSI_ARROW_HAS_TIME &&
                   (uint32_t)QS_STREAM_COLUMN_EXCHANGE == (uint32_t)QSI_ARROW_HAS_EXCHANGE &&
                   (uint32_t)QS_STREAM_COLUMN_ROUTING_KEY == (uint32_t)QSI_ARROW_HAS_ROUTING_KEY &&
                   (uint32_t)QS_STREAM_COLUMN_BODY == (uint32_t)QSI_ARROW_HAS_BODY &&
                   (uint32_t)QS_STREAM_COLUMN_PROPERTIES == (uint32_t)QSI_ARROW_HAS_PROPERTIES,
               "the same bits");

/* ---- status ---- */

qs_status qs_store_stream_status(qs_store *store, qs_slice name, qs_stream_status *status_out,
                                 qs_error *error)
{
    struct store_queue *queue;
    qs_status status;

    memset(status_out, 0, sizeof *status_out);
    QS_TRY(qsi_store_enter(store, error));
    status = qsi_stream_find(store, qsi_slice_of(name), &queue, error);
    if (status == QS_OK) {
        const struct qsi_stream *log = &queue->stream->log;
        *status_out = (qs_stream_status){
            .first = log->first,
            .next = log->container.next_seq,
            .last_time_us = log->last_time_us,
            .segments = qsi_stream_segment_count(log),
            .disk_bytes = qsi_stream_bytes(log),
            .ram_bytes = log->container.ram_bytes,
            .flushed = log->container.flushed_seq,
            .cursors = qsi_cursor_count(queue->stream),
        };
    }
    qsi_store_leave(store);
    return status;
}

/* ---- where to begin ---- */

/* Releases the lock meanwhile.  The stream may be gone afterwards. */
static qs_status find_time(struct qs_store *store, struct store_queue *queue, uint64_t time_us,
                           uint64_t *offset_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_seek seek;
    qs_status status = qsi_stream_seek_begin(&seek, &queue->stream->log, time_us);

    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    queue->jobs += 1;
    qsi_store_unlock(store);
    status = qsi_stream_seek_run(&seek, error);
    qsi_store_lock(store);
    *offset_out = seek.offset;
    qsi_stream_seek_end(&seek);
    queue->jobs -= 1;
    qsi_free_queue_if_done(queue);
    return status;
}

/* Releases the lock meanwhile.  The stream may be gone afterwards. */
static qs_status find_last(struct qs_store *store, struct store_queue *queue, uint64_t *offset_out,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream *log = &queue->stream->log;
    struct qsi_stream_view view;
    qs_status status;

    *offset_out = log->container.next_seq;
    if (log->container.next_seq == log->first) {
        return QS_OK;
    }
    status = qsi_stream_view_take(&view, log, log->container.next_seq - 1, 1, 0);
    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    queue->jobs += 1;
    qsi_store_unlock(store);
    status = qsi_stream_block_start(&view, view.next - 1, offset_out, error);
    qsi_store_lock(store);
    qsi_stream_view_fini(&view);
    queue->jobs -= 1;
    qsi_free_queue_if_done(queue);
    return status;
}

static qs_status fail_dropped(const struct store_queue *queue, uint64_t offset, qs_error *error)
{
    return qsi_fail(error, QS_EOFFSET, "stream '%.*s': offset %llu was dropped, the first is %llu",
                    QSI_NAME(queue->name), (unsigned long long)offset,
                    (unsigned long long)queue->stream->log.first);
}

/* May release the lock meanwhile. */
static qs_status find_start(struct qs_stream_reader *reader, struct store_queue *queue,
                            const qs_stream_start *start, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &queue->stream->log;

    switch (start->at) {
    case QS_STREAM_FIRST:
        reader->position = log->first;
        return QS_OK;
    case QS_STREAM_NEXT:
        reader->position = log->container.next_seq;
        return QS_OK;
    case QS_STREAM_LAST:
        return find_last(reader->store, queue, &reader->position, error);
    case QS_STREAM_TIME:
        return find_time(reader->store, queue, start->time_us, &reader->position, error);
    case QS_STREAM_OFFSET:
        if (start->offset < log->first && !reader->clamps) {
            return fail_dropped(queue, start->offset, error);
        }
        reader->position = start->offset < log->first ? log->first : start->offset;
        return QS_OK;
    default:
        return qsi_fail(error, QS_EINVAL, "a stream has no start %u", start->at);
    }
}

qs_status qs_store_stream_offset_at(qs_store *store, qs_slice name, uint64_t time_us,
                                    uint64_t *offset_out, qs_error *error)
{
    struct store_queue *queue;
    qs_status status;

    *offset_out = 0;
    QS_TRY(qsi_store_enter(store, error));
    status = qsi_stream_find(store, qsi_slice_of(name), &queue, error);
    if (status == QS_OK) {
        status = find_time(store, queue, time_us, offset_out, error);
    }
    qsi_store_leave(store);
    return status;
}

/* ---- readers ---- */

static qs_status check_read(const qs_stream_read *read, size_t *bytes_out, qs_error *error)
{
    *bytes_out = 0;
    if ((read->columns & ~(uint32_t)QS_STREAM_COLUMNS) != 0) {
        return qsi_fail(error, QS_EINVAL, "columns %#x", read->columns);
    }
    for (size_t i = 0; i < read->routing_key_count; i++) {
        if (read->routing_keys[i].bytes > QSI_ROUTE_NAME_BYTES_MAX) {
            return qsi_fail(error, QS_EINVAL, "routing key of %zu bytes: 255 at most",
                            read->routing_keys[i].bytes);
        }
        *bytes_out += read->routing_keys[i].bytes;
    }
    return QS_OK;
}

static struct qs_stream_reader *create_reader(struct qs_store *store, qs_slice name,
                                              const qs_stream_read *read, size_t key_bytes)
{
    struct qs_stream_reader *reader = qsi_zalloc(sizeof *reader + name.bytes + key_bytes);
    uint8_t *at;

    if (reader == NULL) {
        return NULL;
    }
    reader->keys = qsi_zalloc((read->routing_key_count + 1) * sizeof *reader->keys);
    if (reader->keys == NULL) {
        qsi_free(reader);
        return NULL;
    }
    at = reader->bytes;
    reader->name = qsi_slice_make(at, (uint32_t)name.bytes);
    at = qsi_slice_put(at, qsi_slice_of(name));
    for (size_t i = 0; i < read->routing_key_count; i++) {
        reader->keys[i] = qsi_slice_make(at, (uint32_t)read->routing_keys[i].bytes);
        at = qsi_slice_put(at, qsi_slice_of(read->routing_keys[i]));
    }
    reader->key_count = read->routing_key_count;
    reader->store = store;
    reader->clamps = read->clamps;
    reader->columns = read->columns == 0 ? (uint32_t)QS_STREAM_COLUMNS : read->columns;
    return reader;
}

static void free_reader(struct qs_stream_reader *reader)
{
    qsi_free(reader->keys);
    qsi_free(reader);
}

qs_status qs_stream_reader_open(qs_stream_reader **reader_out, qs_store *store, qs_slice stream,
                                const qs_stream_read *read, qs_error *error)
{
    struct qs_stream_reader *reader;
    struct store_queue *queue;
    size_t key_bytes;
    qs_status status;

    *reader_out = NULL;
    QS_TRY(check_read(read, &key_bytes, error));
    if (stream.bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "queue name of %zu bytes: 255 at most", stream.bytes);
    }
    reader = create_reader(store, stream, read, key_bytes);
    if (reader == NULL) {
        return qsi_fail(error, QS_ENOMEM, "reader");
    }
    status = qsi_store_enter(store, error);
    if (status != QS_OK) {
        free_reader(reader);
        return status;
    }
    status = qsi_stream_find(store, reader->name, &queue, error);
    if (status == QS_OK) {
        reader->stream_id = queue->container.id;
        status = find_start(reader, queue, &read->start, error);
    }
    store->references += status == QS_OK ? 1 : 0;
    qsi_store_leave(store);
    if (status != QS_OK) {
        free_reader(reader);
        return status;
    }
    *reader_out = reader;
    return QS_OK;
}

void qs_stream_reader_close(qs_stream_reader *reader)
{
    struct qs_store *store;

    if (reader == NULL || qsi_store_is_forked(reader->store)) {
        return;
    }
    store = reader->store;
    free_reader(reader);
    qsi_store_lock(store);
    qsi_store_unref(store);
}

uint64_t qs_stream_reader_position(const qs_stream_reader *reader)
{
    return reader->position;
}

qs_status qs_stream_reader_schema(const qs_stream_reader *reader, struct ArrowSchema *schema_out,
                                  qs_error *error)
{
    return qsi_arrow_schema(QSI_ARROW_STREAM, reader->columns, schema_out, error);
}

static qs_status require_stream(const struct qs_stream_reader *reader,
                                struct store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    *queue_out = qsi_map_get_number(&reader->store->queues_by_id, reader->stream_id);
    return *queue_out != NULL
               ? QS_OK
               : qsi_fail(error, QS_NOT_FOUND, "stream '%.*s' was deleted", QSI_NAME(reader->name));
}

qs_status qs_stream_reader_seek(qs_stream_reader *reader, const qs_stream_start *start,
                                qs_error *error)
{
    struct store_queue *queue;
    qs_status status;

    QS_TRY(qsi_store_enter(reader->store, error));
    status = require_stream(reader, &queue, error);
    if (status == QS_OK) {
        status = find_start(reader, queue, start, error);
    }
    qsi_store_leave(reader->store);
    return status;
}

/* ---- one batch ---- */

struct reading {
    struct qs_stream_reader *reader;
    struct qsi_stream_view view;
    uint64_t rows_left, bytes_left;
    struct qsi_taken_batch taken;
    struct qsi_stream_batch batches[BLOCKS_MAX];
    uint32_t batch_count;
    uint64_t end;      /* what is behind is not durable yet */
    uint64_t position; /* behind what was taken, or passed over */
};

static bool is_wanted_key(void *context, struct qsi_slice exchange, struct qsi_slice key)
{
    const struct qs_stream_reader *reader = context;

    (void)exchange;
    for (size_t i = 0; i < reader->key_count; i++) {
        if (qsi_topic_pattern_matches(reader->keys[i], key)) {
            return true;
        }
    }
    return reader->key_count == 0;
}

static bool is_wanted(const struct reading *reading, const struct qsi_stream_batch *batch,
                      const struct qsi_messages *view, uint32_t row)
{
    uint32_t route = qsi_messages_row_route(view, row);
    struct qsi_route_view names;

    if (reading->reader->key_count == 0) {
        return true;
    }
    if (batch->wanted != NULL) {
        return (batch->wanted[route / 64] >> (route % 64) & 1) != 0;
    }
    names = qsi_messages_route(view, route);
    return is_wanted_key(reading->reader, names.exchange, names.key);
}

static bool is_full(const struct reading *reading)
{
    return reading->rows_left == 0 ||
           (reading->bytes_left == 0 && reading->taken.message_count > 0);
}

/* The row next to the last ones, if they are rows of one record in a row. */
static qs_status take_row(struct reading *reading, const struct qsi_stream_batch *batch, uint32_t i,
                          const uint8_t *record, uint32_t row, uint32_t bytes)
{
    struct qsi_buf *buf = &reading->taken.taken;
    struct qsi_taken *last = NULL;

    if (buf->bytes > 0) {
        last = (struct qsi_taken *)(void *)(buf->data + buf->bytes) - 1;
    }
    if (last != NULL && last->of == batch && last->record == record &&
        last->row + last->count == row && last->index + last->count == i) {
        last->count += 1;
    } else {
        const struct qsi_taken next = {.record = record,
                                       .row = row,
                                       .count = 1,
                                       .first_tag = batch->first_offset + i,
                                       .of = batch,
                                       .index = i};
        QS_TRY(qsi_buf_append(buf, &next, sizeof next));
    }
    reading->taken.message_count += 1;
    reading->taken.body_bytes += bytes;
    reading->rows_left -= 1;
    reading->bytes_left -= bytes < reading->bytes_left ? bytes : reading->bytes_left;
    return QS_OK;
}

/* QS_EEMPTY: it is full before the last row, or that is not durable. */
static qs_status take_rows(struct reading *reading, const struct qsi_stream_batch *batch)
{
    const uint8_t *viewed = NULL;
    struct qsi_messages view;

    for (uint32_t i = 0; i < batch->count; i++) {
        uint32_t row, bytes;
        const uint8_t *record = qsi_stream_batch_record(batch, i, &row);
        if (batch->first_offset + i >= reading->end) {
            return QS_EEMPTY;
        }
        if (record != viewed) {
            qsi_messages_view(&view, record);
            viewed = record;
        }
        if (is_wanted(reading, batch, &view, row)) {
            bytes = qsi_messages_body_bytes(&view, row);
            if (is_full(reading) ||
                (bytes > reading->bytes_left && reading->taken.message_count > 0)) {
                return QS_EEMPTY;
            }
            QS_TRY(take_row(reading, batch, i, record, row, bytes));
        }
        reading->position = batch->first_offset + i + 1;
    }
    return QS_OK;
}

/* Without the lock.  QS_ECORRUPT: nothing was taken before the damage, which position is behind. */
static qs_status take_batches(struct reading *reading, qs_error *error)
{
    qs_status status = QS_OK;

    while (status == QS_OK && !is_full(reading) && reading->batch_count < BLOCKS_MAX &&
           reading->position < reading->end) {
        struct qsi_stream_batch *batch = &reading->batches[reading->batch_count];
        qs_error detail = {0};
        status = qsi_stream_read(&reading->view, reading->position,
                                 reading->reader->key_count > 0 ? is_wanted_key : NULL,
                                 reading->reader, batch, &detail);
        if (status == QS_EEMPTY) {
            reading->position = batch->first_offset;
            return QS_OK;
        }
        if (status != QS_OK) {
            if (reading->taken.message_count > 0) {
                return QS_OK; /* the next call tells of it */
            }
            reading->position = status == QS_ECORRUPT && batch->first_offset > reading->position
                                    ? batch->first_offset
                                    : reading->position;
            if (error != NULL) {
                *error = detail;
            }
            return status;
        }
        reading->batch_count += 1;
        reading->position = batch->first_offset;
        status = take_rows(reading, batch);
    }
    return status == QS_ENOMEM ? qsi_fail(error, status, "batch") : QS_OK;
}

static void fini(struct reading *reading)
{
    for (uint32_t i = 0; i < reading->batch_count; i++) {
        qsi_stream_batch_fini(&reading->batches[i]);
    }
    qsi_buf_fini(&reading->taken.taken); /* the batches hold the chunks */
}

/* Waits until the stream has what the reader wants next; QS_EEMPTY: it does not come in time. */
static qs_status wait_for_messages(struct qs_stream_reader *reader, uint64_t timeout_ns,
                                   struct store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = reader->store;
    uint64_t deadline = 0;

    for (;;) {
        uint64_t now;
        const struct qsi_stream *log;
        if (store->life >= QSI_LIFE_SHUT) {
            return qsi_fail(error, QS_ESTORE_CLOSED, "closed meanwhile");
        }
        QS_TRY(require_stream(reader, queue_out, error));
        log = &(*queue_out)->stream->log;
        if (reader->position < log->first) {
            if (!reader->clamps) {
                return fail_dropped(*queue_out, reader->position, error);
            }
            reader->position = log->first;
        }
        if (reader->position < qsi_stream_durable_next(store, (*queue_out)->stream)) {
            return QS_OK;
        }
        now = timeout_ns > 0 ? store->env->monotonic_ns(store->env) : 0;
        if (deadline == 0) {
            deadline = now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
        }
        if (now >= deadline) {
            return QS_EEMPTY;
        }
        if (reader->position < log->container.next_seq) { /* it is on its way to the disk */
            qs_status status =
                qsi_commit_wait(store, (*queue_out)->stream->marked_lsn, deadline - now, error);
            if (status != QS_OK) {
                return status == QS_ETIMEDOUT ? QS_EEMPTY : status;
            }
            continue;
        }
        store->events.waiters += 1;
        qsi_cond_wait(&store->events.came, &store->mutex, deadline - now);
        store->events.waiters -= 1;
    }
}

/* Releases the lock meanwhile.  QS_EEMPTY: nothing of what there is is wanted. */
static qs_status read_batch(struct reading *reading, struct store_queue *queue,
                            struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_stream_reader *reader = reading->reader;
    struct qs_store *store = reader->store;
    uint32_t rows = reading->rows_left < UINT32_MAX ? (uint32_t)reading->rows_left : UINT32_MAX;
    uint64_t bad_offset = 0;
    uint32_t bodies;
    qs_status status = qsi_stream_view_take(&reading->view, &queue->stream->log, reader->position,
                                            rows, reading->bytes_left);

    if (status != QS_OK) {
        return qsi_fail(error, status, "stream '%.*s'", QSI_NAME(queue->name));
    }
    reading->end = qsi_stream_durable_next(store, queue->stream);
    reading->end = reading->end < reading->view.next ? reading->end : reading->view.next;
    queue->jobs += 1;
    bodies = qsi_reader_begin(store);
    qsi_store_unlock(store);
    reading->position = reader->position;
    status = take_batches(reading, error);
    if (status == QS_OK && reading->taken.message_count > 0) {
        status = qsi_taken_build(store, &reading->taken, &bad_offset, schema_out, array_out, error);
        reading->position = status == QS_ECORRUPT ? bad_offset + 1 : reading->position;
    }
    fini(reading);
    qsi_store_lock(store);
    qsi_stream_view_fini(&reading->view);
    qsi_reader_end(store, bodies);
    queue->jobs -= 1;
    qsi_free_queue_if_done(queue);
    if (status == QS_OK || status == QS_ECORRUPT) {
        reader->position = reading->position;
    }
    return status == QS_OK && reading->taken.message_count == 0 ? QS_EEMPTY : status;
}

qs_status qs_stream_reader_next(qs_stream_reader *reader, uint64_t rows_max, uint64_t bytes_max,
                                uint64_t timeout_ns, struct ArrowSchema *schema_out,
                                struct ArrowArray *array_out, qs_error *error)
{
    struct store_queue *queue;
    qs_status status = QS_EEMPTY;

    if (rows_max == 0) {
        return qsi_fail(error, QS_EINVAL, "a batch of 0 rows");
    }
    QS_TRY(qsi_store_enter(reader->store, error));
    while (status == QS_EEMPTY) {
        struct reading reading = {
            .reader = reader,
            .rows_left = rows_max < QSI_ARROW_ROWS_MAX ? rows_max : QSI_ARROW_ROWS_MAX,
            .bytes_left =
                bytes_max < QSI_ARROW_BODY_BYTES_MAX ? bytes_max : QSI_ARROW_BODY_BYTES_MAX,
            .taken = {.shape = QSI_ARROW_STREAM, .columns = reader->columns},
        };
        status = wait_for_messages(reader, timeout_ns, &queue, error);
        if (status != QS_OK) {
            break;
        }
        status = read_batch(&reading, queue, schema_out, array_out, error);
    }
    qsi_store_leave(reader->store);
    return status;
}
