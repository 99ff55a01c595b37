/* Incoming frames: divides the input into frames, checks them, and passes them on. */
#include "check.h"
#include "le.h"
#include "session_internal.h"
#include "verbs_publish.h"

#include <stdio.h>

#define PROTOCOL_HEADER_BYTES 8
#define CONTENT_HEADER_BYTES 12
#define UNCOUNTED_PROPERTIES_BYTES 1024 /* 2 MiB for the largest number of channels */
#define METHOD_BYTES 4
#define SHOWN_BYTES_MAX 16 /* bytes of a frame shown in an error text */

struct frame {
    uint8_t type;
    uint16_t channel;
    struct qsi_slice payload;
};

/* ---- faults of frames ---- */

/* " octets = ..." of a frame, in RabbitMQ's format. */
static const char *print_octets(char text_out[QSI_AMQP_FAULT_TEXT_BYTES], const struct frame *frame)
{
    bool is_short = frame->payload.bytes <= SHOWN_BYTES_MAX;
    struct qsi_slice shown =
        qsi_slice_make(frame->payload.data, is_short ? frame->payload.bytes : SHOWN_BYTES_MAX);

    qsi_amqp_print_binary(text_out, shown, true);
    return is_short ? "all" : "first 16";
}

static enum qsi_amqp_result unexpected_frame(struct qsi_amqp_session *session,
                                             const struct frame *frame)
{
    char octets[QSI_AMQP_FAULT_TEXT_BYTES];
    const char *which = print_octets(octets, frame);

    qsi_amqp_fault_set(&session->fault, QSI_AMQP_UNEXPECTED_FRAME, "type %u, %s octets = %s",
                       frame->type, which, octets);
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result bad_frame(struct qsi_amqp_session *session, const struct frame *frame,
                                      const char *what)
{
    char octets[QSI_AMQP_FAULT_TEXT_BYTES];
    const char *which = print_octets(octets, frame);

    qsi_amqp_fault_set(&session->fault, QSI_AMQP_FRAME_ERROR, "type %u, %s octets = %s: %s",
                       frame->type, which, octets, what);
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result frame_too_large(struct qsi_amqp_session *session, uint8_t type,
                                            uint32_t bytes)
{
    struct frame frame = {.type = type, .payload = {(const uint8_t *)"", 0}};
    char what[64];

    snprintf(what, sizeof what, "{frame_too_large,%u,%u}", bytes,
             session->frame_max - QSI_AMQP_FRAME_EXTRA_BYTES);
    bad_frame(session, &frame, what);
    session->fault.is_fatal = true;
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result bad_frame_end(struct qsi_amqp_session *session,
                                          const struct frame *frame, uint8_t end)
{
    char what[64];

    snprintf(what, sizeof what, "{invalid_frame_end_marker,%u}", end);
    bad_frame(session, frame, what);
    session->fault.is_fatal = true;
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result cannot_decode(struct qsi_amqp_session *session,
                                          enum qsi_amqp_method method, struct qsi_slice fields,
                                          enum qsi_amqp_decoded why)
{
    const struct qsi_amqp_layout *layout = &qsi_amqp_layouts[method];
    char octets[QSI_AMQP_FAULT_TEXT_BYTES];

    if (why == QSI_AMQP_NOT_UTF8) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_FRAME_ERROR, "Malformed UTF-8 in shortstr");
        return QSI_AMQP_FAULT;
    }
    if (why == QSI_AMQP_BAD_TABLE) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_SYNTAX_ERROR,
                           "malformed table, or tables more than 128 deep");
    } else {
        qsi_amqp_print_binary(octets, fields, false);
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_FRAME_ERROR, "cannot decode %s", octets);
    }
    session->fault.class_id = layout->class_id;
    session->fault.method_id = layout->method_id;
    return QSI_AMQP_FAULT;
}

/* ---- contents ---- */

static enum qsi_amqp_result publish(struct qsi_amqp_session *session,
                                    struct qsi_amqp_channel *channel, struct qsi_slice body)
{
    enum qsi_amqp_result result = qsi_amqp_publish(session, channel, body);

    if (result == QSI_AMQP_DONE || result == QSI_AMQP_FAULT) {
        qsi_amqp_end_content(session, channel);
    }
    if (result == QSI_AMQP_FAULT && session->fault.class_id == 0) {
        session->fault.class_id = 60;
        session->fault.method_id = 40;
    }
    return result;
}

/* A body that is too large closes the channel at once: its frames are read and dropped. */
static enum qsi_amqp_result refuse_large_body(struct qsi_amqp_session *session,
                                              struct qsi_amqp_content *content)
{
    qsi_amqp_fault_set(&session->fault, QS_PRECONDITION_FAILED,
                       "message size %llu is larger than configured max size %llu",
                       (unsigned long long)content->body_bytes,
                       (unsigned long long)session->setup.limits.body_bytes_max);
    session->fault.class_id = 60;
    session->fault.method_id = 40;
    content->is_skipped = true;
    return QSI_AMQP_FAULT;
}

