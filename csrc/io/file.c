/* Durable file operations, built from the single calls of a qs_env.
 *
 * Invariant: nothing is reported durable before the sync of its bytes and then the sync of its name
 * returned QS_OK, in that order; no sync is ever repeated. */
#include "file.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"

#include <stdio.h>
#include <string.h>

#define SLICE_PARTS 64
#define STREAM_BYTES (512u << 10) /* bytes of a step: large enough for a device to work well */
#define ZERO_BLOCK_BYTES 65536u
#define ZERO_STEP_BYTES (1u << 20)
#define ZERO_STEP_PARTS (ZERO_STEP_BYTES / ZERO_BLOCK_BYTES)
#define TMP_SUFFIX ".tmp"

static const uint8_t zero_block[ZERO_BLOCK_BYTES];

/* -- transfers -------------------------------------------------------------------------------- */

struct write_place { /* the first unwritten byte */
    const qs_part *parts;
    size_t part_count; /* remaining parts, the current one included */
    size_t part_done;  /* written bytes of the current part */
    uint64_t offset;
};

/* Advances by bytes, and past empty parts, so that the current part always has bytes left. */
static void advance(struct write_place *place, size_t bytes)
{
    place->offset += bytes;
    bytes += place->part_done;
    while (place->part_count > 0 && bytes >= place->parts->bytes) {
        bytes -= place->parts->bytes;
        place->parts++;
        place->part_count--;
    }
    QS_ASSERT(place->part_count > 0 || bytes == 0);
    place->part_done = bytes;
}

/* Copies parts into a slice and cuts them at its ends; the parts belong to the caller, so they
 * cannot be changed. */
static size_t copy_slice(qs_part *slice, const struct write_place *place, size_t bytes_max)
{
    size_t part_count = place->part_count < SLICE_PARTS ? place->part_count : SLICE_PARTS;
    size_t skip = place->part_done;
    size_t count = 0;

    QS_DCHECK(place->part_count > 0 && place->part_done < place->parts->bytes);
    for (; count < part_count && bytes_max > 0; count++) {
        size_t bytes = place->parts[count].bytes - skip;

        bytes = bytes < bytes_max ? bytes : bytes_max;
        slice[count].data = (const uint8_t *)place->parts[count].data + skip;
        slice[count].bytes = bytes;
        bytes_max -= bytes;
        skip = 0;
    }
    return count;
}

/* Makes one call of the environment; whole parts are passed in place. */
static qs_status write_some(qs_env *env, qs_file *file, const struct write_place *place,
                            size_t step_bytes, size_t *written_out, qs_error *error)
{
    qs_part slice[SLICE_PARTS];
    const qs_part *parts = place->parts;
    size_t count = place->part_count < QS_PARTS_MAX ? place->part_count : QS_PARTS_MAX;

    QS_DCHECK(place->part_count > 0 && step_bytes > 0);
    if (place->part_done > 0 || step_bytes < SIZE_MAX) {
        count = copy_slice(slice, place, step_bytes);
        parts = slice;
    }
    QS_DCHECK(count > 0 && count <= QS_PARTS_MAX);
    return env->write(env, file, parts, count, place->offset, written_out, error);
}

/* Writes in steps, and starts the device after each step except the last. */
static qs_status write_steps(qs_env *env, qs_file *file, struct write_place *place,
                             size_t step_bytes, qs_error *error)
{
    advance(place, 0);
    while (place->part_count > 0) {
        size_t written = 0;
        qs_status status = write_some(env, file, place, step_bytes, &written, error);

        if (status == QS_EINTR) {
            continue;
        }
        if (status != QS_OK) {
            return status;
        }
        if (written == 0) {
            return qsi_fail(error, QS_EIO, "write: the device took no bytes");
        }
        QS_DCHECK(step_bytes == SIZE_MAX || written <= step_bytes);
        QS_DCHECK(written > 0);
        advance(place, written);
        if (step_bytes < SIZE_MAX && place->part_count > 0 && env->begin_sync != NULL) {
            env->begin_sync(env, file, place->offset - written, written);
        }
    }
    return QS_OK;
}

qs_status qsi_file_write(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                         uint64_t offset, qs_error *error)
{
    struct write_place place = {.parts = parts, .part_count = part_count, .offset = offset};

    return write_steps(env, file, &place, SIZE_MAX, error);
}

qs_status qsi_file_stream(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                          uint64_t offset, qs_error *error)
{
    struct write_place place = {.parts = parts, .part_count = part_count, .offset = offset};

    return write_steps(env, file, &place, STREAM_BYTES, error);
}

