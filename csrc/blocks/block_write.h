/* Writing block files: blocks behind each other, and at the end the footer. */
#ifndef QSI_BLOCK_WRITE_H
#define QSI_BLOCK_WRITE_H

#include "qstore/status.h"

#include "block_build.h"
#include "block_file.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_block_writer; /* opaque: one file that is open to be written */

/* Begins to write to a file, which is made when file->end is 0 (owner and number say which; a file
 * of that name that is there already is nobody's, and is replaced; salt, end are set).
 * page_aligned: the next block begins on a page of its own, because a checkpoint names what is
 * before.  file is the caller's, stays until end or abandon, and always says what the writer has
 * written: after a failure of put or seal it says what was there before that call.
 * QS_ESTORE_FULL: no space, nothing lost.  QS_ECORRUPT: the file that is there cannot be read, and
 * nothing was written. */
qs_status qsi_block_writer_begin(struct qsi_block_writer **writer_out, struct qsi_block_dir *blocks,
                                 struct qsi_block_file *file, bool page_aligned,
                                 qs_error *error) QS_MUST_CHECK;
/* One write.  The block's header is filled in.  entry_out: NULL is fine.  REQUIRES a file that is
 * not sealed. */
qs_status qsi_block_writer_put(struct qsi_block_writer *writer, struct qsi_built_block *block,
                               struct qsi_block_entry *entry_out, qs_error *error) QS_MUST_CHECK;
/* Writes the footer.  entries: of all blocks of the file, file->block_count of them. */
qs_status qsi_block_writer_seal(struct qsi_block_writer *writer,
                                const struct qsi_block_entry *entries, uint64_t last_time_us,
                                qs_error *error) QS_MUST_CHECK;
/* Closes and frees. */
void qsi_block_writer_close(struct qsi_block_writer *writer); /* NULL is fine */

/* Where the next block of bytes bytes would begin: for who writes a block elsewhere and has it
 * adopted. */
uint64_t qsi_block_next_place(const struct qsi_block_file *file, bool page_aligned);

#endif
