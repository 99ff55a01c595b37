/* Streams in the engine: declared, published to in every way, read back by offset, and there again
 * after a restart, a crash, a checkpoint and retention. */
#include "../engine/arrow_table.h"
#include "../engine/engine_fixture.h"
#include "qs_test_fields.h"

#define ROWS_MAX 4096

static void declare_stream_with(struct engine *engine, const char *name,
                                struct qs_test_fields *arguments)
{
    qs_declare_ok ok;

    qs_test_put_text(arguments, "x-queue-type", "stream");
    QS_CHECK_OK(qs_channel_queue_declare(engine->channel, text(name), QS_DURABLE,
                                         qs_test_fields_slice(arguments), &ok, QS_ERROR));
}

static void declare_stream(struct engine *engine, const char *name)
{
    struct qs_test_fields arguments = {.used = 0};

    declare_stream_with(engine, name, &arguments);
}

static qs_stream_status status_of(struct engine *engine, const char *name)
{
    qs_stream_status status;

    QS_CHECK_OK(qs_store_stream_status(engine->store, text(name), &status, QS_ERROR));
    return status;
}

static void check_ends(struct engine *engine, const char *name, uint64_t first, uint64_t next)
{
    qs_stream_status status = status_of(engine, name);

    if (status.first != first || status.next != next) {
        fprintf(stderr, "stream %s: [%" PRIu64 ", %" PRIu64 ")\n", name, status.first, status.next);
    }
    QS_CHECK(status.first == first && status.next == next);
}

static void sync_all(struct engine *engine)
{
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

static qs_stream_reader *open_reader(struct engine *engine, const char *name, uint32_t at,
                                     uint64_t number)
{
    const qs_stream_read read = {.start = {.at = at, .offset = number, .time_us = number}};
    qs_stream_reader *reader;

    QS_CHECK_OK(qs_stream_reader_open(&reader, engine->store, text(name), &read, QS_ERROR));
    sync_all(engine); /* readers get what is durable */
    return reader;
}

static uint64_t offset_at(const struct received *batch, int64_t row)
{
    return ((const uint64_t *)received_column(batch, "offset")->buffers[1])[row];
}

/* The stream holds body(i) at each offset i of [from, to), which readers find in batches of any
 * size, and times that never decrease. */
static void check_holds_by(struct engine *engine, const char *name, uint64_t from, uint64_t to,
                           uint64_t rows_max, size_t body_bytes)
{
    qs_stream_reader *reader = open_reader(engine, name, QS_STREAM_OFFSET, from);
    struct received batch;
    uint64_t offset = from;
    int64_t last_time = 0;

    while (offset < to) {
        const int64_t *times;
        QS_CHECK_OK(qs_stream_reader_next(reader, rows_max, UINT64_MAX, 0, &batch.schema,
                                          &batch.array, QS_ERROR));
        times = received_column(&batch, "timestamp")->buffers[1];
        for (int64_t row = 0; row < batch.array.length; row++, offset++) {
            char *body = make_body(body_bytes, (uint32_t)offset);
            QS_CHECK(offset_at(&batch, row) == offset);
            QS_CHECK(holds(received_body(&batch, row), body));
            QS_CHECK(times[row] >= last_time && times[row] > 0);
            last_time = times[row];
            free(body);
        }
        received_release(&batch);
    }
    QS_CHECK(offset == to && qs_stream_reader_position(reader) == to);
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_reader_next(reader, 1, UINT64_MAX, 0, &batch.schema,
                                                     &batch.array, QS_ERROR));
    qs_stream_reader_close(reader);
}

static void check_holds(struct engine *engine, const char *name, uint64_t from, uint64_t to,
                        size_t body_bytes)
{
    check_ends(engine, name, from, to);
    check_holds_by(engine, name, from, to, ROWS_MAX, body_bytes);
    check_holds_by(engine, name, from, to, 7, body_bytes);
}

static void fill(struct engine *engine, const char *name, uint64_t from, uint64_t to,
                 size_t body_bytes, qs_slice properties)
{
    for (uint64_t i = from; i < to; i++) {
        char *body = make_body(body_bytes, (uint32_t)i);
        publish_to(engine, "", name, properties, text(body));
        free(body);
    }
}

/* From now on a checkpoint carries little itself. */
static void write_files(struct engine *engine)
{
    engine_close(engine);
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
}

static void test_what_is_published_is_read_by_any_number_of_readers(struct engine *engine)
{
    declare_stream(engine, "s");
    check_ends(engine, "s", 0, 0);
    fill(engine, "s", 0, 100, 30, PERSISTENT);
    check_holds(engine, "s", 0, 100, 30);
    check_holds(engine, "s", 0, 100, 30);
    check_holds_by(engine, "s", 40, 100, 3, 30);
}

