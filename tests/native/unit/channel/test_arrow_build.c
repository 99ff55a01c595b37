/* The batch that deliveries come back as: its structure, its values, and who frees what.  Memory
 * is counted by the allocator, so that a release in any order must give all of it back. */
#include "arrow_build_fixture.h"

static bool bit(const struct ArrowArray *array, int64_t row)
{
    return (((const uint8_t *)array->buffers[1])[row / 8] >> row % 8 & 1) != 0;
}

ROWS_TEST(test_no_rows_are_a_batch_too)
{
    struct qsi_arrow_builder builder;
    struct batch batch;

    qsi_arrow_builder_init(&builder);
    finish(&builder, &batch);
    QS_CHECK(batch.array.length == 0 && column(&batch, "exchange")->dictionary->length == 0);
    release(&batch);
    qsi_arrow_builder_fini(&builder);
}

ROWS_TEST(test_runs_and_rows_come_back_in_order)
{
    enum { COUNT = 100 };
    uint8_t data[3 + 2 * COUNT];
    uint8_t offsets[4 * (COUNT + 1) + 1];
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;

    memset(data, 'x', sizeof data);
    for (uint32_t i = 0; i <= COUNT; i++) {
        qsi_put_u32(offsets + 1 + 4 * i,
                    3 + 2 * i); /* bodies of two bytes, behind three that are not asked for */
    }
    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 7, QSI_SLICE_NULL);
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("first"), NULL) == QS_OK);
    run.first_tag = 8;
    run.redelivered = true;
    run.delivery_count = 3;
    QS_CHECK(qsi_arrow_builder_rows(&builder, &run, offsets + 1, data, COUNT, NULL) == QS_OK);
    run.redelivered = false;
    run.first_tag = 1000;
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_NULL, NULL) == QS_OK);
    finish(&builder, &batch);
    QS_CHECK(batch.array.length == COUNT + 2);
    QS_CHECK(holds(column(&batch, "body"), 0, "first") &&
             holds(column(&batch, "body"), COUNT + 1, ""));
    for (int64_t row = 1; row <= COUNT; row++) {
        QS_CHECK(holds(column(&batch, "body"), row, "xx"));
        QS_CHECK(((const uint64_t *)column(&batch, "delivery_tag")->buffers[1])[row] ==
                 7 + (uint64_t)row);
        QS_CHECK(((const uint32_t *)column(&batch, "delivery_count")->buffers[1])[row] == 3);
        QS_CHECK(bit(column(&batch, "redelivered"), row));
    }
    QS_CHECK(!bit(column(&batch, "redelivered"), 0) &&
             !bit(column(&batch, "redelivered"), COUNT + 1));
    QS_CHECK(column(&batch, "message_id")->null_count == COUNT + 2);
    QS_CHECK(column(&batch, "timestamp")->null_count == COUNT + 2);
    release(&batch);
}

ROWS_TEST(test_names_are_entered_once)
{
    struct qsi_arrow_builder builder;
    struct batch batch;
    struct qsi_arrow_run run;
    int32_t code;

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    QS_CHECK(run.exchange_code == 0 && run.routing_key_code == 0);
    for (int i = 0; i < 200; i++) {
        char name[16];
        int bytes = snprintf(name, sizeof name, "key-%d", i % 100);

        QS_CHECK(qsi_arrow_builder_intern(&builder, &code, QSI_ARROW_ROUTING_KEY,
                                          qsi_slice_make(name, (uint32_t)bytes), NULL) == QS_OK);
        QS_CHECK(code == 1 + i % 100);
    }
    QS_CHECK(qsi_arrow_builder_intern(&builder, &run.exchange_code, QSI_ARROW_EXCHANGE,
                                      QSI_SLICE_LITERAL(""), NULL) == QS_OK);
    run.routing_key_code = code;
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("b"), NULL) == QS_OK);
    finish(&builder, &batch);
    QS_CHECK(holds(column(&batch, "exchange")->dictionary, 1, ""));
    QS_CHECK(holds(column(&batch, "routing_key")->dictionary, code, "key-99"));
    QS_CHECK(((const int32_t *)column(&batch, "routing_key")->buffers[1])[0] == code);
    release(&batch);
}

ROWS_TEST(test_refusals)
{
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    uint8_t offsets[12];
    qs_error error;

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_LITERAL("\x80\0\5"));
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_NULL, &error) == QS_ECORRUPT);
    QS_CHECK(strstr(error.text, "content_type") != NULL);
    run.properties = QSI_SLICE_NULL;
    qsi_put_u32(offsets, 0);
    qsi_put_u32(offsets + 4, UINT32_C(0x80000000));
    QS_CHECK(qsi_arrow_builder_rows(&builder, &run, offsets, offsets, 1, &error) == QS_EINVAL);
    QS_CHECK(strstr(error.text, "too large") != NULL);
    qsi_arrow_builder_fini(&builder);
}

