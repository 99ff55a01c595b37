/* Building the record batch for a batch of deliveries, for the Arrow C Data interface.
 *
 * The columns are those of columns.def; for a batch of a stream only the chosen ones.  In strings
 * that are not UTF-8, invalid parts become U+FFFD.  An expiration that is no number and a timestamp
 * beyond int64 become null.
 *
 * Bodies are copied once, from their records into the batch.  Bodies of a large block of a stream
 * are not copied: the batch refers to them.  A property column costs nothing until the first
 * message with the property: columns are extended to the row count only when necessary.  Columns
 * that a stream's reader did not choose are not built. */
#ifndef QSI_ARROW_BUILD_H
#define QSI_ARROW_BUILD_H

#include "qstore/arrow.h"
#include "qstore/status.h"

#include "buf.h"
#include "chunk.h"
#include "columns.h"
#include "map.h"
#include "properties.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_ARROW_BODY_BYTES_MAX INT32_MAX /* of a batch: its body offsets have 32 bits */
#define QSI_ARROW_ROWS_MAX INT32_MAX
/* Offsets in a record are little-endian, those of Arrow in the machine's order. */
#define QSI_ARROW_LENDS (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* The kind of the batch: the bit of QS_RECEIVED_*. */
enum qsi_arrow_shape { QSI_ARROW_DELIVERED, QSI_ARROW_BROWSED, QSI_ARROW_STREAM };

enum qsi_arrow_dictionary { QSI_ARROW_EXCHANGE, QSI_ARROW_ROUTING_KEY, QSI_ARROW_DICTIONARY_COUNT };

/* Strings as an Arrow column; for the column of headers, ranges of entries.  Rows from filled on
 * are null. */
struct qsi_arrow_text {
    int32_t *offsets; /* filled + 1 */
    uint8_t *validity;
    struct qsi_buf data;
    int32_t end;       /* the last offset */
    uint64_t capacity; /* allocated rows; 0: nothing is allocated */
    uint64_t filled;
    uint64_t set_count; /* rows that are not null */
};

struct qsi_arrow_number {
    uint8_t *values; /* one or eight bytes each */
    uint8_t *validity;
    uint64_t capacity;
    uint64_t filled;
    uint64_t set_count;
};

/* The last name looked up in a dictionary: rows often repeat it. */
struct qsi_arrow_recent_name {
    int32_t code_1; /* its code + 1; 0: there is none */
    uint32_t bytes;
    uint8_t data[255];
};

/* Zeroed memory is an empty builder. */
struct qsi_arrow_builder {
    uint64_t rows;
    enum qsi_arrow_shape shape; /* set it before the first row */
    /* QS_STREAM_COLUMN_*; for QSI_ARROW_STREAM, set it before the first row. */
    uint32_t columns;
    uint64_t capacity; /* allocated rows of the following arrays, as far as wanted */
    uint64_t *tags;
    int64_t *times;       /* of a stream, us since 1970: the caller that appends rows sets them */
    uint8_t *redelivered; /* bits */
    uint8_t *unacked;     /* bits */
    uint8_t *delayed;     /* bits */
    uint32_t *delivery_counts;
    int32_t *codes[QSI_ARROW_DICTIONARY_COUNT];
    int32_t *body_offsets;
    struct qsi_buf body;
    /* The chunk of bodies that are not copied, with a reference; NULL: bodies are copied. */
    struct qsi_chunk *lender;
    const uint8_t *lent_offsets, *lent_bodies;
    struct qsi_map names[QSI_ARROW_DICTIONARY_COUNT]; /* name to code + 1 */
    struct qsi_arrow_recent_name recent[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text entries[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text headers;
    struct qsi_arrow_text header_keys;
    struct qsi_arrow_text header_values;
    struct qsi_arrow_text texts[QSI_COLUMN_TEXT_COUNT];
    struct qsi_arrow_number numbers[QSI_COLUMN_NUMBER_COUNT];
};

/* Common properties of deliveries that are appended together. */
struct qsi_arrow_run {
    uint64_t first_tag; /* the following rows have the following tags */
    uint32_t delivery_count;
    int32_t exchange_code;
    int32_t routing_key_code;
    bool redelivered;
    bool is_unacked;
    bool is_delayed;
    struct qsi_slice properties; /* the blob of each row */
};

void qsi_arrow_builder_init(struct qsi_arrow_builder *builder);
void qsi_arrow_builder_fini(struct qsi_arrow_builder *builder); /* zeroed memory is fine */

/* Returns the code of a name in a dictionary, and adds a new name.  Codes are valid until
 * finish. */
qs_status qsi_arrow_builder_intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                                   enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                                   qs_error *error) QS_MUST_CHECK;

/* Makes room in advance; appending makes room, too. */
qs_status qsi_arrow_builder_reserve(struct qsi_arrow_builder *builder, uint64_t rows,
                                    uint64_t body_bytes, qs_error *error) QS_MUST_CHECK;

/* Appends count rows with contiguous bodies: body i is data[offsets[i]] to data[offsets[i + 1]].
 * offsets: count + 1 little-endian u32, with any alignment.  REQUIRES checked offsets, which ascend
 * and stay within data.  QS_EINVAL: the batch's bodies would exceed QSI_ARROW_BODY_BYTES_MAX.
 * QS_ECORRUPT: the properties are malformed.  After an error of this function or of
 * qsi_arrow_builder_row only fini may be called. */
qs_status qsi_arrow_builder_rows(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                 const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                 qs_error *error) QS_MUST_CHECK;

/* Appends rows to an empty builder without copying their bodies; no other rows may be appended.
 * The batch has a reference to chunk, which contains bodies and offsets.  REQUIRES offsets at a
 * multiple of 4 that do not exceed QSI_ARROW_BODY_BYTES_MAX, and QSI_ARROW_LENDS.  The chunk is no
 * longer charged to a budget: it is memory of the batch's receiver. */
qs_status qsi_arrow_builder_borrow(struct qsi_arrow_builder *builder,
                                   const struct qsi_arrow_run *run, struct qsi_chunk *chunk,
                                   const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                   qs_error *error) QS_MUST_CHECK;

/* Sets the properties of the last rows, [first, first + count), if the run has none.  Rows ascend
 * from call to call. */
qs_status qsi_arrow_builder_properties(struct qsi_arrow_builder *builder, uint64_t first,
                                       uint64_t count, struct qsi_slice properties,
                                       qs_error *error) QS_MUST_CHECK;

/* The publication times of the rows from first on, in us since 1970, for the caller to fill in.
 * REQUIRES QSI_ARROW_STREAM with QS_STREAM_COLUMN_TIMESTAMP, and appended rows. */
static inline int64_t *qsi_arrow_builder_times(struct qsi_arrow_builder *builder, uint64_t first)
{
    return builder->times + first;
}

/* Appends one row. */
qs_status qsi_arrow_builder_row(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                struct qsi_slice body, qs_error *error) QS_MUST_CHECK;

/* Extends all columns that have values to the full number of rows: the first step of finish. */
qs_status qsi_arrow_builder_fill(struct qsi_arrow_builder *builder) QS_MUST_CHECK;

/* Moves the rows to the two structs, and empties the builder, codes included.  Owns: the caller
 * releases both structs, in any order, from any thread, also column by column.  On an error they
 * are unchanged. */
qs_status qsi_arrow_builder_finish(struct qsi_arrow_builder *builder,
                                   struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                                   qs_error *error) QS_MUST_CHECK;

#endif
