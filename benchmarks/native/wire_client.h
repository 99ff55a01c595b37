/* A client of AMQP 0-9-1 for bench_wire.c: one blocking socket on loopback.  It knows the frames
 * that it asks for; whatever else comes ends the program. */
#ifndef WIRE_CLIENT_H
#define WIRE_CLIENT_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX 131072u
#define IN_BYTES (4 * FRAME_MAX)
#define FRAME_END 0xCEu
#define FRAME_OVERHEAD 8u /* type, channel, size; the end */
#define CHANNEL 1u

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8 };

/* Class, then method. */
enum wire_method {
    CONNECTION_START = 10 << 16 | 10,
    CONNECTION_START_OK = 10 << 16 | 11,
    CONNECTION_TUNE = 10 << 16 | 30,
    CONNECTION_TUNE_OK = 10 << 16 | 31,
    CONNECTION_OPEN = 10 << 16 | 40,
    CONNECTION_OPEN_OK = 10 << 16 | 41,
    CONNECTION_CLOSE = 10 << 16 | 50,
    CONNECTION_CLOSE_OK = 10 << 16 | 51,
    CHANNEL_OPEN = 20 << 16 | 10,
    CHANNEL_OPEN_OK = 20 << 16 | 11,
    QUEUE_DECLARE = 50 << 16 | 10,
    QUEUE_DECLARE_OK = 50 << 16 | 11,
    QUEUE_DELETE = 50 << 16 | 40,
    QUEUE_DELETE_OK = 50 << 16 | 41,
    BASIC_QOS = 60 << 16 | 10,
    BASIC_QOS_OK = 60 << 16 | 11,
    BASIC_CONSUME = 60 << 16 | 20,
    BASIC_CONSUME_OK = 60 << 16 | 21,
    BASIC_CANCEL = 60 << 16 | 30,
    BASIC_CANCEL_OK = 60 << 16 | 31,
    BASIC_PUBLISH = 60 << 16 | 40,
    BASIC_DELIVER = 60 << 16 | 60,
    BASIC_ACK = 60 << 16 | 80,
    CONFIRM_SELECT = 85 << 16 | 10,
    CONFIRM_SELECT_OK = 85 << 16 | 11,
};

/* What has come and was not looked at is in[from] on. */
struct wire {
    int fd;
    uint32_t from, bytes;
    uint8_t in[IN_BYTES];
};

struct wire_frame {
    uint8_t type;
    uint32_t bytes;
    const uint8_t *payload; /* until the next one */
};

/* A frame that is made. */
struct wire_out {
    uint32_t bytes;
    uint8_t data[2048];
};

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static _Noreturn void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* ---- numbers and frames ---- */

static uint64_t number_at(const uint8_t *at, uint32_t bytes)
{
    uint64_t value = 0;

    for (uint32_t i = 0; i < bytes; i++) {
        value = value << 8 | at[i];
    }
    return value;
}

static void put_number(struct wire_out *out, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = bytes; i > 0; i--) {
        out->data[out->bytes++] = (uint8_t)(value >> 8 * (i - 1));
    }
}

static void put_bytes(struct wire_out *out, const void *data, size_t bytes)
{
    memcpy(out->data + out->bytes, data, bytes);
    out->bytes += (uint32_t)bytes;
}

static void put_short(struct wire_out *out, const char *text)
{
    put_number(out, strlen(text), 1);
    put_bytes(out, text, strlen(text));
}

static void set_number(uint8_t *at, uint64_t value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * (bytes - 1 - i));
    }
}

static void begin_frame(struct wire_out *out, uint8_t type, uint16_t channel)
{
    out->bytes = 0;
    put_number(out, type, 1);
    put_number(out, channel, 2);
    put_number(out, 0, 4);
}

static void begin_method(struct wire_out *out, enum wire_method method)
{
    begin_frame(out, FRAME_METHOD, method >> 16 == 10 ? 0 : CHANNEL);
    put_number(out, method, 4);
}

static void end_frame(struct wire_out *out)
{
    set_number(out->data + 3, out->bytes - (FRAME_OVERHEAD - 1), 4);
    put_number(out, FRAME_END, 1);
}

/* ---- the socket ---- */

static void send_all(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
        if (sent <= 0) {
            fail("send: %m");
        }
        at += sent;
        bytes -= (size_t)sent;
    }
}

static void send_frame(struct wire *wire, struct wire_out *out)
{
    end_frame(out);
    send_all(wire->fd, out->data, out->bytes);
}

/* Is there a whole frame?  It is what *frame_out is then, and is taken. */
static bool take_frame(struct wire *wire, struct wire_frame *frame_out)
{
    const uint8_t *at = wire->in + wire->from;
    uint32_t there = wire->bytes - wire->from, bytes;

    if (there < FRAME_OVERHEAD) {
        return false;
    }
    bytes = (uint32_t)number_at(at + 3, 4);
    if (bytes > FRAME_MAX) {
        fail("a frame of %u bytes came", bytes);
    }
    if (there < bytes + FRAME_OVERHEAD) {
        return false;
    }
    if (at[FRAME_OVERHEAD - 1 + bytes] != FRAME_END) {
        fail("a frame without its end came");
    }
    *frame_out = (struct wire_frame){at[0], bytes, at + FRAME_OVERHEAD - 1};
    wire->from += bytes + FRAME_OVERHEAD;
    return true;
}

