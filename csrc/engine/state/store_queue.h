/* A queue of the store. */
#ifndef QSI_STORE_QUEUE_H
#define QSI_STORE_QUEUE_H

#include "list.h"
#include "policy.h"
#include "queue.h"
#include "route.h"

struct qs_connection;
struct store_consumer;
struct store_priorities; /* priorities.h */

struct store_queue {
    union { /* what has its messages: as any kind of container, and as the one that it is */
        struct qsi_container container;
        struct qsi_queue core;
    };
    struct qsi_destination destination;
    uint32_t flags;                 /* QS_DURABLE, QS_EXCLUSIVE, QS_AUTO_DELETE */
    bool deleted;                   /* gone, but some messages are still out */
    struct qsi_queue_policy policy; /* of its arguments */
    struct store_queue *parent;     /* of a priority above 0; NULL: it is none, or was deleted */
    /* of a queue with priorities; NULL: it is its only priority */
    struct store_priorities *priorities;
    uint8_t priority;
    bool mode_was_set;           /* by qs_store_set_queue_mode, not by its declaration */
    uint64_t restored_next_seq;  /* of the checkpoint: what it carries comes first */
    bool lazy;                   /* x-queue-mode=lazy: what is published goes to the disk at once */
    uint32_t jobs;               /* under way without the lock: it is not freed before they end */
    struct qs_connection *owner; /* of an exclusive queue */
    struct qsi_list in_owner;
    struct qsi_list consumers; /* highest priority first, and within one in turn */
    uint32_t consumer_count;
    bool exclusive_consumer;
    struct store_consumer *active; /* of x-single-active-consumer; NULL: there is no consumer */
    struct qsi_list in_deleted;
    struct qsi_list in_ahead;              /* of queues that a consumer reads from the disk */
    struct qsi_list in_trimming, in_timed; /* of removals */
    /* when it was last declared, read or consumed from, if it goes for want of use */
    uint64_t used_at_us;
    uint64_t unpaged_ns; /* when it could not be paged for want of its directory; 0: it can */
    uint64_t read_at_ns; /* when one last came for what was paged; 0: never */
    /* rates */
    uint64_t rate_at_ns, rate_in, rate_out, rate_settled; /* the last sample */
    double rate_weight;                                   /* of the samples so far: 1 in the end */
    double ingress_sum, egress_sum, ack_sum; /* weighted samples: rates times the weight */
    double target_ram_count;                 /* infinity: memory is not short */
    struct qsi_slice name;
    struct qsi_slice arguments;
    uint8_t bytes[]; /* of name and arguments */
};

#endif
