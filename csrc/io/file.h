/* Durable file operations over a qs_env: the only place that loops over short transfers and orders
 * syncs. */
#ifndef QSI_FILE_H
#define QSI_FILE_H

#include "qstore/env.h"

/* Writes every byte of parts at offset or fails.  A failure leaves the range undefined: stop using
 * the file. */
qs_status qsi_file_write(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                         uint64_t offset, qs_error *error) QS_MUST_CHECK;

/* The same for much at once that is synced next: the device begins with the first bytes while the
 * last ones are copied. */
qs_status qsi_file_stream(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                          uint64_t offset, qs_error *error) QS_MUST_CHECK;

/* Reads until bytes are there or the file ends; *read_out tells how many. */
qs_status qsi_file_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                        size_t *read_out, qs_error *error) QS_MUST_CHECK;

/* Never retried: a failure means that unsynced bytes may be gone, whatever the reason.  So it is
 * QS_EIO also where the system was interrupted, or short of space or memory. */
qs_status qsi_file_sync(qs_env *env, qs_file *file, qs_error *error) QS_MUST_CHECK;
/* The same for a file that is thrown away if this fails, and that nothing depends on yet: a
 * shortage stays one. */
qs_status qsi_file_sync_new(qs_env *env, qs_file *file, qs_error *error) QS_MUST_CHECK;

/* The same for names: what was created, renamed and removed in dir before the call is durable after
 * it. */
qs_status qsi_dir_sync(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;
/* And for the name of dir itself. */
qs_status qsi_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error) QS_MUST_CHECK;

/* env->allocate, repeated when a signal cuts it short. */
qs_status qsi_file_allocate(qs_env *env, qs_file *file, uint64_t bytes,
                            qs_error *error) QS_MUST_CHECK;

/* Whether a new file's blocks are written once at creation.  Later syncs are pure data writes then;
 * otherwise each also records that blocks are in use, which costs nothing in making the file. */
enum qsi_fill { QSI_FILL_ZEROS, QSI_FILL_RESERVE };

/* Zeros in [offset, offset + bytes), which nothing makes durable. */
qs_status qsi_file_write_zeros(qs_env *env, qs_file *file, uint64_t offset, uint64_t bytes,
                               qs_error *error) QS_MUST_CHECK;

/* A new file of bytes zeros whose contents, size and name are durable when this returns (create,
 * allocate, write zeros if asked for, fdatasync, directory sync).  On failure the name is removed
 * again as far as possible. */
qs_status qsi_file_create(qs_env *env, qs_dir *dir, const char *name, uint64_t bytes,
                          enum qsi_fill fill, qs_file **file_out, qs_error *error) QS_MUST_CHECK;

/* name holds exactly data, durably, or what it held before: write name.tmp, sync, rename, directory
 * sync. */
qs_status qsi_file_replace(qs_env *env, qs_dir *dir, const char *name, const void *data,
                           size_t bytes, qs_error *error) QS_MUST_CHECK;

/* The whole of a small file; QS_ECORRUPT when it is larger than bytes_max; *data_out is the
 * caller's to free with qsi_free. */
qs_status qsi_file_load(qs_env *env, qs_dir *dir, const char *name, size_t bytes_max,
                        uint8_t **data_out, size_t *bytes_out, qs_error *error) QS_MUST_CHECK;

/* Opens the sub-directory, making it durable first when it is missing.  One that is there counts as
 * durable: whoever opens a store after another process died in it syncs each directory once before
 * trusting any name. */
qs_status qsi_dir_open(qs_env *env, qs_dir *parent, const char *name, qs_dir **dir_out,
                       qs_error *error) QS_MUST_CHECK;

#endif
