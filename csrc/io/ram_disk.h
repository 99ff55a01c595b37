/* A disk in this process's memory: a tree of nodes, with an environment for access.
 *
 * Every change goes through a table of operations.  The table of qs_env_memory_create only changes
 * the nodes; the tests' simulated power cuts wrap it with their own (tests/native/sim). */
#ifndef QSI_RAM_DISK_H
#define QSI_RAM_DISK_H

#include "qstore/env.h"

#include "image.h"
#include "lock.h"
#include "map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_ram_node {
    uint32_t refs; /* names and handles */
    bool is_dir;
    bool is_locked;         /* of a directory */
    uint32_t reader_count;  /* number of shared locks on it; 0: its lock is exclusive */
    struct qsi_image image; /* of a file */
    struct qsi_map names;   /* of a directory: name to counted node */
};

struct qsi_ram_disk;

/* All REQUIRE the mutex, or a disk without another user.  A failure changes nothing, except that a
 * failed write may leave a part. */
struct qsi_ram_ops {
    size_t node_bytes; /* size of a struct that begins with a qsi_ram_node */
    void (*init_node)(struct qsi_ram_node *node);
    void (*fini_node)(struct qsi_ram_disk *disk, struct qsi_ram_node *node);

    qs_status (*write)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, const qs_part *parts,
                       size_t part_count, uint64_t offset, size_t bytes); /* bytes > 0 */
    /* Extends the file to at least bytes. */
    qs_status (*allocate)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes);
    qs_status (*truncate)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes);
    /* Moves node from one name in dir to another: from NULL creates it, to NULL removes it. */
    qs_status (*move_name)(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                           const char *to, struct qsi_ram_node *node);
    qs_status (*sync)(struct qsi_ram_disk *disk, struct qsi_ram_node *node);
};

extern const struct qsi_ram_ops qsi_ram_ops;

struct qsi_ram_disk {
    qs_env env;
    struct qsi_mutex mutex; /* protects everything below */
    const struct qsi_ram_ops *ops;
    /* The directory of root directories; their names are their whole paths. */
    struct qsi_ram_node *top;
    size_t handle_count;
};

/* Initialises a disk with the machine's clock and randomness.  QS_ENOMEM: nothing to undo. */
qs_status qsi_ram_disk_init(struct qsi_ram_disk *disk, const struct qsi_ram_ops *ops) QS_MUST_CHECK;
void qsi_ram_disk_fini(struct qsi_ram_disk *disk); /* REQUIRES that every handle is closed */

struct qsi_ram_node *qsi_ram_node_of_file(qs_file *file);
struct qsi_ram_node *qsi_ram_node_of_dir(qs_dir *dir);
struct qsi_ram_node *qsi_ram_parent_of_dir(qs_dir *dir);

/* All below REQUIRE the mutex, or a disk without another user. */

/* Returns a node with one reference for the caller.  NULL: out of memory. */
struct qsi_ram_node *qsi_ram_node_create(struct qsi_ram_disk *disk, bool is_dir);
void qsi_ram_node_ref(struct qsi_ram_node *node);
void qsi_ram_node_unref(struct qsi_ram_disk *disk, struct qsi_ram_node *node); /* NULL is fine */
struct qsi_ram_node *qsi_ram_find(const struct qsi_map *names, const char *name);

/* Unreferences the nodes of all names, and frees the table. */
void qsi_ram_clear_names(struct qsi_ram_disk *disk, struct qsi_map *names);

#endif
