/* What a binding of a headers exchange wants: fields of a message's headers, any or all of them.
 *
 * As in RabbitMQ: x-match is all (the default), any, all-with-x or any-with-x; the first two pass
 * over fields whose name begins with "x-", and none takes x-match itself for a field.  A field with
 * a void value wants presence. */
#ifndef QSI_HEADERS_PATTERN_H
#define QSI_HEADERS_PATTERN_H

#include "qstore/status.h"

#include "header_fields.h"
#include "list.h"
#include "route.h"

struct qsi_headers_bucket;

struct qsi_pattern_field {
    struct qsi_header_field field;
    struct qsi_headers_pattern *pattern;
    struct qsi_headers_bucket *bucket; /* NULL: the pattern is kept under another field */
    struct qsi_list in_bucket;
};

struct qsi_headers_pattern {
    struct qsi_binding *binding;
    struct qsi_list in_always; /* of those that everything matches */
    struct qsi_buf copies; /* what values of fields point into, beside the binding's arguments */
    bool is_any;
    uint32_t count;
    struct qsi_pattern_field fields[]; /* sorted */
};

/* Whether a binding may have these arguments: QS_PRECONDITION_FAILED. */
qs_status qsi_headers_pattern_check(struct qsi_slice arguments, qs_error *error) QS_MUST_CHECK;

/* REQUIRES arguments that were checked.  NULL: out of memory. */
struct qsi_headers_pattern *qsi_headers_pattern_create(struct qsi_binding *binding);
void qsi_headers_pattern_destroy(struct qsi_headers_pattern *pattern);

/* Do the fields of a message agree with all of the pattern's?  Both are sorted. */
bool qsi_headers_pattern_agrees(const struct qsi_headers_pattern *pattern,
                                const struct qsi_header_fields *message);

static inline bool qsi_header_wants_presence(const struct qsi_header_field *field)
{
    return field->value.kind == QSI_HEADER_VOID;
}

#endif