/* As a consumer does that keeps one column and its type. */
ROWS_TEST(test_a_column_outlives_its_batch)
{
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;
    struct ArrowArray body;
    struct ArrowArray exchange;
    struct ArrowSchema schema;

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("kept"), NULL) == QS_OK);
    finish(&builder, &batch);
    body = *batch.array.children[column_index("body")];
    batch.array.children[column_index("body")]->release = NULL;
    exchange = *batch.array.children[column_index("exchange")];
    batch.array.children[column_index("exchange")]->release = NULL;
    schema = *batch.schema.children[column_index("exchange")];
    batch.schema.children[column_index("exchange")]->release = NULL;
    release(&batch);
    QS_CHECK(memory.alive > 0);
    QS_CHECK(holds(&body, 0, "kept"));
    body.release(&body);
    QS_CHECK(holds(exchange.dictionary, 0, "ex"));
    exchange.release(&exchange);
    QS_CHECK(strcmp(schema.dictionary->format, "u") == 0);
    schema.release(&schema);
}

static qs_status build_once(struct batch *batch)
{
    struct qsi_properties properties = {.priority = 4,
                                        .present = qsi_property_flag(QSI_PROPERTY_PRIORITY)};
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run = {0};
    uint8_t blob[64];
    qs_status status;
    qs_error error;

    qsi_properties_set(&properties, QSI_PROPERTY_HEADERS, QSI_SLICE_LITERAL("\1ab\5"));
    qsi_properties_set(&properties, QSI_PROPERTY_APP_ID, QSI_SLICE_LITERAL("app"));
    qsi_arrow_builder_init(&builder);
    run.properties = encode(blob, &properties);
    status = qsi_arrow_builder_intern(&builder, &run.exchange_code, QSI_ARROW_EXCHANGE,
                                      QSI_SLICE_LITERAL("e"), &error);
    if (status == QS_OK) {
        status = qsi_arrow_builder_intern(&builder, &run.routing_key_code, QSI_ARROW_ROUTING_KEY,
                                          QSI_SLICE_LITERAL("k"), &error);
    }
    for (int row = 0; row < 70 && status == QS_OK; row++) {
        status = qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("body"), &error);
    }
    if (status == QS_OK) {
        status = qsi_arrow_builder_finish(&builder, &batch->schema, &batch->array, &error);
    }
    qsi_arrow_builder_fini(&builder);
    return status;
}

ROWS_TEST(test_every_failing_allocation_is_told_and_leaks_nothing)
{
    struct batch batch;
    uint64_t call = 0;

    do {
        qs_status status;

        qs_test_alloc_arm(&memory, ++call, false);
        status = build_once(&batch);
        if (status == QS_OK) { /* also when the hash table failed to grow: it can do without */
            release(&batch);
        }
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        QS_CHECK(memory.alive == 0);
    } while (memory.has_failed);
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(call > 20);
}

/* Children of a batch whose shape is not that of deliveries. */
static const struct ArrowArray *named_column(const struct batch *batch, const char *name)
{
    QS_CHECK(batch->schema.n_children == batch->array.n_children);
    for (int64_t i = 0; i < batch->schema.n_children; i++) {
        if (strcmp(batch->schema.children[i]->name, name) == 0) {
            return batch->array.children[i];
        }
    }
    return NULL;
}

static void build_stream(struct batch *batch, uint32_t columns)
{
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;

    qsi_arrow_builder_init(&builder);
    builder.shape = QSI_ARROW_STREAM;
    builder.columns = columns;
    run = make_run(&builder, 1000, QSI_SLICE_LITERAL(""));
    for (int row = 0; row < 40; row++) {
        run.first_tag = 1000 + (uint64_t)row;
        QS_CHECK_OK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("body"), QS_ERROR));
        if ((columns & QS_STREAM_COLUMN_TIMESTAMP) != 0) {
            *qsi_arrow_builder_times(&builder, (uint64_t)row) = 5000 + row;
        }
    }
    QS_CHECK_OK(qsi_arrow_builder_finish(&builder, &batch->schema, &batch->array, QS_ERROR));
    qsi_arrow_builder_fini(&builder);
}

