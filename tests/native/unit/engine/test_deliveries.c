/* Queues that count deliveries (x-delivery-limit): a message is counted before anybody has it, so
 * that one that ends its process is dropped, or goes to the dead letters, like one that is
 * requeued too often.
 *
 * Method: the process dies in every way of having a message; then the counts that the next one
 * sees are compared with how often it was handed out. */
#include "arrow_table.h"
#include "engine_fixture.h"

#define LIMIT 3u

static void declare_limited(struct engine *engine, bool has_dead_letters)
{
    struct qs_test_fields fields = {.used = 0};

    qs_test_put_long(&fields, "x-delivery-limit", LIMIT);
    if (has_dead_letters) {
        qs_test_put_text(&fields, "x-dead-letter-exchange", "");
        qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
        declare(engine, "dead", QS_DURABLE);
    }
    qs_test_declare(engine->channel, "q", QS_DURABLE, &fields);
}

static void sync_store(struct engine *engine)
{
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

enum way { BY_GET, BY_CONSUMER, BY_BATCH, BY_NO_ACK, WAYS };

/* How often the first message was delivered before; UINT32_MAX: there is none. */
static uint32_t take_first(struct engine *engine, enum way way)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    uint32_t count = UINT32_MAX;
    qs_event event = {.kind = 0};
    qs_status status;

    if (way == BY_BATCH) {
        QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 100, UINT64_MAX, 0, 0, &schema,
                                         &array, QS_ERROR));
        if (array.length > 0) {
            count = received_count(&(struct received){schema, array}, 0);
        }
        schema.release(&schema);
        array.release(&array);
        return count;
    }
    if (way == BY_CONSUMER) {
        QS_CHECK_OK(qs_test_consume(engine->channel, "q", "", 0, NONE));
        status = qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
    } else {
        status = qs_channel_get(engine->channel, text("q"), way == BY_NO_ACK ? QS_NO_ACK : 0,
                                &event.message, QS_ERROR);
    }
    if (status == QS_OK) {
        count = event.message.delivery_count;
        QS_CHECK(event.message.redelivered == (count > 0) || count == 0);
        qs_message_release(&event.message);
    }
    QS_CHECK(status == QS_OK || status == QS_EEMPTY);
    return count;
}

QS_TEST(test_a_message_that_ends_its_process_was_delivered_for_ever)
{
    for (int way = 0; way < WAYS; way++) {
        for (int dead_letters = 0; dead_letters < 2; dead_letters++) {
            struct engine engine;

            engine_start(&engine, IN_MEMORY);
            declare_limited(&engine, dead_letters != 0);
            publish(&engine, "q", "poison");
            sync_store(&engine);
            for (uint32_t i = 0; i <= LIMIT; i++) {
                QS_CHECK(take_first(&engine, (enum way)way) == i);
                engine_crash(&engine);
                /* Worn out, it is removed before anybody asks for it. */
                check_counts(&engine, "q", i < LIMIT ? 1 : 0, i < LIMIT ? 0 : 1);
            }
            QS_CHECK(take_first(&engine, (enum way)way) == UINT32_MAX);
            check_counts(&engine, "q", 0, 0);
            if (dead_letters != 0) {
                get(&engine, "dead", "poison");
            }
            engine_stop(&engine);
        }
    }
}

/* The others go on; those that the process had too are counted as well, and no more. */
IN_MEMORY_TEST(test_only_what_was_handed_out_counts)
{
    declare_limited(engine, false);
    publish_numbers(engine, "q", 0, 10);
    sync_store(engine);
    get(engine, "q", "0");
    get(engine, "q", "1");
    engine_crash(engine);
    for (uint32_t i = 0; i < 10; i++) {
        QS_CHECK(get_number(engine, "q", i).delivery_count == (i < 2 ? 1 : 0));
    }
}

/* Given back, left behind by a channel, rejected in a transaction, closed in order: each of them
 * counts once. */
ENGINE_TEST(test_a_delivery_that_came_back_counts_once)
{
    declare_limited(engine, false);
    publish(engine, "q", "m");
    QS_CHECK_OK(qs_channel_nack(engine->channel, get(engine, "q", "m").delivery_tag, QS_REQUEUE, 0,
                                QS_ERROR));
    QS_CHECK(get(engine, "q", "m").delivery_count == 1);
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    {
        qs_message message = get(engine, "q", "m");
        QS_CHECK(message.delivery_count == 2 && message.redelivered);
        QS_CHECK_OK(
            qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
        QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    }
    engine_new_channel(engine);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(get(engine, "q", "m").delivery_count == 3);
    engine_reopen(engine);
    get_nothing(engine, "q");
    await_counts(engine, "q", 0, 0); /* on the disk it is the timer that removes it */
}

/* As above, and the process dies each time. */
IN_MEMORY_TEST(test_a_requeue_before_the_crash_counted_twice)
{
    declare_limited(engine, false);
    publish(engine, "q", "m");
    sync_store(engine);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t tag = get(engine, "q", "m").delivery_tag;
        QS_CHECK_OK(qs_channel_nack(engine->channel, tag, QS_REQUEUE, 0, QS_ERROR));
        sync_store(engine);
        engine_crash(engine);
    }
    QS_CHECK(get(engine, "q", "m").delivery_count == 2);
}

