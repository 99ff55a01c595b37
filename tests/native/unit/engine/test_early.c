/* Confirms ahead of the disk.  In memory nothing is committed until somebody waits: what is
 * confirmed before that was confirmed for its acks. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"

#define CONFIRMS (QS_EVENT_ACK | QS_EVENT_NACK)

struct scene {
    struct engine engine; /* its channel publishes, in confirm mode */
    qs_channel *consumer;
};

static void prepare(struct scene *scene)
{
    declare(&scene->engine, "a", QS_DURABLE);
    declare(&scene->engine, "b", QS_DURABLE);
    declare(&scene->engine, "lone", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(scene->engine.channel, QS_ERROR));
    QS_CHECK_OK(qs_channel_open(&scene->consumer, scene->engine.store, QS_ERROR));
    QS_CHECK_OK(qs_test_consume(scene->consumer, "a", "a", 0, NONE));
    QS_CHECK_OK(qs_test_consume(scene->consumer, "b", "b", 0, NONE));
}

/* Journal files with room for more than one commit. */
static void start(struct scene *scene)
{
    engine_init(&scene->engine, IN_MEMORY);
    scene->engine.options.journal_file_bytes = 16u << 20;
    engine_open(&scene->engine);
    prepare(scene);
}

static void stop(struct scene *scene)
{
    qs_channel_close(scene->consumer);
    engine_stop(&scene->engine);
}

QS_TEST_FIXTURE(run_scene, struct scene, start(&fixture), stop(&fixture))
#define SCENE_TEST(name) QS_TEST_BY(run_scene, name, (struct scene * scene))

static void send(struct scene *scene, const char *exchange, const char *key)
{
    publish_to(&scene->engine, exchange, key, PERSISTENT, text("x"));
}

/* The tag of the next delivery. */
static uint64_t receive(struct scene *scene)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(scene->consumer, QS_EVENT_DELIVERY, 0, &event, QS_ERROR));
    qs_message_release(&event.message);
    return event.message.delivery_tag;
}

static void settle(struct scene *scene, uint64_t tag)
{
    QS_CHECK_OK(qs_channel_ack(scene->consumer, tag, 0, QS_ERROR));
}

static void expect_ack(struct scene *scene, uint64_t number, bool multiple, uint64_t count)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(scene->engine.channel, CONFIRMS, 0, &event, QS_ERROR));
    QS_CHECK(event.kind == QS_EVENT_ACK && event.publish_number == number);
    QS_CHECK(event.multiple == multiple && event.count == count);
}

