/* Nodes and pending changes of the disk in RAM.
 *
 * Invariants of a tracked disk: durable + pending, in order, = current, for every node that no sync
 * failed on; every pending change is in the list of its node and in the disk's, both in step order.
 *
 * References: a name counts its node, so a removed file lives while a durable name, a pending
 * change or a handle can still bring it back. */
#include "ram_disk.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

/* -- nodes ------------------------------------------------------------------------------------ */

struct qsi_ram_node *qsi_ram_node_create(bool is_dir)
{
    struct qsi_ram_node *node = qsi_zalloc(sizeof *node);

    if (node == NULL) {
        return NULL;
    }
    node->refs = 1;
    node->is_dir = is_dir;
    qsi_list_init(&node->pending);
    return node;
}

void qsi_ram_node_ref(struct qsi_ram_node *node)
{
    node->refs++;
}

static void discard_change(struct qsi_ram_disk *disk, struct qsi_ram_change *change)
{
    qsi_ram_node_unref(disk, change->node);
    qsi_ram_node_unref(disk, change->replaced);
    qsi_free(change);
}

/* A change that is no longer pending, because it is durable or lost. */
static void forget_change(struct qsi_ram_disk *disk, struct qsi_ram_change *change)
{
    qsi_list_remove(&change->in_node);
    qsi_list_remove(&change->in_disk);
    disk->pending_count--;
    discard_change(disk, change);
}

void qsi_ram_forget_pending(struct qsi_ram_disk *disk, struct qsi_ram_node *node)
{
    while (!qsi_list_is_empty(&node->pending)) {
        forget_change(disk, QSI_LIST_OWNER(node->pending.next, struct qsi_ram_change, in_node));
    }
}

static void clear_names(struct qsi_ram_disk *disk, struct qsi_map *names)
{
    struct qsi_map_cursor cursor = qsi_map_begin(names);

    while (qsi_map_next(names, &cursor)) {
        qsi_ram_node_unref(disk, cursor.value);
    }
    qsi_map_fini(names);
}

void qsi_ram_node_unref(struct qsi_ram_disk *disk, struct qsi_ram_node *node)
{
    if (node == NULL) {
        return;
    }
    QS_ASSERT(node->refs > 0);
    node->refs--;
    if (node->refs > 0) {
        return;
    }
    qsi_ram_forget_pending(disk, node);
    clear_names(disk, &node->names);
    clear_names(disk, &node->durable_names);
    qsi_image_fini(&node->current);
    qsi_image_fini(&node->durable);
    qsi_free(node);
}

struct qsi_ram_node *qsi_ram_find(const struct qsi_map *names, const char *name)
{
    return qsi_map_get(names, name, strlen(name));
}

/* -- the disk --------------------------------------------------------------------------------- */

struct qsi_ram_disk *qsi_ram_disk_create(uint64_t seed, bool is_tracked)
{
    struct qsi_ram_disk *disk = qsi_zalloc(sizeof *disk);

    if (disk == NULL) {
        return NULL;
    }
    disk->top = qsi_ram_node_create(true);
    if (disk->top == NULL) {
        qsi_free(disk);
        return NULL;
    }
    disk->random = seed;
    disk->is_tracked = is_tracked;
    qsi_list_init(&disk->pending);
    qsi_mutex_init(&disk->mutex);
    qsi_ram_env_init(disk);
    return disk;
}

void qsi_ram_disk_destroy(struct qsi_ram_disk *disk)
{
    if (disk == NULL) {
        return;
    }
    QS_ASSERT(disk->handle_count == 0);
    while (!qsi_list_is_empty(&disk->pending)) {
        forget_change(disk, QSI_LIST_OWNER(disk->pending.next, struct qsi_ram_change, in_disk));
    }
    QS_ASSERT(disk->top->refs == 1);
    qsi_ram_node_unref(disk, disk->top);
    qsi_mutex_fini(&disk->mutex);
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
    struct qsi_map_cursor cursor = qsi_map_begin(&node->names);

    qsi_image_assign(&node->durable, &node->current);
    QS_TRY(copy_names(&node->durable_names, &node->names));
    while (qsi_map_next(&node->names, &cursor)) {
        QS_TRY(make_durable(cursor.value));
    }
    return QS_OK;
}

