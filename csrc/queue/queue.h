/* One queue's messages: which are ready, which are unacked, in which order.
 *
 * A queue is a sequence of runs.  A run is a stretch of consecutive sequences whose records lie in one chunk, with
 * three bits a message: settled (acked, dropped), out (delivered, unacked), seen (delivered before).  A message
 * is ready when it is neither settled nor out; requeueing clears a bit, so a message comes back to its very place.
 * A published batch is one run, whatever its size; messages published one by one share a run while they share a chunk.
 *
 * Single-threaded: the engine's lock covers every call.  Chunks are immutable and may be read without it while referenced. */
#ifndef QSI_QUEUE_H
#define QSI_QUEUE_H

#include "chunk.h"
#include "record.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_WORD_BITS 64

struct qsi_run {
    struct qsi_chunk *chunk;
    uint64_t first_seq;
    uint64_t ram_bytes; /* this queue's share of the chunk */
    uint32_t count;
    uint32_t capacity;
    uint32_t ready_count;
    uint32_t out_count;
    uint32_t first_word; /* no message before this word is ready */
    uint32_t record_at;  /* of the one record, unless single_records */
    bool
        single_records; /* rows are offsets of records of one message each, else rows of the one record */
    bool journalled;
    bool has_stored; /* some bodies are in the message store */
    bool
        all_seen; /* perhaps, by a session that crashed: each counts as one delivery, and none joins them */
    uint32_t *rows;    /* NULL: row i is message i */
    uint64_t *settled; /* bitmaps of capacity bits */
    uint64_t *out;
    uint64_t *seen;
    uint8_t *deliveries; /* earlier deliveries, saturating; NULL until a message is requeued */
};

struct qsi_queue {
    uint64_t id; /* never reused */
    uint64_t next_seq;
    struct qsi_run **runs; /* by sequence: runs[first_run, first_run + run_count) */
    uint32_t first_run;
    uint32_t run_count;
    uint32_t run_capacity;
    uint32_t scan; /* index from first_run: no run before it has ready messages */
    struct qsi_run *
        spare; /* a run of single records without messages: what comes and goes one by one allocates nothing */
    uint64_t ready_count;
    uint64_t out_count;
    uint64_t stored_count; /* live messages whose body is in the message store */
    uint64_t ram_bytes;
    uint64_t in_count, taken_count; /* since open, for the rates */
};

void qsi_queue_init(struct qsi_queue *queue, uint64_t id);
void qsi_queue_fini(struct qsi_queue *queue);

/* ---- publishing ---- */

/* A run of count messages with their record at data[record_at] of chunk; rows becomes its own (qsi_alloc) on success,
 * NULL: row i is message i.  The sequence is set by push. */
qs_status qsi_run_create(struct qsi_run **run_out, struct qsi_chunk *chunk, uint32_t record_at,
                         uint32_t count, uint32_t *rows, bool journalled) QS_MUST_CHECK;
void qsi_run_destroy(struct qsi_run *run); /* one that was not pushed; NULL is fine */
/* Room for one more run: push cannot fail then. */
qs_status qsi_queue_reserve_run(struct qsi_queue *queue, uint32_t run_count) QS_MUST_CHECK;
/* Returns the sequence of the run's first message.  The queue owns the run. */
uint64_t qsi_queue_push_run(struct qsi_queue *queue, struct qsi_run *run);
/* For recovery: the same at a sequence from the journal, which is not below next_seq. */
void qsi_queue_push_run_at(struct qsi_queue *queue, struct qsi_run *run, uint64_t first_seq);

/* Room for one message whose record will lie in chunk. */
qs_status qsi_queue_reserve_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                    bool journalled) QS_MUST_CHECK;
/* REQUIRES that room.  Returns the message's sequence. */
uint64_t qsi_queue_push_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                uint32_t record_at, uint32_t ram_bytes, bool journalled,
                                bool stored);

/* ---- delivering ---- */

/* Consecutive messages of one run, within one word of its bitmaps. */
struct qsi_stretch {
    struct qsi_run *run;
    uint32_t row;
    uint32_t count;
};
static inline uint64_t qsi_stretch_mask(const struct qsi_stretch *stretch)
{
    uint64_t ones =
        stretch->count == QSI_WORD_BITS ? ~UINT64_C(0) : (UINT64_C(1) << stretch->count) - 1;

    return ones << (stretch->row % QSI_WORD_BITS);
}
/* The first ready messages, max_count at most; they are out from now on.  False: none is ready. */
bool qsi_queue_take(struct qsi_queue *queue, uint32_t max_count, struct qsi_stretch *stretch_out);
/* Gives the last messages of a stretch that was just taken back, as if they had not been. */
void qsi_queue_untake(struct qsi_queue *queue, struct qsi_stretch *stretch, uint32_t keep_count);
/* Had it been delivered before it was taken?  REQUIRES that it is asked between take and mark_seen. */
static inline bool qsi_run_was_seen(const struct qsi_run *run, uint32_t row)
{
    return (run->seen[row / QSI_WORD_BITS] >> (row % QSI_WORD_BITS) & 1) != 0;
}
static inline uint32_t qsi_run_deliveries(const struct qsi_run *run, uint32_t row)
{
    return run->deliveries != NULL ? run->deliveries[row] : qsi_run_was_seen(run, row) ? 1 : 0;
}
static inline void qsi_run_mark_seen(struct qsi_run *run, uint32_t word, uint64_t mask)
{
    run->seen[word] |= mask;
}
/* Where message row of the run is: the record, and the row in it. */
static inline const uint8_t *qsi_run_record(const struct qsi_run *run, uint32_t row,
                                            uint32_t *record_row_out)
{
    if (run->single_records) {
        *record_row_out = 0;
        return run->chunk->data + run->rows[row];
    }
    *record_row_out = run->rows != NULL ? run->rows[row] : row;
    return run->chunk->data + run->record_at;
}

/* ---- settling: masks of messages that are out, in one word of a run ---- */

/* Acked or dropped.  May free the run. */
void qsi_queue_settle(struct qsi_queue *queue, struct qsi_run *run, uint32_t word, uint64_t mask);
/* Memory for the delivery counts: requeue cannot fail in any case, but does not count without. */
void qsi_queue_requeue(struct qsi_queue *queue, struct qsi_run *run, uint32_t word, uint64_t mask);

/* Drops every ready message; visit gets each range of journalled ones.  Returns how many were dropped. */
typedef void qsi_range_visitor(void *context, uint64_t first_seq, uint32_t count);
uint64_t qsi_queue_purge(struct qsi_queue *queue, qsi_range_visitor *visit, void *context);
/* How many ranges a purge would visit at most. */
uint64_t qsi_queue_purge_ranges(const struct qsi_queue *queue);

/* ---- recovery ---- */

/* Settles or requeues by sequence; sequences that are not there are passed over. */
void qsi_queue_replay_settle(struct qsi_queue *queue, const struct qsi_settle *settle);
/* Every message counts as delivered before. */
void qsi_queue_mark_all_seen(struct qsi_queue *queue);

#endif
