/* The fields of a header table in the form in which bindings compare them. */
#ifndef QSI_HEADER_FIELDS_H
#define QSI_HEADER_FIELDS_H

#include "qstore/status.h"

#include "buf.h"
#include "properties.h"

/* Two values are equal when all three members are.  So are then, as in RabbitMQ (3.10): numbers and
 * timestamps of the same value, whatever their types; text and bytes; arrays and tables whose parts
 * have the same types and equal values, in the same order, and all empty ones.  A NaN equals
 * nothing. */
struct qsi_header_value {
    uint8_t kind;
    uint64_t bits;
    struct qsi_slice bytes;
};

struct qsi_header_field {
    struct qsi_slice name;
    uint32_t occurrence; /* how many of the same name come before it */
    struct qsi_header_value value;
};

/* All fields of a table, sorted by name.  Zeroed memory is an empty one. */
struct qsi_header_fields {
    struct qsi_header_field *items; /* in fields */
    uint32_t count;
    struct qsi_buf fields;
    struct qsi_buf copies; /* of arrays and tables */
};

/* Reads a table; what was read before is gone.  The names and texts stay the table's.  Stops at
 * what is malformed.  QS_ENOMEM. */
qs_status qsi_header_fields_read(struct qsi_header_fields *fields,
                                 struct qsi_slice table) QS_MUST_CHECK;
void qsi_header_fields_fini(struct qsi_header_fields *fields);

/* By name, then by occurrence: the order of the fields. */
int qsi_header_compare(const struct qsi_header_field *a, const struct qsi_header_field *b);
bool qsi_header_equals(const struct qsi_header_value *a, const struct qsi_header_value *b);

/* Kinds that are asked for by name. */
#define QSI_HEADER_VOID 'V'
#define QSI_HEADER_NOTHING '!' /* equals nothing, not even itself */

#endif
