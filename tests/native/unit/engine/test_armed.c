/* Event loops: the descriptor is written when there is something to take, once, and not
 * otherwise; calls that must not wait do not. */
#include "armed_fixture.h"
#include "qs_test_calls.h"

ARMED_TEST(test_confirms_signal_once)
{
    qs_channel *channel = engine->channel;
    int event_fd = event_fd_of(channel);
    uint64_t confirmed = 0;

    QS_CHECK(event_fd == event_fd_of(channel));
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(channel, QS_ERROR));
    for (int i = 0; i < 100; i++) {
        publish(engine, "q", "body");
    }
    QS_CHECK(!is_signalled(event_fd, 0)); /* nobody asked */
    while (confirmed < 100) {
        qs_event event;
        qs_status status = qs_channel_next_event(channel, ANSWERS | QS_EVENT_ARM | QS_NO_WAIT, 0,
                                                 &event, QS_ERROR);
        if (status == QS_EEMPTY) {
            QS_CHECK(is_signalled(event_fd, AWAITED));
            QS_CHECK(listen_to(event_fd) == 1);
            continue;
        }
        QS_CHECK_OK(status);
        QS_CHECK(event.kind == QS_EVENT_ACK);
        confirmed += event.count;
    }
    QS_CHECK(confirmed == 100);
}

ARMED_TEST(test_a_delivery_signals_who_may_have_it)
{
    qs_channel *first, *second;
    int first_event_fd, second_event_fd;

    declare(engine, "q", 0);
    declare(engine, "other", 0);
    first = consumer_of(engine, "q", 1);
    second = consumer_of(engine, "q", 1);
    first_event_fd = event_fd_of(first);
    second_event_fd = event_fd_of(second);
    arm(first, QS_EVENT_DELIVERY);
    arm(second, QS_EVENT_DELIVERY);
    publish(engine, "other", "not theirs");
    QS_CHECK(!is_signalled(first_event_fd, 0) && !is_signalled(second_event_fd, 0));
    publish(engine, "q", "1"); /* it is the first one's turn */
    QS_CHECK(is_signalled(first_event_fd, 0) && !is_signalled(second_event_fd, 0));
    publish(engine, "q", "2");
    QS_CHECK(is_signalled(second_event_fd, 0));
    QS_CHECK(listen_to(first_event_fd) == 1 && listen_to(second_event_fd) == 1);
    take(second, QS_EVENT_DELIVERY);
    take(first, QS_EVENT_DELIVERY);
    arm(first, QS_EVENT_DELIVERY);
    publish(engine, "q", "3");
    QS_CHECK(!is_signalled(first_event_fd, 0)); /* it has no room */
    QS_CHECK_OK(qs_channel_ack(first, 1, QS_NO_WAIT, QS_ERROR));
    QS_CHECK(is_signalled(first_event_fd, 0));
    qs_channel_close(first);
    qs_channel_close(second);
}

/* What is left to a channel that waits does not stay there when that goes. */
ARMED_TEST(test_who_goes_hands_on)
{
    qs_channel *first, *second;
    int second_event_fd;

    declare(engine, "q", 0);
    first = consumer_of(engine, "q", 0);
    second = consumer_of(engine, "q", 0);
    (void)event_fd_of(first);
    second_event_fd = event_fd_of(second);
    arm(first, QS_EVENT_DELIVERY);
    arm(second, QS_EVENT_DELIVERY);
    publish(engine, "q", "1");
    QS_CHECK(!is_signalled(second_event_fd, 0));
    qs_channel_close(first);
    QS_CHECK(is_signalled(second_event_fd, 0));
    take(second, QS_EVENT_DELIVERY);
    qs_channel_close(second);
}

/* It asks for something else: the message is its own all the same, as long as it is there. */
ARMED_TEST(test_who_asks_for_others_keeps_its_turn)
{
    qs_channel *first, *second;
    int second_event_fd;

    declare(engine, "q", 0);
    first = consumer_of(engine, "q", 0);
    second = consumer_of(engine, "q", 0);
    (void)event_fd_of(first);
    second_event_fd = event_fd_of(second);
    arm(first, QS_EVENT_DELIVERY);
    arm(second, QS_EVENT_DELIVERY);
    publish(engine, "q", "1");
    QS_CHECK(!is_signalled(second_event_fd, 0));
    arm(first, ANSWERS);
    QS_CHECK(!is_signalled(second_event_fd, 0));
    qs_channel_close(first);
    QS_CHECK(is_signalled(second_event_fd, 0));
    qs_channel_close(second);
}

