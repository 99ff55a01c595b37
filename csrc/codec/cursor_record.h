/* The record of the position of a group of a stream's readers (docs/FORMAT.md, "Cursor"). */
#ifndef QSI_CURSOR_RECORD_H
#define QSI_CURSOR_RECORD_H

#include "qstore/status.h"

#include "slice.h"

#include <stdint.h>

#define QSI_CURSOR_GROUP_BYTES_MAX 255u
#define QSI_CURSOR_OWN_BYTES_MAX 64u

struct qsi_cursor_record {
    uint64_t stream_id;
    uint64_t offset;        /* of the next message that the group wants */
    struct qsi_slice group; /* its name, at least one byte */
    struct qsi_slice own;   /* the client's own bytes, stored with the cursor */
};
uint64_t qsi_cursor_record_bytes(const struct qsi_cursor_record *cursor);
/* REQUIRES sizes within the limits. */
void qsi_cursor_record_encode(uint8_t *record_out, const struct qsi_cursor_record *cursor);
/* The slices point into the record.  QS_ECORRUPT. */
qs_status qsi_cursor_record_decode(struct qsi_cursor_record *cursor_out, const uint8_t *record,
                                   qs_error *error) QS_MUST_CHECK;

#endif
