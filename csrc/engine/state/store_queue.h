/* A queue of the store. */
#ifndef QSI_STORE_QUEUE_H
#define QSI_STORE_QUEUE_H

#include "counters.h"
#include "list.h"
#include "policy.h"
#include "queue.h"
#include "route.h"
#include "thread_safety.h"

#define QSI_NAME(slice) (int)(slice).bytes, (const char *)(slice).data

struct qs_connection;
struct qsi_store_consumer;
struct qsi_store_kind;       /* store_kind.h */
struct qsi_store_priorities; /* priorities.h */
struct qsi_store_stream;     /* store_stream.h */

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qsi_store_queue {
    union { /* the holder of its messages: as any kind of container, and as its own kind */
        struct qsi_container container;
        struct qsi_queue core;
    };
    const struct qsi_store_kind *kind;
    /* Where messages go that are published to it: the container above, or the stream's log. */
    struct qsi_container *messages;
    struct qsi_store_stream
        *stream; /* NULL: it is none.  Of a stream the queue itself stays empty */
    /* Of a work queue: the stream that it reads; NULL: it is none, or was deleted. */
    struct qsi_store_queue *source GUARDED;
    struct qsi_list in_source GUARDED;
    uint64_t work_first GUARDED; /* where it began */
    uint64_t looked_at GUARDED;  /* how many were taken when the pager last looked ahead */
    bool pins;                   /* x-stream-pin: the stream keeps what it has not settled */
    struct qsi_destination destination GUARDED;
    /* counts.h; NULL: nothing was counted yet.  Of a priority the queue's, which frees them */
    struct qsi_queue_counts *counts GUARDED;
    uint32_t flags;                 /* QS_DURABLE, QS_EXCLUSIVE, QS_AUTO_DELETE */
    bool deleted GUARDED;           /* gone, but some messages are still out */
    struct qsi_queue_policy policy; /* of its arguments */
    /* of a priority above 0; NULL: it is none, or was deleted */
    struct qsi_store_queue *parent GUARDED;
    /* of a queue with priorities; NULL: it is its only priority */
    struct qsi_store_priorities *priorities GUARDED;
    uint8_t priority;
    bool mode_was_set GUARDED; /* by qs_store_set_queue_mode, not by its declaration */
    /* behind its declaration in the journal; 0: it has none */
    uint64_t declared_lsn GUARDED;
    uint64_t restored_next_seq GUARDED; /* of the checkpoint: its carried messages come first */
    bool lazy GUARDED;           /* x-queue-mode=lazy: published messages go to the disk at once */
    uint32_t arrival_at GUARDED; /* arrivals.c: where its own was, in the last call that had one */
    uint32_t jobs GUARDED;       /* under way without the lock: it is not freed before they end */
    struct qs_connection *owner; /* of an exclusive queue */
    struct qsi_list in_owner GUARDED;
    struct qsi_list consumers GUARDED; /* highest priority first, and within one in turn */
    struct qsi_list full GUARDED;      /* those whose prefetch is used up, as far as is known */
    struct qsi_list awaiting GUARDED;  /* those that rest until it has a message */
    struct qsi_list waiting GUARDED;   /* threads that get, or read the stream: wake.h */
    uint32_t consumer_count GUARDED;
    bool exclusive_consumer GUARDED;
    /* messages stay ready for a consumer of higher priority that was dealt as many as it may be */
    bool left_for_sated GUARDED;
    /* of x-single-active-consumer; NULL: there is no consumer */
    struct qsi_store_consumer *active GUARDED;
    struct qsi_list in_deleted GUARDED;
    struct qsi_list in_ahead GUARDED; /* of queues that a consumer reads from the disk */
    struct qsi_list in_trimming GUARDED, in_timed GUARDED; /* of removals */
    /* when it was last declared, read or consumed from, if it goes for want of use */
    uint64_t used_at_us GUARDED;
    /* when it could not be paged for want of its directory; 0: it can */
    uint64_t unpaged_ns GUARDED;
    uint64_t read_at_ns GUARDED; /* the last request for paged messages; 0: never */
    /* a lazy queue: the number of taken messages at a look, and the first time of that number */
    uint64_t rest_taken GUARDED, rests_from_ns GUARDED;
    /* rates */
    /* the last sample */
    uint64_t rate_at_ns GUARDED, rate_in GUARDED, rate_out GUARDED, rate_settled GUARDED;
    double rate_weight GUARDED; /* of the samples so far: 1 in the end */
    /* weighted samples: rates times the weight */
    double ingress_sum GUARDED, egress_sum GUARDED, ack_sum GUARDED;
    struct qsi_slice name;
    struct qsi_slice arguments;
    uint8_t bytes[]; /* of name and arguments */
};
#undef GUARDED

/* Of its messages, as container.h asks. */
static inline bool qsi_takes(const struct qsi_store_queue *queue)
{
    return qsi_container_takes(queue->messages);
}
static inline bool qsi_keeps_all(const struct qsi_store_queue *queue)
{
    return qsi_container_keeps_all(queue->messages);
}
static inline bool qsi_appends(const struct qsi_store_queue *queue)
{
    return qsi_container_appends(queue->messages);
}
/* Whether its messages are a stream's: only then is there queue->stream. */
static inline bool qsi_is_stream(const struct qsi_store_queue *queue)
{
    return queue->stream != NULL;
}

#endif
