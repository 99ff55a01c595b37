/* Streams in the engine: declared, published to in every way, read back by offset, and there again
 * after a restart, a crash, a checkpoint and retention. */
#include "qs_test_calls.h"
#include "qs_test_faults.h"
#include "streams_fixture.h"

ENGINE_TEST(test_transient_messages_are_kept_in_a_stream_and_not_in_a_queue)
{
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "both", "fanout", QS_DURABLE);
    bind_queue(engine, "s", "both", "");
    bind_queue(engine, "q", "both", "");
    for (uint32_t i = 0; i < 40; i++) {
        QS_TEST_FREED char *body = make_body(20, i);
        publish_to(engine, "both", "",
                   i % 4 == 0   ? PERSISTENT
                   : i % 4 == 1 ? TRANSIENT
                                : NONE,
                   text(body));
    }
    check_counts(engine, "q", 40, 0);
    sync_all(engine);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 40, 20);
    check_counts(engine, "q", 10, 0);
}

ENGINE_TEST(test_a_stream_is_there_after_a_restart_and_goes_on)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 50, 30, TRANSIENT);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 50, 30);
    fill(engine, "s", 50, 80, 30, PERSISTENT);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 80, 30);
}

ENGINE_TEST(test_a_checkpoint_keeps_small_and_large_streams)
{
    write_files(engine);
    declare_stream(engine, "small");
    declare_stream(engine, "large");
    fill(engine, "small", 0, 10, 30, PERSISTENT);
    fill(engine, "large", 0, 3000, 3000, PERSISTENT);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    fill(engine, "small", 10, 20, 30, PERSISTENT);
    fill(engine, "large", 3000, 3100, 3000, PERSISTENT);
    check_holds(engine, "small", 0, 20, 30);
    check_holds(engine, "large", 0, 3100, 3000);
    engine_reopen(engine);
    check_holds(engine, "small", 0, 20, 30);
    check_holds(engine, "large", 0, 3100, 3000);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(status_of(engine, "large").disk_bytes > 0);
    check_holds(engine, "small", 0, 20, 30);
    check_holds(engine, "large", 0, 3100, 3000);
}

ENGINE_TEST(test_bodies_of_the_message_store_are_copied_into_the_stream)
{
    write_files(engine);
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "both", "fanout", QS_DURABLE);
    bind_queue(engine, "s", "both", "");
    bind_queue(engine, "q", "both", "");
    for (uint32_t i = 0; i < 30; i++) {
        QS_TEST_FREED char *body = make_body(9000, i);
        publish_to(engine, "both", "", PERSISTENT, text(body));
    }
    check_holds(engine, "s", 0, 30, 9000);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    check_holds(engine, "s", 0, 30, 9000);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 30, 9000);
    for (uint32_t i = 0; i < 30; i++) {
        QS_TEST_FREED char *body = make_body(9000, i);
        get_flags(engine, "q", body, QS_NO_ACK);
    }
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    check_holds(engine, "s", 0, 30, 9000);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 30, 9000);
}

static uint64_t stored_bytes(struct engine *engine)
{
    return stats_of(engine).message_bytes_total;
}

/* The references that the stream had counted for ever in the next process. */
ENGINE_TEST(test_message_files_go_when_a_stream_has_copied_their_bodies)
{
    write_files(engine);
    declare_stream(engine, "s");
    for (uint64_t round = 0; round < 3; round++) {
        fill(engine, "s", round * 2020, round * 2020 + 20, 9000, PERSISTENT);
        fill(engine, "s", round * 2020 + 20, round * 2020 + 2020, 100, PERSISTENT);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        engine_reopen(engine);
    }
    check_ends(engine, "s", 0, 6060);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    QS_CHECK(stored_bytes(engine) == 0);
}

static void check_whole(struct engine *engine, uint64_t segments)
{
    qs_verified verified;

    engine_close(engine);
    QS_CHECK_OK(qs_store_verify(engine->path, engine->env, NULL, &verified, QS_ERROR));
    QS_CHECK(verified.damages == 0 && verified.segments >= segments);
    engine_open(engine);
}

ENGINE_TEST(test_verify_reads_the_files_of_streams)
{
    write_files(engine);
    declare_stream(engine, "s");
    commit_offset(engine, "a", 3);
    fill(engine, "s", 0, 3000, 300, PERSISTENT);
    fill(engine, "s", 3000, 3010, 9000, PERSISTENT);
    check_whole(engine, 0);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    check_whole(engine, 1);
}

ENGINE_TEST(test_a_call_that_fails_is_no_damage_of_a_stream)
{
    qs_env *env;

    write_files(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 300, 300, PERSISTENT);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_close(engine);
    env = qsi_env_fault_create(engine->env);
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        qs_verified verified;
        qs_status status;
        qs_test_sweep_calls(&sweep, env);
        status = qs_store_verify(engine->path, env, NULL, &verified, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == (sweep.has_failed ? QS_EIO : QS_OK));
    }
    qsi_env_fault_destroy(env);
    engine_open(engine);
}

