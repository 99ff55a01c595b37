/* Consumers of streams: they hold a cursor and a prefetch; an ack gives room, and takes nothing. */
#include "qstore/alloc.h"

#include "qs_test_calls.h"
#include "stream_consumers_fixture.h"
#include "stream_cursor.h"

/* From now on a checkpoint carries little itself. */
static void write_files(struct engine *engine)
{
    engine_close(engine);
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
}

ENGINE_TEST(test_prefetch_is_credit_and_an_ack_takes_nothing)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 10);
    consume_from(engine, "s", "c", 0, 2);
    QS_CHECK(expect(engine->channel, "c", 0) == 1);
    QS_CHECK(expect(engine->channel, "c", 1) == 2);
    expect_nothing(engine->channel);
    check_counts(engine, "s", 10, 2);
    ack(engine, 2, 0); /* any of them gives room */
    QS_CHECK(expect(engine->channel, "c", 2) == 3);
    expect_nothing(engine->channel);
    ack(engine, 3, QS_MULTIPLE);
    check_counts(engine, "s", 10, 0);
    expect_all(engine, "c", 3, 10);
    fill(engine, "s", 10, 12);
    expect_all(engine, "c", 10, 12);
    check_counts(engine, "s", 12, 0);
}

ENGINE_TEST(test_consumers_read_one_copy_from_files_and_from_memory)
{
    write_files(engine);
    declare_stream(engine, "s");
    for (int i = 0; i < 4; i++) {
        fill(engine, "s", (uint64_t)i * 50, (uint64_t)i * 50 + 50);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    fill(engine, "s", 200, 230);
    engine_reopen(engine); /* nothing of the files is in memory */
    fill(engine, "s", 230, 260);
    consume_from(engine, "s", "c", 0, 1000);
    expect_all(engine, "c", 0, 260);
    consume_from(engine, "s", "d", 255, 1000);
    expect_all(engine, "d", 255, 260);
    consume_from(engine, "s", "e", 300, 1000); /* it waits for that one */
    fill(engine, "s", 260, 261);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("c"), QS_ERROR));
    expect_all(engine, "d", 260, 261);
}

ENGINE_TEST(test_a_call_that_must_not_wait_reads_no_file)
{
    qs_event event;
    qs_error error;
    uint32_t kinds = QS_EVENT_DELIVERY | QS_NO_WAIT;

    write_files(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 200);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    consume_from(engine, "s", "c", 1, 100);
    QS_CHECK_STATUS(QS_EWOULDBLOCK,
                    qs_channel_next_event(engine->channel, kinds, 0, &event, &error));
    expect(engine->channel, "c", 1); /* the whole block is there now */
    QS_CHECK_OK(qs_channel_next_event(engine->channel, kinds, 0, &event, &error));
    QS_CHECK(offset_of(&event.message) == 2);
    qs_message_release(&event.message);
}

ENGINE_TEST(test_consumers_never_get_what_is_not_durable)
{
    qs_event event;

    engine_close(engine);
    engine->options.background = false;
    engine_open(engine);
    declare_stream(engine, "s");
    consume_from(engine, "s", "c", 0, 10);
    for (uint32_t i = 0; i < 3; i++) {
        QS_TEST_FREED char *body = make_body(40, i);
        publish(engine, "s", body);
    }
    expect_nothing(engine->channel);
    /* The waiting thread commits, if no other does. */
    QS_CHECK_OK(
        qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, QS_FOREVER, &event, QS_ERROR));
    QS_CHECK(offset_of(&event.message) == 0);
    qs_message_release(&event.message);
    expect(engine->channel, "c", 1);
    engine_close(engine);
    engine->options.background = true;
    engine_open(engine);
}

/* A consumer that waits at its descriptor was asked for between the append to the stream and that
 * to the journal: the message counted as durable from then on. */