ARMED_TEST(test_the_end_is_signalled)
{
    qs_channel *channel;
    int event_fd;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    event_fd = event_fd_of(channel);
    QS_CHECK_STATUS(QS_NOT_FOUND, qs_test_declare_as(channel, "none", QS_PASSIVE, NONE));
    QS_CHECK(is_signalled(event_fd, 0));
    qs_channel_close(channel);
    declare(engine, "q", 0);
    channel = consumer_of(engine, "q", 0);
    event_fd = event_fd_of(channel);
    arm(channel, QS_EVENT_CANCEL);
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    QS_CHECK(is_signalled(event_fd, 0) && listen_to(event_fd) == 1);
    take(channel, QS_EVENT_CANCEL);
    arm(channel, ANSWERS);
    engine_close(engine);
    QS_CHECK(is_signalled(event_fd, 0));
    qs_channel_close(channel);
    engine_open(engine);
}

/* A loop may watch it until after the channel is freed, in another thread: a number that was closed
 * would be somebody else's. */
ARMED_TEST(test_a_freed_channel_leaves_its_descriptor_open)
{
    qs_channel *channel;
    int event_fd;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    event_fd = event_fd_of(channel);
    engine_close(engine);
    QS_CHECK(listen_to(event_fd) == 1);
    qs_channel_close(channel);
    QS_CHECK(fcntl(event_fd, F_GETFD) == FD_CLOEXEC);
    QS_CHECK(!is_signalled(event_fd, 0)); /* the store's end was said already */
    engine_open(engine);
    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    event_fd = event_fd_of(channel);
    qs_channel_close(channel);
    QS_CHECK(is_signalled(event_fd, 0) && listen_to(event_fd) == 1);
}

ARMED_TEST(test_a_change_signals_whoever_it_is_for)
{
    qs_channel *channel;
    int channel_event_fd;

    declare(engine, "q", 0);
    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    channel_event_fd = event_fd_of(channel);
    arm(channel, QS_EVENT_CHANGE);
    publish(engine, "q", "1");
    QS_CHECK(is_signalled(channel_event_fd, 0));
    qs_channel_close(channel);
}

ARMED_TEST(test_confirms_signal_who_was_armed_before_it_published)
{
    qs_channel *channel = engine->channel, *other;
    int channel_event_fd, other_event_fd;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(channel, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(other, QS_ERROR));
    channel_event_fd = event_fd_of(channel);
    other_event_fd = event_fd_of(other);
    arm(channel, ANSWERS);
    arm(other, ANSWERS);
    publish(engine, "q", "1"); /* is durable with the next commit */
    QS_CHECK(is_signalled(channel_event_fd, AWAITED) && listen_to(channel_event_fd) == 1);
    take(channel, QS_EVENT_ACK);
    arm(channel, ANSWERS);
    publish_to(engine, "", "q", TRANSIENT, text("2")); /* needs none */
    QS_CHECK(is_signalled(channel_event_fd, 0));
    QS_CHECK(!is_signalled(other_event_fd, 0));
    qs_channel_close(other);
}

ARMED_TEST(test_a_call_that_must_not_wait_does_nothing)
{
    static const char large[5000];
    qs_slice body = {large, sizeof large};
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_STATUS(QS_EWOULDBLOCK,
                    qs_test_publish(engine->channel, "", "q", PERSISTENT, body, QS_NO_WAIT));
    get_nothing(engine, "q");
    QS_CHECK_OK(qs_test_publish(engine->channel, "", "q", PERSISTENT, body, 0));
    QS_CHECK_STATUS(QS_EWOULDBLOCK, qs_test_get(engine->channel, "q", QS_NO_WAIT));
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(!message.redelivered && message.delivery_tag == 1 && message.body.bytes == 5000);
    qs_message_release(&message);
}

IN_MEMORY_TEST(test_it_needs_somebody_who_commits)
{
    qs_event event;
    int event_fd;

    QS_CHECK_STATUS(QS_EINVAL, qs_channel_event_fd(engine->channel, &event_fd, QS_ERROR));
    QS_CHECK(event_fd == -1);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_next_event(engine->channel, ANSWERS | QS_EVENT_ARM, 0,
                                                     &event, QS_ERROR));
}
