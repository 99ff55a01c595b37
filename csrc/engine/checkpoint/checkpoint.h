/* Making a checkpoint. */
#ifndef QSI_CHECKPOINT_H
#define QSI_CHECKPOINT_H

#include "store.h"
#include "thread_safety.h"

/* Releases the lock meanwhile.  What the journal says up to now is in other files when this
 * returns, and journal files behind it are used again. */
qs_status qsi_checkpoint(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same, and no other one is made until qsi_checkpoint_release, which follows QS_OK alone. */
qs_status qsi_checkpoint_and_hold(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_checkpoint_release(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void *qsi_run_checkpointer(void *store);

#endif
