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

#include "arrow_builder.h"

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
