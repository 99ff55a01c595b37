/* Listeners: one descriptor for many channels, written once for all that ring while the loop is at
 * work; and taking several events at once. */
#include "armed_fixture.h"
#include "qs_test_calls.h"

#define CHANNELS 8

static qs_listener *listener_of(struct engine *engine)
{
    qs_listener *listener;

    QS_CHECK_OK(qs_listener_open(&listener, engine->store, QS_ERROR));
    QS_CHECK(!is_signalled(qs_listener_fd(listener), 0));
    return listener;
}

static void *tag_of(size_t number)
{
    return (void *)(uintptr_t)(number + 1);
}

static qs_channel *listening_consumer(struct engine *engine, qs_listener *listener,
                                      const char *queue, size_t number)
{
    qs_channel *channel = consumer_of(engine, queue, 0);

    QS_CHECK_OK(qs_listener_add(listener, channel, tag_of(number), QS_ERROR));
    arm(channel, QS_EVENT_DELIVERY);
    return channel;
}

static void check_rang(qs_listener *listener, size_t first, size_t count)
{
    void *tags[CHANNELS + 1];

    QS_CHECK(qs_listener_next(listener, tags, CHANNELS + 1, NULL) == count);
    for (size_t i = 0; i < count; i++) {
        QS_CHECK(tags[i] == tag_of(first + i));
    }
}

ARMED_TEST(test_channels_that_rang_are_told_once)
{
    qs_listener *listener = listener_of(engine);
    qs_channel *channels[CHANNELS];
    char queue[2] = "0";

    for (size_t i = 0; i < CHANNELS; i++) {
        queue[0] = (char)('0' + i);
        declare(engine, queue, 0);
        channels[i] = listening_consumer(engine, listener, queue, i);
    }
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < CHANNELS; i++) {
            queue[0] = (char)('0' + i);
            publish(engine, queue, "1");
            publish(engine, queue, "2");
        }
        QS_CHECK(is_signalled(qs_listener_fd(listener), 0));
        check_rang(listener, 0, CHANNELS);
        QS_CHECK(!is_signalled(qs_listener_fd(listener), 0));
        check_rang(listener, 0, 0);
        for (size_t i = 0; i < CHANNELS; i++) {
            take(channels[i], QS_EVENT_DELIVERY);
            take(channels[i], QS_EVENT_DELIVERY);
            arm(channels[i], QS_EVENT_DELIVERY);
        }
    }
    for (size_t i = 0; i < CHANNELS; i++) {
        qs_channel_close(channels[i]);
    }
    qs_listener_close(listener);
}

/* The loop has not seen the list empty: it comes back by itself, and is not called. */
ARMED_TEST(test_a_loop_at_work_is_not_called)
{
    qs_listener *listener = listener_of(engine);
    qs_channel *first, *second;
    void *tag;

    declare(engine, "a", 0);
    declare(engine, "b", 0);
    first = listening_consumer(engine, listener, "a", 0);
    second = listening_consumer(engine, listener, "b", 1);
    publish(engine, "a", "1");
    QS_CHECK(is_signalled(qs_listener_fd(listener), 0));
    QS_CHECK(qs_listener_next(listener, &tag, 1, NULL) == 1 && tag == tag_of(0));
    publish(engine, "b", "1"); /* the list is empty, so this one calls */
    QS_CHECK(is_signalled(qs_listener_fd(listener), 0));
    arm(second, ANSWERS);
    publish(engine, "a", "2");
    take(first, QS_EVENT_DELIVERY);
    take(first, QS_EVENT_DELIVERY);
    arm(first, QS_EVENT_DELIVERY);
    publish(engine, "a", "3");
    QS_CHECK(qs_listener_next(listener, &tag, 1, NULL) == 1 && tag == tag_of(1));
    QS_CHECK(!is_signalled(qs_listener_fd(listener), 0)); /* one is left, and was not told */
    QS_CHECK(qs_listener_next(listener, &tag, 1, NULL) == 1 && tag == tag_of(0));
    QS_CHECK(qs_listener_next(listener, &tag, 1, NULL) == 0);
    qs_channel_close(first);
    qs_channel_close(second);
    qs_listener_close(listener);
}

