/* What a channel's confirms wait for, seen between publishing and the commit: in memory nothing is
 * committed until somebody waits. */
#include "engine_fixture.h"
#include "qs_test_batch.h"

struct seen {
    char text[512]; /* "1-3 5-5 1-3>a 1-3amq.fanout>b" */
};

static void note(void *context, const qs_unconfirmed *info)
{
    struct seen *seen = context;
    size_t used = strlen(seen->text);

    QS_CHECK(0 < info->first_number && info->first_number <= info->last_number);
    snprintf(seen->text + used, sizeof seen->text - used, "%s%" PRIu64 "-%" PRIu64 "%.*s%s%.*s",
             used > 0 ? " " : "", info->first_number, info->last_number, (int)info->exchange.bytes,
             (const char *)info->exchange.data, info->has_queue ? ">" : "", (int)info->queue.bytes,
             (const char *)info->queue.data);
}

static void check_waits(struct engine *engine, const char *expected)
{
    struct seen seen = {""};

    QS_CHECK_OK(qs_channel_visit_unconfirmed(engine->channel, note, &seen, QS_ERROR));
    if (strcmp(seen.text, expected) != 0) {
        fprintf(stderr, "got '%s', expected '%s'\n", seen.text, expected);
        exit(1);
    }
}

static void start(struct engine *engine)
{
    static const char *const queues[] = {"a", "b", "c"};

    engine_start(engine, IN_MEMORY);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_test_declare_as(engine->channel, queues[i], i < 2 ? QS_DURABLE : 0, NONE));
        QS_CHECK_OK(qs_test_bind(engine->channel, queues[i], "amq.fanout", "", 0));
    }
}

QS_TEST_FIXTURE(run_started, struct engine, start(&fixture), engine_stop(&fixture))
#define QUEUES_TEST(name) QS_TEST_BY(run_started, name, (struct engine * engine))

static void send(struct engine *engine, const char *exchange, const char *key, qs_slice properties)
{
    QS_CHECK_OK(qs_test_publish(engine->channel, exchange, key, properties, text("x"), 0));
}

static void wait_for_all(struct engine *engine)
{
    bool nacked = true;

    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
}

QUEUES_TEST(test_numbers_and_queues_wait_until_the_commit)
{
    send(engine, "", "a", PERSISTENT);
    check_waits(engine, ""); /* no confirm mode: nothing has a number */
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    check_waits(engine, "");
    send(engine, "", "a", PERSISTENT);
    send(engine, "", "a", PERSISTENT);
    check_waits(engine, "1-1 2-2 1-2>a");
    send(engine, "amq.fanout", "", PERSISTENT); /* c is not durable */
    check_waits(engine, "1-1 2-2 3-3 1-2>a 3-3amq.fanout>a 3-3amq.fanout>b");
    wait_for_all(engine);
    check_waits(engine, "");
    send(engine, "", "b", PERSISTENT);
    check_waits(engine, "4-4 4-4>b");
}

QUEUES_TEST(test_what_needs_no_disk_is_not_waited_for)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    send(engine, "", "a", TRANSIENT);
    send(engine, "", "c", PERSISTENT);
    send(engine, "", "nowhere", PERSISTENT);
    check_waits(engine, "");
    send(engine, "", "b", PERSISTENT);
    check_waits(engine, "4-4 4-4>b");
}

QUEUES_TEST(test_a_batch_waits_for_each_of_its_queues)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_batch batch;

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    qs_test_batch_init(&rows);
    memcpy(qs_test_batch_add(&rows, "b", 1), "x", 1);
    memcpy(qs_test_batch_add(&rows, "a", 1), "y", 1);
    memcpy(qs_test_batch_add(&rows, "c", 1), "z", 1);
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    check_waits(engine, "1-3 1-3>b 1-3>a");
    wait_for_all(engine);
    check_waits(engine, "");
    qs_test_batch_fini(&rows);
}

QUEUES_TEST(test_a_deleted_queue_is_not_waited_for)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    send(engine, "amq.fanout", "", PERSISTENT);
    QS_CHECK_OK(qs_test_delete(engine->channel, "a", QS_NO_SYNC));
    check_waits(engine, "1-1 1-1amq.fanout>b");
}

