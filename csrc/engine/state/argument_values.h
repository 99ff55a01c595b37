/* Values of single arguments: of declarations of queues, and of readers. queue: how texts of errors
 * call it (title.h). */
#ifndef QSI_ARGUMENT_VALUES_H
#define QSI_ARGUMENT_VALUES_H

#include "qstore/status.h"

#include "field_table.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_OFFSET_ARGUMENT "x-stream-offset"
#define QSI_OFFSET_NEEDED                                                                       \
    "'first', 'last', 'next', an offset, a timestamp, a time such as '2026-01-31T12:00:00.5Z'," \
    " or a time before now such as '1h' is needed"

bool qsi_is_text(struct qsi_slice slice, const char *text);
/* False: not a whole number of 64 bits; a timestamp is not one. */
bool qsi_argument_number(const struct qsi_field *field, int64_t *number_out);
/* QS_PRECONDITION_FAILED, with RabbitMQ's text. */
qs_status qsi_argument_invalid(const char *name, struct qsi_slice queue, const char *why,
                               qs_error *error);

/* "7D": a whole number above 0 and one of Y M D h m s.  False: it is not such a text. */
bool qsi_max_age_parse(struct qsi_slice text, uint64_t *us_out);

/* Where a reader begins. */
enum qsi_stream_start {
    QSI_START_FIRST,
    QSI_START_LAST,
    QSI_START_NEXT,
    QSI_START_OFFSET,
    QSI_START_TIME
};
struct qsi_stream_start_spec {
    enum qsi_stream_start at;
    uint64_t offset;  /* QSI_START_OFFSET */
    uint64_t time_us; /* QSI_START_TIME: since 1970 */
};
/* First, last, next, an offset (negative: the first), a timestamp, the text of a time
 * (time_text.h), or a time before now_us ("1h").  False: it is none of them. */
bool qsi_stream_start_read(const struct qsi_field *field, uint64_t now_us,
                           struct qsi_stream_start_spec *start_out);
/* x-stream-offset of a consumer's arguments, or a work queue's.  Absent: next.  REQUIRES a checked
 * table.
 * QS_PRECONDITION_FAILED */
qs_status qsi_stream_start_parse(struct qsi_stream_start_spec *start_out,
                                 struct qsi_slice arguments, uint64_t now_us,
                                 struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

/* x-priority of a consumer's arguments; 0: there is none.  Whatever else they hold is ignored.
 * QS_EINVAL               not a field table
 * QS_PRECONDITION_FAILED  not a whole number */
qs_status qsi_consumer_priority_parse(int64_t *priority_out, struct qsi_slice arguments,
                                      struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

#endif
