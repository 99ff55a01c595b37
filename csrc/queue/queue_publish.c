/* Publishing: messages get the next sequences.  Invariants: what can fail is done by reserve, so
 * a push cannot fail; sequences are given out in order and never again; what a skip leaves out
 * counts as settled. */
#include "queue_publish.h"

#include "alloc.h"
#include "check.h"
#include "queue_columns.h"
#include "queue_delays.h"
#include "queue_internal.h"

#define SINGLES_FIRST 8
#define SINGLES_MAX 4096 /* messages of a run of single records */

/* Room to mark the next count messages as transient. */
static qs_status cover_transient(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t last = (queue->container.next_seq + count - 1) / entries;

    QS_DCHECK(queue->container.durable && count > 0);
    for (uint64_t number = queue->container.next_seq / entries; number <= last; number++) {
        struct qsi_segment *segment = qsi_queue_find_segment(queue, number);
        if (segment->transient == NULL) {
            segment->transient = qsi_zalloc(segment->word_count * sizeof *segment->transient);
            if (segment->transient == NULL) {
                return QS_ENOMEM;
            }
            qsi_budget_add(queue->shared->budget, segment->word_count * sizeof *segment->transient);
        }
    }
    return QS_OK;
}

qs_status qsi_queue_reserve(struct qsi_container *container, uint32_t run_count,
                            uint64_t message_count, bool any_transient)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    QS_DCHECK(queue->run_count <= queue->run_capacity);
    QS_TRY(qsi_queue_reserve_runs(queue, run_count));
    QS_TRY(qsi_queue_cover_next(queue, message_count));
    QS_TRY(qsi_queue_cover_columns(queue, message_count));
    return queue->container.durable && any_transient && message_count > 0
               ? cover_transient(queue, message_count)
               : QS_OK;
}

qs_status qsi_queue_reserve_times(struct qsi_container *container, const uint8_t *record,
                                  uint64_t count)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    if (qsi_messages_has_expiration(record)) {
        QS_TRY(qsi_queue_reserve_expiries(queue, count));
    }
    return qsi_messages_has_due(record) ? qsi_queue_reserve_dues(queue, count) : QS_OK;
}

/* Of a durable queue: which of the run's messages [row, row + count), in slots from slot on, end
 * with the process. */
static void mark_transient(struct qsi_segment *segment, uint32_t slot, const struct qsi_run *run,
                           uint32_t row, uint32_t count) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t before = segment->transient_count;

    QS_DCHECK(slot / QSI_WORD_BITS >= segment->word_base);
    QS_DCHECK(row + count <= run->count);
    QS_DCHECK(segment->transient != NULL);
    for (uint32_t i = 0; i < count; i++, slot++) {
        if (qsi_run_row_is_transient(run, row + i)) {
            segment->transient[slot / QSI_WORD_BITS - segment->word_base] |=
                UINT64_C(1) << (slot % QSI_WORD_BITS);
            segment->transient_count += 1;
        }
    }
    if (segment->transient_count > before) { /* which they are stands in both areas */
        qsi_segment_dirty_state(segment);
    }
}

/* Counts the run's messages from row on in. */
static void count_in(struct qsi_queue *queue, const struct qsi_run *run, uint32_t row)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = run->first_seq + row;
    uint64_t count = run->count - row;
    uint32_t record_row;
    bool columns = qsi_queue_wants_columns(queue) ||
                   qsi_messages_has_times(qsi_run_record(run, row, &record_row));

    QS_DCHECK(seq == queue->container.next_seq);
    QS_DCHECK(queue->container.flushed_seq <= queue->container.next_seq);
    queue->container.next_seq = seq + count;
    qsi_queue_more_ready(queue, count);
    queue->container.in_count += count;
    queue->container.ram_count += count;
    while (count > 0) {
        struct qsi_segment *segment = qsi_queue_last_segment(queue);
        uint32_t slot = (uint32_t)(seq & (entries - 1));
        uint32_t here = count < entries - slot ? (uint32_t)count : entries - slot;
        uint32_t index;
        if (segment->number != seq / entries) {
            segment = qsi_queue_find_segment(queue, seq / entries);
        }
        QS_DCHECK(segment != NULL && segment->settled != NULL); /* reserve made it */
        QS_DCHECK((slot + here - 1) / QSI_WORD_BITS < segment->word_base + segment->word_count);
        segment->ready_count += here;
        segment->has_stored = segment->has_stored || run->has_stored;
        if (slot / QSI_WORD_BITS < segment->first_word) {
            segment->first_word = slot / QSI_WORD_BITS;
        }
        index = segment == qsi_queue_last_segment(queue)
                    ? queue->segment_count - 1
                    : qsi_queue_segment_index(queue, segment->number);
        queue->scan = index < queue->scan ? index : queue->scan;
        if (queue->container.durable && (!run->journalled || run->has_transient)) {
            mark_transient(segment, slot, run, row, here);
        }
        if (columns) {
            qsi_queue_update_columns(queue, segment, slot, run, row, here);
            qsi_queue_update_dues(queue, segment, slot, run, row, here);
        }
        seq += here;
        row += here;
        count -= here;
    }
}

uint64_t qsi_queue_push_run(struct qsi_container *container, struct qsi_run *run)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t seq = queue->container.next_seq;

    QS_ASSERT(queue->first_run + queue->run_count < queue->run_capacity);
    QS_DCHECK(run->count > 0 && run->live_count == run->count);
    run->first_seq = seq;
    queue->runs[queue->first_run + queue->run_count++] = run;
    queue->container.ram_bytes += run->ram_bytes;
    count_in(queue, run, 0);
    for (uint32_t row = 0; run->has_stored && row < run->count; row++) {
        qsi_queue_add_ref(queue, run, row);
    }
    return seq;
}

