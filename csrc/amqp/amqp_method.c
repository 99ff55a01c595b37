/* Encodes and decodes methods by the fields of amqp_method.def. */
#include "amqp_method.h"

#include "check.h"
#include "cursor.h"
#include "field_table.h"
#include "le.h"

#include <string.h>

#define ID_BYTES 4 /* class and method */

const struct qsi_amqp_layout qsi_amqp_layouts[QSI_AMQP_METHOD_COUNT] = {
#define QSI_AMQP_METHOD(name, class_id, method_id, fields, from) \
    {class_id, method_id, QSI_AMQP_FROM_##from, fields},
#include "amqp_method.def"
#undef QSI_AMQP_METHOD
};

bool qsi_amqp_method_find(uint16_t class_id, uint16_t method_id, enum qsi_amqp_method *method_out)
{
    switch ((uint32_t)class_id << 16 | method_id) {
#define QSI_AMQP_METHOD(name, class_id, method_id, fields, from) \
    case (uint32_t)(class_id) << 16 | (method_id):               \
        *method_out = QSI_AMQP_##name;                           \
        return true;
#include "amqp_method.def"
#undef QSI_AMQP_METHOD
    default:
        return false;
    }
}

/* ---- UTF-8 ---- */

/* How many bytes follow a first byte; -1: no character begins with it.  0xc0 and 0xc1 would begin
 * overlong encodings, bytes above 0xf4 characters above U+10FFFF. */
static int bytes_behind(const uint8_t *at)
{
    if (*at < 0xc2 || *at > 0xf4) {
        return -1;
    }
    return *at < 0xe0 ? 1 : *at < 0xf0 ? 2 : 3;
}

/* Whether the second byte may follow the first one: it must not make an overlong encoding (0xe0,
 * 0xf0), a surrogate (0xed), or a character above U+10FFFF (0xf4). */
static bool second_fits(uint8_t first, uint8_t second)
{
    switch (first) {
    case 0xe0:
        return second >= 0xa0;
    case 0xed:
        return second < 0xa0;
    case 0xf0:
        return second >= 0x90;
    case 0xf4:
        return second < 0x90;
    default:
        return true;
    }
}

bool qsi_amqp_is_utf8(struct qsi_slice text)
{
    const uint8_t *at = text.data, *end = text.data + text.bytes;

    while (at < end) {
        int behind;
        if (*at < 0x80) {
            at++;
            continue;
        }
        behind = bytes_behind(at);
        if (behind < 0 || end - at <= behind || !second_fits(at[0], at[1])) {
            return false;
        }
        for (int i = 1; i <= behind; i++) {
            if ((at[i] & 0xc0) != 0x80) {
                return false;
            }
        }
        at += 1 + behind;
    }
    return true;
}

/* ---- decoding ---- */

struct decoding {
    struct qsi_cursor cursor;
    struct qsi_amqp_arguments *out;
    uint32_t texts, numbers;
    enum qsi_amqp_decoded fault;
};

static bool take_number(struct decoding *decoding, size_t bytes, uint64_t *number_out)
{
    const uint8_t *at = qsi_take(&decoding->cursor, bytes);

    if (at == NULL) {
        return false;
    }
    *number_out = 0;
    for (size_t i = 0; i < bytes; i++) {
        *number_out = *number_out << 8 | at[i];
    }
    return true;
}

static bool keep_number(struct decoding *decoding, size_t bytes)
{
    QS_ASSERT(decoding->numbers < 3);
    return take_number(decoding, bytes, &decoding->out->number[decoding->numbers++]);
}

static bool take_name(struct decoding *decoding, struct qsi_slice *name_out)
{
    if (!qsi_take_short_string(&decoding->cursor, name_out)) {
        return false;
    }
    if (!qsi_amqp_is_utf8(*name_out)) {
        decoding->fault = QSI_AMQP_NOT_UTF8;
        return false;
    }
    return true;
}

static struct qsi_slice *next_text(struct decoding *decoding)
{
    QS_ASSERT(decoding->texts < 3);
    return &decoding->out->text[decoding->texts++];
}

static bool take_table(struct decoding *decoding)
{
    if (!qsi_take_long_string(&decoding->cursor, &decoding->out->table)) {
        return false;
    }
    if (!qsi_table_check(decoding->out->table)) {
        decoding->fault = QSI_AMQP_BAD_TABLE;
        return false;
    }
    return true;
}

static bool take_bits(struct decoding *decoding)
{
    uint64_t bits;

    if (!take_number(decoding, 1, &bits)) {
        return false;
    }
    decoding->out->bits = (uint8_t)bits;
    return true;
}

static bool take_field(struct decoding *decoding, char field)
{
    struct qsi_slice reserved;
    uint64_t word;

    switch (field) {
    case 'o':
        return keep_number(decoding, 1);
    case 'w':
        return keep_number(decoding, 2);
    case 'd':
        return keep_number(decoding, 4);
    case 'q':
        return keep_number(decoding, 8);
    case 'r':
        return take_number(decoding, 2, &word);
    case 's':
        return take_name(decoding, next_text(decoding));
    case 'z':
        return take_name(decoding, &reserved);
    case 'S':
        return qsi_take_long_string(&decoding->cursor, next_text(decoding));
    case 't':
        return take_table(decoding);
    default:
        return take_bits(decoding);
    }
}

enum qsi_amqp_decoded qsi_amqp_method_decode(enum qsi_amqp_method method, struct qsi_slice fields,
                                             struct qsi_amqp_arguments *arguments_out)
{
    struct decoding decoding = {.cursor = {fields.data, fields.data + fields.bytes},
                                .out = arguments_out,
                                .fault = QSI_AMQP_CANNOT_DECODE};

    QS_ASSERT(method < QSI_AMQP_METHOD_COUNT);
    arguments_out->bits = 0;
    for (const char *field = qsi_amqp_layouts[method].fields; *field != '\0'; field++) {
        if (!take_field(&decoding, *field)) {
            return decoding.fault;
        }
    }
    return qsi_cursor_left(&decoding.cursor) == 0 ? QSI_AMQP_DECODED : QSI_AMQP_CANNOT_DECODE;
}

/* ---- encoding ---- */

size_t qsi_amqp_method_bytes(enum qsi_amqp_method method,
                             const struct qsi_amqp_arguments *arguments)
{
    size_t bytes = ID_BYTES;
    uint32_t texts = 0;

    for (const char *field = qsi_amqp_layouts[method].fields; *field != '\0'; field++) {
        switch (*field) {
        case 'w':
        case 'r':
            bytes += 2;
            break;
        case 'd':
            bytes += 4;
            break;
        case 'q':
            bytes += 8;
            break;
        case 's':
            bytes += 1 + arguments->text[texts++].bytes;
            break;
        case 'S':
            bytes += 4 + (size_t)arguments->text[texts++].bytes;
            break;
        case 't':
            bytes += 4 + (size_t)arguments->table.bytes;
            break;
        default: /* an octet, bits, an empty reserved string */
            bytes += 1;
        }
    }
    return bytes;
}

static uint8_t *put_long(uint8_t *out, struct qsi_slice bytes)
{
    qsi_put_be32(out, bytes.bytes);
    return qsi_slice_put(out + 4, bytes);
}

static uint8_t *put_number(uint8_t *out, uint64_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        out[i] = (uint8_t)(number >> 8 * (bytes - 1 - i));
    }
    return out + bytes;
}

uint8_t *qsi_amqp_method_put(uint8_t *out, enum qsi_amqp_method method,
                             const struct qsi_amqp_arguments *arguments)
{
    const struct qsi_amqp_layout *layout = &qsi_amqp_layouts[method];
    const struct qsi_slice *text = arguments->text;
    const uint64_t *number = arguments->number;

    qsi_put_be16(out, layout->class_id);
    qsi_put_be16(out + 2, layout->method_id);
    out += ID_BYTES;
    for (const char *field = layout->fields; *field != '\0'; field++) {
        switch (*field) {
        case 'o':
            *out++ = (uint8_t)*number++;
            break;
        case 'w':
            out = put_number(out, *number++, 2);
            break;
        case 'd':
            out = put_number(out, *number++, 4);
            break;
        case 'q':
            qsi_put_be64(out, *number++);
            out += 8;
            break;
        case 'r':
            out = put_number(out, 0, 2);
            break;
        case 's':
            out = qsi_put_short_string(out, *text++);
            break;
        case 'z':
            *out++ = 0;
            break;
        case 'S':
            out = put_long(out, *text++);
            break;
        case 't':
            out = put_long(out, arguments->table);
            break;
        default:
            *out++ = arguments->bits;
        }
    }
    return out;
}
