/* Publisher confirms.  Invariant: pending is in order of number and of LSN. */
#include "confirms.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

static bool has_room(const struct qsi_number_ranges *ranges, uint64_t more)
{
    return ranges->first + ranges->count + more <= ranges->capacity;
}

static qs_status grow(struct qsi_number_ranges *ranges, uint64_t more)
{
    uint64_t capacity = ranges->capacity < 16 ? 16 : ranges->capacity * UINT64_C(2);
    struct qsi_number_range *items;

    QS_DCHECK(!has_room(ranges, more));
    if (ranges->first > ranges->capacity / 2) {
        memmove(ranges->items, ranges->items + ranges->first,
                ranges->count * sizeof *ranges->items);
        ranges->first = 0;
        if (has_room(ranges, more)) {
            return QS_OK;
        }
    }
    while (capacity < ranges->first + ranges->count + more) {
        capacity *= 2;
    }
    items = capacity <= UINT32_MAX ? qsi_realloc(ranges->items, capacity * sizeof *items) : NULL;
    if (items == NULL) {
        return QS_ENOMEM;
    }
    QS_DCHECK(has_room(ranges, 0));
    ranges->items = items;
    ranges->capacity = (uint32_t)capacity;
    return QS_OK;
}

static qs_status reserve(struct qsi_number_ranges *ranges, uint64_t more)
{
    return QS_LIKELY(has_room(ranges, more)) ? QS_OK : grow(ranges, more);
}

static struct qsi_number_range *front(const struct qsi_number_ranges *ranges)
{
    QS_DCHECK(ranges->count > 0);
    return &ranges->items[ranges->first];
}

static void pop_front(struct qsi_number_ranges *ranges)
{
    QS_DCHECK(ranges->count > 0);
    ranges->first += 1;
    ranges->count -= 1;
    if (ranges->count == 0) {
        ranges->first = 0;
    }
}

/* The index of the first range that ends at or after number. */
static uint32_t find(const struct qsi_number_ranges *ranges, uint64_t number)
{
    const struct qsi_number_range *items = ranges->items + ranges->first;
    uint32_t low = 0, high = ranges->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle].last < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void remove_at(struct qsi_number_ranges *ranges, uint32_t index)
{
    struct qsi_number_range *at = ranges->items + ranges->first + index;

    QS_DCHECK(index < ranges->count);
    if (index <= ranges->count / 2) { /* move the shorter part */
        memmove(ranges->items + ranges->first + 1, ranges->items + ranges->first,
                index * sizeof *at);
        pop_front(ranges);
        return;
    }
    memmove(at, at + 1, (ranges->count - index - 1) * sizeof *at);
    ranges->count -= 1;
}

/* Adds a range; adjacent ranges with the same LSN are joined. */
static void push(struct qsi_number_ranges *ranges, uint64_t first, uint64_t last, uint64_t lsn)
{
    struct qsi_number_range *tail =
        ranges->count > 0 ? &ranges->items[ranges->first + ranges->count - 1] : NULL;

    QS_DCHECK(first <= last && (tail == NULL || (tail->last < first && tail->lsn <= lsn)));
    if (tail != NULL && tail->last + 1 == first && tail->lsn == lsn) {
        tail->last = last;
        return;
    }
    QS_ASSERT(ranges->first + ranges->count < ranges->capacity);
    ranges->items[ranges->first + ranges->count++] =
        (struct qsi_number_range){first, last, {.lsn = lsn}};
}

/* The same for messages that a queue refused: adjacent ranges of the same queue are joined. */
static void push_refused(struct qsi_number_ranges *ranges, uint64_t first, uint64_t last,
                         uint64_t queue_id)
{
    struct qsi_number_range *tail =
        ranges->count > 0 ? &ranges->items[ranges->first + ranges->count - 1] : NULL;

    QS_DCHECK(first <= last && queue_id != 0 && (tail == NULL || tail->last < first));
    if (tail != NULL && tail->last + 1 == first && tail->queue_id == queue_id) {
        tail->last = last;
        return;
    }
    QS_ASSERT(ranges->first + ranges->count < ranges->capacity);
    ranges->items[ranges->first + ranges->count++] =
        (struct qsi_number_range){first, last, {.queue_id = queue_id}};
}

void qsi_confirms_fini(struct qsi_confirms *confirms)
{
    qsi_free(confirms->pending.items);
    qsi_free(confirms->immediate.items);
    qsi_free(confirms->refused.items);
    memset(confirms, 0, sizeof *confirms);
}

/* Joins immediate numbers that continue the range. */
static void absorb_immediate(struct qsi_confirms *confirms, struct qsi_number_range *range)
{
    struct qsi_number_ranges *immediate = &confirms->immediate;
    uint32_t at = immediate->count > 0 ? find(immediate, range->last + 1) : 0;

    if (at < immediate->count && immediate->items[immediate->first + at].first == range->last + 1) {
        range->last = immediate->items[immediate->first + at].last;
        remove_at(immediate, at);
    }
}

/* Joins durable ranges without a gap between them.  A refused number is a gap, because it had its
 * verdict already. */
