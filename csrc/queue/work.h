/* Work queues: a queue whose messages another container, its source, keeps for any number of
 * queues.
 *
 * A message's sequence is its offset in the source.  The queue has bitmaps and settles, like any
 * queue, and no files: no slots, no bodies.  Content is in runs whose chunks are the source's, of
 * its tail or a block, and is installed by the thread that reads it; it may leave memory at any
 * time, so everything counts as flushed.
 *
 * Messages [next_seq, work.end) are the rest: they are ready, are counted, and have no state yet.
 * They get it (admit) when their content comes.  A segment that is settled as a whole has no state
 * any more.  So a queue takes 3 bits for each message between the first that is not settled and the
 * last that was read, rounded to segments, and nothing for all others.
 *
 * A checkpoint carries the bitmaps itself.
 *
 * REQUIRES lock: the engine's covers every call. */
#ifndef QSI_WORK_H
#define QSI_WORK_H

#include "queue.h"
#include "thread_safety.h"

/* A durable one that reads from seq 0 on, unless qsi_container_start_at sets another start. */
void qsi_work_init(struct qsi_queue *queue, struct qsi_queue_shared *shared, uint64_t id)
    QSI_REQUIRES(qsi_store_mutex);
static inline bool qsi_queue_is_work(const struct qsi_queue *queue)
{
    return queue->container.kind == &qsi_work_kind;
}
/* The source has durable messages below end; returns the number of new ones. */
uint64_t qsi_work_raise(struct qsi_queue *queue, uint64_t end) QSI_REQUIRES(qsi_store_mutex);
/* Content of messages [first_seq, first_seq + count), like that of runs (run.h; rows are copied),
 * as far as the queue lacks it and has the messages.  They are admitted.  QS_ENOMEM: nothing was
 * done. */
qs_status qsi_work_install(struct qsi_queue *queue, uint64_t first_seq, uint32_t count,
                           const struct qsi_messages_ref *messages, uint32_t first_message,
                           uint64_t ram_bytes) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Instead: the message cannot be read, and its consumer gets the error. */
qs_status qsi_work_install_damaged(struct qsi_queue *queue, uint64_t source_id, uint64_t first_seq,
                                   uint64_t end) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The source does not have the messages in [from, to) any more: those that are not out leave, and
 * are counted. from is next_seq at most.  Without memory the rest stays, for the next time. */
void qsi_work_lose(struct qsi_queue *queue, uint64_t from, uint64_t to)
    QSI_REQUIRES(qsi_store_mutex);
/* No message below is ready, delayed or out. */
uint64_t qsi_work_low_water(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);

#endif
