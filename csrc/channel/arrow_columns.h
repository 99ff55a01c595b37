/* Columns that grow while a batch is built: their memory, and strings and numbers with nulls.
 * Functions that set rows need room, which other functions reserve before. */
#ifndef QSI_ARROW_COLUMNS_H
#define QSI_ARROW_COLUMNS_H

#include "qstore/status.h"

#include "buf.h"
#include "slice.h"

#include <stdint.h>

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

/* memory: the address of a pointer to memory of qsi_alloc, which is enlarged to bytes. */
qs_status qsi_arrow_grow(void *memory, uint64_t bytes) QS_MUST_CHECK;
/* Clears the bits after the old capacity, so appending only sets bits. */
qs_status qsi_arrow_grow_bits(uint8_t **bits, uint64_t old_capacity,
                              uint64_t capacity) QS_MUST_CHECK;
uint64_t qsi_arrow_grown_capacity(uint64_t capacity, uint64_t needed);
void qsi_arrow_set_bits(uint8_t *bits, uint64_t from, uint64_t count);

void qsi_arrow_text_fini(struct qsi_arrow_text *text);
/* Makes room for count more rows, and for nulls before row first. */
qs_status qsi_arrow_text_reserve(struct qsi_arrow_text *text, uint64_t first,
                                 uint64_t count) QS_MUST_CHECK;
/* Ends the next row at end.  REQUIRES room. */
void qsi_arrow_text_set(struct qsi_arrow_text *text, int32_t end);
/* Ends the next row at the end of data.  REQUIRES room.  QS_EINVAL: there are too many bytes. */
qs_status qsi_arrow_text_set_data(struct qsi_arrow_text *text) QS_MUST_CHECK;
/* Sets rows [first, first + count) to value. */
qs_status qsi_arrow_text_append(struct qsi_arrow_text *text, uint64_t first, uint64_t count,
                                struct qsi_slice value) QS_MUST_CHECK;
/* Appends nulls up to rows, if the column has values. */
qs_status qsi_arrow_text_fill(struct qsi_arrow_text *text, uint64_t rows) QS_MUST_CHECK;

/* As for strings. */
qs_status qsi_arrow_number_reserve(struct qsi_arrow_number *number, uint64_t bytes_each,
                                   uint64_t first, uint64_t count) QS_MUST_CHECK;

#endif
