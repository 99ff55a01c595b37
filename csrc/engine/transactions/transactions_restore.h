/* Keys of transactions in checkpoints, and at open. */
#ifndef QSI_TRANSACTIONS_RESTORE_H
#define QSI_TRANSACTIONS_RESTORE_H

#include "record.h"
#include "store.h"
#include "thread_safety.h"

/* The records that a checkpoint has of them. */
qs_status qsi_transactions_snapshot(struct qs_store *store, struct qsi_buf *records,
                                    uint32_t *record_count_io)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Sealed: the checkpoint that is made does not name the dead files any more. */
void qsi_transactions_seal(struct qs_store *store, bool sealed) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  Sealed files go. */
void qsi_transactions_remove_dead(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Records of the journal and of checkpoints. */
qs_status qsi_transactions_replay(struct qs_store *store, const struct qsi_topology *record,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_transactions_replay_file(struct qs_store *store, const uint8_t *record,
                                       qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Is it a key file that nothing names? */
bool qsi_transactions_is_leftover(const struct qs_store *store, const char *name);

#endif
