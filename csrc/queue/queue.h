/* One queue's messages: which are ready, which are unacked, their order, and their places.
 *
 * The state of a message (ready, out, settled, seen) is in bitmaps by sequence, segment by segment,
 * as in the files of the index.  The place of its bytes is in runs: stretches of consecutive
 * sequences whose records are in one chunk of memory.  Paging drops runs, and then the bitmaps;
 * loading brings both back.  A published batch is one run, whatever its size; messages published
 * one by one share a run while they share a chunk.
 *
 * A message is ready when it is neither settled nor out; requeueing clears a bit, so a message
 * returns to its very place.
 *
 * A live message below flushed_seq has a slot in the queue's segment files (paging.h writes them).
 * References to the message store are counted there: one for each live message of each queue.
 *
 * Single-threaded: the engine's lock covers every call.  Chunks are immutable and may be read
 * without it while referenced. */
#ifndef QSI_QUEUE_H
#define QSI_QUEUE_H

#include "budget.h"
#include "container.h"
#include "list.h"
#include "message_store.h"
#include "queue_segment.h"
#include "record.h"
#include "thread_safety.h"

#include <stdbool.h>
#include <stdint.h>

#define QSI_US_PER_MS UINT64_C(1000)
#define QSI_US_PER_S UINT64_C(1000000)

/* Shared by the queues of a store. */
struct qsi_queue_shared {
    struct qsi_message_store *messages; /* counts references; NULL: not counted */
    struct qsi_budget *budget;          /* NULL: not counted */
    struct qsi_index *index;            /* segments of durable queues */
    struct qsi_index *transient_index;  /* and of what ends with the process */
    uint32_t entries;                   /* sequences of a segment: a power of two, 64 at least */
    /* segments with settled messages whose references must be read before they can be dropped */
    struct qsi_list releasing;
    struct qsi_list retired; /* segments without live messages whose files are to go */
    uint64_t flushed_bytes;  /* written to segment files */
};
void qsi_queue_shared_init(struct qsi_queue_shared *shared, uint32_t entries);

/* What queues have together that are one to their consumers: 256 at most. */
struct qsi_queue_sum {
    uint64_t ready_count;
    uint64_t ready_bytes; /* of bodies, if they count them */
    uint64_t earliest; /* no ready message of theirs expires, and no delayed one is due, before */
    uint64_t places[256 / QSI_WORD_BITS]; /* a bit for each that has ready messages */
};

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_queue {
    struct qsi_container container; /* first: queue_kind.c */
    struct qsi_queue_shared *shared;
    struct qsi_queue_sum *sum GUARDED; /* in which it counts as well; NULL: in none */
    uint8_t place;                     /* its bit there */
    /* the queue is deleted: what is still out refers to nothing any more */
    bool references_gone GUARDED;
    /* what is below was looked at: whether other queues have the same bodies */
    uint64_t shared_seq GUARDED;
    /* by number: segments[first_segment, first_segment + segment_count) */
    struct qsi_segment **segments GUARDED;
    uint32_t first_segment GUARDED, segment_count GUARDED, segment_capacity GUARDED;
    uint32_t scan GUARDED; /* index from first_segment: no segment before it has ready messages */
    /* by sequence: runs[first_run, first_run + run_count); they do not overlap */
    struct qsi_run **runs GUARDED;
    uint32_t first_run GUARDED, run_count GUARDED, run_capacity GUARDED;
    uint32_t run_hint GUARDED; /* index from first_run: where the last look-up ended */
    /* a run of single records without messages: what comes and goes one by one allocates nothing */
    struct qsi_run *spare GUARDED;
    uint64_t ready_count GUARDED;
    uint64_t out_count GUARDED;
    uint64_t delayed_count GUARDED;
    uint64_t aside_count GUARDED; /* messages of segments that are aside */
    /* of each message; QSI_NEVER: they do not expire, unless they say so themselves */
    uint64_t ttl_us GUARDED;
    /* expiring at once means so much later: while a consumer may take them */
    uint64_t ttl_least_us GUARDED;
    uint64_t earliest GUARDED;    /* no ready message expires, and no delayed one is due, before */
    uint64_t ready_bytes GUARDED; /* of bodies, if it counts them */
    bool counts_bytes;
    bool counts_deliveries; /* at the delivery, not when messages come back: there is a limit */
    /* there is state for what is pushed below it, whatever is settled before */
    uint64_t reserved_seq GUARDED;
    /* Of a work queue (work.h); zeros: it is none. */
    struct qsi_work {
        uint64_t end;          /* messages [next_seq, end) are ready and have no state yet */
        uint64_t seen_upto;    /* what is below counts as delivered, by a process that crashed */
        uint64_t passed_count; /* that its source dropped before they were settled */
    } work GUARDED;
    /* the last segment that ended while it was the queue's last */
    uint64_t retired_number GUARDED;
    uint32_t retired_generation GUARDED; /* and what its file's successor is to be */
};
#undef GUARDED

void qsi_queue_init(struct qsi_queue *queue, struct qsi_queue_shared *shared, uint64_t id,
                    bool durable) QSI_REQUIRES(qsi_store_mutex);
/* REQUIRES that no job is under way.  References are not dropped: it is the process that ends. */
void qsi_queue_fini(struct qsi_container *container) QSI_REQUIRES(qsi_store_mutex);

extern const struct qsi_container_kind qsi_queue_kind;
extern const struct qsi_container_kind qsi_work_kind; /* work.h */
/* The queue that a container is; NULL: it is of another kind. */
static inline struct qsi_queue *qsi_container_queue(struct qsi_container *container)
{
    return container->kind == &qsi_queue_kind || container->kind == &qsi_work_kind
               ? (struct qsi_queue *)(void *)container
               : NULL;
}

