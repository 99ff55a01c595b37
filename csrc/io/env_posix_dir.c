/* Directories of the real environment, and their names. */
#define _GNU_SOURCE 1
#include "above_stdio.h"
#include "alloc.h"
#include "check.h"
#include "env_posix_internal.h"
#include "error.h"
#include "name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#ifdef __linux__
#include <sys/inotify.h>
#endif
#include <unistd.h>

#define DIR_MODE 0700
#define MODE_BITS 0777

/* -- opening ---------------------------------------------------------------------------------- */

/* Creates a directory, and restores permission bits that the umask removed: without them its owner
 * cannot open it. */
static int make_directory_at(int parent_fd, const char *name)
{
    if (mkdirat(parent_fd, name, DIR_MODE) != 0) {
        return -1;
    }
    return fchmodat(parent_fd, name, DIR_MODE, 0);
}

/* Opens the directory; with create, makes a missing one.  If another process makes it at the same
 * time, it is opened, and created_out stays false. */
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
    QS_DCHECK(fd > STDERR_FILENO);
    *fd_out = fd;
    *created_out = created;
    return QS_OK;
}

/* -- directories ------------------------------------------------------------------------------ */

/* Takes over fd, also on failure. */
static qs_status wrap_directory(int fd, qs_dir **dir_out, qs_error *error)
{
    struct qsi_posix_dir *dir = qsi_alloc(sizeof *dir);

    QS_DCHECK(fd > STDERR_FILENO);
    if (dir == NULL) {
        close(fd);
        return qsi_fail(error, QS_ENOMEM, "open directory: out of memory");
    }
    dir->fd = fd;
    *dir_out = (qs_dir *)(void *)dir;
    return QS_OK;
}

/* Refuses a directory that other users can write to: they could replace the store's files. */
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

/* The path of the root may have symbolic links: the user chose it. */
qs_status qsi_posix_dir_open_root(qs_env *env, const char *path, bool create, qs_dir **dir_out,
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
    status = check_private(fd, path, "directory", error);
    if (status != QS_OK) {
        close(fd);
        return status;
    }
    return wrap_directory(fd, dir_out, error);
}

qs_status qsi_posix_dir_open(qs_env *env, qs_dir *parent, const char *name, bool create,
                             qs_dir **dir_out, bool *created_out, qs_error *error)
{
    qs_status status;
    int fd;

    (void)env;
    *dir_out = NULL;
    *created_out = false;
    QS_TRY(qsi_name_check(name, error));
    QS_TRY(open_or_make_directory(qsi_posix_dir_of(parent)->fd, name, O_NOFOLLOW, create, &fd,
                                  created_out, error));
    status = check_private(fd, name, "the store's directory", error);
    if (status != QS_OK) {
        close(fd);
        return status;
    }
    return wrap_directory(fd, dir_out, error);
}

/* Calls fsync; on macOS F_FULLFSYNC, because fsync leaves bytes in the disk's cache there. */
static int sync_all(int fd)
{
#ifdef F_FULLFSYNC
    return fcntl(fd, F_FULLFSYNC);
#else
    return fsync(fd);
#endif
}

qs_status qsi_posix_dir_sync(qs_env *env, qs_dir *dir, qs_error *error)
{
    (void)env;
    if (sync_all(qsi_posix_dir_of(dir)->fd) != 0) {
        return qsi_posix_fail(error, "sync directory", ".");
    }
    return QS_OK;
}

/* ".." of an open directory is its parent even if the path now leads elsewhere. */
qs_status qsi_posix_dir_sync_parent(qs_env *env, qs_dir *dir, qs_error *error)
{
    qs_status status = QS_OK;
    int fd;

    (void)env;
    fd = qsi_posix_open_directory_at(qsi_posix_dir_of(dir)->fd, "..", 0);
    if (fd < 0) {
        return qsi_posix_fail(error, "open directory", "..");
    }
    if (sync_all(fd) != 0) {
        status = qsi_posix_fail(error, "sync directory", "..");
    }
    close(fd);
    return status;
}