static void join_durable(struct qsi_confirms *confirms, uint64_t durable_lsn)
{
    struct qsi_number_ranges *pending = &confirms->pending;
    struct qsi_number_range *items = pending->count > 0 ? &pending->items[pending->first] : NULL;
    uint32_t kept = 0;
    uint32_t at = 1;

    QS_DCHECK(pending->first + pending->count <= pending->capacity);
    for (; at < pending->count && items[at].lsn <= durable_lsn; at++) {
        absorb_immediate(confirms, &items[kept]);
        if (items[kept].last + 1 == items[at].first) {
            items[kept].last = items[at].last;
            items[kept].lsn = items[at].lsn;
        } else {
            items[++kept] = items[at];
        }
    }
    if (at > kept + 1) {
        memmove(items + kept + 1, items + at, (pending->count - at) * sizeof *items);
        QS_DCHECK(pending->count >= at - (kept + 1));
        pending->count -= at - (kept + 1);
    }
}

qs_status qsi_confirms_reserve(struct qsi_confirms *confirms, uint64_t durable_lsn)
{
    if (QS_UNLIKELY(!has_room(&confirms->pending, 1) || !has_room(&confirms->immediate, 1))) {
        join_durable(confirms, durable_lsn);
    }
    QS_TRY(reserve(&confirms->pending, 1));
    return reserve(&confirms->immediate, 1);
}

qs_status qsi_confirms_reserve_batch(struct qsi_confirms *confirms, uint64_t count,
                                     uint64_t durable_lsn)
{
    uint64_t ranges = count / 2 + 1; /* accepted and refused messages alternate at worst */

    if (!has_room(&confirms->pending, ranges) || !has_room(&confirms->immediate, ranges)) {
        join_durable(confirms, durable_lsn);
    }
    QS_TRY(reserve(&confirms->pending, ranges));
    QS_TRY(reserve(&confirms->immediate, ranges));
    return reserve(&confirms->refused, count); /* each by another queue at worst */
}

uint64_t qsi_confirms_add(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn)
{
    uint64_t first = confirms->last_number + 1;

    QS_DCHECK(confirms->reported <= confirms->last_number);
    QS_ASSERT(count > 0);
    confirms->last_number += count;
    if (lsn == 0 && confirms->pending.count > 0) {
        push(&confirms->immediate, first, confirms->last_number, 0);
    } else {
        push(&confirms->pending, first, confirms->last_number, lsn);
    }
    return first;
}

uint64_t qsi_confirms_add_batch(struct qsi_confirms *confirms, uint64_t count, uint64_t lsn,
                                const uint64_t *refusing)
{
    uint64_t first = confirms->last_number + 1;

    if (refusing == NULL) {
        return qsi_confirms_add(confirms, count, lsn);
    }
    for (uint64_t row = 0; row < count;) {
        uint64_t end = row + 1;
        while (end < count && refusing[end] == refusing[row]) {
            end += 1;
        }
        if (refusing[row] != 0) {
            push_refused(&confirms->refused, first + row, first + end - 1, refusing[row]);
            confirms->last_number = first + end - 1;
            confirms->nacked = true;
        } else {
            qsi_confirms_add(confirms, end - row, lsn);
        }
        row = end;
    }
    return first;
}

/* Inserts a number before index, and joins it with its neighbours.  REQUIRES room. */
static void insert_at(struct qsi_number_ranges *ranges, uint32_t index, uint64_t number)
{
    struct qsi_number_range *at = ranges->items + ranges->first + index;
    bool follows = index > 0 && at[-1].last + 1 == number;

    QS_ASSERT(has_room(ranges, 1) && index <= ranges->count);
    if (index < ranges->count && at->first == number + 1) {
        at->first = follows ? at[-1].first : number;
        if (follows) {
            remove_at(ranges, index - 1);
        }
        return;
    }
    if (follows) {
        at[-1].last = number;
        return;
    }
    memmove(at + 1, at, (ranges->count - index) * sizeof *at);
    *at = (struct qsi_number_range){number, number, {.lsn = 0}};
    ranges->count += 1;
}

bool qsi_confirms_early(struct qsi_confirms *confirms, uint64_t number)
{
    struct qsi_number_ranges *pending = &confirms->pending;
    uint32_t index = find(pending, number);
    const struct qsi_number_range *range;

    QS_DCHECK(number > 0 && number <= confirms->last_number);
    if (index == pending->count) {
        return false;
    }
    range = &pending->items[pending->first + index];
    if (range->first != number || range->last != number ||
        reserve(&confirms->immediate, 1) != QS_OK) {
        return false;
    }
    remove_at(pending, index);
    insert_at(&confirms->immediate, find(&confirms->immediate, number), number);
    confirms->has_early = true;
    return true;
}

