/* A server of AMQP 0-9-1 under load, on loopback and as guest; the same frames whichever it is.
 *
 *   messages PORT ARGUMENT BYTES SECONDS WAITS
 *                 one connection and a durable queue, persistent bodies: so many times a message
 *                 and its confirm; messages with 1,000 unconfirmed at most, for so long; all of
 *                 these received, 200 unacknowledged at most, 50 for an ack.  ARGUMENT: NAME=VALUE
 *                 of the queue, or empty
 *   connections PORT SECONDS
 *                 4 threads: connect, log in, open a channel, close, and again
 *   declares PORT SECONDS
 *                 100 connections, each in a thread: a durable queue, and the next
 *   idle PORT COUNT SECONDS
 *                 so many connections, each with a channel, until standard input ends; heartbeats
 *                 of so many seconds
 *   heartbeats PORT EACH SECONDS
 *                 one connection with heartbeats of EACH seconds: how long each of the server's
 *                 took to come, for so long
 *
 * Each prints one line of JSON; idle when all of them are open. */
#define _GNU_SOURCE
#include "wire_client.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>

#define QUEUE "bench"
#define WINDOW 1000u
#define BURST 100u /* messages in one write */
#define PREFETCH 200u
#define ACK_EVERY 50u
#define BODIES_MOST (256u << 20) /* bytes of them, whatever the time */
#define OPENERS 4u
#define DECLARERS 100u
#define THREADS_MOST DECLARERS
#define LOOK_MS 20 /* how late a heartbeat of ours may be */

static struct wire *new_wire(void)
{
    struct wire *wire = malloc(sizeof *wire);

    if (wire == NULL) {
        fail("malloc: %m");
    }
    return wire;
}

/* ---- publishing ---- */

/* BURST copies of a message, as its frames. */
struct burst {
    uint8_t *data;
    size_t message_bytes;
};

/* What was published, by numbers from 1. */
struct confirms {
    uint64_t sent, all_until, count;
    bool is_confirmed[WINDOW]; /* by number modulo WINDOW: servers confirm out of order */
};

static void add_frame(struct burst *burst, const void *data, size_t bytes)
{
    memcpy(burst->data + burst->message_bytes, data, bytes);
    burst->message_bytes += bytes;
}

static void add_out(struct burst *burst, struct wire_out *out)
{
    end_frame(out);
    add_frame(burst, out->data, out->bytes);
}

static void make_burst(struct burst *burst, uint32_t body_bytes)
{
    static const uint8_t end = FRAME_END;
    struct wire_out out;
    uint8_t *body = malloc(body_bytes);

    burst->message_bytes = 0;
    burst->data = malloc(BURST * (body_bytes + sizeof out.data));
    if (body_bytes > FRAME_MAX - FRAME_OVERHEAD || burst->data == NULL || body == NULL) {
        fail("no room for bodies of %u bytes", body_bytes);
    }
    begin_method(&out, BASIC_PUBLISH);
    put_number(&out, 0, 2);
    put_short(&out, "");
    put_short(&out, QUEUE);
    put_number(&out, 0, 1);
    add_out(burst, &out);
    begin_frame(&out, FRAME_HEADER, CHANNEL);
    put_number(&out, 60, 2);
    put_number(&out, 0, 2);
    put_number(&out, body_bytes, 8);
    put_number(&out, 0x1000, 2); /* a delivery mode alone: persistent */
    put_number(&out, 2, 1);
    add_out(burst, &out);
    begin_frame(&out, FRAME_BODY, CHANNEL);
    set_number(out.data + 3, body_bytes, 4);
    add_frame(burst, out.data, out.bytes);
    memset(body, 'x', body_bytes);
    add_frame(burst, body, body_bytes);
    add_frame(burst, &end, 1);
    free(body);
    for (size_t i = 1; i < BURST; i++) {
        memcpy(burst->data + i * burst->message_bytes, burst->data, burst->message_bytes);
    }
}

