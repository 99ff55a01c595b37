/* Runs and their bitmaps.  Invariants: ready_count + out_count + settled = count for each run; the queue's counts
 * are the sums over its runs; runs are in order of sequence and do not overlap. */
#include "queue.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

#define SINGLES_FIRST 64
#define SINGLES_MAX 4096 /* messages of a run of single records */

static uint32_t words_of(uint32_t count)
{
    return (count + QSI_WORD_BITS - 1) / QSI_WORD_BITS;
}

static uint64_t word_mask(const struct qsi_run *run, uint32_t word)
{
    uint32_t left = run->count - word * QSI_WORD_BITS;

    return left >= QSI_WORD_BITS ? ~UINT64_C(0) : (UINT64_C(1) << left) - 1;
}

static uint64_t ready_mask(const struct qsi_run *run, uint32_t word)
{
    return ~(run->settled[word] | run->out[word]) & word_mask(run, word);
}

static uint32_t popcount(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

/* ---- runs ---- */

void qsi_run_destroy(struct qsi_run *run)
{
    if (run == NULL) {
        return;
    }
    qsi_chunk_unref(run->chunk);
    qsi_free(run->rows);
    qsi_free(run->settled);
    qsi_free(run->deliveries);
    qsi_free(run);
}

/* The three bitmaps are one allocation; growing moves them apart again. */
static qs_status grow_bitmaps(struct qsi_run *run, uint32_t capacity)
{
    uint32_t old_words = words_of(run->capacity);
    uint32_t words = words_of(capacity);
    uint64_t *bitmaps = qsi_zalloc(3 * (size_t)words * sizeof *bitmaps);

    if (bitmaps == NULL) {
        return QS_ENOMEM;
    }
    if (old_words > 0) {
        memcpy(bitmaps, run->settled, old_words * sizeof *bitmaps);
        memcpy(bitmaps + words, run->out, old_words * sizeof *bitmaps);
        memcpy(bitmaps + 2 * (size_t)words, run->seen, old_words * sizeof *bitmaps);
        qsi_free(run->settled);
    }
    run->settled = bitmaps;
    run->out = bitmaps + words;
    run->seen = bitmaps + 2 * (size_t)words;
    run->capacity = capacity;
    return QS_OK;
}

static struct qsi_run *new_run(struct qsi_chunk *chunk, uint32_t capacity, bool journalled)
{
    struct qsi_run *run = qsi_zalloc(sizeof *run);

    if (run == NULL) {
        return NULL;
    }
    run->chunk = chunk != NULL ? qsi_chunk_ref(chunk) : NULL;
    run->journalled = journalled;
    if (grow_bitmaps(run, capacity) != QS_OK) {
        qsi_run_destroy(run);
        return NULL;
    }
    return run;
}

qs_status qsi_run_create(struct qsi_run **run_out, struct qsi_chunk *chunk, uint32_t record_at,
                         uint32_t count, uint32_t *rows, bool journalled)
{
    struct qsi_run *run = new_run(chunk, count, journalled);

    *run_out = run;
    if (run == NULL) {
        return QS_ENOMEM;
    }
    run->record_at = record_at;
    run->count = count;
    run->ready_count = count;
    run->rows = rows;
    run->has_stored = (chunk->data[record_at + 5] & QSI_MESSAGES_HAS_STORED) != 0;
    return QS_OK;
}

/* As a run of single records is before its first message. */
static struct qsi_run *emptied(struct qsi_run *run)
{
    uint32_t *rows = run->rows;
    uint64_t *bitmaps = run->settled;
    uint32_t capacity = run->capacity;

    qsi_chunk_unref(run->chunk);
    qsi_free(run->deliveries);
    memset(run, 0, sizeof *run);
    memset(bitmaps, 0, 3 * (size_t)words_of(capacity) * sizeof *bitmaps);
    run->single_records = true;
    run->rows = rows;
    run->capacity = capacity;
    run->settled = bitmaps;
    run->out = bitmaps + words_of(capacity);
    run->seen = bitmaps + 2 * (size_t)words_of(capacity);
    return run;
}

/* ---- the array of runs ---- */

void qsi_queue_init(struct qsi_queue *queue, uint64_t id)
{
    memset(queue, 0, sizeof *queue);
    queue->id = id;
}

void qsi_queue_fini(struct qsi_queue *queue)
{
    for (uint32_t i = 0; i < queue->run_count; i++) {
        qsi_run_destroy(queue->runs[queue->first_run + i]);
    }
    qsi_run_destroy(queue->spare);
    qsi_free(queue->runs);
    memset(queue, 0, sizeof *queue);
}

static struct qsi_run *run_at(const struct qsi_queue *queue, uint32_t index)
{
    return queue->runs[queue->first_run + index];
}

static struct qsi_run *last_run(const struct qsi_queue *queue)
{
    return queue->run_count > 0 ? run_at(queue, queue->run_count - 1) : NULL;
}

qs_status qsi_queue_reserve_run(struct qsi_queue *queue, uint32_t run_count)
{
    uint32_t capacity = queue->run_capacity < 8 ? 8 : queue->run_capacity;
    struct qsi_run **runs;

    if (queue->first_run + queue->run_count + run_count <= queue->run_capacity) {
        return QS_OK;
    }
    if (queue->first_run > queue->run_capacity / 2) { /* the front half is free: move down */
        memmove(queue->runs, queue->runs + queue->first_run,
                queue->run_count * sizeof *queue->runs);
        queue->first_run = 0;
        return qsi_queue_reserve_run(queue, run_count);
    }
    while (capacity < queue->first_run + queue->run_count + run_count) {
        capacity *= 2;
    }
    runs = qsi_realloc(queue->runs, capacity * sizeof *runs);
    if (runs == NULL) {
        return QS_ENOMEM;
    }
    queue->runs = runs;
    queue->run_capacity = capacity;
    return QS_OK;
}

/* The index of the run that holds seq, or of the first one behind it. */
static uint32_t find_run(const struct qsi_queue *queue, uint64_t seq)
{
    uint32_t low = 0;
    uint32_t high = queue->run_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct qsi_run *run = run_at(queue, middle);
        if (run->first_seq + run->count <= seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void remove_run(struct qsi_queue *queue, struct qsi_run *run)
{
    uint32_t index = find_run(queue, run->first_seq);

    QS_ASSERT(index < queue->run_count && run_at(queue, index) == run);
    if (index == 0) {
        queue->first_run += 1;
    } else {
        struct qsi_run **at = queue->runs + queue->first_run + index;
        memmove(at, at + 1, (queue->run_count - index - 1) * sizeof *at);
    }
    queue->run_count -= 1;
    if (index < queue->scan) {
        queue->scan -= 1;
    }
    queue->ram_bytes -= run->ram_bytes;
    if (queue->spare == NULL && run->single_records) {
        queue->spare = emptied(run);
    } else {
        qsi_run_destroy(run);
    }
}

static void free_if_done(struct qsi_queue *queue, struct qsi_run *run)
{
    if (run->ready_count == 0 && run->out_count == 0) {
        remove_run(queue, run);
    }
}

/* ---- publishing ---- */

static uint32_t count_stored(const struct qsi_run *run, uint32_t word, uint64_t mask)
{
    uint32_t count = 0;

    if (!run->has_stored) {
        return 0;
    }
    for (; mask != 0; mask &= mask - 1) {
        struct qsi_messages view;
        uint32_t row;
        uint32_t bit = (uint32_t)__builtin_ctzll(mask);
        qsi_messages_view(&view, qsi_run_record(run, word * QSI_WORD_BITS + bit, &row));
        count += qsi_messages_is_stored(&view, row) ? 1 : 0;
    }
    return count;
}

void qsi_queue_push_run_at(struct qsi_queue *queue, struct qsi_run *run, uint64_t first_seq)
{
    QS_ASSERT(first_seq >= queue->next_seq);
    QS_ASSERT(queue->first_run + queue->run_count < queue->run_capacity);
    run->first_seq = first_seq;
    queue->runs[queue->first_run + queue->run_count++] = run;
    queue->next_seq = first_seq + run->count;
    queue->ready_count += run->ready_count;
    queue->in_count += run->count;
    queue->ram_bytes += run->ram_bytes;
    for (uint32_t word = 0; run->has_stored && word < words_of(run->count); word++) {
        queue->stored_count += count_stored(run, word, word_mask(run, word));
    }
}

uint64_t qsi_queue_push_run(struct qsi_queue *queue, struct qsi_run *run)
{
    uint64_t seq = queue->next_seq;

    qsi_queue_push_run_at(queue, run, seq);
    return seq;
}

static qs_status grow_singles(struct qsi_run *run)
{
    uint32_t capacity = run->capacity * 2;
    uint32_t *rows = qsi_realloc(run->rows, capacity * sizeof *rows);

    if (rows == NULL) {
        return QS_ENOMEM;
    }
    run->rows = rows;
    return grow_bitmaps(run, capacity);
}

/* Can the last run take one more message of that kind (memory aside)? */
static bool last_run_takes(const struct qsi_queue *queue, const struct qsi_chunk *chunk,
                           bool journalled)
{
    const struct qsi_run *run = last_run(queue);

    return run != NULL && run->single_records && !run->all_seen && run->chunk == chunk &&
           run->journalled == journalled && run->first_seq + run->count == queue->next_seq &&
           run->count < SINGLES_MAX;
}

qs_status qsi_queue_reserve_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                    bool journalled)
{
    struct qsi_run *run;

    if (last_run_takes(queue, chunk, journalled)) {
        run = last_run(queue);
        return run->count < run->capacity ? QS_OK : grow_singles(run);
    }
    QS_TRY(qsi_queue_reserve_run(queue, 1));
    if (queue->spare != NULL) {
        return QS_OK;
    }
    run = new_run(NULL, SINGLES_FIRST, journalled);
    if (run == NULL) {
        return QS_ENOMEM;
    }
    run->single_records = true;
    run->rows = qsi_alloc(SINGLES_FIRST * sizeof *run->rows);
    if (run->rows == NULL) {
        qsi_run_destroy(run);
        return QS_ENOMEM;
    }
    queue->spare = run;
    return QS_OK;
}

uint64_t qsi_queue_push_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                uint32_t record_at, uint32_t ram_bytes, bool journalled,
                                bool stored)
{
    struct qsi_run *run;

    if (!last_run_takes(queue, chunk, journalled)) {
        run = queue->spare;
        queue->spare = NULL;
        run->chunk = qsi_chunk_ref(chunk);
        run->journalled = journalled;
        qsi_queue_push_run_at(queue, run, queue->next_seq);
    }
    run = last_run(queue);
    QS_ASSERT(run->count < run->capacity);
    run->rows[run->count++] = record_at;
    run->ready_count += 1;
    run->ram_bytes += ram_bytes;
    run->has_stored = run->has_stored || stored;
    if (queue->scan == queue->run_count) { /* all of this run was out when it was last looked at */
        queue->scan -= 1;
    }
    queue->ready_count += 1;
    queue->in_count += 1;
    queue->ram_bytes += ram_bytes;
    queue->stored_count += stored ? 1 : 0;
    return queue->next_seq++;
}

/* ---- delivering ---- */

bool qsi_queue_take(struct qsi_queue *queue, uint32_t max_count, struct qsi_stretch *stretch_out)
{
    for (; queue->scan < queue->run_count; queue->scan++) {
        struct qsi_run *run = run_at(queue, queue->scan);
        for (; run->ready_count > 0; run->first_word++) {
            uint64_t ready = ready_mask(run, run->first_word);
            uint32_t bit, count;
            if (ready == 0) {
                continue;
            }
            bit = (uint32_t)__builtin_ctzll(ready);
            ready >>= bit;
            count = ready == ~UINT64_C(0) ? QSI_WORD_BITS : (uint32_t)__builtin_ctzll(~ready);
            count = count < max_count ? count : max_count;
            *stretch_out = (struct qsi_stretch){run, run->first_word * QSI_WORD_BITS + bit, count};
            run->out[run->first_word] |= qsi_stretch_mask(stretch_out);
            run->ready_count -= count;
            run->out_count += count;
            queue->ready_count -= count;
            queue->out_count += count;
            queue->taken_count += count;
            return true;
        }
    }
    return false;
}

void qsi_queue_untake(struct qsi_queue *queue, struct qsi_stretch *stretch, uint32_t keep_count)
{
    struct qsi_run *run = stretch->run;
    uint32_t word = stretch->row / QSI_WORD_BITS;
    uint32_t index = find_run(queue, run->first_seq);
    uint64_t all = qsi_stretch_mask(stretch);
    uint32_t count = stretch->count - keep_count;

    QS_ASSERT(keep_count < stretch->count);
    stretch->count = keep_count;
    run->out[word] &= ~(keep_count > 0 ? all & ~qsi_stretch_mask(stretch) : all);
    run->ready_count += count;
    run->out_count -= count;
    queue->ready_count += count;
    queue->out_count -= count;
    queue->taken_count -= count;
    run->first_word = word < run->first_word ? word : run->first_word;
    queue->scan = index < queue->scan ? index : queue->scan;
}

/* ---- settling ---- */

void qsi_queue_settle(struct qsi_queue *queue, struct qsi_run *run, uint32_t word, uint64_t mask)
{
    uint32_t count = popcount(mask);

    QS_ASSERT((run->out[word] & mask) == mask);
    queue->stored_count -= count_stored(run, word, mask);
    run->out[word] &= ~mask;
    run->settled[word] |= mask;
    run->out_count -= count;
    queue->out_count -= count;
    free_if_done(queue, run);
}

/* Delivery counts are kept from the first requeue on; until then, a message that was seen has one delivery behind it. */
static bool have_deliveries(struct qsi_run *run)
{
    if (run->deliveries != NULL) {
        return true;
    }
    run->deliveries = qsi_zalloc(run->single_records ? SINGLES_MAX : run->capacity);
    if (run->deliveries != NULL && run->all_seen) {
        memset(run->deliveries, 1, run->count);
    }
    return run->deliveries != NULL;
}

static void count_deliveries(struct qsi_run *run, uint32_t word, uint64_t mask)
{
    if (!have_deliveries(run)) {
        return;
    }
    for (; mask != 0; mask &= mask - 1) {
        uint8_t *deliveries =
            &run->deliveries[word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(mask)];
        *deliveries = *deliveries < UINT8_MAX ? *deliveries + 1 : UINT8_MAX;
    }
}

void qsi_queue_requeue(struct qsi_queue *queue, struct qsi_run *run, uint32_t word, uint64_t mask)
{
    uint32_t count = popcount(mask);
    uint32_t index = find_run(queue, run->first_seq);

    QS_ASSERT((run->out[word] & mask) == mask);
    count_deliveries(run, word, mask);
    run->out[word] &= ~mask;
    run->out_count -= count;
    run->ready_count += count;
    queue->out_count -= count;
    queue->ready_count += count;
    if (word < run->first_word) {
        run->first_word = word;
    }
    if (index < queue->scan) {
        queue->scan = index;
    }
}

uint64_t qsi_queue_purge_ranges(const struct qsi_queue *queue)
{
    uint64_t ranges = 0;

    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *run = run_at(queue, i);
        for (uint32_t word = 0;
             run->journalled && run->ready_count > 0 && word < words_of(run->count); word++) {
            uint64_t ready = ready_mask(run, word);
            ranges += popcount(
                ready & ~(ready << 1)); /* a range begins where the bit before is not ready */
        }
    }
    return ranges;
}

