/* Getting, acking and requeueing messages; consumers, prefetch and events. */
#include "arrow_table.h"
#include "engine_fixture.h"

static void fill(struct engine *engine, const char *queue, int count)
{
    char body[16];

    declare(engine, queue, QS_DURABLE);
    for (int i = 1; i <= count; i++) {
        snprintf(body, sizeof body, "%d", i);
        publish(engine, queue, body);
    }
}

static void nack(struct engine *engine, uint64_t tag, uint32_t flags)
{
    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, flags, QS_ERROR));
}

/* ---- acks ---- */

static void test_tags_count_up_and_acked_messages_are_gone(struct engine *engine)
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

static void test_no_ack_needs_none(struct engine *engine)
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

static void test_unknown_tag_ends_the_channel(struct engine *engine)
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
                 : verb == 4 ? qs_channel_nack(engine->channel, 2, QS_REQUEUE, QS_ERROR)
                 : verb == 5 ? qs_channel_nack(engine->channel, 9, QS_MULTIPLE, QS_ERROR)
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

            QS_CHECK_OK(qs_channel_queue_purge(engine->channel, text("q"), &count, QS_ERROR));
            QS_CHECK(count == 3);
        }
        fill(engine, "q", 3);
    }
}

static void test_multiple_acks_all_before_in_every_queue(struct engine *engine)
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

static void test_acks_out_of_order(struct engine *engine)
{
    fill(engine, "q", 200);
    for (int i = 1; i <= 200; i++) {
        char body[16];

        snprintf(body, sizeof body, "%d", i);
        get(engine, "q", body);
    }
    for (uint64_t tag = 199; tag > 0 && tag < 200; tag -= 2) {
        ack(engine, tag, 0);
    }
    check_counts(engine, "q", 0, 100);
    engine_reopen(engine);
    for (int i = 2; i <= 200; i += 2) {
        char body[16];

        snprintf(body, sizeof body, "%d", i);
        QS_CHECK(get(engine, "q", body).redelivered);
    }
    get_nothing(engine, "q");
}

/* ---- requeueing ---- */

static void test_requeued_messages_return_to_their_place(struct engine *engine)
{
    qs_message message;

    fill(engine, "q", 5);
    for (int i = 1; i <= 4; i++) {
        char body[2] = {(char)('0' + i), '\0'};

        message = get(engine, "q", body);
        QS_CHECK(!message.redelivered && message.delivery_count == 0);
    }
    nack(engine, 3, QS_REQUEUE);
    nack(engine, 1, QS_REQUEUE);
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 1 && message.delivery_tag == 5);
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

static void test_rejected_messages_are_dropped(struct engine *engine)
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

static void test_recover_requeues_everything(struct engine *engine)
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

static void test_closing_a_channel_requeues_what_it_held(struct engine *engine)
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

static void test_a_message_outlives_its_ack_its_queue_and_its_store(struct engine *engine)
{
    char *body = make_body(9000, 4);
    qs_message small, large;
    uint64_t count;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "small");
    publish(engine, "q", body);
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &small, QS_ERROR));
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &large, QS_ERROR));
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("q"), 0, &count, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(holds(small.body, "small") && holds(small.routing_key, "q"));
    QS_CHECK(holds(large.body, body) && holds(large.exchange, ""));
    qs_message_release(&small);
    qs_message_release(&small);
    qs_message_release(&large);
    free(body);
}

/* One message unacked, the queue looked at while empty, and then another one. */
static void test_a_message_published_after_an_empty_get_is_found(struct engine *engine)
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

static void test_get_of_a_missing_queue_ends_the_channel(struct engine *engine)
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

static void test_get_batch_takes_what_is_there(struct engine *engine)
{
    char *large = make_body(20000, 5);
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
    free(large);
}

static void test_get_batch_is_bounded_in_bytes_but_never_stuck(struct engine *engine)
{
    char *body = make_body(1000, 0), *large = make_body(5000, 0);
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
    free(body);
    free(large);
}

static void test_get_batch_waits_no_longer_than_it_is_told(struct engine *engine)
{
    struct received received;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), 10, 1000, 0, SECOND / 1000,
                                     &received.schema, &received.array, QS_ERROR));
    QS_CHECK(received.array.length == 0);
    received_release(&received);
}

/* ---- consumers ---- */

static void consume(struct engine *engine, const char *queue, const char *tag, uint32_t flags)
{
    char name[256];

    QS_CHECK_OK(
        qs_channel_consume(engine->channel, text(queue), text(tag), flags, NONE, name, QS_ERROR));
    QS_CHECK(tag[0] == '\0' || strcmp(name, tag) == 0);
}