static void confirm(struct confirms *confirms, uint64_t number, bool multiple)
{
    uint64_t first = multiple ? confirms->all_until + 1 : number;

    if (number > confirms->sent || (number <= confirms->all_until && !multiple)) {
        fail("a confirm of %" PRIu64 " came: %" PRIu64 " to %" PRIu64 " wait", number,
             confirms->all_until + 1, confirms->sent);
    }
    for (uint64_t i = first; i <= number; i++) {
        confirms->is_confirmed[i % WINDOW] = true;
    }
    while (confirms->all_until < confirms->sent &&
           confirms->is_confirmed[(confirms->all_until + 1) % WINDOW]) {
        confirms->is_confirmed[++confirms->all_until % WINDOW] = false;
    }
}

/* Waits for some. */
static void take_confirms(struct wire *wire, struct confirms *confirms)
{
    struct wire_frame frame = next_frame(wire);

    do {
        if (frame.type == FRAME_HEARTBEAT) {
            continue;
        }
        if (method_of(frame) != BASIC_ACK) {
            fail("no confirm but %u.%u came", method_of(frame) >> 16, method_of(frame) & 0xffffu);
        }
        confirm(confirms, number_at(frame.payload + 4, 8), frame.payload[12] != 0);
    } while (take_frame(wire, &frame));
}

static void send_messages(struct wire *wire, struct confirms *confirms, const struct burst *burst,
                          uint32_t count)
{
    send_all(wire->fd, burst->data, burst->message_bytes * count);
    confirms->sent += count;
}

static void print_waits(struct wire *wire, struct confirms *confirms, const struct burst *burst,
                        uint32_t waits)
{
    printf("\"waits_us\": [");
    for (uint32_t i = 0; i < waits; i++) {
        double began = now();
        send_messages(wire, confirms, burst, 1);
        while (confirms->all_until < confirms->sent) {
            take_confirms(wire, confirms);
        }
        printf("%s%.1f", i == 0 ? "" : ", ", (now() - began) * 1e6);
    }
    printf("]");
}

static uint64_t publish(struct wire *wire, struct confirms *confirms, const struct burst *burst,
                        uint64_t most, double seconds)
{
    uint64_t before = confirms->sent;
    double end = now() + seconds;

    do {
        while (confirms->sent - confirms->all_until + BURST <= WINDOW && now() < end &&
               confirms->sent - before < most) {
            send_messages(wire, confirms, burst, BURST);
        }
        if (confirms->all_until < confirms->sent) {
            take_confirms(wire, confirms);
        }
    } while (confirms->all_until < confirms->sent ||
             (now() < end && confirms->sent - before < most));
    return confirms->sent - before;
}

/* ---- receiving ---- */

static void begin_consuming(struct wire *wire)
{
    struct wire_out out;

    begin_method(&out, BASIC_QOS);
    put_number(&out, 0, 4);
    put_number(&out, PREFETCH, 2);
    put_number(&out, 0, 1);
    call(wire, &out, BASIC_QOS_OK);
    begin_method(&out, BASIC_CONSUME);
    put_number(&out, 0, 2);
    put_short(&out, QUEUE);
    put_short(&out, "c");
    put_number(&out, 0, 1);
    put_number(&out, 0, 4);
    call(wire, &out, BASIC_CONSUME_OK);
}

static void acknowledge(struct wire *wire, uint64_t tag)
{
    struct wire_out out;

    begin_method(&out, BASIC_ACK);
    put_number(&out, tag, 8);
    put_number(&out, 1, 1);
    send_frame(wire, &out);
}

/* The tag of a delivery whose content has come, too. */
static uint64_t next_delivery(struct wire *wire, uint32_t body_bytes)
{
    const uint8_t *delivery = expect(wire, BASIC_DELIVER);
    uint64_t tag = number_at(delivery + 1 + delivery[0], 8), left;
    struct wire_frame frame = next_frame(wire);

    left = number_at(frame.payload + 4, 8);
    if (frame.type != FRAME_HEADER || left != body_bytes) {
        fail("a delivery without its header, or of %" PRIu64 " bytes, came", left);
    }
    while (left > 0) {
        frame = next_frame(wire);
        if (frame.type != FRAME_BODY || frame.bytes > left) {
            fail("a delivery without its body came");
        }
        left -= frame.bytes;
    }
    return tag;
}