qs_status qsi_file_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                        size_t *read_out, qs_error *error)
{
    size_t done = 0;

    *read_out = 0;
    while (done < bytes) {
        size_t more = 0;
        qs_status status =
            env->read(env, file, (uint8_t *)data + done, bytes - done, offset + done, &more, error);

        if (status == QS_EINTR) {
            continue;
        }
        if (status != QS_OK) {
            return status;
        }
        if (more == 0) {
            break;
        }
        QS_ASSERT(more <= bytes - done);
        done += more;
    }
    *read_out = done;
    return QS_OK;
}

/* -- syncs ------------------------------------------------------------------------------------ */

/* Changes interruptions and shortages to QS_EIO: they invite a repetition, and a repeated sync
 * reports success for lost bytes. */
static qs_status final_sync_status(qs_status status, qs_error *error)
{
    if (status == QS_EINTR) {
        return qsi_fail(error, QS_EIO, "sync interrupted: what was written may not be durable");
    }
    if (qsi_is_shortage(status)) {
        if (error != NULL) {
            error->status = QS_EIO;
        }
        return QS_EIO;
    }
    QS_DCHECK(!qsi_is_shortage(status)); /* otherwise it would be tried again */
    return status;
}

qs_status qsi_file_sync(qs_env *env, qs_file *file, qs_error *error)
{
    return final_sync_status(env->sync(env, file, error), error);
}

qs_status qsi_file_sync_new(qs_env *env, qs_file *file, qs_error *error)
{
    qs_status status = env->sync(env, file, error);

    return qsi_is_shortage(status) ? status : final_sync_status(status, error);
}

qs_status qsi_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    return final_sync_status(env->dir_sync(env, dir, error), error);
}

qs_status qsi_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_status status = env->dir_sync_parent(env, dir, error);

    /* Without a descriptor for the parent, nothing was synced. */
    return status == QS_EMFILE ? status : final_sync_status(status, error);
}

/* -- whole files ------------------------------------------------------------------------------ */

qs_status qsi_file_allocate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    qs_status status;

    do {
        status = env->allocate(env, file, bytes, error);
    } while (status == QS_EINTR);
    return status;
}

qs_status qsi_file_write_zeros(qs_env *env, qs_file *file, uint64_t offset, uint64_t bytes,
                               qs_error *error)
{
    qs_part parts[ZERO_STEP_PARTS];
    uint64_t end = offset + bytes;

    QS_DCHECK(end >= offset);
    while (offset < end) {
        uint64_t left = end - offset;
        size_t count = 0;

        for (; count < ZERO_STEP_PARTS && left > 0; count++) {
            size_t part_bytes = left < ZERO_BLOCK_BYTES ? (size_t)left : ZERO_BLOCK_BYTES;

            parts[count] = (qs_part){.data = zero_block, .bytes = part_bytes};
            left -= part_bytes;
        }
        QS_TRY(qsi_file_write(env, file, parts, count, offset, error));
        QS_DCHECK(end - left > offset);
        offset = end - left;
    }
    return QS_OK;
}

/* Reserving first makes a full disk an early, harmless QS_ENOSPC.  The zeros turn the extents into
 * written ones, so later syncs write only data. */
static qs_status fill_new_file(qs_env *env, qs_file *file, uint64_t bytes, enum qsi_fill fill,
                               qs_error *error)
{
    QS_DCHECK(fill == QSI_FILL_ZEROS || fill == QSI_FILL_RESERVE);
    QS_TRY(qsi_file_allocate(env, file, bytes, error));
    if (fill == QSI_FILL_ZEROS) {
        QS_TRY(qsi_file_write_zeros(env, file, 0, bytes, error));
    }
    return qsi_file_sync_new(env, file, error);
}

qs_status qsi_file_create(qs_env *env, qs_dir *dir, const char *name, uint64_t bytes,
                          enum qsi_fill fill, qs_file **file_out, qs_error *error)
{
    qs_status status;
    qs_file *file = NULL;

    *file_out = NULL;
    status = qsi_env_open(env, dir, name, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, error);
    if (status != QS_OK) {
        return status;
    }
    status = fill_new_file(env, file, bytes, fill, error);
    if (status != QS_OK) {
        goto out;
    }
    status = qsi_dir_sync(env, dir, error);
    if (status != QS_OK) {
        goto out;
    }
    QS_DCHECK(file != NULL);
    *file_out = file;
    file = NULL;
out:
    if (file != NULL) {
        env->close(env, file);
        (void)qsi_env_remove(env, dir, name, NULL); /* the first failure is reported */
    }
    return status;
}

