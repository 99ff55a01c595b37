/* Record batches made by hand: every layout, slices, and each way to be refused with the text it
 * gives.
 *
 * The random part damages the offsets, views and codes of good batches; its seed is printed and
 * is the first argument. */
#include "arrow_read.h"
#include "le.h"
#include "qs_test.h"
#include "qs_test_alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 16
#define BUFFERS_MAX 6

struct node { /* one array with its type */
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[BUFFERS_MAX];
    struct ArrowSchema *schema_children[COLUMNS_MAX];
    struct ArrowArray *array_children[COLUMNS_MAX];
};

static void release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static void node_init(struct node *node, const char *name, const char *format, int64_t length,
                      int64_t buffers)
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

static void node_add(struct node *parent, struct node *child)
{
    parent->schema_children[parent->schema.n_children++] = &child->schema;
    parent->array_children[parent->array.n_children++] = &child->array;
}

static void node_set_dictionary(struct node *codes, struct node *values)
{
    codes->schema.dictionary = &values->schema;
    codes->array.dictionary = &values->array;
}

static void make_column(struct node *node, const char *name, const char *format, int64_t length,
                        const void *values)
{
    node_init(node, name, format, length, 2);
    node->buffers[1] = values;
}

static void make_strings(struct node *node, const char *name, const char *format, int64_t length,
                         const void *offsets, const void *data)
{
    node_init(node, name, format, length, 3);
    node->buffers[1] = offsets;
    node->buffers[2] = data;
}

static void make_batch(struct node *root, int64_t rows, struct node *body)
{
    node_init(root, "", "+s", rows, 1);
    node_add(root, body);
}

static void set_nulls(struct node *node, const uint8_t *validity)
{
    node->array.null_count = -1;
    node->buffers[0] = validity;
}

/* The batch stays open until the next one is opened. */
static qs_status open_batch(struct qsi_arrow_batch *batch, const struct node *root, qs_error *error)
{
    static struct qsi_arrow_batch last;
    qs_status status = QS_OK;

    qsi_arrow_batch_close(&last);
    if (batch != NULL) {
        status = qsi_arrow_batch_open(batch, &root->schema, &root->array, "body", 0, error);
        QS_CHECK(status == QS_OK || batch->copies == NULL);
        last = *batch;
    }
    return status;
}

static void check_refused(const struct node *root, const char *text)
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
static const int32_t offsets32[] = {0, 5, 5, 14, 53};
static const int64_t offsets64[] = {0, 5, 5, 14, 53};
static const struct qsi_slice bodies[BODY_COUNT] = {{(const uint8_t *)body_data, 5},
                                                    {(const uint8_t *)body_data, 0},
                                                    {(const uint8_t *)body_data + 5, 9},
                                                    {(const uint8_t *)body_data + 14, 39}};

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

static void make_views(struct node *node, const char *name, int64_t length)
{
    node_init(node, name, "vz", length, 5);
    node->buffers[1] = views;
    node->buffers[2] = "?";
    node->buffers[3] = body_data;
    node->buffers[4] = view_sizes;
}

static void check_bodies(const struct node *root, uint64_t first)
{
    struct qsi_arrow_batch batch;
    uint8_t offsets[4 * (BODY_COUNT + 1) + 1]; /* + 1: to be unaligned */
    uint8_t data[sizeof body_data];
    uint32_t total = 0;
    uint32_t longest = 0;
    uint64_t row_of_longest = 0;
    uint64_t row;
    qs_error error;

    if (open_batch(&batch, root, &error) != QS_OK) {
        fprintf(stderr, "%s\n", error.text);
        QS_CHECK(!"batch");
    }
    QS_CHECK(batch.rows + first == BODY_COUNT && !qsi_arrow_has_properties(&batch));
    qsi_arrow_body_copy(&batch, 0, batch.rows, offsets + 1, data);
    for (row = 0; row < batch.rows; row++) {
        struct qsi_slice expected = bodies[first + row];
        struct qsi_slice body = qsi_arrow_bytes(&batch.body, row);

        QS_CHECK(qsi_slice_equals(body, expected));
        QS_CHECK(qsi_get_u32(offsets + 1 + 4 * row) == total);
        QS_CHECK(memcmp(data + total, expected.data, expected.bytes) == 0);
        total += expected.bytes;
        if (expected.bytes > longest) {
            longest = expected.bytes;
            row_of_longest = row;
        }
    }
    QS_CHECK(qsi_get_u32(offsets + 1 + 4 * row) == total);
    QS_CHECK(qsi_arrow_body_total(&batch, 0, batch.rows) == total);
    QS_CHECK(qsi_arrow_body_max(&batch, &row) == longest && row == row_of_longest);
    QS_CHECK(qsi_arrow_body_total(&batch, 1, 1) == 0);
    qsi_arrow_body_copy(&batch, 1, 2, offsets + 1, data);
    QS_CHECK(qsi_get_u32(offsets + 1) == 0 && qsi_get_u32(offsets + 5) == bodies[first + 1].bytes);
}

