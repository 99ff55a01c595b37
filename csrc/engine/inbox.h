/* The owner's side of a store's inbox: manifests of other processes are adopted, and answered.
 *
 * The owner begins with a manifest by renaming it, and a process takes it back by removing it: only
 * one of these can succeed.  Then it is adopted under its key, and a rename replaces it by its
 * answer.  So whichever process is killed, the manifest or its answer exists, and a repeated
 * adoption finds its key.  The keys that it names are forgotten after the answer is durable. */
#ifndef QSI_INBOX_H
#define QSI_INBOX_H

#include "store.h"
#include "thread_safety.h"

/* Failures are tried again, each time later; or at once, if a caller asked for it. */
enum qsi_inbox_pace { QSI_INBOX_WHEN_DUE, QSI_INBOX_AT_ONCE };

/* Answers all manifests that it can.  *again_ns_out: until the next try; UINT64_MAX: there is none.
 * After an error nothing was examined. */
qs_status qsi_inbox_take_in(struct qs_store *store, enum qsi_inbox_pace pace,
                            uint32_t *answered_out, uint64_t *again_ns_out,
                            qs_error *error) QS_MUST_CHECK;

/* ---- inbox_thread.c ---- */

qs_status qsi_inbox_start(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The store is open: its inbox is adopted. */
void qsi_inbox_ring(struct qs_store *store);
/* Adoptions are left to the next owner, unless their commit is running or their files are being
 * linked: these are finished first. */
void qsi_inbox_stop(struct qs_store *store);

#endif
