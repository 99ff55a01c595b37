/* Moving messages between memory and segment files, as jobs in three steps.
 *
 *   begin   under the engine's lock: notes what is to be done, holding on to what that needs
 *   run     without it: input and output
 *   end     under it: takes the result over, as far as it still holds; frees the job
 *
 * States of a message, after RabbitMQ: alpha, its body is in memory; beta, its body is in the
 * message store and its entry in memory; gamma, body and entry are on the disk, its state is in
 * memory too; delta, all is on the disk, and memory has a count per segment.  Unflushed messages
 * always have their content in memory. */
#ifndef QSI_PAGING_H
#define QSI_PAGING_H

#include "buf.h"
#include "queue.h"
#include "thread_safety.h"

/* ---- flushing: messages from flushed_seq on get their slots ---- */

struct qsi_flush_run;
struct qsi_flush {
    struct qsi_queue *queue;
    struct qsi_segment *segment; /* NULL: detached */
    struct qsi_segment_file file, transient_file;
    uint64_t first_seq; /* of the segment */
    uint64_t end_seq;
    uint64_t message_count;                  /* that are written */
    uint32_t from, to;                       /* slots */
    bool cannot_read, cannot_read_transient; /* the file to be added to */
    bool page_aligned;
    /* by the running checkpoint: later bodies share no page with it */
    bool is_named;
    /* bitmaps over the segment: slots that are written, and those written to the transient file */
    uint64_t *live;
    uint64_t *transient; /* NULL: nothing */
    uint64_t *seen;      /* delivered before; bits of what is live */
    uint64_t *dues;      /* of delayed ones, by slot; 0: of others; NULL: none is delayed */
    uint8_t *deliveries; /* by slot; NULL: as the seen bits say */
    struct qsi_flush_run *runs;
    uint32_t run_count;
};
/* From from_seq (flushed_seq, or the end of an earlier flush that was begun) to the end of the
 * segment or of the queue, or bytes_max of content.  Settled messages are skipped.  QS_EEMPTY:
 * nothing is left to flush. */
qs_status qsi_flush_begin(struct qsi_flush *flush, struct qsi_queue *queue, uint64_t from_seq,
                          uint64_t bytes_max) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Before run, if another flush of the queue was run since begin. */
