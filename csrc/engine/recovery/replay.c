/* Records of the journal and of checkpoints, replayed into memory. */
#include "replay.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "priorities.h"
#include "properties.h"
#include "queue_life.h"
#include "salvage.h"
#include "states.h"
#include "store_kinds.h"
#include "store_stream.h"
#include "stream_record.h"
#include "topology.h"
#include "transactions_restore.h"

/* ---- records ---- */

qs_status qsi_destination_rows(const struct qsi_messages *view, uint32_t destination,
                               uint32_t **rows_out, qs_error *error)
{
    uint32_t expected = qsi_messages_destination_rows(view, destination);
    uint32_t count = 0;
    uint32_t *rows;

    *rows_out = NULL;
    if (expected == 0 || expected > view->row_count) {
        return qsi_fail(error, QS_ECORRUPT, "a destination with %u of %u rows", expected,
                        view->row_count);
    }
    if (expected == view->row_count) {
        return QS_OK;
    }
    rows = qsi_alloc(expected * sizeof *rows);
    if (rows == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%u rows", expected);
    }
    for (uint32_t row = 0; row < view->row_count; row++) {
        struct qsi_route_view route = qsi_messages_route(view, qsi_messages_row_route(view, row));
        for (uint32_t i = 0; i < route.destination_count; i++) {
            if (qsi_get_u32(route.destinations + 4 * (size_t)i) == destination) {
                if (count < expected) {
                    rows[count] = row;
                }
                count += 1;
                break;
            }
        }
    }
    if (count != expected) {
        qsi_free(rows);
        return qsi_fail(error, QS_ECORRUPT, "%u rows go to a destination that tells %u", count,
                        expected);
    }
    QS_DCHECK(rows[expected - 1] < view->row_count);
    *rows_out = rows;
    return QS_OK;
}

/* Rows with delivery mode 1 were journalled along with the others of their batch, and ended with
 * their process. */
static void drop_transient(struct qsi_queue *queue, const struct qsi_messages *view,
                           const uint32_t *rows, uint32_t count, uint64_t first_seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(count <= view->row_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t row = rows != NULL ? rows[i] : i;
        struct qsi_slice properties = qsi_messages_properties(view, row);
        if (!qsi_messages_is_stored(view, row) && /* which only persistent ones are */
            qsi_properties_delivery_mode(properties.data, properties.bytes) != 2) {
            struct qsi_settle settle = {.queue_id = queue->container.id,
                                        .first_seq = first_seq + i,
                                        .count = 1,
                                        .kind = QSI_SETTLE_ACK};
            if (qsi_container_replay_settle(&queue->container, &settle) != QS_OK) {
                QS_ASSERT(false); /* only delays take memory */
            }
        }
    }
}

static qs_status replay_batch(struct qsi_store_queue *queue, struct qsi_chunk *chunk, uint64_t at,
                              const struct qsi_messages *view, uint32_t destination,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first_seq = qsi_messages_destination_seq(view, destination);
    struct qsi_run *run = NULL;
    uint32_t *rows = NULL;
    uint32_t count = qsi_messages_destination_rows(view, destination);

    QS_TRY(qsi_destination_rows(view, destination, &rows, error));
    if (qsi_container_skip_to(queue->messages, first_seq) != QS_OK ||
        qsi_container_reserve(queue->messages, 1, count,
                              (view->flags & QSI_MESSAGES_HAS_TRANSIENT) != 0) != QS_OK ||
        qsi_container_reserve_times(queue->messages, view->record, count) != QS_OK ||
        qsi_run_create(&run, chunk, (uint32_t)at, count, rows, true) != QS_OK) {
        qsi_free(rows);
        return qsi_fail(error, QS_ENOMEM, "%u messages", count);
    }
    QS_DCHECK(queue->messages->next_seq == first_seq);
    run->ram_bytes = (uint64_t)qsi_record_length(view->record) * count / view->row_count;
    qsi_container_append(queue->messages, run);
    if ((view->flags & QSI_MESSAGES_HAS_TRANSIENT) != 0 && !qsi_keeps_all(queue)) {
        drop_transient(&queue->core, view, rows, count, first_seq);
    }
    return QS_OK;
}

/* The message store makes room to count the references of this record. */
static qs_status record_refs(struct qs_store *store, const struct qsi_messages *view,
                             qs_error *error)
{
    for (uint32_t row = 0; view->stored != NULL && row < view->row_count; row++) {
        struct qsi_body_ref ref;
        if (!qsi_messages_is_stored(view, row)) {
            continue;
        }
        ref = qsi_messages_body_ref(view, row);
        if (ref.offset % 8 != 0 || ref.offset / 8 > UINT32_MAX) { /* a segment cannot hold it */
            return qsi_fail(error, QS_ECORRUPT, "a body at offset %llu of message file %u",
                            (unsigned long long)ref.offset, ref.file);
        }
        QS_TRY(qsi_message_store_add_reference(store->messages, &ref, error));
    }
    return QS_OK;
}