/* Opens a temporary file.  One that a crash left is replaced, because such files are never read. */
static qs_status open_tmp(qs_env *env, qs_dir *dir, const char *tmp_name, qs_file **file_out,
                          qs_error *error)
{
    uint32_t flags = QS_OPEN_WRITE | QS_OPEN_CREATE_NEW;
    qs_status status = qsi_env_open(env, dir, tmp_name, flags, file_out, error);

    if (status != QS_EEXIST) {
        return status;
    }
    QS_TRY(qsi_env_remove(env, dir, tmp_name, error));
    return qsi_env_open(env, dir, tmp_name, flags, file_out, error);
}

static qs_status write_tmp(qs_env *env, qs_dir *dir, const char *tmp_name, const void *data,
                           size_t bytes, qs_error *error)
{
    qs_status status;
    qs_file *file = NULL;
    qs_part part = {.data = data, .bytes = bytes};

    status = open_tmp(env, dir, tmp_name, &file, error);
    if (status != QS_OK) {
        return status;
    }
    status = qsi_file_write(env, file, &part, 1, 0, error);
    if (status != QS_OK) {
        goto out;
    }
    status = qsi_file_sync_new(env, file, error);
out:
    env->close(env, file);
    if (status != QS_OK) {
        (void)qsi_env_remove(env, dir, tmp_name, NULL);
    }
    return status;
}

qs_status qsi_file_replace(qs_env *env, qs_dir *dir, const char *name, const void *data,
                           size_t bytes, qs_error *error)
{
    char tmp_name[QS_NAME_BYTES_MAX + sizeof TMP_SUFFIX];
    qs_status status;

    snprintf(tmp_name, sizeof tmp_name, "%s" TMP_SUFFIX, name);
    status = write_tmp(env, dir, tmp_name, data, bytes, error);
    if (status != QS_OK) {
        return status;
    }
    status = qsi_env_rename(env, dir, tmp_name, name, error);
    if (status != QS_OK) {
        (void)qsi_env_remove(env, dir, tmp_name, NULL);
        return status;
    }
    return qsi_dir_sync(env, dir, error);
}

static qs_status load_open_file(qs_env *env, qs_file *file, const char *name, size_t bytes_max,
                                uint8_t **data_out, size_t *bytes_out, qs_error *error)
{
    uint64_t bytes;
    uint8_t *data;
    qs_status status;

    QS_TRY(qsi_env_size(env, file, &bytes, error));
    if (bytes > bytes_max) {
        return qsi_fail_corrupt(error, name, bytes_max, "%llu bytes where at most %zu are expected",
                                (unsigned long long)bytes, bytes_max);
    }
    data = qsi_alloc((size_t)bytes);
    if (data == NULL) {
        return qsi_fail(error, QS_ENOMEM, "read '%s': out of memory", name);
    }
    status = qsi_file_read(env, file, data, (size_t)bytes, 0, bytes_out, error);
    if (status != QS_OK) {
        qsi_free(data);
        return status;
    }
    QS_ASSERT(*bytes_out <= (size_t)bytes);
    *data_out = data;
    return QS_OK;
}

qs_status qsi_file_load(qs_env *env, qs_dir *dir, const char *name, size_t bytes_max,
                        uint8_t **data_out, size_t *bytes_out, qs_error *error)
{
    qs_file *file;
    qs_status status;

    *data_out = NULL;
    *bytes_out = 0;
    QS_TRY(qsi_env_open(env, dir, name, QS_OPEN_READ, &file, error));
    status = load_open_file(env, file, name, bytes_max, data_out, bytes_out, error);
    env->close(env, file);
    return status;
}

/* -- directories ------------------------------------------------------------------------------ */

qs_status qsi_dir_open(qs_env *env, qs_dir *parent, const char *name, qs_dir **dir_out,
                       qs_error *error)
{
    qs_status status;
    qs_dir *dir = NULL;
    bool created = false;

    *dir_out = NULL;
    QS_TRY(qsi_env_dir_open(env, parent, name, true, &dir, &created, error));
    if (created) {
        status = qsi_dir_sync(env, parent, error);
        if (status != QS_OK) {
            env->dir_close(env, dir);
            return status;
        }
    }
    QS_DCHECK(dir != NULL);
    *dir_out = dir;
    return QS_OK;
}
