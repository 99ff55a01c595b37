/* Records of topology and transactions: a number and up to four strings. */
#ifndef QSI_TOPOLOGY_RECORD_H
#define QSI_TOPOLOGY_RECORD_H

#include "qstore/status.h"

#include "slice.h"

#include <stdint.h>

/* What each kind has:
 *
 *   EXCHANGE_DECLARE  flags; name, type, arguments        EXCHANGE_DELETE  name
 *   QUEUE_DECLARE     flags, queue id; name, arguments    QUEUE_DELETE     queue id
 *   BIND, UNBIND      queue id; exchange, key, arguments  TRANSACTION      wall time in us; key
 *   EXCHANGE_BIND, EXCHANGE_UNBIND      source, key, arguments, destination
 *   PRIORITY_QUEUE_DECLARE, STREAM_DECLARE     as QUEUE_DECLARE
 *   WORK_QUEUE_DECLARE                  as QUEUE_DECLARE, and its source (work_record.h)
 *   TRANSACTION_FORGET                  key; or no key, and all committed before that wall time in
 *                                       us */
#define QSI_TOPOLOGY_STRINGS 4
struct qsi_topology {
    uint8_t type;
    uint32_t flags; /* QS_DURABLE ... */
    uint64_t number;
    struct qsi_slice strings[QSI_TOPOLOGY_STRINGS];
};
uint64_t qsi_topology_bytes(const struct qsi_topology *topology);
void qsi_topology_encode(uint8_t *record_out, const struct qsi_topology *topology);
qs_status qsi_topology_decode(struct qsi_topology *topology_out, const uint8_t *record,
                              qs_error *error) QS_MUST_CHECK;

/* The id of a queue's priority: the queue's id with the priority in the highest byte.  Priority 0
 * has the queue's id. */
#define QSI_PRIORITY_SHIFT 56
static inline uint64_t qsi_subqueue_id(uint64_t queue_id, uint8_t priority)
{
    return queue_id | (uint64_t)priority << QSI_PRIORITY_SHIFT;
}
static inline uint8_t qsi_priority_in(uint64_t id)
{
    return (uint8_t)(id >> QSI_PRIORITY_SHIFT);
}
static inline uint64_t qsi_queue_in(uint64_t id)
{
    return id & ((UINT64_C(1) << QSI_PRIORITY_SHIFT) - 1);
}

#endif
