/* The life of a queue: found, made, emptied, and freed when nothing needs it any more. */
#ifndef QSI_QUEUE_LIFE_H
#define QSI_QUEUE_LIFE_H

#include "arguments.h"
#include "store.h"
#include "store_kind.h"
#include "thread_safety.h"

struct qsi_store_queue *qsi_find_queue(struct qs_store *store, struct qsi_slice name);
static inline struct qsi_store_queue *qsi_queue_of(struct qsi_destination *destination)
{
    return QSI_LIST_OWNER(destination, struct qsi_store_queue, destination);
}

static inline struct qsi_store_queue *qsi_queue_of_container(struct qsi_container *container)
{
    return QSI_LIST_OWNER(container, struct qsi_store_queue, container);
}

/* QS_NOT_FOUND, QS_RESOURCE_LOCKED */
qs_status qsi_require_queue(struct qs_channel *channel, struct qsi_slice name,
                            struct qsi_store_queue **queue_out, qs_error *error) QS_MUST_CHECK;
/* Removes the queue from everything; journals nothing. */
void qsi_drop_queue(struct qs_store *store, struct qsi_store_queue *queue,
                    enum qsi_auto_delete auto_delete) QSI_REQUIRES(qsi_store_mutex);
void qsi_free_queue_if_done(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* A job has ended that kept the queue (queue->jobs).  It may be gone afterwards. */
void qsi_end_queue_job(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
void qsi_free_all_queues(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* For a queue that has sub-queues: makes the one if needed; QS_ENOMEM. */
qs_status qsi_make_subqueue_of(struct qs_store *store, struct qsi_store_queue *queue,
                               uint8_t priority) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* As qsi_find_by_id, and makes a sub-queue that was never used; *queue_out NULL: its queue is
 * gone.
 * QS_ECORRUPT  a sub-queue that the queue does not have */
qs_status qsi_require_by_id(struct qs_store *store, uint64_t id, struct qsi_store_queue **queue_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

static inline bool qsi_is_journalled(const struct qsi_store_queue *queue)
{
    return (queue->flags & QS_DURABLE) != 0;
}
/* QS_NOT_FOUND; QS_EINVAL: a queue that is no stream. */
qs_status qsi_stream_find(struct qs_store *store, struct qsi_slice name,
                          struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* QS_NOT_IMPLEMENTED for a stream, for which the verb ("basic.get") is not available. */
qs_status qsi_refuse_stream(const struct qs_store *store, const struct qsi_store_queue *queue,
                            const char *what, qs_error *error) QS_MUST_CHECK;
/* QS_RESOURCE_LOCKED */
qs_status qsi_fail_locked(const struct qs_store *store, const struct qsi_store_queue *queue,
                          qs_error *error);
qs_status qsi_fail_no_queue(const struct qs_store *store, struct qsi_slice name, qs_error *error);
qs_status qsi_check_owner(const struct qs_channel *channel, const struct qsi_store_queue *queue,
                          qs_error *error) QS_MUST_CHECK;
/* A queue that nobody knows yet: to be added, or freed.  Arguments that make no sense are kept, and
 * that is all. */
qs_status qsi_new_queue(struct qs_store *store, const struct qsi_store_kind *kind, uint64_t id,
                        uint32_t flags, struct qsi_slice name, struct qsi_slice arguments,
                        struct qsi_store_queue **queue_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_add_queue(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_free_queue(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* The values that the next sample is compared with. */
void qsi_record_rates(struct qsi_store_queue *queue, uint64_t now) QSI_REQUIRES(qsi_store_mutex);
/* Counts from now on. */
void qsi_begin_rates(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

#endif