/* Drops the ready messages of one word, range by range. */
static void purge_word(struct qsi_queue *queue, struct qsi_run *run, uint32_t word,
                       qsi_range_visitor *visit, void *context)
{
    uint64_t ready = ready_mask(run, word);
    uint32_t count = popcount(ready);

    queue->stored_count -= count_stored(run, word, ready);
    run->settled[word] |= ready;
    run->ready_count -= count;
    queue->ready_count -= count;
    while (run->journalled && ready != 0) {
        uint32_t bit = (uint32_t)__builtin_ctzll(ready);
        uint64_t from = ready >> bit;
        uint32_t length = from == ~UINT64_C(0) ? QSI_WORD_BITS : (uint32_t)__builtin_ctzll(~from);
        visit(context, run->first_seq + word * QSI_WORD_BITS + bit, length);
        ready = bit + length >= QSI_WORD_BITS ? 0 : ready >> (bit + length) << (bit + length);
    }
}

uint64_t qsi_queue_purge(struct qsi_queue *queue, qsi_range_visitor *visit, void *context)
{
    uint64_t dropped = queue->ready_count;

    for (uint32_t i = queue->run_count;
         i-- > 0;) { /* from the end: freeing a run moves those behind it */
        struct qsi_run *run = run_at(queue, i);
        for (uint32_t word = 0; word < words_of(run->count); word++) {
            purge_word(queue, run, word, visit, context);
        }
        free_if_done(queue, run);
    }
    return dropped;
}

