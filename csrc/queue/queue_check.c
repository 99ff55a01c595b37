/* Debug builds: is the whole of a queue what the files of this floor say it is?  What each of them
 * keeps true step by step is looked at here together, from the bits on. */
#include "check.h"
#include "queue_columns.h"
#include "queue_internal.h"
#include "work.h"

#ifndef NDEBUG

/* What the segments have, to be compared with what the queue says. */
struct tally {
    uint64_t ready, out, delayed, aside;
};

/* ---- segments ---- */

/* No message that waits is due, or expires, before it is said to. */
static void check_times(const struct qsi_queue *queue, const struct qsi_segment *segment,
                        uint32_t at, uint64_t ready) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t delayed = segment->delays != NULL ? segment->delays->bits[at] : 0;

    for (; segment->expiries != NULL && ready != 0; ready &= ready - 1) {
        uint64_t expiry = segment->expiries[at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(ready)];
        QS_DCHECK(expiry >= segment->earliest);
        QS_DCHECK(expiry >= queue->earliest);
        QS_DCHECK(queue->sum == NULL || expiry >= queue->sum->earliest);
    }
    for (; delayed != 0; delayed &= delayed - 1) {
        uint64_t due =
            segment->delays->dues[at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(delayed)];
        QS_DCHECK(due >= segment->earliest_due);
        QS_DCHECK(due >= queue->earliest);
        QS_DCHECK(queue->sum == NULL || due >= queue->sum->earliest);
    }
}

/* Content that is not flushed is in memory. */
static void check_unflushed(const struct qsi_queue *queue, uint64_t word_seq, uint64_t live)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (; live != 0; live &= live - 1) {
        uint64_t seq = word_seq + (uint32_t)__builtin_ctzll(live);
        uint32_t index = qsi_queue_find_run(queue, seq);
        if (seq >= queue->container.flushed_seq) {
            QS_DCHECK(index < queue->run_count);
            QS_DCHECK(qsi_queue_run_at(queue, index)->first_seq <= seq);
        }
    }
}

static void check_state(const struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first_seq = qsi_queue_first_seq(queue, segment);
    uint32_t ready_count = 0, out_count = 0, delayed_count = 0, transient_count = 0;

    QS_DCHECK(segment->word_count > 0);
    QS_DCHECK(segment->word_base + segment->word_count <= qsi_queue_words(queue));
    QS_DCHECK(segment->out == segment->settled + segment->word_count);
    QS_DCHECK(segment->seen == segment->out + segment->word_count);
    for (uint32_t at = 0; at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        uint64_t ready = qsi_segment_ready(queue, segment, word);
        uint64_t live = qsi_segment_live(queue, segment, word);
        uint64_t delayed = qsi_segment_delayed(segment, word);
        QS_DCHECK((segment->settled[at] & segment->out[at]) == 0);
        QS_DCHECK((segment->out[at] & ~live) == 0);
        QS_DCHECK((delayed & ~live) == 0 && (delayed & segment->out[at]) == 0);
        QS_DCHECK((ready | segment->out[at] | delayed) == live);
        QS_DCHECK(ready == 0 || word >= segment->first_word);
        ready_count += qsi_popcount(ready);
        out_count += qsi_popcount(segment->out[at]);
        delayed_count += qsi_popcount(delayed);
        transient_count += qsi_popcount(live & qsi_segment_transient(segment, word));
        check_times(queue, segment, at, ready);
        check_unflushed(queue, first_seq + (uint64_t)word * QSI_WORD_BITS, live);
    }
    QS_DCHECK(segment->ready_count == ready_count);
    QS_DCHECK(segment->out_count == out_count);
    QS_DCHECK(segment->delayed_count == delayed_count);
    QS_DCHECK(segment->transient_count == transient_count);
}

