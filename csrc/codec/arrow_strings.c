/* Columns of byte strings in all of Arrow's layouts, with or without a dictionary. */
#include "arrow_column.h"
#include "check.h"
#include "error.h"

#include <inttypes.h>

#define VIEW_BYTES 16
#define VIEW_INLINE_BYTES 12

/* Parses "w:16". */
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

/* Offsets ascend if no offset and no difference is negative: all sign bits are clear. */
static bool ascend32(const qsi_arrow_i32 *offsets, uint64_t count)
{
    uint32_t signs = (uint32_t)offsets[0];

    for (uint64_t i = 0; i < count; i++) {
        signs |= (uint32_t)offsets[i + 1] | ((uint32_t)offsets[i + 1] - (uint32_t)offsets[i]);
    }
    return signs >> 31 == 0;
}

/* The same; differences must also fit 32 bits. */
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
    QS_DCHECK(strings->layout == QSI_ARROW_OFFSETS32 || strings->layout == QSI_ARROW_OFFSETS64);
    if (strings->layout == QSI_ARROW_OFFSETS32) {
        return ((const qsi_arrow_i32 *)strings->places)[index];
    }
    return ((const qsi_arrow_i64 *)strings->places)[index];
}

/* Finds the row because of which the fast check failed. */
static qs_status fail_offsets(const struct qsi_arrow_column *column,
                              const struct qsi_arrow_strings *strings)
{
    for (uint64_t row = 0; row < column->rows; row++) {
        int64_t from = offset_at(strings, row);
        int64_t to = offset_at(strings, row + 1);

        if (from < 0 || to < from) {
            return qsi_arrow_fail_row(column, row, "has impossible offsets %" PRId64 " to %" PRId64,
                                      from, to);
        }
        if (to - from > UINT32_MAX) {
            return qsi_arrow_fail_row(column, row,
                                      "has %" PRId64 " bytes, at most %" PRIu32 " are possible",
                                      to - from, UINT32_MAX);
        }
    }
    return qsi_arrow_fail(column, "impossible offsets");
}

qs_status qsi_arrow_copy_offsets(const struct qsi_arrow_column *column,
                                 struct qsi_arrow_strings *strings)
{
    const uint8_t *places = column->array->buffers[1];
    uint64_t each = strings->layout == QSI_ARROW_OFFSETS32 ? 4 : 8;
    bool ascend;

    if (places == NULL) {
        return qsi_arrow_fail(column, "no offsets buffer");
    }
    QS_TRY(qsi_arrow_copy_bytes(column, places + each * column->first, each * (column->rows + 1),
                                &strings->places));
    ascend = strings->layout == QSI_ARROW_OFFSETS32
                 ? ascend32((const qsi_arrow_i32 *)strings->places, column->rows)
                 : ascend64((const qsi_arrow_i64 *)strings->places, column->rows);
    return ascend ? QS_OK : fail_offsets(column, strings);
}

/* Copies the bytes of the rows in use, and adjusts the offsets. */
static qs_status copy_data(const struct qsi_arrow_column *column, struct qsi_arrow_strings *strings)
{
    int64_t from = offset_at(strings, 0);
    int64_t to = offset_at(strings, column->rows);
    uint8_t *places = (uint8_t *)(uintptr_t)strings->places; /* a copy already */

    QS_DCHECK(from >= 0 && from <= to);
    QS_TRY(
        qsi_arrow_copy_bytes(column, strings->data + from, (uint64_t)(to - from), &strings->data));
    for (uint64_t i = 0; i <= column->rows; i++) {
        if (strings->layout == QSI_ARROW_OFFSETS32) {
            ((qsi_arrow_i32 *)places)[i] -= (int32_t)from;
        } else {
            ((qsi_arrow_i64 *)places)[i] -= from;
        }
    }
    return QS_OK;
}

static qs_status open_offsets(const struct qsi_arrow_column *column,
                              struct qsi_arrow_strings *strings, bool is_body)
{
    QS_DCHECK(column->rows > 0 && column->array->n_buffers == 3);
    QS_TRY(qsi_arrow_copy_offsets(column, strings));
    if (column->array->buffers[2] != NULL) {
        strings->data = column->array->buffers[2];
    } else if (offset_at(strings, column->rows) > 0) {
        return qsi_arrow_fail(column, "no data buffer");
    }
    return is_body ? QS_OK : copy_data(column, strings);
}