bool qsi_confirms_next_pending(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                               uint64_t from, uint64_t upto, uint64_t *first_out,
                               uint64_t *last_out)
{
    const struct qsi_number_ranges *pending = &confirms->pending;
    const struct qsi_number_range *range = pending->items + pending->first + find(pending, from);
    const struct qsi_number_range *end = pending->items + pending->first + pending->count;

    while (range < end && range->lsn <= durable_lsn) {
        range += 1;
    }
    if (range == end || range->first > upto) {
        return false;
    }
    *first_out = range->first < from ? from : range->first;
    for (*last_out = range->last; ++range < end && range->first == *last_out + 1;) {
        *last_out = range->last;
    }
    *last_out = *last_out < upto ? *last_out : upto;
    return true;
}

uint64_t qsi_confirms_last_lsn(const struct qsi_confirms *confirms)
{
    const struct qsi_number_ranges *pending = &confirms->pending;

    return pending->count > 0 ? pending->items[pending->first + pending->count - 1].lsn : 0;
}

/* Takes pending ranges up to upto_lsn; *last_out: the last number of these, up to which all are
 * decided. */
static uint64_t take_pending(struct qsi_confirms *confirms, uint64_t upto_lsn, uint64_t *last_out)
{
    uint64_t count = 0;

    while (confirms->pending.count > 0 && front(&confirms->pending)->lsn <= upto_lsn) {
        const struct qsi_number_range *range = front(&confirms->pending);
        count += range->last - range->first + 1;
        *last_out = range->last;
        pop_front(&confirms->pending);
    }
    return count;
}

/* Takes immediate numbers that a multiple ack includes. */
static uint64_t take_covered(struct qsi_confirms *confirms, uint64_t upto)
{
    uint64_t count = 0;

    while (confirms->immediate.count > 0 && front(&confirms->immediate)->first < upto) {
        const struct qsi_number_range *range = front(&confirms->immediate);
        QS_ASSERT(range->last < upto);
        count += range->last - range->first + 1;
        pop_front(&confirms->immediate);
    }
    return count;
}

/* Takes the first number of a list. */
static void take_one(struct qsi_number_ranges *ranges, uint64_t *number_out, bool *multiple_out,
                     uint64_t *count_out)
{
    struct qsi_number_range *range = front(ranges);

    QS_DCHECK(range->first <= range->last);
    *number_out = range->first;
    *multiple_out = false;
    *count_out = 1;
    if (range->first++ == range->last) {
        pop_front(ranges);
    }
}

bool qsi_confirms_has_verdict(const struct qsi_confirms *confirms, uint64_t durable_lsn,
                              bool failed)
{
    return confirms->refused.count > 0 || confirms->immediate.count > 0 ||
           (confirms->pending.count > 0 &&
            (failed || front(&confirms->pending)->lsn <= durable_lsn));
}

enum qsi_verdict qsi_confirms_next(struct qsi_confirms *confirms, uint64_t durable_lsn, bool failed,
                                   uint64_t *number_out, bool *multiple_out, uint64_t *count_out,
                                   uint64_t *refusing_out)
{
    uint64_t count;
    bool ack;

    *refusing_out = 0;
    if (confirms->refused.count > 0) { /* before a multiple ack, which would include them */
        *refusing_out = front(&confirms->refused)->queue_id;
        take_one(&confirms->refused, number_out, multiple_out, count_out);
        return QSI_VERDICT_NACK;
    }
    count = take_pending(confirms, durable_lsn, number_out);
    ack = count > 0;
    if (ack) {
        count += take_covered(confirms, *number_out);
    } else if (confirms->immediate.count > 0) {
        take_one(&confirms->immediate, number_out, multiple_out, count_out);
        return QSI_VERDICT_ACK;
    } else if (failed) {
        count = take_pending(confirms, UINT64_MAX, number_out);
        confirms->nacked = confirms->nacked || (count > 0 && !confirms->nack_reported);
    }
    if (count == 0) {
        return QSI_VERDICT_NONE;
    }
    QS_DCHECK(*number_out > confirms->reported && *number_out <= confirms->last_number);
    *multiple_out = *number_out > confirms->reported + 1;
    *count_out = count;
    confirms->reported = *number_out;
    return ack ? QSI_VERDICT_ACK : QSI_VERDICT_NACK;
}

/* ---- debug builds ---- */

#ifndef NDEBUG
static void check_ranges(const struct qsi_number_ranges *ranges, uint64_t last_number,
                         bool have_lsn)
{
    uint64_t last = 0, lsn = 0;

    QS_DCHECK(ranges->first + ranges->count <= ranges->capacity);
    for (uint32_t i = 0; i < ranges->count; i++) {
        const struct qsi_number_range *range = &ranges->items[ranges->first + i];
        QS_DCHECK(range->first > last && range->first <= range->last);
        QS_DCHECK(!have_lsn || range->lsn >= lsn);
        last = range->last;
        lsn = range->lsn;
    }
    QS_DCHECK(last <= last_number);
}

void qsi_confirms_check(const struct qsi_confirms *confirms)
{
    check_ranges(&confirms->pending, confirms->last_number, true);
    check_ranges(&confirms->immediate, confirms->last_number, true);
    check_ranges(&confirms->refused, confirms->last_number, false);
    QS_DCHECK(confirms->reported <= confirms->last_number);
    QS_DCHECK(confirms->pending.count == 0 ||
              front(&confirms->pending)->first > confirms->reported);
}
#endif
