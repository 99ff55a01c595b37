/* Reading a stream by offset: nothing is delivered, and the store has no state for readers. */
#include "stream_reader.h"

#include "qstore/stream.h"

#include "alloc.h"
#include "arrow_build.h"
#include "check.h"
#include "commit.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "queue_life.h"
#include "store_stream.h"
#include "stream_start.h"
#include "wake.h"

#include <string.h>

/* ---- status ---- */

qs_status qs_store_stream_status(qs_store *store, qs_slice name, qs_stream_status *status_out,
                                 qs_error *error)
{
    struct qsi_store_queue *queue;
    qs_status status;

    memset(status_out, 0, sizeof *status_out);
    QS_TRY(qsi_store_enter(store, error));
    status = qsi_stream_find(store, qsi_slice_of(name), &queue, error);
    if (status == QS_OK) {
        const struct qsi_stream *log = &queue->stream->log;
        *status_out = (qs_stream_status){
            .first = log->first,
            .next = log->container.next_seq,
            .durable = qsi_stream_durable_next(store, queue->stream),
            .last_time_us = log->last_time_us,
            .segments = qsi_stream_segment_count(log),
            .disk_bytes = qsi_stream_bytes(log),
            .ram_bytes = log->container.ram_bytes,
            .flushed = log->container.flushed_seq,
            .cursors = qsi_cursor_count(&queue->stream->cursors),
            .id = log->container.id,
        };
    }
    qsi_store_leave(store);
    return status;
}

/* ---- start positions ---- */

qs_status qsi_stream_fail_dropped(const struct qsi_store_queue *queue, uint64_t offset,
                                  qs_error *error)
{
    QS_DCHECK(offset < queue->stream->log.first);
    return qsi_fail(error, QS_EOFFSET, "stream '%.*s': offset %llu was dropped, the first is %llu",
                    QSI_NAME(queue->name), (unsigned long long)offset,
                    (unsigned long long)queue->stream->log.first);
}

