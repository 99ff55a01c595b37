/* States of segments, read at once and under the lock: at open, when no other thread has the
 * store. */
#ifndef QSI_STATES_H
#define QSI_STATES_H

#include "record.h"
#include "store.h"

/* The state of one segment, which has none in memory. */
qs_status qsi_load_segment_state(struct qs_store *store, struct qsi_store_queue *queue,
                                 struct qsi_segment *segment, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The states of segments that are needed to replay a settle. */
qs_status qsi_load_states(struct qs_store *store, struct qsi_store_queue *queue,
                          const struct qsi_settle *settle, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Reads the states of all its segments; a caller that comes for the messages of a damaged one gets
 * the error. */
qs_status qsi_load_all_states(struct qs_store *store, struct qsi_store_queue *queue,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The state of the segment where the first ready messages are. */
qs_status qsi_load_head(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
