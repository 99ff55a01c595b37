/* Record batches made by hand, of the columns that publishing reads. */
#ifndef ARROW_TABLE_H
#define ARROW_TABLE_H

#include "qstore/qstore.h"

#include "qs_test.h"

#define TABLE_COLUMNS_MAX 8

struct table_column {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[3];
    void *owned[3];
};

struct table {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[1];
    struct table_column columns[TABLE_COLUMNS_MAX];
    struct ArrowSchema *schemas[TABLE_COLUMNS_MAX];
    struct ArrowArray *arrays[TABLE_COLUMNS_MAX];
};

static inline void table_release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static inline void table_release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static inline void table_init(struct table *table, int64_t rows)
{
    memset(table, 0, sizeof *table);
    table->schema = (struct ArrowSchema){
        .format = "+s", .name = "", .children = table->schemas, .release = table_release_schema};
    table->array = (struct ArrowArray){.length = rows,
                                       .n_buffers = 1,
                                       .buffers = table->buffers,
                                       .children = table->arrays,
                                       .release = table_release_array};
}

static inline struct table_column *table_column(struct table *table, const char *name,
                                                const char *format, int64_t buffers)
{
    int64_t index = table->schema.n_children;
    struct table_column *column = &table->columns[index];

    QS_CHECK(index < TABLE_COLUMNS_MAX);
    column->schema = (struct ArrowSchema){.format = format,
                                          .name = name,
                                          .flags = ARROW_FLAG_NULLABLE,
                                          .release = table_release_schema};
    column->array = (struct ArrowArray){.length = table->array.length,
                                        .n_buffers = buffers,
                                        .buffers = column->buffers,
                                        .release = table_release_array};
    table->schemas[index] = &column->schema;
    table->arrays[index] = &column->array;
    table->schema.n_children = table->array.n_children = index + 1;
    return column;
}

/* One string a row ("u" or "z"); NULL is a null. */
static inline void table_add_strings(struct table *table, const char *name, const char *format,
                                     const char *const *values)
{
    struct table_column *column = table_column(table, name, format, 3);
    size_t rows = (size_t)table->array.length;
    int32_t *offsets = calloc(rows + 1, sizeof *offsets);
    uint8_t *validity = calloc(rows / 8 + 1, 1);
    size_t bytes = 0;
    char *data;

    for (size_t row = 0; row < rows; row++) {
        bytes += values[row] != NULL ? strlen(values[row]) : 0;
    }
    data = malloc(bytes + 1);
    QS_CHECK(offsets != NULL && validity != NULL && data != NULL);
    for (size_t row = 0; row < rows; row++) {
        size_t length = values[row] != NULL ? strlen(values[row]) : 0;

        memcpy(data + offsets[row], length > 0 ? values[row] : "", length);
        offsets[row + 1] = offsets[row] + (int32_t)length;
        if (values[row] != NULL) {
            validity[row / 8] |= (uint8_t)(1u << row % 8);
        } else {
            column->array.null_count += 1;
        }
    }
    column->owned[0] = validity;
    column->owned[1] = offsets;
    column->owned[2] = data;
    memcpy(column->buffers, column->owned, sizeof column->owned);
}

/* One byte a row ("C"): delivery modes, priorities. */
static inline void table_add_bytes(struct table *table, const char *name, const uint8_t *values)
{
    struct table_column *column = table_column(table, name, "C", 2);
    size_t rows = (size_t)table->array.length;

    column->owned[1] = malloc(rows + 1);
    QS_CHECK(column->owned[1] != NULL);
    memcpy(column->owned[1], values, rows);
    column->buffers[1] = column->owned[1];
}

static inline void table_fini(struct table *table)
{
    for (int64_t i = 0; i < table->schema.n_children; i++) {
        for (int k = 0; k < 3; k++) {
            free(table->columns[i].owned[k]);
        }
    }
}

static inline qs_status table_publish(qs_channel *channel, struct table *table,
                                      const char *exchange, const char *key, uint32_t flags,
                                      qs_receipt *receipt, qs_error *error)
{
    const struct ArrowArray *arrays[1] = {&table->array};
    qs_batch batch = {
        .schema = &table->schema,
        .arrays = arrays,
        .array_count = 1,
        .body_column = "body",
        .exchange = {exchange, strlen(exchange)},
        .routing_key = {key, strlen(key)},
        .flags = flags,
    };

    return qs_channel_publish_batch(channel, &batch, receipt, error);
}

/* ---- what get_batch answers with ---- */

struct received {
    struct ArrowSchema schema;
    struct ArrowArray array;
};

static inline void received_release(struct received *received)
{
    received->array.release(&received->array);
    received->schema.release(&received->schema);
}

static inline const struct ArrowArray *received_column(const struct received *received,
                                                       const char *name)
{
    for (int64_t i = 0; i < received->schema.n_children; i++) {
        if (strcmp(received->schema.children[i]->name, name) == 0) {
            return received->array.children[i];
        }
    }
    QS_CHECK(!"no such column");
    return NULL;
}

static inline qs_slice received_body(const struct received *received, int64_t row)
{
    const struct ArrowArray *column = received_column(received, "body");
    const int32_t *offsets = column->buffers[1];

    return (qs_slice){(const char *)column->buffers[2] + offsets[row],
                      (size_t)(offsets[row + 1] - offsets[row])};
}

static inline uint64_t received_tag(const struct received *received, int64_t row)
{
    return ((const uint64_t *)received_column(received, "delivery_tag")->buffers[1])[row];
}

static inline bool received_redelivered(const struct received *received, int64_t row)
{
    const uint8_t *bits = received_column(received, "redelivered")->buffers[1];

    return (bits[row / 8] >> row % 8 & 1) != 0;
}

static inline uint32_t received_count(const struct received *received, int64_t row)
{
    return ((const uint32_t *)received_column(received, "delivery_count")->buffers[1])[row];
}

/* A dictionary column's string of a row: exchange or routing_key. */
static inline qs_slice received_name(const struct received *received, const char *name, int64_t row)
{
    const struct ArrowArray *column = received_column(received, name);
    const int32_t *codes = column->buffers[1];
    const int32_t *offsets = column->dictionary->buffers[1];

    return (qs_slice){(const char *)column->dictionary->buffers[2] + offsets[codes[row]],
                      (size_t)(offsets[codes[row] + 1] - offsets[codes[row]])};
}

#endif
