/* Who gets the next message: priorities, the single active consumer, consumers of several
 * channels; and connections. */
#include "engine_fixture.h"

static void fill(struct engine *engine, const char *queue, int count)
{
    for (int i = 1; i <= count; i++) {
        publish_number(engine, queue, i);
    }
}

static qs_channel *another_channel(struct engine *engine)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    return channel;
}

static void consume(qs_channel *channel, const char *queue, const char *tag, int8_t priority)
{
    uint8_t arguments[] = "\012x-priorityb?"; /* a field table: x-priority, a signed octet */

    arguments[sizeof arguments - 2] = (uint8_t)priority;
    QS_CHECK_OK(
        qs_test_consume(channel, queue, tag, 0, (qs_slice){arguments, sizeof arguments - 1}));
}

static void declare_single_active(struct engine *engine, const char *queue)
{
    static const char arguments[] = "\030x-single-active-consumert\001";

    QS_CHECK_OK(qs_test_declare_as(engine->channel, queue, QS_DURABLE,
                                   (qs_slice){arguments, sizeof arguments - 1}));
}

/* What comes for the channel now: consumer and body, "" for nothing. */
static void expect(qs_channel *channel, const char *tag, const char *body)
{
    qs_event event;
    qs_status status =
        qs_channel_next_event(channel, QS_EVENT_DELIVERY | QS_EVENT_CANCEL, 0, &event, QS_ERROR);

    if (body[0] == '\0') {
        QS_CHECK_STATUS(QS_EEMPTY, status);
        return;
    }
    QS_CHECK_OK(status);
    QS_CHECK(event.kind == QS_EVENT_DELIVERY);
    if (!holds(event.message.consumer_tag, tag) || !holds(event.message.body, body)) {
        fprintf(stderr, "not %s to %s, but %.*s to %.*s\n", body, tag,
                (int)event.message.body.bytes, (const char *)event.message.body.data,
                (int)event.message.consumer_tag.bytes,
                (const char *)event.message.consumer_tag.data);
        QS_CHECK(!"delivery");
    }
    qs_message_release(&event.message);
}

ENGINE_TEST(test_the_highest_priority_with_room_comes_first)
{
    qs_channel *low = another_channel(engine), *high = another_channel(engine);

    declare(engine, "q", QS_DURABLE);
    fill(engine, "q", 7);
    QS_CHECK_OK(qs_channel_qos(low, 2, 0, 0, QS_ERROR));
    consume(low, "q", "low", -1);
    consume(low, "q", "middle", 0);
    QS_CHECK_OK(qs_channel_qos(high, 2, 0, 0, QS_ERROR));
    consume(high, "q", "high", 100);
    expect(low, "middle", "3"); /* whether the highest asks does not matter */
    expect(low, "middle", "4");
    expect(high, "high", "1");
    expect(high, "high", "2");
    expect(high, "", "");
    expect(low, "low", "5");
    expect(low, "low", "6");
    QS_CHECK_OK(qs_channel_ack(high, 1, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_ack(low, 1, 0, QS_ERROR)); /* 3 */
    expect(low, "", "");
    expect(high, "high", "7");
    qs_channel_close(high); /* 1 was acked; 2 and 7 come back to their places */
    expect(low, "middle", "2");
    expect(low, "", "");
    QS_CHECK_OK(qs_channel_ack(low, 3, 0, QS_ERROR)); /* 5 */
    expect(low, "low", "7");
    qs_channel_close(low);
}

#define PLAYERS 3

static void join(struct engine *engine, qs_channel *players[PLAYERS], uint32_t prefetch)
{
    for (int i = 0; i < PLAYERS; i++) {
        players[i] = another_channel(engine);
        QS_CHECK_OK(qs_channel_qos(players[i], prefetch, 0, 0, QS_ERROR));
        consume(players[i], "q", "c", 0);
    }
}

static void leave(qs_channel *players[PLAYERS])
{
    for (int i = 0; i < PLAYERS; i++) {
        qs_channel_close(players[i]);
    }
}

static uint64_t unacked_in(struct engine *engine)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    return status.messages_unacked;
}

