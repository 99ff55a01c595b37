/* Messages that are not to be delivered yet: published so, or requeued so.  None comes early,
 * each comes, whatever lies between. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_sweep.h"

static void publish_later(struct engine *engine, const char *queue, const char *body,
                          uint64_t seconds, qs_slice properties)
{
    qs_receipt receipt;

    QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text(queue), properties, text(body),
                                   0, seconds * 1000000, &receipt, QS_ERROR));
}

static void nack_later(struct engine *engine, uint64_t tag, uint32_t flags, uint64_t seconds)
{
    QS_CHECK_OK(
        qs_channel_nack(engine->channel, tag, QS_REQUEUE | flags, seconds * 1000000, QS_ERROR));
}

static void check_delayed(struct engine *engine, const char *queue, uint64_t ready,
                          uint64_t unacked, uint64_t delayed)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    if (status.messages_ready != ready || status.messages_unacked != unacked ||
        status.messages_delayed != delayed) {
        fprintf(stderr, "queue %s: %" PRIu64 " ready, %" PRIu64 " unacked, %" PRIu64 " delayed\n",
                queue, status.messages_ready, status.messages_unacked, status.messages_delayed);
        QS_CHECK(!"counts");
    }
}

static void pass(struct engine *engine, uint64_t seconds)
{
    qsi_env_mem_advance(engine->memory, seconds * SECOND);
}

IN_MEMORY_TEST(test_what_is_delayed_comes_when_it_is_due_and_holds_up_nobody)
{
    declare(engine, "q", QS_DURABLE);
    publish_later(engine, "q", "late", 100, PERSISTENT);
    publish_later(engine, "q", "soon", 10, PERSISTENT);
    publish(engine, "q", "now");
    check_delayed(engine, "q", 1, 0, 2);
    get(engine, "q", "now");
    get_nothing(engine, "q");
    pass(engine, 9);
    get_nothing(engine, "q");
    pass(engine, 2);
    get(engine, "q", "soon");
    get_nothing(engine, "q");
    pass(engine, 100);
    get(engine, "q", "late");
    check_delayed(engine, "q", 0, 3, 0);
}

IN_MEMORY_TEST(test_a_nack_with_delay_puts_it_back_later)
{
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "a");
    publish(engine, "q", "b");
    publish(engine, "q", "c");
    get(engine, "q", "a");
    get(engine, "q", "b");
    nack_later(engine, 2, QS_MULTIPLE, 5);
    check_delayed(engine, "q", 1, 0, 2);
    get(engine, "q", "c");
    get_nothing(engine, "q");
    pass(engine, 6);
    message = get(engine, "q", "a");
    QS_CHECK(message.redelivered && message.delivery_count == 1);
    get(engine, "q", "b");
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_nack(engine->channel, message.delivery_tag, 0, 1, NULL));
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE,
                                               UINT64_MAX, NULL));
}

enum way { CLOSE, CRASH, CHECKPOINT, CHECKPOINT_CRASH };

static void go(struct engine *engine, enum way way)
{
    if (way == CHECKPOINT || way == CHECKPOINT_CRASH) {
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    if (way == CRASH || way == CHECKPOINT_CRASH) {
        engine_crash(engine);
    } else {
        engine_reopen(engine);
    }
}

static void test_the_due_time_survives(enum way way, uint64_t carried)
{
    struct engine engine;
    qs_message message;

    engine_init(&engine, IN_MEMORY);
    engine.options.segment_entries = 64;
    engine.options.checkpoint_bytes = carried;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    publish_later(&engine, "q", "first", 10, PERSISTENT);
    publish_later(&engine, "q", "lost", 10, TRANSIENT);
    publish(&engine, "q", "a");
    publish_later(&engine, "q", "second", 20, PERSISTENT);
    get(&engine, "q", "a");
    nack_later(&engine, 1, 0, 15);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    check_delayed(&engine, "q", 0, 0, 4);
    go(&engine, way);
    check_delayed(&engine, "q", 0, 0, 3);
    get_nothing(&engine, "q");
    pass(&engine, 11);
    get(&engine, "q", "first");
    get_nothing(&engine, "q");
    pass(&engine, 5);
    message = get(&engine, "q", "a");
    QS_CHECK(message.delivery_count >= 1);
    get_nothing(&engine, "q");
    pass(&engine, 5);
    get(&engine, "q", "second");
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

/* Delayed messages leave memory like others, states and all, and their segments are read when
 * they are due. */
