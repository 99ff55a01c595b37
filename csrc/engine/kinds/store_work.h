/* Work queues of the store: the stream that each reads, and how far.
 *
 * A work queue gets only messages that are durable in its stream: after a crash other messages
 * would have the offsets of lost ones.  So it learns of messages when a commit has ended, all of
 * them at once, whatever their number. */
#ifndef QSI_STORE_WORK_H
#define QSI_STORE_WORK_H

#include "store.h"
#include "store_stream.h"
#include "thread_safety.h"

/* The stream ends, or is deleted, and its work queues lose all messages that they have not settled:
 * only salvage deletes a stream under a work queue, whose own deletion was lost. */
void qsi_work_detach_readers(struct qsi_store_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* Some work queue that reads the stream; NULL: none does. */
const struct qsi_store_queue *qsi_work_reader(const struct qsi_store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex);

/* A commit has ended: work queues get the messages that it made durable, and their consumers are
 * notified. */
void qsi_work_advance_all(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_work_advance(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_UNLIKELY(!qsi_list_is_empty(&store->sources))) {
        qsi_work_advance_all(store);
    }
}
/* At open, after the replay: work queues get all messages of their streams. */
void qsi_work_recover(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* The stream was trimmed: counts the messages that its work queues had not settled. */
void qsi_work_pass(struct qsi_store_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* For a message that is out: its content does not exist any more.  It is counted. */
bool qsi_work_pass_one(struct qsi_store_queue *queue, uint64_t seq) QSI_REQUIRES(qsi_store_mutex);
/* The first offset that a work queue with x-stream-pin needs; UINT64_MAX: there is none. */
uint64_t qsi_work_pinned_from(const struct qsi_store_stream *stream) QSI_REQUIRES(qsi_store_mutex);

#endif
