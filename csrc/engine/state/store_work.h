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

/* Its stream.  QS_PRECONDITION_FAILED: there is none of that name. */
qs_status qsi_work_find_source(struct qs_store *store, struct qsi_slice arguments,
                               struct qsi_slice queue, struct qsi_store_queue **source_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* The new queue reads source from offset first on. source NULL: salvage found none. */
void qsi_work_attach(struct qs_store *store, struct qsi_store_queue *queue,
                     struct qsi_store_queue *source, uint64_t first) QSI_REQUIRES(qsi_store_mutex);
void qsi_work_detach(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* The stream is deleted, and its work queues lose all messages that they have not settled: only
 * salvage deletes a stream under a work queue, whose own deletion was lost. */
void qsi_work_detach_readers(struct qsi_store_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* Some work queue that reads the stream; NULL: none does. */
struct qsi_store_queue *qsi_work_reader(const struct qsi_store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex);

/* The stream got messages.  A commit looks only at streams that did: there may be thousands of work
 * queues, and most of them wait. */
static inline void qsi_work_note_pushed(struct qs_store *store, struct qsi_store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (!qsi_list_is_empty(&stream->work_queues) && qsi_list_is_empty(&stream->in_sources)) {
        qsi_list_push_back(&store->sources, &stream->in_sources);
    }
}
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
