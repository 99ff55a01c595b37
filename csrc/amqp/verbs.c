/* The methods of channels: a table of each method's needs, and the short methods. */
#include "verbs_basic.h"
#include "verbs_publish.h"
#include "verbs_topology.h"

/* ---- short ones ---- */

static enum qsi_amqp_result close_channel(struct qsi_amqp_call *call)
{
    return qsi_amqp_channel_leave(call->session, call->channel);
}

static enum qsi_amqp_result flow(struct qsi_amqp_call *call)
{
    struct qsi_amqp_arguments arguments = {.bits = 1};

    if (!qsi_amqp_has_bit(call, 1)) {
        qsi_amqp_fault_set(&call->session->fault, QS_NOT_IMPLEMENTED, "active=false");
        return QSI_AMQP_FAULT;
    }
    qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_CHANNEL_FLOW_OK, &arguments);
    return QSI_AMQP_DONE;
}

/* Access tickets of AMQP 0-8: every client gets one. */
static enum qsi_amqp_result request_access(struct qsi_amqp_call *call)
{
    struct qsi_amqp_arguments arguments = {.number = {1}};

    qsi_amqp_send(call->session, call->channel->number, QSI_AMQP_ACCESS_REQUEST_OK, &arguments);
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result confirm_select(struct qsi_amqp_call *call)
{
    enum qsi_amqp_result result =
        qsi_amqp_answer(call, qs_channel_confirm_select(call->channel->engine, &call->error));

    if (result == QSI_AMQP_DONE && !qsi_amqp_channel_watch(call->session, call->channel)) {
        result = QSI_AMQP_FAULT;
    }
    if (result == QSI_AMQP_DONE) {
        qsi_amqp_reply(call, !qsi_amqp_has_bit(call, 1), QSI_AMQP_CONFIRM_SELECT_OK);
    }
    return result;
}

static enum qsi_amqp_result tx_select(struct qsi_amqp_call *call)
{
    enum qsi_amqp_result result =
        qsi_amqp_answer(call, qs_channel_tx_select(call->channel->engine, &call->error));

    call->channel->is_transactional = result == QSI_AMQP_DONE || call->channel->is_transactional;
    qsi_amqp_reply(call, result == QSI_AMQP_DONE, QSI_AMQP_TX_SELECT_OK);
    return result;
}

static enum qsi_amqp_result commit(struct qsi_amqp_call *call)
{
    bool repeated;
    qs_status status = qs_channel_tx_commit(call->channel->engine, (qs_slice){NULL, 0},
                                            qsi_amqp_wait_flag(call), &repeated, &call->error);
    enum qsi_amqp_result result = qsi_amqp_answer_durable(call, status);

    call->channel->is_committed = result == QSI_AMQP_DONE;
    return result == QSI_AMQP_DONE ? qsi_amqp_count_transaction(call->session, call->channel)
                                   : result;
}

/* Sends returned messages before commit-ok, in the order in which the client reads them.  This may
 * take many turns; the first one commits. */
static enum qsi_amqp_result tx_commit(struct qsi_amqp_call *call)
{
    enum qsi_amqp_result result = call->channel->is_committed ? QSI_AMQP_DONE : commit(call);

    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_send_returns(call->session, call->channel);
    }
    if (result == QSI_AMQP_DONE) {
        call->channel->is_committed = false;
        qsi_amqp_reply(call, true, QSI_AMQP_TX_COMMIT_OK);
    }
    return result;
}

static enum qsi_amqp_result tx_rollback(struct qsi_amqp_call *call)
{
    enum qsi_amqp_result result =
        qsi_amqp_answer(call, qs_channel_tx_rollback(call->channel->engine, &call->error));

    qsi_amqp_reply(call, result == QSI_AMQP_DONE, QSI_AMQP_TX_ROLLBACK_OK);
    return result;
}

/* ---- the table ---- */

enum {
    WAITS = 1,   /* the engine may wait in it */
    ANSWERS = 2, /* it appends output at once */
    IN_TX = 4,   /* it is part of a transaction, or ends one */
};

