/* Arguments of queues, streams and work queues: one table has the type and range of each, and the
 * queues that take it.  They are checked when a queue is declared and never again: arguments in a
 * store of an earlier or a later build are used as far as they make sense. queue: how texts call it
 * (title.h). */
#ifndef QSI_ARGUMENTS_H
#define QSI_ARGUMENTS_H

#include "qstore/status.h"

#include "policy.h"

enum qsi_queue_kind { QSI_CLASSIC_QUEUE = 1, QSI_STREAM_QUEUE = 2, QSI_WORK_QUEUE = 4 };

/* What they ask for. */
struct qsi_arguments {
    struct qsi_queue_policy queue;   /* without limits and modes if it is a stream */
    struct qsi_stream_policy stream; /* of a stream */
    struct qsi_work_policy work;     /* of a work queue */
};

/* A work queue has x-stream-source, a stream x-queue-type "stream".  REQUIRES a checked table. */
enum qsi_queue_kind qsi_arguments_kind(struct qsi_slice arguments);

/* Whether there may be such a queue: flags are those of the declaration, QS_DURABLE and so on, and
 * is_server_named says that the caller gave no name.  Called for a new queue only.  Arguments
 * without a meaning are accepted.
 *
 * QS_EINVAL               not a field table
 * QS_PRECONDITION_FAILED  names the first by name that has an invalid type or value, or that this
 *                         kind of queue does not take */
qs_status qsi_arguments_check(struct qsi_slice arguments, uint32_t flags, bool is_server_named,
                              struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

/* Reads the arguments that make sense for a queue of that kind; the others are treated as absent.
 * Slices of *out point into arguments.  Returns the number of the others, and *error (NULL is fine)
 * is about the first of them.  REQUIRES a checked table. */
uint32_t qsi_arguments_read(struct qsi_arguments *out, enum qsi_queue_kind kind,
                            struct qsi_slice arguments, struct qsi_slice queue, qs_error *error);

/* Whether a queue is declared again with the arguments that it has; arguments without a meaning may
 * differ, as in RabbitMQ.  QS_PRECONDITION_FAILED names the first that differs.  REQUIRES current
 * to be a checked table. */
qs_status qsi_queue_arguments_check(struct qsi_slice current, struct qsi_slice received,
                                    struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;
/* Does it count then? */
bool qsi_argument_is_compared(struct qsi_slice name);

#endif
