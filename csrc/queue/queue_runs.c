/* Runs: the places of messages' content, its share of memory, and references to the message store.
 * Invariants: runs are in order of their sequences and do not overlap; a run has live messages (it
 * is removed when the last of them is settled); the queue's ram_bytes and ram_count are the sums
 * over its runs; a live message has one reference of its queue counted, which is dropped once: from
 * its run, or, without one, after it was read from the disk. */
#include "alloc.h"
#include "check.h"
#include "paging.h"
#include "properties.h"
#include "queue_internal.h"

#include <string.h>

/* A run of single records before its first message. */
static struct qsi_run *emptied(struct qsi_run *run)
{
    uint32_t *rows = run->messages.rows;
    uint32_t capacity = run->capacity;

    qsi_chunk_unref(run->messages.chunk);
    memset(run, 0, sizeof *run);
    run->messages.single_records = true;
    run->messages.rows = rows;
    run->capacity = capacity;
    return run;
}

/* ---- the array of runs ---- */

qs_status qsi_queue_reserve_runs(struct qsi_queue *queue, uint32_t count)
{
    return qsi_reserve_pointers((void ***)(void *)&queue->runs, &queue->first_run, queue->run_count,
                                &queue->run_capacity, count);
}

static bool run_holds(const struct qsi_run *run, uint64_t seq)
{
    return seq >= run->first_seq && seq - run->first_seq < run->count;
}

uint32_t qsi_queue_find_run(const struct qsi_queue *queue, uint64_t seq)
{
    uint32_t low = 0;
    uint32_t high = queue->run_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct qsi_run *run = qsi_queue_run_at(queue, middle);
        if (run->first_seq + run->count <= seq) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t qsi_queue_look_up_run(struct qsi_queue *queue, uint64_t seq)
{
    uint32_t index = queue->run_hint;

    if (index < queue->run_count && run_holds(qsi_queue_run_at(queue, index), seq)) {
        return index;
    }
    if (index + 1 < queue->run_count && run_holds(qsi_queue_run_at(queue, index + 1), seq)) {
        queue->run_hint = index + 1;
        return index + 1;
    }
    index = qsi_queue_find_run(queue, seq);
    if (index == queue->run_count || !run_holds(qsi_queue_run_at(queue, index), seq)) {
        return queue->run_count;
    }
    queue->run_hint = index;
    return index;
}

const struct qsi_run *qsi_queue_run_of(struct qsi_queue *queue, uint64_t seq)
{
    uint32_t index = qsi_queue_look_up_run(queue, seq);

    return index < queue->run_count ? qsi_queue_run_at(queue, index) : NULL;
}

uint64_t qsi_queue_unflushed_bytes(const struct qsi_queue *queue)
{
    uint64_t bytes = 0;

    for (uint32_t i = qsi_queue_find_run(queue, queue->container.flushed_seq); i < queue->run_count;
         i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);
        bytes += run->ram_bytes * run->live_count / run->count + run->live_count;
    }
    return bytes;
}

/* The shorter part of the rest moves. */
void qsi_queue_close_gap(struct qsi_queue *queue, uint32_t from, uint32_t to)
{
    struct qsi_run **runs = queue->runs + queue->first_run;
    uint32_t behind = queue->run_count - to;

    QS_DCHECK(from <= to && to <= queue->run_count);
    if (from == to) {
        return; /* there may be no array yet */
    }
    if (from <= behind) {
        memmove(runs + (to - from), runs, from * sizeof *runs);
        queue->first_run += to - from;
    } else {
        memmove(runs + from, runs + to, behind * sizeof *runs);
    }
    QS_DCHECK(queue->run_count >= to - from);
    queue->run_count -= to - from;
    if (queue->run_hint >= to) {
        QS_DCHECK(queue->run_hint >= to - from);
        queue->run_hint -= to - from;
    } else if (queue->run_hint > from) {
        queue->run_hint = from;
    }
}