/* All that there is, until the server has taken the last acknowledgement. */
static void consume(struct wire *wire, uint64_t count, uint32_t body_bytes)
{
    begin_consuming(wire);
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t tag = next_delivery(wire, body_bytes);
        if (i % ACK_EVERY == 0 || i == count) {
            acknowledge(wire, tag);
        }
    }
    if (declare(wire, QUEUE, DECLARE_PASSIVE, "") != 0) {
        fail("more messages came than were published");
    }
}

static void run_messages(uint16_t port, const char *argument, uint32_t body_bytes, double seconds,
                         uint32_t waits)
{
    struct wire *wire = new_wire();
    struct confirms confirms = {0};
    struct wire_out out;
    struct burst burst;
    double began, published, consumed;
    uint64_t count;

    open_wire(wire, port, 0);
    make_burst(&burst, body_bytes);
    if (declare(wire, QUEUE, DECLARE_DURABLE, argument) != 0) {
        fail("the queue is not empty");
    }
    begin_method(&out, CONFIRM_SELECT);
    put_number(&out, 0, 1);
    call(wire, &out, CONFIRM_SELECT_OK);
    printf("{");
    print_waits(wire, &confirms, &burst, waits);
    began = now();
    count = publish(wire, &confirms, &burst, BODIES_MOST / (body_bytes + 1), seconds);
    published = now() - began;
    began = now();
    consume(wire, waits + count, body_bytes);
    consumed = now() - began;
    printf(", \"published\": %" PRIu64 ", \"publish_seconds\": %.6f, \"consume_seconds\": %.6f}\n",
           count, published, consumed);
    delete_queue(wire, QUEUE);
    close_wire(wire);
    free(burst.data);
    free(wire);
}

/* ---- many connections ---- */

struct crowd {
    uint16_t port, heartbeat_s;
    double seconds;
    uint32_t connections; /* of idle, all together */
    int *fds;
    pthread_barrier_t ready;
};

struct member {
    struct crowd *crowd;
    pthread_t thread;
    uint32_t number;
    uint64_t count;
    double seconds;
};

static void *open_again(void *argument)
{
    struct member *member = argument;
    struct wire *wire = new_wire();
    double began;

    pthread_barrier_wait(&member->crowd->ready);
    began = now();
    do {
        open_wire(wire, member->crowd->port, 0);
        close_wire(wire);
        member->count++;
    } while (now() - began < member->crowd->seconds);
    member->seconds = now() - began;
    free(wire);
    return NULL;
}

static void name_queue(char name_out[32], uint32_t member, uint64_t number)
{
    snprintf(name_out, 32, QUEUE ".%u.%" PRIu64, member, number);
}

static void *declare_again(void *argument)
{
    struct member *member = argument;
    struct wire *wire = new_wire();
    double began;
    char name[32];

    open_wire(wire, member->crowd->port, 0);
    pthread_barrier_wait(&member->crowd->ready);
    began = now();
    do {
        name_queue(name, member->number, member->count++);
        declare(wire, name, DECLARE_DURABLE, "");
    } while (now() - began < member->crowd->seconds);
    member->seconds = now() - began;
    pthread_barrier_wait(&member->crowd->ready); /* what is deleted burdens no declaration */
    for (uint64_t i = 0; i < member->count; i++) {
        name_queue(name, member->number, i);
        delete_queue(wire, name);
    }
    close_wire(wire);
    free(wire);
    return NULL;
}

static void *open_share(void *argument)
{
    struct member *member = argument;
    struct crowd *crowd = member->crowd;
    struct wire *wire = new_wire();
    double began;

    pthread_barrier_wait(&crowd->ready);
    began = now();
    for (uint32_t i = member->number; i < crowd->connections; i += OPENERS) {
        open_wire(wire, crowd->port, crowd->heartbeat_s);
        crowd->fds[i] = wire->fd;
        member->count++;
    }
    member->seconds = now() - began;
    free(wire);
    return NULL;
}