static const struct verb {
    qsi_amqp_verb *call; /* NULL: not a method of channels */
    uint8_t needs;
} verbs[QSI_AMQP_METHOD_COUNT] = {
    [QSI_AMQP_CHANNEL_CLOSE] = {close_channel, WAITS},
    [QSI_AMQP_CHANNEL_FLOW] = {flow, ANSWERS},
    [QSI_AMQP_ACCESS_REQUEST] = {request_access, ANSWERS},
    [QSI_AMQP_EXCHANGE_DECLARE] = {qsi_amqp_exchange_declare, ANSWERS},
    [QSI_AMQP_EXCHANGE_DELETE] = {qsi_amqp_exchange_delete, ANSWERS},
    [QSI_AMQP_EXCHANGE_BIND] = {qsi_amqp_exchange_bind, ANSWERS},
    [QSI_AMQP_EXCHANGE_UNBIND] = {qsi_amqp_exchange_unbind, ANSWERS},
    [QSI_AMQP_QUEUE_DECLARE] = {qsi_amqp_queue_declare, ANSWERS},
    [QSI_AMQP_QUEUE_BIND] = {qsi_amqp_queue_bind, ANSWERS},
    [QSI_AMQP_QUEUE_UNBIND] = {qsi_amqp_queue_unbind, ANSWERS},
    [QSI_AMQP_QUEUE_PURGE] = {qsi_amqp_queue_purge, ANSWERS},
    [QSI_AMQP_QUEUE_DELETE] = {qsi_amqp_queue_delete, ANSWERS},
    [QSI_AMQP_BASIC_QOS] = {qsi_amqp_basic_qos, ANSWERS},
    [QSI_AMQP_BASIC_CONSUME] = {qsi_amqp_basic_consume, ANSWERS},
    [QSI_AMQP_BASIC_CANCEL] = {qsi_amqp_basic_cancel, ANSWERS},
    [QSI_AMQP_BASIC_PUBLISH] = {qsi_amqp_basic_publish, 0},
    [QSI_AMQP_BASIC_GET] = {qsi_amqp_basic_get, ANSWERS},
    [QSI_AMQP_BASIC_ACK] = {qsi_amqp_basic_ack, IN_TX},
    [QSI_AMQP_BASIC_NACK] = {qsi_amqp_basic_nack, IN_TX},
    [QSI_AMQP_BASIC_REJECT] = {qsi_amqp_basic_reject, IN_TX},
    [QSI_AMQP_BASIC_RECOVER] = {qsi_amqp_basic_recover, ANSWERS},
    [QSI_AMQP_BASIC_RECOVER_ASYNC] = {qsi_amqp_basic_recover_async, 0},
    [QSI_AMQP_CONFIRM_SELECT] = {confirm_select, ANSWERS},
    [QSI_AMQP_TX_SELECT] = {tx_select, ANSWERS},
    [QSI_AMQP_TX_COMMIT] = {tx_commit, ANSWERS | IN_TX},
    [QSI_AMQP_TX_ROLLBACK] = {tx_rollback, WAITS | ANSWERS | IN_TX},
};

enum qsi_amqp_result qsi_amqp_handle_verb(struct qsi_amqp_session *session,
                                          struct qsi_amqp_channel *channel,
                                          enum qsi_amqp_method method,
                                          const struct qsi_amqp_arguments *arguments)
{
    const struct verb *verb = &verbs[method];
    struct qsi_amqp_call call;
    enum qsi_amqp_result result;

    if (verb->call == NULL) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_COMMAND_INVALID, "unimplemented method");
        return QSI_AMQP_FAULT;
    }
    if ((verb->needs & ANSWERS) != 0 && qsi_amqp_output_is_full(session)) {
        return QSI_AMQP_MUST_WRITE;
    }
    if ((verb->needs & WAITS) != 0 && !session->may_block) {
        return QSI_AMQP_MUST_WAIT;
    }
    call.session = session;
    call.channel = channel;
    call.arguments = arguments;
    result = verb->call(&call);
    return result == QSI_AMQP_DONE && (verb->needs & IN_TX) != 0
               ? qsi_amqp_count_transaction(session, channel)
               : result;
}
