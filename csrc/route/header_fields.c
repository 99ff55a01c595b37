/* Reading header fields for comparison. */
#include "header_fields.h"

#include "check.h"
#include "field_table.h"
#include "le.h"

#include <stdlib.h>
#include <string.h>

/* -- numbers ---------------------------------------------------------------------------------- */

#define TWO_TO_63 9223372036854775808.0
#define TWO_TO_64 18446744073709551616.0

static struct qsi_header_value value_of_bits(uint8_t kind, uint64_t bits)
{
    return (struct qsi_header_value){.kind = kind, .bits = bits};
}

static struct qsi_header_value value_of_integer(struct qsi_number number)
{
    return value_of_bits(number.is_negative ? 'j' : 'i', number.bits);
}

/* A whole number becomes the equal integer; values beyond 64 bits stay floats. */
static struct qsi_header_value value_of_double(double number)
{
    uint64_t bits;

    if (number != number) { /* a NaN */
        return value_of_bits(QSI_HEADER_NOTHING, 0);
    }
    if (number < 0 && number >= -TWO_TO_63 && number == (double)(int64_t)number) {
        return value_of_bits('j', (uint64_t)(int64_t)number);
    }
    if (number >= 0 && number < TWO_TO_64 && number == (double)(uint64_t)number) {
        return value_of_bits('i', (uint64_t)number);
    }
    memcpy(&bits, &number, sizeof bits);
    return value_of_bits('f', bits);
}

static double read_float(const uint8_t *at)
{
    uint32_t bits = qsi_get_be32(at);
    float number;

    memcpy(&number, &bits, sizeof number);
    return number;
}

static double read_double(const uint8_t *at)
{
    uint64_t bits = qsi_get_be64(at);
    double number;

    memcpy(&number, &bits, sizeof number);
    return number;
}

/* -- arrays and tables ------------------------------------------------------------------------ */

static struct qsi_field_walk walk_of(uint8_t type, struct qsi_slice value)
{
    QS_DCHECK(type == 'F' || type == 'A');
    return type == 'F' ? qsi_table_walk(value) : qsi_array_walk(value);
}

/* Normalises a value with several encodings.  False: a NaN. */
static bool normalize_field(const struct qsi_field *field)
{
    uint8_t *value = (uint8_t *)field->value.data; /* in the copy */
    double number;

    if (field->type == 't') {
        *value = *value != 0;
    } else if (field->type == 'f' || field->type == 'd') {
        number = field->type == 'f' ? read_float(value) : read_double(value);
        if (number == 0) {
            memset(value, 0, field->value.bytes); /* the positive zero */
        }
        return number == number; /* false for a NaN */
    }
    return true;
}

/* Normalises a copy of an array or a table down to its nested values.  False: it equals no
 * value. */
static bool normalize(uint8_t type, struct qsi_slice copy)
{
    struct qsi_field_walk levels[QSI_FIELD_DEPTH_MAX];
    struct qsi_field field;
    unsigned depth = 0;

    levels[0] = walk_of(type, copy);
    for (;;) {
        if (qsi_field_next(&levels[depth], &field)) {
            if (!normalize_field(&field)) {
                return false;
            }
            if (field.type != 'F' && field.type != 'A') {
                continue;
            }
            if (depth + 1 == QSI_FIELD_DEPTH_MAX) {
                return false;
            }
            levels[++depth] = walk_of(field.type, field.value);
        } else if (levels[depth].malformed) {
            return false;
        } else if (depth-- == 0) {
            return true;
        }
    }
}

static struct qsi_header_value value_of_parts(const struct qsi_field *field, struct qsi_buf *copies)
{
    uint8_t *copy = copies->data + copies->bytes; /* there is room for the whole table */
    struct qsi_slice bytes = qsi_slice_make(copy, field->value.bytes);