static qs_status check_view(const struct qsi_arrow_column *column,
                            const struct qsi_arrow_strings *strings, const qsi_arrow_i64 *sizes,
                            uint64_t row)
{
    const qsi_arrow_i32 *view = (const qsi_arrow_i32 *)(strings->places + row * VIEW_BYTES);
    uint64_t variadic_count = (uint64_t)column->array->n_buffers - 3;
    int32_t bytes = view[0];

    QS_DCHECK(row < column->rows && column->array->n_buffers >= 3);
    if (bytes < 0) {
        return qsi_arrow_fail_row(column, row, "has impossible length %" PRId32, bytes);
    }
    if (bytes <= VIEW_INLINE_BYTES) {
        return QS_OK;
    }
    if (view[2] < 0 || (uint64_t)view[2] >= variadic_count) {
        return qsi_arrow_fail_row(column, row, "lies in data buffer %" PRId32 " of %" PRIu64,
                                  view[2], variadic_count);
    }
    if (view[3] < 0 || (int64_t)view[3] + bytes > sizes[view[2]] ||
        strings->variadic[view[2]] == NULL) {
        return qsi_arrow_fail_row(column, row,
                                  "lies outside data buffer %" PRId32 ": %" PRId32
                                  " bytes at %" PRId32 " of %" PRId64,
                                  view[2], bytes, view[3], (int64_t)sizes[view[2]]);
    }
    return QS_OK;
}

/* Copies the strings one after another, with 64-bit offsets in place of views. */
static qs_status flatten_views(const struct qsi_arrow_column *column,
                               struct qsi_arrow_strings *strings)
{
    struct qsi_arrow_strings flat = *strings;
    qsi_arrow_i64 *offsets;
    uint8_t *places, *data;
    uint64_t bytes = 0;

    QS_TRY(qsi_arrow_make_copy(column, 8 * (column->rows + 1), &places));
    offsets = (qsi_arrow_i64 *)places;
    offsets[0] = 0;
    for (uint64_t row = 0; row < column->rows; row++) {
        bytes += qsi_arrow_string(strings, row).bytes;
        offsets[row + 1] = (int64_t)bytes;
    }
    QS_TRY(qsi_arrow_make_copy(column, bytes, &data));
    for (uint64_t row = 0; row < column->rows; row++) {
        struct qsi_slice string = qsi_arrow_string(strings, row);

        if (string.bytes > 0) {
            memcpy(data + offsets[row], string.data, string.bytes);
        }
    }
    QS_DCHECK(offsets[column->rows] == (int64_t)bytes);
    flat.layout = QSI_ARROW_OFFSETS64;
    flat.places = places;
    flat.data = data;
    *strings = flat;
    return QS_OK;
}

/* The buffers are validity, views, any number of data buffers, and the sizes of those. */
static qs_status open_views(const struct qsi_arrow_column *column,
                            struct qsi_arrow_strings *strings, bool is_body)
{
    const struct ArrowArray *array = column->array;
    const uint8_t *views = array->buffers[1];
    const uint8_t *sizes = array->buffers[array->n_buffers - 1];

    if (views == NULL || (sizes == NULL && array->n_buffers > 3)) {
        return qsi_arrow_fail(column, "no views buffer, or no sizes of the data buffers");
    }
    QS_TRY(qsi_arrow_copy_bytes(column, views + VIEW_BYTES * column->first,
                                VIEW_BYTES * column->rows, &strings->places));
    QS_TRY(qsi_arrow_copy_bytes(column, sizes, 8 * ((uint64_t)array->n_buffers - 3), &sizes));
    strings->variadic = array->buffers + 2;
    for (uint64_t row = 0; row < column->rows; row++) {
        if (!qsi_arrow_is_null(strings->validity, strings->validity_offset, row)) {
            QS_TRY(check_view(column, strings, (const qsi_arrow_i64 *)sizes, row));
        }
    }
    return is_body ? QS_OK : flatten_views(column, strings);
}

static qs_status open_fixed(const struct qsi_arrow_column *column,
                            struct qsi_arrow_strings *strings)
{
    const uint8_t *data = column->array->buffers[1];
    uint64_t end;

    QS_DCHECK(column->rows > 0 && column->array->n_buffers == 2);
    if (qsi_mul_overflows(column->first + column->rows, strings->width, &end) || end > INT64_MAX) {
        return qsi_arrow_fail(column, "%" PRIu64 " values of %" PRIu32 " bytes are impossible",
                              column->rows, strings->width);
    }
    if (data != NULL) {
        strings->data = data + column->first * strings->width;
    } else if (end > 0) {
        return qsi_arrow_fail(column, "no data buffer");
    }
    return QS_OK;
}

