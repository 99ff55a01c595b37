/* One queue's messages: which are ready, which are unacked, in which order, and where they are.
 *
 * Two things are kept apart.  What a message *is* (ready, out, settled, seen) stands in bitmaps
 * by sequence, segment by segment, as in the files of the index.  Where its bytes *are* stands
 * in runs: stretches of consecutive sequences whose records lie in one chunk of memory.  Paging
 * drops runs, and then the bitmaps; loading brings both back.  A published batch is one run,
 * whatever its size; messages published one by one share a run while they share a chunk.
 *
 * A message is ready when it is neither settled nor out; requeueing clears a bit, so a message
 * comes back to its very place.
 *
 * What is below flushed_seq and live has a slot in the queue's segment files (paging.h writes
 * them).  References to the message store are counted there: one for each live message of each
 * queue.
 *
 * Single-threaded: the engine's lock covers every call.  Chunks are immutable and may be read
 * without it while referenced. */
#ifndef QSI_QUEUE_H
#define QSI_QUEUE_H

#include "bits.h"
#include "budget.h"
#include "container.h"
#include "list.h"
#include "message_store.h"
#include "record.h"
#include "segment.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_US_PER_MS UINT64_C(1000)
#define QSI_US_PER_S UINT64_C(1000000)
#define QSI_NEVER UINT64_MAX /* when a message expires that does not */

/* What the queues of a store have in common. */
struct qsi_queue_shared {
    struct qsi_message_store *messages; /* counts references; NULL: nobody does */
    struct qsi_budget *budget;          /* NULL: nobody counts */
    struct qsi_index *index;            /* segments of durable queues */
    struct qsi_index *transient_index;  /* and of what ends with the process */
    uint32_t entries;                   /* sequences of a segment: a power of two, 64 at least */
    /* segments with settled messages whose references must be read before they can be dropped */
    struct qsi_list releasing;
    struct qsi_list retired; /* segments without live messages whose files are to go */
    uint64_t flushed_bytes;  /* written to segment files */
};
void qsi_queue_shared_init(struct qsi_queue_shared *shared, uint32_t entries);

struct qsi_queue;

/* The messages of a segment that are not to be delivered yet (queue_delays.c). */
struct qsi_delays {
    uint64_t *bits; /* bitmap; a message that has its bit is neither ready nor out */
    uint64_t *dues; /* by slot from word_base on, of delayed messages: us since 1970 */
    uint16_t *heap; /* slots from word_base on: the one that is due first at the top */
    uint32_t heap_count;
    bool is_ordered; /* the heap has what is delayed and nothing else; if not, it is made again */
};

/* A file that a segment had before: what is in it is nowhere else. */
struct qsi_former_file {
    struct qsi_segment_file file; /* without a state: that is in the file that came after it */
    uint32_t end;                 /* slots below that are in no earlier one are in it */
    bool of_transients;           /* the segment's transient file it was */
    bool is_dirty;                /* something was written to it since the last checkpoint */
    bool named;                   /* as of the segment */
};

/* The state of the messages of shared->entries consecutive sequences.  Bitmaps cover words
 * [word_base, word_base + word_count); what is before them is settled, what is behind was not
 * given out yet. */
