/* Consumers of one channel: turns, tags, prefetch, and what the channel's events tell. */
#include "deliver_fixture.h"
#include "qs_test_calls.h"

static void consume(struct engine *engine, const char *queue, const char *tag, uint32_t flags)
{
    char name[256];

    QS_CHECK_OK(
        qs_channel_consume(engine->channel, text(queue), text(tag), flags, NONE, name, QS_ERROR));
    QS_CHECK(tag[0] == '\0' || strcmp(name, tag) == 0);
}

static qs_message expect_delivery(struct engine *engine, const char *tag, const char *body)
{
    qs_event event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);

    if (!holds(event.message.body, body) || !holds(event.message.consumer_tag, tag)) {
        fprintf(stderr, "expected %s for %s, got %.*s for %.*s\n", body, tag,
                (int)event.message.body.bytes, (const char *)event.message.body.data,
                (int)event.message.consumer_tag.bytes,
                (const char *)event.message.consumer_tag.data);
        QS_CHECK(!"delivery");
    }
    qs_message_release(&event.message);
    return event.message;
}

ENGINE_TEST(test_consumers_take_turns)
{
    fill(engine, "q", 4);
    consume(engine, "q", "first", 0);
    consume(engine, "q", "second", 0);
    QS_CHECK(expect_delivery(engine, "first", "1").delivery_tag == 1);
    QS_CHECK(expect_delivery(engine, "second", "2").delivery_tag == 2);
    expect_delivery(engine, "first", "3");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("first"), QS_ERROR));
    expect_delivery(engine, "second", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    check_counts(engine, "q", 0, 4); /* cancelling requeues nothing */
    ack(engine, 0, QS_MULTIPLE);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("nobody"), QS_ERROR));
}

ENGINE_TEST(test_consumer_tags_are_made_up_or_refused)
{
    char tag[256], other[256];
    QS_TEST_FREED char *name = make_body(256, 0);

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, other, QS_ERROR));
    QS_CHECK(strncmp(tag, "amq.ctag-", 9) == 0 && strcmp(tag, other) != 0);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_consume(engine->channel, text("q"), text(name), 0, NONE,
                                                  tag, QS_ERROR));
    name[255] = '\0';
    consume(engine, "q", name, 0);
    CHECK_CHANNEL_ERROR(
        engine, QS_NOT_ALLOWED,
        qs_channel_consume(engine->channel, text("q"), text(name), 0, NONE, tag, QS_ERROR));
    CHECK_CHANNEL_ERROR(
        engine, QS_NOT_FOUND,
        qs_channel_consume(engine->channel, text("x"), NONE, 0, NONE, tag, QS_ERROR));
}

ENGINE_TEST(test_exclusive_consumer_is_alone)
{
    qs_channel *other;

    declare(engine, "q", QS_DURABLE);
    consume(engine, "q", "alone", QS_EXCLUSIVE);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_STATUS(QS_ACCESS_REFUSED, qs_test_consume(other, "q", "", 0, NONE));
    qs_channel_close(other);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("alone"), QS_ERROR));
    consume(engine, "q", "one", 0);
    CHECK_CHANNEL_ERROR(engine, QS_ACCESS_REFUSED,
                        qs_test_consume(engine->channel, "q", "", QS_EXCLUSIVE, NONE));
    consume(engine, "q", "alone again", QS_EXCLUSIVE);
}

ENGINE_TEST(test_prefetch_bounds_what_a_consumer_has_out)
{
    fill(engine, "q", 6);
    consume(engine, "q", "unlimited", 0);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, 0, QS_ERROR)); /* for those to come */
    consume(engine, "q", "two", 0);
    expect_delivery(engine, "unlimited", "1");
    expect_delivery(engine, "two", "2");
    expect_delivery(engine, "unlimited", "3");
    expect_delivery(engine, "two", "4");
    expect_delivery(engine, "unlimited", "5");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("unlimited"), QS_ERROR));
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 1, 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "two", "6");
    nack(engine, 4, QS_REQUEUE);
    expect_delivery(engine, "two", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
}

