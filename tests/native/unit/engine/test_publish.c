/* Publishing one message: where it goes, what it costs, and how the publisher learns of it. */
#include "engine_fixture.h"

#define CONFIRMS (QS_EVENT_RETURN | QS_EVENT_ACK | QS_EVENT_NACK)

static qs_status try_publish(struct engine *engine, const char *exchange, const char *key,
                             qs_slice body, uint32_t flags, qs_receipt *receipt)
{
    return qs_channel_publish(engine->channel, text(exchange), text(key), PERSISTENT, body, flags,
                              0, receipt, QS_ERROR);
}

ENGINE_TEST(test_default_exchange_leads_to_the_queue_of_that_name)
{
    qs_receipt receipt;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    receipt = publish(engine, "q", "hello");
    QS_CHECK(receipt.first_number == 0 && receipt.last_number == 0 && receipt.lsn > 0);
    QS_CHECK_OK(qs_store_wait_durable(engine->store, receipt.lsn, QS_FOREVER, QS_ERROR));
    QS_CHECK(qs_store_durable_lsn(engine->store) >= receipt.lsn);
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(holds(message.body, "hello") && holds(message.exchange, "") &&
             holds(message.routing_key, "q") && holds(message.queue, "q"));
    QS_CHECK(message.properties.bytes == PERSISTENT.bytes && message.delivery_tag == 1 &&
             message.delivery_count == 0 && !message.redelivered &&
             message.consumer_tag.bytes == 0);
    qs_message_release(&message);
    receipt = publish_to(engine, "", "q", TRANSIENT, text("not journalled"));
    QS_CHECK(receipt.lsn == 0);
    receipt = publish_to(engine, "", "nowhere", PERSISTENT, text("dropped"));
    QS_CHECK(receipt.lsn == 0);
}

ENGINE_TEST(test_empty_messages_have_no_bytes)
{
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish_to(engine, "", "q", NONE, NONE);
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(message.body.bytes == 0 && message.properties.bytes == 0);
    qs_message_release(&message);
}

ENGINE_TEST(test_exchanges_route_to_every_queue_once)
{
    static const char *const queues[] = {"a", "b", "c"};

    for (int i = 0; i < 3; i++) {
        declare(engine, queues[i], QS_DURABLE);
        bind_queue(engine, queues[i], "amq.fanout", "");
    }
    bind_queue(engine, "a", "amq.topic", "x.#");
    bind_queue(engine, "a", "amq.topic", "*.y");
    bind_queue(engine, "b", "amq.topic", "*.y");
    bind_queue(engine, "c", "amq.direct", "x.y");
    publish_to(engine, "amq.fanout", "whatever", PERSISTENT, text("1"));
    publish_to(engine, "amq.topic", "x.y", PERSISTENT, text("2"));
    publish_to(engine, "amq.direct", "x.y", PERSISTENT, text("3"));
    publish_to(engine, "amq.direct", "x", PERSISTENT, text("nobody's"));
    engine_reopen(engine);
    get(engine, "a", "1");
    get(engine, "a", "2");
    get_nothing(engine, "a");
    get(engine, "b", "1");
    get(engine, "b", "2");
    get_nothing(engine, "b");
    get(engine, "c", "1");
    get(engine, "c", "3");
    get_nothing(engine, "c");
}

/* A message for ten queues is one record: its body is on disk once, and in memory once. */
ENGINE_TEST(test_fanout_journals_the_body_once)
{
    QS_TEST_FREED char *body = make_body(3000, 0);
    char name[16];
    uint64_t before, bytes;
    qs_receipt receipt;

    for (int i = 0; i < 10; i++) {
        snprintf(name, sizeof name, "q%d", i);
        declare(engine, name, QS_DURABLE);
        bind_queue(engine, name, "amq.fanout", "");
    }
    before = stats_of(engine).appended_lsn;
    receipt = publish_to(engine, "amq.fanout", "", PERSISTENT, text(body));
    bytes = stats_of(engine).appended_lsn - before;
    QS_CHECK(bytes >= 3000 && bytes < 3000 + 10 * 32 + 200);
    before = stats_of(engine).bytes_journalled;
    QS_CHECK_OK(qs_store_wait_durable(engine->store, receipt.lsn, QS_FOREVER, QS_ERROR));
    /* On the disk a thread writes as well: of what was there before, and ends behind it. */
    QS_CHECK(engine->options.background || stats_of(engine).bytes_journalled - before <= 8192);
    QS_CHECK(stats_of(engine).messages_routed == 10 && stats_of(engine).messages_published == 1);
    for (int turn = 0; turn < 2; turn++) {
        snprintf(name, sizeof name, "q%d", 9 * turn);
        get(engine, name, body);
        engine_reopen(engine);
    }
}

