/* The batch that deliveries come back as: its structure, its values, and who frees what.  Memory
 * is counted by the allocator, so that a release in any order must give all of it back. */
#include "arrow_build.h"
#include "le.h"
#include "qs_test.h"
#include "qs_test_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN_COUNT 19

static struct qs_test_alloc memory;

static const char *const column_names[COLUMN_COUNT] = {
    "delivery_tag",  "redelivered",      "exchange",       "routing_key",   "body",
    "headers",       "message_id",       "correlation_id", "type",          "app_id",
    "content_type",  "content_encoding", "reply_to",       "user_id",       "priority",
    "delivery_mode", "expiration_ms",    "timestamp",      "delivery_count"};
static const char *const column_formats[COLUMN_COUNT] = {"L", "b", "i", "i",    "z", "+m", "u",
                                                         "u", "u", "u", "u",    "u", "u",  "u",
                                                         "C", "C", "l", "tss:", "I"};

struct batch {
    struct ArrowSchema schema;
    struct ArrowArray array;
};

static void release(struct batch *batch)
{
    batch->array.release(&batch->array);
    batch->schema.release(&batch->schema);
    QS_CHECK(batch->array.release == NULL && batch->schema.release == NULL);
}

static int column_index(const char *name)
{
    int index = 0;

    while (strcmp(column_names[index], name) != 0) {
        index++;
    }
    return index;
}

static const struct ArrowArray *column(const struct batch *batch, const char *name)
{
    return batch->array.children[column_index(name)];
}

static bool is_null(const struct ArrowArray *array, int64_t row)
{
    const uint8_t *validity = array->buffers[0];

    return validity != NULL && (validity[row / 8] >> row % 8 & 1) == 0;
}

static bool bit(const struct ArrowArray *array, int64_t row)
{
    return (((const uint8_t *)array->buffers[1])[row / 8] >> row % 8 & 1) != 0;
}

/* Whether a string of a column is text, or null when text is NULL. */
static bool holds(const struct ArrowArray *array, int64_t row, const char *text)
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
static void check_array(const struct ArrowSchema *schema, const struct ArrowArray *array)
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

static void finish(struct qsi_arrow_builder *builder, struct batch *batch)
{
    QS_CHECK(qsi_arrow_builder_finish(builder, &batch->schema, &batch->array, NULL) == QS_OK);
    QS_CHECK(builder->rows == 0 && builder->tags == NULL);
    QS_CHECK(strcmp(batch->schema.format, "+s") == 0 && batch->schema.n_children == COLUMN_COUNT);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        QS_CHECK(strcmp(batch->schema.children[i]->name, column_names[i]) == 0);
        QS_CHECK(strcmp(batch->schema.children[i]->format, column_formats[i]) == 0);
        QS_CHECK(batch->array.children[i]->length == batch->array.length);
    }
    check_array(&batch->schema, &batch->array);
}

static struct qsi_arrow_run make_run(struct qsi_arrow_builder *builder, uint64_t tag,
                                     struct qsi_slice properties)
{
    struct qsi_arrow_run run = {.first_tag = tag, .delivery_count = 1, .properties = properties};

    QS_CHECK(qsi_arrow_builder_intern(builder, &run.exchange_code, QSI_ARROW_EXCHANGE,
                                      QSI_SLICE_LITERAL("ex"), NULL) == QS_OK);
    QS_CHECK(qsi_arrow_builder_intern(builder, &run.routing_key_code, QSI_ARROW_ROUTING_KEY,
                                      QSI_SLICE_LITERAL("key"), NULL) == QS_OK);
    return run;
}

static struct qsi_slice encode(uint8_t *blob, const struct qsi_properties *properties)
{
    (void)qsi_properties_encode(blob, properties);
    return qsi_slice_make(blob, (uint32_t)qsi_properties_bytes(properties));
}

static void test_no_rows_are_a_batch_too(void)
{
    struct qsi_arrow_builder builder;
    struct batch batch;

    qsi_arrow_builder_init(&builder);
    finish(&builder, &batch);
    QS_CHECK(batch.array.length == 0 && column(&batch, "exchange")->dictionary->length == 0);
    release(&batch);
    qsi_arrow_builder_fini(&builder);
}

static void test_runs_and_rows_come_back_in_order(void)
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

static void test_names_are_entered_once(void)
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

