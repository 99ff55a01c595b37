/* Building one messages record out of rows of others: for one destination, in the order given.
 *
 * The rows come as stretches, consecutive rows of one record.  Adding them finds out how large the
 * record will be; when it is full, or there are no more, the caller makes room and has it written,
 * so bodies are copied once.  The records that the rows come from must stay until then.
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

/* Where in a buffer the content of a stored message is. */
struct qsi_stored_content {
    size_t properties_at, body_at;
    uint32_t properties_bytes, body_bytes;
    bool is_damaged; /* the body is a cell that tells of damage */
};
/* Appends a stored message's content to out, once for each stored row, when the row is added. */
typedef qs_status qsi_stored_reader(void *context, const struct qsi_body *stored,
                                    struct qsi_buf *out, struct qsi_stored_content *content_out,
                                    qs_error *error);

enum {
    QSI_BUILD_ALIGNED = 1,     /* columns are aligned whatever the size */
    QSI_BUILD_EXPIRATIONS = 2, /* the column is kept if a row has it; else it is left out */
    QSI_BUILD_DUES = 4,        /* likewise */
    QSI_BUILD_KEEP_STORED = 8, /* stored bodies stay references; no reader is needed */
};

struct qsi_record_build; /* opaque: one record in the making, or the next one */

/* NULL: out of memory.  One build may make any number of records, one after the other. */
struct qsi_record_build *qsi_record_build_create(uint32_t options, qsi_stored_reader *reader,
                                                 void *context);
void qsi_record_build_destroy(struct qsi_record_build *build); /* NULL is fine */

/* Begins with the next record: no rows. */
void qsi_record_build_clear(struct qsi_record_build *build);
/* More rows, as many of the stretch as fit: *taken_out tells how many, 0 if the record is full.
 * rows_max and bytes_max (of the whole record, about) are limits; one row is always taken by an
 * empty build.  QS_ENOMEM, or what the reader says: nothing more was taken. */
qs_status qsi_record_build_add(struct qsi_record_build *build,
                               const struct qsi_row_stretch *stretch, uint32_t rows_max,
                               uint64_t bytes_max, uint32_t *taken_out,
                               qs_error *error) QS_MUST_CHECK;
uint32_t qsi_record_build_rows(const struct qsi_record_build *build);
/* REQUIRES rows.  How many bytes the record takes.  QS_EINVAL: 4 GiB and more. */
qs_status qsi_record_build_measure(struct qsi_record_build *build, uint64_t *bytes_out,
                                   qs_error *error) QS_MUST_CHECK;
/* REQUIRES measure.  Writes the record, of the size that it said, at record_out.
 * dictionary_bytes_out: how much of its beginning has the destination and the routes; NULL is
 * fine. */
void qsi_record_build_write(struct qsi_record_build *build, uint8_t *record_out,
                            uint64_t destination_id, uint64_t first_seq, uint64_t time_us,
                            uint32_t *dictionary_bytes_out);

/* The longest stretch of ref's messages from i on, before end, that is rows of one record in a
 * row. */
struct qsi_row_stretch qsi_messages_ref_stretch(const struct qsi_messages_ref *ref, uint32_t i,
                                                uint32_t end);

#endif