/* ---- one by one ---- */

static struct qsi_run *last_run(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return queue->run_count > 0 ? qsi_queue_run_at(queue, queue->run_count - 1) : NULL;
}

static qs_status grow_singles(struct qsi_run *run)
{
    uint32_t capacity = run->capacity * 2;
    uint32_t *rows = qsi_realloc(run->messages.rows, capacity * sizeof *rows);

    QS_DCHECK(run->messages.single_records && run->count == run->capacity);
    QS_DCHECK(run->capacity <= SINGLES_MAX);
    if (rows == NULL) {
        return QS_ENOMEM;
    }
    run->messages.rows = rows;
    run->capacity = capacity;
    return QS_OK;
}

/* Can the last run take one more message of that kind (memory aside)? */
static bool last_run_takes(const struct qsi_queue *queue, const struct qsi_chunk *chunk,
                           bool journalled) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_run *run = last_run(queue);

    return run != NULL && run->messages.single_records && run->messages.chunk == chunk &&
           run->journalled == journalled &&
           run->first_seq + run->count == queue->container.next_seq && run->count < SINGLES_MAX;
}

static qs_status reserve_single(struct qsi_queue *queue, struct qsi_chunk *chunk, bool journalled)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_run *run;

    if (last_run_takes(queue, chunk, journalled)) {
        run = last_run(queue);
        return run->count < run->capacity ? QS_OK : grow_singles(run);
    }
    QS_TRY(qsi_queue_reserve_runs(queue, 1));
    if (queue->spare != NULL) {
        return QS_OK;
    }
    run = qsi_zalloc(sizeof *run);
    if (run == NULL) {
        return QS_ENOMEM;
    }
    run->messages.single_records = true;
    run->capacity = SINGLES_FIRST;
    run->messages.rows = qsi_alloc(SINGLES_FIRST * sizeof *run->messages.rows);
    if (run->messages.rows == NULL) {
        qsi_run_destroy(run);
        return QS_ENOMEM;
    }
    queue->spare = run;
    return QS_OK;
}

qs_status qsi_queue_reserve_message(struct qsi_container *container, struct qsi_chunk *chunk,
                                    bool journalled)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    QS_TRY(reserve_single(queue, chunk, journalled));
    QS_TRY(qsi_queue_cover_next(queue, 1));
    QS_TRY(qsi_queue_cover_columns(queue, 1));
    return queue->container.durable && !journalled ? cover_transient(queue, 1) : QS_OK;
}

uint64_t qsi_queue_push_message(struct qsi_container *container, struct qsi_chunk *chunk,
                                uint32_t record_at, uint32_t ram_bytes, bool journalled,
                                bool stored)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t seq = queue->container.next_seq;
    struct qsi_run *run;

    QS_DCHECK(record_at < chunk->used);
    if (!last_run_takes(queue, chunk, journalled)) {
        run = queue->spare;
        queue->spare = NULL;
        QS_DCHECK(run != NULL && run->count == 0);
        QS_DCHECK(queue->first_run + queue->run_count < queue->run_capacity);
        run->messages.chunk = qsi_chunk_ref(chunk);
        run->journalled = journalled;
        run->first_seq = seq;
        queue->runs[queue->first_run + queue->run_count++] = run;
    }
    run = last_run(queue);
    QS_ASSERT(run->count < run->capacity);
    run->messages.rows[run->count++] = record_at;
    run->live_count += 1;
    run->ram_bytes += ram_bytes;
    run->has_stored = run->has_stored || stored;
    queue->container.ram_bytes += ram_bytes;
    count_in(queue, run, run->count - 1);
    if (stored) {
        qsi_queue_add_ref(queue, run, run->count - 1);
    }
    return seq;
}

/* ---- gaps ---- */

/* Slots [from, to) of a word's bits were never messages. */
static void settle_gap(struct qsi_segment *segment, uint32_t from, uint32_t to)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(from <= to && from / QSI_WORD_BITS >= segment->word_base);
    QS_DCHECK(qsi_bitmap_words(to) <= segment->word_base + segment->word_count);
    for (uint32_t slot = from; slot < to; slot++) {
        segment->settled[slot / QSI_WORD_BITS - segment->word_base] |= UINT64_C(1)
                                                                       << (slot % QSI_WORD_BITS);
    }
    qsi_segment_dirty_state(segment);
}

qs_status qsi_queue_skip_to(struct qsi_container *container, uint64_t seq)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t entries = queue->shared->entries;
    struct qsi_segment *segment;

    QS_DCHECK(queue->container.flushed_seq <= queue->container.next_seq);
    if (seq <= queue->container.next_seq) {
        return QS_OK;
    }
    qsi_queue_drop_reserved(queue);
    segment = qsi_queue_last_segment(queue);
    if (segment != NULL && segment->number == queue->container.next_seq / entries) {
        uint32_t from = (uint32_t)(queue->container.next_seq & (entries - 1));
        uint64_t left = seq - queue->container.next_seq;
        uint32_t to = left < entries - from ? from + (uint32_t)left : entries;
        QS_TRY(qsi_queue_cover(queue, segment->number, from, to));
        settle_gap(segment, from, to);
    }
    queue->container.next_seq = seq; /* segments between are not there: nothing of them is live */
    if (segment != NULL) {
        qsi_segment_retire_if_done(queue, segment);
    }
    return QS_OK;
}