static qs_status visit_entries(DIR *stream, qs_name_visitor *visit, void *context, qs_error *error)
{
    for (;;) {
        const struct dirent *entry;

        errno = 0; /* only errno distinguishes the end from a failure */
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

/* Opens the directory again, so that walks of several threads have separate positions. */
qs_status qsi_posix_dir_list(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                             qs_error *error)
{
    qs_status status;
    DIR *stream;
    int fd;

    (void)env;
    fd = qsi_posix_open_directory_at(qsi_posix_dir_of(dir)->fd, ".", 0);
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

void qsi_posix_dir_close(qs_env *env, qs_dir *dir)
{
    (void)env;
    if (dir != NULL) {
        QS_DCHECK(qsi_posix_dir_of(dir)->fd > STDERR_FILENO);
        close(qsi_posix_dir_of(dir)->fd);
        qsi_free(dir);
    }
}

/* inotify accepts only paths; the path of the descriptor in /proc cannot lead elsewhere.  macOS has
 * no readable descriptor for changes of names: callers poll instead. */
#ifdef __APPLE__
qs_status qsi_posix_watch(qs_env *env, qs_dir *dir, int *fd_out, qs_error *error)
{
    (void)env;
    (void)dir;
    *fd_out = -1;
    return qsi_fail(error, QS_NOT_IMPLEMENTED, "watch directory '.': not on macOS");
}
#else
qs_status qsi_posix_watch(qs_env *env, qs_dir *dir, int *fd_out, qs_error *error)
{
    char path[sizeof "/proc/self/fd/-2147483648"];
    int fd = qsi_move_above_stdio(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));

    (void)env;
    *fd_out = -1;
    if (fd < 0) {
        return qsi_posix_fail(error, "watch directory", ".");
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", qsi_posix_dir_of(dir)->fd);
    if (inotify_add_watch(fd, path, IN_MOVED_TO | IN_ONLYDIR) < 0) {
        qs_status status = qsi_posix_fail(error, "watch directory", ".");
        close(fd);
        return status;
    }
    *fd_out = fd;
    return QS_OK;
}
#endif

/* -- names ------------------------------------------------------------------------------------ */

qs_status qsi_posix_rename(qs_env *env, qs_dir *dir, const char *from, const char *to,
                           qs_error *error)
{
    int fd = qsi_posix_dir_of(dir)->fd;

    (void)env;
    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    if (renameat(fd, from, fd, to) != 0) {
        return qsi_posix_fail(error, "rename", from);
    }
    return QS_OK;
}

/* Whether a link is impossible there: another file system, one without links, a file of another
 * user or in a directory that cannot be searched, or a file with too many names. */
static bool is_no_place_for_links(int os_errno)
{
    return os_errno == EXDEV || os_errno == EPERM || os_errno == EACCES || os_errno == EMLINK ||
           os_errno == EOPNOTSUPP || os_errno == ENOTSUP || os_errno == ENOSYS;
}

qs_status qsi_posix_link(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                         const char *to, qs_error *error)
{
    (void)env;
    QS_TRY(qsi_name_check(from, error));
    QS_TRY(qsi_name_check(to, error));
    if (linkat(qsi_posix_dir_of(from_dir)->fd, from, qsi_posix_dir_of(to_dir)->fd, to, 0) == 0) {
        return QS_OK;
    }
    if (is_no_place_for_links(errno)) {
        return qsi_fail_errno(error, QS_NOT_IMPLEMENTED, errno, "link '%s'", from);
    }
    return qsi_posix_fail(error, "link", from);
}

/* Whether unlink may have failed because the name is a directory's.  POSIX returns EPERM, which has
 * other causes as well; Linux returns EISDIR. */
static bool may_be_directory(int os_errno)
{
#ifdef __APPLE__
    return os_errno == EPERM;
#else
    return os_errno == EISDIR;
#endif
}

qs_status qsi_posix_remove(qs_env *env, qs_dir *dir, const char *name, qs_error *error)
{
    int fd = qsi_posix_dir_of(dir)->fd;
    int result;

    (void)env;
    QS_TRY(qsi_name_check(name, error));
    result = unlinkat(fd, name, 0);
    if (result != 0 && may_be_directory(errno)) {
        result = unlinkat(fd, name, AT_REMOVEDIR);
    }
    return result == 0 ? QS_OK : qsi_posix_fail(error, "remove", name);
}
