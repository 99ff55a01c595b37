/* Block files: append-only files of messages in columns, in blocks with checksums (docs/FORMAT.md,
 * "Block file").
 *
 * A block is one messages record (codec/record.h) with one destination, and the publication times
 * of its rows.  Blocks are written once and never change.  The checkpoint, in a stream's state,
 * determines the valid part of a file: its end, its last block and its salt.  A reader trusts
 * nothing else.  So bytes after the end are dead whatever they are, and an interrupted write does
 * no harm.  After an end that a checkpoint names, the next block begins on a new page, so no write
 * touches a page with durable bytes.
 *
 * Threads: one thread at a time writes a file; any threads may read blocks that were written
 * before.  Functions do not sync unless their comments say so. */
#ifndef QSI_BLOCK_FILE_H
#define QSI_BLOCK_FILE_H

#include "qstore/env.h"
#include "qstore/status.h"

#include "block_format.h"
#include "buf.h"
#include "file_head.h"

#include <stdbool.h>
#include <stdint.h>

/* A directory of block files of one kind; opaque.  Threads: any. */
struct qsi_block_dir;

/* Names are OOOOOOOOOOOOOOOO-NNNNNNNNNNNNNNNN.SUFFIX: owner and number in lower-case hexadecimal.
 * label: the directory's name in errors ("streams").  label and suffix are literals.  The caller
 * owns env and dir, which outlive the result.  QS_ENOMEM. */
qs_status qsi_block_dir_open(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                             const uint8_t uuid[QSI_UUID_BYTES], const char *label,
                             const char *suffix, qs_error *error) QS_MUST_CHECK;
/* The same for one staged file, with any other name, which the caller owns; owner and number may be
 * any. */
qs_status qsi_block_dir_open_one(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                                 const char *name, qs_error *error) QS_MUST_CHECK;
void qsi_block_dir_close(struct qsi_block_dir *blocks); /* NULL is fine */
qs_env *qsi_block_dir_env(const struct qsi_block_dir *blocks);

/* Writes "streams/0000000000000007-0000000000000000.str", the path of a file in errors. */
#define QSI_BLOCK_PATH_BYTES (QS_NAME_BYTES_MAX + 17u)
void qsi_block_file_path(char path_out[QSI_BLOCK_PATH_BYTES], const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file);

/* Links the file from, of another directory, to the name of this file, and checks that it is this
 * file (qsi_block_file_find).  An existing name is replaced, because no checkpoint refers to it.
 * QS_NOT_IMPLEMENTED: links are not possible. */
qs_status qsi_block_file_link(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_dir *from_dir, const char *from, qs_error *error) QS_MUST_CHECK;
/* Calls fdatasync.  The name is durable after qsi_block_dir_sync.  QS_ECORRUPT: the file is missing
 * or too short; QS_EIO: the sync failed. */
qs_status qsi_block_file_sync(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error) QS_MUST_CHECK;
/* Syncs the directory if a file was created since the last sync. */
qs_status qsi_block_dir_sync(struct qsi_block_dir *blocks, qs_error *error) QS_MUST_CHECK;
/* Syncs the directory in any case: a sync that another thread began is not finished, and may
 * fail. */
qs_status qsi_block_dir_sync_now(struct qsi_block_dir *blocks, qs_error *error) QS_MUST_CHECK;
/* For recovery: makes the existing bytes of the file durable, whether complete or not.  A missing
 * file is not an error here; its readers report it.  QS_ECORRUPT: it cannot be opened. */
qs_status qsi_block_file_sync_found(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    qs_error *error) QS_MUST_CHECK;
/* QS_EIO: a sync of a file failed, so no file of the directory is known to be durable any more. */
qs_status qsi_block_dir_check_synced(const struct qsi_block_dir *blocks,
                                     qs_error *error) QS_MUST_CHECK;
/* Truncates bytes after the file's end, if possible, except the rest of the last page.  REQUIRES
 * that no thread writes to it. */
void qsi_block_file_cut(struct qsi_block_dir *blocks, const struct qsi_block_file *file);
/* Checks that the file exists, with the right header and length.  QS_ECORRUPT. */
qs_status qsi_block_file_find(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error) QS_MUST_CHECK;
/* Removes the file's name; QS_OK if there is none. */
qs_status qsi_block_file_remove(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_error *error) QS_MUST_CHECK;

/* Lists files of earlier sessions for which keep returns false (owner and number are set), as an
 * array of struct qsi_block_file.  Names of another form are ignored. */
typedef bool qsi_block_file_filter(void *context, const struct qsi_block_file *file);
qs_status qsi_block_dir_list_others(struct qsi_block_dir *blocks, qsi_block_file_filter *keep,
                                    void *context, struct qsi_buf *files_out,
                                    qs_error *error) QS_MUST_CHECK;
/* Removes those of the listed files for which keep still returns false. */
qs_status qsi_block_dir_remove_listed(struct qsi_block_dir *blocks, const struct qsi_buf *files,
                                      qsi_block_file_filter *keep, void *context,
                                      uint64_t *removed_out, qs_error *error) QS_MUST_CHECK;

#endif
