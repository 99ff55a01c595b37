/* What the record of a message says instead of a body that is not in it.
 *
 * Of a body in the message store a reference of 28 bytes, also in records of the journal
 * (docs/FORMAT.md, "Body reference").  Of a message that an index segment holds, and that is
 * damaged there, where that is: in records that were read back from segments, in memory only. */
#ifndef QSI_BODY_REF_H
#define QSI_BODY_REF_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_BODY_REF_BYTES 28u
#define QSI_BODY_DAMAGE_BYTES 32u

/* Where a body is and what it must be: enough to read and to verify it. */
struct qsi_body_ref {
    uint32_t file;
    uint32_t slot;
    uint64_t offset; /* where the record was written first; compaction may have moved it since */
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    uint32_t crc;
};

/* Where a damaged message is: the segment file, and the place in it. */
struct qsi_body_damage {
    uint64_t queue_id; /* a priority's own */
    uint64_t number;   /* of the segment */
    uint32_t generation;
    uint32_t slot;
    uint64_t offset;
};

struct qsi_stored_body {
    bool is_damaged;
    union {
        struct qsi_body_ref ref;
        struct qsi_body_damage damage;
    };
};

/* QSI_BODY_REF_BYTES bytes. */
void qsi_body_ref_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref);
/* QSI_BODY_DAMAGE_BYTES bytes. */
void qsi_body_damage_encode(uint8_t *bytes_out, const struct qsi_body_damage *damage);
/* REQUIRES a cell of one of these lengths, which tells what it is.  Any bytes decode to
 * something; the message store tells whether a reference leads anywhere. */
void qsi_stored_body_decode(struct qsi_stored_body *stored_out, struct qsi_slice cell);

#endif
