/* Traces: each step of messages on their way, for who looks on. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_batch.h"

#include <stdarg.h>

static const char *const step_names[] = {"?",       "publish", "route",   "enqueue",
                                         "record",  "sync",    "confirm", "return",
                                         "deliver", "ack",     "nack"};

struct told {
    char text[2048]; /* "publish:e/k route:e/k>a,b"; *N: count, #N: number */
};

static void add(struct told *told, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(struct told *told, const char *format, ...)
{
    size_t used = strlen(told->text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(told->text + used, sizeof told->text - used, format, arguments);
    va_end(arguments);
    QS_CHECK(strlen(told->text) < sizeof told->text - 1);
}

static void add_event(struct told *told, const qs_trace_event *event)
{
    const uint8_t *names = event->queues.data, *end = names + event->queues.bytes;

    QS_CHECK(QS_TRACE_PUBLISH <= event->step && event->step <= QS_TRACE_NACK);
    QS_CHECK((event->lsn != 0) >= (event->step == QS_TRACE_RECORD));
    add(told, "%s%s:%.*s/%.*s", told->text[0] != '\0' ? " " : "", step_names[event->step],
        (int)event->exchange.bytes, (const char *)event->exchange.data,
        (int)event->routing_key.bytes, (const char *)event->routing_key.data);
    for (const char *comma = ">"; names < end; names += 1 + *names, comma = ",") {
        add(told, "%s%.*s", comma, *names, (const char *)names + 1);
    }
    if (event->number > 0) {
        add(told, "#%" PRIu64, event->number);
    }
    if (event->count != 1) {
        add(told, "*%" PRIu64, event->count);
    }
}

static void check_told(qs_trace *trace, const char *expected)
{
    struct told told = {""};
    uint64_t before_us = 0;
    qs_trace_event event;

    while (qs_trace_next(trace, 0, &event, QS_ERROR) == QS_OK) {
        QS_CHECK(event.time_us >= before_us && event.channel > 0);
        before_us = event.time_us;
        add_event(&told, &event);
    }
    if (strcmp(told.text, expected) != 0) {
        fprintf(stderr, "got '%s'\nexpected '%s'\n", told.text, expected);
        exit(1);
    }
}

static qs_trace *trace_of(struct engine *engine, const char *exchange, const char *queue)
{
    qs_slice exchange_name = text(exchange != NULL ? exchange : "");
    qs_slice queue_name = text(queue != NULL ? queue : "");
    qs_trace *trace;

    QS_CHECK_OK(qs_trace_open(&trace, engine->store, exchange != NULL ? &exchange_name : NULL,
                              queue != NULL ? &queue_name : NULL, 0, QS_ERROR));
    return trace;
}

static void start(struct engine *engine)
{
    engine_start(engine, IN_MEMORY);
    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    bind_queue(engine, "a", "amq.topic", "#");
    bind_queue(engine, "b", "amq.topic", "k");
}

QS_TEST_FIXTURE(run_started, struct engine, start(&fixture), engine_stop(&fixture))
#define TRACE_TEST(name) QS_TEST_BY(run_started, name, (struct engine * engine))

static void sync_all(struct engine *engine)
{
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

TRACE_TEST(test_each_step_of_a_message_is_told_in_order)
{
    qs_trace *trace;
    qs_message message;

    publish(engine, "a", "before");
    trace = trace_of(engine, NULL, NULL);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish_to(engine, "amq.topic", "k", PERSISTENT, text("1"));
    check_told(trace, "publish:amq.topic/k#1 route:amq.topic/k>a,b#1 enqueue:amq.topic/k>a,b#1 "
                      "record:amq.topic/k>a,b#1");
    sync_all(engine);
    check_told(trace, "sync:amq.topic/k>a,b#1");
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "confirm:amq.topic/k>a,b#1");
    message = get(engine, "b", "1");
    check_told(trace, "deliver:amq.topic/k>b#1");
    ack(engine, message.delivery_tag, 0);
    check_told(trace, "ack:/>b#1");
    message = get(engine, "a", "before");
    QS_CHECK_OK(qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    check_told(trace, "deliver:/a>a#2 nack:/>a#2");
    QS_CHECK(qs_trace_dropped(trace) == 0);
    qs_trace_close(trace);
    publish(engine, "a", "nobody looks");
}

TRACE_TEST(test_what_waits_for_no_disk_is_confirmed_without_a_record)
{
    qs_trace *trace = trace_of(engine, NULL, NULL);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish_to(engine, "", "a", TRANSIENT, text("1"));
    QS_CHECK_OK(
        qs_test_publish(engine->channel, "", "nowhere", PERSISTENT, text("2"), QS_MANDATORY));
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "publish:/a#1 route:/a>a#1 enqueue:/a>a#1 publish:/nowhere#2 "
                      "route:/nowhere#2 return:/nowhere#2 confirm:/a>a#1 confirm:/nowhere#2");
    qs_trace_close(trace);
}

/* Of two messages the later one is acknowledged before their sync. */
TRACE_TEST(test_a_confirm_ahead_of_the_disk_is_told_once)
{
    qs_trace *trace;
    qs_event event;

    QS_CHECK_OK(qs_test_consume(engine->channel, "a", "a", 0, NONE));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    trace = trace_of(engine, "", NULL);
    publish(engine, "b", "1");
    publish(engine, "a", "2");
    event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
    qs_message_release(&event.message);
    ack(engine, event.message.delivery_tag, 0);
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "publish:/b#1 route:/b>b#1 enqueue:/b>b#1 record:/b>b#1 publish:/a#2 "
                      "route:/a>a#2 enqueue:/a>a#2 record:/a>a#2 deliver:/a>a#1 confirm:/a>a#2");
    sync_all(engine);
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "sync:/b>b#1 sync:/a>a#2 confirm:/b>b#1");
    qs_trace_close(trace);
}

