/* One message as an encoded record: kept in a transaction, or accepted at once. */
#include "accept.h"
#include "arrivals.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "priorities.h"
#include "publishing.h"
#include "pushed.h"
#include "queue_columns.h"
#include "queue_delays.h"
#include "queue_life.h"
#include "tx.h"
#include "ways.h"

#include <string.h>

static void encode_ref(const struct qsi_publishing *publishing, uint8_t *record)
{
    struct qsi_messages_writer writer;

    QS_DCHECK(publishing->ref.body_bytes == publishing->body.bytes);
    qsi_messages_writer_begin(&writer, record, &publishing->layout);
    qsi_messages_write_ref(&writer, &publishing->ref);
}

static void encode(const struct qsi_publishing *publishing, uint8_t *record)
{
    const struct qsi_messages_layout *layout = &publishing->layout;
    uint64_t route_at = 0;

    QS_DCHECK(publishing->layout.row_count == 1);
    qsi_messages_begin(record, layout);
    qsi_messages_put_route(record, layout, 0, &route_at, publishing->exchange,
                           publishing->routing.key, NULL, layout->destination_count);
    if (publishing->expiration_ms != QSI_NO_EXPIRATION) {
        qsi_messages_put_expiration(record, layout, 0, publishing->expiration_ms);
    }
    if (publishing->due_us != 0) {
        qsi_messages_put_due(record, layout, 0, publishing->due_us);
    }
    qsi_messages_put_properties(
        record, layout,
        qsi_slice_make(publishing->properties.data, (uint32_t)layout->properties_bytes));
    if (QS_UNLIKELY(publishing->stored)) {
        encode_ref(publishing, record);
    } else {
        qsi_messages_put_only_body(record, layout, publishing->body);
    }
}

/* ---- kept ---- */

/* On success the pending record owns its parts. */
static qs_status make_pending_record(struct qsi_publishing *publishing,
                                     struct qsi_pending_records *pending_records, qs_error *error)
{
    const struct qsi_route *route = publishing->route;
    struct qsi_pending_record *pending_record = qsi_pending_records_add(pending_records);

