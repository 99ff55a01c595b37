/* Getting, acking and requeueing messages, one by one and in batches. */
#include "arrow_table.h"
#include "deliver_fixture.h"
#include "qs_test_calls.h"

/* ---- acks ---- */

ENGINE_TEST(test_tags_count_up_and_acked_messages_are_gone)
{
    fill(engine, "q", 3);
    for (uint64_t tag = 1; tag <= 3; tag++) {
        char body[2] = {(char)('0' + tag), '\0'};

        QS_CHECK(get(engine, "q", body).delivery_tag == tag);
    }
    get_nothing(engine, "q");
    check_counts(engine, "q", 0, 3);
    ack(engine, 2, 0);
    check_counts(engine, "q", 0, 2);
    ack(engine, 3, QS_MULTIPLE);
    check_counts(engine, "q", 0, 0);
    engine_reopen(engine);
    get_nothing(engine, "q");
    QS_CHECK(stats_of(engine).recovered_messages == 0);
}

ENGINE_TEST(test_no_ack_needs_none)
{
    fill(engine, "q", 2);
    QS_CHECK(get_flags(engine, "q", "1", QS_NO_ACK).delivery_tag == 1);
    check_counts(engine, "q", 1, 0);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_ack(engine->channel, 1, 0, QS_ERROR));
    engine_reopen(engine);
    get(engine, "q", "2");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_unknown_tag_ends_the_channel)
{
    fill(engine, "q", 3);
    for (int verb = 0; verb < 7; verb++) {
        qs_status status;

        get(engine, "q", "1");
        get(engine, "q", "2");
        ack(engine, 2, 0);
        status = verb == 0   ? qs_channel_ack(engine->channel, 3, 0, QS_ERROR)
                 : verb == 1 ? qs_channel_ack(engine->channel, 2, 0, QS_ERROR)
                 : verb == 2 ? qs_channel_ack(engine->channel, 0, 0, QS_ERROR)
                 : verb == 3 ? qs_channel_ack(engine->channel, 3, QS_MULTIPLE, QS_ERROR)
                 : verb == 4 ? qs_channel_nack(engine->channel, 2, QS_REQUEUE, 0, QS_ERROR)
                 : verb == 5 ? qs_channel_nack(engine->channel, 9, QS_MULTIPLE, 0, QS_ERROR)
                             : qs_channel_ack(engine->channel, UINT64_MAX, 0, QS_ERROR);
        QS_CHECK(status == QS_PRECONDITION_FAILED);
        QS_CHECK(strstr(QS_ERROR->text, "unknown delivery tag") != NULL);
        QS_CHECK_STATUS(QS_ECHANNEL_CLOSED, qs_channel_ack(engine->channel, 1, 0, QS_ERROR));
        check_counts(engine, "q", 2, 0); /* what it held is back */
        engine_new_channel(engine);
        QS_CHECK_OK(qs_channel_ack(engine->channel, 0, QS_MULTIPLE, QS_ERROR));
        publish(engine, "q", "again");
        {
            uint64_t count;

            QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), 0, &count, QS_ERROR));
            QS_CHECK(count == 3);
        }
        fill(engine, "q", 3);
    }
}

ENGINE_TEST(test_multiple_acks_all_before_in_every_queue)
{
    fill(engine, "a", 3);
    fill(engine, "b", 3);
    get(engine, "a", "1");
    get(engine, "b", "1");
    get(engine, "a", "2");
    get(engine, "b", "2");
    get(engine, "a", "3");
    ack(engine, 4, QS_MULTIPLE);
    check_counts(engine, "a", 0, 1);
    check_counts(engine, "b", 1, 0);
    ack(engine, 0, QS_MULTIPLE);
    check_counts(engine, "a", 0, 0);
    ack(engine, 0, QS_MULTIPLE);
    engine_reopen(engine);
    get_nothing(engine, "a");
    get(engine, "b", "3");
}

ENGINE_TEST(test_acks_out_of_order)
{
    fill(engine, "q", 200);
    for (int i = 1; i <= 200; i++) {
        get_number(engine, "q", i);
    }
    for (uint64_t tag = 199; tag > 0 && tag < 200; tag -= 2) {
        ack(engine, tag, 0);
    }
    check_counts(engine, "q", 0, 100);
    engine_reopen(engine);
    for (int i = 2; i <= 200; i += 2) {
        QS_CHECK(get_number(engine, "q", i).redelivered);
    }
    get_nothing(engine, "q");
}

/* ---- requeueing ---- */

