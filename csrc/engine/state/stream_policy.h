/* What the arguments of a stream's declaration, and of who reads it, ask for.  queue is how texts
 * of errors call it (title.h). */
#ifndef QSI_STREAM_POLICY_H
#define QSI_STREAM_POLICY_H

#include "qstore/status.h"

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* What is kept.  QSI_UNLIMITED (policy.h): no such limit. */
struct qsi_stream_policy {
    uint64_t age_us_max;    /* x-max-age */
    uint64_t bytes_max;     /* x-max-length-bytes */
    uint64_t messages_max;  /* x-max-messages */
    uint64_t segment_bytes; /* x-stream-max-segment-size-bytes */
};

/* Does x-queue-type say "stream"?  REQUIRES a checked table. */
bool qsi_is_stream_type(struct qsi_slice arguments);

/* Whether there may be such a stream: flags are those of the declaration, QS_DURABLE and so on,
 * and is_server_named tells that the caller gave no name.  All in RabbitMQ's words.  REQUIRES a
 * checked table.
 * QS_PRECONDITION_FAILED  flags that no stream has, arguments that none has, a value that cannot
 *                         be */
qs_status qsi_stream_policy_check(struct qsi_slice arguments, uint32_t flags, bool is_server_named,
                                  struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;
/* The arguments of a stream that were checked once; what makes no sense is not there. */
void qsi_stream_policy_parse(struct qsi_stream_policy *policy_out, struct qsi_slice arguments);

/* "7D": a whole number above 0 and one of Y M D h m s.  False: it is none. */
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
/* x-stream-offset of a consumer's arguments: first, last, next, an offset (negative: the first), a
 * timestamp, the text of a time (time_text.h), or how long before now_us ("1h").  Absent: next.
 * REQUIRES a checked table.
 * QS_PRECONDITION_FAILED */
qs_status qsi_stream_start_parse(struct qsi_stream_start_spec *start_out,
                                 struct qsi_slice arguments, uint64_t now_us,
                                 struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

#endif
