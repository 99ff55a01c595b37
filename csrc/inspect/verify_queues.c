/* Verifying: queues, and their settled messages. */
#include "alloc.h"
#include "check.h"
#include "cursor_record.h"
#include "error.h"
#include "priorities.h"
#include "stream_record.h"
#include "verify_internal.h"

#include <stdlib.h>

static struct qsi_known_queue *find_queue(const struct qsi_verify *verify, uint64_t id)
{
    struct qsi_known_queue *queue = qsi_map_get_number(&verify->queues, id);

    return queue != NULL && !queue->gone ? queue : NULL;
}

const struct qsi_known_queue *qsi_verify_find_subqueue(const struct qsi_verify *verify, uint64_t id)
{
    static const struct qsi_known_queue untouched; /* no message was settled in it */
    const struct qsi_known_queue *subqueue;

    if (find_queue(verify, qsi_queue_in(id)) == NULL) {
        return NULL;
    }
    subqueue = find_queue(verify, id);
    return subqueue != NULL ? subqueue : &untouched;
}

static qs_status add_queue(struct qsi_verify *verify, uint64_t id,
                           struct qsi_known_queue **queue_out, qs_error *error)
{
    QS_DCHECK(qsi_map_get_number(&verify->queues, id) == NULL);
    *queue_out = qsi_zalloc(sizeof **queue_out);
    if (*queue_out == NULL || qsi_map_put_number(&verify->queues, id, *queue_out) != QS_OK) {
        qsi_free(*queue_out);
        return qsi_fail(error, QS_ENOMEM, "queue");
    }
    (*queue_out)->id = id;
    return QS_OK;
}

static qs_status declare(struct qsi_verify *verify, const struct qsi_topology *record,
                         qs_error *error)
{
    struct qsi_slice name = record->strings[0];
    struct qsi_known_queue *before = qsi_map_get(&verify->names, name.data, name.bytes);
    struct qsi_known_queue *queue;

    if (qsi_map_get_number(&verify->queues, record->number) != NULL) {
        return QS_OK; /* the second reading of a damaged journal */
    }
    QS_TRY(add_queue(verify, record->number, &queue, error));
    if (before != NULL) { /* an auto-delete queue that ended without a record */
        before->gone = true;
    }
    if (qsi_map_put(&verify->names, name.data, name.bytes, queue) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "queue");
    }
    return QS_OK;
}

static qs_status record_settle(struct qsi_verify *verify, const uint8_t *record, qs_error *error)
{
    struct qsi_settle settle;
    struct qsi_known_queue *queue;
    struct qsi_range range;

    QS_TRY(qsi_settle_decode(&settle, record, error));
    queue = find_queue(verify, settle.queue_id);
    if (settle.kind != QSI_SETTLE_ACK ||
        qsi_verify_find_subqueue(verify, settle.queue_id) == NULL) {
        return QS_OK;
    }
    if (queue == NULL) { /* the first record of its priority */
        QS_TRY(add_queue(verify, settle.queue_id, &queue, error));
    }
    range = (struct qsi_range){settle.first_seq, settle.first_seq + settle.count};
    return qsi_buf_append(&queue->settled, &range, sizeof range) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "settled messages");
}

static int compare_ranges(const void *left, const void *right)
{
    const struct qsi_range *a = left, *b = right;

    return a->from < b->from ? -1 : a->from > b->from;
}

/* Sorts and merges the ranges. */
static void merge_settled(struct qsi_known_queue *queue)
{
    struct qsi_range *ranges = (struct qsi_range *)(void *)queue->settled.data;
    size_t count = queue->settled.bytes / sizeof *ranges;
    size_t kept = 0;

    if (count == 0) {
        return;
    }
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    for (size_t i = 1; i < count; i++) {
        if (ranges[i].from > ranges[kept].end) {
            QS_DCHECK(kept < i);
            ranges[++kept] = ranges[i];
        } else if (ranges[i].end > ranges[kept].end) {
            ranges[kept].end = ranges[i].end;
        }
    }
    QS_DCHECK(kept < count);
    queue->settled.bytes = (kept + 1) * sizeof *ranges;
}

bool qsi_verify_are_settled(const struct qsi_known_queue *queue, uint64_t from, uint64_t end)
{
    const struct qsi_range *ranges = (const struct qsi_range *)(const void *)queue->settled.data;
    size_t low = 0, high = queue->settled.bytes / sizeof *ranges;

    while (low < high) { /* finds the first that ends after from */
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].end > from) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low < queue->settled.bytes / sizeof *ranges && ranges[low].from <= from &&
           ranges[low].end >= end;
}

bool qsi_verify_is_settled(const struct qsi_known_queue *queue, uint64_t seq)
{
    return qsi_verify_are_settled(queue, seq, seq + 1);
}

void qsi_verify_collect_end(struct qsi_verify *verify)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&verify->queues);

    while (qsi_map_next(&verify->queues, &cursor)) {
        struct qsi_known_queue *queue = cursor.value;
        merge_settled(queue);
        verify->verified->queues += queue->gone || qsi_priority_in(queue->id) != 0 ? 0 : 1;
    }
}

qs_status qsi_verify_collect_record(struct qsi_verify *verify, const uint8_t *record,
                                    qs_error *error)
{
    struct qsi_topology topology;
    struct qsi_cursor_record cursor;
    struct qsi_stream_trim trim;
    struct qsi_stream_written written;
    struct qsi_known_queue *queue;

    switch (qsi_record_type(record)) {
    case QSI_RECORD_MESSAGES:
        return qsi_messages_check(record, error);
    case QSI_RECORD_SETTLE:
        return record_settle(verify, record, error);
    case QSI_RECORD_QUEUE_DECLARE:
    case QSI_RECORD_PRIORITY_QUEUE_DECLARE:
    case QSI_RECORD_STREAM_DECLARE:
    case QSI_RECORD_WORK_QUEUE_DECLARE:
        QS_TRY(qsi_topology_decode(&topology, record, error));
        return declare(verify, &topology, error);
    case QSI_RECORD_QUEUE_DELETE:
        QS_TRY(qsi_topology_decode(&topology, record, error));
        queue = find_queue(verify, topology.number);
        if (queue != NULL) {
            queue->gone = true;
        }
        return QS_OK;
    case QSI_RECORD_CURSOR:
        return qsi_cursor_record_decode(&cursor, record, error);
    case QSI_RECORD_STREAM_TRIM:
        return qsi_stream_trim_decode(&trim, record, error);
    case QSI_RECORD_STREAM_WRITTEN:
    case QSI_RECORD_STREAM_ADOPTED:
        return qsi_stream_written_decode(&written, record, error);
    case QSI_RECORD_EXCHANGE_DECLARE:
    case QSI_RECORD_EXCHANGE_DELETE:
    case QSI_RECORD_BIND:
    case QSI_RECORD_UNBIND:
    case QSI_RECORD_EXCHANGE_BIND:
    case QSI_RECORD_EXCHANGE_UNBIND:
    case QSI_RECORD_TRANSACTION:
    case QSI_RECORD_TRANSACTION_FORGET:
    case QSI_RECORD_QUEUE_MODE:
        return qsi_topology_decode(&topology, record, error);
    default:
        return qsi_fail(error, QS_EVERSION, "record type %u: written by a newer version",
                        qsi_record_type(record));
    }
}
