/* The load of bench_wire.c without a wire: the engine in this process, one message at a time.
 *
 * In a new store, whose journal files have grown to their full size before the clock runs: so many
 * times a message and its confirm; messages one after the other for so long, confirmed at
 * the end; all of them received, 200 unacknowledged at most, 50 for an ack.
 *
 * usage: bench_embedded DIR BYTES SECONDS WAITS; prints one line of JSON. */
#define _GNU_SOURCE
#include "qstore/qstore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PREFETCH 200u
#define ACK_EVERY 50u
#define BODIES_MOST (256u << 20)
#define WARM_MESSAGES 11000u
#define WARM_BYTES 2000u
#define QUIET_US 300000u /* the next journal file is made behind the scenes */
#define LOOK_EVERY 100u  /* messages for a look at the clock */

static const qs_slice no_name = {"", 0}, queue_name = {"bench", 5};
static const qs_slice persistent = {"\x10\x00\x02", 3};

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void check(qs_status status, const qs_error *error, const char *what)
{
    if (status != QS_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, qs_status_name(status), error->text);
        exit(1);
    }
}

static void publish(qs_channel *channel, qs_slice body)
{
    qs_error error = {0};
    qs_receipt receipt;

    check(
        qs_channel_publish(channel, no_name, queue_name, persistent, body, 0, 0, &receipt, &error),
        &error, "publish");
}

static void wait_all(qs_channel *channel)
{
    qs_error error = {0};
    bool nacked = false;

    check(qs_channel_wait_confirms(channel, QS_FOREVER, &nacked, &error), &error, "wait");
}

static void warm_up(qs_channel *channel)
{
    static const char bytes[WARM_BYTES];
    qs_error error = {0};
    uint64_t purged;

    for (uint32_t i = 0; i < WARM_MESSAGES; i++) {
        publish(channel, (qs_slice){bytes, sizeof bytes});
    }
    wait_all(channel);
    check(qs_channel_queue_purge(channel, queue_name, 0, &purged, &error), &error, "purge");
    usleep(QUIET_US);
}

static void print_waits(qs_channel *channel, qs_slice body, uint32_t waits)
{
    printf("\"waits_us\": [");
    for (uint32_t i = 0; i < waits; i++) {
        double began = now();
        publish(channel, body);
        wait_all(channel);
        printf("%s%.1f", i == 0 ? "" : ", ", (now() - began) * 1e6);
    }
    printf("]");
}

static uint64_t publish_all(qs_channel *channel, qs_slice body, double seconds)
{
    uint64_t most = BODIES_MOST / (body.bytes + 1), count = 0;
    double end = now() + seconds;

    do {
        for (uint32_t i = 0; i < LOOK_EVERY; i++) {
            publish(channel, body);
        }
        count += LOOK_EVERY;
    } while (count < most && now() < end);
    wait_all(channel);
    return count;
}

static void consume_all(qs_channel *channel, uint64_t count)
{
    qs_error error = {0};
    char tag[256];

    check(qs_channel_qos(channel, PREFETCH, 0, 0, &error), &error, "qos");
    check(qs_channel_consume(channel, queue_name, no_name, 0, no_name, tag, &error), &error,
          "consume");
    for (uint64_t i = 1; i <= count; i++) {
        qs_event event;
        check(qs_channel_next_event(channel, QS_EVENT_DELIVERY, QS_FOREVER, &event, &error), &error,
              "next event");
        if (i % ACK_EVERY == 0 || i == count) {
            check(qs_channel_ack(channel, event.message.delivery_tag, QS_MULTIPLE, &error), &error,
                  "ack");
        }
        qs_message_release(&event.message);
    }
}

int main(int argc, char **argv)
{
    qs_error error = {0};
    qs_store *store;
    qs_channel *channel;
    qs_declare_ok ok;
    double began, published, consumed;
    uint64_t count;
    uint32_t waits;
    qs_slice body;

    if (argc != 5) {
        fprintf(stderr, "usage: bench_embedded DIR BYTES SECONDS WAITS\n");
        return 1;
    }
    body = (qs_slice){calloc(1, (size_t)atoi(argv[2]) + 1), (size_t)atoi(argv[2])};
    waits = (uint32_t)atoi(argv[4]);
    check(qs_store_open(&store, argv[1], NULL, NULL, &error), &error, "open");
    check(qs_channel_open(&channel, store, &error), &error, "channel");
    check(qs_channel_queue_declare(channel, queue_name, QS_DURABLE, no_name, &ok, &error), &error,
          "declare");
    check(qs_channel_confirm_select(channel, &error), &error, "confirm");
    warm_up(channel);
    printf("{");
    print_waits(channel, body, waits);
    began = now();
    count = publish_all(channel, body, atof(argv[3]));
    published = now() - began;
    began = now();
    consume_all(channel, waits + count);
    consumed = now() - began;
    printf(", \"published\": %" PRIu64 ", \"publish_seconds\": %.6f, \"consume_seconds\": %.6f}\n",
           count, published, consumed);
    qs_channel_close(channel);
    check(qs_store_close(store, &error), &error, "close");
    free((void *)(uintptr_t)body.data);
    return 0;
}
