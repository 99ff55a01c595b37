/* Readers of streams in the engine: what they may read, where they begin, and which routing keys
 * they get. */
#include "qs_test_calls.h"
#include "streams_fixture.h"

ENGINE_TEST(test_what_is_published_is_read_by_any_number_of_readers)
{
    declare_stream(engine, "s");
    check_ends(engine, "s", 0, 0);
    fill(engine, "s", 0, 100, 30, PERSISTENT);
    check_holds(engine, "s", 0, 100, 30);
    check_holds(engine, "s", 0, 100, 30);
    check_holds_by(engine, "s", 40, 100, 3, 30);
}

ENGINE_TEST(test_readers_never_get_what_is_not_durable)
{
    qs_stream_reader *reader;
    struct received batch;

    engine_close(engine);
    engine->options.background = false; /* nobody commits but who asks for it */
    engine_open(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 3, 30, PERSISTENT);
    reader = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    fill(engine, "s", 3, 5, 30, PERSISTENT);
    QS_CHECK_OK(qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, 0, &batch.schema, &batch.array,
                                      QS_ERROR));
    QS_CHECK(batch.array.length == 3);
    received_release(&batch);
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, 0, &batch.schema,
                                                     &batch.array, QS_ERROR));
    QS_CHECK(stats_of(engine).durable_lsn < stats_of(engine).appended_lsn);
    /* Who waits makes it durable. */
    while (qs_stream_reader_position(reader) < 5) {
        QS_CHECK_OK(qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, QS_FOREVER, &batch.schema,
                                          &batch.array, QS_ERROR));
        received_release(&batch);
    }
    QS_CHECK(stats_of(engine).durable_lsn == stats_of(engine).appended_lsn);
    qs_stream_reader_close(reader);
}

static uint64_t rows_there(qs_stream_reader *reader)
{
    struct received batch;
    uint64_t rows = 0;

    while (qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, 0, &batch.schema, &batch.array,
                                 QS_ERROR) == QS_OK) {
        rows += (uint64_t)batch.array.length;
        received_release(&batch);
    }
    return rows;
}

/* A reader that looked for the first time while a commit was to come, or that had not looked
 * between two commits, did not see what had been durable long before. */
ENGINE_TEST(test_durable_rows_are_there_while_others_wait_for_the_disk)
{
    qs_stream_reader *reader;

    engine_close(engine);
    engine->options.background = false; /* nobody commits but who asks for it */
    engine_open(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 3, 30, PERSISTENT);
    reader = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    fill(engine, "s", 3, 5, 30, PERSISTENT);
    QS_CHECK(rows_there(reader) == 3);
    fill(engine, "s", 5, 7, 30, PERSISTENT);
    QS_CHECK(rows_there(reader) == 0);
    sync_all(engine);
    fill(engine, "s", 7, 9, 30, PERSISTENT);
    QS_CHECK(rows_there(reader) == 4);
    sync_all(engine);
    QS_CHECK(rows_there(reader) == 2);
    qs_stream_reader_close(reader);
    engine_reopen(engine);
    reader = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    fill(engine, "s", 9, 10, 30, PERSISTENT);
    QS_CHECK(rows_there(reader) == 9);
    qs_stream_reader_close(reader);
}

ENGINE_TEST(test_readers_begin_where_they_ask_to)
{
    qs_stream_reader *reader;
    struct received batch;
    uint64_t offset;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 10, 30, PERSISTENT);
    reader = open_reader(engine, "s", QS_STREAM_NEXT, 0);
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_reader_next(reader, 10, UINT64_MAX, 1000000, &batch.schema,
                                                     &batch.array, QS_ERROR));
    fill(engine, "s", 10, 11, 30, PERSISTENT);
    sync_all(engine);
    QS_CHECK_OK(
        qs_stream_reader_next(reader, 10, UINT64_MAX, 0, &batch.schema, &batch.array, QS_ERROR));
    QS_CHECK(batch.array.length == 1 && offset_at(&batch, 0) == 10);
    received_release(&batch);
    qs_stream_reader_close(reader);
    QS_CHECK_OK(qs_store_stream_offset_at(engine->store, text("s"), 0, &offset, QS_ERROR));
    QS_CHECK(offset == 0);
    QS_CHECK_OK(
        qs_store_stream_offset_at(engine->store, text("s"), UINT64_MAX / 2, &offset, QS_ERROR));
    QS_CHECK(offset == 11);
    reader = open_reader(engine, "s", QS_STREAM_TIME, 0);
    QS_CHECK(qs_stream_reader_position(reader) == 0);
    qs_stream_reader_close(reader);
    reader = open_reader(engine, "s", QS_STREAM_LAST, 0);
    QS_CHECK(qs_stream_reader_position(reader) <= 10);
    qs_stream_reader_close(reader);
    reader = open_reader(engine, "s", QS_STREAM_OFFSET, 100);
    QS_CHECK(qs_stream_reader_position(reader) == 100);
    qs_stream_reader_close(reader);
}