/* NULL: messages for it are not needed. */
static qs_status require_queue(struct qs_store *store, uint64_t id,
                               struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_UNLIKELY(store->recovery.has_lost_records)
               ? qsi_salvage_queue(store, id, queue_out, error)
               : qsi_require_by_id(store, id, queue_out, error);
}

/* Messages that were added to a segment after the checkpoint have no place if it cannot be read. */
static qs_status refuse_sequence(const struct qs_store *store, const struct qsi_store_queue *queue,
                                 uint64_t seq, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = store->shared.entries;
    const struct qsi_segment *segment = qsi_queue_find_segment(&queue->core, seq / entries);
    char path[QSI_SEGMENT_PATH_BYTES];

    if (segment == NULL || segment->given_end == 0 || seq % entries < segment->given_end) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s': sequence %llu comes again",
                        (int)queue->name.bytes, (const char *)queue->name.data,
                        (unsigned long long)seq);
    }
    qsi_segment_path(path, &segment->file);
    return qsi_fail(error, QS_ECORRUPT,
                    "queue '%.*s': messages were added to %s, which is damaged or missing: put it "
                    "back from a backup; recovery=\"salvage\" opens the store without what it held",
                    (int)queue->name.bytes, (const char *)queue->name.data, path);
}

static qs_status replay_messages(struct qs_store *store, struct qsi_chunk *chunk, uint64_t at,
                                 qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const uint8_t *record = chunk->data + at;
    struct qsi_messages view;

    QS_TRY(qsi_messages_check(record, error));
    qsi_messages_view(&view, record);
    QS_TRY(record_refs(store, &view, error));
    for (uint32_t i = 0; i < view.destination_count; i++) {
        struct qsi_store_queue *queue;
        uint64_t first_seq = qsi_messages_destination_seq(&view, i);
        QS_TRY(require_queue(store, qsi_messages_destination_queue(&view, i), &queue, error));
        if (queue == NULL) {
            continue; /* transient, or deleted meanwhile */
        }
        if (first_seq < queue->messages->next_seq || first_seq + view.row_count < first_seq) {
            return refuse_sequence(store, queue, first_seq, error);
        }
        if (view.row_count > 1 || qsi_messages_destination_rows(&view, i) != 1 ||
            (view.flags & QSI_MESSAGES_HAS_TRANSIENT) != 0) {
            QS_TRY(replay_batch(queue, chunk, at, &view, i, error));
            continue;
        }
        /* Transient messages leave gaps, and so do checkpoints. */
        if (qsi_container_skip_to(queue->messages, first_seq) != QS_OK ||
            qsi_container_reserve_one(queue->messages, chunk, true) != QS_OK ||
            qsi_container_reserve_times(queue->messages, view.record, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
        QS_DCHECK(queue->messages->next_seq == first_seq);
        qsi_container_append_one(queue->messages, chunk, (uint32_t)at, qsi_record_length(record),
                                 true, qsi_messages_is_stored(&view, 0));
    }
    return QS_OK;
}

/* In a work queue no message was settled that its stream did not have. */
static qs_status check_in_source(const struct qsi_store_queue *queue,
                                 const struct qsi_settle *settle, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t next = queue->source != NULL ? queue->source->messages->next_seq : UINT64_MAX / 4;

    return qsi_appends(queue) || settle->first_seq + settle->count <= next
               ? QS_OK
               : qsi_fail(error, QS_ECORRUPT,
                          "queue '%.*s': what was settled up to %llu is not in its stream",
                          QSI_NAME(queue->name),
                          (unsigned long long)(settle->first_seq + settle->count));
}

static qs_status replay_settle(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_settle settle;
    struct qsi_store_queue *queue;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_settle_decode(&settle, record, error));
    queue = qsi_find_by_id(store, settle.queue_id);
    if (queue != NULL) {
        qs_status status;
        QS_TRY(check_in_source(queue, &settle, error));
        status = qsi_load_states(store, queue, &settle, error);
        if (status == QS_ECORRUPT && error != NULL) {
            qsi_error_prefix(error, "a consumer settled messages of a segment that cannot be read: "
                                    "put its file back from a backup; recovery=\"salvage\" opens "
                                    "the store without what it held");
        }
        QS_TRY(status);
        if (qsi_container_replay_settle(&queue->container, &settle) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "delayed messages");
        }
    }
    return QS_OK;
}

