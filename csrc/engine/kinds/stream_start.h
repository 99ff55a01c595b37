/* Where a reader of a stream begins. */
#ifndef QSI_STREAM_START_H
#define QSI_STREAM_START_H

#include "argument_values.h"
#include "store_stream.h"
#include "thread_safety.h"

/* Releases the lock meanwhile, to read an index and one block at most; the stream may be gone
 * afterwards.  The first message that was published at that time or later.
 * QS_ECORRUPT, QS_EIO, QS_ENOMEM */
qs_status qsi_stream_find_time(struct qs_store *store, struct qsi_store_queue *queue,
                               uint64_t time_us, uint64_t *offset_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same for the last block, or for what was published together last. */
qs_status qsi_stream_find_last(struct qs_store *store, struct qsi_store_queue *queue,
                               uint64_t *offset_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* May release the lock meanwhile, to read an index and one block at most; the stream may be gone
 * afterwards.  An offset that was dropped is the first one there is.
 * QS_ECORRUPT, QS_EIO, QS_ENOMEM */
qs_status qsi_stream_find_start(struct qs_store *store, struct qsi_store_queue *queue,
                                const struct qsi_stream_start_spec *start, uint64_t *offset_out,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