TRACE_TEST(test_a_transaction_is_recorded_with_its_commit)
{
    qs_trace *trace;
    qs_message message;

    publish(engine, "b", "taken");
    trace = trace_of(engine, NULL, NULL);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    publish(engine, "a", "1");
    publish(engine, "a", "2");
    publish_to(engine, "amq.topic", "k", PERSISTENT, text("3"));
    message = get(engine, "b", "taken");
    ack(engine, message.delivery_tag, 0);
    check_told(trace, "publish:/a route:/a>a publish:/a route:/a>a publish:amq.topic/k "
                      "route:amq.topic/k>a,b deliver:/b>b#1");
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    check_told(trace, "ack:/>b#1 enqueue:/>a*2 record:/>a*2 enqueue:amq.topic/>a,b "
                      "record:amq.topic/>a,b sync:/>a*2 sync:amq.topic/>a,b");
    publish(engine, "a", "4");
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    check_told(trace, "publish:/a route:/a>a");
    qs_trace_close(trace);
}

TRACE_TEST(test_rows_of_a_batch_that_go_the_same_way_are_one_event)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_batch batch;
    qs_trace *trace = trace_of(engine, NULL, NULL);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    qs_test_batch_init(&rows);
    memcpy(qs_test_batch_add(&rows, "b", 1), "x", 1);
    memcpy(qs_test_batch_add(&rows, "a", 1), "y", 1);
    memcpy(qs_test_batch_add(&rows, "a", 1), "z", 1);
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    check_told(trace, "publish:/#1 route:/>b#1 enqueue:/>b#1 record:/>b#1 "
                      "publish:/#1*2 route:/>a#1*2 enqueue:/>a#1*2 record:/>a#1*2");
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "sync:/>b#1 sync:/>a#1*2 confirm:/>b#1 confirm:/>a#1*2");
    qs_test_batch_fini(&rows);
    qs_trace_close(trace);
}

TRACE_TEST(test_a_refusal_names_its_number_and_the_others_keep_the_message)
{
    struct qs_test_fields arguments = {0};
    qs_event nack;
    qs_trace *trace;

    qs_test_put_long(&arguments, "x-max-length", 1);
    qs_test_put_text(&arguments, "x-overflow", "reject-publish");
    qs_test_declare(engine->channel, "full", QS_DURABLE, &arguments);
    bind_queue(engine, "full", "amq.topic", "k");
    publish(engine, "full", "0");
    trace = trace_of(engine, NULL, NULL);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish_to(engine, "amq.topic", "k", PERSISTENT, text("1"));
    sync_all(engine);
    nack = expect_event(engine, QS_EVENT_ACK, QS_EVENT_NACK);
    qs_message_release(&nack.message);
    check_told(trace, "publish:amq.topic/k#1 route:amq.topic/k>a,b,full#1 "
                      "enqueue:amq.topic/k>a,b#1 record:amq.topic/k>a,b#1 "
                      "sync:amq.topic/k>a,b#1 nack:amq.topic/k>a,b,full#1");
    qs_trace_close(trace);
}