/* Finds the offset of a start.  May release the lock meanwhile. */
static qs_status find_start(struct qs_stream_reader *reader, struct qsi_store_queue *queue,
                            const qs_stream_start *start, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_stream *log = &queue->stream->log;

    QS_ASSERT_HELD(&reader->store->mutex);
    switch (start->at) {
    case QS_STREAM_FIRST:
        reader->position = log->first;
        return QS_OK;
    case QS_STREAM_NEXT:
        reader->position = log->container.next_seq;
        return QS_OK;
    case QS_STREAM_LAST:
        return qsi_stream_find_last(reader->store, queue, &reader->position, error);
    case QS_STREAM_TIME:
        return qsi_stream_find_time(reader->store, queue, start->time_us, &reader->position, error);
    case QS_STREAM_OFFSET:
        if (start->offset < log->first && !reader->clamps) {
            return qsi_stream_fail_dropped(queue, start->offset, error);
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
    struct qsi_store_queue *queue;
    qs_status status;

    *offset_out = 0;
    QS_TRY(qsi_store_enter(store, error));
    status = qsi_stream_find(store, qsi_slice_of(name), &queue, error);
    if (status == QS_OK) {
        status = qsi_stream_find_time(store, queue, time_us, offset_out, error);
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
    QS_DCHECK(at == reader->bytes + name.bytes + key_bytes);
    reader->key_count = read->routing_key_count;
    reader->store = store;
    qsi_list_init(&reader->place.in_queue);
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
    struct qsi_store_queue *queue;
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
        QS_DCHECK(qsi_is_stream(queue));
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
    QS_ASSERT(store->references > 0);
    qsi_store_unref(store);
}

uint64_t qs_stream_reader_position(const qs_stream_reader *reader)
{
    return reader->position;
}

qs_status qs_stream_reader_schema(const qs_stream_reader *reader, struct ArrowSchema *schema_out,
                                  qs_error *error)
{
    return qs_columns_schema(QS_RECEIVED_STREAM, reader->columns, schema_out, error);
}

qs_status qsi_stream_reader_find(const struct qs_stream_reader *reader,
                                 struct qsi_store_queue **queue_out, qs_error *error)
{
    *queue_out = qsi_map_get_number(&reader->store->queues_by_id, reader->stream_id);
    QS_DCHECK(*queue_out == NULL || qsi_is_stream(*queue_out)); /* ids are not reused */
    return *queue_out != NULL
               ? QS_OK
               : qsi_fail(error, QS_NOT_FOUND, "stream '%.*s' was deleted", QSI_NAME(reader->name));
}

qs_status qs_stream_reader_seek(qs_stream_reader *reader, const qs_stream_start *start,
                                qs_error *error)
{
    struct qsi_store_queue *queue;
    qs_status status;

    QS_TRY(qsi_store_enter(reader->store, error));
    status = qsi_stream_reader_find(reader, &queue, error);
    if (status == QS_OK) {
        status = find_start(reader, queue, start, error);
    }
    qsi_store_leave(reader->store);
    return status;
}

/* ---- several readers ---- */

/* Whether the reader has messages or an error to return.  *lsn_out: the LSN at which further
 * messages are durable; 0: there are none. */
static bool has_news(const struct qs_stream_reader *reader, uint64_t *lsn_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue;
    const struct qsi_stream *log;

    *lsn_out = 0;
    if (qsi_stream_reader_find(reader, &queue, NULL) != QS_OK) {
        return true;
    }
    log = &queue->stream->log;
    if (reader->position < log->first ||
        reader->position < qsi_stream_durable_next(reader->store, queue->stream)) {
        return true;
    }
    *lsn_out =
        reader->position < log->container.next_seq ? qsi_stream_awaited_lsn(reader->store) : 0;
    return false;
}

void qsi_stream_readers_sleep(struct qs_stream_reader *const *readers, size_t count,
                              uint64_t timeout_ns)
{
    struct qs_store *store = readers[0]->store;
    struct qsi_waiter waiter;

    QS_ASSERT_HELD(&store->mutex);
    for (size_t i = 0; i < count; i++) {
        struct qsi_store_queue *queue;
        if (qsi_list_is_empty(&readers[i]->place.in_queue) && /* otherwise it is added twice */
            qsi_stream_reader_find(readers[i], &queue, NULL) == QS_OK) {
            qsi_line_join(store, queue, &readers[i]->place, &waiter);
        }
    }
    qsi_waiter_sleep(store, &waiter, timeout_ns);
    for (size_t i = 0; i < count; i++) {
        qsi_line_leave(store, &readers[i]->place);
    }
}

qs_status qs_stream_readers_wait(qs_stream_reader *const *readers, size_t count,
                                 uint64_t timeout_ns, qs_error *error)
{
    struct qs_store *store;
    uint64_t deadline, now, lsn = 0;
    qs_status status = QS_OK;

    if (count == 0) {
        return qsi_fail(error, QS_EINVAL, "no readers");
    }
    store = readers[0]->store;
    QS_TRY(qsi_store_enter(store, error));
    now = store->env->monotonic_ns(store->env);
    deadline = now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
    while (status == QS_OK) {
        bool is_over = false;
        for (size_t i = 0; i < count && !is_over; i++) {
            uint64_t awaited;
            QS_DCHECK(readers[i]->store == store);
            is_over = has_news(readers[i], &awaited);
            lsn = i == 0 || awaited != 0 ? awaited : lsn;
        }
        if (is_over) {
            break;
        }
        if (store->life >= QSI_LIFE_SHUT) {
            status = qsi_fail(error, QS_ESTORE_CLOSED, "closed meanwhile");
            break;
        }
        now = store->env->monotonic_ns(store->env);
        if (now >= deadline) {
            status = QS_ETIMEDOUT;
        } else if (lsn != 0) {
            status = qsi_commit_wait(store, lsn, deadline - now, error);
        } else {
            qsi_stream_readers_sleep(readers, count, deadline - now);
        }
    }
    qsi_store_leave(store);
    return status == QS_ETIMEDOUT ? QS_EEMPTY : status;
}