qs_status qsi_ram_disk_track(struct qsi_ram_disk *disk)
{
    QS_ASSERT(!disk->is_tracked && disk->handle_count == 0);
    disk->is_tracked = true;
    return make_durable(disk->top);
}

/* -- changes ---------------------------------------------------------------------------------- */

/* The hook sees the disk as it is before the step. */
static uint64_t begin_step(struct qsi_ram_disk *disk)
{
    if (disk->is_tracked && disk->on_step != NULL) {
        disk->on_step(disk->on_step_context, disk->step_count);
    }
    return disk->step_count++;
}

static struct qsi_ram_change *create_change(enum qsi_ram_change_kind kind, uint64_t step,
                                            size_t memory_bytes)
{
    struct qsi_ram_change *change;

    if (memory_bytes > SIZE_MAX - sizeof *change) {
        return NULL;
    }
    change = qsi_alloc(sizeof *change + memory_bytes);
    if (change != NULL) {
        *change = (struct qsi_ram_change){.kind = kind, .step = step};
        qsi_list_init(&change->in_node);
        qsi_list_init(&change->in_disk);
    }
    return change;
}

/* Takes over a change that the current side shows already. */
static void keep_change(struct qsi_ram_disk *disk, struct qsi_ram_node *node,
                        struct qsi_ram_change *change)
{
    if (!disk->is_tracked) {
        discard_change(disk, change);
        return;
    }
    disk->pending_count++;
    qsi_list_push_back(&node->pending, &change->in_node);
    qsi_list_push_back(&disk->pending, &change->in_disk);
}

qs_status qsi_ram_apply_to_image(const struct qsi_ram_change *change, struct qsi_image *image)
{
    switch (change->kind) {
    case QSI_RAM_WRITE:
        return qsi_image_write(image, change->data, (size_t)change->bytes, change->offset);
    case QSI_RAM_GROW:
        return change->bytes > image->bytes ? qsi_image_resize(image, change->bytes) : QS_OK;
    case QSI_RAM_TRUNCATE:
        return qsi_image_resize(image, change->bytes);
    case QSI_RAM_NAME:
        break;
    }
    QS_ASSERT(!"a change of names has no image");
    return QS_EINVAL;
}

