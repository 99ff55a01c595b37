/* Pending changes of the disk in RAM.
 *
 * Invariants of a tracked disk: durable + pending, in order, = current, for every node that no sync
 * failed on; every pending change is in the list of its node and in the disk's, both in step order.
 *
 * References: durable names and pending changes count their nodes as names do, so that a removed
 * file lives while a cut can still bring it back. */
#include "sim_disk.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

/* -- pending changes -------------------------------------------------------------------------- */

static void discard_change(struct sim_disk *disk, struct sim_change *change)
{
    qsi_ram_node_unref(&disk->ram, change->node);
    qsi_ram_node_unref(&disk->ram, change->replaced);
    qsi_free(change);
}

/* A change that is no longer pending, because it is durable or lost. */
static void forget_change(struct sim_disk *disk, struct sim_change *change)
{
    qsi_list_remove(&change->in_node);
    qsi_list_remove(&change->in_disk);
    disk->pending_count--;
    discard_change(disk, change);
}

void sim_forget_pending(struct sim_disk *disk, struct sim_node *node)
{
    while (!qsi_list_is_empty(&node->pending)) {
        forget_change(disk, QSI_LIST_OWNER(node->pending.next, struct sim_change, in_node));
    }
}

static void init_node(struct qsi_ram_node *node)
{
    qsi_list_init(&sim_node_of(node)->pending);
}

static void fini_node(struct qsi_ram_disk *ram, struct qsi_ram_node *node)
{
    struct sim_node *sim = sim_node_of(node);

    sim_forget_pending(sim_disk_of(ram), sim);
    qsi_ram_clear_names(ram, &sim->durable_names);
    qsi_image_fini(&sim->durable);
}

/* The hook sees the disk as it is before the step. */
static uint64_t begin_step(struct sim_disk *disk)
{
    if (disk->on_step != NULL) {
        disk->on_step(disk->on_step_context, disk->step_count);
    }
    return disk->step_count++;
}

static struct sim_change *create_change(enum sim_change_kind kind, uint64_t step,
                                        size_t memory_bytes)
{
    struct sim_change *change;

    if (memory_bytes > SIZE_MAX - sizeof *change) {
        return NULL;
    }
    change = qsi_alloc(sizeof *change + memory_bytes);
    if (change != NULL) {
        *change = (struct sim_change){.kind = kind, .step = step};
        qsi_list_init(&change->in_node);
        qsi_list_init(&change->in_disk);
    }
    return change;
}

/* Takes over a change that the current side shows already. */
static void keep_change(struct sim_disk *disk, struct sim_node *node, struct sim_change *change)
{
    disk->pending_count++;
    qsi_list_push_back(&node->pending, &change->in_node);
    qsi_list_push_back(&disk->pending, &change->in_disk);
}

/* status is what the current side answered to it. */
static qs_status keep_or_discard(struct sim_disk *disk, struct qsi_ram_node *node,
                                 struct sim_change *change, qs_status status)
{
    if (status == QS_OK) {
        keep_change(disk, sim_node_of(node), change);
    } else {
        discard_change(disk, change);
    }
    return status;
}

qs_status sim_apply_to_image(const struct sim_change *change, struct qsi_image *image)
{
    switch (change->kind) {
    case SIM_WRITE:
        return qsi_image_write(image, change->data, (size_t)change->bytes, change->offset);
    case SIM_GROW:
        return change->bytes > image->bytes ? qsi_image_resize(image, change->bytes) : QS_OK;
    case SIM_TRUNCATE:
        return qsi_image_resize(image, change->bytes);
    case SIM_NAME:
        break;
    }
    QS_ASSERT(!"a change of names has no image");
    return QS_EINVAL;
}

