/* Building a block: rows out of runs become one record with the times of its rows, in memory, ready
 * to be written at any place of any block file. */
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
    uint32_t bytes_max;        /* 0: QSI_BLOCK_TARGET_BYTES; a larger row is alone in its block */
    uint32_t columns;          /* QSI_BUILD_EXPIRATIONS, QSI_BUILD_DUES, QSI_BUILD_KEEP_STORED */
    qsi_stored_reader *reader; /* of bodies in the message store; NULL: there are none */
    void *context;
};

/* QS_ENOMEM: NULL. */
struct qsi_block_builder *qsi_block_builder_create(const struct qsi_block_build_options *options);
void qsi_block_builder_destroy(struct qsi_block_builder *builder); /* NULL is fine */

/* Rows of owner, the first of which has first_offset: the builder is empty then.  time_us: of all
 * of them, not below that of the rows before.  The rows' memory must stay until the block is
 * finished.  *taken_out: how many fit, 0 if the block is full (finish it, begin the next one).
 * QS_ENOMEM, or what the reader says: nothing more was taken. */
qs_status qsi_block_builder_add(struct qsi_block_builder *builder,
                                const struct qsi_row_stretch *stretch, uint64_t time_us,
                                uint32_t *taken_out, qs_error *error) QS_MUST_CHECK;
uint32_t qsi_block_builder_rows(const struct qsi_block_builder *builder);
/* REQUIRES rows.  The block's chunk is the caller's.  The builder is empty again, also after a
 * failure: QS_ENOMEM, QS_EINVAL (a row of nearly 4 GiB), or what the reader says. */
qs_status qsi_block_builder_finish(struct qsi_block_builder *builder, uint64_t owner,
                                   uint64_t first_offset, struct qsi_built_block *block_out,
                                   qs_error *error) QS_MUST_CHECK;

#endif
