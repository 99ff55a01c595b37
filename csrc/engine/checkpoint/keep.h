/* Keeping the journal, and the bodies that it names, for a reader while the store is open: an
 * archive (qs_store_keep). */
#ifndef QSI_KEEP_H
#define QSI_KEEP_H

#include "store.h"
#include "thread_safety.h"

/* After a checkpoint that is valid, whose journal begins at first_file: journal files below
 * *below_out may be removed.  True: message files without references may not be removed, because
 * unread journal may name them; the next checkpoint asks again. */
bool qsi_keep_below(struct qs_store *store, uint32_t first_file, uint32_t *below_out)
    QSI_REQUIRES(qsi_store_mutex);
/* Without the lock, by the thread of a checkpoint.  The disk is full: kept files are given up.
 * False: there were none. */
bool qsi_keep_give_way(struct qs_store *store);

#endif