static void test_readers_never_get_what_is_not_durable(struct engine *engine)
{
    qs_stream_reader *reader;
    struct received batch;

    declare_stream(engine, "s");
    fill(engine, "s", 0, 3, 30, PERSISTENT);
    reader = open_reader(engine, "s", QS_STREAM_FIRST, 0);
    fill(engine, "s", 3, 5, 30, PERSISTENT);
    for (int round = 0; round < 2; round++) {
        uint64_t position = qs_stream_reader_position(reader);
        qs_status status = qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, 0, &batch.schema,
                                                 &batch.array, QS_ERROR);
        if (status == QS_OK) {
            QS_CHECK(position == 0 && batch.array.length == 3);
            received_release(&batch);
        } else {
            QS_CHECK(status == QS_EEMPTY && stats_of(engine).durable_lsn != 0);
        }
    }
    /* Who waits makes it durable. */
    while (qs_stream_reader_position(reader) < 5) {
        QS_CHECK_OK(qs_stream_reader_next(reader, ROWS_MAX, UINT64_MAX, QS_FOREVER, &batch.schema,
                                          &batch.array, QS_ERROR));
        received_release(&batch);
    }
    QS_CHECK(stats_of(engine).durable_lsn == stats_of(engine).appended_lsn);
    qs_stream_reader_close(reader);
}

static void test_transient_messages_are_kept_in_a_stream_and_not_in_a_queue(struct engine *engine)
{
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "both", "fanout", QS_DURABLE);
    bind_queue(engine, "s", "both", "");
    bind_queue(engine, "q", "both", "");
    for (uint32_t i = 0; i < 40; i++) {
        char *body = make_body(20, i);
        publish_to(engine, "both", "",
                   i % 4 == 0   ? PERSISTENT
                   : i % 4 == 1 ? TRANSIENT
                                : NONE,
                   text(body));
        free(body);
    }
    check_counts(engine, "q", 40, 0);
    sync_all(engine);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 40, 20);
    check_counts(engine, "q", 10, 0);
}

static void test_a_stream_is_there_after_a_restart_and_goes_on(struct engine *engine)
{
    declare_stream(engine, "s");
    fill(engine, "s", 0, 50, 30, TRANSIENT);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 50, 30);
    fill(engine, "s", 50, 80, 30, PERSISTENT);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 80, 30);
}

static void test_a_checkpoint_keeps_small_and_large_streams(struct engine *engine)
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

static void test_bodies_of_the_message_store_are_copied_into_the_stream(struct engine *engine)
{
    write_files(engine);
    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    declare_exchange(engine, "both", "fanout", QS_DURABLE);
    bind_queue(engine, "s", "both", "");
    bind_queue(engine, "q", "both", "");
    for (uint32_t i = 0; i < 30; i++) {
        char *body = make_body(9000, i);
        publish_to(engine, "both", "", PERSISTENT, text(body));
        free(body);
    }
    check_holds(engine, "s", 0, 30, 9000);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    check_holds(engine, "s", 0, 30, 9000);
    engine_reopen(engine);
    check_holds(engine, "s", 0, 30, 9000);
    for (uint32_t i = 0; i < 30; i++) {
        char *body = make_body(9000, i);
        get_flags(engine, "q", body, QS_NO_ACK);
        free(body);
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
static void test_message_files_go_when_a_stream_has_copied_their_bodies(struct engine *engine)
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

static void commit_offset(struct engine *engine, const char *group, uint64_t offset)
{
    QS_CHECK_OK(qs_channel_commit_offset(engine->channel, text("s"), text(group), offset,
                                         text("mine"), 0, NULL, QS_ERROR));
}

static void check_whole(struct engine *engine, uint64_t segments)
{
    qs_verified verified;

    engine_close(engine);
    QS_CHECK_OK(qs_store_verify(engine->path, engine->env, NULL, &verified, QS_ERROR));
    QS_CHECK(verified.damages == 0 && verified.segments >= segments);
    engine_open(engine);
}

static void test_verify_reads_the_files_of_streams(struct engine *engine)
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

static void test_batches_and_transactions_go_to_streams(struct engine *engine)
{
    enum { ROWS = 500 };
    const char *bodies[ROWS];
    char *owned[ROWS];
    struct table table;
    qs_receipt receipt;
    bool repeated;

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
    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, NONE, &repeated, QS_ERROR));
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

static void check_cursor(struct engine *engine, const char *group, uint64_t offset)
{
    qs_cursor cursor;

    if (offset == UINT64_MAX) {
        QS_CHECK_STATUS(QS_EEMPTY,
                        qs_store_cursor(engine->store, text("s"), text(group), &cursor, QS_ERROR));
        return;
    }
    QS_CHECK_OK(qs_store_cursor(engine->store, text("s"), text(group), &cursor, QS_ERROR));
    QS_CHECK(cursor.offset == offset && cursor.own_bytes == 4);
    QS_CHECK(memcmp(cursor.own, "mine", 4) == 0);
}

static void test_cursors_survive_restarts_and_checkpoints(struct engine *engine)
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

static void test_a_cursor_moves_with_its_transaction_and_not_without(struct engine *engine)
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
    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, text("key"), &repeated, QS_ERROR));
    check_cursor(engine, "a", 3);
    check_ends(engine, "s", 0, 1);
    commit_offset(engine, "a", 4);
    publish(engine, "s", "x");
    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, text("key"), &repeated, QS_ERROR));
    QS_CHECK(repeated);
    engine_reopen(engine);
    check_cursor(engine, "a", 3);
    check_ends(engine, "s", 0, 1);
}

