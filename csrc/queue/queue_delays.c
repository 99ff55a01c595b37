/* Delays: messages that are not to be delivered before they are due.  Invariants: a delayed
 * message is live, and neither ready nor out; its due time stands in the state of its segment,
 * in memory as on the disk; a heap in each segment has the one that is due first at its top, of
 * equal ones that of the lowest sequence; segment->earliest_due is not behind it. */
#include "queue_delays.h"

#include "alloc.h"
#include "check.h"
#include "queue_columns.h"
#include "queue_internal.h"

#include <string.h>

/* ---- memory ---- */

static struct qsi_delays *create(uint32_t word_count)
{
    size_t slots = (size_t)word_count * QSI_WORD_BITS;
    struct qsi_delays *delays = qsi_zalloc(sizeof *delays);

    QS_DCHECK(word_count > 0);
    if (delays == NULL) {
        return NULL;
    }
    delays->bits = qsi_zalloc(word_count * sizeof *delays->bits);
    delays->dues = qsi_alloc(slots * sizeof *delays->dues);
    delays->heap = qsi_alloc(slots * sizeof *delays->heap);
    delays->is_ordered = true;
    if (delays->bits == NULL || delays->dues == NULL || delays->heap == NULL) {
        qsi_delays_free(delays);
        return NULL;
    }
    return delays;
}

void qsi_delays_free(struct qsi_delays *delays)
{
    if (delays != NULL) {
        qsi_free(delays->bits);
        qsi_free(delays->dues);
        qsi_free(delays->heap);
        qsi_free(delays);
    }
}

struct qsi_delays *qsi_delays_widen(const struct qsi_delays *delays, uint32_t old_word_count,
                                    uint32_t word_count)
{
    struct qsi_delays *wide = create(word_count);
    size_t old_slots = (size_t)old_word_count * QSI_WORD_BITS;

    QS_DCHECK(old_word_count <= word_count);
    if (wide != NULL) {
        memcpy(wide->bits, delays->bits, old_word_count * sizeof *wide->bits);
        memcpy(wide->dues, delays->dues, old_slots * sizeof *wide->dues);
        memcpy(wide->heap, delays->heap, delays->heap_count * sizeof *wide->heap);
        wide->heap_count = delays->heap_count;
        wide->is_ordered = delays->is_ordered;
    }
    return wide;
}

qs_status qsi_segment_cover_delays(struct qsi_queue *queue, struct qsi_segment *segment)
{
    QS_ASSERT(segment->settled != NULL);
    if (segment->delays != NULL) {
        return QS_OK;
    }
    segment->delays = create(segment->word_count);
    if (segment->delays == NULL) {
        return QS_ENOMEM;
    }
    qsi_budget_add(queue->shared->budget,
                   qsi_delays_ram((uint64_t)segment->word_count * QSI_WORD_BITS));
    return QS_OK;
}

qs_status qsi_queue_reserve_dues(struct qsi_queue *queue, uint64_t count)
{
    uint32_t entries = queue->shared->entries;
    uint64_t last = (queue->container.next_seq + count - 1) / entries;

    for (uint64_t number = queue->container.next_seq / entries; count > 0 && number <= last;
         number++) {
        QS_TRY(qsi_segment_cover_delays(queue, qsi_queue_find_segment(queue, number)));
    }
    return QS_OK;
}

/* ---- the heap of one segment ---- */

static bool is_before(const struct qsi_delays *delays, uint16_t slot, uint16_t other)
{
    uint64_t due = delays->dues[slot], other_due = delays->dues[other];

    return due < other_due || (due == other_due && slot < other);
}

