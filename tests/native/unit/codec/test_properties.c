/* Property blobs: round trips, every truncation, hostile tables, and random bytes.  Blobs are
 * copied to memory of exactly their size, so that the address sanitizer sees a read past the
 * end.
 *
 * The seed of the random part is printed and is the first argument. */
#include "qstore/codec.h"

#include "field_table.h"
#include "properties.h"
#include "qs_test.h"

/* A table with one value of each type. */
static const uint8_t all_types[] = "\x01"
                                   "a"
                                   "t"
                                   "\x01"
                                   "\x01"
                                   "b"
                                   "b"
                                   "\xff"
                                   "\x01"
                                   "c"
                                   "B"
                                   "\xff"
                                   "\x01"
                                   "d"
                                   "s"
                                   "\xff\xfe"
                                   "\x01"
                                   "e"
                                   "u"
                                   "\xff\xfe"
                                   "\x01"
                                   "f"
                                   "I"
                                   "\xff\xff\xff\xfd"
                                   "\x01"
                                   "g"
                                   "i"
                                   "\xff\xff\xff\xfd"
                                   "\x01"
                                   "h"
                                   "l"
                                   "\xff\xff\xff\xff\xff\xff\xff\xfc"
                                   "\x01"
                                   "i"
                                   "f"
                                   "\x3f\xc0\x00\x00"
                                   "\x01"
                                   "j"
                                   "d"
                                   "\x3f\xf8\x00\x00\x00\x00\x00\x00"
                                   "\x01"
                                   "k"
                                   "D"
                                   "\x02\x00\x00\x01\x41"
                                   "\x01"
                                   "l"
                                   "S"
                                   "\x00\x00\x00\x02hi"
                                   "\x01"
                                   "m"
                                   "x"
                                   "\x00\x00\x00\x02\x00\xff"
                                   "\x01"
                                   "n"
                                   "T"
                                   "\x00\x00\x00\x00\x00\x00\x00\x07"
                                   "\x01"
                                   "o"
                                   "V"
                                   "\x01"
                                   "p"
                                   "A"
                                   "\x00\x00\x00\x03"
                                   "t"
                                   "\x00"
                                   "V"
                                   "\x01"
                                   "q"
                                   "F"
                                   "\x00\x00\x00\x04"
                                   "\x01"
                                   "z"
                                   "b"
                                   "\x05";

#define ALL_TYPES qsi_slice_make(all_types, sizeof all_types - 1)
#define ARRAY_BYTES 5 /* type and length of an array: one more level */

static struct qsi_properties all_properties(void)
{
    struct qsi_properties properties = {
        .timestamp = UINT64_C(0x0102030405060708), .delivery_mode = 2, .priority = 9};

    for (int i = 0; i < QSI_PROPERTY_COUNT; i++) {
        const char *name = qsi_property_name((enum qsi_property)i);

        properties.text[i] = qsi_slice_make(name, (uint32_t)strlen(name));
        properties.present |= qsi_property_flag((enum qsi_property)i);
    }
    properties.text[QSI_PROPERTY_HEADERS] = ALL_TYPES;
    properties.text[QSI_PROPERTY_DELIVERY_MODE] = QSI_SLICE_NULL;
    properties.text[QSI_PROPERTY_PRIORITY] = QSI_SLICE_NULL;
    properties.text[QSI_PROPERTY_TIMESTAMP] = QSI_SLICE_NULL;
    return properties;
}

static uint8_t *encode(const struct qsi_properties *properties, uint32_t *bytes_out)
{
    uint64_t bytes = qsi_properties_bytes(properties);
    uint8_t *blob = malloc(bytes + 1);

    QS_CHECK(blob != NULL && bytes <= UINT32_MAX);
    blob[bytes] = 0xa5;
    (void)qsi_properties_encode(blob, properties);
    QS_CHECK(blob[bytes] == 0xa5);
    *bytes_out = (uint32_t)bytes;
    return blob;
}

static void check_equal(const struct qsi_properties *a, const struct qsi_properties *b)
{
    QS_CHECK(a->present == b->present);
    QS_CHECK(!qsi_properties_has(a, QSI_PROPERTY_TIMESTAMP) || a->timestamp == b->timestamp);
    QS_CHECK(!qsi_properties_has(a, QSI_PROPERTY_PRIORITY) || a->priority == b->priority);
    QS_CHECK(!qsi_properties_has(a, QSI_PROPERTY_DELIVERY_MODE) ||
             a->delivery_mode == b->delivery_mode);
    for (int i = 0; i < QSI_PROPERTY_COUNT; i++) {
        enum qsi_property property = (enum qsi_property)i;

        if (property != QSI_PROPERTY_TIMESTAMP && property != QSI_PROPERTY_PRIORITY &&
            property != QSI_PROPERTY_DELIVERY_MODE) {
            QS_CHECK(qsi_slice_equals(qsi_properties_text(a, property),
                                      qsi_properties_text(b, property)));
        }
    }
}

