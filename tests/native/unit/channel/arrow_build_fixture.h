/* A batch as deliveries come back, and what its columns have. */
#ifndef ARROW_BUILD_FIXTURE_H
#define ARROW_BUILD_FIXTURE_H

#include "arrow_build.h"
#include "le.h"
#include "properties.h"
#include "qs_test_alloc.h"

static struct qs_test_alloc memory;

/* It gives all its memory back. */
static inline void run_counted(void (*test)(void))
{
    qs_test_alloc_install(&memory);
    test();
    qs_test_alloc_end(&memory);
}
#define ROWS_TEST(name) QS_TEST_BY(run_counted, name, (void))

struct batch {
    struct ArrowSchema schema;
    struct ArrowArray array;
};

static inline void release(struct batch *batch)
{
    batch->array.release(&batch->array);
    batch->schema.release(&batch->schema);
    QS_CHECK(batch->array.release == NULL && batch->schema.release == NULL);
}

/* The columns of deliveries, in order; NULL behind the last. */
static inline const qs_column *column_at(int index)
{
    for (int i = 0; i < QSI_COLUMN_COUNT; i++) {
        if ((qsi_columns[i].received & QS_RECEIVED_DELIVERED) != 0 && index-- == 0) {
            return &qsi_columns[i];
        }
    }
    return NULL;
}

static inline int column_index(const char *name)
{
    int index = 0;

    while (strcmp(column_at(index)->name, name) != 0) {
        index++;
    }
    return index;
}

static inline const struct ArrowArray *column(const struct batch *batch, const char *name)
{
    return batch->array.children[column_index(name)];
}

static inline bool is_null(const struct ArrowArray *array, int64_t row)
{
    const uint8_t *validity = array->buffers[0];

    return validity != NULL && (validity[row / 8] >> row % 8 & 1) == 0;
}

/* Whether a string of a column is text, or null when text is NULL. */
static inline bool holds(const struct ArrowArray *array, int64_t row, const char *text)
{
    const int32_t *offsets = array->buffers[1];
    const char *data = array->buffers[2];

    if (text == NULL) {
        return is_null(array, row);
    }
    return !is_null(array, row) && (size_t)(offsets[row + 1] - offsets[row]) == strlen(text) &&
           memcmp(data + offsets[row], text, strlen(text)) == 0;
}

/* Every array is consistent in itself: lengths, counts, offsets that ascend. */
static inline void check_array(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    int64_t nulls = 0;

    QS_CHECK(array->offset == 0 && array->n_children == schema->n_children &&
             array->release != NULL);
    for (int64_t row = 0; row < array->length; row++) {
        nulls += is_null(array, row);
    }
    QS_CHECK(nulls == array->null_count);
    if (strcmp(schema->format, "u") == 0 || strcmp(schema->format, "z") == 0 ||
        strcmp(schema->format, "+m") == 0) {
        const int32_t *offsets = array->buffers[1];

        QS_CHECK(offsets[0] == 0);
        for (int64_t row = 0; row < array->length; row++) {
            QS_CHECK(offsets[row] <= offsets[row + 1]);
        }
        if (array->n_children > 0) {
            QS_CHECK(offsets[array->length] == array->children[0]->length);
        }
    }
    for (int64_t i = 0; i < array->n_children; i++) {
        check_array(schema->children[i], array->children[i]);
    }
    if (schema->dictionary != NULL) {
        const int32_t *codes = array->buffers[1];

        check_array(schema->dictionary, array->dictionary);
        for (int64_t row = 0; row < array->length; row++) {
            QS_CHECK(codes[row] >= 0 && codes[row] < array->dictionary->length);
        }
    }
}

static inline void finish(struct qsi_arrow_builder *builder, struct batch *batch)
{
    QS_CHECK(qsi_arrow_builder_finish(builder, &batch->schema, &batch->array, NULL) == QS_OK);
    QS_CHECK(builder->rows == 0 && builder->tags == NULL);
    QS_CHECK(strcmp(batch->schema.format, "+s") == 0 &&
             column_at((int)batch->schema.n_children) == NULL);
    for (int i = 0; i < batch->schema.n_children; i++) {
        QS_CHECK(strcmp(batch->schema.children[i]->name, column_at(i)->name) == 0);
        QS_CHECK(strcmp(batch->schema.children[i]->format, column_at(i)->format) == 0);
        QS_CHECK(batch->array.children[i]->length == batch->array.length);
    }
    check_array(&batch->schema, &batch->array);
}

static inline struct qsi_arrow_run make_run(struct qsi_arrow_builder *builder, uint64_t tag,
                                            struct qsi_slice properties)
{
    struct qsi_arrow_run run = {.first_tag = tag, .delivery_count = 1, .properties = properties};

    QS_CHECK(qsi_arrow_builder_intern(builder, &run.exchange_code, QSI_ARROW_EXCHANGE,
                                      QSI_SLICE_LITERAL("ex"), NULL) == QS_OK);
    QS_CHECK(qsi_arrow_builder_intern(builder, &run.routing_key_code, QSI_ARROW_ROUTING_KEY,
                                      QSI_SLICE_LITERAL("key"), NULL) == QS_OK);
    return run;
}

static inline struct qsi_slice encode(uint8_t *blob, const struct qsi_properties *properties)
{
    (void)qsi_properties_encode(blob, properties);
    return qsi_slice_make(blob, (uint32_t)qsi_properties_bytes(properties));
}

#endif