/* How many all of them did, and the seconds of the slowest. */
static void run_crowd(struct crowd *crowd, uint32_t threads, void *(*run)(void *))
{
    static struct member members[THREADS_MOST];
    uint64_t count = 0;
    double seconds = 0;

    pthread_barrier_init(&crowd->ready, NULL, threads);
    for (uint32_t i = 0; i < threads; i++) {
        members[i] = (struct member){.crowd = crowd, .number = i};
        if (pthread_create(&members[i].thread, NULL, run, &members[i]) != 0) {
            fail("pthread_create failed");
        }
    }
    for (uint32_t i = 0; i < threads; i++) {
        pthread_join(members[i].thread, NULL);
        count += members[i].count;
        seconds = members[i].seconds > seconds ? members[i].seconds : seconds;
    }
    pthread_barrier_destroy(&crowd->ready);
    printf("{\"count\": %" PRIu64 ", \"seconds\": %.6f}\n", count, seconds);
    fflush(stdout);
}

static void run_idle(struct crowd *crowd)
{
    static const uint8_t beat[] = {FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END};
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    char ignored[64];

    crowd->fds = calloc(crowd->connections, sizeof *crowd->fds);
    if (crowd->fds == NULL) {
        fail("calloc: %m");
    }
    run_crowd(crowd, OPENERS, open_share);
    while (poll(&input, 1, crowd->heartbeat_s * 1000 / 2) == 0 ||
           read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
        for (uint32_t i = 0; i < crowd->connections; i++) {
            send_all(crowd->fds[i], beat, sizeof beat);
        }
    }
    free(crowd->fds); /* the sockets end with the process */
}

/* Ours come in time, and nothing else is said: what the server sends is heartbeats. */
static void run_heartbeats(uint16_t port, uint16_t heartbeat_s, double seconds)
{
    static const uint8_t beat[] = {FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END};
    struct wire *wire = new_wire();
    const char *comma = "";
    double begin, last, sent;

    open_wire(wire, port, heartbeat_s);
    begin = last = sent = now();
    printf("{\"gaps_s\": [");
    while (now() < begin + seconds) {
        struct pollfd input = {.fd = wire->fd, .events = POLLIN};
        struct wire_frame frame;
        if (now() >= sent + heartbeat_s / 2.0) {
            send_all(wire->fd, beat, sizeof beat);
            sent = now();
        }
        if (poll(&input, 1, LOOK_MS) == 1) {
            receive_more(wire);
        }
        while (take_frame(wire, &frame)) {
            if (frame.type != FRAME_HEARTBEAT) {
                fail("a frame of type %u came, where heartbeats were to come", frame.type);
            }
            printf("%s%.4f", comma, now() - last);
            last = now();
            comma = ", ";
        }
    }
    printf("], \"since_the_last_s\": %.4f}\n", now() - last);
    close_wire(wire);
    free(wire);
}

int main(int argc, char **argv)
{
    const char *load = argc > 2 ? argv[1] : "";
    struct crowd crowd = {.port = argc > 2 ? (uint16_t)atoi(argv[2]) : 0,
                          .seconds = argc > 3 ? atof(argv[3]) : 0};

    if (strcmp(load, "messages") == 0 && argc == 7) {
        run_messages(crowd.port, argv[3], (uint32_t)atoi(argv[4]), atof(argv[5]),
                     (uint32_t)atoi(argv[6]));
    } else if (strcmp(load, "connections") == 0 && argc == 4) {
        run_crowd(&crowd, OPENERS, open_again);
    } else if (strcmp(load, "declares") == 0 && argc == 4) {
        run_crowd(&crowd, DECLARERS, declare_again);
    } else if (strcmp(load, "idle") == 0 && argc == 5) {
        crowd.connections = (uint32_t)atoi(argv[3]);
        crowd.heartbeat_s = (uint16_t)atoi(argv[4]);
        run_idle(&crowd);
    } else if (strcmp(load, "heartbeats") == 0 && argc == 5) {
        run_heartbeats(crowd.port, (uint16_t)atoi(argv[3]), atof(argv[4]));
    } else {
        fail("usage: bench_wire messages PORT ARGUMENT BYTES SECONDS WAITS\n"
             "       bench_wire connections|declares PORT SECONDS\n"
             "       bench_wire idle PORT COUNT SECONDS\n"
             "       bench_wire heartbeats PORT EACH SECONDS");
    }
    return 0;
}
