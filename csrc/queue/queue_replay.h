/* A queue at recovery: what a checkpoint says of it, and the journal. */
#ifndef QSI_QUEUE_REPLAY_H
#define QSI_QUEUE_REPLAY_H

#include "queue.h"

/* What a checkpoint says of a segment. */
struct qsi_restored_segment {
    const struct qsi_segment_file *file;
    uint32_t ready_count, delayed_count;
    uint32_t seen_end;
    bool has_stored;
    bool has_expiries;
    uint64_t earliest_due;
};
/* As qsi_container_restore. */
qs_status qsi_queue_restore_record(struct qsi_container *container, const uint8_t *record,
                                   uint64_t *next_seq_io, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* A segment that a checkpoint names; in order of their numbers, before anything is pushed. */
qs_status qsi_queue_restore(struct qsi_queue *queue, const struct qsi_restored_segment *restored)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Does one of its segments have this file? */
bool qsi_queue_has_file(const struct qsi_queue *queue, const struct qsi_segment_file *file)
    QSI_REQUIRES(qsi_store_mutex);
/* Nothing is added to a restored segment that cannot be read: the queue goes on behind it.
 * REQUIRES that it is the last one. */
void qsi_queue_end_segment(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Salvage: a restored segment that cannot be read is taken for settled.  Its file stays, and so
 * does what it refers to. */
void qsi_queue_lose_segment(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* The next segment whose state must be loaded before the settle is replayed: one that it
 * divides, or any that it requeues; NULL: none. */
struct qsi_segment *qsi_queue_needs_state(const struct qsi_queue *queue,
                                          const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex);
/* Settles, requeues or delays by sequence; sequences that are not there are passed over.
 * QS_ENOMEM: nothing was done. */
qs_status qsi_queue_replay_settle(struct qsi_container *container, const struct qsi_settle *settle)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Every message counts as delivered before; in a queue that counts deliveries it is said to be
 * redelivered, and counts as often as before.  QS_ENOMEM. */
qs_status qsi_queue_mark_all_seen(struct qsi_container *container)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