ROWS_TEST(test_a_batch_of_a_stream_has_offsets_times_and_the_chosen_columns)
{
    enum { PROPERTIES = QSI_COLUMN_TEXT_COUNT + QSI_COLUMN_NUMBER_COUNT + 1 }; /* headers too */
    static const struct {
        uint32_t columns;
        int64_t count;
    } choices[] = {{QS_STREAM_COLUMNS, 5 + PROPERTIES},
                   {0, 1},
                   {QS_STREAM_COLUMN_TIMESTAMP, 2},
                   {QS_STREAM_COLUMN_BODY, 2},
                   {QS_STREAM_COLUMN_EXCHANGE | QS_STREAM_COLUMN_ROUTING_KEY, 3},
                   {QS_STREAM_COLUMN_PROPERTIES, 1 + PROPERTIES}};

    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const struct ArrowArray *offsets, *times;
        struct ArrowSchema schema;
        struct batch batch;
        build_stream(&batch, choices[i].columns);
        QS_CHECK(batch.array.n_children == choices[i].count && batch.array.length == 40);
        QS_CHECK_OK(qs_columns_schema(QS_RECEIVED_STREAM, choices[i].columns, &schema, QS_ERROR));
        QS_CHECK(schema.n_children == choices[i].count);
        for (int64_t k = 0; k < schema.n_children; k++) {
            QS_CHECK(strcmp(schema.children[k]->name, batch.schema.children[k]->name) == 0);
            QS_CHECK(strcmp(schema.children[k]->format, batch.schema.children[k]->format) == 0);
        }
        offsets = named_column(&batch, "offset");
        times = named_column(&batch, "timestamp");
        QS_CHECK(((const uint64_t *)offsets->buffers[1])[39] == 1039);
        QS_CHECK((times != NULL) == ((choices[i].columns & QS_STREAM_COLUMN_TIMESTAMP) != 0));
        QS_CHECK(times == NULL || ((const int64_t *)times->buffers[1])[39] == 5039);
        QS_CHECK((named_column(&batch, "body") != NULL) ==
                 ((choices[i].columns & QS_STREAM_COLUMN_BODY) != 0));
        QS_CHECK((named_column(&batch, "message_timestamp") != NULL) ==
                 ((choices[i].columns & QS_STREAM_COLUMN_PROPERTIES) != 0));
        QS_CHECK(named_column(&batch, "redelivered") == NULL);
        schema.release(&schema);
        release(&batch);
    }
}

/* Bodies "b0", "b1" ... lie in a chunk, behind their offsets. */
ROWS_TEST(test_lent_bodies_stay_where_they_are_until_the_last_column_goes)
{
    enum { ROWS = 100, FROM = 10 };
    struct qsi_chunk *chunk = qsi_chunk_create(4 * (ROWS + 1) + 3 * ROWS);
    uint8_t *bodies = chunk->data + 4 * (ROWS + 1);
    struct qsi_arrow_builder builder = {
        .shape = QSI_ARROW_STREAM, .columns = QS_STREAM_COLUMN_BODY | QS_STREAM_COLUMN_PROPERTIES};
    const struct ArrowArray *column;
    struct ArrowArray body;
    struct qsi_arrow_run run;
    struct batch batch;
    uint32_t end = 0;

    qsi_put_u32(chunk->data, 0);
    for (uint32_t row = 0; row < ROWS; row++) {
        end += (uint32_t)sprintf((char *)bodies + end, "b%u", row % 10);
        qsi_put_u32(chunk->data + 4 * (row + 1), end);
    }
    run = make_run(&builder, 1000 + FROM, QSI_SLICE_LITERAL(""));
    QS_CHECK_OK(qsi_arrow_builder_borrow(&builder, &run, chunk, chunk->data + 4 * FROM, bodies,
                                         ROWS - FROM, QS_ERROR));
    QS_CHECK_OK(qsi_arrow_builder_finish(&builder, &batch.schema, &batch.array, QS_ERROR));
    qsi_arrow_builder_fini(&builder);
    column = named_column(&batch, "body");
    QS_CHECK(batch.array.length == ROWS - FROM && column->length == ROWS - FROM);
    QS_CHECK(column->buffers[1] == chunk->data + 4 * FROM && column->buffers[2] == bodies);
    for (int64_t row = 0; row < ROWS - FROM; row++) {
        char text[4];
        snprintf(text, sizeof text, "b%d", (int)(row % 10));
        QS_CHECK(holds(column, row, text));
        QS_CHECK(is_null(named_column(&batch, "message_id"), row));
    }
    qsi_chunk_unref(chunk); /* the batch has one of its own */
    body = *column;
    batch.array.children[1]->release = NULL; /* moved out */
    release(&batch);
    QS_CHECK(holds(&body, ROWS - FROM - 1, "b9"));
    body.release(&body);
}
