/* Positions of groups of readers of streams, as part of a transaction.  All of it REQUIRES the
 * lock. */
#ifndef QSI_CURSORS_H
#define QSI_CURSORS_H

#include "store.h"
#include "thread_safety.h"

/* Reserves room for the cursors of the open transaction, so that put cannot fail. */
qs_status qsi_tx_cursors_reserve(struct qs_channel *channel, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES that room, and room for their bytes in tail.  Sets them, and appends their records to
 * tail.  Returns the number of records. */
uint32_t qsi_tx_cursors_put(struct qs_channel *channel, struct qsi_chunk *tail)
    QSI_REQUIRES(qsi_store_mutex);

#endif
