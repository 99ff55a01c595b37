/* Traces: the steps of messages through a store, for an observer. */
#ifndef QSTORE_TRACE_H
#define QSTORE_TRACE_H

#include "qstore/channel.h"

typedef enum qs_trace_step {
    QS_TRACE_PUBLISH = 1, /* a channel accepted the message */
    QS_TRACE_ROUTE,       /* its exchange routes it to these queues */
    QS_TRACE_ENQUEUE,     /* the queues have it */
    QS_TRACE_RECORD,      /* the journal has it, in memory, at lsn */
    QS_TRACE_SYNC,        /* the disk has the record */
    QS_TRACE_CONFIRM,     /* its publisher gets the confirm, also one that waits for no disk */
    QS_TRACE_RETURN,      /* a mandatory message that no queue took */
    QS_TRACE_DELIVER,     /* delivered to a consumer or to a get */
    QS_TRACE_ACK,         /* acknowledged there */
    QS_TRACE_NACK,        /* rejected or requeued there; or refused by a queue, as its
                             publisher is told in confirm mode */
} qs_trace_step;

enum { QS_TRACE_CONTENT = 1 }; /* of qs_trace_open */

/* A message that is routed or delivered, and the client that published or gets it. */
typedef struct qs_traced_content {
    qs_slice properties, body;
    qs_slice peer, user;     /* of the client behind the connection; "": none */
    uint64_t connection;     /* its number in the store */
    uint64_t client;         /* the host's number of the client; 0: this process */
    uint64_t client_channel; /* the client's number of the channel; 0: it belongs to the store */
    bool redelivered;
} qs_traced_content;

typedef struct qs_trace_event {
    qs_trace_step step;
    uint64_t time_us; /* since 1970, by the store's clock */
    uint64_t lsn;     /* of the record; 0: none, or unknown */
    /* PUBLISH to RETURN in confirm mode, and a publisher's NACK: the publish number, of several
     * messages the first.  DELIVER, ACK and a consumer's NACK: the delivery tag, likewise.
     * Otherwise 0. */
    uint64_t number;
    uint64_t count;   /* messages: those of a batch on the same way are one event */
    uint64_t channel; /* qs_channel_number */
    /* "" if unknown: both for ACK, NACK by a consumer and DELIVER of a batch; the key for every
     * step of a batch. */
    qs_slice exchange, routing_key;
    qs_slice queues; /* names, each after a byte with its length; none before ROUTE */
    const qs_traced_content *content; /* NULL without QS_TRACE_CONTENT */
} qs_trace_event;

typedef struct qs_trace qs_trace;

/* qs_trace_open - open a trace, which records each step from now on.
 *
 * Unread steps wait in memory, up to 8 MiB; beyond that new ones are dropped and counted.  Beyond 1
 * MiB the oldest confirms of publishers that have not asked for them are dropped likewise.  A
 * PUBLISH has the time at which its call began.  Messages of a batch or a transaction on the same
 * way are one event, with the LSN of the whole; those of a transaction are enqueued with its
 * commit.  A row of a batch that a queue refuses is recorded as enqueued, then as a NACK; if
 * several queues refuse a message, the first is named.  The way of dead letters to their exchange
 * is not recorded.
 *
 * With QS_TRACE_CONTENT the trace records the steps ROUTE and DELIVER of single messages, each with
 * its content, and no others: no batches, requeues or settlements, and nothing of the exchange
 * amq.rabbitmq.trace, to which copies may be published.  If nothing else waits, one message of any
 * size has room.  Its body is copied under the store's lock.
 * In:      exchange  NULL: any; otherwise steps without a known exchange are left out
 *          queue     NULL: any; otherwise steps without a queue are left out
 *          flags     QS_TRACE_CONTENT, or 0
 * Returns: QS_EINVAL (a name of more than 255 bytes, an unknown flag), QS_ENOMEM
 * Threads: one at a time, but for qs_trace_dropped and qs_trace_end
 * Owns:    *trace_out: qs_trace_close */
QS_API QS_MUST_CHECK qs_status qs_trace_open(qs_trace **trace_out, qs_store *store,
                                             const qs_slice *exchange, const qs_slice *queue,
                                             uint32_t flags, qs_error *error);

/* qs_trace_next - return the next step, in order of time.  A DELIVER comes when its message has
 * been read, so later steps may come before it.
 *
 * Returns: QS_EEMPTY (none within timeout_ns, or after qs_trace_end), QS_ESTORE_CLOSED (after the
 *          last step)
 * Blocks:  until a step comes, timeout_ns at most
 * Owns:    the trace owns the memory of *event_out, which is valid until the next call */
QS_API QS_MUST_CHECK qs_status qs_trace_next(qs_trace *trace, uint64_t timeout_ns,
                                             qs_trace_event *event_out, qs_error *error);

/* qs_trace_end - stop recording.  Recorded steps can still be read, and qs_trace_next waits no
 * longer.  Ending twice is fine.
 *
 * Threads: any */
QS_API void qs_trace_end(qs_trace *trace);

/* qs_trace_dropped - the number of steps dropped so far for want of room.
 *
 * Threads: any */
QS_API uint64_t qs_trace_dropped(qs_trace *trace);

/* qs_trace_close - close a trace, also after its store was closed.  NULL is fine. */
QS_API void qs_trace_close(qs_trace *trace);

#endif
