/* Debug builds: the whole of a store is looked at where nothing is half done. */
#ifndef QSI_STORE_CHECK_H
#define QSI_STORE_CHECK_H

#include "store.h"

/* REQUIRES the lock.  Asserts that queues, streams, routes, channels, the journal and the message
 * store are what they say, each for itself and together.  Takes time in proportion to what is in
 * memory; in release builds it is nothing. */
#ifdef NDEBUG
#define qsi_store_check(store) ((void)(store))
#else
void qsi_store_check(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
#endif

#endif
