/* Publishing record batches.
 *
 * Everything that costs time per row happens without the lock: checking, finding the distinct
 * routes, copying bodies into a record, listing the rows for each queue.  The lock is held twice,
 * to look up the distinct routes and to accept the encoded records; neither depends on the number
 * of rows.  If a headers exchange decides, the lock is also held once for every few thousand rows,
 * to look up their distinct headers. */
#include "accept.h"
#include "arrivals.h"
#include "batch.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "enter.h"
#include "notify.h"
#include "pager.h"
#include "publish.h"
#include "publish_counts.h"
#include "publish_direct.h"
#include "publish_trace.h"
#include "returns.h"
#include "space.h"
#include "store.h"
#include "trace.h"
#include "tx.h"
#include "ways.h"

#include <string.h>

/* ---- accepting ---- */

static qs_status reserve_records(struct qsi_batch *batch, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_arrivals arrivals = {0};
    qs_status status =
        qsi_pending_records_reserve(batch->store, &batch->pending_records, 0, &arrivals, error);

    qsi_arrivals_fini(&arrivals);
    return status;
}

/* Reserves room for the refusals of full queues, and for the confirms of accepted rows. */
static qs_status reserve_refusals(struct qsi_batch *batch, struct qsi_refusals *refusals,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status = qsi_refusals_reserve(refusals, batch->store, &batch->pending_records,
                                            batch->row_count, error);

    if (status == QS_OK && refusals->queues != NULL &&
        qsi_confirms_reserve_batch(&batch->channel->confirms, batch->row_count,
                                   qsi_journal_durable_lsn(batch->store->journal)) != QS_OK) {
        status = qsi_batch_no_memory(error);
    }
    if (status != QS_OK) {
        qsi_refusals_fini(refusals);
    }
    return status;
}

/* Reserves room to note the destinations of rows whose confirms wait. */
static qs_status reserve_ways(struct qsi_batch *batch, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_published_note *note = qsi_published_note_next(&batch->published, NULL);
    size_t bytes = 0;

    for (; note != NULL; note = qsi_published_note_next(&batch->published, note)) {
        bytes += qsi_way_bytes(note->queue_count);
    }
    return qsi_ways_reserve(batch->channel, bytes) == QS_OK ? QS_OK : qsi_batch_no_memory(error);
}

static bool has_id(const struct qsi_published_note *note, uint64_t id)
{
    const uint64_t *ids = qsi_published_note_ids(note);

    for (uint32_t i = 0; i < note->queue_count; i++) {
        if (qsi_queue_in(ids[i]) == id) {
            return true;
        }
    }
    return false;
}

/* Returns how many rows on this way were taken.  A refused row, named by the queue that refused it,
 * is assigned to the first way to that queue, so the counts of the queue are exact.  left: refused
 * rows that were assigned to no way yet. */
static uint64_t taken_of(const struct qsi_published_note *note, struct qsi_refusals *refusals,
                         uint64_t *left)
{
    uint64_t taken = note->count;

    for (uint64_t row = 0; *left > 0 && row < refusals->row_count && taken > 0; row++) {
        if (refusals->queues[row] != 0 && has_id(note, refusals->queues[row])) {
            refusals->queues[row] = 0;
            taken -= 1;
            *left -= 1;
        }
    }
    return taken;
}

/* The rows were accepted and have numbers; their confirms wait for the LSN, if it is not 0. */
static void record_ways(struct qsi_batch *batch, const qs_receipt *receipt,
                        struct qsi_refusals *refusals) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = batch->channel;
    const struct qsi_published_note *note = qsi_published_note_next(&batch->published, NULL);
    uint64_t left = refusals->count;

    for (; note != NULL; note = qsi_published_note_next(&batch->published, note)) {
        struct qsi_slice exchange = qsi_published_note_exchange(note);
        const uint64_t *from = qsi_published_note_ids(note);
        uint64_t count = taken_of(note, refusals, &left), *ids;
        struct qsi_confirm_way *way;
        if (receipt->lsn == 0 || count == 0) {
            qsi_ways_count(channel->store, exchange, from, note->queue_count, count);
            continue;
        }
        way = qsi_ways_next(channel, &ids);
        *way = (struct qsi_confirm_way){.first_number = receipt->first_number,
                                        .last_number = receipt->last_number,
                                        .count = count,
                                        .lsn = receipt->lsn,
                                        .queue_count = note->queue_count,
                                        .persistent = true};
        memcpy(ids, from, note->queue_count * sizeof *ids);
        qsi_ways_record(channel, way, exchange);
    }
}

/* Makes room for the batch in memory, on the disk and in the journal. */
static qs_status make_room(struct qsi_batch *batch, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = batch->store;
    uint64_t bytes =
        batch->pending_records.journal_bytes + qsi_refusals_bytes(store, &batch->pending_records);
    bool released;

    if (batch->pending_records.journal_bytes == 0) {
        return QS_OK;
    }
    return qsi_commit_make_room(store, bytes + qsi_reserve_bytes(store),
                                batch->pending_records.entry_bytes_max, QSI_ROOM_PUBLISH, &released,
                                wait, error);
}

/* Releases the lock meanwhile; afterwards everything is as before, including the room. */
static qs_status write_directly(struct qsi_batch *batch, struct qsi_direct_write *direct,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = batch->store;
    bool released;

    QS_ASSERT(direct->job == NULL);
    qsi_direct_write(store, &batch->pending_records, direct, &released);
    QS_DCHECK(released || direct->job == NULL);
    if (!released) {
        return QS_OK;
    }
    /* While this call holds the job, no checkpoint can make room. */
    if (direct->job != NULL && (make_room(batch, QSI_MUST_NOT_WAIT, NULL) != QS_OK ||
                                !qsi_direct_may_accept(direct, &batch->pending_records))) {
        qsi_direct_forget(store, direct);
    }
    return direct->job != NULL ? QS_OK : make_room(batch, QSI_MAY_WAIT, error);
}

