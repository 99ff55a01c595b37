/* Reading block files: blocks, their dictionaries, and the index of a file.
 *
 * Everything that a file says is checked before it is used: the file's header, the block's header,
 * the checksum of what is read, every count and offset of the record, the destination, the times.
 * What does not fit is QS_ECORRUPT, with file and offset. */
#ifndef QSI_BLOCK_READ_H
#define QSI_BLOCK_READ_H

#include "qstore/status.h"

#include "block_file.h"
#include "chunk.h"
#include "record.h"

#include <stdbool.h>
#include <stdint.h>

/* A block in memory.  Whoever has a view has a reference to its chunk. */
struct qsi_block_view {
    struct qsi_chunk *chunk; /* NULL: none */
    uint32_t record_at;      /* the record in chunk->data; its columns are at multiples of 64 */
    uint64_t owner;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint32_t rows;
    uint8_t time_kind;
    uint32_t time_count;
    const uint8_t *times; /* into the chunk */
    struct qsi_messages messages;
};
/* Copies the view: a reference more. */
struct qsi_block_view qsi_block_view_ref(const struct qsi_block_view *view);
void qsi_block_view_fini(struct qsi_block_view *view); /* an empty one is fine */
/* When the row was published, in us since 1970. */
uint64_t qsi_block_view_time(const struct qsi_block_view *view, uint32_t row);
/* The same of rows [from, from + count), for columns. */
void qsi_block_view_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out);
/* The first row at or behind time_us; view->rows if there is none. */
uint32_t qsi_block_view_row_at(const struct qsi_block_view *view, uint64_t time_us);

/* The beginning of a block: which routes its rows have, without the rows.  codes of the whole
 * block's rows index the same routes. */
struct qsi_block_dictionary {
    struct qsi_chunk *chunk;
    uint64_t first_offset;
    uint64_t first_time_us, last_time_us;
    uint32_t rows;
    struct qsi_messages messages; /* routes and counts only: its other pointers lead nowhere */
};
void qsi_block_dictionary_fini(struct qsi_block_dictionary *dictionary);

/* ---- one open file ---- */

struct qsi_block_reader; /* opaque; any threads may read from one */

/* Opens the file and checks its header and length.  file is copied. */
qs_status qsi_block_reader_open(struct qsi_block_reader **reader_out, struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error) QS_MUST_CHECK;
void qsi_block_reader_close(struct qsi_block_reader *reader); /* NULL is fine */
/* The block that entry tells of: one read.  room: a chunk of nobody else that is large enough
 * (qsi_block_chunk_bytes) and becomes the view's, or, after a failure, is freed; NULL: one is
 * made. */
qs_status qsi_block_reader_read(struct qsi_block_reader *reader,
                                const struct qsi_block_entry *entry, struct qsi_chunk *room,
                                struct qsi_block_view *view_out, qs_error *error) QS_MUST_CHECK;
size_t qsi_block_chunk_bytes(uint32_t block_bytes);
/* Its dictionary alone: one read of a page, and one more of a large dictionary. */
qs_status qsi_block_reader_read_dictionary(struct qsi_block_reader *reader,
                                           const struct qsi_block_entry *entry,
                                           struct qsi_block_dictionary *dictionary_out,
                                           qs_error *error) QS_MUST_CHECK;
/* All entries of the file, block_count of them, qsi_alloc: of a sealed file from the footer with
 * one read, else by reading each block's header. */
qs_status qsi_block_reader_read_index(struct qsi_block_reader *reader,
                                      struct qsi_block_entry **entries_out,
                                      qs_error *error) QS_MUST_CHECK;

/* ---- look-up ---- */

/* The entry that has offset, or, in a gap, the first one behind it; count if there is none. */
uint32_t qsi_block_entries_find(const struct qsi_block_entry *entries, uint32_t count,
                                uint64_t offset);
/* The entry in which, or right behind which, the first row at or behind time_us is: the last one
 * that begins before time_us, or 0. */
uint32_t qsi_block_entries_find_time(const struct qsi_block_entry *entries, uint32_t count,
                                     uint64_t time_us);

/* The last count blocks, which were written together: what their headers' checksum is, in order,
 * and which offsets they have.  Reads and checks all of them. */
struct qsi_block_last {
    uint32_t count;
    uint32_t crc;
    uint64_t first_offset, next_offset;
};
qs_status qsi_block_file_check_last(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    const struct qsi_block_last *last,
                                    qs_error *error) QS_MUST_CHECK;

/* Reads every block and checks it: for verify.  Goes on behind damage as far as the index leads;
 * visit is told of each block, with an error of those that are damaged. */
typedef void qsi_block_visitor(void *context, const struct qsi_block_entry *entry,
                               const qs_error *error);
qs_status qsi_block_file_check(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                               qsi_block_visitor *visit, void *context,
                               qs_error *error) QS_MUST_CHECK;

#endif
