/* What clients send to a session, and what they expect of it, in short. */
#ifndef QS_TEST_SESSION_H
#define QS_TEST_SESSION_H

#include "amqp_method.h"
#include "amqp_output.h"
#include "le.h"
#include "qs_test_peer.h"

#define TEXT(string) qsi_slice_make(string, (uint32_t)strlen(string))

struct frame {
    uint8_t type;
    uint16_t channel;
    struct qsi_slice payload;
};

/* ---- sending ---- */

static inline void put(struct peer *peer, const void *data, size_t bytes)
{
    QS_CHECK(peer->out_bytes + bytes <= BYTES_MAX);
    memcpy(peer->out + peer->out_bytes, data, bytes);
    peer->out_bytes += bytes;
}

static inline void put_frame(struct peer *peer, uint8_t type, uint16_t channel, const void *payload,
                             size_t bytes)
{
    uint8_t head[7] = {type};

    qsi_put_be16(head + 1, channel);
    qsi_put_be32(head + 3, (uint32_t)bytes);
    put(peer, head, sizeof head);
    put(peer, payload, bytes);
    put(peer, "\xce", 1);
}

static inline void put_method(struct peer *peer, uint16_t channel, enum qsi_amqp_method method,
                              const struct qsi_amqp_arguments *arguments)
{
    size_t bytes = qsi_amqp_method_bytes(method, arguments);
    uint8_t *payload = malloc(bytes);

    QS_CHECK(payload != NULL);
    QS_CHECK(qsi_amqp_method_put(payload, method, arguments) == payload + bytes);
    put_frame(peer, QSI_AMQP_FRAME_METHOD, channel, payload, bytes);
    free(payload);
}

