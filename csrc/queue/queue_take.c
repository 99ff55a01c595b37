/* The queue: delivering, and taking back.  Invariants: the queue's ready and out counts are the
 * sums over its segments; a message is ready, out or settled, and changes from out to settled or
 * back to ready; no segment before scan, and no word before a segment's first_word, has ready
 * messages. */
#include "queue_take.h"

#include "check.h"
#include "queue_columns.h"
#include "queue_internal.h"

/* ---- counting ---- */

void qsi_queue_sum_more(struct qsi_queue *queue, uint64_t count)
{
    struct qsi_queue_sum *sum = queue->sum;

    QS_DCHECK(queue->ready_count >= count);
    sum->ready_count += count;
    if (queue->ready_count > 0) {
        sum->places[queue->place / QSI_WORD_BITS] |= UINT64_C(1) << (queue->place % QSI_WORD_BITS);
    }
}

void qsi_queue_sum_fewer(struct qsi_queue *queue, uint64_t count)
{
    struct qsi_queue_sum *sum = queue->sum;

    QS_DCHECK((sum->places[queue->place / QSI_WORD_BITS] >> (queue->place % QSI_WORD_BITS) & 1) !=
                  0 ||
              count == 0);
    QS_DCHECK(sum->ready_count >= count);
    sum->ready_count -= count;
    if (queue->ready_count == 0) {
        sum->places[queue->place / QSI_WORD_BITS] &=
            ~(UINT64_C(1) << (queue->place % QSI_WORD_BITS));
    }
}

/* ---- delivering ---- */

void qsi_queue_reserve_removal(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                               uint64_t mask)
{
    uint32_t count = qsi_popcount(mask);

    QS_DCHECK(mask != 0 && segment->queue == queue);
    QS_DCHECK((qsi_segment_ready(queue, segment, word) & mask) == mask);
    QS_DCHECK(word >= segment->word_base && word - segment->word_base < segment->word_count);
    QS_DCHECK(
        ((segment->out[word - segment->word_base] | segment->settled[word - segment->word_base]) &
         mask) == 0);
    QS_DCHECK(segment->ready_count >= count);
    segment->out[word - segment->word_base] |= mask;
    segment->ready_count -= count;
    segment->out_count += count;
    qsi_queue_fewer_ready(queue, count);
    queue->out_count += count;
    qsi_queue_count_unready(queue, segment, word, mask);
}

struct qsi_segment *qsi_queue_head_segment(struct qsi_queue *queue)
{
    while (queue->scan < queue->segment_count) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, queue->scan);
        if (segment->ready_count > 0 && segment->aside_for == NULL) {
            return segment;
        }
        queue->scan += 1;
    }
    return NULL;
}

struct qsi_segment *qsi_queue_readable_head(struct qsi_queue *queue, struct qsi_passed *passed_io)
{
    struct qsi_segment *head = qsi_queue_head_segment(queue);

    for (uint32_t i = queue->scan; head != NULL && i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->ready_count == 0 || segment->aside_for != NULL) {
            continue;
        }
        if (segment->settled != NULL || !segment->is_damaged) {
            return segment;
        }
        passed_io->messages += segment->ready_count;
        passed_io->body_bytes += segment->paged_bytes;
    }
    return NULL;
}

/* The first ready messages of a segment are in its first_word.  NULL: there is none. */
static enum qsi_take find_ready(const struct qsi_queue *queue, struct qsi_segment *segment,
                                uint64_t *ready_out) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(segment == NULL || segment->ready_count > 0 || segment->settled == NULL);
    if (segment == NULL) {
        return QSI_TAKE_EMPTY;
    }
    if (segment->settled == NULL) {
        return QSI_TAKE_PAGED;
    }
    while ((*ready_out = qsi_segment_ready(queue, segment, segment->first_word)) == 0) {
        segment->first_word += 1;
        QS_ASSERT(segment->first_word < segment->word_base + segment->word_count);
    }
    return QSI_TAKE_TAKEN;
}

