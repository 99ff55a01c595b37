/* Segments: memory for the states of messages, room for new messages, and retiring.  Invariants:
 * segments are in order of their numbers; a segment's counts are those of its bitmaps, which cover
 * words [word_base, word_base + word_count), with everything before settled and nothing after
 * assigned; the segment of next_seq has its state in memory if it exists; a segment with running
 * jobs is not retired. */
#include "alloc.h"
#include "check.h"
#include "queue_columns.h"
#include "queue_delays.h"
#include "queue_internal.h"

#include <string.h>

/* ---- the state of a segment ---- */

/* The bytes of the state in the budget. */
static uint64_t state_ram(const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t slots = (uint64_t)segment->word_count * QSI_WORD_BITS;

    return segment->settled == NULL
               ? 0
               : 3 * slots / 8 + (segment->transient != NULL ? slots / 8 : 0) +
                     (segment->deliveries != NULL ? slots : 0) +
                     (segment->expiries != NULL ? slots * sizeof(uint64_t) : 0) +
                     (segment->sizes != NULL ? slots * sizeof(uint32_t) : 0) +
                     (segment->delays != NULL ? qsi_delays_ram(slots) : 0);
}

/* A longer copy of a column; fill: each byte of the new part.  NULL: out of memory. */
static void *widen_column(const void *column, size_t old_bytes, size_t bytes, int fill)
{
    uint8_t *wide = qsi_alloc(bytes);

    QS_DCHECK(old_bytes <= bytes);
    if (wide != NULL) {
        memcpy(wide, column, old_bytes);
        memset(wide + old_bytes, fill, bytes - old_bytes);
    }
    return wide;
}

/* The columns of a segment's state; NULL: it has none, but for the bits. */
struct columns {
    uint64_t *bits; /* settled, out, seen: one behind the other */
    uint64_t *transient;
    uint8_t *deliveries;
    uint64_t *expiries;
    uint32_t *sizes;
    struct qsi_delays *delays;
};

static void free_columns(const struct columns *columns)
{
    qsi_free(columns->bits);
    qsi_free(columns->transient);
    qsi_free(columns->deliveries);
    qsi_free(columns->expiries);
    qsi_free(columns->sizes);
    qsi_delays_free(columns->delays);
}

/* Wider copies of the segment's columns.  QS_ENOMEM: none. */
static qs_status widen_columns(struct columns *columns, const struct qsi_segment *segment,
                               uint32_t old, uint32_t word_count) QSI_REQUIRES(qsi_store_mutex)
{
    size_t old_slots = (size_t)old * QSI_WORD_BITS, slots = (size_t)word_count * QSI_WORD_BITS;

    QS_DCHECK(word_count >= old);
    *columns = (struct columns){.bits = qsi_zalloc(3 * (size_t)word_count * sizeof(uint64_t))};
    if (segment->transient != NULL) {
        columns->transient = widen_column(segment->transient, old * sizeof(uint64_t),
                                          word_count * sizeof(uint64_t), 0);
    }
    if (segment->deliveries != NULL) {
        columns->deliveries = widen_column(segment->deliveries, old_slots, slots, 0);
    }
    if (segment->expiries != NULL) {
        columns->expiries = widen_column(segment->expiries, old_slots * sizeof(uint64_t),
                                         slots * sizeof(uint64_t), 0xff);
    }
    if (segment->sizes != NULL) {
        columns->sizes =
            widen_column(segment->sizes, old_slots * sizeof(uint32_t), slots * sizeof(uint32_t), 0);
    }
    if (segment->delays != NULL) {
        columns->delays = qsi_delays_widen(segment->delays, old, word_count);
    }
    if (columns->bits == NULL || (segment->transient != NULL && columns->transient == NULL) ||
        (segment->deliveries != NULL && columns->deliveries == NULL) ||
        (segment->expiries != NULL && columns->expiries == NULL) ||
        (segment->sizes != NULL && columns->sizes == NULL) ||
        (segment->delays != NULL && columns->delays == NULL)) {
        free_columns(columns);
        return QS_ENOMEM;
    }
    return QS_OK;
}

/* Widens the columns to word_count words from their base on. */
static qs_status widen(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word_count)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t old = segment->settled != NULL ? segment->word_count : 0;
    struct columns columns;

    QS_DCHECK(word_count >= old);
    QS_TRY(widen_columns(&columns, segment, old, word_count));
    qsi_budget_sub(queue->shared->budget, state_ram(segment));
    if (old > 0) {
        memcpy(columns.bits, segment->settled, old * sizeof *columns.bits);
        memcpy(columns.bits + word_count, segment->out, old * sizeof *columns.bits);
        memcpy(columns.bits + 2 * (size_t)word_count, segment->seen, old * sizeof *columns.bits);
    }
    free_columns(&(struct columns){segment->settled, segment->transient, segment->deliveries,
                                   segment->expiries, segment->sizes, segment->delays});
    segment->settled = columns.bits;
    segment->out = columns.bits + word_count;
    segment->seen = columns.bits + 2 * (size_t)word_count;
    segment->transient = columns.transient;
    segment->deliveries = columns.deliveries;
    segment->expiries = columns.expiries;
    segment->sizes = columns.sizes;
    segment->delays = columns.delays;
    segment->word_count = word_count;
    QS_DCHECK(segment->word_base + word_count <= qsi_bitmap_words(queue->shared->entries));
    qsi_budget_add(queue->shared->budget, state_ram(segment));
    return QS_OK;
}