/* In memory of its own size. */
static qs_status decode_copy(const uint8_t *blob, uint32_t bytes, qs_error *error)
{
    struct qsi_properties properties;
    QS_TEST_FREED uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    qs_status status;

    QS_CHECK(copy != NULL);
    memcpy(copy, blob, bytes);
    status = qsi_properties_decode(&properties, copy, bytes, error);
    QS_CHECK(qs_properties_check(copy, bytes, NULL) == status);
    (void)qsi_properties_delivery_mode(copy, bytes);
    (void)qsi_properties_priority(copy, bytes);
    (void)qsi_properties_expiration(copy, bytes);
    return status;
}

QS_TEST(test_properties_survive_a_round_trip)
{
    struct qsi_properties all = all_properties();

    for (uint32_t mask = 0; mask < 1u << QSI_PROPERTY_COUNT; mask += 7) {
        struct qsi_properties some = {0};
        struct qsi_properties decoded;
        uint32_t bytes;
        uint8_t *blob;

        some.present = (uint16_t)(all.present & mask << 2);
        for (int i = 0; i < QSI_PROPERTY_COUNT; i++) {
            if (qsi_properties_has(&some, (enum qsi_property)i)) {
                some.text[i] = all.text[i];
            }
        }
        some.delivery_mode =
            qsi_properties_has(&some, QSI_PROPERTY_DELIVERY_MODE) ? all.delivery_mode : 0;
        some.priority = qsi_properties_has(&some, QSI_PROPERTY_PRIORITY) ? all.priority : 0;
        some.timestamp = qsi_properties_has(&some, QSI_PROPERTY_TIMESTAMP) ? all.timestamp : 0;
        blob = encode(&some, &bytes);
        QS_CHECK(qsi_properties_decode(&decoded, blob, bytes, NULL) == QS_OK);
        check_equal(&some, &decoded);
        QS_CHECK(qsi_properties_delivery_mode(blob, bytes) == some.delivery_mode);
        QS_CHECK(qsi_properties_priority(blob, bytes) == some.priority);
        QS_CHECK(qsi_slice_equals(qsi_properties_expiration(blob, bytes),
                                  some.text[QSI_PROPERTY_EXPIRATION]));
        free(blob);
    }
}

QS_TEST(test_strings_of_every_length_survive)
{
    uint8_t string[QSI_SHORTSTR_BYTES_MAX];

    for (uint32_t length = 0; length <= sizeof string; length++) {
        struct qsi_properties properties = {0};
        struct qsi_properties decoded;
        uint32_t bytes;
        uint8_t *blob;

        for (uint32_t i = 0; i < length; i++) {
            string[i] = (uint8_t)(i * 7 + length);
        }
        qsi_properties_set(&properties, QSI_PROPERTY_TYPE, qsi_slice_make(string, length));
        blob = encode(&properties, &bytes);
        QS_CHECK(qsi_properties_decode(&decoded, blob, bytes, NULL) == QS_OK);
        check_equal(&properties, &decoded);
        free(blob);
    }
}

QS_TEST(test_no_property_is_no_bytes)
{
    struct qsi_properties none = {0};
    struct qsi_properties decoded;

    QS_CHECK(qsi_properties_bytes(&none) == 0);
    QS_CHECK(qsi_properties_encode(NULL, &none) == NULL);
    QS_CHECK(qsi_properties_decode(&decoded, NULL, 0, NULL) == QS_OK);
    check_equal(&none, &decoded);
    QS_CHECK(qsi_properties_decode(&decoded, (const uint8_t *)"\0", 2, NULL) ==
             QS_OK); /* AMQP's way to say so */
    check_equal(&none, &decoded);
    QS_CHECK(qsi_properties_delivery_mode(NULL, 0) == 0);
}

QS_TEST(test_bytes_are_those_of_amqp)
{
    static const uint8_t wire[] = "\x98\x80"
                                  "\x01"
                                  "t"
                                  "\x02"
                                  "\x07"
                                  "\x01"
                                  "m";
    struct qsi_properties properties = {.delivery_mode = 2, .priority = 7};
    uint32_t bytes;
    uint8_t *blob;

    qsi_properties_set(&properties, QSI_PROPERTY_CONTENT_TYPE, QSI_SLICE_LITERAL("t"));
    qsi_properties_set(&properties, QSI_PROPERTY_MESSAGE_ID, QSI_SLICE_LITERAL("m"));
    properties.present |=
        qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE) | qsi_property_flag(QSI_PROPERTY_PRIORITY);
    blob = encode(&properties, &bytes);
    QS_CHECK(bytes == sizeof wire - 1 && memcmp(blob, wire, bytes) == 0);
    free(blob);
}

