/* The body of a message, as its record has it.
 *
 * Small ones lie in the record.  Of a body in the message store the record has a reference of 28
 * bytes, also in the journal (docs/FORMAT.md, "Body reference").  Of a damaged message it
 * has where that is: in memory, in records that were read back from segments; in files, in blocks
 * of streams whose message had a body that could not be read any more. */
#ifndef QSI_BODY_REF_H
#define QSI_BODY_REF_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Of the cells in a record, for who lays one out.  Nobody else looks at the length of a cell. */
#define QSI_BODY_REF_BYTES 28u
#define QSI_BODY_DAMAGE_BYTES 32u

enum qsi_body_kind {
    QSI_BODY_EMBEDDED, /* in the record */
    QSI_BODY_STORED,   /* in the message store */
    QSI_BODY_DAMAGED,
};

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
#define QSI_DAMAGE_OF_STREAM UINT32_MAX
struct qsi_body_damage {
    uint64_t queue_id;   /* a priority's own */
    uint64_t number;     /* of the segment */
    uint32_t generation; /* or QSI_DAMAGE_OF_STREAM: queue_id is a stream's, and the message's
                            offset there is number + slot */
    uint32_t slot;
    uint64_t offset; /* of a stream's: 0, or 1 + the number of the message file that had the body */
};

struct qsi_body {
    enum qsi_body_kind kind;
    union {
        struct qsi_slice bytes;
        struct qsi_body_ref ref;
        struct qsi_body_damage damage;
    };
};

/* QSI_BODY_REF_BYTES bytes. */
void qsi_body_ref_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref);
/* QSI_BODY_DAMAGE_BYTES bytes. */
void qsi_body_damage_encode(uint8_t *bytes_out, const struct qsi_body_damage *damage);
/* REQUIRES a cell that one of the two has written, or that is a reference: the one place that
 * tells them apart.  The kind is STORED or DAMAGED.  Any bytes decode to something; the message
 * store tells whether a reference leads anywhere. */
void qsi_body_decode(struct qsi_body *body_out, struct qsi_slice cell);

#endif
