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
/* A record of messages that is a block's content as it is: aligned, with owner and first_offset as
 * its destination, all its rows of one time.  One write; the record is not copied. */
struct qsi_block_rows {
    uint64_t owner;
    uint64_t first_offset;
    uint64_t time_us;
    const uint8_t *record;
    uint32_t rows;
};
/* *crc_io goes on with the block's header. */
qs_status qsi_block_writer_put_rows(struct qsi_block_writer *writer,
                                    const struct qsi_block_rows *rows,
                                    struct qsi_block_entry *entry_out, uint32_t *crc_io,
                                    qs_error *error) QS_MUST_CHECK;
/* Writes the footer.  entries: of all blocks of the file, file->block_count of them. */
qs_status qsi_block_writer_seal(struct qsi_block_writer *writer,
                                const struct qsi_block_entry *entries, uint64_t last_time_us,
                                qs_error *error) QS_MUST_CHECK;
/* Behind the footer of a sealed file: what only its end in a checkpoint keeps from being read. */
qs_status qsi_block_writer_append(struct qsi_block_writer *writer, const qs_part *parts,
                                  size_t part_count, qs_error *error) QS_MUST_CHECK;
/* What was written, and is to be synced: the file stays open, so that nothing has to be read for
 * that.  Zeroed memory is none. */
struct qsi_block_unsynced {
    struct qsi_block_file file;
    qs_file *handle;
};
/* Takes the open file; the writer is closed next.  REQUIRES something written. */
void qsi_block_writer_leave(struct qsi_block_writer *writer,
                            struct qsi_block_unsynced *unsynced_out);
/* fdatasync, and the file still has its name.  QS_EIO. */
qs_status qsi_block_unsynced_sync(struct qsi_block_dir *blocks,
                                  const struct qsi_block_unsynced *unsynced,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_block_unsynced_close(struct qsi_block_dir *blocks, struct qsi_block_unsynced *unsynced);
/* Closes and frees. */
void qsi_block_writer_close(struct qsi_block_writer *writer); /* NULL is fine */

/* Where the next block of bytes bytes would begin: for who writes a block elsewhere and has it
 * adopted. */
uint64_t qsi_block_next_place(const struct qsi_block_file *file, bool page_aligned);

#endif
