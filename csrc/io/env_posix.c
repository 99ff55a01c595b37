/* The real environment: Linux system calls, one per function where that is possible.
 *
 * Invariants: every descriptor is close-on-exec and above 2; every name is resolved relative to an
 * open directory and never through a symbolic link; every file that was opened is a regular one
 * with a single name.  So nobody who can only plant names in the store can make it hang on a FIFO
 * or write elsewhere. */
#define _GNU_SOURCE 1 /* fallocate, pwritev, statx, sync_file_range */
#include "env_posix.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "file_system.h"
#include "hash.h"
#include "name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define DIR_MODE 0700
#define FILE_MODE 0600
#define MODE_BITS 0777
#define ZERO_BYTES 65536
#define NS_PER_SECOND 1000000000u
#define US_PER_SECOND 1000000u
#define NS_PER_US 1000u

struct posix_dir {
    int fd;
};

struct posix_file {
    int fd;
    struct qsi_posix_lock *lock;      /* NULL: a file */
    char name[QS_NAME_BYTES_MAX + 1]; /* as it was opened, for error text */
};

static struct posix_dir *posix_dir_of(qs_dir *dir)
{
    return (struct posix_dir *)(void *)dir;
}

static struct posix_file *posix_file_of(qs_file *file)
{
    return (struct posix_file *)(void *)file;
}

static qs_status status_of_errno(int os_errno)
{
    switch (os_errno) {
    case ENOMEM:
        return QS_ENOMEM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return QS_ENOSPC;
    case EMFILE:
    case ENFILE:
        return QS_EMFILE;
    case EINTR:
        return QS_EINTR;
    case ENOENT:
        return QS_ENOENT;
    case EEXIST:
        return QS_EEXIST;
    default:
        return QS_EIO;
    }
}

qs_status qsi_posix_fail(qs_error *error, const char *what, const char *name)
{
    int os_errno = errno;
    qs_status status =
        qsi_fail_errno(error, status_of_errno(os_errno), os_errno, "%s '%s'", what, name);

    qsi_error_set_path(error, name);
    return status;
}

qs_status qsi_posix_fail_kind(qs_error *error, const char *name, const char *what)
{
    qs_status status = qsi_fail(error, QS_EIO, "'%s' %s", name, what);

    qsi_error_set_path(error, name);
    return status;
}

/* -- descriptors ------------------------------------------------------------------------------ */

/* A host that closed stdin would give us its number; a later stray printf would then write into a
 * segment.  Returns -1 with errno set, and fd closed, on failure. */
static int move_above_stdio(int fd)
{
    int moved;
    int os_errno;

    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    os_errno = errno;
    close(fd);
    errno = os_errno;
    return moved;
}

int qsi_posix_open_directory_at(int parent_fd, const char *name, int more_flags)
{
    return move_above_stdio(
        openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | more_flags));
}

/* The umask may have taken bits away from a new directory: without them its owner cannot open
 * it. */
static int make_directory_at(int parent_fd, const char *name)
{
    if (mkdirat(parent_fd, name, DIR_MODE) != 0) {
        return -1;
    }
    return fchmodat(parent_fd, name, DIR_MODE, 0);
}

/* Opens the directory, making it if it is missing and create says so.  Losing the race to another
 * creator is fine: it is there then, and created_out stays false. */
static qs_status open_or_make_directory(int parent_fd, const char *name, int more_flags,
                                        bool create, int *fd_out, bool *created_out,
                                        qs_error *error)
{
    bool created = false;
    int fd = qsi_posix_open_directory_at(parent_fd, name, more_flags);

    if (fd < 0 && errno == ENOENT && create) {
        created = make_directory_at(parent_fd, name) == 0;
        if (!created && errno != EEXIST) {
            return qsi_posix_fail(error, "make directory", name);
        }
        fd = qsi_posix_open_directory_at(parent_fd, name, more_flags);
    }
    if (fd < 0) {
        return qsi_posix_fail(error, "open directory", name);
    }
    *fd_out = fd;
    *created_out = created;
    return QS_OK;
}

/* -- directories ------------------------------------------------------------------------------ */

