/* Instead of flushing: the messages of a flush as records of the journal, for a checkpoint that
 * carries them itself.  Messages that were published one by one become rows of one record: with a
 * small body, a record of its own would be mostly overhead.
 *
 * Invariants: every live message that is not transient is in one record, under its own sequence;
 * replaying the records counts each message's earlier deliveries again; only the flush is read, not
 * the queue's changing state, so encoding twice has the same result. */
#include "paging.h"
#include "queue_internal.h"
#include "record_build.h"

#define RECORD_BYTES_MAX (1u << 20)

/* Whether the message of the slot is carried. */
static bool is_carried(const struct qsi_flush *flush, uint32_t slot)
{
    return qsi_bitmap_has(flush->live, slot) &&
           (flush->transient == NULL || !qsi_bitmap_has(flush->transient, slot));
}

/* ---- messages ---- */

/* The record being made: consecutive messages with one time of publishing. */
struct carrying {
    const struct qsi_flush *flush;
    struct qsi_carried *carried;
    uint64_t first_seq, time_us;
};

static qs_status end_record(struct carrying *carrying)
{
    struct qsi_carried *carried = carrying->carried;
    uint64_t bytes;
    uint8_t *room;

    if (qsi_record_build_rows(carried->build) == 0) {
        return QS_OK;
    }
    if (!carried->counts_only) {
        QS_TRY(qsi_record_build_measure(carried->build, &bytes, NULL));
        QS_TRY(qsi_buf_reserve(&carried->records, bytes, &room));
        qsi_record_build_write(carried->build, room, carrying->flush->queue->container.id,
                               carrying->first_seq, carrying->time_us, NULL);
        carried->records.bytes += bytes;
    }
    carried->record_count += 1;
    qsi_record_build_clear(carried->build);
    return QS_OK;
}

/* Rows of one record, from this sequence on. */
static qs_status add_rows(struct carrying *carrying, struct qsi_row_stretch rows, uint64_t seq)
{
    struct qsi_record_build *build = carrying->carried->build;
    uint64_t time_us = qsi_messages_time(rows.record);

    while (rows.count > 0) {
        uint32_t taken;
        if (seq != carrying->first_seq + qsi_record_build_rows(build) ||
            time_us != carrying->time_us) {
            QS_TRY(end_record(carrying));
        }
        if (qsi_record_build_rows(build) == 0) {
            carrying->first_seq = seq;
            carrying->time_us = time_us;
        }
        QS_TRY(qsi_record_build_add(build, &rows, UINT32_MAX, RECORD_BYTES_MAX, &taken, NULL));
        if (taken == 0) {
            QS_TRY(end_record(carrying));
        }
        rows.first_row += taken;
        rows.count -= taken;
        seq += taken;
    }
    return QS_OK;
}

static qs_status encode_run(struct carrying *carrying, const struct qsi_flush_run *run)
{
    const struct qsi_flush *flush = carrying->flush;
    uint32_t i = 0;

    while (i < run->count) {
        uint32_t end = i;
        while (end < run->count && is_carried(flush, run->first + end)) {
            end += 1;
        }
        while (i < end) {
            struct qsi_row_stretch rows = qsi_messages_ref_stretch(&run->messages, i, end);
            QS_TRY(add_rows(carrying, rows, flush->first_seq + run->first + i));
            i += rows.count;
        }
        i += 1; /* one that is not carried */
    }
    return QS_OK;
}

static qs_status encode_messages(const struct qsi_flush *flush, struct qsi_carried *carried)
{
    struct carrying carrying = {.flush = flush, .carried = carried};
    qs_status status = QS_OK;

    if (carried->build == NULL) {
        carried->build = qsi_record_build_create(
            QSI_BUILD_EXPIRATIONS | QSI_BUILD_DUES | QSI_BUILD_KEEP_STORED, NULL, NULL);
        if (carried->build == NULL) {
            return QS_ENOMEM;
        }
    }
    for (uint32_t r = 0; status == QS_OK && r < flush->run_count; r++) {
        status = encode_run(&carrying, &flush->runs[r]);
    }
    if (status == QS_OK) {
        status = end_record(&carrying);
    }
    if (status != QS_OK) {
        qsi_record_build_clear(carried->build);
    }
    return status;
}

/* ---- what became of them ---- */

static qs_status put_settle(struct qsi_carried *carried, const struct qsi_settle *settle)
{
    uint32_t bytes = qsi_settle_record_bytes(settle->kind);
    uint8_t *record;

    if (!carried->counts_only) {
        QS_TRY(qsi_buf_reserve(&carried->records, bytes, &record));
        carried->records.bytes += bytes;
        qsi_settle_encode(record, settle);
    }
    carried->record_count += 1;
    return QS_OK;
}

static uint8_t delivery_count(const struct qsi_flush *flush, uint32_t slot)
{
    if (!is_carried(flush, slot)) {
        return 0;
    }
    return flush->deliveries != NULL           ? flush->deliveries[slot]
           : qsi_bitmap_has(flush->seen, slot) ? 1
                                               : 0;
}

/* A requeue for each stretch of messages with at least that many deliveries. */
static qs_status encode_deliveries(const struct qsi_flush *flush, uint8_t least,
                                   struct qsi_carried *carried, bool *more_out)
{
    uint32_t slot = flush->from;

    *more_out = false;
    while (slot < flush->to) {
        struct qsi_settle settle = {.queue_id = flush->queue->container.id,
                                    .first_seq = flush->first_seq + slot,
                                    .kind = QSI_SETTLE_REQUEUE};
        for (; slot < flush->to && delivery_count(flush, slot) >= least; slot++) {
            settle.count += 1;
            *more_out = *more_out || delivery_count(flush, slot) > least;
        }
        slot += 1;
        if (settle.count > 0) {
            QS_TRY(put_settle(carried, &settle));
        }
    }
    return QS_OK;
}

/* The end of a delay that the message's record does not have; 0: there is none. */
static uint64_t due_of(const struct qsi_flush *flush, uint32_t slot)
{
    return flush->dues != NULL && is_carried(flush, slot) ? flush->dues[slot] : 0;
}

/* One for each stretch of messages with the same due time.  A delay in the message's own record is
 * repeated: the message may be delayed again, and the requeues before this made it ready. */
static qs_status encode_delays(const struct qsi_flush *flush, struct qsi_carried *carried)
{
    uint32_t slot = flush->from;

    while (flush->dues != NULL && slot < flush->to) {
        struct qsi_settle settle = {
            .queue_id = flush->queue->container.id,
            .first_seq = flush->first_seq + slot,
            .kind = QSI_SETTLE_DUE,
            .due_us = due_of(flush, slot),
        };
        for (; slot < flush->to && due_of(flush, slot) == settle.due_us; slot++) {
            settle.count += 1;
        }
        if (settle.due_us != 0) {
            QS_TRY(put_settle(carried, &settle));
        }
    }
    return QS_OK;
}

qs_status qsi_flush_encode(const struct qsi_flush *flush, struct qsi_carried *carried)
{
    bool more = true;

    QS_TRY(encode_messages(flush, carried));
    for (uint8_t least = 1; more && least < UINT8_MAX; least++) {
        QS_TRY(encode_deliveries(flush, least, carried, &more));
    }
    return encode_delays(flush, carried);
}
