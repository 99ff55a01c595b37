/* Messages leave a queue: settled one by one, expired or purged, or with the queue.  The invariants
 * of queue_take.c hold after each call. */
#include "queue_settle.h"

#include "check.h"
#include "queue_columns.h"
#include "queue_delays.h"
#include "queue_internal.h"
#include "queue_take.h"

/* ---- settling ---- */

/* Makes live messages of one word that are not out settled.  REQUIRES state. */
static void settle_word(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                        uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = word - segment->word_base;

    QS_DCHECK(mask != 0 && (mask & ~qsi_segment_live(queue, segment, word)) == 0);
    QS_DCHECK(at < segment->word_count);
    QS_DCHECK(((segment->settled[at] | segment->out[at]) & mask) == 0);
    segment->settled[at] |= mask;
    queue->container.settled_count += qsi_popcount(mask);
    if (segment->transient != NULL) {
        QS_DCHECK(segment->transient_count >= qsi_popcount(mask & segment->transient[at]));
        segment->transient_count -= qsi_popcount(mask & segment->transient[at]);
    }
    qsi_segment_dirty_state(segment);
    qsi_queue_let_go(queue, segment, word, mask);
}

void qsi_queue_settle(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t count = qsi_popcount(mask);

    QS_DCHECK(segment->queue == queue && segment->settled != NULL);
    QS_ASSERT((segment->out[word - segment->word_base] & mask) == mask);
    QS_DCHECK(segment->out_count >= count && queue->out_count >= segment->out_count);
    segment->out[word - segment->word_base] &= ~mask;
    segment->out_count -= count;
    QS_DCHECK(queue->out_count >= count);
    queue->out_count -= count;
    settle_word(queue, segment, word, mask);
    qsi_segment_retire_if_done(queue, segment);
}

/* ---- purging ---- */

struct ranges {
    qsi_range_visitor *visit; /* NULL: only counted */
    void *context;
    uint64_t from;
    uint64_t count;
};

static void end_range(struct ranges *ranges, uint64_t end)
{
    while (ranges->from < end) {
        uint64_t count = end - ranges->from;
        count = count < UINT32_MAX ? count : UINT32_MAX;
        if (ranges->visit != NULL) {
            ranges->visit(ranges->context, ranges->from, (uint32_t)count);
        }
        ranges->from += count;
        ranges->count += 1;
    }
}

/* The ranges between the messages that are out, from the first segment on. */
static void walk_ranges(const struct qsi_queue *queue, struct ranges *ranges)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (queue->segment_count == 0) {
        return;
    }
    ranges->from = qsi_segment_first_seq(queue->shared, qsi_queue_segment_at(queue, 0));
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
        if (segment->aside_for != NULL) { /* as if all of it were out */
            end_range(ranges, first_seq);
            ranges->from = first_seq + queue->shared->entries;
        }
        for (uint32_t at = 0; segment->out_count > 0 && at < segment->word_count; at++) {
            uint64_t out = segment->out[at];
            uint64_t word_seq = first_seq + (uint64_t)(segment->word_base + at) * QSI_WORD_BITS;
            while (out != 0) {
                uint32_t bit = (uint32_t)__builtin_ctzll(out);
                uint32_t length = qsi_ones_from(out, bit);
                end_range(ranges, word_seq + bit);
                ranges->from = word_seq + bit + length;
                out &= ~(qsi_low_bits(length) << bit);
            }
        }
    }
    end_range(ranges, queue->container.next_seq);
}

uint64_t qsi_queue_purge_ranges(const struct qsi_queue *queue)
{
    struct ranges ranges = {0};

    if (queue->ready_count + queue->delayed_count > 0) {
        walk_ranges(queue, &ranges);
    }
    return ranges.count;
}

void qsi_queue_settle_unloaded(struct qsi_queue *queue, struct qsi_segment *segment)
{
    struct qsi_queue_shared *shared = queue->shared;

    QS_DCHECK(segment->settled == NULL && segment->out_count == 0);
    QS_DCHECK(queue->delayed_count >= segment->delayed_count);
    qsi_queue_fewer_ready(queue, segment->ready_count);
    queue->delayed_count -= segment->delayed_count;
    queue->container.settled_count += segment->ready_count + segment->delayed_count;
    segment->ready_count = segment->delayed_count = 0;
    segment->earliest_due = QSI_NEVER;
    if (segment->has_stored && shared->messages != NULL) {
        segment->release_rest = segment->file.heap_end > 0;
        segment->release_transients = segment->transient_count > 0;
    }
    segment->transient_count = 0;
    if (segment->busy == 0) {
        qsi_segment_retire(queue, segment);
    }
}

