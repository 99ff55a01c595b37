/* The array of a queue's segments: finding them by number and making room for more; and what the
 * words of a segment's bitmaps say. */
#include "alloc.h"
#include "check.h"
#include "queue_internal.h"

#include <string.h>

/* Most of many queues have few messages: their first memory is small, and doubles. */
#define POINTERS_FIRST 2u

uint32_t qsi_queue_segment_index(const struct qsi_queue *queue, uint64_t number)
{
    uint32_t low = 0;
    uint32_t high = queue->segment_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (qsi_queue_segment_at(queue, middle)->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct qsi_segment *qsi_queue_find_segment(const struct qsi_queue *queue, uint64_t number)
{
    uint32_t index = qsi_queue_segment_index(queue, number);

    return index < queue->segment_count && qsi_queue_segment_at(queue, index)->number == number
               ? qsi_queue_segment_at(queue, index)
               : NULL;
}

qs_status qsi_reserve_pointers(void ***items_io, uint32_t *first_io, uint32_t used,
                               uint32_t *capacity_io, uint32_t count)
{
    uint32_t capacity = *capacity_io < POINTERS_FIRST ? POINTERS_FIRST : *capacity_io;
    void **items = *items_io;

    QS_DCHECK(*first_io + used <= *capacity_io);
    if (*first_io + used + count <= *capacity_io) {
        return QS_OK;
    }
    if (*first_io > *capacity_io / 2) { /* the front half is free: move down */
        memmove(items, items + *first_io, used * sizeof *items);
        *first_io = 0;
        return qsi_reserve_pointers(items_io, first_io, used, capacity_io, count);
    }
    while (capacity < *first_io + used + count) {
        capacity *= 2;
    }
    items = qsi_realloc(items, capacity * sizeof *items);
    if (items == NULL) {
        return QS_ENOMEM;
    }
    *items_io = items;
    *capacity_io = capacity;
    return QS_OK;
}

/* ---- words ---- */

uint64_t qsi_segment_assigned(const struct qsi_queue *queue, const struct qsi_segment *segment,
                              uint32_t word)
{
    uint32_t first_slot = word * QSI_WORD_BITS;
    uint64_t word_seq = qsi_segment_first_seq(queue->shared, segment) + first_slot;
    uint64_t given =
        queue->container.next_seq > word_seq ? queue->container.next_seq - word_seq : 0;
    uint32_t slots = queue->shared->entries - first_slot;

    QS_DCHECK(first_slot < queue->shared->entries);
    return qsi_low_bits(given < slots ? given : slots);
}

uint64_t qsi_segment_live(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint32_t word)
{
    uint32_t at = word - segment->word_base;

    if (word < segment->word_base || at >= segment->word_count) {
        return 0;
    }
    return ~segment->settled[at] & qsi_segment_assigned(queue, segment, word);
}

uint64_t qsi_segment_ready(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint32_t word)
{
    uint32_t at = word - segment->word_base;
    uint64_t hidden;

    if (word < segment->word_base || at >= segment->word_count) {
        return 0;
    }
    hidden = segment->settled[at] | segment->out[at];
    if (QS_UNLIKELY(segment->delays != NULL)) {
        hidden |= segment->delays->bits[at];
    }
    return ~hidden & qsi_segment_assigned(queue, segment, word);
}

uint64_t qsi_segment_seen_before(const struct qsi_segment *segment, uint32_t word)
{
    uint32_t at = word - segment->word_base;
    uint64_t seen = segment->seen[at];

    QS_DCHECK(segment->settled != NULL && at < segment->word_count);
    for (uint64_t out = seen & segment->out[at]; out != 0; out &= out - 1) {
        uint32_t slot = word * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(out);
        bool counted = slot < segment->seen_end ||
                       (segment->deliveries != NULL &&
                        segment->deliveries[slot - segment->word_base * QSI_WORD_BITS] > 0);
        if (!counted) {
            seen &= ~(out & -out);
        }
    }
    return seen;
}

void qsi_segment_dirty_state(struct qsi_segment *segment)
{
    segment->state_dirty = segment->transients_dirty = true;
    segment->told_end = 0;
    segment->state_version += 1;
}