/* Takes fd over, also on failure. */
static qs_status wrap_directory(int fd, qs_dir **dir_out, qs_error *error)
{
    struct posix_dir *dir = qsi_alloc(sizeof *dir);

    if (dir == NULL) {
        close(fd);
        return qsi_fail(error, QS_ENOMEM, "open directory: out of memory");
    }
    dir->fd = fd;
    *dir_out = (qs_dir *)(void *)dir;
    return QS_OK;
}

/* Who can write in a directory of the store can replace the files in it. */
static qs_status check_private(int fd, const char *path, const char *what, qs_error *error)
{
    struct stat stat;

    if (fstat(fd, &stat) != 0) {
        return qsi_posix_fail(error, "stat", path);
    }
    if (stat.st_uid != geteuid()) {
        return qsi_fail(error, QS_EINVAL,
                        "%s '%s' belongs to user %lu and this process runs as user "
                        "%lu: run it as the owner, or chown the directory and chmod it to 0700",
                        what, path, (unsigned long)stat.st_uid, (unsigned long)geteuid());
    }
    if ((stat.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return qsi_fail(error, QS_EINVAL,
                        "%s '%s' can be written by other users (mode %04o): "
                        "chmod go-w '%s'",
                        what, path, (unsigned)stat.st_mode & MODE_BITS, path);
    }
    return QS_OK;
}

/* The root may be reached through symbolic links: its path is the user's own choice. */
static qs_status posix_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                                     bool *created_out, qs_error *error)
{
    qs_status status;
    int fd = -1;

    (void)env;
    *dir_out = NULL;
    *created_out = false;
    status = open_or_make_directory(AT_FDCWD, path, 0, create, &fd, created_out, error);
    if (status != QS_OK) {
        return status;
    }
    status = check_private(fd, path, "store directory", error);
    if (status != QS_OK) {
        close(fd);
        return status;
    }
    return wrap_directory(fd, dir_out, error);
}

static qs_status posix_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                                qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_status status;
    int fd;

    (void)env;
    *dir_out = NULL;
    *created_out = false;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(open_or_make_directory(posix_dir_of(parent)->fd, name, O_NOFOLLOW, create, &fd,
                                  created_out, error));
    status = check_private(fd, name, "the store's directory", error);
    if (status != QS_OK) {
        close(fd);
        return status;
    }
    return wrap_directory(fd, dir_out, error);
}

static qs_status posix_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    (void)env;
    if (fsync(posix_dir_of(dir)->fd) != 0) {
        return qsi_posix_fail(error, "sync directory", ".");
    }
    return QS_OK;
}

/* ".." of an open directory is its parent even if the path meanwhile means something else. */
static qs_status posix_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_status status = QS_OK;
    int fd;

    (void)env;
    fd = qsi_posix_open_directory_at(posix_dir_of(dir)->fd, "..", 0);
    if (fd < 0) {
        return qsi_posix_fail(error, "open directory", "..");
    }
    if (fsync(fd) != 0) {
        status = qsi_posix_fail(error, "sync directory", "..");
    }
    close(fd);
    return status;
}

static qs_status visit_entries(DIR *stream, qs_name_visitor *visit, void *context, qs_error *error)
{
    for (;;) {
        const struct dirent *entry;

        errno = 0; /* the only way to tell the end from a failure */
        entry = readdir(stream);
        if (entry == NULL) {
            return errno == 0 ? QS_OK : qsi_posix_fail(error, "list directory", ".");
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (!visit(context, entry->d_name)) {
            return QS_OK;
        }
    }
}

/* Walks on a description of its own, so that walks of several threads have a place each. */
static qs_status posix_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                                qs_error *error)
{
    qs_status status;
    DIR *stream;
    int fd;

    (void)env;
    fd = qsi_posix_open_directory_at(posix_dir_of(dir)->fd, ".", 0);
    if (fd < 0) {
        return qsi_posix_fail(error, "open directory", ".");
    }
    stream = fdopendir(fd);
    if (stream == NULL) {
        status = qsi_posix_fail(error, "list directory", ".");
        close(fd);
        return status;
    }
    status = visit_entries(stream, visit, context, error);
    closedir(stream);
    return status;
}