void qsi_queue_free_run(struct qsi_queue *queue, struct qsi_run *run)
{
    QS_DCHECK(queue->container.ram_bytes >= run->ram_bytes);
    QS_DCHECK(queue->container.ram_count >= run->live_count);
    queue->container.ram_bytes -= run->ram_bytes;
    queue->container.ram_count -= run->live_count;
    if (queue->spare == NULL && run->messages.single_records) {
        queue->spare = emptied(run);
    } else {
        qsi_run_destroy(run);
    }
}

void qsi_queue_drop_run(struct qsi_queue *queue, uint32_t index)
{
    QS_DCHECK(index < queue->run_count);
    qsi_queue_free_run(queue, qsi_queue_run_at(queue, index));
    qsi_queue_close_gap(queue, index, index + 1);
}

void qsi_queue_insert_run(struct qsi_queue *queue, struct qsi_run *run)
{
    uint32_t index = qsi_queue_find_run(queue, run->first_seq);
    struct qsi_run **at = queue->runs + queue->first_run + index;

    QS_ASSERT(queue->first_run + queue->run_count < queue->run_capacity);
    QS_ASSERT(index == queue->run_count ||
              run->first_seq + run->count <= qsi_queue_run_at(queue, index)->first_seq);
    QS_DCHECK(index == 0 || qsi_queue_run_at(queue, index - 1)->first_seq +
                                    qsi_queue_run_at(queue, index - 1)->count <=
                                run->first_seq);
    QS_DCHECK(run->live_count <= run->count);
    memmove(at + 1, at, (queue->run_count - index) * sizeof *at);
    *at = run;
    queue->run_count += 1;
    queue->container.ram_bytes += run->ram_bytes;
    queue->container.ram_count += run->live_count;
}

/* ---- references to the message store ---- */

static bool row_ref(const struct qsi_run *run, uint32_t row, struct qsi_body_ref *ref_out)
{
    struct qsi_messages view;
    struct qsi_body body;
    uint32_t record_row;

    QS_DCHECK(row < run->count);
    qsi_messages_view(&view, qsi_run_record(run, row, &record_row));
    qsi_messages_read_body(&view, record_row, &body);
    if (body.kind != QSI_BODY_STORED) {
        return false;
    }
    *ref_out = body.ref;
    return true;
}

bool qsi_run_row_is_transient(const struct qsi_run *run, uint32_t row)
{
    struct qsi_messages view;
    struct qsi_slice properties;
    uint32_t record_row;

    QS_DCHECK(row < run->count);
    if (!run->journalled || !run->has_transient) {
        return !run->journalled;
    }
    qsi_messages_view(&view, qsi_run_record(run, row, &record_row));
    properties = qsi_messages_properties(&view, record_row);
    return qsi_properties_delivery_mode(properties.data, properties.bytes) == 1;
}

void qsi_queue_add_ref(struct qsi_queue *queue, const struct qsi_run *run, uint32_t row)
{
    struct qsi_body_ref ref;

    if (queue->shared->messages != NULL && row_ref(run, row, &ref)) {
        bool transient = qsi_run_row_is_transient(run, row);
        qsi_message_store_add_refs(queue->shared->messages, &ref, transient ? 0 : 1,
                                   transient ? 1 : 0);
    }
}

void qsi_queue_adopt_ref(struct qsi_queue *queue, struct qsi_run *run, uint32_t row)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = run->first_seq + row;
    uint32_t slot = (uint32_t)(seq & (entries - 1));
    struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);

    QS_DCHECK(row < run->count);
    run->has_stored = true;
    if (segment == NULL ||
        (qsi_segment_live(queue, segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) ==
            0) {
        return;
    }
    segment->has_stored = true;
    qsi_queue_add_ref(queue, run, row);
}