ENGINE_TEST(test_a_reader_gets_the_routing_keys_it_asks_for)
{
    const qs_slice keys[] = {text("eu.#"), text("us.*.big")};
    const qs_stream_read read = {.routing_keys = keys, .routing_key_count = 2};
    static const char *const published[] = {"eu", "us", "eu.x", "us.a.big", "us.a.small", "eu.x.y"};

    write_files(engine);
    declare_stream(engine, "s");
    declare_exchange(engine, "e", "fanout", QS_DURABLE);
    bind_queue(engine, "s", "e", "");
    for (int i = 0; i < 600; i++) {
        publish_to(engine, "e", published[i % 6], PERSISTENT, text("x"));
    }
    sync_all(engine);
    for (int round = 0; round < 2; round++) {
        qs_stream_reader *reader;
        struct received batch;
        uint64_t count = 0;
        QS_CHECK_OK(qs_stream_reader_open(&reader, engine->store, text("s"), &read, QS_ERROR));
        while (qs_stream_reader_next(reader, 50, UINT64_MAX, 0, &batch.schema, &batch.array,
                                     QS_ERROR) == QS_OK) {
            for (int64_t row = 0; row < batch.array.length; row++, count++) {
                uint64_t i = offset_at(&batch, row) % 6;
                QS_CHECK(i == 0 || i == 2 || i == 3 || i == 5);
                QS_CHECK(holds(received_name(&batch, "routing_key", row), published[i]));
            }
            received_release(&batch);
        }
        QS_CHECK(count == 400 && qs_stream_reader_position(reader) == 600);
        qs_stream_reader_close(reader);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
        engine_reopen(engine);
    }
}

ENGINE_TEST(test_a_deleted_stream_leaves_nothing_and_its_readers_are_told)
{
    qs_stream_reader *reader;
    struct received batch;
    uint64_t count;

    write_files(engine);
    declare_stream(engine, "s");
    fill(engine, "s", 0, 3000, 300, PERSISTENT);
    commit_offset(engine, "a", 3);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    reader = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    QS_CHECK_OK(qs_channel_queue_delete(engine->channel, text("s"), QS_IF_EMPTY, &count, QS_ERROR));
    QS_CHECK(count == 0);
    QS_CHECK_STATUS(QS_NOT_FOUND, qs_stream_reader_next(reader, 10, UINT64_MAX, 0, &batch.schema,
                                                        &batch.array, QS_ERROR));
    qs_stream_reader_close(reader);
    declare_stream(engine, "s");
    check_ends(engine, "s", 0, 0);
    check_cursor(engine, "a", UINT64_MAX);
    fill(engine, "s", 0, 10, 30, PERSISTENT);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    check_holds(engine, "s", 0, 10, 30);
    check_cursor(engine, "a", UINT64_MAX);
}

/* More than memory holds: the pager writes it to files, and readers find it there. */
QS_TEST(test_a_stream_larger_than_memory_is_read_from_its_files)
{
    struct engine engine;

    engine_init(&engine, ON_DISK);
    engine.options.memory_budget = 4u << 20;
    engine.options.journal_file_bytes = 16u << 20;
    engine_open(&engine);
    declare_stream(&engine, "s");
    fill(&engine, "s", 0, 20000, 1000, PERSISTENT);
    check_holds_by(&engine, "s", 0, 20000, 1000, 1000);
    QS_CHECK(stats_of(&engine).ram_bytes < 8u << 20);
    engine_reopen(&engine);
    check_holds_by(&engine, "s", 0, 20000, 1000, 1000);
    engine_stop(&engine);
}

ENGINE_TEST(test_several_readers_are_waited_for_at_once)
{
    qs_stream_reader *readers[2];

    declare_stream(engine, "a");
    declare_stream(engine, "b");
    readers[0] = open_reader(engine, "a", QS_STREAM_NEXT, 0);
    readers[1] = open_reader(engine, "b", QS_STREAM_NEXT, 0);
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_readers_wait(readers, 2, 1000000, QS_ERROR));
    publish(engine, "b", "on its way to the disk");
    QS_CHECK_OK(qs_stream_readers_wait(readers, 2, QS_FOREVER, QS_ERROR));
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_readers_wait(readers, 1, 0, QS_ERROR));
    QS_CHECK_OK(qs_test_delete(engine->channel, "a", 0));
    QS_CHECK_OK(qs_stream_readers_wait(readers, 1, QS_FOREVER, QS_ERROR)); /* next tells it */
    QS_CHECK_STATUS(QS_EINVAL, qs_stream_readers_wait(readers, 0, 0, QS_ERROR));
    qs_stream_reader_close(readers[0]);
    qs_stream_reader_close(readers[1]);
}
