/* Extents of unacked deliveries.  Invariant: first_tag ascends; extents do not overlap; the first
 * one is not empty. */
#include "unacked.h"

#include "alloc.h"
#include "check.h"
#include "queue_take.h"

#include <string.h>

#define COMPACT_MIN 64

static struct qsi_extent *extent_at(const struct qsi_unacked *unacked, uint32_t index)
{
    QS_DCHECK(index < unacked->count || unacked->first + index < unacked->capacity);
    return &unacked->extents[unacked->first + index];
}

void qsi_unacked_fini(struct qsi_unacked *unacked)
{
    qsi_free(unacked->extents);
    memset(unacked, 0, sizeof *unacked);
}

qs_status qsi_unacked_reserve(struct qsi_unacked *unacked, uint32_t extent_count)
{
    uint32_t capacity = unacked->capacity < 16 ? 16 : unacked->capacity;
    struct qsi_extent *extents;

    QS_DCHECK(unacked->first + unacked->count <= unacked->capacity);
    if (unacked->first + unacked->count + extent_count <= unacked->capacity) {
        return QS_OK;
    }
    if (unacked->first > unacked->capacity / 2) {
        memmove(unacked->extents, unacked->extents + unacked->first,
                unacked->count * sizeof *unacked->extents);
        unacked->first = 0;
        return qsi_unacked_reserve(unacked, extent_count);
    }
    while (capacity < unacked->first + unacked->count + extent_count) {
        capacity *= 2;
    }
    extents = qsi_realloc(unacked->extents, capacity * sizeof *extents);
    if (extents == NULL) {
        return QS_ENOMEM;
    }
    unacked->extents = extents;
    unacked->capacity = capacity;
    QS_DCHECK(unacked->first + unacked->count + extent_count <= unacked->capacity);
    return QS_OK;
}

static bool extends_last(const struct qsi_extent *last, const struct qsi_container *container,
                         const struct qsi_stretch *stretch, uint64_t first_tag,
                         const void *consumer)
{
    return last->container == container && last->segment == stretch->segment &&
           last->consumer == consumer && last->first_tag + last->count == first_tag &&
           last->word == stretch->slot / QSI_WORD_BITS &&
           last->messages < UINT64_C(1) << (stretch->slot % QSI_WORD_BITS);
}

uint64_t qsi_unacked_add(struct qsi_unacked *unacked, struct qsi_container *container,
                         const struct qsi_stretch *stretch, void *consumer)
{
    uint64_t first_tag = qsi_unacked_skip(unacked, stretch->count);
    uint64_t mask = qsi_stretch_mask(stretch);
    struct qsi_extent *last = unacked->count > 0 ? extent_at(unacked, unacked->count - 1) : NULL;

    QS_DCHECK(stretch->count > 0 &&
              stretch->slot % QSI_WORD_BITS + stretch->count <= QSI_WORD_BITS);
    QS_DCHECK(last == NULL || last->first_tag + last->count <= first_tag);
    unacked->outstanding_count += stretch->count;
    if (last != NULL && last->outstanding != 0 &&
        extends_last(last, container, stretch, first_tag, consumer)) {
        last->messages |= mask;
        last->outstanding |= mask;
        last->count += stretch->count;
        QS_DCHECK(last->count <= QSI_WORD_BITS);
        return first_tag;
    }
    QS_ASSERT(unacked->first + unacked->count < unacked->capacity);
    *extent_at(unacked, unacked->count++) = (struct qsi_extent){
        .first_tag = first_tag,
        .messages = mask,
        .outstanding = mask,
        .container = container,
        .segment = stretch->segment,
        .consumer = consumer,
        .word = stretch->slot / QSI_WORD_BITS,
        .count = stretch->count,
    };
    return first_tag;
}

