/* Names and tables of a method, and the answers to it. */
#include "call.h"

#include "check.h"
#include "table_canonical.h"

#include <string.h>

struct qsi_slice qsi_amqp_strip(struct qsi_slice name, char room[QSI_AMQP_NAME_BYTES])
{
    uint32_t kept = 0;

    if (name.bytes == 0 || (memchr(name.data, '\r', name.bytes) == NULL &&
                            memchr(name.data, '\n', name.bytes) == NULL)) {
        return name;
    }
    QS_ASSERT(name.bytes < QSI_AMQP_NAME_BYTES);
    for (uint32_t i = 0; i < name.bytes; i++) {
        if (name.data[i] != '\r' && name.data[i] != '\n') {
            room[kept++] = (char)name.data[i];
        }
    }
    return qsi_slice_make(room, kept);
}

enum qsi_amqp_result qsi_amqp_queue_name(struct qsi_amqp_call *call, struct qsi_slice name,
                                         char room[QSI_AMQP_NAME_BYTES], struct qsi_slice *name_out)
{
    *name_out = qsi_amqp_strip(name, room);
    if (name_out->bytes > 0) {
        return QSI_AMQP_DONE;
    }
    if (call->channel->queue == NULL) {
        qsi_amqp_fault_set(&call->session->fault, QS_NOT_FOUND, "no previously declared queue");
        return QSI_AMQP_FAULT;
    }
    *name_out = qsi_slice_make(call->channel->queue, call->channel->queue_bytes);
    return QSI_AMQP_DONE;
}

enum qsi_amqp_result qsi_amqp_table(struct qsi_amqp_call *call, struct qsi_buf *table_out)
{
    *table_out = (struct qsi_buf){0};
    if (call->arguments->table.bytes == 0) {
        return QSI_AMQP_DONE;
    }
    return qsi_amqp_answer(call,
                           qsi_table_canonical(table_out, call->arguments->table, &call->error));
}

enum qsi_amqp_result qsi_amqp_answer(struct qsi_amqp_call *call, qs_status status)
{
    return status == QS_OK ? QSI_AMQP_DONE
                           : qsi_amqp_engine_fault(call->session, status, &call->error);
}

uint32_t qsi_amqp_wait_flag(const struct qsi_amqp_call *call)
{
    return call->session->may_block ? 0 : QS_NO_WAIT;
}

enum qsi_amqp_result qsi_amqp_answer_durable(struct qsi_amqp_call *call, qs_status status)
{
    struct qsi_amqp_session *session = call->session;
    uint64_t lsn;

    if (status != QS_OK || session->may_block) {
        return qsi_amqp_answer(call, status);
    }
    lsn = qs_channel_completion_lsn(call->channel->engine);
    if (lsn > 0 && lsn > qs_store_durable_lsn(session->store)) {
        qsi_amqp_output_hold(&session->output, lsn);
        return qsi_amqp_channel_watch(session, call->channel) ? QSI_AMQP_DONE : QSI_AMQP_FAULT;
    }
    return QSI_AMQP_DONE;
}

void qsi_amqp_reply(struct qsi_amqp_call *call, bool is_wanted, enum qsi_amqp_method method)
{
    if (is_wanted) {
        qsi_amqp_send_empty(call->session, call->channel->number, method);
    }
}
