/* Which messages have to leave their queue although no consumer took them: they expired, are too
 * many, or were delivered too often.  They go to the removal list.
 *
 * Those on the list are out, as if delivered, in the unacked messages of an internal channel.
 * Whatever is on it when the process dies is back in its queue.
 *
 * The engine's lock covers all of it. */
#ifndef QSI_LIMITS_H
#define QSI_LIMITS_H

#include "priorities.h"
#include "thread_safety.h"

#define QSI_RETRY_US QSI_US_PER_S /* what could not leave is tried again */

enum qsi_reason { QSI_EXPIRED, QSI_MAXLEN, QSI_REJECTED, QSI_DELIVERY_LIMIT };

struct removal {
    uint64_t first_tag, last_tag; /* of the internal channel */
    enum qsi_reason reason;
};

/* ---- removal.c ---- */

/* Room for stretch_count stretches on the removal list: adding them cannot fail then. */
qs_status qsi_reserve_removals(struct qs_store *store, uint32_t stretch_count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Messages of the queue that are out already are on their way. */
void qsi_add_removal(struct qs_store *store, struct store_queue *queue,
                     const struct qsi_stretch *stretch, enum qsi_reason reason)
    QSI_REQUIRES(qsi_store_mutex);
/* More messages of the priority are ready than before: some may be too many, or expire. */
void qsi_note_growth(struct qs_store *store, struct store_queue *subqueue)
    QSI_REQUIRES(qsi_store_mutex);
/* The queue is in use: it does not go for want of it. */
void qsi_note_use(struct qs_store *store, struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* What has expired is removed, as far as its state is in memory.  Without memory for it,
 * QS_ENOMEM: it is there still, and nobody may have it. */
qs_status qsi_expire_now(struct qs_store *store, struct store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline qs_status qsi_expire(struct qs_store *store, struct store_queue *queue,
                                   qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_earliest(queue) != QSI_NEVER ? qsi_expire_now(store, queue, error) : QS_OK;
}
/* What is too much leaves the queue: before others get the lock.  May release it, to read
 * what is on the disk. */
void qsi_trim(struct qs_store *store, enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex);
/* The same, and what is on the disk as well: before anybody is told how many messages there
 * are.  May release the lock. */
void qsi_expire_to_tell(struct qs_store *store, struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- limits.c ---- */

static inline bool qsi_has_dead_letters(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->policy.has_dead_letter_exchange && !queue->deleted;
}
/* Does the queue refuse messages rather than drop others? */
static inline bool qsi_queue_refuses(const struct store_queue *queue)
{
    return queue->policy.overflow != QSI_DROP_HEAD;
}
/* Does what it refuses go on to its dead-letter exchange? */
static inline bool qsi_queue_passes_on(const struct store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->policy.overflow == QSI_REJECT_PUBLISH_DLX && qsi_has_dead_letters(queue);
}
/* Would the queue refuse one of so many more messages, with so many bytes of bodies together? */
static inline bool qsi_queue_would_refuse(const struct store_queue *queue, uint64_t count,
                                          uint64_t body_bytes) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_queue_refuses(queue) &&
           (qsi_ready_count(queue) + count > queue->policy.messages_max ||
            (qsi_policy_counts_bytes(&queue->policy) &&
             qsi_ready_bytes(queue) + body_bytes > queue->policy.body_bytes_max));
}
/* How many of the messages [first_seq, first_seq + count), just pushed to a priority, its queue
 * refuses: the last ones. */
uint32_t qsi_refused_count(struct store_queue *subqueue, uint64_t first_seq, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);

/* Are so many ready messages, with so many bytes of bodies, more than the queue may have? */
bool qsi_is_too_much(const struct store_queue *queue, uint64_t ready, uint64_t body_bytes);
bool qsi_is_over(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* ---- retention.c ---- */

/* Drops what streams need not keep any more by their limits, and journals that.  Nothing is read,
 * and no file goes before a checkpoint says so. */
void qsi_retain_streams(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- expire.c ---- */

/* When the queue goes, if nobody uses it. */
uint64_t qsi_idle_end_us(const struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Wakes the timer if it sleeps for too long. */
void qsi_note_time(struct qs_store *store, struct store_queue *queue, uint64_t earliest)
    QSI_REQUIRES(qsi_store_mutex);
/* May release the lock: priorities may come meanwhile, and all may go.  REQUIRES a job of the
 * queue. */
void qsi_expire_all(struct qs_store *store, struct store_queue *queue, bool waits)
    QSI_REQUIRES(qsi_store_mutex);

#endif
