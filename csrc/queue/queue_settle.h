/* Settling: masks of messages that are out, in one word (slot / 64) of a segment. */
#ifndef QSI_QUEUE_SETTLE_H
#define QSI_QUEUE_SETTLE_H

#include "queue.h"

/* Acked or dropped.  May retire the segment. */
void qsi_queue_settle(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Without memory for the delivery counts it does not count; it cannot fail in any case. */
void qsi_queue_requeue(struct qsi_container *container, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Ready again as if never taken: not counted, and not visible. */
void qsi_queue_give_back(struct qsi_container *container, struct qsi_segment *segment,
                         uint32_t word, uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Drops every ready or delayed message; visit gets ranges that have all of them and none that is
 * out.  Returns the number of dropped messages. */
uint64_t qsi_queue_purge(struct qsi_container *container, qsi_range_visitor *visit, void *context)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops one ready or delayed message.  REQUIRES state.  May retire the segment. */
void qsi_queue_discard(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex);
/* The queue is deleted: purges it, and drops the references of messages that are out as well. */
void qsi_queue_abandon(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);
/* The most ranges that a purge would visit. */
uint64_t qsi_queue_purge_ranges(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);

#endif
