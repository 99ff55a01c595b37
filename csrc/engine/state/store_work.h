/* Work queues of the store: which stream each reads, and how far they may.
 *
 * A work queue gets what is durable in its stream, no more: after a crash other messages would have
 * the offsets of those that are gone.  So it learns of messages when a commit has ended, all of
 * them at once, whatever their number. */
#ifndef QSI_STORE_WORK_H
#define QSI_STORE_WORK_H

#include "store.h"
#include "store_stream.h"
#include "thread_safety.h"

/* Its stream.  QS_PRECONDITION_FAILED: there is none of that name. */
qs_status qsi_work_find_source(struct qs_store *store, struct qsi_slice arguments,
                               struct qsi_slice queue, struct store_queue **source_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* The queue, which is new, reads source from offset first on.  source NULL: salvage found none. */
void qsi_work_attach(struct qs_store *store, struct store_queue *queue, struct store_queue *source,
                     uint64_t first) QSI_REQUIRES(qsi_store_mutex);
void qsi_work_detach(struct store_queue *queue) QSI_REQUIRES(qsi_store_mutex);
/* The stream goes, and with it all that its work queues have not: only salvage deletes a stream
 * under a work queue whose own deletion was lost. */
void qsi_work_detach_readers(struct store_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* Some work queue that reads the stream; NULL: none does. */
struct store_queue *qsi_work_reader(const struct store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex);

/* The stream has got messages.  A commit looks only at streams that did: there may be thousands of
 * work queues, and most of them wait. */
static inline void qsi_work_note_pushed(struct qs_store *store, struct store_stream *stream)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (!qsi_list_is_empty(&stream->work_queues) && qsi_list_is_empty(&stream->in_sources)) {
        qsi_list_push_back(&store->sources, &stream->in_sources);
    }
}
/* A commit has ended: work queues get what it made durable, and their consumers are told. */
void qsi_work_advance_all(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
static inline void qsi_work_advance(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (QS_UNLIKELY(!qsi_list_is_empty(&store->sources))) {
        qsi_work_advance_all(store);
    }
}
/* Open, when all was replayed: work queues have all that their streams have. */
void qsi_work_recover(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* The stream was trimmed: what its work queues were not done with is counted. */
void qsi_work_pass(struct store_stream *stream) QSI_REQUIRES(qsi_store_mutex);
/* Of a message that is out: its content is nowhere any more.  It is counted. */
bool qsi_work_pass_one(struct store_queue *queue, uint64_t seq) QSI_REQUIRES(qsi_store_mutex);
/* The first offset that a work queue with x-stream-pin needs; UINT64_MAX: there is none. */
uint64_t qsi_work_pinned_from(const struct store_stream *stream) QSI_REQUIRES(qsi_store_mutex);

#endif
