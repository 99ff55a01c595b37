/* basic.publish: the method, and the message once its content is complete. */
#include "verbs_publish.h"

#include "check.h"
#include "reply_to.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define RETURNS_DUE_MAX 64
#define RETURN_NOTED_BYTES 128 /* of memory for a return, besides the bytes of the client */

enum { PUBLISH_MANDATORY = 1, PUBLISH_IMMEDIATE = 2 };

static enum qsi_amqp_result refuse(struct qsi_amqp_session *session, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum qsi_amqp_result refuse(struct qsi_amqp_session *session, const char *format, ...)
{
    char text[QSI_AMQP_FAULT_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    qsi_amqp_fault_set(&session->fault, QS_PRECONDITION_FAILED, "%s", text);
    return QSI_AMQP_FAULT;
}

/* ---- the method ---- */

/* Returned messages are sent before more is published, so a client that does not read them is not
 * read either; otherwise its returns would take the room that all publishers share.  Channels that
 * all began a message before the output was full wait at the message's end. */
static bool must_write_returns(const struct qsi_amqp_session *session,
                               const struct qsi_amqp_channel *channel, uint8_t bits)
{
    return (bits & PUBLISH_MANDATORY) != 0 && (channel->returns_due >= RETURNS_DUE_MAX ||
                                               session->output.unsent + session->return_bytes_due >=
                                                   session->setup.limits.unsent_bytes_max);
}

enum qsi_amqp_result qsi_amqp_basic_publish(struct qsi_amqp_call *call)
{
    const struct qsi_amqp_arguments *arguments = call->arguments;

    if (must_write_returns(call->session, call->channel, arguments->bits)) {
        return QSI_AMQP_MUST_WRITE;
    }
    if (qsi_amqp_content_begin(&call->channel->content, arguments->text[0], arguments->text[1],
                               arguments->bits) != QS_OK) {
        qsi_amqp_fault_set(&call->session->fault, QSI_AMQP_RESOURCE_ERROR,
                           "out of memory for a message");
        return QSI_AMQP_FAULT;
    }
    return QSI_AMQP_DONE;
}

/* ---- expiration, as RabbitMQ reads a number ---- */

static uint32_t number_bytes(struct qsi_slice text)
{
    uint32_t at = text.bytes > 0 && (text.data[0] == '-' || text.data[0] == '+') ? 1 : 0;
    uint32_t digits = at;

    while (digits < text.bytes && text.data[digits] >= '0' && text.data[digits] <= '9') {
        digits++;
    }
    return digits > at ? digits : 0;
}

static enum qsi_amqp_result refuse_expiration(struct qsi_amqp_session *session,
                                              struct qsi_slice text)
{
    uint32_t digits = number_bytes(text);
    const char *whole = (const char *)text.data;

    if (digits == 0) {
        return refuse(session, "invalid expiration '%.*s': no_integer", (int)text.bytes, whole);
    }
    if (digits < text.bytes) {
        return refuse(session, "invalid expiration '%.*s': {leftover_string,\"%.*s\"}",
                      (int)text.bytes, whole, (int)(text.bytes - digits), whole + digits);
    }
    return refuse(session, "invalid expiration '%.*s': {%s,%.*s}", (int)text.bytes, whole,
                  *whole == '-' ? "value_negative" : "value_too_big", (int)text.bytes, whole);
}

/* ---- properties ---- */

static enum qsi_amqp_result check_user(struct qsi_amqp_session *session, struct qsi_slice user)
{
    if (user.bytes == strlen(session->user) && memcmp(user.data, session->user, user.bytes) == 0) {
        return QSI_AMQP_DONE;
    }
    return refuse(session, "user_id property set to '%.*s' but authenticated user was '%s'",
                  (int)user.bytes, (const char *)user.data, session->user);
}

static enum qsi_amqp_result check_properties(struct qsi_amqp_session *session,
                                             const struct qsi_properties *properties)
{
    struct qsi_slice expiration = qsi_properties_text(properties, QSI_PROPERTY_EXPIRATION);
    uint32_t ms;

    if (qsi_properties_has(properties, QSI_PROPERTY_USER_ID) &&
        check_user(session, properties->text[QSI_PROPERTY_USER_ID]) != QSI_AMQP_DONE) {
        return QSI_AMQP_FAULT;
    }
    if (!qsi_slice_is_null(expiration) && qsi_expiration_parse(expiration, &ms, NULL) != QS_OK) {
        return refuse_expiration(session, expiration);
    }
    if (qsi_properties_has(properties, QSI_PROPERTY_DELIVERY_MODE) &&
        properties->delivery_mode != 1 && properties->delivery_mode != 2) {
        return refuse(session, "invalid message: {delivery_mode_unknown,%u}",
                      properties->delivery_mode);
    }
    return QSI_AMQP_DONE;
}

/* Checks the client's properties, and prepares those that are published. */
static enum qsi_amqp_result prepare_properties(struct qsi_amqp_session *session,
                                               const struct qsi_amqp_channel *channel,
                                               struct qsi_slice *blob_io, struct qsi_buf *room_out)
{
    struct qsi_properties properties;
    struct qsi_slice reply_to;
    qs_error error;

    if (qsi_properties_decode(&properties, blob_io->data, blob_io->bytes, &error) != QS_OK) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_SYNTAX_ERROR, "malformed properties: %s",
                           error.text);
        return QSI_AMQP_FAULT;
    }
    if (check_properties(session, &properties) != QSI_AMQP_DONE) {
        return QSI_AMQP_FAULT;
    }
    reply_to = qsi_properties_text(&properties, QSI_PROPERTY_REPLY_TO);
    return qsi_slice_is_null(reply_to) || !qsi_amqp_is_reply_to(reply_to)
               ? QSI_AMQP_DONE
               : qsi_amqp_expand_reply_to(session, channel, &properties, blob_io, room_out);
}

