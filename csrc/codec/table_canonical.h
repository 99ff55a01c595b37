/* Field tables in canonical form, by which the engine compares them: equal tables have equal
 * bytes. */
#ifndef QSI_TABLE_CANONICAL_H
#define QSI_TABLE_CANONICAL_H

#include "qstore/status.h"

#include "buf.h"
#include "slice.h"

#include <stdbool.h>

/* Whether the table is certainly in that form; false for tables with nested tables or arrays.
 * REQUIRES a checked table. */
bool qsi_table_is_canonical(struct qsi_slice table);

/* Appends the table in canonical form, without a length: names in byte order, each once, also in
 * nested tables and in tables inside arrays.  Of entries with equal names the last one is kept.
 * Appends at most the table's size; nothing on failure.  QS_EINVAL: it is not a field table, or
 * nested deeper than QSI_FIELD_DEPTH_MAX.  QS_ENOMEM. */
qs_status qsi_table_canonical(struct qsi_buf *out, struct qsi_slice table,
                              qs_error *error) QS_MUST_CHECK;

#endif
