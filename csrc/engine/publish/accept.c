/* Accepting pending records: the only way into queues and journal, but for single messages
 * (publish_record.c). */
#include "accept.h"

#include "check.h"
#include "clock.h"
#include "commit.h"
#include "error.h"
#include "limits.h"
#include "priorities.h"
#include "pushed.h"
#include "queue_life.h"

/* Finds the queues, and makes priorities at their first use. */
static qs_status find_queues(struct qs_store *store, struct qsi_pending_record *pending_record,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < pending_record->destination_count; i++) {
        struct qsi_pending_destination *destination = &pending_record->destinations[i];
        QS_DCHECK(destination->run != NULL);
        QS_TRY(qsi_require_by_id(store, destination->queue_id, &destination->queue, error));
    }
    return QS_OK;
}

/* Reserves memory in one queue for all its arrivals. */
static qs_status reserve_arrival(const struct qsi_arrival *arrival) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = arrival->queue;

    QS_DCHECK(arrival->runs > 0 && arrival->messages >= arrival->runs);
    QS_TRY(qsi_container_reserve(queue->messages, arrival->runs, arrival->messages,
                                 arrival->any_transient));
    if (arrival->expiring != NULL) {
        QS_TRY(qsi_container_reserve_times(queue->messages, arrival->expiring, arrival->messages));
    }
    return arrival->delayed != NULL && arrival->delayed != arrival->expiring
               ? qsi_container_reserve_times(queue->messages, arrival->delayed, arrival->messages)
               : QS_OK;
}

static qs_status reserve_arrivals(const struct qsi_arrivals *arrivals, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < arrivals->count; i++) {
        const struct qsi_store_queue *queue = arrivals->items[i].queue;
        if (reserve_arrival(&arrivals->items[i]) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                            (const char *)queue->name.data);
        }
    }
    return QS_OK;
}

qs_status qsi_pending_records_reserve(struct qs_store *store,
                                      struct qsi_pending_records *pending_records,
                                      uint32_t extra_entries, struct qsi_arrivals *arrivals,
                                      qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = 0; i < pending_records->count; i++) {
        QS_TRY(find_queues(store, &pending_records->items[i], error));
    }
    QS_TRY(qsi_arrivals_count(arrivals, pending_records, error));
    QS_TRY(reserve_arrivals(arrivals, error));
    if (qsi_journal_reserve(store->journal, pending_records->count + extra_entries) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return QS_OK;
}

/* Stamps messages that expire with the time of publishing. */
static void stamp(struct qs_store *store, const struct qsi_pending_record *pending_record)
{
    bool expires = pending_record->has_expiration;

    for (uint32_t i = 0; !expires && i < pending_record->destination_count; i++) {
        const struct qsi_store_queue *queue = pending_record->destinations[i].queue;
        expires = queue != NULL && (qsi_policy_has_ttl(&queue->policy) || qsi_keeps_all(queue));
    }
    if (expires) {
        qsi_messages_put_time(pending_record->chunk->data, qsi_clock_us(store));
    }
}

/* Pushes the record to its queues.  refusals NULL: no queue refuses any message.  Returns the
 * number of records added to refusals. */
static uint32_t push(struct qs_store *store, struct qsi_pending_record *pending_record,
                     struct qsi_refusals *refusals) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t refused = 0;

    for (uint32_t i = 0; i < pending_record->destination_count; i++) {
        struct qsi_pending_destination *destination = &pending_record->destinations[i];
        struct qsi_store_queue *queue = destination->queue;
        struct qsi_run *run = destination->run;
        struct qsi_pushed pushed;
        if (queue == NULL) {
            continue; /* deleted meanwhile; fini frees the run */
        }
        QS_DCHECK(run->messages.chunk == pending_record->chunk);
        pushed = (struct qsi_pushed){
            .count = run->count, .rows = run->messages.rows, .journalled = run->journalled};
        destination->run = NULL;
        pushed.first_seq = qsi_container_append(queue->messages, run);
        /* like the record */
        QS_DCHECK(pushed.first_seq + pushed.count == queue->messages->next_seq);
        qsi_put_pushed(store, queue, pending_record->chunk->data, i, &pushed);
        if (refusals != NULL && qsi_queue_refuses(queue)) {
            refused += qsi_refusals_take(refusals, store, queue, pending_record, &pushed);
        } else if (pending_record->is_dead_letter) {
            qsi_dead_letter_pass_on(store, queue, pushed.first_seq);
        }
        qsi_notify_pushed(store, queue, &pushed);
    }
    return refused;
}

static void mark_bodies(struct qs_store *store, const struct qsi_pending_record *pending_record)
{
    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t k = 0; k < pending_record->place_count; k++) {
        qsi_message_store_mark(store->messages, &pending_record->places[k]);
    }
}

/* Appends the record to the journal.  more: other records of its group follow. */
static uint64_t append(struct qs_store *store, const struct qsi_pending_record *pending_record,
                       bool more) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(pending_record->journalled);
    mark_bodies(store, pending_record);
    return qsi_store_append(store, pending_record->chunk, 0, pending_record->chunk->used, 1, more);
}

uint64_t qsi_pending_records_accept_group(struct qs_store *store,
                                          struct qsi_pending_records *pending_records, bool goes_on)
{
    uint64_t lsn = 0;
    uint32_t journalled = 0; /* that are still to come */

    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = 0; i < pending_records->count; i++) {
        journalled += pending_records->items[i].journalled ? 1 : 0;
    }
    for (uint32_t i = 0; i < pending_records->count; i++) {
        struct qsi_pending_record *pending_record = &pending_records->items[i];
        stamp(store, pending_record);
        (void)push(store, pending_record, NULL);
        if (pending_record->journalled) {
            journalled -= 1;
            lsn = append(store, pending_record, goes_on || journalled > 0);
        }
    }
    QS_DCHECK(journalled == 0); /* the last one ended the group */
    qsi_notify_accepted(store, !goes_on && lsn != 0);
    return lsn;
}

/* Accepts the record as a group of its own, with the refusals of its queues.  Returns its LSN, or
 * last_lsn if nothing was journalled. */
static uint64_t accept(struct qs_store *store, struct qsi_pending_record *pending_record,
                       struct qsi_refusals *refusals, uint64_t last_lsn)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *settles = refusals != NULL ? refusals->settles : NULL;
    uint64_t from = settles != NULL ? settles->used : 0;
    uint32_t refused;

    stamp(store, pending_record);
    refused = push(store, pending_record, refusals);
    if (pending_record->journalled) {
        last_lsn = append(store, pending_record, refused > 0);
    }
    QS_DCHECK(refused == 0 || pending_record->journalled || settles != NULL);
    if (refused > 0) {
        last_lsn = qsi_store_append(store, settles, from, settles->used - from, refused, false);
    }
    return last_lsn;
}

void qsi_pending_records_push_written(struct qs_store *store,
                                      struct qsi_pending_records *pending_records, uint32_t count)
{
    QS_ASSERT(count <= pending_records->count && pending_records->written_count == 0);
    for (uint32_t i = 0; i < count; i++) {
        (void)push(store, &pending_records->items[i], NULL);
    }
    pending_records->written_count = count;
}

uint64_t qsi_pending_records_accept(struct qs_store *store,
                                    struct qsi_pending_records *pending_records,
                                    struct qsi_refusals *refusals, uint64_t last_lsn)
{
    uint64_t lsn = last_lsn;

    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = pending_records->written_count; i < pending_records->count; i++) {
        lsn = accept(store, &pending_records->items[i], refusals, lsn);
    }
    qsi_notify_accepted(store, lsn != 0);
    return lsn;
}
