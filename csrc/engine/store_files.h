/* A store's lock, its directories and its MANIFEST. */
#ifndef QSI_STORE_FILES_H
#define QSI_STORE_FILES_H

#include "store.h"
#include "thread_safety.h"

/* The directory, and the lock of who owns the store.  A store that is not to be made leaves no
 * trace where there is none. */
qs_status qsi_open_root(struct qs_store *store, const char *path, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex) QS_MUST_CHECK;
/* MANIFEST, which is made if there is no store and one is asked for, and the directories. */
qs_status qsi_open_manifest(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex) QS_MUST_CHECK;
/* The process owns the store no longer. */
void qsi_give_lock_back(struct qs_store *store);

#endif
