/* AMQP values as UTF-8 text, for readers that support only strings. */
#ifndef QSI_FIELD_TEXT_H
#define QSI_FIELD_TEXT_H

#include "qstore/status.h"

#include "buf.h"
#include "field_table.h"
#include "slice.h"

/* Appends bytes as UTF-8; invalid parts become U+FFFD. */
qs_status qsi_text_append(struct qsi_buf *buf, struct qsi_slice bytes) QS_MUST_CHECK;

/* Appends a header value: strings unchanged, numbers with the fewest digits that represent them
 * exactly, tables and arrays as JSON, void as null.  REQUIRES a field of a checked table. */
qs_status qsi_field_text_append(struct qsi_buf *buf, const struct qsi_field *field) QS_MUST_CHECK;

#endif
