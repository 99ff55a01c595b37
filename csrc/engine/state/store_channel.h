/* Connections, channels and consumers. */
#ifndef QSI_STORE_CHANNEL_H
#define QSI_STORE_CHANNEL_H

#include "qstore/qstore.h"

#include "buf.h"
#include "confirms.h"
#include "counters.h"
#include "list.h"
#include "map.h"
#include "slice.h"
#include "thread_safety.h"
#include "unacked.h"

struct qs_listener;
struct qsi_waiter;
struct qsi_store_queue;
struct qsi_stream_cursor;
#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
/* A message that waits for its consumer, out of its queue: deals.h. */
struct qsi_store_deal {
    struct qsi_store_consumer *consumer;
    struct qsi_container *container;
    struct qsi_segment *segment;
    uint32_t slot;
};
struct qsi_store_deals { /* a ring, oldest first */
    struct qsi_store_deal *deals;
    uint32_t first, count;
    uint32_t capacity; /* 0 or a power of two */
};

struct qsi_store_consumer {
    struct qsi_list in_channel GUARDED;  /* its consumers, resting or cancelled */
    struct qsi_list in_queue GUARDED;    /* its consumers in line, or those that are full */
    struct qsi_list in_awaiting GUARDED; /* of its queue, while it rests until that has a message */
    struct qsi_list in_full GUARDED;     /* of the store: watch.h */
    struct qs_channel *channel;
    struct qsi_store_queue *queue;
    int64_t priority;
    bool no_ack;
    bool paused GUARDED;       /* it takes no messages, as if its prefetch were used up */
    bool rests GUARDED;        /* turns.h */
    bool is_full GUARDED;      /* out of its queue's line: deals.h */
    bool is_gone GUARDED;      /* in no list any more; freed with its last unacked message */
    uint32_t prefetch GUARDED; /* 0: unlimited */
    uint64_t unacked_count GUARDED;
    uint32_t dealt_count GUARDED; /* beside those: of the channel's deals */
    uint64_t full_ready GUARDED;  /* messages in its queue, when its prefetch was used up */
    bool is_slow_told GUARDED;    /* watch.c */
    struct qsi_stream_cursor
        *cursor; /* of a stream's consumer (stream_cursor.h); NULL: of a queue's */
    /* the bytes of these two; deliveries share them, and the queue may be deleted first */
    struct qsi_chunk *names;
    struct qsi_slice tag, queue_name;
};

struct qsi_pending_records; /* pending_records.h */

/* Destinations of publishes, to be counted when they are accepted: publish_counts.c. */
struct qsi_published_notes {
    struct qsi_buf notes;
    size_t last_at;       /* the last of them, or the one that took it in */
    struct qsi_map known; /* where notes are that came with others, to be one with the same again */
};

/* Destinations of unconfirmed messages: ways.h. */
struct qsi_confirm_ways {
    struct qsi_buf ways;
    size_t begin, last_at;
    /* The next message belongs to the last way if it has this number, is as persistent, and was
     * published by one exchange to one queue that have this tally, at this version of the router;
     * NULL: it does not. */
    const struct qsi_tally *tally;
    uint64_t version, next_number;
    bool persistent;
};

struct qsi_returned_message { /* is in a chunk of its own, which a qs_message can hold */
    struct qsi_chunk *chunk;
    struct qsi_list in_channel;
    uint64_t place; /* in a transaction: how many records it had before it */
    struct qsi_slice exchange, routing_key, properties, body;
    uint8_t bytes[];
};

struct qsi_tx_settle {
    uint64_t first_tag, last_tag;
    uint8_t kind;    /* QSI_SETTLE_* */
    uint64_t due_us; /* of those that have it, else 0 */
};
/* In addition to those of the journal, for an ack: the message goes to the queue's dead letters, if
 * it has any. */
#define QSI_SETTLE_REJECT 16
/* The same, and each is counted as what it is: delivered without ack; rejected, without dead
 * letters; with a dead letter of the queue. */
#define QSI_SETTLE_NO_ACK 17
#define QSI_SETTLE_DROPPED 18
#define QSI_SETTLE_DEAD_LETTERED 19

/* The shared part of channels.  A channel that was opened on the store itself has its own
 * connection, which ends with it. */
