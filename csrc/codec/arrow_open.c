/* Opening a record batch: types, structure and contents are checked here, once, so that reading is
 * free of it.
 *
 * Invariant: no byte of a buffer is looked at before it was copied, so what was checked is what is
 * used.
 *
 * Arrays come from other libraries and may be made by hand.  What the interface lets us check is
 * checked; null slots may hold anything, so the fast passes over whole columns only tell "nothing
 * to see" from "look at each row", and only the row by row pass condemns. */
#include "alloc.h"
#include "arrow_read.h"
#include "arrow_words.h"
#include "check.h"
#include "error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Keeps sums and products of positions within 64 bits, and is beyond any memory. */
#define POSITIONS_MAX ((int64_t)1 << 48)
#define VIEW_BYTES 16
#define VIEW_INLINE_BYTES 12
#define WORDS_BYTES 64 /* of a type's name */

/* An array under examination, and how error texts call it. */
struct column {
    const char *name; /* NULL: the batch itself */
    const char *part; /* "", or which array inside the column */
    const char *unit; /* what the array has one of per position */
    const struct ArrowSchema *schema;
    const struct ArrowArray *array;
    struct qsi_arrow_copy **copies; /* of the batch */
    uint64_t first;                 /* position of row 0, the array's own offset included */
    uint64_t rows;
    uint64_t rows_before; /* in the record batches before this one: errors count from the first */
    qs_error *error;
};

static const uint8_t no_bytes[1]; /* what empty strings without a buffer point to */