/* Whole, with the slice told by the struct, and with it told by the column. */
static void check_slices(struct node *body)
{
    struct node root;
    int64_t length = body->array.length;

    make_batch(&root, length, body);
    check_bodies(&root, 0);
    root.array.offset = 1;
    root.array.length = length - 1;
    check_bodies(&root, 1);
    root.array.offset = 0;
    body->array.offset = 1;
    body->array.length = length - 1;
    check_bodies(&root, 1);
    root.array.offset = 1;
    root.array.length = length - 2;
    check_bodies(&root, 2);
}

static void test_bodies_come_back_from_every_layout(void)
{
    static const char *const formats32[] = {"z", "u"};
    static const char *const formats64[] = {"Z", "U"};
    static const char *const formats_view[] = {"vz", "vu"};
    struct node body;

    for (int i = 0; i < 2; i++) {
        make_strings(&body, "body", formats32[i], BODY_COUNT, offsets32, body_data);
        check_slices(&body);
        make_strings(&body, "body", formats64[i], BODY_COUNT, offsets64, body_data);
        check_slices(&body);
        make_views(&body, "body", BODY_COUNT);
        body.schema.format = formats_view[i];
        check_slices(&body);
    }
}

static void test_bodies_come_back_from_a_dictionary(void)
{
    static const char formats[] = "cCsSiIlL";
    static const uint8_t order[BODY_COUNT] = {
        3, 2, 1, 0}; /* the dictionary begins with an entry not in use */
    static const uint8_t reversed_data[] = "a body that is longer than twelve bytestwo wordsalpha";
    static const int32_t reversed_offsets[] = {0, 39, 48, 48, 53};
    uint8_t codes[8 * BODY_COUNT];

    for (size_t i = 0; i < sizeof formats - 1; i++) {
        struct node body;
        struct node values;
        char format[2] = {formats[i], '\0'};
        size_t width = (size_t)1 << i / 2;

        memset(codes, 0, sizeof codes);
        for (size_t row = 0; row < BODY_COUNT; row++) {
            codes[row * width] = order[row];
        }
        make_column(&body, "body", format, BODY_COUNT, codes);
        make_strings(&values, "", "z", BODY_COUNT, reversed_offsets, reversed_data);
        node_set_dictionary(&body, &values);
        check_slices(&body);
    }
}

static void test_fixed_size_bodies(void)
{
    struct node body;
    struct node root;
    struct qsi_arrow_batch batch;
    uint8_t offsets[12];
    uint8_t data[6];
    uint64_t row;

    make_column(&body, "body", "w:3", 3, "abcdefghi");
    make_batch(&root, 2, &body);
    root.array.offset = 1;
    QS_CHECK(open_batch(&batch, &root, NULL) == QS_OK);
    QS_CHECK(qsi_slice_equals(qsi_arrow_bytes(&batch.body, 1), QSI_SLICE_LITERAL("ghi")));
    qsi_arrow_body_copy(&batch, 0, 2, offsets, data);
    QS_CHECK(memcmp(data, "defghi", 6) == 0 && qsi_get_u32(offsets + 4) == 3 &&
             qsi_get_u32(offsets + 8) == 6);
    QS_CHECK(qsi_arrow_body_total(&batch, 0, 2) == 6 && qsi_arrow_body_max(&batch, &row) == 3 &&
             row == 0);
    body.schema.format = "w:";
    check_refused(&root, "column \"body\": Arrow's fixed_size_binary cannot be used, expected "
                         "binary, a string, or a "
                         "dictionary of these");
    body.schema.format = "w:99999999999";
    QS_CHECK(open_batch(&batch, &root, NULL) == QS_EINVAL);
}

