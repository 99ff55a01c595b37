/* Building a block: rows of runs become one record with the times of its rows, in memory, which can
 * be written at any place of any block file. */
#ifndef QSI_BLOCK_BUILD_H
#define QSI_BLOCK_BUILD_H

#include "qstore/status.h"

#include "block_file.h"
#include "chunk.h"
#include "record_build.h"

#include <stdbool.h>
#include <stdint.h>

/* A block that is not written yet. */
struct qsi_built_block {
    struct qsi_chunk *chunk; /* data[0, bytes): room for the header, then the content */
    uint64_t owner;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint32_t bytes; /* header and content */
    uint32_t rows;
    uint32_t record_bytes;
    uint32_t dictionary_bytes; /* of the record: header, destination and routes */
    uint32_t time_count;
    uint8_t time_kind;
};

struct qsi_block_builder; /* opaque.  One thread at a time */

struct qsi_block_build_options {
    uint32_t rows_max;         /* 0: QSI_BLOCK_ROWS_MAX */
    uint32_t bytes_max;        /* 0: QSI_BLOCK_TARGET_BYTES; a larger row has a block of its own */
    uint32_t columns;          /* QSI_BUILD_EXPIRATIONS, QSI_BUILD_DUES, QSI_BUILD_KEEP_STORED */
    qsi_stored_reader *reader; /* of bodies in the message store; NULL: there are none */
    void *context;
};

/* QS_ENOMEM: NULL. */
struct qsi_block_builder *qsi_block_builder_create(const struct qsi_block_build_options *options);
void qsi_block_builder_destroy(struct qsi_block_builder *builder); /* NULL is fine */

/* Adds rows of one owner.  time_us: the time of all of them, not before that of earlier rows.  The
 * memory of the rows must stay until the block is finished.  *taken_out: the number of rows taken,
 * 0 if the block is full (finish it, and begin the next one).  QS_ENOMEM, or a status of the
 * reader: no further rows were taken. */
qs_status qsi_block_builder_add(struct qsi_block_builder *builder,
                                const struct qsi_row_stretch *stretch, uint64_t time_us,
                                uint32_t *taken_out, qs_error *error) QS_MUST_CHECK;
uint32_t qsi_block_builder_rows(const struct qsi_block_builder *builder);
/* Finishes the block.  REQUIRES rows.  Owns: the block's chunk.  The builder is empty afterwards,
 * also after a failure: QS_ENOMEM, QS_EINVAL (a row of nearly 4 GiB), or a status of the reader. */
qs_status qsi_block_builder_finish(struct qsi_block_builder *builder, uint64_t owner,
                                   uint64_t first_offset, struct qsi_built_block *block_out,
                                   qs_error *error) QS_MUST_CHECK;

#endif
