/* A store's lock, its directories and its MANIFEST. */
#ifndef QSI_STORE_FILES_H
#define QSI_STORE_FILES_H

#include "store.h"
#include "thread_safety.h"

/* The directory, and the lock of the store's owner.  An open that does not create leaves no trace
 * if there is no store. */
qs_status qsi_open_root(struct qs_store *store, const char *path, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex) QS_MUST_CHECK;
/* MANIFEST, which is made if there is no store and one is to be created, and the directories. */
qs_status qsi_open_manifest(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex) QS_MUST_CHECK;
/* The process does not own the store any more. */
void qsi_give_lock_back(struct qs_store *store);

#endif
