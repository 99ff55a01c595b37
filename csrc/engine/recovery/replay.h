/* Replaying single records, of the journal and of checkpoints. */
#ifndef QSI_REPLAY_H
#define QSI_REPLAY_H

#include "record.h"
#include "store.h"
#include "thread_safety.h"

/* The rows of a checked record for a destination: NULL for all, else the caller frees them.
 * QS_ECORRUPT if their number differs from the record's. */
qs_status qsi_destination_rows(const struct qsi_messages *view, uint32_t destination,
                               uint32_t **rows_out, qs_error *error) QS_MUST_CHECK;
/* One record of the journal or of a checkpoint, at data[at] of chunk. */
qs_status qsi_replay_record(struct qs_store *store, struct qsi_chunk *chunk, uint64_t at,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
