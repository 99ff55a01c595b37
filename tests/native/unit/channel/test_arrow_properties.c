/* Properties and headers as columns of the batch that deliveries come back as. */
#include "arrow_build_fixture.h"

ROWS_TEST(test_properties_fill_their_columns)
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

ROWS_TEST(test_what_has_no_number_is_null)
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

ROWS_TEST(test_header_values_become_text)
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

ROWS_TEST(test_strings_come_out_as_utf8)
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

ROWS_TEST(test_a_run_shares_its_properties)
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
