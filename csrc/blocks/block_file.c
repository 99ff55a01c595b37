/* The directory of block files, and functions for whole files.
 *
 * Invariant: a file is read only after its header was found to be that of the right file. */
#include "block_file.h"

#include "alloc.h"
#include "block_dir.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <stdio.h>
#include <string.h>

qs_status qsi_block_dir_open(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                             const uint8_t uuid[QSI_UUID_BYTES], const char *label,
                             const char *suffix, qs_error *error)
{
    struct qsi_block_dir *blocks = qsi_alloc(sizeof *blocks);

    *blocks_out = blocks;
    if (blocks == NULL) {
        return qsi_fail(error, QS_ENOMEM, "%s", label);
    }
    *blocks = (struct qsi_block_dir){.env = env, .dir = dir, .label = label, .suffix = suffix};
    atomic_init(&blocks->has_new_names, true);
    memcpy(blocks->uuid, uuid, sizeof blocks->uuid);
    return QS_OK;
}

qs_status qsi_block_dir_open_one(struct qsi_block_dir **blocks_out, qs_env *env, qs_dir *dir,
                                 const char *name, qs_error *error)
{
    static const uint8_t no_uuid[QSI_UUID_BYTES];

    QS_DCHECK(name != NULL);
    QS_TRY(qsi_block_dir_open(blocks_out, env, dir, no_uuid, "staged", "", error));
    (*blocks_out)->name = name;
    return QS_OK;
}

qs_env *qsi_block_dir_env(const struct qsi_block_dir *blocks)
{
    return blocks->env;
}

void qsi_block_dir_close(struct qsi_block_dir *blocks)
{
    qsi_free(blocks);
}

void qsi_block_dir_name(char name_out[QSI_BLOCK_NAME_BYTES], const struct qsi_block_dir *blocks,
                        const struct qsi_block_file *file)
{
    if (blocks->name != NULL) {
        snprintf(name_out, QSI_BLOCK_NAME_BYTES, "%s", blocks->name);
    } else {
        qsi_block_name(name_out, file, blocks->suffix);
    }
}

void qsi_block_file_path(char path_out[QSI_BLOCK_PATH_BYTES], const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file)
{
    char name[QSI_BLOCK_NAME_BYTES];

    qsi_block_dir_name(name, blocks, file);
    snprintf(path_out, QSI_BLOCK_PATH_BYTES, "%s/%s", blocks->label, name);
}

/* ---- errors ---- */

qs_status qsi_block_damaged(qs_error *error, const struct qsi_block_dir *blocks,
                            const struct qsi_block_file *file, uint64_t at, const char *what)
{
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, blocks, file);
    return qsi_fail_corrupt(error, path, at, "%s", what);
}

qs_status qsi_block_fail(qs_error *error, qs_status status, const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file)
{
    char path[QSI_BLOCK_PATH_BYTES];

    if (status == QS_ENOENT) {
        return qsi_block_damaged(error, blocks, file, 0, "the file is missing");
    }
    qsi_block_file_path(path, blocks, file);
    return qsi_fail_file(error, status, path);
}

/* ---- one file ---- */

static qs_status check_header(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_file *handle, qs_error *error)
{
    uint8_t header[QSI_BLOCK_FILE_HEADER_BYTES];
    char path[QSI_BLOCK_PATH_BYTES];
    uint64_t bytes;
    size_t read = 0;
    qs_status status = qsi_env_size(blocks->env, handle, &bytes, error);

    QS_DCHECK(file->end >= QSI_BLOCK_FILE_HEADER_BYTES);
    if (status == QS_OK) {
        status = qsi_file_read(blocks->env, handle, header, sizeof header, 0, &read, error);
    }
    if (status != QS_OK) {
        return qsi_block_fail(error, status, blocks, file);
    }
    if (read != sizeof header || bytes < file->end) {
        return qsi_block_damaged(error, blocks, file, bytes,
                                 "the file ends before what it should have");
    }
    qsi_block_file_path(path, blocks, file);
    return qsi_block_file_header_check(header, file, blocks->uuid, path, error);
}