struct qs_connection {
    struct qs_store *store;
    struct qsi_list in_store GUARDED;
    struct qsi_list channels GUARDED;         /* that are open: qs_channel.in_connection */
    struct qsi_list exclusive_queues GUARDED; /* store_queue.in_owner */
    uint32_t references GUARDED;              /* the handle and each channel */
    bool is_shared;                           /* it has a handle */
    bool closed GUARDED;
    uint64_t number; /* of the store's connections, from 1 */
    uint64_t opened_us;
    struct qsi_channel_counts closed_channels GUARDED; /* the sums of their counters */
    struct qs_client *client GUARDED;                  /* with its bytes; NULL: it is unknown */
};

/* No other thread knows of the connection: it is being made. */
static inline void qsi_connection_is_private(const struct qs_connection *connection)
    QSI_ASSUMES(qsi_store_mutex)
{
    (void)connection;
}

struct qs_channel {
    struct qs_store *store;
    struct qs_connection *connection;
    struct qsi_list in_store GUARDED;
    struct qsi_list in_connection GUARDED;
    bool closed GUARDED;
    uint64_t number;                /* of the store's channels, from 1 */
    uint32_t client_number GUARDED; /* the client's number of it; 0: none */
    struct qsi_channel_counts counts GUARDED;
    struct qsi_unacked unacked GUARDED;
    struct qsi_confirms confirms GUARDED;
    struct qsi_confirm_ways ways GUARDED; /* of the messages that confirms wait for */
    /* the publisher reads none: only the first is kept, in confirm mode */
    bool ignores_returns GUARDED;
    struct qsi_list returns GUARDED;         /* returned_message, oldest first */
    struct qsi_list ignored_returns GUARDED; /* the first since the last report */
    uint64_t ignored_return_count GUARDED;
    struct qsi_list consumers GUARDED; /* in turn: the next to serve first */
    struct qsi_list resting GUARDED;   /* consumers that can have no message: turns.h */
    struct qsi_list cancelled
        GUARDED; /* by the deletion of their queue; each goes with its event */
    uint64_t next_consumer_name GUARDED;
    uint32_t prefetch_new GUARDED;     /* for consumers to come */
    uint32_t prefetch_channel GUARDED; /* 0: unlimited */
    uint64_t consumed_count GUARDED;   /* of the unacked: delivered to consumers */
    bool had_deal GUARDED; /* the last that its consumers had: others come before the next */
    struct qsi_store_deals deals
        GUARDED;        /* messages that wait for its consumers, beside the unacked */
    bool waits GUARDED; /* for deliveries, in a call */
    struct qsi_waiter *waiter GUARDED; /* a thread that waits in a call of it; NULL: none does */
    bool is_armed GUARDED;             /* it waits outside of a call, or that thread is armed */
    bool is_armed_by_thread GUARDED;
    /* of events for which its eventfd is signalled, or the thread woken; 0: it is not */
    uint32_t armed_kinds GUARDED;
    struct qsi_list in_changes GUARDED, in_confirms GUARDED; /* of the store's armed channels */
    /* the event loop's, which closes it after the channel; QSI_NO_EVENT_FD: none asked for it */
    int event_fd GUARDED;
    struct qs_listener *listener GUARDED; /* told instead; NULL: none */
    void *listener_tag GUARDED;
    struct qsi_list in_rang GUARDED; /* of the listener's */
    /* For the last call that did not wait for a commit; the channel's own thread reads it, too. */
    uint64_t completion_lsn;
    /* For such calls whose commit was not reported yet: the first and the last; 0: there are
     * none. */
    uint64_t awaited_first_lsn GUARDED, awaited_last_lsn GUARDED;
    bool reads_streams GUARDED; /* it has, or had, a consumer of a stream */
    /* Consumers of streams whose position is to be stored: stream_cursor.in_acked.  The records
     * take at most so many bytes. */
    struct qsi_list acked_cursors GUARDED;
    uint64_t tracking_bytes GUARDED;
    bool has_aside GUARDED;       /* segments were set aside for it */
    uint64_t counted_lsn GUARDED; /* of deliveries that count, and are not written yet; 0: none */
    bool tx_selected GUARDED;
    struct qsi_pending_records *tx_records GUARDED;  /* of the open transaction; NULL: none */
    uint64_t tx_dead_letters GUARDED;                /* dead letters among them */
    struct qsi_published_notes tx_published GUARDED; /* counted at its commit */
    struct qsi_list tx_returns GUARDED;              /* told at its commit */
    uint64_t tx_return_bytes GUARDED;                /* of memory */
    struct qsi_buf tx_settles GUARDED;               /* struct qsi_tx_settle */
    struct qsi_buf tx_cursors GUARDED;               /* cursor records, behind each other */
};
#undef GUARDED

#endif
