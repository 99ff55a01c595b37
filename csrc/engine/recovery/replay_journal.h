/* The journal at open. */
#ifndef QSI_REPLAY_JOURNAL_H
#define QSI_REPLAY_JOURNAL_H

#include "scan.h"
#include "store.h"
#include "thread_safety.h"

/* Reads all of it and replays the valid part, from the checkpoint on.  *result: the end, and the
 * torn tail after it. */
qs_status qsi_replay_journal(struct qs_store *store, struct qsi_scan_result *result,
                             qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex) QS_MUST_CHECK;

#endif
