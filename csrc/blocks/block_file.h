/* Block files: append-only files of messages by columns, in blocks with checksums of their own
 * (docs/FORMAT.md, "Block file").
 *
 * A block is one messages record (codec/record.h) with one destination, and when each of its rows
 * was published.  Blocks are written once and never change.  The checkpoint (a stream's state in
 * it) says how much of a file is valid: its end, its last block and its salt; a reader believes
 * nothing else.  So what lies behind the end is dead, whatever its bytes, and a write that was cut
 * off does no harm.  Behind an end that a checkpoint names the next block begins on a page of its
 * own: no write touches a page with durable bytes.
 *
 * Threads: one file is written by one thread at a time; readers, any threads at any time, of what
 * was written before they learned of it.  Nothing here syncs unless it says so. */
#ifndef QSI_BLOCK_FILE_H
#define QSI_BLOCK_FILE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "buf.h"
#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_BLOCK_FILE_HEADER_BYTES 4096u /* where the first block is */
#define QSI_BLOCK_ROWS_MAX 65536u
#define QSI_BLOCK_TARGET_BYTES (1u << 20)          /* a block of small rows is filled up to this */
#define QSI_BLOCK_CONTENT_MAX UINT32_C(0xfff00000) /* of one block, which has one large row then */

/* One block file as memory and checkpoints know it. */
struct qsi_block_file {
    uint64_t owner; /* the container whose rows it has; 0: several have it, each block says whose */
    uint64_t number; /* with owner, its name; of a stream the offset of its first row */
    uint64_t salt;   /* random, of this file; seeds every check in it */
    uint64_t end; /* blocks end there, and of a sealed file the footer; 0: there is no file yet */
    uint64_t last_at; /* where the last block begins, 0: none; of a sealed file the footer */
    uint32_t block_count;
    bool sealed;  /* it has a footer, and gets no more blocks */
    bool adopted; /* it was staged: what it says of owner, offsets and times is not what they are */
    uint64_t time_us; /* adopted: when its rows were published */
};

/* What is known of a block without reading it: 32 bytes, also in the footer. */
struct qsi_block_entry {
    uint64_t first_offset;
    uint64_t first_time_us;
    uint64_t at;    /* in the file */
    uint32_t bytes; /* header and content, without padding */
    uint32_t rows;  /* consecutive offsets */
};

/* A directory of block files of one kind; opaque.  Threads: any. */
struct qsi_block_dir;

/* Names are OOOOOOOOOOOOOOOO-NNNNNNNNNNNNNNNN.SUFFIX: owner and number in lower-case hexadecimal.
 * label: what errors call the directory ("streams").  label and suffix are literals.  env and dir
 * stay the caller's and outlive what is returned.  QS_ENOMEM. */
qs_status qsi_block_dir_open(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                             const uint8_t uuid[QSI_UUID_BYTES], const char *label,
                             const char *suffix, qs_error *error) QS_MUST_CHECK;
/* The same of one file of another name, which stays the caller's: whatever its owner and number. */
qs_status qsi_block_dir_open_one(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                                 const char *label, const char *name,
                                 qs_error *error) QS_MUST_CHECK;
void qsi_block_dir_close(struct qsi_block_dir *blocks); /* NULL is fine */
qs_env *qsi_block_dir_env(const struct qsi_block_dir *blocks);

/* "streams/0000000000000007-0000000000000000.str": what errors call a file. */
#define QSI_BLOCK_PATH_BYTES (QS_NAME_BYTES_MAX + 17u)
void qsi_block_file_path(char path_out[QSI_BLOCK_PATH_BYTES], const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file);

/* The file from, of another directory, gets the name of this one as well, which it then must be
 * (qsi_block_file_find).  A name that is taken is replaced: nothing refers to it.
 * QS_NOT_IMPLEMENTED: there can be no link. */
qs_status qsi_block_file_link(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_dir *from_dir, const char *from, qs_error *error) QS_MUST_CHECK;
/* fdatasync.  The name is durable after qsi_block_dir_sync.  QS_ECORRUPT: the file is missing or
 * too short; QS_EIO: the sync failed. */
qs_status qsi_block_file_sync(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error) QS_MUST_CHECK;
/* Syncs the directory if a file was made since it was synced. */
qs_status qsi_block_dir_sync(struct qsi_block_dir *blocks, qs_error *error) QS_MUST_CHECK;
/* Whatever was synced before: a sync that another thread began is not done, and may fail. */
qs_status qsi_block_dir_sync_now(struct qsi_block_dir *blocks, qs_error *error) QS_MUST_CHECK;
/* Recovery: what there is of the file, whole or not, is durable.  A file that is missing is for its
 * readers to find.  QS_ECORRUPT: it cannot be opened. */
qs_status qsi_block_file_sync_found(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    qs_error *error) QS_MUST_CHECK;
/* QS_EIO: a sync of a file failed.  Nothing there is known to be durable from then on. */
qs_status qsi_block_dir_check_synced(const struct qsi_block_dir *blocks,
                                     qs_error *error) QS_MUST_CHECK;
/* Gives back what was written behind its end, as far as that can be done; not the rest of the last
 * page.  REQUIRES that nobody writes to it. */
void qsi_block_file_cut(struct qsi_block_dir *blocks, const struct qsi_block_file *file);
/* Is it there, with the header that it should have, and as long as it should be?  QS_ECORRUPT. */
qs_status qsi_block_file_find(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error) QS_MUST_CHECK;
/* Removes the name; QS_OK when there is none. */
qs_status qsi_block_file_remove(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_error *error) QS_MUST_CHECK;

/* What an earlier session left behind: the files that keep says no to (owner and number are set),
 * as an array of struct qsi_block_file.  Names of another form are left alone. */
typedef bool qsi_block_file_filter(void *context, const struct qsi_block_file *file);
qs_status qsi_block_dir_note_others(struct qsi_block_dir *blocks, qsi_block_file_filter *keep,
                                    void *context, struct qsi_buf *files_out,
                                    qs_error *error) QS_MUST_CHECK;
/* Removes those of them that keep says no to by now. */
qs_status qsi_block_dir_remove_noted(struct qsi_block_dir *blocks, const struct qsi_buf *files,
                                     qsi_block_file_filter *keep, void *context,
                                     uint64_t *removed_out, qs_error *error) QS_MUST_CHECK;

#endif
