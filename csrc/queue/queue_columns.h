/* Columns: optional values of each message. */
#ifndef QSI_QUEUE_COLUMNS_H
#define QSI_QUEUE_COLUMNS_H

#include "queue.h"

/* Room for the expiries of the next count messages.  REQUIRES the room of qsi_container_reserve, or
 * of reserve_one. */
qs_status qsi_queue_reserve_expiries(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The bytes of a message's body.  REQUIRES that its state is in memory, and that the queue counts
 * bytes. */
uint32_t qsi_queue_body_bytes(const struct qsi_queue *queue, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- inside the floor ---- */

/* Room for the columns that the queue wants of the next count messages. */
qs_status qsi_queue_cover_columns(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Notes the columns of the run's messages [row, row + count), in slots from slot on. */
void qsi_queue_update_columns(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot,
                              const struct qsi_run *run, uint32_t row, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);
static inline bool qsi_queue_wants_columns(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->ttl_us != QSI_NEVER || queue->counts_bytes;
}
/* Of the bodies of a segment's ready messages; 0 where they are not counted. */
uint64_t qsi_segment_ready_bytes(const struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Columns that were loaded count in the budget from now on. */
void qsi_queue_count_columns(struct qsi_queue *queue, const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Messages of one word come back: those that were to expire at once have had their time. */
void qsi_queue_end_grace(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                         uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Messages of one word became ready, or are not any more. */
void qsi_queue_count_ready(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                           uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
void qsi_queue_count_unready(struct qsi_queue *queue, const struct qsi_segment *segment,
                             uint32_t word, uint64_t mask) QSI_REQUIRES(qsi_store_mutex);

#endif