static qs_message expect_delivery(struct engine *engine, const char *tag, const char *body)
{
    qs_event event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);

    if (!holds(event.message.body, body) || !holds(event.message.consumer_tag, tag)) {
        fprintf(stderr, "expected %s for %s, got %.*s for %.*s\n", body, tag,
                (int)event.message.body.bytes, (const char *)event.message.body.data,
                (int)event.message.consumer_tag.bytes,
                (const char *)event.message.consumer_tag.data);
        QS_CHECK(!"delivery");
    }
    qs_message_release(&event.message);
    return event.message;
}

static void test_consumers_take_turns(struct engine *engine)
{
    fill(engine, "q", 4);
    consume(engine, "q", "first", 0);
    consume(engine, "q", "second", 0);
    QS_CHECK(expect_delivery(engine, "first", "1").delivery_tag == 1);
    QS_CHECK(expect_delivery(engine, "second", "2").delivery_tag == 2);
    expect_delivery(engine, "first", "3");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("first"), QS_ERROR));
    expect_delivery(engine, "second", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    check_counts(engine, "q", 0, 4); /* cancelling requeues nothing */
    ack(engine, 0, QS_MULTIPLE);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("nobody"), QS_ERROR));
}

static void test_consumer_tags_are_made_up_or_refused(struct engine *engine)
{
    char tag[256], other[256];
    char *name = make_body(256, 0);

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    QS_CHECK_OK(qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, other, QS_ERROR));
    QS_CHECK(strncmp(tag, "amq.ctag-", 9) == 0 && strcmp(tag, other) != 0);
    QS_CHECK_STATUS(QS_EINVAL, qs_channel_consume(engine->channel, text("q"), text(name), 0, NONE,
                                                  tag, QS_ERROR));
    name[255] = '\0';
    consume(engine, "q", name, 0);
    CHECK_CHANNEL_ERROR(
        engine, QS_NOT_ALLOWED,
        qs_channel_consume(engine->channel, text("q"), text(name), 0, NONE, tag, QS_ERROR));
    CHECK_CHANNEL_ERROR(
        engine, QS_NOT_FOUND,
        qs_channel_consume(engine->channel, text("x"), NONE, 0, NONE, tag, QS_ERROR));
    free(name);
}

static void test_exclusive_consumer_is_alone(struct engine *engine)
{
    qs_channel *other;
    char tag[256];

    declare(engine, "q", QS_DURABLE);
    consume(engine, "q", "alone", QS_EXCLUSIVE);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_STATUS(QS_ACCESS_REFUSED,
                    qs_channel_consume(other, text("q"), NONE, 0, NONE, tag, QS_ERROR));
    qs_channel_close(other);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("alone"), QS_ERROR));
    consume(engine, "q", "one", 0);
    CHECK_CHANNEL_ERROR(
        engine, QS_ACCESS_REFUSED,
        qs_channel_consume(engine->channel, text("q"), NONE, QS_EXCLUSIVE, NONE, tag, QS_ERROR));
    consume(engine, "q", "alone again", QS_EXCLUSIVE);
}

static void test_prefetch_bounds_what_a_consumer_has_out(struct engine *engine)
{
    fill(engine, "q", 6);
    consume(engine, "q", "unlimited", 0);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, 0, QS_ERROR)); /* for those to come */
    consume(engine, "q", "two", 0);
    expect_delivery(engine, "unlimited", "1");
    expect_delivery(engine, "two", "2");
    expect_delivery(engine, "unlimited", "3");
    expect_delivery(engine, "two", "4");
    expect_delivery(engine, "unlimited", "5");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("unlimited"), QS_ERROR));
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 1, 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "two", "6");
    nack(engine, 4, QS_REQUEUE);
    expect_delivery(engine, "two", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
}

static void test_global_prefetch_bounds_the_channel(struct engine *engine)
{
    fill(engine, "q", 6);
    consume(engine, "q", "a", 0);
    consume(engine, "q", "b", 0);
    get(engine, "q", "1"); /* is not limited, and does not count */
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, QS_GLOBAL, QS_ERROR));
    expect_delivery(engine, "a", "2");
    expect_delivery(engine, "b", "3");
    ack(engine, 1, 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "a", "4");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 0, 0, 0, QS_ERROR)); /* lifts the channel's limit */
    expect_delivery(engine, "b", "5");
    expect_delivery(engine, "a", "6");
}

static void test_a_cancelled_consumers_messages_count_in_the_channels_limit(struct engine *engine)
{
    fill(engine, "q", 4);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 2, 0, QS_GLOBAL, QS_ERROR));
    consume(engine, "q", "a", 0);
    expect_delivery(engine, "a", "1");
    expect_delivery(engine, "a", "2");
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("a"), QS_ERROR));
    consume(engine, "q", "b", 0);
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 2, 0);
    expect_delivery(engine, "b", "3");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 0, QS_MULTIPLE);
    expect_delivery(engine, "b", "4");
}

