/* RabbitMQ's figures of a queue: how many messages are alpha, beta, gamma and delta, and how they
 * are divided among q1 to q4 and delta.  Invariants: each live message counts in one of the four,
 * each ready one in one of the five, as if the queue were walked message by message; nothing is
 * changed or read from the disk. */
#include "paging.h"
#include "queue_internal.h"

#include <string.h>

/* Ready messages of one word, after those that were counted before.  As in RabbitMQ, one after
 * another: an alpha goes to q4 if all before it did, else to q1; a beta or a gamma goes to q3 while
 * delta is empty, else to q2. */
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

    for (; mask != 0; mask &= mask - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(mask), row;
        struct qsi_messages view;
        qsi_messages_view(&view, qsi_run_record(run, first_row + bit, &row));
        stored |= (uint64_t)qsi_messages_is_stored(&view, row) << bit;
    }
    return stored;
}

/* The slots of a word whose positions are in the segment's files. */
static uint64_t flushed_rows(const struct qsi_queue *queue, uint64_t first_seq, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t flushed = queue->container.flushed_seq;
    uint64_t end = flushed > first_seq ? flushed - first_seq : 0;

    return qsi_word_range(word, 0,
                          end < queue->shared->entries ? (uint32_t)end : queue->shared->entries);
}

/* The slots of a word that are in memory, and those whose bodies are in the message store. */
struct rows {
    uint64_t in_memory, stored;
};

/* seq: of the word's lowest bit.  run_io: the first run that may reach into this word; afterwards
 * into the next one. */
static struct rows find_rows(const struct qsi_queue *queue, uint64_t seq, uint64_t live,
                             uint32_t *run_io) QSI_REQUIRES(qsi_store_mutex)
{
    struct rows rows = {0};

    for (; *run_io < queue->run_count; ++*run_io) {
        const struct qsi_run *run = qsi_queue_run_at(queue, *run_io);
        uint64_t end = run->first_seq + run->count;
        uint32_t from, to;
        uint64_t mask;

        if (run->first_seq >= seq + QSI_WORD_BITS) {
            break;
        }
        if (end <= seq) {
            continue;
        }
        from = run->first_seq > seq ? (uint32_t)(run->first_seq - seq) : 0;
        to = end - seq < QSI_WORD_BITS ? (uint32_t)(end - seq) : QSI_WORD_BITS;
        mask = qsi_word_range(0, from, to);
        rows.in_memory |= mask;
        if (run->has_stored) {
            uint32_t row = (uint32_t)(seq + from - run->first_seq);
            rows.stored |= stored_rows(run, row, (live & mask) >> from) << from;
        }
        if (end > seq + QSI_WORD_BITS) {
            break;
        }
    }
    return rows;
}

static void measure_word(const struct qsi_queue *queue, const struct qsi_segment *segment,
                         uint32_t word, uint32_t *run_io, struct qsi_queue_measure *measure)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t live = qsi_segment_live(queue, segment, word);
    uint64_t ready = qsi_segment_ready(queue, segment, word);
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint64_t flushed;
    struct rows rows;

    if (live == 0) {
        return;
    }
    rows = find_rows(queue, first_seq + (uint64_t)word * QSI_WORD_BITS, live, run_io);
    flushed = flushed_rows(queue, first_seq, word) | ~rows.in_memory;
    rows.stored |= ~rows.in_memory; /* only their entries need be looked for */
    measure->alpha += qsi_popcount(live & ~rows.stored);
    measure->beta += qsi_popcount(live & rows.stored & ~flushed);
    measure->gamma += qsi_popcount(live & rows.stored & flushed);
    add_ready(measure, ready & ~rows.stored, ready & rows.stored);
}

static void measure_segment(const struct qsi_queue *queue, const struct qsi_segment *segment,
                            struct qsi_queue_measure *measure) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t word = segment->word_base;
    uint64_t first_seq = qsi_segment_first_seq(queue->shared, segment);
    uint32_t run = qsi_queue_find_run(queue, first_seq + (uint64_t)word * QSI_WORD_BITS);

    for (; word < segment->word_base + segment->word_count; word++) {
        measure_word(queue, segment, word, &run, measure);
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
