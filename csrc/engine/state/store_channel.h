/* Connections, channels and consumers. */
#ifndef QSI_STORE_CHANNEL_H
#define QSI_STORE_CHANNEL_H

#include "qstore/qstore.h"

#include "buf.h"
#include "confirms.h"
#include "list.h"
#include "slice.h"
#include "unacked.h"

struct store_queue;
struct store_consumer {
    struct qsi_list in_channel;
    struct qsi_list in_queue;
    struct qs_channel *channel;
    struct store_queue *queue;
    int64_t priority;
    bool no_ack;
    bool paused;       /* it takes no messages, as if its prefetch were used up */
    bool cancelled;    /* by the deletion of the queue; goes when the event was taken */
    bool is_gone;      /* in no list any more; freed with its last unacked message */
    uint32_t prefetch; /* 0: unlimited */
    uint64_t unacked_count;
    /* what the two point into; deliveries share it, and the queue may go first */
    struct qsi_chunk *names;
    struct qsi_slice tag, queue_name;
};

struct pending_records; /* publish.h */

struct returned_message { /* lies in a chunk of its own, which a qs_message can hold */
    struct qsi_chunk *chunk;
    struct qsi_list in_channel;
    struct qsi_slice exchange, routing_key, properties, body;
    uint8_t bytes[];
};

struct tx_settle {
    uint64_t first_tag, last_tag;
    uint8_t kind;    /* QSI_SETTLE_* */
    uint64_t due_us; /* of those that have it, else 0 */
};
/* Beside those of the journal, where it is an ack: the message goes to the queue's dead letters,
 * if it has any. */
#define QSI_SETTLE_REJECT 16

/* What channels share.  A channel that was opened on the store itself has one of its own, which
 * ends with it. */
struct qs_connection {
    struct qs_store *store;
    struct qsi_list in_store;
    struct qsi_list channels;         /* that are open: qs_channel.in_connection */
    struct qsi_list exclusive_queues; /* store_queue.in_owner */
    uint32_t references;              /* the handle and each channel */
    bool is_shared;                   /* it has a handle */
    bool closed;
};

struct qs_channel {
    struct qs_store *store;
    struct qs_connection *connection;
    struct qsi_list in_store;
    struct qsi_list in_connection;
    bool closed;
    struct qsi_unacked unacked;
    struct qsi_confirms confirms;
    bool ignores_returns;    /* nobody reads them: none but the first is kept, in confirm mode */
    struct qsi_list returns; /* returned_message, oldest first */
    struct qsi_list ignored_returns; /* the first since somebody asked */
    uint64_t ignored_return_count;
    struct qsi_list consumers; /* in turn: the next to serve first */
    uint64_t next_consumer_name;
    uint32_t prefetch_new;     /* for consumers to come */
    uint32_t prefetch_channel; /* 0: unlimited */
    uint64_t consumed_count;   /* of the unacked: what came by consumers, not by a get */
    bool waits;                /* for deliveries, in a call */
    bool deferred;             /* it could have had a message, but another consumer comes first */
    bool is_armed;             /* it waits outside of a call */
    uint32_t armed_kinds; /* of events for which its eventfd is to be signalled; 0: it is not */
    struct qsi_list in_changes, in_confirms; /* of the store's armed channels */
    /* the event loop's, which closes it after the channel; QSI_NO_EVENT_FD: none asked for it */
    int event_fd;
    bool has_aside;       /* segments were set aside for it */
    uint64_t counted_lsn; /* of deliveries that count, and are not written yet; 0: none */
    bool tx_selected;
    struct pending_records *tx_records; /* of the open transaction; NULL: none */
    uint64_t tx_dead_letters;           /* dead letters among them */
    struct qsi_list tx_returns;         /* told at its commit */
    struct qsi_buf tx_settles;          /* struct tx_settle */
};

#endif
