/* Record batches made by hand: every layout, slices, and an open batch, which does not change
 * whoever writes to its buffers. */
#include "arrow_read_fixture.h"
#include "field_table.h"

static const int32_t offsets32[] = {0, 5, 5, 14, 53};

static const int64_t offsets64[] = {0, 5, 5, 14, 53};

static const struct qsi_slice bodies[BODY_COUNT] = {{(const uint8_t *)body_data, 5},
                                                    {(const uint8_t *)body_data, 0},
                                                    {(const uint8_t *)body_data + 5, 9},
                                                    {(const uint8_t *)body_data + 14, 39}};

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

QS_TEST(test_bodies_come_back_from_every_layout)
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

QS_TEST(test_bodies_come_back_from_a_dictionary)
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

QS_TEST(test_fixed_size_bodies)
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

QS_TEST(test_an_empty_batch_needs_no_buffers)
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

QS_TEST(test_a_full_row_becomes_properties)
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

QS_TEST(test_defaults_stand_where_a_row_is_null)
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

QS_TEST(test_headers_of_a_slice_are_its_own)
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

QS_TEST(test_lists_of_key_and_value_are_headers)
{
    struct full_batch full;
    struct qsi_arrow_batch batch;
    struct qsi_arrow_entries entries;

    make_full(&full);
    full.headers.schema.format = "+l";
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    QS_CHECK(qsi_arrow_row_headers(&batch, 0, &entries) && entries.to - entries.from == 2);
    QS_CHECK(!qsi_arrow_row_headers(&batch, 1, &entries));
}

/* Of three rows the second is null, and the third has only the second field. */
QS_TEST(test_a_struct_of_strings_is_headers)
{
    static const int32_t three_strings[] = {0, 1, 2, 3};
    static const uint8_t first_and_third[1] = {5};
    struct node root, body, headers, a, b, none;
    struct qsi_arrow_batch batch;
    struct qsi_properties decoded;
    uint8_t blob[256];

    make_strings(&body, "body", "z", 3, three_strings, "xyz");
    make_batch(&root, 3, &body);
    node_init(&headers, "headers", "+s", 3, 1);
    set_nulls(&headers, first_and_third);
    make_strings(&a, "a", "u", 3, three_strings, "123");
    set_nulls(&a, first_only);
    make_strings(&b, "b", "u", 3, three_strings, "456");
    node_init(&none, "none", "n", 3, 0);
    node_add(&headers, &a);
    node_add(&headers, &b);
    node_add(&headers, &none);
    node_add(&root, &headers);
    QS_CHECK(open_batch(&batch, &root, NULL) == QS_OK);
    encode_row(&decoded, blob, sizeof blob, &batch, 0, NULL);
    QS_CHECK(decoded.text[QSI_PROPERTY_HEADERS].bytes == 16 &&
             memcmp(decoded.text[QSI_PROPERTY_HEADERS].data,
                    "\x01"
                    "aS\0\0\0\x01"
                    "1\x01"
                    "bS\0\0\0\x01"
                    "4",
                    16) == 0);
    encode_row(&decoded, blob, sizeof blob, &batch, 1, NULL);
    QS_CHECK(!qsi_properties_has(&decoded, QSI_PROPERTY_HEADERS));
    encode_row(&decoded, blob, sizeof blob, &batch, 2, NULL);
    QS_CHECK(decoded.text[QSI_PROPERTY_HEADERS].bytes == 8 &&
             memcmp(decoded.text[QSI_PROPERTY_HEADERS].data,
                    "\x01"
                    "bS\0\0\0\x01"
                    "6",
                    8) == 0);
    b.schema.format = "i";
    check_refused(&root, "column \"b\" of the headers: Arrow's int32 cannot be used, expected a "
                         "string or a dictionary of strings");
}

