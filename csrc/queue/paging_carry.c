/* Instead of flushing: the messages of a flush as records of the journal, for a checkpoint that
 * carries them itself.  Invariants: every message that is live and not transient is in one
 * record, under its own sequence; replaying what is encoded counts each message's earlier
 * deliveries again; only the flush is read, not the queue's changing state. */
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* Consecutive messages that one record can hold. */
struct group {
    const uint8_t *record; /* they come from */
    struct qsi_messages view;
    const uint32_t *rows; /* NULL: row, row + 1, ... */
    uint64_t first_seq;
    uint32_t row, count, route;
    bool stored;
};

static uint32_t group_row(const struct group *group, uint32_t i)
{
    return group->rows != NULL ? group->rows[i] : group->row + i;
}

static qs_status encode_group(const struct group *group, uint64_t queue_id, struct qsi_buf *out)
{
    static const uint32_t destination = 0;
    struct qsi_route_view route = qsi_messages_route(&group->view, group->route);
    struct qsi_slice properties = qsi_messages_properties(&group->view, group_row(group, 0));
    struct qsi_messages_layout layout = {
        .row_count = group->count,
        .route_count = 1,
        .destination_count = 1,
        .routes_bytes = qsi_route_bytes(route.exchange.bytes, route.key.bytes, 1),
        .properties_bytes = properties.bytes,
        .flags =
            (uint8_t)((group->stored ? QSI_MESSAGES_HAS_STORED : 0) |
                      (group->view.flags & (QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE))),
    };
    uint8_t *record, *at, *offsets;
    uint64_t route_at = 0;
    uint32_t body_at = 0;

    for (uint32_t i = 0; i < group->count; i++) {
        layout.bodies_bytes += qsi_messages_body(&group->view, group_row(group, i)).bytes;
    }
    QS_TRY(qsi_messages_layout(&layout, NULL));
    QS_TRY(qsi_buf_reserve(out, layout.record_bytes, &record));
    out->bytes += layout.record_bytes;
    qsi_messages_begin(record, &layout);
    qsi_messages_put_time(record, qsi_messages_time(group->record));
    qsi_messages_put_route(record, &layout, 0, &route_at, route.exchange, route.key, &destination,
                           1);
    at = qsi_messages_properties_place(record, &layout);
    qsi_put_u32(at, properties.bytes);
    if (properties.bytes > 0) {
        memcpy(at + 4, properties.data, properties.bytes);
    }
    offsets = qsi_messages_body_offsets_place(record, &layout);
    at = qsi_messages_bodies_place(record, &layout);
    for (uint32_t i = 0; i < group->count; i++) {
        struct qsi_slice body = qsi_messages_body(&group->view, group_row(group, i));
        qsi_put_u32(offsets + 4 * (size_t)i, body_at);
        if (body.bytes > 0) {
            memcpy(at + body_at, body.data, body.bytes);
        }
        body_at += body.bytes;
        if (group->view.expirations != NULL) {
            qsi_messages_put_expiration(record, &layout, i,
                                        qsi_messages_expiration(&group->view, group_row(group, i)));
        }
        if ((group->view.flags & QSI_MESSAGES_HAS_DUE) != 0) {
            qsi_messages_put_due(record, &layout, i,
                                 qsi_messages_due(&group->view, group_row(group, i)));
        }
        if (group->stored) {
            qsi_messages_stored_place(record, &layout)[i / 8] |= (uint8_t)(1u << (i % 8));
        }
    }
    qsi_put_u32(offsets + 4 * (size_t)group->count, body_at);
    qsi_messages_put_destination(record, 0, queue_id, group->first_seq, group->count);
    return QS_OK;
}

#define GROUP_BYTES_MAX (1u << 20)

/* The longest group of the run's messages from index i on. */
static struct group next_group(const struct qsi_flush *flush, const struct qsi_flush_run *run,
                               uint32_t i)
{
    struct group group = {.first_seq = qsi_segment_first_seq(flush->queue->shared, flush->segment) +
                                       run->first + i};
    bool single_records = run->messages.single_records;
    uint64_t bytes = 0;

    group.record = qsi_messages_ref_record(&run->messages, i, &group.row);
    group.rows = single_records || run->messages.rows == NULL ? NULL : run->messages.rows + i;
    qsi_messages_view(&group.view, group.record);
    group.route = qsi_messages_row_route(&group.view, group_row(&group, 0));
    group.stored = qsi_messages_is_stored(&group.view, group_row(&group, 0));
    do {
        bytes += qsi_messages_body(&group.view, group_row(&group, group.count)).bytes;
        group.count += 1;
    } while (!single_records && bytes < GROUP_BYTES_MAX && i + group.count < run->count &&
             (group.view.flags & QSI_MESSAGES_PROPERTIES_PER_ROW) == 0 &&
             qsi_bitmap_has(flush->live, run->first + i + group.count) &&
             (flush->transient == NULL ||
              !qsi_bitmap_has(flush->transient, run->first + i + group.count)) &&
             qsi_messages_row_route(&group.view, group_row(&group, group.count)) == group.route &&
             qsi_messages_is_stored(&group.view, group_row(&group, group.count)) == group.stored);
    return group;
}

