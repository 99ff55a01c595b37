/* Publishing to a queue: room first, so that a push cannot fail. */
#ifndef QSI_QUEUE_PUBLISH_H
#define QSI_QUEUE_PUBLISH_H

#include "queue.h"

/* Room for run_count more runs with message_count messages in all: push cannot fail then.
 * any_transient: some of them end with the process. */
qs_status qsi_queue_reserve(struct qsi_container *container, uint32_t run_count,
                            uint64_t message_count, bool any_transient)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Returns the sequence of the run's first message.  The queue owns the run. */
uint64_t qsi_queue_push_run(struct qsi_container *container, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);

/* Room for one message whose record will lie in chunk. */
qs_status qsi_queue_reserve_message(struct qsi_container *container, struct qsi_chunk *chunk,
                                    bool journalled) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES that room.  Returns the message's sequence. */
uint64_t qsi_queue_push_message(struct qsi_container *container, struct qsi_chunk *chunk,
                                uint32_t record_at, uint32_t ram_bytes, bool journalled,
                                bool stored) QSI_REQUIRES(qsi_store_mutex);
/* Room for the expiries and the due times of the next count messages, if the record has any.
 * REQUIRES the other room. */
qs_status qsi_queue_reserve_times(struct qsi_container *container, const uint8_t *record,
                                  uint64_t count) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Begins at seq: what is below was flushed.  REQUIRES that nothing is in memory. */
void qsi_queue_start_at(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex);
/* About what a checkpoint would write of it at most. */
uint64_t qsi_queue_checkpoint_bytes(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Gives out no sequence below seq any more (recovery: transient messages left gaps; checkpoints:
 * the next message shares no page of slots with the last). */
qs_status qsi_queue_skip_to(struct qsi_container *container, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
