/* The messages that one call is about to push to each queue.  A batch and a transaction reach a
 * queue with several records, and the room for one record must count the others.
 *
 * Arrivals live as long as their call: made when the room is reserved, passed on to functions that
 * ask, and freed when the call ends. */
#ifndef QSI_ARRIVALS_H
#define QSI_ARRIVALS_H

#include "pending_records.h"
#include "thread_safety.h"

#define QSI_ARRIVALS_FEW 8

struct qsi_arrival {
    uint64_t queue_id; /* of a sub-queue, where there are priorities */
    struct qsi_store_queue *queue;
    uint64_t messages;
    uint64_t body_bytes; /* of a queue that refuses by them; 0 for others */
    /* a record with messages that have an expiration, or a due time; NULL: none has */
    const uint8_t *expiring, *delayed;
    uint32_t runs;
    bool any_transient;        /* some messages end with the process */
    bool is_dead_letter_alone; /* only dead letters come */
};
/* Zeroed memory has none. */
struct qsi_arrivals {
    struct qsi_arrival *items; /* by queue_id, each of them once */
    uint32_t count, capacity;
    struct qsi_arrival few[QSI_ARRIVALS_FEW];
};

/* REQUIRES that the destinations' queues were looked up, and that *arrivals has none. */
qs_status qsi_arrivals_count(struct qsi_arrivals *arrivals,
                             const struct qsi_pending_records *pending_records, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* NULL: nothing comes to that queue. */
const struct qsi_arrival *qsi_arrivals_find(const struct qsi_arrivals *arrivals, uint64_t queue_id);
void qsi_arrivals_fini(struct qsi_arrivals *arrivals);

#endif