ENGINE_TEST(test_messages_are_dealt_in_turn_whoever_asks_first)
{
    qs_channel *players[PLAYERS];

    declare(engine, "q", QS_DURABLE);
    join(engine, players, 0);
    fill(engine, "q", 9);
    for (int i = PLAYERS; i-- > 0;) {
        for (int k = 0; k < 3; k++) {
            char body[] = {(char)('1' + i + PLAYERS * k), '\0'};
            expect(players[i], "c", body);
        }
        expect(players[i], "", "");
    }
    QS_CHECK(unacked_in(engine) == 9);
    leave(players);
    get(engine, "q", "1");
}

ENGINE_TEST(test_what_was_dealt_and_not_asked_for_is_ready_again)
{
    qs_channel *players[PLAYERS];

    declare(engine, "q", QS_DURABLE);
    fill(engine, "q", 7);
    join(engine, players, 2);
    expect(players[2], "c", "3");
    expect(players[2], "c", "6");
    QS_CHECK(unacked_in(engine) == 6);
    QS_CHECK_OK(qs_channel_pause(players[0], text("c"), true, QS_ERROR));
    QS_CHECK(unacked_in(engine) == 4);
    expect(players[0], "", "");
    QS_CHECK_OK(qs_channel_ack(players[2], 2, QS_MULTIPLE, QS_ERROR));
    expect(players[2], "c", "1"); /* which comes before those that nobody was dealt */
    QS_CHECK_OK(qs_channel_pause(players[0], text("c"), false, QS_ERROR));
    expect(players[0], "c", "4");
    QS_CHECK_OK(qs_channel_cancel(players[1], text("c"), QS_ERROR));
    expect(players[2], "c", "2"); /* the turn of the first was before */
    expect(players[0], "c", "5");
    leave(players);
    get(engine, "q", "1");
    QS_CHECK(unacked_in(engine) == 1);
}

