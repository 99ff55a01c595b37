/* How far the journal has grown since the last checkpoint. */
#ifndef QSI_BACKLOG_H
#define QSI_BACKLOG_H

#include "store.h"
#include "thread_safety.h"

/* Are checkpoints made unasked?  Not in a salvaged store: they would let go of the journal that
 * is damaged. */
static inline bool qsi_checkpoint_is_automatic(const struct qs_store *store)
{
    return store->options.checkpoint_bytes > 0 && store->options.recovery != QS_RECOVERY_SALVAGE;
}
/* Sees whether the journal has grown since the last look. */
void qsi_backlog_look(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Was nothing appended for a second? */
bool qsi_backlog_is_quiet(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Would one be due as soon as the store has been quiet, or for its age or dead files? */
bool qsi_checkpoint_comes_by_itself(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Has the time come for one? */
bool qsi_checkpoint_is_due(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Would one give back much of the journal, in a store that is quiet? */
bool qsi_checkpoint_would_tidy(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Has the journal grown enough for one?  Costs nothing: asked after each commit. */
bool qsi_checkpoint_wants_begin(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Are there files that only wait for one to go? */
bool qsi_checkpoint_would_free(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Does the journal grow faster than checkpoints can be made?  Publishers wait then. */
bool qsi_checkpoint_is_behind(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that is_held_up.  QS_ECORRUPT: publishers are refused, as the journal has grown to
 * its bound. */
qs_status qsi_checkpoint_check_held(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
