/* Keeping the journal, and the bodies that it names, for who reads it while the store is at work:
 * an archive (qs_store_keep). */
#ifndef QSI_KEEP_H
#define QSI_KEEP_H

#include "store.h"
#include "thread_safety.h"

/* After a checkpoint that counts, whose journal begins at first_file: journal files below
 * *below_out may go.  True: message files that nobody refers to any more may not, for what is not
 * read may name them; the next checkpoint asks again. */
bool qsi_keep_below(struct qs_store *store, uint32_t first_file, uint32_t *below_out)
    QSI_REQUIRES(qsi_store_mutex);
/* Without the lock, by who makes checkpoints.  The disk is full: what is kept goes.  False: nothing
 * was. */
bool qsi_keep_give_way(struct qs_store *store);

#endif
