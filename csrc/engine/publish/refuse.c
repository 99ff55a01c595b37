/* Full queues that refuse (x-overflow reject-publish, reject-publish-dlx).  Invariants: the refused
 * messages are the last ones; their record and their removal are one group of the journal; the
 * publisher gets a nack for them, whatever other queues took them. */
#include "refuse.h"

#include "alloc.h"
#include "arrivals.h"
#include "check.h"
#include "counts.h"
#include "error.h"
#include "limits.h"
#include "priorities.h"
#include "queue_take.h"
#include "record.h"
#include "settle.h"
#include "thread_safety.h"

#include <string.h>

/* Destinations that may refuse, and the stretches that may be reserved at once. */
static void measure(struct qs_store *store, const struct qsi_pending_records *pending_records,
                    uint32_t *destinations_out, uint32_t *stretches_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = store->shared.entries;
    uint32_t stretch_most = entries < QSI_WORD_BITS ? entries : QSI_WORD_BITS;

    *destinations_out = *stretches_out = 0;
    for (uint32_t i = 0; i < pending_records->count; i++) {
        const struct qsi_pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            const struct qsi_store_queue *queue =
                qsi_find_by_id(store, pending_record->destinations[k].queue_id);
            if (queue != NULL && qsi_queue_refuses(queue)) {
                *destinations_out += 1;
                *stretches_out += pending_record->destinations[k].run->count / stretch_most + 2;
            }
        }
    }
}

uint64_t qsi_refusals_bytes(struct qs_store *store,
                            const struct qsi_pending_records *pending_records)
{
    uint32_t destinations, stretches;

    QS_ASSERT_HELD(&store->mutex);
    measure(store, pending_records, &destinations, &stretches);
    return (uint64_t)destinations * QSI_SETTLE_BYTES;
}

qs_status qsi_refusals_reserve(struct qsi_refusals *refusals, struct qs_store *store,
                               const struct qsi_pending_records *pending_records,
                               uint64_t row_count, qs_error *error)
{
    uint32_t destinations, stretches;

    QS_ASSERT_HELD(&store->mutex);
    measure(store, pending_records, &destinations, &stretches);
    if (destinations == 0) {
        return QS_OK;
    }
    if (refusals->queues == NULL) {
        refusals->queues = qsi_zalloc(row_count * sizeof *refusals->queues);
        refusals->row_count = row_count;
    }
    qsi_chunk_unref(refusals->settles);
    refusals->settles = qsi_chunk_create((uint64_t)destinations * QSI_SETTLE_BYTES);
    if (refusals->queues == NULL || refusals->settles == NULL ||
        qsi_reserve_removals(store, stretches) != QS_OK ||
        qsi_journal_reserve(store->journal, 2 * pending_records->count) !=
            QS_OK) { /* each and its end */
        return qsi_fail(error, QS_ENOMEM, "messages that a full queue refuses");
    }
    return QS_OK;
}

static void record_row(struct qsi_refusals *refusals, uint64_t row, uint64_t queue_id)
{
    QS_ASSERT(row < refusals->row_count && queue_id != 0);
    if (refusals->queues[row] == 0) {
        refusals->queues[row] = queue_id;
        refusals->count += 1;
    }
}

/* One record, over transient messages as well: a replay finds them settled. */
static uint32_t record_end(struct qsi_refusals *refusals, const struct qsi_store_queue *queue,
                           const struct qsi_pushed *pushed, uint64_t first_seq, uint32_t count)
{
    struct qsi_settle settle = {.queue_id = queue->container.id,
                                .first_seq = first_seq,
                                .count = count,
                                .kind = QSI_SETTLE_ACK};
    struct qsi_chunk *settles = refusals->settles;

    QS_DCHECK(count > 0 && count <= pushed->count);
    if (!pushed->journalled) {
        return 0;
    }
    QS_ASSERT(settles->capacity - settles->used >= QSI_SETTLE_BYTES);
    qsi_settle_encode(settles->data + settles->used, &settle);
    settles->used += QSI_SETTLE_BYTES;
    return 1;
}

static void pass_on(struct qs_store *store, struct qsi_store_queue *queue, uint64_t first_seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_stretch stretch;

    while (qsi_queue_reserve_next(&queue->core, &first_seq, &stretch)) {
        qsi_add_removal(store, queue, &stretch, QSI_MAXLEN);
    }
}

void qsi_dead_letter_pass_on(struct qs_store *store, struct qsi_store_queue *queue,
                             uint64_t dead_letter_seq)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_queue_passes_on(queue) && qsi_refused_count(queue, dead_letter_seq, 1) > 0) {
        pass_on(store, queue, dead_letter_seq);
    }
}