    QS_DCHECK(copies->bytes + field->value.bytes <= copies->capacity);
    if (field->value.bytes == 0) {
        return value_of_bits('L', 0);
    }
    memcpy(copy, field->value.data, field->value.bytes);
    copies->bytes += field->value.bytes;
    if (!normalize(field->type, bytes)) {
        return value_of_bits(QSI_HEADER_NOTHING, 0);
    }
    return (struct qsi_header_value){.kind = field->type, .bytes = bytes};
}

/* -- fields ----------------------------------------------------------------------------------- */

static struct qsi_header_value value_of(const struct qsi_field *field, struct qsi_buf *copies)
{
    struct qsi_number number;

    if (qsi_field_integer(field, &number)) {
        return value_of_integer(number);
    }
    switch (field->type) {
    case 'f':
        return value_of_double(read_float(field->value.data));
    case 'd':
        return value_of_double(read_double(field->value.data));
    case 't':
        return value_of_bits('t', *field->value.data != 0);
    case 'V':
        return value_of_bits(QSI_HEADER_VOID, 0);
    case 'D':
        return (struct qsi_header_value){.kind = 'D', .bytes = field->value};
    case 'A':
    case 'F':
        return value_of_parts(field, copies);
    default: /* S and x */
        return (struct qsi_header_value){.kind = 'S', .bytes = field->value};
    }
}

int qsi_header_compare(const struct qsi_header_field *a, const struct qsi_header_field *b)
{
    int order = qsi_slice_compare(a->name, b->name);

    return order != 0 ? order : (a->occurrence > b->occurrence) - (a->occurrence < b->occurrence);
}

/* For qsort, before occurrences are counted: fields with equal names keep their order. */
static int compare_places(const void *left, const void *right)
{
    const struct qsi_header_field *a = left, *b = right;
    int order = qsi_slice_compare(a->name, b->name);

    return order != 0 ? order : (a->name.data > b->name.data) - (a->name.data < b->name.data);
}

/* Fields are usually sorted already: this library writes them so. */
static void sort(struct qsi_header_fields *fields)
{
    for (uint32_t i = 1; i < fields->count; i++) {
        if (compare_places(&fields->items[i - 1], &fields->items[i]) > 0) {
            qsort(fields->items, fields->count, sizeof *fields->items, compare_places);
            break;
        }
    }
    for (uint32_t i = 1; i < fields->count; i++) {
        QS_DCHECK(compare_places(&fields->items[i - 1], &fields->items[i]) <= 0);
        if (qsi_slice_compare(fields->items[i - 1].name, fields->items[i].name) == 0) {
            fields->items[i].occurrence = fields->items[i - 1].occurrence + 1;
        }
    }
}

qs_status qsi_header_fields_read(struct qsi_header_fields *fields, struct qsi_slice table)
{
    struct qsi_field_walk walk = qsi_table_walk(table);
    struct qsi_field field;
    uint8_t *room;

    qsi_buf_clear(&fields->fields);
    qsi_buf_clear(&fields->copies);
    QS_TRY(qsi_buf_reserve(&fields->copies, table.bytes, &room));
    while (qsi_field_next(&walk, &field)) {
        const struct qsi_header_field read = {.name = field.name,
                                              .value = value_of(&field, &fields->copies)};

        QS_TRY(qsi_buf_append(&fields->fields, &read, sizeof read));
    }
    fields->items = (struct qsi_header_field *)(void *)fields->fields.data;
    fields->count = (uint32_t)(fields->fields.bytes / sizeof *fields->items);
    sort(fields);
    return QS_OK;
}

void qsi_header_fields_fini(struct qsi_header_fields *fields)
{
    qsi_buf_fini(&fields->fields);
    qsi_buf_fini(&fields->copies);
    *fields = (struct qsi_header_fields){0};
}

bool qsi_header_equals(const struct qsi_header_value *a, const struct qsi_header_value *b)
{
    return a->kind == b->kind && a->bits == b->bits && a->bytes.bytes == b->bytes.bytes &&
           a->kind != QSI_HEADER_NOTHING &&
           (a->bytes.bytes == 0 || memcmp(a->bytes.data, b->bytes.data, a->bytes.bytes) == 0);
}
