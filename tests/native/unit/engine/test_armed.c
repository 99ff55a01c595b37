/* Event loops: the descriptor is written when there is something to take, once, and not
 * otherwise; calls that must not wait do not. */
#include "engine_fixture.h"
#include "qs_test_batch.h"
#include "qs_test_fields.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ANSWERS (QS_EVENT_RETURN | QS_EVENT_ACK | QS_EVENT_NACK)
#define EVENT_FDS_MAX 256
#define SOON 2000 /* ms; nothing here takes a tenth of it */

/* The descriptors that a test asked for, which it closes at its end. */
static struct {
    int fds[EVENT_FDS_MAX];
    size_t count;
} event_fds;

static void remember_event_fd(int event_fd)
{
    for (size_t i = 0; i < event_fds.count; i++) {
        if (event_fds.fds[i] == event_fd) {
            return;
        }
    }
    QS_CHECK(event_fds.count < EVENT_FDS_MAX);
    event_fds.fds[event_fds.count++] = event_fd;
}

/* Also a check that nobody else has closed one. */
static void close_event_fds(void)
{
    for (size_t i = 0; i < event_fds.count; i++) {
        QS_CHECK(close(event_fds.fds[i]) == 0);
    }
    event_fds.count = 0;
}

/* Asking is a call of the channel, which signals by itself what is due: ask before. */
static int event_fd_of(qs_channel *channel)
{
    int event_fd;

    QS_CHECK_OK(qs_channel_event_fd(channel, &event_fd, QS_ERROR));
    remember_event_fd(event_fd);
    return event_fd;
}

static bool is_signalled(int event_fd, int timeout_ms)
{
    struct pollfd watched = {.fd = event_fd, .events = POLLIN};

    return poll(&watched, 1, timeout_ms) == 1;
}

/* Listens, which makes it silent again; how often it was signalled. */
static unsigned long long listen_to(int event_fd)
{
    eventfd_t count = 0;

    QS_CHECK(eventfd_read(event_fd, &count) == 0);
    return count;
}

static void arm(qs_channel *channel, uint32_t kinds)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(channel, kinds | QS_EVENT_ARM | QS_NO_WAIT, 0,
                                                     &event, QS_ERROR));
}

static qs_event take(qs_channel *channel, uint32_t kind)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(channel, kind | QS_NO_WAIT, 0, &event, QS_ERROR));
    QS_CHECK(event.kind == kind);
    qs_message_release(&event.message);
    return event;
}

static qs_channel *consumer_of(struct engine *engine, const char *queue, uint32_t prefetch)
{
    qs_channel *channel;
    char tag[256];

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_qos(channel, prefetch, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_consume(channel, text(queue), text("c"), 0, NONE, tag, QS_ERROR));
    return channel;
}

static void test_confirms_ring_once(struct engine *engine)
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
            QS_CHECK(is_signalled(event_fd, SOON));
            QS_CHECK(listen_to(event_fd) == 1);
            continue;
        }
        QS_CHECK_OK(status);
        QS_CHECK(event.kind == QS_EVENT_ACK);
        confirmed += event.count;
    }
    QS_CHECK(confirmed == 100);
}

static void test_a_delivery_rings_who_may_have_it(struct engine *engine)
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
static void test_who_goes_hands_on(struct engine *engine)
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

/* It comes back for something else: it does not wait for deliveries any more. */
static void test_who_asks_for_others_hands_on(struct engine *engine)
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
    QS_CHECK(is_signalled(second_event_fd, 0));
    qs_channel_close(first);
    qs_channel_close(second);
}

static void test_the_end_rings(struct engine *engine)
{
    qs_channel *channel;
    qs_declare_ok ok;
    uint64_t count;
    int event_fd;

    QS_CHECK_OK(qs_channel_open(&channel, engine->store, QS_ERROR));
    event_fd = event_fd_of(channel);
    QS_CHECK_STATUS(QS_NOT_FOUND, qs_channel_queue_declare(channel, text("none"), QS_PASSIVE, NONE,
                                                           &ok, QS_ERROR));
    QS_CHECK(is_signalled(event_fd, 0));
    qs_channel_close(channel);
    declare(engine, "q", 0);
    channel = consumer_of(engine, "q", 0);
    event_fd = event_fd_of(channel);
    arm(channel, QS_EVENT_CANCEL);
    QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("q"), 0, &count, QS_ERROR));
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
static void test_a_freed_channel_leaves_its_descriptor_open(struct engine *engine)
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

static void test_a_change_rings_whoever_it_is_for(struct engine *engine)
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

