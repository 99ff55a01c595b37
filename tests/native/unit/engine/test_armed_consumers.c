/* Event loops: of all who wait, only the channels that may have what comes are signalled. */
#include "armed_fixture.h"
#include "qs_test_calls.h"

#define QUEUES 3

struct listeners { /* one to each queue, and somebody who has a message of each */
    struct engine *engine;
    qs_channel *channels[QUEUES];
    int event_fds[QUEUES];
    qs_channel *internal_channel;
};

static const char *const names[QUEUES] = {"q0", "q1", "q2"};

static void bring_by_publish(struct listeners *listeners, int i)
{
    publish(listeners->engine, names[i], "1");
}

static void bring_by_batch(struct listeners *listeners, int i)
{
    struct qs_test_batch rows;
    qs_batch batch;
    qs_receipt receipt;

    qs_test_batch_init(&rows);
    memcpy(qs_test_batch_add(&rows, names[i], 1), "1", 1);
    batch = qs_test_batch_finish(&rows);
    QS_CHECK_OK(qs_channel_publish_batch(listeners->engine->channel, &batch, &receipt, QS_ERROR));
    qs_test_batch_fini(&rows);
}

static void bring_by_transaction(struct listeners *listeners, int i)
{
    qs_channel *channel;

    QS_CHECK_OK(qs_channel_open(&channel, listeners->engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    QS_CHECK_OK(qs_test_publish(channel, "", names[i], PERSISTENT, text("1"), 0));
    QS_CHECK(!is_signalled(listeners->event_fds[i], 0));
    QS_CHECK_OK(qs_test_commit(channel, NONE, 0));
    qs_channel_close(channel);
}

static void bring_by_requeue(struct listeners *listeners, int i)
{
    QS_CHECK_OK(
        qs_channel_nack(listeners->internal_channel, (uint64_t)i + 1, QS_REQUEUE, 0, QS_ERROR));
}

static void bring_by_dead_letter(struct listeners *listeners, int i)
{
    static const char *const dying[QUEUES] = {"dying0", "dying1", "dying2"};
    struct qs_test_fields fields = qs_test_fields_of("x-dead-letter-exchange=");
    qs_message message;

    qs_test_put_text(&fields, "x-dead-letter-routing-key", names[i]);
    qs_test_declare(listeners->internal_channel, dying[i], 0, &fields);
    publish(listeners->engine, dying[i], "1");
    QS_CHECK_OK(qs_channel_get(listeners->internal_channel, text(dying[i]), 0, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_nack(listeners->internal_channel, message.delivery_tag, 0, 0, QS_ERROR));
    qs_message_release(&message);
}

/* A consumer before the others in line has what comes, until it goes. */
static void bring_by_cancel(struct listeners *listeners, int i)
{
    struct qs_test_fields fields = qs_test_fields_of("x-priority=9");

    QS_CHECK_OK(qs_test_consume(listeners->internal_channel, names[i], "before", 0,
                                qs_test_fields_slice(&fields)));
    publish(listeners->engine, names[i], "1");
    QS_CHECK(!is_signalled(listeners->event_fds[i], 0));
    QS_CHECK_OK(qs_channel_cancel(listeners->internal_channel, text("before"), QS_ERROR));
}

static void bring_by_delete(struct listeners *listeners, int i)
{
    QS_CHECK_OK(qs_test_delete(listeners->internal_channel, names[i], 0));
}

static void listen_on_queues(struct listeners *listeners, struct engine *engine)
{
    listeners->engine = engine;
    QS_CHECK_OK(qs_channel_open(&listeners->internal_channel, engine->store, QS_ERROR));
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, names[i], QS_DURABLE);
        publish(engine, names[i], "0");
        QS_CHECK_OK(qs_test_get(listeners->internal_channel, names[i], 0));
        listeners->channels[i] = consumer_of(engine, names[i], 0);
        listeners->event_fds[i] = event_fd_of(listeners->channels[i]);
        arm(listeners->channels[i], QS_EVENT_DELIVERY | QS_EVENT_CANCEL);
    }
}

static void stop_listening(struct listeners *listeners)
{
    qs_channel_close(listeners->internal_channel);
    for (int i = 0; i < QUEUES; i++) {
        qs_channel_close(listeners->channels[i]);
        QS_CHECK_OK(qs_test_delete(listeners->engine->channel, names[i], 0));
    }
}

ARMED_TEST(test_only_consumers_of_the_queue_are_signalled)
{
    void (*const bring[])(struct listeners *listeners, int i) = {
        bring_by_publish,     bring_by_batch,  bring_by_transaction, bring_by_requeue,
        bring_by_dead_letter, bring_by_cancel, bring_by_delete,
    };

    for (size_t way = 0; way < sizeof bring / sizeof bring[0]; way++) {
        for (int i = 0; i < QUEUES; i++) {
            struct listeners listeners;
            listen_on_queues(&listeners, engine);
            bring[way](&listeners, i);
            QS_CHECK(is_signalled(listeners.event_fds[i], AWAITED));
            for (int k = 0; k < QUEUES; k++) {
                QS_CHECK(k == i || !is_signalled(listeners.event_fds[k], 0));
            }
            stop_listening(&listeners);
        }
    }
}

ARMED_TEST(test_the_end_of_a_channel_signals_for_all_it_had)
{
    struct listeners listeners;

    listen_on_queues(&listeners, engine);
    qs_channel_close(listeners.internal_channel);
    for (int i = 0; i < QUEUES; i++) {
        QS_CHECK(is_signalled(listeners.event_fds[i], 0));
    }
    listeners.internal_channel = NULL;
    stop_listening(&listeners);
}

/* It has no room any more: what was left to it is the other's. */
ARMED_TEST(test_a_smaller_prefetch_signals_the_others)
{
    qs_channel *first, *second;
    int first_event_fd, second_event_fd;

    declare(engine, "q", 0);
    publish(engine, "q", "0");
    first = consumer_of(engine, "q", 0);
    take(first, QS_EVENT_DELIVERY);
    second = consumer_of(engine, "q", 0);
    first_event_fd = event_fd_of(first);
    second_event_fd = event_fd_of(second);
    arm(first, QS_EVENT_DELIVERY);
    arm(second, QS_EVENT_DELIVERY);
    publish(engine, "q", "1");
    QS_CHECK(is_signalled(first_event_fd, 0) && !is_signalled(second_event_fd, 0));
    QS_CHECK_OK(qs_channel_qos(first, 1, 0, QS_GLOBAL, QS_ERROR));
    QS_CHECK(is_signalled(second_event_fd, 0));
    qs_channel_close(first);
    qs_channel_close(second);
    QS_CHECK_OK(qs_test_get(engine->channel, "q", 0));
}

static qs_status try_get(struct engine *engine, const char *body, uint64_t left)
{
    qs_message message;
    qs_status status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);

    if (status == QS_OK) {
        QS_CHECK(holds(message.body, body) && message.ready_left == left);
        qs_message_release(&message);
    }
    return status;
}

