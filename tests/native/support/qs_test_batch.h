/* Record batches made by hand: a body column and a routing key column, for
 * qs_channel_publish_batch. */
#ifndef QS_TEST_BATCH_H
#define QS_TEST_BATCH_H

#include "qstore/qstore.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define QS_TEST_BATCH_ROWS_MAX 64

struct qs_test_batch {
    int32_t body_offsets[QS_TEST_BATCH_ROWS_MAX + 1];
    int32_t key_offsets[QS_TEST_BATCH_ROWS_MAX + 1];
    uint8_t *bodies;
    char keys[QS_TEST_BATCH_ROWS_MAX * 16];
    uint8_t modes[QS_TEST_BATCH_ROWS_MAX]; /* 1 or 2; all 0: there is no such column */
    bool has_modes;
    uint8_t priorities[QS_TEST_BATCH_ROWS_MAX];
    bool has_priorities;
    int64_t row_count;
    /* as the interface wants them */
    struct ArrowSchema column_schemas[4], schema;
    struct ArrowSchema *schema_children[4];
    struct ArrowArray column_arrays[4], array;
    struct ArrowArray *array_children[4];
    const void *body_buffers[3], *key_buffers[3], *octet_buffers[2][2], *struct_buffers[1];
    const struct ArrowArray *arrays[1];
};

static inline void qs_test_batch_release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static inline void qs_test_batch_release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static inline void qs_test_batch_init(struct qs_test_batch *batch)
{
    memset(batch, 0, sizeof *batch);
}

static inline void qs_test_batch_fini(struct qs_test_batch *batch)
{
    free(batch->bodies);
    batch->bodies = NULL;
}

/* Room for a body of so many bytes at the end of the batch; the caller fills it. */
static inline uint8_t *qs_test_batch_add(struct qs_test_batch *batch, const char *key,
                                         uint32_t body_bytes)
{
    int32_t body_at = batch->body_offsets[batch->row_count];
    int32_t key_at = batch->key_offsets[batch->row_count];
    int32_t key_bytes = (int32_t)strlen(key);

    batch->bodies = realloc(batch->bodies, (size_t)body_at + body_bytes + 1);
    memcpy(batch->keys + key_at, key, (size_t)key_bytes);
    batch->row_count++;
    batch->body_offsets[batch->row_count] = body_at + (int32_t)body_bytes;
    batch->key_offsets[batch->row_count] = key_at + key_bytes;
    return batch->bodies + body_at;
}

/* The delivery mode of the last row; then all of them need one. */
static inline void qs_test_batch_set_mode(struct qs_test_batch *batch, uint8_t mode)
{
    batch->modes[batch->row_count - 1] = mode;
    batch->has_modes = true;
}

/* The priority of the last row; then all of them have one. */
static inline void qs_test_batch_set_priority(struct qs_test_batch *batch, uint8_t priority)
{
    batch->priorities[batch->row_count - 1] = priority;
    batch->has_priorities = true;
}

static inline void qs_test_batch_column(struct qs_test_batch *batch, int column, const char *name,
                                        const char *format, const void **buffers)
{
    batch->column_schemas[column] = (struct ArrowSchema){
        .format = format, .name = name, .release = qs_test_batch_release_schema};
    batch->column_arrays[column] = (struct ArrowArray){
        .length = batch->row_count,
        .n_buffers = 3,
        .buffers = buffers,
        .release = qs_test_batch_release_array,
    };
    batch->schema_children[column] = &batch->column_schemas[column];
    batch->array_children[column] = &batch->column_arrays[column];
}

static inline void qs_test_batch_octets(struct qs_test_batch *batch, int column, const char *name,
                                        const uint8_t *octets)
{
    const void **buffers = batch->octet_buffers[column - 2];

    buffers[1] = octets;
    qs_test_batch_column(batch, column, name, "C", buffers);
    batch->column_arrays[column].n_buffers = 2;
}

/* What to hand to qs_channel_publish_batch; valid until the next row is added. */
static inline qs_batch qs_test_batch_finish(struct qs_test_batch *batch)
{
    int columns = 2;

    batch->body_buffers[1] = batch->body_offsets;
    batch->body_buffers[2] = batch->bodies;
    batch->key_buffers[1] = batch->key_offsets;
    batch->key_buffers[2] = batch->keys;
    qs_test_batch_column(batch, 0, "body", "z", batch->body_buffers);
    qs_test_batch_column(batch, 1, "routing_key", "u", batch->key_buffers);
    if (batch->has_modes) {
        qs_test_batch_octets(batch, columns++, "delivery_mode", batch->modes);
    }
    if (batch->has_priorities) {
        qs_test_batch_octets(batch, columns++, "priority", batch->priorities);
    }
    batch->schema = (struct ArrowSchema){
        .format = "+s",
        .name = "",
        .n_children = columns,
        .children = batch->schema_children,
        .release = qs_test_batch_release_schema,
    };
    batch->array = (struct ArrowArray){
        .length = batch->row_count,
        .n_buffers = 1,
        .buffers = batch->struct_buffers,
        .n_children = columns,
        .children = batch->array_children,
        .release = qs_test_batch_release_array,
    };
    batch->arrays[0] = &batch->array;
    return (qs_batch){
        .schema = &batch->schema,
        .arrays = batch->arrays,
        .array_count = 1,
        .body_column = "body",
    };
}

#endif
