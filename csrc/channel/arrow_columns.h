/* Columns that grow while a batch is built: memory for them, strings and numbers with nulls.  What
 * makes room has to be called before what sets a row. */
#ifndef QSI_ARROW_COLUMNS_H
#define QSI_ARROW_COLUMNS_H

#include "arrow_build.h"

/* memory is the address of a pointer to qsi_alloc's memory, which gets this many bytes. */
qs_status qsi_arrow_grow(void *memory, uint64_t bytes) QS_MUST_CHECK;
/* Bits behind the old capacity are cleared, so that setting is all that appending does. */
qs_status qsi_arrow_grow_bits(uint8_t **bits, uint64_t old_capacity,
                              uint64_t capacity) QS_MUST_CHECK;
uint64_t qsi_arrow_grown_capacity(uint64_t capacity, uint64_t needed);
void qsi_arrow_set_bits(uint8_t *bits, uint64_t from, uint64_t count);

/* Does the batch have the column?  All but those of a stream have all. */
static inline bool qsi_arrow_builder_wants(const struct qsi_arrow_builder *builder, uint32_t column)
{
    return builder->shape != QSI_ARROW_STREAM || (builder->columns & column) != 0;
}

void qsi_arrow_text_fini(struct qsi_arrow_text *text);
/* Makes room for count rows more after the nulls up to row first. */
qs_status qsi_arrow_text_reserve(struct qsi_arrow_text *text, uint64_t first,
                                 uint64_t count) QS_MUST_CHECK;
/* Ends the next row at end.  REQUIRES room. */
void qsi_arrow_text_set(struct qsi_arrow_text *text, int32_t end);
/* Ends the next row where data ends.  REQUIRES room.  QS_EINVAL: too many bytes. */
qs_status qsi_arrow_text_set_data(struct qsi_arrow_text *text) QS_MUST_CHECK;
/* Rows [first, first + count) all become value. */
qs_status qsi_arrow_text_append(struct qsi_arrow_text *text, uint64_t first, uint64_t count,
                                struct qsi_slice value) QS_MUST_CHECK;
/* Nulls up to rows, if it holds anything. */
qs_status qsi_arrow_text_fill(struct qsi_arrow_text *text, uint64_t rows) QS_MUST_CHECK;

/* As of strings. */
qs_status qsi_arrow_number_reserve(struct qsi_arrow_number *number, uint64_t bytes_each,
                                   uint64_t first, uint64_t count) QS_MUST_CHECK;

#endif