static void commit(struct scene *scene)
{
    bool nacked;

    QS_CHECK_OK(qs_store_sync(scene->engine.store, QS_ERROR));
    QS_CHECK_OK(qs_channel_wait_confirms(scene->engine.channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
}

SCENE_TEST(test_what_was_acknowledged_is_confirmed_before_its_commit)
{
    uint64_t syncs = stats_of(&scene->engine).fdatasyncs;

    send(scene, "", "a");
    expect_no_event(&scene->engine, CONFIRMS);
    settle(scene, receive(scene));
    expect_ack(scene, 1, false, 1);
    QS_CHECK(stats_of(&scene->engine).fdatasyncs == syncs);
    expect_no_event(&scene->engine, CONFIRMS);
    commit(scene);
    expect_no_event(&scene->engine, CONFIRMS);
    QS_CHECK(stats_of(&scene->engine).messages_confirmed == 1);
}

SCENE_TEST(test_confirms_come_out_of_order_and_once)
{
    uint64_t tags[4];

    for (int i = 0; i < 4; i++) {
        send(scene, "", "a");
        tags[i] = receive(scene);
    }
    settle(scene, tags[2]);
    settle(scene, tags[1]);
    expect_ack(scene, 2, false, 1);
    commit(scene);
    expect_ack(scene, 4, true, 3); /* 3 was not told of yet */
    expect_no_event(&scene->engine, CONFIRMS);
    settle(scene, tags[0]);
    settle(scene, tags[3]);
    expect_no_event(&scene->engine, CONFIRMS);
    send(scene, "", "a");
    settle(scene, receive(scene));
    expect_ack(scene, 5, false, 1);
    QS_CHECK(stats_of(&scene->engine).messages_confirmed == 5);
}

SCENE_TEST(test_each_queue_has_to_be_done_with_it)
{
    uint64_t first;

    bind_queue(&scene->engine, "a", "amq.fanout", "");
    bind_queue(&scene->engine, "b", "amq.fanout", "");
    send(scene, "amq.fanout", "");
    first = receive(scene);
    settle(scene, first);
    expect_no_event(&scene->engine, CONFIRMS);
    settle(scene, receive(scene));
    expect_ack(scene, 1, false, 1);
    bind_queue(&scene->engine, "lone", "amq.fanout", ""); /* which nobody consumes */
    send(scene, "amq.fanout", "");
    settle(scene, receive(scene));
    settle(scene, receive(scene));
    expect_no_event(&scene->engine, CONFIRMS);
    commit(scene);
    expect_ack(scene, 2, true, 1);
}

/* A transaction that is not committed gives back what the publisher would not send again. */
SCENE_TEST(test_acks_in_a_transaction_wait_for_the_disk)
{
    QS_CHECK_OK(qs_channel_tx_select(scene->consumer, QS_ERROR));
    send(scene, "", "a");
    settle(scene, receive(scene));
    QS_CHECK_OK(qs_test_commit(scene->consumer, NONE, QS_NO_WAIT));
    expect_no_event(&scene->engine, CONFIRMS);
    commit(scene);
    expect_ack(scene, 1, false, 1);
}

SCENE_TEST(test_what_is_given_back_is_not_confirmed_and_its_ack_later_does_it)
{
    send(scene, "", "a");
    QS_CHECK_OK(qs_channel_nack(scene->consumer, receive(scene), QS_REQUEUE, 0, QS_ERROR));
    expect_no_event(&scene->engine, CONFIRMS);
    settle(scene, receive(scene));
    expect_ack(scene, 1, false, 1);
}

/* In the commit before its ack: it might come again. */
SCENE_TEST(test_what_is_on_the_disk_already_needs_its_sync)
{
    uint64_t tag;
    qs_receipt receipt = publish_to(&scene->engine, "", "a", PERSISTENT, text("x"));

    tag = receive(scene);
    QS_CHECK_OK(qs_store_wait_durable(scene->engine.store, receipt.lsn, QS_FOREVER, QS_ERROR));
    send(scene, "", "lone");
    settle(scene, tag);
    expect_ack(scene, 1, false, 1); /* for its sync */
    expect_no_event(&scene->engine, CONFIRMS);
}

SCENE_TEST(test_a_publisher_that_has_gone_hears_nothing)
{
    uint64_t tag;

    send(scene, "", "a");
    tag = receive(scene);
    engine_new_channel(&scene->engine);
    QS_CHECK_OK(qs_channel_confirm_select(scene->engine.channel, QS_ERROR));
    settle(scene, tag);
    expect_no_event(&scene->engine, CONFIRMS);
}

static void note(void *context, const qs_unconfirmed *info)
{
    if (!info->has_queue) {
        *(uint64_t *)context += info->last_number - info->first_number + 1;
    } else {
        QS_CHECK(info->first_number == info->last_number && info->first_number != 2);
    }
}

SCENE_TEST(test_what_was_confirmed_ahead_is_not_among_the_unconfirmed)
{
    uint64_t tags[3], waiting = 0;

    for (int i = 0; i < 3; i++) {
        send(scene, "", "a");
        tags[i] = receive(scene);
    }
    settle(scene, tags[1]);
    QS_CHECK_OK(qs_channel_visit_unconfirmed(scene->engine.channel, note, &waiting, QS_ERROR));
    QS_CHECK(waiting == 2);
}

/* More than are noted: the others are confirmed by their commit. */
SCENE_TEST(test_a_thousand_messages_are_confirmed_once)
{
    uint64_t confirmed = 0;
    qs_event event;

    for (int i = 0; i < 1000; i++) {
        send(scene, "", i % 2 == 0 ? "a" : "b");
        settle(scene, receive(scene));
    }
    commit(scene);
    while (qs_channel_next_event(scene->engine.channel, CONFIRMS, 0, &event, NULL) == QS_OK) {
        QS_CHECK(event.kind == QS_EVENT_ACK);
        confirmed += event.count;
    }
    QS_CHECK(confirmed == 1000 && stats_of(&scene->engine).messages_confirmed == 1000);
}

static void declare_with(struct scene *scene, const char *queue, const char *arguments)
{
    qs_test_declare_with(scene->engine.channel, queue, QS_DURABLE, "%s", arguments);
}

static void consume(struct scene *scene, const char *queue, uint32_t flags)
{
    QS_CHECK_OK(qs_test_consume(scene->consumer, queue, queue, flags, NONE));
}

/* To both a and this queue. */
static void bind_with_a(struct scene *scene, const char *queue)
{
    bind_queue(&scene->engine, "a", "amq.fanout", "");
    bind_queue(&scene->engine, queue, "amq.fanout", "");
}

static void send_to_both(struct scene *scene)
{
    send(scene, "amq.fanout", "");
}

/* Its commit confirms the only message. */
static void expect_a_late_ack(struct scene *scene)
{
    expect_no_event(&scene->engine, CONFIRMS);
    commit(scene);
    expect_ack(scene, 1, false, 1);
    expect_no_event(&scene->engine, CONFIRMS);
    QS_CHECK(stats_of(&scene->engine).messages_confirmed == 1);
}

SCENE_TEST(test_a_delivery_without_acks_is_an_ack)
{
    consume(scene, "lone", QS_NO_ACK);
    send(scene, "", "lone");
    receive(scene);
    expect_ack(scene, 1, false, 1);
    send(scene, "", "a");
    QS_CHECK_OK(qs_test_get(scene->consumer, "a", QS_NO_ACK));
    expect_ack(scene, 2, false, 1);
}

SCENE_TEST(test_many_acks_at_once_confirm_what_they_make_an_end_of)
{
    uint64_t last = 0;

    for (int i = 0; i < 5; i++) {
        send(scene, "", "a");
        last = i < 3 ? receive(scene) : last;
    }
    QS_CHECK_OK(qs_channel_ack(scene->consumer, last, QS_MULTIPLE, QS_ERROR));
    for (uint64_t number = 1; number <= 3; number++) {
        expect_ack(scene, number, false, 1);
    }
    expect_no_event(&scene->engine, CONFIRMS);
}

SCENE_TEST(test_a_rejected_message_is_confirmed_and_a_dead_letter_is_not)
{
    send(scene, "", "a");
    QS_CHECK_OK(qs_channel_nack(scene->consumer, receive(scene), 0, 0, QS_ERROR));
    expect_ack(scene, 1, false, 1);
    declare_with(scene, "d", "x-dead-letter-exchange=amq.direct");
    consume(scene, "d", 0);
    send(scene, "", "d");
    QS_CHECK_OK(qs_channel_nack(scene->consumer, receive(scene), 0, 0, QS_ERROR));
    expect_no_event(&scene->engine, CONFIRMS);
    commit(scene);
    expect_ack(scene, 2, true, 1);
}

SCENE_TEST(test_what_was_delivered_too_often_waits_for_the_disk)
{
    declare_with(scene, "d", "x-delivery-limit=1");
    consume(scene, "d", 0);
    send(scene, "", "d");
    for (int i = 0; i < 2; i++) {
        QS_CHECK_OK(qs_channel_nack(scene->consumer, receive(scene), QS_REQUEUE, 0, QS_ERROR));
    }
    check_counts(&scene->engine, "d", 0, 0);
    expect_a_late_ack(scene);
}

SCENE_TEST(test_a_copy_that_was_purged_waits_for_the_disk)
{
    uint64_t count;

    bind_with_a(scene, "lone");
    consume(scene, "lone", 0);
    QS_CHECK_OK(qs_channel_cancel(scene->consumer, text("b"), QS_ERROR));
    send_to_both(scene);
    settle(scene, receive(scene));
    QS_CHECK_OK(qs_channel_queue_purge(scene->engine.channel, text("lone"), 0, &count, QS_ERROR));
    if (count == 0) { /* it is a's copy that is left */
        QS_CHECK_OK(qs_channel_queue_purge(scene->engine.channel, text("a"), 0, &count, QS_ERROR));
    }
    QS_CHECK(count == 1);
    expect_ack(scene, 1, false, 1); /* a purge commits */
    expect_no_event(&scene->engine, CONFIRMS);
}

SCENE_TEST(test_each_copy_has_to_be_acknowledged_outside_of_transactions)
{
    qs_channel *other;
    qs_message message;

    bind_with_a(scene, "lone");
    QS_CHECK_OK(qs_channel_open(&other, scene->engine.store, QS_ERROR));
    QS_CHECK_OK(qs_channel_tx_select(other, QS_ERROR));
    send_to_both(scene);
    QS_CHECK_OK(qs_channel_get(other, text("lone"), 0, &message, QS_ERROR));
    qs_message_release(&message);
    settle(scene, receive(scene));
    QS_CHECK_OK(qs_channel_ack(other, message.delivery_tag, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_commit(other, NONE, QS_NO_WAIT));
    expect_a_late_ack(scene);
    qs_channel_close(other);
}

/* Streams keep it, and of the others nobody has noted it. */
QS_TEST(test_a_copy_elsewhere_waits_for_the_disk)
{
    static const char *const kinds[] = {"stream", "work", "transient"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        struct scene scene;

        start(&scene);
        if (i == 0) {
            declare_with(&scene, "other", "x-queue-type=stream");
        } else if (i == 1) {
            declare_with(&scene, "log", "x-queue-type=stream");
            declare_with(&scene, "other", "x-stream-source=log");
        } else {
            declare(&scene.engine, "other", 0);
        }
        bind_with_a(&scene, i == 1 ? "log" : "other");
        if (i > 0) {
            consume(&scene, "other", 0);
        }
        send_to_both(&scene);
        settle(&scene, receive(&scene));
        expect_a_late_ack(&scene);
        stop(&scene);
    }
}

SCENE_TEST(test_queues_keep_priorities_of_their_own)
{
    static const uint8_t urgent[] = {0x18, 0, 2, 7}; /* persistent, of priority 7 */

    declare_with(scene, "low", "x-max-priority=3");
    declare_with(scene, "high", "x-max-priority=10");
    bind_with_a(scene, "low");
    bind_queue(&scene->engine, "high", "amq.fanout", "");
    consume(scene, "low", 0);
    consume(scene, "high", 0);
    publish_to(&scene->engine, "amq.fanout", "", (qs_slice){urgent, sizeof urgent}, text("x"));
    for (int i = 0; i < 3; i++) {
        expect_no_event(&scene->engine, CONFIRMS);
        settle(scene, receive(scene));
    }
    expect_ack(scene, 1, false, 1);
}

/* In the message store its record is small; in the journal its ack is of another entry. */
QS_TEST(test_a_large_body_is_confirmed_ahead_where_the_journal_has_none_of_it)
{
    const size_t bytes = 3u << 20;
    QS_TEST_FREED char *body = make_body(bytes, 1);

    for (int embeds = 0; embeds < 2; embeds++) {
        struct scene scene;

        engine_init(&scene.engine, IN_MEMORY);
        scene.engine.options.journal_file_bytes = 16u << 20;
        scene.engine.options.message_file_bytes = 16u << 20;
        scene.engine.options.embed_below = embeds ? 2 * (uint32_t)bytes : 4096;
        engine_open(&scene.engine);
        prepare(&scene);
        publish_to(&scene.engine, "", "a", PERSISTENT, (qs_slice){body, bytes});
        settle(&scene, receive(&scene));
        if (embeds) {
            expect_a_late_ack(&scene);
        } else {
            expect_ack(&scene, 1, false, 1);
        }
        stop(&scene);
    }
}

static void start_faulty(struct scene *scene)
{
    engine_init(&scene->engine, IN_MEMORY);
    engine_put_fault(&scene->engine);
    engine_open(&scene->engine);
    prepare(scene);
}

static void fail_to_sync(struct scene *scene)
{
    qsi_env_fault_arm(scene->engine.fault, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_sync(scene->engine.store, NULL));
}

static void stop_failed(struct scene *scene)
{
    qs_channel_close(scene->consumer);
    qs_channel_close(scene->engine.channel);
    QS_CHECK(qs_store_close(scene->engine.store, NULL) != QS_OK);
    engine_fini(&scene->engine);
}

QS_TEST(test_a_failed_store_refuses_nothing_that_was_confirmed)
{
    struct scene scene;
    qs_event event;
    bool nacked;

    start_faulty(&scene);
    send(&scene, "", "a");
    send(&scene, "", "lone");
    settle(&scene, receive(&scene));
    fail_to_sync(&scene);
    QS_CHECK(qs_channel_wait_confirms(scene.engine.channel, QS_FOREVER, &nacked, NULL) == QS_OK);
    QS_CHECK(nacked);
    expect_ack(&scene, 1, false, 1);
    event = expect_event(&scene.engine, CONFIRMS, QS_EVENT_NACK);
    QS_CHECK(event.publish_number == 2 && event.count == 1);
    expect_no_event(&scene.engine, CONFIRMS);
    stop_failed(&scene);
}

static void add_confirms(void *context, const qs_counts *counts)
{
    enum route_count {
#define QS_ROUTE_COUNT(name, text) ROUTE_##name,
#include "qstore/counts.def"
        ROUTE_COUNTS
    };

    if (counts->of == QS_COUNTS_ROUTE) {
        *(uint64_t *)context += counts->values[ROUTE_confirm];
    }
}

static void check_confirms(struct scene *scene, uint64_t expected)
{
    uint64_t confirms = 0;

    QS_CHECK_OK(qs_store_visit_counts(scene->engine.store, add_confirms, &confirms));
    QS_CHECK(confirms == expected);
}

SCENE_TEST(test_what_was_confirmed_ahead_is_counted_once)
{
    uint64_t tags[4];

    for (int i = 0; i < 4; i++) {
        send(scene, "", "a");
        tags[i] = receive(scene);
    }
    settle(scene, tags[1]);
    expect_ack(scene, 2, false, 1);
    check_confirms(scene, 1);
    settle(scene, tags[3]); /* and is not told of */
    check_confirms(scene, 1);
    commit(scene);
    check_confirms(scene, 4);
    expect_ack(scene, 3, true, 2);
    expect_ack(scene, 4, false, 1);
    check_confirms(scene, 4);
    send(scene, "", "a");
    settle(scene, receive(scene));
    expect_ack(scene, 5, false, 1);
    engine_new_channel(&scene->engine);
    check_confirms(scene, 5);
    QS_CHECK_OK(qs_store_sync(scene->engine.store, QS_ERROR));
    check_confirms(scene, 5);
}

/* A publisher that always has a message on its way, after one that was confirmed ahead. */
SCENE_TEST(test_confirms_go_on_being_counted)
{
    uint64_t told = 1;
    qs_event event;

    send(scene, "", "a");
    settle(scene, receive(scene));
    expect_ack(scene, 1, false, 1);
    for (int i = 0; i < 100; i++) {
        send(scene, "", "a");
        QS_CHECK_OK(qs_store_sync(scene->engine.store, QS_ERROR));
        send(scene, "", "a");
        while (qs_channel_next_event(scene->engine.channel, CONFIRMS, 0, &event, NULL) == QS_OK) {
            told += event.count;
        }
        check_confirms(scene, told);
    }
    QS_CHECK(told == 200);
}

/* Its disk failed behind it: nothing was refused. */
QS_TEST(test_who_waits_for_what_was_confirmed_ahead_hears_of_no_failure)
{
    struct scene scene;
    bool nacked;

    start_faulty(&scene);
    send(&scene, "", "a");
    settle(&scene, receive(&scene));
    fail_to_sync(&scene);
    QS_CHECK_OK(qs_channel_wait_confirms(scene.engine.channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    expect_ack(&scene, 1, false, 1);
    stop_failed(&scene);
}

/* Nothing is committed: the delay is long, and a listener that is held hurries nobody. */
QS_TEST(test_an_event_loop_is_told_by_the_ack)
{
    struct scene scene;
    qs_listener *listener;
    void *rang = NULL;
    uint64_t tag;

    engine_init(&scene.engine, IN_MEMORY);
    scene.engine.options.background = true;
    scene.engine.options.commit_delay_us = 200000;
    engine_open(&scene.engine);
    prepare(&scene);
    QS_CHECK_OK(qs_listener_open(&listener, scene.engine.store, QS_ERROR));
    QS_CHECK_OK(qs_listener_add(listener, scene.engine.channel, &scene, QS_ERROR));
    qs_listener_hold(listener);
    send(&scene, "", "a");
    tag = receive(&scene);
    expect_no_event(&scene.engine, CONFIRMS | QS_EVENT_ARM);
    QS_CHECK(qs_listener_next(listener, &rang, 1, NULL) == 0);
    settle(&scene, tag);
    QS_CHECK(qs_listener_next(listener, &rang, 1, NULL) == 1 && rang == &scene);
    expect_ack(&scene, 1, false, 1);
    qs_listener_go(listener, true);
    qs_listener_close(listener);
    stop(&scene);
}

/* Whatever memory is missing, a message is confirmed once, at the latest by its commit. */
QS_TEST(test_without_memory_the_commit_confirms)
{
    static struct qs_test_alloc memory;
    bool failed = true;

    qs_test_alloc_install(&memory);
    for (uint64_t number = 1; failed; number++) {
        struct scene scene;
        qs_receipt receipt;
        qs_status status;
        qs_event event;
        uint64_t confirmed = 0;

        start(&scene);
        qs_test_alloc_arm(&memory, number, false);
        status = qs_channel_publish(scene.engine.channel, text(""), text("a"), PERSISTENT,
                                    text("x"), 0, 0, &receipt, NULL);
        if (qs_channel_next_event(scene.consumer, QS_EVENT_DELIVERY, 0, &event, NULL) == QS_OK) {
            qs_message_release(&event.message);
            if (qs_channel_ack(scene.consumer, event.message.delivery_tag, 0, NULL) != QS_OK) {
                QS_CHECK(memory.has_failed);
            }
        }
        failed = memory.has_failed;
        qs_test_alloc_arm(&memory, 0, false);
        commit(&scene);
        while (qs_channel_next_event(scene.engine.channel, CONFIRMS, 0, &event, NULL) == QS_OK) {
            QS_CHECK(event.kind == QS_EVENT_ACK);
            confirmed += event.count;
        }
        QS_CHECK(confirmed == (status == QS_OK ? 1 : 0));
        stop(&scene);
    }
    qs_test_alloc_end(&memory);
}