void qsi_queue_drop_refs(struct qsi_queue *queue, const struct qsi_run *run, uint32_t first_row,
                         uint64_t mask)
{
    QS_DCHECK(first_row < run->count);
    if (!run->has_stored || queue->shared->messages == NULL || queue->references_gone) {
        return;
    }
    for (; mask != 0; mask &= mask - 1) {
        uint32_t row = first_row + (uint32_t)__builtin_ctzll(mask);
        struct qsi_body_ref ref;
        if (row_ref(run, row, &ref)) {
            qsi_message_store_drop_ref(queue->shared->messages, &ref,
                                       qsi_run_row_is_transient(run, row));
        }
    }
}

static uint64_t releases_bytes(const struct qsi_queue *queue)
{
    return qsi_bitmap_words(queue->shared->entries) * sizeof(uint64_t);
}

qs_status qsi_segment_cover_releases(struct qsi_queue *queue, struct qsi_segment *segment)
{
    if (segment->releases != NULL || !segment->has_stored) {
        return QS_OK;
    }
    segment->releases = qsi_zalloc(releases_bytes(queue));
    if (segment->releases == NULL) {
        return QS_ENOMEM;
    }
    qsi_budget_add(queue->shared->budget, releases_bytes(queue));
    return QS_OK;
}

void qsi_segment_leave_releases(struct qsi_queue *queue, struct qsi_segment *segment)
{
    if (segment->releases != NULL) {
        qsi_budget_sub(queue->shared->budget, releases_bytes(queue));
    }
    if (!segment->has_releases) {
        qsi_free(segment->releases);
        segment->releases = NULL;
    }
}

bool qsi_run_may_leave(struct qsi_queue *queue, const struct qsi_run *run)
{
    uint32_t entries = queue->shared->entries;
    uint64_t last = (run->first_seq + run->count - 1) / entries;

    QS_DCHECK(run->first_seq + run->count <= queue->container.flushed_seq);
    for (uint64_t number = run->first_seq / entries; run->has_stored && number <= last; number++) {
        struct qsi_segment *segment = qsi_queue_find_segment(queue, number);
        if (segment != NULL && qsi_segment_cover_releases(queue, segment) != QS_OK) {
            return false;
        }
    }
    return true;
}

void qsi_queue_release_later(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                             uint64_t mask)
{
    QS_DCHECK(word < qsi_bitmap_words(queue->shared->entries));
    if (segment->releases == NULL || queue->shared->messages == NULL || queue->references_gone) {
        return;
    }
    QS_DCHECK((segment->releases[word] & mask) == 0);
    segment->releases[word] |= mask;
    segment->has_releases = true;
    if (qsi_list_is_empty(&segment->in_shared)) {
        qsi_list_push_back(&queue->shared->releasing, &segment->in_shared);
    }
}

void qsi_queue_let_go(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask)
{
    uint64_t word_seq =
        qsi_segment_first_seq(queue->shared, segment) + (uint64_t)word * QSI_WORD_BITS;

    QS_DCHECK(segment->settled == NULL || (mask & qsi_segment_live(queue, segment, word)) == 0);
    while (mask != 0) {
        uint32_t bit = (uint32_t)__builtin_ctzll(mask);
        uint32_t index = qsi_queue_look_up_run(queue, word_seq + bit);
        struct qsi_run *run;
        uint64_t here, end;
        if (index == queue->run_count) {
            here = mask & (UINT64_C(1) << bit);
            qsi_queue_release_later(queue, segment, word, here);
            mask &= ~here;
            continue;
        }
        run = qsi_queue_run_at(queue, index);
        end = run->first_seq + run->count - word_seq; /* bits of the word that the run holds */
        here = mask & qsi_low_bits(end);
        mask &= ~here;
        qsi_queue_drop_refs(queue, run, (uint32_t)(word_seq + bit - run->first_seq), here >> bit);
        QS_DCHECK(run->live_count >= qsi_popcount(here));
        run->live_count -= qsi_popcount(here);
        QS_DCHECK(queue->container.ram_count >= qsi_popcount(here));
        queue->container.ram_count -= qsi_popcount(here);
        if (run->live_count == 0) {
            qsi_queue_drop_run(queue, index);
        }
    }
}