static void test_an_empty_batch_needs_no_buffers(void)
{
    static const char *const formats[] = {"z", "U", "vz", "w:4"};
    struct qsi_arrow_batch batch;
    uint8_t offsets[4] = {1, 1, 1, 1};
    uint64_t row;

    for (size_t i = 0; i < 4; i++) {
        struct node body;
        struct node root;

        node_init(&body, "body", formats[i], 0, i == 3 ? 2 : 3);
        make_batch(&root, 0, &body);
        QS_CHECK(open_batch(&batch, &root, NULL) == QS_OK);
        QS_CHECK(qsi_arrow_body_total(&batch, 0, 0) == 0 && qsi_arrow_body_max(&batch, &row) == 0 &&
                 row == 0);
        qsi_arrow_body_copy(&batch, 0, 0, offsets, NULL);
        QS_CHECK(qsi_get_u32(offsets) == 0);
    }
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

static void make_full(struct full_batch *full)
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

static void encode_row(struct qsi_properties *decoded, uint8_t *blob, size_t room,
                       const struct qsi_arrow_batch *batch, uint64_t row,
                       const struct qsi_properties *defaults)
{
    struct qsi_arrow_row encoder;
    uint64_t bytes = qsi_arrow_row_begin(&encoder, batch, row, defaults);

    QS_CHECK(bytes < room);
    blob[bytes] = 0xa5;
    qsi_arrow_row_encode(blob, &encoder, batch);
    QS_CHECK(blob[bytes] == 0xa5);
    QS_CHECK(qsi_properties_decode(decoded, blob, (uint32_t)bytes, NULL) == QS_OK);
}

static void test_a_full_row_becomes_properties(void)
{
    struct full_batch full;
    struct qsi_arrow_batch batch;
    struct qsi_properties decoded;
    struct qsi_field_walk walk;
    struct qsi_field field;
    uint8_t blob[256];

    make_full(&full);
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    QS_CHECK(qsi_arrow_has_properties(&batch));
    QS_CHECK(qsi_arrow_has_dictionary(&batch.exchange) &&
             qsi_arrow_dictionary_count(&batch.exchange) == 2);
    QS_CHECK(qsi_arrow_code(&batch.exchange, 0) == 1 && qsi_arrow_code(&batch.exchange, 1) == -1);
    QS_CHECK(qsi_slice_equals(qsi_arrow_bytes(&batch.exchange, 0), QSI_SLICE_LITERAL("q")));
    QS_CHECK(qsi_slice_is_null(qsi_arrow_bytes(&batch.exchange, 1)));
    QS_CHECK(qsi_slice_is_null(qsi_arrow_bytes(&batch.routing_key, 1)));
    QS_CHECK(qsi_arrow_delivery_mode(&batch, 0) == 2 && qsi_arrow_delivery_mode(&batch, 1) == 0);
    encode_row(&decoded, blob, sizeof blob, &batch, 0, NULL);
    QS_CHECK(decoded.priority == 7 && decoded.delivery_mode == 2 &&
             decoded.timestamp == 1700000000);
    QS_CHECK(qsi_slice_equals(decoded.text[QSI_PROPERTY_EXPIRATION], QSI_SLICE_LITERAL("60000")));
    QS_CHECK(qsi_slice_equals(decoded.text[QSI_PROPERTY_MESSAGE_ID], QSI_SLICE_LITERAL("m")));
    QS_CHECK(!qsi_properties_has(&decoded, QSI_PROPERTY_USER_ID));
    walk = qsi_table_walk(decoded.text[QSI_PROPERTY_HEADERS]);
    QS_CHECK(qsi_field_next(&walk, &field) && field.type == 'S');
    QS_CHECK(qsi_slice_equals(field.name, QSI_SLICE_LITERAL("k")));
    QS_CHECK(qsi_slice_equals(field.value, QSI_SLICE_LITERAL("v")));
    QS_CHECK(qsi_field_next(&walk, &field) && field.type == 'V' && field.name.data[0] == 'l');
    QS_CHECK(!qsi_field_next(&walk, &field));
}

static void test_defaults_stand_where_a_row_is_null(void)
{
    struct full_batch full;
    struct qsi_arrow_batch batch;
    struct qsi_properties defaults = {.priority = 3};
    struct qsi_properties decoded;
    uint8_t blob[256];

    make_full(&full);
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    encode_row(&decoded, blob, sizeof blob, &batch, 1, NULL);
    QS_CHECK(decoded.present == 0);
    defaults.present = qsi_property_flag(QSI_PROPERTY_PRIORITY);
    qsi_properties_set(&defaults, QSI_PROPERTY_HEADERS,
                       QSI_SLICE_LITERAL("\x01"
                                         "dV"));
    qsi_properties_set(&defaults, QSI_PROPERTY_APP_ID, QSI_SLICE_LITERAL("app"));
    encode_row(&decoded, blob, sizeof blob, &batch, 1, &defaults);
    QS_CHECK(decoded.present == defaults.present && decoded.priority == 3);
    QS_CHECK(decoded.text[QSI_PROPERTY_HEADERS].bytes == 3);
    encode_row(&decoded, blob, sizeof blob, &batch, 0, &defaults);
    QS_CHECK(decoded.priority == 7 && decoded.text[QSI_PROPERTY_HEADERS].bytes == 11);
    QS_CHECK(qsi_slice_equals(decoded.text[QSI_PROPERTY_APP_ID], QSI_SLICE_LITERAL("app")));
}

static void test_headers_of_a_slice_are_its_own(void)
{
    static const int32_t three_rows[] = {0, 1, 1, 2};
    struct full_batch full;
    struct qsi_arrow_batch batch;
    struct qsi_properties decoded;
    uint8_t blob[256];

    make_full(&full);
    full.headers.buffers[1] = three_rows;
    full.headers.array.length = 3;
    full.headers.array.offset = 1; /* rows 1 and 2: none, and the second entry */
    full.headers.array.length = 2;
    full.headers.array.null_count = 0;
    full.values.array.null_count = 0;
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    encode_row(&decoded, blob, sizeof blob, &batch, 0, NULL);
    QS_CHECK(qsi_properties_has(&decoded, QSI_PROPERTY_HEADERS) &&
             decoded.text[QSI_PROPERTY_HEADERS].bytes == 0);
    encode_row(&decoded, blob, sizeof blob, &batch, 1, NULL);
    QS_CHECK(memcmp(decoded.text[QSI_PROPERTY_HEADERS].data,
                    "\x01"
                    "lS\0\0\0\x01w",
                    8) == 0);
}

static void test_a_timestamp_has_any_unit(void)
{
    static const struct {
        const char *format;
        int64_t value;
    } units[] = {{"tss:", 86400},
                 {"tsm:", 86400999},
                 {"tsu:Europe/Berlin", 86400999999},
                 {"tsn:", 86400999999999},
                 {"l", 86400}};
    struct full_batch full;
    struct qsi_arrow_batch batch;
    int64_t seconds;

    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const int64_t values[2] = {units[i].value, 0};

        make_full(&full);
        full.timestamp.schema.format = units[i].format;
        full.timestamp.buffers[1] = values;
        QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
        QS_CHECK(qsi_arrow_int(&batch.timestamp, 0, &seconds) && seconds == 86400);
    }
}

