/* Events for the client: returns, confirms, deliveries, cancels.
 *
 * Channels with events take turns, EVENTS_MAX events each.  No event is taken while too much output
 * is unwritten: messages stay in their queues, and can go to other consumers. */
#include "error.h"
#include "session_internal.h"

#include <stdio.h>
#include <string.h>

#define EVENTS_MAX 64
/* The requeue bit of a nack to a publisher: without meaning there, and set by default. */
#define NACK_DEFAULT 2
#define TO_PUBLISHERS (QS_EVENT_RETURN | QS_EVENT_ACK | QS_EVENT_NACK)
#define TO_CONSUMERS (QS_EVENT_DELIVERY | QS_EVENT_CANCEL)

static void send_return(struct qsi_amqp_session *session, uint16_t number, qs_event *event)
{
    struct qsi_amqp_arguments arguments = {0};

    arguments.number[0] = event->reply_code;
    arguments.text[0] = qsi_slice_make(event->reply_text, (uint32_t)strlen(event->reply_text));
    arguments.text[1] = qsi_amqp_slice(event->message.exchange);
    arguments.text[2] = qsi_amqp_slice(event->message.routing_key);
    session->counts.returned++;
    qsi_amqp_put_content(&session->output, number, QSI_AMQP_BASIC_RETURN, &arguments,
                         &event->message, session->frame_max);
}

static void send_delivery(struct qsi_amqp_session *session, uint16_t number, qs_event *event)
{
    struct qsi_amqp_arguments arguments;

    arguments.text[0] = qsi_amqp_slice(event->message.consumer_tag);
    arguments.text[1] = qsi_amqp_slice(event->message.exchange);
    arguments.text[2] = qsi_amqp_slice(event->message.routing_key);
    arguments.number[0] = event->message.delivery_tag;
    arguments.bits = event->message.redelivered;
    session->counts.delivered++;
    qsi_amqp_put_content(&session->output, number, QSI_AMQP_BASIC_DELIVER, &arguments,
                         &event->message, session->frame_max);
}

/* Sends ack or nack.  AMQP has no field for the reason of a nack. */
static void send_confirm(struct qsi_amqp_session *session, uint16_t number, qs_event *event)
{
    struct qsi_amqp_arguments arguments;
    bool acked = event->kind == QS_EVENT_ACK;

    arguments.number[0] = event->publish_number;
    arguments.bits = event->multiple | (acked ? 0 : NACK_DEFAULT);
    session->counts.confirmed += event->count;
    qsi_amqp_send(session, number, acked ? QSI_AMQP_BASIC_ACK : QSI_AMQP_BASIC_NACK, &arguments);
    if (!acked) {
        qs_message_release(&event->message);
    }
}

/* Cancels a consumer whose queue was deleted. */
static void send_cancel(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                        qs_event *event)
{
    struct qsi_amqp_arguments arguments = {0};

    qsi_amqp_remove_consumer(session, channel, qsi_amqp_slice(event->message.consumer_tag));
    if ((session->capabilities & QSI_AMQP_KNOWS_CANCEL) != 0) {
        arguments.text[0] = qsi_amqp_slice(event->message.consumer_tag);
        arguments.bits = 1;
        qsi_amqp_send(session, channel->number, QSI_AMQP_BASIC_CANCEL, &arguments);
    }
    qs_message_release(&event->message);
}

/* LSN 0: the store failed.  The effects of the held answers never became durable, so the answers
 * are not sent. */
static void record_durable(struct qsi_amqp_session *session, uint64_t lsn)
{
    if (lsn > 0) {
        qsi_amqp_output_lift(&session->output, lsn);
        return;
    }
    qsi_amqp_end_as(session, QSI_AMQP_END_SERVER);
    session->counts.close_code = QSI_AMQP_INTERNAL_ERROR;
    snprintf(session->counts.close_text, sizeof session->counts.close_text,
             "INTERNAL_ERROR - the store failed: what was asked for may not be done");
    session->state = QSI_AMQP_BROKEN;
}

static void send_event(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                       qs_event *event)
{
    switch (event->kind) {
    case QS_EVENT_RETURN:
        qsi_amqp_count_return_sent(session, channel, &event->message);
        send_return(session, channel->number, event);
        break;
    case QS_EVENT_DELIVERY:
        send_delivery(session, channel->number, event);
        break;
    case QS_EVENT_CANCEL:
        send_cancel(session, channel, event);
        break;
    case QS_EVENT_DURABLE:
        record_durable(session, event->lsn);
        break;
    default:
        send_confirm(session, channel->number, event);
    }
}

static bool is_output_full(const struct qsi_amqp_session *session)
{
    return qsi_amqp_output_is_full(session) || session->output.failed;
}

/* Handles the status that ended the events: most errors close the session.  The end of the store
 * does not, because the server reports that. */