struct qsi_segment {
    struct qsi_queue *queue; /* NULL: retired */
    uint64_t number;
    bool is_durable; /* of a durable queue: its file is in the durable index */
    uint32_t ready_count, out_count, delayed_count;
    uint32_t word_base, word_count;
    uint32_t first_word; /* no message before this word is ready */
    uint32_t seen_end;   /* slots below count as delivered once, by a session that crashed */
    /* slots from here on were never given out; 0: what is before next_seq was */
    uint32_t given_end;
    uint64_t *settled; /* the three bitmaps; NULL: the state is on the disk only */
    uint64_t *out;
    uint64_t *seen;
    uint64_t *transient; /* of a durable queue: messages that end with the process; NULL: none */
    /* by slot from word_base on: earlier deliveries, saturating; NULL until a message is
     * requeued */
    uint8_t *deliveries;
    /* by slot from word_base on: us since 1970, or QSI_NEVER; NULL: none expires */
    uint64_t *expiries;
    uint32_t *sizes;      /* by slot from word_base on: bytes of bodies; NULL: nobody counts them */
    uint64_t paged_bytes; /* of ready bodies, when the state left memory, if they are counted */
    struct qsi_delays *delays; /* NULL: no message was delayed since the state is in memory */
    /* no ready message expires before; 0 until a state that has expiries was read */
    uint64_t earliest;
    uint64_t earliest_due;    /* no delayed message is due before; QSI_NEVER: none is delayed */
    uint32_t transient_count; /* live ones */
    uint32_t state_version;   /* counts changes that the state area must tell */
    uint32_t told_end;        /* the state area tells slots below as they are, 0: it does not */
    bool state_dirty;         /* the state area of file does not tell the present state */
    bool transients_dirty;    /* nor does that of transient_file */
    bool file_dirty;          /* written since its last sync */
    bool content_dirty;       /* and not its state alone */
    bool is_damaged; /* its file or its state could not be read: nobody tries unasked any more */
    /* who learned that its state cannot be read: nobody knows which messages it has, and others
     * are served meanwhile; NULL: nobody did */
    const void *aside_for;
    bool has_stored; /* some message refers, or referred, to the message store */
    /* the next bodies begin on a page of their own: a checkpoint names those before */
    bool page_aligned;
    /* by the last checkpoint, or by the one being made: its file outlives it until the next */
    bool named;
    uint8_t durable_area;         /* the state area that the last checkpoint names; 0: none */
    uint32_t busy;                /* jobs under way: it is not freed before they end */
    struct qsi_segment_file file; /* heap_end 0: none */
    /* Of transient messages in a durable queue.  It is never synced, and gone at the next open.
     * Each of the two files tells the state of its own messages, and takes the others for
     * settled. */
    struct qsi_segment_file transient_file;
    struct qsi_former_file *formers; /* in the order in which they were left */
    uint32_t former_count;
    /* Settled messages whose content was not in memory.  The bitmap is there before content that
     * refers to the message store leaves memory, and before a state comes that has such content
     * on the disk: settling needs no memory.  NULL: no such content is on the disk only. */
    uint64_t *releases;
    bool has_releases;         /* some bit is set */
    bool release_rest;         /* and all that the state area of file does not call settled */
    bool release_transients;   /* nor that of transient_file */
    struct qsi_list in_shared; /* releasing or retired */
};

/* What queues have together that are one to whoever consumes: 256 at most. */
struct qsi_queue_sum {
    uint64_t ready_count;
    uint64_t ready_bytes; /* of bodies, if they count them */
    uint64_t earliest; /* no ready message of theirs expires, and no delayed one is due, before */
    uint64_t places[256 / QSI_WORD_BITS]; /* a bit for each that has ready messages */
};

struct qsi_queue {
    struct qsi_container container; /* first: queue_kind.c */
    struct qsi_queue_shared *shared;
    struct qsi_queue_sum *sum; /* in which it counts as well; NULL: in none */
    uint8_t place;             /* its bit there */
    bool references_gone; /* the queue is deleted: what is still out refers to nothing any more */
    /* what is below was looked at: whether other queues have the same bodies */
    uint64_t shared_seq;
    /* by number: segments[first_segment, first_segment + segment_count) */
    struct qsi_segment **segments;
    uint32_t first_segment, segment_count, segment_capacity;
    uint32_t scan; /* index from first_segment: no segment before it has ready messages */
    /* by sequence: runs[first_run, first_run + run_count); they do not overlap */
    struct qsi_run **runs;
    uint32_t first_run, run_count, run_capacity;
    uint32_t run_hint; /* index from first_run: where the last look-up ended */
    /* a run of single records without messages: what comes and goes one by one allocates nothing */
    struct qsi_run *spare;
    uint64_t ready_count;
    uint64_t out_count;
    uint64_t delayed_count;
    uint64_t aside_count; /* messages of segments that are aside */
    /* of each message; QSI_NEVER: they do not expire, unless they say so themselves */
    uint64_t ttl_us;
    /* expiring at once means so much later: while a consumer may take them */
    uint64_t ttl_least_us;
    uint64_t earliest;    /* no ready message expires, and no delayed one is due, before */
    uint64_t ready_bytes; /* of bodies, if it counts them */
    bool counts_bytes;
    bool counts_deliveries; /* at the delivery, not when messages come back: there is a limit */
    /* there is state for what is pushed below it, whatever is settled before */
    uint64_t reserved_seq;
    uint64_t retired_number;     /* the last segment that ended while it was the queue's last */
    uint32_t retired_generation; /* and what its file's successor is to be */
};