static void test_properties_fill_their_columns(void)
{
    uint8_t blob[256];
    struct qsi_properties properties = {.delivery_mode = 2, .priority = 5, .timestamp = 1700000000};
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;

    properties.present = qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE) |
                         qsi_property_flag(QSI_PROPERTY_PRIORITY) |
                         qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
    qsi_properties_set(&properties, QSI_PROPERTY_EXPIRATION, QSI_SLICE_LITERAL("60000"));
    qsi_properties_set(&properties, QSI_PROPERTY_MESSAGE_ID, QSI_SLICE_LITERAL("id"));
    qsi_properties_set(&properties, QSI_PROPERTY_USER_ID, QSI_SLICE_LITERAL("user"));
    qsi_properties_set(&properties, QSI_PROPERTY_CLUSTER_ID, QSI_SLICE_LITERAL("not a column"));
    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    for (int row = 0; row < 300; row++) { /* only row 200 and the last have any */
        run.properties = row == 200 || row == 299 ? encode(blob, &properties) : QSI_SLICE_NULL;
        QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("b"), NULL) == QS_OK);
    }
    run.properties = QSI_SLICE_NULL;
    QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_LITERAL("b"), NULL) == QS_OK);
    finish(&builder, &batch);
    QS_CHECK(column(&batch, "message_id")->null_count == 299 &&
             column(&batch, "priority")->null_count == 299);
    for (int64_t row = 0; row < 301; row++) {
        bool any = row == 200 || row == 299;

        QS_CHECK(holds(column(&batch, "message_id"), row, any ? "id" : NULL));
        QS_CHECK(holds(column(&batch, "user_id"), row, any ? "user" : NULL));
        QS_CHECK(is_null(column(&batch, "timestamp"), row) == !any);
    }
    QS_CHECK(((const uint8_t *)column(&batch, "priority")->buffers[1])[200] == 5);
    QS_CHECK(((const uint8_t *)column(&batch, "delivery_mode")->buffers[1])[299] == 2);
    QS_CHECK(((const int64_t *)column(&batch, "expiration_ms")->buffers[1])[200] == 60000);
    QS_CHECK(((const int64_t *)column(&batch, "timestamp")->buffers[1])[299] == 1700000000);
    release(&batch);
}

static void test_what_has_no_number_is_null(void)
{
    static const char *const expirations[] = {"", "12x", "-1", "9223372036854775808",
                                              "9223372036854775807"};
    uint8_t blob[64];
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    for (size_t i = 0; i < 5; i++) {
        struct qsi_properties properties = {.timestamp = UINT64_MAX};

        properties.present = qsi_property_flag(QSI_PROPERTY_TIMESTAMP);
        qsi_properties_set(&properties, QSI_PROPERTY_EXPIRATION,
                           qsi_slice_make(expirations[i], (uint32_t)strlen(expirations[i])));
        run.properties = encode(blob, &properties);
        QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_NULL, NULL) == QS_OK);
    }
    finish(&builder, &batch);
    QS_CHECK(column(&batch, "timestamp")->null_count == 5 &&
             column(&batch, "expiration_ms")->null_count == 4);
    QS_CHECK(((const int64_t *)column(&batch, "expiration_ms")->buffers[1])[4] == INT64_MAX);
    release(&batch);
}