ENGINE_TEST(test_large_bodies_are_stored_once)
{
    QS_TEST_FREED char *body = make_body(100000, 3);
    uint64_t lsn;

    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    bind_queue(engine, "a", "amq.fanout", "");
    bind_queue(engine, "b", "amq.fanout", "");
    lsn = stats_of(engine).appended_lsn;
    publish_to(engine, "amq.fanout", "k", PERSISTENT, text(body));
    QS_CHECK(stats_of(engine).bytes_stored >= 100000 && stats_of(engine).bytes_stored < 110000);
    QS_CHECK(stats_of(engine).appended_lsn - lsn < 1000);
    for (int turn = 0; turn < 2; turn++) {
        qs_message message;
        qs_queue_status status;

        QS_CHECK_OK(qs_store_queue_status(engine->store, text("a"), &status, QS_ERROR));
        QS_CHECK(status.beta == 1 && status.alpha == 0);
        QS_CHECK_OK(qs_channel_get(engine->channel, text("a"), 0, &message, QS_ERROR));
        QS_CHECK(holds(message.body, body) && holds(message.exchange, "amq.fanout") &&
                 holds(message.routing_key, "k") && message.properties.bytes == PERSISTENT.bytes);
        qs_message_release(&message);
        engine_reopen(engine);
    }
    get(engine, "b", body);
}

/* Transient messages and those for transient queues stay in memory, whatever their size. */
ENGINE_TEST(test_large_transient_bodies_are_not_stored)
{
    QS_TEST_FREED char *body = make_body(50000, 1);

    declare(engine, "durable", QS_DURABLE);
    declare(engine, "transient", 0);
    publish_to(engine, "", "durable", TRANSIENT, text(body));
    publish_to(engine, "", "transient", PERSISTENT, text(body));
    QS_CHECK(stats_of(engine).bytes_stored == 0);
    get(engine, "durable", body);
    get(engine, "transient", body);
    engine_reopen(engine);
    get_nothing(engine, "durable");
}

ENGINE_TEST(test_publish_is_refused)
{
    qs_options options;
    qs_receipt receipt;
    char *name = make_body(256, 0);

    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        try_publish(engine, "none", "q", text("x"), 0, &receipt));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED,
                        try_publish(engine, "", "q", text("x"), QS_IMMEDIATE, &receipt));
    QS_CHECK_STATUS(QS_EINVAL, try_publish(engine, name, "q", text("x"), 0, &receipt));
    QS_CHECK_STATUS(QS_EINVAL, try_publish(engine, "", name, text("x"), 0, &receipt));
    qs_store_options(engine->store, &options);
    engine_close(engine);
    engine->options.body_bytes_max = 1000;
    engine_open(engine);
    free(name);
    name = make_body(1001, 0);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        try_publish(engine, "", "q", text(name), 0, &receipt));
    name[1000] = '\0';
    QS_CHECK_OK(try_publish(engine, "", "q", text(name), 0, &receipt));
    check_counts(engine, "q", 1, 0);
    free(name);
}

/* ---- confirms and returns ---- */

ENGINE_TEST(test_confirms_come_when_durable_and_coalesce)
{
    bool nacked = true;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK(qs_channel_next_publish_number(engine->channel) == 0);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK(qs_channel_next_publish_number(engine->channel) == 1);
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, 0, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    for (uint64_t number = 1; number <= 5; number++) {
        qs_receipt receipt = publish(engine, "q", "x");

        QS_CHECK(receipt.first_number == number && receipt.last_number == number);
    }
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked && qs_channel_next_publish_number(engine->channel) == 6);
    for (uint64_t told = 0; told < 5;) {
        qs_event event = expect_event(engine, CONFIRMS, QS_EVENT_ACK);

        QS_CHECK(event.publish_number > told && event.publish_number <= 5);
        QS_CHECK(event.multiple == (event.publish_number > told + 1));
        told = event.publish_number;
    }
    expect_no_event(engine, CONFIRMS);
    QS_CHECK(stats_of(engine).messages_confirmed == 5);
}

