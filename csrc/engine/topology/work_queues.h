/* Declaring work queues over a stream. */
#ifndef QSI_WORK_QUEUES_H
#define QSI_WORK_QUEUES_H

#include "store.h"
#include "thread_safety.h"

/* May release the lock meanwhile: x-stream-offset may ask for a time.  Where a work queue with
 * these arguments begins in the stream that they name; checks all of them.  REQUIRES a checked
 * table.  QS_PRECONDITION_FAILED */
qs_status qsi_work_queue_start(struct qs_store *store, struct qsi_slice name, uint32_t flags,
                               struct qsi_slice arguments, uint64_t *first_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
