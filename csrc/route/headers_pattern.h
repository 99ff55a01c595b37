/* The pattern of a binding to a headers exchange: fields that all, or any, must be in a message's
 * headers.
 *
 * As in RabbitMQ, x-match is all (the default), any, all-with-x or any-with-x.  The first two
 * ignore fields whose name begins with "x-", and x-match itself is never a field.  A field with a
 * void value requires only presence. */
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
    struct qsi_headers_bucket *bucket; /* NULL: the pattern is in the bucket of another field */
    struct qsi_list in_bucket;
};

struct qsi_headers_pattern {
    struct qsi_binding *binding;
    struct qsi_list in_always; /* in the list of patterns that every message matches */
    struct qsi_buf copies;     /* for values of fields that are not in the binding's arguments */
    bool is_any;
    uint32_t count;
    struct qsi_pattern_field fields[]; /* sorted */
};

/* Checks the arguments of a binding: QS_PRECONDITION_FAILED. */
qs_status qsi_headers_pattern_check(struct qsi_slice arguments, qs_error *error) QS_MUST_CHECK;

/* REQUIRES checked arguments.  NULL: out of memory. */
struct qsi_headers_pattern *qsi_headers_pattern_create(struct qsi_binding *binding);
void qsi_headers_pattern_destroy(struct qsi_headers_pattern *pattern);

/* Whether a message has all fields of the pattern.  Both are sorted. */
bool qsi_headers_pattern_agrees(const struct qsi_headers_pattern *pattern,
                                const struct qsi_header_fields *message);

static inline bool qsi_header_wants_presence(const struct qsi_header_field *field)
{
    return field->value.kind == QSI_HEADER_VOID;
}

#endif
