/* Reading block files: blocks, their dictionaries, and the index of a file.
 *
 * All data of a file is checked before it is used: the file's header, the block's header,
 * checksums, every count and offset of the record, the destination, the times.  An error is
 * QS_ECORRUPT, with file and offset. */
#ifndef QSI_BLOCK_READ_H
#define QSI_BLOCK_READ_H

#include "qstore/status.h"

#include "block_file.h"
#include "block_view.h"

#include <stdbool.h>
#include <stdint.h>

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
