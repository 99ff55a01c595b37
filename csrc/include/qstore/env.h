/* The only door to disk, clock and randomness.
 *
 * An environment is a table of functions.  qs_env_posix() is the real one; tests wrap or replace
 * it (memory, fault, sim: tests/native/sim).  Every path is a single name (no '/') inside an
 * open qs_dir; only the root directory is opened by path.  Nothing here loops, retries or orders
 * syncs: that is file.c's work.
 *
 * Threads: any number, except that one qs_file is written by one thread at a time. */
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
    QS_OPEN_LINKED = 8,     /* with READ: the file may have other names; else it is refused */
};

enum {                 /* what a file system promises */
       QS_FS_LOCAL,    /* the rest of this table, as far as is known */
       QS_FS_VOLATILE, /* that, and nothing outlives the machine's power */
       QS_FS_NETWORK,  /* syncs and locks are another machine's */
       QS_FS_UNKNOWN,
};
typedef struct qs_file_system {
    char name[16]; /* "ext4"; the number of one without a name; empty: not told */
    uint32_t kind; /* QS_FS_* */
} qs_file_system;

typedef bool qs_name_visitor(void *context, const char *name); /* false stops the walk */

struct qs_env {
    uint32_t version; /* QS_ENV_VERSION */
    void *data;

    /* Directories.  dir_open_root: parent directories must exist; create makes the last one, mode
     * 0700 (QS_ENOENT without create when it is missing); *created_out tells whether it was made,
     * and then its entry in the parent is NOT yet synced: dir_sync_parent does that.  QS_EINVAL for
     * a root that belongs to another user or that others can write. */
    qs_status (*dir_open_root)(qs_env *env, const char *path, bool create, qs_dir **dir_out,
                               bool *created_out, qs_error *error);
    qs_status (*dir_sync_parent)(qs_env *env, qs_dir *dir, qs_error *error);
    qs_status (*dir_open)(qs_env *env, qs_dir *parent, const char *name, bool create,
                          qs_dir **dir_out, bool *created_out, qs_error *error);
    qs_status (*dir_sync)(qs_env *env, qs_dir *dir, qs_error *error);
    qs_status (*dir_list)(qs_env *env, qs_dir *dir, qs_name_visitor *visit, void *context,
                          qs_error *error);
    void (*dir_close)(qs_env *env, qs_dir *dir); /* NULL is fine */

    /* Names.  rename replaces an existing target.  remove takes files and empty directories; of a
     * missing name it is QS_ENOENT. */
    qs_status (*rename)(qs_env *env, qs_dir *dir, const char *from, const char *to,
                        qs_error *error);
    qs_status (*remove)(qs_env *env, qs_dir *dir, const char *name, qs_error *error);

    /* Files, mode 0600, explicit offsets only. */
    qs_status (*open)(qs_env *env, qs_dir *dir, const char *name, uint32_t flags,
                      qs_file **file_out, qs_error *error);
    /* close: NULL is fine; never the place where an error is learned. */
    void (*close)(qs_env *env, qs_file *file);
    /* read: up to bytes; *read_out 0 at the end of the file.  May be short; QS_EINTR if nothing was
     * done. */
    qs_status (*read)(qs_env *env, qs_file *file, void *data, size_t bytes, uint64_t offset,
                      size_t *read_out, qs_error *error);
    /* write: may be short, QS_EINTR if nothing was done; at most QS_PARTS_MAX parts. */
    qs_status (*write)(qs_env *env, qs_file *file, const qs_part *parts, size_t part_count,
                       uint64_t offset, size_t *written_out, qs_error *error);
    qs_status (*sync)(qs_env *env, qs_file *file, qs_error *error); /* fdatasync */
    /* begin_sync: has the device begin with what was written there, and does not wait.  It promises
     * nothing: a sync must follow, and tells of errors.  May be NULL. */
    void (*begin_sync)(qs_env *env, qs_file *file, uint64_t offset, uint64_t bytes);
    qs_status (*size)(qs_env *env, qs_file *file, uint64_t *bytes_out, qs_error *error);
    /* allocate: reserve blocks for [0, bytes) and extend the size to it, with zeros that are
     * written where the file system cannot reserve; QS_ENOSPC leaves the file usable. */
    qs_status (*allocate)(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
    qs_status (*truncate)(qs_env *env, qs_file *file, uint64_t bytes, qs_error *error);
    /* space: what the file system of dir has in all, and what is free on it for this process.
     * Others may take it at any time, and quotas need not show.  NULL: unknown. */
    qs_status (*space)(qs_env *env, qs_dir *dir, uint64_t *total_out, uint64_t *free_out,
                       qs_error *error);

    /* lock: the directory itself, so that removing the file name in it lets no other owner in, and
     * that file, which is created and gets the owner's pid.  Held until close or the death of
     * the process; a forked child does not keep it.  QS_ESTORE_LOCKED: *pid_out is the owner's,
     * or 0. */
    qs_status (*lock)(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                      uint64_t *pid_out, qs_error *error);
    /* lock_shared: for an open that only reads.  It excludes lock and not itself.  The file is
     * locked if it is there; nothing is made or written, so it works where nothing can be
     * written. */
    qs_status (*lock_shared)(qs_env *env, qs_dir *dir, const char *name, qs_file **lock_out,
                             uint64_t *pid_out, qs_error *error);
    /* check_linked: QS_EIO when the next open of the store would not find what is written here.
     * Of a file: it has no name any more.  Of a lock: its directory was removed or is not where it
     * was when it was locked. */
    qs_status (*check_linked)(qs_env *env, qs_file *file, qs_error *error);

    uint64_t (*monotonic_ns)(qs_env *env); /* goes on while the machine sleeps */
    uint64_t (*wall_us)(qs_env *env);      /* since 1970 */
    qs_status (*random)(qs_env *env, void *data, size_t bytes, qs_error *error);

    /* file_system: what dir lies in.  May be NULL. */
    void (*file_system)(qs_env *env, qs_dir *dir, qs_file_system *system_out);

    /* link: the file from_dir/from gets one more name, to_dir/to.  QS_EEXIST: it is taken.
     * QS_NOT_IMPLEMENTED: not there, or not between these two.  May be NULL: it never can. */
    qs_status (*link)(qs_env *env, qs_dir *from_dir, const char *from, qs_dir *to_dir,
                      const char *to, qs_error *error);

    /* watch: *fd_out, which the caller closes, can be read without blocking once a file got a name
     * in dir by a rename.  What is read says nothing.  NULL: there is no such descriptor. */
    qs_status (*watch)(qs_env *env, qs_dir *dir, int *fd_out, qs_error *error);
};

#define QS_PARTS_MAX 1024

/* qs_env_posix - the real environment; a constant, never freed.  Threads: any. */
QS_API qs_env *qs_env_posix(void);

/* qs_env_memory_create - an environment whose disk is in this process's memory, with the machine's
 * clock.
 *
 * Returns: NULL: out of memory
 * Owns:    what is returned: qs_env_memory_destroy
 * Threads: any */
QS_API qs_env *qs_env_memory_create(void);

/* qs_env_memory_destroy - the end of that environment and of what is in it; NULL is fine.  REQUIRES
 * that every handle is closed. */
QS_API void qs_env_memory_destroy(qs_env *env);

#endif