/* A queue that takes one message. */
static void declare_narrow(struct engine *engine, const char *queue)
{
    struct qs_test_fields arguments = {0};

    qs_test_put_long(&arguments, "x-max-length", 1);
    qs_test_put_text(&arguments, "x-overflow", "reject-publish");
    qs_test_declare(engine->channel, queue, QS_DURABLE, &arguments);
}

TRACE_TEST(test_a_confirm_that_overtakes_says_nothing_of_those_before)
{
    qs_trace *trace = trace_of(engine, NULL, NULL);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish(engine, "a", "1");
    publish_to(engine, "", "b", TRANSIENT, text("2"));
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "publish:/a#1 route:/a>a#1 enqueue:/a>a#1 record:/a>a#1 publish:/b#2 "
                      "route:/b>b#2 enqueue:/b>b#2 confirm:/b>b#2");
    sync_all(engine);
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "sync:/a>a#1 confirm:/a>a#1");
    qs_trace_close(trace);
}

TRACE_TEST(test_a_refusal_is_told_at_once_where_nobody_hears_of_it)
{
    qs_trace *trace;

    declare_narrow(engine, "narrow");
    publish(engine, "narrow", "0");
    trace = trace_of(engine, NULL, NULL);
    publish(engine, "narrow", "1");
    check_told(trace, "publish:/narrow route:/narrow>narrow nack:/narrow>narrow");
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish(engine, "a", "2");
    expect_event(engine, QS_EVENT_ACK, QS_EVENT_ACK);
    check_told(trace, "publish:/a#1 route:/a>a#1 enqueue:/a>a#1 record:/a>a#1 sync:/a>a#1 "
                      "confirm:/a>a#1");
    qs_trace_close(trace);
}

TRACE_TEST(test_rows_that_are_refused_are_not_confirmed_with_the_others)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_trace *trace;
    qs_batch batch;

    declare_narrow(engine, "narrow");
    trace = trace_of(engine, NULL, NULL);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    qs_test_batch_init(&rows);
    for (int i = 0; i < 3; i++) {
        memcpy(qs_test_batch_add(&rows, "narrow", 1), "x", 1);
    }
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    sync_all(engine);
    for (int i = 0; i < 3; i++) {
        qs_event event = expect_event(engine, QS_EVENT_ACK, i < 2 ? QS_EVENT_NACK : QS_EVENT_ACK);
        qs_message_release(&event.message);
    }
    check_told(trace, "publish:/#1*3 route:/>narrow#1*3 enqueue:/>narrow#1*3 record:/>narrow#1*3 "
                      "sync:/>narrow#1*3 nack:/>narrow#2 nack:/>narrow#3 confirm:/>narrow#1");
    qs_test_batch_fini(&rows);
    qs_trace_close(trace);
}

/* Its publisher never asks: the steps that are read go on to come, all of them. */
TRACE_TEST(test_confirms_that_nobody_asks_for_leave_room_for_the_rest)
{
    qs_trace_event event;
    uint64_t read = 0, published = 0;
    qs_trace *trace = trace_of(engine, NULL, NULL);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    while (qs_trace_dropped(trace) < 1000) {
        publish_to(engine, "", "a", TRANSIENT, text("x"));
        published += 1;
        while (qs_trace_next(trace, 0, &event, QS_ERROR) == QS_OK) {
            read += 1;
        }
    }
    QS_CHECK(read == 3 * published);
    qs_trace_close(trace);
}

QS_TEST(test_all_that_a_failed_store_refuses_is_told)
{
    struct engine engine;
    qs_trace *trace;
    qs_env *faulty;

    engine_init(&engine, IN_MEMORY);
    faulty = engine_put_fault(&engine);
    engine_open(&engine);
    declare(&engine, "a", QS_DURABLE);
    trace = trace_of(&engine, NULL, NULL);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    publish(&engine, "a", "1");
    publish(&engine, "a", "2");
    qsi_env_fault_arm(faulty, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_sync(engine.store, NULL));
    expect_event(&engine, QS_EVENT_ACK, QS_EVENT_NACK);
    check_told(trace, "publish:/a#1 route:/a>a#1 enqueue:/a>a#1 record:/a>a#1 publish:/a#2 "
                      "route:/a>a#2 enqueue:/a>a#2 record:/a>a#2 nack:/a>a#1 nack:/a>a#2");
    qs_trace_close(trace);
    qs_channel_close(engine.channel);
    (void)qs_store_close(engine.store, NULL);
    engine_fini(&engine);
}