/* ---- who is signalled, and by what ---- */

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
    qs_receipt receipt;
    bool repeated;

    QS_CHECK_OK(qs_channel_open(&channel, listeners->engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    QS_CHECK_OK(qs_channel_publish(channel, text(""), text(names[i]), PERSISTENT, text("1"), 0,
                                   &receipt, QS_ERROR));
    QS_CHECK(!is_signalled(listeners->event_fds[i], 0));
    QS_CHECK_OK(qs_channel_tx_commit(channel, NONE, &repeated, QS_ERROR));
    qs_channel_close(channel);
}

static void bring_by_requeue(struct listeners *listeners, int i)
{
    QS_CHECK_OK(
        qs_channel_nack(listeners->internal_channel, (uint64_t)i + 1, QS_REQUEUE, QS_ERROR));
}

static void bring_by_dead_letter(struct listeners *listeners, int i)
{
    static const char *const dying[QUEUES] = {"dying0", "dying1", "dying2"};
    struct qs_test_fields fields = {.used = 0};
    qs_message message;
    qs_declare_ok ok;

    qs_test_put_text(&fields, "x-dead-letter-exchange", "");
    qs_test_put_text(&fields, "x-dead-letter-routing-key", names[i]);
    QS_CHECK_OK(qs_channel_queue_declare(listeners->internal_channel, text(dying[i]), 0,
                                         qs_test_fields_slice(&fields), &ok, QS_ERROR));
    publish(listeners->engine, dying[i], "1");
    QS_CHECK_OK(qs_channel_get(listeners->internal_channel, text(dying[i]), 0, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_nack(listeners->internal_channel, message.delivery_tag, 0, QS_ERROR));
    qs_message_release(&message);
}

/* A consumer before the others in line has what comes, until it goes. */
static void bring_by_cancel(struct listeners *listeners, int i)
{
    struct qs_test_fields fields = {.used = 0};
    char tag[256];

    qs_test_put_long(&fields, "x-priority", 9);
    QS_CHECK_OK(qs_channel_consume(listeners->internal_channel, text(names[i]), text("before"), 0,
                                   qs_test_fields_slice(&fields), tag, QS_ERROR));
    publish(listeners->engine, names[i], "1");
    QS_CHECK(!is_signalled(listeners->event_fds[i], 0));
    QS_CHECK_OK(qs_channel_cancel(listeners->internal_channel, text("before"), QS_ERROR));
}

static void bring_by_delete(struct listeners *listeners, int i)
{
    uint64_t count;

    QS_CHECK_OK(
        qs_channel_queue_delete(listeners->internal_channel, text(names[i]), 0, &count, QS_ERROR));
}

static void listen_on_queues(struct listeners *listeners, struct engine *engine)
{
    qs_message message;

    listeners->engine = engine;
    QS_CHECK_OK(qs_channel_open(&listeners->internal_channel, engine->store, QS_ERROR));
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, names[i], QS_DURABLE);
        publish(engine, names[i], "0");
        QS_CHECK_OK(
            qs_channel_get(listeners->internal_channel, text(names[i]), 0, &message, QS_ERROR));
        qs_message_release(&message);
        listeners->channels[i] = consumer_of(engine, names[i], 0);
        listeners->event_fds[i] = event_fd_of(listeners->channels[i]);
        arm(listeners->channels[i], QS_EVENT_DELIVERY | QS_EVENT_CANCEL);
    }
}

static void stop_listening(struct listeners *listeners)
{
    uint64_t count;

    qs_channel_close(listeners->internal_channel);
    for (int i = 0; i < QUEUES; i++) {
        qs_channel_close(listeners->channels[i]);
        QS_CHECK_OK(qs_channel_queue_delete(listeners->engine->channel, text(names[i]), 0, &count,
                                            QS_ERROR));
    }
}

static void test_only_consumers_of_the_queue_are_rung(struct engine *engine)
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
            QS_CHECK(is_signalled(listeners.event_fds[i], SOON));
            for (int k = 0; k < QUEUES; k++) {
                QS_CHECK(k == i || !is_signalled(listeners.event_fds[k], 0));
            }
            stop_listening(&listeners);
        }
    }
}

static void test_the_end_of_a_channel_rings_for_all_it_held(struct engine *engine)
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
static void test_a_smaller_prefetch_rings_the_others(struct engine *engine)
{
    qs_channel *first, *second;
    qs_message message;
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
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    qs_message_release(&message);
}

static void test_confirms_ring_who_was_armed_before_it_published(struct engine *engine)
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
    QS_CHECK(is_signalled(channel_event_fd, SOON) && listen_to(channel_event_fd) == 1);
    take(channel, QS_EVENT_ACK);
    arm(channel, ANSWERS);
    publish_to(engine, "", "q", TRANSIENT, text("2")); /* needs none */
    QS_CHECK(is_signalled(channel_event_fd, 0));
    QS_CHECK(!is_signalled(other_event_fd, 0));
    qs_channel_close(other);
}

