/* The disk behind the memory and sim environments of the tests: the engine's disk in RAM, with a
 * clock and randomness of its own, a limit of space and, when it is tracked, every change that no
 * sync has made durable yet.
 *
 * A node's image and names are its current side, what calls see; its durable side is what the last
 * syncs left; its pending changes lead from the one to the other.  An untracked disk keeps the
 * current side only. */
#ifndef SIM_DISK_H
#define SIM_DISK_H

#include "env_test.h"
#include "image.h"
#include "list.h"
#include "map.h"
#include "ram_disk.h"

#include <stddef.h>

struct sim_node {
    struct qsi_ram_node ram; /* durable names and pending changes count it, too */
    bool has_lost;           /* a sync dropped writes: durable does not lead to current any more */
    uint64_t reserved_bytes; /* that it was made sure of, whatever is written to them */
    struct qsi_image durable;
    struct qsi_map durable_names;
    struct qsi_list pending; /* its sim_changes, oldest first */
};

enum sim_change_kind {
    SIM_WRITE,    /* bytes at offset */
    SIM_GROW,     /* the size becomes at least bytes */
    SIM_TRUNCATE, /* the size becomes bytes */
    SIM_NAME,     /* node goes from one name to another, either of which may be none */
};

struct sim_change {
    struct qsi_list in_node;
    struct qsi_list in_disk;
    uint64_t step;
    enum sim_change_kind kind;
    uint64_t offset;
    uint64_t bytes;
    const uint8_t *data;           /* of a write; NULL: zeros */
    const char *from;              /* NULL: node is created */
    const char *to;                /* NULL: node is removed */
    struct qsi_ram_node *node;     /* counted */
    struct qsi_ram_node *replaced; /* what had the name `to` before, or NULL; counted */
    uint8_t memory[];              /* what data, from and to point to */
};

struct sim_disk {
    struct qsi_ram_disk ram; /* its mutex is over all of this */
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

static inline struct sim_node *sim_node_of(struct qsi_ram_node *node)
{
    return (struct sim_node *)(void *)node;
}

static inline struct sim_disk *sim_disk_of(struct qsi_ram_disk *disk)
{
    return (struct sim_disk *)(void *)disk;
}

struct sim_disk *sim_disk_create(uint64_t seed, bool is_tracked); /* NULL: out of memory */
void sim_disk_destroy(struct sim_disk *disk);                     /* NULL is fine */

/* Puts the disk's own clock, randomness and space into its environment. */
void sim_env_init(struct sim_disk *disk);

/* A new untracked disk with what this one holds after a cut (its current side only, if it is
 * untracked: KEEP_ALL).  NULL: out of memory.  REQUIRES the mutex, or that no other thread uses the
 * disk. */
struct sim_disk *sim_disk_cut(struct sim_disk *disk, enum qsi_cut_how how, uint64_t seed);

/* Starts tracking: everything there is durable.  REQUIRES no open handle. */
qs_status sim_disk_track(struct sim_disk *disk) QS_MUST_CHECK;

/* How many bytes the files take. */
uint64_t sim_disk_used(const struct sim_disk *disk);

/* Without making anything durable. */
void sim_forget_pending(struct sim_disk *disk, struct sim_node *node);

qs_status sim_apply_to_image(const struct sim_change *change,
                             struct qsi_image *image) QS_MUST_CHECK;

/* A change of names happens only where the names it depends on are as they were when it was made;
 * *applied_out tells whether.  Counts no references. */
qs_status sim_apply_to_names(const struct sim_change *change, struct qsi_map *names,
                             bool *applied_out) QS_MUST_CHECK;

#endif
