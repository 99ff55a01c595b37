/* Handing a finished batch over through the Arrow C Data interface.
 *
 * A consumer may move any part of the tree out and release the rest, in any order.  So all nodes
 * of a tree lie in one counted block that owns the buffers: each unreleased node counts, the
 * last one to go frees the block, and lets go of the chunk that bodies were lent from.  Columns
 * without a value share one zeroed region: null bits, equal offsets, whatever they need. */
#include "alloc.h"
#include "arrow_build.h"
#include "check.h"
#include "error.h"

#include <string.h>

enum node {
    NODE_DELIVERY_TAG, /* the columns first, in their order */
    NODE_TIME,         /* only a batch of a stream has it */
    NODE_REDELIVERED,
    NODE_EXCHANGE,
    NODE_ROUTING_KEY,
    NODE_BODY,
    NODE_HEADERS,
    NODE_TEXTS,
    NODE_NUMBERS = NODE_TEXTS + QSI_ARROW_TEXT_COUNT,
    NODE_MESSAGE_TIME = NODE_NUMBERS + QSI_ARROW_NUMBER_COUNT - 1, /* of the properties */
    NODE_DELIVERY_COUNT,
    NODE_UNACKED, /* only a batch that was browsed has these two */
    NODE_DELAYED,
    COLUMN_COUNT,
    NODE_ENTRIES = COLUMN_COUNT, /* inside headers */
    NODE_KEY,
    NODE_VALUE,
    NODE_EXCHANGE_NAMES, /* dictionaries */
    NODE_ROUTING_KEY_NAMES,
    NODE_ROOT,
    NODE_COUNT
};

/* Everything may be null by its schema, as is the default elsewhere, but what a map must have. */
static const struct {
    const char *name;
    const char *format;
    int64_t flags;
    int64_t buffer_count;
} node_types[NODE_COUNT] = {
    [NODE_DELIVERY_TAG] = {"delivery_tag", "L", ARROW_FLAG_NULLABLE, 2},
    [NODE_TIME] = {"timestamp", "tsu:UTC", ARROW_FLAG_NULLABLE, 2},
    [NODE_REDELIVERED] = {"redelivered", "b", ARROW_FLAG_NULLABLE, 2},
    [NODE_EXCHANGE] = {"exchange", "i", ARROW_FLAG_NULLABLE, 2},
    [NODE_ROUTING_KEY] = {"routing_key", "i", ARROW_FLAG_NULLABLE, 2},
    [NODE_BODY] = {"body", "z", ARROW_FLAG_NULLABLE, 3},
    [NODE_HEADERS] = {"headers", "+m", ARROW_FLAG_NULLABLE, 2},
    [NODE_TEXTS + 0] = {"message_id", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 1] = {"correlation_id", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 2] = {"type", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 3] = {"app_id", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 4] = {"content_type", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 5] = {"content_encoding", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 6] = {"reply_to", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_TEXTS + 7] = {"user_id", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_NUMBERS + 0] = {"priority", "C", ARROW_FLAG_NULLABLE, 2},
    [NODE_NUMBERS + 1] = {"delivery_mode", "C", ARROW_FLAG_NULLABLE, 2},
    [NODE_NUMBERS + 2] = {"expiration_ms", "l", ARROW_FLAG_NULLABLE, 2},
    [NODE_NUMBERS + 3] = {"timestamp", "tss:UTC", ARROW_FLAG_NULLABLE, 2},
    [NODE_DELIVERY_COUNT] = {"delivery_count", "I", ARROW_FLAG_NULLABLE, 2},
    [NODE_UNACKED] = {"unacked", "b", ARROW_FLAG_NULLABLE, 2},
    [NODE_DELAYED] = {"delayed", "b", ARROW_FLAG_NULLABLE, 2},
    [NODE_ENTRIES] = {"entries", "+s", 0, 1},
    [NODE_KEY] = {"key", "u", 0, 3},
    [NODE_VALUE] = {"value", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_EXCHANGE_NAMES] = {"", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_ROUTING_KEY_NAMES] = {"", "u", ARROW_FLAG_NULLABLE, 3},
    [NODE_ROOT] = {"", "+s", 0, 1},
};

struct schema_export {
    uint32_t refs; /* touched with atomics only; one for each unreleased node */
    struct ArrowSchema nodes[NODE_COUNT];
    struct ArrowSchema *columns[COLUMN_COUNT];
    struct ArrowSchema *entries[1];
    struct ArrowSchema *key_value[2];
};

#define BUFFERS_MAX 3

struct array_export {
    uint32_t refs; /* as above */
    struct ArrowArray nodes[NODE_COUNT];
    struct ArrowArray *columns[COLUMN_COUNT];
    struct ArrowArray *entries[1];
    struct ArrowArray *key_value[2];
    const void *buffers[NODE_COUNT][BUFFERS_MAX];
    struct qsi_arrow_builder builder; /* owns the memory of the buffers */
    uint8_t zeros[];
};