static void sift_up(struct qsi_delays *delays, uint32_t at)
{
    uint16_t slot = delays->heap[at];

    QS_DCHECK(at < delays->heap_count);
    while (at > 0 && is_before(delays, slot, delays->heap[(at - 1) / 2])) {
        delays->heap[at] = delays->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    delays->heap[at] = slot;
}

static void sift_down(struct qsi_delays *delays, uint32_t at)
{
    uint16_t slot = delays->heap[at];
    uint32_t child;

    while ((child = 2 * at + 1) < delays->heap_count) {
        if (child + 1 < delays->heap_count &&
            is_before(delays, delays->heap[child + 1], delays->heap[child])) {
            child += 1;
        }
        if (!is_before(delays, delays->heap[child], slot)) {
            break;
        }
        delays->heap[at] = delays->heap[child];
        at = child;
    }
    delays->heap[at] = slot;
}

static void push(struct qsi_delays *delays, uint16_t slot)
{
    if (delays->is_ordered) {
        delays->heap[delays->heap_count++] = slot;
        sift_up(delays, delays->heap_count - 1);
    }
}

static void pop(struct qsi_delays *delays)
{
    QS_DCHECK(delays->is_ordered && delays->heap_count > 0);
    delays->heap[0] = delays->heap[--delays->heap_count];
    if (delays->heap_count > 0) {
        sift_down(delays, 0);
    }
}

/* The heap again, from what is delayed. */
static void make_heap(struct qsi_delays *delays, uint32_t word_count)
{
    delays->heap_count = 0;
    for (uint32_t at = 0; at < word_count; at++) {
        for (uint64_t bits = delays->bits[at]; bits != 0; bits &= bits - 1) {
            delays->heap[delays->heap_count++] =
                (uint16_t)(at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(bits));
        }
    }
    for (uint32_t at = delays->heap_count / 2; at-- > 0;) {
        sift_down(delays, at);
    }
    delays->is_ordered = true;
}

/* ---- delayed, or not any more ---- */

void qsi_queue_delay(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                     uint64_t mask, uint64_t due_us)
{
    struct qsi_delays *delays = segment->delays;
    uint32_t at = word - segment->word_base, count = qsi_popcount(mask);

    QS_DCHECK(delays != NULL && mask != 0);
    QS_DCHECK(due_us != 0);
    QS_ASSERT((qsi_segment_ready(queue, segment, word) & mask) == mask);
    delays->bits[at] |= mask;
    QS_DCHECK(segment->ready_count >= count);
    segment->ready_count -= count;
    segment->delayed_count += count;
    qsi_queue_fewer_ready(queue, count);
    queue->delayed_count += count;
    qsi_queue_count_unready(queue, segment, word, mask);
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        uint32_t slot = at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(rest);
        delays->dues[slot] = due_us;
        push(delays, (uint16_t)slot);
    }
    segment->earliest_due = due_us < segment->earliest_due ? due_us : segment->earliest_due;
    qsi_queue_update_earliest(queue, due_us);
    qsi_segment_dirty_state(segment);
}

void qsi_queue_update_dues(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot,
                           const struct qsi_run *run, uint32_t row, uint32_t count)
{
    const uint8_t *viewed = NULL;
    struct qsi_messages view;

    for (uint32_t i = 0; i < count; i++, slot++) {
        uint32_t record_row;
        const uint8_t *record = qsi_run_record(run, row + i, &record_row);
        uint64_t due_us;
        if (!qsi_messages_has_due(record)) {
            if (!run->messages.single_records) {
                return;
            }
            continue;
        }
        if (record != viewed) {
            qsi_messages_view(&view, record);
            viewed = record;
        }
        due_us = qsi_messages_due(&view, record_row);
        if (due_us != 0) {
            qsi_queue_delay(queue, segment, slot / QSI_WORD_BITS,
                            UINT64_C(1) << (slot % QSI_WORD_BITS), due_us);
        }
    }
}

/* They are delayed no longer. */
static void lift(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = qsi_popcount(mask);

    QS_DCHECK(segment->delays != NULL && mask != 0);
    QS_ASSERT((qsi_segment_delayed(segment, word) & mask) == mask);
    segment->delays->bits[word - segment->word_base] &= ~mask;
    QS_DCHECK(segment->delayed_count >= count);
    segment->delayed_count -= count;
    QS_DCHECK(queue->delayed_count >= count);
    queue->delayed_count -= count;
}

void qsi_queue_forget_delayed(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                              uint64_t mask)
{
    lift(queue, segment, word, mask);
    segment->delays->is_ordered = false;
    if (segment->delayed_count == 0) {
        make_heap(segment->delays, 0);
        segment->earliest_due = QSI_NEVER;
    }
}

void qsi_queue_undelay(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask)
{
    if (mask != 0) {
        qsi_queue_forget_delayed(queue, segment, word, mask);
        qsi_queue_count_in_ready(queue, segment, word, mask);
        qsi_segment_dirty_state(segment);
    }
}

uint64_t qsi_segment_due(const struct qsi_segment *segment, uint32_t slot)
{
    QS_DCHECK((qsi_segment_delayed(segment, slot / QSI_WORD_BITS) >> (slot % QSI_WORD_BITS) & 1) !=
              0);
    return segment->delays->dues[slot - segment->word_base * QSI_WORD_BITS];
}

/* ---- what is due ---- */