ARMED_TEST(test_confirms_ring)
{
    qs_listener *listener = listener_of(engine);
    uint64_t confirmed = 0;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_listener_add(listener, engine->channel, tag_of(0), QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    for (int i = 0; i < 100; i++) {
        publish(engine, "q", "body");
    }
    while (confirmed < 100) {
        qs_event events[4];
        uint32_t count;
        qs_status status =
            qs_channel_next_events(engine->channel, ANSWERS | QS_EVENT_ARM | QS_NO_WAIT, 4,
                                   UINT64_MAX, events, &count, QS_ERROR);
        for (uint32_t i = 0; i < count; i++) {
            QS_CHECK(events[i].kind == QS_EVENT_ACK);
            confirmed += events[i].count;
        }
        if (status == QS_EEMPTY && confirmed < 100) {
            QS_CHECK(is_signalled(qs_listener_fd(listener), AWAITED));
            check_rang(listener, 0, 1);
        }
    }
    QS_CHECK(confirmed == 100);
    qs_listener_close(listener);
}

ARMED_TEST(test_a_channel_that_ends_is_told_and_a_closed_one_is_not)
{
    qs_listener *listener = listener_of(engine);
    qs_channel *ends, *closed;
    qs_event event;

    declare(engine, "q", 0);
    ends = listening_consumer(engine, listener, "q", 0);
    QS_CHECK_STATUS(QS_NOT_FOUND, qs_test_declare_as(ends, "none", QS_PASSIVE, NONE));
    QS_CHECK(is_signalled(qs_listener_fd(listener), 0));
    check_rang(listener, 0, 1);
    QS_CHECK_STATUS(QS_ECHANNEL_CLOSED,
                    qs_channel_next_event(ends, QS_EVENT_DELIVERY, 0, &event, QS_ERROR));
    closed = listening_consumer(engine, listener, "q", 1);
    publish(engine, "q", "1");
    qs_channel_close(closed);
    check_rang(listener, 0, 0);
    qs_channel_close(ends);
    qs_listener_close(listener);
}

ARMED_TEST(test_a_listener_may_be_closed_before_its_channels)
{
    qs_listener *listener = listener_of(engine);
    qs_channel *channel;

    declare(engine, "q", 0);
    channel = listening_consumer(engine, listener, "q", 0);
    publish(engine, "q", "1");
    qs_listener_close(listener);
    publish(engine, "q", "2");
    take(channel, QS_EVENT_DELIVERY);
    QS_CHECK(event_fd_of(channel) >= 0);
    qs_channel_close(channel);
    qs_listener_close(NULL);
}

ARMED_TEST(test_a_listener_outlives_its_store)
{
    qs_listener *listener = listener_of(engine);
    qs_channel *channel;

    declare(engine, "q", 0);
    channel = listening_consumer(engine, listener, "q", 0);
    engine_close(engine);
    QS_CHECK(is_signalled(qs_listener_fd(listener), 0));
    check_rang(listener, 0, 1);
    qs_channel_close(channel);
    qs_listener_close(listener);
    engine_open(engine);
}

ARMED_TEST(test_a_channel_has_one_who_is_told)
{
    qs_listener *listener = listener_of(engine), *other;
    struct engine second;
    int event_fd;

    QS_CHECK_OK(qs_listener_add(listener, engine->channel, tag_of(0), QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, qs_listener_add(listener, engine->channel, tag_of(0), QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_event_fd(engine->channel, &event_fd, QS_ERROR));
    qs_listener_close(listener);
    (void)event_fd_of(engine->channel);
    listener = listener_of(engine);
    QS_CHECK_STATUS(QS_EINVAL, qs_listener_add(listener, engine->channel, tag_of(0), QS_ERROR));
    engine_start(&second, ON_DISK);
    QS_CHECK_STATUS(QS_EINVAL, qs_listener_add(listener, second.channel, tag_of(0), QS_ERROR));
    engine_stop(&second);
    engine_start(&second, IN_MEMORY); /* it has no threads */
    QS_CHECK_OK(qs_listener_open(&other, second.store, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL, qs_listener_add(other, second.channel, tag_of(0), QS_ERROR));
    qs_listener_close(other);
    engine_stop(&second);
    qs_listener_close(listener);
}

/* ---- several events at once ---- */

static void check_bodies(qs_event *events, uint32_t count, uint32_t first)
{
    for (uint32_t i = 0; i < count; i++) {
        char body[8];
        (void)snprintf(body, sizeof body, "%u", first + i);
        QS_CHECK(events[i].kind == QS_EVENT_DELIVERY && holds(events[i].message.body, body));
        qs_message_release(&events[i].message);
    }
}

ARMED_TEST(test_events_come_as_many_as_are_asked_for)
{
    qs_listener *listener = listener_of(engine);
    const uint32_t kinds = QS_EVENT_DELIVERY | QS_EVENT_ARM | QS_NO_WAIT;
    qs_event events[8];
    qs_channel *channel;
    uint32_t count;

    declare(engine, "q", 0);
    channel = listening_consumer(engine, listener, "q", 0);
    for (uint32_t i = 0; i < 10; i++) {
        char body[8];
        (void)snprintf(body, sizeof body, "%u", i);
        publish(engine, "q", body);
    }
    check_rang(listener, 0, 1);
    QS_CHECK_OK(qs_channel_next_events(channel, kinds, 4, UINT64_MAX, events, &count, QS_ERROR));
    QS_CHECK(count == 4);
    check_bodies(events, count, 0);
    /* Each has 3 bytes of properties and 1 of body: the one that reaches the limit is the last. */
    QS_CHECK_OK(qs_channel_next_events(channel, kinds, 8, 7, events, &count, QS_ERROR));
    QS_CHECK(count == 2);
    check_bodies(events, count, 4);
    QS_CHECK_STATUS(
        QS_EEMPTY, qs_channel_next_events(channel, kinds, 8, UINT64_MAX, events, &count, QS_ERROR));
    QS_CHECK(count == 4);
    check_bodies(events, count, 6);
    QS_CHECK_OK(qs_channel_next_events(channel, kinds, 0, UINT64_MAX, events, &count, QS_ERROR));
    QS_CHECK(count == 0);
    QS_CHECK_STATUS(
        QS_EEMPTY, qs_channel_next_events(channel, kinds, 8, UINT64_MAX, events, &count, QS_ERROR));
    publish(engine, "q", "later"); /* it was armed */
    check_rang(listener, 0, 1);
    qs_channel_close(channel);
    qs_listener_close(listener);
}

/* What came before the one that has to be read is not lost. */
static void check_events_stop_before_one_that_has_to_be_read(struct engine *engine)
{
    QS_TEST_FREED char *large = make_body(100000, 1);
    qs_channel *channel = consumer_of(engine, "q", 0);
    qs_event events[4];
    uint32_t count;

    publish(engine, "q", "0");
    publish(engine, "q", large);
    QS_CHECK_STATUS(QS_EWOULDBLOCK,
                    qs_channel_next_events(channel, QS_EVENT_DELIVERY | QS_NO_WAIT, 4, UINT64_MAX,
                                           events, &count, QS_ERROR));
    QS_CHECK(count == 1);
    check_bodies(events, count, 0);
    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_events(channel, QS_EVENT_DELIVERY, 4, UINT64_MAX,
                                                      events, &count, QS_ERROR));
    QS_CHECK(count == 1 && holds(events[0].message.body, large));
    qs_message_release(&events[0].message);
    qs_channel_close(channel);
}

ARMED_TEST(test_a_large_message_waits_for_who_may_read)
{
    declare(engine, "q", QS_DURABLE);
    check_events_stop_before_one_that_has_to_be_read(engine);
}

/* ---- alarms ---- */

static uint32_t alarms_of(qs_listener *listener)
{
    uint32_t alarms;
    void *tag;

    QS_CHECK(qs_listener_next(listener, &tag, 1, &alarms) == 0);
    return alarms;
}

/* Until it has rung for these, by a clock that does not go by itself.  It may ring for others
 * before: while there is still something to page, for instance, memory is not used up. */
static void await_alarms(struct engine *engine, qs_listener *listener, uint32_t alarms)
{
    do {
        while (!is_signalled(qs_listener_fd(listener), 2)) {
            qsi_env_mem_advance(engine->memory, SECOND / 10);
        }
    } while (alarms_of(listener) != alarms);
}

/* Nobody publishes meanwhile: a server that was told of it holds its clients back. */
UNOPENED_TEST(test_a_full_disk_rings_and_so_does_its_end)
{
    QS_TEST_FREED char *body = make_body(4000, 1);
    qs_listener *listener;
    qs_receipt receipt;
    unsigned count = 0;

    engine->options.background = true;
    engine->options.journal_file_bytes = 64u << 10;
    engine_open(engine);
    listener = listener_of(engine);
    declare(engine, "q", QS_DURABLE);
    QS_CHECK(alarms_of(listener) == 0);
    qsi_env_ram_limit(engine->memory, qsi_env_ram_used(engine->memory) + (1u << 20));
    while (qs_channel_publish(engine->channel, text(""), text("q"), PERSISTENT, text(body), 0, 0,
                              &receipt, NULL) == QS_OK) {
        QS_CHECK(++count < 2000);
    }
    qsi_env_ram_limit(engine->memory,
                      qsi_env_ram_used(engine->memory)); /* and no checkpoint helps */
    await_alarms(engine, listener, QS_ALARM_DISK);
    QS_CHECK(!is_signalled(qs_listener_fd(listener), 0));
    qsi_env_ram_limit(engine->memory, UINT64_MAX);
    await_alarms(engine, listener, 0);
    publish(engine, "q", body);
    qs_listener_close(listener);
}

/* Messages that a caller has not released cannot leave memory. */
UNOPENED_TEST(test_memory_that_is_used_up_rings_and_so_does_its_end)
{
    QS_TEST_FREED char *body = make_body(4000, 1);
    qs_listener *listener;
    static qs_message messages[300];

    engine->options.background = true;
    engine->options.memory_budget = 1u << 20;
    engine_open(engine);
    listener = listener_of(engine);
    declare(engine, "q", 0);
    for (int i = 0; i < 300; i++) {
        publish_to(engine, "", "q", TRANSIENT, text(body));
        QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &messages[i], QS_ERROR));
    }
    await_alarms(engine, listener, QS_ALARM_MEMORY);
    for (int i = 0; i < 300; i++) {
        qs_message_release(&messages[i]);
    }
    QS_CHECK_OK(qs_channel_ack(engine->channel, 0, QS_MULTIPLE, QS_ERROR));
    await_alarms(engine, listener, 0);
    qs_listener_close(listener);
}