static uint8_t delivery_count(const struct qsi_flush *flush, uint32_t slot)
{
    if (!qsi_bitmap_has(flush->live, slot) ||
        (flush->transient != NULL && qsi_bitmap_has(flush->transient, slot))) {
        return 0;
    }
    return flush->deliveries != NULL           ? flush->deliveries[slot]
           : qsi_bitmap_has(flush->seen, slot) ? 1
                                               : 0;
}

/* A requeue for each stretch of messages with at least that many deliveries. */
static qs_status encode_deliveries(const struct qsi_flush *flush, uint8_t least,
                                   struct qsi_buf *out, uint32_t *record_count_io, bool *more_out)
{
    uint64_t first_seq = qsi_segment_first_seq(flush->queue->shared, flush->segment);
    uint32_t slot = flush->from;

    *more_out = false;
    while (slot < flush->to) {
        struct qsi_settle settle = {.queue_id = flush->queue->container.id,
                                    .first_seq = first_seq + slot,
                                    .kind = QSI_SETTLE_REQUEUE};
        uint8_t *record;
        for (; slot < flush->to && delivery_count(flush, slot) >= least; slot++) {
            settle.count += 1;
            *more_out = *more_out || delivery_count(flush, slot) > least;
        }
        slot += 1;
        if (settle.count == 0) {
            continue;
        }
        QS_TRY(qsi_buf_reserve(out, QSI_SETTLE_BYTES, &record));
        out->bytes += QSI_SETTLE_BYTES;
        qsi_settle_encode(record, &settle);
        *record_count_io += 1;
    }
    return QS_OK;
}

/* Until when what the record of the message does not tell is delayed; 0: it is not. */
static uint64_t due_of(const struct qsi_flush *flush, uint32_t slot)
{
    bool is_carried = qsi_bitmap_has(flush->live, slot) &&
                      (flush->transient == NULL || !qsi_bitmap_has(flush->transient, slot));

    return is_carried && flush->dues != NULL ? flush->dues[slot] : 0;
}

/* One for each stretch of messages that are delayed until the same time.  What is delayed by its
 * own record is told once more: it may be delayed again, and the requeues before this made it
 * ready. */
static qs_status encode_delays(const struct qsi_flush *flush, struct qsi_buf *out,
                               uint32_t *record_count_io)
{
    uint64_t first_seq = qsi_segment_first_seq(flush->queue->shared, flush->segment);
    uint32_t slot = flush->from;

    while (flush->dues != NULL && slot < flush->to) {
        struct qsi_settle settle = {
            .queue_id = flush->queue->container.id,
            .first_seq = first_seq + slot,
            .kind = QSI_SETTLE_DUE,
            .due_us = due_of(flush, slot),
        };
        uint8_t *record;
        for (; slot < flush->to && due_of(flush, slot) == settle.due_us; slot++) {
            settle.count += 1;
        }
        if (settle.due_us == 0) {
            continue;
        }
        QS_TRY(qsi_buf_reserve(out, qsi_settle_record_bytes(settle.kind), &record));
        out->bytes += qsi_settle_record_bytes(settle.kind);
        qsi_settle_encode(record, &settle);
        *record_count_io += 1;
    }
    return QS_OK;
}

qs_status qsi_flush_encode(const struct qsi_flush *flush, struct qsi_buf *out,
                           uint32_t *record_count_io)
{
    bool more = true;

    for (uint32_t r = 0; r < flush->run_count; r++) {
        const struct qsi_flush_run *run = &flush->runs[r];
        for (uint32_t i = 0; i < run->count;) {
            struct group group;
            if (!qsi_bitmap_has(flush->live, run->first + i) ||
                (flush->transient != NULL && qsi_bitmap_has(flush->transient, run->first + i))) {
                i += 1;
                continue;
            }
            group = next_group(flush, run, i);
            QS_TRY(encode_group(&group, flush->queue->container.id, out));
            *record_count_io += 1;
            i += group.count;
        }
    }
    for (uint8_t least = 1; more && least < UINT8_MAX; least++) {
        QS_TRY(encode_deliveries(flush, least, out, record_count_io, &more));
    }
    return encode_delays(flush, out, record_count_io);
}
