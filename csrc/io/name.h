/* What every environment checks of its arguments in the same way, and numbered names. */
#ifndef QSI_NAME_H
#define QSI_NAME_H

#include "qstore/env.h"

#include <stdbool.h>
#include <stdint.h>

/* QS_EINVAL unless name is one path component of 1 to QS_NAME_BYTES_MAX bytes other than "." and
 * "..". */
qs_status qsi_name_check(const char *name, qs_error *error) QS_MUST_CHECK;

/* QS_EINVAL unless flags say READ, WRITE or WRITE with CREATE_NEW. */
qs_status qsi_open_flags_check(uint32_t flags, const char *name, qs_error *error) QS_MUST_CHECK;

/* A name of ten digits and an ending; false: it is another one. */
bool qsi_name_number(const char *name, const char *ending, uint64_t *number_out);
/* Up to 16 lower-case hexadecimal digits at the front of a name; returns where they end. */
const char *qsi_name_hex(const char *at, uint64_t *value_out);

#endif