QS_TEST(test_every_truncation_is_refused)
{
    struct qsi_properties all = all_properties();
    uint32_t bytes;
    QS_TEST_FREED uint8_t *blob = encode(&all, &bytes);
    qs_error error;

    QS_CHECK(decode_copy(blob, bytes, &error) == QS_OK);
    for (uint32_t cut = 1; cut < bytes; cut++) {
        QS_CHECK(decode_copy(blob, cut, &error) == QS_ECORRUPT);
        QS_CHECK(strncmp(error.text, "message properties: ", 20) == 0);
    }
    for (uint32_t cut = 0; cut < ALL_TYPES.bytes;
         cut++) { /* whole entries are a table of their own */
        QS_TEST_FREED uint8_t *copy = malloc(cut + 1);

        QS_CHECK(copy != NULL);
        memcpy(copy, all_types, cut);
        (void)qsi_table_check(qsi_slice_make(copy, cut));
    }
}

QS_TEST(test_refusals_name_the_property)
{
    qs_error error;

    QS_CHECK(decode_copy((const uint8_t *)"\x08\x00\x05"
                                          "ab",
                         5, &error) == QS_ECORRUPT);
    QS_CHECK(strstr(error.text, "priority") == NULL &&
             strstr(error.text, "2 bytes after the last one") != NULL);
    QS_CHECK(decode_copy((const uint8_t *)"\x04\x00\x05"
                                          "ab",
                         5, &error) == QS_ECORRUPT);
    QS_CHECK(strstr(error.text, "correlation_id") != NULL);
    QS_CHECK(decode_copy((const uint8_t *)"\x00\x01", 2, &error) == QS_ECORRUPT);
    QS_CHECK(strstr(error.text, "flags") != NULL);
}

QS_TEST(test_damage_behind_a_property_does_not_hide_it)
{
    QS_CHECK(qsi_properties_delivery_mode((const uint8_t *)"\x10\x00\x02", 3) == 2);
    QS_CHECK(qsi_properties_delivery_mode((const uint8_t *)"\x10\x00", 2) == 0);
    QS_CHECK(qsi_properties_delivery_mode((const uint8_t *)"\x90\x00\x05"
                                                           "ab",
                                          5) == 0);
    QS_CHECK(qsi_properties_priority((const uint8_t *)"\x18\x00\x02\x09", 4) == 9);
    QS_CHECK(qsi_slice_is_null(qsi_properties_expiration((const uint8_t *)"\x01\x00\x05"
                                                                          "1",
                                                         4)));
}

QS_TEST(test_a_walk_sees_the_entries_in_order)
{
    static const char types[] = "tbBsuIilfdDSxTVAF";
    struct qsi_field_walk walk = qsi_table_walk(ALL_TYPES);
    struct qsi_field_walk inner;
    struct qsi_field field;

    for (size_t i = 0; i < sizeof types - 1; i++) {
        QS_CHECK(qsi_field_next(&walk, &field));
        QS_CHECK(field.type == types[i] && field.name.bytes == 1 && field.name.data[0] == 'a' + i);
        if (field.type == 'A') {
            inner = qsi_array_walk(field.value);
            QS_CHECK(qsi_field_next(&inner, &field) && field.type == 't' &&
                     qsi_slice_is_null(field.name));
            QS_CHECK(qsi_field_next(&inner, &field) && field.type == 'V' && field.value.bytes == 0);
            QS_CHECK(!qsi_field_next(&inner, &field) && !inner.malformed);
        }
    }
    QS_CHECK(field.type == 'F' && field.value.bytes == 4);
    QS_CHECK(!qsi_field_next(&walk, &field) && !walk.malformed);
    QS_CHECK(qsi_table_check(ALL_TYPES));
}

QS_TEST(test_the_table_writer_makes_what_the_walk_reads)
{
    uint8_t table[64];
    struct qsi_slice name = QSI_SLICE_LITERAL("name");
    uint8_t *end = qsi_table_string_put(table, name, QSI_SLICE_LITERAL("value"));
    struct qsi_field_walk walk;
    struct qsi_field field;

    QS_CHECK((uint64_t)(end - table) == qsi_table_string_bytes(name, QSI_SLICE_LITERAL("value")));
    end = qsi_table_string_put(end, name, QSI_SLICE_NULL);
    walk = qsi_table_walk(qsi_slice_make(table, (uint32_t)(end - table)));
    QS_CHECK(qsi_field_next(&walk, &field) && field.type == 'S' &&
             qsi_slice_equals(field.name, name));
    QS_CHECK(qsi_slice_equals(field.value, QSI_SLICE_LITERAL("value")));
    QS_CHECK(qsi_field_next(&walk, &field) && field.type == 'V');
    QS_CHECK(!qsi_field_next(&walk, &field) && !walk.malformed);
}

