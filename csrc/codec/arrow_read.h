/* Reading a record batch of messages in place, through the Arrow C Data interface.
 *
 * qsi_arrow_batch_open() checks everything that can be checked: types, structure, and every offset,
 * index and length of the rows in use.  The accessors do not check again: each of them is a few
 * loads.
 *
 * Other threads may write to the caller's buffers meanwhile.  Therefore data that is read more than
 * once is copied first, and the copy is checked and used: offsets, views, indexes, numbers, bits of
 * validity, and the bytes of all columns except the body.  A body's bytes stay in place and must be
 * read only once.  The ArrowSchema, the ArrowArray and their buffers must stay alive.
 *
 * The interface has two limits: the size of the buffer of 32- and 64-bit offsets is unknown, so the
 * last offset is trusted; and a buffer pointer cannot be checked. */
#ifndef QSI_ARROW_READ_H
#define QSI_ARROW_READ_H

#include "qstore/arrow.h"
#include "qstore/status.h"

#include "properties.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Arrow recommends alignment, but does not promise it; these types load from any address, and may
 * alias. */
typedef int8_t qsi_arrow_i8 __attribute__((may_alias));
typedef int16_t qsi_arrow_i16 __attribute__((may_alias, aligned(1)));
typedef int32_t qsi_arrow_i32 __attribute__((may_alias, aligned(1)));
typedef int64_t qsi_arrow_i64 __attribute__((may_alias, aligned(1)));
typedef float qsi_arrow_f32 __attribute__((may_alias, aligned(1)));
typedef double qsi_arrow_f64 __attribute__((may_alias, aligned(1)));
typedef uint8_t qsi_arrow_u8 __attribute__((may_alias));
typedef uint16_t qsi_arrow_u16 __attribute__((may_alias, aligned(1)));
typedef uint32_t qsi_arrow_u32 __attribute__((may_alias, aligned(1)));
typedef uint64_t qsi_arrow_u64 __attribute__((may_alias, aligned(1)));

enum qsi_arrow_layout {
    QSI_ARROW_ABSENT,
    QSI_ARROW_OFFSETS32, /* binary, utf8 */
    QSI_ARROW_OFFSETS64, /* large_binary, large_utf8 */
    QSI_ARROW_VIEWS,     /* binary_view, utf8_view */
    QSI_ARROW_FIXED      /* fixed_size_binary */
};

enum qsi_arrow_integer {
    QSI_ARROW_NONE,
    QSI_ARROW_INT8,
    QSI_ARROW_UINT8,
    QSI_ARROW_INT16,
    QSI_ARROW_UINT16,
    QSI_ARROW_INT32,
    QSI_ARROW_UINT32,
    QSI_ARROW_INT64,
    QSI_ARROW_UINT64
};

/* Byte strings without a dictionary.  Pointers are to the first row in use, except validity, which
 * consists of bits. */
struct qsi_arrow_strings {
    const uint8_t *validity;  /* NULL: no nulls */
    uint64_t validity_offset; /* bit of row 0 */
    const uint8_t *places;    /* offsets or views */
    const uint8_t *data;      /* target of offsets; for QSI_ARROW_FIXED the rows themselves */
    const void *const *variadic;
    uint32_t width; /* of QSI_ARROW_FIXED */
    enum qsi_arrow_layout layout;
    uint64_t count;
};

/* Integers; also the codes of a dictionary. */
struct qsi_arrow_integers {
    const uint8_t *validity;
    uint64_t validity_offset;
    const uint8_t *values;
    enum qsi_arrow_integer type;
};

/* A column of byte strings.  With a dictionary, codes has a type, and strings is the dictionary. */
struct qsi_arrow_bytes_column {
    bool present;
    struct qsi_arrow_integers codes;
    struct qsi_arrow_strings strings;
};

struct qsi_arrow_int_column {
    bool present;
    int64_t divisor; /* converts timestamps to seconds */
    struct qsi_arrow_integers values;
};

struct qsi_arrow_headers_column { /* map<string, string> */
    bool present;
    const uint8_t *validity;
    uint64_t validity_offset;
    const uint8_t *places; /* 32-bit offsets of entries */
    int32_t first;         /* the entry at row 0 of keys and values */
    struct qsi_arrow_bytes_column keys;
    struct qsi_arrow_bytes_column values;
};

struct qsi_arrow_batch {
    uint64_t rows;
    struct qsi_arrow_bytes_column body; /* present, without nulls */
    struct qsi_arrow_bytes_column exchange;
    struct qsi_arrow_bytes_column routing_key;
    struct qsi_arrow_headers_column headers;
    struct qsi_arrow_bytes_column text[QSI_PROPERTY_COUNT]; /* short strings, by property */
#define QSI_NUMBER_COLUMN(id, name, ...) struct qsi_arrow_int_column name;
#include "columns.def"
    struct qsi_arrow_int_column due;
    struct qsi_arrow_copy *copies; /* of the caller's buffers */
    /* Properties whose text is present, for loops over each row. */
    uint8_t text_present[QSI_PROPERTY_COUNT];
    uint8_t text_count;
};