ENGINE_TEST(test_a_message_does_not_expire_where_it_was_dealt)
{
    static const uint8_t expires[] = {0x11, 0, 2, 2, '1', '0'}; /* delivery mode, expiration */
    qs_channel *players[PLAYERS];

    if (engine->memory == NULL) {
        return; /* the test's own clock */
    }
    declare(engine, "q", QS_DURABLE);
    join(engine, players, 0);
    publish_to(engine, "", "q", (qs_slice){expires, sizeof expires}, text("short"));
    fill(engine, "q", 2);
    expect(players[1], "c", "1"); /* of those that are kept */
    QS_CHECK(unacked_in(engine) == 2);
    qsi_env_mem_advance(engine->memory, SECOND);
    expect(players[0], "c", "short");
    expect(players[0], "", "");
    expect(players[2], "c", "2");
    QS_CHECK_OK(qs_channel_nack(players[0], 1, QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK(unacked_in(engine) == 2); /* in its queue it does */
    expect(players[0], "", "");
    leave(players);
}

ENGINE_TEST(test_a_queue_is_deleted_with_what_was_dealt)
{
    qs_channel *players[PLAYERS];

    declare(engine, "q", QS_DURABLE);
    join(engine, players, 0);
    fill(engine, "q", 7);
    expect(players[2], "c", "3");
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    for (int i = 0; i < PLAYERS; i++) {
        qs_event event;
        QS_CHECK_OK(qs_channel_next_event(players[i], QS_EVENT_DELIVERY | QS_EVENT_CANCEL, 0,
                                          &event, QS_ERROR));
        QS_CHECK(event.kind == QS_EVENT_CANCEL);
        qs_message_release(&event.message);
    }
    leave(players);
    QS_CHECK(!has_queue(engine, "q"));
}

ENGINE_TEST(test_a_channels_limit_leaves_the_rest_to_lower_priorities)
{
    qs_channel *low = another_channel(engine), *high = another_channel(engine);

    declare(engine, "q", QS_DURABLE);
    fill(engine, "q", 3);
    QS_CHECK_OK(qs_channel_qos(high, 1, 0, QS_GLOBAL, QS_ERROR));
    consume(high, "q", "high", 1);
    consume(low, "q", "low", 0);
    expect(high, "high", "1");
    expect(low, "low", "2");
    QS_CHECK_OK(qs_channel_qos(high, 2, 0, QS_GLOBAL, QS_ERROR));
    expect(low, "", "");
    expect(high, "high", "3");
    qs_channel_close(high);
    qs_channel_close(low);
}

ENGINE_TEST(test_a_priority_that_is_no_number_is_refused)
{
    static const char arguments[] = "\012x-priorityt\001";

    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_test_consume(engine->channel, "q", "", 0, (qs_slice){arguments, sizeof arguments - 1}));
    QS_CHECK_STATUS(QS_EINVAL, qs_test_consume(engine->channel, "q", "", 0, (qs_slice){"\377", 1}));
}

ENGINE_TEST(test_one_active_consumer_and_its_successors)
{
    qs_channel *first = another_channel(engine), *second = another_channel(engine);

    declare_single_active(engine, "q");
    fill(engine, "q", 8);
    consume(first, "q", "a", 0);
    consume(second, "q", "b", 0);
    consume(second, "q", "c", 5); /* does not take over, but is the next */
    consume(first, "q", "d", 5);
    expect(second, "", "");
    expect(first, "a", "1");
    expect(first, "a", "2");
    get(engine, "q", "3"); /* a get is no consumer */
    QS_CHECK_OK(qs_channel_cancel(first, text("a"), QS_ERROR));
    expect(first, "", "");
    expect(second, "c", "4");
    QS_CHECK_OK(qs_channel_ack(first, 2, 0, QS_ERROR)); /* what a had is still its channel's */
    QS_CHECK_OK(qs_channel_cancel(second, text("c"), QS_ERROR));
    expect(first, "d", "5");
    qs_channel_close(first); /* 1 and 5 come back */
    expect(second, "b", "1");
    expect(second, "b", "5");
    QS_CHECK_OK(qs_channel_cancel(second, text("b"), QS_ERROR));
    expect(second, "", "");
    consume(second, "q", "e", 0);
    expect(second, "e", "6");
    qs_channel_close(second);
}

ENGINE_TEST(test_a_full_active_consumer_has_no_stand_in)
{
    qs_channel *other = another_channel(engine);

    declare_single_active(engine, "q");
    fill(engine, "q", 2);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, 0, QS_ERROR));
    consume(engine->channel, "q", "active", 0);
    consume(other, "q", "idle", 9);
    expect(engine->channel, "active", "1");
    expect(engine->channel, "", "");
    expect(other, "", "");
    ack(engine, 1, 0);
    expect(engine->channel, "active", "2");
    qs_channel_close(other);
}

ENGINE_TEST(test_a_single_active_consumer_cannot_be_exclusive)
{
    declare_single_active(engine, "q");
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_test_consume(engine->channel, "q", "", QS_EXCLUSIVE, NONE));
    engine_reopen(engine);
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_test_consume(engine->channel, "q", "", QS_EXCLUSIVE, NONE));
}

ENGINE_TEST(test_a_deleted_queue_forgets_its_active_consumer)
{
    qs_event event;

    declare_single_active(engine, "q");
    consume(engine->channel, "q", "a", 0);
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    event = expect_event(engine, QS_EVENT_CANCEL, QS_EVENT_CANCEL);
    qs_message_release(&event.message);
    declare_single_active(engine, "q");
    fill(engine, "q", 1);
    consume(engine->channel, "q", "a", 0);
    expect(engine->channel, "a", "1");
}