static void test_header_values_become_text(void)
{
    static const struct {
        const char *type_and_value;
        uint32_t bytes;
        const char *text;
    } values[] = {
#define VALUE(bytes, text) {bytes, sizeof(bytes) - 1, text}
        VALUE("t\1", "true"),
        VALUE("b\xff", "-1"),
        VALUE("B\xff", "255"),
        VALUE("s\xff\xfe", "-2"),
        VALUE("u\xff\xfe", "65534"),
        VALUE("I\xff\xff\xff\xfd", "-3"),
        VALUE("i\xff\xff\xff\xfd", "4294967293"),
        VALUE("l\x80\0\0\0\0\0\0\0", "-9223372036854775808"),
        VALUE("f\x3d\xcc\xcc\xcd", "0.1"),
        VALUE("d\x3f\xb9\x99\x99\x99\x99\x99\x9a", "0.1"),
        VALUE("d\x7f\xf0\0\0\0\0\0\0", "inf"),
        VALUE("d\xff\xf8\0\0\0\0\0\0", "nan"),
        VALUE("D\2\0\0\1\x41", "3.21"),
        VALUE("D\3\xff\xff\xff\xff", "-0.001"),
        VALUE("D\0\x80\0\0\0", "-2147483648"),
        VALUE("S\0\0\0\2hi", "hi"),
        VALUE("S\0\0\0\3a\xff\x62", "a\xef\xbf\xbd"
                                    "b"),
        VALUE("x\0\0\0\1\x80", "\xef\xbf\xbd"),
        VALUE("T\0\0\0\0\0\0\0\7", "7"),
        VALUE("V", NULL),
        VALUE("A\0\0\0\x0c"
              "t\0VS\0\0\0\4\"\\\n\xe9",
              "[false, null, \"\\\"\\\\\\u000a\xef\xbf\xbd\"]"),
        VALUE("F\0\0\0\x0b"
              "\1zb\5\1yA\0\0\0\0",
              "{\"z\": 5, \"y\": []}"),
#undef VALUE
    };
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;
    const struct ArrowArray *entries;
    const size_t count = sizeof values / sizeof values[0];

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    for (size_t i = 0; i < count; i++) {
        struct qsi_properties properties = {0};
        uint8_t table[64] = "\1k";
        uint8_t blob[80];

        memcpy(table + 2, values[i].type_and_value, values[i].bytes);
        qsi_properties_set(&properties, QSI_PROPERTY_HEADERS,
                           qsi_slice_make(table, 2 + values[i].bytes));
        run.properties = encode(blob, &properties);
        QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_NULL, NULL) == QS_OK);
    }
    finish(&builder, &batch);
    entries = column(&batch, "headers")->children[0];
    for (size_t i = 0; i < count; i++) {
        QS_CHECK(holds(entries->children[0], (int64_t)i, "k"));
        if (!holds(entries->children[1], (int64_t)i, values[i].text)) {
            fprintf(stderr, "value %zu is not %s\n", i,
                    values[i].text == NULL ? "null" : values[i].text);
            QS_CHECK(!"text of a header");
        }
    }
    QS_CHECK(entries->length == (int64_t)count && column(&batch, "headers")->null_count == 0);
    release(&batch);
}

static void test_strings_come_out_as_utf8(void)
{
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f"},
        {"\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff", "\xef\xbf\xbd"},
        {"\xc0\x80", "\xef\xbf\xbd\xef\xbf\xbd"}, /* a longer form of a shorter one */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf4\x90\x80\x80",
         "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* beyond U+10FFFF */
        {"\xe2\x82", "\xef\xbf\xbd"},                         /* cut off: replaced as one */
        {"\xf0\x9f\x98x", "\xef\xbf\xbdx"},
        {"longer than eight bytes \xe9", "longer than eight bytes \xef\xbf\xbd"}};
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;
    uint8_t blob[64];

    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, QSI_SLICE_NULL);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct qsi_properties properties = {0};

        qsi_properties_set(&properties, QSI_PROPERTY_TYPE,
                           qsi_slice_make(pairs[i][0], (uint32_t)strlen(pairs[i][0])));
        run.properties = encode(blob, &properties);
        QS_CHECK(qsi_arrow_builder_row(&builder, &run, QSI_SLICE_NULL, NULL) == QS_OK);
    }
    finish(&builder, &batch);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        QS_CHECK(holds(column(&batch, "type"), (int64_t)i, pairs[i][1]));
    }
    QS_CHECK(column(&batch, "type")->null_count == 0 && column(&batch, "type")->buffers[0] == NULL);
    release(&batch);
}

static void test_a_run_shares_its_properties(void)
{
    struct qsi_properties properties = {.priority = 4,
                                        .present = qsi_property_flag(QSI_PROPERTY_PRIORITY)};
    struct qsi_arrow_builder builder;
    struct qsi_arrow_run run;
    struct batch batch;
    uint8_t blob[64];
    uint8_t offsets[16];

    for (uint32_t i = 0; i < 4; i++) {
        qsi_put_u32(offsets + 4 * i, i);
    }
    qsi_properties_set(&properties, QSI_PROPERTY_HEADERS, QSI_SLICE_LITERAL("\1ab\5\1cV"));
    qsi_properties_set(&properties, QSI_PROPERTY_APP_ID, QSI_SLICE_LITERAL("app"));
    qsi_arrow_builder_init(&builder);
    run = make_run(&builder, 1, encode(blob, &properties));
    QS_CHECK(qsi_arrow_builder_rows(&builder, &run, offsets, (const uint8_t *)"abc", 3, NULL) ==
             QS_OK);
    finish(&builder, &batch);
    QS_CHECK(column(&batch, "headers")->children[0]->length == 6);
    for (int64_t row = 0; row < 3; row++) {
        QS_CHECK(holds(column(&batch, "app_id"), row, "app"));
        QS_CHECK(((const uint8_t *)column(&batch, "priority")->buffers[1])[row] == 4);
        QS_CHECK(holds(column(&batch, "headers")->children[0]->children[1], 2 * row, "5"));
        QS_CHECK(holds(column(&batch, "headers")->children[0]->children[1], 2 * row + 1, NULL));
    }
    release(&batch);
}

