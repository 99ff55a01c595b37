/* The lock of a directory in the real environment.
 *
 * Two objects are locked.  One is the directory itself, which cannot be removed without removing
 * the store.  The other is a file in it, which has the owner's process number, and is for file
 * systems that cannot lock directories (NFS).  The locks are flock locks.  An fcntl lock is lost
 * when any code of the process closes the same file, and would let the process open its own store
 * twice.
 *
 * Invariant: no other descriptor shares the open file descriptions of the two locks, except the
 * copies of a forked child. */
#define _GNU_SOURCE 1 /* O_PATH */
#include "alloc.h"
#include "check.h"
#include "env_posix_internal.h"
#include "error.h"
#include "list.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif
#include <unistd.h>

#define PID_TEXT_BYTES 24
#define LINK_PATH_BYTES 64
#define LOCKS_LINE_BYTES 256
#define NO_FD (-1)

/* Opens a directory only as a base for names: permission to list it is not needed. */
#ifdef __APPLE__
#define ONLY_A_PLACE O_SEARCH
#else
#define ONLY_A_PLACE O_PATH
#endif

struct qsi_posix_lock {
    struct qsi_list in_process;
    pid_t owner; /* the process that took the lock */
    int dir_fd;  /* the directory, locked if is_dir_locked */
    int file_fd; /* the locked file; NO_FD: a reader found none */
    int parent_fd;
    bool is_dir_locked;
    dev_t device; /* of the directory */
    ino_t inode;
    char entry[NAME_MAX + 1]; /* the directory's name in its parent; "": unknown */
};

/* -- fork -------------------------------------------------------------------------------------
 *
 * A child inherits the descriptors, and would keep the lock after its parent's death, so it closes
 * its copies at once.  The mutex is held from before a lock is taken until it is in the list, so no
 * fork can happen between. */

static struct {
    pthread_once_t once;
    pthread_mutex_t mutex;
    struct qsi_list locks;
} process = {.once = PTHREAD_ONCE_INIT, .mutex = PTHREAD_MUTEX_INITIALIZER};

static void close_fd(int *fd)
{
    QS_DCHECK(*fd == NO_FD || *fd > STDERR_FILENO);
    if (*fd != NO_FD) {
        close(*fd);
        *fd = NO_FD;
    }
}

static void close_fds(struct qsi_posix_lock *lock)
{
    close_fd(&lock->file_fd);
    close_fd(&lock->dir_fd);
    close_fd(&lock->parent_fd);
}

static void before_fork(void)
{
    pthread_mutex_lock(&process.mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&process.mutex);
}

static void after_fork_in_child(void)
{
    while (!qsi_list_is_empty(&process.locks)) {
        struct qsi_posix_lock *lock =
            QSI_LIST_OWNER(process.locks.next, struct qsi_posix_lock, in_process);
        qsi_list_remove(&lock->in_process);
        close_fds(lock);
    }
    pthread_mutex_unlock(&process.mutex);
}

