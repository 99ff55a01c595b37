/* Delays: messages that are not to be delivered yet. */
#ifndef QSI_QUEUE_DELAYS_H
#define QSI_QUEUE_DELAYS_H

#include "queue.h"

/* Room for the due times of the next count messages.  REQUIRES the room of qsi_container_reserve,
 * or of reserve_one. */
qs_status qsi_queue_reserve_dues(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Reserves room to delay messages of the segment, whose state is in memory: delay cannot fail
 * then. */
qs_status qsi_segment_cover_delays(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Delays ready messages of one word until due_us.  REQUIRES that room. */
void qsi_queue_delay(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                     uint64_t mask, uint64_t due_us) QSI_REQUIRES(qsi_store_mutex);
/* Delayed messages that are due are ready, count_max at most, those of the first sequences first.
 * Returns how many.  *lacks_state_out: the first segment that has some and whose state is not in
 * memory, or NULL.  queue->earliest is right when fewer than count_max were found. */
uint64_t qsi_queue_release_due(struct qsi_queue *queue, uint64_t now_us, uint64_t count_max,
                               struct qsi_segment **lacks_state_out) QSI_REQUIRES(qsi_store_mutex);
/* The state cannot be read: all delayed messages count as ready, so that the call that comes for
 * them gets the error. */
void qsi_queue_release_unread(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* The due time of the delayed message in a slot. */
uint64_t qsi_segment_due(const struct qsi_segment *segment, uint32_t slot)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- inside the floor ---- */

/* Of the run's messages [row, row + count), just counted as ready in slots from slot on, those
 * that are not due yet are delayed. */
void qsi_queue_update_dues(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot,
                           const struct qsi_run *run, uint32_t row, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex);
/* The delays with room for word_count words; NULL: out of memory.  What there was stays the
 * caller's. */
struct qsi_delays *qsi_delays_widen(const struct qsi_delays *delays, uint32_t old_word_count,
                                    uint32_t word_count);
void qsi_delays_free(struct qsi_delays *delays);
/* What the delays of a segment with so many slots take of the budget. */
static inline uint64_t qsi_delays_ram(uint64_t slots)
{
    return slots / 8 + slots * (sizeof(uint64_t) + sizeof(uint16_t));
}
/* Delayed messages of one word are ready, or not delayed any more because they are settled. */
void qsi_queue_undelay(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
void qsi_queue_forget_delayed(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                              uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* A state that was loaded: which of its live messages are delayed.  dues: by slot from word_base
 * on. */
qs_status qsi_queue_install_dues(struct qsi_queue *queue, struct qsi_segment *segment,
                                 const uint64_t *dues) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* A column of all slots of the segment, in memory of its own; NULL: out of memory. */
uint64_t *qsi_segment_copy_dues(const struct qsi_segment *segment, uint32_t words)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