/* A broker would have pushed them. */
ARMED_TEST(test_a_get_comes_behind_consumers_that_wait_and_have_room)
{
    qs_channel *consumer, *full;

    declare(engine, "q", 0);
    consumer = consumer_of(engine, "q", 2);
    (void)event_fd_of(consumer);
    publish(engine, "q", "1");
    QS_CHECK_OK(try_get(engine, "1", 0)); /* it does not wait */
    arm(consumer, QS_EVENT_DELIVERY);
    publish(engine, "q", "2");
    publish(engine, "q", "3");
    QS_CHECK_STATUS(QS_EEMPTY, try_get(engine, "", 0));
    publish(engine, "q", "4");
    QS_CHECK_OK(try_get(engine, "2", 0)); /* two are left for it */
    QS_CHECK_STATUS(QS_EEMPTY, try_get(engine, "", 0));
    take(consumer, QS_EVENT_DELIVERY);
    take(consumer, QS_EVENT_DELIVERY);
    arm(consumer, QS_EVENT_DELIVERY);
    publish(engine, "q", "5"); /* it has no room */
    QS_CHECK_OK(try_get(engine, "5", 0));
    full = consumer_of(engine, "q", 0);
    (void)event_fd_of(full);
    arm(full, QS_EVENT_DELIVERY);
    for (int i = 0; i < 10; i++) {
        publish(engine, "q", "6");
        QS_CHECK_STATUS(QS_EEMPTY, try_get(engine, "", 0));
    }
    qs_channel_close(full);
    QS_CHECK_OK(try_get(engine, "6", 9));
    qs_channel_close(consumer);
}

/* What was to expire at once had its time: a consumer that puts it back does not get it again. */
QS_TEST(test_a_message_without_a_time_to_live_is_not_delivered_again)
{
    static const uint8_t expires_at_once[] = {0x11, 0, 2, 1, '0'}; /* delivery mode, expiration */
    struct engine engine;
    qs_channel *consumer;
    qs_event event;

    start_in_memory_with_threads(&engine);
    declare(&engine, "q", 0);
    consumer = consumer_of(&engine, "q", 1);
    (void)event_fd_of(consumer);
    arm(consumer, QS_EVENT_DELIVERY);
    publish_to(&engine, "", "q", (qs_slice){expires_at_once, sizeof expires_at_once}, text("1"));
    QS_CHECK_OK(qs_channel_next_event(consumer, QS_EVENT_DELIVERY, 0, &event, QS_ERROR));
    QS_CHECK_OK(qs_channel_nack(consumer, event.message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    qs_message_release(&event.message);
    QS_CHECK_STATUS(QS_EEMPTY,
                    qs_channel_next_event(consumer, QS_EVENT_DELIVERY, 0, &event, QS_ERROR));
    qs_channel_close(consumer);
    get_nothing(&engine, "q");
    engine_stop(&engine);
    close_event_fds();
}
