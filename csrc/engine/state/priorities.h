/* Queues with priorities (x-max-priority).
 *
 * Each priority that was used is a queue of its own, a sub-queue, with sequences, segments and
 * runs like any other; sub-queue 0 is the queue that was declared, the others are known by its
 * pointer and by their id only (qsi_subqueue_id).  A sub-queue carries the queue's name,
 * arguments and policy, so that whoever meets it by a message sees the queue's; what counts all
 * messages, and who consumes them, is told of the queue.  A sub-queue that was never used costs
 * a pointer.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_PRIORITIES_H
#define QSI_PRIORITIES_H

#include "queue_life.h"
#include "thread_safety.h"

struct store_priorities {
    struct qsi_queue_sum sum; /* of all sub-queues, by sub-queue */
    uint32_t count;
    struct store_queue *queues[]; /* highest first; the last is the queue itself */
};

/* The queue that was declared. */
static inline struct store_queue *qsi_owner_of(struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->parent == NULL) ? queue : queue->parent;
}
static inline uint32_t qsi_subqueue_count(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? 1 : queue->priorities->count;
}
/* Highest first. */
static inline struct store_queue *qsi_subqueue_at(struct store_queue *queue, uint32_t index)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : queue->priorities->queues[index];
}
static inline const struct qsi_queue *qsi_core_at(const struct store_queue *queue, uint32_t index)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? &queue->core
                                                : &queue->priorities->queues[index]->core;
}

/* Of a message, for those who look at a queue: it ascends in the order of delivery. */
static inline uint64_t qsi_position_of(const struct store_queue *subqueue, uint64_t seq)
{
    uint64_t rank = (uint64_t)(subqueue->policy.priority_max - subqueue->priority);

    QS_DCHECK(subqueue->priority <= subqueue->policy.priority_max &&
              seq >> QSI_PRIORITY_SHIFT == 0);
    return rank << QSI_PRIORITY_SHIFT | seq;
}
static inline uint64_t qsi_sequence_in(uint64_t position)
{
    return qsi_queue_in(position);
}

/* Where the next message is: the highest sub-queue that has one; the queue itself if none has. */
struct store_queue *qsi_find_head_subqueue(struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
static inline struct store_queue *qsi_head_subqueue(struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : qsi_find_head_subqueue(queue);
}

/* Of all sub-queues. */
static inline uint64_t qsi_ready_count(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_ready_count(&queue->core)
                                                : queue->priorities->sum.ready_count;
}
static inline uint64_t qsi_ready_bytes(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_ready_bytes(&queue->core)
                                                : queue->priorities->sum.ready_bytes;
}
/* Of all sub-queues. */
uint64_t qsi_delayed_count(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
static inline bool qsi_has_ready(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_ready_count(queue) > 0;
}
/* No ready message expires, and no delayed one is due, before. */
static inline uint64_t qsi_earliest(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_earliest(&queue->core)
                                                : queue->priorities->sum.earliest;
}
/* What had expired is gone, and what was due is ready: when does the next one? */
void qsi_tell_earliest(struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* The id of the sub-queue that messages of this priority go to, whether it was used or not. */
static inline uint64_t qsi_priority_id(const struct store_queue *queue, uint8_t priority)
{
    uint8_t most = queue->policy.priority_max;

    return qsi_subqueue_id(queue->container.id, priority < most ? priority : most);
}
/* Of a queue that has sub-queues: the one that messages of this priority go to; NULL: it was
 * never used. */
struct store_queue *qsi_find_subqueue(struct store_queue *queue, uint8_t priority)
    QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that it was used or made. */
static inline struct store_queue *qsi_subqueue_of(struct store_queue *queue, uint8_t priority)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : qsi_find_subqueue(queue, priority);
}
/* Of a queue that has sub-queues: makes it if need be; QS_ENOMEM. */
qs_status qsi_make_subqueue_of(struct qs_store *store, struct store_queue *queue, uint8_t priority)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* A queue or a sub-queue; NULL: it is gone, or was never used. */
struct store_queue *qsi_find_by_id(struct qs_store *store, uint64_t id);
/* The same, and makes a sub-queue that was never used; *queue_out NULL: its queue is gone.
 * QS_ECORRUPT  a sub-queue that the queue does not have */
qs_status qsi_require_by_id(struct qs_store *store, uint64_t id, struct store_queue **queue_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