/* Waits for bytes. */
static void receive_more(struct wire *wire)
{
    ssize_t received;

    memmove(wire->in, wire->in + wire->from, wire->bytes - wire->from);
    wire->bytes -= wire->from;
    wire->from = 0;
    received = recv(wire->fd, wire->in + wire->bytes, IN_BYTES - wire->bytes, 0);
    if (received <= 0) {
        fail(received == 0 ? "the server closed the connection" : "recv: %m");
    }
    wire->bytes += (uint32_t)received;
}

static struct wire_frame next_frame(struct wire *wire)
{
    struct wire_frame frame;

    do {
        while (!take_frame(wire, &frame)) {
            receive_more(wire);
        }
    } while (frame.type == FRAME_HEARTBEAT);
    return frame;
}

static enum wire_method method_of(struct wire_frame frame)
{
    return frame.type == FRAME_METHOD ? (enum wire_method)number_at(frame.payload, 4) : 0;
}

/* The arguments of a method that has to come next. */
static const uint8_t *expect(struct wire *wire, enum wire_method method)
{
    struct wire_frame frame = next_frame(wire);

    if (method_of(frame) != method) {
        /* A close has a code and a text. */
        fail("%u.%u was to come; frame of type %u, method %u.%u: %.*s", method >> 16,
             method & 0xffffu, frame.type, method_of(frame) >> 16, method_of(frame) & 0xffffu,
             frame.bytes > 7 ? (int)frame.bytes - 7 : 0, (const char *)frame.payload + 7);
    }
    return frame.payload + 4;
}

static const uint8_t *call(struct wire *wire, struct wire_out *out, enum wire_method answer)
{
    send_frame(wire, out);
    return expect(wire, answer);
}

/* ---- connections ---- */

static int connected(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        fail("connect: %m");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

/* As guest, with one channel. */
static void open_wire(struct wire *wire, uint16_t port, uint16_t heartbeat_s)
{
    static const char login[] = "\0guest\0guest";
    struct wire_out out;

    wire->from = wire->bytes = 0;
    wire->fd = connected(port);
    send_all(wire->fd, "AMQP\0\0\11\1", 8);
    expect(wire, CONNECTION_START);
    begin_method(&out, CONNECTION_START_OK);
    put_number(&out, 0, 4); /* no client properties */
    put_short(&out, "PLAIN");
    put_number(&out, sizeof login - 1, 4);
    put_bytes(&out, login, sizeof login - 1);
    put_short(&out, "en_US");
    call(wire, &out, CONNECTION_TUNE);
    begin_method(&out, CONNECTION_TUNE_OK);
    put_number(&out, 2047, 2);
    put_number(&out, FRAME_MAX, 4);
    put_number(&out, heartbeat_s, 2);
    send_frame(wire, &out);
    begin_method(&out, CONNECTION_OPEN);
    put_short(&out, "/");
    put_number(&out, 0, 2);
    call(wire, &out, CONNECTION_OPEN_OK);
    begin_method(&out, CHANNEL_OPEN);
    put_short(&out, "");
    call(wire, &out, CHANNEL_OPEN_OK);
}

static void close_wire(struct wire *wire)
{
    struct wire_out out;

    begin_method(&out, CONNECTION_CLOSE);
    put_number(&out, 200, 2);
    put_short(&out, "");
    put_number(&out, 0, 4);
    call(wire, &out, CONNECTION_CLOSE_OK);
    close(wire->fd);
}

/* ---- queues ---- */

/* NAME=VALUE: a number, if it is one. */
static void put_argument(struct wire_out *out, const char *argument)
{
    const char *value = strchr(argument, '=');
    char name[128], *end;
    long number;

    if (value == NULL || (size_t)(value - argument) >= sizeof name) {
        fail("%s is no NAME=VALUE", argument);
    }
    snprintf(name, sizeof name, "%.*s", (int)(value - argument), argument);
    put_short(out, name);
    number = strtol(++value, &end, 10);
    if (*value != '\0' && *end == '\0') {
        put_number(out, 'I', 1);
        put_number(out, (uint64_t)number, 4);
    } else {
        put_number(out, 'S', 1);
        put_number(out, strlen(value), 4);
        put_bytes(out, value, strlen(value));
    }
}

enum { DECLARE_PASSIVE = 1, DECLARE_DURABLE = 2 };

/* How many messages are in it.  argument: "" for none. */
static uint64_t declare(struct wire *wire, const char *queue, uint8_t flags, const char *argument)
{
    struct wire_out out;
    const uint8_t *answer;
    uint32_t table;

    begin_method(&out, QUEUE_DECLARE);
    put_number(&out, 0, 2);
    put_short(&out, queue);
    put_number(&out, flags, 1);
    table = out.bytes;
    put_number(&out, 0, 4);
    if (*argument != '\0') {
        put_argument(&out, argument);
    }
    set_number(out.data + table, out.bytes - table - 4, 4);
    answer = call(wire, &out, QUEUE_DECLARE_OK);
    return number_at(answer + 1 + answer[0], 4);
}

static uint64_t delete_queue(struct wire *wire, const char *queue)
{
    struct wire_out out;

    begin_method(&out, QUEUE_DELETE);
    put_number(&out, 0, 2);
    put_short(&out, queue);
    put_number(&out, 0, 1);
    return number_at(call(wire, &out, QUEUE_DELETE_OK), 4);
}

#endif
