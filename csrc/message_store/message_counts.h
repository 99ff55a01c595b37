/* The numbers of references to the bodies of one message file, by slot.
 *
 * Durable and transient references are counted separately, in 2 bytes each; the latter only in
 * files that have any.  References to slots without room in the arrays are counted together: their
 * file should have the slots and does not, or is missing.  Recovery needs only to know whether
 * there are any. */
#ifndef QSI_MESSAGE_COUNTS_H
#define QSI_MESSAGE_COUNTS_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_COUNT_STUCK UINT16_MAX /* this value or more: never counted down again */

/* Zeroed memory is an empty one. */
struct qsi_message_counts {
    uint16_t *durable;   /* by slot */
    uint16_t *transient; /* NULL: none so far */
    uint32_t capacity;
    uint32_t live_count;    /* slots with references of either kind */
    uint32_t durable_count; /* slots with durable ones */
    uint64_t live_bytes;    /* bytes of the bodies in live slots */
    uint64_t durable_bytes;
    uint64_t beyond; /* references to slots without room in the arrays */
    /* Transient references were not counted, because memory was short: the file stays. */
    bool is_pinned;
};
void qsi_counts_fini(struct qsi_message_counts *counts);

/* Makes room for slots [0, slot_count).  QS_ENOMEM: nothing changed. */
qs_status qsi_counts_reserve(struct qsi_message_counts *counts, uint32_t slot_count) QS_MUST_CHECK;

/* Adds references.  bytes: of the body in the slot, the same in every call.  True: the durable
 * counts changed. */
bool qsi_counts_add(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                    uint32_t durable, uint32_t transient);
/* Drops one reference; likewise. */
bool qsi_counts_drop(struct qsi_message_counts *counts, uint32_t slot, uint64_t bytes,
                     bool transient);
/* Sets the durable counts of slots [first, first + length), which had none.  REQUIRES room, or none
 * in the whole file. */
void qsi_counts_restore(struct qsi_message_counts *counts, uint32_t first, uint32_t length,
                        uint16_t durable);

/* Whether the file has references. */
static inline bool qsi_counts_any(const struct qsi_message_counts *counts)
{
    return counts->live_count > 0 || counts->beyond > 0 || counts->is_pinned;
}

static inline bool qsi_counts_is_live(const struct qsi_message_counts *counts, uint32_t slot)
{
    return slot < counts->capacity && (counts->durable[slot] > 0 ||
                                       (counts->transient != NULL && counts->transient[slot] > 0));
}

#endif
