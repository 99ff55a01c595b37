/* Recovery: the journal is replayed, and a new session begins. */
#ifndef QSI_RECOVER_H
#define QSI_RECOVER_H

#include "store.h"
#include "thread_safety.h"

qs_status qsi_recover(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex) QS_MUST_CHECK;
#endif