qs_status sim_apply_to_names(const struct sim_change *change, struct qsi_map *names,
                             bool *applied_out)
{
    QS_ASSERT(change->kind == SIM_NAME);
    *applied_out = false;
    if (change->from != NULL && qsi_ram_find(names, change->from) != change->node) {
        return QS_OK;
    }
    if (change->to != NULL && qsi_ram_find(names, change->to) != change->replaced) {
        return QS_OK;
    }
    if (change->to != NULL) {
        QS_TRY(qsi_map_put(names, change->to, strlen(change->to), change->node));
    }
    if (change->from != NULL) {
        qsi_map_remove(names, change->from, strlen(change->from));
    }
    *applied_out = true;
    return QS_OK;
}

/* The same for the durable names, which are counted. */
static qs_status apply_counted(struct sim_disk *disk, const struct sim_change *change,
                               struct qsi_map *names)
{
    bool applied;

    QS_TRY(sim_apply_to_names(change, names, &applied));
    if (!applied) {
        return QS_OK;
    }
    if (change->from == NULL) {
        qsi_ram_node_ref(change->node);
    }
    if (change->to == NULL) {
        qsi_ram_node_unref(&disk->ram, change->node);
    }
    qsi_ram_node_unref(&disk->ram, change->replaced);
    return QS_OK;
}

/* -- a limit of space ------------------------------------------------------------------------- */

/* As on most file systems: what was reserved, and each page behind it that was written to.  (A page
 * of zeros is taken when something else is written to it.) */
static uint64_t used_bytes(struct qsi_ram_node *node)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&node->names);
    uint64_t bytes = qsi_round_up(sim_node_of(node)->reserved_bytes, QSI_IMAGE_PAGE);

    if (!node->is_dir) {
        return bytes + qsi_image_pages(&node->image, bytes) * QSI_IMAGE_PAGE;
    }
    while (qsi_map_next(&node->names, &cursor)) {
        bytes += used_bytes(cursor.value);
    }
    return bytes;
}

uint64_t sim_disk_used(const struct sim_disk *disk)
{
    return used_bytes(disk->ram.top);
}

/* Is there room for what is to be written, or made sure of, from offset to end? */
static bool has_space(const struct sim_disk *disk, struct qsi_ram_node *file, uint64_t offset,
                      uint64_t end)
{
    uint64_t reserved = qsi_round_up(sim_node_of(file)->reserved_bytes, QSI_IMAGE_PAGE);
    uint64_t first = offset - offset % QSI_IMAGE_PAGE;
    uint64_t there;

    first = first > reserved ? first : reserved;
    end = qsi_round_up(end, QSI_IMAGE_PAGE);
    if (disk->capacity_bytes == 0 || end <= first) {
        return true;
    }
    there = qsi_image_pages(&file->image, first) - qsi_image_pages(&file->image, end);
    return sim_disk_used(disk) + (end - first) - there * QSI_IMAGE_PAGE <= disk->capacity_bytes;
}

/* -- steps on files --------------------------------------------------------------------------- */

static bool parts_are_zero(const qs_part *parts, size_t part_count)
{
    for (size_t i = 0; i < part_count; i++) {
        if (!qsi_is_zero(parts[i].data, parts[i].bytes)) {
            return false;
        }
    }
    return true;
}

static struct sim_change *create_write(uint64_t step, const qs_part *parts, size_t part_count,
                                       uint64_t offset, size_t bytes)
{
    bool is_zero = parts_are_zero(parts, part_count);
    struct sim_change *change = create_change(SIM_WRITE, step, is_zero ? 0 : bytes);
    uint8_t *next;

    if (change == NULL) {
        return NULL;
    }
    change->offset = offset;
    change->bytes = bytes;
    if (is_zero) {
        return change;
    }
    change->data = change->memory;
    next = change->memory;
    for (size_t i = 0; i < part_count; i++) {
        if (parts[i].bytes > 0) {
            memcpy(next, parts[i].data, parts[i].bytes);
            next += parts[i].bytes;
        }
    }
    return change;
}