static void test_a_full_channel_holds_up_its_no_ack_consumers(struct engine *engine)
{
    fill(engine, "q", 1);
    fill(engine, "r", 2);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, QS_GLOBAL, QS_ERROR));
    consume(engine, "q", "ack", 0);
    consume(engine, "r", "no ack", QS_NO_ACK);
    expect_delivery(engine, "ack", "1");
    expect_no_event(engine, QS_EVENT_DELIVERY);
    ack(engine, 1, 0);
    expect_delivery(engine, "no ack", "1");
    expect_delivery(engine, "no ack", "2");
}

static void test_no_ack_consumer_ignores_prefetch(struct engine *engine)
{
    char *large = make_body(30000, 6);

    fill(engine, "q", 3);
    publish(engine, "q", large);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, 0, QS_ERROR));
    consume(engine, "q", "c", QS_NO_ACK);
    expect_delivery(engine, "c", "1");
    expect_delivery(engine, "c", "2");
    expect_delivery(engine, "c", "3");
    expect_delivery(engine, "c", large);
    check_counts(engine, "q", 0, 0);
    engine_reopen(engine);
    get_nothing(engine, "q");
    free(large);
}

static void test_deleting_a_queue_cancels_its_consumers(struct engine *engine)
{
    qs_channel *other;
    qs_queue_status status;
    uint64_t count;
    qs_event event;

    fill(engine, "q", 2);
    consume(engine, "q", "c", 0);
    expect_delivery(engine, "c", "1");
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.consumers == 1);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_delete(other, text("q"), 0, &count, QS_ERROR));
    qs_channel_close(other);
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "3");
    event = expect_event(engine, QS_EVENT_CANCEL | QS_EVENT_DELIVERY, QS_EVENT_CANCEL);
    QS_CHECK(holds(event.message.consumer_tag, "c") && holds(event.message.queue, "q"));
    qs_message_release(&event.message);
    expect_no_event(engine, QS_EVENT_CANCEL | QS_EVENT_DELIVERY);
    consume(engine, "q", "c", 0);
    ack(engine, 1, 0);
    expect_delivery(engine, "c", "3");
}

/* The tag of a delivery is a slice like the body: it is good until the message is released. */
static void test_a_deliverys_tag_outlives_its_consumer(struct engine *engine)
{
    qs_event event;

    fill(engine, "q", 1);
    consume(engine, "q", "the tag", 0);
    event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("the tag"), QS_ERROR));
    QS_CHECK(holds(event.message.consumer_tag, "the tag") && holds(event.message.queue, "q"));
    engine_new_channel(engine);
    QS_CHECK(holds(event.message.consumer_tag, "the tag") && holds(event.message.queue, "q"));
    qs_message_release(&event.message);
}

static void test_next_event_waits_no_longer_than_it_is_told(struct engine *engine)
{
    qs_event event;

    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY,
                                                     SECOND / 1000, &event, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_STATUS(QS_EEMPTY, qs_channel_next_event(engine->channel, QS_EVENT_ACK, SECOND / 1000,
                                                     &event, QS_ERROR));
}

int main(void)
{
    RUN_TESTS(test_tags_count_up_and_acked_messages_are_gone, test_no_ack_needs_none,
              test_unknown_tag_ends_the_channel, test_multiple_acks_all_before_in_every_queue,
              test_acks_out_of_order, test_requeued_messages_return_to_their_place,
              test_rejected_messages_are_dropped, test_recover_requeues_everything,
              test_closing_a_channel_requeues_what_it_held,
              test_a_message_outlives_its_ack_its_queue_and_its_store,
              test_a_message_published_after_an_empty_get_is_found,
              test_get_of_a_missing_queue_ends_the_channel, test_get_batch_takes_what_is_there,
              test_get_batch_is_bounded_in_bytes_but_never_stuck,
              test_get_batch_waits_no_longer_than_it_is_told, test_consumers_take_turns,
              test_consumer_tags_are_made_up_or_refused, test_exclusive_consumer_is_alone,
              test_prefetch_bounds_what_a_consumer_has_out, test_global_prefetch_bounds_the_channel,
              test_a_cancelled_consumers_messages_count_in_the_channels_limit,
              test_a_full_channel_holds_up_its_no_ack_consumers,
              test_no_ack_consumer_ignores_prefetch, test_deleting_a_queue_cancels_its_consumers,
              test_a_deliverys_tag_outlives_its_consumer,
              test_next_event_waits_no_longer_than_it_is_told);
    return 0;
}
