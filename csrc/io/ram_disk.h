/* The disk in RAM behind the memory and sim environments: a tree of nodes and, when it is tracked,
 * every change that no sync has made durable yet.
 *
 * A node's current side is what calls see; its durable side is what the last syncs left; its
 * pending changes lead from the one to the other.  An untracked disk keeps the current side
 * only. */
#ifndef QSI_RAM_DISK_H
#define QSI_RAM_DISK_H

#include "env_test.h"
#include "image.h"
#include "list.h"
#include "lock.h"
#include "map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qsi_ram_node {
    uint32_t refs; /* names on both sides, pending changes of names, handles */
    bool is_dir;
    bool is_locked;           /* of a directory */
    uint32_t reader_count;    /* of them who share its lock; 0: its owner has it */
    bool has_lost;            /* a sync dropped writes: durable does not lead to current any more */
    struct qsi_image current; /* of a file */
    uint64_t reserved_bytes;  /* that it was made sure of, whatever is written to them */
    struct qsi_image durable;
    struct qsi_map names; /* of a directory: name to counted node */
    struct qsi_map durable_names;
    struct qsi_list pending; /* its qsi_ram_changes, oldest first */
};

enum qsi_ram_change_kind {
    QSI_RAM_WRITE,    /* bytes at offset */
    QSI_RAM_GROW,     /* the size becomes at least bytes */
    QSI_RAM_TRUNCATE, /* the size becomes bytes */
    QSI_RAM_NAME,     /* node goes from one name to another, either of which may be none */
};

struct qsi_ram_change {
    struct qsi_list in_node;
    struct qsi_list in_disk;
    uint64_t step;
    enum qsi_ram_change_kind kind;
    uint64_t offset;
    uint64_t bytes;
    const uint8_t *data;           /* of a write; NULL: zeros */
    const char *from;              /* NULL: node is created */
    const char *to;                /* NULL: node is removed */
    struct qsi_ram_node *node;     /* counted */
    struct qsi_ram_node *replaced; /* what had the name `to` before, or NULL; counted */
    uint8_t memory[];              /* what data, from and to point to */
};

struct qsi_ram_disk {
    qs_env env;
    struct qsi_mutex mutex;   /* over everything below */
    struct qsi_ram_node *top; /* the directory of root directories, under their whole paths */
    size_t handle_count;
    uint64_t capacity_bytes; /* of all files, by the pages that they take; 0: unlimited */
    uint64_t clock_ns;
    uint64_t random;
    bool is_tracked;
    struct qsi_list pending; /* the changes of all nodes, oldest first */
    size_t pending_count;
    uint64_t step_count;
    void (*on_step)(void *context, uint64_t step);
    void *on_step_context;
};

struct qsi_ram_disk *qsi_ram_disk_create(uint64_t seed, bool is_tracked); /* NULL: out of memory */
void qsi_ram_disk_destroy(struct qsi_ram_disk *disk);                     /* NULL is fine */

/* A new untracked disk with what this one holds after a cut (its current side only, if it is
 * untracked: KEEP_ALL).  NULL: out of memory.  REQUIRES the mutex, or that no other thread uses the
 * disk. */
struct qsi_ram_disk *qsi_ram_disk_cut(const struct qsi_ram_disk *disk, enum qsi_cut_how how,
                                      uint64_t seed);

/* NULL if env is not a disk in RAM. */
struct qsi_ram_disk *qsi_ram_disk_of(qs_env *env);
struct qsi_ram_node *qsi_ram_node_of_file(qs_file *file);
struct qsi_ram_node *qsi_ram_node_of_dir(qs_dir *dir);
struct qsi_ram_node *qsi_ram_parent_of_dir(qs_dir *dir);

/* Starts tracking: everything there is durable.  REQUIRES no open handle. */
qs_status qsi_ram_disk_track(struct qsi_ram_disk *disk) QS_MUST_CHECK;

/* Fills in the functions of disk->env. */
void qsi_ram_env_init(struct qsi_ram_disk *disk);

/* All below REQUIRE the mutex, or a disk that nobody else uses. */

/* One reference for the caller.  NULL: out of memory. */
struct qsi_ram_node *qsi_ram_node_create(bool is_dir);
void qsi_ram_node_ref(struct qsi_ram_node *node);
void qsi_ram_node_unref(struct qsi_ram_disk *disk, struct qsi_ram_node *node);

/* Without making anything durable. */
void qsi_ram_forget_pending(struct qsi_ram_disk *disk, struct qsi_ram_node *node);
struct qsi_ram_node *qsi_ram_find(const struct qsi_map *names, const char *name);

/* The operations that count as steps; each tells the hook first.  A failure changes nothing, except
 * that a failed write may leave a part. */
qs_status qsi_ram_write(struct qsi_ram_disk *disk, struct qsi_ram_node *file, const qs_part *parts,
                        size_t part_count, uint64_t offset, size_t bytes) QS_MUST_CHECK;
qs_status qsi_ram_grow(struct qsi_ram_disk *disk, struct qsi_ram_node *file,
                       uint64_t bytes) QS_MUST_CHECK;
qs_status qsi_ram_truncate(struct qsi_ram_disk *disk, struct qsi_ram_node *file,
                           uint64_t bytes) QS_MUST_CHECK;

/* from NULL: create; to NULL: remove; else rename. */
qs_status qsi_ram_move_name(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                            const char *to, struct qsi_ram_node *node) QS_MUST_CHECK;
qs_status qsi_ram_sync_file(struct qsi_ram_disk *disk, struct qsi_ram_node *file) QS_MUST_CHECK;
qs_status qsi_ram_sync_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *dir) QS_MUST_CHECK;

qs_status qsi_ram_apply_to_image(const struct qsi_ram_change *change,
                                 struct qsi_image *image) QS_MUST_CHECK;

/* A change of names happens only where the names it depends on are as they were when it was made;
 * *applied_out tells whether.  Counts no references. */
qs_status qsi_ram_apply_to_names(const struct qsi_ram_change *change, struct qsi_map *names,
                                 bool *applied_out) QS_MUST_CHECK;

#endif
