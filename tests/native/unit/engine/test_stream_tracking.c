/* How far consumers of streams are: noted by their acks, and by the commits of transactions. */
#include "qs_test_calls.h"
#include "store.h"
#include "stream_consumers_fixture.h"

static uint64_t noted(struct engine *engine, const char *name, const char *group)
{
    qs_cursor cursor;
    qs_status status = qs_store_cursor(engine->store, text(name), text(group), &cursor, QS_ERROR);

    return status == QS_OK ? cursor.offset : UINT64_MAX;
}

static void track(struct engine *engine, uint32_t prefetch)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-stream-offset=first");

    put_flag(&arguments, "x-stream-automatic-offset-tracking");
    QS_CHECK_OK(qs_channel_qos(engine->channel, prefetch, 0, 0, QS_ERROR));
    QS_CHECK_OK(try_consume(engine->channel, "s", "billing", 0, &arguments));
}

ENGINE_TEST(test_acks_note_how_far_a_consumer_is)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 20);
    track(engine, 5);
    for (uint64_t i = 0; i < 5; i++) {
        expect(engine->channel, "billing", i);
    }
    QS_CHECK(noted(engine, "s", "billing") == UINT64_MAX);
    ack(engine, 3, 0); /* offset 2: what is before it may come again */
    QS_CHECK(noted(engine, "s", "billing") == 0);
    ack(engine, 1, 0);
    QS_CHECK(noted(engine, "s", "billing") == 1);
    ack(engine, 2, 0);
    QS_CHECK(noted(engine, "s", "billing") == 3);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("billing"), QS_ERROR));
    ack(engine, 5, QS_MULTIPLE); /* of a consumer that is cancelled, too */
    QS_CHECK(noted(engine, "s", "billing") == 5);
    engine_reopen(engine);
    QS_CHECK(noted(engine, "s", "billing") == 5);
    track(engine, 100);
    expect(engine->channel, "billing", 5);
    engine_new_channel(engine); /* nothing of it was acknowledged */
    track(engine, 100);
    expect_all(engine, "billing", 5, 20);
    QS_CHECK(noted(engine, "s", "billing") == 20);
}

/* What a cancelled consumer never handed out is put back, and an ack must not note it as read. */
ENGINE_TEST(test_an_ack_after_a_cancel_notes_nothing_that_was_put_back)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 20);
    track(engine, 5);
    for (uint64_t i = 0; i < 5; i++) {
        expect(engine->channel, "billing", i);
    }
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("billing"), QS_ERROR));
    QS_CHECK_OK(qs_channel_settle_range(engine->channel, 2, 5, QS_REQUEUE, 0, QS_ERROR));
    ack(engine, 1, 0);
    QS_CHECK(noted(engine, "s", "billing") == 1);
    track(engine, 100);
    expect_all(engine, "billing", 1, 20);
}

ENGINE_TEST(test_a_transaction_refuses_nacks_of_a_stream)
{
    qs_error error;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 5);
    for (int i = 0; i < 4; i++) {
        qs_status status;
        engine_new_channel(engine);
        if (i < 3) {
            QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
        }
        consume_from(engine, "s", "c", 0, 10);
        expect(engine->channel, "c", 0);
        status =
            i == 0 ? qs_channel_settle_range(engine->channel, 1, 1, QS_REQUEUE | QS_IN_TX, 1000000,
                                             &error)
            : i == 1
                ? qs_channel_settle_range(engine->channel, 1, 1, QS_REJECT | QS_IN_TX, 0, &error)
                : qs_channel_settle_range(engine->channel, 1, 1, QS_REQUEUE | QS_IN_TX, 0, &error);
        QS_CHECK_STATUS(QS_NOT_IMPLEMENTED, status);
        check_counts(engine, "s", 5, 0);
    }
}

/* What the transaction has settled already is none of the nack's. */
ENGINE_TEST(test_a_nack_behind_an_ack_of_a_stream_is_right_in_a_transaction)
{
    qs_event event;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 1);
    declare(engine, "q", 0);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    consume_from(engine, "s", "c", 0, 10);
    expect(engine->channel, "c", 0);
    fill(engine, "q", 1, 2);
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    QS_CHECK_OK(try_consume(engine->channel, "q", "d", 0, &(struct qs_test_fields){.used = 0}));
    QS_CHECK_OK(next(engine->channel, &event));
    qs_message_release(&event.message);
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_channel_nack(engine->channel, 2, QS_MULTIPLE | QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    check_counts(engine, "q", 1, 0);
}

ENGINE_TEST(test_a_transaction_notes_how_far_a_consumer_is_when_it_commits)
{
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    fill(engine, "s", 0, 10);
    for (int commits = 0; commits < 2; commits++) {
        qs_message message;
        engine_new_channel(engine);
        QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
        track(engine, 4);
        for (uint64_t i = 0; i < 4; i++) {
            expect(engine->channel, "billing", i);
        }
        publish(engine, "q", "result");
        ack(engine, 4, QS_MULTIPLE);
        QS_CHECK(noted(engine, "s", "billing") == UINT64_MAX);
        expect_nothing(engine->channel); /* room comes with the commit */
        if (commits == 0) {
            QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
            QS_CHECK(noted(engine, "s", "billing") == UINT64_MAX);
            continue;
        }
        QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
        QS_CHECK(noted(engine, "s", "billing") == 4);
        expect(engine->channel, "billing", 4);
        engine_reopen(engine);
        QS_CHECK(noted(engine, "s", "billing") == 4);
        message = get(engine, "q", "result");
        ack(engine, message.delivery_tag, 0);
    }
}

/* ---- whom a commit looks at ---- */

static uint32_t streams_to_look_at(struct engine *engine)
{
    uint32_t count = 0;

    qsi_store_lock(engine->store);
    for (struct qsi_list *node = engine->store->events.grown_streams.next;
         node != &engine->store->events.grown_streams; node = node->next) {
        count += 1;
    }
    qsi_store_unlock(engine->store);
    return count;
}

/* An event loop that waits for streams: there is nothing for it. */
static void arm_for_deliveries(struct engine *engine)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel,
                                                     QS_EVENT_DELIVERY | QS_EVENT_ARM | QS_NO_WAIT,
                                                     0, &event, QS_ERROR));
}

/* The commit that a sync waits for tells event loops before the sync returns. */
ON_DISK_TEST(test_each_commit_looked_at_all_streams_with_consumers)
{
    static const char *const names[] = {"s", "t", "u"};
    qs_channel *publisher;
    int descriptor;

    QS_CHECK_OK(qs_channel_open(&publisher, engine->store, QS_ERROR));
    for (uint32_t i = 0; i < 3; i++) {
        declare_stream(engine, names[i]);
        consume_from(engine, names[i], names[i], 0, 100);
    }
    QS_CHECK_OK(qs_channel_event_fd(engine->channel, &descriptor, QS_ERROR));
    for (uint32_t i = 0; i < 20; i++) {
        qs_event event;
        arm_for_deliveries(engine);
        QS_CHECK_OK(qs_test_publish(publisher, "", names[i % 2], PERSISTENT, text("body"), 0));
        QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
        QS_CHECK(streams_to_look_at(engine) == 0);
        QS_CHECK_OK(next(engine->channel, &event));
        QS_CHECK(offset_of(&event.message) == i / 2 &&
                 holds(event.message.consumer_tag, names[i % 2]));
        qs_message_release(&event.message);
    }
    qs_channel_close(publisher);
}
