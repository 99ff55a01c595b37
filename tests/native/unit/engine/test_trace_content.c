/* Traces of contents: what is routed and what is delivered, with its body and who it is from. */
#include "qstore/clients.h"

#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_batch.h"

static qs_trace *open_trace(struct engine *engine)
{
    qs_trace *trace;

    QS_CHECK_OK(qs_trace_open(&trace, engine->store, NULL, NULL, QS_TRACE_CONTENT, QS_ERROR));
    return trace;
}

static void start(struct engine *engine)
{
    engine_start(engine, IN_MEMORY);
    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    bind_queue(engine, "a", "amq.fanout", "");
    bind_queue(engine, "b", "amq.fanout", "");
}

QS_TEST_FIXTURE(run_started, struct engine, start(&fixture), engine_stop(&fixture))
#define TRACE_TEST(name) QS_TEST_BY(run_started, name, (struct engine * engine))

static qs_trace_event next(qs_trace *trace, qs_trace_step step)
{
    qs_trace_event event;

    QS_CHECK_OK(qs_trace_next(trace, 0, &event, QS_ERROR));
    QS_CHECK(event.step == step && event.content != NULL && event.count == 1);
    return event;
}

static void check_nothing(qs_trace *trace)
{
    qs_trace_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_trace_next(trace, 0, &event, QS_ERROR));
}

static bool equals(qs_slice one, qs_slice other)
{
    return one.bytes == other.bytes &&
           (one.bytes == 0 || memcmp(one.data, other.data, one.bytes) == 0);
}

TRACE_TEST(test_a_message_is_told_as_it_is_routed_and_delivered)
{
    qs_trace_event event;
    qs_message message;
    qs_trace *trace = open_trace(engine);

    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    publish_to(engine, "amq.fanout", "k", PERSISTENT, text("body"));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(holds(event.exchange, "amq.fanout") && holds(event.routing_key, "k"));
    QS_CHECK(holds(event.queues, "\1a\1b") && event.number == 1);
    QS_CHECK(equals(event.content->properties, PERSISTENT) && holds(event.content->body, "body"));
    QS_CHECK(event.content->connection > 0 && event.content->client == 0);
    QS_CHECK(event.content->peer.bytes == 0 && event.content->user.bytes == 0);
    check_nothing(trace); /* neither of its record nor of its confirm */
    message = get(engine, "b", "body");
    QS_CHECK_OK(qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    event = next(trace, QS_TRACE_DELIVER);
    QS_CHECK(holds(event.queues, "\1b") && !event.content->redelivered);
    QS_CHECK(holds(event.exchange, "amq.fanout") && holds(event.content->body, "body"));
    check_nothing(trace);
    get_flags(engine, "b", "body", QS_NO_ACK);
    event = next(trace, QS_TRACE_DELIVER);
    QS_CHECK(event.content->redelivered && equals(event.content->properties, PERSISTENT));
    check_nothing(trace);
    qs_trace_close(trace);
}

/* Of a body in the message store, and of one behind a consumer: read before it is told. */
TRACE_TEST(test_bodies_are_told_wherever_they_lie)
{
    static const size_t sizes[] = {0, 100, 5000, 300000};
    qs_trace *trace = open_trace(engine);

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        QS_TEST_FREED char *body = make_body(sizes[i], (uint32_t)i);
        qs_trace_event event;

        publish_to(engine, "", "a", PERSISTENT, (qs_slice){body, sizes[i]});
        event = next(trace, QS_TRACE_ROUTE);
        QS_CHECK(holds(event.content->body, body));
        get(engine, "a", body);
        event = next(trace, QS_TRACE_DELIVER);
        QS_CHECK(holds(event.content->body, body));
        QS_CHECK(holds(event.queues, "\1a") && holds(event.routing_key, "a"));
    }
    QS_CHECK_OK(qs_test_consume(engine->channel, "b", "b", QS_NO_ACK, NONE));
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        QS_TEST_FREED char *body = make_body(sizes[i], (uint32_t)i);
        qs_trace_event event;
        qs_event delivery;

        publish_to(engine, "", "b", PERSISTENT, (qs_slice){body, sizes[i]});
        next(trace, QS_TRACE_ROUTE);
        delivery = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
        qs_message_release(&delivery.message);
        event = next(trace, QS_TRACE_DELIVER);
        QS_CHECK(holds(event.queues, "\1b") && holds(event.content->body, body));
    }
    check_nothing(trace);
    qs_trace_close(trace);
}