/* Takes room for properties, which are kept until the body has arrived.  Small properties and names
 * do not count: most messages have one body frame, and then do not affect other sessions. */
static enum qsi_amqp_result take_room_for_properties(struct qsi_amqp_session *session,
                                                     struct qsi_amqp_content *content,
                                                     struct qsi_slice payload)
{
    uint32_t bytes = payload.bytes - CONTENT_HEADER_BYTES;

    return content->state == QSI_AMQP_NEEDS_HEADER && bytes > UNCOUNTED_PROPERTIES_BYTES
               ? qsi_amqp_pool_take(session, content, bytes)
               : QSI_AMQP_DONE;
}

static enum qsi_amqp_result handle_content_header(struct qsi_amqp_session *session,
                                                  struct qsi_amqp_channel *channel,
                                                  struct qsi_slice payload)
{
    struct qsi_amqp_content *content = &channel->content;
    enum qsi_amqp_result result = take_room_for_properties(session, content, payload);

    if (result != QSI_AMQP_DONE) {
        return result;
    }
    if (!qsi_amqp_content_header(content, payload, &session->fault)) {
        return QSI_AMQP_FAULT;
    }
    if (content->body_bytes > session->setup.limits.body_bytes_max) {
        return refuse_large_body(session, content);
    }
    if (content->body_bytes > 0) {
        return QSI_AMQP_DONE;
    }
    result = publish(session, channel, QSI_SLICE_LITERAL(""));
    if (result != QSI_AMQP_DONE && result != QSI_AMQP_FAULT) {
        qsi_amqp_content_undo_header(content);
        qsi_amqp_pool_give_back(session, content);
    }
    return result;
}

/* Whether more of the body follows this payload, so that it must be kept. */
static bool is_part(const struct qsi_amqp_content *content, struct qsi_slice payload)
{
    return content->state == QSI_AMQP_NEEDS_BODY && !content->is_skipped && payload.bytes > 0 &&
           payload.bytes < content->body_bytes - content->body_got;
}

static enum qsi_amqp_result handle_content_body(struct qsi_amqp_session *session,
                                                struct qsi_amqp_channel *channel,
                                                struct qsi_slice payload)
{
    struct qsi_amqp_content *content = &channel->content;
    struct qsi_slice body;
    bool is_whole;

    if (is_part(content, payload)) {
        enum qsi_amqp_result result = qsi_amqp_pool_take(session, content, payload.bytes);

        if (result != QSI_AMQP_DONE) {
            return result;
        }
    }
    if (!qsi_amqp_content_body(content, payload, &body, &is_whole, &session->fault)) {
        return QSI_AMQP_FAULT;
    }
    return is_whole ? publish(session, channel, body) : QSI_AMQP_DONE;
}

/* ---- channels ---- */

static enum qsi_amqp_result handle_method(struct qsi_amqp_session *session, uint16_t number,
                                          enum qsi_amqp_method method,
                                          const struct qsi_amqp_arguments *arguments)
{
    struct qsi_amqp_channel *channel = qsi_amqp_find_channel(session, number);

    if (channel != NULL && channel->content.state != QSI_AMQP_NO_CONTENT) {
        qsi_amqp_content_interrupted(&channel->content, &session->fault);
        return QSI_AMQP_FAULT;
    }
    if (qsi_amqp_layouts[method].class_id == 10 ||
        (qsi_amqp_layouts[method].from & QSI_AMQP_FROM_CLIENT) == 0) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_COMMAND_INVALID, "unimplemented method");
        return QSI_AMQP_FAULT;
    }
    if (method == QSI_AMQP_CHANNEL_OPEN) {
        return qsi_amqp_channel_open(session, number);
    }
    if (channel == NULL) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_CHANNEL_ERROR, "expected 'channel.open'");
        return QSI_AMQP_FAULT;
    }
    return qsi_amqp_handle_verb(session, channel, method, arguments);
}

/* After channel.close was sent: handles only close-ok, and a close of the client that crosses
 * it. */