static void posix_dir_close(qs_env *env, qs_dir *dir)
{
    (void)env;
    if (dir != NULL) {
        close(posix_dir_of(dir)->fd);
        qsi_free(dir);
    }
}

/* -- names ------------------------------------------------------------------------------------ */

static qs_status posix_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                              qs_error *error)
{
    int fd = posix_dir_of(dir)->fd;

    (void)env;
    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    if (renameat(fd, from, fd, to) != 0) {
        return qsi_posix_fail(error, "rename", from);
    }
    return QS_OK;
}

static qs_status posix_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    int fd = posix_dir_of(dir)->fd;
    int result;

    (void)env;
    QS_TRY(qsi_name_check(name, error));
    result = unlinkat(fd, name, 0);
    if (result != 0 && errno == EISDIR) {
        result = unlinkat(fd, name, AT_REMOVEDIR);
    }
    return result == 0 ? QS_OK : qsi_posix_fail(error, "remove", name);
}

/* -- files ------------------------------------------------------------------------------------ */

/* O_NONBLOCK: opening a FIFO must not wait for its other end.  It means nothing for regular
 * files. */
int qsi_posix_open_at(int dir_fd, const char *name, int flags)
{
    return move_above_stdio(
        openat(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, FILE_MODE));
}

qs_status qsi_posix_check_regular(int fd, const char *name, struct stat *stat_out, qs_error *error)
{
    if (fstat(fd, stat_out) != 0) {
        return qsi_posix_fail(error, "stat", name);
    }
    if (!S_ISREG(stat_out->st_mode)) {
        return qsi_posix_fail_kind(error, name, "is not a regular file");
    }
    if (stat_out->st_nlink != 1) {
        return qsi_posix_fail_kind(error, name,
                                   "has other names as well (hard links), or none any more");
    }
    return QS_OK;
}

qs_status qsi_posix_set_file_mode(int fd, const char *name, const struct stat *stat,
                                  qs_error *error)
{
    if ((stat->st_mode & MODE_BITS) != FILE_MODE && fchmod(fd, FILE_MODE) != 0) {
        return qsi_posix_fail(error, "chmod", name);
    }
    return QS_OK;
}

static struct posix_file *create_handle(int fd, const char *name)
{
    struct posix_file *file = qsi_alloc(sizeof *file);

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

    return (flags & QS_OPEN_CREATE_NEW) != 0 ? posix_flags | O_CREAT | O_EXCL : posix_flags;
}

qs_status qsi_posix_fail_open(qs_error *error, const char *name)
{
    if (errno == ELOOP) { /* strerror's text would speak of levels */
        return qsi_posix_fail_kind(error, name, "is a symbolic link, which is never followed");
    }
    return qsi_posix_fail(error, "open", name);
}

