/* How far the journal has grown since the last checkpoint. */
#ifndef QSI_BACKLOG_H
#define QSI_BACKLOG_H

#include "store.h"
#include "thread_safety.h"

/* Whether checkpoints are made unasked.  Not in a salvaged store: they would drop the damaged
 * journal. */
static inline bool qsi_checkpoint_is_automatic(const struct qs_store *store)
{
    return store->options.checkpoint_bytes > 0 && store->options.recovery != QS_RECOVERY_SALVAGE;
}
/* Checks whether the journal has grown since the last call. */
void qsi_backlog_look(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether nothing was appended for a second. */
bool qsi_backlog_is_quiet(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether one would be due after a quiet second, or because of its age or dead files. */
bool qsi_checkpoint_comes_by_itself(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether one is due now. */
bool qsi_checkpoint_is_due(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether one would give back much of the journal, in a quiet store. */
bool qsi_checkpoint_would_tidy(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether the journal has grown enough for one.  Costs nothing: called after each commit. */
bool qsi_checkpoint_wants_begin(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether there are files that wait only for a checkpoint to be removed. */
bool qsi_checkpoint_would_free(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether the journal grows faster than checkpoints can be made.  Publishers wait then. */
bool qsi_checkpoint_is_behind(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that is_held_up.  QS_ECORRUPT: publishers are refused, because the journal has reached
 * its bound. */
qs_status qsi_checkpoint_check_held(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