enum qsi_take qsi_queue_take(struct qsi_container *container, uint32_t max_count,
                             struct qsi_stretch *stretch_out)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    struct qsi_segment *segment = qsi_queue_head_segment(queue);
    const struct qsi_run *run;
    uint64_t ready = 0, seq, left;
    uint32_t bit, count, index;
    enum qsi_take found = find_ready(queue, segment, &ready);

    QS_DCHECK(max_count > 0);
    if (found != QSI_TAKE_TAKEN) {
        return found;
    }
    bit = (uint32_t)__builtin_ctzll(ready);
    seq = qsi_segment_first_seq(queue->shared, segment) +
          (uint64_t)segment->first_word * QSI_WORD_BITS + bit;
    index = qsi_queue_look_up_run(queue, seq);
    if (index == queue->run_count) {
        return QSI_TAKE_PAGED;
    }
    run = qsi_queue_run_at(queue, index);
    QS_DCHECK(run->first_seq <= seq && seq < run->first_seq + run->count);
    left = run->first_seq + run->count - seq;
    count = qsi_ones_from(ready, bit);
    count = count < max_count ? count : max_count;
    count = count < left ? count : (uint32_t)left;
    *stretch_out = (struct qsi_stretch){segment, run, segment->first_word * QSI_WORD_BITS + bit,
                                        (uint32_t)(seq - run->first_seq), count};
    qsi_queue_reserve_removal(queue, segment, segment->first_word, qsi_stretch_mask(stretch_out));
    queue->container.taken_count += count;
    return QSI_TAKE_TAKEN;
}

enum qsi_take qsi_queue_find_out(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t slot, struct qsi_stretch *stretch_out)
{
    uint64_t seq = qsi_segment_first_seq(queue->shared, segment) + slot;
    uint32_t index = qsi_queue_look_up_run(queue, seq);
    const struct qsi_run *run;

    QS_DCHECK(segment->queue == queue && segment->settled != NULL);
    QS_DCHECK((segment->out[slot / QSI_WORD_BITS - segment->word_base] >> (slot % QSI_WORD_BITS) &
               1) != 0);
    if (index == queue->run_count) {
        return QSI_TAKE_PAGED;
    }
    run = qsi_queue_run_at(queue, index);
    *stretch_out = (struct qsi_stretch){segment, run, slot, (uint32_t)(seq - run->first_seq), 1};
    return QSI_TAKE_TAKEN;
}

enum qsi_take qsi_queue_reserve_in(struct qsi_queue *queue, struct qsi_segment *segment,
                                   uint32_t max_count, struct qsi_stretch *stretch_out)
{
    uint64_t ready = 0;
    uint32_t bit, count;
    enum qsi_take found = find_ready(queue, segment, &ready);

    QS_DCHECK(max_count > 0);
    if (found != QSI_TAKE_TAKEN) {
        return found;
    }
    bit = (uint32_t)__builtin_ctzll(ready);
    count = qsi_ones_from(ready, bit);
    count = count < max_count ? count : max_count;
    *stretch_out = (struct qsi_stretch){
        .segment = segment, .slot = segment->first_word * QSI_WORD_BITS + bit, .count = count};
    qsi_queue_reserve_removal(queue, segment, segment->first_word, qsi_stretch_mask(stretch_out));
    return QSI_TAKE_TAKEN;
}

bool qsi_queue_reserve_next(struct qsi_queue *queue, uint64_t *seq_io,
                            struct qsi_stretch *stretch_out)
{
    uint32_t entries = queue->shared->entries;

    while (*seq_io < queue->container.next_seq) {
        struct qsi_segment *segment = qsi_queue_find_segment(queue, *seq_io / entries);
        uint32_t slot = (uint32_t)(*seq_io & (entries - 1)), word = slot / QSI_WORD_BITS, bit;
        uint64_t ready = 0;
        if (segment != NULL && segment->settled != NULL) {
            ready = qsi_segment_ready(queue, segment, word) & qsi_word_range(word, slot, entries);
        }
        if (ready == 0) {
            uint32_t to_word = QSI_WORD_BITS - slot % QSI_WORD_BITS, to_end = entries - slot;
            *seq_io += segment != NULL && to_word < to_end ? to_word : to_end;
            continue;
        }
        bit = (uint32_t)__builtin_ctzll(ready);
        *stretch_out = (struct qsi_stretch){.segment = segment,
                                            .slot = word * QSI_WORD_BITS + bit,
                                            .count = qsi_ones_from(ready, bit)};
        *seq_io += stretch_out->slot - slot + stretch_out->count;
        qsi_queue_reserve_removal(queue, segment, word, qsi_stretch_mask(stretch_out));
        return true;
    }
    return false;
}

