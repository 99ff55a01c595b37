/* How many references the bodies of one message file have, by slot.
 *
 * Durable and transient references are counted apart, in 2 bytes each; the latter only in files
 * that have any.  A slot that has no room here, because the file that should hold it does not or
 * is not there, is counted together with all others like it: recovery only has to know whether
 * anybody still needs one. */
#ifndef QSI_MESSAGE_COUNTS_H
#define QSI_MESSAGE_COUNTS_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QSI_COUNT_STUCK UINT16_MAX /* so many or more: never counted down again */
#define QSI_SLOT_BEYOND UINT32_MAX /* a slot that no file has */

/* Zeroed memory is an empty one. */
struct qsi_message_counts {
    uint16_t *durable;   /* by slot */
    uint16_t *transient; /* NULL: none so far */
    uint32_t capacity;
    uint32_t live_count;    /* slots with any reference */
    uint32_t durable_count; /* slots with durable ones */
    uint64_t live_bytes;    /* of the bodies in them */
    uint64_t durable_bytes;
    uint64_t beyond; /* references to slots without room */
    bool is_pinned;  /* transient references went uncounted for want of memory: lives on */
};
void qsi_counts_fini(struct qsi_message_counts *counts);

/* Room for slots [0, slot_count).  QS_ENOMEM: nothing changed. */
qs_status qsi_counts_reserve(struct qsi_message_counts *counts, uint32_t slot_count) QS_MUST_CHECK;

/* Whether anybody refers to the file. */
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