/* A checkpoint has the counts of what is under way: the journal that told them is not read any
 * more. */
QS_TEST(test_a_checkpoint_forgot_the_delivery_that_was_under_way)
{
    for (int lazy = 0; lazy < 2; lazy++) {
        struct engine engine;

        engine_start(&engine, IN_MEMORY);
        declare_limited(&engine, false);
        publish(&engine, "q", "m");
        publish(&engine, "q", "n");
        if (lazy != 0) {
            QS_CHECK_OK(qs_store_set_queue_mode(engine.store, text("q"), true, QS_ERROR));
        }
        for (uint32_t i = 0; i < LIMIT; i++) {
            QS_CHECK(get(&engine, "q", "m").delivery_count == i);
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
            QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
            engine_crash(&engine);
        }
        QS_CHECK(get(&engine, "q", "m").delivery_count == LIMIT);
        QS_CHECK(get(&engine, "q", "n").delivery_count == 0);
        engine_stop(&engine);
    }
}

/* What nobody received does not count, in memory and after a crash. */
IN_MEMORY_TEST(test_what_was_taken_back_does_not_count)
{
    declare_limited(engine, false);
    publish(engine, "q", "m");
    for (uint32_t i = 0; i < 2 * LIMIT; i++) {
        uint64_t tag = get(engine, "q", "m").delivery_tag;
        QS_CHECK_OK(qs_channel_withhold(engine->channel, tag, tag, QS_ERROR));
        QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE | QS_WITHHELD, QS_ERROR));
    }
    sync_store(engine);
    engine_crash(engine);
    QS_CHECK(get(engine, "q", "m").delivery_count == 0);
}

/* Each priority is a queue of its own beneath. */
IN_MEMORY_TEST(test_priorities_count_like_queues)
{
    const uint8_t properties[] = {0x18, 0, 2, 4};

    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-delivery-limit=1 x-max-priority=5");
    publish(engine, "q", "low");
    publish_to(engine, "", "q", (qs_slice){properties, sizeof properties}, text("high"));
    sync_store(engine);
    QS_CHECK(get(engine, "q", "high").delivery_count == 0);
    engine_crash(engine);
    QS_CHECK(get(engine, "q", "high").delivery_count == 1);
    engine_crash(engine);
    QS_CHECK(get(engine, "q", "low").delivery_count == 0);
    get_nothing(engine, "q");
}

/* Where there is no limit nothing is written for a delivery; where there is one, a record that no
 * sync follows. */
IN_MEMORY_TEST(test_a_delivery_is_written_and_not_synced_where_there_is_a_limit)
{
    qs_stats before, after;

    declare_limited(engine, false);
    declare(engine, "free", QS_DURABLE);
    publish(engine, "q", "m");
    publish(engine, "free", "m");
    sync_store(engine);
    before = stats_of(engine);
    get(engine, "free", "m");
    after = stats_of(engine);
    QS_CHECK(after.bytes_journalled == before.bytes_journalled);
    get(engine, "q", "m");
    after = stats_of(engine);
    QS_CHECK(after.bytes_journalled == before.bytes_journalled + 4096);
    QS_CHECK(after.fdatasyncs == before.fdatasyncs);
    sync_store(engine);
    QS_CHECK(stats_of(engine).fdatasyncs == before.fdatasyncs + 1);
}

/* The write fails: nobody gets the message, which is ready, and was not delivered. */
QS_TEST(test_a_count_that_cannot_be_written_keeps_the_message)
{
    for (int way = 0; way < BY_NO_ACK; way++) {
        struct engine engine;
        qs_env *faulty;
        qs_message message;

        engine_init(&engine, IN_MEMORY);
        faulty = engine_put_fault(&engine);
        engine_open(&engine);
        declare_limited(&engine, false);
        publish(&engine, "q", "m");
        sync_store(&engine);
        qsi_env_fault_arm(faulty, QSI_FAULT_WRITE, QSI_FAULT_EIO, 1, false);
        if (way == BY_BATCH) {
            struct ArrowSchema schema;
            struct ArrowArray array;
            QS_CHECK_STATUS(QS_ESTORE_FAILED,
                            qs_channel_get_batch(engine.channel, text("q"), 9, UINT64_MAX, 0, 0,
                                                 &schema, &array, QS_ERROR));
        } else if (way == BY_CONSUMER) {
            qs_event event;
            QS_CHECK_OK(qs_test_consume(engine.channel, "q", "", 0, NONE));
            QS_CHECK_STATUS(
                QS_ESTORE_FAILED,
                qs_channel_next_event(engine.channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR));
        } else {
            QS_CHECK_STATUS(QS_ESTORE_FAILED,
                            qs_channel_get(engine.channel, text("q"), 0, &message, QS_ERROR));
        }
        QS_CHECK(qsi_env_fault_fired(faulty));
        check_counts(&engine, "q", 1, 0);
        QS_CHECK(get(&engine, "q", "m").delivery_count == 0); /* what failed goes on reading */
        qs_channel_close(engine.channel);
        QS_CHECK(qs_store_close(engine.store, QS_ERROR) != QS_OK);
        engine_open(&engine);
        QS_CHECK(get(&engine, "q", "m").delivery_count == 0);
        engine_stop(&engine);
    }
}