/* REQUIRES a container that is a queue. */
static inline struct qsi_queue *qsi_as_queue(struct qsi_container *container)
{
    QS_DCHECK(qsi_container_queue(container) != NULL);
    return (struct qsi_queue *)(void *)container;
}

/* What its declaration asks of all its messages. */
struct qsi_queue_settings {
    uint64_t ttl_us;        /* QSI_NEVER: none */
    bool counts_bytes;      /* of bodies: there is a limit */
    bool counts_deliveries; /* there is a limit */
};
/* REQUIRES that nothing was pushed. */
void qsi_queue_set(struct qsi_queue *queue, const struct qsi_queue_settings *settings)
    QSI_REQUIRES(qsi_store_mutex);
/* Messages that expire at once do so that much later: while a consumer may take them. */
static inline void qsi_queue_set_grace(struct qsi_queue *queue, uint64_t grace_us)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->ttl_least_us = grace_us;
}
static inline uint64_t qsi_queue_grace(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return queue->ttl_least_us;
}

/* ---- what it has ---- */

static inline uint64_t qsi_queue_ready_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->ready_count;
}
static inline uint64_t qsi_queue_out_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->out_count;
}
static inline uint64_t qsi_queue_delayed_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->delayed_count;
}
/* Messages of segments that are aside. */
static inline uint64_t qsi_queue_aside_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->aside_count;
}
/* Is all content in memory? */
static inline bool qsi_queue_is_in_memory(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->container.ram_count ==
           queue->ready_count + queue->out_count + queue->delayed_count;
}
/* Of bodies of ready messages, if it counts them. */
static inline uint64_t qsi_queue_ready_bytes(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->ready_bytes;
}
/* Recovery, all states in memory: how many they are. */
void qsi_queue_recount_bytes(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Of a work queue: ready messages without state. */
static inline uint64_t qsi_work_rest(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    return queue->work.end > queue->container.next_seq ? queue->work.end - queue->container.next_seq
                                                       : 0;
}
/* No ready message expires, and no delayed one is due, before. */
static inline uint64_t qsi_queue_earliest(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->earliest;
}
/* The sequences of a segment. */
static inline uint32_t qsi_queue_entries(const struct qsi_queue *queue)
{
    return queue->shared->entries;
}
static inline uint32_t qsi_queue_segment_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->segment_count;
}
/* What is below was looked at: whether other queues have the same bodies. */
static inline uint64_t qsi_queue_shared_upto(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->shared_seq;
}
static inline void qsi_queue_mark_shared(struct qsi_queue *queue, uint64_t upto_seq)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->shared_seq = upto_seq;
}
/* No segment before this one has ready messages. */
static inline uint32_t qsi_queue_first_ready_segment(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->scan;
}
static inline uint32_t qsi_queue_run_count(const struct qsi_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->run_count;
}

/* sum NULL: it counts in none any more.  A sum is joined by an empty queue. */
static inline void qsi_queue_join(struct qsi_queue *queue, struct qsi_queue_sum *sum, uint8_t place)
    QSI_REQUIRES(qsi_store_mutex)
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

/* ---- its segments and runs: for the floors above and paging ---- */

static inline struct qsi_segment *qsi_queue_segment_at(const struct qsi_queue *queue,
                                                       uint32_t index) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(index < queue->segment_count);
    return queue->segments[queue->first_segment + index];
}
/* The index of the segment with this number, or of the first one behind it. */
uint32_t qsi_queue_segment_index(const struct qsi_queue *queue, uint64_t number)
    QSI_REQUIRES(qsi_store_mutex);
/* The one with this number, or NULL. */
struct qsi_segment *qsi_queue_find_segment(const struct qsi_queue *queue, uint64_t number)
    QSI_REQUIRES(qsi_store_mutex);
/* The index of the run that holds seq, or of the first one behind it. */
uint32_t qsi_queue_find_run(const struct qsi_queue *queue, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex);
static inline struct qsi_run *qsi_queue_run_at(const struct qsi_queue *queue, uint32_t index)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->runs[queue->first_run + index];
}
/* The run that holds seq; NULL: its content is not in memory. */
const struct qsi_run *qsi_queue_run_of(struct qsi_queue *queue, uint64_t seq)
    QSI_REQUIRES(qsi_store_mutex);
/* About how many bytes of live messages are not flushed. */
uint64_t qsi_queue_unflushed_bytes(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* Inserts a run at its sequence; REQUIRES reserve(1, 0, false). */
void qsi_queue_insert_run(struct qsi_queue *queue, struct qsi_run *run)
    QSI_REQUIRES(qsi_store_mutex);
/* The content of a message in the run was exchanged for a reference to the message store, which
 * is counted if it is live. */
void qsi_queue_adopt_ref(struct qsi_queue *queue, struct qsi_run *run, uint32_t row)
    QSI_REQUIRES(qsi_store_mutex);
/* Drops a run's content: its messages stay what they are.  REQUIRES that live ones are flushed. */
void qsi_queue_drop_run(struct qsi_queue *queue, uint32_t index) QSI_REQUIRES(qsi_store_mutex);

/* ---- debug builds ---- */

/* Asserts that counts, bitmaps, runs and times agree: between calls, while no journal is replayed.
 * Takes time in proportion to what is in memory; in release builds it is nothing. */
#ifdef NDEBUG
#define qsi_queue_check(queue) ((void)(queue))
#else
void qsi_queue_check(const struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex);
#endif

#endif
