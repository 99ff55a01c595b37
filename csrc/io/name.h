/* Argument checks shared by all environments, and numbered names. */
#ifndef QSI_NAME_H
#define QSI_NAME_H

#include "qstore/env.h"

#include <stdbool.h>
#include <stdint.h>

/* QS_EINVAL unless name is one path component of 1 to QS_NAME_BYTES_MAX bytes other than "." and
 * "..". */
qs_status qsi_name_check(const char *name, qs_error *error) QS_MUST_CHECK;

/* QS_EINVAL unless flags are READ, WRITE, or WRITE with CREATE_NEW. */
qs_status qsi_open_flags_check(uint32_t flags, const char *name, qs_error *error) QS_MUST_CHECK;

/* Parses a name of ten digits and an ending; false: it is a different name. */
bool qsi_name_number(const char *name, const char *ending, uint64_t *number_out);
/* Parses up to 16 lower-case hexadecimal digits at the begin of a name; returns their end. */
const char *qsi_name_hex(const char *at, uint64_t *value_out);

#endif
