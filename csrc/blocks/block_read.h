/* Reading block files: blocks, their dictionaries, and the index of a file.
 *
 * All data of a file is checked before it is used: the file's header, the block's header,
 * checksums, every count and offset of the record, the destination, the times.  An error is
 * QS_ECORRUPT, with file and offset. */
#ifndef QSI_BLOCK_READ_H
#define QSI_BLOCK_READ_H

#include "qstore/status.h"

#include "block_file.h"
#include "chunk.h"
#include "record.h"

#include <stdbool.h>
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

/* ---- one open file ---- */

struct qsi_block_reader; /* opaque; any threads may read from one */

/* Opens the file, and checks its header and length.  file is copied. */
qs_status qsi_block_reader_open(struct qsi_block_reader **reader_out, struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error) QS_MUST_CHECK;
void qsi_block_reader_close(struct qsi_block_reader *reader); /* NULL is fine */
/* Reads the block of entry, with one read.  room: an unshared chunk that is large enough
 * (qsi_block_chunk_bytes); it becomes the view's, or is freed after a failure; NULL: one is
 * allocated. */
qs_status qsi_block_reader_read(struct qsi_block_reader *reader,
                                const struct qsi_block_entry *entry, struct qsi_chunk *room,
                                struct qsi_block_view *view_out, qs_error *error) QS_MUST_CHECK;
size_t qsi_block_chunk_bytes(uint32_t block_bytes);
/* Reads only its dictionary: one page, and the rest of a large dictionary with a second read. */
qs_status qsi_block_reader_read_dictionary(struct qsi_block_reader *reader,
                                           const struct qsi_block_entry *entry,
                                           struct qsi_block_dictionary *dictionary_out,
                                           qs_error *error) QS_MUST_CHECK;
/* Reads all block_count entries of the file (qsi_alloc): of a sealed file from the footer with one
 * read, otherwise from each block's header. */
qs_status qsi_block_reader_read_index(struct qsi_block_reader *reader,
                                      struct qsi_block_entry **entries_out,
                                      qs_error *error) QS_MUST_CHECK;

/* The last count blocks, which were written together: the checksum of their headers, in order, and
 * their offsets.  Reads and checks all of them. */
struct qsi_block_last {
    uint32_t count;
    uint32_t crc;
    uint64_t first_offset, next_offset;
};
qs_status qsi_block_file_check_last(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    const struct qsi_block_last *last,
                                    qs_error *error) QS_MUST_CHECK;

/* Reads and checks every block, for verify.  Continues after damage as far as the index allows;
 * visit is called for each block, with an error for damaged ones. */
typedef void qsi_block_visitor(void *context, const struct qsi_block_entry *entry,
                               const qs_error *error);
qs_status qsi_block_file_check(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                               qsi_block_visitor *visit, void *context,
                               qs_error *error) QS_MUST_CHECK;

#endif
