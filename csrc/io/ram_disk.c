/* Nodes of the disk in memory, and the operations that change them.
 *
 * Names and handles are references to their nodes, so a removed file exists while a handle is
 * open. */
#include "ram_disk.h"

#include "alloc.h"
#include "check.h"

#include <string.h>

/* -- nodes ------------------------------------------------------------------------------------ */

struct qsi_ram_node *qsi_ram_node_create(struct qsi_ram_disk *disk, bool is_dir)
{
    struct qsi_ram_node *node = qsi_zalloc(disk->ops->node_bytes);

    if (node == NULL) {
        return NULL;
    }
    node->refs = 1;
    node->is_dir = is_dir;
    disk->ops->init_node(node);
    return node;
}

void qsi_ram_node_ref(struct qsi_ram_node *node)
{
    QS_ASSERT(node->refs > 0);
    node->refs++;
}

void qsi_ram_clear_names(struct qsi_ram_disk *disk, struct qsi_map *names)
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
    QS_DCHECK(!node->is_locked && node->reader_count == 0);
    disk->ops->fini_node(disk, node);
    qsi_ram_clear_names(disk, &node->names);
    qsi_image_fini(&node->image);
    qsi_free(node);
}

struct qsi_ram_node *qsi_ram_find(const struct qsi_map *names, const char *name)
{
    return qsi_map_get(names, name, strlen(name));
}

/* -- the operations --------------------------------------------------------------------------- */

static void init_node(struct qsi_ram_node *node)
{
    (void)node;
}

static void fini_node(struct qsi_ram_disk *disk, struct qsi_ram_node *node)
{
    (void)disk;
    (void)node;
}

static qs_status write_parts(struct qsi_ram_disk *disk, struct qsi_ram_node *file,
                             const qs_part *parts, size_t part_count, uint64_t offset, size_t bytes)
{
    QS_DCHECK(!file->is_dir);
    (void)disk;
    (void)bytes;
    for (size_t i = 0; i < part_count; i++) {
        const void *data = qsi_is_zero(parts[i].data, parts[i].bytes) ? NULL : parts[i].data;

        QS_TRY(qsi_image_write(&file->image, data, parts[i].bytes, offset));
        offset += parts[i].bytes;
    }
    QS_DCHECK(offset <= file->image.bytes);
    return QS_OK;
}

static qs_status allocate(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes)
{
    QS_DCHECK(!file->is_dir);
    (void)disk;
    return bytes > file->image.bytes ? qsi_image_resize(&file->image, bytes) : QS_OK;
}

static qs_status truncate_file(struct qsi_ram_disk *disk, struct qsi_ram_node *file, uint64_t bytes)
{
    QS_DCHECK(!file->is_dir);
    (void)disk;
    return qsi_image_resize(&file->image, bytes);
}

static qs_status move_name(struct qsi_ram_disk *disk, struct qsi_ram_node *dir, const char *from,
                           const char *to, struct qsi_ram_node *node)
{
    struct qsi_ram_node *replaced = to != NULL ? qsi_ram_find(&dir->names, to) : NULL;

    QS_DCHECK(replaced != node && (from == NULL || to == NULL || strcmp(from, to) != 0));
    QS_DCHECK(from == NULL || qsi_ram_find(&dir->names, from) == node);
    QS_DCHECK(dir->is_dir && (from != NULL || to != NULL));
    if (to != NULL) {
        QS_TRY(qsi_map_put(&dir->names, to, strlen(to), node));
    }
    if (from != NULL) {
        qsi_map_remove(&dir->names, from, strlen(from));
    } else {
        qsi_ram_node_ref(node);
    }
    if (to == NULL) {
        qsi_ram_node_unref(disk, node);
    }
    qsi_ram_node_unref(disk, replaced);
    return QS_OK;
}

/* Does nothing: no data survives the process. */
static qs_status sync_node(struct qsi_ram_disk *disk, struct qsi_ram_node *node)
{
    (void)disk;
    (void)node;
    return QS_OK;
}

const struct qsi_ram_ops qsi_ram_ops = {
    .node_bytes = sizeof(struct qsi_ram_node),
    .init_node = init_node,
    .fini_node = fini_node,
    .write = write_parts,
    .allocate = allocate,
    .truncate = truncate_file,
    .move_name = move_name,
    .sync = sync_node,
};