ENGINE_TEST(test_an_armed_consumer_never_gets_what_is_not_durable)
{
    const uint32_t arm = QS_EVENT_DELIVERY | QS_EVENT_ARM | QS_NO_WAIT;
    qs_receipt receipt;
    qs_event event;
    int descriptor;

    engine_close(engine);
    engine->options.background = true;
    engine_open(engine);
    declare_stream(engine, "s");
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_event_fd(engine->channel, &descriptor, QS_ERROR));
    consume_from(engine, "s", "armed", 0, 500);
    for (uint32_t i = 0; i < 200; i++) {
        qs_status status = qs_channel_next_event(engine->channel, arm, 0, &event, QS_ERROR);
        QS_CHECK(status == QS_EEMPTY);
        QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text("s"), PERSISTENT,
                                       text("body"), 0, 0, &receipt, QS_ERROR));
        do {
            status = qs_channel_next_event(engine->channel, arm, 0, &event, QS_ERROR);
        } while (status == QS_EEMPTY);
        QS_CHECK_OK(status);
        QS_CHECK(qs_store_durable_lsn(engine->store) >= receipt.lsn);
        QS_CHECK(offset_of(&event.message) == i);
        qs_message_release(&event.message);
    }
}

/* Readers at the end of a stream waited for a commit that had nothing of theirs. */
ENGINE_TEST(test_what_was_durable_stays_so_when_others_publish)
{
    engine_close(engine);
    engine->options.background = false;
    engine_open(engine);
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    fill(engine, "s", 0, 10);
    consume_from(engine, "s", "c", 0, 10);
    expect(engine->channel, "c", 0);
    publish(engine, "q", "not durable");
    for (uint64_t i = 1; i < 10; i++) {
        expect(engine->channel, "c", i);
    }
}

ENGINE_TEST(test_what_a_consumer_of_a_stream_must_not_ask_for_is_refused)
{
    struct qs_test_fields none = {.used = 0}, wrong = {.used = 0}, priority = {.used = 0},
                          tracking = {.used = 0}, filter = {.used = 0};

    declare_stream(engine, "s");
    QS_CHECK_STATUS(QS_PRECONDITION_FAILED, try_consume(engine->channel, "s", "c", 0, &none));
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 10, 0, 0, QS_ERROR));
    QS_CHECK_STATUS(QS_NOT_IMPLEMENTED, try_consume(engine->channel, "s", "c", QS_NO_ACK, &none));
    qs_test_put_text(&wrong, "x-stream-offset", "nonsense");
    qs_test_put_long(&priority, "x-priority", 5);
    put_flag(&tracking, "x-stream-automatic-offset-tracking"); /* under which name? */
    qs_test_put_long(&filter, "x-stream-filter", 1);
    for (int i = 0; i < 4; i++) {
        const struct qs_test_fields *refused[] = {&wrong, &priority, &tracking, &filter};
        engine_new_channel(engine);
        QS_CHECK_OK(qs_channel_qos(engine->channel, 10, 0, 0, QS_ERROR));
        QS_CHECK_STATUS(QS_PRECONDITION_FAILED,
                        try_consume(engine->channel, "s", "", 0, refused[i]));
    }
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_qos(engine->channel, 10, 0, 0, QS_ERROR));
    QS_CHECK_OK(try_consume(engine->channel, "s", "c", QS_EXCLUSIVE, &none));
    QS_CHECK_OK(try_consume(engine->channel, "s", "d", QS_EXCLUSIVE, &none)); /* as RabbitMQ */
}

ENGINE_TEST(test_nacks_and_recovers_of_a_stream_are_refused)
{
    qs_error error;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 5);
    for (int i = 0; i < 4; i++) {
        qs_status status;
        engine_new_channel(engine);
        consume_from(engine, "s", "c", 0, 10);
        expect(engine->channel, "c", 0);
        expect(engine->channel, "c", 1);
        status = i == 0   ? qs_channel_nack(engine->channel, 1, QS_REQUEUE, 0, &error)
                 : i == 1 ? qs_channel_nack(engine->channel, 2, QS_MULTIPLE, 0, &error)
                 : i == 2 ? qs_channel_settle_range(engine->channel, 1, 2, QS_REJECT, 0, &error)
                          : qs_channel_recover(engine->channel, QS_REQUEUE, &error);
        QS_CHECK_STATUS(i == 3 ? QS_PRECONDITION_FAILED : QS_NOT_IMPLEMENTED, status);
        check_counts(engine, "s", 5, 0); /* the channel, or its connection, was closed */
    }
}

/* What a binding took and did not hand on goes back without a word. */
ENGINE_TEST(test_what_never_reached_the_caller_comes_again)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 5);
    consume_from(engine, "s", "c", 0, 3);
    for (uint64_t i = 0; i < 3; i++) {
        expect(engine->channel, "c", i);
    }
    QS_CHECK_OK(qs_channel_settle_range(engine->channel, 2, 3, QS_REQUEUE, 0, QS_ERROR));
    check_counts(engine, "s", 5, 1);
    expect(engine->channel, "c", 1);
    expect(engine->channel, "c", 2);
    QS_CHECK_OK(qs_channel_withhold(engine->channel, 5, 5, QS_ERROR));
    check_counts(engine, "s", 5, 3); /* until it is handed back */
    expect(engine->channel, "c", 2);
    expect_nothing(engine->channel);
}

