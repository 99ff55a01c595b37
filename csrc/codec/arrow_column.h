/* Inside the codec floor: declarations shared by the checks of a record batch's columns. */
#ifndef QSI_ARROW_COLUMN_H
#define QSI_ARROW_COLUMN_H

#include "arrow_read.h"
#include "check.h"
#include "error.h"

#include <string.h>

/* Keeps sums and products of positions within 64 bits, and is larger than any memory. */
#define QSI_ARROW_POSITIONS_MAX ((int64_t)1 << 48)

/* An array that is being checked, and its name in error texts. */
struct qsi_arrow_column {
    const char *name; /* NULL: the batch itself */
    const char *part; /* "", or which array inside the column */
    const char *unit; /* the array's element for one position */
    const struct ArrowSchema *schema;
    const struct ArrowArray *array;
    struct qsi_arrow_copy **copies; /* of the batch */
    uint64_t first;                 /* position of row 0, the array's own offset included */
    uint64_t rows;
    /* Rows of the record batches before this one: errors count from the first batch. */
    uint64_t rows_before;
    qsi_arrow_utc_of *utc_of;
    qs_error *error;
};

/* ---- arrow_column.c ---- */

extern const uint8_t qsi_arrow_no_bytes[1]; /* data of empty strings without a buffer */

/* QS_EINVAL, with the column's name, or the row, in front of the text. */
qs_status qsi_arrow_fail(const struct qsi_arrow_column *column, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
qs_status qsi_arrow_fail_row(const struct qsi_arrow_column *column, uint64_t row,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));
qs_status qsi_arrow_fail_type(const struct qsi_arrow_column *column, const char *expected);
/* Allocates memory that belongs to the batch until it is closed. */
qs_status qsi_arrow_make_copy(const struct qsi_arrow_column *column, uint64_t bytes,
                              uint8_t **data_out) QS_MUST_CHECK;
qs_status qsi_arrow_copy_bytes(const struct qsi_arrow_column *column, const void *data,
                               uint64_t bytes, const uint8_t **copy_out) QS_MUST_CHECK;
qs_status qsi_arrow_check_structure(const struct qsi_arrow_column *column, int64_t buffers_min,
                                    int64_t buffers_max, int64_t children) QS_MUST_CHECK;
/* Copies the validity bits of the rows in use; *offset_out: the bit of row 0. */
qs_status qsi_arrow_open_validity(const struct qsi_arrow_column *column,
                                  const uint8_t **validity_out, uint64_t *offset_out) QS_MUST_CHECK;
/* The index of the first cleared bit among count bits, or count. */
uint64_t qsi_arrow_first_null(const uint8_t *validity, uint64_t offset, uint64_t count);

/* ---- arrow_integers.c ---- */

/* QSI_ARROW_NONE: it is not a format of integers. */
enum qsi_arrow_integer qsi_arrow_integer_type(const char *format);
qs_status qsi_arrow_open_integers(const struct qsi_arrow_column *column,
                                  struct qsi_arrow_integers *integers_out,
                                  enum qsi_arrow_integer type) QS_MUST_CHECK;
/* The first row that is not null and not in [low, low + count), or rows. */
uint64_t qsi_arrow_first_outside(const struct qsi_arrow_integers *integers, uint64_t rows,
                                 int64_t low, uint64_t count);
/* The divisor that converts "tss:", "tsm:", "tsu:" or "tsn:", with any zone, to seconds; 0 for
 * other formats. */
int64_t qsi_arrow_timestamp_divisor(const char *format);
/* Opens integers, or with is_time times, which must all be in [low, low + count). */
qs_status qsi_arrow_open_int(const struct qsi_arrow_column *column,
                             struct qsi_arrow_int_column *int_out, int64_t low, uint64_t count,
                             bool is_time) QS_MUST_CHECK;

/* ---- arrow_strings.c ---- */

/* Copies the offsets, and checks that they ascend and are not negative. */
qs_status qsi_arrow_copy_offsets(const struct qsi_arrow_column *column,
                                 struct qsi_arrow_strings *strings) QS_MUST_CHECK;
qs_status qsi_arrow_open_bytes(const struct qsi_arrow_column *column,
                               struct qsi_arrow_bytes_column *bytes_out, bool binary) QS_MUST_CHECK;
qs_status qsi_arrow_open_body(const struct qsi_arrow_column *column,
                              struct qsi_arrow_bytes_column *body_out) QS_MUST_CHECK;
qs_status qsi_arrow_open_text(const struct qsi_arrow_column *column,
                              struct qsi_arrow_bytes_column *text_out) QS_MUST_CHECK;

/* ---- arrow_struct_headers.c ---- */

qs_status qsi_arrow_open_struct_headers(const struct qsi_arrow_column *column,
                                        struct qsi_arrow_headers_column *headers_out) QS_MUST_CHECK;

/* ---- arrow_headers.c ---- */

qs_status qsi_arrow_open_headers(const struct qsi_arrow_column *map,
                                 struct qsi_arrow_headers_column *headers_out) QS_MUST_CHECK;

#endif
