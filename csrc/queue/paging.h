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
    /* by the checkpoint that is being made: what comes behind shares no page with it */
    bool is_named;
    /* bitmaps over the segment: what is written, and what of it to the transient file */
    uint64_t *live;
    uint64_t *transient; /* NULL: nothing */
    uint64_t *seen;      /* delivered before; bits of what is live */
    uint64_t *dues;      /* of delayed ones, by slot; 0: of others; NULL: none is delayed */
    uint8_t *deliveries; /* by slot; NULL: as seen says */
    struct qsi_flush_run *runs;
    uint32_t run_count;
};
/* From from_seq (flushed_seq, or where a flush that was begun before it ends) to the end of the
 * segment or of the queue, or bytes_max of content.  Messages that are settled are passed over.
 * QS_EEMPTY: nothing is left to be flushed. */
qs_status qsi_flush_begin(struct qsi_flush *flush, struct qsi_queue *queue, uint64_t from_seq,
                          uint64_t bytes_max) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Before run, if another flush of the queue was run since begin. */
void qsi_flush_refresh(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex);
/* index: of the queue's kind; transient_index: for transient messages in a durable queue. */
qs_status qsi_flush_run(struct qsi_flush *flush, struct qsi_index *index,
                        struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* After run failed.  A file that could not be read is left, and run may be tried
 * again, which makes a new one.  QS_ECORRUPT: that was not it. */
qs_status qsi_flush_leave_file(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Instead: the same messages as records of the journal, for a checkpoint that carries them itself:
 * messages, and for each earlier delivery of one a settle record that requeues it.  What is
 * transient is left out.  Each call comes to the same. */
qs_status qsi_flush_encode(const struct qsi_flush *flush,
                           struct qsi_carried *carried) QS_MUST_CHECK;
/* Before encode: the flush needs its segment no longer, which others may do with as they like. */
void qsi_flush_detach(struct qsi_flush *flush) QSI_REQUIRES(qsi_store_mutex);
/* done: run went well.  The queue may have retired messages meanwhile, but still exists. */
void qsi_flush_end(struct qsi_flush *flush, bool done) QSI_REQUIRES(qsi_store_mutex);

/* ---- loading ---- */

struct qsi_page_in {
    struct qsi_queue *queue;
    struct qsi_segment *segment;
    struct qsi_segment_file file;
    bool of_transients; /* from the transient file of a durable queue */
    bool of_state;      /* else of content */
    bool is_ahead;      /* of a segment behind the one that is read now */
    uint32_t columns;   /* that the state has */
    struct qsi_segment_state state;
    /* of the state; heap_end 0: no transient message is live */
    struct qsi_segment_file transient_file;
    uint64_t *transient; /* the messages of that file */
    struct qsi_segment_load load;
};
/* What a begin found. */
enum qsi_page_in_begun {
    QSI_PAGE_IN_BEGUN,     /* a job: run, or take, and end are next */
    QSI_PAGE_IN_NOTHING,   /* all that was asked for is in memory */
    QSI_PAGE_IN_UNDER_WAY, /* another job for that segment is: ask again when it has ended */
    QSI_PAGE_IN_NO_MEMORY,
};
/* What the first ready messages that are not in memory need next: the state of a segment, or
 * content. */
enum qsi_page_in_begun qsi_page_in_begin(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                         uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The state of this segment, for which no job is under way; QS_ENOMEM. */
qs_status qsi_page_in_state(struct qsi_page_in *page_in, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The content of a live message whose state is in memory, and of some behind it. */
enum qsi_page_in_begun qsi_page_in_message(struct qsi_page_in *page_in, struct qsi_queue *queue,
                                           struct qsi_segment *segment, uint32_t slot,
                                           uint64_t bytes_max)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_page_in_run(struct qsi_page_in *page_in, struct qsi_index *index,
                          struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* After run failed: only the first message is tried next, or becomes one that is damaged. */
void qsi_page_in_narrow(struct qsi_page_in *page_in);
/* Instead of run, or after it failed, when content cannot be read: each message becomes one that
 * is damaged. */
qs_status qsi_page_in_damaged(struct qsi_page_in *page_in) QS_MUST_CHECK;
/* QS_ENOMEM: nothing was taken over. */
qs_status qsi_page_in_end(struct qsi_page_in *page_in, bool done)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Instead of end: the caller gets what was read, of messages that stay on the disk alone.
 * load_out: its chunk and rows are the caller's; chunk NULL: nothing was read. */
void qsi_page_in_take(struct qsi_page_in *page_in, struct qsi_segment_load *load_out)
    QSI_REQUIRES(qsi_store_mutex);
/* How many ready messages from the head on are in memory, limit at most; *missing_out: one
 * behind them is not. */
uint64_t qsi_queue_ready_in_memory(struct qsi_queue *queue, uint64_t limit, bool *missing_out)
    QSI_REQUIRES(qsi_store_mutex);

/* ---- dropping ---- */

/* May the run's content leave memory?  False: for want of memory it stays. */
bool qsi_run_may_leave(struct qsi_queue *queue, const struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops content that is flushed, of messages that are out or behind the first keep_count ready
 * ones, until bytes were dropped from the queue's share.  Returns how many bytes. */
uint64_t qsi_queue_drop_content(struct qsi_queue *queue, uint64_t keep_count, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops bitmaps that the disk has too, of segments without content behind the first that lacks
 * some and the one behind that. */
void qsi_queue_drop_states(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* Writes a changed state to its areas. */
struct qsi_state_write {
    struct qsi_queue *queue;
    struct qsi_segment *segment;
    struct qsi_segment_file file;
    struct qsi_segment_file transient_file;
    struct qsi_segment_state state; /* as file tells it: what is transient counts as settled */
    bool cannot_read, cannot_read_transient; /* the file that it was to be written to */
    uint64_t *transient_settled; /* as transient_file tells it; NULL: that one is not written */
    bool of_file;                /* file is written */
    uint32_t version;
    uint32_t told_end; /* it tells slots below; all, unless its writer leaves some out */
    uint8_t durable_area;
    bool is_part;  /* slots that were given out are left out: in memory the state goes on */
    bool is_named; /* by the checkpoint that is being made, which syncs the file */
};
/* The next segment, from number on, whose changed state could be dropped if it were written;
 * NULL: none. */
struct qsi_segment *qsi_queue_dirty_state(const struct qsi_queue *queue, uint64_t number)
    QSI_REQUIRES(qsi_store_mutex);
/* All areas that do not tell the present state, so that it can leave memory. */
qs_status qsi_state_write_begin(struct qsi_state_write *write, struct qsi_queue *queue,
                                struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* That of the segment's file alone, for a checkpoint that names it.  REQUIRES the file. */
qs_status qsi_state_write_begin_file(struct qsi_state_write *write, struct qsi_queue *queue,
                                     struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
qs_status qsi_state_write_run(struct qsi_state_write *write, struct qsi_index *index,
                              struct qsi_index *transient_index, qs_error *error) QS_MUST_CHECK;
/* As of flush, after run returned QS_ECORRUPT. */
qs_status qsi_state_write_leave_file(struct qsi_state_write *write)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
void qsi_state_write_end(struct qsi_state_write *write, bool done) QSI_REQUIRES(qsi_store_mutex);

/* ---- what RabbitMQ would show ---- */

struct qsi_queue_measure {
    uint64_t alpha, beta, gamma, delta; /* messages, ready or out */
    uint64_t q1, q2, delta_len, q3, q4; /* ready messages in sub-queues */
    uint64_t ahead;                     /* of these, in front of the first that is a delta */
    uint64_t disk_bytes;
};
void qsi_queue_measure(const struct qsi_queue *queue, const struct qsi_index *index,
                       struct qsi_queue_measure *measure_out) QSI_REQUIRES(qsi_store_mutex);

#endif
