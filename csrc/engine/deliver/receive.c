/* Getting messages, one at a time; batches are in receive_batch.c.
 *
 * Messages are taken and given tags under the lock.  Bodies are copied, or read from the message
 * store, without the lock, from chunks that are held meanwhile, because paging may drop them from
 * the queue. */
#include "receive.h"

#include "check.h"
#include "commit.h"
#include "consume.h"
#include "content.h"
#include "counts.h"
#include "deals.h"
#include "deliveries.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_take.h"
#include "record.h"
#include "settle.h"
#include "store.h"
#include "trace.h"
#include "turns.h"
#include "wake.h"

#include <string.h>

/* ---- one message ---- */

qs_status qsi_make_settle_room(struct qs_channel *channel, bool no_ack, bool *released_out,
                               enum qsi_wait wait, qs_error *error)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    *released_out = false;
    if (!no_ack) {
        return QS_OK;
    }
    QS_TRY(qsi_commit_make_room(channel->store, QSI_SETTLE_BYTES, QSI_SETTLE_BYTES, QSI_ROOM_SETTLE,
                                released_out, wait, error));
    if (channel->closed) {
        return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    return QS_OK;
}

/* Whether its body must be read from a file. */
static bool lies_in_store(const struct qsi_stretch *stretch)
{
    uint32_t record_row;
    struct qsi_messages view;

    qsi_messages_view(&view, qsi_run_record(stretch->run, stretch->run_row, &record_row));
    return qsi_messages_is_stored(&view, record_row);
}

/* Whether a file is read or written before the message is handed out. */
static bool must_wait(const struct qsi_store_queue *queue, const struct qsi_stretch *stretch)
{
    return lies_in_store(stretch) ||
           (qsi_policy_counts_deliveries(&queue->policy) && (queue->flags & QS_DURABLE) != 0);
}

static void hand_out(struct qs_channel *channel, struct qsi_store_queue *queue,
                     struct qsi_store_consumer *consumer, const struct qsi_stretch *stretch,
                     qs_message *message_out, struct qsi_body *body_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    message_out->redelivered = qsi_segment_was_seen(stretch->segment, stretch->slot);
    message_out->delivery_count = qsi_segment_deliveries(stretch->segment, stretch->slot);
    message_out->container = queue->container.id;
    message_out->sequence = qsi_queue_first_seq(&queue->core, stretch->segment) + stretch->slot;
    qsi_stretch_mark_seen(stretch);
    if (QS_UNLIKELY(qsi_policy_counts_deliveries(&queue->policy))) {
        qsi_deliveries_count(channel, queue, stretch);
    }
    message_out->delivery_tag =
        qsi_unacked_add(&channel->unacked, &queue->container, stretch, consumer);
    qsi_pager_look_ahead(channel->store, queue);
    qsi_view_message(stretch->run, stretch->run_row, message_out, body_out);
}

qs_status qsi_deliver_one(struct qs_channel *channel, struct qsi_store_queue *queue,
                          struct qsi_store_consumer *consumer, qs_message *message_out,
                          struct qsi_body *body_out, bool *released_out, enum qsi_wait wait,
                          qs_error *error)
{
    struct qsi_stretch stretch = {.count = 0};
    struct qsi_store_queue *owner = queue;

    QS_ASSERT_HELD(&channel->store->mutex);
    memset(message_out, 0, sizeof *message_out);
    *released_out = false;
    QS_TRY(qsi_expire(channel->store, queue, error));
    while (stretch.count == 0) {
        queue = qsi_head_subqueue(owner);
        switch (qsi_container_take(&queue->container, 1, &stretch)) {
        case QSI_TAKE_EMPTY:
            return QS_EEMPTY;
        case QSI_TAKE_PAGED:
            *released_out = true;
            return qsi_page_in(channel->store, owner, channel, wait, error);
        case QSI_TAKE_TAKEN:
            break;
        }
        if (wait == QSI_MUST_NOT_WAIT && must_wait(queue, &stretch)) {
            qsi_container_untake(&queue->container, &stretch, 0);
            return QS_EWOULDBLOCK;
        }
        if (QS_UNLIKELY(qsi_policy_counts_deliveries(&queue->policy))) {
            QS_TRY(qsi_deliveries_screen(channel->store, queue, &stretch, error));
        }
    }
    hand_out(channel, queue, consumer, &stretch, message_out, body_out);
    return QS_OK;
}

qs_status qsi_deliver_dealt(struct qs_channel *channel, struct qsi_store_deal deal,
                            qs_message *message_out, struct qsi_body *body_out, bool *released_out,
                            enum qsi_wait wait, qs_error *error)
{
    struct qsi_store_queue *queue = qsi_queue_of_container(deal.container);
    struct qsi_stretch stretch;
    qs_status status;

