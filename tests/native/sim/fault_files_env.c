/* The files of the fault environment: wrapped, because a broken write leaves a mark on its file. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "fault_env_internal.h"

#define PARTS_SHORT_MAX 8 /* a short write may be shorter than half: few parts are enough */

static struct fault_file *create_handle(void)
{
    return qsi_zalloc(sizeof(struct fault_file));
}

qs_status qsi_fault_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                         qs_file **file_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    struct fault_file *file;
    qs_status status;

    *file_out = NULL;
    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_OPEN, "open", error));
    file = create_handle();
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "open '%s': out of memory", name);
    }
    status = inner->open(inner, dir, name, flags, &file->inner, error);
    if (status != QS_OK) {
        qsi_free(file);
        return status;
    }
    *file_out = (qs_file *)(void *)file;
    return QS_OK;
}

typedef qs_status lock_call(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                            uint64_t *pid_out, qs_error *error);

static qs_status lock_with(qs_env *env, lock_call *call, qs_dir *dir, const char *name,
                           qs_file **lock_out, uint64_t *pid_out, qs_error *error)
{
    struct fault_file *file;
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_OPEN, "lock", error));
    file = create_handle();
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "lock '%s': out of memory", name);
    }
    status = call(qsi_fault_inner(env), dir, name, &file->inner, pid_out, error);
    if (status != QS_OK || file->inner == NULL) {
        qsi_free(file);
        return status;
    }
    *lock_out = (qs_file *)(void *)file;
    return QS_OK;
}

qs_status qsi_fault_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error)
{
    return lock_with(env, qsi_fault_inner(env)->lock, dir, name, lock_out, pid_out, error);
}

qs_status qsi_fault_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                uint64_t *pid_out, qs_error *error)
{
    return lock_with(env, qsi_fault_inner(env)->lock_shared, dir, name, lock_out, pid_out, error);
}

qs_status qsi_fault_check_linked(qs_env *env, qs_file *file, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_CHECK_LINKED, "stat", error));
    return inner->check_linked(inner, qsi_fault_file_of(file)->inner, error);
}

void qsi_fault_close(qs_env *env, qs_file *file)
{
    qs_env *inner = qsi_fault_inner(env);

    if (file != NULL) {
        inner->close(inner, qsi_fault_file_of(file)->inner);
        qsi_free(file);
    }
}

qs_status qsi_fault_read(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                         size_t *read_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    enum qsi_fault_how how;

    *read_out = 0;
    if (qsi_fault_draw(env, QSI_FAULT_READ, &how)) {
        if (how != QSI_FAULT_SHORT) {
            return qsi_fault_fail(error, how, "read");
        }
        bytes = bytes / 2 + bytes % 2; /* 0 bytes would mean the end of the file */
    }
    return inner->read(inner, qsi_fault_file_of(file)->inner, data, bytes, offset, read_out, error);
}

/* The first parts up to bytes, without the empty ones; their number. */
static size_t take_parts(qs_part *taken, const qs_part *parts, size_t part_count, size_t bytes)
{
    size_t count = 0;

    for (size_t i = 0; i < part_count && count < PARTS_SHORT_MAX && bytes > 0; i++) {
        if (parts[i].bytes == 0) {
            continue;
        }
        taken[count] = parts[i];
        if (taken[count].bytes > bytes) {
            taken[count].bytes = bytes;
        }
        bytes -= taken[count].bytes;
        count++;
    }
    return count;
}

static size_t total_bytes(const qs_part *parts, size_t part_count)
{
    size_t bytes = 0;

    for (size_t i = 0; i < part_count; i++) {
        bytes += parts[i].bytes;
    }
    return bytes;
}

static qs_status write_half(qs_env *inner, qs_file *file, const qs_part *parts, size_t part_count,
                            uint64_t offset, size_t *written_out, qs_error *error)
{
    qs_part taken[PARTS_SHORT_MAX];
    size_t bytes = total_bytes(parts, part_count);
    size_t count = take_parts(taken, parts, part_count, bytes / 2 + bytes % 2);

    return inner->write(inner, file, taken, count, offset, written_out, error);
}

qs_status qsi_fault_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                          uint64_t offset, size_t *written_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    struct fault_file *file = qsi_fault_file_of(handle);
    enum qsi_fault_how how;
    bool due = qsi_fault_draw(env, QSI_FAULT_WRITE, &how);

    *written_out = 0;
    if (file->is_broken) {
        file->is_broken = false;
        return qsi_fault_fail(error, QSI_FAULT_EIO, "write");
    }
    if (!due) {
        return inner->write(inner, file->inner, parts, part_count, offset, written_out, error);
    }
    if (how != QSI_FAULT_SHORT && how != QSI_FAULT_SHORT_EIO) {
        return qsi_fault_fail(error, how, "write");
    }
    file->is_broken = how == QSI_FAULT_SHORT_EIO;
    return write_half(inner, file->inner, parts, part_count, offset, written_out, error);
}

qs_status qsi_fault_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);
    qs_file *file = qsi_fault_file_of(handle)->inner;
    enum qsi_fault_how how;

    if (qsi_fault_draw(env, QSI_FAULT_SYNC, &how) && how != QSI_FAULT_SHORT) {
        if (how == QSI_FAULT_SYNC_LOST) {
            qsi_env_sim_lose_file(inner, file);
        }
        return qsi_fault_fail(error, how, "sync");
    }
    return inner->sync(inner, file, error);
}

qs_status qsi_fault_size(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    *bytes_out = 0;
    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_READ, "size", error));
    return inner->size(inner, qsi_fault_file_of(file)->inner, bytes_out, error);
}

qs_status qsi_fault_allocate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_ALLOCATE, "allocate", error));
    return inner->allocate(inner, qsi_fault_file_of(file)->inner, bytes, error);
}

qs_status qsi_fault_truncate(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    QS_TRY(qsi_fault_pass_or_fail(env, QSI_FAULT_ALLOCATE, "truncate", error));
    return inner->truncate(inner, qsi_fault_file_of(file)->inner, bytes, error);
}

qs_status qsi_fault_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                          qs_error *error)
{
    qs_env *inner = qsi_fault_inner(env);

    return inner->space(inner, dir, total_out, free_out, error);
}
