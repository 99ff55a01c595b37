/* Record batches, made by hand. */
#ifndef ARROW_READ_FIXTURE_H
#define ARROW_READ_FIXTURE_H

#include "arrow_read.h"
#include "le.h"
#include "qs_test_alloc.h"

#define COLUMNS_MAX 16
#define BUFFERS_MAX 6

struct node { /* one array with its type */
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[BUFFERS_MAX];
    struct ArrowSchema *schema_children[COLUMNS_MAX];
    struct ArrowArray *array_children[COLUMNS_MAX];
};

static inline void release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static inline void release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static inline void node_init(struct node *node, const char *name, const char *format,
                             int64_t length, int64_t buffers)
{
    memset(node, 0, sizeof *node);
    node->schema = (struct ArrowSchema){.format = format,
                                        .name = name,
                                        .children = node->schema_children,
                                        .release = release_schema};
    node->array = (struct ArrowArray){.length = length,
                                      .n_buffers = buffers,
                                      .buffers = node->buffers,
                                      .children = node->array_children,
                                      .release = release_array};
}

static inline void node_add(struct node *parent, struct node *child)
{
    parent->schema_children[parent->schema.n_children++] = &child->schema;
    parent->array_children[parent->array.n_children++] = &child->array;
}

static inline void node_set_dictionary(struct node *codes, struct node *values)
{
    codes->schema.dictionary = &values->schema;
    codes->array.dictionary = &values->array;
}

static inline void make_column(struct node *node, const char *name, const char *format,
                               int64_t length, const void *values)
{
    node_init(node, name, format, length, 2);
    node->buffers[1] = values;
}

static inline void make_strings(struct node *node, const char *name, const char *format,
                                int64_t length, const void *offsets, const void *data)
{
    node_init(node, name, format, length, 3);
    node->buffers[1] = offsets;
    node->buffers[2] = data;
}

static inline void make_batch(struct node *root, int64_t rows, struct node *body)
{
    node_init(root, "", "+s", rows, 1);
    node_add(root, body);
}

static inline void set_nulls(struct node *node, const uint8_t *validity)
{
    node->array.null_count = -1;
    node->buffers[0] = validity;
}

/* The batch stays open until the next one is opened. */
static inline qs_status open_batch(struct qsi_arrow_batch *batch, const struct node *root,
                                   qs_error *error)
{
    static struct qsi_arrow_batch last;
    qs_status status = QS_OK;

    qsi_arrow_batch_close(&last);
    if (batch != NULL) {
        status = qsi_arrow_batch_open(batch, &root->schema, &root->array, "body", 0, NULL, error);
        QS_CHECK(status == QS_OK || batch->copies == NULL);
        last = *batch;
    }
    return status;
}

static inline void check_refused(const struct node *root, const char *text)
{
    struct qsi_arrow_batch batch;
    qs_error error = {0};

    QS_CHECK(open_batch(&batch, root, &error) == QS_EINVAL);
    if (strcmp(error.text, text) != 0) {
        fprintf(stderr, "expected: %s\n     got: %s\n", text, error.text);
        QS_CHECK(!"error text");
    }
    QS_CHECK(open_batch(&batch, root, NULL) == QS_EINVAL);
}

/* "alpha", "", "two words", "a body that is longer than twelve bytes" in all layouts. */
#define BODY_COUNT 4

static const char body_data[] = "alphatwo wordsa body that is longer than twelve bytes";

struct view {
    int32_t bytes;
    union {
        char inlined[12];
        struct {
            char prefix[4];
            int32_t buffer;
            int32_t offset;
        } far;
    } u;
};

static struct view views[BODY_COUNT] = {{5, .u.inlined = "alpha"},
                                        {0, .u.inlined = ""},
                                        {9, .u.inlined = "two words"},
                                        {39, .u.far = {{'a', ' ', 'b', 'o'}, 1, 14}}};

static const int64_t view_sizes[2] = {1, sizeof body_data - 1};

static inline void make_views(struct node *node, const char *name, int64_t length)
{
    node_init(node, name, "vz", length, 5);
    node->buffers[1] = views;
    node->buffers[2] = "?";
    node->buffers[3] = body_data;
    node->buffers[4] = view_sizes;
}

/* A batch with every column, two rows; the second row is null wherever it may be. */
struct full_batch {
    struct node root, body, exchange, exchange_names, routing_key, headers, entries, keys, values;
    struct node message_id, priority, delivery_mode, expiration_ms, timestamp, user_id;
};

static const uint8_t first_only[1] = {1};

static const int32_t two_strings[] = {0, 1, 2};

static const int32_t map_offsets[] = {0, 2, 2};

static const uint8_t entry_validity[1] = {1};

static const int8_t codes2[] = {1, 99};

static const uint8_t priorities[] = {7, 0};

static const uint16_t modes[] = {2, 77};

static const int64_t expirations[] = {60000, -1};

static const int64_t milliseconds[] = {1700000000999, -5};

static inline void make_full(struct full_batch *full)
{
    make_strings(&full->body, "body", "z", 2, two_strings, "xy");
    make_batch(&full->root, 2, &full->body);
    make_column(&full->exchange, "exchange", "c", 2, codes2);
    make_strings(&full->exchange_names, "", "u", 2, two_strings, "pq");
    node_set_dictionary(&full->exchange, &full->exchange_names);
    make_strings(&full->routing_key, "routing_key", "u", 2, two_strings, "rs");
    node_init(&full->headers, "headers", "+m", 2, 2);
    full->headers.buffers[1] = map_offsets;
    node_init(&full->entries, "entries", "+s", 2, 1);
    make_strings(&full->keys, "key", "u", 2, two_strings, "kl");
    make_strings(&full->values, "value", "u", 2, two_strings, "vw");
    node_add(&full->headers, &full->entries);
    node_add(&full->entries, &full->keys);
    node_add(&full->entries, &full->values);
    make_strings(&full->message_id, "message_id", "u", 2, two_strings, "mn");
    make_column(&full->priority, "priority", "C", 2, priorities);
    make_column(&full->delivery_mode, "delivery_mode", "S", 2, modes);
    make_column(&full->expiration_ms, "expiration_ms", "l", 2, expirations);
    make_column(&full->timestamp, "timestamp", "tsm:UTC", 2, milliseconds);
    node_init(&full->user_id, "user_id", "n", 2, 0);
    set_nulls(&full->exchange, first_only);
    set_nulls(&full->routing_key, first_only);
    set_nulls(&full->headers, first_only);
    set_nulls(&full->values, entry_validity);
    set_nulls(&full->message_id, first_only);
    set_nulls(&full->priority, first_only);
    set_nulls(&full->delivery_mode, first_only);
    set_nulls(&full->expiration_ms, first_only);
    set_nulls(&full->timestamp, first_only);
    node_add(&full->root, &full->exchange);
    node_add(&full->root, &full->routing_key);
    node_add(&full->root, &full->headers);
    node_add(&full->root, &full->message_id);
    node_add(&full->root, &full->priority);
    node_add(&full->root, &full->delivery_mode);
    node_add(&full->root, &full->expiration_ms);
    node_add(&full->root, &full->timestamp);
    node_add(&full->root, &full->user_id);
}

#endif
