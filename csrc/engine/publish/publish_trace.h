/* Reporting publishes to traces. */
#ifndef QSI_PUBLISH_TRACE_H
#define QSI_PUBLISH_TRACE_H

#include "publishing.h"

/* One message; began_us: when the call had the lock.  In a transaction only its routing is
 * reported. */
void qsi_trace_published(const struct qsi_publishing *publishing, const qs_receipt *receipt,
                         const struct qsi_refusals *refusals, uint64_t began_us)
    QSI_REQUIRES(qsi_store_mutex);
/* A batch. */
void qsi_trace_batch(const struct qs_channel *channel, const struct qsi_published_notes *notes,
                     const qs_receipt *receipt) QSI_REQUIRES(qsi_store_mutex);
/* A transaction, whose messages were traced as they were published. */
void qsi_trace_committed(const struct qs_channel *channel, const struct qsi_published_notes *notes,
                         uint64_t lsn) QSI_REQUIRES(qsi_store_mutex);

#endif
