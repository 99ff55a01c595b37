/* Consuming, getting and settling. */
#include "verbs_basic.h"

#include "reply_to.h"

#include <string.h>

enum {
    CONSUME_NO_ACK = 2, /* 1 is no-local, which no broker supports */
    CONSUME_EXCLUSIVE = 4,
    CONSUME_NO_WAIT = 8,
    CANCEL_NO_WAIT = 1,
    GET_NO_ACK = 1,
    MULTIPLE = 1, /* of ack and nack */
    NACK_REQUEUE = 2,
    REJECT_REQUEUE = 1,
    RECOVER_REQUEUE = 1,
    QOS_GLOBAL = 1,
};

enum qsi_amqp_result qsi_amqp_basic_qos(struct qsi_amqp_call *call)
{
    const uint64_t *number = call->arguments->number;
    enum qsi_amqp_result result = qsi_amqp_answer(
        call, qs_channel_qos(call->channel->engine, (uint32_t)number[1], (uint32_t)number[0],
                             qsi_amqp_has_bit(call, QOS_GLOBAL) ? QS_GLOBAL : 0, &call->error));

    qsi_amqp_reply(call, result == QSI_AMQP_DONE, QSI_AMQP_BASIC_QOS_OK);
    return result;
}

/* ---- consumers ---- */

static enum qsi_amqp_result may_consume(struct qsi_amqp_call *call)
{
    uint32_t max = call->session->setup.limits.consumers_max;

    if (call->channel->consumers.count >= max) {
        qsi_amqp_fault_set(&call->session->fault, QS_NOT_ALLOWED,
                           "number of consumers of the channel has reached %u", max);
        return QSI_AMQP_FAULT;
    }
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result consume(struct qsi_amqp_call *call, struct qsi_slice queue,
                                    char tag_out[QSI_AMQP_NAME_BYTES])
{
    uint32_t flags = qsi_amqp_wait_flag(call) |
                     (qsi_amqp_has_bit(call, CONSUME_NO_ACK) ? QS_NO_ACK : 0u) |
                     (qsi_amqp_has_bit(call, CONSUME_EXCLUSIVE) ? QS_EXCLUSIVE : 0u);
    struct qsi_buf table;
    enum qsi_amqp_result result = qsi_amqp_table(call, &table);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_answer(
            call, qs_channel_consume(call->channel->engine, qsi_amqp_public(queue),
                                     qsi_amqp_public(call->arguments->text[1]), flags,
                                     (qs_slice){table.data, table.bytes}, tag_out, &call->error));
    }
    qsi_buf_fini(&table);
    return result;
}

/* Answers with consume-ok, and asks for events from now on. */
static enum qsi_amqp_result began_consuming(struct qsi_amqp_call *call, const char *tag)
{
    struct qsi_amqp_arguments arguments = {.text = {{(const uint8_t *)tag, (uint32_t)strlen(tag)}}};

    if (!qsi_amqp_add_consumer(call->session, call->channel, arguments.text[0])) {
        qsi_amqp_fault_set(&call->session->fault, QSI_AMQP_RESOURCE_ERROR,
                           "out of memory for a consumer");
        return QSI_AMQP_FAULT;
    }
    if (!qsi_amqp_has_bit(call, CONSUME_NO_WAIT)) {
        qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_BASIC_CONSUME_OK, &arguments);
    }
    return qsi_amqp_channel_watch(call->session, call->channel) ? QSI_AMQP_DONE : QSI_AMQP_FAULT;
}

enum qsi_amqp_result qsi_amqp_basic_consume(struct qsi_amqp_call *call)
{
    char room[QSI_AMQP_NAME_BYTES], tag[QSI_AMQP_NAME_BYTES];
    struct qsi_slice queue;
    enum qsi_amqp_result result = may_consume(call);

    if (result != QSI_AMQP_DONE) {
        return result;
    }
    if (qsi_amqp_is_reply_to(call->arguments->text[0])) {
        result = qsi_amqp_consume_reply_to(call, tag);
        return result == QSI_AMQP_DONE ? began_consuming(call, tag) : result;
    }
    result = qsi_amqp_queue_name(call, call->arguments->text[0], room, &queue);
    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_require(call->session, QSI_AMQP_READ, false, queue);
    }
    if (result == QSI_AMQP_DONE) {
        result = consume(call, queue, tag);
    }
    return result == QSI_AMQP_DONE ? began_consuming(call, tag) : result;
}

