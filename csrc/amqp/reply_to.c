/* Direct reply-to: a consumer of amq.rabbitmq.reply-to has a queue of its own, which is deleted
 * with it.  In messages of the channel, reply-to with that name is replaced by the queue's name.
 *
 * The queue is transient and exclusive, and its name cannot be guessed.  Any publisher can publish
 * to it as to other queues, programs in the server's own process included. */
#include "reply_to.h"

#include "alloc.h"

#include <stdio.h>
#include <string.h>

#define RANDOM_BYTES 16
#define CONSUME_NO_ACK 2

bool qsi_amqp_is_reply_to(struct qsi_slice name)
{
    return name.bytes == strlen(QSI_AMQP_REPLY_TO) &&
           memcmp(name.data, QSI_AMQP_REPLY_TO, name.bytes) == 0;
}

bool qsi_amqp_is_reply_queue(struct qsi_slice name)
{
    static const char begin[] = QSI_AMQP_REPLY_TO ".";

    return name.bytes >= strlen(begin) && memcmp(name.data, begin, strlen(begin)) == 0;
}

static enum qsi_amqp_result refuse(struct qsi_amqp_call *call, const char *why)
{
    qsi_amqp_fault_set(&call->session->fault, QS_PRECONDITION_FAILED, "%s", why);
    return QSI_AMQP_FAULT;
}

/* Answers a declare, by which a responder asks whether the client still exists. */
enum qsi_amqp_result qsi_amqp_declare_reply_to(struct qsi_amqp_call *call, struct qsi_slice name)
{
    struct qsi_amqp_arguments arguments = {.text = {name}, .number = {0, 1}};
    qs_queue_status queue;
    qs_status status = QS_OK;

    if (qsi_amqp_is_reply_queue(name)) {
        status = qs_store_queue_status(call->session->store, qsi_amqp_public(name), &queue,
                                       &call->error);
    }
    if (status == QS_OK && (call->arguments->bits & 16) == 0) {
        qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_QUEUE_DECLARE_OK, &arguments);
    }
    return qsi_amqp_answer(call, status);
}

static void make_name(struct qsi_amqp_session *session, char name_out[QSI_AMQP_NAME_BYTES])
{
    const struct qsi_amqp_host *host = &session->setup.host;
    uint8_t random[RANDOM_BYTES];
    int used = snprintf(name_out, QSI_AMQP_NAME_BYTES, QSI_AMQP_REPLY_TO ".");

    host->fill_random(host->context, random, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) {
        used += snprintf(name_out + used, QSI_AMQP_NAME_BYTES - (size_t)used, "%02x", random[i]);
    }
}

static qs_status open_queue(struct qsi_amqp_call *call, struct qsi_amqp_reply_consumer *reply)
{
    qs_channel *engine = call->channel->engine;
    qs_slice name;
    qs_declare_ok ok;
    qs_status status;

    make_name(call->session, reply->queue);
    name = (qs_slice){reply->queue, strlen(reply->queue)};
    status =
        qs_channel_queue_declare(engine, name, QS_EXCLUSIVE | QS_AUTO_DELETE | QS_RESERVED_NAME,
                                 (qs_slice){NULL, 0}, &ok, &call->error);
    if (status == QS_OK) {
        status = qs_channel_consume(engine, name, qsi_amqp_public(call->arguments->text[1]),
                                    QS_NO_ACK, (qs_slice){NULL, 0}, reply->tag, &call->error);
    }
    return status;
}

enum qsi_amqp_result qsi_amqp_consume_reply_to(struct qsi_amqp_call *call,
                                               char tag_out[QSI_AMQP_NAME_BYTES])
{
    struct qsi_amqp_reply_consumer *reply;
    qs_status status;

    if (!call->session->may_block) {
        return QSI_AMQP_MUST_WAIT; /* the declaration of the queue may block */
    }
    if (!qsi_amqp_has_bit(call, CONSUME_NO_ACK)) {
        return refuse(call, "reply consumer cannot acknowledge");
    }
    if (call->channel->reply != NULL) {
        return refuse(call, "reply consumer already set");
    }
    reply = qsi_zalloc(sizeof *reply);
    if (reply == NULL) {
        qsi_amqp_fault_set(&call->session->fault, QSI_AMQP_RESOURCE_ERROR,
                           "out of memory for a consumer");
        return QSI_AMQP_FAULT;
    }
    status = open_queue(call, reply);
    if (status != QS_OK) {
        qsi_free(reply);
        return qsi_amqp_answer(call, status);
    }
    call->channel->reply = reply;
    memcpy(tag_out, reply->tag, sizeof reply->tag);
    return QSI_AMQP_DONE;
}

void qsi_amqp_forget_reply_to(struct qsi_amqp_channel *channel, struct qsi_slice tag)
{
    struct qsi_amqp_reply_consumer *reply = channel->reply;

    if (reply != NULL && strlen(reply->tag) == tag.bytes &&
        memcmp(reply->tag, tag.data, tag.bytes) == 0) {
        qsi_free(reply);
        channel->reply = NULL;
    }
}

enum qsi_amqp_result qsi_amqp_expand_reply_to(struct qsi_amqp_session *session,
                                              const struct qsi_amqp_channel *channel,
                                              const struct qsi_properties *properties,
                                              struct qsi_slice *blob_io, struct qsi_buf *room_out)
{
    struct qsi_properties changed = *properties;
    uint8_t *room;

    if (channel->reply == NULL) {
        qsi_amqp_fault_set(&session->fault, QS_PRECONDITION_FAILED,
                           "fast reply consumer does not exist");
        return QSI_AMQP_FAULT;
    }
    qsi_properties_set(
        &changed, QSI_PROPERTY_REPLY_TO,
        qsi_slice_make(channel->reply->queue, (uint32_t)strlen(channel->reply->queue)));
    if (qsi_buf_reserve(room_out, (size_t)qsi_properties_bytes(&changed), &room) != QS_OK) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_RESOURCE_ERROR, "out of memory for a message");
        return QSI_AMQP_FAULT;
    }
    qsi_properties_encode(room, &changed);
    *blob_io = qsi_slice_make(room, (uint32_t)qsi_properties_bytes(&changed));
    return QSI_AMQP_DONE;
}
