/* Building the record batch that a batch of deliveries comes back as, for the Arrow C Data
 * interface.
 *
 * Columns: those of columns.def, of a batch of a stream the chosen ones.  Strings that are not
 * UTF-8 are repaired with U+FFFD; an expiration that is no number and a timestamp beyond int64 come
 * out null.
 *
 * Bodies are copied once, from where they lie into the batch, or not at all: those of a block of a
 * stream are Arrow's as they lie there.  A property column costs nothing until the first message
 * that has the property: columns catch up with the row count only when they must.  What a reader
 * of a stream did not choose is not made. */
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

#define QSI_ARROW_BODY_BYTES_MAX INT32_MAX /* of a batch: its body offsets are 32-bit */
#define QSI_ARROW_ROWS_MAX INT32_MAX
/* Offsets of a record are little-endian, those of Arrow the machine's. */
#define QSI_ARROW_LENDS (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)

/* Which batch it becomes: the bit of QS_RECEIVED_*. */
enum qsi_arrow_shape { QSI_ARROW_DELIVERED, QSI_ARROW_BROWSED, QSI_ARROW_STREAM };

enum qsi_arrow_dictionary { QSI_ARROW_EXCHANGE, QSI_ARROW_ROUTING_KEY, QSI_ARROW_DICTIONARY_COUNT };

/* Strings as an Arrow column; for the headers column, ranges of entries.  Rows from filled on
 * are null. */
struct qsi_arrow_text {
    int32_t *offsets; /* filled + 1 */
    uint8_t *validity;
    struct qsi_buf data;
    int32_t end;       /* the last offset */
    uint64_t capacity; /* rows there is room for; 0: nothing is allocated */
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

/* The name that a dictionary was asked for last: rows often repeat it. */
struct qsi_arrow_recent_name {
    int32_t code_1; /* its code + 1; 0: none was asked for */
    uint32_t bytes;
    uint8_t data[255];
};

/* Zeroed memory is an empty one. */
struct qsi_arrow_builder {
    uint64_t rows;
    enum qsi_arrow_shape shape; /* set it before the first row */
    uint32_t columns;           /* QS_STREAM_COLUMN_*; QSI_ARROW_STREAM: set it likewise */
    uint64_t capacity;          /* rows there is room for in the next ones, as far as wanted */
    uint64_t *tags;
    int64_t *times;       /* us since 1970, of a stream: each is written by who appends the row */
    uint8_t *redelivered; /* bits */
    uint8_t *unacked;     /* bits */
    uint8_t *delayed;     /* bits */
    uint32_t *delivery_counts;
    int32_t *codes[QSI_ARROW_DICTIONARY_COUNT];
    int32_t *body_offsets;
    struct qsi_buf body;
    /* Of a batch whose bodies lie elsewhere, the chunk where: held.  Else NULL. */
    struct qsi_chunk *lender;
    const uint8_t *lent_offsets, *lent_bodies;
    struct qsi_map names[QSI_ARROW_DICTIONARY_COUNT]; /* to code + 1 */
    struct qsi_arrow_recent_name recent[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text entries[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text headers;
    struct qsi_arrow_text header_keys;
    struct qsi_arrow_text header_values;
    struct qsi_arrow_text texts[QSI_COLUMN_TEXT_COUNT];
    struct qsi_arrow_number numbers[QSI_COLUMN_NUMBER_COUNT];
};

/* What deliveries that arrive together have in common. */
struct qsi_arrow_run {
    uint64_t first_tag; /* the following rows count up from it */
    uint32_t delivery_count;
    int32_t exchange_code;
    int32_t routing_key_code;
    bool redelivered;
    bool is_unacked;
    bool is_delayed;
    struct qsi_slice properties; /* the blob of each */
};

void qsi_arrow_builder_init(struct qsi_arrow_builder *builder);
void qsi_arrow_builder_fini(struct qsi_arrow_builder *builder); /* zeroed memory is fine */

/* The code of a name in one of the dictionaries, entered when it is new.  Good until finish. */
qs_status qsi_arrow_builder_intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                                   enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                                   qs_error *error) QS_MUST_CHECK;

/* Makes room at once; appending makes room too. */
qs_status qsi_arrow_builder_reserve(struct qsi_arrow_builder *builder, uint64_t rows,
                                    uint64_t body_bytes, qs_error *error) QS_MUST_CHECK;

/* Appends count rows with bodies that lie behind each other: body i is data[offsets[i]] to
 * data[offsets[i + 1]], offsets little-endian u32 of any alignment, count + 1 of them.  REQUIRES
 * checked offsets: they ascend and stay within data.  QS_EINVAL: the batch's bodies would pass
 * QSI_ARROW_BODY_BYTES_MAX.  QS_ECORRUPT: the properties are damaged.  After any error of this
 * or row, only fini is left. */
qs_status qsi_arrow_builder_rows(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                 const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                 qs_error *error) QS_MUST_CHECK;

/* Likewise, of an empty builder, which no other row may follow: the bodies stay where they are, and
 * the batch holds chunk, in which they lie with their offsets.  REQUIRES offsets at a multiple of 4
 * that do not pass QSI_ARROW_BODY_BYTES_MAX, and QSI_ARROW_LENDS.  From now on the chunk is no
 * budget's: it is the memory of whoever gets the batch. */
qs_status qsi_arrow_builder_borrow(struct qsi_arrow_builder *builder,
                                   const struct qsi_arrow_run *run, struct qsi_chunk *chunk,
                                   const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                   qs_error *error) QS_MUST_CHECK;

/* Rows [first, first + count), the last ones, have these properties: where a run has none.  Rows
 * ascend from call to call. */
qs_status qsi_arrow_builder_properties(struct qsi_arrow_builder *builder, uint64_t first,
                                       uint64_t count, struct qsi_slice properties,
                                       qs_error *error) QS_MUST_CHECK;

/* When the rows from first on were published: us since 1970, for who fills them in.  REQUIRES
 * QSI_ARROW_STREAM with QS_STREAM_COLUMN_TIMESTAMP, and rows that were appended. */
static inline int64_t *qsi_arrow_builder_times(struct qsi_arrow_builder *builder, uint64_t first)
{
    return builder->times + first;
}

/* Appends one row. */
qs_status qsi_arrow_builder_row(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                struct qsi_slice body, qs_error *error) QS_MUST_CHECK;

/* Brings all columns that hold anything to the full number of rows: the first step of finish. */
qs_status qsi_arrow_builder_fill(struct qsi_arrow_builder *builder) QS_MUST_CHECK;

/* Hands the rows over and leaves the builder empty, codes included.  Both structs are the
 * caller's to release, in any order, from any thread, also column by column.  On an error they
 * are untouched. */
qs_status qsi_arrow_builder_finish(struct qsi_arrow_builder *builder,
                                   struct ArrowSchema *schema_out, struct ArrowArray *array_out,
                                   qs_error *error) QS_MUST_CHECK;

#endif
