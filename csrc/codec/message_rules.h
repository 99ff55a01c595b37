/* Rules for every message, however it is published. */
#ifndef QSI_MESSAGE_RULES_H
#define QSI_MESSAGE_RULES_H

#include "qstore/status.h"

#include "arrow_read.h"
#include "slice.h"

#define QSI_BODY_BYTES_MAX (UINT64_C(128) << 20) /* default of qs_options.body_bytes_max */

/* Whether it is the name of one of the headers CC and BCC. */
static inline bool qsi_is_copies_name(struct qsi_slice name)
{
    return (name.bytes == 2 && memcmp(name.data, "CC", 2) == 0) ||
           (name.bytes == 3 && memcmp(name.data, "BCC", 3) == 0);
}
/* Refuses a header of that name with a value of another type than an array. */
qs_status qsi_copies_refuse(struct qsi_slice name, uint8_t type, qs_error *error);

qs_status qsi_check_body_bytes(uint64_t bytes_max, uint64_t bytes, qs_error *error) QS_MUST_CHECK;
qs_status qsi_check_properties_bytes(uint64_t bytes_max, uint64_t bytes, uint64_t row,
                                     qs_error *error) QS_MUST_CHECK;

/* QS_EINVAL: the delay is too long. */
qs_status qsi_check_delay(uint64_t delay_us, qs_error *error) QS_MUST_CHECK;

/* Check one row of a batch, which the error text names. */
qs_status qsi_check_row_expiration(int64_t expiration_ms, uint64_t row,
                                   qs_error *error) QS_MUST_CHECK;
qs_status qsi_check_row_due(uint64_t due_us, uint64_t now_us, uint64_t row,
                            qs_error *error) QS_MUST_CHECK;
/* Check an open batch; error texts count its rows from rows_before. */
qs_status qsi_arrow_check_bodies(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                                 uint64_t bytes_max, qs_error *error) QS_MUST_CHECK;
/* Refuses CC and BCC: both are arrays, and a column's values are strings. */
qs_status qsi_arrow_check_headers(const struct qsi_arrow_batch *batch, uint64_t rows_before,
                                  qs_error *error) QS_MUST_CHECK;

#endif
