/* The commit block: the unit of writing to the journal (docs/FORMAT.md, "Commit block").
 *
 * A block is valid as a whole or not at all, which makes its records atomic. */
#ifndef QSI_BLOCK_H
#define QSI_BLOCK_H

#include "qstore/env.h"
#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Blocks begin and end at this alignment: a write never touches a page or a physical sector that
 * holds durable bytes. */
#define QSI_BLOCK_ALIGN 4096
#define QSI_BLOCK_HEADER_BYTES 64

enum {
    QSI_BLOCK_MORE = 1, /* the atomic group continues in the next block */
    /* No records: the session continues in the file next_file, which has a header. */
    QSI_BLOCK_LAST = 2,
};

struct qsi_block {
    uint64_t lsn;          /* of the first payload byte */
    uint64_t durable_upto; /* every byte before this LSN was durable when the block was written */
    uint64_t salt;         /* of the file's generation */
    uint32_t file_number;
    uint32_t payload_bytes;
    uint32_t record_count;
    uint32_t flags;
    /* With QSI_BLOCK_LAST: the number of the session's next file; otherwise 0. */
    uint32_t next_file;
};

/* The bytes of a block in the file. */
static inline uint64_t qsi_block_bytes(uint64_t payload_bytes)
{
    return (QSI_BLOCK_HEADER_BYTES + payload_bytes + QSI_BLOCK_ALIGN - 1) &
           ~(uint64_t)(QSI_BLOCK_ALIGN - 1);
}

/* Writes the header of a block with the given payload, checksum included. */
void qsi_block_encode(uint8_t header_out[QSI_BLOCK_HEADER_BYTES], const struct qsi_block *block,
                      const qs_part *payload, size_t payload_count);

/* Decodes a header without checking the checksum.  False: the bytes do not begin a block of this
 * generation. */
bool qsi_block_decode(struct qsi_block *block_out, const uint8_t header[QSI_BLOCK_HEADER_BYTES],
                      uint64_t salt);

/* Whether header and payload have the right checksum. */
bool qsi_block_check(const uint8_t header[QSI_BLOCK_HEADER_BYTES], const uint8_t *payload,
                     uint32_t payload_bytes);

#endif
