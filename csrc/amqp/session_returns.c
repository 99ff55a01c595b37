/* Counts of returned messages that were not sent yet, except those of transactions. */
#include "check.h"
#include "session_internal.h"

void qsi_amqp_count_return(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                           uint64_t bytes)
{
    channel->returns_due += 1;
    channel->return_bytes_due += bytes;
    session->return_bytes_due += bytes;
}

void qsi_amqp_forget_returns(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    QS_ASSERT(session->return_bytes_due >= channel->return_bytes_due);
    session->return_bytes_due -= channel->return_bytes_due;
    channel->return_bytes_due = 0;
    channel->returns_due = 0;
}

void qsi_amqp_count_return_sent(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                                const qs_message *message)
{
    uint64_t bytes = message->body.bytes + message->properties.bytes;

    bytes = bytes < channel->return_bytes_due ? bytes : channel->return_bytes_due;
    channel->returns_due -= channel->returns_due > 0;
    channel->return_bytes_due -= bytes;
    session->return_bytes_due -= bytes;
}
