/* Large batches that go straight into the file of their only stream. */
#ifndef QSI_PUBLISH_DIRECT_H
#define QSI_PUBLISH_DIRECT_H

#include "refuse.h"
#include "store_stream.h"
#include "thread_safety.h"

#define QSI_DIRECT_BYTES_MIN (64u << 10) /* smaller batches go through the journal */
#define QSI_DIRECT_FILES_MAX 64          /* open until a commit synced them */

/* Zeroed: nothing was written. */
struct qsi_direct_write {
    struct qsi_store_queue *queue;
    struct qsi_stream_flush_job *job;
    struct qsi_stream_direct_record *records;
    uint32_t record_count; /* the first ones of the call */
    uint64_t bytes;
    struct qsi_chunk *chunk; /* room for the journal's record */
};

/* The queue, if it is of a kind that may be written directly.  NULL: it is not, or is deleted, the
 * store is closed or has failed, or an archive needs all of it in the journal. */
struct qsi_store_queue *qsi_direct_look(struct qs_store *store, uint64_t queue_id)
    QSI_REQUIRES(qsi_store_mutex);
/* Whether it has to wait (qsi_pager_wait, and look again): its files are being written, or a
 * checkpoint waits until none are. */
bool qsi_direct_is_busy(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* Writes the first of the pending records if possible; the journal takes the others.
 * *released_out: the lock was released, so earlier look-ups are invalid.  Until forget no
 * checkpoint takes its snapshot: a caller that waits for one forgets first. */
void qsi_direct_write(struct qs_store *store, const struct qsi_pending_records *pending_records,
                      struct qsi_direct_write *direct, bool *released_out)
    QSI_REQUIRES(qsi_store_mutex);
/* Whether the written blocks are the next ones of the stream, and there is room for the record that
 * names them.  If not, they are to be forgotten. */
bool qsi_direct_may_accept(const struct qsi_direct_write *direct,
                           const struct qsi_pending_records *pending_records)
    QSI_REQUIRES(qsi_store_mutex);
/* Nothing else takes room for journalled records between this and accept.  QS_ENOMEM. */
qs_status qsi_direct_reserve(struct qs_store *store, struct qsi_direct_write *direct,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* REQUIRES may_accept and reserve in this hold of the lock.  Pushes the records, and appends the
 * record that names them.  Returns its LSN. */
uint64_t qsi_direct_accept(struct qs_store *store, struct qsi_pending_records *pending_records,
                           struct qsi_direct_write *direct) QSI_REQUIRES(qsi_store_mutex);
/* If blocks were written and not accepted, removes their bytes and files, and releases the lock
 * meanwhile. */
void qsi_direct_forget(struct qs_store *store, struct qsi_direct_write *direct)
    QSI_REQUIRES(qsi_store_mutex);

#endif