static qs_status accept_now(struct qsi_batch *batch, struct qsi_refusals *refusals,
                            struct qsi_direct_write *direct, qs_receipt *receipt, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = batch->channel;
    struct qs_store *store = batch->store;
    bool released;
    uint64_t written = 0;

    QS_TRY(qsi_pager_make_room(store, &released, QSI_MAY_WAIT, error));
    QS_TRY(make_room(batch, QSI_MAY_WAIT, error));
    QS_TRY(write_directly(batch, direct, error));
    if (channel->closed) {
        return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    if (qsi_confirms_reserve(&channel->confirms, qsi_journal_durable_lsn(store->journal)) !=
        QS_OK) {
        return qsi_batch_no_memory(error);
    }
    QS_TRY(reserve_ways(batch, error));
    QS_TRY(reserve_records(batch, error));
    QS_TRY(qsi_direct_reserve(store, direct, error));
    QS_TRY(reserve_refusals(batch, refusals, error));
    if (direct->job != NULL) {
        written = qsi_direct_accept(store, &batch->pending_records, direct);
    }
    receipt->lsn = qsi_pending_records_accept(store, &batch->pending_records, refusals, written);
    qsi_count_notes(channel, &batch->published);
    return QS_OK;
}

static qs_status accept(struct qsi_batch *batch, qs_receipt *receipt, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = batch->channel;
    struct qs_store *store = batch->store;
    struct qsi_refusals refusals = {NULL};

    if (channel->tx_selected) {
        QS_TRY(qsi_tx_take(channel, &batch->pending_records, &batch->published, error));
    } else {
        struct qsi_direct_write direct = {NULL};
        qs_status status = accept_now(batch, &refusals, &direct, receipt, error);
        qsi_direct_forget(store, &direct);
        QS_TRY(status);
    }
    QS_ASSERT(batch->unrouted_count <= batch->row_count);
    receipt->count = batch->row_count;
    receipt->unrouted_count = batch->unrouted_count;
    qsi_refusals_report(&refusals, store, receipt);
    store->stats.published += batch->row_count;
    qsi_count_returns(channel, batch->mandatory ? batch->unrouted_count : 0);
    qsi_keep_returns(channel, &batch->returns);
    if (channel->confirms.selected && !channel->tx_selected && batch->row_count > 0) {
        receipt->first_number = qsi_confirms_add_batch(&channel->confirms, batch->row_count,
                                                       receipt->lsn, refusals.queues);
        receipt->last_number = receipt->first_number + batch->row_count - 1;
        record_ways(batch, receipt, &refusals);
        if (receipt->lsn == 0 || refusals.count > 0) {
            qsi_events_notify(store);
        }
    }
    if (qsi_is_traced(store)) {
        qsi_trace_batch(channel, &batch->published, receipt);
    }
    qsi_refusals_fini(&refusals);
    return QS_OK;
}

/* Without the lock, except for look-ups. */
static qs_status make_records(struct qsi_batch *batch, qs_error *error)
{
    QS_TRY(qsi_batch_open(batch, error));
    QS_TRY(qsi_batch_look_up_routes(batch, error));
    QS_TRY(qsi_batch_refine_routes(batch, error));
    QS_TRY(qsi_batch_divide_routes(batch, error));
    return qsi_batch_make_records(batch, error);
}

/* status: of make_records. */
static qs_status finish(struct qsi_batch *batch, qs_status status, qs_receipt *receipt_out,
                        qs_error *error)
{
    struct qs_channel *channel = batch->channel;

    if (status == QS_OK) {
        QS_TRY(qsi_channel_enter(channel, error));
        return qsi_channel_leave(channel, accept(batch, receipt_out, error));
    }
    /* A refusal without the lock must end the channel, as every refusal does.  A refusal with the
     * lock held has ended it already. */
    if (qsi_channel_enter(channel, NULL) == QS_OK) {
        status = qsi_channel_leave(channel, status);
    }
    return status;
}

static qs_status publish_batch(qs_channel *channel, const qs_batch *input, qs_receipt *receipt_out,
                               qs_error *error)
{
    struct qsi_batch batch = {
        .channel = channel,
        .store = channel->store,
        .input = input,
        .rules = qsi_batch_rules_of(channel->store),
        .record_rows_max = RECORD_ROWS_MAX,
        .mandatory = (input->flags & QS_MANDATORY) != 0,
    };
    qs_status status;

    qsi_receipt_clear(receipt_out);
    qsi_list_init(&batch.returns);
    QS_TRY(qsi_check_names(input->exchange.bytes, input->routing_key.bytes, error));
    QS_TRY(qsi_channel_enter(channel,
                             error)); /* a closed store or channel answers before a bad batch */
    batch.now_us = qsi_clock_us(channel->store);
    qsi_store_leave(channel->store);
    status = finish(&batch, make_records(&batch, error), receipt_out, error);
    qsi_batch_fini(&batch);
    return status;
}

static bool regain_space(struct qs_channel *channel)
{
    bool regained = false;

    if (qsi_channel_enter(channel, NULL) == QS_OK) {
        regained = qsi_space_regain(channel->store);
        qsi_store_leave(channel->store);
    }
    return regained;
}

qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *input,
                                   qs_receipt *receipt_out, qs_error *error)
{
    qs_status status = publish_batch(channel, input, receipt_out, error);

    /* Writing large bodies without the lock detects a full disk. */
    return status == QS_ESTORE_FULL && regain_space(channel)
               ? publish_batch(channel, input, receipt_out, error)
               : status;
}
