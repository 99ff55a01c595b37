/* Blocks in memory: references, and the times of rows. */
#include "block_view.h"

#include "block_format.h"
#include "check.h"
#include "le.h"

#include <string.h>

struct qsi_block_view qsi_block_view_ref(const struct qsi_block_view *view)
{
    struct qsi_block_view copy = *view;

    qsi_chunk_ref(copy.chunk);
    return copy;
}

void qsi_block_view_fini(struct qsi_block_view *view)
{
    qsi_chunk_unref(view->chunk);
    memset(view, 0, sizeof *view);
}

void qsi_block_dictionary_fini(struct qsi_block_dictionary *dictionary)
{
    qsi_chunk_unref(dictionary->chunk);
    memset(dictionary, 0, sizeof *dictionary);
}

size_t qsi_block_chunk_bytes(uint32_t block_bytes)
{
    return (size_t)block_bytes + QSI_BLOCK_UNIT;
}

static uint32_t run_row(const struct qsi_block_view *view, uint32_t run)
{
    return qsi_get_u32(view->times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)run);
}

static uint64_t run_time(const struct qsi_block_view *view, uint32_t run)
{
    return view->first_time_us +
           qsi_get_u32(view->times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)run + 4);
}

static uint64_t row_time(const struct qsi_block_view *view, uint32_t row)
{
    return view->first_time_us + qsi_get_u32(view->times + QSI_BLOCK_ROW_TIME_BYTES * (size_t)row);
}

/* The last run that begins at or before row. */
static uint32_t run_of(const struct qsi_block_view *view, uint32_t row)
{
    uint32_t low = 0, high = view->time_count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (run_row(view, middle) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Writes eight at a time, since the processor stores several at once. */
static void put_time(int64_t *times_out, size_t count, int64_t time_us)
{
    size_t done = 0;

    for (; count - done >= 8; done += 8) {
        for (size_t i = 0; i < 8; i++) {
            times_out[done + i] = time_us;
        }
    }
    for (; done < count; done++) {
        times_out[done] = time_us;
    }
}

static void put_run_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out)
{
    uint32_t end = from + count;

    for (uint32_t run = run_of(view, from); from < end; run++) {
        uint32_t run_end = run + 1 < view->time_count ? run_row(view, run + 1) : view->rows;
        uint32_t rows = (run_end < end ? run_end : end) - from;
        put_time(times_out, rows, (int64_t)run_time(view, run));
        times_out += rows;
        from += rows;
    }
}

static void put_row_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out)
{
    const uint8_t *deltas = view->times + QSI_BLOCK_ROW_TIME_BYTES * (size_t)from;
    uint64_t first = view->first_time_us;

    for (uint32_t i = 0; i < count; i++) {
        times_out[i] = (int64_t)(first + qsi_get_u32(deltas + QSI_BLOCK_ROW_TIME_BYTES * i));
    }
}

void qsi_block_view_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out)
{
    QS_ASSERT(from <= view->rows && count <= view->rows - from);
    switch (view->time_kind) {
    case QSI_BLOCK_ONE_TIME:
        put_time(times_out, count, (int64_t)view->first_time_us);
        break;
    case QSI_BLOCK_TIME_RUNS:
        put_run_times(view, from, count, times_out);
        break;
    default:
        put_row_times(view, from, count, times_out);
        break;
    }
}

uint32_t qsi_block_view_row_at(const struct qsi_block_view *view, uint64_t time_us)
{
    bool by_row = view->time_kind == QSI_BLOCK_ROW_TIMES;
    uint32_t low = 0, high = view->time_count;

    if (time_us <= view->first_time_us) {
        return 0;
    }
    if (time_us > view->last_time_us) {
        return view->rows;
    }
    while (low < high) { /* finds the first entry that is not before time_us; there is one */
        uint32_t middle = low + (high - low) / 2;
        if ((by_row ? row_time(view, middle) : run_time(view, middle)) < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return by_row ? low : run_row(view, low);
}
