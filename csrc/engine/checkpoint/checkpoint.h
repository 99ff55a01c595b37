/* Making a checkpoint. */
#ifndef QSI_CHECKPOINT_H
#define QSI_CHECKPOINT_H

#include "store.h"

/* REQUIRES lock; releases it meanwhile.  What the journal says up to now is in other files when
 * this returns, and journal files behind it are used again. */
qs_status qsi_checkpoint(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void *qsi_run_checkpointer(void *store);

#endif