qs_status qsi_ram_apply_to_names(const struct qsi_ram_change *change, struct qsi_map *names,
                                 bool *applied_out)
{
    QS_ASSERT(change->kind == QSI_RAM_NAME);
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

/* The same for a table whose names are counted. */
static qs_status apply_counted(struct qsi_ram_disk *disk, const struct qsi_ram_change *change,
                               struct qsi_map *names)
{
    bool applied;

    QS_TRY(qsi_ram_apply_to_names(change, names, &applied));
    if (!applied) {
        return QS_OK;
    }
    if (change->from == NULL) {
        qsi_ram_node_ref(change->node);
    }
    if (change->to == NULL) {
        qsi_ram_node_unref(disk, change->node);
    }
    qsi_ram_node_unref(disk, change->replaced);
    return QS_OK;
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

static struct qsi_ram_change *create_write(uint64_t step, const qs_part *parts, size_t part_count,
                                           uint64_t offset, size_t bytes)
{
    bool is_zero = parts_are_zero(parts, part_count);
    struct qsi_ram_change *change = create_change(QSI_RAM_WRITE, step, is_zero ? 0 : bytes);
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

static qs_status apply_and_record(struct qsi_ram_disk *disk, struct qsi_ram_node *file,
                                  struct qsi_ram_change *change)
{
    qs_status status;

    if (change == NULL) {
        return QS_ENOMEM;
    }
    status = qsi_ram_apply_to_image(change, &file->current);
    if (status != QS_OK) {
        discard_change(disk, change);
        return status;
    }
    keep_change(disk, file, change);
    return QS_OK;
}

qs_status qsi_ram_write(struct qsi_ram_disk *disk, struct qsi_ram_node *file, const qs_part *parts,
                        size_t part_count, uint64_t offset, size_t bytes)
{
    uint64_t step;

    if (bytes == 0) {
        return QS_OK;
    }
    step = begin_step(disk);
    return apply_and_record(disk, file, create_write(step, parts, part_count, offset, bytes));
}

static qs_status set_size(struct qsi_ram_disk *disk, struct qsi_ram_node *file,
                          enum qsi_ram_change_kind kind, uint64_t bytes)
{
    struct qsi_ram_change *change = create_change(kind, begin_step(disk), 0);

    if (change != NULL) {
        change->bytes = bytes;
    }
    return apply_and_record(disk, file, change);
}

qs_status qsi_ram_grow(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes)
{
    return bytes > file->current.bytes ? set_size(disk, file, QSI_RAM_GROW, bytes) : QS_OK;
}

qs_status qsi_ram_truncate(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes)
{
    return bytes != file->current.bytes ? set_size(disk, file, QSI_RAM_TRUNCATE, bytes) : QS_OK;
}

/* What a failed sync lost does not become durable with the next one, although calls still see it:
 * only what was written after it does. */
static qs_status sync_after_loss(struct qsi_ram_disk *disk, struct qsi_ram_node *file)
{
    while (!qsi_list_is_empty(&file->pending)) {
        struct qsi_ram_change *change =
            QSI_LIST_OWNER(file->pending.next, struct qsi_ram_change, in_node);

        QS_TRY(qsi_ram_apply_to_image(change, &file->durable));
        forget_change(disk, change);
    }
    return QS_OK;
}

qs_status qsi_ram_sync_file(struct qsi_ram_disk *disk, struct qsi_ram_node *file)
{
    begin_step(disk);
    if (!disk->is_tracked) {
        return QS_OK;
    }
    if (file->has_lost) {
        return sync_after_loss(disk, file);
    }
    qsi_image_assign(&file->durable, &file->current);
    qsi_ram_forget_pending(disk, file);
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

static struct qsi_ram_change *create_move(uint64_t step, const char *from, const char *to,
                                          struct qsi_ram_node *node, struct qsi_ram_node *replaced)
{
    size_t from_bytes = from != NULL ? strlen(from) + 1 : 0;
    size_t to_bytes = to != NULL ? strlen(to) + 1 : 0;
    struct qsi_ram_change *change = create_change(QSI_RAM_NAME, step, from_bytes + to_bytes);
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

qs_status qsi_ram_move_name(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                            const char *to, struct qsi_ram_node *node)
{
    uint64_t step = begin_step(disk);
    struct qsi_ram_node *replaced = to != NULL ? qsi_ram_find(&dir->names, to) : NULL;
    struct qsi_ram_change *change = create_move(step, from, to, node, replaced);
    qs_status status;

    if (change == NULL) {
        return QS_ENOMEM;
    }
    status = apply_counted(disk, change, &dir->names);
    if (status != QS_OK) {
        discard_change(disk, change);
        return status;
    }
    keep_change(disk, dir, change);
    return QS_OK;
}

qs_status qsi_ram_sync_dir(struct qsi_ram_disk *disk, struct qsi_ram_node *dir)
{
    begin_step(disk);
    while (!qsi_list_is_empty(&dir->pending)) {
        struct qsi_ram_change *change =
            QSI_LIST_OWNER(dir->pending.next, struct qsi_ram_change, in_node);

        QS_TRY(apply_counted(disk, change, &dir->durable_names));
        forget_change(disk, change);
    }
    return QS_OK;
}