QS_TEST(test_whole_numbers_may_be_floats)
{
    static const double wide[2] = {9, 0.5};
    static const float narrow[2] = {9, 0.5f};
    struct full_batch full;
    struct qsi_arrow_batch batch;
    int64_t value;

    for (int is_wide = 0; is_wide < 2; is_wide++) {
        make_full(&full);
        full.priority.schema.format = is_wide ? "g" : "f";
        full.priority.buffers[1] = is_wide ? (const void *)wide : narrow;
        QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK); /* row 1 is null */
        QS_CHECK(qsi_arrow_int(&batch.priority, 0, &value) && value == 9);
        full.priority.array.null_count = 0;
        check_refused(&full.root, "row 1: priority is 0.5, must be a whole number");
    }
}

QS_TEST(test_a_stream_has_a_time_of_its_own)
{
    static const int64_t seconds[2] = {5, 6};
    struct full_batch full;
    struct node offset, stream, time;
    struct qsi_arrow_batch batch;
    int64_t value;

    make_full(&full);
    make_column(&offset, "offset", "L", 2, seconds);
    make_strings(&stream, "stream", "u", 2, two_strings, "ss");
    make_column(&time, "message_timestamp", "tss:UTC", 2, seconds);
    node_add(&full.root, &offset);
    node_add(&full.root, &stream);
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK && !batch.timestamp.present);
    node_add(&full.root, &time);
    QS_CHECK(open_batch(&batch, &full.root, NULL) == QS_OK);
    QS_CHECK(qsi_arrow_int(&batch.timestamp, 1, &value) && value == 6);
}

QS_TEST(test_a_timestamp_has_any_unit)
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

static int64_t utc_of_an_hour_east(int64_t shown_s)
{
    return shown_s - 3600;
}

QS_TEST(test_a_time_without_a_zone_is_the_callers)
{
    static const struct {
        const char *format;
        int64_t value;
        int64_t seconds; /* that come out */
    } times[] = {{"tss:", 86400, 82800},
                 {"tsm:", 86400999, 82800},
                 {"tsn:", 86400999999999, 82800},
                 {"tsu:UTC", 86400999999, 86400},
                 {"tsu:Europe/Berlin", 86400999999, 86400},
                 {"l", 86400, 86400}};
    struct full_batch full;
    struct qsi_arrow_batch batch;
    int64_t seconds;

    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        const int64_t values[2] = {times[i].value, 3600000000000};

        make_full(&full);
        full.timestamp.schema.format = times[i].format;
        full.timestamp.buffers[1] = values;
        QS_CHECK_OK(qsi_arrow_batch_open(&batch, &full.root.schema, &full.root.array, "body", 0,
                                         utc_of_an_hour_east, QS_ERROR));
        QS_CHECK(qsi_arrow_int(&batch.timestamp, 0, &seconds) && seconds == times[i].seconds);
        qsi_arrow_batch_close(&batch);
        QS_CHECK(values[0] == times[i].value); /* the caller's own */
    }
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

QS_TEST(test_a_batch_is_what_it_was_when_it_was_opened_whoever_writes_to_its_buffers)
{
    for (int layouts = 0; layouts < 18; layouts++) {
        check_spoiled_layout(layouts % 3, layouts / 3 % 3, layouts >= 9);
    }
}

QS_TEST(test_properties_are_those_of_the_open_batch_whoever_writes_to_its_buffers)
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

QS_TEST(test_an_open_batch_that_finds_no_memory_keeps_none)
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
        status = qsi_arrow_batch_open(&batch, &full.root.schema, &full.root.array, "body", 0, NULL,
                                      NULL);
        QS_CHECK(status == QS_OK || state.alive == 0);
    }
    QS_CHECK(status == QS_OK && call > 10 && state.alive > 0);
    qsi_arrow_batch_close(&batch);
    qsi_arrow_batch_close(&batch);
    qs_test_alloc_end(&state);
}

int main(void)
{
    qs_test_run_all();
    (void)open_batch(NULL, NULL, NULL);
    return 0;
}
