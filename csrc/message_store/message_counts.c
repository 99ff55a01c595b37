/* Counting the references to the bodies of one file.
 *
 * Invariants: live_count and durable_count are the numbers of such slots in the arrays; counts of
 * slots from the file's next one on are 0. */
#include "message_counts.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

#define CAPACITY_MIN 16u

void qsi_counts_fini(struct qsi_message_counts *counts)
{
    qsi_free(counts->durable);
    qsi_free(counts->transient);
    *counts = (struct qsi_message_counts){0};
}

static uint32_t grown_capacity(uint32_t capacity, uint32_t needed)
{
    uint64_t grown = capacity > CAPACITY_MIN / 2 ? (uint64_t)capacity * 2 : CAPACITY_MIN;

    QS_DCHECK(needed > capacity);
    if (grown < needed) {
        return needed;
    }
    return grown < UINT32_MAX ? (uint32_t)grown : UINT32_MAX;
}

static bool grow(uint16_t **array_io, uint32_t old_capacity, uint32_t capacity)
{
    uint16_t *grown = qsi_realloc(*array_io, (size_t)capacity * sizeof *grown);

    QS_DCHECK(capacity > old_capacity || old_capacity == 0);
    if (grown == NULL) {
        return false;
    }
    memset(grown + old_capacity, 0, (size_t)(capacity - old_capacity) * sizeof *grown);
    *array_io = grown;
    return true;
}

qs_status qsi_counts_reserve(struct qsi_message_counts *counts, uint32_t slot_count)
{
    uint32_t capacity;

    if (slot_count <= counts->capacity) {
        return QS_OK;
    }
    capacity = grown_capacity(counts->capacity, slot_count);
    /* A larger array than capacity says is harmless. */
    if (!grow(&counts->durable, counts->capacity, capacity) ||
        (counts->transient != NULL && !grow(&counts->transient, counts->capacity, capacity))) {
        return QS_ENOMEM;
    }
    counts->capacity = capacity;
    return QS_OK;
}

static uint64_t minus(uint64_t from, uint64_t bytes)
{
    return from > bytes ? from - bytes : 0;
}

static void raise_count(uint16_t *count, uint32_t by)
{
    *count = by < (uint32_t)(QSI_COUNT_STUCK - *count) ? (uint16_t)(*count + by) : QSI_COUNT_STUCK;
}

static void add_durable(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                        uint32_t count)
{
    QS_DCHECK(slot < counts->capacity && count > 0);
    if (counts->durable[slot] == 0) {
        counts->durable_count++;
        counts->durable_bytes += bytes;
    }
    raise_count(&counts->durable[slot], count);
}

/* Adds transient references.  Without memory the file is pinned: it stays until the session ends,
 * which ends transient references. */
static void add_transient(struct qsi_message_counts *counts, uint32_t slot, uint32_t count)
{
    QS_DCHECK(slot < counts->capacity && count > 0);
    if (counts->transient == NULL && !counts->is_pinned &&
        !grow(&counts->transient, 0, counts->capacity)) {
        counts->is_pinned = true;
    }
    if (counts->transient != NULL) {
        raise_count(&counts->transient[slot], count);
    }
}

bool qsi_counts_add(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                    uint32_t durable, uint32_t transient)
{
    bool was_live;

    if (slot >= counts->capacity) {
        counts->beyond += (uint64_t)durable + transient;
        return false;
    }
    was_live = qsi_counts_is_live(counts, slot);
    if (durable > 0) {
        add_durable(counts, slot, bytes, durable);
    }
    if (transient > 0) {
        add_transient(counts, slot, transient);
    }
    if (!was_live && qsi_counts_is_live(counts, slot)) {
        counts->live_count++;
        counts->live_bytes += bytes;
    }
    QS_DCHECK(counts->live_count <= counts->capacity &&
              counts->durable_count <= counts->live_count);
    return durable > 0;
}

/* Decrements the count.  False: it was 0, or it is stuck. */
static bool lower(uint16_t *count)
{
    if (*count == 0 || *count == QSI_COUNT_STUCK) {
        return false;
    }
    (*count)--;
    return true;
}

bool qsi_counts_drop(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                     bool transient)
{
    uint16_t *array = transient ? counts->transient : counts->durable;

    if (slot >= counts->capacity) {
        counts->beyond -= counts->beyond > 0;
        return false;
    }
    if (array == NULL || !lower(&array[slot])) {
        return false;
    }
    if (!transient && array[slot] == 0) {
        QS_DCHECK(counts->durable_count > 0);
        counts->durable_count--;
        counts->durable_bytes = minus(counts->durable_bytes, bytes);
    }
    if (!qsi_counts_is_live(counts, slot)) {
        QS_DCHECK(counts->live_count > 0);
        counts->live_count--;
        counts->live_bytes = minus(counts->live_bytes, bytes);
    }
    QS_DCHECK(counts->durable_count <= counts->live_count);
    return !transient;
}

void qsi_counts_restore(struct qsi_message_counts *counts, uint32_t first, uint32_t length,
                        uint16_t durable)
{
    QS_DCHECK(length <= UINT32_MAX - first);
    if (durable == 0) {
        return;
    }
    if (counts->capacity == 0) {
        counts->beyond += (uint64_t)durable * length;
        return;
    }
    QS_ASSERT(length <= counts->capacity - first);
    for (uint32_t i = 0; i < length; i++) {
        counts->durable[first + i] = durable;
    }
    counts->durable_count += length;
    counts->live_count += length;
}
