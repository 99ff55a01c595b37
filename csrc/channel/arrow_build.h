/* Building the record batch that a batch of deliveries comes back as, for the Arrow C Data interface.
 *
 * Bodies are copied once, from where they lie into the batch.  A property column costs nothing until the
 * first message that has the property: columns catch up with the row count only when they must. */
#ifndef QSI_ARROW_BUILD_H
#define QSI_ARROW_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include "buf.h"
#include "map.h"
#include "properties.h"
#include "qstore/arrow.h"
#include "qstore/status.h"
#include "slice.h"

#define QSI_ARROW_BODY_BYTES_MAX INT32_MAX /* of a batch: its body offsets are 32-bit */

enum qsi_arrow_dictionary { QSI_ARROW_EXCHANGE, QSI_ARROW_ROUTING_KEY, QSI_ARROW_DICTIONARY_COUNT };

enum { /* the nullable columns */
    QSI_ARROW_TEXT_COLUMNS = 8,
    QSI_ARROW_NUMBER_COLUMNS = 4
};

/* Strings as an Arrow utf8 or binary column: offsets[rows_filled] is data.bytes once a row is there. */
struct qsi_arrow_text {
    struct qsi_buf offsets; /* int32 */
    struct qsi_buf data;
    struct qsi_buf validity;
    uint64_t rows_filled;
    uint64_t set_count; /* rows that are not null */
};

struct qsi_arrow_number {
    struct qsi_buf values;
    struct qsi_buf validity;
    uint64_t rows_filled;
    uint64_t set_count;
};

/* Zeroed memory is an empty one. */
struct qsi_arrow_builder {
    uint64_t rows;
    struct qsi_buf tags;            /* uint64 */
    struct qsi_buf redelivered;     /* bits */
    struct qsi_buf delivery_counts; /* uint32 */
    struct qsi_buf codes[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_map keys[QSI_ARROW_DICTIONARY_COUNT]; /* to code + 1 */
    struct qsi_arrow_text entries[QSI_ARROW_DICTIONARY_COUNT];
    struct qsi_arrow_text body;
    struct qsi_arrow_number headers; /* values: int32 ends of the rows' entries */
    struct qsi_arrow_text header_names;
    struct qsi_arrow_text header_values;
    struct qsi_arrow_text texts[QSI_ARROW_TEXT_COLUMNS];
    struct qsi_arrow_number numbers[QSI_ARROW_NUMBER_COLUMNS];
};

/* What deliveries that arrive together have in common. */
struct qsi_arrow_run {
    uint64_t first_tag; /* the following rows count up from it */
    uint32_t delivery_count;
    int32_t exchange_code;
    int32_t routing_key_code;
    bool redelivered;
    struct qsi_slice properties; /* the blob of each */
};

void qsi_arrow_builder_init(struct qsi_arrow_builder *builder);
void qsi_arrow_builder_fini(struct qsi_arrow_builder *builder); /* zeroed memory is fine */

/* The code of a name in one of the dictionaries, entered when it is new.  Good until finish. */
qs_status qsi_arrow_builder_intern(struct qsi_arrow_builder *builder, int32_t *code_out,
                                   enum qsi_arrow_dictionary dictionary, struct qsi_slice name,
                                   qs_error *error) QS_MUST_CHECK;

/* Makes room at once; appending makes room too. */
qs_status qsi_arrow_builder_reserve(struct qsi_arrow_builder *builder, uint64_t rows, uint64_t body_bytes,
                                    qs_error *error) QS_MUST_CHECK;

/* Appends count rows with bodies that lie behind each other: body i is data[offsets[i]] to data[offsets[i + 1]],
 * offsets little-endian u32 of any alignment, count + 1 of them.  REQUIRES checked offsets: they ascend and stay
 * within data.  QS_EINVAL: the batch's bodies would pass QSI_ARROW_BODY_BYTES_MAX.  QS_ECORRUPT: the properties
 * are damaged.  After an error the builder holds the rows it held, and possibly unused bytes. */
qs_status qsi_arrow_builder_rows(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                 const uint8_t *offsets, const uint8_t *data, uint64_t count,
                                 qs_error *error) QS_MUST_CHECK;

/* Appends one row. */
qs_status qsi_arrow_builder_row(struct qsi_arrow_builder *builder, const struct qsi_arrow_run *run,
                                struct qsi_slice body, qs_error *error) QS_MUST_CHECK;

/* Hands the rows over and leaves the builder empty, codes included.  Both structs are the caller's to release,
 * in any order, from any thread, also column by column.  On an error they are untouched and the rows stay. */
qs_status qsi_arrow_builder_finish(struct qsi_arrow_builder *builder, struct ArrowSchema *schema_out,
                                   struct ArrowArray *array_out, qs_error *error) QS_MUST_CHECK;

#endif
