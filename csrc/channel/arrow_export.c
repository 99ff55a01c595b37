/* Moving a finished batch to the caller through the Arrow C Data interface.
 *
 * All nodes of the tree are in one counted block, like those of a schema (columns.c).  The block
 * owns the buffers and has a reference to the chunk of bodies that were not copied.  Columns
 * without a value share one zeroed region, which serves as null bits and equal offsets. */
#include "alloc.h"
#include "arrow_build.h"
#include "error.h"

#include <string.h>

#define BUFFERS_MAX 3

struct array_export {
    QSI_COLUMN_TREE(ArrowArray) tree;
    const void *buffers[QSI_NODE_COUNT][BUFFERS_MAX];
    struct qsi_arrow_builder builder; /* owns the memory of the buffers */
    uint8_t zeros[];
};

_Static_assert(QS_RECEIVED_DELIVERED == 1 << QSI_ARROW_DELIVERED &&
                   QS_RECEIVED_BROWSED == 1 << QSI_ARROW_BROWSED &&
                   QS_RECEIVED_STREAM == 1 << QSI_ARROW_STREAM,
               "a shape is a bit of QS_RECEIVED_*");

static void release_array(struct ArrowArray *array)
{
    struct array_export *export = array->private_data;

    QSI_COLUMN_TREE_RELEASE_BELOW(array);
    if (__atomic_sub_fetch(&export->tree.refs, 1, __ATOMIC_ACQ_REL) == 0) {
        qsi_arrow_builder_fini(&export->builder);
        qsi_free(export);
    }
}

/* Sets a node without nulls; missing buffers become zeros. */
static void set_node(struct array_export *export, int node, uint64_t length, int64_t buffer_count,
                     const void *second, const void *third)
{
    struct ArrowArray *array = &export->tree.nodes[node];

    array->length = (int64_t)length;
    array->n_buffers = buffer_count;
    array->buffers = export->buffers[node];
    array->buffers[1] = second == NULL ? export->zeros : second;
    array->buffers[2] = third == NULL ? export->zeros : third;
    array->release = release_array;
    array->private_data = export;
}

static void set_nulls(struct array_export *export, int node, uint64_t set_count,
                      const uint8_t *validity)
{
    struct ArrowArray *array = &export->tree.nodes[node];

    array->null_count = array->length - (int64_t)set_count;
    if (array->null_count > 0) {
        array->buffers[0] = validity == NULL ? export->zeros : validity;
    }
}

static void set_values(struct array_export *export, int node, const void *values)
{
    set_node(export, node, export->builder.rows, 2, values, NULL);
}

static void set_text(struct array_export *export, int node, uint64_t length,
                     const struct qsi_arrow_text *text)
{
    set_node(export, node, length, 3, text->offsets, text->data.data);
    set_nulls(export, node, text->set_count, text->validity);
}

static void set_body(struct array_export *export)
{
    const struct qsi_arrow_builder *builder = &export->builder;
    bool is_lent = builder->lender != NULL;

    set_node(export, QSI_COLUMN_BODY, builder->rows, 3,
             is_lent ? (const void *)builder->lent_offsets : builder->body_offsets,
             is_lent ? builder->lent_bodies : builder->body.data);
}

static void set_headers(struct array_export *export)
{
    const struct qsi_arrow_builder *builder = &export->builder;
    uint64_t entries = builder->header_keys.filled;

    set_values(export, QSI_COLUMN_HEADERS, builder->headers.offsets);
    set_nulls(export, QSI_COLUMN_HEADERS, builder->headers.set_count, builder->headers.validity);
    set_node(export, QSI_NODE_ENTRIES, entries, 1, NULL, NULL);
    set_text(export, QSI_NODE_KEY, entries, &builder->header_keys);
    set_text(export, QSI_NODE_VALUE, entries, &builder->header_values);
}

static void set_names(struct array_export *export)
{
    for (int i = 0; i < QSI_ARROW_DICTIONARY_COUNT; i++) {
        const struct qsi_arrow_text *names = &export->builder.entries[i];

        set_values(export, QSI_COLUMN_EXCHANGE + i, export->builder.codes[i]);
        set_text(export, QSI_NODE_EXCHANGES + i, names->filled, names);
    }
}

static void set_number(struct array_export *export, int node, int number)
{
    const struct qsi_arrow_number *column = &export->builder.numbers[number];

    set_values(export, node, column->values);
    set_nulls(export, node, column->set_count, column->validity);
}

static void set_nodes(struct array_export *export)
{
    const struct qsi_arrow_builder *builder = &export->builder;

    set_node(export, QSI_NODE_ROOT, builder->rows, 1, NULL, NULL);
    set_values(export, QSI_COLUMN_DELIVERY_TAG, builder->tags);
    set_values(export, QSI_COLUMN_SEQUENCE, builder->tags);
    set_values(export, QSI_COLUMN_OFFSET, builder->tags);
    set_values(export, QSI_COLUMN_TIME, builder->times);
    set_values(export, QSI_COLUMN_REDELIVERED, builder->redelivered);
    set_values(export, QSI_COLUMN_UNACKED, builder->unacked);
    set_values(export, QSI_COLUMN_DELAYED, builder->delayed);
    set_values(export, QSI_COLUMN_DELIVERY_COUNT, builder->delivery_counts);
    set_names(export);
    set_body(export);
    set_headers(export);
#define QSI_TEXT_COLUMN(id, name) \
    set_text(export, QSI_COLUMN_##id, builder->rows, &builder->texts[QSI_COLUMN_TEXT_##id]);
#define QSI_NUMBER_COLUMN(id, ...) set_number(export, QSI_COLUMN_##id, QSI_COLUMN_NUMBER_##id);
#include "columns.def"
    set_number(export, QSI_COLUMN_MESSAGE_TIMESTAMP, QSI_COLUMN_NUMBER_TIMESTAMP);
}

/* The rows of the longest column without a value. */
static uint64_t empty_rows(const struct qsi_arrow_builder *builder)
{
    uint64_t entries = builder->header_keys.filled;

    if (builder->shape == QSI_ARROW_STREAM &&
        (builder->columns & QS_STREAM_COLUMN_PROPERTIES) == 0) {
        return 0; /* only a batch without rows has such columns */
    }
    return builder->rows > entries ? builder->rows : entries;
}

static struct array_export *create_array(const struct qsi_arrow_builder *builder)
{
    uint64_t length_max = empty_rows(builder);
    struct array_export *export = qsi_zalloc(sizeof *export + (length_max + 1) * sizeof(int64_t));

    if (export != NULL) {
        export->builder = *builder;
        set_nodes(export);
        QSI_COLUMN_TREE_LINK(&export->tree, 1u << builder->shape, builder->columns);
    }
    return export;
}

qs_status qsi_arrow_builder_finish(struct qsi_arrow_builder *builder,
                                   struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                                   qs_error *error)
{
    struct ArrowSchema schema;
    struct array_export *array;
    qs_status status = qsi_arrow_builder_fill(builder);

    if (status == QS_OK) {
        status = qs_columns_schema(1u << builder->shape, builder->columns, &schema, NULL);
    }
    if (status == QS_OK) {
        array = create_array(builder);
        if (array != NULL) {
            qsi_arrow_builder_init(builder); /* its memory is now the array's */
            *schema_out = schema;
            *array_out = array->tree.nodes[QSI_NODE_ROOT];
            return QS_OK;
        }
        schema.release(&schema);
        status = QS_ENOMEM;
    }
    return qsi_fail(error, status, "a batch of %llu rows", (unsigned long long)builder->rows);
}
