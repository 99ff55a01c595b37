/* The commit block: what one write to the journal consists of (docs/FORMAT.md, "Commit block").
 *
 * A block is valid as a whole or not at all, which makes the records in it atomic. */
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
    QSI_BLOCK_MORE = 1, /* the atomic group goes on in the next block */
    QSI_BLOCK_LAST = 2, /* no records: the session goes on in another file, which has its header */
};

struct qsi_block {
    uint64_t lsn;          /* of the first payload byte */
    uint64_t durable_upto; /* every byte before this LSN was durable when the block was written */
    uint64_t salt;         /* of the file's generation */
    uint32_t file_number;
    uint32_t payload_bytes;
    uint32_t record_count;
    uint32_t flags;
    uint32_t next_file; /* with QSI_BLOCK_LAST: the number of that file; else 0 */
};

/* Bytes a block takes in the file. */
static inline uint64_t qsi_block_bytes(uint64_t payload_bytes)
{
    return (QSI_BLOCK_HEADER_BYTES + payload_bytes + QSI_BLOCK_ALIGN - 1) &
           ~(uint64_t)(QSI_BLOCK_ALIGN - 1);
}

/* Writes the header of a block whose payload is the given parts, checksum included. */
void qsi_block_encode(uint8_t header_out[QSI_BLOCK_HEADER_BYTES], const struct qsi_block *block,
                      const qs_part *payload, size_t payload_count);

/* Reads a header without its checksum: false when these bytes do not begin a block of this
 * generation. */
bool qsi_block_decode(struct qsi_block *block_out, const uint8_t header[QSI_BLOCK_HEADER_BYTES],
                      uint64_t salt);

/* Whether header and payload carry the checksum that was written. */
bool qsi_block_check(const uint8_t header[QSI_BLOCK_HEADER_BYTES], const uint8_t *payload,
                     uint32_t payload_bytes);

#endif