static void start_process(void)
{
    qsi_list_init(&process.locks);
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* -- the owner's process number --------------------------------------------------------------- */

/* Returns 0 if the owner has not written it yet, or could not. */
static uint64_t read_pid(int fd)
{
    char text[PID_TEXT_BYTES] = {0};

    if (fd == NO_FD || pread(fd, text, sizeof text - 1, 0) <= 0) {
        return 0;
    }
    return strtoull(text, NULL, 10);
}

/* The number is only for people: a full disk must not prevent the open of a store. */
static void write_pid(int fd)
{
    char text[PID_TEXT_BYTES];
    int bytes = snprintf(text, sizeof text, "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0) {
        ssize_t ignored = pwrite(fd, text, (size_t)bytes, 0);

        (void)ignored;
    }
}

/* Finds the owner in /proc/locks, which is correct even if the file was removed or has the number
 * of an earlier owner; 0: not found.  A line is "1: FLOCK  ADVISORY  WRITE 4711 08:02:131 0
 * EOF". */
#ifdef __APPLE__
static uint64_t find_pid(const struct stat *directory)
{
    (void)directory;
    return 0;
}
#else
static uint64_t find_pid(const struct stat *directory)
{
    char line[LOCKS_LINE_BYTES];
    uint64_t found = 0;
    FILE *locks = fopen("/proc/locks", "re");

    if (locks == NULL) {
        return 0;
    }
    while (found == 0 && fgets(line, sizeof line, locks) != NULL) {
        unsigned long long pid;
        unsigned major_number, minor_number;
        unsigned long long inode;

        if (sscanf(line, "%*u: FLOCK %*s %*s %llu %x:%x:%llu", &pid, &major_number, &minor_number,
                   &inode) == 4 &&
            inode == directory->st_ino && major_number == major(directory->st_dev) &&
            minor_number == minor(directory->st_dev)) {
            found = pid;
        }
    }
    fclose(locks);
    return found;
}
#endif

static qs_status fail_locked(const struct qsi_posix_lock *lock, int dir_fd, const char *name,
                             uint64_t *pid_out, qs_error *error)
{
    struct stat directory;
    int fd = lock->file_fd;

    /* One of the two locks was refused. */
    QS_DCHECK(!lock->is_dir_locked || lock->file_fd != NO_FD);
    QS_DCHECK(dir_fd != lock->dir_fd);
    *pid_out = fstat(dir_fd, &directory) == 0 ? find_pid(&directory) : 0;
    if (*pid_out == 0) {
        fd = fd != NO_FD ? fd : qsi_posix_open_at(dir_fd, name, O_RDONLY);
        *pid_out = read_pid(fd);
    }
    if (fd != lock->file_fd && fd != NO_FD) {
        close(fd);
    }
    if (*pid_out == 0) {
        return qsi_fail(error, QS_ESTORE_LOCKED, "'%s' is locked", name);
    }
    return qsi_fail(error, QS_ESTORE_LOCKED, "'%s' is locked by process %llu", name,
                    (unsigned long long)*pid_out);
}

/* -- taking the lock -------------------------------------------------------------------------- */

/* Locks the directory.  If the file system cannot lock directories, only the file is locked. */
static qs_status lock_directory(struct qsi_posix_lock *lock, int dir_fd, const char *name,
                                int operation, uint64_t *pid_out, qs_error *error)
{
    lock->dir_fd = qsi_posix_open_directory_at(dir_fd, ".", 0);
    if (lock->dir_fd < 0) {
        return qsi_posix_fail(error, "open directory", ".");
    }
    lock->is_dir_locked = flock(lock->dir_fd, operation) == 0;
    return !lock->is_dir_locked && errno == EWOULDBLOCK
               ? fail_locked(lock, dir_fd, name, pid_out, error)
               : QS_OK;
}

/* Opens the lock file.  A reader does not create it, and needs none if the directory is locked. */
static qs_status open_lock_file(struct qsi_posix_lock *lock, int dir_fd, const char *name,
                                bool is_shared, qs_error *error)
{
    struct stat stat;

    QS_DCHECK(lock->file_fd == NO_FD && lock->dir_fd != NO_FD);
    lock->file_fd = qsi_posix_open_at(dir_fd, name, is_shared ? O_RDONLY : O_RDWR | O_CREAT);
    if (lock->file_fd < 0) {
        return is_shared && (errno == ENOENT || errno == EACCES) ? QS_OK
                                                                 : qsi_posix_fail_open(error, name);
    }
    QS_TRY(qsi_posix_check_regular(lock->file_fd, name, false, &stat, error));
    return is_shared ? QS_OK : qsi_posix_set_file_mode(lock->file_fd, name, &stat, error);
}

static qs_status lock_file(struct qsi_posix_lock *lock, int dir_fd, const char *name,
                           bool is_shared, int operation, uint64_t *pid_out, qs_error *error)
{
    QS_TRY(open_lock_file(lock, dir_fd, name, is_shared, error));
    if (lock->file_fd == NO_FD) {
        return QS_OK;
    }
    if (flock(lock->file_fd, operation) != 0) {
        return errno == EWOULDBLOCK ? fail_locked(lock, dir_fd, name, pid_out, error)
                                    : qsi_posix_fail(error, "lock", name);
    }
    if (!is_shared) {
        write_pid(lock->file_fd);
    }
    return QS_OK;
}

/* -- the directory's place -------------------------------------------------------------------- */

static bool is_entry(const struct qsi_posix_lock *lock)
{
    struct stat stat;

    return fstatat(lock->parent_fd, lock->entry, &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
           stat.st_dev == lock->device && stat.st_ino == lock->inode;
}

/* Finds the path of an open directory, with its NUL; false: unknown. */
static bool find_path(int dir_fd, char path[static PATH_MAX])
{
#ifdef __APPLE__
    return fcntl(dir_fd, F_GETPATH, path) == 0;
#else
    char link[LINK_PATH_BYTES];
    ssize_t bytes;

    snprintf(link, sizeof link, "/proc/self/fd/%d", dir_fd);
    bytes = readlink(link, path, PATH_MAX - 1);
    if (bytes <= 0) {
        return false;
    }
    path[bytes] = '\0';
    return true;
#endif
}

/* Records the directory's name in its parent.  Without /proc, or without permission for the parent,
 * a move of the directory is not detected. */
static void record_entry(struct qsi_posix_lock *lock)
{
    char path[PATH_MAX];
    const char *name;
    struct stat stat;

    QS_DCHECK(lock->parent_fd == NO_FD && lock->entry[0] == '\0');
    if (!find_path(lock->dir_fd, path) || fstat(lock->dir_fd, &stat) != 0) {
        return;
    }
    name = strrchr(path, '/');
    if (name == NULL || name[1] == '\0' || strlen(name + 1) > NAME_MAX) {
        return;
    }
    lock->parent_fd = qsi_posix_open_directory_at(lock->dir_fd, "..", ONLY_A_PLACE);
    lock->device = stat.st_dev;
    lock->inode = stat.st_ino;
    snprintf(lock->entry, sizeof lock->entry, "%s", name + 1);
    if (lock->parent_fd == NO_FD || !is_entry(lock)) {
        lock->entry[0] = '\0';
    }
}

/* Reports only certain problems: a system call that fails for another reason says nothing about the
 * directory.  If the directory itself is locked, the file may be removed: another owner cannot take
 * the lock. */
qs_status qsi_posix_lock_check(const struct qsi_posix_lock *lock, qs_error *error)
{
    struct stat stat;

    if (lock->is_dir_locked && lock->entry[0] != '\0' && is_entry(lock)) {
        return QS_OK; /* one system call for each commit */
    }
    if (qsi_posix_is_unlinked(lock->dir_fd)) {
        return qsi_fail(error, QS_EIO,
                        "the store's directory was removed while it was open: what is written now "
                        "is lost when the store is closed");
    }
    if (!lock->is_dir_locked && qsi_posix_is_unlinked(lock->file_fd)) {
        return qsi_fail(error, QS_EIO,
                        "the store's file LOCK was removed while it was open, and this file system "
                        "locks no directories: another process may have opened the store");
    }
    if (lock->entry[0] == '\0') {
        return QS_OK;
    }
    if (fstatat(lock->parent_fd, lock->entry, &stat, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno != ENOENT
                   ? QS_OK
                   : qsi_fail(error, QS_EIO,
                              "the store's directory was moved away while it was open: whoever "
                              "opens '%s' next does not find what is written now",
                              lock->entry);
    }
    if (stat.st_dev != lock->device || stat.st_ino != lock->inode) {
        return qsi_fail(error, QS_EIO,
                        "the store's directory was moved away while it was open, and something "
                        "else is in its place: whoever opens '%s' next does not find what is "
                        "written now",
                        lock->entry);
    }
    return QS_OK;
}

/* -- the calls of the environment ------------------------------------------------------------- */

qs_status qsi_posix_lock_take(int dir_fd, const char *name, bool is_shared,
                              struct qsi_posix_lock **lock_out, uint64_t *pid_out, qs_error *error)
{
    int operation = (is_shared ? LOCK_SH : LOCK_EX) | LOCK_NB;
    struct qsi_posix_lock *lock = qsi_zalloc(sizeof *lock);
    qs_status status;

    *lock_out = NULL;
    *pid_out = 0;
    if (lock == NULL) {
        return qsi_fail(error, QS_ENOMEM, "lock '%s': out of memory", name);
    }
    lock->owner = getpid();
    lock->dir_fd = lock->file_fd = lock->parent_fd = NO_FD;
    qsi_list_init(&lock->in_process);
    pthread_once(&process.once, start_process);
    pthread_mutex_lock(&process.mutex);
    status = lock_directory(lock, dir_fd, name, operation, pid_out, error);
    if (status == QS_OK) {
        status = lock_file(lock, dir_fd, name, is_shared, operation, pid_out, error);
    }
    if (status == QS_OK) {
        record_entry(lock);
    }
    qsi_list_push_back(&process.locks, &lock->in_process);
    pthread_mutex_unlock(&process.mutex);
    if (status != QS_OK) {
        qsi_posix_lock_release(lock);
        return status;
    }
    *lock_out = lock;
    return QS_OK;
}

static void unlock_fd(int fd)
{
    if (fd != NO_FD) {
        flock(fd, LOCK_UN);
    }
}

/* Also unlocks explicitly: a process that was forked before this library could register its handler
 * may share the open file descriptions. */
void qsi_posix_lock_release(struct qsi_posix_lock *lock)
{
    QS_DCHECK(!qsi_list_is_empty(&lock->in_process) || lock->owner != getpid());
    if (lock->owner == getpid()) {
        unlock_fd(lock->file_fd);
        unlock_fd(lock->dir_fd);
    }
    pthread_mutex_lock(&process.mutex);
    qsi_list_remove(&lock->in_process);
    close_fds(lock);
    pthread_mutex_unlock(&process.mutex);
    qsi_free(lock);
}
