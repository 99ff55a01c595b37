/* Making a checkpoint. */
#ifndef QSI_CHECKPOINT_H
#define QSI_CHECKPOINT_H

#include "store.h"
#include "thread_safety.h"

/* Releases the lock meanwhile.  When this returns, other files have the effect of the journal so
 * far, and journal files before that are used again. */
qs_status qsi_checkpoint(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same, and no other one is made until qsi_checkpoint_release, which is called only after
 * QS_OK. */
qs_status qsi_checkpoint_and_hold(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_checkpoint_release(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
void *qsi_run_checkpointer(void *store);

#endif