struct qsi_arrow_copy;

/* Converts a local time, in seconds since 1970, to UTC. */
typedef int64_t qsi_arrow_utc_of(int64_t shown_s);

/* Opens one struct array as a batch of messages.  The caller keeps schema and array.
 * rows_before: rows of earlier arrays, from which errors count on.
 * utc_of: for times without a zone; NULL: they are UTC.
 * QS_EINVAL: it is not such a batch; the text names the column, and the row if it is the reason.
 * QS_ENOMEM. */
qs_status qsi_arrow_batch_open(struct qsi_arrow_batch *batch_out, const struct ArrowSchema *schema,
                               const struct ArrowArray *array, const char *body_name,
                               uint64_t rows_before, qsi_arrow_utc_of *utc_of,
                               qs_error *error) QS_MUST_CHECK;
void qsi_arrow_batch_close(struct qsi_arrow_batch *batch); /* a zeroed or closed one is fine */

static inline bool qsi_arrow_bit(const uint8_t *bits, uint64_t index)
{
    return (bits[index / 8] >> (index % 8) & 1) != 0;
}

static inline bool qsi_arrow_is_null(const uint8_t *validity, uint64_t offset, uint64_t row)
{
    return validity != NULL && !qsi_arrow_bit(validity, offset + row);
}

/* The value at row, even if it is null. */
static inline int64_t qsi_arrow_integer_at(const struct qsi_arrow_integers *integers, uint64_t row)
{
    switch (integers->type) {
    case QSI_ARROW_INT8:
        return ((const qsi_arrow_i8 *)integers->values)[row];
    case QSI_ARROW_UINT8:
        return ((const qsi_arrow_u8 *)integers->values)[row];
    case QSI_ARROW_INT16:
        return ((const qsi_arrow_i16 *)integers->values)[row];
    case QSI_ARROW_UINT16:
        return ((const qsi_arrow_u16 *)integers->values)[row];
    case QSI_ARROW_INT32:
        return ((const qsi_arrow_i32 *)integers->values)[row];
    case QSI_ARROW_UINT32:
        return ((const qsi_arrow_u32 *)integers->values)[row];
    case QSI_ARROW_INT64:
    case QSI_ARROW_UINT64: /* open refused larger values */
        return ((const qsi_arrow_i64 *)integers->values)[row];
    case QSI_ARROW_NONE:
        break;
    }
    return 0;
}

/* Decodes a view: {length, 12 bytes} or {length, prefix, buffer, offset}. */
static inline struct qsi_slice qsi_arrow_view(const struct qsi_arrow_strings *strings,
                                              const uint8_t *view)
{
    const qsi_arrow_i32 *words = (const qsi_arrow_i32 *)view;
    uint32_t bytes = (uint32_t)words[0];

    if (bytes <= 12) {
        return qsi_slice_make(view + 4, bytes);
    }
    return qsi_slice_make((const uint8_t *)strings->variadic[words[2]] + words[3], bytes);
}

/* The string at row; a null slice if the row is null. */
static inline struct qsi_slice qsi_arrow_string(const struct qsi_arrow_strings *strings,
                                                uint64_t row)
{
    if (qsi_arrow_is_null(strings->validity, strings->validity_offset, row)) {
        return QSI_SLICE_NULL;
    }
    switch (strings->layout) {
    case QSI_ARROW_OFFSETS32: {
        const qsi_arrow_i32 *offsets = (const qsi_arrow_i32 *)strings->places + row;
        return qsi_slice_make(strings->data + offsets[0], (uint32_t)(offsets[1] - offsets[0]));
    }
    case QSI_ARROW_OFFSETS64: {
        const qsi_arrow_i64 *offsets = (const qsi_arrow_i64 *)strings->places + row;
        return qsi_slice_make(strings->data + offsets[0], (uint32_t)(offsets[1] - offsets[0]));
    }
    case QSI_ARROW_VIEWS:
        return qsi_arrow_view(strings, strings->places + row * 16);
    case QSI_ARROW_FIXED:
        return qsi_slice_make(strings->data + row * strings->width, strings->width);
    case QSI_ARROW_ABSENT:
        break;
    }
    return QSI_SLICE_NULL;
}

static inline bool qsi_arrow_has_dictionary(const struct qsi_arrow_bytes_column *column)
{
    return column->codes.type != QSI_ARROW_NONE;
}

