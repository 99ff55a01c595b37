/* Accepting pending records: they get into queues and journal. */
#ifndef QSI_ACCEPT_H
#define QSI_ACCEPT_H

#include "arrivals.h"
#include "pending_records.h"
#include "refuse.h"
#include "store.h"
#include "thread_safety.h"

/* REQUIRES room.  Reserves memory for accepting all of them: accept cannot fail then, until the
 * lock is released.  extra_entries: further appends.  arrivals: zeroed; gets the messages for each
 * queue, and the caller frees it in any case. */
qs_status qsi_pending_records_reserve(struct qs_store *store,
                                      struct qsi_pending_records *pending_records,
                                      uint32_t extra_entries, struct qsi_arrivals *arrivals,
                                      qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Pushes and appends all as one atomic group; goes_on: the caller's next append is part of the
 * group.  Returns the LSN at which they end, 0 if nothing was journalled. */
uint64_t qsi_pending_records_accept_group(struct qs_store *store,
                                          struct qsi_pending_records *pending_records, bool goes_on)
    QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES reserve, and that they are in their stream's file.  Pushes the first ones, which accept
 * then skips. */
void qsi_pending_records_push_written(struct qs_store *store,
                                      struct qsi_pending_records *pending_records, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);
/* The same, each record for itself.  Afterwards, messages that their queue refused are not in it,
 * but in *refusals.  last_lsn: the LSN of the last append before them, which is returned if nothing
 * is appended. */
uint64_t qsi_pending_records_accept(struct qs_store *store,
                                    struct qsi_pending_records *pending_records,
                                    struct qsi_refusals *refusals, uint64_t last_lsn)
    QSI_REQUIRES(qsi_store_mutex);

#endif
