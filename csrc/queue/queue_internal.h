/* What the files of this floor share among themselves; the floors above see queue.h and paging.h
 * only. */
#ifndef QSI_QUEUE_INTERNAL_H
#define QSI_QUEUE_INTERNAL_H

#include "check.h"
#include "queue.h"
#include "thread_safety.h"

/* ---- words of bitmaps ---- */

/* The words of a whole segment. */
static inline uint32_t qsi_queue_words(const struct qsi_queue *queue)
{
    return qsi_bitmap_words(queue->shared->entries);
}

/* The bits of slots [from, to) in one word. */
static inline uint64_t qsi_word_range(uint32_t word, uint32_t from, uint32_t to)
{
    uint32_t first = word * QSI_WORD_BITS;
    uint64_t mask = ~UINT64_C(0);

    if (from > first) {
        mask = from - first >= QSI_WORD_BITS ? 0 : mask << (from - first);
    }
    if (to < first + QSI_WORD_BITS) {
        mask &= to <= first ? 0 : (UINT64_C(1) << (to - first)) - 1;
    }
    return mask;
}

/* ---- counting (queue_take.c) ---- */

/* The queue has count more ready messages than before. */
void qsi_queue_sum_more(struct qsi_queue *queue, uint64_t count) QSI_REQUIRES(qsi_store_mutex);
void qsi_queue_sum_fewer(struct qsi_queue *queue, uint64_t count) QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_queue_more_ready(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->ready_count += count;
    if (QS_UNLIKELY(queue->sum != NULL)) {
        qsi_queue_sum_more(queue, count);
    }
}
static inline void qsi_queue_fewer_ready(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(queue->ready_count >= count);
    queue->ready_count -= count;
    if (QS_UNLIKELY(queue->sum != NULL)) {
        qsi_queue_sum_fewer(queue, count);
    }
}
/* Bytes of ready messages, and those that are ready no longer.  While the journal is replayed the
 * sums do not know what restored segments have, and may pass below 0 until qsi_queue_recount_bytes:
 * both wrap around. */
static inline void qsi_queue_more_bytes(struct qsi_queue *queue, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->ready_bytes += bytes;
    if (queue->sum != NULL) {
        queue->sum->ready_bytes += bytes;
    }
}
static inline void qsi_queue_fewer_bytes(struct qsi_queue *queue, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->ready_bytes -= bytes;
    if (queue->sum != NULL) {
        queue->sum->ready_bytes -= bytes;
    }
}
/* A ready message expires then, or a delayed one is due. */
static inline void qsi_queue_update_earliest(struct qsi_queue *queue, uint64_t earliest)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (earliest < queue->earliest) {
        queue->earliest = earliest;
    }
    if (QS_UNLIKELY(queue->sum != NULL) && earliest < queue->sum->earliest) {
        queue->sum->earliest = earliest;
    }
}

/* ---- segments (queue_find.c, queue_segments.c, former_files.c) ---- */

/* Which slots of a word have been given out. */
uint64_t qsi_segment_assigned(const struct qsi_queue *queue, const struct qsi_segment *segment,
                              uint32_t word) QSI_REQUIRES(qsi_store_mutex);
