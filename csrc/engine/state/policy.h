/* What the arguments of a queue's declaration ask for, checked and as numbers.  queue is how texts
 * of errors call it (title.h). */
#ifndef QSI_POLICY_H
#define QSI_POLICY_H

#include "qstore/status.h"

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_UNLIMITED UINT64_MAX
#define QSI_PRIORITY_MAX 255

enum qsi_overflow { QSI_DROP_HEAD, QSI_REJECT_PUBLISH, QSI_REJECT_PUBLISH_DLX };

struct qsi_queue_policy {
    uint64_t message_ttl_ms; /* QSI_UNLIMITED: none */
    uint64_t expires_ms;     /* QSI_UNLIMITED: the queue stays */
    uint64_t messages_max;   /* ready ones; QSI_UNLIMITED */
    uint64_t body_bytes_max; /* of ready ones; QSI_UNLIMITED */
    uint64_t deliveries_max; /* earlier ones a message may have and be delivered; QSI_UNLIMITED */
    enum qsi_overflow overflow; /* when there are more */
    bool has_dead_letter_exchange;
    bool has_dead_letter_key;
    bool at_least_once;           /* dead-lettering */
    struct qsi_slice dead_letter; /* exchange; in the arguments that were parsed */
    struct qsi_slice dead_letter_key;
    bool has_priorities;
    uint8_t priority_max;
    bool single_active_consumer;
    bool lazy;
};

static inline bool qsi_policy_counts_deliveries(const struct qsi_queue_policy *policy)
{
    return policy->deliveries_max != QSI_UNLIMITED;
}
static inline bool qsi_policy_counts_bytes(const struct qsi_queue_policy *policy)
{
    return policy->body_bytes_max != QSI_UNLIMITED;
}
static inline bool qsi_policy_has_ttl(const struct qsi_queue_policy *policy)
{
    return policy->message_ttl_ms != QSI_UNLIMITED;
}

/* Slices of policy_out point into arguments.
 * QS_EINVAL               not a field table
 * QS_PRECONDITION_FAILED  an argument of a type or with a value that it cannot have; the text
 * names it and queue */
qs_status qsi_queue_policy_parse(struct qsi_queue_policy *policy_out, struct qsi_slice arguments,
                                 struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

/* Whether x-queue-type asks for what there is.  Asked of a new queue only: earlier builds took
 * any type, and their stores open.  REQUIRES arguments to be a checked table.
 * QS_PRECONDITION_FAILED  another type than "classic" and "stream" */
qs_status qsi_queue_type_check(struct qsi_slice arguments, struct qsi_slice queue,
                               qs_error *error) QS_MUST_CHECK;

/* Whether a queue is declared again with the arguments it has; those that mean nothing may differ,
 * as with RabbitMQ.  QS_PRECONDITION_FAILED names the first that differs.  REQUIRES current to be a
 * checked table. */
qs_status qsi_queue_arguments_check(struct qsi_slice current, struct qsi_slice received,
                                    struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

/* x-priority of a consumer's arguments; 0: there is none.  Whatever else they hold is ignored.
 * QS_EINVAL               not a field table
 * QS_PRECONDITION_FAILED  not a whole number */
qs_status qsi_consumer_priority_parse(int64_t *priority_out, struct qsi_slice arguments,
                                      struct qsi_slice queue, qs_error *error) QS_MUST_CHECK;

#endif
