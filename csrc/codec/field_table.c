/* AMQP's field tables and arrays: walking, lookup, checking and writing. */
#include "field_table.h"

#include "check.h"
#include "cursor.h"
#include "le.h"

#define VALUE_BYTES_COUNTED -1 /* a 32-bit length comes first */
#define VALUE_BYTES_UNKNOWN -2

static int value_bytes(uint8_t type)
{
    switch (type) {
    case 'V':
        return 0;
    case 't':
    case 'b':
    case 'B':
        return 1;
    case 's':
    case 'u':
        return 2;
    case 'I':
    case 'i':
    case 'f':
        return 4;
    case 'D':
        return 5;
    case 'l':
    case 'd':
    case 'T':
        return 8;
    case 'S':
    case 'x':
    case 'A':
    case 'F':
        return VALUE_BYTES_COUNTED;
    default:
        return VALUE_BYTES_UNKNOWN;
    }
}

static bool take_value(struct qsi_cursor *cursor, struct qsi_field *field)
{
    const uint8_t *type = qsi_take(cursor, 1);
    const uint8_t *value;
    int bytes;

    if (type == NULL) {
        return false;
    }
    field->type = *type;
    bytes = value_bytes(*type);
    if (bytes == VALUE_BYTES_COUNTED) {
        return qsi_take_long_string(cursor, &field->value);
    }
    if (bytes == VALUE_BYTES_UNKNOWN) {
        return false;
    }
    value = qsi_take(cursor, (size_t)bytes);
    field->value = qsi_slice_make(value, (uint32_t)bytes);
    return value != NULL;
}

bool qsi_field_next(struct qsi_field_walk *walk, struct qsi_field *field_out)
{
    struct qsi_cursor cursor = {walk->at, walk->end};

    QS_DCHECK(walk->at <= walk->end && !walk->malformed);
    if (walk->at == walk->end) {
        return false;
    }
    field_out->name = QSI_SLICE_NULL;
    if ((walk->named && !qsi_take_short_string(&cursor, &field_out->name)) ||
        !take_value(&cursor, field_out)) {
        walk->malformed = true;
        return false;
    }
    QS_DCHECK(cursor.at > walk->at && cursor.at <= walk->end);
    walk->at = cursor.at;
    return true;
}

static struct qsi_number number_of(int64_t value)
{
    return (struct qsi_number){(uint64_t)value, value < 0};
}

bool qsi_field_integer(const struct qsi_field *field, struct qsi_number *number_out)
{
    const uint8_t *value = field->value.data;

    switch (field->type) {
    case 'b':
        *number_out = number_of((int8_t)*value);
        return true;
    case 'B':
        *number_out = number_of(*value);
        return true;
    case 's':
        *number_out = number_of((int16_t)qsi_get_be16(value));
        return true;
    case 'u':
        *number_out = number_of(qsi_get_be16(value));
        return true;
    case 'I':
        *number_out = number_of((int32_t)qsi_get_be32(value));
        return true;
    case 'i':
        *number_out = number_of(qsi_get_be32(value));
        return true;
    case 'l':
        *number_out = number_of((int64_t)qsi_get_be64(value));
        return true;
    case 'T':
        *number_out = (struct qsi_number){qsi_get_be64(value), false};
        return true;
    default:
        return false;
    }
}

bool qsi_table_find(struct qsi_slice table, struct qsi_slice name, struct qsi_field *field_out)
{
    struct qsi_field_walk walk = qsi_table_walk(table);

    while (qsi_field_next(&walk, field_out)) {
        if (qsi_slice_equals(field_out->name, name)) {
            return true;
        }
    }
    return false;
}

bool qsi_table_check(struct qsi_slice table)
{
    struct qsi_field_walk levels[QSI_FIELD_DEPTH_MAX];
    struct qsi_field field;
    unsigned depth = 0;

    levels[0] = qsi_table_walk(table);
    for (;;) {
        QS_DCHECK(depth < QSI_FIELD_DEPTH_MAX);
        if (qsi_field_next(&levels[depth], &field)) {
            if (field.type != 'F' && field.type != 'A') {
                continue;
            }
            if (depth + 1 == QSI_FIELD_DEPTH_MAX) {
                return false;
            }
            levels[++depth] =
                field.type == 'F' ? qsi_table_walk(field.value) : qsi_array_walk(field.value);
        } else if (levels[depth].malformed) {
            return false;
        } else if (depth-- == 0) {
            return true;
        }
    }
}

uint64_t qsi_table_string_bytes(struct qsi_slice name, struct qsi_slice value)
{
    return 1 + (uint64_t)name.bytes + 1 +
           (qsi_slice_is_null(value) ? 0 : 4 + (uint64_t)value.bytes);
}

uint8_t *qsi_table_string_put(uint8_t *out, struct qsi_slice name, struct qsi_slice value)
{
    QS_DCHECK(name.bytes <= UINT8_MAX);
    out = qsi_put_short_string(out, name);
    if (qsi_slice_is_null(value)) {
        *out++ = 'V';
        return out;
    }
    *out++ = 'S';
    qsi_put_be32(out, value.bytes);
    return qsi_put_bytes(out + 4, value);
}