ENGINE_TEST(test_requeued_messages_return_to_their_place)
{
    qs_message message;
    uint64_t sequences[5] = {0};

    fill(engine, "q", 5);
    for (int i = 1; i <= 4; i++) {
        char body[2] = {(char)('0' + i), '\0'};

        message = get(engine, "q", body);
        QS_CHECK(!message.redelivered && message.delivery_count == 0);
        QS_CHECK(message.container != 0);
        sequences[i] = message.sequence;
        QS_CHECK(i == 1 || sequences[i] > sequences[i - 1]);
    }
    nack(engine, 3, QS_REQUEUE);
    nack(engine, 1, QS_REQUEUE);
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 1 && message.delivery_tag == 5);
    QS_CHECK(message.sequence == sequences[1]);
    nack(engine, 5, QS_REQUEUE);
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 2);
    QS_CHECK(get(engine, "q", "3").delivery_count == 1);
    message = get(engine, "q", "5");
    QS_CHECK(!message.redelivered && message.delivery_count == 0);
    nack(engine, 0, QS_REQUEUE | QS_MULTIPLE);
    check_counts(engine, "q", 5, 0);
    for (int i = 1; i <= 5; i++) {
        char body[2] = {(char)('0' + i), '\0'};

        QS_CHECK(get(engine, "q", body).redelivered);
    }
    QS_CHECK(stats_of(engine).messages_requeued == 8);
}

ENGINE_TEST(test_rejected_messages_are_dropped)
{
    fill(engine, "q", 3);
    get(engine, "q", "1");
    get(engine, "q", "2");
    nack(engine, 1, 0);
    check_counts(engine, "q", 1, 1);
    nack(engine, 2, QS_MULTIPLE);
    engine_reopen(engine);
    get(engine, "q", "3");
    get_nothing(engine, "q");
}

ENGINE_TEST(test_recover_requeues_everything)
{
    fill(engine, "q", 3);
    get(engine, "q", "1");
    get(engine, "q", "2");
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    check_counts(engine, "q", 2, 0);
    QS_CHECK(get(engine, "q", "2").redelivered);
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED,
                        qs_channel_recover(engine->channel, 0, QS_ERROR));
    get(engine, "q", "2");
}

ENGINE_TEST(test_closing_a_channel_requeues_what_it_held)
{
    qs_channel *other;
    qs_message message;

    fill(engine, "q", 3);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(other, text("q"), 0, &message, QS_ERROR));
    get(engine, "q", "2");
    qs_channel_close(other);
    QS_CHECK(holds(message.body, "1")); /* a message outlives its channel */
    qs_message_release(&message);
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 1);
    get(engine, "q", "3");
}

ENGINE_TEST(test_a_message_outlives_its_ack_its_queue_and_its_store)
{
    QS_TEST_FREED char *body = make_body(9000, 4);
    qs_message small, large;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "small");
    publish(engine, "q", body);
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &small, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &large, QS_ERROR));
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_test_delete(engine->channel, "q", 0));
    engine_reopen(engine);
    QS_CHECK(holds(small.body, "small") && holds(small.routing_key, "q"));
    QS_CHECK(holds(large.body, body) && holds(large.exchange, ""));
    qs_message_release(&small);
    qs_message_release(&small);
    qs_message_release(&large);
}

/* One message unacked, the queue looked at while empty, and then another one. */
ENGINE_TEST(test_a_message_published_after_an_empty_get_is_found)
{
    fill(engine, "q", 1);
    get(engine, "q", "1");
    get_nothing(engine, "q");
    publish(engine, "q", "2");
    get(engine, "q", "2");
    get_nothing(engine, "q");
    nack(engine, 1, QS_REQUEUE);
    publish(engine, "q", "3");
    get(engine, "q", "1");
    get(engine, "q", "3");
}

ENGINE_TEST(test_a_get_tells_how_many_are_left)
{
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    publish(engine, "q", "3");
    for (uint64_t left = 3; left-- > 0;) {
        QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &message, QS_ERROR));
        QS_CHECK(message.ready_left == left);
        qs_message_release(&message);
    }
}

ENGINE_TEST(test_get_of_a_missing_queue_ends_the_channel)
{
    qs_message message;

    CHECK_CHANNEL_ERROR(engine, QS_NOT_FOUND,
                        qs_channel_get(engine->channel, text("x"), 0, &message, QS_ERROR));
}

/* ---- batches ---- */