static void test_wrong_types_are_refused_by_name(void)
{
    struct full_batch full;

    make_full(&full);
    full.root.schema.format = "u";
    check_refused(&full.root, "record batch: Arrow's string cannot be used, expected a struct");
    make_full(&full);
    full.body.schema.format = "l";
    check_refused(&full.root,
                  "column \"body\": Arrow's int64 cannot be used, expected binary, a string, or a "
                  "dictionary of these");
    make_full(&full);
    full.routing_key.schema.format = "z";
    check_refused(&full.root,
                  "column \"routing_key\": Arrow's binary cannot be used, expected a string or a "
                  "dictionary of strings");
    make_full(&full);
    full.exchange_names.schema.format = "l";
    check_refused(&full.root,
                  "column \"exchange\" dictionary: Arrow's int64 cannot be used, expected a string "
                  "or a dictionary of strings");
    make_full(&full);
    full.priority.schema.format = "g";
    check_refused(&full.root,
                  "column \"priority\": Arrow's float64 cannot be used, expected an integer");
    make_full(&full);
    full.timestamp.schema.format = "tsx:";
    check_refused(&full.root, "column \"timestamp\": Arrow's timestamp cannot be used, expected "
                              "a timestamp or an integer");
    make_full(&full);
    full.headers.schema.format = "+l";
    check_refused(&full.root, "column \"headers\": Arrow's list cannot be used, expected a "
                              "map of strings to strings");
    make_full(&full);
    full.values.schema.format = "i";
    check_refused(&full.root,
                  "column \"headers\" value: Arrow's int32 cannot be used, expected a string or a "
                  "dictionary of strings");
}

static void test_wrong_columns_are_refused_by_name(void)
{
    struct full_batch full;

    make_full(&full);
    full.message_id.schema.name = "color";
    check_refused(
        &full.root,
        "unknown column \"color\"; expected body, exchange, routing_key, headers, message_id, "
        "correlation_id, type, app_id, content_type, content_encoding, reply_to, user_id, "
        "priority, delivery_mode, expiration_ms, timestamp, due");
    make_full(&full);
    full.message_id.schema.name = "routing_key";
    check_refused(&full.root, "two columns are called \"routing_key\"");
    make_full(&full);
    full.root.schema_children[0] = NULL;
    check_refused(&full.root, "record batch: column 0 is missing");
    make_full(&full);
    full.body.schema.name = "app_id";
    check_refused(
        &full.root,
        "column \"app_id\": Arrow's binary cannot be used, expected a string or a dictionary "
        "of strings");
    full.body.schema.format = "u";
    check_refused(&full.root, "no column is called \"body\", which is to hold the bodies");
}