QS_BOOL_TEST(test_delayed_messages_leave_memory, persistent)
{
    enum { COUNT = 40000 };
    qs_slice properties = persistent ? PERSISTENT : TRANSIENT;
    char body[512], expected[16];
    struct engine engine;

    engine_init(&engine, IN_MEMORY);
    engine.options.memory_budget = 1u << 20;
    engine.options.segment_entries = 1024;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    memset(body, 'x', sizeof body - 1);
    body[sizeof body - 1] = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(expected, sizeof expected, "%08u", i);
        memcpy(body, expected, 8);
        publish_later(&engine, "q", body, 1000 + i * 7919 % COUNT, properties);
    }
    check_delayed(&engine, "q", 0, 0, COUNT);
    QS_CHECK(stats_of(&engine).ram_bytes < 2u << 20);
    get_nothing(&engine, "q");
    pass(&engine, 1000 + COUNT / 2);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i * 7919 % COUNT <= COUNT / 2) {
            qs_message message;
            snprintf(expected, sizeof expected, "%08u", i);
            QS_CHECK_OK(qs_channel_get(engine.channel, text("q"), QS_NO_ACK, &message, QS_ERROR));
            QS_CHECK(message.body.bytes == sizeof body - 1 &&
                     memcmp(message.body.data, expected, 8) == 0);
            qs_message_release(&message);
        }
    }
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

/* Whatever allocation fails: a delay happened, or it did not. */
QS_BOOL_TEST(test_a_delay_without_memory_did_not_happen, in_transaction)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct engine engine;
        qs_receipt receipt;
        qs_status published, nacked, committed = QS_OK;
        bool repeated;

        engine_start(&engine, IN_MEMORY);
        declare(&engine, "q", QS_DURABLE);
        publish(&engine, "q", "a");
        get(&engine, "q", "a");
        if (in_transaction) {
            QS_CHECK_OK(qs_channel_tx_select(engine.channel, QS_ERROR));
        }
        qs_test_sweep_allocations(&sweep);
        published = qs_channel_publish(engine.channel, text(""), text("q"), PERSISTENT, text("b"),
                                       0, 5000000, &receipt, NULL);
        nacked = qs_channel_nack(engine.channel, 1, QS_REQUEUE, 5000000, NULL);
        if (in_transaction) {
            committed = qs_channel_tx_commit(engine.channel, NONE, 0, &repeated, NULL);
        }
        qs_test_sweep_rest(&sweep);
        if (committed == QS_ESTORE_FAILED) { /* files in memory grow; no others need memory to */
            qs_channel_close(engine.channel);
            (void)qs_store_close(engine.store, NULL);
            engine_fini(&engine);
            continue;
        }
        QS_CHECK((published == QS_OK || published == QS_ENOMEM) &&
                 (nacked == QS_OK || nacked == QS_ENOMEM) &&
                 (committed == QS_OK || committed == QS_ENOMEM));
        QS_CHECK(sweep.has_failed || (published == QS_OK && nacked == QS_OK && committed == QS_OK));
        if (committed == QS_OK) {
            check_delayed(&engine, "q", 0, nacked == QS_OK ? 0 : 1,
                          (published == QS_OK ? 1u : 0u) + (nacked == QS_OK ? 1u : 0u));
        } else {
            check_delayed(&engine, "q", 0, 1, 0);
        }
        engine_stop(&engine);
    }
}

int main(void)
{
    qs_test_run_all();
    for (enum way way = CLOSE; way <= CHECKPOINT_CRASH; way++) {
        test_the_due_time_survives(way, 64u << 20);
        test_the_due_time_survives(way, 0);
    }
    return 0;
}