/* A sealed file is never written to, and may have other names: in the directory where it was
 * staged, and in copies of the store. */
static uint32_t open_flags(const struct qsi_block_file *file, uint32_t flags)
{
    return file->sealed ? QS_OPEN_READ | QS_OPEN_LINKED : flags;
}

qs_status qsi_block_open(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         uint32_t flags, qs_file **handle_out, qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    *handle_out = NULL;
    qsi_block_dir_name(name, blocks, file);
    status =
        qsi_env_open(blocks->env, blocks->dir, name, open_flags(file, flags), handle_out, error);
    if (status != QS_OK) {
        return qsi_block_fail(error, status, blocks, file);
    }
    status = check_header(blocks, file, *handle_out, error);
    if (status != QS_OK) {
        blocks->env->close(blocks->env, *handle_out);
        *handle_out = NULL;
    }
    return status;
}

qs_status qsi_block_read_at(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                            qs_file *handle, void *data, size_t bytes, uint64_t at, qs_error *error)
{
    size_t read = 0;
    qs_status status = qsi_file_read(blocks->env, handle, data, bytes, at, &read, error);

    if (status != QS_OK) {
        return qsi_block_fail(error, status, blocks, file);
    }
    return read == bytes ? QS_OK
                         : qsi_block_damaged(error, blocks, file, at + read,
                                             "the file ends before what it should have");
}

qs_status qsi_block_file_find(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error)
{
    qs_file *handle;

    QS_TRY(qsi_block_open(blocks, file, QS_OPEN_READ, &handle, error));
    blocks->env->close(blocks->env, handle);
    return QS_OK;
}

qs_status qsi_block_file_link(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_dir *from_dir, const char *from, qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    qsi_block_dir_name(name, blocks, file);
    status = qsi_env_link(blocks->env, from_dir, from, blocks->dir, name, error);
    if (status == QS_EEXIST) {
        QS_TRY(qsi_env_remove(blocks->env, blocks->dir, name, error));
        status = qsi_env_link(blocks->env, from_dir, from, blocks->dir, name, error);
    }
    if (status != QS_OK) {
        return status;
    }
    atomic_store(&blocks->has_new_names, true);
    /* The staged file may have been replaced since it was checked, which is not a failure of the
     * store. */
    return qsi_fail_unread(error, qsi_block_file_find(blocks, file, error), from);
}

/* A file that cannot be opened counts as damage, so that QS_EIO only means a failed sync. */
static qs_status open_to_write(const struct qsi_block_dir *blocks,
                               const struct qsi_block_file *file, qs_file **handle_out,
                               qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, blocks, file);
    return qsi_fail_unread(error, qsi_block_open(blocks, file, QS_OPEN_WRITE, handle_out, error),
                           path);
}

qs_status qsi_block_dir_check_synced(const struct qsi_block_dir *blocks, qs_error *error)
{
    return __atomic_load_n(&blocks->sync_failed, __ATOMIC_ACQUIRE)
               ? qsi_fail(error, QS_EIO, "%s: a sync of a file there failed", blocks->label)
               : QS_OK;
}

qs_status qsi_block_sync_handle(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_file *handle, qs_error *error)
{
    qs_status status = qsi_file_sync(blocks->env, handle, error);

    if (status != QS_OK) {
        __atomic_store_n(&blocks->sync_failed, true, __ATOMIC_RELEASE);
        return qsi_block_fail(error, status, blocks, file);
    }
    return qsi_block_dir_check_synced(blocks, error);
}

qs_status qsi_block_file_sync(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error)
{
    qs_file *handle;
    qs_status status;

    QS_DCHECK(file->block_count > 0);
    QS_TRY(open_to_write(blocks, file, &handle, error));
    status = qsi_block_sync_handle(blocks, file, handle, error);
    blocks->env->close(blocks->env, handle);
    return status;
}

