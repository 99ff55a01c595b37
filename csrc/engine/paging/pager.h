/* What the files of the pager share: pager.c makes the steps, pager_load.c reads, pager_space.c gives space on the disk back. */
#ifndef QSI_PAGER_H
#define QSI_PAGER_H

#include "engine.h"
#include "paging.h"

/* ---- pager.c ---- */

/* REQUIRES lock.  Around a job: the queue stays while its count is above 0.  begin releases the lock; end REQUIRES it. */
void qsi_pager_job_begin(struct qs_store *store, struct store_queue *queue);
void qsi_pager_job_end(struct qs_store *store, struct store_queue *queue);
/* REQUIRES lock.  A file could not be written.  Without space the store goes on with what is in memory; anything else is the end of it. */
void qsi_pager_note_failure(struct qs_store *store, qs_status status, const qs_error *error);

/* ---- pager_load.c ---- */

/* REQUIRES lock; releases it meanwhile.  Runs and ends a job that was begun.  The queue may be gone afterwards. */
qs_status qsi_pager_run_page_in(struct qs_store *store, struct store_queue *queue,
                                struct qsi_page_in *job, qs_error *error) QS_MUST_CHECK;
/* REQUIRES lock; releases it meanwhile.  Until some job has ended.  The queue may be gone
 * afterwards. */
qs_status qsi_pager_wait(struct qs_store *store, struct store_queue *queue) QS_MUST_CHECK;
/* REQUIRES lock; releases it meanwhile.  One load for a queue that is read; false: none is to be made. */
bool qsi_pager_read_ahead(struct qs_store *store);
/* REQUIRES lock.  Is there a consumer who comes for what was paged? */
bool qsi_pager_is_read(struct qs_store *store, const struct store_queue *queue);
/* REQUIRES lock.  How many messages are kept ready in memory in front of a consumer. */
uint64_t qsi_pager_ahead_count(const struct qs_store *store, const struct store_queue *queue);
/* REQUIRES lock.  Of a message in memory; 0: there is none. */
double qsi_pager_average_bytes(const struct store_queue *queue);

#endif