    QS_ASSERT_HELD(&channel->store->mutex);
    memset(message_out, 0, sizeof *message_out);
    *released_out = false;
    if (qsi_queue_find_out(&queue->core, deal.segment, deal.slot, &stretch) != QSI_TAKE_TAKEN) {
        *released_out = true;
        if (!qsi_appends(queue)) { /* its stream may have dropped it: as any other */
            (void)qsi_deals_give_up(channel, &deal);
            qsi_check_growth(channel->store, queue);
            qsi_notify_others(channel);
            return QS_OK;
        }
        return wait == QSI_MUST_NOT_WAIT
                   ? QS_EWOULDBLOCK
                   : qsi_page_in_one(channel->store, queue, deal.segment, deal.slot, error);
    }
    if (wait == QSI_MUST_NOT_WAIT && must_wait(queue, &stretch)) {
        return QS_EWOULDBLOCK;
    }
    qsi_deals_take(channel);
    if (QS_UNLIKELY(qsi_policy_counts_deliveries(&queue->policy))) {
        status = qsi_deliveries_screen(channel->store, queue, &stretch, error);
        if (status != QS_OK || stretch.count == 0) { /* it is ready again, or removed */
            qsi_consumer_back_in_line(deal.consumer);
            *released_out = status == QS_OK;
            return status;
        }
    }
    hand_out(channel, queue, deal.consumer, &stretch, message_out, body_out);
    return QS_OK;
}

/* QS_EEMPTY: consumers wait for all messages. */
static inline qs_status check_left(struct qs_store *store, struct qsi_store_queue *queue,
                                   qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_LIKELY(queue->consumer_count == 0)) {
        return QS_OK;
    }
    QS_TRY(qsi_expire(store, queue, error));
    return qsi_left_for_get(queue) == 0 ? QS_EEMPTY : QS_OK;
}

static qs_status take_one(struct qs_channel *channel, struct qsi_slice name, bool no_ack,
                          qs_message *message, struct qsi_body *body_out, enum qsi_wait wait,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue;
    qs_status status;
    bool released = false;

    for (;;) {
        QS_TRY(qsi_make_settle_room(channel, no_ack, &released, wait, error));
        QS_TRY(qsi_require_queue(channel, name, &queue, error));
        QS_TRY(qsi_refuse_stream(channel->store, queue, "basic.get", error));
        qsi_record_use(channel->store, queue);
        released = false;
        QS_TRY(qsi_deliveries_make_room(channel, queue, &released, wait, error));
        if (released) {
            continue;
        }
        if (qsi_unacked_reserve(&channel->unacked, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "delivery");
        }
        status = check_left(channel->store, queue, error);
        if (status == QS_OK) {
            status =
                qsi_deliver_one(channel, queue, NULL, message, body_out, &released, wait, error);
        }
        if (status == QS_OK && !released) {
            qsi_count_delivered(channel, queue, 1, message->redelivered, true, no_ack);
            message->ready_left = qsi_left_for_get(queue);
            return QS_OK;
        }
        if (status == QS_EEMPTY) {
            qsi_count_empty(channel, queue);
        }
        if (status != QS_OK) {
            return status;
        }
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
    }
}

qs_status qs_channel_get(qs_channel *channel, qs_slice queue, uint32_t flags,
                         qs_message *message_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    bool no_ack = (flags & QS_NO_ACK) != 0;
    enum qsi_wait wait = qsi_wait_of(flags);
    struct qsi_body body;
    qs_status status;

    memset(message_out, 0, sizeof *message_out);
    QS_TRY(qsi_channel_enter(channel, error));
    status = take_one(channel, qsi_slice_of(queue), no_ack, message_out, &body, wait, error);
    if (status == QS_OK) {
        status = qsi_deliveries_write(channel, error);
        if (status != QS_OK) {
            qsi_hand_back_delivery(channel, message_out->delivery_tag);
            qs_message_release(message_out);
            return qsi_channel_leave_after(channel, wait, status);
        }
    }
    if (status == QS_OK && message_out->hold == NULL) {
        uint32_t reader = qsi_reader_begin(store);
        qsi_store_unlock(store);
        status = qsi_deliver_body(store, message_out, &body, error);
        qsi_store_lock(store);
        qsi_reader_end(store, reader);
    }
    if (status != QS_OK) {
        /* The message stays unacked, so that it does not block the messages behind it. */
        qsi_withhold_tags(channel, message_out->delivery_tag, message_out->delivery_tag);
    } else {
        message_out->queue = queue;
        if (qsi_is_traced(store) && !channel->closed) {
            qsi_trace_delivered(channel, qsi_slice_of(queue), message_out);
        }
        if (no_ack) {
            qsi_settle_no_ack(channel, message_out->delivery_tag, message_out->delivery_tag, wait);
        }
    }
    return qsi_channel_leave_after(channel, wait, status);
}