static enum qsi_amqp_result handle_closing(struct qsi_amqp_session *session,
                                           struct qsi_amqp_channel *channel,
                                           const struct frame *frame)
{
    enum qsi_amqp_method method;

    if (frame->type != QSI_AMQP_FRAME_METHOD || frame->payload.bytes < METHOD_BYTES ||
        !qsi_amqp_method_find(qsi_get_be16(frame->payload.data),
                              qsi_get_be16(frame->payload.data + 2), &method)) {
        return QSI_AMQP_DONE;
    }
    if (method == QSI_AMQP_CHANNEL_CLOSE) {
        qsi_amqp_send_empty(session, channel->number, QSI_AMQP_CHANNEL_CLOSE_OK);
    } else if (method == QSI_AMQP_CHANNEL_CLOSE_OK) {
        if (!qsi_list_is_empty(&channel->in_doomed)) {
            return QSI_AMQP_MUST_WAIT; /* until the engine's channel is closed */
        }
        qsi_amqp_channel_forget(session, channel);
    }
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result decode_method(struct qsi_amqp_session *session,
                                          const struct frame *frame)
{
    struct qsi_slice fields =
        qsi_slice_make(frame->payload.data + METHOD_BYTES, frame->payload.bytes - METHOD_BYTES);
    uint16_t class_id = qsi_get_be16(frame->payload.data);
    uint16_t method_id = qsi_get_be16(frame->payload.data + 2);
    struct qsi_amqp_arguments arguments;
    enum qsi_amqp_decoded decoded;
    enum qsi_amqp_method method;
    enum qsi_amqp_result result;

    if (!qsi_amqp_method_find(class_id, method_id, &method)) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_COMMAND_INVALID, "unimplemented method");
        session->fault.class_id = class_id;
        session->fault.method_id = method_id;
        return QSI_AMQP_FAULT;
    }
    decoded = qsi_amqp_method_decode(method, fields, &arguments);
    if (decoded != QSI_AMQP_DECODED) {
        return cannot_decode(session, method, fields, decoded);
    }
    result = frame->channel == 0 ? qsi_amqp_handle_method0(session, method, &arguments)
                                 : handle_method(session, frame->channel, method, &arguments);
    if (result == QSI_AMQP_FAULT && session->fault.class_id == 0 &&
        session->fault.code != QSI_AMQP_UNEXPECTED_FRAME) {
        session->fault.class_id = class_id;
        session->fault.method_id = method_id;
    }
    return result;
}

static enum qsi_amqp_result handle_on_channel(struct qsi_amqp_session *session,
                                              const struct frame *frame)
{
    struct qsi_amqp_channel *channel = qsi_amqp_find_channel(session, frame->channel);

    if (channel != NULL && channel->is_closing) {
        return handle_closing(session, channel, frame);
    }
    if (frame->type == QSI_AMQP_FRAME_METHOD) {
        return decode_method(session, frame);
    }
    if (channel == NULL) {
        static const struct qsi_amqp_content none = {0};
        qsi_amqp_content_interrupted(&none, &session->fault);
        return QSI_AMQP_FAULT;
    }
    return frame->type == QSI_AMQP_FRAME_HEADER
               ? handle_content_header(session, channel, frame->payload)
               : handle_content_body(session, channel, frame->payload);
}

/* ---- frames ---- */

/* Whether the type exists and the payload has its minimum size. */
static bool is_well_formed(const struct frame *frame)
{
    switch (frame->type) {
    case QSI_AMQP_FRAME_METHOD:
        return frame->payload.bytes >= METHOD_BYTES;
    case QSI_AMQP_FRAME_HEADER:
        return frame->payload.bytes >= CONTENT_HEADER_BYTES;
    case QSI_AMQP_FRAME_BODY:
        return true;
    case QSI_AMQP_FRAME_HEARTBEAT:
        return frame->payload.bytes == 0;
    default:
        return false;
    }
}

/* After connection.close was sent: handles only the client's close and close-ok. */
static enum qsi_amqp_result handle_while_closing(struct qsi_amqp_session *session,
                                                 const struct frame *frame)
{
    enum qsi_amqp_method method;

    if (frame->channel != 0 || frame->type != QSI_AMQP_FRAME_METHOD || !is_well_formed(frame) ||
        !qsi_amqp_method_find(qsi_get_be16(frame->payload.data),
                              qsi_get_be16(frame->payload.data + 2), &method)) {
        return QSI_AMQP_DONE;
    }
    if (method == QSI_AMQP_CONNECTION_CLOSE) {
        qsi_amqp_send_empty(session, 0, QSI_AMQP_CONNECTION_CLOSE_OK);
    } else if (method == QSI_AMQP_CONNECTION_CLOSE_OK) {
        session->state = QSI_AMQP_ENDED;
    }
    return QSI_AMQP_DONE;
}

static enum qsi_amqp_result handle_frame(struct qsi_amqp_session *session,
                                         const struct frame *frame)
{
    if (session->state == QSI_AMQP_CLOSING) {
        return handle_while_closing(session, frame);
    }
    if (session->state > QSI_AMQP_CLOSING) {
        return QSI_AMQP_DONE;
    }
    if (!is_well_formed(frame)) {
        return bad_frame(session, frame, "unknown_frame");
    }
    if (frame->channel != 0 && frame->type != QSI_AMQP_FRAME_HEARTBEAT &&
        session->state == QSI_AMQP_RUNNING) {
        return handle_on_channel(session, frame);
    }
    if (frame->channel != 0 ||
        (frame->type != QSI_AMQP_FRAME_METHOD && frame->type != QSI_AMQP_FRAME_HEARTBEAT)) {
        return unexpected_frame(session, frame);
    }
    return frame->type == QSI_AMQP_FRAME_HEARTBEAT ? QSI_AMQP_DONE : decode_method(session, frame);
}