/* Of one segment. */
static uint64_t release_in_segment(struct qsi_queue *queue, struct qsi_segment *segment,
                                   uint64_t now_us, uint64_t count_max)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_delays *delays = segment->delays;
    uint64_t count = 0;

    if (!delays->is_ordered) {
        make_heap(delays, segment->word_count);
    }
    while (delays->heap_count > 0 && delays->dues[delays->heap[0]] <= now_us && count < count_max) {
        uint32_t word = segment->word_base + delays->heap[0] / QSI_WORD_BITS;
        uint64_t mask = UINT64_C(1) << (delays->heap[0] % QSI_WORD_BITS);
        pop(delays);
        lift(queue, segment, word, mask);
        qsi_queue_count_in_ready(queue, segment, word, mask);
        count += 1;
    }
    segment->earliest_due = delays->heap_count > 0 ? delays->dues[delays->heap[0]] : QSI_NEVER;
    QS_DCHECK(delays->heap_count == segment->delayed_count);
    if (count > 0) {
        qsi_segment_dirty_state(segment);
    }
    return count;
}

uint64_t qsi_queue_release_due(struct qsi_queue *queue, uint64_t now_us, uint64_t count_max,
                               struct qsi_segment **lacks_state_out)
{
    uint64_t count = 0;

    *lacks_state_out = NULL;
    for (uint32_t i = 0; queue->delayed_count > 0 && count < count_max && i < queue->segment_count;
         i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->earliest_due > now_us) {
            continue;
        }
        if (segment->settled == NULL) {
            *lacks_state_out = *lacks_state_out == NULL ? segment : *lacks_state_out;
        } else {
            count += release_in_segment(queue, segment, now_us, count_max - count);
        }
    }
    return count;
}

/* ---- states on the disk ---- */

qs_status qsi_queue_install_dues(struct qsi_queue *queue, struct qsi_segment *segment,
                                 const uint64_t *dues)
{
    uint32_t before = segment->delayed_count;

    if (dues != NULL) {
        QS_TRY(qsi_segment_cover_delays(queue, segment));
    }
    /* As if none were delayed, and then those that are. */
    segment->ready_count += before;
    segment->delayed_count = 0;
    segment->earliest_due = QSI_NEVER;
    for (uint32_t at = 0; dues != NULL && at < segment->word_count; at++) {
        uint64_t live = qsi_segment_live(queue, segment, segment->word_base + at);
        for (; live != 0; live &= live - 1) {
            uint32_t slot = at * QSI_WORD_BITS + (uint32_t)__builtin_ctzll(live);
            if (dues[slot] == 0) {
                continue;
            }
            segment->delays->dues[slot] = dues[slot];
            segment->delays->bits[at] |= live & -live;
            segment->delayed_count += 1;
            segment->earliest_due =
                dues[slot] < segment->earliest_due ? dues[slot] : segment->earliest_due;
        }
    }
    QS_DCHECK(segment->ready_count >= segment->delayed_count);
    segment->ready_count -= segment->delayed_count;
    if (dues != NULL) {
        segment->delays->is_ordered = false;
    }
    queue->delayed_count = queue->delayed_count - before + segment->delayed_count;
    if (segment->aside_for != NULL) {
        queue->aside_count += before;
        QS_DCHECK(queue->aside_count >= segment->delayed_count);
        queue->aside_count -= segment->delayed_count;
    } else if (before > segment->delayed_count) {
        qsi_queue_more_ready(queue, before - segment->delayed_count);
    } else if (before < segment->delayed_count) {
        qsi_queue_fewer_ready(queue, segment->delayed_count - before);
    }
    qsi_queue_update_earliest(queue, segment->earliest_due);
    return QS_OK;
}

void qsi_queue_release_unread(struct qsi_queue *queue, struct qsi_segment *segment)
{
    uint32_t index = qsi_queue_segment_index(queue, segment->number),
             count = segment->delayed_count;

    QS_DCHECK(segment->queue == queue);
    QS_ASSERT(segment->settled == NULL);
    segment->delayed_count = 0;
    segment->earliest_due = QSI_NEVER;
    segment->ready_count += count;
    QS_DCHECK(queue->delayed_count >= count);
    queue->delayed_count -= count;
    if (segment->aside_for != NULL) {
        queue->aside_count += count;
    } else {
        qsi_queue_more_ready(queue, count);
        queue->scan = index < queue->scan ? index : queue->scan;
    }
}

uint64_t *qsi_segment_copy_dues(const struct qsi_segment *segment, uint32_t words)
{
    uint64_t *dues = qsi_zalloc((size_t)words * QSI_WORD_BITS * sizeof *dues);

    QS_DCHECK(segment->delays != NULL && segment->word_base + segment->word_count <= words);
    for (uint32_t at = 0; dues != NULL && at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        for (uint64_t bits = segment->delays->bits[at]; bits != 0; bits &= bits - 1) {
            uint32_t bit = (uint32_t)__builtin_ctzll(bits);
            dues[(size_t)word * QSI_WORD_BITS + bit] =
                segment->delays->dues[at * QSI_WORD_BITS + bit];
        }
    }
    return dues;
}