static void release_schema(struct ArrowSchema *schema)
{
    struct schema_export *export = schema->private_data;

    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release !=
            NULL) { /* else it was moved out, or released by itself */
            schema->children[i]->release(schema->children[i]);
        }
    }
    if (schema->dictionary != NULL && schema->dictionary->release != NULL) {
        schema->dictionary->release(schema->dictionary);
    }
    schema->release = NULL;
    if (__atomic_sub_fetch(&export->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        qsi_free(export);
    }
}

static void release_array(struct ArrowArray *array)
{
    struct array_export *export = array->private_data;

    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    if (array->dictionary != NULL && array->dictionary->release != NULL) {
        array->dictionary->release(array->dictionary);
    }
    array->release = NULL;
    if (__atomic_sub_fetch(&export->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        qsi_arrow_builder_fini(&export->builder);
        qsi_free(export);
    }
}

static uint32_t chosen_column(enum node column)
{
    switch (column) {
    case NODE_TIME:
        return QSI_ARROW_HAS_TIME;
    case NODE_EXCHANGE:
        return QSI_ARROW_HAS_EXCHANGE;
    case NODE_ROUTING_KEY:
        return QSI_ARROW_HAS_ROUTING_KEY;
    case NODE_BODY:
        return QSI_ARROW_HAS_BODY;
    default:
        return column >= NODE_HEADERS && column < NODE_DELIVERY_COUNT ? QSI_ARROW_HAS_PROPERTIES
                                                                      : 0;
    }
}

static bool has_column(enum qsi_arrow_shape shape, uint32_t columns, enum node column)
{
    if (column == NODE_DELIVERY_TAG) {
        return true;
    }
    if (shape == QSI_ARROW_STREAM) {
        return (columns & chosen_column(column)) != 0;
    }
    return column != NODE_TIME && (shape == QSI_ARROW_BROWSED || column < NODE_UNACKED);
}

/* Nodes below a column. */
static uint32_t inner_count(enum node column)
{
    return column == NODE_HEADERS                                  ? 3
           : column == NODE_EXCHANGE || column == NODE_ROUTING_KEY ? 1
                                                                   : 0;
}

/* The shape of the tree, the same for types and for values; refs: all that are in it. */
#define LINK_NODES(export, shape, chosen)                                                        \
    do {                                                                                         \
        uint32_t column_count = 0;                                                               \
        (export)->refs = 1;                                                                      \
        for (int i = 0; i < COLUMN_COUNT; i++) {                                                 \
            if (has_column(shape, chosen, (enum node)i)) {                                       \
                (export)->columns[column_count++] = &(export)->nodes[i];                         \
                (export)->refs += 1 + inner_count((enum node)i);                                 \
            }                                                                                    \
        }                                                                                        \
        (export)->nodes[NODE_ROOT].n_children = column_count;                                    \
        (export)->nodes[NODE_ROOT].children = (export)->columns;                                 \
        (export)->entries[0] = &(export)->nodes[NODE_ENTRIES];                                   \
        (export)->nodes[NODE_HEADERS].n_children = 1;                                            \
        (export)->nodes[NODE_HEADERS].children = (export)->entries;                              \
        (export)->key_value[0] = &(export)->nodes[NODE_KEY];                                     \
        (export)->key_value[1] = &(export)->nodes[NODE_VALUE];                                   \
        (export)->nodes[NODE_ENTRIES].n_children = 2;                                            \
        (export)->nodes[NODE_ENTRIES].children = (export)->key_value;                            \
        (export)->nodes[NODE_EXCHANGE].dictionary = &(export)->nodes[NODE_EXCHANGE_NAMES];       \
        (export)->nodes[NODE_ROUTING_KEY].dictionary = &(export)->nodes[NODE_ROUTING_KEY_NAMES]; \
    } while (0)

static struct schema_export *create_schema(enum qsi_arrow_shape shape, uint32_t columns)
{
    struct schema_export *export = qsi_zalloc(sizeof *export);

    if (export == NULL) {
        return NULL;
    }
    for (int i = 0; i < NODE_COUNT; i++) {
        export->nodes[i].format = node_types[i].format;
        export->nodes[i].name = node_types[i].name;
        export->nodes[i].flags = node_types[i].flags;
        export->nodes[i].release = release_schema;
        export->nodes[i].private_data = export;
    }
    if (shape == QSI_ARROW_BROWSED) {
        export->nodes[NODE_DELIVERY_TAG].name = "sequence";
    } else if (shape == QSI_ARROW_STREAM) {
        export->nodes[NODE_DELIVERY_TAG].name = "offset";
        export->nodes[NODE_MESSAGE_TIME].name = "message_timestamp";
    }
    LINK_NODES(export, shape, columns);
    return export;
}

qs_status qsi_arrow_schema(enum qsi_arrow_shape shape, uint32_t columns,
                           struct ArrowSchema *schema_out, qs_error *error)
{
    struct schema_export *schema = create_schema(shape, columns);

    if (schema == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a schema");
    }
    *schema_out = schema->nodes[NODE_ROOT];
    return QS_OK;
}

/* Fills in a node without nulls; buffers that were never needed become zeros. */
static void set_node(struct array_export *export, enum node node, uint64_t length,
                     const void *second, const void *third)
{
    struct ArrowArray *array = &export->nodes[node];

    array->length = (int64_t)length;
    array->n_buffers = node_types[node].buffer_count;
    array->buffers = export->buffers[node];
    array->buffers[1] = second == NULL ? export->zeros : second;
    array->buffers[2] = third == NULL ? export->zeros : third;
    array->release = release_array;
    array->private_data = export;
}

static void set_nulls(struct array_export *export, enum node node, uint64_t set_count,
                      const uint8_t *validity)
{
    struct ArrowArray *array = &export->nodes[node];

    array->null_count = array->length - (int64_t)set_count;
    if (array->null_count > 0) {
        array->buffers[0] = validity == NULL ? export->zeros : validity;
    }
}

static void set_text(struct array_export *export, enum node node, uint64_t length,
                     const struct qsi_arrow_text *text)
{
    set_node(export, node, length, text->offsets, text->data.data);
    set_nulls(export, node, text->set_count, text->validity);
}

static void set_properties(struct array_export *export)
{
    const struct qsi_arrow_builder *builder = &export->builder;
    uint64_t entries = builder->header_keys.filled;

    set_node(export, NODE_HEADERS, builder->rows, builder->headers.offsets, NULL);
    set_nulls(export, NODE_HEADERS, builder->headers.set_count, builder->headers.validity);
    set_node(export, NODE_ENTRIES, entries, NULL, NULL);
    set_text(export, NODE_KEY, entries, &builder->header_keys);
    set_text(export, NODE_VALUE, entries, &builder->header_values);
    for (int i = 0; i < QSI_ARROW_TEXT_COUNT; i++) {
        set_text(export, (enum node)(NODE_TEXTS + i), builder->rows, &builder->texts[i]);
    }
    for (int i = 0; i < QSI_ARROW_NUMBER_COUNT; i++) {
        const struct qsi_arrow_number *number = &builder->numbers[i];

        set_node(export, (enum node)(NODE_NUMBERS + i), builder->rows, number->values, NULL);
        set_nulls(export, (enum node)(NODE_NUMBERS + i), number->set_count, number->validity);
    }
}

static void set_nodes(struct array_export *export)
{
    const struct qsi_arrow_builder *builder = &export->builder;
    uint64_t rows = builder->rows;

    set_node(export, NODE_ROOT, rows, NULL, NULL);
    set_node(export, NODE_DELIVERY_TAG, rows, builder->tags, NULL);
    set_node(export, NODE_TIME, rows, builder->times, NULL);
    set_node(export, NODE_REDELIVERED, rows, builder->redelivered, NULL);
    set_node(export, NODE_UNACKED, rows, builder->unacked, NULL);
    set_node(export, NODE_DELAYED, rows, builder->delayed, NULL);
    if (builder->lender != NULL) {
        set_node(export, NODE_BODY, rows, builder->lent_offsets, builder->lent_bodies);
    } else {
        set_node(export, NODE_BODY, rows, builder->body_offsets, builder->body.data);
    }
    set_node(export, NODE_DELIVERY_COUNT, rows, builder->delivery_counts, NULL);
    for (int i = 0; i < QSI_ARROW_DICTIONARY_COUNT; i++) {
        set_node(export, (enum node)(NODE_EXCHANGE + i), rows, builder->codes[i], NULL);
        set_text(export, (enum node)(NODE_EXCHANGE_NAMES + i), builder->entries[i].filled,
                 &builder->entries[i]);
    }
    set_properties(export);
}

/* Rows of the longest column without a value. */
static uint64_t empty_rows(const struct qsi_arrow_builder *builder)
{
    uint64_t entries = builder->header_keys.filled;

    if (builder->shape == QSI_ARROW_STREAM && (builder->columns & QSI_ARROW_HAS_PROPERTIES) == 0) {
        return 0; /* it has none, unless it has no row */
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
        LINK_NODES(export, builder->shape, builder->columns);
    }
    return export;
}

qs_status qsi_arrow_builder_finish(struct qsi_arrow_builder *builder,
                                   struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                                   qs_error *error)
{
    struct schema_export *schema = NULL;
    struct array_export *array = NULL;
    qs_status status = qsi_arrow_builder_fill(builder);

    if (status == QS_OK) {
        schema = create_schema(builder->shape, builder->columns);
        array = schema == NULL ? NULL : create_array(builder);
        status = array == NULL ? QS_ENOMEM : QS_OK;
    }
    if (status != QS_OK) {
        qsi_free(schema);
        return qsi_fail(error, status, "a batch of %llu rows", (unsigned long long)builder->rows);
    }
    qsi_arrow_builder_init(builder); /* its memory went with the array */
    *schema_out = schema->nodes[NODE_ROOT];
    *array_out = array->nodes[NODE_ROOT];
    return QS_OK;
}