static void check_segment(const struct qsi_queue *queue, uint32_t index, struct tally *tally)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_segment *segment = qsi_queue_segment_at(queue, index);
    uint32_t entries = queue->shared->entries;
    uint64_t first_seq = qsi_queue_first_seq(queue, segment);

    QS_DCHECK(segment->queue == queue && segment->is_durable == queue->container.durable);
    QS_DCHECK(index == 0 || qsi_queue_segment_at(queue, index - 1)->number < segment->number);
    QS_DCHECK(segment->seen_end <= entries && segment->given_end <= entries);
    QS_DCHECK(segment->file.number == segment->number &&
              segment->transient_file.number == segment->number);
    QS_DCHECK(qsi_segment_live_count(segment) == 0 || first_seq < queue->container.next_seq);
    QS_DCHECK(segment->aside_for == NULL || segment->settled == NULL);
    if (segment->settled != NULL) {
        check_state(queue, segment);
    } else { /* nobody has a message of it, and all of them are on the disk */
        QS_DCHECK(segment->out_count == 0 && segment->delays == NULL);
        QS_DCHECK(qsi_segment_live_count(segment) == 0 ||
                  queue->container.flushed_seq >= first_seq + entries ||
                  queue->container.flushed_seq == queue->container.next_seq);
    }
    if (segment->aside_for != NULL) {
        tally->aside += segment->ready_count;
    } else {
        tally->ready += segment->ready_count;
        QS_DCHECK(segment->ready_count == 0 || index >= queue->scan);
    }
    tally->out += segment->out_count;
    tally->delayed += segment->delayed_count;
}

/* ---- runs ---- */

/* The live messages of a run, by the states of their segments, which are in memory with it. */
static uint64_t live_in_run(const struct qsi_queue *queue, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t live = 0;

    for (uint64_t seq = run->first_seq; seq < run->first_seq + run->count;) {
        const struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);
        uint64_t left = run->first_seq + run->count - seq;
        uint32_t slot = (uint32_t)(seq & (entries - 1)), word = slot / QSI_WORD_BITS;
        uint32_t here = QSI_WORD_BITS - slot % QSI_WORD_BITS;
        here = here < entries - slot ? here : entries - slot;
        here = here < left ? here : (uint32_t)left;
        if (segment != NULL) {
            QS_DCHECK(segment->settled != NULL || qsi_segment_live_count(segment) == 0);
            live += segment->settled == NULL
                        ? 0
                        : qsi_popcount(qsi_segment_live(queue, segment, word) &
                                       qsi_word_range(word, slot, slot + here));
        }
        seq += here;
    }
    return live;
}

static void check_runs(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t ram_bytes = 0, ram_count = 0, end = 0;

    QS_DCHECK(queue->first_run + queue->run_count <= queue->run_capacity);
    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);
        QS_DCHECK(run->messages.chunk != NULL && run->count > 0);
        QS_DCHECK(run->first_seq >= end);
        end = run->first_seq + run->count;
        QS_DCHECK(end <= queue->container.next_seq);
        QS_DCHECK(run->live_count > 0 && run->live_count <= run->count);
        QS_DCHECK(run->live_count == live_in_run(queue, run));
        ram_bytes += run->ram_bytes;
        ram_count += run->live_count;
    }
    QS_DCHECK(queue->container.ram_bytes == ram_bytes);
    QS_DCHECK(queue->container.ram_count == ram_count);
}

/* ---- the queue ---- */

/* As far as all states are in memory. */
static void check_bytes(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->settled == NULL) {
            return;
        }
        bytes += qsi_segment_ready_bytes(queue, segment);
    }
    QS_DCHECK(queue->ready_bytes == bytes);
}

static void check_sum(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_queue_sum *sum = queue->sum;
    uint64_t bit = UINT64_C(1) << (queue->place % QSI_WORD_BITS);

    QS_DCHECK(sum->ready_count >= queue->ready_count);
    QS_DCHECK(((sum->places[queue->place / QSI_WORD_BITS] & bit) != 0) == (queue->ready_count > 0));
}

void qsi_queue_check(const struct qsi_queue *queue)
{
    const struct qsi_container *container = &queue->container;
    struct tally tally = {0};

    QS_DCHECK(container->kind == &qsi_queue_kind || container->kind == &qsi_work_kind);
    QS_DCHECK(container->flushed_seq <= container->next_seq);
    QS_DCHECK(queue->first_segment + queue->segment_count <= queue->segment_capacity);
    QS_DCHECK(queue->scan <= queue->segment_count);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        check_segment(queue, i, &tally);
    }
    QS_DCHECK(queue->ready_count == tally.ready + qsi_work_rest(queue));
    QS_DCHECK(!qsi_queue_is_work(queue) || container->flushed_seq == container->next_seq);
    QS_DCHECK(queue->out_count == tally.out);
    QS_DCHECK(queue->delayed_count == tally.delayed);
    QS_DCHECK(queue->aside_count == tally.aside);
    check_runs(queue);
    check_bytes(queue);
    if (queue->sum != NULL) {
        check_sum(queue);
    }
}

#endif
