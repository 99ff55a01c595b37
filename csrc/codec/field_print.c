/* Values of field tables in error texts. */
#include "field_print.h"

#include "check.h"
#include "le.h"

#include <inttypes.h>
#include <stdio.h>

const char *qsi_field_type_name(uint8_t type)
{
    switch (type) {
    case 't':
        return "bool";
    case 'b':
        return "byte";
    case 'B':
        return "unsignedbyte";
    case 's':
        return "short";
    case 'u':
        return "unsignedshort";
    case 'I':
        return "signedint";
    case 'i':
        return "unsignedint";
    case 'l':
        return "long";
    case 'f':
        return "float";
    case 'd':
        return "double";
    case 'D':
        return "decimal";
    case 'S':
        return "longstr";
    case 'x':
        return "binary";
    case 'T':
        return "timestamp";
    case 'A':
        return "array";
    case 'F':
        return "table";
    case 'V':
        return "void";
    default:
        return "unknown";
    }
}

static double double_of(const struct qsi_field *field)
{
    QS_DCHECK(field->value.bytes == (field->type == 'f' ? 4 : 8));
    double value;
    float single;
    uint32_t bits;
    uint64_t long_bits;

    if (field->type == 'f') {
        bits = qsi_get_be32(field->value.data);
        memcpy(&single, &bits, sizeof single);
        return single;
    }
    long_bits = qsi_get_be64(field->value.data);
    memcpy(&value, &long_bits, sizeof value);
    return value;
}

static bool is_text(const struct qsi_field *field)
{
    return field->type == 'S' || field->type == 'x';
}

static void print_text(char *out, const struct qsi_field *field)
{
    QS_DCHECK(is_text(field));
    snprintf(out, QSI_FIELD_PRINT_BYTES, "%.*s", (int)field->value.bytes,
             (const char *)field->value.data);
}

void qsi_field_print_value(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field)
{
    struct qsi_number number;

    text_out[0] = '\0';
    if (field == NULL) {
        return;
    }
    if (is_text(field)) {
        print_text(text_out, field);
    } else if (qsi_field_integer(field, &number)) {
        if (number.is_negative) {
            snprintf(text_out, QSI_FIELD_PRINT_BYTES, "%" PRId64, (int64_t)number.bits);
        } else {
            snprintf(text_out, QSI_FIELD_PRINT_BYTES, "%" PRIu64, number.bits);
        }
    } else if (field->type == 'f' || field->type == 'd') {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "%.17g", double_of(field));
    } else if (field->type == 'D') {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "{%u,%" PRIu32 "}", field->value.data[0],
                 qsi_get_be32(field->value.data + 1));
    } else if (field->type == 't') {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "%s", field->value.data[0] ? "true" : "false");
    } else if (field->type == 'V') {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "undefined");
    } else {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, field->value.bytes > 0 ? "[...]" : "[]");
    }
}

void qsi_field_print_term(char text_out[QSI_FIELD_PRINT_BYTES], const struct qsi_field *field)
{
    static const int quoted_max = QSI_FIELD_PRINT_BYTES - (int)sizeof "<<\"\">>";
    uint32_t bytes = field->value.bytes;

    if (!is_text(field)) {
        qsi_field_print_value(text_out, field);
    } else if (bytes == 0) {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "<<>>");
    } else {
        snprintf(text_out, QSI_FIELD_PRINT_BYTES, "<<\"%.*s\">>",
                 bytes < (uint32_t)quoted_max ? (int)bytes : quoted_max,
                 (const char *)field->value.data);
    }
}
