/* The calls that settle: ack, nack, ranges and recover. */
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "deliveries.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "message_rules.h"
#include "pager.h"
#include "queue_delays.h"
#include "queue_life.h"
#include "record.h"
#include "settle.h"
#include "stream_deliver.h"
#include "thread_safety.h"

/* ---- the verbs ---- */

static qs_status unknown_tag(uint64_t tag, qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED, "unknown delivery tag %llu",
                    (unsigned long long)tag);
}

/* The tags that a verb applies to.  *last_out 0: none (everything, of nothing). */
static qs_status tags_of(const struct qs_channel *channel, uint64_t tag, bool multiple,
                         uint64_t *first_out, uint64_t *last_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (tag == 0 && multiple) {
        *first_out = 1;
        *last_out = channel->unacked.last_tag;
        return QS_OK;
    }
    if (!qsi_unacked_has(&channel->unacked, tag)) {
        return unknown_tag(tag, error);
    }
    *first_out = multiple ? 1 : tag;
    *last_out = tag;
    return QS_OK;
}

static qs_status buffer_settle(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                               uint8_t kind, uint64_t due_us, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t free_from = channel->unacked.free_from;
    struct qsi_tx_settle settle = {first_tag > free_from ? first_tag : free_from, last_tag, kind,
                                   due_us};

    if (settle.first_tag > last_tag) {
        return QS_OK; /* everything, and it is settled already */
    }
    if (qsi_buf_append(&channel->tx_settles, &settle, sizeof settle) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "transaction");
    }
    qsi_unacked_set_pending(&channel->unacked, settle.first_tag, last_tag);
    return QS_OK;
}

/* Reserves room for messages that leave the queues another way when these tags are rejected: none
 * is dropped for lack of room. */
static qs_status reserve_rejects(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                 uint8_t kind, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t runs =
        kind == QSI_SETTLE_REJECT ? qsi_unacked_runs(&channel->unacked, first_tag, last_tag) : 0;

    return runs == 0 || qsi_reserve_removals(channel->store, (uint32_t)runs) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "rejected messages");
}

/* Reserves room to delay the messages of these tags. */
qs_status qsi_settle_cover_delays(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                  qs_error *error)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    for (uint64_t tag = first_tag; tag <= last_tag;) {
        const struct qsi_extent *extent;
        struct qsi_store_queue *queue;
        if (!qsi_unacked_next(&channel->unacked, tag, &tag) || tag > last_tag) {
            break;
        }
        extent = qsi_unacked_find(&channel->unacked, tag);
        queue = qsi_queue_of_container(extent->container);
        if (!queue->deleted && extent->segment != NULL &&
            qsi_segment_cover_delays(&queue->core, extent->segment) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "delayed messages");
        }
        tag = extent->first_tag + extent->count;
    }
    return QS_OK;
}

/* due_us: for the kinds that have it, else 0. */
static qs_status settle(struct qs_channel *channel, uint64_t tag, bool multiple, uint8_t kind,
                        uint64_t due_us, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first = 0, last = 0, bytes = 0;
    bool released = true;

    while (released) {
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(tags_of(channel, tag, multiple, &first, &last, error));
        if (kind != QSI_SETTLE_ACK) {
            QS_TRY(qsi_stream_refuse_nack(channel, first, last, error));
        }
        if (channel->tx_selected) {
            return buffer_settle(channel, first, last, kind, due_us, error);
        }
        QS_TRY(qsi_store_check_failed(channel->store, error));
        bytes = qsi_settle_bytes(channel, first, last, kind);
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released, wait,
                                    error));
    }
    QS_TRY(reserve_rejects(channel, first, last, kind, error));
    if (QS_UNLIKELY(qsi_settle_has_due(kind))) {
        QS_TRY(qsi_settle_cover_delays(channel, first, last, error));
    }
    return qsi_settle_surely(channel, first, last, kind, due_us, bytes, error);
}

qs_status qs_channel_ack(qs_channel *channel, uint64_t delivery_tag, uint32_t flags,
                         qs_error *error)
{
    enum qsi_wait wait = qsi_wait_of(flags);

    QS_TRY(qsi_channel_enter(channel, error));
    return qsi_channel_leave_after(
        channel, wait,
        settle(channel, delivery_tag, (flags & QS_MULTIPLE) != 0, QSI_SETTLE_ACK, 0, wait, error));
}

/* The kind that the flags ask for.  QS_EINVAL: a delay, with a kind that has none. */
static qs_status kind_of(uint32_t flags, uint64_t delay_us, uint8_t *kind_out, qs_error *error)
{
    QS_TRY(qsi_check_delay(delay_us, error));
    *kind_out = (flags & QS_REQUEUE) == 0 ? QSI_SETTLE_REJECT
                : delay_us > 0            ? QSI_SETTLE_REQUEUE_DUE
                                          : QSI_SETTLE_REQUEUE;
    return delay_us == 0 || *kind_out == QSI_SETTLE_REQUEUE_DUE
               ? QS_OK
               : qsi_fail(error, QS_EINVAL, "a delay without requeue: the message goes nowhere");
}

