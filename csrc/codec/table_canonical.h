/* Field tables in the one form that the engine compares: equal tables are equal bytes. */
#ifndef QSI_TABLE_CANONICAL_H
#define QSI_TABLE_CANONICAL_H

#include "qstore/status.h"

#include "buf.h"
#include "slice.h"

#include <stdbool.h>

/* Is it in that form already?  False of some that are, those with tables or arrays in them.
 * REQUIRES a checked table. */
bool qsi_table_is_canonical(struct qsi_slice table);

/* Appends the table to out, without a length word: names in byte order, each once, in nested tables
 * and in tables inside arrays as well.  Of entries with equal names the last one stays.  out takes
 * the table's bytes at most, and is as it was on failure.
 * QS_EINVAL: not a field table, or nested deeper than QSI_FIELD_DEPTH_MAX.  QS_ENOMEM */
qs_status qsi_table_canonical(struct qsi_buf *out, struct qsi_slice table,
                              qs_error *error) QS_MUST_CHECK;

#endif