bool qsi_queue_ready_before(const struct qsi_queue *queue, uint64_t *seq_io)
{
    uint32_t entries = queue->shared->entries;

    while (*seq_io > 0) {
        const struct qsi_segment *segment = qsi_queue_find_segment(queue, (*seq_io - 1) / entries);
        uint32_t slot = (uint32_t)((*seq_io - 1) & (entries - 1)), word = slot / QSI_WORD_BITS;
        uint64_t ready = 0;
        if (segment != NULL && segment->settled != NULL) {
            ready = qsi_segment_ready(queue, segment, word) &
                    qsi_low_bits(slot % QSI_WORD_BITS + UINT64_C(1));
        }
        if (ready != 0) {
            *seq_io = qsi_segment_first_seq(queue->shared, segment) +
                      (uint64_t)word * QSI_WORD_BITS + 63u - (uint32_t)__builtin_clzll(ready);
            return true;
        }
        *seq_io -= segment != NULL ? slot % QSI_WORD_BITS + 1 : slot + 1;
    }
    return false;
}

/* Some messages of a word are ready again. */
static void make_ready(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = qsi_popcount(mask);

    QS_DCHECK(segment->queue == queue && mask != 0);
    QS_DCHECK((segment->out[word - segment->word_base] & mask) == mask);
    QS_DCHECK(segment->out_count >= count && queue->out_count >= segment->out_count);
    segment->out[word - segment->word_base] &= ~mask;
    segment->out_count -= count;
    QS_DCHECK(queue->out_count >= count);
    queue->out_count -= count;
    qsi_queue_count_in_ready(queue, segment, word, mask);
}

void qsi_queue_count_in_ready(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                              uint64_t mask)
{
    uint32_t count = qsi_popcount(mask);
    uint32_t index = qsi_queue_segment_index(queue, segment->number);

    QS_DCHECK(segment->queue == queue);
    QS_DCHECK(segment->aside_for == NULL);
    QS_DCHECK((qsi_segment_ready(queue, segment, word) & mask) == mask);
    segment->ready_count += count;
    qsi_queue_more_ready(queue, count);
    segment->first_word = word < segment->first_word ? word : segment->first_word;
    queue->scan = index < queue->scan ? index : queue->scan;
    qsi_queue_count_ready(queue, segment, word, mask);
}

void qsi_queue_unreserve_removal(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word, uint64_t mask)
{
    make_ready(queue, segment, word, mask);
}

void qsi_queue_untake(struct qsi_container *container, struct qsi_stretch *stretch,
                      uint32_t keep_count)
{
    struct qsi_queue *queue = qsi_as_queue(container);
    uint64_t all = qsi_stretch_mask(stretch);

    QS_DCHECK(stretch->segment->queue == queue);
    QS_ASSERT(keep_count < stretch->count);
    QS_DCHECK(queue->container.taken_count >= stretch->count - keep_count);
    queue->container.taken_count -= stretch->count - keep_count;
    stretch->count = keep_count;
    make_ready(queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
               keep_count > 0 ? all & ~qsi_stretch_mask(stretch) : all);
}

/* ---- segments whose state cannot be read ---- */

void qsi_segment_set_aside(struct qsi_queue *queue, struct qsi_segment *segment, const void *holder)
{
    QS_DCHECK(segment->queue == queue && holder != NULL);
    QS_ASSERT(segment->settled == NULL && segment->out_count == 0 && segment->aside_for == NULL &&
              segment->ready_count > 0);
    segment->aside_for = holder;
    queue->aside_count += segment->ready_count;
    qsi_queue_fewer_ready(queue, segment->ready_count);
}

void qsi_queue_bring_back(struct qsi_queue *queue, const void *holder)
{
    for (uint32_t i = 0; queue->aside_count > 0 && i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->aside_for == NULL || (holder != NULL && segment->aside_for != holder)) {
            continue;
        }
        segment->aside_for = NULL;
        QS_DCHECK(queue->aside_count >= segment->ready_count);
        queue->aside_count -= segment->ready_count;
        qsi_queue_more_ready(queue, segment->ready_count);
        queue->scan = i < queue->scan ? i : queue->scan;
    }
}