/* ---- streams ---- */

static qs_status replay_cursor(struct qs_store *store, const uint8_t *record, qs_error *error)
{
    struct qsi_cursor_record cursor;
    struct qsi_store_queue *queue;
    struct qsi_map *cursors;

    QS_TRY(qsi_cursor_record_decode(&cursor, record, error));
    queue = qsi_find_by_id(store, cursor.stream_id);
    cursors = queue != NULL ? qsi_cursors_of(queue) : NULL;
    if (cursors == NULL) { /* deleted meanwhile */
        return QS_OK;
    }
    if (qsi_cursor_reserve(cursors, cursor.group) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "cursor");
    }
    qsi_cursor_set(cursors, &cursor);
    return QS_OK;
}

/* Trimmed messages were in files that a checkpoint names, so they are flushed here, too.  The
 * exception is a store from an archive, whose journal goes on after later checkpoints: retention
 * will drop the rest once more. */
static qs_status replay_trim(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_trim trim;
    struct qsi_store_queue *queue;
    struct qsi_container *messages;

    QS_TRY(qsi_stream_trim_decode(&trim, record, error));
    queue = qsi_find_by_id(store, trim.stream_id);
    if (queue == NULL || !qsi_container_is_trimmed(queue->messages)) {
        return QS_OK; /* deleted meanwhile */
    }
    messages = queue->messages;
    if (trim.first > messages->next_seq) {
        return qsi_fail(error, QS_ECORRUPT, "stream %llu trimmed to %llu; it ends at %llu",
                        (unsigned long long)trim.stream_id, (unsigned long long)trim.first,
                        (unsigned long long)messages->next_seq);
    }
    if (trim.first > messages->flushed_seq) {
        trim.first = messages->flushed_seq;
    }
    QS_DCHECK(messages->id == trim.stream_id);
    return qsi_container_trim_to(messages, trim.first) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "stream");
}

static qs_status replay_written(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stream_written written;
    struct qsi_store_queue *queue;

    QS_TRY(qsi_stream_written_decode(&written, record, error));
    queue = qsi_find_by_id(store, written.stream_id);
    if (qsi_is_salvage(store)) {
        QS_TRY(qsi_salvage_stream(store, &written, &queue, error));
    }
    return queue != NULL && qsi_container_is_direct(queue->messages)
               ? qsi_container_replay_written(queue->messages, &written, error)
               : QS_OK;
}

static qs_status replay_topology(struct qs_store *store, const uint8_t *record, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_topology topology;

    QS_TRY(qsi_topology_decode(&topology, record, error));
    return qsi_replay_topology(store, &topology, error);
}

qs_status qsi_replay_record(struct qs_store *store, struct qsi_chunk *chunk, uint64_t at,
                            qs_error *error)
{
    const uint8_t *record = chunk->data + at;
    struct qsi_topology topology;

    QS_ASSERT_HELD(&store->mutex);
    switch (qsi_record_type(record)) {
    case QSI_RECORD_MESSAGES:
        return replay_messages(store, chunk, at, error);
    case QSI_RECORD_SETTLE:
        return replay_settle(store, record, error);
    case QSI_RECORD_CURSOR:
        return replay_cursor(store, record, error);
    case QSI_RECORD_STREAM_TRIM:
        return replay_trim(store, record, error);
    case QSI_RECORD_STREAM_WRITTEN:
    case QSI_RECORD_STREAM_ADOPTED:
        return replay_written(store, record, error);
    case QSI_RECORD_TRANSACTION:
    case QSI_RECORD_TRANSACTION_FORGET:
        QS_TRY(qsi_topology_decode(&topology, record, error));
        return qsi_transactions_replay(store, &topology, error);
    case QSI_RECORD_EXCHANGE_DECLARE:
    case QSI_RECORD_EXCHANGE_DELETE:
    case QSI_RECORD_QUEUE_DELETE:
    case QSI_RECORD_BIND:
    case QSI_RECORD_UNBIND:
    case QSI_RECORD_EXCHANGE_BIND:
    case QSI_RECORD_EXCHANGE_UNBIND:
    case QSI_RECORD_QUEUE_MODE:
        return replay_topology(store, record, error);
    default:
        if (qsi_kind_declared(qsi_record_type(record)) != NULL) {
            return replay_topology(store, record, error);
        }
        return qsi_fail(error, QS_EVERSION, "record type %u: written by a newer version",
                        qsi_record_type(record));
    }
}