/* An unknown tag is answered like a known one. */
enum qsi_amqp_result qsi_amqp_basic_cancel(struct qsi_amqp_call *call)
{
    struct qsi_slice tag = call->arguments->text[0];
    struct qsi_amqp_arguments arguments = {0};
    enum qsi_amqp_result result = qsi_amqp_answer(
        call, qs_channel_cancel(call->channel->engine, qsi_amqp_public(tag), &call->error));

    if (result != QSI_AMQP_DONE) {
        return result;
    }
    qsi_amqp_remove_consumer(call->session, call->channel, tag);
    qsi_amqp_forget_reply_to(call->channel, tag);
    if (!qsi_amqp_has_bit(call, CANCEL_NO_WAIT)) {
        arguments.text[0] = tag;
        qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_BASIC_CANCEL_OK, &arguments);
    }
    return QSI_AMQP_DONE;
}

/* ---- getting ---- */

static void send_get_ok(struct qsi_amqp_call *call, qs_message *message)
{
    struct qsi_amqp_arguments arguments;

    arguments.number[0] = message->delivery_tag;
    arguments.number[1] = message->ready_left < UINT32_MAX ? message->ready_left : UINT32_MAX;
    arguments.bits = message->redelivered;
    arguments.text[0] = qsi_amqp_slice(message->exchange);
    arguments.text[1] = qsi_amqp_slice(message->routing_key);
    call->session->counts.got++;
    qsi_amqp_put_content(&call->session->output, call->channel->number, QSI_AMQP_BASIC_GET_OK,
                         &arguments, message, call->session->frame_max);
}

enum qsi_amqp_result qsi_amqp_basic_get(struct qsi_amqp_call *call)
{
    char room[QSI_AMQP_NAME_BYTES];
    struct qsi_slice queue;
    qs_message message;
    qs_status status;
    enum qsi_amqp_result result = qsi_amqp_queue_name(call, call->arguments->text[0], room, &queue);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_require(call->session, QSI_AMQP_READ, false, queue);
    }
    if (result != QSI_AMQP_DONE) {
        return result;
    }
    status = qs_channel_get(call->channel->engine, qsi_amqp_public(queue),
                            qsi_amqp_wait_flag(call) |
                                (qsi_amqp_has_bit(call, GET_NO_ACK) ? QS_NO_ACK : 0u),
                            &message, &call->error);
    if (status == QS_OK) {
        send_get_ok(call, &message);
    } else if (status == QS_EEMPTY) {
        qsi_amqp_reply(call, true, QSI_AMQP_BASIC_GET_EMPTY);
    } else {
        result = qsi_amqp_answer(call, status);
    }
    return result;
}

/* ---- settling ---- */

enum qsi_amqp_result qsi_amqp_basic_ack(struct qsi_amqp_call *call)
{
    return qsi_amqp_answer(call,
                           qs_channel_ack(call->channel->engine, call->arguments->number[0],
                                          qsi_amqp_wait_flag(call) |
                                              (qsi_amqp_has_bit(call, MULTIPLE) ? QS_MULTIPLE : 0u),
                                          &call->error));
}

static enum qsi_amqp_result nack(struct qsi_amqp_call *call, uint32_t flags)
{
    return qsi_amqp_answer(call,
                           qs_channel_nack(call->channel->engine, call->arguments->number[0],
                                           qsi_amqp_wait_flag(call) | flags, 0, &call->error));
}

enum qsi_amqp_result qsi_amqp_basic_nack(struct qsi_amqp_call *call)
{
    return nack(call, (qsi_amqp_has_bit(call, MULTIPLE) ? QS_MULTIPLE : 0u) |
                          (qsi_amqp_has_bit(call, NACK_REQUEUE) ? QS_REQUEUE : 0u));
}

enum qsi_amqp_result qsi_amqp_basic_reject(struct qsi_amqp_call *call)
{
    return nack(call, qsi_amqp_has_bit(call, REJECT_REQUEUE) ? QS_REQUEUE : 0u);
}

enum qsi_amqp_result qsi_amqp_basic_recover_async(struct qsi_amqp_call *call)
{
    return qsi_amqp_answer(
        call, qs_channel_recover(call->channel->engine,
                                 qsi_amqp_wait_flag(call) |
                                     (qsi_amqp_has_bit(call, RECOVER_REQUEUE) ? QS_REQUEUE : 0u),
                                 &call->error));
}

enum qsi_amqp_result qsi_amqp_basic_recover(struct qsi_amqp_call *call)
{
    enum qsi_amqp_result result = qsi_amqp_basic_recover_async(call);

    qsi_amqp_reply(call, result == QSI_AMQP_DONE, QSI_AMQP_BASIC_RECOVER_OK);
    return result;
}