qs_status qsi_block_file_sync_found(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES], path[QSI_BLOCK_PATH_BYTES];
    qs_file *handle;
    qs_status status;

    qsi_block_dir_name(name, blocks, file);
    qsi_block_file_path(path, blocks, file);
    status = qsi_env_open(blocks->env, blocks->dir, name, open_flags(file, QS_OPEN_WRITE), &handle,
                          error);
    if (status != QS_OK) {
        return status == QS_ENOENT
                   ? QS_OK
                   : qsi_fail_unread(error, qsi_block_fail(error, status, blocks, file), path);
    }
    status = qsi_block_sync_handle(blocks, file, handle, error);
    blocks->env->close(blocks->env, handle);
    return status;
}

void qsi_block_file_cut(struct qsi_block_dir *blocks, const struct qsi_block_file *file)
{
    uint64_t keep = qsi_round_up(file->end, QSI_BLOCK_PAGE), bytes;
    qs_file *handle;

    if (open_to_write(blocks, file, &handle, NULL) != QS_OK) {
        return;
    }
    if (qsi_env_size(blocks->env, handle, &bytes, NULL) == QS_OK && bytes > keep) {
        qs_status ignored = qsi_env_truncate(blocks->env, handle, keep, NULL);
        (void)ignored; /* the next block overwrites it */
    }
    blocks->env->close(blocks->env, handle);
}

qs_status qsi_block_dir_sync_now(struct qsi_block_dir *blocks, qs_error *error)
{
    qs_status status = qsi_dir_sync(blocks->env, blocks->dir, error);

    if (status != QS_OK) {
        qsi_error_prefix(error, "%s", blocks->label);
    }
    return status;
}

qs_status qsi_block_dir_sync(struct qsi_block_dir *blocks, qs_error *error)
{
    qs_status status;

    /* A file created from here on makes the next call sync. */
    if (!atomic_exchange(&blocks->has_new_names, false)) {
        return QS_OK;
    }
    status = qsi_block_dir_sync_now(blocks, error);
    if (status != QS_OK) {
        atomic_store(&blocks->has_new_names, true);
    }
    return status;
}

qs_status qsi_block_file_remove(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    qsi_block_dir_name(name, blocks, file);
    status = qsi_env_remove(blocks->env, blocks->dir, name, error);
    return status == QS_OK || status == QS_ENOENT ? QS_OK
                                                  : qsi_block_fail(error, status, blocks, file);
}

/* ---- leftovers ---- */

struct listing {
    const struct qsi_block_dir *blocks;
    qsi_block_file_filter *keep;
    void *context;
    struct qsi_buf *files;
    qs_status status;
};

static bool record_name(void *context, const char *name)
{
    struct listing *listing = context;
    struct qsi_block_file file;

    if (qsi_block_name_parse(&file, name, listing->blocks->suffix) &&
        !listing->keep(listing->context, &file)) {
        listing->status = qsi_buf_append(listing->files, &file, sizeof file);
    }
    return listing->status == QS_OK;
}

qs_status qsi_block_dir_list_others(struct qsi_block_dir *blocks, qsi_block_file_filter *keep,
                                    void *context, struct qsi_buf *files_out, qs_error *error)
{
    struct listing listing = {blocks, keep, context, files_out, QS_OK};
    qs_status status = qsi_env_dir_list(blocks->env, blocks->dir, record_name, &listing, error);

    if (status != QS_OK) {
        qsi_error_prefix(error, "%s", blocks->label);
        return status;
    }
    return listing.status == QS_OK ? QS_OK
                                   : qsi_fail(error, listing.status, "files of %s", blocks->label);
}

qs_status qsi_block_dir_remove_listed(struct qsi_block_dir *blocks, const struct qsi_buf *files,
                                      qsi_block_file_filter *keep, void *context,
                                      uint64_t *removed_out, qs_error *error)
{
    const struct qsi_block_file *at = (const struct qsi_block_file *)(const void *)files->data;
    size_t count = files->bytes / sizeof *at;

    for (size_t i = 0; i < count; i++) {
        if (!keep(context, &at[i])) {
            QS_TRY(qsi_block_file_remove(blocks, &at[i], error));
            *removed_out += 1;
        }
    }
    return QS_OK;
}
