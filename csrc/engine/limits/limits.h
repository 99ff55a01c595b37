/* Which messages have to leave their queue without a consumer: they expired, exceed a limit, or
 * were delivered too often.  They go to the removal list.
 *
 * Messages on the list are out, as if delivered, in the unacked messages of an internal channel.
 * If the process dies, they are back in their queues.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_LIMITS_H
#define QSI_LIMITS_H

#include "priorities.h"
#include "thread_safety.h"

#define QSI_RETRY_US QSI_US_PER_S /* messages that could not leave are tried again */

enum qsi_reason { QSI_EXPIRED, QSI_MAXLEN, QSI_REJECTED, QSI_DELIVERY_LIMIT };

struct qsi_removal {
    uint64_t first_tag, last_tag; /* of the internal channel */
    enum qsi_reason reason;
};

/* ---- removal.c ---- */

/* Room for stretch_count stretches on the removal list: adding them cannot fail then. */
qs_status qsi_reserve_removals(struct qs_store *store, uint32_t stretch_count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Adds messages of the queue that are already out to the removal list. */
void qsi_add_removal(struct qs_store *store, struct qsi_store_queue *queue,
                     const struct qsi_stretch *stretch, enum qsi_reason reason)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- limits.c ---- */

static inline bool qsi_has_dead_letters(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->policy.dead_letter.data != NULL && !queue->deleted;
}
/* Whether the queue refuses messages and does not drop others. */
static inline bool qsi_queue_refuses(const struct qsi_store_queue *queue)
{
    return queue->policy.overflow != QSI_DROP_HEAD;
}
/* Whether messages that it refuses go on to its dead-letter exchange. */
static inline bool qsi_queue_passes_on(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->policy.overflow == QSI_REJECT_PUBLISH_DLX && qsi_has_dead_letters(queue);
}
/* Whether the queue would refuse one of so many more messages, with so many bytes of bodies
 * together. */
static inline bool qsi_queue_would_refuse(const struct qsi_store_queue *queue, uint64_t count,
                                          uint64_t body_bytes) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_refuses(queue) &&
           (qsi_ready_count(queue) + count > queue->policy.messages_max ||
            (qsi_policy_counts_bytes(&queue->policy) &&
             qsi_ready_bytes(queue) + body_bytes > queue->policy.body_bytes_max));
}
/* How many of the messages [first_seq, first_seq + count), just pushed to a priority, its queue
 * refuses: the last ones. */
uint32_t qsi_refused_count(struct qsi_store_queue *subqueue, uint64_t first_seq, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);

/* Whether so many ready messages, with so many bytes of bodies, exceed the queue's limits. */
bool qsi_is_too_much(const struct qsi_store_queue *queue, uint64_t ready, uint64_t body_bytes);
bool qsi_is_over(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* When the queue is deleted if it stays unused. */
uint64_t qsi_idle_end_us(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Wakes the timer if it sleeps for too long. */
void qsi_schedule_expiry(struct qs_store *store, struct qsi_store_queue *queue, uint64_t earliest)
    QSI_REQUIRES(qsi_store_mutex);
/* More messages of the priority are ready than before: some may exceed a limit, or expire. */
void qsi_check_growth(struct qs_store *store, struct qsi_store_queue *subqueue)
    QSI_REQUIRES(qsi_store_mutex);
/* The queue is in use: it is not deleted as unused. */
void qsi_record_use(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- trim.c ---- */

/* Messages above the limits leave the queue before other threads get the lock.  May release it, to
 * read from the disk. */
void qsi_trim(struct qs_store *store, enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex);

/* ---- retention.c ---- */

/* Drops messages that streams need not keep any more by their limits, and journals that.  Nothing
 * is read, and files are removed only after a checkpoint. */
void qsi_retain_streams(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- expire.c ---- */

/* Removes expired messages, as far as their state is in memory.  QS_ENOMEM: they are still there,
 * and must not be delivered. */
qs_status qsi_expire_now(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline qs_status qsi_expire(struct qs_store *store, struct qsi_store_queue *queue,
                                   qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_earliest(queue) != QSI_NEVER ? qsi_expire_now(store, queue, error) : QS_OK;
}
/* The same, also for messages on the disk: before the number of messages is reported.  May release
 * the lock. */
void qsi_expire_for_status(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* May release the lock: priorities may be added meanwhile, and all may be deleted.  REQUIRES a job
 * of the queue. */
void qsi_expire_all(struct qs_store *store, struct qsi_store_queue *queue, bool waits)
    QSI_REQUIRES(qsi_store_mutex);

#endif