static void test_a_call_that_must_not_wait_does_nothing(struct engine *engine)
{
    static const char large[5000];
    qs_slice body = {large, sizeof large};
    qs_receipt receipt;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_STATUS(QS_EWOULDBLOCK,
                    qs_channel_publish(engine->channel, text(""), text("q"), PERSISTENT, body,
                                       QS_NO_WAIT, &receipt, QS_ERROR));
    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text("q"), PERSISTENT, body, 0,
                                   &receipt, QS_ERROR));
    QS_CHECK_STATUS(QS_EWOULDBLOCK,
                    qs_channel_get(engine->channel, text("q"), QS_NO_WAIT, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(!message.redelivered && message.delivery_tag == 1 && message.body.bytes == 5000);
    qs_message_release(&message);
}

static void test_a_range_is_settled_beside_a_transaction(struct engine *engine)
{
    qs_channel *channel = engine->channel;
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 5; i++) {
        publish(engine, "q", "body");
    }
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int i = 0; i < 5; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_settle_range(channel, 0, 1, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_ack(channel, 3, 0, QS_ERROR)); /* the transaction's */
    QS_CHECK_OK(qs_channel_settle_range(channel, 1, 4, QS_REQUEUE | QS_NO_WAIT, QS_ERROR));
    QS_CHECK_OK(qs_channel_settle_range(channel, 5, 9, QS_NO_WAIT, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_rollback(channel, QS_ERROR));
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        QS_CHECK(message.redelivered);
        qs_message_release(&message);
    }
    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_recover(channel, QS_REQUEUE, QS_ERROR));
    for (int i = 0; i < 4; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
}

/* What a client settles when it keeps one tag back: the transaction has the rest, and later that
 * one too. */
static void test_ranges_of_a_transaction_leave_out_what_lies_between(struct engine *engine)
{
    qs_channel *channel = engine->channel;
    qs_message message;
    bool repeated;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 5; i++) {
        publish(engine, "q", "body");
    }
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    for (int i = 0; i < 4; i++) {
        QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    QS_CHECK_OK(qs_channel_settle_range(channel, 1, 1, QS_IN_TX | QS_REJECT, QS_ERROR));
    QS_CHECK_OK(qs_channel_settle_range(channel, 3, 9, QS_IN_TX, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(channel, text("q"), 0, &message, QS_ERROR)); /* 5 came later */
    qs_message_release(&message);
    QS_CHECK_OK(qs_channel_tx_commit(channel, text(""), &repeated, QS_ERROR));
    check_counts(engine, "q", 0, 2);
    ack(engine, 2, 0);
    QS_CHECK_OK(qs_channel_tx_commit(channel, text(""), &repeated, QS_ERROR));
    check_counts(engine, "q", 0, 1);
    QS_CHECK_OK(qs_channel_settle_range(channel, 5, 5, QS_IN_TX | QS_REQUEUE, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_rollback(channel, QS_ERROR));
    check_counts(engine, "q", 0, 1);
}

static void test_it_needs_somebody_who_commits(void)
{
    struct engine engine;
    qs_event event;
    int event_fd;

    engine_start(&engine, IN_MEMORY);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_event_fd(engine.channel, &event_fd, QS_ERROR));
    QS_CHECK(event_fd == -1);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_next_event(engine.channel, ANSWERS | QS_EVENT_ARM, 0,
                                                     &event, QS_ERROR));
    engine_stop(&engine);
}

int main(void)
{
    engine_test *const tests[] = {
        test_confirms_ring_once,
        test_a_delivery_rings_who_may_have_it,
        test_who_goes_hands_on,
        test_who_asks_for_others_hands_on,
        test_the_end_rings,
        test_a_freed_channel_leaves_its_descriptor_open,
        test_a_change_rings_whoever_it_is_for,
        test_only_consumers_of_the_queue_are_rung,
        test_the_end_of_a_channel_rings_for_all_it_held,
        test_a_smaller_prefetch_rings_the_others,
        test_confirms_ring_who_was_armed_before_it_published,
        test_a_call_that_must_not_wait_does_nothing,
        test_a_range_is_settled_beside_a_transaction,
        test_ranges_of_a_transaction_leave_out_what_lies_between,
    };

    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        struct engine engine;
        engine_start(&engine, ON_DISK);
        tests[i](&engine);
        engine_stop(&engine);
        close_event_fds();
    }
    test_it_needs_somebody_who_commits();
    return 0;
}