/* ---- publishing ---- */

static uint32_t flags_of(const struct qsi_amqp_session *session, uint8_t bits)
{
    return QS_BODY_CONSTANT | (session->may_block ? 0u : QS_NO_WAIT) |
           ((bits & PUBLISH_MANDATORY) != 0 ? QS_MANDATORY : 0u) |
           ((bits & PUBLISH_IMMEDIATE) != 0 ? QS_IMMEDIATE : 0u);
}

/* Counts a mandatory message that no queue took. */
static enum qsi_amqp_result came_back(struct qsi_amqp_session *session,
                                      struct qsi_amqp_channel *channel, uint64_t bytes)
{
    const struct qsi_amqp_content *content = &channel->content;

    if (channel->is_transactional) {
        return qsi_amqp_count_transaction_return(session, channel,
                                                 bytes + content->exchange_bytes +
                                                     content->key_bytes + RETURN_NOTED_BYTES);
    }
    qsi_amqp_count_return(session, channel, bytes);
    qsi_amqp_channel_rung(session, channel);
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result publish(struct qsi_amqp_session *session,
                                    struct qsi_amqp_channel *channel, struct qsi_slice properties,
                                    struct qsi_slice body)
{
    const struct qsi_amqp_content *content = &channel->content;
    qs_receipt receipt;
    qs_error error;
    qs_status status = qs_channel_publish(
        channel->engine, qsi_amqp_public(qsi_amqp_content_exchange(content)),
        qsi_amqp_public(qsi_amqp_content_key(content)), qsi_amqp_public(properties),
        qsi_amqp_public(body), flags_of(session, content->bits), 0, &receipt, &error);

    if (status != QS_OK) {
        return qsi_amqp_engine_fault(session, status, &error);
    }
    session->counts.published++;
    if (QS_UNLIKELY(!session->has_published)) {
        session->has_published = true;
        qsi_amqp_send_blocked(session);
    }
    return receipt.unrouted_count > 0 && (content->bits & PUBLISH_MANDATORY) != 0
               ? came_back(session, channel, properties.bytes + (uint64_t)body.bytes)
               : QSI_AMQP_DONE;
}

/* A session with an open transaction is read during an alarm, so that the transaction can end.  Its
 * other work waits: publishes outside transactions, and those that would begin one. */
static bool must_wait_for_alarm(const struct qsi_amqp_session *session,
                                const struct qsi_amqp_channel *channel)
{
    return qsi_amqp_is_alarmed(session) && session->tx_bytes > 0 && channel->tx_bytes == 0;
}

enum qsi_amqp_result qsi_amqp_publish(struct qsi_amqp_session *session,
                                      struct qsi_amqp_channel *channel, struct qsi_slice body)
{
    struct qsi_slice properties = qsi_amqp_content_properties(&channel->content);
    struct qsi_buf room = {0};
    enum qsi_amqp_result result;

    if (must_write_returns(session, channel, channel->content.bits)) {
        return QSI_AMQP_MUST_WRITE;
    }
    result = qsi_amqp_require(session, QSI_AMQP_WRITE, true,
                              qsi_amqp_content_exchange(&channel->content));
    if (result == QSI_AMQP_DONE) {
        result = prepare_properties(session, channel, &properties, &room);
    }
    if (result == QSI_AMQP_DONE && must_wait_for_alarm(session, channel)) {
        result = QSI_AMQP_IS_FULL;
    }
    if (result == QSI_AMQP_DONE) {
        result = publish(session, channel, properties, body);
    }
    if (result == QSI_AMQP_DONE) {
        result = qsi_amqp_count_transaction(session, channel);
    }
    qsi_buf_fini(&room);
    return result;
}
