/* Traces (qstore/trace.h): the steps of messages, reported to observers.
 *
 * Without an observer a step costs one comparison.  Each trace remembers messages whose sync or
 * confirm is still to come, with the names for these steps. */
#ifndef QSI_TRACE_H
#define QSI_TRACE_H

#include "qstore/trace.h"

#include "store.h"
#include "thread_safety.h"

/* Of one message, for traces of contents. */
struct qsi_trace_content {
    const struct qs_channel *channel; /* of the publisher or the receiver */
    struct qsi_slice properties, body;
    bool redelivered;
};

struct qsi_trace_step {
    qs_trace_step step;
    uint64_t time_us; /* 0: now */
    uint64_t lsn, number, count, channel;
    uint64_t last_number;             /* of the batch; 0: number is the only one */
    const struct qsi_slice *exchange; /* NULL: not known */
    struct qsi_slice key;
    struct qsi_destination *const *queues;
    uint32_t queue_count;
    const struct qsi_trace_content *content; /* NULL: none, so traces of contents are not told */
};

struct traced; /* a step that a trace keeps */

struct qsi_traced_list {
    struct qsi_list steps; /* the oldest first */
    uint64_t bytes;
};

/* An answer to a publisher: about this number, with multiple also about all unanswered ones before
 * it. */
struct qsi_traced_verdict {
    const struct qs_channel *channel;
    uint64_t number;
    bool multiple, is_ack;
};

#define GUARDED QSI_GUARDED_BY(qsi_store_mutex)
struct qs_trace {
    struct qs_store *store;
    struct qsi_list in_store GUARDED;
    struct qsi_waiter *waiter GUARDED; /* a thread that waits for a step; NULL: none does */
    struct qsi_traced_list unread GUARDED;
    struct qsi_traced_list unsynced GUARDED, unconfirmed GUARDED; /* whose next steps are awaited */
    uint64_t dropped GUARDED;
    struct traced *returned; /* the last step that a call returned: of the thread that reads */
    bool of_exchange, of_queue, of_content;
    struct qsi_slice exchange, queue; /* in names */
    uint8_t names[2 * UINT8_MAX];
};
#undef GUARDED

static inline bool qsi_is_traced(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return QS_UNLIKELY(!qsi_list_is_empty(&store->events.traces));
}

/* Each of these reports to all traces that want the step.  Without memory a step counts as
 * dropped. */
void qsi_trace(struct qs_store *store, const struct qsi_trace_step *step)
    QSI_REQUIRES(qsi_store_mutex);
/* Its sync, unless lsn is 0, and its confirm, if awaits_confirm, are to be reported when they
 * come. */
void qsi_trace_await(struct qs_store *store, const struct qsi_trace_step *step, bool awaits_confirm)
    QSI_REQUIRES(qsi_store_mutex);
/* A commit has ended. */
void qsi_trace_synced(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* A publisher gets an answer to its publish. */
void qsi_trace_verdict(const struct qsi_traced_verdict *verdict) QSI_REQUIRES(qsi_store_mutex);
/* And it gets no more answers. */
void qsi_trace_channel_ended(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Messages of the queue were taken, or settled: DELIVER, ACK, NACK. */
void qsi_trace_taken(const struct qs_channel *channel, qs_trace_step step,
                     struct qsi_store_queue *queue, uint64_t first_tag, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex);
/* A message is delivered, whose queue may be gone. */
void qsi_trace_delivered(const struct qs_channel *channel, struct qsi_slice queue,
                         const qs_message *message) QSI_REQUIRES(qsi_store_mutex);
/* The oldest unread step, which the caller then owns; NULL: there is none. */
struct traced *qsi_trace_take(struct qs_trace *trace) QSI_REQUIRES(qsi_store_mutex);
void qsi_traced_report(const struct traced *traced, qs_trace_event *event_out);
void qsi_traced_free(struct traced *traced);
void qsi_trace_forget(struct qs_trace *trace) QSI_REQUIRES(qsi_store_mutex);

#endif
