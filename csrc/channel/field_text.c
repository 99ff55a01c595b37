/* AMQP strings may contain any bytes, but Arrow's utf8 columns may not: a reader would fail for the
 * whole batch, or behave unpredictably.
 *
 * Invariant: only UTF-8 is appended to a buffer. */
#include "field_text.h"

#include "check.h"
#include "le.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define REPLACEMENT "\xef\xbf\xbd"
#define REPLACEMENT_BYTES 3
#define NUMBER_BYTES_MAX 32
#define DECIMAL_BYTES_MAX 280 /* a scale of up to 255 digits */
#define JSON_BYTES_MAX 6      /* of one escaped byte: \u001f */

static bool is_ascii(struct qsi_slice bytes)
{
    uint64_t high = 0;
    uint32_t i = 0;

    for (; i + 8 <= bytes.bytes; i += 8) {
        high |= qsi_get_u64(bytes.data + i);
    }
    for (; i < bytes.bytes; i++) {
        high |= (uint64_t)bytes.data[i] << 56;
    }
    return (high & UINT64_C(0x8080808080808080)) == 0;
}

/* The number of continuation bytes after a lead byte, and the range of the first of them; 0: it is
 * no lead byte. */
static uint32_t continuation(uint8_t lead, uint8_t *low_out, uint8_t *high_out)
{
    *low_out = 0x80;
    *high_out = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 1;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        *low_out = lead == 0xe0 ? 0xa0 : 0x80;  /* below are overlong forms */
        *high_out = lead == 0xed ? 0x9f : 0xbf; /* above are surrogates */
        return 2;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *low_out = lead == 0xf0 ? 0x90 : 0x80;
        *high_out = lead == 0xf4 ? 0x8f : 0xbf; /* U+10FFFF is the last */
        return 3;
    }
    return 0;
}

/* The bytes of the character at the start of text; of invalid text, the bytes to replace: as many
 * as could begin a character. */
static uint32_t character_bytes(struct qsi_slice text, bool *valid_out)
{
    uint8_t low;
    uint8_t high;
    uint32_t more;

    *valid_out = true;
    if (text.data[0] < 0x80) {
        return 1;
    }
    more = continuation(text.data[0], &low, &high);
    *valid_out = more > 0;
    for (uint32_t i = 1; i <= more; i++) {
        if (i == text.bytes || text.data[i] < low || text.data[i] > high) {
            *valid_out = false;
            return i;
        }
        low = 0x80;
        high = 0xbf;
    }
    return more + 1;
}

/* Takes the first character of text, or its replacement. */
static struct qsi_slice next_character(struct qsi_slice *text)
{
    bool valid;
    uint32_t bytes = character_bytes(*text, &valid);
    struct qsi_slice character =
        valid ? qsi_slice_make(text->data, bytes) : QSI_SLICE_LITERAL(REPLACEMENT);

    text->data += bytes;
    QS_DCHECK(text->bytes >= bytes);
    text->bytes -= bytes;
    return character;
}

static uint8_t *put_bytes(uint8_t *out, struct qsi_slice bytes)
{
    memcpy(out, bytes.data, bytes.bytes);
    return out + bytes.bytes;
}

qs_status qsi_text_append(struct qsi_buf *buf, struct qsi_slice bytes)
{
    uint8_t *out;

    if (is_ascii(bytes)) {
        return qsi_buf_append(buf, bytes.data, bytes.bytes);
    }
    QS_TRY(qsi_buf_reserve(buf, REPLACEMENT_BYTES * (size_t)bytes.bytes, &out));
    while (bytes.bytes > 0) {
        out = put_bytes(out, next_character(&bytes));
    }
    buf->bytes = (size_t)(out - buf->data);
    return QS_OK;
}

static qs_status append_literal(struct qsi_buf *buf, const char *text)
{
    return qsi_buf_append(buf, text, strlen(text));
}

static uint8_t *put_json_character(uint8_t *out, struct qsi_slice character)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t byte = character.data[0];

    if (byte == '"' || byte == '\\') {
        *out++ = '\\';
        *out++ = byte;
        return out;
    }
    if (byte < 0x20) {
        out = put_bytes(out, QSI_SLICE_LITERAL("\\u00"));
        *out++ = (uint8_t)digits[byte >> 4];
        *out++ = (uint8_t)digits[byte & 15];
        return out;
    }
    return put_bytes(out, character);
}

static qs_status append_json_string(struct qsi_buf *buf, struct qsi_slice text)
{
    uint8_t *out;

    QS_TRY(qsi_buf_reserve(buf, JSON_BYTES_MAX * (size_t)text.bytes + 2, &out));
    *out++ = '"';
    while (text.bytes > 0) {
        out = put_json_character(out, next_character(&text));
    }
    *out++ = '"';
    buf->bytes = (size_t)(out - buf->data);
    return QS_OK;
}

static qs_status append_int(struct qsi_buf *buf, int64_t value)
{
    char text[NUMBER_BYTES_MAX];

    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return append_literal(buf, text);
}

