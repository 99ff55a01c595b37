/* A disk in this process's memory: a tree of nodes, behind an environment.
 *
 * Whatever changes it goes through a table of operations.  That of qs_env_memory_create changes the
 * nodes and nothing else; the tests' simulated power cuts put theirs in front of it
 * (tests/native/sim). */
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
    uint32_t reader_count;  /* of them who share its lock; 0: its owner has it */
    struct qsi_image image; /* of a file */
    struct qsi_map names;   /* of a directory: name to counted node */
};

struct qsi_ram_disk;

/* REQUIRE the mutex, or a disk that nobody else uses.  A failure changes nothing, except that a
 * failed write may leave a part. */
struct qsi_ram_ops {
    size_t node_bytes; /* of a struct that begins with a qsi_ram_node */
    void (*init_node)(struct qsi_ram_node *node);
    void (*fini_node)(struct qsi_ram_disk *disk, struct qsi_ram_node *node);

    qs_status (*write)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, const qs_part *parts,
                       size_t part_count, uint64_t offset, size_t bytes); /* bytes > 0 */
    /* The size becomes bytes at least. */
    qs_status (*allocate)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes);
    qs_status (*truncate)(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes);
    /* node goes from one name in dir to another: from NULL creates it, to NULL removes it. */
    qs_status (*move_name)(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                           const char *to, struct qsi_ram_node *node);
    qs_status (*sync)(struct qsi_ram_disk *disk, struct qsi_ram_node *node);
};

extern const struct qsi_ram_ops qsi_ram_ops;

struct qsi_ram_disk {
    qs_env env;
    struct qsi_mutex mutex; /* over everything below */
    const struct qsi_ram_ops *ops;
    struct qsi_ram_node *top; /* the directory of root directories, under their whole paths */
    size_t handle_count;
};

/* With the machine's clock and randomness.  QS_ENOMEM: nothing to undo. */
qs_status qsi_ram_disk_init(struct qsi_ram_disk *disk, const struct qsi_ram_ops *ops) QS_MUST_CHECK;
void qsi_ram_disk_fini(struct qsi_ram_disk *disk); /* REQUIRES that every handle is closed */

/* Fills in the functions of disk->env. */
void qsi_ram_env_init(struct qsi_ram_disk *disk);

struct qsi_ram_node *qsi_ram_node_of_file(qs_file *file);
struct qsi_ram_node *qsi_ram_node_of_dir(qs_dir *dir);
struct qsi_ram_node *qsi_ram_parent_of_dir(qs_dir *dir);

/* All below REQUIRE the mutex, or a disk that nobody else uses. */

/* One reference for the caller.  NULL: out of memory. */
struct qsi_ram_node *qsi_ram_node_create(struct qsi_ram_disk *disk, bool is_dir);
void qsi_ram_node_ref(struct qsi_ram_node *node);
void qsi_ram_node_unref(struct qsi_ram_disk *disk, struct qsi_ram_node *node); /* NULL is fine */
struct qsi_ram_node *qsi_ram_find(const struct qsi_map *names, const char *name);

/* Unreferences the nodes of all names, and frees the table. */
void qsi_ram_clear_names(struct qsi_ram_disk *disk, struct qsi_map *names);

#endif
