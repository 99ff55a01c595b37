/* The tail: messages that are appended, and dropped from memory when the files have them.
 *
 * Invariants: runs are in order of their offsets and do not overlap; ram_bytes and ram_count are
 * the sums over them; messages that are not flushed are in a run. */
#include "alloc.h"
#include "check.h"
#include "stream_internal.h"

#include <string.h>

#define RUNS_FIRST 16u
#define SINGLES_FIRST 64u
#define SINGLES_MAX 4096u /* messages of a run of single records */

/* ---- room for runs ---- */

static qs_status reserve_runs(struct qsi_stream *stream, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t needed = stream->run_count + count;
    uint32_t capacity = stream->run_capacity == 0 ? RUNS_FIRST : stream->run_capacity;
    struct qsi_stream_run *runs;

    if (stream->first_run + needed <= stream->run_capacity) {
        return QS_OK;
    }
    while (capacity < 2 * needed) {
        capacity *= 2;
    }
    runs = qsi_alloc(capacity * sizeof *runs);
    if (runs == NULL) {
        return QS_ENOMEM;
    }
    if (stream->run_count > 0) {
        memcpy(runs, stream->runs + stream->first_run, stream->run_count * sizeof *runs);
    }
    qsi_free(stream->runs);
    stream->runs = runs;
    stream->first_run = 0;
    QS_DCHECK(capacity >= needed);
    stream->run_capacity = capacity;
    return QS_OK;
}

uint64_t qsi_stream_tail_begin(const struct qsi_stream *stream)
{
    uint64_t begin = stream->run_count > 0 ? qsi_stream_run_at(stream, 0)->run->first_seq
                                           : stream->container.next_seq;

    return begin < stream->first ? stream->first : begin;
}

uint32_t qsi_stream_find_run(const struct qsi_stream *stream, uint64_t offset)
{
    uint32_t low = 0, high = stream->run_count;

    QS_DCHECK(stream->first_run + stream->run_count <= stream->run_capacity);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct qsi_run *run = qsi_stream_run_at(stream, middle)->run;
        if (run->first_seq + run->count <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static qs_status make_spare(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_run *run;

    if (stream->spare != NULL) {
        return QS_OK;
    }
    run = qsi_zalloc(sizeof *run);
    if (run == NULL) {
        return QS_ENOMEM;
    }
    run->messages.rows = qsi_alloc(SINGLES_FIRST * sizeof *run->messages.rows);
    if (run->messages.rows == NULL) {
        qsi_free(run);
        return QS_ENOMEM;
    }
    run->messages.single_records = true;
    run->capacity = SINGLES_FIRST;
    QS_DCHECK(run->count == 0);
    stream->spare = run;
    return QS_OK;
}

static struct qsi_stream_run *last_run(const struct qsi_stream *stream)
    QSI_REQUIRES(qsi_store_mutex)
{
    return stream->run_count > 0 ? qsi_stream_run_at(stream, stream->run_count - 1) : NULL;
}

/* Whether the next message, whose record is in chunk, can join the last run. */
static bool is_continued(const struct qsi_stream *stream, const struct qsi_stream_run *last,
                         const struct qsi_chunk *chunk, bool journalled)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_run *run = last != NULL ? last->run : NULL;

    return run != NULL && run->messages.single_records && run->messages.chunk == chunk &&
           run->journalled == journalled && run->count < SINGLES_MAX &&
           run->first_seq + run->count == stream->container.next_seq;
}

qs_status qsi_stream_reserve(struct qsi_container *container, uint32_t run_count,
                             uint64_t message_count, bool any_transient)
{
    (void)message_count;
    (void)any_transient; /* a stream keeps them like others */
    return reserve_runs(qsi_stream_of(container), run_count);
}

qs_status qsi_stream_reserve_one(struct qsi_container *container, struct qsi_chunk *chunk,
                                 bool journalled)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    struct qsi_stream_run *last = last_run(stream);

    QS_TRY(reserve_runs(stream, 1));
    QS_TRY(make_spare(stream));
    last = last_run(stream);
    if (is_continued(stream, last, chunk, journalled) && last->run->count == last->run->capacity) {
        uint32_t capacity = 2 * last->run->capacity;
        uint32_t *rows = qsi_realloc(last->run->messages.rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return QS_ENOMEM;
        }
        last->run->messages.rows = rows;
        last->run->capacity = capacity;
    }
    return QS_OK;
}

/* ---- appending ---- */

static void put_run(struct qsi_stream *stream, struct qsi_run *run, uint64_t floor_us)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(run->first_seq == stream->container.next_seq);
    QS_DCHECK(floor_us >= stream->flushed_time_us);
    QS_ASSERT(stream->first_run + stream->run_count < stream->run_capacity);
    stream->runs[stream->first_run + stream->run_count] =
        (struct qsi_stream_run){.run = run, .floor_us = floor_us};
    stream->run_count += 1;
}

static void count_in(struct qsi_stream *stream, uint64_t count, uint64_t ram_bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(count > 0 && stream->container.next_seq + count > stream->container.next_seq);
    stream->container.next_seq += count;
    stream->container.in_count += count;
    stream->container.ram_count += count;
    stream->container.ram_bytes += ram_bytes;
    stream->in_bytes += ram_bytes;
}

static uint64_t later(uint64_t a_us, uint64_t b_us)
{
    return a_us > b_us ? a_us : b_us;
}