void qsi_flush_refresh(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex);
/* index: of the queue's kind; transient_index: for transient messages in a durable queue. */
qs_status qsi_flush_run(struct qsi_flush *flush, struct qsi_index *index,
                        struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* After run failed.  A file that could not be read is left, and run may be tried again, which makes
 * a new one.  QS_ECORRUPT: that was not the cause. */
qs_status qsi_flush_leave_file(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Instead: the same messages as records of the journal, for a checkpoint that carries them itself:
 * messages, and for each earlier delivery of one a settle record that requeues it.  Transient
 * messages are left out.  Each call has the same result. */
qs_status qsi_flush_encode(const struct qsi_flush *flush,
                           struct qsi_carried *carried) QS_MUST_CHECK;
/* Before encode: the flush does not need its segment any more, which other jobs may use. */
void qsi_flush_detach(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex);
/* done: run succeeded.  The queue may have retired messages meanwhile, but still exists. */
void qsi_flush_end(struct qsi_flush *flush, bool done) QSI_REQUIRES(qsi_store_mutex);

/* ---- loading ---- */

struct qsi_page_in {
    struct qsi_queue *queue;
    struct qsi_segment *segment;
    struct qsi_segment_file file;
    bool of_transients; /* from the transient file of a durable queue */
    bool of_state;      /* else of content */
    bool is_ahead;      /* of the segment after the one that is read now */
    uint32_t columns;   /* that the state has */
    struct qsi_segment_state state;
    /* of the state; heap_end 0: no transient message is live */
    struct qsi_segment_file transient_file;
    uint64_t *transient; /* the messages of that file */
    struct qsi_segment_load load;
};
/* The result of a begin. */
enum qsi_page_in_begun {
    QSI_PAGE_IN_BEGUN,     /* a job: run, or take, and end are next */
    QSI_PAGE_IN_NOTHING,   /* all that was asked for is in memory */
    QSI_PAGE_IN_UNDER_WAY, /* another job for that segment runs: ask again when it has ended */
    QSI_PAGE_IN_NO_MEMORY,
};
/* Begins to load what the first ready messages that are not in memory need next: the state of a
 * segment, or content. */
enum qsi_page_in_begun qsi_page_in_begin(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                         uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Loads the state of this segment, for which no job runs; QS_ENOMEM. */
qs_status qsi_page_in_state(struct qsi_page_in *page_in, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Loads the content of a live message whose state is in memory, and of some after it. */
enum qsi_page_in_begun qsi_page_in_message(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                           struct qsi_segment *segment, uint32_t slot,
                                           uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_page_in_run(struct qsi_page_in *page_in, struct qsi_index *index,
                          struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* After run failed: only the first message is tried next, or becomes a damaged one. */
void qsi_page_in_narrow(struct qsi_page_in *page_in);
/* Instead of run, or after it failed, if content cannot be read: each message becomes a damaged
 * one. */
qs_status qsi_page_in_damaged(struct qsi_page_in *page_in) QS_MUST_CHECK;
/* QS_ENOMEM: nothing was taken over. */
qs_status qsi_page_in_end(struct qsi_page_in *page_in, bool done)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Instead of end: the caller gets the content, of messages that stay only on the disk. load_out:
 * the caller owns its chunk and rows; chunk NULL: nothing was read. */
void qsi_page_in_take(struct qsi_page_in *page_in, struct qsi_segment_load *load_out)
    QSI_REQUIRES(qsi_store_mutex);
/* The number of ready messages from the head on that are in memory, limit at most; *missing_out:
 * one after them is not. */
uint64_t qsi_queue_ready_in_memory(struct qsi_queue *queue, uint64_t limit, bool *missing_out)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- dropping ---- */

/* Whether the run's content may leave memory.  False: without memory for that it stays. */
bool qsi_run_may_leave(struct qsi_queue *queue, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops flushed content of messages that are out or behind the first keep_count ready ones, until
 * bytes were dropped from the queue's share.  Returns the dropped bytes. */
uint64_t qsi_queue_drop_content(struct qsi_container *container, uint64_t keep_count,
                                uint64_t bytes) QSI_REQUIRES(qsi_store_mutex);
/* Drops bitmaps that the disk has too, of segments without content after the first that lacks some
 * and the next one. */
void qsi_queue_drop_states(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);

/* Writes a changed state to its areas. */
struct qsi_state_write {
    struct qsi_queue *queue;
    struct qsi_segment *segment;
    struct qsi_segment_file file;
    struct qsi_segment_file transient_file;
    struct qsi_segment_state state;          /* for file: transient messages count as settled */
    bool cannot_read, cannot_read_transient; /* the file that it was to be written to */
    uint64_t *transient_settled;             /* for transient_file; NULL: that one is not written */
    bool of_file;                            /* file is written */
    uint32_t version;
    uint32_t told_end; /* it has the slots below; all, unless its writer leaves some out */
    uint8_t durable_area;
    bool is_part;  /* assigned slots are left out: in memory the state goes on */
    bool is_named; /* by the running checkpoint, which syncs the file */
};
/* The first segment whose changed state could be dropped if it were written; NULL: none. */
struct qsi_segment *qsi_queue_dirty_state(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* Writes all areas that do not have the present state, so that it can leave memory. */
qs_status qsi_state_write_begin(struct qsi_state_write *write, struct qsi_queue *queue,
                                struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Writes that of the segment's file alone, for a checkpoint that names it.  REQUIRES the file. */
qs_status qsi_state_write_begin_file(struct qsi_state_write *write, struct qsi_queue *queue,
                                     struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_state_write_run(struct qsi_state_write *write, struct qsi_index *index,
                              struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* Like that of flush, after run returned QS_ECORRUPT. */
qs_status qsi_state_write_leave_file(struct qsi_state_write *write)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_state_write_end(struct qsi_state_write *write, bool done) QSI_REQUIRES(qsi_store_mutex);

/* Of a work queue: the first ready message whose content is not in memory; false: there is none. */
bool qsi_work_first_missing(const struct qsi_queue *queue, uint64_t *seq_out)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- RabbitMQ's figures ---- */

struct qsi_queue_measure {
    uint64_t alpha, beta, gamma, delta; /* messages, ready or out */
    uint64_t q1, q2, delta_len, q3, q4; /* ready messages in sub-queues */
    uint64_t ahead;                     /* of these, in front of the first that is a delta */
    uint64_t disk_bytes;
};
void qsi_queue_measure(const struct qsi_queue *queue, const struct qsi_index *index,
                       struct qsi_queue_measure *measure_out) QSI_REQUIRES(qsi_store_mutex);

#endif