void qsi_queue_init(struct qsi_queue *queue, struct qsi_queue_shared *shared, uint64_t id,
                    bool durable);
/* REQUIRES that no job is under way.  References are not dropped: it is the process that ends. */
void qsi_queue_fini(struct qsi_queue *queue);
void qsi_segment_free(struct qsi_segment *segment); /* a retired one */

extern const struct qsi_container_kind qsi_queue_kind;
/* The queue that a container is; NULL: it is of another kind. */
static inline struct qsi_queue *qsi_container_queue(struct qsi_container *container)
{
    return container->kind == &qsi_queue_kind ? (struct qsi_queue *)(void *)container : NULL;
}

/* What its declaration asks of all its messages. */
struct qsi_queue_settings {
    uint64_t ttl_us;        /* QSI_NEVER: none */
    bool counts_bytes;      /* of bodies: there is a limit */
    bool counts_deliveries; /* there is a limit */
};
/* REQUIRES that nothing was pushed. */
void qsi_queue_set(struct qsi_queue *queue, const struct qsi_queue_settings *settings);
/* Messages that expire at once do so that much later: while a consumer may take them. */
static inline void qsi_queue_set_grace(struct qsi_queue *queue, uint64_t grace_us)
{
    queue->ttl_least_us = grace_us;
}
static inline uint64_t qsi_queue_grace(const struct qsi_queue *queue)
{
    return queue->ttl_least_us;
}

/* ---- what it has ---- */

static inline uint64_t qsi_queue_ready_count(const struct qsi_queue *queue)
{
    return queue->ready_count;
}
static inline uint64_t qsi_queue_out_count(const struct qsi_queue *queue)
{
    return queue->out_count;
}
static inline uint64_t qsi_queue_delayed_count(const struct qsi_queue *queue)
{
    return queue->delayed_count;
}
/* Messages of segments that are aside. */
static inline uint64_t qsi_queue_aside_count(const struct qsi_queue *queue)
{
    return queue->aside_count;
}
/* Is all content in memory? */
static inline bool qsi_queue_is_in_memory(const struct qsi_queue *queue)
{
    return queue->container.ram_count ==
           queue->ready_count + queue->out_count + queue->delayed_count;
}
/* Of bodies of ready messages, if it counts them. */
static inline uint64_t qsi_queue_ready_bytes(const struct qsi_queue *queue)
{
    return queue->ready_bytes;
}
/* No ready message expires, and no delayed one is due, before. */
static inline uint64_t qsi_queue_earliest(const struct qsi_queue *queue)
{
    return queue->earliest;
}
/* The sequences of a segment. */
static inline uint32_t qsi_queue_entries(const struct qsi_queue *queue)
{
    return queue->shared->entries;
}
static inline uint32_t qsi_queue_segment_count(const struct qsi_queue *queue)
{
    return queue->segment_count;
}
/* What is below was looked at: whether other queues have the same bodies. */
static inline uint64_t qsi_queue_shared_upto(const struct qsi_queue *queue)
{
    return queue->shared_seq;
}
static inline void qsi_queue_note_shared(struct qsi_queue *queue, uint64_t upto_seq)
{
    queue->shared_seq = upto_seq;
}
/* No segment before this one has ready messages. */
static inline uint32_t qsi_queue_first_ready_segment(const struct qsi_queue *queue)
{
    return queue->scan;
}
static inline uint32_t qsi_queue_run_count(const struct qsi_queue *queue)
{
    return queue->run_count;
}

