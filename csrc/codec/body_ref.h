/* A reference to a body in the message store: 28 bytes in records of the journal (docs/FORMAT.md, "Body reference"). */
#ifndef QSI_BODY_REF_H
#define QSI_BODY_REF_H

#include <stdint.h>

#define QSI_BODY_REF_BYTES 28u

/* Where a body is and what it must be: enough to read and to verify it. */
struct qsi_body_ref {
    uint32_t file;
    uint32_t slot;
    uint64_t offset; /* where the record was written first; compaction may have moved it since */
    uint32_t envelope_bytes;
    uint32_t body_bytes;
    uint32_t crc;
};

/* A reference to no message file: the message lies in an index segment and is damaged there.  Says where, to whoever wants the body. */
static inline struct qsi_body_ref qsi_damaged_ref(uint64_t queue_id, uint64_t number,
                                                  uint32_t generation, uint32_t slot,
                                                  uint64_t offset)
{
    return (struct qsi_body_ref){0, slot, offset, (uint32_t)number, (uint32_t)queue_id, generation};
}

/* QSI_BODY_REF_BYTES bytes. */
void qsi_body_ref_encode(uint8_t *bytes_out, const struct qsi_body_ref *ref);
/* Any bytes decode to something; the message store tells whether it exists. */
void qsi_body_ref_decode(struct qsi_body_ref *ref_out, const uint8_t *bytes);

#endif