    if (pending_record == NULL ||
        qsi_pending_record_create(pending_record, &publishing->layout, 1,
                                  publishing->channel->store->budget) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    pending_record->is_dead_letter = publishing->is_dead_letter;
    pending_record->is_mandatory = qsi_publishing_is_mandatory(publishing);
    pending_record->journalled = qsi_publishing_is_journalled(publishing);
    encode(publishing, pending_record->chunk->data);
    for (uint32_t i = 0; i < route->count; i++) {
        const struct qsi_store_queue *queue = qsi_queue_of(route->destinations[i]);
        if (qsi_pending_record_lead_to(
                pending_record, qsi_priority_id(queue, publishing->priority), NULL, 1,
                qsi_publishing_is_journalled_in(publishing, queue)) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
    }
    if (publishing->stored) {
        QS_DCHECK(pending_record->place_count == 0 &&
                  publishing->layout.bodies_bytes == QSI_BODY_REF_BYTES);
        pending_record->places[pending_record->place_count++] = publishing->place;
        memset(&publishing->place, 0, sizeof publishing->place);
    }
    qsi_pending_records_add_bytes(pending_records, pending_record);
    return QS_OK;
}

qs_status qsi_publishing_keep(struct qsi_publishing *publishing, qs_error *error)
{
    struct qsi_pending_records pending_records = {0};
    qs_status status = make_pending_record(publishing, &pending_records, error);

    if (status == QS_OK) {
        status = qsi_tx_take(publishing->channel, &pending_records, NULL, error);
    }
    qsi_pending_records_fini(&pending_records, publishing->channel->store->messages);
    return status;
}

/* ---- accepted ---- */

/* What a queue needs for a message that expires or is delayed; a stream keeps the message
 * regardless. */
static qs_status reserve_times(const struct qsi_publishing *publishing,
                               struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    if (publishing->expiration_ms != QSI_NO_EXPIRATION && qsi_takes(queue)) {
        QS_TRY(qsi_queue_reserve_expiries(&queue->core, 1));
    }
    return publishing->due_us != 0 && qsi_takes(queue) ? qsi_queue_reserve_dues(&queue->core, 1)
                                                       : QS_OK;
}

/* Memory in the chunk that small records share, in the queues and in the journal. */
static qs_status reserve(const struct qsi_publishing *publishing, bool journalled,
                         struct qsi_chunk **chunk_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;

    QS_DCHECK(publishing->route->count > 0);
    QS_TRY(qsi_arena_place(store, journalled, publishing->layout.record_bytes, chunk_out, error));
    for (uint32_t i = 0; i < publishing->route->count; i++) {
        struct qsi_store_queue *queue = qsi_queue_of(publishing->route->destinations[i]);
        if (QS_UNLIKELY(queue->priorities != NULL) &&
            qsi_make_subqueue_of(store, queue, publishing->priority) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
        queue = qsi_subqueue_of(queue, publishing->priority);
        if (qsi_container_reserve_one(queue->messages, *chunk_out,
                                      qsi_publishing_is_journalled_in(publishing, queue)) !=
                QS_OK ||
            reserve_times(publishing, queue) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
    }
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return QS_OK;
}

/* Pushes to its queues.  Nothing can fail any more. */
static void push(const struct qsi_publishing *publishing, struct qsi_chunk *chunk, uint64_t from)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_route *route = publishing->route;
    struct qs_store *store = publishing->channel->store;
    uint8_t *record = chunk->data + from;

    if (publishing->expires) {
        qsi_messages_put_time(record, qsi_clock_us(store));
    }
    for (uint32_t i = 0; i < route->count; i++) {
        struct qsi_store_queue *queue =
            qsi_subqueue_of(qsi_queue_of(route->destinations[i]), publishing->priority);
        struct qsi_pushed pushed = {
            .count = 1,
            .journalled = qsi_publishing_is_journalled_in(publishing, queue),
        };
        pushed.first_seq = qsi_container_append_one(queue->messages, chunk, (uint32_t)from,
                                                    (uint32_t)publishing->layout.record_bytes,
                                                    pushed.journalled, publishing->stored);
        QS_DCHECK(pushed.first_seq + 1 == queue->messages->next_seq);
        qsi_put_pushed(store, queue, record, i, &pushed);
        qsi_notify_pushed(store, queue, &pushed);
    }
}

/* Pushes to queues of which one refuses it: with a run, since the message may be removed again. */
static qs_status offer(struct qsi_publishing *publishing, struct qsi_refusals *refusals,
                       uint64_t *lsn_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    struct qsi_pending_records pending_records = {0};
    struct qsi_arrivals arrivals = {0};
    qs_status status = make_pending_record(publishing, &pending_records, error);

    if (status == QS_OK &&
        qsi_confirms_reserve_batch(&publishing->channel->confirms, 1,
                                   qsi_journal_durable_lsn(store->journal)) != QS_OK) {
        status = qsi_fail(error, QS_ENOMEM, "confirms");
    }
    if (status == QS_OK) {
        status = qsi_pending_records_reserve(store, &pending_records, 0, &arrivals, error);
    }
    if (status == QS_OK) {
        status = qsi_refusals_reserve(refusals, store, &pending_records, 1, error);
    }
    if (status == QS_OK) {
        *lsn_out = qsi_pending_records_accept(store, &pending_records, refusals, 0);
    }
    qsi_arrivals_fini(&arrivals);
    qsi_pending_records_fini(&pending_records, store->messages);
    return status;
}

qs_status qsi_publishing_accept(struct qsi_publishing *publishing, struct qsi_refusals *refusals,
                                uint64_t *lsn_out, qs_error *error)
{
    struct qs_store *store = publishing->channel->store;
    bool journalled = qsi_publishing_is_journalled(publishing);
    struct qsi_chunk *chunk = NULL;
    uint64_t from;

    *lsn_out = 0;
    if (qsi_confirms_reserve(&publishing->channel->confirms,
                             qsi_journal_durable_lsn(store->journal)) != QS_OK ||
        qsi_ways_reserve(publishing->channel, qsi_way_bytes(publishing->route->count)) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "confirms");
    }
    if (QS_UNLIKELY(publishing->is_refused)) {
        return offer(publishing, refusals, lsn_out, error);
    }
    QS_TRY(reserve(publishing, journalled, &chunk, error));
    QS_DCHECK(chunk->capacity - chunk->used >= publishing->layout.record_bytes);
    from = chunk->used;
    encode(publishing, chunk->data + from);
    chunk->used += publishing->layout.record_bytes;
    push(publishing, chunk, from);
    if (journalled) {
        if (publishing->stored) {
            qsi_message_store_mark(store->messages, &publishing->place);
        }
        *lsn_out = qsi_store_append(store, chunk, from, publishing->layout.record_bytes, 1, false);
    }
    qsi_notify_accepted(store, journalled);
    return QS_OK;
}