ENGINE_TEST(test_batches_and_transactions_go_to_streams)
{
    enum { ROWS = 500 };
    const char *bodies[ROWS];
    char *owned[ROWS];
    struct table table;
    qs_receipt receipt;

    declare_stream(engine, "s");
    for (uint32_t i = 0; i < ROWS; i++) {
        bodies[i] = owned[i] = make_body(40, i);
    }
    table_init(&table, ROWS);
    table_add_strings(&table, "body", "z", bodies);
    QS_CHECK_OK(table_publish(engine->channel, &table, "", "s", 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == ROWS);
    check_holds(engine, "s", 0, ROWS, 40);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    fill(engine, "s", ROWS, ROWS + 20, 40, PERSISTENT);
    check_ends(engine, "s", 0, ROWS);
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    check_holds(engine, "s", 0, ROWS + 20, 40);
    fill(engine, "s", ROWS, ROWS + 20, 40, PERSISTENT);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    engine_reopen(engine);
    check_holds(engine, "s", 0, ROWS + 20, 40);
    for (uint32_t i = 0; i < ROWS; i++) {
        free(owned[i]);
    }
    table_fini(&table);
}

ENGINE_TEST(test_cursors_survive_restarts_and_checkpoints)
{
    declare_stream(engine, "s");
    check_cursor(engine, "a", UINT64_MAX);
    commit_offset(engine, "a", 7);
    commit_offset(engine, "b", 8);
    commit_offset(engine, "a", 5);
    commit_offset(engine, "c", 9);
    QS_CHECK_OK(qs_channel_forget_offset(engine->channel, text("s"), text("c"), 0, NULL, QS_ERROR));
    for (int i = 0; i < 3; i++) {
        check_cursor(engine, "a", 5);
        check_cursor(engine, "b", 8);
        check_cursor(engine, "c", UINT64_MAX);
        QS_CHECK(status_of(engine, "s").cursors == 2);
        if (i == 1) {
            QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        }
        engine_reopen(engine);
    }
}

ENGINE_TEST(test_a_cursor_moves_with_its_transaction_and_not_without)
{
    bool repeated;

    declare_stream(engine, "s");
    commit_offset(engine, "a", 1);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    commit_offset(engine, "a", 2);
    publish(engine, "s", "x");
    check_cursor(engine, "a", 1);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    commit_offset(engine, "a", 3);
    publish(engine, "s", "x");
    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, text("key"), 0, &repeated, QS_ERROR));
    check_cursor(engine, "a", 3);
    check_ends(engine, "s", 0, 1);
    commit_offset(engine, "a", 4);
    publish(engine, "s", "x");
    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, text("key"), 0, &repeated, QS_ERROR));
    QS_CHECK(repeated);
    engine_reopen(engine);
    check_cursor(engine, "a", 3);
    check_ends(engine, "s", 0, 1);
}

