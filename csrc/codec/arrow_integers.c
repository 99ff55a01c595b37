/* Columns of integers and of times: copied, and each value checked against its range. */
#include "arrow_column.h"
#include "check.h"

#include <inttypes.h>

static uint64_t integer_bytes(enum qsi_arrow_integer type)
{
    QS_DCHECK(type >= QSI_ARROW_INT8 && type <= QSI_ARROW_UINT64);
    return 1u << (type - QSI_ARROW_INT8) / 2;
}

enum qsi_arrow_integer qsi_arrow_integer_type(const char *format)
{
    static const char letters[] = "cCsSiIlL"; /* in the order of the enumeration */
    const char *letter = format[0] == '\0' || format[1] != '\0' ? NULL : strchr(letters, format[0]);

    return letter == NULL ? QSI_ARROW_NONE
                          : (enum qsi_arrow_integer)(QSI_ARROW_INT8 + (letter - letters));
}

qs_status qsi_arrow_open_integers(const struct qsi_arrow_column *column,
                                  struct qsi_arrow_integers *integers_out,
                                  enum qsi_arrow_integer type)
{
    const uint8_t *values;

    QS_TRY(qsi_arrow_check_structure(column, 2, 2, 0));
    QS_TRY(
        qsi_arrow_open_validity(column, &integers_out->validity, &integers_out->validity_offset));
    values = column->array->buffers[1];
    if (values == NULL && column->rows > 0) {
        return qsi_arrow_fail(column, "no values buffer");
    }
    integers_out->type = type;
    integers_out->values = qsi_arrow_no_bytes;
    if (column->rows == 0) {
        return QS_OK;
    }
    return qsi_arrow_copy_bytes(column, values + column->first * integer_bytes(type),
                                column->rows * integer_bytes(type), &integers_out->values);
}

/* Whether all slots are in [low, low + count): one subtraction and one comparison each. */
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
    case QSI_ARROW_UINT64: /* larger values appear negative, and no range below allows those */
        EACH_OF(qsi_arrow_i64);
    case QSI_ARROW_NONE:
        break;
    }
#undef EACH_OF
    return !outside;
}

uint64_t qsi_arrow_first_outside(const struct qsi_arrow_integers *integers, uint64_t rows,
                                 int64_t low, uint64_t count)
{
    QS_DCHECK(count > 0);
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

static qs_status fail_outside(const struct qsi_arrow_column *column,
                              const struct qsi_arrow_integers *integers, uint64_t row, int64_t low,
                              uint64_t count)
{
    int64_t value = qsi_arrow_integer_at(integers, row);

    QS_DCHECK((uint64_t)value - (uint64_t)low >= count);
    if (integers->type == QSI_ARROW_UINT64) {
        return qsi_arrow_fail_row(column, row, "is %" PRIu64 ", must be %" PRId64 " to %" PRIu64,
                                  (uint64_t)value, low, (uint64_t)low + count - 1);
    }
    return qsi_arrow_fail_row(column, row, "is %" PRId64 ", must be %" PRId64 " to %" PRIu64, value,
                              low, (uint64_t)low + count - 1);
}

int64_t qsi_arrow_timestamp_divisor(const char *format)
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

/* Converts local times to UTC.  REQUIRES copied values of 64 bits. */
static void make_utc(struct qsi_arrow_integers *values, uint64_t rows, int64_t divisor,
                     qsi_arrow_utc_of *utc_of)
{
    qsi_arrow_i64 *ticks = (qsi_arrow_i64 *)(uintptr_t)values->values;

    QS_DCHECK(values->type == QSI_ARROW_INT64 && divisor > 0);
    for (uint64_t row = 0; row < rows; row++) {
        int64_t shown_s = ticks[row] / divisor - (ticks[row] % divisor < 0 ? 1 : 0);
        int64_t moved;

        if (!__builtin_mul_overflow(utc_of(shown_s) - shown_s, divisor, &moved) &&
            !__builtin_add_overflow(moved, ticks[row], &moved)) {
            ticks[row] = moved;
        }
    }
}

/* "tss:" and similar formats without a zone. */
static bool has_no_zone(const char *format)
{
    return format[0] == 't' && format[4] == '\0';
}

/* The integer type of the same size as a floating-point format. */
static enum qsi_arrow_integer float_type(const char *format)
{
    return strcmp(format, "g") == 0   ? QSI_ARROW_INT64
           : strcmp(format, "f") == 0 ? QSI_ARROW_INT32
                                      : QSI_ARROW_NONE;
}

/* Converts whole numbers to integers: pandas stores integers with missing values as floats.
 * REQUIRES a copy. */
static qs_status make_whole(const struct qsi_arrow_column *column,
                            struct qsi_arrow_integers *values)
{
    uint8_t *at = (uint8_t *)(uintptr_t)values->values;
    bool is_wide = values->type == QSI_ARROW_INT64;
    double most = is_wide ? 0x1p63 : 0x1p31;

    for (uint64_t row = 0; row < column->rows; row++, at += is_wide ? 8 : 4) {
        bool is_null = qsi_arrow_is_null(values->validity, values->validity_offset, row);
        double number = is_null   ? 0
                        : is_wide ? *(const qsi_arrow_f64 *)at
                                  : (double)*(const qsi_arrow_f32 *)at;

        if (!(number >= -most && number < most) || (double)(int64_t)number != number) {
            return qsi_arrow_fail_row(column, row, "is %g, must be a whole number", number);
        }
        if (is_wide) {
            *(qsi_arrow_i64 *)at = (int64_t)number;
        } else {
            *(qsi_arrow_i32 *)at = (int32_t)number;
        }
    }
    return QS_OK;
}

qs_status qsi_arrow_open_int(const struct qsi_arrow_column *column,
                             struct qsi_arrow_int_column *int_out, int64_t low, uint64_t count,
                             bool is_time)
{
    enum qsi_arrow_integer type = qsi_arrow_integer_type(column->schema->format);
    int64_t divisor = 1;
    bool is_float = false;
    uint64_t row;

    if (type == QSI_ARROW_NONE) {
        type = float_type(column->schema->format);
        is_float = type != QSI_ARROW_NONE;
    }
    if (type == QSI_ARROW_NONE && is_time) {
        type = QSI_ARROW_INT64;
        divisor = qsi_arrow_timestamp_divisor(column->schema->format);
    }
    if (type == QSI_ARROW_NONE || divisor == 0 || column->schema->dictionary != NULL) {
        return qsi_arrow_fail_type(column, is_time ? "a timestamp or an integer" : "an integer");
    }
    int_out->present = true;
    int_out->divisor = divisor;
    QS_TRY(qsi_arrow_open_integers(column, &int_out->values, type));
    if (is_float) {
        QS_TRY(make_whole(column, &int_out->values));
    }
    if (column->utc_of != NULL && has_no_zone(column->schema->format)) {
        make_utc(&int_out->values, column->rows, divisor, column->utc_of);
    }
    QS_DCHECK(divisor > 0);
    row = qsi_arrow_first_outside(&int_out->values, column->rows, low, count);
    return row == column->rows ? QS_OK : fail_outside(column, &int_out->values, row, low, count);
}
