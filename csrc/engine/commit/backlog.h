/* How far the journal has grown since the last checkpoint. */
#ifndef QSI_BACKLOG_H
#define QSI_BACKLOG_H

#include "store.h"
#include "thread_safety.h"

/* How much the journal has grown since the last checkpoint. */
uint64_t qsi_backlog_bytes(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Of files that go when the next one counts. */
uint64_t qsi_dead_bytes(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Are checkpoints made unasked?  Not in a salvaged store: they would let go of the journal that
 * is damaged. */
static inline bool qsi_checkpoint_is_automatic(const struct qs_store *store)
{
    return store->options.checkpoint_bytes > 0 && store->options.recovery != QS_RECOVERY_SALVAGE;
}
/* Has the time come for one? */
bool qsi_checkpoint_is_due(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
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
