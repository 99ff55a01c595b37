/* Shared by the files of the commit: commit.c leads, sync.c syncs, committer.c has the threads,
 * room.c makes room. */
#ifndef QSI_COMMIT_INTERNAL_H
#define QSI_COMMIT_INTERNAL_H

#include "store.h"
#include "thread_safety.h"

/* The thread that syncs message and block files while the leader syncs the journal. */
void *qsi_run_sync_helper(void *argument);
/* Without the lock: bodies and journal are synced, in parallel when both have something. */
qs_status qsi_commit_sync(struct qs_store *store, struct qsi_dirty_set *set,
                          const struct qsi_dirty_blocks *blocks, qs_error *error) QS_MUST_CHECK;
void qsi_commit_close_blocks(struct qsi_dirty_blocks *blocks);
/* Whether something was written and not synced yet. */
bool qsi_commit_has_unsynced(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile. */
qs_status qsi_make_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                         uint64_t bytes_max, bool is_awaited, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