ENGINE_TEST(test_a_made_up_tag_is_not_one_that_is_taken)
{
    char name[256];

    declare(engine, "q", QS_DURABLE);
    consume(engine->channel, "q", "amq.ctag-1", 0);
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, name, QS_ERROR));
    QS_CHECK(strcmp(name, "amq.ctag-2") == 0);
}

/* ---- connections ---- */

static qs_channel *channel_of(qs_connection *connection)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_connection_channel(&channel, connection, QS_ERROR));
    return channel;
}

ENGINE_TEST(test_exclusive_queues_belong_to_the_connection)
{
    qs_connection *connection;
    qs_channel *one, *two;
    qs_declare_ok ok;

    QS_CHECK_OK(qs_connection_open(&connection, engine->store, QS_ERROR));
    one = channel_of(connection);
    two = channel_of(connection);
    QS_CHECK_OK(qs_channel_queue_declare(one, text("q"), QS_EXCLUSIVE, NONE, &ok, QS_ERROR));
    publish(engine, "q", "1");
    QS_CHECK_OK(qs_channel_queue_declare(two, text("q"), QS_EXCLUSIVE, NONE, &ok, QS_ERROR));
    QS_CHECK(ok.message_count == 1);
    CHECK_CHANNEL_ERROR(
        engine, QS_RESOURCE_LOCKED,
        qs_channel_queue_declare(engine->channel, text("q"), QS_PASSIVE, NONE, &ok, QS_ERROR));
    qs_channel_close(one);
    QS_CHECK(has_queue(engine, "q"));
    qs_connection_close(connection);
    QS_CHECK(!has_queue(engine, "q"));
    QS_CHECK_STATUS(QS_ECHANNEL_CLOSED, qs_channel_confirm_select(two, QS_ERROR));
    qs_channel_close(two);
}

ENGINE_TEST(test_a_hard_error_ends_the_connection)
{
    qs_connection *connection;
    qs_channel *one, *two, *none;

    declare(engine, "q", QS_DURABLE);
    fill(engine, "q", 1);
    QS_CHECK_OK(qs_connection_open(&connection, engine->store, QS_ERROR));
    one = channel_of(connection);
    two = channel_of(connection);
    QS_CHECK_OK(qs_test_declare_as(two, "mine", QS_EXCLUSIVE, NONE));
    consume(two, "q", "c", 0);
    expect(two, "c", "1");
    QS_CHECK_STATUS(QS_NOT_FOUND,
                    qs_test_declare_as(one, "x", QS_PASSIVE, NONE)); /* a soft one does not */
    qs_channel_close(one);
    QS_CHECK(!qs_connection_is_closed(connection));
    one = channel_of(connection);
    QS_CHECK_STATUS(QS_NOT_IMPLEMENTED, qs_channel_recover(one, 0, QS_ERROR));
    QS_CHECK(qs_connection_is_closed(connection) && !has_queue(engine, "mine"));
    QS_CHECK_STATUS(QS_ECHANNEL_CLOSED, qs_channel_confirm_select(two, QS_ERROR));
    QS_CHECK_STATUS(QS_ECHANNEL_CLOSED, qs_connection_channel(&none, connection, QS_ERROR));
    QS_CHECK(get(engine, "q", "1").redelivered);
    qs_connection_close(connection);
    qs_channel_close(one);
    qs_channel_close(two);
}

ENGINE_TEST(test_a_connection_may_outlive_its_store)
{
    qs_connection *connection;
    qs_channel *channel, *none;

    QS_CHECK_OK(qs_connection_open(&connection, engine->store, QS_ERROR));
    channel = channel_of(connection);
    QS_CHECK_OK(qs_test_declare_as(channel, "q", QS_EXCLUSIVE, NONE));
    engine_close(engine);
    QS_CHECK(qs_connection_is_closed(connection));
    QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_connection_channel(&none, connection, QS_ERROR));
    qs_connection_close(connection);
    QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_channel_confirm_select(channel, QS_ERROR));
    qs_channel_close(channel);
    engine_open(engine);
    QS_CHECK(!has_queue(engine, "q"));
}