/* Opens strings of any string type, for a body also binary ones, without a dictionary. */
static qs_status open_strings(const struct qsi_arrow_column *column,
                              struct qsi_arrow_strings *strings_out, bool is_body,
                              const char *expected)
{
    int64_t buffers = 3;

    strings_out->layout = string_layout(column->schema->format, is_body, &strings_out->width);
    if (strings_out->layout == QSI_ARROW_ABSENT || column->schema->dictionary != NULL) {
        return qsi_arrow_fail_type(column, expected);
    }
    if (strings_out->layout == QSI_ARROW_FIXED) {
        buffers = 2;
    }
    QS_TRY(qsi_arrow_check_structure(
        column, buffers, strings_out->layout == QSI_ARROW_VIEWS ? INT32_MAX : buffers, 0));
    QS_TRY(qsi_arrow_open_validity(column, &strings_out->validity, &strings_out->validity_offset));
    strings_out->count = column->rows;
    strings_out->data = qsi_arrow_no_bytes;
    if (column->rows == 0) { /* buffers may be missing then */
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

static qs_status open_dictionary(const struct qsi_arrow_column *column,
                                 struct qsi_arrow_bytes_column *bytes_out, bool is_body,
                                 const char *expected)
{
    struct qsi_arrow_column entries = *column;
    enum qsi_arrow_integer type = qsi_arrow_integer_type(column->schema->format);
    uint64_t row;

    if (type == QSI_ARROW_NONE) {
        return qsi_arrow_fail_type(column, expected);
    }
    QS_TRY(qsi_arrow_open_integers(column, &bytes_out->codes, type));
    entries.part = " dictionary";
    entries.unit = "entry";
    entries.schema = column->schema->dictionary;
    entries.array = column->array->dictionary;
    if (entries.array == NULL || entries.schema->format == NULL) {
        return qsi_arrow_fail(column, "no dictionary came with the array");
    }
    entries.first =
        (uint64_t)
            entries.array->offset; /* checked, like the length, by qsi_arrow_check_structure */
    entries.rows = (uint64_t)entries.array->length;
    QS_TRY(open_strings(&entries, &bytes_out->strings, is_body, expected));
    row = qsi_arrow_first_outside(&bytes_out->codes, column->rows, 0, entries.rows);
    if (row < column->rows) {
        return qsi_arrow_fail_row(column, row,
                                  "has dictionary index %" PRId64 ", there are %" PRIu64 " entries",
                                  qsi_arrow_integer_at(&bytes_out->codes, row), entries.rows);
    }
    return QS_OK;
}

qs_status qsi_arrow_open_bytes(const struct qsi_arrow_column *column,
                               struct qsi_arrow_bytes_column *bytes_out, bool is_body)
{
    const char *expected = is_body ? "binary, a string, or a dictionary of these"
                                   : "a string or a dictionary of strings";

    bytes_out->present = true;
    if (column->schema->dictionary != NULL) {
        return open_dictionary(column, bytes_out, is_body, expected);
    }
    return open_strings(column, &bytes_out->strings, is_body, expected);
}

static qs_status check_no_null(const struct qsi_arrow_column *column,
                               const struct qsi_arrow_bytes_column *bytes)
{
    bool coded = qsi_arrow_has_dictionary(bytes);
    const uint8_t *validity = coded ? bytes->codes.validity : bytes->strings.validity;
    uint64_t row = qsi_arrow_first_null(validity, column->first % 8, column->rows);

    if (coded && bytes->strings.validity != NULL) { /* a row may also refer to a null entry */
        for (row = 0; row < column->rows && !qsi_slice_is_null(qsi_arrow_bytes(bytes, row));) {
            row++;
        }
    }
    return row == column->rows ? QS_OK : qsi_arrow_fail_row(column, row, "is null");
}

static qs_status check_short(const struct qsi_arrow_column *column,
                             const struct qsi_arrow_bytes_column *bytes)
{
    if (qsi_arrow_strings_max(&bytes->strings) <= QSI_SHORTSTR_BYTES_MAX) {
        return QS_OK;
    }
    for (uint64_t row = 0; row < column->rows; row++) {
        struct qsi_slice string = qsi_arrow_bytes(bytes, row);

        if (string.bytes > QSI_SHORTSTR_BYTES_MAX) {
            return qsi_arrow_fail_row(column, row, "has %" PRIu32 " bytes, at most %d are possible",
                                      string.bytes, QSI_SHORTSTR_BYTES_MAX);
        }
    }
    return QS_OK;
}

qs_status qsi_arrow_open_body(const struct qsi_arrow_column *column,
                              struct qsi_arrow_bytes_column *body_out)
{
    QS_TRY(qsi_arrow_open_bytes(column, body_out, true));
    return check_no_null(column, body_out);
}

qs_status qsi_arrow_open_text(const struct qsi_arrow_column *column,
                              struct qsi_arrow_bytes_column *text_out)
{
    QS_TRY(qsi_arrow_open_bytes(column, text_out, false));
    return check_short(column, text_out);
}