static qs_status open_regular(int dir_fd, const char *name, uint32_t flags, qs_file **file_out,
                              qs_error *error)
{
    qs_status status;
    bool is_new = (flags & QS_OPEN_CREATE_NEW) != 0;
    int fd = qsi_posix_open_at(dir_fd, name, posix_open_flags(flags));
    struct posix_file *file;
    struct stat stat;

    if (fd < 0) {
        return qsi_posix_fail_open(error, name);
    }
    status = qsi_posix_check_regular(fd, name, &stat, error);
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

static qs_status posix_open(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                            qs_file **file_out, qs_error *error)
{
    (void)env;
    *file_out = NULL;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(qsi_open_flags_check(flags, name, error));
    return open_regular(posix_dir_of(dir)->fd, name, flags, file_out, error);
}

static void posix_close(qs_env *env, qs_file *handle)
{
    struct posix_file *file = posix_file_of(handle);

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

static qs_status posix_read(qs_env *env, qs_file *handle, void *data, size_t bytes, uint64_t offset,
                            size_t *read_out, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);
    ssize_t result;

    (void)env;
    *read_out = 0;
    if (offset > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    result = pread(file->fd, data, bytes, (off_t)offset);
    if (result < 0) {
        return qsi_posix_fail(error, "read", file->name);
    }
    *read_out = (size_t)result;
    return QS_OK;
}

/* A qs_part has the layout of an iovec, which saves copying a thousand of them per write; the
 * kernel does not write through iov_base here. */
_Static_assert(sizeof(qs_part) == sizeof(struct iovec), "qs_part is an iovec");
_Static_assert(offsetof(qs_part, data) == offsetof(struct iovec, iov_base), "qs_part is an iovec");
_Static_assert(offsetof(qs_part, bytes) == offsetof(struct iovec, iov_len), "qs_part is an iovec");

static qs_status posix_write(qs_env *env, qs_file *handle, const qs_part *parts, size_t part_count,
                             uint64_t offset, size_t *written_out, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);
    ssize_t result;

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

static qs_status posix_sync(qs_env *env, qs_file *handle, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);

    (void)env;
    if (fdatasync(file->fd) != 0) {
        return qsi_posix_fail(error, "sync", file->name);
    }
    return QS_OK;
}

/* Without waiting nobody is told of an error of the device: fdatasync still is. */
static void posix_begin_sync(qs_env *env, qs_file *handle, uint64_t offset, uint64_t bytes)
{
    (void)env;
    (void)sync_file_range(posix_file_of(handle)->fd, (off_t)offset, (off_t)bytes,
                          SYNC_FILE_RANGE_WRITE);
}

static qs_status posix_size(qs_env *env, qs_file *handle, uint64_t *bytes_out, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);
    struct stat stat;

    (void)env;
    *bytes_out = 0;
    if (fstat(file->fd, &stat) != 0) {
        return qsi_posix_fail(error, "stat", file->name);
    }
    *bytes_out = (uint64_t)stat.st_size;
    return QS_OK;
}

/* Where blocks cannot be reserved, they are taken by writing to them: else a full disk would be met by a commit.  EINTR after a
 * part is no harm: whoever repeats the call goes on behind it. */
static qs_status extend_with_zeros(struct posix_file *file, uint64_t bytes, qs_error *error)
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
    }
    return QS_OK;
}

static qs_status posix_allocate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);

    (void)env;
    if (bytes == 0) {
        return QS_OK; /* nothing to reserve, which fallocate calls an error */
    }
    if (bytes > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    if (fallocate(file->fd, 0, 0, (off_t)bytes) == 0) {
        return QS_OK;
    }
    if (errno == EOPNOTSUPP) {
        return extend_with_zeros(file, bytes, error);
    }
    return qsi_posix_fail(error, "allocate", file->name);
}

static qs_status posix_truncate(qs_env *env, qs_file *handle, uint64_t bytes, qs_error *error)
{
    struct posix_file *file = posix_file_of(handle);

    (void)env;
    if (bytes > INT64_MAX) {
        return fail_beyond_off_t(error, file->name);
    }
    if (ftruncate(file->fd, (off_t)bytes) != 0) {
        return qsi_posix_fail(error, "truncate", file->name);
    }
    return QS_OK;
}

static qs_status posix_space(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                             qs_error *error)
{
    struct statvfs stat;

    (void)env;
    *total_out = *free_out = 0;
    if (fstatvfs(posix_dir_of(dir)->fd, &stat) != 0) {
        return qsi_posix_fail(error, "space of directory", ".");
    }
    *total_out = (uint64_t)stat.f_blocks * stat.f_frsize;
    *free_out = (uint64_t)stat.f_bavail * stat.f_frsize;
    return QS_OK;
}

/* -- the lock --------------------------------------------------------------------------------- */

static qs_status lock_as(qs_dir *dir, const char *name, bool is_shared, qs_file **lock_out,
                         uint64_t *pid_out, qs_error *error)
{
    struct posix_file *file;
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    QS_TRY(qsi_name_check(name, error));
    file = create_handle(-1, name);
    if (file == NULL) {
        return qsi_fail(error, QS_ENOMEM, "lock '%s': out of memory", name);
    }
    status =
        qsi_posix_lock_take(posix_dir_of(dir)->fd, name, is_shared, &file->lock, pid_out, error);
    if (status != QS_OK) {
        qsi_free(file);
        return status;
    }
    *lock_out = (qs_file *)(void *)file;
    return QS_OK;
}