static enum qsi_amqp_result end_of_events(struct qsi_amqp_session *session,
                                          struct qsi_amqp_channel *channel, qs_status status,
                                          const qs_error *error)
{
    if (qsi_is_full(status)) {
        return QSI_AMQP_IS_FULL; /* events are asked for again */
    }
    qsi_list_remove(&channel->in_rung);
    qsi_amqp_forget_returns(session, channel);
    if (status == QS_EEMPTY || status == QS_ECHANNEL_CLOSED || status == QS_ESTORE_CLOSED) {
        return QSI_AMQP_DONE;
    }
    return qsi_amqp_engine_fault(session, status, error);
}

static uint32_t wait_flag(const struct qsi_amqp_session *session)
{
    return session->may_block ? 0u : QS_NO_WAIT;
}

/* The kinds of events to ask for: those for the client, and DURABLE, which releases held
 * answers. */
static uint32_t kinds_of(const struct qsi_amqp_session *session)
{
    return TO_PUBLISHERS | (qsi_amqp_is_shutting(session) ? 0u : TO_CONSUMERS) |
           (session->output.barrier_count > 0 ? QS_EVENT_DURABLE : 0u) | wait_flag(session);
}

static uint64_t room_of(const struct qsi_amqp_session *session)
{
    return session->setup.limits.unsent_bytes_max - session->output.unsent;
}

/* Sends events of one channel.  DONE: none is left, or it is another channel's turn.  The channel
 * stays in the list unless none is left.  Events that were taken are sent, whatever status followed
 * them. */
static enum qsi_amqp_result take_events_of(struct qsi_amqp_session *session,
                                           struct qsi_amqp_channel *channel)
{
    uint32_t kinds = kinds_of(session) | (channel->is_watched ? QS_EVENT_ARM : 0u);
    qs_event events[EVENTS_MAX];
    uint32_t count;
    qs_error error;
    qs_status status;

    do {
        status = qs_channel_next_events(channel->engine, kinds, EVENTS_MAX, room_of(session),
                                        events, &count, &error);
        for (uint32_t i = 0; i < count; i++) {
            send_event(session, channel, &events[i]);
        }
    } while (qsi_is_unreadable(status) && !is_output_full(session));
    if (status == QS_OK || qsi_is_unreadable(status)) {
        return QSI_AMQP_DONE;
    }
    return status == QS_EWOULDBLOCK ? QSI_AMQP_MUST_WAIT
                                    : end_of_events(session, channel, status, &error);
}

enum qsi_amqp_result qsi_amqp_send_returns(struct qsi_amqp_session *session,
                                           struct qsi_amqp_channel *channel)
{
    uint32_t kinds = QS_EVENT_RETURN | wait_flag(session);
    qs_status status = QS_OK;
    qs_event event;

    /* The host is not called for the channel again until all of its events were taken. */
    if (channel->is_watched) {
        qsi_amqp_channel_rung(session, channel);
    }
    while (status == QS_OK && !is_output_full(session)) {
        status = qs_channel_next_event(channel->engine, kinds, 0, &event, NULL);
        if (status == QS_OK) {
            send_return(session, channel->number, &event);
        }
    }
    return status == QS_OK ? QSI_AMQP_MUST_WRITE : QSI_AMQP_DONE;
}

/* Marks all channels.  A host that watches none has every channel checked in every turn.  At the
 * end of a session all are checked, because the host may not have reported yet. */
static void ring_all(struct qsi_amqp_session *session)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&session->channels);

    while (qsi_map_next(&session->channels, &cursor)) {
        struct qsi_amqp_channel *channel = cursor.value;

        if (channel->has_events && !channel->is_closing) {
            qsi_amqp_channel_rung(session, channel);
        }
    }
}

enum qsi_amqp_result qsi_amqp_take_events(struct qsi_amqp_session *session)
{
    struct qsi_list turn;
    enum qsi_amqp_result result = QSI_AMQP_DONE;

    if (session->setup.host.watch == NULL || qsi_amqp_is_shutting(session)) {
        ring_all(session);
    }
    qsi_list_init(&turn);
    while (!qsi_list_is_empty(&session->rung) && result == QSI_AMQP_DONE &&
           !is_output_full(session)) {
        struct qsi_list *node = session->rung.next;
        struct qsi_amqp_channel *channel = QSI_LIST_OWNER(node, struct qsi_amqp_channel, in_rung);

        qsi_list_remove(node);
        qsi_list_push_back(&turn, node);
        result = take_events_of(session, channel);
    }
    /* Channels that had their turn and may have more events come after those that had none. */
    while (!qsi_list_is_empty(&turn)) {
        struct qsi_list *node = turn.next;

        qsi_list_remove(node);
        qsi_list_push_back(&session->rung, node);
    }
    return result;
}
