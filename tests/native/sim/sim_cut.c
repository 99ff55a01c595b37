/* What a power cut leaves of a tracked disk.
 *
 * A cut starts from the durable side of every node and lets some of the pending changes happen,
 * whole or in part.  Invariant: no byte outside the sectors that a pending write touched differs
 * from one of the two sides.  Nothing here depends on addresses, so one seed gives one disk. */
#include "check.h"
#include "sim_disk.h"
#include "splitmix.h"

#include <string.h>

#define SECTOR_BYTES 512u
#define WORD_BYTES 8u

/* What becomes of one pending change. */
enum fate {
    FATE_KEPT,
    FATE_DROPPED,
    FATE_GROWN,   /* the size that a write made, without its bytes */
    FATE_TORN,    /* some sectors of a write */
    FATE_GARBLED, /* all of a write, but one sector is garbage */
    FATE_COUNT,
};

/* How a whole cut tends to decide: independent coins alone would hardly ever make the states in
 * which nearly all of many changes, or nearly none, survive. */
enum mood {
    MOOD_MOSTLY_KEPT,
    MOOD_MOSTLY_DROPPED,
    MOOD_MIXED,
    MOOD_ORDERED,  /* all before one change, none after it */
    MOOD_ONE_LOST, /* all but one */
    MOOD_ONE_KEPT, /* none but one */
    MOOD_COUNT,
};

typedef uint8_t fate_weights[FATE_COUNT]; /* the sum must be WEIGHT_SUM */
#define WEIGHT_SUM 16

static const fate_weights weights_of_mood[] = {
    [MOOD_MOSTLY_KEPT] = {12, 1, 1, 1, 1},
    [MOOD_MOSTLY_DROPPED] = {2, 11, 1, 1, 1},
    [MOOD_MIXED] = {5, 4, 2, 3, 2},
};
static const fate_weights weights_of_boundary = {4, 3, 1, 5, 3};
static const fate_weights weights_of_lost = {0, 5, 1, 6, 4};
static const fate_weights weights_of_kept = {9, 0, 1, 4, 2};

struct cut {
    struct sim_disk *to;
    enum qsi_cut_how how;
    uint64_t random;
    enum mood mood;
    uint64_t chosen_step; /* of the one change that ORDERED, ONE_LOST and ONE_KEPT are about */
};

/* -- decisions -------------------------------------------------------------------------------- */

static bool toss(struct cut *cut)
{
    return qsi_splitmix_below(&cut->random, 2) == 0;
}

static uint64_t choose_step(struct cut *cut, const struct sim_disk *disk)
{
    const struct qsi_list *link = disk->pending.next;
    uint64_t index;

    if (disk->pending_count == 0) {
        return 0;
    }
    for (index = qsi_splitmix_below(&cut->random, disk->pending_count); index > 0; index--) {
        link = link->next;
    }
    return QSI_LIST_OWNER(link, struct sim_change, in_disk)->step;
}

static enum fate draw(struct cut *cut, const fate_weights weights)
{
    uint64_t ticket = qsi_splitmix_below(&cut->random, WEIGHT_SUM);
    unsigned fate = 0;

    while (ticket >= weights[fate]) {
        ticket -= weights[fate];
        fate++;
        QS_ASSERT(fate < FATE_COUNT);
    }
    return (enum fate)fate;
}

static enum fate draw_fate(struct cut *cut, uint64_t step)
{
    switch (cut->mood) {
    case MOOD_ORDERED:
        if (step == cut->chosen_step) {
            return draw(cut, weights_of_boundary);
        }
        return step < cut->chosen_step ? FATE_KEPT : FATE_DROPPED;
    case MOOD_ONE_LOST:
        return step == cut->chosen_step ? draw(cut, weights_of_lost) : FATE_KEPT;
    case MOOD_ONE_KEPT:
        return step == cut->chosen_step ? draw(cut, weights_of_kept) : FATE_DROPPED;
    case MOOD_MOSTLY_KEPT:
    case MOOD_MOSTLY_DROPPED:
    case MOOD_MIXED:
    case MOOD_COUNT:
        break;
    }
    return draw(cut, weights_of_mood[cut->mood]);
}

/* For a change that happens or does not: a fate in between is as good as a coin. */
static bool draw_kept(struct cut *cut, uint64_t step)
{
    enum fate fate = draw_fate(cut, step);

    return fate == FATE_KEPT || (fate != FATE_DROPPED && toss(cut));
}

