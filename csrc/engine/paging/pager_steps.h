/* Steps that bring memory within its budget, and the thread that makes them. */
#ifndef QSI_PAGER_STEPS_H
#define QSI_PAGER_STEPS_H

#include "store.h"
#include "thread_safety.h"

/* Releases the lock meanwhile.  Makes one step towards less memory; false: there is none. */
bool qsi_pager_step(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  Makes a step for lazy queues; false: there is none. */
bool qsi_pager_page_lazy(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  For a lazy queue: pages all of it.  Returns the result of its last
 * flush. */
qs_status qsi_pager_settle_queue(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
void *qsi_run_pager(void *store);

#endif
