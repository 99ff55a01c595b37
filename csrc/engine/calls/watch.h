/* Events that no call reports: commits that stall, a clock that is set, a full disk, checkpoints,
 * failure.
 *
 * A thread that meets one notes it under the lock.  The timer reports it, without a lock, to the
 * host's function (qs_options.note): no thread that others wait for ever calls the host. */
#ifndef QSI_WATCH_H
#define QSI_WATCH_H

#include "store.h"
#include "thread_safety.h"

/* Releases the lock while the listener is called. */
void qsi_watch_report(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* How long the timer may sleep, so that events are reported in time. */
uint64_t qsi_watch_again_us(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* How long the running commit has been at the disk; 0: none runs. */
uint64_t qsi_commit_running_ns(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* For the leader.  A stall that ends before its report is still counted. */
void qsi_watch_commit_end(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_watch_checkpoint_end(struct qs_store *store, uint64_t began_ns)
    QSI_REQUIRES(qsi_store_mutex);
/* A publisher was refused for lack of space; is admitted. */
void qsi_watch_full(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void qsi_watch_admitted(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something that must be reported has happened. */
void qsi_watch_wake(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

#endif
