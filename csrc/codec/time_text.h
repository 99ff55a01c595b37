/* A moment as text, for fractions of seconds, which AMQP's timestamps do not have. */
#ifndef QSI_TIME_TEXT_H
#define QSI_TIME_TEXT_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* "2026-01-31T12:00:00Z", with one to six digits behind a point for a fraction: in us since 1970.
 * False: it is none, or before that. */
bool qsi_time_parse(struct qsi_slice text, uint64_t *us_out);

#endif
