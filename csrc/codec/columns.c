/* The table of the Arrow columns, and the schemas generated from it.
 *
 * A consumer may move any part of a tree out and release the rest, in any order.  So all nodes of a
 * tree are in one counted block: each unreleased node counts, and the last one frees the block. */
#include "columns.h"

#include "alloc.h"
#include "check.h"
#include "error.h"

enum {
    QS_RECEIVED_NEVER = 0,
    QS_RECEIVED_QUEUE = QS_RECEIVED_DELIVERED | QS_RECEIVED_BROWSED,
    QS_RECEIVED_ALL = QS_RECEIVED_QUEUE | QS_RECEIVED_STREAM,
    QS_STREAM_COLUMN_ALWAYS = 0,
};

const qs_column qsi_columns[QSI_COLUMN_COUNT] = {
#define QSI_COLUMN(id, name, format, received, part, published, low, high, meaning) \
    {                                                                               \
        #name,                                                                      \
        format,                                                                     \
        meaning,                                                                    \
        QS_RECEIVED_##received,                                                     \
        QS_STREAM_COLUMN_##part,                                                    \
        QS_COLUMN_##published,                                                      \
        low,                                                                        \
        high},
#include "columns.def"
};

const qs_column *qs_column_at(size_t index)
{
    return index < QSI_COLUMN_COUNT ? &qsi_columns[index] : NULL;
}

/* The nodes below columns; parts that a map must have are not nullable. */
static const struct {
    const char *name, *format;
    int64_t flags;
} inner_nodes[QSI_NODE_COUNT - QSI_COLUMN_COUNT] = {
    {"entries", "+s", 0},
    {"key", "u", 0},
    {"value", "u", ARROW_FLAG_NULLABLE},
    {"", "u", ARROW_FLAG_NULLABLE},
    {"", "u", ARROW_FLAG_NULLABLE},
    {"", "+s", 0},
};

struct schema_export {
    QSI_COLUMN_TREE(ArrowSchema) tree;
};

static void release_schema(struct ArrowSchema *schema)
{
    struct schema_export *export = schema->private_data;

    QSI_COLUMN_TREE_RELEASE_BELOW(schema);
    if (__atomic_sub_fetch(&export->tree.refs, 1, __ATOMIC_ACQ_REL) == 0) {
        qsi_free(export);
    }
}

qs_status qs_columns_schema(uint32_t received, uint32_t parts, struct ArrowSchema *schema_out,
                            qs_error *error)
{
    struct schema_export *export;

    if (received != QS_RECEIVED_DELIVERED && received != QS_RECEIVED_BROWSED &&
        received != QS_RECEIVED_STREAM) {
        return qsi_fail(error, QS_EINVAL, "%u is no kind of received batch", received);
    }
    export = qsi_zalloc(sizeof *export);
    if (export == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a schema");
    }
    for (int i = 0; i < QSI_NODE_COUNT; i++) {
        struct ArrowSchema *node = &export->tree.nodes[i];
        bool is_inner = i >= QSI_COLUMN_COUNT;
        node->name = is_inner ? inner_nodes[i - QSI_COLUMN_COUNT].name : qsi_columns[i].name;
        node->format = is_inner ? inner_nodes[i - QSI_COLUMN_COUNT].format : qsi_columns[i].format;
        node->flags = is_inner ? inner_nodes[i - QSI_COLUMN_COUNT].flags : ARROW_FLAG_NULLABLE;
        node->release = release_schema;
        node->private_data = export;
    }
    QSI_COLUMN_TREE_LINK(&export->tree, received, parts);
    *schema_out = export->tree.nodes[QSI_NODE_ROOT];
    return QS_OK;
}