TRACE_TEST(test_the_client_behind_the_connection_is_told)
{
    const qs_client client = {
        .number = 7, .peer = text("127.0.0.1:5000"), .user = text("ann"), .mechanism = text("")};
    qs_connection *connection;
    qs_channel *channel;
    qs_trace_event event;
    qs_trace *trace;

    QS_CHECK_OK(qs_connection_open(&connection, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_connection_set_client(connection, &client, QS_ERROR));
    QS_CHECK_OK(qs_connection_channel(&channel, connection, QS_ERROR));
    qs_channel_set_client_number(channel, 3);
    trace = open_trace(engine);
    QS_CHECK_OK(qs_test_publish(channel, "", "nowhere", TRANSIENT, text("x"), 0));
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(event.queues.bytes == 0 && event.channel == qs_channel_number(channel));
    QS_CHECK(event.content->client == 7 && event.content->client_channel == 3);
    QS_CHECK(holds(event.content->peer, "127.0.0.1:5000") && holds(event.content->user, "ann"));
    qs_trace_close(trace);
    qs_channel_close(channel);
    qs_connection_close(connection);
}

TRACE_TEST(test_a_message_of_a_transaction_is_told_when_it_is_published)
{
    qs_trace_event event;
    qs_trace *trace = open_trace(engine);

    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    publish(engine, "a", "1");
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(holds(event.content->body, "1") && holds(event.queues, "\1a"));
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    check_nothing(trace);
    qs_trace_close(trace);
}

/* Batches have no content of theirs, neither in nor out. */
TRACE_TEST(test_batches_are_not_told)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_batch batch;
    qs_trace *trace = open_trace(engine);

    qs_test_batch_init(&rows);
    memcpy(qs_test_batch_add(&rows, "a", 1), "x", 1);
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("a"), 10, 1000, QS_NO_ACK, 0, &schema,
                                     &array, QS_ERROR));
    QS_CHECK(array.length == 1);
    array.release(&array);
    schema.release(&schema);
    check_nothing(trace);
    qs_test_batch_fini(&rows);
    qs_trace_close(trace);
}

/* The room is 8 MiB: a message that is larger than all of it is told, and the next one is not. */
QS_TEST(test_one_message_has_room_whatever_its_size)
{
    const size_t bytes = 9u << 20;
    struct engine engine;
    qs_trace_event event;
    qs_trace *trace;
    QS_TEST_FREED char *body = make_body(bytes, 1);

    start(&engine);
    trace = open_trace(&engine);
    publish_to(&engine, "", "nowhere", TRANSIENT, (qs_slice){body, bytes});
    publish_to(&engine, "", "nowhere", TRANSIENT, text("dropped"));
    QS_CHECK(qs_trace_dropped(trace) == 1);
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(equals(event.content->body, (qs_slice){body, bytes}));
    check_nothing(trace);
    publish_to(&engine, "", "nowhere", TRANSIENT, text("small"));
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(holds(event.content->body, "small"));
    qs_trace_close(trace);
    engine_stop(&engine);
}

TRACE_TEST(test_what_consumers_of_other_queues_get_is_told)
{
    static const char *const kinds[] = {"priorities", "stream"};
    qs_trace *trace = open_trace(engine);

    for (size_t i = 0; i < 2; i++) {
        struct qs_test_fields arguments = {0};
        qs_trace_event event;
        qs_event delivery;

        if (i == 0) {
            qs_test_put_long(&arguments, "x-max-priority", 5);
        } else {
            qs_test_put_text(&arguments, "x-queue-type", "stream");
            QS_CHECK_OK(qs_channel_qos(engine->channel, 10, 0, 0, QS_ERROR));
        }
        qs_test_declare(engine->channel, kinds[i], QS_DURABLE, &arguments);
        QS_CHECK_OK(qs_test_consume(engine->channel, kinds[i], kinds[i], 0, NONE));
        publish(engine, kinds[i], "x");
        next(trace, QS_TRACE_ROUTE);
        QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
        delivery = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
        event = next(trace, QS_TRACE_DELIVER);
        QS_CHECK(event.queues.bytes == 1 + strlen(kinds[i]));
        QS_CHECK(memcmp((const char *)event.queues.data + 1, kinds[i], strlen(kinds[i])) == 0);
        QS_CHECK(equals(event.content->properties, delivery.message.properties));
        QS_CHECK(holds(event.content->body, "x"));
        qs_message_release(&delivery.message);
        ack(engine, delivery.message.delivery_tag, 0);
        check_nothing(trace);
    }
    qs_trace_close(trace);
}