ENGINE_TEST(test_a_closed_channel_leaves_nothing_behind)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 5);
    consume_from(engine, "s", "c", 0, 10);
    expect(engine->channel, "c", 0);
    expect(engine->channel, "c", 1);
    engine_new_channel(engine);
    check_counts(engine, "s", 5, 0);
    consume_from(engine, "s", "c", 0, 10);
    expect_all(engine, "c", 0, 5);
}

ENGINE_TEST(test_the_deletion_of_a_stream_cancels_its_consumers)
{
    qs_event event;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 5);
    consume_from(engine, "s", "c", 0, 10);
    expect(engine->channel, "c", 0);
    expect(engine->channel, "c", 1);
    QS_CHECK_OK(qs_test_delete(engine->channel, "s", QS_IF_UNUSED));
    QS_CHECK(!has_queue(engine, "s"));
    QS_CHECK_OK(next(engine->channel, &event));
    QS_CHECK(event.kind == QS_EVENT_CANCEL && holds(event.message.consumer_tag, "c"));
    qs_message_release(&event.message);
    expect_nothing(engine->channel);
    ack(engine, 1, 0); /* what was delivered is still the caller's */
    declare_stream(engine, "s");
    fill(engine, "s", 0, 1);
    expect_nothing(engine->channel);
}

ENGINE_TEST(test_a_consumer_that_retention_passed_goes_on_at_the_first)
{
    qs_queue_status status;

    write_files(engine);
    qs_test_declare_with(
        engine->channel, "s", QS_DURABLE,
        "x-queue-type=stream x-stream-max-segment-size-bytes=4096 x-max-messages=50");
    fill(engine, "s", 0, 10);
    consume_from(engine, "s", "c", 0, 1000);
    expect(engine->channel, "c", 0);
    for (uint64_t i = 10; i < 400; i += 30) {
        fill(engine, "s", i, i + 30);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("s"), &status, QS_ERROR));
    QS_CHECK(status.first > 100);
    expect_all(engine, "c", status.first, 400);
    consume_from(engine, "s", "d", 3, 1000);
    expect_all(engine, "d", status.first, 400);
}

/* Messages whose filter value is "a", "b" or none, with small bodies and large ones. */
static void fill_filtered(struct engine *engine, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        struct qs_test_fields headers = {.used = 0};
        struct qsi_properties properties = {.delivery_mode = 2};
        uint8_t blob[256];
        QS_TEST_FREED char *body = make_body(i % 7 == 3 ? 5000 : 40, (uint32_t)i);
        properties.present |= qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
        if (i % 3 < 2) {
            qs_test_put_text(&headers, "x-stream-filter-value", i % 3 == 0 ? "a" : "b");
            qsi_properties_set(&properties, QSI_PROPERTY_HEADERS,
                               qsi_slice_make(headers.bytes, headers.used));
        }
        qsi_properties_encode(blob, &properties);
        publish_to(engine, "", "s", (qs_slice){blob, qsi_properties_bytes(&properties)},
                   text(body));
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

static void expect_filtered(struct engine *engine, bool unfiltered, uint64_t from, uint64_t to)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-stream-offset=first x-stream-filter=b");

    if (unfiltered) {
        put_flag(&arguments, "x-stream-match-unfiltered");
    }
    QS_CHECK_OK(qs_channel_qos(engine->channel, 500, 0, 0, QS_ERROR));
    QS_CHECK_OK(try_consume(engine->channel, "s", "c", 0, &arguments));
    for (uint64_t i = from; i < to; i++) {
        if (i % 3 == 1 || (unfiltered && i % 3 == 2)) {
            ack(engine, expect(engine->channel, "c", i), 0);
        }
    }
    expect_nothing(engine->channel);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("c"), QS_ERROR));
}

ENGINE_TEST(test_a_filter_lets_through_what_has_its_value)
{
    write_files(engine);
    declare_stream(engine, "s");
    fill_filtered(engine, 0, 150);
    expect_filtered(engine, false, 0, 150);
    expect_filtered(engine, true, 0, 150);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    fill_filtered(engine, 150, 200);
    expect_filtered(engine, false, 0, 200);
    expect_filtered(engine, true, 0, 200);
}

