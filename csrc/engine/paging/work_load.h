/* Content for work queues, from the streams that they read. */
#ifndef QSI_WORK_LOAD_H
#define QSI_WORK_LOAD_H

#include "store.h"
#include "thread_safety.h"

/* Releases the lock meanwhile.  Reads what the head of a work queue lacks next, and adjacent
 * messages: rows of a block, or a piece of the stream's tail.  Messages that the stream does not
 * have any more are passed, those that cannot be read become damaged ones.  QS_EEMPTY: it lacks
 * nothing.  The queue may be gone afterwards. */
qs_status qsi_work_load_head(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same for a message that is out.  QS_EEMPTY: its content is in memory. */
qs_status qsi_work_load_one(struct qs_store *store, struct qsi_store_queue *queue, uint64_t seq,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