uint64_t qsi_stream_append(struct qsi_container *container, struct qsi_run *run)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    uint64_t seq = container->next_seq;
    uint32_t row;
    const uint8_t *record = qsi_run_record(run, 0, &row);

    QS_ASSERT(!run->messages.single_records && run->count > 0);
    stream->last_time_us = later(stream->last_time_us, qsi_messages_time(record));
    run->first_seq = seq;
    put_run(stream, run, stream->last_time_us);
    count_in(stream, run->count, run->ram_bytes);
    qsi_stream_add_refs(stream, run, 0);
    return seq;
}

static struct qsi_run *begin_singles(struct qsi_stream *stream, struct qsi_chunk *chunk,
                                     bool journalled) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_run *run = stream->spare;

    QS_ASSERT(run != NULL);
    QS_DCHECK(run->count == 0 && run->messages.single_records);
    stream->spare = NULL;
    run->messages.chunk = qsi_chunk_ref(chunk);
    run->journalled = journalled;
    run->first_seq = stream->container.next_seq;
    put_run(stream, run, stream->last_time_us);
    return run;
}

uint64_t qsi_stream_append_one(struct qsi_container *container, struct qsi_chunk *chunk,
                               uint32_t record_at, uint32_t ram_bytes, bool journalled, bool stored)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    struct qsi_stream_run *last = last_run(stream);
    uint64_t time_us = qsi_messages_time(chunk->data + record_at);
    uint64_t seq = container->next_seq;
    struct qsi_run *run;

    /* In a run that began before the clock went back the time would be too low. */
    if (is_continued(stream, last, chunk, journalled) &&
        later(last->floor_us, time_us) >= stream->last_time_us) {
        run = last->run;
    } else {
        run = begin_singles(stream, chunk, journalled);
    }
    stream->last_time_us = later(stream->last_time_us, time_us);
    QS_ASSERT(run->count < run->capacity);
    run->messages.rows[run->count] = record_at;
    run->count += 1;
    run->live_count += 1;
    run->ram_bytes += ram_bytes;
    run->has_stored = run->has_stored || stored;
    count_in(stream, 1, ram_bytes);
    qsi_stream_add_refs(stream, run, run->count - 1);
    return seq;
}

/* ---- dropping runs ---- */

/* Its references stay. */
static uint64_t take_first_run(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_run *run = qsi_stream_run_at(stream, 0)->run;
    uint64_t bytes = run->ram_bytes;

    QS_DCHECK(stream->run_count > 0);
    QS_DCHECK(stream->container.ram_bytes >= bytes && stream->container.ram_count >= run->count);
    stream->container.ram_bytes -= bytes;
    stream->container.ram_count -= run->count;
    stream->first_run += 1;
    stream->run_count -= 1;
    if (stream->run_count == 0) {
        stream->first_run = 0;
    }
    qsi_run_destroy(run);
    return bytes;
}

static uint64_t drop_first_run(struct qsi_stream *stream) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_stream_drop_refs(stream, qsi_stream_run_at(stream, 0)->run);
    return take_first_run(stream);
}

uint64_t qsi_stream_drop_content(struct qsi_container *container, uint64_t keep_count,
                                 uint64_t bytes)
{
    struct qsi_stream *stream = qsi_stream_of(container);
    uint64_t dropped = 0;

    (void)keep_count; /* readers of old messages read files */
    while (dropped < bytes && stream->run_count > 0) {
        const struct qsi_run *run = qsi_stream_run_at(stream, 0)->run;
        if (run->first_seq + run->count > container->flushed_seq) {
            break;
        }
        if (!stream->shared->recovers) {
            dropped += drop_first_run(stream);
        } else if (qsi_stream_keep_refs(stream, run) == QS_OK) {
            dropped += take_first_run(stream);
        } else {
            break;
        }
    }
    return dropped;
}

void qsi_stream_drop_runs(struct qsi_stream *stream)
{
    while (stream->run_count > 0) {
        drop_first_run(stream);
    }
    qsi_stream_drop_kept(stream);
}

void qsi_stream_free_runs(struct qsi_stream *stream)
{
    for (uint32_t i = 0; i < stream->run_count; i++) {
        qsi_run_destroy(qsi_stream_run_at(stream, i)->run);
    }
    qsi_free(stream->runs);
    qsi_buf_fini(&stream->kept);
    qsi_run_destroy(stream->spare);
}

void qsi_stream_drop_stored(struct qsi_stream *stream)
{
    uint32_t end = 0;

    qsi_stream_drop_kept(stream);
    for (uint32_t i = 0; i < stream->run_count; i++) {
        const struct qsi_run *run = qsi_stream_run_at(stream, i)->run;
        if (run->first_seq + run->count > stream->container.flushed_seq) {
            break;
        }
        end = run->has_stored ? i + 1 : end;
    }
    for (uint32_t i = 0; i < end; i++) {
        drop_first_run(stream);
    }
}

bool qsi_stream_has_stored_tail(const struct qsi_stream *stream)
{
    for (uint32_t i = qsi_stream_find_run(stream, stream->container.flushed_seq);
         i < stream->run_count; i++) {
        if (qsi_stream_run_at(stream, i)->run->has_stored) {
            return true;
        }
    }
    return false;
}

uint64_t qsi_stream_unflushed_bytes(const struct qsi_container *container)
{
    const struct qsi_stream *stream = (const struct qsi_stream *)(const void *)container;
    uint64_t bytes = 0;

    for (uint32_t i = qsi_stream_find_run(stream, container->flushed_seq); i < stream->run_count;
         i++) {
        const struct qsi_run *run = qsi_stream_run_at(stream, i)->run;
        bytes += run->ram_bytes + run->count;
        bytes += run->has_stored ? qsi_run_body_bytes(run) : 0;
    }
    return bytes;
}