#define ARGUMENTS(...) (&(struct qsi_amqp_arguments){__VA_ARGS__})
#define SEND(peer, channel, method, ...)                                      \
    do {                                                                      \
        put_method(peer, channel, QSI_AMQP_##method, ARGUMENTS(__VA_ARGS__)); \
        flush(peer);                                                          \
    } while (0)

static inline void put_header(struct peer *peer, uint16_t channel, uint64_t body_bytes,
                              const void *properties, size_t properties_bytes)
{
    uint8_t payload[1024] = {0};

    QS_CHECK(properties_bytes <= sizeof payload - 12);
    qsi_put_be16(payload, 60);
    qsi_put_be64(payload + 4, body_bytes);
    memcpy(payload + 12, properties, properties_bytes);
    put_frame(peer, QSI_AMQP_FRAME_HEADER, channel, payload, 12 + properties_bytes);
}

/* Persistent. */
static inline void put_message(struct peer *peer, uint16_t channel, const char *exchange,
                               const char *key, uint8_t bits, const void *body, size_t bytes)
{
    size_t part_max = 131072 - 8;

    put_method(peer, channel, QSI_AMQP_BASIC_PUBLISH,
               ARGUMENTS(.text = {TEXT(exchange), TEXT(key)}, .bits = bits));
    put_header(peer, channel, bytes, "\x10\0\2", 3);
    for (size_t at = 0; at < bytes; at += part_max) {
        size_t part = bytes - at < part_max ? bytes - at : part_max;

        put_frame(peer, QSI_AMQP_FRAME_BODY, channel, (const char *)body + at, part);
    }
}

static inline void publish(struct peer *peer, const char *exchange, const char *key,
                           const char *body)
{
    put_message(peer, 1, exchange, key, 0, body, strlen(body));
    flush(peer);
}

/* ---- receiving ---- */

static inline bool take_frame(struct peer *peer, struct frame *frame_out)
{
    const uint8_t *at = peer->in + peer->in_from;
    size_t left = peer->in_bytes - peer->in_from;
    uint32_t bytes;

    if (left < 8) {
        QS_CHECK(left == 0);
        return false;
    }
    bytes = qsi_get_be32(at + 3);
    QS_CHECK(left >= (size_t)bytes + 8 && at[7 + bytes] == 0xce);
    *frame_out = (struct frame){at[0], qsi_get_be16(at + 1), qsi_slice_make(at + 7, bytes)};
    peer->in_from += (size_t)bytes + 8;
    return true;
}

static inline void expect_nothing(struct peer *peer)
{
    struct frame frame;

    if (take_frame(peer, &frame)) {
        fprintf(stderr, "type %u, channel %u, %u bytes, %u.%u\n", frame.type, frame.channel,
                frame.payload.bytes,
                frame.payload.bytes >= 4 ? qsi_get_be16(frame.payload.data) : 0,
                frame.payload.bytes >= 4 ? qsi_get_be16(frame.payload.data + 2) : 0);
        QS_CHECK(!"a frame that was not expected");
    }
}

static inline struct qsi_amqp_arguments expect_method(struct peer *peer, uint16_t channel,
                                                      enum qsi_amqp_method expected)
{
    struct qsi_amqp_arguments arguments = {0};
    enum qsi_amqp_method method;
    struct frame frame;

    QS_CHECK(take_frame(peer, &frame));
    QS_CHECK(frame.type == QSI_AMQP_FRAME_METHOD);
    QS_CHECK(frame.payload.bytes >= 4);
    QS_CHECK(qsi_amqp_method_find(qsi_get_be16(frame.payload.data),
                                  qsi_get_be16(frame.payload.data + 2), &method));
    QS_CHECK(qsi_amqp_method_decode(method,
                                    qsi_slice_make(frame.payload.data + 4, frame.payload.bytes - 4),
                                    &arguments) == QSI_AMQP_DECODED);
    if (method != expected || frame.channel != channel) {
        fprintf(stderr, "channel %u: %u.%u %.*s\n", frame.channel,
                qsi_amqp_layouts[method].class_id, qsi_amqp_layouts[method].method_id,
                (int)arguments.text[0].bytes, (const char *)arguments.text[0].data);
        QS_CHECK(!"another method was expected");
    }
    return arguments;
}

#define EXPECT(peer, channel, method) expect_method(peer, channel, QSI_AMQP_##method)

static inline struct qsi_amqp_arguments call_method(struct peer *peer, uint16_t channel,
                                                    enum qsi_amqp_method method,
                                                    const struct qsi_amqp_arguments *arguments,
                                                    enum qsi_amqp_method answer)
{
    put_method(peer, channel, method, arguments);
    flush(peer);
    return expect_method(peer, channel, answer);
}

/* Sends a method, and expects the one that ends in _OK. */
#define CALL(peer, channel, method, ...) \
    call_method(peer, channel, QSI_AMQP_##method, ARGUMENTS(__VA_ARGS__), QSI_AMQP_##method##_OK)

static inline bool is_text(struct qsi_slice slice, const char *text)
{
    return slice.bytes == strlen(text) && memcmp(slice.data, text, slice.bytes) == 0;
}

/* What the text of a close with this code begins with, as RabbitMQ has it. */
static inline const char *name_of_code(uint16_t code)
{
    static const struct {
        uint16_t code;
        const char *name;
    } names[] = {{320, "CONNECTION_FORCED"},   {403, "ACCESS_REFUSED"}, {404, "NOT_FOUND"},
                 {406, "PRECONDITION_FAILED"}, {501, "FRAME_ERROR"},    {502, "SYNTAX_ERROR"},
                 {503, "COMMAND_INVALID"},     {504, "CHANNEL_ERROR"},  {505, "UNEXPECTED_FRAME"},
                 {530, "NOT_ALLOWED"},         {540, "NOT_IMPLEMENTED"}};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].code == code) {
            return names[i].name;
        }
    }
    return "unknown";
}

/* The text is what stands behind the name and " - ". */
static inline void check_close(const struct qsi_amqp_arguments *close, uint16_t code,
                               const char *text, uint16_t class_id, uint16_t method_id)
{
    char whole[300];

    snprintf(whole, sizeof whole, "%s - %s", name_of_code(code), text);
    if (close->number[0] != code || !is_text(close->text[0], whole) ||
        close->number[1] != class_id || close->number[2] != method_id) {
        fprintf(stderr, "%u '%.*s' (%u.%u), not %u '%s' (%u.%u)\n", (unsigned)close->number[0],
                (int)close->text[0].bytes, (const char *)close->text[0].data,
                (unsigned)close->number[1], (unsigned)close->number[2], code, whole, class_id,
                method_id);
        QS_CHECK(!"another close was expected");
    }
}

