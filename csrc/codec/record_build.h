/* Building one messages record from rows of other records, for one destination, in the given order.
 *
 * Rows are added as stretches, consecutive rows of one record, which determines the record's size.
 * When it is full, or there are no more rows, the caller provides memory, and the record is
 * written, so bodies are copied once.  The source records must stay until then.
 *
 *   routes       those that the rows name, each (exchange, routing key) once
 *   properties   one blob if all rows have the same, else one for each
 *   bodies       inline; of a stored one what the reader below gives, or the reference itself
 *   expirations, dues   of rows that have them, if asked for */
#ifndef QSI_RECORD_BUILD_H
#define QSI_RECORD_BUILD_H

#include "qstore/status.h"

#include "buf.h"
#include "messages_record.h"
#include "messages_ref.h"

#include <stdbool.h>
#include <stdint.h>

/* Consecutive rows of one record. */
struct qsi_row_stretch {
    const uint8_t *record; /* written by this process, or checked */
    uint32_t first_row, count;
};

/* The place of a stored message's content in a buffer. */
struct qsi_stored_content {
    size_t properties_at, body_at;
    uint32_t properties_bytes, body_bytes;
    bool is_damaged; /* the body is a cell of a damaged message */
};
/* Appends a stored message's content to out; called once for each stored row, when the row is
 * added. */
typedef qs_status qsi_stored_reader(void *context, const struct qsi_body *stored,
                                    struct qsi_buf *out, struct qsi_stored_content *content_out,
                                    qs_error *error);

enum {
    QSI_BUILD_ALIGNED = 1,     /* align columns for every size */
    QSI_BUILD_EXPIRATIONS = 2, /* keep the column if some row has an expiration */
    QSI_BUILD_DUES = 4,        /* keep the column if some row has a due time */
    QSI_BUILD_KEEP_STORED = 8, /* stored bodies stay references; no reader is needed */
};

struct qsi_record_build; /* opaque: the record being built */

/* NULL: out of memory.  One build may make several records, one after another. */
struct qsi_record_build *qsi_record_build_create(uint32_t options, qsi_stored_reader *reader,
                                                 void *context);
void qsi_record_build_destroy(struct qsi_record_build *build); /* NULL is fine */

/* Begins the next record, without rows. */
void qsi_record_build_clear(struct qsi_record_build *build);
/* Adds as many rows of the stretch as fit; *taken_out is their number, 0 if the record is full.
 * rows_max and bytes_max (of the whole record, approximately) are limits; an empty build always
 * takes one row.  QS_ENOMEM, or a status of the reader: no further rows were taken. */
qs_status qsi_record_build_add(struct qsi_record_build *build,
                               const struct qsi_row_stretch *stretch, uint32_t rows_max,
                               uint64_t bytes_max, uint32_t *taken_out,
                               qs_error *error) QS_MUST_CHECK;
uint32_t qsi_record_build_rows(const struct qsi_record_build *build);
/* Returns the record's size.  REQUIRES rows.  QS_EINVAL: 4 GiB or more. */
qs_status qsi_record_build_measure(struct qsi_record_build *build, uint64_t *bytes_out,
                                   qs_error *error) QS_MUST_CHECK;
/* Writes the record, of the measured size, at record_out.  REQUIRES measure.
 * dictionary_bytes_out: the size of its first part, which has the destination and the routes; NULL
 * is fine. */
void qsi_record_build_write(struct qsi_record_build *build, uint8_t *record_out,
                            uint64_t destination_id, uint64_t first_seq, uint64_t time_us,
                            uint32_t *dictionary_bytes_out);

/* The longest stretch of ref's messages in [i, end) that are consecutive rows of one record. */
struct qsi_row_stretch qsi_messages_ref_stretch(const struct qsi_messages_ref *ref, uint32_t i,
                                                uint32_t end);

#endif