uint32_t qsi_refusals_take(struct qsi_refusals *refusals, struct qs_store *store,
                           struct qsi_store_queue *queue,
                           const struct qsi_pending_record *pending_record,
                           const struct qsi_pushed *pushed)
{
    struct qs_channel *internal_channel = store->removals.internal_channel;
    uint32_t refused = qsi_refused_count(queue, pushed->first_seq, pushed->count);
    uint64_t first_seq = pushed->first_seq + pushed->count - refused, seq = first_seq;
    uint64_t first_tag = internal_channel->unacked.last_tag + 1;
    struct qsi_stretch stretch;
    uint32_t records;

    QS_DCHECK(refused <= pushed->count);
    QS_ASSERT_HELD(&store->mutex);
    if (refused == 0) {
        return 0;
    }
    for (uint32_t i = pushed->count - refused; i < pushed->count; i++) {
        record_row(refusals,
                   pending_record->first_row + (pushed->rows != NULL ? pushed->rows[i] : i),
                   qsi_owner_of(queue)->container.id);
    }
    store->stats.refused += refused;
    qsi_counts_of(store, queue)->refused += refused;
    if (qsi_queue_passes_on(queue)) {
        pass_on(store, queue, seq);
        return 0;
    }
    while (qsi_queue_reserve_next(&queue->core, &seq, &stretch)) {
        qsi_unacked_add(&internal_channel->unacked, &queue->container, &stretch, NULL);
    }
    records = record_end(refusals, queue, pushed, first_seq, refused);
    qsi_settle_into(internal_channel, first_tag, internal_channel->unacked.last_tag, QSI_SETTLE_ACK,
                    0, NULL);
    return records; /* the run, and its rows, may be gone */
}

static void report_queue(struct qs_store *store, uint64_t queue_id, qs_receipt *receipt)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue = qsi_find_by_id(store, queue_id);
    uint32_t bytes = queue != NULL ? queue->name.bytes : 0;

    QS_ASSERT(bytes < sizeof receipt->refused_queue);
    if (bytes > 0) {
        memcpy(receipt->refused_queue, queue->name.data, bytes);
    }
    receipt->refused_queue[bytes] = '\0';
}

void qsi_refusals_report_rows(const struct qsi_refusals *refusals, struct qs_store *store,
                              qs_receipt *receipt)
{
    uint32_t reported = 0;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(refusals->count <= refusals->row_count);
    receipt->refused_count = refusals->count;
    for (uint64_t row = 0; row < refusals->row_count && reported < QS_RECEIPT_ROWS; row++) {
        if (refusals->queues[row] == 0) {
            continue;
        }
        if (reported == 0) {
            report_queue(store, refusals->queues[row], receipt);
        }
        receipt->refused_rows[reported++] = row;
    }
}

void qsi_refusals_fini(struct qsi_refusals *refusals)
{
    qsi_free(refusals->queues);
    qsi_chunk_unref(refusals->settles);
    memset(refusals, 0, sizeof *refusals);
}

/* With all arrivals of any of its priorities. */
static bool would_be_over(const struct qsi_store_queue *queue, const struct qsi_arrivals *arrivals)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool by_bytes = qsi_policy_counts_bytes(&queue->policy);
    uint64_t count = qsi_ready_count(queue);
    uint64_t bytes = by_bytes ? qsi_ready_bytes(queue) : 0;

    QS_DCHECK(queue->parent == NULL);
    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        const struct qsi_arrival *arrival =
            qsi_arrivals_find(arrivals, qsi_core_at(queue, i)->container.id);
        count += arrival != NULL ? arrival->messages : 0;
        bytes += arrival != NULL ? arrival->body_bytes : 0;
    }
    return count > queue->policy.messages_max || (by_bytes && bytes > queue->policy.body_bytes_max);
}

qs_status qsi_refusals_check(const struct qsi_arrivals *arrivals, qs_error *error)
{
    for (uint32_t i = 0; i < arrivals->count; i++) {
        const struct qsi_arrival *arrival = &arrivals->items[i];
        struct qsi_store_queue *queue = arrival->queue;
        if (!arrival->is_dead_letter_alone && qsi_queue_refuses(queue) &&
            would_be_over(qsi_owner_of(queue), arrivals)) {
            return qsi_fail(error, QS_PRECONDITION_FAILED,
                            "queue '%.*s' is full and refuses more: nothing of the transaction "
                            "was committed",
                            (int)queue->name.bytes, (const char *)queue->name.data);
        }
    }
    return QS_OK;
}