static void test_refusals(void)
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
static void test_a_column_outlives_its_batch(void)
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

static void test_every_failing_allocation_is_told_and_leaks_nothing(void)
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
        if ((columns & QSI_ARROW_HAS_TIME) != 0) {
            *qsi_arrow_builder_times(&builder, (uint64_t)row) = 5000 + row;
        }
    }
    QS_CHECK_OK(qsi_arrow_builder_finish(&builder, &batch->schema, &batch->array, QS_ERROR));
    qsi_arrow_builder_fini(&builder);
}

static void test_a_batch_of_a_stream_has_offsets_times_and_the_chosen_columns(void)
{
    static const struct {
        uint32_t columns;
        int64_t count;
    } choices[] = {{31, 18},
                   {0, 1},
                   {QSI_ARROW_HAS_TIME, 2},
                   {QSI_ARROW_HAS_BODY, 2},
                   {QSI_ARROW_HAS_EXCHANGE | QSI_ARROW_HAS_ROUTING_KEY, 3},
                   {QSI_ARROW_HAS_PROPERTIES, 14}};

    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        const struct ArrowArray *offsets, *times;
        struct ArrowSchema schema;
        struct batch batch;
        build_stream(&batch, choices[i].columns);
        QS_CHECK(batch.array.n_children == choices[i].count && batch.array.length == 40);
        QS_CHECK_OK(qsi_arrow_schema(QSI_ARROW_STREAM, choices[i].columns, &schema, QS_ERROR));
        QS_CHECK(schema.n_children == choices[i].count);
        for (int64_t k = 0; k < schema.n_children; k++) {
            QS_CHECK(strcmp(schema.children[k]->name, batch.schema.children[k]->name) == 0);
            QS_CHECK(strcmp(schema.children[k]->format, batch.schema.children[k]->format) == 0);
        }
        offsets = named_column(&batch, "offset");
        times = named_column(&batch, "timestamp");
        QS_CHECK(((const uint64_t *)offsets->buffers[1])[39] == 1039);
        QS_CHECK((times != NULL) == ((choices[i].columns & QSI_ARROW_HAS_TIME) != 0));
        QS_CHECK(times == NULL || ((const int64_t *)times->buffers[1])[39] == 5039);
        QS_CHECK((named_column(&batch, "body") != NULL) ==
                 ((choices[i].columns & QSI_ARROW_HAS_BODY) != 0));
        QS_CHECK((named_column(&batch, "message_timestamp") != NULL) ==
                 ((choices[i].columns & QSI_ARROW_HAS_PROPERTIES) != 0));
        QS_CHECK(named_column(&batch, "redelivered") == NULL);
        schema.release(&schema);
        release(&batch);
    }
}

/* Bodies "b0", "b1" ... lie in a chunk, behind their offsets. */
static void test_lent_bodies_stay_where_they_are_until_the_last_column_goes(void)
{
    enum { ROWS = 100, FROM = 10 };
    struct qsi_chunk *chunk = qsi_chunk_create(4 * (ROWS + 1) + 3 * ROWS);
    uint8_t *bodies = chunk->data + 4 * (ROWS + 1);
    struct qsi_arrow_builder builder = {.shape = QSI_ARROW_STREAM,
                                        .columns = QSI_ARROW_HAS_BODY | QSI_ARROW_HAS_PROPERTIES};
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

int main(void)
{
    static void (*const tests[])(void) = {
        test_no_rows_are_a_batch_too,
        test_runs_and_rows_come_back_in_order,
        test_names_are_entered_once,
        test_properties_fill_their_columns,
        test_what_has_no_number_is_null,
        test_header_values_become_text,
        test_strings_come_out_as_utf8,
        test_a_run_shares_its_properties,
        test_refusals,
        test_a_column_outlives_its_batch,
        test_a_batch_of_a_stream_has_offsets_times_and_the_chosen_columns,
        test_lent_bodies_stay_where_they_are_until_the_last_column_goes,
        test_every_failing_allocation_is_told_and_leaks_nothing};

    qs_test_alloc_install(&memory);
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        tests[i]();
        QS_CHECK(memory.alive == 0);
    }
    return 0;
}
