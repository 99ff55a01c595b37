/* Files of the real environment, and handles of its locks. */
#define _GNU_SOURCE 1 /* fallocate, pwritev, sync_file_range */
#include "alloc.h"
#include "check.h"
#include "env_posix_internal.h"
#include "error.h"
#include "name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#define ZERO_BYTES 65536

static struct qsi_posix_file *create_handle(int fd, const char *name)
{
    struct qsi_posix_file *file = qsi_alloc(sizeof *file);

    QS_DCHECK(strlen(name) < sizeof file->name);
    QS_DCHECK(fd == -1 || fd > STDERR_FILENO);
    if (file != NULL) {
        file->fd = fd;
        file->lock = NULL;
        snprintf(file->name, sizeof file->name, "%s", name);
    }
    return file;
}

static int posix_open_flags(uint32_t flags)
{
    int posix_flags = (flags & QS_OPEN_WRITE) != 0 ? O_RDWR : O_RDONLY;

    QS_DCHECK((flags & QS_OPEN_CREATE_NEW) == 0 || (flags & QS_OPEN_WRITE) != 0);
    return (flags & QS_OPEN_CREATE_NEW) != 0 ? posix_flags | O_CREAT | O_EXCL : posix_flags;
}

static qs_status open_regular(int dir_fd, const char *name, uint32_t flags, qs_file **file_out,
                              qs_error *error)
{
    qs_status status;
    bool is_new = (flags & QS_OPEN_CREATE_NEW) != 0;
    int fd = qsi_posix_open_at(dir_fd, name, posix_open_flags(flags));
    struct qsi_posix_file *file;
    struct stat stat;

    if (fd < 0) {
        return qsi_posix_fail_open(error, name);
    }
    status = qsi_posix_check_regular(fd, name, (flags & QS_OPEN_LINKED) != 0, &stat, error);
    if (status != QS_OK) {
        goto out;
    }
    if (is_new) {
        status = qsi_posix_set_file_mode(fd, name, &stat, error);
        if (status != QS_OK) {
            goto out;
        }
    }
    file = create_handle(fd, name);
    if (file == NULL) {
        status = qsi_fail(error, QS_ENOMEM, "open '%s': out of memory", name);
        goto out;
    }
    *file_out = (qs_file *)(void *)file;
    fd = -1;
out:
    if (fd >= 0) {
        close(fd);
        if (is_new) {
            unlinkat(dir_fd, name, 0); /* a failed open leaves no new name */
        }
    }
    return status;
}

qs_status qsi_posix_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                         qs_file **file_out, qs_error *error)
{
    (void)env;
    *file_out = NULL;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(qsi_open_flags_check(flags, name, error));
    return open_regular(qsi_posix_dir_of(dir)->fd, name, flags, file_out, error);
}

void qsi_posix_close(qs_env *env, qs_file *handle)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);

    (void)env;
    if (file == NULL) {
        return;
    }
    if (file->lock != NULL) {
        qsi_posix_lock_release(file->lock);
    } else {
        close(file->fd);
    }
    qsi_free(file);
}

static qs_status fail_beyond_off_t(qs_error *error, const char *name)
{
    qs_status status = qsi_fail(error, QS_EINVAL, "'%s': offset beyond what a file can have", name);

    qsi_error_set_path(error, name);
    return status;
}

qs_status qsi_posix_read(qs_env *env, qs_file *handle, void *data, size_t bytes, uint64_t offset,
                         size_t *read_out, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);
    ssize_t result;

    QS_DCHECK(file->lock == NULL);
    (void)env;
    *read_out = 0;
    if (offset > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    result = pread(file->fd, data, bytes, (off_t)offset);
    if (result < 0) {
        return qsi_posix_fail(error, "read", file->name);
    }
    QS_ASSERT((size_t)result <= bytes);
    *read_out = (size_t)result;
    return QS_OK;
}

/* A qs_part has the layout of an iovec, which avoids copying up to a thousand of them per write;
 * the kernel does not write through iov_base here. */
_Static_assert(sizeof(qs_part) == sizeof(struct iovec), "qs_part is an iovec");
_Static_assert(offsetof(qs_part, data) == offsetof(struct iovec, iov_base), "qs_part is an iovec");
_Static_assert(offsetof(qs_part, bytes) == offsetof(struct iovec, iov_len), "qs_part is an iovec");

qs_status qsi_posix_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                          uint64_t offset, size_t *written_out, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);
    ssize_t result;

    QS_DCHECK(file->lock == NULL); /* the lock file's text is written before there is a handle */
    (void)env;
    QS_ASSERT(part_count <= QS_PARTS_MAX);
    *written_out = 0;
    if (offset > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    result = pwritev(file->fd, (const struct iovec *)(const void *)parts, (int)part_count,
                     (off_t)offset);
    if (result < 0) {
        return qsi_posix_fail(error, "write", file->name);
    }
    *written_out = (size_t)result;
    return QS_OK;
}

/* Calls fdatasync; on macOS F_FULLFSYNC, because fsync leaves bytes in the disk's cache there. */
static int sync_data(int fd)
{
#ifdef F_FULLFSYNC
    return fcntl(fd, F_FULLFSYNC);
#else
    return fdatasync(fd);
#endif
}

