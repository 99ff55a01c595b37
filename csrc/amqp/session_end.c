/* Ends of a session, and of what it was asked for: faults of the connection and of the engine. */
#include "error.h"
#include "session_internal.h"

#include <string.h>

void qsi_amqp_end_as(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    if (session->counts.end == QSI_AMQP_END_NONE) {
        session->counts.end = end;
    }
}

void qsi_amqp_fall_silent(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    qsi_amqp_end_as(session, end);
    session->state = QSI_AMQP_SILENT;
    session->until_ns = session->now_ns + session->setup.limits.silent_close_ns;
}

void qsi_amqp_close_connection(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    const struct qsi_amqp_fault *fault = &session->fault;
    struct qsi_amqp_arguments arguments = {0};

    qsi_amqp_end_as(session, end);
    session->counts.close_code = fault->code;
    memcpy(session->counts.close_text, fault->text, sizeof session->counts.close_text);
    arguments.number[0] = fault->code;
    arguments.number[1] = fault->class_id;
    arguments.number[2] = fault->method_id;
    arguments.text[0] = qsi_slice_make(fault->text, (uint32_t)strlen(fault->text));
    qsi_amqp_send(session, 0, QSI_AMQP_CONNECTION_CLOSE, &arguments);
    session->state = QSI_AMQP_CLOSING;
    session->until_ns = session->now_ns + session->setup.limits.close_ok_ns;
    if (fault->is_fatal) {
        qsi_amqp_fall_silent(session, end);
    }
}

static uint16_t code_of(qs_status status)
{
    switch (status) {
    case QS_ACCESS_REFUSED:
    case QS_NOT_FOUND:
    case QS_RESOURCE_LOCKED:
    case QS_PRECONDITION_FAILED:
    case QS_CONTENT_TOO_LARGE:
    case QS_COMMAND_INVALID:
    case QS_NOT_ALLOWED:
    case QS_NOT_IMPLEMENTED:
        return (uint16_t)status;
    case QS_EINVAL:
        return QS_PRECONDITION_FAILED;
    case QS_ENOMEM:
    case QS_EMFILE:
        return QSI_AMQP_RESOURCE_ERROR;
    case QS_ESTORE_CLOSED:
        return QSI_AMQP_CONNECTION_FORCED;
    default:
        return QSI_AMQP_INTERNAL_ERROR;
    }
}

enum qsi_amqp_result qsi_amqp_engine_fault(struct qsi_amqp_session *session, qs_status status,
                                           const qs_error *error)
{
    if (status == QS_EWOULDBLOCK) {
        return QSI_AMQP_MUST_WAIT;
    }
    if (qsi_is_full(status)) {
        return QSI_AMQP_IS_FULL;
    }
    qsi_amqp_fault_set(&session->fault, code_of(status), "%s", error->text);
    return QSI_AMQP_FAULT;
}