/* The body of the content behind the method that was just taken, NUL-terminated; the caller's. */
static inline char *take_body(struct peer *peer, size_t *bytes_out)
{
    struct frame frame;
    char *body;
    size_t bytes, got = 0;

    QS_CHECK(take_frame(peer, &frame) && frame.type == QSI_AMQP_FRAME_HEADER);
    bytes = (size_t)qsi_get_be64(frame.payload.data + 4);
    body = malloc(bytes + 1);
    QS_CHECK(body != NULL);
    while (got < bytes) {
        QS_CHECK(take_frame(peer, &frame) && frame.type == QSI_AMQP_FRAME_BODY);
        QS_CHECK(frame.payload.bytes <= bytes - got);
        memcpy(body + got, frame.payload.data, frame.payload.bytes);
        got += frame.payload.bytes;
    }
    body[bytes] = '\0';
    *bytes_out = bytes;
    return body;
}

static inline void expect_body(struct peer *peer, const char *expected)
{
    size_t bytes;
    char *body = take_body(peer, &bytes);

    QS_CHECK(bytes == strlen(expected) && memcmp(body, expected, bytes) == 0);
    free(body);
}

/* Gets the next message of the queue, which is settled with it. */
static inline void expect_got(struct peer *peer, const char *queue, const char *body)
{
    CALL(peer, 1, BASIC_GET, .text = {TEXT(queue)}, .bits = 1);
    expect_body(peer, body);
}

/* ---- the handshake ---- */

/* With all capabilities that a client has. */
static const uint8_t client_properties[] = "\x0c"
                                           "capabilitiesF\0\0\0\x4d"
                                           "\x1c"
                                           "authentication_failure_closet\1"
                                           "\x16"
                                           "consumer_cancel_notifyt\1"
                                           "\x12"
                                           "connection.blockedt\1";

static inline struct qsi_slice capabilities(void)
{
    return qsi_slice_make(client_properties, sizeof client_properties - 1);
}

static inline void say_hello(struct peer *peer)
{
    feed(peer, "AMQP\0\0\x09\x01", 8);
    EXPECT(peer, 0, CONNECTION_START);
}

static inline void log_in_as(struct peer *peer, struct qsi_slice properties, const char *mechanism,
                             const char *response, size_t response_bytes)
{
    SEND(peer, 0, CONNECTION_START_OK, .table = properties,
         .text = {TEXT(mechanism),
                  {(const uint8_t *)response, (uint32_t)response_bytes},
                  TEXT("en_US")});
}

static inline void log_in_as_guest(struct peer *peer)
{
    log_in_as(peer, capabilities(), "PLAIN", "\0guest\0guest", 12);
    EXPECT(peer, 0, CONNECTION_TUNE);
}

static inline void connect_as_guest(struct peer *peer)
{
    connect_peer(peer);
    say_hello(peer);
    log_in_as_guest(peer);
}

static inline void tune(struct peer *peer, uint16_t channel_max, uint32_t frame_max,
                        uint16_t heartbeat_s)
{
    SEND(peer, 0, CONNECTION_TUNE_OK, .number = {channel_max, frame_max, heartbeat_s});
}

static inline void open_connection(struct peer *peer)
{
    CALL(peer, 0, CONNECTION_OPEN, .text = {TEXT("/")});
}

static inline void open_channel(struct peer *peer, uint16_t channel)
{
    CALL(peer, channel, CHANNEL_OPEN, .bits = 0);
}

/* A session with channel 1 open. */
static inline void make_ready(struct peer *peer)
{
    connect_as_guest(peer);
    tune(peer, 2047, 131072, 0);
    open_connection(peer);
    open_channel(peer, 1);
}

static inline void peer_start(struct peer *peer)
{
    peer_init(peer);
    make_ready(peer);
}

enum { DURABLE = 2, EXCLUSIVE = 4, NO_WAIT_BIT = 16 };

static inline void declare(struct peer *peer, const char *queue)
{
    CALL(peer, 1, QUEUE_DECLARE, .text = {TEXT(queue)}, .bits = DURABLE);
}

/* The client has heard of it, and goes. */
static inline void expect_connection_close(struct peer *peer, uint16_t code, const char *text,
                                           uint16_t class_id, uint16_t method_id)
{
    struct qsi_amqp_arguments close = EXPECT(peer, 0, CONNECTION_CLOSE);

    check_close(&close, code, text, class_id, method_id);
    expect_nothing(peer);
}

static inline void expect_channel_close(struct peer *peer, uint16_t channel, uint16_t code,
                                        const char *text, uint16_t class_id, uint16_t method_id)
{
    struct qsi_amqp_arguments close = EXPECT(peer, channel, CHANNEL_CLOSE);

    check_close(&close, code, text, class_id, method_id);
}

#endif
