/* The arguments of a queue's declaration, as numbers (arguments.h). */
#ifndef QSI_POLICY_H
#define QSI_POLICY_H

#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_UNLIMITED UINT64_MAX
#define QSI_PRIORITY_MAX 255

enum qsi_overflow { QSI_DROP_HEAD, QSI_REJECT_PUBLISH, QSI_REJECT_PUBLISH_DLX };

struct qsi_queue_policy {
    uint64_t message_ttl_ms;      /* QSI_UNLIMITED: none */
    uint64_t expires_ms;          /* QSI_UNLIMITED: the queue stays */
    uint64_t messages_max;        /* ready ones; QSI_UNLIMITED */
    uint64_t body_bytes_max;      /* of ready ones; QSI_UNLIMITED */
    uint64_t deliveries_max;      /* earlier deliveries that a message may have; QSI_UNLIMITED */
    enum qsi_overflow overflow;   /* when there are more */
    bool at_least_once;           /* dead-lettering */
    struct qsi_slice dead_letter; /* exchange; in the arguments that were read; null: none */
    struct qsi_slice dead_letter_key; /* null: the message's own */
    bool has_priorities;
    uint8_t priority_max;
    bool single_active_consumer;
    bool lazy;
    bool keeps_all; /* its messages are persistent, whatever their delivery mode says */
    bool asks_more; /* needs more of a message: refuses, has priorities, keeps all */
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

/* The limits of a stream. */
struct qsi_stream_policy {
    uint64_t age_us_max;    /* x-max-age; QSI_UNLIMITED: no such limit */
    uint64_t bytes_max;     /* x-max-length-bytes; QSI_UNLIMITED */
    uint64_t messages_max;  /* x-max-messages; QSI_UNLIMITED */
    uint64_t segment_bytes; /* x-stream-max-segment-size-bytes, or what follows from the limits */
    bool segments_follow;   /* the latter: they end by messages_max and age_us_max as well */
};

struct qsi_work_policy {
    struct qsi_slice source; /* x-stream-source; in the arguments that were read */
    bool pins;               /* x-stream-pin: retention waits for it */
};

#endif