ENGINE_TEST(test_waiting_for_an_event_commits)
{
    qs_event event;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish(engine, "q", "x");
    event = expect_event(engine, CONFIRMS, QS_EVENT_ACK);
    QS_CHECK(event.publish_number == 1 && !event.multiple);
    QS_CHECK(stats_of(engine).durable_lsn == stats_of(engine).appended_lsn);
}

ENGINE_TEST(test_transient_and_unroutable_publishes_are_confirmed_at_once)
{
    uint64_t before;
    qs_event event;

    declare(engine, "q", QS_DURABLE);
    before = stats_of(engine).fdatasyncs;
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish_to(engine, "", "q", TRANSIENT, text("x"));
    publish_to(engine, "", "nowhere", PERSISTENT, text("x"));
    for (uint64_t told = 0; told < 2;) {
        event = expect_event(engine, CONFIRMS, QS_EVENT_ACK);
        QS_CHECK(event.publish_number > told);
        told = event.publish_number;
    }
    /* On the disk a thread may sync meanwhile what came before. */
    QS_CHECK(engine->options.background || stats_of(engine).fdatasyncs == before);
    expect_no_event(engine, CONFIRMS);
}

ENGINE_TEST(test_mandatory_messages_come_back_before_their_ack)
{
    qs_receipt receipt;
    qs_event event;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_OK(try_publish(engine, "amq.direct", "nobody", text("back"), QS_MANDATORY, &receipt));
    QS_CHECK_OK(try_publish(engine, "", "q", text("there"), QS_MANDATORY, &receipt));
    QS_CHECK_OK(try_publish(engine, "amq.topic", "no", text("too"), QS_MANDATORY, &receipt));
    event = expect_event(engine, CONFIRMS, QS_EVENT_RETURN);
    QS_CHECK(event.reply_code == 312 && strcmp(event.reply_text, "NO_ROUTE") == 0);
    QS_CHECK(holds(event.message.body, "back") && holds(event.message.exchange, "amq.direct") &&
             holds(event.message.routing_key, "nobody") &&
             event.message.properties.bytes == PERSISTENT.bytes);
    qs_message_release(&event.message);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    event = expect_event(engine, CONFIRMS, QS_EVENT_RETURN);
    QS_CHECK(holds(event.message.body, "too"));
    qs_message_release(&event.message);
    for (uint64_t told = 0; told < 3;) {
        event = expect_event(engine, CONFIRMS, QS_EVENT_ACK);
        told += event.multiple ? event.publish_number - told : 1;
    }
    expect_no_event(engine, CONFIRMS);
    QS_CHECK(stats_of(engine).messages_returned == 2 && stats_of(engine).messages_confirmed == 3);
}

ENGINE_TEST(test_returns_nobody_took_go_with_the_channel)
{
    qs_receipt receipt;
    qs_event event;

    QS_CHECK_OK(try_publish(engine, "", "nobody", text("1"), QS_MANDATORY, &receipt));
    QS_CHECK_OK(try_publish(engine, "", "nobody", text("2"), QS_MANDATORY, &receipt));
    event = expect_event(engine, CONFIRMS, QS_EVENT_RETURN);
    engine_new_channel(engine); /* and a returned message outlives its channel */
    QS_CHECK(holds(event.message.body, "1"));
    qs_message_release(&event.message);
    expect_no_event(engine, CONFIRMS);
}

ENGINE_TEST(test_waiting_for_confirms_needs_confirm_mode)
{
    bool nacked;

    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_wait_confirms(engine->channel, 0, &nacked, QS_ERROR));
}

/* In the singles' shared chunk every size and every number of queues has its place. */
ENGINE_TEST(test_bodies_of_every_size_survive)
{
    declare(engine, "q", QS_DURABLE);
    for (uint32_t bytes = 0; bytes < 5000; bytes = bytes * 2 + bytes % 3 + 1) {
        QS_TEST_FREED char *body = make_body(bytes, bytes);

        publish(engine, "q", body);
    }
    engine_reopen(engine);
    for (uint32_t bytes = 0; bytes < 5000; bytes = bytes * 2 + bytes % 3 + 1) {
        QS_TEST_FREED char *body = make_body(bytes, bytes);

        get(engine, "q", body);
    }
}
