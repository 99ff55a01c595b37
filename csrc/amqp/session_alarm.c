/* Alarms: publishes that the server, a full store or a full pool holds back. */
#include "session_internal.h"

#include <stdio.h>
#include <string.h>

static const char *block_reason(const struct qsi_amqp_session *session)
{
    if (qsi_amqp_is_alarmed(session)) {
        return session->alarm;
    }
    if (session->is_full) {
        return session->waits_for_pool ? "low on memory" : "low on disk";
    }
    return NULL;
}

void qsi_amqp_send_blocked(struct qsi_amqp_session *session)
{
    const char *reason = block_reason(session);
    struct qsi_amqp_arguments arguments = {0};

    if ((session->capabilities & QSI_AMQP_KNOWS_BLOCKED) == 0 ||
        session->state != QSI_AMQP_RUNNING || (reason != NULL) == session->has_sent_blocked) {
        return;
    }
    session->has_sent_blocked = reason != NULL;
    if (reason != NULL) {
        arguments.text[0] = qsi_slice_make(reason, (uint32_t)strlen(reason));
    }
    qsi_amqp_send(session, 0,
                  reason != NULL ? QSI_AMQP_CONNECTION_BLOCKED : QSI_AMQP_CONNECTION_UNBLOCKED,
                  &arguments);
}

void qsi_amqp_session_alarm(struct qsi_amqp_session *session, const char *reason, uint64_t now_ns)
{
    session->now_ns = now_ns;
    qsi_amqp_pool_pass_time(session);
    snprintf(session->alarm, sizeof session->alarm, "%s", reason != NULL ? reason : "");
    qsi_amqp_send_blocked(session);
}