ENGINE_TEST(test_global_prefetch_bounds_the_channel)
{
    fill(engine, "q", 6);
    consume(engine, "q", "a", 0);
    consume(engine, "q", "b", 0);
    get(engine, "q", "1"); /* is not limited, and does not count */
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, QS_GLOBAL, QS_ERROR));
    expect_delivery(engine, "a", "2");
    expect_delivery(engine, "b", "3");
    ack(engine, 1, 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "a", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 0, 0, 0, QS_ERROR)); /* lifts the channel's limit */
    expect_delivery(engine, "b", "5");
    expect_delivery(engine, "a", "6");
}

ENGINE_TEST(test_a_cancelled_consumers_messages_count_in_the_channels_limit)
{
    fill(engine, "q", 4);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, QS_GLOBAL, QS_ERROR));
    consume(engine, "q", "a", 0);
    expect_delivery(engine, "a", "1");
    expect_delivery(engine, "a", "2");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("a"), QS_ERROR));
    consume(engine, "q", "b", 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "b", "3");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 0, QS_MULTIPLE);
    expect_delivery(engine, "b", "4");
}

ENGINE_TEST(test_a_full_channel_holds_up_its_no_ack_consumers)
{
    fill(engine, "q", 1);
    fill(engine, "r", 2);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, QS_GLOBAL, QS_ERROR));
    consume(engine, "q", "ack", 0);
    consume(engine, "r", "no ack", QS_NO_ACK);
    expect_delivery(engine, "ack", "1");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 1, 0);
    expect_delivery(engine, "no ack", "1");
    expect_delivery(engine, "no ack", "2");
}

ENGINE_TEST(test_no_ack_consumer_ignores_prefetch)
{
    QS_TEST_FREED char *large = make_body(30000, 6);

    fill(engine, "q", 3);
    publish(engine, "q", large);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, 0, QS_ERROR));
    consume(engine, "q", "c", QS_NO_ACK);
    expect_delivery(engine, "c", "1");
    expect_delivery(engine, "c", "2");
    expect_delivery(engine, "c", "3");
    expect_delivery(engine, "c", large);
    check_counts(engine, "q", 0, 0);
    engine_reopen(engine);
    get_nothing(engine, "q");
}

ENGINE_TEST(test_deleting_a_queue_cancels_its_consumers)
{
    qs_channel *other;
    qs_queue_status status;
    qs_event event;

    fill(engine, "q", 2);
    consume(engine, "q", "c", 0);
    expect_delivery(engine, "c", "1");
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.consumers == 1);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_test_delete(other, "q", 0));
    qs_channel_close(other);
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "3");
    event = expect_event(engine, QS_EVENT_CANCEL | QS_EVENT_DELIVERY, QS_EVENT_CANCEL);
    QS_CHECK(holds(event.message.consumer_tag, "c") && holds(event.message.queue, "q"));
    qs_message_release(&event.message);
    expect_no_event(engine, QS_EVENT_CANCEL | QS_EVENT_DELIVERY);
    consume(engine, "q", "c", 0);
    ack(engine, 1, 0);
    expect_delivery(engine, "c", "3");
}

/* The tag of a delivery is a slice like the body: it is good until the message is released. */
ENGINE_TEST(test_a_deliverys_tag_outlives_its_consumer)
{
    qs_event event;

    fill(engine, "q", 1);
    consume(engine, "q", "the tag", 0);
    event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("the tag"), QS_ERROR));
    QS_CHECK(holds(event.message.consumer_tag, "the tag") && holds(event.message.queue, "q"));
    engine_new_channel(engine);
    QS_CHECK(holds(event.message.consumer_tag, "the tag") && holds(event.message.queue, "q"));
    qs_message_release(&event.message);
}

ENGINE_TEST(test_next_event_waits_no_longer_than_it_is_told)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY,
                                                     SECOND / 1000, &event, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel, QS_EVENT_ACK, SECOND / 1000,
                                                     &event, QS_ERROR));
}
