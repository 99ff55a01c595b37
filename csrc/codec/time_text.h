/* A time as text with fractions of a second, which AMQP's timestamps do not have. */
#ifndef QSI_TIME_TEXT_H
#define QSI_TIME_TEXT_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Parses "2026-01-31T12:00:00Z", with one to six digits of a fraction after a point, to us since
 * 1970.  False: it is no such text, or before 1970. */
bool qsi_time_parse(struct qsi_slice text, uint64_t *us_out);

#endif