static qs_status posix_lock(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                            uint64_t *pid_out, qs_error *error)
{
    (void)env;
    return lock_as(dir, name, false, lock_out, pid_out, error);
}

static qs_status posix_lock_shared(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                                   uint64_t *pid_out, qs_error *error)
{
    (void)env;
    return lock_as(dir, name, true, lock_out, pid_out, error);
}

/* Each commit asks, so the times are not asked for: Linux 6.13 and later give a file whose times
 * somebody has seen a new time at its next write, and the sync of that write then writes the inode,
 * too, which takes half as long again. */
bool qsi_posix_is_unlinked(int fd)
{
    struct statx stat;

    return fd >= 0 && statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &stat) == 0 && stat.stx_nlink == 0;
}

static qs_status posix_check_linked(qs_env *env, qs_file *handle, qs_error *error)
{
    const struct posix_file *file = posix_file_of(handle);

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

/* -- clock and randomness --------------------------------------------------------------------- */

static uint64_t posix_monotonic_ns(qs_env *env)
{
    struct timespec time;

    (void)env;
    QS_ASSERT(clock_gettime(CLOCK_BOOTTIME, &time) == 0);
    return (uint64_t)time.tv_sec * NS_PER_SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t posix_wall_us(qs_env *env)
{
    struct timespec time;

    (void)env;
    QS_ASSERT(clock_gettime(CLOCK_REALTIME, &time) == 0);
    return (uint64_t)time.tv_sec * US_PER_SECOND + (uint64_t)time.tv_nsec / NS_PER_US;
}

/* Loops, unlike the rest: half a salt is of no use to anyone. */
static qs_status posix_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
    uint8_t *next = data;

    (void)env;
    while (bytes > 0) {
        ssize_t result = getrandom(next, bytes, 0);

        if (result < 0 && errno != EINTR) {
            return qsi_posix_fail(error, "read", "random numbers");
        }
        if (result > 0) {
            next += result;
            bytes -= (size_t)result;
        }
    }
    return QS_OK;
}

static void posix_file_system(qs_env *env, qs_dir *dir, qs_file_system *system_out)
{
    struct statfs stat;

    (void)env;
    *system_out = (qs_file_system){.kind = QS_FS_UNKNOWN};
    if (fstatfs(posix_dir_of(dir)->fd, &stat) == 0) {
        qsi_file_system_of((uint32_t)stat.f_type, system_out);
    }
}

/* When the library is loaded, before any name is hashed.  A machine that has no random numbers yet,
 * early in its start, is not waited for: then it is those that the kernel gave the process. */
__attribute__((constructor)) static void draw_hash_key(void)
{
    uint8_t key[QSI_HASH_KEY_BYTES];

    if (getrandom(key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key) {
        memcpy(key, (const void *)(uintptr_t)getauxval(AT_RANDOM), sizeof key);
    }
    qsi_hash_set_key(key);
}

static const qs_env posix_env = {
    .version = QS_ENV_VERSION,
    .dir_open_root = posix_dir_open_root,
    .dir_sync_parent = posix_dir_sync_parent,
    .dir_open = posix_dir_open,
    .dir_sync = posix_dir_sync,
    .dir_list = posix_dir_list,
    .dir_close = posix_dir_close,
    .rename = posix_rename,
    .remove = posix_remove,
    .open = posix_open,
    .close = posix_close,
    .read = posix_read,
    .write = posix_write,
    .sync = posix_sync,
    .begin_sync = posix_begin_sync,
    .size = posix_size,
    .allocate = posix_allocate,
    .truncate = posix_truncate,
    .space = posix_space,
    .lock = posix_lock,
    .lock_shared = posix_lock_shared,
    .check_linked = posix_check_linked,
    .monotonic_ns = posix_monotonic_ns,
    .wall_us = posix_wall_us,
    .random = posix_random,
    .file_system = posix_file_system,
};

/* Not const in the interface because other environments carry state; nobody writes to this one. */
qs_env *qs_env_posix(void)
{
    return (qs_env *)&posix_env;
}