static qs_status write_parts(struct qsi_ram_disk *ram, struct qsi_ram_node *file,
                             const qs_part *parts, size_t part_count, uint64_t offset, size_t bytes)
{
    struct sim_disk *disk = sim_disk_of(ram);
    struct sim_change *change;

    if (!has_space(disk, file, offset, offset + bytes)) {
        return QS_ENOSPC;
    }
    if (!disk->is_tracked) {
        return qsi_ram_ops.write(ram, file, parts, part_count, offset, bytes);
    }
    change = create_write(begin_step(disk), parts, part_count, offset, bytes);
    if (change == NULL) {
        return QS_ENOMEM;
    }
    return keep_or_discard(disk, file, change, sim_apply_to_image(change, &file->image));
}

static qs_status set_size(struct sim_disk *disk, struct qsi_ram_node *file,
                          enum sim_change_kind kind, uint64_t bytes)
{
    struct sim_change *change;

    if (!disk->is_tracked) {
        return qsi_image_resize(&file->image, bytes);
    }
    change = create_change(kind, begin_step(disk), 0);
    if (change == NULL) {
        return QS_ENOMEM;
    }
    change->bytes = bytes;
    return keep_or_discard(disk, file, change, sim_apply_to_image(change, &file->image));
}

static qs_status allocate(struct qsi_ram_disk *ram, struct qsi_ram_node *file, uint64_t bytes)
{
    struct sim_node *sim = sim_node_of(file);

    if (!has_space(sim_disk_of(ram), file, 0, bytes)) {
        return QS_ENOSPC;
    }
    if (bytes > file->image.bytes) {
        QS_TRY(set_size(sim_disk_of(ram), file, SIM_GROW, bytes));
    }
    if (bytes > sim->reserved_bytes) {
        sim->reserved_bytes = bytes;
    }
    return QS_OK;
}

static qs_status truncate_file(struct qsi_ram_disk *ram, struct qsi_ram_node *file, uint64_t bytes)
{
    struct sim_node *sim = sim_node_of(file);

    if (bytes != file->image.bytes) {
        QS_TRY(set_size(sim_disk_of(ram), file, SIM_TRUNCATE, bytes));
    }
    if (bytes < sim->reserved_bytes) {
        sim->reserved_bytes = bytes;
    }
    return QS_OK;
}

/* What a failed sync lost does not become durable with the next one, although calls still see it:
 * only what was written after it does. */
static qs_status sync_after_loss(struct sim_disk *disk, struct sim_node *file)
{
    while (!qsi_list_is_empty(&file->pending)) {
        struct sim_change *change = QSI_LIST_OWNER(file->pending.next, struct sim_change, in_node);

        QS_TRY(sim_apply_to_image(change, &file->durable));
        forget_change(disk, change);
    }
    return QS_OK;
}

static qs_status sync_file(struct sim_disk *disk, struct sim_node *file)
{
    if (file->has_lost) {
        return sync_after_loss(disk, file);
    }
    qsi_image_assign(&file->durable, &file->ram.image);
    sim_forget_pending(disk, file);
    return QS_OK;
}

/* -- steps on names --------------------------------------------------------------------------- */

static const char *keep_text(char **memory, const char *text)
{
    char *copy = *memory;
    size_t bytes;

    if (text == NULL) {
        return NULL;
    }
    bytes = strlen(text) + 1;
    memcpy(copy, text, bytes);
    *memory += bytes;
    return copy;
}

static struct sim_change *create_move(uint64_t step, const char *from, const char *to,
                                      struct qsi_ram_node *node, struct qsi_ram_node *replaced)
{
    size_t from_bytes = from != NULL ? strlen(from) + 1 : 0;
    size_t to_bytes = to != NULL ? strlen(to) + 1 : 0;
    struct sim_change *change = create_change(SIM_NAME, step, from_bytes + to_bytes);
    char *memory;

    if (change == NULL) {
        return NULL;
    }
    memory = (char *)change->memory;
    change->from = keep_text(&memory, from);
    change->to = keep_text(&memory, to);
    change->node = node;
    change->replaced = replaced;
    qsi_ram_node_ref(node);
    if (replaced != NULL) {
        qsi_ram_node_ref(replaced);
    }
    return change;
}