/* sum NULL: it counts in none any more.  A sum is joined by an empty queue. */
static inline void qsi_queue_join(struct qsi_queue *queue, struct qsi_queue_sum *sum, uint8_t place)
{
    queue->sum = sum;
    queue->place = place;
}

static inline uint64_t qsi_segment_first_seq(const struct qsi_queue_shared *shared,
                                             const struct qsi_segment *segment)
{
    return segment->number * shared->entries;
}
static inline uint64_t qsi_queue_first_seq(const struct qsi_queue *queue,
                                           const struct qsi_segment *segment)
{
    return qsi_segment_first_seq(queue->shared, segment);
}
static inline uint32_t qsi_segment_live_count(const struct qsi_segment *segment)
{
    return segment->ready_count + segment->out_count + segment->delayed_count;
}

/* ---- publishing ---- */

/* Room for run_count more runs with message_count messages in all: push cannot fail then.
 * any_transient: some of them end with the process. */
qs_status qsi_queue_reserve(struct qsi_queue *queue, uint32_t run_count, uint64_t message_count,
                            bool any_transient) QS_MUST_CHECK;
/* Returns the sequence of the run's first message.  The queue owns the run. */
uint64_t qsi_queue_push_run(struct qsi_queue *queue, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);

/* Room for one message whose record will lie in chunk. */
qs_status qsi_queue_reserve_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                    bool journalled) QS_MUST_CHECK;
/* REQUIRES that room.  Returns the message's sequence. */
uint64_t qsi_queue_push_message(struct qsi_queue *queue, struct qsi_chunk *chunk,
                                uint32_t record_at, uint32_t ram_bytes, bool journalled,
                                bool stored) QSI_REQUIRES(qsi_store_mutex);
/* Room to note when the next count messages expire, which say so themselves; REQUIRES the other
 * room. */
qs_status qsi_queue_reserve_expiries(struct qsi_queue *queue, uint64_t count) QS_MUST_CHECK;
/* Room to note when the next count messages are due, which say so themselves; REQUIRES the other
 * room. */
qs_status qsi_queue_reserve_dues(struct qsi_queue *queue, uint64_t count) QS_MUST_CHECK;
/* Both, as far as the record says such a thing of its rows. */
qs_status qsi_queue_reserve_times(struct qsi_queue *queue, const uint8_t *record,
                                  uint64_t count) QS_MUST_CHECK;
/* Begins at seq: what is below was flushed.  REQUIRES that nothing is in memory. */
void qsi_queue_start_at(struct qsi_queue *queue, uint64_t seq);
/* About how many bytes of live messages are not flushed. */
uint64_t qsi_queue_unflushed_bytes(const struct qsi_queue *queue);
/* Gives out no sequence below seq any more (recovery: transient messages left gaps; checkpoints:
 * the next message shares no page of slots with the last). */
qs_status qsi_queue_skip_to(struct qsi_queue *queue, uint64_t seq) QS_MUST_CHECK;

/* ---- delivering ---- */

static inline uint64_t qsi_stretch_mask(const struct qsi_stretch *stretch)
{
    uint64_t ones =
        stretch->count == QSI_WORD_BITS ? ~UINT64_C(0) : (UINT64_C(1) << stretch->count) - 1;

    return ones << (stretch->slot % QSI_WORD_BITS);
}
/* The first ready messages, max_count at most; they are out from now on. */
enum qsi_take qsi_queue_take(struct qsi_queue *queue, uint32_t max_count,
                             struct qsi_stretch *stretch_out) QS_MUST_CHECK;
/* Gives the last messages of a stretch that was just taken back, as if they had not been. */
void qsi_queue_untake(struct qsi_queue *queue, struct qsi_stretch *stretch, uint32_t keep_count);
/* Had it been delivered before it was taken?  REQUIRES that it is asked between take and
 * mark_seen. */
