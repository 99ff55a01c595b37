/* Queues with priorities (x-max-priority).
 *
 * Each used priority is a queue of its own, a sub-queue, with sequences, segments and runs like any
 * other.  Sub-queue 0 is the declared queue; the others are reached only by its pointer and by
 * their id (qsi_subqueue_id).  A sub-queue carries the queue's name, arguments and policy, so code
 * that reaches it by a message sees those of the queue; code that counts all messages, or needs the
 * consumers, gets the queue.  A sub-queue that was never used costs a pointer.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_PRIORITIES_H
#define QSI_PRIORITIES_H

#include "store.h"
#include "thread_safety.h"

struct qsi_store_priorities {
    struct qsi_queue_sum sum; /* of all sub-queues, by sub-queue */
    uint32_t count;
    struct qsi_store_queue *queues[]; /* highest first; the last is the queue itself */
};

/* The declared queue. */
static inline struct qsi_store_queue *qsi_owner_of(struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->parent == NULL) ? queue : queue->parent;
}
static inline uint32_t qsi_subqueue_count(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? 1 : queue->priorities->count;
}
/* Highest first. */
static inline struct qsi_store_queue *qsi_subqueue_at(struct qsi_store_queue *queue, uint32_t index)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : queue->priorities->queues[index];
}
static inline const struct qsi_queue *qsi_core_at(const struct qsi_store_queue *queue,
                                                  uint32_t index) QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? &queue->core
                                                : &queue->priorities->queues[index]->core;
}

/* A message's place for browsers: it ascends in the order of delivery. */
static inline uint64_t qsi_position_of(const struct qsi_store_queue *subqueue, uint64_t seq)
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

/* The sub-queue of the next message: the highest that has one; the queue itself if none has. */
struct qsi_store_queue *qsi_find_head_subqueue(struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
static inline struct qsi_store_queue *qsi_head_subqueue(struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : qsi_find_head_subqueue(queue);
}

/* Of all sub-queues. */
static inline uint64_t qsi_ready_count(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_ready_count(&queue->core)
                                                : queue->priorities->sum.ready_count;
}
static inline uint64_t qsi_ready_bytes(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_ready_bytes(&queue->core)
                                                : queue->priorities->sum.ready_bytes;
}
/* Of all sub-queues. */
uint64_t qsi_delayed_count(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
static inline bool qsi_has_ready(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_ready_count(queue) > 0;
}
/* A time before which no ready message expires, and no delayed one is due. */
static inline uint64_t qsi_earliest(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? qsi_queue_earliest(&queue->core)
                                                : queue->priorities->sum.earliest;
}
/* Expired messages are gone, and due ones are ready: computes the next time. */
void qsi_update_earliest(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* The id of the sub-queue for messages of this priority, used or not. */
static inline uint64_t qsi_priority_id(const struct qsi_store_queue *queue, uint8_t priority)
{
    uint8_t most = queue->policy.priority_max;

    return qsi_subqueue_id(queue->container.id, priority < most ? priority : most);
}
/* For a queue that has sub-queues: the one for messages of this priority; NULL: it was never
 * used. */
struct qsi_store_queue *qsi_find_subqueue(struct qsi_store_queue *queue, uint8_t priority)
    QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that it was used or made. */
static inline struct qsi_store_queue *qsi_subqueue_of(struct qsi_store_queue *queue,
                                                      uint8_t priority)
    QSI_REQUIRES(qsi_store_mutex)
{
    return QS_LIKELY(queue->priorities == NULL) ? queue : qsi_find_subqueue(queue, priority);
}
/* A queue or a sub-queue; NULL: it was deleted, or never used. */
struct qsi_store_queue *qsi_find_by_id(struct qs_store *store, uint64_t id);
/* The new sub-queue is one of the queue's, which has room for it. */
void qsi_add_subqueue(struct qsi_store_queue *queue, struct qsi_store_queue *subqueue)
    QSI_REQUIRES(qsi_store_mutex);

#endif