/* -- writes ----------------------------------------------------------------------------------- */

static uint64_t first_sector(const struct sim_change *write)
{
    return write->offset / SECTOR_BYTES;
}

static uint64_t sector_count(const struct sim_change *write)
{
    return (write->offset + write->bytes - 1) / SECTOR_BYTES - first_sector(write) + 1;
}

/* The bytes of the write that fall into the count sectors from the given one. */
static qs_status write_sectors(struct qsi_image *image, const struct sim_change *write,
                               uint64_t sector, uint64_t count)
{
    uint64_t start = sector * SECTOR_BYTES;
    uint64_t end = start + count * SECTOR_BYTES;
    const uint8_t *data = write->data;

    if (start < write->offset) {
        start = write->offset;
    }
    if (end > write->offset + write->bytes) {
        end = write->offset + write->bytes;
    }
    if (data != NULL) {
        data += start - write->offset;
    }
    return qsi_image_write(image, data, (size_t)(end - start), start);
}

/* The size is metadata: it may have reached the disk although the bytes did not. */
static qs_status write_size(struct qsi_image *image, const struct sim_change *write)
{
    uint64_t end = write->offset + write->bytes;

    return end > image->bytes ? qsi_image_resize(image, end) : QS_OK;
}

static qs_status write_random_sectors(struct cut *cut, struct qsi_image *image,
                                      const struct sim_change *write)
{
    uint64_t first = first_sector(write);
    uint64_t count = sector_count(write);

    for (uint64_t i = 0; i < count; i++) {
        if (toss(cut)) {
            QS_TRY(write_sectors(image, write, first + i, 1));
        }
    }
    return QS_OK;
}

/* A single sector is atomic: such a write has nowhere to tear. */
static qs_status write_torn(struct cut *cut, struct qsi_image *image,
                            const struct sim_change *write)
{
    uint64_t count = sector_count(write);

    if (count == 1 || toss(cut)) {
        QS_TRY(write_random_sectors(cut, image, write));
    } else {
        uint64_t prefix = 1 + qsi_splitmix_below(&cut->random, count - 1);

        QS_TRY(write_sectors(image, write, first_sector(write), prefix));
    }
    return toss(cut) ? write_size(image, write) : QS_OK;
}

/* Garbage covers the whole sector, also bytes of it that the write did not touch: a sector is
 * written as one.  It does not change the size. */
static qs_status write_garbled(struct cut *cut, struct qsi_image *image,
                               const struct sim_change *write)
{
    uint64_t index = qsi_splitmix_below(&cut->random, sector_count(write));
    uint64_t start = (first_sector(write) + index) * SECTOR_BYTES;
    uint8_t garbage[SECTOR_BYTES];
    size_t bytes = sizeof garbage;

    for (size_t i = 0; i < sizeof garbage; i += WORD_BYTES) {
        uint64_t word = qsi_splitmix_next(&cut->random);

        memcpy(garbage + i, &word, WORD_BYTES);
    }
    QS_TRY(sim_apply_to_image(write, image));
    if (bytes > image->bytes - start) {
        bytes = (size_t)(image->bytes - start);
    }
    return qsi_image_write(image, garbage, bytes, start);
}

static qs_status cut_write(struct cut *cut, struct qsi_image *image, const struct sim_change *write)
{
    switch (draw_fate(cut, write->step)) {
    case FATE_KEPT:
        return sim_apply_to_image(write, image);
    case FATE_GROWN:
        return write_size(image, write);
    case FATE_TORN:
        return write_torn(cut, image, write);
    case FATE_GARBLED:
        return write_garbled(cut, image, write);
    case FATE_DROPPED:
    case FATE_COUNT:
        break;
    }
    return QS_OK;
}