static void test_wrong_structure_is_refused(void)
{
    struct full_batch full;

    make_full(&full);
    full.root.array.release = NULL;
    check_refused(&full.root, "record batch: its Arrow schema or array was released already");
    make_full(&full);
    full.root.array.n_children = 3;
    check_refused(&full.root, "record batch: 3 children, expected 10");
    make_full(&full);
    full.root.array.length = -1;
    check_refused(&full.root, "record batch: length -1 at offset 0 is impossible");
    make_full(&full);
    full.root.array.offset = 1;
    check_refused(&full.root, "column \"body\": length 2 is less than the 3 that are needed");
    make_full(&full);
    full.root.array.null_count = 1;
    full.root.buffers[0] = first_only;
    check_refused(&full.root, "row 1 is null");
    make_full(&full);
    full.body.array.offset = -1;
    check_refused(&full.root, "column \"body\": offset -1 is impossible");
    make_full(&full);
    full.body.array.n_buffers = 2;
    check_refused(&full.root, "column \"body\": 2 buffers, expected 3");
    make_full(&full);
    full.body.array.null_count = 1;
    check_refused(&full.root, "column \"body\": 1 nulls, but no validity buffer");
    make_full(&full);
    full.body.buffers[1] = NULL;
    check_refused(&full.root, "column \"body\": no offsets buffer");
    make_full(&full);
    full.body.buffers[2] = NULL;
    check_refused(&full.root, "column \"body\": no data buffer");
    make_full(&full);
    full.priority.buffers[1] = NULL;
    check_refused(&full.root, "column \"priority\": no values buffer");
    make_full(&full);
    full.exchange.array.dictionary = NULL;
    check_refused(&full.root, "column \"exchange\": no dictionary came with the array");
    make_full(&full);
    full.entries.array.length = 1;
    check_refused(&full.root,
                  "column \"headers\" entries: length 1 is less than the 2 that are needed");
    make_full(&full);
    full.keys.array.length = 1;
    check_refused(&full.root,
                  "column \"headers\" key: length 1 is less than the 2 that are needed");
    make_full(&full);
    full.headers.array_children[0] = NULL;
    check_refused(&full.root, "column \"headers\": the map's entries are missing");
    make_full(&full);
    full.headers.buffers[1] = NULL;
    check_refused(&full.root, "column \"headers\": no offsets buffer");
}

static void test_wrong_contents_name_the_row(void)
{
    static const int32_t descending[] = {0, 2, 1};
    static const int32_t negative[] = {-4, 0, 1};
    static const int64_t far64[] = {0, 1, INT64_C(1) << 33};
    static const int8_t code2[] = {1, 2};
    static const int8_t code_negative[] = {-1, 0};
    static const int16_t priority256[] = {5, 256};
    static const uint8_t mode3[] = {2, 3};
    static const uint64_t huge[] = {UINT64_MAX, 0};
    static const uint8_t no_keys[1] = {2};
    struct full_batch full;

    make_full(&full);
    set_nulls(&full.body, first_only);
    check_refused(&full.root, "row 1: body is null");
    make_full(&full);
    full.body.buffers[1] = descending;
    check_refused(&full.root, "row 1: body has impossible offsets 2 to 1");
    make_full(&full);
    full.body.buffers[1] = negative;
    check_refused(&full.root, "row 0: body has impossible offsets -4 to 0");
    make_full(&full);
    full.body.schema.format = "Z";
    full.body.buffers[1] = far64;
    check_refused(&full.root, "row 1: body has 8589934591 bytes, at most 4294967295 are possible");
    make_full(&full);
    full.exchange.array.null_count = 0;
    full.exchange.buffers[1] = code2;
    check_refused(&full.root, "row 1: exchange has dictionary index 2, there are 2 entries");
    full.exchange.buffers[1] = code_negative;
    check_refused(&full.root, "row 0: exchange has dictionary index -1, there are 2 entries");
    make_full(&full);
    full.priority.schema.format = "s";
    full.priority.array.null_count = 0;
    full.priority.buffers[1] = priority256;
    check_refused(&full.root, "row 1: priority is 256, must be 0 to 255");
    make_full(&full);
    full.delivery_mode.schema.format = "C";
    full.delivery_mode.array.null_count = 0;
    full.delivery_mode.buffers[1] = mode3;
    check_refused(&full.root, "row 1: delivery_mode is 3, must be 1 to 2");
    make_full(&full);
    full.expiration_ms.array.null_count = 0;
    check_refused(&full.root, "row 1: expiration_ms is -1, must be 0 to 9223372036854775807");
    full.expiration_ms.schema.format = "L";
    full.expiration_ms.buffers[1] = huge;
    check_refused(&full.root,
                  "row 0: expiration_ms is 18446744073709551615, must be 0 to 9223372036854775807");
    make_full(&full);
    full.timestamp.array.null_count = 0;
    check_refused(&full.root, "row 1: timestamp is -5, must be 0 to 9223372036854775807");
    make_full(&full);
    full.headers.buffers[1] = descending;
    check_refused(&full.root, "row 1: headers has impossible offsets 2 to 1");
    make_full(&full);
    set_nulls(&full.keys, no_keys);
    check_refused(&full.root, "row 0: headers has a null key");
    make_full(&full);
    set_nulls(&full.entries, first_only);
    check_refused(&full.root, "row 0: headers has a null entry");
    make_full(&full);
    full.values.buffers[1] = descending;
    check_refused(&full.root, "entry 1: headers value has impossible offsets 2 to 1");
}