/* Neither as they are published nor as somebody gets them. */
TRACE_TEST(test_copies_are_not_told)
{
    qs_trace *trace;

    bind_queue(engine, "a", "amq.rabbitmq.trace", "#");
    trace = open_trace(engine);
    QS_CHECK_OK(qs_test_publish(engine->channel, "amq.rabbitmq.trace", "publish.", TRANSIENT,
                                text("copy"), QS_INTERNAL));
    get(engine, "a", "copy");
    check_nothing(trace);
    QS_CHECK(qs_trace_dropped(trace) == 0);
    qs_trace_close(trace);
}

TRACE_TEST(test_what_was_told_before_the_end_is_still_read)
{
    qs_trace_event event;
    qs_trace *trace, *none;

    trace = open_trace(engine);
    publish(engine, "a", "before");
    qs_trace_end(trace);
    publish(engine, "a", "after");
    event = next(trace, QS_TRACE_ROUTE);
    QS_CHECK(holds(event.content->body, "before"));
    QS_CHECK_STATUS(QS_EEMPTY, qs_trace_next(trace, QS_FOREVER, &event, QS_ERROR));
    qs_trace_end(trace);
    qs_trace_close(trace);
    QS_CHECK_STATUS(QS_EINVAL, qs_trace_open(&none, engine->store, NULL, NULL, 2, QS_ERROR));
    QS_CHECK(none == NULL);
}

QS_TEST(test_a_message_that_cannot_be_read_is_not_told)
{
    struct engine engine;
    QS_TEST_FREED char *body = make_body(5000, 1);
    qs_message message;
    qs_trace *trace;
    qs_env *faulty;

    engine_init(&engine, IN_MEMORY);
    faulty = engine_put_fault(&engine);
    engine_open(&engine);
    declare(&engine, "a", QS_DURABLE);
    publish_to(&engine, "", "a", PERSISTENT, text(body));
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    trace = open_trace(&engine);
    qsi_env_fault_arm(faulty, QSI_FAULT_READ, QSI_FAULT_EIO, 1, false);
    QS_CHECK(qs_channel_get(engine.channel, text("a"), 0, &message, NULL) != QS_OK);
    check_nothing(trace);
    qs_trace_close(trace);
    qs_channel_close(engine.channel);
    QS_CHECK_OK(qs_store_close(engine.store, QS_ERROR));
    engine_fini(&engine);
}

QS_TEST(test_without_memory_a_content_counts_as_dropped)
{
    static struct qs_test_alloc memory;
    bool failed = true;

    qs_test_alloc_install(&memory);
    for (uint64_t number = 1; failed; number++) {
        struct engine engine;
        qs_trace_event event;
        qs_receipt receipt;
        qs_status status, told;
        qs_trace *trace;

        start(&engine);
        trace = open_trace(&engine);
        qs_test_alloc_arm(&memory, number, false);
        status = qs_channel_publish(engine.channel, text(""), text("a"), TRANSIENT, text("x"), 0, 0,
                                    &receipt, NULL);
        failed = memory.has_failed;
        qs_test_alloc_arm(&memory, 0, false);
        told = qs_trace_next(trace, 0, &event, QS_ERROR);
        QS_CHECK((told == QS_OK) + qs_trace_dropped(trace) == (status == QS_OK ? 1 : 0));
        qs_trace_close(trace);
        engine_stop(&engine);
    }
    qs_test_alloc_end(&memory);
}

TRACE_TEST(test_an_internal_exchange_takes_what_says_so)
{
    qs_receipt receipt;
    qs_error error;

    bind_queue(engine, "a", "amq.rabbitmq.trace", "publish.#");
    QS_CHECK_STATUS(QS_ACCESS_REFUSED,
                    qs_channel_publish(engine->channel, text("amq.rabbitmq.trace"),
                                       text("publish.x"), TRANSIENT, text("1"), 0, 0, &receipt,
                                       &error));
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_publish(engine->channel, text("amq.rabbitmq.trace"), text("publish.x"),
                                   TRANSIENT, text("2"), QS_INTERNAL, 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.unrouted_count == 0);
    get(engine, "a", "2");
    QS_CHECK_OK(qs_channel_publish(engine->channel, text("amq.rabbitmq.trace"), text("other"),
                                   TRANSIENT, text("3"), QS_INTERNAL, 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.unrouted_count == 1);
    QS_CHECK_STATUS(QS_NOT_FOUND,
                    qs_channel_publish(engine->channel, text("none"), text("k"), TRANSIENT,
                                       text("4"), QS_INTERNAL, 0, &receipt, &error));
    engine_new_channel(engine);
}