/* The row's code, or -1 if the row is null; the entry itself may be null, too.  REQUIRES a
 * dictionary. */
static inline int64_t qsi_arrow_code(const struct qsi_arrow_bytes_column *column, uint64_t row)
{
    if (qsi_arrow_is_null(column->codes.validity, column->codes.validity_offset, row)) {
        return -1;
    }
    return qsi_arrow_integer_at(&column->codes, row);
}

/* The number of entries, and one of them.  REQUIRE a dictionary. */
static inline uint64_t qsi_arrow_dictionary_count(const struct qsi_arrow_bytes_column *column)
{
    return column->strings.count;
}

static inline struct qsi_slice qsi_arrow_dictionary_at(const struct qsi_arrow_bytes_column *column,
                                                       int64_t code)
{
    return qsi_arrow_string(&column->strings, (uint64_t)code);
}

/* The bytes at row, through the dictionary if there is one; a null slice if the row is null or the
 * column is absent. */
static inline struct qsi_slice qsi_arrow_bytes(const struct qsi_arrow_bytes_column *column,
                                               uint64_t row)
{
    int64_t code;

    if (!qsi_arrow_has_dictionary(column)) {
        return qsi_arrow_string(&column->strings, row);
    }
    code = qsi_arrow_code(column, row);
    return code < 0 ? QSI_SLICE_NULL : qsi_arrow_dictionary_at(column, code);
}

/* False if the column is absent or the row is null. */
static inline bool qsi_arrow_int(const struct qsi_arrow_int_column *column, uint64_t row,
                                 int64_t *value_out)
{
    if (!column->present ||
        qsi_arrow_is_null(column->values.validity, column->values.validity_offset, row)) {
        return false;
    }
    *value_out = qsi_arrow_integer_at(&column->values, row) / column->divisor;
    return true;
}

/* The due time of the row, in us since 1970, rounded up; 0: the column is absent, the row is null,
 * or the time is before 1970; UINT64_MAX: it is too large for 64 bits. */
uint64_t qsi_arrow_due_us(const struct qsi_arrow_batch *batch, uint64_t row);

/* 1 or 2 from the column; 0: the column is absent or the row is null. */
static inline uint8_t qsi_arrow_delivery_mode(const struct qsi_arrow_batch *batch, uint64_t row)
{
    int64_t mode = 0;

    return qsi_arrow_int(&batch->delivery_mode, row, &mode) ? (uint8_t)mode : 0;
}

/* The longest of the strings, null ones included. */
uint32_t qsi_arrow_strings_max(const struct qsi_arrow_strings *strings);

/* The sum of the body sizes of rows [from, to). */
uint64_t qsi_arrow_body_total(const struct qsi_arrow_batch *batch, uint64_t from, uint64_t to);

/* The longest body of the batch and the first row that has it; 0 and row 0 in an empty batch. */
uint32_t qsi_arrow_body_max(const struct qsi_arrow_batch *batch, uint64_t *row_out);

/* Copies the bodies of rows [from, to) one after another to bytes_out, and writes to - from + 1
 * little-endian u32 offsets, the first 0, the last the total.  offsets_out may have any alignment.
 * REQUIRES that the total fits 32 bits, and room for both. */
void qsi_arrow_body_copy(const struct qsi_arrow_batch *batch, uint64_t from, uint64_t to,
                         uint8_t *offsets_out, uint8_t *bytes_out);

/* Whether rows may differ in their properties: the batch has columns besides body, exchange and
 * routing_key. */
bool qsi_arrow_has_properties(const struct qsi_arrow_batch *batch);

/* The header entries of one row, and the size of their table. */
struct qsi_arrow_entries {
    uint64_t from, to;
    uint64_t bytes;
};
/* False if the column is absent or the row is null. */
bool qsi_arrow_row_headers(const struct qsi_arrow_batch *batch, uint64_t row,
                           struct qsi_arrow_entries *entries_out);

/* The properties of one row between measuring and writing.  Do not move it: it points into
 * itself. */
struct qsi_arrow_row {
    struct qsi_properties properties;
    struct qsi_arrow_entries headers;
    uint8_t expiration_text[20]; /* for any int64 that is not negative */
};

/* Merges the row's columns into the defaults, and returns the size of the blob.  A null value
 * leaves the default; headers are replaced as a whole.  The caller must check the size, which may
 * exceed 32 bits.  defaults may be NULL, and is borrowed like the batch. */
uint64_t qsi_arrow_row_begin(struct qsi_arrow_row *row_out, const struct qsi_arrow_batch *batch,
                             uint64_t row, const struct qsi_properties *defaults);

/* Writes the blob that begin measured. */
void qsi_arrow_row_encode(uint8_t *blob_out, const struct qsi_arrow_row *row,
                          const struct qsi_arrow_batch *batch);

#endif