/* ---- memory ---- */

/* Before one of this thread's fails; 0: none does. Other threads' allocations never fail. */
static _Thread_local uint64_t allocations_left;

static void *failing_realloc(void *context, void *memory, size_t bytes)
{
    (void)context;
    if (allocations_left > 0 && --allocations_left == 0) {
        return NULL;
    }
    return realloc(memory, bytes);
}

static void free_memory(void *context, void *memory)
{
    (void)context;
    free(memory);
}

/* Each allocation of consuming and receiving fails once: nothing is skipped, and nothing leaks. */
ENGINE_TEST(test_want_of_memory_skips_no_message)
{
    struct qs_test_fields arguments =
        qs_test_fields_of("x-stream-offset=first x-stream-filter=none");
    uint64_t failures = 0;

    write_files(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 150);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    fill(engine, "s", 150, 160);
    put_flag(&arguments, "x-stream-match-unfiltered");
    for (uint64_t n = 1; n < 250; n++) {
        uint64_t offset = 0;
        engine_new_channel(engine);
        QS_CHECK_OK(qs_channel_qos(engine->channel, 1000, 0, 0, QS_ERROR));
        allocations_left = n;
        while (try_consume(engine->channel, "s", "c", 0, &arguments) != QS_OK) {
            failures++;
        }
        while (offset < 160) {
            qs_event event;
            qs_status status = next(engine->channel, &event);
            if (status == QS_ENOMEM) {
                failures++;
                continue;
            }
            QS_CHECK_OK(status);
            QS_CHECK(offset_of(&event.message) == offset);
            offset++;
            qs_message_release(&event.message);
        }
        allocations_left = 0;
    }
    QS_CHECK(failures > 20);
}

static const struct qsi_stream_cursor *first_cursor(const struct engine *engine)
{
    return QSI_LIST_OWNER(engine->channel->consumers.next, struct qsi_store_consumer, in_channel)
        ->cursor;
}

/* It held a chunk of up to a MiB for as long as nothing came behind it. */
ENGINE_TEST(test_a_consumer_at_the_end_keeps_nothing_in_memory)
{
    qs_event event;

    declare_stream(engine, "s");
    consume_from(engine, "s", "t", 0, 100);
    fill(engine, "s", 0, 3);
    for (int i = 0; i < 3; i++) {
        QS_CHECK_OK(next(engine->channel, &event));
        qs_message_release(&event.message);
    }
    QS_CHECK(first_cursor(engine)->batch.count == 0);
    QS_CHECK_STATUS(QS_EEMPTY, next(engine->channel, &event));
    fill(engine, "s", 3, 4);
    QS_CHECK_OK(next(engine->channel, &event));
    QS_CHECK(offset_of(&event.message) == 3);
    qs_message_release(&event.message);
}

/* A cancelled one stays until what it has is acknowledged. */
ENGINE_TEST(test_a_cancelled_consumer_keeps_nothing_in_memory)
{
    const struct qsi_stream_cursor *cursor;
    qs_event event;

    declare_stream(engine, "s");
    consume_from(engine, "s", "t", 0, 100);
    fill(engine, "s", 0, 6);
    QS_CHECK_OK(next(engine->channel, &event));
    cursor = first_cursor(engine);
    QS_CHECK(cursor->batch.count > 1);
    QS_CHECK_OK(qs_channel_cancel(engine->channel, text("t"), QS_ERROR));
    QS_CHECK(cursor->batch.count == 0);
    QS_CHECK_OK(qs_channel_ack(engine->channel, event.message.delivery_tag, 0, QS_ERROR));
    qs_message_release(&event.message);
}

ENGINE_TEST(test_who_acknowledges_by_itself_is_refused_as_who_needs_none)
{
    struct qs_test_fields arguments = {.used = 0};

    declare_stream(engine, "s");
    QS_CHECK_OK(qs_channel_qos(engine->channel, 1, 0, 0, QS_ERROR));
    QS_CHECK_STATUS(QS_NOT_IMPLEMENTED,
                    try_consume(engine->channel, "s", "t", QS_AUTO_ACK, &arguments));
}

int main(void)
{
    static const qs_allocator allocator = {failing_realloc, free_memory, NULL};

    qs_allocator_set(&allocator);
    qs_test_run_all();
    return 0;
}