/* ---- counters ---- */

struct counted {
    const char *exchange, *queue; /* NULL: any of another kind */
    uint64_t publish, confirm;
};

static void note_counts(void *context, const qs_counts *counts)
{
    enum route_count {
#define QS_ROUTE_COUNT(name, text) ROUTE_##name,
#include "qstore/counts.def"
        ROUTE_COUNTS
    };
    struct counted *counted = context;

    if (counts->of == QS_COUNTS_ROUTE && counts->exchange.bytes == strlen(counted->exchange) &&
        memcmp(counts->exchange.data, counted->exchange, counts->exchange.bytes) == 0 &&
        memcmp(counts->queue.data, counted->queue, 1) == 0) {
        QS_CHECK(counts->length == ROUTE_COUNTS);
        counted->publish = counts->values[ROUTE_publish];
        counted->confirm = counts->values[ROUTE_confirm];
    }
}

static void check_route(struct engine *engine, const char *exchange, const char *queue,
                        uint64_t publish, uint64_t confirm)
{
    struct counted counted = {exchange, queue, 0, 0};

    QS_CHECK_OK(qs_store_visit_counts(engine->store, note_counts, &counted));
    if (counted.publish != publish || counted.confirm != confirm) {
        fprintf(stderr, "'%s' to '%s': got %" PRIu64 " and %" PRIu64 "\n", exchange, queue,
                counted.publish, counted.confirm);
        exit(1);
    }
}

static void take_verdicts(struct engine *engine)
{
    qs_event event;

    while (qs_channel_next_event(engine->channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event,
                                 QS_ERROR) == QS_OK) {
        qs_message_release(&event.message);
    }
}

QUEUES_TEST(test_confirms_are_counted_by_exchange_and_queue_when_they_can_be_told)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    send(engine, "", "a", PERSISTENT);
    send(engine, "", "a", PERSISTENT);
    send(engine, "amq.fanout", "", PERSISTENT);
    check_route(engine, "", "a", 2, 0);
    wait_for_all(engine);
    check_route(engine, "", "a", 2, 2); /* it could be told */
    send(engine, "", "a", PERSISTENT);  /* it goes on as before, and waits */
    take_verdicts(engine);
    check_route(engine, "", "a", 3, 2);
    check_route(engine, "amq.fanout", "b", 1, 1);
    check_route(engine, "amq.fanout", "c", 1, 1);
    wait_for_all(engine);
    take_verdicts(engine);
    check_route(engine, "", "a", 3, 3);
    send(engine, "", "c", PERSISTENT); /* waits for nothing */
    check_route(engine, "", "c", 1, 1);
}

QUEUES_TEST(test_a_way_that_grows_while_it_is_told_of_is_counted_in_parts)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    for (uint64_t i = 1; i <= 20; i++) {
        send(engine, "", "a", PERSISTENT);
        wait_for_all(engine);
        send(engine, "", "a", PERSISTENT);
        take_verdicts(engine);
        check_route(engine, "", "a", 2 * i, 2 * i - 1);
        wait_for_all(engine);
        take_verdicts(engine);
    }
}

/* Ways leave to make room in the middle of a publish, and those of other exchanges among them. */
QUEUES_TEST(test_exchanges_in_turn_count_their_own_while_nobody_reads_confirms)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    for (int i = 0; i < 200; i++) {
        bool is_even = i % 2 == 0;
        send(engine, is_even ? "" : "amq.fanout", is_even ? "a" : "", PERSISTENT);
        wait_for_all(engine);
    }
    take_verdicts(engine);
    check_route(engine, "", "a", 100, 100);
    check_route(engine, "amq.fanout", "a", 100, 100);
    check_route(engine, "amq.fanout", "b", 100, 100);
}

QUEUES_TEST(test_turns_of_queues_take_no_memory_for_what_is_durable)
{
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    for (int i = 0; i < 500; i++) {
        send(engine, "", i % 2 == 0 ? "a" : "b", PERSISTENT);
        if (i % 5 == 4) {
            wait_for_all(engine);
            check_waits(engine, "");
        }
    }
    send(engine, "", "a", PERSISTENT);
    check_waits(engine, "501-501 501-501>a");
}
