/* What the files of browsing share. */
#ifndef QSI_BROWSE_INTERNAL_H
#define QSI_BROWSE_INTERNAL_H

#include "store.h"
#include "taken.h"
#include "thread_safety.h"

struct qsi_browse {
    struct qs_store *store;
    struct qsi_slice name;
    uint64_t position; /* at or before the next message */
    uint64_t messages_left, bytes_left;
    uint64_t now_us;
    uint64_t behind_damage; /* the position after the damage of the error; 0: there was none */
    struct qsi_taken_batch batch;
};

static inline bool qsi_browse_is_full(const struct qsi_browse *browse)
{
    return browse->messages_left == 0 ||
           (browse->bytes_left == 0 && browse->batch.message_count > 0);
}

/* ---- browse_batch.c ---- */

/* Adds a message, with a reference to its chunk.  QS_ENOMEM. */
qs_status qsi_browse_add(struct qsi_browse *browse, const struct qsi_taken *next,
                         uint32_t bytes) QS_MUST_CHECK;
/* Sets the position after the last message that was added. */
void qsi_browse_pass_added(struct qsi_browse *browse);
/* Builds the batch.  If a message cannot be read, the messages before it are returned first; the
 * next call reports the error. */
qs_status qsi_browse_build(struct qsi_browse *browse, struct ArrowSchema *schema_out,
                           struct ArrowArray *array_out, qs_error *error) QS_MUST_CHECK;

/* ---- browse_stream.c ---- */

/* Adds adjacent messages of a stream from the position on, and advances it.  QS_EEMPTY: no durable
 * message is at or after it.  Releases the lock meanwhile. */
qs_status qsi_browse_stream(struct qsi_browse *browse, struct qsi_store_queue *queue,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