/* Appends the fewest digits that are read back as the same number; 17 always suffice, 9 for a
 * float. */
static qs_status append_double(struct qsi_buf *buf, double value, bool is_float)
{
    char text[NUMBER_BYTES_MAX];
    char *comma;

    if (isnan(value)) {
        return append_literal(buf, "nan");
    }
    for (int digits = is_float ? 6 : 15; digits <= (is_float ? 9 : 17); digits++) {
        double read;

        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        read = strtod(text, NULL);
        if (is_float ? (float)read == (float)value : read == value) {
            break;
        }
    }
    comma = strchr(text, ','); /* in some locales */
    if (comma != NULL) {
        *comma = '.';
    }
    return append_literal(buf, text);
}

/* Appends value / 10^scale exactly. */
static qs_status append_decimal(struct qsi_buf *buf, int32_t value, uint8_t scale)
{
    char text[DECIMAL_BYTES_MAX];
    int digits = scale + 1; /* with leading zeros, so that there is a digit before the point */
    int bytes = snprintf(text, sizeof text, "%s%0*" PRIu32, value < 0 ? "-" : "", digits,
                         value < 0 ? 0u - (uint32_t)value : (uint32_t)value);

    QS_ASSERT(bytes > scale && (size_t)bytes < sizeof text);
    QS_TRY(qsi_buf_append(buf, text, (size_t)(bytes - scale)));
    if (scale == 0) {
        return QS_OK;
    }
    QS_TRY(append_literal(buf, "."));
    return qsi_buf_append(buf, text + bytes - scale, scale);
}

static qs_status append_float(struct qsi_buf *buf, const uint8_t *value)
{
    uint32_t bits = qsi_get_be32(value);
    float number;

    memcpy(&number, &bits, sizeof number);
    return append_double(buf, (double)number, true);
}

static qs_status append_float64(struct qsi_buf *buf, const uint8_t *value)
{
    uint64_t bits = qsi_get_be64(value);
    double number;

    memcpy(&number, &bits, sizeof number);
    return append_double(buf, number, false);
}

static qs_status append_timestamp(struct qsi_buf *buf, uint64_t seconds)
{
    char text[NUMBER_BYTES_MAX];

    (void)snprintf(text, sizeof text, "%" PRIu64, seconds);
    return append_literal(buf, text);
}

static qs_status append_nested(struct qsi_buf *buf, const struct qsi_field *field);

static qs_status append_scalar(struct qsi_buf *buf, const struct qsi_field *field)
{
    const uint8_t *value = field->value.data;

    switch (field->type) {
    case 't':
        return append_literal(buf, *value != 0 ? "true" : "false");
    case 'b':
        return append_int(buf, (int8_t)*value);
    case 'B':
        return append_int(buf, *value);
    case 's':
        return append_int(buf, (int16_t)qsi_get_be16(value));
    case 'u':
        return append_int(buf, qsi_get_be16(value));
    case 'I':
        return append_int(buf, (int32_t)qsi_get_be32(value));
    case 'i':
        return append_int(buf, qsi_get_be32(value));
    case 'l':
        return append_int(buf, (int64_t)qsi_get_be64(value));
    case 'f':
        return append_float(buf, value);
    case 'd':
        return append_float64(buf, value);
    case 'D':
        return append_decimal(buf, (int32_t)qsi_get_be32(value + 1), *value);
    case 'T':
        return append_timestamp(buf, qsi_get_be64(value));
    default:
        return append_literal(buf, "null");
    }
}

/* The depth of recursion is that of the table, which was checked to be at most
 * QSI_FIELD_DEPTH_MAX. */
static qs_status append_json(struct qsi_buf *buf, const struct qsi_field *field)
{
    switch (field->type) {
    case 'S':
    case 'x':
        return append_json_string(buf, field->value);
    case 'A':
    case 'F':
        return append_nested(buf, field);
    default:
        return append_scalar(buf, field);
    }
}

static qs_status append_nested(struct qsi_buf *buf, const struct qsi_field *field)
{
    bool table = field->type == 'F';
    struct qsi_field_walk walk =
        table ? qsi_table_walk(field->value) : qsi_array_walk(field->value);
    struct qsi_field inner;
    const char *separator = "";

    QS_TRY(append_literal(buf, table ? "{" : "["));
    while (qsi_field_next(&walk, &inner)) {
        QS_TRY(append_literal(buf, separator));
        separator = ", ";
        if (table) {
            QS_TRY(append_json_string(buf, inner.name));
            QS_TRY(append_literal(buf, ": "));
        }
        QS_TRY(append_json(buf, &inner));
    }
    return append_literal(buf, table ? "}" : "]");
}

qs_status qsi_field_text_append(struct qsi_buf *buf, const struct qsi_field *field)
{
    if (field->type == 'S' || field->type == 'x') {
        return qsi_text_append(buf, field->value);
    }
    return append_json(buf, field);
}