static qs_status fail_column(const struct column *column, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static qs_status fail_row(const struct column *column, uint64_t row, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static qs_status fail_column(const struct column *column, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (column->name == NULL) {
        return qsi_fail(column->error, QS_EINVAL, "record batch: %s", text);
    }
    return qsi_fail(column->error, QS_EINVAL, "column \"%s\"%s: %s", column->name, column->part,
                    text);
}

static qs_status fail_row(const struct column *column, uint64_t row, const char *format, ...)
{
    char text[QS_ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (strcmp(column->unit, "row") == 0) {
        row += column->rows_before;
    }
    return qsi_fail(column->error, QS_EINVAL, "%s %" PRIu64 ": %s%s %s", column->unit, row,
                    column->name, column->part, text);
}

/* ---- copies of the caller's buffers ---- */

struct qsi_arrow_copy {
    struct qsi_arrow_copy *next;
    uint8_t data[];
};

static qs_status make_copy(const struct column *column, uint64_t bytes, uint8_t **data_out)
{
    struct qsi_arrow_copy *copy =
        bytes <= SIZE_MAX - sizeof *copy ? qsi_alloc(sizeof *copy + (size_t)bytes) : NULL;

    if (copy == NULL) {
        return qsi_fail(column->error, QS_ENOMEM, "copy of column \"%s\"",
                        column->name != NULL ? column->name : "");
    }
    copy->next = *column->copies;
    *column->copies = copy;
    *data_out = copy->data;
    return QS_OK;
}

static qs_status copy_bytes(const struct column *column, const void *data, uint64_t bytes,
                            const uint8_t **copy_out)
{
    uint8_t *copy;

    QS_TRY(make_copy(column, bytes, &copy));
    if (bytes > 0) {
        memcpy(copy, data, (size_t)bytes);
    }
    *copy_out = copy;
    return QS_OK;
}

void qsi_arrow_batch_close(struct qsi_arrow_batch *batch)
{
    while (batch->copies != NULL) {
        struct qsi_arrow_copy *next = batch->copies->next;

        qsi_free(batch->copies);
        batch->copies = next;
    }
}

static qs_status fail_type(const struct column *column, const char *expected)
{
    char words[WORDS_BYTES];

    qsi_arrow_type_words(column->schema, words, sizeof words);
    return fail_column(column, "Arrow's %s cannot be used, expected %s", words, expected);
}

/* ---- structure ---- */

static qs_status check_structure(const struct column *column, int64_t buffers_min,
                                 int64_t buffers_max, int64_t children)
{
    const struct ArrowArray *array = column->array;

    if (array->length < 0 || array->offset < 0 || array->length > POSITIONS_MAX ||
        array->offset > POSITIONS_MAX) {
        return fail_column(column, "length %" PRId64 " at offset %" PRId64 " is impossible",
                           array->length, array->offset);
    }
    if (array->null_count < -1) {
        return fail_column(column, "null count %" PRId64 " is impossible", array->null_count);
    }
    if (column->first + column->rows > (uint64_t)array->offset + (uint64_t)array->length) {
        return fail_column(column,
                           "length %" PRId64 " is less than the %" PRIu64 " that are needed",
                           array->length, column->first + column->rows - (uint64_t)array->offset);
    }
    if (array->n_buffers < buffers_min || array->n_buffers > buffers_max ||
        array->buffers == NULL) {
        return fail_column(column, "%" PRId64 " buffers, expected %" PRId64, array->n_buffers,
                           buffers_min);
    }
    if (array->n_children != children || column->schema->n_children != children) {
        return fail_column(column, "%" PRId64 " children, expected %" PRId64, array->n_children,
                           children);
    }
    return QS_OK;
}

/* The bits of the rows in use; *offset_out: that of row 0. */
static qs_status open_validity(const struct column *column, const uint8_t **validity_out,
                               uint64_t *offset_out)
{
    const uint8_t *bits = column->array->null_count == 0 ? NULL : column->array->buffers[0];

    *validity_out = NULL;
    *offset_out = column->first % 8;
    if (bits == NULL && column->array->null_count > 0) {
        return fail_column(column, "%" PRId64 " nulls, but no validity buffer",
                           column->array->null_count);
    }
    if (bits == NULL || column->rows == 0) {
        return QS_OK;
    }
    return copy_bytes(column, bits + column->first / 8, (*offset_out + column->rows + 7) / 8,
                      validity_out);
}

/* The first cleared bit of count, or count. */
static uint64_t first_null(const uint8_t *validity, uint64_t offset, uint64_t count)
{
    uint64_t row = 0;

    if (validity == NULL) {
        return count;
    }
    while (row < count) {
        uint64_t word;

        if ((offset + row) % 8 == 0 && count - row >= 64) {
            memcpy(&word, validity + (offset + row) / 8, sizeof word);
            if (word == UINT64_MAX) {
                row += 64;
                continue;
            }
        }
        if (!qsi_arrow_bit(validity, offset + row)) {
            return row;
        }
        row++;
    }
    return count;
}

/* ---- integers ---- */

static uint64_t integer_bytes(enum qsi_arrow_integer type)
{
    return 1u << (type - QSI_ARROW_INT8) / 2;
}

static enum qsi_arrow_integer integer_type(const char *format)
{
    static const char letters[] = "cCsSiIlL"; /* in the order of the enumeration */
    const char *letter = format[0] == '\0' || format[1] != '\0' ? NULL : strchr(letters, format[0]);

    return letter == NULL ? QSI_ARROW_NONE
                          : (enum qsi_arrow_integer)(QSI_ARROW_INT8 + (letter - letters));
}

static qs_status open_integers(const struct column *column, struct qsi_arrow_integers *integers_out,
                               enum qsi_arrow_integer type)
{
    const uint8_t *values;

    QS_TRY(check_structure(column, 2, 2, 0));
    QS_TRY(open_validity(column, &integers_out->validity, &integers_out->validity_offset));
    values = column->array->buffers[1];
    if (values == NULL && column->rows > 0) {
        return fail_column(column, "no values buffer");
    }
    integers_out->type = type;
    integers_out->values = no_bytes;
    if (column->rows == 0) {
        return QS_OK;
    }
    return copy_bytes(column, values + column->first * integer_bytes(type),
                      column->rows * integer_bytes(type), &integers_out->values);
}

/* Whether all slots lie in [low, low + count): one subtraction and one comparison each. */
static bool all_within(const struct qsi_arrow_integers *integers, uint64_t rows, int64_t low,
                       uint64_t count)
{
    bool outside = false;

#define EACH_OF(type)                                                              \
    for (uint64_t row = 0; row < rows; row++) {                                    \
        uint64_t value = (uint64_t)(int64_t)((const type *)integers->values)[row]; \
        outside |= value - (uint64_t)low >= count;                                 \
    }                                                                              \
    break

    switch (integers->type) {
    case QSI_ARROW_INT8:
        EACH_OF(qsi_arrow_i8);
    case QSI_ARROW_UINT8:
        EACH_OF(qsi_arrow_u8);
    case QSI_ARROW_INT16:
        EACH_OF(qsi_arrow_i16);
    case QSI_ARROW_UINT16:
        EACH_OF(qsi_arrow_u16);
    case QSI_ARROW_INT32:
        EACH_OF(qsi_arrow_i32);
    case QSI_ARROW_UINT32:
        EACH_OF(qsi_arrow_u32);
    case QSI_ARROW_INT64:
    case QSI_ARROW_UINT64: /* beyond int64 is negative, and nothing below allows that */
        EACH_OF(qsi_arrow_i64);
    case QSI_ARROW_NONE:
        break;
    }
#undef EACH_OF
    return !outside;
}

/* The first row that is not null and lies outside, or rows. */
static uint64_t first_outside(const struct qsi_arrow_integers *integers, uint64_t rows, int64_t low,
                              uint64_t count)
{
    if (all_within(integers, rows, low, count)) {
        return rows;
    }
    for (uint64_t row = 0; row < rows; row++) {
        uint64_t value = (uint64_t)qsi_arrow_integer_at(integers, row);

        if (!qsi_arrow_is_null(integers->validity, integers->validity_offset, row) &&
            value - (uint64_t)low >= count) {
            return row;
        }
    }
    return rows;
}

static qs_status fail_outside(const struct column *column,
                              const struct qsi_arrow_integers *integers, uint64_t row, int64_t low,
                              uint64_t count)
{
    int64_t value = qsi_arrow_integer_at(integers, row);

    if (integers->type == QSI_ARROW_UINT64) {
        return fail_row(column, row, "is %" PRIu64 ", must be %" PRId64 " to %" PRIu64,
                        (uint64_t)value, low, (uint64_t)low + count - 1);
    }
    return fail_row(column, row, "is %" PRId64 ", must be %" PRId64 " to %" PRIu64, value, low,
                    (uint64_t)low + count - 1);
}

/* ---- strings ---- */

/* "w:16" */
static bool fixed_width(const char *format, uint32_t *width_out)
{
    uint64_t width = 0;

    if (strncmp(format, "w:", 2) != 0 || format[2] == '\0') {
        return false;
    }
    for (const char *digit = format + 2; *digit != '\0'; digit++) {
        if (*digit < '0' || *digit > '9' || width > INT32_MAX) {
            return false;
        }
        width = width * 10 + (uint64_t)(*digit - '0');
    }
    *width_out = (uint32_t)width;
    return width <= INT32_MAX;
}

static enum qsi_arrow_layout string_layout(const char *format, bool binary, uint32_t *width_out)
{
    if (strcmp(format, "u") == 0 || (binary && strcmp(format, "z") == 0)) {
        return QSI_ARROW_OFFSETS32;
    }
    if (strcmp(format, "U") == 0 || (binary && strcmp(format, "Z") == 0)) {
        return QSI_ARROW_OFFSETS64;
    }
    if (strcmp(format, "vu") == 0 || (binary && strcmp(format, "vz") == 0)) {
        return QSI_ARROW_VIEWS;
    }
    return binary && fixed_width(format, width_out) ? QSI_ARROW_FIXED : QSI_ARROW_ABSENT;
}

/* Offsets are in order when none is negative and no difference is: all their sign bits are clear. */
static bool ascend32(const qsi_arrow_i32 *offsets, uint64_t count)
{
    uint32_t signs = (uint32_t)offsets[0];

    for (uint64_t i = 0; i < count; i++) {
        signs |= (uint32_t)offsets[i + 1] | ((uint32_t)offsets[i + 1] - (uint32_t)offsets[i]);
    }
    return signs >> 31 == 0;
}

/* The same; a difference must also fit 32 bits. */
static bool ascend64(const qsi_arrow_i64 *offsets, uint64_t count)
{
    uint64_t signs = (uint64_t)offsets[0];
    uint64_t differences = 0;

    for (uint64_t i = 0; i < count; i++) {
        signs |= (uint64_t)offsets[i + 1];
        differences |= (uint64_t)offsets[i + 1] - (uint64_t)offsets[i];
    }
    return signs >> 63 == 0 && differences >> 32 == 0;
}

static int64_t offset_at(const struct qsi_arrow_strings *strings, uint64_t index)
{
    if (strings->layout == QSI_ARROW_OFFSETS32) {
        return ((const qsi_arrow_i32 *)strings->places)[index];
    }
    return ((const qsi_arrow_i64 *)strings->places)[index];
}

/* Names the row whose offsets made the fast pass fail. */
static qs_status fail_offsets(const struct column *column, const struct qsi_arrow_strings *strings)
{
    for (uint64_t row = 0; row < column->rows; row++) {
        int64_t from = offset_at(strings, row);
        int64_t to = offset_at(strings, row + 1);

        if (from < 0 || to < from) {
            return fail_row(column, row, "has impossible offsets %" PRId64 " to %" PRId64, from,
                            to);
        }
        if (to - from > UINT32_MAX) {
            return fail_row(column, row, "has %" PRId64 " bytes, at most %" PRIu32 " are possible",
                            to - from, UINT32_MAX);
        }
    }
    return fail_column(column, "impossible offsets");
}

/* The offsets' bytes, copied; in order and not negative. */
static qs_status copy_offsets(const struct column *column, struct qsi_arrow_strings *strings)
{
    const uint8_t *places = column->array->buffers[1];
    uint64_t each = strings->layout == QSI_ARROW_OFFSETS32 ? 4 : 8;
    bool ascend;

    if (places == NULL) {
        return fail_column(column, "no offsets buffer");
    }
    QS_TRY(copy_bytes(column, places + each * column->first, each * (column->rows + 1),
                      &strings->places));
    ascend = strings->layout == QSI_ARROW_OFFSETS32
                 ? ascend32((const qsi_arrow_i32 *)strings->places, column->rows)
                 : ascend64((const qsi_arrow_i64 *)strings->places, column->rows);
    return ascend ? QS_OK : fail_offsets(column, strings);
}

/* Of the bytes, those that the rows in use have, and the offsets moved to fit them. */
static qs_status copy_data(const struct column *column, struct qsi_arrow_strings *strings)
{
    int64_t from = offset_at(strings, 0);
    int64_t to = offset_at(strings, column->rows);
    uint8_t *places = (uint8_t *)(uintptr_t)strings->places; /* a copy already */

    QS_TRY(copy_bytes(column, strings->data + from, (uint64_t)(to - from), &strings->data));
    for (uint64_t i = 0; i <= column->rows; i++) {
        if (strings->layout == QSI_ARROW_OFFSETS32) {
            ((qsi_arrow_i32 *)places)[i] -= (int32_t)from;
        } else {
            ((qsi_arrow_i64 *)places)[i] -= from;
        }
    }
    return QS_OK;
}

static qs_status open_offsets(const struct column *column, struct qsi_arrow_strings *strings,
                              bool is_body)
{
    QS_TRY(copy_offsets(column, strings));
    if (column->array->buffers[2] != NULL) {
        strings->data = column->array->buffers[2];
    } else if (offset_at(strings, column->rows) > 0) {
        return fail_column(column, "no data buffer");
    }
    return is_body ? QS_OK : copy_data(column, strings);
}

static qs_status check_view(const struct column *column, const struct qsi_arrow_strings *strings,
                            const qsi_arrow_i64 *sizes, uint64_t row)
{
    const qsi_arrow_i32 *view = (const qsi_arrow_i32 *)(strings->places + row * VIEW_BYTES);
    uint64_t variadic_count = (uint64_t)column->array->n_buffers - 3;
    int32_t bytes = view[0];

    if (bytes < 0) {
        return fail_row(column, row, "has impossible length %" PRId32, bytes);
    }
    if (bytes <= VIEW_INLINE_BYTES) {
        return QS_OK;
    }
    if (view[2] < 0 || (uint64_t)view[2] >= variadic_count) {
        return fail_row(column, row, "lies in data buffer %" PRId32 " of %" PRIu64, view[2],
                        variadic_count);
    }
    if (view[3] < 0 || (int64_t)view[3] + bytes > sizes[view[2]] ||
        strings->variadic[view[2]] == NULL) {
        return fail_row(column, row,
                        "lies outside data buffer %" PRId32 ": %" PRId32 " bytes at %" PRId32
                        " of %" PRId64,
                        view[2], bytes, view[3], (int64_t)sizes[view[2]]);
    }
    return QS_OK;
}

/* The strings, one behind the other, with 64-bit offsets instead of views. */
static qs_status flatten_views(const struct column *column, struct qsi_arrow_strings *strings)
{
    struct qsi_arrow_strings flat = *strings;
    qsi_arrow_i64 *offsets;
    uint8_t *places, *data;
    uint64_t bytes = 0;

    QS_TRY(make_copy(column, 8 * (column->rows + 1), &places));
    offsets = (qsi_arrow_i64 *)places;
    offsets[0] = 0;
    for (uint64_t row = 0; row < column->rows; row++) {
        bytes += qsi_arrow_string(strings, row).bytes;
        offsets[row + 1] = (int64_t)bytes;
    }
    QS_TRY(make_copy(column, bytes, &data));
    for (uint64_t row = 0; row < column->rows; row++) {
        struct qsi_slice string = qsi_arrow_string(strings, row);

        if (string.bytes > 0) {
            memcpy(data + offsets[row], string.data, string.bytes);
        }
    }
    flat.layout = QSI_ARROW_OFFSETS64;
    flat.places = places;
    flat.data = data;
    *strings = flat;
    return QS_OK;
}

/* Buffers: validity, views, any number with data, the sizes of those. */
static qs_status open_views(const struct column *column, struct qsi_arrow_strings *strings,
                            bool is_body)
{
    const struct ArrowArray *array = column->array;
    const uint8_t *views = array->buffers[1];
    const uint8_t *sizes = array->buffers[array->n_buffers - 1];

    if (views == NULL || (sizes == NULL && array->n_buffers > 3)) {
        return fail_column(column, "no views buffer, or no sizes of the data buffers");
    }
    QS_TRY(copy_bytes(column, views + VIEW_BYTES * column->first, VIEW_BYTES * column->rows,
                      &strings->places));
    QS_TRY(copy_bytes(column, sizes, 8 * ((uint64_t)array->n_buffers - 3), &sizes));
    strings->variadic = array->buffers + 2;
    for (uint64_t row = 0; row < column->rows; row++) {
        if (!qsi_arrow_is_null(strings->validity, strings->validity_offset, row)) {
            QS_TRY(check_view(column, strings, (const qsi_arrow_i64 *)sizes, row));
        }
    }
    return is_body ? QS_OK : flatten_views(column, strings);
}

static qs_status open_fixed(const struct column *column, struct qsi_arrow_strings *strings)
{
    const uint8_t *data = column->array->buffers[1];
    uint64_t end;

    if (qsi_mul_overflows(column->first + column->rows, strings->width, &end) || end > INT64_MAX) {
        return fail_column(column, "%" PRIu64 " values of %" PRIu32 " bytes are impossible",
                           column->rows, strings->width);
    }
    if (data != NULL) {
        strings->data = data + column->first * strings->width;
    } else if (end > 0) {
        return fail_column(column, "no data buffer");
    }
    return QS_OK;
}

/* Any string type, and binary ones too for a body; no dictionary. */
static qs_status open_strings(const struct column *column, struct qsi_arrow_strings *strings_out,
                              bool is_body, const char *expected)
{
    int64_t buffers = 3;

    strings_out->layout = string_layout(column->schema->format, is_body, &strings_out->width);
    if (strings_out->layout == QSI_ARROW_ABSENT || column->schema->dictionary != NULL) {
        return fail_type(column, expected);
    }
    if (strings_out->layout == QSI_ARROW_FIXED) {
        buffers = 2;
    }
    QS_TRY(check_structure(column, buffers,
                           strings_out->layout == QSI_ARROW_VIEWS ? INT32_MAX : buffers, 0));
    QS_TRY(open_validity(column, &strings_out->validity, &strings_out->validity_offset));
    strings_out->count = column->rows;
    strings_out->data = no_bytes;
    if (column->rows == 0) { /* then buffers may be missing */
        return QS_OK;
    }
    switch (strings_out->layout) {
    case QSI_ARROW_VIEWS:
        return open_views(column, strings_out, is_body);
    case QSI_ARROW_FIXED:
        return open_fixed(column, strings_out);
    default:
        return open_offsets(column, strings_out, is_body);
    }
}

static qs_status open_dictionary(const struct column *column,
                                 struct qsi_arrow_bytes_column *bytes_out, bool is_body,
                                 const char *expected)
{
    struct column entries = *column;
    enum qsi_arrow_integer type = integer_type(column->schema->format);
    uint64_t row;

    if (type == QSI_ARROW_NONE) {
        return fail_type(column, expected);
    }
    QS_TRY(open_integers(column, &bytes_out->codes, type));
    entries.part = " dictionary";
    entries.unit = "entry";
    entries.schema = column->schema->dictionary;
    entries.array = column->array->dictionary;
    if (entries.array == NULL || entries.schema->format == NULL) {
        return fail_column(column, "no dictionary came with the array");
    }
    entries.first =
        (uint64_t)entries.array->offset; /* checked, like the length, by check_structure */
    entries.rows = (uint64_t)entries.array->length;
    QS_TRY(open_strings(&entries, &bytes_out->strings, is_body, expected));
    row = first_outside(&bytes_out->codes, column->rows, 0, entries.rows);
    if (row < column->rows) {
        return fail_row(column, row,
                        "has dictionary index %" PRId64 ", there are %" PRIu64 " entries",
                        qsi_arrow_integer_at(&bytes_out->codes, row), entries.rows);
    }
    return QS_OK;
}

static qs_status open_bytes(const struct column *column, struct qsi_arrow_bytes_column *bytes_out,
                            bool is_body)
{
    const char *expected = is_body ? "binary, a string, or a dictionary of these"
                                   : "a string or a dictionary of strings";

    bytes_out->present = true;
    if (column->schema->dictionary != NULL) {
        return open_dictionary(column, bytes_out, is_body, expected);
    }
    return open_strings(column, &bytes_out->strings, is_body, expected);
}

/* ---- the columns of a batch ---- */

static qs_status check_no_null(const struct column *column,
                               const struct qsi_arrow_bytes_column *bytes)
{
    bool coded = qsi_arrow_has_dictionary(bytes);
    const uint8_t *validity = coded ? bytes->codes.validity : bytes->strings.validity;
    uint64_t row = first_null(validity, column->first % 8, column->rows);

    if (coded && bytes->strings.validity != NULL) { /* a row may also name a null entry */
        for (row = 0; row < column->rows && !qsi_slice_is_null(qsi_arrow_bytes(bytes, row));) {
            row++;
        }
    }
    return row == column->rows ? QS_OK : fail_row(column, row, "is null");
}

static qs_status check_short(const struct column *column,
                             const struct qsi_arrow_bytes_column *bytes)
{
    if (qsi_arrow_strings_max(&bytes->strings) <= QSI_SHORTSTR_BYTES_MAX) {
        return QS_OK;
    }
    for (uint64_t row = 0; row < column->rows; row++) {
        struct qsi_slice string = qsi_arrow_bytes(bytes, row);

        if (string.bytes > QSI_SHORTSTR_BYTES_MAX) {
            return fail_row(column, row, "has %" PRIu32 " bytes, at most %d are possible",
                            string.bytes, QSI_SHORTSTR_BYTES_MAX);
        }
    }
    return QS_OK;
}

static qs_status open_body(const struct column *column, struct qsi_arrow_bytes_column *body_out)
{
    QS_TRY(open_bytes(column, body_out, true));
    return check_no_null(column, body_out);
}

static qs_status open_text(const struct column *column, struct qsi_arrow_bytes_column *text_out)
{
    QS_TRY(open_bytes(column, text_out, false));
    return check_short(column, text_out);
}

/* The divisor that makes seconds of "tss:", "tsm:", "tsu:" or "tsn:" with any zone behind; 0 for others. */
static int64_t timestamp_divisor(const char *format)
{
    if (strncmp(format, "ts", 2) != 0 || format[2] == '\0' || format[3] != ':') {
        return 0;
    }
    switch (format[2]) {
    case 's':
        return 1;
    case 'm':
        return 1000;
    case 'u':
        return 1000000;
    case 'n':
        return 1000000000;
    default:
        return 0;
    }
}

static qs_status open_int(const struct column *column, struct qsi_arrow_int_column *int_out,
                          int64_t low, uint64_t count, bool is_time)
{
    enum qsi_arrow_integer type = integer_type(column->schema->format);
    int64_t divisor = 1;
    uint64_t row;

    if (type == QSI_ARROW_NONE && is_time) {
        type = QSI_ARROW_INT64;
        divisor = timestamp_divisor(column->schema->format);
    }
    if (type == QSI_ARROW_NONE || divisor == 0 || column->schema->dictionary != NULL) {
        return fail_type(column, is_time ? "a timestamp or an integer" : "an integer");
    }
    int_out->present = true;
    int_out->divisor = divisor;
    QS_TRY(open_integers(column, &int_out->values, type));
    row = first_outside(&int_out->values, column->rows, low, count);
    return row == column->rows ? QS_OK : fail_outside(column, &int_out->values, row, low, count);
}

/* The row of the map that an entry belongs to. */
static uint64_t row_of_entry(const struct qsi_arrow_headers_column *headers, uint64_t entry)
{
    const qsi_arrow_i32 *offsets = (const qsi_arrow_i32 *)headers->places;
    uint64_t row = 0;

    while ((uint64_t)(offsets[row + 1] - headers->first) <= entry) {
        row++;
    }
    return row;
}

static qs_status check_header_names(const struct column *map,
                                    const struct qsi_arrow_headers_column *headers,
                                    uint64_t entries)
{
    const struct qsi_arrow_strings *strings = &headers->keys.strings;

    if (strings->validity == NULL && headers->keys.codes.validity == NULL &&
        qsi_arrow_strings_max(strings) <= QSI_SHORTSTR_BYTES_MAX) {
        return QS_OK;
    }
    for (uint64_t entry = 0; entry < entries; entry++) {
        struct qsi_slice name = qsi_arrow_bytes(&headers->keys, entry);

        if (qsi_slice_is_null(name)) {
            return fail_row(map, row_of_entry(headers, entry), "has a null key");
        }
        if (name.bytes > QSI_SHORTSTR_BYTES_MAX) {
            return fail_row(map, row_of_entry(headers, entry),
                            "has a key of %" PRIu32 " bytes, at most %d are possible", name.bytes,
                            QSI_SHORTSTR_BYTES_MAX);
        }
    }
    return QS_OK;
}

/* One of the two children of a map's entries, for the entries in use. */
static qs_status open_map_child(const struct column *entries,
                                struct qsi_arrow_bytes_column *bytes_out, int child,
                                const char *part)
{
    struct column column = *entries;

    column.part = part;
    column.schema = entries->schema->children[child];
    column.array = entries->array->children[child];
    if (column.schema == NULL || column.array == NULL || column.schema->format == NULL) {
        return fail_column(entries, "a child is missing");
    }
    if (column.array->offset < 0 || column.array->offset > POSITIONS_MAX) {
        return fail_column(&column, "offset %" PRId64 " is impossible", column.array->offset);
    }
    column.first += (uint64_t)column.array->offset;
    return open_bytes(&column, bytes_out, false);
}

/* REQUIRES at least one row: the offsets, which are then there. */
static qs_status open_map_offsets(const struct column *map,
                                  struct qsi_arrow_headers_column *headers_out,
                                  uint64_t *entries_out)
{
    struct qsi_arrow_strings places = {.layout = QSI_ARROW_OFFSETS32};
    const qsi_arrow_i32 *offsets;

    QS_TRY(copy_offsets(map, &places));
    offsets = (const qsi_arrow_i32 *)places.places;
    headers_out->places = places.places;
    headers_out->first = offsets[0];
    *entries_out = (uint64_t)(offsets[map->rows] - offsets[0]);
    return QS_OK;
}

static qs_status open_map_entries(const struct column *map,
                                  struct qsi_arrow_headers_column *headers_out, uint64_t count)
{
    struct column entries = *map;
    const uint8_t *validity;
    uint64_t validity_offset, entry;

    entries.part = " entries";
    entries.unit = "entry";
    entries.schema = map->schema->children[0];
    entries.array = map->array->children[0];
    if (entries.array->offset < 0 || entries.array->offset > POSITIONS_MAX) {
        return fail_column(&entries, "offset %" PRId64 " is impossible", entries.array->offset);
    }
    entries.first = (uint64_t)entries.array->offset + (uint64_t)headers_out->first;
    entries.rows = count;
    QS_TRY(check_structure(&entries, 1, 1, 2));
    QS_TRY(open_validity(&entries, &validity, &validity_offset));
    entry = first_null(validity, validity_offset, count);
    if (entry < count) {
        return fail_row(map, row_of_entry(headers_out, entry), "has a null entry");
    }
    if (entries.schema->children == NULL || entries.array->children == NULL) {
        return fail_column(&entries, "no children");
    }
    QS_TRY(open_map_child(&entries, &headers_out->keys, 0, " key"));
    QS_TRY(open_map_child(&entries, &headers_out->values, 1, " value"));
    return check_header_names(map, headers_out, count);
}

static qs_status open_headers(const struct column *map,
                              struct qsi_arrow_headers_column *headers_out)
{
    uint64_t entries = 0;

    if (strcmp(map->schema->format, "+m") != 0 || map->schema->dictionary != NULL) {
        return fail_type(map, "a map of strings to strings");
    }
    QS_TRY(check_structure(map, 2, 2, 1));
    if (map->schema->children == NULL || map->array->children == NULL ||
        map->schema->children[0] == NULL || map->array->children[0] == NULL) {
        return fail_column(map, "the map's entries are missing");
    }
    QS_TRY(open_validity(map, &headers_out->validity, &headers_out->validity_offset));
    headers_out->present = true;
    if (map->rows > 0) {
        QS_TRY(open_map_offsets(map, headers_out, &entries));
    }
    return open_map_entries(map, headers_out, entries);
}

enum kind { KIND_TEXT, KIND_INTEGER, KIND_TIMESTAMP, KIND_INSTANT, KIND_HEADERS };

/* The columns beside the body, and where a batch keeps them. */
struct known_column {
    const char *name;
    enum kind kind;
    size_t place;
    int64_t low; /* integers: the range [low, low + count) */
    uint64_t count;
};

#define PLACE(member) offsetof(struct qsi_arrow_batch, member)
#define NOT_NEGATIVE 0, (uint64_t)INT64_MAX + 1

static const struct known_column known_columns[] = {
    {"exchange", KIND_TEXT, PLACE(exchange), 0, 0},
    {"routing_key", KIND_TEXT, PLACE(routing_key), 0, 0},
    {"headers", KIND_HEADERS, PLACE(headers), 0, 0},
    {"message_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_MESSAGE_ID]), 0, 0},
    {"correlation_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_CORRELATION_ID]), 0, 0},
    {"type", KIND_TEXT, PLACE(text[QSI_PROPERTY_TYPE]), 0, 0},
    {"app_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_APP_ID]), 0, 0},
    {"content_type", KIND_TEXT, PLACE(text[QSI_PROPERTY_CONTENT_TYPE]), 0, 0},
    {"content_encoding", KIND_TEXT, PLACE(text[QSI_PROPERTY_CONTENT_ENCODING]), 0, 0},
    {"reply_to", KIND_TEXT, PLACE(text[QSI_PROPERTY_REPLY_TO]), 0, 0},
    {"user_id", KIND_TEXT, PLACE(text[QSI_PROPERTY_USER_ID]), 0, 0},
    {"priority", KIND_INTEGER, PLACE(priority), 0, 256},
    {"delivery_mode", KIND_INTEGER, PLACE(delivery_mode), 1, 2},
    {"expiration_ms", KIND_INTEGER, PLACE(expiration_ms), NOT_NEGATIVE},
    {"timestamp", KIND_TIMESTAMP, PLACE(timestamp), NOT_NEGATIVE},
    {"due", KIND_INSTANT, PLACE(due), INT64_MIN, UINT64_MAX},
};

#define KNOWN_COUNT (sizeof known_columns / sizeof known_columns[0])
#define BODY_INDEX KNOWN_COUNT /* its name is the caller's */

static size_t known_index(const char *name, const char *body_name)
{
    size_t index = 0;

    if (strcmp(name, body_name) == 0) {
        return BODY_INDEX;
    }
    while (index < KNOWN_COUNT && strcmp(name, known_columns[index].name) != 0) {
        index++;
    }
    return index < KNOWN_COUNT ? index : SIZE_MAX;
}

/* What tells of a delivery, or of a place in a queue: so that what was received can be published. */
static bool is_of_delivery(const char *name)
{
    static const char *const names[] = {"delivery_tag", "redelivered", "delivery_count",
                                        "sequence",     "unacked",     "delayed"};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static qs_status fail_unknown(const struct column *column, const char *body_name)
{
    char names[QS_ERROR_TEXT_BYTES] = "";
    size_t bytes = 0;

    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        bytes +=
            (size_t)snprintf(names + bytes, sizeof names - bytes, ", %s", known_columns[i].name);
        QS_ASSERT(bytes < sizeof names);
    }
    return qsi_fail(column->error, QS_EINVAL, "unknown column \"%s\"; expected %s%s", column->name,
                    body_name, names);
}

static qs_status open_known(struct qsi_arrow_batch *batch, const struct known_column *known,
                            const struct column *column)
{
    void *place = (char *)batch + known->place;

    if (strcmp(column->schema->format, "n") == 0) {
        return QS_OK; /* a column of the null type says as much as none */
    }
    switch (known->kind) {
    case KIND_TEXT:
        return open_text(column, place);
    case KIND_INTEGER:
        return open_int(column, place, known->low, known->count, false);
    case KIND_TIMESTAMP:
        return open_int(column, place, known->low, known->count, true);
    case KIND_INSTANT: /* a bare number does not say of what */
        return timestamp_divisor(column->schema->format) != 0
                   ? open_int(column, place, known->low, known->count, true)
                   : fail_type(column, "a timestamp");
    case KIND_HEADERS:
        break;
    }
    return open_headers(column, place);
}

/* A body column under another name looks unknown: what is missing is told first. */
static qs_status require_body(const struct column *root, const char *body_name)
{
    for (int64_t child = 0; child < root->array->n_children; child++) {
        const struct ArrowSchema *schema = root->schema->children[child];
        if (schema != NULL && schema->name != NULL && strcmp(schema->name, body_name) == 0) {
            return QS_OK;
        }
    }
    return qsi_fail(root->error, QS_EINVAL,
                    "no column is called \"%s\", which is to hold the bodies", body_name);
}

static qs_status open_column(const struct column *root, struct qsi_arrow_batch *batch,
                             const struct column *column, const char *body_name, uint32_t *seen)
{
    size_t index = known_index(column->name, body_name);

    if (index == SIZE_MAX && is_of_delivery(column->name)) {
        return QS_OK;
    }
    if (index == SIZE_MAX) {
        QS_TRY(require_body(root, body_name));
        return fail_unknown(column, body_name);
    }
    if ((*seen >> index & 1) != 0) {
        return qsi_fail(column->error, QS_EINVAL, "two columns are called \"%s\"", column->name);
    }
    *seen |= (uint32_t)1 << index;
    if (index == BODY_INDEX) {
        return open_body(column, &batch->body);
    }
    return open_known(batch, &known_columns[index], column);
}

/* The struct array itself. */
static qs_status open_root(const struct column *root)
{
    const struct ArrowArray *array = root->array;
    const uint8_t *validity;
    uint64_t validity_offset, row;

    if (root->schema->release == NULL || array->release == NULL) {
        return qsi_fail(root->error, QS_EINVAL,
                        "record batch: its Arrow schema or array was released already");
    }
    if (root->schema->format == NULL || strcmp(root->schema->format, "+s") != 0) {
        return fail_type(root, "a struct");
    }
    QS_TRY(check_structure(root, 1, 1, root->schema->n_children));
    if (array->n_children > 0 && (root->schema->children == NULL || array->children == NULL)) {
        return qsi_fail(root->error, QS_EINVAL, "record batch: its children are missing");
    }
    QS_TRY(open_validity(root, &validity, &validity_offset));
    row = first_null(validity, validity_offset, root->rows);
    if (row < root->rows) {
        return qsi_fail(root->error, QS_EINVAL, "row %" PRIu64 " is null", root->rows_before + row);
    }
    return QS_OK;
}

static qs_status open_child(struct qsi_arrow_batch *batch, const struct column *root, int64_t child,
                            const char *body_name, uint32_t *seen)
{
    struct column column = *root;

    column.schema = root->schema->children[child];
    column.array = root->array->children[child];
    if (column.schema == NULL || column.array == NULL || column.schema->format == NULL) {
        return qsi_fail(root->error, QS_EINVAL, "record batch: column %" PRId64 " is missing",
                        child);
    }
    column.name = column.schema->name == NULL ? "" : column.schema->name;
    if (column.array->offset < 0 || column.array->offset > POSITIONS_MAX) {
        return fail_column(&column, "offset %" PRId64 " is impossible", column.array->offset);
    }
    column.first +=
        (uint64_t)column.array->offset; /* a struct's offset applies on top of its children's */
    return open_column(root, batch, &column, body_name, seen);
}

static qs_status open_children(struct qsi_arrow_batch *batch, const struct column *root,
                               const char *body_name)
{
    uint32_t seen = 0;

    QS_TRY(open_root(root));
    batch->rows = root->rows;
    for (int64_t child = 0; child < root->array->n_children; child++) {
        QS_TRY(open_child(batch, root, child, body_name, &seen));
    }
    return batch->body.present ? QS_OK : require_body(root, body_name);
}

qs_status qsi_arrow_batch_open(struct qsi_arrow_batch *batch_out, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const char *body_name,
                               uint64_t rows_before, qs_error *error)
{
    struct column root = {.name = NULL,
                          .part = "",
                          .unit = "row",
                          .schema = schema,
                          .array = array,
                          .copies = &batch_out->copies,
                          .first = (uint64_t)array->offset,
                          .rows = (uint64_t)array->length,
                          .rows_before = rows_before,
                          .error = error};
    qs_status status;

    memset(batch_out, 0, sizeof *batch_out);
    status = open_children(batch_out, &root, body_name);
    if (status != QS_OK) {
        qsi_arrow_batch_close(batch_out);
        return status;
    }
    for (uint8_t property = 0; property < QSI_PROPERTY_COUNT; property++) {
        if (batch_out->text[property].present) {
            batch_out->text_present[batch_out->text_count++] = property;
        }
    }
    return QS_OK;
}
