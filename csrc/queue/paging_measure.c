/* What RabbitMQ would show of a queue: how many messages are alpha, beta, gamma and delta, and
 * how they are divided among q1 to q4 and delta.  Invariants: each live message counts in one of
 * the four, each ready one in one of the five, as if the queue were walked message by message;
 * nothing is changed or read from the disk. */
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* Ready messages of one word, behind those that were counted before.  As RabbitMQ has it when they
 * come one after another: an alpha goes to q4 while all before it did, else to q1; a beta or a
 * gamma to q3 while delta is empty, else to q2. */
static void add_ready(struct qsi_queue_measure *measure, uint64_t alphas, uint64_t betas)
{
    bool past_q4 = measure->q3 + measure->q2 + measure->delta_len > 0;
    uint64_t first = betas & (~betas + 1);
    uint64_t head = past_q4 ? 0 : alphas & (first - 1); /* without betas: all */

    measure->q4 += qsi_popcount(head);
    measure->q1 += qsi_popcount(alphas & ~head);
    *(measure->delta_len > 0 ? &measure->q2 : &measure->q3) += qsi_popcount(betas);
    measure->ahead += measure->delta_len > 0 ? 0 : qsi_popcount(alphas | betas);
}

/* Those messages of a word whose bodies are in the message store; first: of the lowest bit, the
 * row in the run. */
static uint64_t stored_rows(const struct qsi_run *run, uint32_t first_row, uint64_t mask)
{
    uint64_t stored = 0;

    for (; run->has_stored && mask != 0; mask &= mask - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(mask), row;
        struct qsi_messages view;
        qsi_messages_view(&view, qsi_run_record(run, first_row + bit, &row));
        stored |= (uint64_t)qsi_messages_is_stored(&view, row) << bit;
    }
    return stored;
}

/* Which slots of a word have theirs in the segment's files. */
static uint64_t flushed_rows(const struct qsi_queue *queue, uint64_t first_seq, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t flushed = queue->container.flushed_seq;
    uint64_t end = flushed > first_seq ? flushed - first_seq : 0;

    return qsi_word_range(word, 0,
                          end < queue->shared->entries ? (uint32_t)end : queue->shared->entries);
}

/* Messages in one word of a segment, all in run, or, without one, not in memory. */
static void measure_word(const struct qsi_queue *queue, const struct qsi_segment *segment,
                         const struct qsi_run *run, uint32_t word, uint64_t mask,
                         struct qsi_queue_measure *measure) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t live = qsi_segment_live(queue, segment, word) & mask;
    uint64_t ready = qsi_segment_ready(queue, segment, word) & mask;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint64_t seq = first_seq + (uint64_t)word * QSI_WORD_BITS;
    uint64_t flushed = flushed_rows(queue, first_seq, word);
    uint64_t stored;
    uint32_t shift;

    if (live == 0) {
        return;
    }
    if (run == NULL) {
        measure->gamma += qsi_popcount(live);
        add_ready(measure, 0, ready);
        return;
    }
    shift = run->first_seq > seq ? (uint32_t)(run->first_seq - seq) : 0;
    QS_DCHECK(shift < QSI_WORD_BITS);
    stored = stored_rows(run, (uint32_t)(seq + shift - run->first_seq), live >> shift) << shift;
    measure->alpha += qsi_popcount(live & ~stored);
    measure->beta += qsi_popcount(stored & ~flushed);
    measure->gamma += qsi_popcount(stored & flushed);
    add_ready(measure, ready & ~stored, ready & stored);
}

static void measure_segment(const struct qsi_queue *queue, const struct qsi_segment *segment,
                            struct qsi_queue_measure *measure) QSI_REQUIRES(qsi_store_mutex)
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
            measure_word(queue, segment, run, word, qsi_word_range(word, slot, to), measure);
            slot = to;
        }
    }
}

void qsi_queue_measure(const struct qsi_queue *queue, const struct qsi_index *index,
                       struct qsi_queue_measure *measure_out)
{
    memset(measure_out, 0, sizeof *measure_out);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->settled == NULL) {
            measure_out->delta += qsi_segment_live_count(segment);
            measure_out->delta_len += segment->aside_for == NULL ? segment->ready_count : 0;
        } else {
            measure_segment(queue, segment, measure_out);
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
}