/* The state is no longer what the state areas tell. */
void qsi_segment_dirty_state(struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex);
/* Which messages of a word end with the process. */
static inline uint64_t qsi_segment_transient(const struct qsi_segment *segment, uint32_t word)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = word - segment->word_base;

    return segment->transient != NULL && word >= segment->word_base && at < segment->word_count
               ? segment->transient[at]
               : 0;
}
/* Has it messages in a file that is not the transient one, or had it before that was left? */
bool qsi_segment_has_own_file(const struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex);
/* The files tell the present state: it may leave memory. */
static inline bool qsi_segment_is_reported(const struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    return (!qsi_segment_has_own_file(segment) || !segment->state_dirty) &&
           (segment->transient_count == 0 || !segment->transients_dirty);
}
/* budget: from which its bytes go; NULL: they are not counted any more. */
void qsi_segment_free_state(struct qsi_budget *budget, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* NULL: there is none. */
static inline struct qsi_segment *qsi_queue_last_segment(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->segment_count > 0 ? qsi_queue_segment_at(queue, queue->segment_count - 1) : NULL;
}
/* A segment without state behind the others. */
qs_status qsi_queue_append_segment(struct qsi_queue *queue, uint64_t number,
                                   struct qsi_segment **segment_out)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The segment of slots [first_slot, ...) and room for slots below end_slot. */
qs_status qsi_queue_cover(struct qsi_queue *queue, uint64_t number, uint32_t first_slot,
                          uint32_t end_slot) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Segments behind the one of next_seq, for which room was made and not used, go. */
void qsi_queue_drop_reserved(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* State for the next count sequences. */
qs_status qsi_queue_cover_next(struct qsi_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Takes a segment out of the queue: for freeing, or for the job that takes care of its file and
 * its references. */
void qsi_segment_retire(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Room for count more pointers at the end of an array that gives up its front. */
qs_status qsi_reserve_pointers(void ***items_io, uint32_t *first_io, uint32_t used,
                               uint32_t *capacity_io, uint32_t count) QS_MUST_CHECK;

/* ---- loaded (paging_install.c) ---- */

struct qsi_page_in;
/* QS_ECORRUPT: what was read does not fit what is known of the segment. */
qs_status qsi_page_in_install_state(struct qsi_page_in *page_in)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_page_in_install_content(struct qsi_page_in *page_in)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- former files (former_files.c) ---- */

void qsi_segment_free_formers(struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex);

/* ---- runs (queue_runs.c) ---- */

/* Room for count more runs. */
qs_status qsi_queue_reserve_runs(struct qsi_queue *queue, uint32_t count)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Takes runs [from, to) out of the array, and frees one that goes. */
void qsi_queue_close_gap(struct qsi_queue *queue, uint32_t from, uint32_t to)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_queue_free_run(struct qsi_queue *queue, struct qsi_run *run) QSI_REQUIRES(qsi_store_mutex);
/* The index of the run that holds seq, or run_count. */
uint32_t qsi_queue_look_up_run(struct qsi_queue *queue, uint64_t seq) QSI_REQUIRES(qsi_store_mutex);
/* Does the message end with the process?  Rows with delivery mode 1 are journalled along with
 * the others of their batch. */
bool qsi_run_row_is_transient(const struct qsi_run *run, uint32_t row);
/* Counts the reference of the message in that row, if it has one. */
void qsi_queue_add_ref(struct qsi_queue *queue, const struct qsi_run *run, uint32_t row)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops the references of messages that are settled: bit i stands for row first_row + i. */
void qsi_queue_drop_refs(struct qsi_queue *queue, const struct qsi_run *run, uint32_t first_row,
                         uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Memory to note settled messages in whose content is on the disk only. */
qs_status qsi_segment_cover_releases(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The segment leaves its queue: that memory is not counted any more, and without a note it goes. */
void qsi_segment_leave_releases(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Settled messages whose content is on the disk only: their references are dropped when somebody
 * has read them. */
void qsi_queue_release_later(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                             uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Messages of one word were settled: what their content holds is let go. */
void qsi_queue_let_go(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask) QSI_REQUIRES(qsi_store_mutex);

/* ---- taking (queue_take.c) ---- */

/* Some messages of a word that were not ready are, in the counts of the queue. */
void qsi_queue_count_in_ready(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                              uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
/* Ready messages of one word are out. */
void qsi_queue_reserve_removal(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                               uint64_t mask) QSI_REQUIRES(qsi_store_mutex);

/* ---- settling (queue_settle.c) ---- */

/* Settles all that is ready or delayed in a segment whose state is on the disk: nothing of it is
 * in memory. */
void qsi_queue_settle_unloaded(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex);
/* Settles what is ready or delayed among slots [from, to).  REQUIRES state. */
void qsi_queue_settle_waiting(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t from,
                              uint32_t to) QSI_REQUIRES(qsi_store_mutex);

/* ---- counting of deliveries (queue_deliveries.c) ---- */

/* One more delivery for each message, or one less; without memory it does not count. */
void qsi_segment_count_deliveries(const struct qsi_queue *queue, struct qsi_segment *segment,
                                  uint32_t word, uint64_t mask) QSI_REQUIRES(qsi_store_mutex);
void qsi_segment_uncount_deliveries(struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- flushing (paging_flush.c, paging_carry.c) ---- */

/* A stretch of the messages of a flush, as their run was at begin. */
struct qsi_flush_run {
    struct qsi_messages_ref messages; /* of slots [first, first + count); rows is a copy */
    uint32_t first, count;
};

/* ---- what is missing, or cannot be read (paging_load.c) ---- */

#define QSI_DAMAGED_ROWS_MAX 4096u
/* A record of count messages of the file, from slot first on, each of them damaged: the caller's
 * chunk. */
qs_status qsi_queue_damaged_record(const struct qsi_queue *queue,
                                   const struct qsi_segment_file *file, uint32_t first,
                                   uint32_t count, struct qsi_chunk **chunk_out) QS_MUST_CHECK;

/* The index of the first segment from index on with ready messages that are not in memory, or
 * segment_count. */
uint32_t qsi_queue_next_paged(const struct qsi_queue *queue, uint32_t index)
    QSI_REQUIRES(qsi_store_mutex);
/* As next_paged, from the head of the queue on. */
uint32_t qsi_queue_first_paged(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);

#endif