/* ---- recovery ---- */

static void replay_settle_run(struct qsi_queue *queue, struct qsi_run *run, uint32_t from,
                              uint32_t to, uint8_t kind)
{
    while (from < to) {
        uint32_t word = from / QSI_WORD_BITS;
        uint32_t left = QSI_WORD_BITS - from % QSI_WORD_BITS;
        struct qsi_stretch stretch = {run, from, to - from < left ? to - from : left};
        uint64_t mask = qsi_stretch_mask(&stretch) & ~run->settled[word];
        if (kind == QSI_SETTLE_REQUEUE) {
            count_deliveries(run, word, mask);
            run->seen[word] |= mask;
        } else {
            queue->stored_count -= count_stored(run, word, mask);
            run->settled[word] |= mask;
            run->ready_count -= popcount(mask);
            queue->ready_count -= popcount(mask);
        }
        from += stretch.count;
    }
}

void qsi_queue_replay_settle(struct qsi_queue *queue, const struct qsi_settle *settle)
{
    uint64_t end = settle->first_seq + settle->count;
    uint32_t index = find_run(queue, settle->first_seq);

    while (index < queue->run_count) {
        struct qsi_run *run = run_at(queue, index);
        uint64_t from = settle->first_seq > run->first_seq ? settle->first_seq - run->first_seq : 0;
        uint64_t to = end - run->first_seq < run->count ? end - run->first_seq : run->count;
        if (run->first_seq >= end) {
            return;
        }
        replay_settle_run(queue, run, (uint32_t)from, (uint32_t)to, settle->kind);
        if (run->ready_count == 0 && run->out_count == 0) {
            remove_run(queue, run); /* the next one takes its index */
        } else {
            index += 1;
        }
    }
}

void qsi_queue_mark_all_seen(struct qsi_queue *queue)
{
    for (uint32_t i = 0; i < queue->run_count; i++) {
        struct qsi_run *run = run_at(queue, i);
        memset(run->seen, 0xff, words_of(run->count) * sizeof *run->seen);
        run->all_seen = true;
        for (uint32_t row = 0; run->deliveries != NULL && row < run->count; row++) {
            run->deliveries[row] = run->deliveries[row] > 0 ? run->deliveries[row] : 1;
        }
    }
}
