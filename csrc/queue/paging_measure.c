/* What RabbitMQ would show of a queue: how many messages are alpha, beta, gamma and delta, and
 * how they are divided among q1 to q4 and delta.  Invariants: each live message counts in one of
 * the four, each ready one in one of q1 to q4 and delta; nothing is changed or read from the
 * disk. */
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* q1 to q4 and delta, filled in order of sequence: q4 up to the first message that is no alpha,
 * q3 up to delta, then delta, q2, q1. */
struct sub_queues {
    struct qsi_queue_measure *measure;
    uint64_t tail; /* alphas behind others: q1, unless more of the others come */
    bool past_q4;
};

static void add_alphas(struct sub_queues *sub, uint64_t count)
{
    if (sub->past_q4) {
        sub->tail += count;
    } else {
        sub->measure->q4 += count;
    }
}

static void add_betas(struct sub_queues *sub, uint64_t count)
{
    struct qsi_queue_measure *measure = sub->measure;

    if (count == 0) {
        return;
    }
    sub->past_q4 = true;
    *(measure->delta_len > 0 ? &measure->q2 : &measure->q3) += sub->tail + count;
    sub->tail = 0;
}

static void add_deltas(struct sub_queues *sub, uint64_t count)
{
    struct qsi_queue_measure *measure = sub->measure;

    if (count == 0) {
        return;
    }
    sub->past_q4 = true;
    measure->delta_len += measure->q2 + count; /* what lies between two deltas counts as one */
    measure->q2 = 0;
    *(measure->delta_len > count ? &measure->delta_len : &measure->q3) += sub->tail;
    sub->tail = 0;
}

static uint32_t stored_rows(const struct qsi_run *run, uint32_t first_row, uint64_t mask)
{
    uint32_t count = 0;

    for (; run->has_stored && mask != 0; mask &= mask - 1) {
        struct qsi_messages view;
        uint32_t row;
        qsi_messages_view(&view,
                          qsi_run_record(run, first_row + (uint32_t)__builtin_ctzll(mask), &row));
        count += qsi_messages_is_stored(&view, row) ? 1 : 0;
    }
    return count;
}

/* Messages in one word of a segment, all in run, or, without one, not in memory. */
static void measure_word(const struct qsi_queue *queue, const struct qsi_segment *segment,
                         const struct qsi_run *run, uint32_t word, uint64_t mask,
                         struct sub_queues *sub) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t live = qsi_segment_live(queue, segment, word) & mask;
    uint64_t ready = qsi_segment_ready(queue, segment, word) & mask;
    uint64_t seq = qsi_segment_first_seq(queue->shared, segment) + (uint64_t)word * QSI_WORD_BITS;
    uint32_t shift, stored, stored_ready;

    if (live == 0) {
        return;
    }
    if (run == NULL) {
        sub->measure->gamma += qsi_popcount(live);
        add_betas(sub, qsi_popcount(ready));
        return;
    }
    shift = run->first_seq > seq ? (uint32_t)(run->first_seq - seq) : 0;
    stored = stored_rows(run, (uint32_t)(seq + shift - run->first_seq), live >> shift);
    stored_ready = stored_rows(run, (uint32_t)(seq + shift - run->first_seq), ready >> shift);
    *(seq < queue->container.flushed_seq ? &sub->measure->gamma : &sub->measure->beta) += stored;
    sub->measure->alpha += qsi_popcount(live) - stored;
    add_betas(sub, stored_ready);
    add_alphas(sub, qsi_popcount(ready) - stored_ready);
}

static void measure_segment(const struct qsi_queue *queue, const struct qsi_segment *segment,
                            struct sub_queues *sub) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint32_t slot = segment->word_base * QSI_WORD_BITS;
    uint32_t limit = slot + segment->word_count * QSI_WORD_BITS;

    while (slot < limit) {
        uint32_t index = qsi_queue_find_run(queue, first_seq + slot);
        const struct qsi_run *run =
            index < queue->run_count ? qsi_queue_run_at(queue, index) : NULL;
        uint64_t end = run == NULL ? limit
                       : run->first_seq > first_seq + slot
                           ? run->first_seq - first_seq
                           : run->first_seq + run->count - first_seq;
        if (run != NULL && run->first_seq > first_seq + slot) {
            run = NULL;
        }
        end = end < limit ? end : limit;
        while (slot < end) {
            uint32_t word = slot / QSI_WORD_BITS;
            uint32_t to =
                (word + 1) * QSI_WORD_BITS < end ? (word + 1) * QSI_WORD_BITS : (uint32_t)end;
            measure_word(queue, segment, run, word, qsi_word_range(word, slot, to), sub);
            slot = to;
        }
    }
}

void qsi_queue_measure(const struct qsi_queue *queue, const struct qsi_index *index,
                       struct qsi_queue_measure *measure_out)
{
    struct sub_queues sub = {.measure = measure_out};

    memset(measure_out, 0, sizeof *measure_out);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->settled == NULL) {
            measure_out->delta += qsi_segment_live_count(segment);
            add_deltas(&sub, segment->ready_count);
        } else {
            measure_segment(queue, segment, &sub);
        }
        if (segment->file.heap_end > 0) {
            measure_out->disk_bytes += qsi_segment_disk_bytes(index, &segment->file);
        }
        for (uint32_t k = 0; k < segment->former_count; k++) {
            measure_out->disk_bytes += qsi_segment_disk_bytes(index, &segment->formers[k].file);
        }
        if (segment->transient_file.heap_end > 0) {
            measure_out->disk_bytes += qsi_segment_disk_bytes(index, &segment->transient_file);
        }
    }
    *(sub.past_q4 ? &measure_out->q1 : &measure_out->q4) += sub.tail;
}