static void test_long_names_are_refused_where_they_are_used(void)
{
    static char data[300];
    static const int32_t offsets[] = {0, 0, 256};
    static const int8_t used[] = {0, 1};
    static const int8_t unused[] = {0, 0};
    struct full_batch full;
    struct qsi_arrow_batch batch;

    make_full(&full);
    full.message_id.buffers[1] = offsets;
    full.message_id.buffers[2] = data;
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK); /* the long one is null */
    full.message_id.array.null_count = 0;
    check_refused(&full.root, "row 1: message_id has 256 bytes, at most 255 are possible");
    make_full(&full);
    full.exchange_names.buffers[1] = offsets;
    full.exchange_names.buffers[2] = data;
    full.exchange.array.null_count = 0;
    full.exchange.buffers[1] = unused;
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    full.exchange.buffers[1] = used;
    check_refused(&full.root, "row 1: exchange has 256 bytes, at most 255 are possible");
    make_full(&full);
    full.keys.buffers[1] = offsets;
    full.keys.buffers[2] = data;
    check_refused(&full.root, "row 0: headers has a key of 256 bytes, at most 255 are possible");
}

static void test_wrong_views_name_the_row(void)
{
    struct node body;
    struct node root;
    struct view good = views[3];

    make_views(&body, "body", BODY_COUNT);
    make_batch(&root, BODY_COUNT, &body);
    views[3].bytes = -1;
    check_refused(&root, "row 3: body has impossible length -1");
    views[3] = good;
    views[3].u.far.buffer = 2;
    check_refused(&root, "row 3: body lies in data buffer 2 of 2");
    views[3].u.far.buffer = -1;
    check_refused(&root, "row 3: body lies in data buffer -1 of 2");
    views[3] = good;
    views[3].u.far.offset = 15;
    check_refused(&root, "row 3: body lies outside data buffer 1: 39 bytes at 15 of 53");
    views[3].u.far.offset = -1;
    check_refused(&root, "row 3: body lies outside data buffer 1: 39 bytes at -1 of 53");
    views[3] = good;
    body.buffers[4] = NULL;
    check_refused(&root, "column \"body\": no views buffer, or no sizes of the data buffers");
}