static inline bool qsi_segment_was_seen(const struct qsi_segment *segment, uint32_t slot)
{
    return (segment->seen[slot / QSI_WORD_BITS - segment->word_base] >> (slot % QSI_WORD_BITS) &
            1) != 0;
}
static inline uint32_t qsi_segment_deliveries(const struct qsi_segment *segment, uint32_t slot)
{
    return segment->deliveries != NULL
               ? segment->deliveries[slot - segment->word_base * QSI_WORD_BITS]
           : qsi_segment_was_seen(segment, slot) ? 1
                                                 : 0;
}
/* How often a message that is out had been delivered before it was taken. */
uint32_t qsi_segment_deliveries_before(const struct qsi_queue *queue,
                                       const struct qsi_segment *segment, uint32_t slot);
/* In a queue that counts deliveries: memory to count them in the segment; QS_ENOMEM. */
qs_status qsi_segment_keep_deliveries(const struct qsi_queue *queue,
                                      struct qsi_segment *segment) QS_MUST_CHECK;
/* REQUIRES that memory.  The stretch is handed out. */
void qsi_queue_count_stretch(struct qsi_queue *queue, const struct qsi_stretch *stretch);
static inline void qsi_stretch_mark_seen(const struct qsi_stretch *stretch)
{
    stretch->segment->seen[stretch->slot / QSI_WORD_BITS - stretch->segment->word_base] |=
        qsi_stretch_mask(stretch);
}
/* ---- taking messages out of the queue that nobody asked for: stretches as of take, but with no
 * run ---- */

/* The first ready messages of the segment; TAKE_PAGED: its state is not in memory; NULL: none. */
enum qsi_take qsi_queue_reserve_in(struct qsi_queue *queue, struct qsi_segment *segment,
                                   uint32_t max_count,
                                   struct qsi_stretch *stretch_out) QS_MUST_CHECK;
/* The next ready messages at or behind *seq_io, which moves on; false: there are none.  Those
 * whose state is not in memory are passed over. */
bool qsi_queue_reserve_next(struct qsi_queue *queue, uint64_t *seq_io,
                            struct qsi_stretch *stretch_out) QS_MUST_CHECK;
/* The last ready message before *seq_io, which moves to it; false: there is none.  The same. */
bool qsi_queue_ready_before(const struct qsi_queue *queue, uint64_t *seq_io) QS_MUST_CHECK;
/* Messages that were reserved are ready again, as if nobody had touched them. */
void qsi_queue_unreserve_removal(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word, uint64_t mask);
/* A walk over what has expired, in one hold of the lock. */
struct qsi_expiry_walk {
    uint64_t now_us;
    uint64_t number; /* of the segment at hand */
    uint32_t word;
    uint64_t earliest; /* of what is left in it, so far */
    /* the first segment that may have some, and whose state is not in memory */
    struct qsi_segment *lacks_state;
};
/* The next expired messages; false at the end, when queue->earliest tells when to come again. */
bool qsi_queue_reserve_expired(struct qsi_queue *queue, struct qsi_expiry_walk *walk,
                               struct qsi_stretch *stretch_out) QS_MUST_CHECK;
/* Of the message with that sequence, whose state is in memory, in a queue that counts bytes. */
uint32_t qsi_queue_body_bytes(const struct qsi_queue *queue, uint64_t seq);
/* Recovery, all states in memory: how many bytes of bodies are ready. */
void qsi_queue_recount_bytes(struct qsi_queue *queue);

/* ---- messages that are not to be delivered yet ---- */

/* Room to delay messages of the segment, whose state is in memory: delay cannot fail then. */
qs_status qsi_segment_cover_delays(struct qsi_queue *queue,
                                   struct qsi_segment *segment) QS_MUST_CHECK;
/* Ready messages of one word are delayed until due_us.  REQUIRES that room. */
void qsi_queue_delay(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                     uint64_t mask, uint64_t due_us);
/* Delayed messages that are due are ready, count_max at most, those of the first sequences first.
 * Returns how many.  *lacks_state_out: the first segment that has some and whose state is not in
 * memory, or NULL.  queue->earliest is right when fewer than count_max were found. */
uint64_t qsi_queue_release_due(struct qsi_queue *queue, uint64_t now_us, uint64_t count_max,
                               struct qsi_segment **lacks_state_out);
