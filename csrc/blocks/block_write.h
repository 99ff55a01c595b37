/* Writing block files: blocks one after another, and the footer at the end. */
#ifndef QSI_BLOCK_WRITE_H
#define QSI_BLOCK_WRITE_H

#include "qstore/status.h"

#include "block_build.h"
#include "block_file.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_block_writer; /* opaque: one file that is open for writing */

/* Begins to write to a file, which is created if file->end is 0 (from owner and number; salt and
 * end are set; an existing file of that name has no references and is replaced).  page_aligned: the
 * next block begins on a new page, because a checkpoint names the bytes before.  The caller owns
 * file, which must stay until close, and always describes the blocks written so far: a failed put
 * or seal leaves it unchanged.  QS_ESTORE_FULL: no space, nothing is lost.  QS_ECORRUPT: the
 * existing file cannot be read, and nothing was written. */
qs_status qsi_block_writer_begin(struct qsi_block_writer **writer_out, struct qsi_block_dir *blocks,
                                 struct qsi_block_file *file, bool page_aligned,
                                 qs_error *error) QS_MUST_CHECK;
/* Writes a block, with one write; fills in the block's header.  entry_out: NULL is fine.  REQUIRES
 * a file that is not sealed. */
qs_status qsi_block_writer_put(struct qsi_block_writer *writer, struct qsi_built_block *block,
                               struct qsi_block_entry *entry_out, qs_error *error) QS_MUST_CHECK;
/* A messages record that is the content of a block without change: aligned, with owner and
 * first_offset as its destination, and one time for all rows.  It takes one write, without a
 * copy. */
struct qsi_block_rows {
    uint64_t owner;
    uint64_t first_offset;
    uint64_t time_us;
    const uint8_t *record;
    uint32_t rows;
};
/* *crc_io is continued over the block's header. */
qs_status qsi_block_writer_put_rows(struct qsi_block_writer *writer,
                                    const struct qsi_block_rows *rows,
                                    struct qsi_block_entry *entry_out, uint32_t *crc_io,
                                    qs_error *error) QS_MUST_CHECK;
/* Writes the footer.  entries: of all file->block_count blocks of the file. */
qs_status qsi_block_writer_seal(struct qsi_block_writer *writer,
                                const struct qsi_block_entry *entries, uint64_t last_time_us,
                                qs_error *error) QS_MUST_CHECK;
/* Appends bytes after the footer of a sealed file; readers ignore them because of the end in the
 * checkpoint. */
qs_status qsi_block_writer_append(struct qsi_block_writer *writer, const qs_part *parts,
                                  size_t part_count, qs_error *error) QS_MUST_CHECK;
/* A written file that must be synced: it stays open, so the sync need not open it.  Zeroed memory
 * is none. */
struct qsi_block_unsynced {
    struct qsi_block_file file;
    qs_file *handle;
};
/* Moves the open file to *unsynced_out; close the writer next.  REQUIRES something written. */
void qsi_block_writer_leave(struct qsi_block_writer *writer,
                            struct qsi_block_unsynced *unsynced_out);
/* Calls fdatasync, and checks that the file still has its name.  QS_EIO. */
qs_status qsi_block_unsynced_sync(struct qsi_block_dir *blocks,
                                  const struct qsi_block_unsynced *unsynced,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_block_unsynced_close(struct qsi_block_dir *blocks, struct qsi_block_unsynced *unsynced);
/* Closes the file and frees the writer. */
void qsi_block_writer_close(struct qsi_block_writer *writer); /* NULL is fine */

/* The offset of the next block of bytes bytes, for code that writes a block elsewhere and adopts
 * it. */
uint64_t qsi_block_next_place(const struct qsi_block_file *file, bool page_aligned);

#endif