QS_TEST(test_headers_without_data_leave_room)
{
    struct qsi_properties properties = {0};
    uint8_t blob[32];
    uint8_t *room;
    struct qsi_properties decoded;

    qsi_properties_set(&properties, QSI_PROPERTY_HEADERS, qsi_slice_make(NULL, 4));
    qsi_properties_set(&properties, QSI_PROPERTY_TYPE, QSI_SLICE_LITERAL("t"));
    room = qsi_properties_encode(blob, &properties);
    QS_CHECK(room == blob + 6);
    memcpy(room,
           "\x01"
           "ab\x05",
           4);
    QS_CHECK(qsi_properties_decode(&decoded, blob, (uint32_t)qsi_properties_bytes(&properties),
                                   NULL) == QS_OK);
    QS_CHECK(decoded.text[QSI_PROPERTY_HEADERS].bytes == 4);
}

/* A headers table of nested arrays, depth levels in all. */
static uint8_t *nested_table(uint32_t depth, uint32_t *bytes_out)
{
    uint32_t bytes = 2 + (depth - 1) * ARRAY_BYTES;
    uint8_t *table = malloc(bytes);
    uint32_t at = 2;

    QS_CHECK(table != NULL);
    table[0] = 1;
    table[1] = 'a';
    while (at < bytes) {
        uint32_t inner = bytes - at - ARRAY_BYTES;

        table[at] = 'A';
        table[at + 1] = (uint8_t)(inner >> 24);
        table[at + 2] = (uint8_t)(inner >> 16);
        table[at + 3] = (uint8_t)(inner >> 8);
        table[at + 4] = (uint8_t)inner;
        at += ARRAY_BYTES;
    }
    *bytes_out = bytes;
    return table;
}

QS_TEST(test_nesting_is_bounded)
{
    uint32_t bytes;
    uint8_t *table = nested_table(QSI_FIELD_DEPTH_MAX, &bytes);

    QS_CHECK(qsi_table_check(qsi_slice_make(table, bytes)));
    free(table);
    table = nested_table(QSI_FIELD_DEPTH_MAX + 1, &bytes);
    QS_CHECK(!qsi_table_check(qsi_slice_make(table, bytes)));
    free(table);
    table = nested_table(1000000, &bytes);
    QS_CHECK(!qsi_table_check(qsi_slice_make(table, bytes)));
    free(table);
}

QS_TEST(test_lengths_that_lie_are_refused)
{
    QS_CHECK(!qsi_table_check(QSI_SLICE_LITERAL("\x01"
                                                "aS\xff\xff\xff\xff")));
    QS_CHECK(!qsi_table_check(QSI_SLICE_LITERAL("\x01"
                                                "aF\x00\x00\x00\x05"
                                                "\x01"
                                                "bV")));
    QS_CHECK(!qsi_table_check(QSI_SLICE_LITERAL("\x01"
                                                "aA\x00\x00\x00\x02"
                                                "VS"
                                                "\x01"
                                                "bV")));
    QS_CHECK(!qsi_table_check(QSI_SLICE_LITERAL("\xff"
                                                "a")));
    QS_CHECK(!qsi_table_check(QSI_SLICE_LITERAL("\x01"
                                                "a?")));
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

QS_SEED_TEST(test_random_damage_never_reads_past_the_end)
{
    struct qsi_properties all = all_properties();
    uint32_t bytes;
    QS_TEST_FREED uint8_t *blob = encode(&all, &bytes);
    QS_TEST_FREED uint8_t *damaged = malloc(bytes);
    uint32_t accepted = 0;

    QS_CHECK(damaged != NULL);
    for (int round = 0; round < 20000; round++) {
        uint32_t cut = 1 + next_random(&seed) % bytes;

        memcpy(damaged, blob, bytes);
        for (uint32_t i = next_random(&seed) % 4; i > 0; i--) {
            damaged[next_random(&seed) % bytes] = (uint8_t)next_random(&seed);
        }
        accepted += decode_copy(damaged, round % 2 == 0 ? bytes : cut, NULL) == QS_OK;
        for (uint32_t i = 2; i < bytes; i++) {
            damaged[i] = (uint8_t)(next_random(&seed) % 8 == 0 ? next_random(&seed) : 0);
        }
        (void)decode_copy(damaged, cut, NULL);
    }
    QS_CHECK(accepted > 0);
}