/* The state cannot be read: all that is delayed counts as ready, so that whoever comes for it is
 * told. */
void qsi_queue_release_unread(struct qsi_queue *queue, struct qsi_segment *segment);
/* When the message in a slot is due, which is delayed. */
uint64_t qsi_segment_due(const struct qsi_segment *segment, uint32_t slot);
/* The delayed messages of one word. */
static inline uint64_t qsi_segment_delayed(const struct qsi_segment *segment, uint32_t word)
{
    uint32_t at = word - segment->word_base;

    return segment->delays != NULL && word >= segment->word_base && at < segment->word_count
               ? segment->delays->bits[at]
               : 0;
}

/* ---- segments whose state cannot be read ---- */

/* Its messages are not ready any more, until it is brought back.  REQUIRES that its state is not
 * in memory, and that it is ready. */
void qsi_segment_set_aside(struct qsi_queue *queue, struct qsi_segment *segment,
                           const void *holder);
/* Brings back what is aside for the holder; NULL: for anybody. */
void qsi_queue_bring_back(struct qsi_queue *queue, const void *holder);
/* The first segment with ready messages; NULL: none is ready. */
struct qsi_segment *qsi_queue_head_segment(struct qsi_queue *queue);
/* Ready messages in segments whose state cannot be read. */
struct qsi_passed {
    uint64_t messages;
    uint64_t body_bytes; /* as far as they are known */
};
/* The first segment with ready messages that is not damaged, as far as anybody knows; those before
 * it are added to *passed_io. */
struct qsi_segment *qsi_queue_readable_head(struct qsi_queue *queue, struct qsi_passed *passed_io);

/* ---- files that cannot be written to any more (former_files.c) ---- */

/* REQUIRES state.  The file, or the transient one, is left with slots below end in it; the next
 * write makes a new one. */
qs_status qsi_segment_leave_file(struct qsi_segment *segment, bool of_transients,
                                 uint32_t end) QS_MUST_CHECK;
/* Recovery, in the order in which they were left. */
qs_status qsi_segment_restore_former(struct qsi_segment *segment,
                                     const struct qsi_segment_file *file,
                                     uint32_t end) QS_MUST_CHECK;
/* Which file a slot was written to, and as far as *end_io is lowered those behind it. */
const struct qsi_segment_file *qsi_segment_file_of(const struct qsi_segment *segment, uint32_t slot,
                                                   bool of_transients, uint32_t *end_io);

/* ---- settling: masks of messages that are out, in one word (slot / 64) of a segment ---- */

/* Acked or dropped.  May retire the segment. */
void qsi_queue_settle(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                      uint64_t mask);
/* Without memory for the delivery counts it does not count; it cannot fail in any case. */
void qsi_queue_requeue(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                       uint64_t mask);
/* Ready again as if nobody had taken them: it does not count, and shows nowhere. */
void qsi_queue_give_back(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                         uint64_t mask);
/* Of these messages, which are journalled. */
static inline uint64_t qsi_segment_journalled(const struct qsi_segment *segment, uint32_t word,
                                              uint64_t mask)
{
    return segment->transient != NULL ? mask & ~segment->transient[word - segment->word_base]
                                      : mask;
}

/* Drops every message that is ready or delayed; visit gets ranges that hold all of them and none
 * that is out.  Returns how many were dropped. */
uint64_t qsi_queue_purge(struct qsi_queue *queue, qsi_range_visitor *visit, void *context);
/* The queue is deleted: purges it, and drops the references of what is out as well. */
void qsi_queue_abandon(struct qsi_queue *queue);
/* How many ranges a purge would visit at most. */
uint64_t qsi_queue_purge_ranges(const struct qsi_queue *queue);

/* ---- recovery ---- */

/* What a checkpoint says of a segment. */
struct qsi_restored_segment {
    const struct qsi_segment_file *file;
    uint32_t ready_count, delayed_count;
    uint32_t seen_end;
    bool has_stored;
    bool has_expiries;
    uint64_t earliest_due;
};
/* A segment that a checkpoint names; in order of their numbers, before anything is pushed. */
qs_status qsi_queue_restore(struct qsi_queue *queue,
                            const struct qsi_restored_segment *restored) QS_MUST_CHECK;
