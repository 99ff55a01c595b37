/* The owner's side of a store's inbox: manifests of other processes are adopted, and answered.
 *
 * A manifest is begun with by giving it another name, which only one of its owner and of who takes
 * it back can do.  Then it is adopted under its key, and its answer takes its place by a rename. So
 * whatever is killed, the manifest or its answer is there, and one that is adopted again meets its
 * key.  The keys that it names are forgotten after the answer is durable. */
#ifndef QSI_INBOX_H
#define QSI_INBOX_H

#include "store.h"
#include "thread_safety.h"

/* Makes the directory, and has it watched; where nothing can be watched there is no inbox.  What
 * lacks room or descriptors is left to the thread. */
qs_status qsi_inbox_open(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
/* The same for the thread, of a directory that could not be opened. */
qs_status qsi_inbox_make(struct qs_store *store, qs_error *error) QS_MUST_CHECK;
void qsi_inbox_close(struct qs_store *store); /* after the thread */
/* For statistics: what kept the thread from its work. */
void qsi_inbox_note_error(struct qs_store *store, const qs_error *error);

/* What failed is tried later, and later each time; or at once, as a caller asked for it. */
enum qsi_inbox_pace { QSI_INBOX_WHEN_DUE, QSI_INBOX_AT_ONCE };

/* Answers all that can be.  *again_ns_out: until something else is to be tried again; UINT64_MAX:
 * there is nothing.  With an error nothing was looked at. */
qs_status qsi_inbox_take_in(struct qs_store *store, enum qsi_inbox_pace pace,
                            uint32_t *answered_out, uint64_t *again_ns_out,
                            qs_error *error) QS_MUST_CHECK;

/* ---- inbox_thread.c ---- */

qs_status qsi_inbox_start(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The store is open: what lies there is taken in. */
void qsi_inbox_ring(struct qs_store *store);
/* What it adopts is left to the next owner, unless its commit is under way or its files are being
 * linked: that is done with first. */
void qsi_inbox_stop(struct qs_store *store);

#endif