qs_status qs_channel_nack(qs_channel *channel, uint64_t delivery_tag, uint32_t flags,
                          uint64_t delay_us, qs_error *error)
{
    enum qsi_wait wait = qsi_wait_of(flags);
    uint8_t kind;

    QS_TRY(kind_of(flags, delay_us, &kind, error));
    QS_TRY(qsi_channel_enter(channel, error));
    return qsi_channel_leave_after(channel, wait,
                                   settle(channel, delivery_tag, (flags & QS_MULTIPLE) != 0, kind,
                                          qsi_due_us(channel->store, delay_us), wait, error));
}

static qs_status settle_range(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                              uint8_t kind, uint64_t due_us, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first, last = first_tag - 1;
    bool released = true;

    while (released) {
        uint64_t bytes;
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(qsi_store_check_failed(channel->store, error));
        bytes = qsi_settle_bytes(channel, first_tag, last_tag, kind);
        bytes += channel->tx_settles.bytes / sizeof(struct qsi_tx_settle) *
                 qsi_settle_record_bytes(kind);
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released, wait,
                                    error));
    }
    if (qsi_settle_has_due(kind)) {
        QS_TRY(qsi_settle_cover_delays(channel, first_tag, last_tag, error));
    }
    QS_TRY(reserve_rejects(channel, first_tag, last_tag, kind, error));
    while (last < last_tag && qsi_unacked_next_free(&channel->unacked, last + 1, &first, &last) &&
           first <= last_tag) {
        last = last < last_tag ? last : last_tag;
        qsi_settle_within(channel, first, last, kind, due_us,
                          qsi_settle_bytes(channel, first, last, kind));
    }
    return QS_OK;
}

/* Only a caller that never handed them out requeues messages of streams: without QS_IN_TX. */
static qs_status settle_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                             uint8_t kind, uint32_t flags, uint64_t due_us, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (kind != QSI_SETTLE_ACK && (kind != QSI_SETTLE_REQUEUE || (flags & QS_IN_TX) != 0)) {
        QS_TRY(qsi_stream_refuse_nack(channel, first_tag, last_tag, error));
    }
    return (flags & QS_IN_TX) != 0 && channel->tx_selected
               ? buffer_settle(channel, first_tag, last_tag, kind, due_us, error)
               : settle_range(channel, first_tag, last_tag, kind, due_us, qsi_wait_of(flags),
                              error);
}

qs_status qs_channel_settle_range(qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                                  uint32_t flags, uint64_t delay_us, qs_error *error)
{
    enum qsi_wait wait = qsi_wait_of(flags);
    uint64_t due_us;
    uint8_t kind = QSI_SETTLE_ACK;

    if (delay_us > 0 || (flags & (QS_REQUEUE | QS_REJECT)) != 0) {
        QS_TRY(kind_of(flags, delay_us, &kind, error));
    }

    if (first_tag == 0) {
        return qsi_fail(error, QS_EINVAL, "delivery tags count from 1");
    }
    QS_TRY(qsi_channel_enter(channel, error));
    due_us = qsi_due_us(channel->store, delay_us);
    if (last_tag > channel->unacked.last_tag) {
        last_tag = channel->unacked.last_tag; /* a transaction settles no later deliveries */
    }
    return qsi_channel_leave_after(
        channel, wait, settle_tags(channel, first_tag, last_tag, kind, flags, due_us, error));
}

/* RabbitMQ fails in this case, and a stream requeues nothing. */
static qs_status refuse_recover(const struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_unacked_find_stream(&channel->unacked, 1, channel->unacked.last_tag) == NULL
               ? QS_OK
               : qsi_fail(
                     error, QS_PRECONDITION_FAILED,
                     "basic.recover not supported while messages of streams are unacknowledged");
}

/* Not part of a transaction, as in RabbitMQ: tags that a transaction has settled stay with it, and
 * all others are requeued at once. */
static qs_status recover(struct qs_channel *channel, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first, last = 0;
    bool released = true;

    while (released) {
        uint64_t bytes;
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(qsi_store_check_failed(channel->store, error));
        QS_TRY(refuse_recover(channel, error));
        bytes = qsi_settle_bytes(channel, 1, channel->unacked.last_tag, QSI_SETTLE_REQUEUE);
        /* Tags that a transaction has settled may divide a stretch. */
        bytes += channel->tx_settles.bytes / sizeof(struct qsi_tx_settle) * QSI_SETTLE_BYTES;
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released, wait,
                                    error));
    }
    while (qsi_unacked_next_free(&channel->unacked, last + 1, &first, &last)) {
        qsi_requeue_tags(channel, first, last);
    }
    qsi_hand_back_withheld(channel);
    qsi_bring_back_aside(channel);
    return QS_OK;
}

qs_status qs_channel_recover(qs_channel *channel, uint32_t flags, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    if ((flags & QS_REQUEUE) == 0) {
        status = qsi_fail(error, QS_NOT_IMPLEMENTED, "requeue=false");
    } else if (channel->unacked.withheld_count > 0 && (flags & QS_NO_WAIT) != 0) {
        status = QS_EWOULDBLOCK;
    } else if (!qsi_deliveries_room_to_take_back(channel, channel->unacked.withheld_count)) {
        status = qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    } else if ((flags & QS_WITHHELD) != 0) {
        qsi_hand_back_withheld(channel);
        qsi_bring_back_aside(channel);
        status = QS_OK;
    } else {
        status = recover(channel, qsi_wait_of(flags), error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}
