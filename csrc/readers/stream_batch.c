/* Reading a stream: record batches from its blocks and from its tail.
 *
 * Bodies of a large block are not copied: the batch refers to the block's chunk, which other
 * readers may use, too.  Such a batch has only rows of that block.  Small blocks, rows chosen by a
 * filter, and the tail are copied into one batch. */
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "queue_life.h"
#include "store_stream.h"
#include "stream_reader.h"
#include "taken.h"
#include "topic_pattern.h"
#include "wake.h"

#include <string.h>

#define BLOCKS_MAX 64u /* blocks and stretches of the tail in one batch */
/* From this size on, the bodies of a block become a batch of their own; below, they are copied. */
#define LENT_BYTES_MIN (64u << 10)

struct reading {
    struct qs_stream_reader *reader;
    struct qsi_stream_view view;
    uint64_t rows_left, bytes_left;
    struct qsi_taken_batch taken;
    struct qsi_stream_batch batches[BLOCKS_MAX];
    uint32_t batch_count;
    uint64_t end;      /* messages from here on are not durable yet */
    uint64_t position; /* after the rows that were taken or skipped */
};

/* ---- taking rows ---- */

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

    QS_DCHECK(route < view->route_count);
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

/* Adds rows from i on, which are consecutive in record; they extend the last stretch if they
 * continue it. */
static qs_status take_stretch(struct reading *reading, const struct qsi_stream_batch *batch,
                              uint32_t i, uint32_t count, const uint8_t *record, uint32_t row,
                              uint64_t bytes)
{
    struct qsi_buf *buf = &reading->taken.taken;
    struct qsi_taken *last = NULL;

    QS_DCHECK(i + count <= batch->count && batch->first_offset + i + count <= reading->end);
    QS_DCHECK(count > 0 && count <= reading->rows_left);
    if (buf->bytes > 0) {
        last = (struct qsi_taken *)(void *)(buf->data + buf->bytes) - 1;
    }
    if (last != NULL && last->of == batch && last->record == record &&
        last->row + last->count == row && last->index + last->count == i) {
        last->count += count;
    } else {
        const struct qsi_taken next = {.record = record,
                                       .row = row,
                                       .count = count,
                                       .first_tag = batch->first_offset + i,
                                       .of = batch,
                                       .index = i};
        QS_TRY(qsi_buf_append(buf, &next, sizeof next));
    }
    reading->taken.message_count += count;
    reading->taken.body_bytes += bytes;
    reading->rows_left -= count;
    reading->bytes_left -= bytes < reading->bytes_left ? bytes : reading->bytes_left;
    return QS_OK;
}

/* QS_EEMPTY: the batch is full before the last row, or the last row is not durable. */
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
            QS_TRY(take_stretch(reading, batch, i, 1, record, row, bytes));
        }
        QS_DCHECK(batch->first_offset + i >= reading->position);
        reading->position = batch->first_offset + i + 1;
    }
    return QS_OK;
}

/* The number of rows from row on, at most count, whose bodies have at most bytes_max bytes
 * together; at least one. */
static uint32_t fitting(const struct qsi_messages *view, uint32_t row, uint32_t count,
                        uint64_t bytes_max)
{
    uint32_t low = 1, high = count;
    uint32_t first = qsi_get_u32(view->body_offsets + 4 * (size_t)row);

    QS_DCHECK(count > 0 && row + count <= view->row_count);
    while (low < high) { /* the largest that fits is in [low, high] */
        uint32_t middle = low + (high - low + 1) / 2;
        if (qsi_get_u32(view->body_offsets + 4 * ((size_t)row + middle)) - first <= bytes_max) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

/* Whether the block becomes a batch of its own, with bodies that are not copied. */
static bool is_lent(const struct reading *reading, const struct qsi_messages *view, uint64_t bytes)
{
    return QSI_ARROW_LENDS && bytes >= LENT_BYTES_MIN && bytes <= QSI_ARROW_BODY_BYTES_MAX &&
           (reading->reader->columns & QS_STREAM_COLUMN_BODY) != 0 &&
           (view->flags & QSI_MESSAGES_ALIGNED) != 0;
}

/* Adds all rows of a block at once: all are wanted, and none is damaged.  QS_EEMPTY: as take_rows,
 * or the batch consists of this block, or of the blocks before it. */
static qs_status take_block(struct reading *reading, const struct qsi_stream_batch *batch)
{
    const struct qsi_messages *view = &batch->block.messages;
    uint64_t most = reading->end > batch->first_offset ? reading->end - batch->first_offset : 0;
    uint32_t count, first;
    uint64_t bytes;
    bool lent;

    most = most < batch->count ? most : batch->count;
    most = most < reading->rows_left ? most : reading->rows_left;
    if (most == 0 || is_full(reading)) {
        return QS_EEMPTY;
    }
    count = fitting(view, batch->row, (uint32_t)most, reading->bytes_left);
    first = qsi_get_u32(view->body_offsets + 4 * (size_t)batch->row);
    bytes = qsi_get_u32(view->body_offsets + 4 * ((size_t)batch->row + count)) - first;
    lent = is_lent(reading, view, bytes);
    if (reading->taken.message_count > 0 && (lent || bytes > reading->bytes_left)) {
        return QS_EEMPTY;
    }
    QS_TRY(take_stretch(reading, batch, 0, count, view->record, batch->row, bytes));
    QS_DCHECK(count <= most);
    reading->position = batch->first_offset + count;
    reading->taken.lender = lent ? batch->block.chunk : NULL;
    return lent || count < batch->count ? QS_EEMPTY : QS_OK;
}

static qs_status take(struct reading *reading, const struct qsi_stream_batch *batch)
{
    bool is_whole = reading->reader->key_count == 0 && batch->tail == NULL &&
                    batch->block.messages.stored == NULL;

    return is_whole ? take_block(reading, batch) : take_rows(reading, batch);
}

/* Collects batches, without the lock.  QS_ECORRUPT: nothing was taken before the damage, and
 * position is after it. */
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
                return QS_OK; /* the next call reports it */
            }
            reading->position = status == QS_ECORRUPT && batch->first_offset > reading->position
                                    ? batch->first_offset
                                    : reading->position;
            if (error != NULL) {
                *error = detail;
            }
            return status;
        }
        QS_DCHECK(batch->first_offset >= reading->position && batch->count > 0);
        reading->batch_count += 1;
        reading->position = batch->first_offset;
        status = take(reading, batch);
    }
    return status == QS_ENOMEM ? qsi_fail(error, status, "batch") : QS_OK;
}