qs_status qsi_posix_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);

    QS_DCHECK(file->lock == NULL);
    (void)env;
    if (sync_data(file->fd) != 0) {
        return qsi_posix_fail(error, "sync", file->name);
    }
    return QS_OK;
}

/* Errors of the device are not reported here: fdatasync reports them. */
void qsi_posix_begin_sync(qs_env *env, qs_file *handle, uint64_t offset, uint64_t bytes)
{
    QS_DCHECK(offset + bytes <= INT64_MAX);
    (void)env;
#ifdef __APPLE__
    (void)handle; /* macOS can only sync and wait */
#else
    (void)sync_file_range(qsi_posix_file_of(handle)->fd, (off_t)offset, (off_t)bytes,
                          SYNC_FILE_RANGE_WRITE);
#endif
}

qs_status qsi_posix_size(qs_env *env, qs_file *handle, uint64_t *bytes_out, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);
    struct stat stat;

    (void)env;
    *bytes_out = 0;
    if (fstat(file->fd, &stat) != 0) {
        return qsi_posix_fail(error, "stat", file->name);
    }
    *bytes_out = (uint64_t)stat.st_size;
    return QS_OK;
}

/* Allocates blocks by writing zeros if they cannot be reserved: otherwise a commit would meet the
 * full disk.  EINTR after a part is harmless: a repeated call continues after it. */
static qs_status extend_with_zeros(struct qsi_posix_file *file, uint64_t bytes, qs_error *error)
{
    static const uint8_t zeros[ZERO_BYTES];
    struct stat stat;
    uint64_t at;

    if (fstat(file->fd, &stat) != 0) {
        return qsi_posix_fail(error, "stat", file->name);
    }
    at = (uint64_t)stat.st_size;
    while (at < bytes) {
        size_t step = bytes - at < ZERO_BYTES ? (size_t)(bytes - at) : ZERO_BYTES;
        ssize_t written = pwrite(file->fd, zeros, step, (off_t)at);
        if (written < 0) {
            return qsi_posix_fail(error, "extend", file->name);
        }
        at += (uint64_t)written;
        QS_DCHECK(at <= bytes);
    }
    return QS_OK;
}

/* Returns -1 with errno set on failure.  macOS reserves blocks (F_PREALLOCATE), but not as part of
 * the file: zeros are written there. */
static int reserve(int fd, uint64_t bytes)
{
#ifdef __APPLE__
    (void)fd;
    (void)bytes;
    errno = EOPNOTSUPP;
    return -1;
#else
    return fallocate(fd, 0, 0, (off_t)bytes);
#endif
}

qs_status qsi_posix_allocate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);

    QS_DCHECK(file->lock == NULL);
    (void)env;
    if (bytes == 0) {
        return QS_OK; /* nothing to reserve; fallocate would fail */
    }
    if (bytes > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    if (reserve(file->fd, bytes) == 0) {
        return QS_OK;
    }
    if (errno == EOPNOTSUPP) {
        return extend_with_zeros(file, bytes, error);
    }
    return qsi_posix_fail(error, "allocate", file->name);
}

qs_status qsi_posix_truncate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct qsi_posix_file *file = qsi_posix_file_of(handle);

    QS_DCHECK(file->lock == NULL);
    (void)env;
    if (bytes > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    if (ftruncate(file->fd, (off_t)bytes) != 0) {
        return qsi_posix_fail(error, "truncate", file->name);
    }
    return QS_OK;
}

qs_status qsi_posix_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                          qs_error *error)
{
    struct statvfs stat;

    (void)env;
    *total_out = *free_out = 0;
    if (fstatvfs(qsi_posix_dir_of(dir)->fd, &stat) != 0) {
        return qsi_posix_fail(error, "space of directory", ".");
    }
    *total_out = (uint64_t)stat.f_blocks * stat.f_frsize;
    *free_out = (uint64_t)stat.f_bavail * stat.f_frsize;
    return QS_OK;
}

static qs_status lock_as(qs_dir *dir, const char *name, bool is_shared, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error)
{
    struct qsi_posix_file *file;
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    QS_TRY(qsi_name_check(name, error));
    file = create_handle(-1, name);
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "lock '%s': out of memory", name);
    }
    status = qsi_posix_lock_take(qsi_posix_dir_of(dir)->fd, name, is_shared, &file->lock, pid_out,
                                 error);
    if (status != QS_OK) {
        qsi_free(file);
        return status;
    }
    QS_DCHECK(file->fd == -1 && file->lock != NULL);
    *lock_out = (qs_file *)(void *)file;
    return QS_OK;
}

qs_status qsi_posix_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error)
{
    (void)env;
    return lock_as(dir, name, false, lock_out, pid_out, error);
}

qs_status qsi_posix_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                uint64_t *pid_out, qs_error *error)
{
    (void)env;
    return lock_as(dir, name, true, lock_out, pid_out, error);
}

qs_status qsi_posix_check_linked(qs_env *env, qs_file *handle, qs_error *error)
{
    const struct qsi_posix_file *file = qsi_posix_file_of(handle);

    (void)env;
    if (file->lock != NULL) {
        return qsi_posix_lock_check(file->lock, error);
    }
    if (!qsi_posix_is_unlinked(file->fd)) {
        return QS_OK;
    }
    return qsi_posix_fail_kind(error, file->name,
                               "was removed while it was in use: what is written to it is lost "
                               "when the store is closed");
}