static qs_status cut_file(struct cut *cut, struct qsi_ram_node *from, struct qsi_ram_node *to)
{
    sim_node_of(to)->reserved_bytes = sim_node_of(from)->reserved_bytes;
    if (cut->how == QSI_CUT_KEEP_ALL) {
        qsi_image_assign(&to->image, &from->image);
        return QS_OK;
    }
    qsi_image_assign(&to->image, &sim_node_of(from)->durable);
    if (cut->how == QSI_CUT_DROP_ALL) {
        return QS_OK;
    }
    for (const struct qsi_list *link = sim_node_of(from)->pending.next;
         link != &sim_node_of(from)->pending; link = link->next) {
        const struct sim_change *change = QSI_LIST_OWNER(link, struct sim_change, in_node);

        if (change->kind == SIM_WRITE) {
            QS_TRY(cut_write(cut, &to->image, change));
        } else if (draw_kept(cut, change->step)) {
            QS_TRY(sim_apply_to_image(change, &to->image));
        }
    }
    return QS_OK;
}

/* -- names ------------------------------------------------------------------------------------ */

static qs_status copy_uncounted(struct qsi_map *to, const struct qsi_map *from)
{
    struct qsi_map_cursor cursor = qsi_map_begin(from);

    while (qsi_map_next(from, &cursor)) {
        QS_TRY(qsi_map_put(to, cursor.key, cursor.key_bytes, cursor.value));
    }
    return QS_OK;
}

/* names: the durable ones with some of the pending changes, uncounted. */
static qs_status draw_names(struct cut *cut, struct sim_node *dir, struct qsi_map *names)
{
    QS_TRY(copy_uncounted(names, &dir->durable_names));
    for (const struct qsi_list *link = dir->pending.next; link != &dir->pending;
         link = link->next) {
        const struct sim_change *change = QSI_LIST_OWNER(link, struct sim_change, in_node);
        bool applied;

        if (draw_kept(cut, change->step)) {
            QS_TRY(sim_apply_to_names(change, names, &applied));
        }
    }
    return QS_OK;
}

static qs_status cut_dir(struct cut *cut, struct qsi_ram_node *from, struct qsi_ram_node *to);

static qs_status cut_name(struct cut *cut, const struct qsi_map_cursor *name,
                          struct qsi_ram_node *to)
{
    struct qsi_ram_node *node = name->value;
    struct qsi_ram_node *copy = qsi_ram_node_create(&cut->to->ram, node->is_dir);
    qs_status status;

    if (copy == NULL) {
        return QS_ENOMEM;
    }
    status = qsi_map_put(&to->names, name->key, name->key_bytes, copy);
    if (status != QS_OK) {
        qsi_ram_node_unref(&cut->to->ram, copy);
        return status;
    }
    return node->is_dir ? cut_dir(cut, node, copy) : cut_file(cut, node, copy);
}

static qs_status cut_names(struct cut *cut, const struct qsi_map *names, struct qsi_ram_node *to)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    while (qsi_map_next(names, &cursor)) {
        QS_TRY(cut_name(cut, &cursor, to));
    }
    return QS_OK;
}

static qs_status cut_dir(struct cut *cut, struct qsi_ram_node *from, struct qsi_ram_node *to)
{
    struct qsi_map drawn = {0};
    const struct qsi_map *names = &sim_node_of(from)->durable_names;
    qs_status status;

    if (cut->how == QSI_CUT_KEEP_ALL) {
        names = &from->names;
    } else if (cut->how == QSI_CUT_RANDOM && !qsi_list_is_empty(&sim_node_of(from)->pending)) {
        status = draw_names(cut, sim_node_of(from), &drawn);
        if (status != QS_OK) {
            goto out;
        }
        names = &drawn;
    }
    status = cut_names(cut, names, to);
out:
    qsi_map_fini(&drawn);
    return status;
}

/* -- the cut ---------------------------------------------------------------------------------- */

struct sim_disk *sim_disk_cut(struct sim_disk *disk, enum qsi_cut_how how, uint64_t seed)
{
    struct cut cut = {.how = how, .random = seed};

    QS_ASSERT(disk->is_tracked || how == QSI_CUT_KEEP_ALL);
    cut.to = sim_disk_create(seed, false);
    if (cut.to == NULL) {
        return NULL;
    }
    cut.to->clock_ns = disk->clock_ns;
    cut.to->capacity_bytes = disk->capacity_bytes;
    cut.mood = (enum mood)qsi_splitmix_below(&cut.random, MOOD_COUNT);
    cut.chosen_step = choose_step(&cut, disk);
    if (cut_dir(&cut, disk->ram.top, cut.to->ram.top) != QS_OK) {
        sim_disk_destroy(cut.to);
        return NULL;
    }
    return cut.to;
}