static void fini(struct reading *reading)
{
    QS_DCHECK(reading->batch_count <= BLOCKS_MAX);
    for (uint32_t i = 0; i < reading->batch_count; i++) {
        qsi_stream_batch_fini(&reading->batches[i]);
    }
    qsi_buf_fini(&reading->taken.taken); /* the batches have references to the chunks */
}

/* ---- one batch ---- */

/* The time at which the call must end; 0: it does not wait. */
static uint64_t deadline_of(struct qs_store *store, uint64_t timeout_ns)
{
    uint64_t now = timeout_ns > 0 ? store->env->monotonic_ns(store->env) : 0;

    return now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
}

static uint64_t left_until(struct qs_store *store, uint64_t deadline)
{
    uint64_t now = deadline > 0 ? store->env->monotonic_ns(store->env) : 0;

    return now < deadline ? deadline - now : 0;
}

/* Waits until the stream has messages after the reader's position; QS_EEMPTY: there were none in
 * time. */
static qs_status wait_for_messages(struct qs_stream_reader *reader, uint64_t deadline,
                                   struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = reader->store;

    QS_ASSERT_HELD(&store->mutex);
    for (;;) {
        uint64_t left_ns;
        const struct qsi_stream *log;
        if (store->life >= QSI_LIFE_SHUT) {
            return qsi_fail(error, QS_ESTORE_CLOSED, "closed meanwhile");
        }
        QS_TRY(qsi_stream_reader_find(reader, queue_out, error));
        log = &(*queue_out)->stream->log;
        if (reader->position < log->first) {
            if (!reader->clamps) {
                return qsi_stream_fail_dropped(*queue_out, reader->position, error);
            }
            reader->position = log->first;
        }
        if (reader->position < qsi_stream_durable_next(store, (*queue_out)->stream)) {
            return QS_OK;
        }
        left_ns = left_until(store, deadline);
        if (left_ns == 0) {
            return QS_EEMPTY;
        }
        if (reader->position < log->container.next_seq) { /* it is not durable yet */
            qs_status status =
                qsi_commit_wait(store, qsi_stream_awaited_lsn(store), left_ns, error);
            if (status != QS_OK) {
                return status == QS_ETIMEDOUT ? QS_EEMPTY : status;
            }
            continue;
        }
        qsi_stream_readers_sleep(&reader, 1, left_ns);
    }
}

/* Builds a batch.  QS_EEMPTY: none of the present messages is wanted.  Releases the lock
 * meanwhile. */
static qs_status read_batch(struct reading *reading, struct qsi_store_queue *queue,
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

    QS_ASSERT_HELD(&store->mutex);
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
    qsi_end_queue_job(queue);
    if (status == QS_OK || status == QS_ECORRUPT) {
        QS_ASSERT(reading->position >= reader->position);
        reader->position = reading->position;
    }
    return status == QS_OK && reading->taken.message_count == 0 ? QS_EEMPTY : status;
}

qs_status qs_stream_reader_next(qs_stream_reader *reader, uint64_t rows_max, uint64_t bytes_max,
                                uint64_t timeout_ns, struct ArrowSchema *schema_out,
                                struct ArrowArray *array_out, qs_error *error)
{
    struct qsi_store_queue *queue;
    uint64_t deadline, next = 0; /* the stream's end when the call began */
    qs_status status;

    if (rows_max == 0) {
        return qsi_fail(error, QS_EINVAL, "a batch of 0 rows");
    }
    QS_TRY(qsi_store_enter(reader->store, error));
    deadline = deadline_of(reader->store, timeout_ns);
    /* Reads the messages that were present at the call, and later ones only until the deadline. */
    do {
        struct reading reading = {
            .reader = reader,
            .rows_left = rows_max < QSI_ARROW_ROWS_MAX ? rows_max : QSI_ARROW_ROWS_MAX,
            .bytes_left =
                bytes_max < QSI_ARROW_BODY_BYTES_MAX ? bytes_max : QSI_ARROW_BODY_BYTES_MAX,
            .taken = {.shape = QSI_ARROW_STREAM, .columns = reader->columns},
        };
        status = wait_for_messages(reader, deadline, &queue, error);
        if (status != QS_OK) {
            break;
        }
        QS_DCHECK(qsi_is_stream(queue) && queue->container.id == reader->stream_id);
        next = next != 0 ? next : qsi_stream_durable_next(reader->store, queue->stream);
        status = read_batch(&reading, queue, schema_out, array_out, error);
    } while (status == QS_EEMPTY &&
             (reader->position < next || left_until(reader->store, deadline) > 0));
    qsi_store_leave(reader->store);
    return status;
}