static qs_status move_name(struct qsi_ram_disk *ram, struct qsi_ram_node *dir, const char *from,
                           const char *to, struct qsi_ram_node *node)
{
    struct sim_disk *disk = sim_disk_of(ram);
    struct qsi_ram_node *replaced = to != NULL ? qsi_ram_find(&dir->names, to) : NULL;
    struct sim_change *change;

    if (!disk->is_tracked) {
        return qsi_ram_ops.move_name(ram, dir, from, to, node);
    }
    change = create_move(begin_step(disk), from, to, node, replaced);
    if (change == NULL) {
        return QS_ENOMEM;
    }
    return keep_or_discard(disk, dir, change, qsi_ram_ops.move_name(ram, dir, from, to, node));
}

static qs_status sync_dir(struct sim_disk *disk, struct sim_node *dir)
{
    while (!qsi_list_is_empty(&dir->pending)) {
        struct sim_change *change = QSI_LIST_OWNER(dir->pending.next, struct sim_change, in_node);

        QS_TRY(apply_counted(disk, change, &dir->durable_names));
        forget_change(disk, change);
    }
    return QS_OK;
}

static qs_status sync_node(struct qsi_ram_disk *ram, struct qsi_ram_node *node)
{
    struct sim_disk *disk = sim_disk_of(ram);

    if (!disk->is_tracked) {
        return QS_OK;
    }
    begin_step(disk);
    return node->is_dir ? sync_dir(disk, sim_node_of(node)) : sync_file(disk, sim_node_of(node));
}

/* -- the disk --------------------------------------------------------------------------------- */

static const struct qsi_ram_ops sim_ops = {
    .node_bytes = sizeof(struct sim_node),
    .init_node = init_node,
    .fini_node = fini_node,
    .write = write_parts,
    .allocate = allocate,
    .truncate = truncate_file,
    .move_name = move_name,
    .sync = sync_node,
};

struct sim_disk *sim_disk_create(uint64_t seed, bool is_tracked)
{
    struct sim_disk *disk = qsi_zalloc(sizeof *disk);

    if (disk == NULL) {
        return NULL;
    }
    disk->random = seed;
    disk->is_tracked = is_tracked;
    qsi_list_init(&disk->pending);
    if (qsi_ram_disk_init(&disk->ram, &sim_ops) != QS_OK) {
        qsi_free(disk);
        return NULL;
    }
    sim_env_init(disk);
    return disk;
}

void sim_disk_destroy(struct sim_disk *disk)
{
    if (disk == NULL) {
        return;
    }
    while (!qsi_list_is_empty(&disk->pending)) {
        forget_change(disk, QSI_LIST_OWNER(disk->pending.next, struct sim_change, in_disk));
    }
    qsi_ram_disk_fini(&disk->ram);
    qsi_free(disk);
}

static qs_status copy_names(struct qsi_map *to, const struct qsi_map *from)
{
    struct qsi_map_cursor cursor = qsi_map_begin(from);

    while (qsi_map_next(from, &cursor)) {
        QS_TRY(qsi_map_put(to, cursor.key, cursor.key_bytes, cursor.value));
        qsi_ram_node_ref(cursor.value);
    }
    return QS_OK;
}

static qs_status make_durable(struct qsi_ram_node *node)
{
    struct sim_node *sim = sim_node_of(node);
    struct qsi_map_cursor cursor = qsi_map_begin(&node->names);

    qsi_image_assign(&sim->durable, &node->image);
    QS_TRY(copy_names(&sim->durable_names, &node->names));
    while (qsi_map_next(&node->names, &cursor)) {
        QS_TRY(make_durable(cursor.value));
    }
    return QS_OK;
}

qs_status sim_disk_track(struct sim_disk *disk)
{
    QS_ASSERT(!disk->is_tracked && disk->ram.handle_count == 0);
    disk->is_tracked = true;
    return make_durable(disk->ram.top);
}