static void test_retention_by_number_drops_whole_segments(struct engine *engine)
{
    struct qs_test_fields arguments = {.used = 0};
    qs_stream_read read = {.start = {.at = QS_STREAM_OFFSET}};
    qs_stream_reader *reader, *old;
    struct received batch;
    qs_stream_status status;
    uint64_t first;

    write_files(engine);
    qs_test_put_long(&arguments, "x-max-messages", 100);
    qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", 100000);
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

static void test_readers_begin_where_they_ask_to(struct engine *engine)
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

static void test_a_reader_gets_the_routing_keys_it_asks_for(struct engine *engine)
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

static void test_what_streams_do_not_do_is_refused(struct engine *engine)
{
    struct qs_test_fields arguments = {.used = 0};
    qs_message message;
    qs_declare_ok ok;
    uint64_t count;
    qs_cursor cursor;

    declare_stream(engine, "s");
    declare(engine, "q", QS_DURABLE);
    publish(engine, "s", "x");
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED,
                        qs_channel_get(engine->channel, text("s"), 0, &message, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_NOT_IMPLEMENTED,
                        qs_channel_queue_purge(engine->channel, text("s"), &count, QS_ERROR));
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
    qs_test_put_text(&arguments, "x-queue-type", "stream");
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

static void test_a_deleted_stream_leaves_nothing_and_its_readers_are_told(struct engine *engine)
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
static void test_a_stream_larger_than_memory_is_read_from_its_files(void)
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
        char *body = make_body(body_bytes, (uint32_t)from + (uint32_t)row);
        QS_CHECK(offset_at(batch, row) == from + (uint64_t)row);
        QS_CHECK(holds(received_body(batch, row), body));
        free(body);
    }
}

static const void *bodies_of(const struct received *batch)
{
    return received_column(batch, "body")->buffers[2];
}

/* Readers of the same blocks have the same bytes, not copies of them: no longer in the store's
 * budget, and there after the store is closed. */
static void test_bodies_of_a_block_are_not_copied(void)
{
    struct received mine, yours, part;
    qs_stream_reader *one, *other;
    struct engine engine;
    uint64_t rows, ram;

    engine_init(&engine, ON_DISK);
    engine.options.checkpoint_bytes = 1u << 20;
    engine_open(&engine);
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

static void test_a_crash_keeps_what_was_durable(void)
{
    struct engine engine, dead;

    engine_start(&engine, IN_MEMORY);
    write_files(&engine);
    declare_stream(&engine, "s");
    fill(&engine, "s", 0, 3000, 300, PERSISTENT);
    commit_offset(&engine, "a", 11);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    fill(&engine, "s", 3000, 3500, 300, TRANSIENT);
    commit_offset(&engine, "a", 12);
    sync_all(&engine);
    engine_crash(&engine, &dead);
    check_holds(&engine, "s", 0, 3500, 300);
    check_cursor(&engine, "a", 12);
    fill(&engine, "s", 3500, 3600, 300, PERSISTENT);
    engine_reopen(&engine);
    check_holds(&engine, "s", 0, 3600, 300);
    engine_stop(&engine);
    engine_stop(&dead);
}

int main(void)
{
    RUN_TESTS(test_what_is_published_is_read_by_any_number_of_readers,
              test_readers_never_get_what_is_not_durable,
              test_transient_messages_are_kept_in_a_stream_and_not_in_a_queue,
              test_a_stream_is_there_after_a_restart_and_goes_on,
              test_a_checkpoint_keeps_small_and_large_streams,
              test_bodies_of_the_message_store_are_copied_into_the_stream,
              test_message_files_go_when_a_stream_has_copied_their_bodies,
              test_verify_reads_the_files_of_streams, test_batches_and_transactions_go_to_streams,
              test_cursors_survive_restarts_and_checkpoints,
              test_a_cursor_moves_with_its_transaction_and_not_without,
              test_retention_by_number_drops_whole_segments, test_readers_begin_where_they_ask_to,
              test_a_reader_gets_the_routing_keys_it_asks_for,
              test_what_streams_do_not_do_is_refused,
              test_a_deleted_stream_leaves_nothing_and_its_readers_are_told);
    test_a_stream_larger_than_memory_is_read_from_its_files();
    test_bodies_of_a_block_are_not_copied();
    test_a_crash_keeps_what_was_durable();
    return 0;
}
