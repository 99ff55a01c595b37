/* Blocks in memory. */
#ifndef QSI_BLOCK_VIEW_H
#define QSI_BLOCK_VIEW_H

#include "chunk.h"
#include "record.h"

#include <stddef.h>
#include <stdint.h>

/* A block in memory.  A view has a reference to its chunk. */
struct qsi_block_view {
    struct qsi_chunk *chunk; /* NULL: none */
    /* Offset of the record in chunk->data; its columns are at multiples of 64. */
    uint32_t record_at;
    uint64_t owner;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint32_t rows;
    uint8_t time_kind;
    uint32_t time_count;
    const uint8_t *times; /* in the chunk */
    struct qsi_messages messages;
};
/* Copies the view, with another reference. */
struct qsi_block_view qsi_block_view_ref(const struct qsi_block_view *view);
void qsi_block_view_fini(struct qsi_block_view *view); /* an empty one is fine */
/* The publication times of rows [from, from + count), in us since 1970. */
void qsi_block_view_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out);
/* The first row at or after time_us; view->rows if there is none. */
uint32_t qsi_block_view_row_at(const struct qsi_block_view *view, uint64_t time_us);

/* The first part of a block: the routes of its rows, without the rows.  The codes of the block's
 * rows are indexes of the same routes. */
struct qsi_block_dictionary {
    struct qsi_chunk *chunk;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint32_t rows;
    struct qsi_messages messages; /* only routes and counts: its other pointers are invalid */
};
void qsi_block_dictionary_fini(struct qsi_block_dictionary *dictionary);

/* The capacity of a chunk for a block of so many bytes in its file. */
size_t qsi_block_chunk_bytes(uint32_t block_bytes);

#endif