uint64_t qsi_unacked_add_offset(struct qsi_unacked *unacked, struct qsi_container *container,
                                uint64_t offset, void *consumer)
{
    uint64_t tag = qsi_unacked_skip(unacked, 1);
    struct qsi_extent *last = unacked->count > 0 ? extent_at(unacked, unacked->count - 1) : NULL;

    QS_DCHECK(last == NULL || last->first_tag + last->count <= tag);
    unacked->outstanding_count += 1;
    if (last != NULL && last->outstanding != 0 && last->segment == NULL &&
        last->consumer == consumer && last->container == container && last->count < QSI_WORD_BITS &&
        last->first_tag + last->count == tag && last->first_offset + last->count == offset) {
        last->messages |= UINT64_C(1) << last->count;
        last->outstanding |= UINT64_C(1) << last->count;
        last->count += 1;
        return tag;
    }
    QS_ASSERT(unacked->first + unacked->count < unacked->capacity);
    *extent_at(unacked, unacked->count++) = (struct qsi_extent){
        .first_tag = tag,
        .messages = 1,
        .outstanding = 1,
        .container = container,
        .first_offset = offset,
        .consumer = consumer,
        .count = 1,
    };
    return tag;
}

/* The index of the extent with tag, or of the first one after it. */
static uint32_t find(const struct qsi_unacked *unacked, uint64_t tag)
{
    uint32_t low = 0;
    uint32_t high = unacked->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct qsi_extent *extent = extent_at(unacked, middle);
        if (extent->first_tag + extent->count <= tag) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

const struct qsi_extent *qsi_unacked_find(const struct qsi_unacked *unacked, uint64_t tag)
{
    uint32_t index = find(unacked, tag);
    const struct qsi_extent *extent;

    if (index == unacked->count) {
        return NULL;
    }
    extent = extent_at(unacked, index);
    return tag >= extent->first_tag && (extent->outstanding & qsi_extent_message(extent, tag)) != 0
               ? extent
               : NULL;
}

bool qsi_unacked_has(const struct qsi_unacked *unacked, uint64_t tag)
{
    const struct qsi_extent *extent = qsi_unacked_find(unacked, tag);

    return extent != NULL && (extent->pending_in_tx & qsi_extent_message(extent, tag)) == 0;
}

/* The outstanding messages of an extent within [first_tag, last_tag].  REQUIRES that the ranges
 * overlap. */
static uint64_t bits_within(const struct qsi_extent *extent, uint64_t first_tag, uint64_t last_tag)
{
    uint64_t bits = extent->outstanding;

    QS_DCHECK((extent->outstanding & extent->withheld) == 0);
    QS_DCHECK((extent->pending_in_tx & ~extent->outstanding) == 0);

    QS_DCHECK(first_tag < extent->first_tag + extent->count && last_tag >= extent->first_tag);
    if (first_tag > extent->first_tag) {
        bits &= ~(qsi_extent_message(extent, first_tag) - 1);
    }
    if (last_tag < extent->first_tag + extent->count - 1) {
        bits &= qsi_extent_message(extent, last_tag + 1) - 1;
    }
    return bits;
}

bool qsi_unacked_next(const struct qsi_unacked *unacked, uint64_t from, uint64_t *tag_out)
{
    for (uint32_t i = find(unacked, from); i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits = bits_within(extent, from, UINT64_MAX);
        if (bits != 0) {
            *tag_out = qsi_extent_tag(extent, bits);
            return true;
        }
    }
    return false;
}

const struct qsi_extent *qsi_unacked_find_stream(const struct qsi_unacked *unacked,
                                                 uint64_t first_tag, uint64_t last_tag)
{
    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        if (extent->first_tag > last_tag) {
            break;
        }
        if (extent->segment == NULL &&
            (bits_within(extent, first_tag, last_tag) & ~extent->pending_in_tx) != 0) {
            return extent;
        }
    }
    return NULL;
}

bool qsi_unacked_first_offset(const struct qsi_unacked *unacked, const void *consumer,
                              uint64_t *offset_out)
{
    bool is_found = false;

    for (uint32_t i = 0; i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t offset;
        if (extent->consumer != consumer || extent->outstanding == 0) {
            continue;
        }
        QS_DCHECK(extent->segment == NULL);
        offset = extent->first_offset + (uint32_t)__builtin_ctzll(extent->outstanding);
        *offset_out = is_found && *offset_out < offset ? *offset_out : offset;
        is_found = true;
    }
    return is_found;
}

