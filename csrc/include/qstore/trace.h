/* Traces: what becomes of messages, step by step, for who looks on. */
#ifndef QSTORE_TRACE_H
#define QSTORE_TRACE_H

#include "qstore/channel.h"

typedef enum qs_trace_step {
    QS_TRACE_PUBLISH = 1, /* a channel has it */
    QS_TRACE_ROUTE,       /* its exchange leads to these queues */
    QS_TRACE_ENQUEUE,     /* they have it */
    QS_TRACE_RECORD,      /* the journal has it, in memory: lsn */
    QS_TRACE_SYNC,        /* the disk has the record */
    QS_TRACE_CONFIRM,     /* its publisher hears so, or that it waits for no disk */
    QS_TRACE_RETURN,      /* no queue has it, and it is mandatory */
    QS_TRACE_DELIVER,     /* a consumer has it, or who got it */
    QS_TRACE_ACK,         /* and has acknowledged it */
    QS_TRACE_NACK,        /* and has rejected or requeued it; or its publisher hears of a refusal,
                             or could outside confirm mode */
} qs_trace_step;

enum { QS_TRACE_CONTENT = 1 }; /* of qs_trace_open */

/* A message as it is routed or delivered, and who published it or gets it. */
typedef struct qs_traced_content {
    qs_slice properties, body;
    qs_slice peer, user;     /* of the client behind the connection; "" where there is none */
    uint64_t connection;     /* its number in the store */
    uint64_t client;         /* the host's number of it; 0: the connection is this process's own */
    uint64_t client_channel; /* by which the client knows the channel; 0: it is the store's */
    bool redelivered;
} qs_traced_content;

typedef struct qs_trace_event {
    qs_trace_step step;
    uint64_t time_us; /* since 1970, by the store's clock */
    uint64_t lsn;     /* of the record; 0: there is none, or it is not known */
    /* Of PUBLISH to RETURN in confirm mode, and of a publisher's NACK: the publish number, of
     * several messages the first one.  Of DELIVER, ACK and a consumer's NACK: the delivery tag,
     * likewise.  Else 0. */
    uint64_t number;
    uint64_t count;   /* of messages: those of a batch that go the same way are one event */
    uint64_t channel; /* qs_channel_number */
    /* "" where they are not known: both for ACK, NACK by a consumer and DELIVER of a batch; the
     * key for all of a batch. */
    qs_slice exchange, routing_key;
    qs_slice queues; /* names, a byte with its length before each; none before ROUTE */
    const qs_traced_content *content; /* NULL but with QS_TRACE_CONTENT */
} qs_trace_event;

typedef struct qs_trace qs_trace;

/* qs_trace_open - be told of each step from now on.
 *
 * Steps that were not read wait in memory, 8 MiB of them; beyond that new ones are dropped, and
 * counted.  So are the oldest confirms of publishers that have not asked for them, beyond 1 MiB.
 * A PUBLISH has the time at which its call began.  Messages of a batch or a transaction that go the
 * same way are one event, with the LSN of the whole; those of a transaction are enqueued with its
 * commit.  A row of a batch that a queue refuses is told as enqueued, then by a NACK; of several
 * queues that refuse a message the first is known.  Dead letters on their way to their exchange
 * are not told of.
 *
 * With QS_TRACE_CONTENT the steps ROUTE and DELIVER of single messages are told, each with its
 * content, and no others: neither batches nor what is requeued or settled, and nothing of the
 * exchange amq.rabbitmq.trace, which copies of them may be published to.  Where nothing else waits
 * one message has room, whatever its size.  Its body is copied under the store's lock.
 * In:      exchange  NULL: of any; else steps that know of no exchange are left out
 *          queue     NULL: of any; else what leads to no queue is left out
 *          flags     QS_TRACE_CONTENT, or 0
 * Returns: QS_EINVAL (a name of more than 255 bytes, an unknown flag), QS_ENOMEM
 * Threads: one at a time, but for qs_trace_dropped and qs_trace_end
 * Owns:    *trace_out: qs_trace_close */
QS_API QS_MUST_CHECK qs_status qs_trace_open(qs_trace **trace_out, qs_store *store,
                                             const qs_slice *exchange, const qs_slice *queue,
                                             uint32_t flags, qs_error *error);

/* qs_trace_next - the next step, in the order in which they happened.  A DELIVER comes when its
 * message has been read, which others may be before.
 *
 * Returns: QS_EEMPTY (none within timeout_ns, or after qs_trace_end), QS_ESTORE_CLOSED (and all
 *          were told)
 * Blocks:  until a step comes, timeout_ns at most
 * Owns:    what *event_out points to is the trace's, until the next call */
QS_API QS_MUST_CHECK qs_status qs_trace_next(qs_trace *trace, uint64_t timeout_ns,
                                             qs_trace_event *event_out, qs_error *error);

/* qs_trace_end - be told of nothing that happens from now on.  What was told is still to be read,
 * and qs_trace_next waits no longer.  Twice is fine.
 *
 * Threads: any */
QS_API void qs_trace_end(qs_trace *trace);

/* qs_trace_dropped - how many steps were dropped so far, for want of room.
 *
 * Threads: any */
QS_API uint64_t qs_trace_dropped(qs_trace *trace);

/* qs_trace_close - nothing is told any more.  NULL is fine; so is a store that was closed. */
QS_API void qs_trace_close(qs_trace *trace);

#endif