void qsi_queue_settle_waiting(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t from,
                              uint32_t to)
{
    QS_DCHECK(segment->settled != NULL && to <= queue->shared->entries);
    while (from < to) {
        uint32_t word = from / QSI_WORD_BITS;
        uint32_t end = (word + 1) * QSI_WORD_BITS < to ? (word + 1) * QSI_WORD_BITS : to;
        uint64_t range = qsi_low_bits(end - from) << (from % QSI_WORD_BITS);
        uint64_t mask = qsi_segment_ready(queue, segment, word) & range;
        uint64_t delayed = qsi_segment_delayed(segment, word) & range;
        QS_DCHECK(segment->ready_count >= qsi_popcount(mask));
        segment->ready_count -= qsi_popcount(mask);
        qsi_queue_fewer_ready(queue, qsi_popcount(mask));
        if (mask != 0) {
            qsi_queue_count_unready(queue, segment, word, mask);
            settle_word(queue, segment, word, mask);
        }
        if (delayed != 0) {
            qsi_queue_forget_delayed(queue, segment, word, delayed);
            settle_word(queue, segment, word, delayed);
        }
        from = end;
    }
}

uint64_t qsi_queue_purge(struct qsi_container *container, qsi_range_visitor *visit, void *context)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    struct ranges ranges = {.visit = visit, .context = context};
    uint64_t dropped = queue->ready_count + queue->delayed_count;

    if (dropped > 0 && visit != NULL) {
        walk_ranges(queue, &ranges);
    }
    for (uint32_t i = queue->segment_count; i-- > 0;) { /* retiring one moves those behind it */
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->aside_for != NULL) {
            continue;
        }
        if (segment->settled == NULL) {
            qsi_queue_settle_unloaded(queue, segment);
            continue;
        }
        qsi_queue_settle_waiting(queue, segment, 0, queue->shared->entries);
        qsi_segment_retire_if_done(queue, segment);
    }
    qsi_queue_fewer_bytes(queue, queue->ready_bytes); /* those of states that are on the disk too */
    QS_DCHECK(queue->ready_count == qsi_work_rest(queue) && queue->delayed_count == 0);
    queue->earliest = QSI_NEVER;
    return dropped;
}

void qsi_queue_discard(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot)
{
    QS_DCHECK(segment->queue == queue && slot < queue->shared->entries);
    qsi_queue_settle_waiting(queue, segment, slot, slot + 1);
    qsi_segment_retire_if_done(queue, segment);
}

/* Drops the references of messages of one word that are out. */
static void drop_out_refs(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t word_seq =
        qsi_segment_first_seq(queue->shared, segment) + (uint64_t)word * QSI_WORD_BITS;

    QS_DCHECK(segment->queue == queue && word >= segment->word_base);
    for (uint64_t out = segment->out[word - segment->word_base]; out != 0; out &= out - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(out);
        uint32_t index = qsi_queue_look_up_run(queue, word_seq + bit);
        if (index == queue->run_count) {
            qsi_queue_release_later(queue, segment, word, UINT64_C(1) << bit);
        } else {
            const struct qsi_run *run = qsi_queue_run_at(queue, index);
            qsi_queue_drop_refs(queue, run, (uint32_t)(word_seq + bit - run->first_seq), 1);
        }
    }
}

void qsi_queue_abandon(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    queue->reserved_seq = 0; /* nothing is to come */
    qsi_queue_bring_back(queue, NULL);
    qsi_queue_purge(&queue->container, NULL, NULL);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        for (uint32_t at = 0; segment->out_count > 0 && at < segment->word_count; at++) {
            drop_out_refs(queue, segment, segment->word_base + at);
        }
    }
    QS_DCHECK(queue->ready_count == 0 && queue->delayed_count == 0);
    QS_DCHECK(queue->aside_count == 0);
    queue->references_gone = true;
}

/* ---- messages that come back ---- */

void qsi_queue_requeue(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    QS_DCHECK(segment->queue == queue);
    if (!queue->counts_deliveries) {
        qsi_segment_count_deliveries(queue, segment, word, mask);
        qsi_segment_dirty_state(segment);
    }
    qsi_queue_end_grace(queue, segment, word, mask);
    qsi_queue_unreserve_removal(queue, segment, word, mask);
}

void qsi_queue_give_back(struct qsi_container *container, struct qsi_segment *segment,
                         uint32_t word, uint64_t mask)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint32_t at = word - segment->word_base;
    uint64_t seen_before;

    QS_DCHECK(segment->queue == queue);
    QS_DCHECK((segment->out[at] & mask) == mask);
    if (queue->counts_deliveries) {
        qsi_segment_uncount_deliveries(segment, word, mask);
        qsi_segment_dirty_state(segment);
    }
    seen_before = qsi_segment_seen_before(segment, word);
    segment->seen[at] = (segment->seen[at] & ~mask) | (seen_before & mask);
    qsi_queue_unreserve_removal(queue, segment, word, mask);
}
