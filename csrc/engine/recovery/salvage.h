/* An open with QS_RECOVERY_SALVAGE goes on after a loss, and counts it. */
#ifndef QSI_SALVAGE_H
#define QSI_SALVAGE_H

#include "store.h"
#include "thread_safety.h"

static inline bool qsi_is_salvage(const struct qs_store *store)
{
    return store->options.recovery == QS_RECOVERY_SALVAGE;
}

/* Goes through the restored segments of a queue and drops those that cannot be read, with their
 * messages; their files stay.  The states of the others are read and freed. */
qs_status qsi_salvage_segments(struct qs_store *store, struct qsi_store_queue *queue,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* The queue with that id.  If records were lost before, and perhaps its declaration with them,
 * it is made: durable, without bindings, as "recovered.<id>"; a priority of one that had
 * priorities as "recovered.<id>.<priority>".  NULL: there is none, and none is missing. */
qs_status qsi_salvage_queue(struct qs_store *store, uint64_t id, struct qsi_store_queue **queue_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The stream of a record.  If its declaration may be lost the stream is made, as "recovered.<id>":
 * with the files that the record names, in place of a queue that was made of earlier messages and
 * whose messages are in the files.  *queue_io: what is there of that id, or NULL; where nothing is
 * missing it stays.  QS_ECORRUPT: the record cannot be used. */
struct qsi_stream_written;
qs_status qsi_salvage_stream(struct qs_store *store, const struct qsi_stream_written *written,
                             struct qsi_store_queue **queue_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* A record that makes no sense at its place: salvage skips it and counts.  Otherwise returns
 * status. */
qs_status qsi_salvage_record(struct qs_store *store, qs_status status, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex);

#endif