qs_status qsi_segment_make_state(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word_base, uint32_t word_count)
{
    QS_ASSERT(segment->settled == NULL);
    QS_DCHECK(word_base + word_count <= qsi_bitmap_words(queue->shared->entries));
    segment->word_base = segment->first_word = word_base;
    return widen(queue, segment, word_count);
}

void qsi_segment_free_state(struct qsi_budget *budget, struct qsi_segment *segment)
{
    qsi_budget_sub(budget, state_ram(segment));
    qsi_free(segment->settled);
    qsi_free(segment->transient);
    qsi_free(segment->deliveries);
    qsi_free(segment->expiries);
    qsi_free(segment->sizes);
    qsi_delays_free(segment->delays);
    segment->settled = segment->out = segment->seen = segment->transient = NULL;
    segment->deliveries = NULL;
    segment->expiries = NULL;
    segment->sizes = NULL;
    segment->delays = NULL;
}

void qsi_segment_drop_state(struct qsi_queue *queue, struct qsi_segment *segment)
{
    QS_DCHECK(segment->settled != NULL && segment->busy == 0);
    QS_ASSERT(segment->out_count == 0 && qsi_segment_is_reported(segment));
    segment->paged_bytes = qsi_segment_ready_bytes(queue, segment);
    qsi_segment_free_state(queue->shared->budget, segment);
    if (!segment->has_releases) {
        qsi_segment_leave_releases(queue, segment);
    }
}

void qsi_segment_free(struct qsi_segment *segment)
{
    QS_DCHECK(segment->busy == 0);
    qsi_list_remove(&segment->in_shared);
    qsi_segment_free_state(NULL, segment);
    qsi_segment_free_formers(segment);
    qsi_free(segment->releases);
    qsi_free(segment);
}

/* ---- the array of segments ---- */

qs_status qsi_queue_append_segment(struct qsi_queue *queue, uint64_t number,
                                   struct qsi_segment **segment_out)
{
    struct qsi_segment *segment;

    QS_DCHECK(queue->segment_count == 0 || qsi_queue_last_segment(queue)->number < number);
    QS_TRY(qsi_reserve_pointers((void ***)(void *)&queue->segments, &queue->first_segment,
                                queue->segment_count, &queue->segment_capacity, 1));
    segment = qsi_zalloc(sizeof *segment);
    if (segment == NULL) {
        return QS_ENOMEM;
    }
    segment->queue = queue;
    segment->is_durable = queue->container.durable;
    segment->number = number;
    segment->file.queue_id = segment->transient_file.queue_id = queue->container.id;
    segment->file.number = segment->transient_file.number = number;
    if (number == queue->retired_number) {
        segment->file.generation = segment->transient_file.generation = queue->retired_generation;
    }
    segment->earliest = segment->earliest_due = QSI_NEVER;
    qsi_list_init(&segment->in_shared);
    queue->segments[queue->first_segment + queue->segment_count++] = segment;
    *segment_out = segment;
    return QS_OK;
}

/* ---- room for what is to come ---- */

qs_status qsi_queue_cover(struct qsi_queue *queue, uint64_t number, uint32_t first_slot,
                          uint32_t end_slot)
{
    struct qsi_segment *segment = qsi_queue_last_segment(queue);
    uint32_t words;

    QS_DCHECK(first_slot <= end_slot && end_slot <= queue->shared->entries);
    if (segment == NULL || segment->number < number) {
        uint32_t base = first_slot / QSI_WORD_BITS;
        words = qsi_bitmap_words(end_slot) - base;
        words = words > 0 ? words : 1;
        QS_TRY(qsi_queue_append_segment(queue, number, &segment));
        segment->word_base = segment->first_word = base;
        if (widen(queue, segment, words) != QS_OK) {
            QS_DCHECK(queue->segment_count > 0);
            queue->segment_count -= 1;
            qsi_segment_free(segment);
            return QS_ENOMEM;
        }
        segment->settled[0] = qsi_low_bits(first_slot % QSI_WORD_BITS);
        segment->state_dirty = first_slot > 0;
        return QS_OK;
    }
    QS_ASSERT(segment->number == number && segment->settled != NULL);
    words = qsi_bitmap_words(end_slot) - segment->word_base;
    if (words <= segment->word_count) {
        return QS_OK;
    }
    words = words < 2 * segment->word_count ? 2 * segment->word_count : words;
    if (segment->word_base + words > qsi_bitmap_words(queue->shared->entries)) {
        words = qsi_bitmap_words(queue->shared->entries) - segment->word_base;
    }
    return widen(queue, segment, words);
}