static int64_t get_batch(struct engine *engine, const char *queue, uint64_t max, uint64_t bytes,
                         uint32_t flags, struct received *received)
{
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text(queue), max, bytes, flags, 0,
                                     &received->schema, &received->array, QS_ERROR));
    return received->array.length;
}

ENGINE_TEST(test_get_batch_takes_what_is_there)
{
    QS_TEST_FREED char *large = make_body(20000, 5);
    struct received received;

    fill(engine, "q", 150);
    publish(engine, "q", large);
    publish_to(engine, "amq.direct", "q", TRANSIENT, text("unroutable"));
    bind_queue(engine, "q", "amq.direct", "key");
    publish_to(engine, "amq.direct", "key", TRANSIENT, text("last"));
    QS_CHECK(get_batch(engine, "q", 100, UINT64_MAX, 0, &received) == 100);
    QS_CHECK(received_tag(&received, 0) == 1 && received_tag(&received, 99) == 100);
    QS_CHECK(holds(received_body(&received, 99), "100"));
    received_release(&received);
    nack(engine, 10, QS_REQUEUE);
    QS_CHECK(get_batch(engine, "q", 1000, UINT64_MAX, 0, &received) == 53);
    QS_CHECK(holds(received_body(&received, 0), "10") && received_redelivered(&received, 0) &&
             received_count(&received, 0) == 1);
    QS_CHECK(holds(received_body(&received, 1), "101") && !received_redelivered(&received, 1) &&
             received_count(&received, 1) == 0);
    QS_CHECK(holds(received_body(&received, 51), large));
    QS_CHECK(holds(received_name(&received, "exchange", 51), "") &&
             holds(received_name(&received, "routing_key", 51), "q"));
    QS_CHECK(holds(received_body(&received, 52), "last"));
    QS_CHECK(holds(received_name(&received, "exchange", 52), "amq.direct") &&
             holds(received_name(&received, "routing_key", 52), "key"));
    received_release(&received);
    QS_CHECK(get_batch(engine, "q", 1000, UINT64_MAX, 0, &received) == 0);
    received_release(&received);
    check_counts(engine, "q", 0, 152);
    ack(engine, 0, QS_MULTIPLE);
    engine_reopen(engine);
    get_nothing(engine, "q");
}

ENGINE_TEST(test_get_batch_is_bounded_in_bytes_but_never_stuck)
{
    QS_TEST_FREED char *body = make_body(1000, 0), *large = make_body(5000, 0);
    struct received received;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 10; i++) {
        publish(engine, "q", body);
    }
    publish(engine, "q", large);
    publish(engine, "q", body);
    QS_CHECK(get_batch(engine, "q", 100, 3500, 0, &received) == 3);
    received_release(&received);
    QS_CHECK(get_batch(engine, "q", 100, 0, 0, &received) == 1);
    received_release(&received);
    QS_CHECK(get_batch(engine, "q", 100, 6000, QS_NO_ACK, &received) == 6);
    received_release(&received);
    QS_CHECK(get_batch(engine, "q", 100, 100, 0, &received) == 1);
    QS_CHECK(holds(received_body(&received, 0), large));
    received_release(&received);
    QS_CHECK(get_batch(engine, "q", 0, 100, 0, &received) == 0);
    received_release(&received);
    check_counts(engine, "q", 1, 5);
    engine_reopen(engine);
    check_counts(engine, "q", 6, 0);
}

ENGINE_TEST(test_get_batch_waits_no_longer_than_it_is_told)
{
    struct received received;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 10, 1000, 0, SECOND / 1000,
                                     &received.schema, &received.array, QS_ERROR));
    QS_CHECK(received.array.length == 0);
    received_release(&received);
}

/* A thread that takes messages is not held up by the disk: what it took is gone when somebody
 * commits, and comes again after a crash before that. */
ENGINE_TEST(test_get_batch_without_acks_leads_no_commit)
{
    struct received received;
    uint64_t commits;

    if (engine->memory == NULL) {
        return; /* its committer commits */
    }
    fill(engine, "q", 3);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    commits = stats_of(engine).commits;
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 2, 1000, QS_NO_ACK, SECOND,
                                     &received.schema, &received.array, QS_ERROR));
    QS_CHECK(received.array.length == 2);
    received_release(&received);
    check_counts(engine, "q", 1, 0);
    QS_CHECK(stats_of(engine).commits == commits);
    engine_crash(engine);
    check_counts(engine, "q", 3, 0);
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 2, 1000, QS_NO_ACK, SECOND,
                                     &received.schema, &received.array, QS_ERROR));
    received_release(&received);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    check_counts(engine, "q", 1, 0);
}
