/* Large batches that go straight into the file of the one stream that they are for. */
#ifndef QSI_PUBLISH_DIRECT_H
#define QSI_PUBLISH_DIRECT_H

#include "publish.h"
#include "store_stream.h"
#include "thread_safety.h"

#define QSI_DIRECT_BYTES_MIN (64u << 10) /* what is less goes through the journal */

/* Zeroed: nothing was written. */
struct direct_write {
    struct store_queue *queue;
    struct qsi_stream_flush_job *job;
    struct qsi_stream_direct_record *records;
    uint32_t record_count; /* the first ones of the call */
    uint64_t bytes;
    struct qsi_chunk *chunk; /* room for the journal's record */
};

/* Releases the lock meanwhile.  Writes the first of the pending records, if that can be done; if
 * not, whatever the reason, the journal takes them, as it does all others. */
void qsi_direct_write(struct qs_store *store, const struct pending_records *pending_records,
                      struct direct_write *direct) QSI_REQUIRES(qsi_store_mutex);
/* After qsi_pending_records_reserve.  Is what was written what comes next in the stream, and can
 * accept not fail until the lock is released?  If not, it is forgotten. */
bool qsi_direct_may_accept(struct qs_store *store, struct direct_write *direct)
    QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES may_accept.  Pushes the records, and appends what names them.  Returns its LSN. */
uint64_t qsi_direct_accept(struct qs_store *store, struct pending_records *pending_records,
                           struct direct_write *direct) QSI_REQUIRES(qsi_store_mutex);
/* What was written and not accepted is a hole in the file, which nobody sees. */
void qsi_direct_forget(struct qs_store *store, struct direct_write *direct)
    QSI_REQUIRES(qsi_store_mutex);

#endif
