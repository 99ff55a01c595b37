/* The environment: the library's only access to disk, clock and randomness.
 *
 * An environment is a table of functions.  qs_env_posix() is the real one; tests wrap or replace it
 * (memory, fault, sim: tests/native/sim).  Every path is a single name (no '/') inside an open
 * qs_dir; only the root directory is opened by path.  These functions do not loop, retry or order
 * syncs: file.c does.
 *
 * Threads: any number; one thread at a time writes to a qs_file. */
#ifndef QSTORE_ENV_H
#define QSTORE_ENV_H

#include "qstore/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QS_ENV_VERSION 4
#define QS_NAME_BYTES_MAX 255

typedef struct qs_env qs_env;
typedef struct qs_dir qs_dir;   /* opaque, made by the env */
typedef struct qs_file qs_file; /* opaque, made by the env */

typedef struct qs_part { /* one piece of a gathered write */
    const void *data;
    size_t bytes;
} qs_part;

enum {
    QS_OPEN_READ = 1,       /* for reading only */
    QS_OPEN_WRITE = 2,      /* for reading and writing */
    QS_OPEN_CREATE_NEW = 4, /* with WRITE: QS_EEXIST if the name is taken */
    QS_OPEN_LINKED = 8,     /* with READ: the file may have other names, otherwise it is refused */
};

enum {                 /* what a file system promises */
       QS_FS_LOCAL,    /* everything that this table asks, as far as is known */
       QS_FS_VOLATILE, /* the same, but nothing survives a power cut */
       QS_FS_NETWORK,  /* syncs and locks depend on another machine */
       QS_FS_UNKNOWN,
};
typedef struct qs_file_system {
    char name[16]; /* "ext4"; a number if there is no name; empty: unknown */
    uint32_t kind; /* QS_FS_* */
} qs_file_system;

typedef bool qs_name_visitor(void *context, const char *name); /* false stops the walk */

struct qs_env {
    uint32_t version; /* QS_ENV_VERSION */
    void *data;

    /* Directories.  dir_open_root opens the root; its parent directories must exist.  With create a
     * missing root is made, mode 0700; without it the answer is QS_ENOENT.  *created_out tells
     * whether the root was made.  Its entry in the parent is then NOT yet synced: dir_sync_parent
     * does that.  QS_EINVAL: the root belongs to another user, or others can write to it. */
    qs_status (*dir_open_root)(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                               bool *created_out, qs_error *error);
    qs_status (*dir_sync_parent)(qs_env *env, qs_dir *dir, qs_error *error);
    qs_status (*dir_open)(qs_env *env, qs_dir *parent, const char *name, bool create,
                          qs_dir **dir_out, bool *created_out, qs_error *error);
    qs_status (*dir_sync)(qs_env *env, qs_dir *dir, qs_error *error);
    qs_status (*dir_list)(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                          qs_error *error);
    void (*dir_close)(qs_env *env, qs_dir *dir); /* NULL is fine */

    /* Names.  rename replaces an existing target.  remove removes files and empty directories; for
     * a missing name it answers QS_ENOENT. */
    qs_status (*rename)(qs_env *env, qs_dir *dir, const char *from, const char *to,
                        qs_error *error);
    qs_status (*remove)(qs_env *env, qs_dir *dir, const char *name, qs_error *error);

    /* Files, mode 0600, explicit offsets only. */
    qs_status (*open)(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                      qs_file **file_out, qs_error *error);
    /* close: NULL is fine; it reports no error. */
    void (*close)(qs_env *env, qs_file *file);
    /* read: reads up to bytes bytes; *read_out is 0 at the end of the file.  It may read less;
     * QS_EINTR if nothing was read. */
    qs_status (*read)(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                      size_t *read_out, qs_error *error);
    /* write: may write less, QS_EINTR if nothing was written; at most QS_PARTS_MAX parts. */
    qs_status (*write)(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                       uint64_t offset, size_t *written_out, qs_error *error);
    qs_status (*sync)(qs_env *env, qs_file *file, qs_error *error); /* fdatasync */
    /* begin_sync: starts writing the range to the device and does not wait.  It promises nothing: a
     * sync must follow, and reports errors.  May be NULL. */
    void (*begin_sync)(qs_env *env, qs_file *file, uint64_t offset, uint64_t bytes);
    qs_status (*size)(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error);
    /* allocate: reserves blocks for [0, bytes) and extends the file to that size; zeros are written
     * where the file system cannot reserve.  QS_ENOSPC leaves the file usable. */
    qs_status (*allocate)(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
    qs_status (*truncate)(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
    /* space: the total space of dir's file system, and the space free for this process.  Others may
     * take it at any time, and quotas need not show.  NULL: unknown. */
    qs_status (*space)(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                       qs_error *error);

    /* lock: locks the directory, so that removing the file name in it lets no other owner in, and
     * that file, which is created and gets the owner's pid.  The lock is held until close or the
     * death of the process; a forked child does not keep it.  QS_ESTORE_LOCKED: *pid_out is the
     * owner's pid, or 0. */
    qs_status (*lock)(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                      uint64_t *pid_out, qs_error *error);
    /* lock_shared: the lock of an open for reading.  It excludes lock, but not other shared locks.
     * The file is locked if it exists; nothing is made or written, so this works on read-only
     * media. */
    qs_status (*lock_shared)(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                             uint64_t *pid_out, qs_error *error);
    /* check_linked: QS_EIO if the next open of the store would not find the written bytes: a file
     * has no name any more, or the directory of a lock was removed or moved since it was locked. */
    qs_status (*check_linked)(qs_env *env, qs_file *file, qs_error *error);

    uint64_t (*monotonic_ns)(qs_env *env); /* continues while the machine sleeps */
    uint64_t (*wall_us)(qs_env *env);      /* since 1970 */
    qs_status (*random)(qs_env *env, void *data, size_t bytes, qs_error *error);

    /* file_system: the file system of dir.  May be NULL. */
    void (*file_system)(qs_env *env, qs_dir *dir, qs_file_system *system_out);

    /* link: gives the file from_dir/from one more name, to_dir/to.  QS_EEXIST: the name is taken.
     * QS_NOT_IMPLEMENTED: the file system has no links, or none between these directories.  May be
     * NULL: links are never possible. */
    qs_status (*link)(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                      const char *to, qs_error *error);

    /* watch: *fd_out becomes readable once a file got a name in dir by a rename; the bytes read
     * mean nothing.  The caller closes it.  NULL: there is no such descriptor. */
    qs_status (*watch)(qs_env *env, qs_dir *dir, int *fd_out, qs_error *error);
};

#define QS_PARTS_MAX 1024

/* qs_env_posix - the real environment; a constant, never freed.  Threads: any. */
QS_API qs_env *qs_env_posix(void);

/* qs_env_memory_create - an environment with a disk in this process's memory and the machine's
 * clock.
 *
 * Returns: NULL: out of memory
 * Owns:    what is returned: qs_env_memory_destroy
 * Threads: any */
QS_API qs_env *qs_env_memory_create(void);

/* qs_env_memory_destroy - destroy that environment and its files; NULL is fine.  REQUIRES that
 * every handle is closed. */
QS_API void qs_env_memory_destroy(qs_env *env);

#endif
