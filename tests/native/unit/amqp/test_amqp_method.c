/* Methods to bytes and back: each with arguments from a seed, and cut at every byte.
 *
 * Arguments: seed. */
#include "amqp_method.h"
#include "le.h"
#include "qs_test.h"
#include "splitmix.h"

#define ROUNDS 200

static uint8_t memory[8192];
static size_t used;

static struct qsi_slice random_text(uint64_t *random, uint32_t bytes_max)
{
    uint32_t bytes = (uint32_t)qsi_splitmix_below(random, bytes_max + 1);
    uint8_t *text = memory + used;

    QS_CHECK(used + bytes <= sizeof memory);
    for (uint32_t i = 0; i < bytes; i++) {
        text[i] = (uint8_t)('a' + qsi_splitmix_below(random, 26));
    }
    used += bytes;
    return qsi_slice_make(text, bytes);
}

static struct qsi_slice random_table(uint64_t *random)
{
    uint8_t *table = memory + used;

    if (qsi_splitmix_below(random, 3) == 0) {
        return qsi_slice_make(table, 0);
    }
    memcpy(table, "\1aI\0\0\0\7\3xyzS\0\0\0\2ok", 18);
    used += 18;
    return qsi_slice_make(table, 18);
}

static uint64_t number_of(char field, uint64_t value)
{
    return field == 'o'   ? value & 0xff
           : field == 'w' ? value & 0xffff
           : field == 'd' ? value & 0xffffffff
                          : value;
}

static struct qsi_amqp_arguments random_arguments(uint64_t *random, const char *fields)
{
    struct qsi_amqp_arguments arguments = {0};
    int texts = 0, numbers = 0;

    used = 0;
    for (const char *field = fields; *field != '\0'; field++) {
        if (*field == 's') {
            arguments.text[texts++] = random_text(random, 255);
        } else if (*field == 'S') {
            arguments.text[texts++] = random_text(random, 600);
        } else if (*field == 't') {
            arguments.table = random_table(random);
        } else if (strchr("owdq", *field) != NULL) {
            arguments.number[numbers++] = number_of(*field, qsi_splitmix_next(random));
        } else if (*field >= '1' && *field <= '5') {
            arguments.bits = (uint8_t)qsi_splitmix_below(random, 1u << (*field - '0'));
        }
    }
    return arguments;
}

static void check_equal(const struct qsi_amqp_arguments *a, const struct qsi_amqp_arguments *b)
{
    for (int i = 0; i < 3; i++) {
        QS_CHECK(a->number[i] == b->number[i] && a->text[i].bytes == b->text[i].bytes);
        QS_CHECK(a->text[i].bytes == 0 ||
                 memcmp(a->text[i].data, b->text[i].data, a->text[i].bytes) == 0);
    }
    QS_CHECK(a->bits == b->bits && a->table.bytes == b->table.bytes);
    QS_CHECK(a->table.bytes == 0 || memcmp(a->table.data, b->table.data, a->table.bytes) == 0);
}

/* In memory of its own size, so that a read past the end is seen. */
static enum qsi_amqp_decoded decode_copy(enum qsi_amqp_method method, const uint8_t *bytes,
                                         size_t count)
{
    struct qsi_amqp_arguments decoded;
    QS_TEST_FREED uint8_t *copy = malloc(count > 0 ? count : 1);
    enum qsi_amqp_decoded answer;

    QS_CHECK(copy != NULL);
    memcpy(copy, bytes, count);
    answer = qsi_amqp_method_decode(method, qsi_slice_make(copy, (uint32_t)count), &decoded);
    return answer;
}

static void check_method(enum qsi_amqp_method method, uint64_t *random)
{
    const struct qsi_amqp_layout *layout = &qsi_amqp_layouts[method];
    struct qsi_amqp_arguments arguments = random_arguments(random, layout->fields), decoded = {0};
    size_t bytes = qsi_amqp_method_bytes(method, &arguments);
    QS_TEST_FREED uint8_t *encoded = malloc(bytes + 1);
    enum qsi_amqp_method found;

    QS_CHECK(encoded != NULL);
    QS_CHECK(qsi_amqp_method_put(encoded, method, &arguments) == encoded + bytes);
    QS_CHECK(qsi_amqp_method_find(qsi_get_be16(encoded), qsi_get_be16(encoded + 2), &found));
    QS_CHECK(found == method);
    QS_CHECK(qsi_amqp_method_decode(method, qsi_slice_make(encoded + 4, (uint32_t)bytes - 4),
                                    &decoded) == QSI_AMQP_DECODED);
    check_equal(&arguments, &decoded);
    for (size_t cut = 4; cut < bytes; cut++) {
        QS_CHECK(decode_copy(method, encoded + 4, cut - 4) == QSI_AMQP_CANNOT_DECODE);
    }
    encoded[bytes] = 0;
    QS_CHECK(decode_copy(method, encoded + 4, bytes - 3) == QSI_AMQP_CANNOT_DECODE);
}

QS_SEED_TEST(test_every_method_is_what_it_was_after_encoding_and_is_refused_cut)
{
    uint64_t random = seed;

    for (int round = 0; round < ROUNDS; round++) {
        for (int method = 0; method < QSI_AMQP_METHOD_COUNT; method++) {
            check_method((enum qsi_amqp_method)method, &random);
        }
    }
}

QS_TEST(test_methods_that_are_not_there_are_not_found)
{
    enum qsi_amqp_method method;
    int found = 0;

    for (uint32_t class_id = 0; class_id < 300; class_id++) {
        for (uint32_t method_id = 0; method_id < 300; method_id++) {
            found += qsi_amqp_method_find((uint16_t)class_id, (uint16_t)method_id, &method);
        }
    }
    QS_CHECK(found == QSI_AMQP_METHOD_COUNT);
}

QS_TEST(test_names_are_utf8)
{
    static const struct {
        const char *text;
        bool is_utf8;
    } cases[] = {
        {"", true},
        {"plain", true},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x87", true},
        {"\xf4\x8f\xbf\xbf", true},
        {"\xff\xfe", false},
        {"\x80", false},
        {"\xc3", false},
        {"\xe2\x82", false},
        {"\xc0\xaf", false},
        {"\xe0\x9f\xbf", false},
        {"\xed\xa0\x80", false},
        {"\xf0\x8f\xbf\xbf", false},
        {"\xf4\x90\x80\x80", false},
        {"\xf5\x80\x80\x80", false},
        {"a\xc3(", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qsi_slice text = qsi_slice_make(cases[i].text, (uint32_t)strlen(cases[i].text));

        QS_CHECK(qsi_amqp_is_utf8(text) == cases[i].is_utf8);
    }
    QS_CHECK(decode_copy(QSI_AMQP_CHANNEL_OPEN, (const uint8_t *)"\1\xff", 2) == QSI_AMQP_NOT_UTF8);
}

QS_TEST(test_bad_tables_are_told_from_short_ones)
{
    QS_CHECK(decode_copy(QSI_AMQP_QUEUE_DECLARE, (const uint8_t *)"\0\0\1q\0\0\0\0\3\1aZ", 12) ==
             QSI_AMQP_BAD_TABLE);
    QS_CHECK(decode_copy(QSI_AMQP_QUEUE_DECLARE, (const uint8_t *)"\0\0\1q\0\0\0\0\4\1aZ", 12) ==
             QSI_AMQP_CANNOT_DECODE);
}
