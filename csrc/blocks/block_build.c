/* Building a block in memory. */
#include "block_build.h"

#include "alloc.h"
#include "block_format.h"
#include "check.h"
#include "error.h"
#include "le.h"

#include <string.h>

/* The time of rows from row on, until the next run. */
struct time_run {
    uint64_t time_us;
    uint32_t row;
};

struct qsi_block_builder {
    struct qsi_block_build_options options;
    struct qsi_record_build *record;
    struct qsi_buf times; /* struct time_run, the first one with row 0 */
};

static struct time_run *times_of(const struct qsi_block_builder *builder)
{
    return (struct time_run *)(void *)builder->times.data;
}

static size_t time_run_count(const struct qsi_block_builder *builder)
{
    return builder->times.bytes / sizeof(struct time_run);
}

struct qsi_block_builder *qsi_block_builder_create(const struct qsi_block_build_options *options)
{
    struct qsi_block_builder *builder = qsi_zalloc(sizeof *builder);

    if (builder == NULL) {
        return NULL;
    }
    builder->options = *options;
    if (options->rows_max == 0) {
        builder->options.rows_max = QSI_BLOCK_ROWS_MAX;
    }
    if (options->bytes_max == 0) {
        builder->options.bytes_max = QSI_BLOCK_TARGET_BYTES;
    }
    QS_ASSERT(builder->options.rows_max <= QSI_BLOCK_ROWS_MAX);
    builder->record = qsi_record_build_create(options->columns | QSI_BUILD_ALIGNED, options->reader,
                                              options->context);
    if (builder->record == NULL) {
        qsi_free(builder);
        return NULL;
    }
    return builder;
}

void qsi_block_builder_destroy(struct qsi_block_builder *builder)
{
    if (builder == NULL) {
        return;
    }
    qsi_record_build_destroy(builder->record);
    qsi_buf_fini(&builder->times);
    qsi_free(builder);
}

/* Removes all rows. */
static void clear(struct qsi_block_builder *builder)
{
    QS_DCHECK(qsi_block_builder_rows(builder) > 0 || builder->times.bytes == 0);
    qsi_record_build_clear(builder->record);
    qsi_buf_clear(&builder->times);
}

uint32_t qsi_block_builder_rows(const struct qsi_block_builder *builder)
{
    return qsi_record_build_rows(builder->record);
}

qs_status qsi_block_builder_add(struct qsi_block_builder *builder,
                                const struct qsi_row_stretch *stretch, uint64_t time_us,
                                uint32_t *taken_out, qs_error *error)
{
    size_t count = time_run_count(builder);
    const struct time_run *last = count > 0 ? &times_of(builder)[count - 1] : NULL;
    struct time_run run = {.time_us = time_us, .row = qsi_block_builder_rows(builder)};
    bool is_new = last == NULL || last->time_us != time_us;
    qs_status status;

    *taken_out = 0;
    QS_ASSERT(last == NULL || last->time_us <= time_us);
    if (last != NULL && time_us - times_of(builder)[0].time_us > UINT32_MAX) {
        return QS_OK; /* times of a block have 32 bits */
    }
    if (is_new && qsi_buf_append(&builder->times, &run, sizeof run) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "times of a block");
    }
    status = qsi_record_build_add(builder->record, stretch, builder->options.rows_max,
                                  builder->options.bytes_max, taken_out, error);
    if (is_new && *taken_out == 0) {
        builder->times.bytes -= sizeof run;
        QS_DCHECK(time_run_count(builder) == count);
    }
    return status;
}

/* ---- finishing ---- */

static void choose_times(const struct qsi_block_builder *builder, struct qsi_built_block *block)
{
    size_t count = time_run_count(builder);

    QS_DCHECK(count > 0 && count <= block->rows);
    if (count == 1) {
        block->time_kind = QSI_BLOCK_ONE_TIME;
        block->time_count = 0;
    } else if (count * QSI_BLOCK_TIME_RUN_BYTES <= (size_t)block->rows * QSI_BLOCK_ROW_TIME_BYTES) {
        block->time_kind = QSI_BLOCK_TIME_RUNS;
        block->time_count = (uint32_t)count;
    } else {
        block->time_kind = QSI_BLOCK_ROW_TIMES;
        block->time_count = block->rows;
    }
}

