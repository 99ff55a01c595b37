/* A channel of many consumers, of which those rest that can have no message: whatever brings them
 * one wakes them.  The channel is armed, as an event loop's is; a debug build checks besides, at
 * each look, that none rests that could take a message. */
#include "armed_fixture.h"
#include "qs_test_calls.h"

#define MANY 64
#define DELIVERIES (QS_EVENT_DELIVERY | QS_EVENT_CANCEL)

static const char *name_of(const char *kind, int number)
{
    static char name[32];

    snprintf(name, sizeof name, "%s%d", kind, number);
    return name;
}

static void consume(qs_channel *channel, const char *queue, int number)
{
    char tag[256], name[32];

    snprintf(name, sizeof name, "c%d", number);
    QS_CHECK_OK(qs_channel_consume(channel, text(queue), text(name), 0, NONE, tag, QS_ERROR));
}

/* A queue for each consumer of a channel, all of them empty, and the channel armed. */
static qs_channel *begin(struct engine *engine, int *event_fd)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    *event_fd = event_fd_of(channel);
    for (int i = 0; i < MANY; i++) {
        declare(engine, name_of("q", i), QS_DURABLE);
        consume(channel, name_of("q", i), i);
    }
    arm(channel, DELIVERIES);
    return channel;
}

/* The caller's to release. */
static qs_event next(qs_channel *channel, uint32_t kind)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(channel, kind | QS_NO_WAIT, 0, &event, QS_ERROR));
    QS_CHECK(event.kind == kind);
    return event;
}

/* It comes, to that consumer, and nothing else does. */
static uint64_t expect(qs_channel *channel, int event_fd, int consumer, const char *body)
{
    qs_event event;
    uint64_t tag;

    QS_CHECK(is_signalled(event_fd, AWAITED));
    listen_to(event_fd);
    event = next(channel, QS_EVENT_DELIVERY);
    QS_CHECK(holds(event.message.consumer_tag, name_of("c", consumer)));
    QS_CHECK(holds(event.message.body, body));
    tag = event.message.delivery_tag;
    qs_message_release(&event.message);
    arm(channel, DELIVERIES);
    return tag;
}

ARMED_TEST(test_a_message_wakes_the_consumer_of_its_queue)
{
    int event_fd;
    qs_channel *channel = begin(engine, &event_fd);

    for (int i = 0; i < 3 * MANY; i++) {
        publish(engine, name_of("q", i * 7 % MANY), "a");
        QS_CHECK_OK(
            qs_channel_ack(channel, expect(channel, event_fd, i * 7 % MANY, "a"), 0, QS_ERROR));
    }
    qs_channel_close(channel);
}

ARMED_TEST(test_what_comes_back_wakes_the_others_of_its_queue)
{
    int event_fd;
    qs_channel *channel = begin(engine, &event_fd), *other;

    publish(engine, "q50", "a");
    QS_CHECK_OK(
        qs_channel_nack(channel, expect(channel, event_fd, 50, "a"), QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_ack(channel, expect(channel, event_fd, 50, "a"), 0, QS_ERROR));
    publish(engine, "q51", "b");
    expect(channel, event_fd, 51, "b");
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_cancel(channel, text("c51"), QS_ERROR));
    publish(engine, "q51", "c");
    QS_CHECK_OK(qs_test_get(other, "q51", 0));
    consume(channel, "q51", 51);
    arm(channel, DELIVERIES);
    qs_channel_close(other); /* which had it */
    expect(channel, event_fd, 51, "c");
    qs_channel_close(channel);
}

ARMED_TEST(test_an_ack_wakes_a_consumer_that_was_full)
{
    qs_channel *channel;
    uint64_t tags[MANY];
    int event_fd;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    event_fd = event_fd_of(channel);
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_qos(channel, 1, 0, 0, QS_ERROR));
    for (int i = 0; i < MANY; i++) {
        consume(channel, "q", i);
    }
    for (int i = 0; i < 2 * MANY; i++) {
        publish(engine, "q", "a");
    }
    for (int i = 0; i < MANY; i++) { /* one each */
        qs_event event = next(channel, QS_EVENT_DELIVERY);

        QS_CHECK(holds(event.message.consumer_tag, name_of("c", i)));
        tags[i] = event.message.delivery_tag;
        qs_message_release(&event.message);
    }
    arm(channel, DELIVERIES);
    for (int i = MANY - 1; i >= 0; i--) { /* and the next to whom has room */
        QS_CHECK(!is_signalled(event_fd, 0));
        QS_CHECK_OK(qs_channel_ack(channel, tags[i], 0, QS_ERROR));
        expect(channel, event_fd, i, "a");
    }
    qs_channel_close(channel);
}

ARMED_TEST(test_the_channels_limit_holds_and_ends_for_all)
{
    int event_fd;
    qs_channel *channel = begin(engine, &event_fd);
    uint64_t tag;

    QS_CHECK_OK(qs_channel_qos(channel, 1, 0, QS_GLOBAL, QS_ERROR));
    arm(channel, DELIVERIES);
    publish(engine, "q60", "a");
    tag = expect(channel, event_fd, 60, "a");
    publish(engine, "q61", "b");
    QS_CHECK(!is_signalled(event_fd, 0));
    arm(channel, DELIVERIES);
    QS_CHECK_OK(qs_channel_ack(channel, tag, 0, QS_ERROR));
    expect(channel, event_fd, 61, "b");
    qs_channel_close(channel);
}

ARMED_TEST(test_consumers_that_rest_are_cancelled_and_told)
{
    int event_fd;
    qs_channel *channel = begin(engine, &event_fd);

    for (int i = 0; i < MANY; i += 2) {
        qs_event event;

        QS_CHECK_OK(qs_test_delete(engine->channel, name_of("q", i), 0));
        QS_CHECK(is_signalled(event_fd, AWAITED));
        listen_to(event_fd);
        event = next(channel, QS_EVENT_CANCEL);
        QS_CHECK(holds(event.message.consumer_tag, name_of("c", i)));
        qs_message_release(&event.message);
        arm(channel, DELIVERIES);
    }
    for (int i = 1; i < MANY; i += 4) { /* by the client */
        QS_CHECK_OK(qs_channel_cancel(channel, text(name_of("c", i)), QS_ERROR));
    }
    arm(channel, DELIVERIES);
    publish(engine, "q1", "a");
    QS_CHECK(!is_signalled(event_fd, 0));
    publish(engine, "q63", "a");
    expect(channel, event_fd, 63, "a");
    qs_channel_close(channel);
}