void qsi_unacked_set_pending(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag)
{
    QS_DCHECK(first_tag <= last_tag);
    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        struct qsi_extent *extent = extent_at(unacked, i);
        if (extent->first_tag > last_tag) {
            break;
        }
        extent->pending_in_tx |= bits_within(extent, first_tag, last_tag);
    }
    if (first_tag <= 1 || first_tag <= unacked->free_from) {
        unacked->free_from = last_tag + 1;
    }
}

void qsi_unacked_give_back(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag)
{
    QS_DCHECK(first_tag <= last_tag);
    unacked->free_from = 0;
    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        struct qsi_extent *extent = extent_at(unacked, i);
        if (extent->first_tag > last_tag) {
            break;
        }
        extent->pending_in_tx &= ~bits_within(extent, first_tag, last_tag);
    }
}

bool qsi_unacked_next_free(const struct qsi_unacked *unacked, uint64_t from, uint64_t *first_out,
                           uint64_t *last_out)
{
    uint32_t i = find(unacked, from);

    *first_out = from;
    *last_out = unacked->last_tag;
    while (i < unacked->count) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t pending = 0, next;
        if (*first_out < extent->first_tag + extent->count) {
            pending = extent->pending_in_tx & bits_within(extent, *first_out, UINT64_MAX);
        }
        if (pending == 0) {
            i += 1;
            continue;
        }
        next = qsi_extent_tag(extent, pending);
        if (next > *first_out) {
            *last_out = next - 1;
            break;
        }
        *first_out = next + 1;
    }
    return *first_out <= *last_out;
}

static bool is_empty(const struct qsi_extent *extent)
{
    return (extent->outstanding | extent->withheld) == 0;
}

/* Removes empty extents: from the front at once, from the middle when most extents are empty. */
static void drop_empty(struct qsi_unacked *unacked)
{
    uint32_t kept = 0;

    while (unacked->count > 0 && is_empty(extent_at(unacked, 0))) {
        QS_DCHECK(unacked->empty_count > 0);
        unacked->first += 1;
        QS_DCHECK(unacked->count > 0);
        unacked->count -= 1;
        unacked->empty_count -= 1;
    }
    if (unacked->count == 0) {
        QS_DCHECK(unacked->outstanding_count == 0 && unacked->withheld_count == 0);
        unacked->first = 0;
    }
    if (unacked->empty_count < COMPACT_MIN || unacked->empty_count < unacked->count / 2) {
        return;
    }
    for (uint32_t i = 0; i < unacked->count; i++) {
        if (!is_empty(extent_at(unacked, i))) {
            *extent_at(unacked, kept++) = *extent_at(unacked, i);
        }
    }
    QS_DCHECK(kept + unacked->empty_count == unacked->count);
    unacked->count = kept;
    unacked->empty_count = 0;
}

void qsi_unacked_take(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                      qsi_extent_visitor *visit, void *context)
{
    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits;
        if (extent->first_tag > last_tag) {
            break;
        }
        bits = bits_within(extent, first_tag, last_tag);
        if (bits == 0) {
            continue;
        }
        QS_DCHECK(unacked->outstanding_count >= qsi_popcount(bits));
        extent->outstanding &= ~bits;
        extent->pending_in_tx &= ~bits;
        unacked->outstanding_count -= qsi_popcount(bits);
        unacked->empty_count += is_empty(extent) ? 1 : 0;
        visit(context, extent, bits);
    }
    drop_empty(unacked);
}

