/* The body of a message in its record.
 *
 * Small bodies are in the record.  For a body in the message store, the record has a reference of
 * 28 bytes, also in the journal (docs/FORMAT.md, "Body reference").  For a damaged message it has
 * the place of the damage.  In memory this happens in records read from segments; in files, in
 * blocks of streams, for messages whose body could not be read. */
#ifndef QSI_BODY_REF_H
#define QSI_BODY_REF_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Sizes of cells, for code that lays out a record.  Other code does not look at the length of a
 * cell. */
#define QSI_BODY_REF_BYTES 28u
#define QSI_BODY_DAMAGE_BYTES 32u

enum qsi_body_kind {
    QSI_BODY_EMBEDDED, /* in the record */
    QSI_BODY_STORED,   /* in the message store */
    QSI_BODY_DAMAGED,
};

/* The place of a body and its checksum: enough to read and to verify it. */
struct qsi_body_ref {
    uint32_t file;
    uint32_t slot;
    uint64_t offset; /* where the record was first written; compaction may have moved it */
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    uint32_t crc;
};

/* The place of a damaged message: the segment file, and the place in it. */
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

/* Writes QSI_BODY_REF_BYTES bytes. */
void qsi_body_ref_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref);
/* Writes QSI_BODY_DAMAGE_BYTES bytes. */
void qsi_body_damage_encode(uint8_t *bytes_out, const struct qsi_body_damage *damage);
/* Decodes a cell; this is the only function that distinguishes the two kinds.  REQUIRES a cell that
 * a function above wrote, or a reference from a file: QSI_BODY_DAMAGE_BYTES or QSI_BODY_REF_BYTES
 * bytes.  The kind is STORED or DAMAGED.  Any bytes decode to something; the message store checks
 * whether a reference is valid. */
void qsi_body_decode(struct qsi_body *body_out, struct qsi_slice cell);

#endif