/* Closes what a fault closes: the channel, or the connection with connection.close.  A client that
 * has not reached connection.open is disconnected without connection.close. */
static void settle_fault(struct qsi_amqp_session *session, uint16_t number)
{
    struct qsi_amqp_channel *channel = number != 0 ? qsi_amqp_find_channel(session, number) : NULL;

    if (session->state < QSI_AMQP_OPENING) {
        qsi_amqp_fall_silent(session, QSI_AMQP_END_REFUSED);
    } else if (session->state >= QSI_AMQP_CLOSING) {
        qsi_amqp_fall_silent(session, session->counts.end);
    } else if (channel == NULL || qsi_amqp_closes_connection(session->fault.code)) {
        qsi_amqp_close_connection(session, QSI_AMQP_END_SERVER);
    } else {
        qsi_amqp_channel_refuse(session, channel);
    }
}

/* RabbitMQ accepts a payload of frame_max bytes, since some clients count wrong. */
static bool is_too_large(const struct qsi_amqp_session *session, uint32_t payload_bytes)
{
    return payload_bytes > session->frame_max;
}

static bool may_go_on(const struct qsi_amqp_session *session)
{
    return session->stopped == QSI_AMQP_DONE && session->input_left > 0 && !session->output.failed;
}

/* Returns the bytes of the first frame; 0: it is incomplete, or was not handled. */
static size_t handle_first(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes)
{
    struct frame frame;
    uint32_t payload_bytes;
    enum qsi_amqp_result result;
    size_t whole;

    if (bytes < QSI_AMQP_FRAME_HEAD_BYTES) {
        return 0;
    }
    payload_bytes = qsi_get_be32(data + 3);
    frame.type = data[0];
    frame.channel = qsi_get_be16(data + 1);
    if (is_too_large(session, payload_bytes)) {
        frame_too_large(session, frame.type, payload_bytes);
        settle_fault(session, 0);
        return 0;
    }
    whole = (size_t)payload_bytes + QSI_AMQP_FRAME_EXTRA_BYTES;
    if (bytes < whole) {
        return 0;
    }
    frame.payload = qsi_slice_make(data + QSI_AMQP_FRAME_HEAD_BYTES, payload_bytes);
    session->counts.frames_in++;
    result = data[whole - 1] == QSI_AMQP_FRAME_END
                 ? handle_frame(session, &frame)
                 : bad_frame_end(session, &frame, data[whole - 1]);
    if (result == QSI_AMQP_FAULT) {
        settle_fault(session, session->fault.is_fatal ? 0 : frame.channel);
    } else if (result != QSI_AMQP_DONE) {
        session->stopped = result;
        return 0;
    }
    return whole;
}

size_t qsi_amqp_frame_lacks(const struct qsi_amqp_session *session, const uint8_t *data,
                            size_t bytes)
{
    size_t whole = PROTOCOL_HEADER_BYTES;

    if (session->state != QSI_AMQP_HEADER) {
        whole = bytes < QSI_AMQP_FRAME_HEAD_BYTES
                    ? QSI_AMQP_FRAME_HEAD_BYTES
                    : (size_t)qsi_get_be32(data + 3) + QSI_AMQP_FRAME_EXTRA_BYTES;
    }
    return whole > bytes ? whole - bytes : 0;
}

size_t qsi_amqp_handle_input(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes)
{
    size_t used = 0;

    while (used < bytes && may_go_on(session)) {
        size_t step = 0;

        if (session->state >= QSI_AMQP_SILENT) {
            return bytes; /* input is ignored from now on */
        }
        if (session->state == QSI_AMQP_HEADER) {
            if (bytes - used >= PROTOCOL_HEADER_BYTES) {
                qsi_amqp_handle_header(session, data + used);
                step = PROTOCOL_HEADER_BYTES;
            }
        } else {
            step = handle_first(session, data + used, bytes - used);
        }
        if (step == 0 && session->state < QSI_AMQP_SILENT) {
            break;
        }
        used += step;
        session->input_left -= step < session->input_left ? step : session->input_left;
    }
    return used;
}

bool qsi_amqp_has_frame(const struct qsi_amqp_session *session)
{
    return session->rest.bytes > 0 && session->state < QSI_AMQP_SILENT &&
           qsi_amqp_frame_lacks(session, session->rest.data + session->rest_from,
                                session->rest.bytes - session->rest_from) == 0;
}
