/* What the tests of streams in the engine share. */
#ifndef STREAMS_FIXTURE_H
#define STREAMS_FIXTURE_H

#include "../engine/arrow_table.h"
#include "../engine/engine_fixture.h"
#include "qs_test_fields.h"

#define ROWS_MAX 4096

static inline void declare_stream_with(struct engine *engine, const char *name,
                                       struct qs_test_fields *arguments)
{
    qs_test_put_text(arguments, "x-queue-type", "stream");
    QS_CHECK_OK(
        qs_test_declare_as(engine->channel, name, QS_DURABLE, qs_test_fields_slice(arguments)));
}

static inline void declare_stream(struct engine *engine, const char *name)
{
    struct qs_test_fields arguments = {.used = 0};

    declare_stream_with(engine, name, &arguments);
}

static inline qs_stream_status status_of(struct engine *engine, const char *name)
{
    qs_stream_status status;

    QS_CHECK_OK(qs_store_stream_status(engine->store, text(name), &status, QS_ERROR));
    return status;
}

static inline void check_ends(struct engine *engine, const char *name, uint64_t first,
                              uint64_t next)
{
    qs_stream_status status = status_of(engine, name);

    if (status.first != first || status.next != next) {
        fprintf(stderr, "stream %s: [%" PRIu64 ", %" PRIu64 ")\n", name, status.first, status.next);
    }
    QS_CHECK(status.first == first && status.next == next);
}

static inline void sync_all(struct engine *engine)
{
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

static inline qs_stream_reader *open_reader(struct engine *engine, const char *name, uint32_t at,
                                            uint64_t number)
{
    const qs_stream_read read = {.start = {.at = at, .offset = number, .time_us = number}};
    qs_stream_reader *reader;

    QS_CHECK_OK(qs_stream_reader_open(&reader, engine->store, text(name), &read, QS_ERROR));
    sync_all(engine); /* readers get what is durable */
    return reader;
}

static inline uint64_t offset_at(const struct received *batch, int64_t row)
{
    return ((const uint64_t *)received_column(batch, "offset")->buffers[1])[row];
}

/* The stream holds body(i) at each offset i of [from, to), which readers find in batches of any
 * size, and times that never decrease. */
static inline void check_holds_by(struct engine *engine, const char *name, uint64_t from,
                                  uint64_t to, uint64_t rows_max, size_t body_bytes)
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
            QS_TEST_FREED char *body = make_body(body_bytes, (uint32_t)offset);
            QS_CHECK(offset_at(&batch, row) == offset);
            QS_CHECK(holds(received_body(&batch, row), body));
            QS_CHECK(times[row] >= last_time && times[row] > 0);
            last_time = times[row];
        }
        received_release(&batch);
    }
    QS_CHECK(offset == to && qs_stream_reader_position(reader) == to);
    QS_CHECK_STATUS(QS_EEMPTY, qs_stream_reader_next(reader, 1, UINT64_MAX, 0, &batch.schema,
                                                     &batch.array, QS_ERROR));
    qs_stream_reader_close(reader);
}

static inline void check_holds(struct engine *engine, const char *name, uint64_t from, uint64_t to,
                               size_t body_bytes)
{
    check_ends(engine, name, from, to);
    check_holds_by(engine, name, from, to, ROWS_MAX, body_bytes);
    check_holds_by(engine, name, from, to, 7, body_bytes);
}

static inline void fill(struct engine *engine, const char *name, uint64_t from, uint64_t to,
                        size_t body_bytes, qs_slice properties)
{
    for (uint64_t i = from; i < to; i++) {
        QS_TEST_FREED char *body = make_body(body_bytes, (uint32_t)i);
        publish_to(engine, "", name, properties, text(body));
    }
}

/* From now on a checkpoint carries little itself. */
static inline void write_files(struct engine *engine)
{
    engine_close(engine);
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
}

static inline void commit_offset(struct engine *engine, const char *group, uint64_t offset)
{
    QS_CHECK_OK(qs_channel_commit_offset(engine->channel, text("s"), text(group), offset,
                                         text("mine"), 0, NULL, QS_ERROR));
}

static inline void check_cursor(struct engine *engine, const char *group, uint64_t offset)
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

#endif