static void put_times(const struct qsi_block_builder *builder, const struct qsi_built_block *block,
                      uint8_t *out)
{
    const struct time_run *runs = times_of(builder);
    size_t count = time_run_count(builder);

    QS_DCHECK(count > 0 && runs[0].row == 0);
    for (size_t i = 0; i < count && block->time_kind != QSI_BLOCK_ONE_TIME; i++) {
        uint32_t delta = (uint32_t)(runs[i].time_us - block->first_time_us);
        uint32_t end = i + 1 < count ? runs[i + 1].row : block->rows;
        QS_DCHECK(runs[i].row < end && end <= block->rows);
        if (block->time_kind == QSI_BLOCK_TIME_RUNS) {
            qsi_put_u32(out + QSI_BLOCK_TIME_RUN_BYTES * i, runs[i].row);
            qsi_put_u32(out + QSI_BLOCK_TIME_RUN_BYTES * i + 4, delta);
            continue;
        }
        for (uint32_t row = runs[i].row; row < end; row++) {
            qsi_put_u32(out + QSI_BLOCK_ROW_TIME_BYTES * (size_t)row, delta);
        }
    }
}

static qs_status finish(struct qsi_block_builder *builder, struct qsi_built_block *block,
                        qs_error *error)
{
    uint64_t record_bytes, bytes;

    QS_TRY(qsi_record_build_measure(builder->record, &record_bytes, error));
    choose_times(builder, block);
    bytes = QSI_BLOCK_HEAD_BYTES + record_bytes +
            qsi_block_times_bytes(block->time_kind, block->time_count);
    if (bytes - QSI_BLOCK_HEAD_BYTES > QSI_BLOCK_CONTENT_MAX) {
        return qsi_fail(error, QS_EINVAL, "a block of %llu bytes is too large",
                        (unsigned long long)bytes);
    }
    block->chunk = qsi_chunk_create((size_t)qsi_round_up(bytes, QSI_BLOCK_UNIT));
    if (block->chunk == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a block of %llu bytes", (unsigned long long)bytes);
    }
    qsi_chunk_populate(block->chunk);
    QS_DCHECK(block->chunk->capacity >= bytes && block->chunk->capacity % QSI_BLOCK_UNIT == 0);
    block->chunk->used = block->chunk->capacity;
    block->bytes = (uint32_t)bytes;
    block->record_bytes = (uint32_t)record_bytes;
    memset(block->chunk->data + bytes, 0, block->chunk->capacity - bytes);
    QS_ASSERT(QSI_BLOCK_HEAD_BYTES + record_bytes <= bytes);
    qsi_record_build_write(builder->record, block->chunk->data + QSI_BLOCK_HEAD_BYTES, block->owner,
                           block->first_offset, block->first_time_us, &block->dictionary_bytes);
    put_times(builder, block, block->chunk->data + QSI_BLOCK_HEAD_BYTES + record_bytes);
    return QS_OK;
}

qs_status qsi_block_builder_finish(struct qsi_block_builder *builder, uint64_t owner,
                                   uint64_t first_offset, struct qsi_built_block *block_out,
                                   qs_error *error)
{
    size_t count = time_run_count(builder);
    qs_status status;

    QS_ASSERT(qsi_block_builder_rows(builder) > 0 && count > 0);
    *block_out = (struct qsi_built_block){
        .owner = owner,
        .first_offset = first_offset,
        .first_time_us = times_of(builder)[0].time_us,
        .last_time_us = times_of(builder)[count - 1].time_us,
        .rows = qsi_block_builder_rows(builder),
    };
    status = finish(builder, block_out, error);
    clear(builder);
    return status;
}
