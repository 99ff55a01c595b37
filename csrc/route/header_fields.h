/* The fields of a header table, in the form in which bindings compare them. */
#ifndef QSI_HEADER_FIELDS_H
#define QSI_HEADER_FIELDS_H

#include "qstore/status.h"

#include "buf.h"
#include "slice.h"

/* A value; two values are equal if all three members are.  As in RabbitMQ (3.10), these are equal:
 * numbers and timestamps of the same value, of any types; text and bytes; arrays and tables with
 * elements of the same types and equal values, in the same order; all empty arrays and tables.  A
 * NaN equals no value. */
struct qsi_header_value {
    uint8_t kind;
    uint64_t bits;
    struct qsi_slice bytes;
};

struct qsi_header_field {
    struct qsi_slice name;
    uint32_t occurrence; /* number of earlier fields with the same name */
    struct qsi_header_value value;
};

/* All fields of a table, sorted by name.  Zeroed memory is an empty one. */
struct qsi_header_fields {
    struct qsi_header_field *items; /* in the buffer fields */
    uint32_t count;
    struct qsi_buf fields;
    struct qsi_buf copies; /* copies of arrays and tables */
};

/* Reads a table; earlier fields are dropped.  Names and texts point into the table.  Stops at
 * malformed bytes.  QS_ENOMEM. */
qs_status qsi_header_fields_read(struct qsi_header_fields *fields,
                                 struct qsi_slice table) QS_MUST_CHECK;
void qsi_header_fields_fini(struct qsi_header_fields *fields);

/* Compares by name, then by occurrence: the order of the fields. */
int qsi_header_compare(const struct qsi_header_field *a, const struct qsi_header_field *b);
bool qsi_header_equals(const struct qsi_header_value *a, const struct qsi_header_value *b);

/* Kinds with names. */
#define QSI_HEADER_VOID 'V'
#define QSI_HEADER_NOTHING '!' /* equals no value, not even itself */

#endif