/* Does one of its segments have this file? */
bool qsi_queue_has_file(const struct qsi_queue *queue, const struct qsi_segment_file *file);
/* Nothing is added to a restored segment that cannot be read: the queue goes on behind it.
 * REQUIRES that it is the last one. */
void qsi_queue_end_segment(struct qsi_queue *queue, struct qsi_segment *segment);
/* Salvage: a restored segment that cannot be read is taken for settled.  Its file stays, and so
 * does what it refers to. */
void qsi_queue_lose_segment(struct qsi_queue *queue, struct qsi_segment *segment);
/* The next segment whose state must be loaded before the settle is replayed: one that it
 * divides, or any that it requeues; NULL: none. */
struct qsi_segment *qsi_queue_needs_state(const struct qsi_queue *queue,
                                          const struct qsi_settle *settle);
/* Settles, requeues or delays by sequence; sequences that are not there are passed over.
 * QS_ENOMEM: nothing was done. */
qs_status qsi_queue_replay_settle(struct qsi_queue *queue,
                                  const struct qsi_settle *settle) QS_MUST_CHECK;
/* Every message counts as delivered before; in a queue that counts deliveries it is said to be
 * redelivered, and counts as often as before.  QS_ENOMEM. */
qs_status qsi_queue_mark_all_seen(struct qsi_queue *queue) QS_MUST_CHECK;

/* ---- for the floors above and paging ---- */

struct qsi_segment *qsi_queue_segment_at(const struct qsi_queue *queue, uint32_t index);
/* The index of the segment with this number, or of the first one behind it. */
uint32_t qsi_queue_segment_index(const struct qsi_queue *queue, uint64_t number);
/* The one with this number, or NULL. */
struct qsi_segment *qsi_queue_find_segment(const struct qsi_queue *queue, uint64_t number);
/* The ready messages of one word. */
uint64_t qsi_segment_ready(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint32_t word);
/* Those that were delivered before, of one word.  A first delivery that is still out is not
 * among them: a replayed requeue, or the crash itself, will count it.  REQUIRES state that
 * covers the word. */
uint64_t qsi_segment_seen_before(const struct qsi_segment *segment, uint32_t word);
/* Those that are not settled, of one word. */
uint64_t qsi_segment_live(const struct qsi_queue *queue, const struct qsi_segment *segment,
                          uint32_t word);
/* The index of the run that holds seq, or of the first one behind it. */
uint32_t qsi_queue_find_run(const struct qsi_queue *queue, uint64_t seq);
static inline struct qsi_run *qsi_queue_run_at(const struct qsi_queue *queue, uint32_t index)
{
    return queue->runs[queue->first_run + index];
}
/* The run that holds seq; NULL: its content is not in memory. */
const struct qsi_run *qsi_queue_run_of(struct qsi_queue *queue, uint64_t seq);
/* Inserts a run at its sequence; REQUIRES reserve(1, 0, false). */
void qsi_queue_insert_run(struct qsi_queue *queue, struct qsi_run *run);
/* The content of a message in the run was exchanged for a reference to the message store, which
 * is counted if it is live. */
void qsi_queue_adopt_ref(struct qsi_queue *queue, struct qsi_run *run, uint32_t row)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops a run's content: its messages stay what they are.  REQUIRES that live ones are flushed. */
void qsi_queue_drop_run(struct qsi_queue *queue, uint32_t index);
/* Bitmaps for words [word_base, word_base + word_count), zeroed; QS_ENOMEM. */
qs_status qsi_segment_make_state(struct qsi_queue *queue, struct qsi_segment *segment,
                                 uint32_t word_base, uint32_t word_count) QS_MUST_CHECK;
void qsi_segment_drop_state(struct qsi_queue *queue, struct qsi_segment *segment);
/* After a job: a segment that ended meanwhile is retired now. */
void qsi_segment_retire_if_done(struct qsi_queue *queue, struct qsi_segment *segment);

#endif