void qsi_queue_drop_reserved(struct qsi_queue *queue)
{
    struct qsi_segment *last = qsi_queue_last_segment(queue);

    QS_DCHECK(queue->scan <= queue->segment_count);
    for (; last != NULL && last->number > queue->container.next_seq / queue->shared->entries;
         last = qsi_queue_last_segment(queue)) {
        QS_ASSERT(qsi_segment_live_count(last) == 0 && last->busy == 0);
        QS_DCHECK(queue->segment_count > 0);
        queue->segment_count -= 1;
        qsi_segment_free_state(queue->shared->budget, last);
        qsi_segment_free(last);
    }
    queue->scan = queue->scan < queue->segment_count ? queue->scan : queue->segment_count;
}

qs_status qsi_queue_cover_next(struct qsi_queue *queue, uint64_t count)
{
    uint32_t entries = queue->shared->entries;
    uint64_t seq = queue->container.next_seq;

    if (count > 0 && qsi_queue_find_segment(queue, seq / entries) == NULL) {
        qsi_queue_drop_reserved(queue); /* the one before them ended meanwhile */
    }
    queue->reserved_seq = seq + count > queue->reserved_seq ? seq + count : queue->reserved_seq;
    while (count > 0) {
        uint32_t slot = (uint32_t)(seq & (entries - 1));
        uint32_t here = count < entries - slot ? (uint32_t)count : entries - slot;
        uint64_t number = seq / entries;
        struct qsi_segment *last = qsi_queue_last_segment(queue);
        if (last != NULL && last->number > number) { /* reserved before */
            struct qsi_segment *found = qsi_queue_find_segment(queue, number);
            QS_ASSERT(found != NULL);
            if (qsi_bitmap_words(slot + here) > found->word_base + found->word_count) {
                QS_TRY(widen(queue, found, qsi_bitmap_words(entries) - found->word_base));
            }
        } else {
            QS_TRY(qsi_queue_cover(queue, number, slot, slot + here));
        }
        seq += here;
        count -= here;
    }
    return QS_OK;
}

/* ---- retiring ---- */

static bool has_file(const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    return segment->file.heap_end > 0 || segment->transient_file.heap_end > 0 ||
           segment->former_count > 0;
}

void qsi_segment_retire(struct qsi_queue *queue, struct qsi_segment *segment)
{
    struct qsi_queue_shared *shared = queue->shared;
    uint32_t index = qsi_queue_segment_index(queue, segment->number);

    QS_DCHECK(segment->queue == queue && segment->busy == 0);
    QS_DCHECK(qsi_segment_live_count(segment) == 0);
    QS_ASSERT(index < queue->segment_count && qsi_queue_segment_at(queue, index) == segment);
    if (index == 0) {
        queue->first_segment += 1;
    } else {
        struct qsi_segment **at = queue->segments + queue->first_segment + index;
        memmove(at, at + 1, (queue->segment_count - index - 1) * sizeof *at);
    }
    QS_DCHECK(queue->segment_count > 0);
    queue->segment_count -= 1;
    queue->scan -= index < queue->scan ? 1 : 0;
    qsi_segment_free_state(shared->budget, segment);
    qsi_segment_leave_releases(queue, segment);
    qsi_list_remove(&segment->in_shared);
    if (!has_file(segment)) {
        qsi_segment_free(segment);
        return;
    }
    if ((segment->number + 1) * shared->entries >
        queue->container.next_seq) { /* there will be another one */
        queue->retired_number = segment->number;
        queue->retired_generation =
            1 + (segment->file.generation > segment->transient_file.generation
                     ? segment->file.generation
                     : segment->transient_file.generation);
    }
    segment->queue = NULL;
    qsi_list_push_back(&shared->retired, &segment->in_shared);
}

static bool is_reserved(const struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->reserved_seq > queue->container.next_seq &&
           queue->reserved_seq > qsi_segment_first_seq(queue->shared, segment);
}

void qsi_segment_retire_if_done(struct qsi_queue *queue, struct qsi_segment *segment)
{
    uint64_t end = (segment->number + 1) * queue->shared->entries;

    QS_DCHECK(segment->queue == queue);
    if (qsi_segment_live_count(segment) > 0 || segment->busy > 0) {
        return;
    }
    /* A segment that is being filled stays, unless its file holds space; one that is about to be
     * filled stays in any case. */
    if (end > queue->container.next_seq && (!has_file(segment) || is_reserved(queue, segment))) {
        return;
    }
    qsi_segment_retire(queue, segment);
}