ENGINE_TEST(test_retention_by_number_drops_whole_segments)
{
    struct qs_test_fields arguments =
        qs_test_fields_of("x-max-messages=100 x-stream-max-segment-size-bytes=100000");
    qs_stream_read read = {.start = {.at = QS_STREAM_OFFSET}};
    qs_stream_reader *reader, *old;
    struct received batch;
    qs_stream_status status;
    uint64_t first;

    write_files(engine);
    declare_stream_with(engine, "s", &arguments);
    old = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    for (uint64_t round = 0; round < 5; round++) {
        fill(engine, "s", round * 400, round * 400 + 400, 500, PERSISTENT);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    status = status_of(engine, "s");
    QS_CHECK(status.next == 2000 && status.first > 0 && status.first <= 1900);
    QS_CHECK(status.segments > 0 && status.segments < 8);
    check_holds_by(engine, "s", status.first, 2000, 100, 500);
    QS_CHECK_STATUS(QS_EOFFSET, qs_stream_reader_next(old, 10, UINT64_MAX, 0, &batch.schema,
                                                      &batch.array, QS_ERROR));
    QS_CHECK_OK(qs_stream_reader_seek(old, &(qs_stream_start){.at = QS_STREAM_FIRST}, QS_ERROR));
    QS_CHECK(qs_stream_reader_position(old) == status.first);
    qs_stream_reader_close(old);
    QS_CHECK_STATUS(QS_EOFFSET,
                    qs_stream_reader_open(&reader, engine->store, text("s"), &read, QS_ERROR));
    read.clamps = true;
    QS_CHECK_OK(qs_stream_reader_open(&reader, engine->store, text("s"), &read, QS_ERROR));
    QS_CHECK(qs_stream_reader_position(reader) == status.first);
    qs_stream_reader_close(reader);
    engine_reopen(engine);
    first = status_of(engine, "s").first;
    QS_CHECK(first >= status.first);
    check_holds_by(engine, "s", first, 2000, 100, 500);
}

ENGINE_TEST(test_what_streams_do_not_do_is_refused)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-queue-type=stream");
    qs_message message;
    qs_declare_ok ok;
    qs_cursor cursor;

    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    publish(engine, "s", "x");
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED,
                        qs_channel_get(engine->channel, text("s"), 0, &message, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED, qs_test_purge(engine->channel, "s"));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_commit_offset(engine->channel, text("q"), text("g"), 1, NONE, 0,
                                                 NULL, QS_ERROR));
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_channel_commit_offset(engine->channel, text("s"), NONE, 1, NONE, 0, NULL, QS_ERROR));
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_store_cursor(engine->store, text("q"), text("g"), &cursor, QS_ERROR));
    QS_CHECK_STATUS(QS_NOT_FOUND,
                    qs_store_cursor(engine->store, text("none"), text("g"), &cursor, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_queue_declare(engine->channel, text("t"), 0,
                                                 qs_test_fields_slice(&arguments), &ok, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_declare(engine->channel, text("s"), QS_DURABLE,
                                         qs_test_fields_slice(&arguments), &ok, QS_ERROR));
    QS_CHECK(ok.message_count == 1);
    CHECK_CHANNEL_ERROR(
        engine, QS_PRECONDITION_FAILED,
        qs_channel_queue_declare(engine->channel, text("s"), QS_DURABLE, NONE, &ok, QS_ERROR));
}

static struct received next_batch(qs_stream_reader *reader, uint64_t rows_max, uint64_t bytes_max)
{
    struct received batch;

    QS_CHECK_OK(qs_stream_reader_next(reader, rows_max, bytes_max, 0, &batch.schema, &batch.array,
                                      QS_ERROR));
    return batch;
}

/* Of rows [from, to), which are in batch. */
static void check_bodies(const struct received *batch, uint64_t from, uint64_t to,
                         size_t body_bytes)
{
    QS_CHECK((uint64_t)batch->array.length == to - from);
    for (int64_t row = 0; row < batch->array.length; row++) {
        QS_TEST_FREED char *body = make_body(body_bytes, (uint32_t)from + (uint32_t)row);
        QS_CHECK(offset_at(batch, row) == from + (uint64_t)row);
        QS_CHECK(holds(received_body(batch, row), body));
    }
}

static const void *bodies_of(const struct received *batch)
{
    return received_column(batch, "body")->buffers[2];
}

/* Readers of the same blocks have the same bytes, not copies of them: no longer in the store's
 * budget, and there after the store is closed. One checkpoint writes the file, at no time of its
 * own: where blocks end depends on nothing else. */
QS_TEST(test_bodies_of_a_block_are_not_copied)
{
    struct received mine, yours, part;
    qs_stream_reader *one, *other;
    struct engine engine;
    uint64_t rows, ram;

    engine_start(&engine, ON_DISK);
    declare_stream(&engine, "s");
    fill(&engine, "s", 0, 4000, 1000, PERSISTENT);
    engine_reopen(&engine);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    engine_reopen(&engine);
    QS_CHECK(status_of(&engine, "s").flushed == 4000);
    one = open_reader(&engine, "s", QS_STREAM_FIRST, 0);
    other = open_reader(&engine, "s", QS_STREAM_FIRST, 0);
    ram = stats_of(&engine).ram_bytes;
    mine = next_batch(one, ROWS_MAX, UINT64_MAX);
    yours = next_batch(other, ROWS_MAX, UINT64_MAX);
    rows = qs_stream_reader_position(one);
    QS_CHECK(rows >= 100 && rows < 4000 && qs_stream_reader_position(other) == rows);
    QS_CHECK(bodies_of(&mine) == bodies_of(&yours));
    QS_CHECK(stats_of(&engine).ram_bytes < ram + (64u << 10));
    part = next_batch(other, 90, UINT64_MAX); /* of the next block */
    check_bodies(&part, rows, rows + 90, 1000);
    received_release(&part);
    part = next_batch(other, UINT64_MAX, 20000); /* not worth a batch of its own */
    check_bodies(&part, rows + 90, rows + 110, 1000);
    received_release(&yours);
    qs_stream_reader_close(one);
    qs_stream_reader_close(other);
    engine_stop(&engine);
    check_bodies(&mine, 0, rows, 1000);
    check_bodies(&part, rows + 90, rows + 110, 1000);
    received_release(&mine);
    received_release(&part);
}

IN_MEMORY_TEST(test_a_crash_keeps_what_was_durable)
{
    write_files(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 3000, 300, PERSISTENT);
    commit_offset(engine, "a", 11);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    fill(engine, "s", 3000, 3500, 300, TRANSIENT);
    commit_offset(engine, "a", 12);
    sync_all(engine);
    engine_crash(engine);
    check_holds(engine, "s", 0, 3500, 300);
    check_cursor(engine, "a", 12);
    fill(engine, "s", 3500, 3600, 300, PERSISTENT);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 3600, 300);
}
