/* Transactions: publishes and acks are kept aside, and become one atomic group of the journal.  All
 * of it REQUIRES the lock. */
#ifndef QSI_TX_H
#define QSI_TX_H

#include "pending_records.h"
#include "thread_safety.h"

/* ---- tx.c ---- */

/* QS_PRECONDITION_FAILED: the channel is not transactional. */
qs_status qsi_tx_check_selected(const struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Adds the pending records, and their counts, to the channel's open transaction, and leaves
 * pending_records empty. published NULL: there are no counts, or they are noted. */
qs_status qsi_tx_take(struct qs_channel *channel, struct qsi_pending_records *pending_records,
                      const struct qsi_published_notes *published, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_tx_drop(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);

/* ---- tx_commit.c ---- */

/* May release the lock meanwhile.  Appends the channel's open transaction as one group of the
 * journal; *lsn_out: the LSN that makes it durable. */
qs_status qsi_tx_apply(struct qs_channel *channel, uint64_t *lsn_out, enum qsi_wait wait,
                       qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- tx_returns.c ---- */

/* May release the lock, and reports that: then the caller looks at everything again.  Mandatory
 * messages without a queue left are added to the transaction's returns. */
qs_status qsi_tx_return_gone(struct qs_channel *channel, bool *released_out, enum qsi_wait wait,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
