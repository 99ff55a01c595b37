/* Durable file operations over a qs_env: the only place that loops over short transfers and orders
 * syncs. */
#ifndef QSI_FILE_H
#define QSI_FILE_H

#include "qstore/env.h"

/* Writes all bytes of parts at offset, or fails.  A failure leaves the range undefined: stop using
 * the file. */
qs_status qsi_file_write(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                         uint64_t offset, qs_error *error) QS_MUST_CHECK;

/* The same for a large range that is synced next: the device begins to write the first bytes while
 * the last ones are copied. */
qs_status qsi_file_stream(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                          uint64_t offset, qs_error *error) QS_MUST_CHECK;

/* Reads until bytes are read or the file ends; *read_out is the number of bytes read. */
qs_status qsi_file_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                        size_t *read_out, qs_error *error) QS_MUST_CHECK;

/* Calls fdatasync once.  A failure means that unsynced bytes may be lost, whatever its reason, so
 * it is QS_EIO even if the system was interrupted, or short of space or memory. */
qs_status qsi_file_sync(qs_env *env, qs_file *file, qs_error *error) QS_MUST_CHECK;
/* The same for a new file that the caller discards on failure, and on which nothing depends yet: a
 * shortage keeps its status. */
qs_status qsi_file_sync_new(qs_env *env, qs_file *file, qs_error *error) QS_MUST_CHECK;

/* The same for names: names created, renamed or removed in dir before the call are durable after
 * it. */
qs_status qsi_dir_sync(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;
/* The same for the name of dir itself. */
qs_status qsi_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;

/* Calls env->allocate, and repeats it if a signal interrupted it. */
qs_status qsi_file_allocate(qs_env *env, qs_file *file, uint64_t bytes,
                            qs_error *error) QS_MUST_CHECK;

/* Whether a new file's blocks are written once at creation.  With zeros, later syncs write only
 * data; otherwise each sync also records that blocks are in use, but creating the file costs
 * nothing. */
enum qsi_fill { QSI_FILL_ZEROS, QSI_FILL_RESERVE };

/* Writes zeros to [offset, offset + bytes), without a sync. */
qs_status qsi_file_write_zeros(qs_env *env, qs_file *file, uint64_t offset, uint64_t bytes,
                               qs_error *error) QS_MUST_CHECK;

/* Creates a file of bytes zeros; its content, size and name are durable on return (create,
 * allocate, write zeros if wanted, fdatasync, directory sync).  On failure the name is removed
 * again, if possible. */
qs_status qsi_file_create(qs_env *env, qs_dir *dir, const char *name, uint64_t bytes,
                          enum qsi_fill fill, qs_file **file_out, qs_error *error) QS_MUST_CHECK;

/* Replaces the content of name by data, atomically and durably: writes name.tmp, syncs, renames,
 * syncs the directory. */
qs_status qsi_file_replace(qs_env *env, qs_dir *dir, const char *name, const void *data,
                           size_t bytes, qs_error *error) QS_MUST_CHECK;

/* Reads a whole small file; QS_ECORRUPT: it is larger than bytes_max.  Owns: *data_out,
 * qsi_free. */
qs_status qsi_file_load(qs_env *env, qs_dir *dir, const char *name, size_t bytes_max,
                        uint8_t **data_out, size_t *bytes_out, qs_error *error) QS_MUST_CHECK;

/* Opens the sub-directory; a missing one is created, durably.  An existing one counts as durable:
 * an open after a crash syncs each directory once before it trusts any name. */
qs_status qsi_dir_open(qs_env *env, qs_dir *parent, const char *name, qs_dir **dir_out,
                       qs_error *error) QS_MUST_CHECK;

#endif
