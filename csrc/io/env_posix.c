/* The real environment: Linux system calls, one per function if possible, and replacements for
 * macOS, which are compiled but never run.  This file has clock, randomness, and the table;
 * env_posix_dir.c has directories and names, env_posix_file.c files, env_posix_lock.c the lock, and
 * env_posix_fd.c what these share.
 *
 * Invariants: every descriptor is close-on-exec and above 2; every name is resolved relative to an
 * open directory and never through a symbolic link; every opened file is a regular one with a
 * single name.  So a process that can only create names in the store cannot make it hang on a FIFO
 * or write to other files. */
#define _GNU_SOURCE 1
#include "check.h"
#include "env_posix_internal.h"
#include "file_system.h"
#include "hash.h"

#include <errno.h>
#include <string.h>
#ifdef __APPLE__
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#else
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/vfs.h>
#endif
#include <time.h>

#define NS_PER_SECOND 1000000000u
#define US_PER_SECOND 1000000u
#define NS_PER_US 1000u

/* A clock that continues while the machine sleeps. */
#ifdef __APPLE__
#define MONOTONIC_CLOCK CLOCK_MONOTONIC
#else
#define MONOTONIC_CLOCK CLOCK_BOOTTIME
#endif

static uint64_t posix_monotonic_ns(qs_env *env)
{
    struct timespec time;

    (void)env;
    QS_ASSERT(clock_gettime(MONOTONIC_CLOCK, &time) == 0);
    return (uint64_t)time.tv_sec * NS_PER_SECOND + (uint64_t)time.tv_nsec;
}

static uint64_t posix_wall_us(qs_env *env)
{
    struct timespec time;

    (void)env;
    QS_ASSERT(clock_gettime(CLOCK_REALTIME, &time) == 0);
    return (uint64_t)time.tv_sec * US_PER_SECOND + (uint64_t)time.tv_nsec / NS_PER_US;
}

/* Loops, unlike the other functions: half of a salt is useless.  macOS's call cannot fail. */
static qs_status posix_random(qs_env *env, void *data, size_t bytes, qs_error *error)
{
#ifdef __APPLE__
    (void)env;
    (void)error;
    arc4random_buf(data, bytes);
#else
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
#endif
    return QS_OK;
}

/* macOS has no fixed numbers for file systems, but names. */
static void tell_file_system(const struct statfs *stat, qs_file_system *system_out)
{
#ifdef __APPLE__
    bool is_apple =
        strcmp(stat->f_fstypename, "apfs") == 0 || strcmp(stat->f_fstypename, "hfs") == 0;

    if ((stat->f_flags & MNT_LOCAL) == 0) {
        system_out->kind = QS_FS_NETWORK;
    } else if (is_apple) {
        system_out->kind = QS_FS_LOCAL;
    }
    (void)snprintf(system_out->name, sizeof system_out->name, "%s", stat->f_fstypename);
#else
    qsi_file_system_of((uint32_t)stat->f_type, system_out);
#endif
}

static void posix_file_system(qs_env *env, qs_dir *dir, qs_file_system *system_out)
{
    struct statfs stat;

    (void)env;
    *system_out = (qs_file_system){.kind = QS_FS_UNKNOWN};
    if (fstatfs(qsi_posix_dir_of(dir)->fd, &stat) == 0) {
        tell_file_system(&stat, system_out);
    }
}

/* Draws the key of hash tables when the library is loaded, before any name is hashed.  It does not
 * wait for random numbers that the machine does not have yet, early at boot: then it uses the
 * random bytes that the kernel gave the process. */
__attribute__((constructor)) static void draw_hash_key(void)
{
    uint8_t key[QSI_HASH_KEY_BYTES];

#ifdef __APPLE__
    arc4random_buf(key, sizeof key);
#else
    if (getrandom(key, sizeof key, GRND_NONBLOCK) != (ssize_t)sizeof key) {
        memcpy(key, (const void *)(uintptr_t)getauxval(AT_RANDOM), sizeof key);
    }
#endif
    qsi_hash_set_key(key);
}

static const qs_env posix_env = {
    .version = QS_ENV_VERSION,
    .dir_open_root = qsi_posix_dir_open_root,
    .dir_sync_parent = qsi_posix_dir_sync_parent,
    .dir_open = qsi_posix_dir_open,
    .dir_sync = qsi_posix_dir_sync,
    .dir_list = qsi_posix_dir_list,
    .dir_close = qsi_posix_dir_close,
    .rename = qsi_posix_rename,
    .remove = qsi_posix_remove,
    .open = qsi_posix_open,
    .close = qsi_posix_close,
    .read = qsi_posix_read,
    .write = qsi_posix_write,
    .sync = qsi_posix_sync,
    .begin_sync = qsi_posix_begin_sync,
    .size = qsi_posix_size,
    .allocate = qsi_posix_allocate,
    .truncate = qsi_posix_truncate,
    .space = qsi_posix_space,
    .lock = qsi_posix_lock,
    .lock_shared = qsi_posix_lock_shared,
    .check_linked = qsi_posix_check_linked,
    .monotonic_ns = posix_monotonic_ns,
    .wall_us = posix_wall_us,
    .random = posix_random,
    .file_system = posix_file_system,
    .link = qsi_posix_link,
    .watch = qsi_posix_watch,
};

/* The interface is not const, because other environments have state; this one is never written. */
qs_env *qs_env_posix(void)
{
    return (qs_env *)&posix_env;
}