TRACE_TEST(test_a_trace_of_an_exchange_or_a_queue_tells_of_nothing_else)
{
    qs_trace *of_exchange, *of_queue;
    char name[300];
    qs_slice long_name = {name, sizeof name};
    qs_trace *none;

    of_exchange = trace_of(engine, "amq.topic", NULL);
    of_queue = trace_of(engine, NULL, "b");
    publish(engine, "a", "1");
    publish_to(engine, "amq.topic", "other", PERSISTENT, text("2"));
    get(engine, "a", "1");
    check_told(of_exchange, "publish:amq.topic/other route:amq.topic/other>a "
                            "enqueue:amq.topic/other>a record:amq.topic/other>a");
    check_told(of_queue, "");
    sync_all(engine);
    publish_to(engine, "", "b", TRANSIENT, text("3"));
    check_told(of_exchange, "sync:amq.topic/other>a");
    check_told(of_queue, "publish:/b route:/b>b enqueue:/b>b");
    memset(name, 'n', sizeof name);
    QS_CHECK_STATUS(QS_EINVAL, qs_trace_open(&none, engine->store, &long_name, NULL, 0, QS_ERROR));
    QS_CHECK(none == NULL);
    qs_trace_close(of_exchange);
    qs_trace_close(of_queue);
    qs_trace_close(NULL);
}

TRACE_TEST(test_what_is_not_read_is_bounded_and_what_was_dropped_is_counted)
{
    qs_trace_event event;
    uint64_t read = 0;
    qs_trace *trace = trace_of(engine, NULL, NULL);

    while (qs_trace_dropped(trace) == 0) {
        publish_to(engine, "", "a", TRANSIENT, text("x"));
    }
    QS_CHECK_OK(qs_trace_next(trace, 0, &event, QS_ERROR));
    QS_CHECK(event.step == QS_TRACE_PUBLISH); /* the oldest are kept */
    for (read = 1; qs_trace_next(trace, 0, &event, QS_ERROR) == QS_OK; read++) {
    }
    QS_CHECK(10000 < read && read < 200000);
    publish_to(engine, "", "a", TRANSIENT, text("x"));
    check_told(trace, "publish:/a route:/a>a enqueue:/a>a");
    qs_trace_close(trace);
}

TRACE_TEST(test_a_closed_channel_leaves_no_confirm_to_wait_for)
{
    qs_trace *trace = trace_of(engine, NULL, NULL);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish(engine, "a", "1");
    engine_new_channel(engine);
    sync_all(engine);
    check_told(trace, "publish:/a#1 route:/a>a#1 enqueue:/a>a#1 record:/a>a#1 sync:/a>a#1");
    qs_trace_close(trace);
}

QS_TEST(test_a_trace_outlives_its_store)
{
    struct engine engine;
    qs_trace *trace;
    qs_trace_event event;

    start(&engine);
    trace = trace_of(&engine, NULL, NULL);
    publish_to(&engine, "", "a", TRANSIENT, text("x"));
    engine_close(&engine);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_trace_next(trace, 0, &event, QS_ERROR));
    }
    QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_trace_next(trace, QS_FOREVER, &event, QS_ERROR));
    qs_trace_close(trace);
    engine_fini(&engine);
}

/* Whatever memory is missing, the message is published, and a step that is not told is counted. */
QS_TEST(test_without_memory_a_step_counts_as_dropped)
{
    static struct qs_test_alloc memory;
    bool failed = true;

    qs_test_alloc_install(&memory);
    for (uint64_t number = 1; failed; number++) {
        struct engine engine;
        qs_trace *trace;
        qs_trace_event event;
        qs_receipt receipt;
        qs_status status;
        uint64_t told = 0;

        start(&engine);
        trace = trace_of(&engine, NULL, NULL);
        qs_test_alloc_arm(&memory, number, false);
        status = qs_channel_publish(engine.channel, text(""), text("a"), TRANSIENT, text("x"), 0, 0,
                                    &receipt, NULL);
        failed = memory.has_failed;
        qs_test_alloc_arm(&memory, 0, false);
        while (qs_trace_next(trace, 0, &event, QS_ERROR) == QS_OK) {
            told += 1;
        }
        QS_CHECK(status == QS_ENOMEM ? told == 0 : told + qs_trace_dropped(trace) == 3);
        qs_trace_close(trace);
        engine_stop(&engine);
    }
    qs_test_alloc_end(&memory);
}