static void test_nulls_are_found_at_every_place(void)
{
    enum { ROWS = 200, SHIFT = 5 };
    static int32_t offsets[ROWS + SHIFT + 1];
    struct node body;
    struct node root;
    struct qsi_arrow_batch batch;
    qs_error error;
    char text[64];

    make_strings(&body, "body", "z", ROWS, offsets, "");
    body.array.offset = SHIFT;
    make_batch(&root, ROWS, &body);
    for (int row = 0; row < ROWS; row++) {
        size_t bytes = (ROWS + SHIFT + 7) / 8;
        uint8_t *validity =
            malloc(bytes); /* of its own size, so that the address sanitizer sees overreading */

        QS_CHECK(validity != NULL);
        memset(validity, 0xff, bytes);
        set_nulls(&body, validity);
        QS_CHECK(open_batch(&batch, &root, NULL) == QS_OK);
        validity[(row + SHIFT) / 8] &= (uint8_t)~(1 << (row + SHIFT) % 8);
        QS_CHECK(open_batch(&batch, &root, &error) == QS_EINVAL);
        (void)snprintf(text, sizeof text, "row %d: body is null", row);
        QS_CHECK(strcmp(error.text, text) == 0);
        free(validity);
    }
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Mostly small numbers near the valid ones. */
static int32_t damaged_number(uint64_t *seed)
{
    return next_random(seed) % 8 == 0 ? (int32_t)next_random(seed) - INT32_MAX
                                      : (int32_t)(next_random(seed) % 60) - 4;
}

static void read_everything(const struct qsi_arrow_batch *batch)
{
    uint64_t row;
    uint64_t sum = 0;

    (void)qsi_arrow_body_max(batch, &row);
    for (row = 0; row < batch->rows; row++) {
        struct qsi_slice body = qsi_arrow_bytes(&batch->body, row);

        for (uint32_t i = 0; i < body.bytes; i++) {
            sum += body.data[i];
        }
    }
    QS_CHECK(sum < UINT64_MAX);
}

/* Views and codes are fully checked, so whatever opens can be read.  (The last of plain offsets
 * is believed.) */
static void test_damaged_views_and_codes_never_read_outside(uint64_t seed)
{
    struct view saved[BODY_COUNT];
    uint32_t opened = 0;

    memcpy(saved, views, sizeof saved);
    for (int round = 0; round < 20000; round++) {
        struct node body;
        struct node root;
        struct node codes;
        struct qsi_arrow_batch batch;
        int32_t numbers[3] = {damaged_number(&seed) % 6, damaged_number(&seed) % 6,
                              damaged_number(&seed) % 6};
        struct view *view = &views[next_random(&seed) % BODY_COUNT];

        view->bytes = damaged_number(&seed);
        view->u.far.buffer = damaged_number(&seed) % 3;
        view->u.far.offset = damaged_number(&seed);
        make_views(&body, "body", BODY_COUNT);
        make_column(&codes, "body", "i", 3, numbers);
        node_set_dictionary(&codes, &body);
        make_batch(&root, round % 2 == 0 ? 3 : BODY_COUNT, round % 2 == 0 ? &codes : &body);
        if (open_batch(&batch, &root, NULL) == QS_OK) {
            opened++;
            read_everything(&batch);
        }
        memcpy(views, saved, sizeof saved);
    }
    QS_CHECK(opened > 0);
}

/* ---- buffers that others write to once the batch is open ---- */

struct spoiled {
    void *buffers[64];
    size_t sizes[64];
    size_t count;
};

/* The node gets a buffer of its own instead of a constant one. */
static void lend(struct spoiled *spoiled, struct node *node, int index, size_t bytes)
{
    void *buffer = malloc(bytes);

    QS_CHECK(buffer != NULL && spoiled->count < 64);
    memcpy(buffer, node->buffers[index], bytes);
    node->buffers[index] = buffer;
    spoiled->buffers[spoiled->count] = buffer;
    spoiled->sizes[spoiled->count++] = bytes;
}

/* Whoever looks there again finds nonsense, and the address sanitizer finds it. */
static void spoil(struct spoiled *spoiled)
{
    while (spoiled->count > 0) {
        spoiled->count -= 1;
        memset(spoiled->buffers[spoiled->count], 0xa5, spoiled->sizes[spoiled->count]);
        free(spoiled->buffers[spoiled->count]);
    }
}

static void check_all_rows(const struct qsi_arrow_batch *batch)
{
    uint8_t offsets[4 * (BODY_COUNT + 1)];
    uint8_t data[sizeof body_data];
    uint64_t row, total = qsi_arrow_body_total(batch, 0, BODY_COUNT);

    QS_CHECK(total == 53 && qsi_arrow_body_max(batch, &row) == 39 && row == 3);
    qsi_arrow_body_copy(batch, 0, BODY_COUNT, offsets, data);
    QS_CHECK(qsi_get_u32(offsets + 4 * BODY_COUNT) == total && memcmp(data, body_data, 53) == 0);
    for (row = 0; row < BODY_COUNT; row++) {
        QS_CHECK(qsi_slice_equals(qsi_arrow_bytes(&batch->body, row), bodies[row]));
        QS_CHECK(row == 1 ||
                 qsi_slice_equals(qsi_arrow_bytes(&batch->routing_key, row), bodies[row]));
    }
    QS_CHECK(qsi_slice_is_null(qsi_arrow_bytes(&batch->routing_key, 1)));
}

static void make_any(struct node *node, int layout, const char *name, bool is_body)
{
    static const char *const formats[] = {"z", "Z", "u", "U"};

    if (layout == 2) {
        make_views(node, name, BODY_COUNT);
        node->schema.format = is_body ? "vz" : "vu";
        return;
    }
    make_strings(node, name, formats[layout + (is_body ? 0 : 2)], BODY_COUNT,
                 layout == 0 ? (const void *)offsets32 : offsets64, body_data);
}

static void lend_any(struct spoiled *spoiled, struct node *node, int layout, bool is_body)
{
    static const size_t place_bytes[] = {sizeof offsets32, sizeof offsets64, sizeof views};

    lend(spoiled, node, 1, place_bytes[layout]);
    if (layout == 2) {
        lend(spoiled, node, 4, sizeof view_sizes);
    }
    if (!is_body) {
        lend(spoiled, node, layout == 2 ? 3 : 2, sizeof body_data);
    }
}

static void check_spoiled_layout(int body_layout, int key_layout, bool has_dictionary)
{
    static const uint8_t all_but_one[] = {0x0d};
    static const int16_t codes[] = {0, 1, 2, 3};
    struct spoiled spoiled = {.count = 0};
    struct node root, body, key, body_codes, key_codes;
    struct qsi_arrow_batch batch;

    make_any(&body, body_layout, "body", true);
    make_any(&key, key_layout, "routing_key", false);
    lend_any(&spoiled, &body, body_layout, true);
    lend_any(&spoiled, &key, key_layout, false);
    make_column(&body_codes, "body", "s", BODY_COUNT, codes);
    make_column(&key_codes, "routing_key", "s", BODY_COUNT, codes);
    lend(&spoiled, &body_codes, 1, sizeof codes);
    lend(&spoiled, &key_codes, 1, sizeof codes);
    node_set_dictionary(&body_codes, &body);
    node_set_dictionary(&key_codes, &key);
    set_nulls(has_dictionary ? &key_codes : &key, all_but_one);
    lend(&spoiled, has_dictionary ? &key_codes : &key, 0, sizeof all_but_one);
    make_batch(&root, BODY_COUNT, has_dictionary ? &body_codes : &body);
    node_add(&root, has_dictionary ? &key_codes : &key);
    QS_CHECK_OK(open_batch(&batch, &root, QS_ERROR));
    spoil(&spoiled);
    check_all_rows(&batch);
}

static void test_a_batch_is_what_it_was_when_it_was_opened_whoever_writes_to_its_buffers(void)
{
    for (int layouts = 0; layouts < 18; layouts++) {
        check_spoiled_layout(layouts % 3, layouts / 3 % 3, layouts >= 9);
    }
}

static void test_properties_are_those_of_the_open_batch_whoever_writes_to_its_buffers(void)
{
    struct spoiled spoiled = {.count = 0};
    struct full_batch full;
    struct qsi_arrow_batch batch;
    struct qsi_properties decoded, expected;
    uint8_t blob[256], before[256];

    make_full(&full);
    QS_CHECK_OK(open_batch(&batch, &full.root, QS_ERROR));
    encode_row(&expected, before, sizeof before, &batch, 0, NULL);
    lend(&spoiled, &full.headers, 1, 12);
    lend(&spoiled, &full.keys, 1, sizeof two_strings);
    lend(&spoiled, &full.keys, 2, 2);
    lend(&spoiled, &full.values, 1, sizeof two_strings);
    lend(&spoiled, &full.values, 2, 2);
    lend(&spoiled, &full.message_id, 1, sizeof two_strings);
    lend(&spoiled, &full.message_id, 2, 2);
    lend(&spoiled, &full.timestamp, 1, 16);
    lend(&spoiled, &full.expiration_ms, 1, 16);
    QS_CHECK_OK(open_batch(&batch, &full.root, QS_ERROR));
    spoil(&spoiled);
    encode_row(&decoded, blob, sizeof blob, &batch, 0, NULL);
    QS_CHECK(decoded.present == expected.present);
    QS_CHECK(memcmp(blob, before, qsi_properties_bytes(&expected)) == 0);
}

static void test_an_open_batch_that_finds_no_memory_keeps_none(void)
{
    struct qs_test_alloc state;
    struct full_batch full;
    struct qsi_arrow_batch batch;
    qs_status status = QS_ENOMEM;
    uint64_t call = 0;

    make_full(&full);
    (void)open_batch(NULL, NULL, NULL);
    qs_test_alloc_install(&state);
    while (status == QS_ENOMEM) {
        qs_test_alloc_arm(&state, ++call, false);
        status = qsi_arrow_batch_open(&batch, &full.root.schema, &full.root.array, "body", 0, NULL);
        QS_CHECK(status == QS_OK || state.alive == 0);
    }
    QS_CHECK(status == QS_OK && call > 10 && state.alive > 0);
    qsi_arrow_batch_close(&batch);
    qsi_arrow_batch_close(&batch);
    QS_CHECK(state.alive == 0);
    qs_allocator_set(NULL);
}

int main(int argc, char **argv)
{
    uint64_t seed = qs_test_seed(argc, argv);

    test_bodies_come_back_from_every_layout();
    test_bodies_come_back_from_a_dictionary();
    test_fixed_size_bodies();
    test_an_empty_batch_needs_no_buffers();
    test_a_full_row_becomes_properties();
    test_defaults_stand_where_a_row_is_null();
    test_headers_of_a_slice_are_its_own();
    test_a_timestamp_has_any_unit();
    test_wrong_types_are_refused_by_name();
    test_wrong_columns_are_refused_by_name();
    test_wrong_structure_is_refused();
    test_wrong_contents_name_the_row();
    test_long_names_are_refused_where_they_are_used();
    test_wrong_views_name_the_row();
    test_nulls_are_found_at_every_place();
    test_damaged_views_and_codes_never_read_outside(seed);
    test_a_batch_is_what_it_was_when_it_was_opened_whoever_writes_to_its_buffers();
    test_properties_are_those_of_the_open_batch_whoever_writes_to_its_buffers();
    test_an_open_batch_that_finds_no_memory_keeps_none();
    (void)open_batch(NULL, NULL, NULL);
    return 0;
}