void qsi_unacked_withhold(struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag,
                          qsi_extent_visitor *visit, void *context)
{
    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits;
        if (extent->first_tag > last_tag) {
            break;
        }
        bits = bits_within(extent, first_tag, last_tag) & ~extent->pending_in_tx;
        if (bits == 0) {
            continue;
        }
        QS_DCHECK(unacked->outstanding_count >= qsi_popcount(bits));
        extent->outstanding &= ~bits;
        extent->withheld |= bits;
        unacked->outstanding_count -= qsi_popcount(bits);
        unacked->withheld_count += qsi_popcount(bits);
        visit(context, extent, bits);
    }
}

void qsi_unacked_take_withheld(struct qsi_unacked *unacked, qsi_extent_visitor *visit,
                               void *context)
{
    for (uint32_t i = 0; unacked->withheld_count > 0 && i < unacked->count; i++) {
        struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits = extent->withheld;
        if (bits == 0) {
            continue;
        }
        QS_DCHECK(unacked->withheld_count >= qsi_popcount(bits));
        extent->withheld = 0;
        unacked->withheld_count -= qsi_popcount(bits);
        unacked->empty_count += is_empty(extent) ? 1 : 0;
        visit(context, extent, bits);
    }
    drop_empty(unacked);
}

uint64_t qsi_unacked_runs(const struct qsi_unacked *unacked, uint64_t first_tag, uint64_t last_tag)
{
    uint64_t runs = 0;

    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits;
        if (extent->first_tag > last_tag) {
            break;
        }
        bits = bits_within(extent, first_tag, last_tag);
        runs += qsi_popcount(bits & ~(bits << 1));
    }
    return runs;
}

static bool counts_deliveries(const struct qsi_extent *extent)
{
    const struct qsi_queue *queue = qsi_container_queue(extent->container);

    return queue != NULL && queue->counts_deliveries;
}

uint64_t qsi_unacked_stretches(const struct qsi_unacked *unacked, uint64_t first_tag,
                               uint64_t last_tag, bool requeued)
{
    uint64_t stretches = 0;

    for (uint32_t i = find(unacked, first_tag); i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        uint64_t bits, of_extent;
        if (extent->first_tag > last_tag) {
            break;
        }
        bits = extent->segment != NULL ? bits_within(extent, first_tag, last_tag) : 0;
        if (bits != 0) { /* transient messages divide stretches */
            bits = qsi_segment_journalled(extent->segment, extent->word, bits);
        }
        of_extent = qsi_popcount(bits & ~(bits << 1)); /* the first bits of stretches */
        if (requeued && bits != 0 && counts_deliveries(extent)) {
            /* at worst, every second message was delivered too often */
            of_extent = (of_extent + qsi_popcount(bits)) / 2;
        }
        stretches += of_extent;
    }
    return stretches;
}

/* ---- debug builds ---- */

#ifndef NDEBUG
void qsi_unacked_check(const struct qsi_unacked *unacked)
{
    uint64_t outstanding = 0, withheld = 0, next_tag = 1;
    uint32_t empty_count = 0;

    QS_DCHECK(unacked->first + unacked->count <= unacked->capacity);
    QS_DCHECK(unacked->count == 0 || !is_empty(extent_at(unacked, 0)));
    for (uint32_t i = 0; i < unacked->count; i++) {
        const struct qsi_extent *extent = extent_at(unacked, i);
        QS_DCHECK(extent->first_tag >= next_tag && extent->count > 0);
        QS_DCHECK(qsi_popcount(extent->messages) == extent->count);
        QS_DCHECK(((extent->outstanding | extent->withheld) & ~extent->messages) == 0);
        QS_DCHECK((extent->outstanding & extent->withheld) == 0);
        QS_DCHECK((extent->pending_in_tx & ~extent->outstanding) == 0);
        next_tag = extent->first_tag + extent->count;
        outstanding += qsi_popcount(extent->outstanding);
        withheld += qsi_popcount(extent->withheld);
        empty_count += is_empty(extent) ? 1 : 0;
    }
    QS_DCHECK(next_tag <= unacked->last_tag + 1);
    QS_DCHECK(unacked->outstanding_count == outstanding);
    QS_DCHECK(unacked->withheld_count == withheld && unacked->empty_count == empty_count);
}
#endif
