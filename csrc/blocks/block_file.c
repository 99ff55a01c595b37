/* The directory of block files, and what concerns a file as a whole.
 *
 * Invariant: nothing of a file is read before its header was found to be that of the file that was
 * meant. */
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
    memcpy(blocks->uuid, uuid, sizeof blocks->uuid);
    return QS_OK;
}

void qsi_block_dir_close(struct qsi_block_dir *blocks)
{
    qsi_free(blocks);
}

void qsi_block_file_path(char path_out[QSI_BLOCK_PATH_BYTES], const struct qsi_block_dir *blocks,
                         const struct qsi_block_file *file)
{
    char name[QSI_BLOCK_NAME_BYTES];

    qsi_block_name(name, file, blocks->suffix);
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

qs_status qsi_block_open(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         uint32_t flags, qs_file **handle_out, qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    *handle_out = NULL;
    qsi_block_name(name, file, blocks->suffix);
    status = qsi_env_open(blocks->env, blocks->dir, name, flags, handle_out, error);
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

qs_status qsi_block_file_find(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error)
{
    qs_file *handle;

    QS_TRY(qsi_block_open(blocks, file, QS_OPEN_READ, &handle, error));
    blocks->env->close(blocks->env, handle);
    return QS_OK;
}

/* What cannot be read is damage, so that QS_EIO is left to the sync itself. */
static qs_status open_to_write(const struct qsi_block_dir *blocks,
                               const struct qsi_block_file *file, qs_file **handle_out,
                               qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, blocks, file);
    return qsi_fail_unread(error, qsi_block_open(blocks, file, QS_OPEN_WRITE, handle_out, error),
                           path);
}

qs_status qsi_block_file_sync(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_error *error)
{
    qs_file *handle;
    qs_status status;

    QS_DCHECK(file->block_count > 0);
    QS_TRY(open_to_write(blocks, file, &handle, error));
    status = qsi_file_sync(blocks->env, handle, error);
    blocks->env->close(blocks->env, handle);
    return status == QS_OK ? QS_OK : qsi_block_fail(error, status, blocks, file);
}

qs_status qsi_block_dir_sync(struct qsi_block_dir *blocks, qs_error *error)
{
    qs_status status = qsi_dir_sync(blocks->env, blocks->dir, error);

    if (status != QS_OK) {
        qsi_error_prefix(error, "%s", blocks->label);
    }
    return status;
}

qs_status qsi_block_file_remove(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                qs_error *error)
{
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    qsi_block_name(name, file, blocks->suffix);
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

static bool note_name(void *context, const char *name)
{
    struct listing *listing = context;
    struct qsi_block_file file;

    if (qsi_block_name_parse(&file, name, listing->blocks->suffix) &&
        !listing->keep(listing->context, &file)) {
        listing->status = qsi_buf_append(listing->files, &file, sizeof file);
    }
    return listing->status == QS_OK;
}

qs_status qsi_block_dir_note_others(struct qsi_block_dir *blocks, qsi_block_file_filter *keep,
                                    void *context, struct qsi_buf *files_out, qs_error *error)
{
    struct listing listing = {blocks, keep, context, files_out, QS_OK};
    qs_status status = qsi_env_dir_list(blocks->env, blocks->dir, note_name, &listing, error);

    if (status != QS_OK) {
        qsi_error_prefix(error, "%s", blocks->label);
        return status;
    }
    return listing.status == QS_OK ? QS_OK
                                   : qsi_fail(error, listing.status, "files of %s", blocks->label);
}

qs_status qsi_block_dir_remove_noted(struct qsi_block_dir *blocks, const struct qsi_buf *files,
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
