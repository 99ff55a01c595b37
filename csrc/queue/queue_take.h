/* Taking messages: for consumers, and for expiry or limits without a consumer; and messages that
 * cannot be taken yet, or at all. */
#ifndef QSI_QUEUE_TAKE_H
#define QSI_QUEUE_TAKE_H

#include "queue.h"

/* ---- delivering ---- */

static inline uint64_t qsi_stretch_mask(const struct qsi_stretch *stretch)
{
    uint64_t ones =
        stretch->count == QSI_WORD_BITS ? ~UINT64_C(0) : (UINT64_C(1) << stretch->count) - 1;

    return ones << (stretch->slot % QSI_WORD_BITS);
}
/* The first ready messages, max_count at most; they are out from now on. */
enum qsi_take qsi_queue_take(struct qsi_container *container, uint32_t max_count,
                             struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The message in a slot, which was taken and is out.  TAKE_PAGED: its content is not in memory. */
enum qsi_take qsi_queue_find_out(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t slot, struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Returns the last messages of a stretch that was just taken, as if they had not been. */
void qsi_queue_untake(struct qsi_container *container, struct qsi_stretch *stretch,
                      uint32_t keep_count) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES the memory of qsi_segment_keep_deliveries.  The stretch is handed out. */
void qsi_queue_count_stretch(struct qsi_queue *queue, const struct qsi_stretch *stretch)
    QSI_REQUIRES(qsi_store_mutex);
/* They are delivered: returns how many of them had been delivered before. */
static inline uint32_t qsi_stretch_mark_seen(const struct qsi_stretch *stretch)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t *seen =
        &stretch->segment->seen[stretch->slot / QSI_WORD_BITS - stretch->segment->word_base];
    uint64_t mask = qsi_stretch_mask(stretch), before = *seen & mask;

    *seen |= mask;
    return QS_LIKELY(before == 0) ? 0 : qsi_popcount(before);
}
/* ---- taking messages out of the queue without a consumer: stretches as of take, but with no
 * run ---- */

/* The first ready messages of the segment; TAKE_PAGED: its state is not in memory; NULL: none. */
enum qsi_take qsi_queue_reserve_in(struct qsi_queue *queue, struct qsi_segment *segment,
                                   uint32_t max_count, struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The next ready messages at or after *seq_io, which advances; false: there are none.  Messages
 * whose state is not in memory are skipped. */
bool qsi_queue_reserve_next(struct qsi_queue *queue, uint64_t *seq_io,
                            struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The last ready message before *seq_io, which moves to it; false: there is none.  The same. */
bool qsi_queue_ready_before(const struct qsi_queue *queue, uint64_t *seq_io)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Messages that were reserved are ready again, as if untouched. */
void qsi_queue_unreserve_removal(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word, uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* A walk over expired messages, in one hold of the lock. */
struct qsi_expiry_walk {
    uint64_t now_us;
    uint64_t number; /* of the current segment */
    uint32_t word;
    uint64_t earliest; /* of what is left in it, so far */
    /* the first segment that may have some, and whose state is not in memory */
    struct qsi_segment *lacks_state;
};
/* The next expired messages; false at the end, when queue->earliest has the time of the next
 * walk. */
bool qsi_queue_reserve_expired(struct qsi_queue *queue, struct qsi_expiry_walk *walk,
                               struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- segments whose state cannot be read ---- */

/* Its messages are not ready any more, until it is brought back.  REQUIRES that its state is not in
 * memory, and that it is ready. */
void qsi_segment_set_aside(struct qsi_queue *queue, struct qsi_segment *segment, const void *holder)
    QSI_REQUIRES(qsi_store_mutex);
/* Brings back segments that are aside for the holder; NULL: for any. */
void qsi_queue_bring_back(struct qsi_queue *queue, const void *holder)
    QSI_REQUIRES(qsi_store_mutex);
/* The first segment with ready messages; NULL: none is ready. */
struct qsi_segment *qsi_queue_head_segment(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Ready messages in segments whose state cannot be read. */
struct qsi_passed {
    uint64_t messages;
    uint64_t body_bytes; /* as far as they are known */
};
/* The first segment with ready messages that is not known to be damaged; those before it are added
 * to *passed_io. */
struct qsi_segment *qsi_queue_readable_head(struct qsi_queue *queue, struct qsi_passed *passed_io)
    QSI_REQUIRES(qsi_store_mutex);

#endif
