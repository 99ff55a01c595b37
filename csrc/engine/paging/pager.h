/* Messages between memory and disk, for all that needs room or content: pager_room.c finds room,
 * pager_flush.c writes, pager_load.c reads, pager_space.c and compact.c free space on the disk,
 * share_bodies.c moves bodies that several queues have, and pager_jobs.c has what their jobs share.
 * The steps towards less memory, which use all of it, are in pager_steps.h. */
#ifndef QSI_PAGER_H
#define QSI_PAGER_H

#include "failure.h"
#include "paging.h"
#include "store.h"
#include "thread_safety.h"

/* Releases the lock meanwhile.  Reads what the head of the queue lacks next, or waits for the
 * thread that does.  The queue may be gone afterwards.  A segment whose state cannot be read is set
 * aside for the channel (NULL: for none), which gets the error: the next call reads the messages
 * behind it. */
qs_status qsi_page_in(struct qs_store *store, struct qsi_store_queue *queue,
                      struct qs_channel *channel, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Segments that were set aside for this channel are shared again. */
void qsi_bring_back_aside(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* Releases the lock meanwhile.  Reads the content of a message that is out, or waits for the thread
 * that does. */
qs_status qsi_page_in_one(struct qs_store *store, struct qsi_store_queue *queue,
                          struct qsi_segment *segment, uint32_t slot, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* A caller takes messages: the next segment is read ahead. */
void qsi_pager_look_ahead(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* May release the lock meanwhile, and reports that.  Returns when memory is within the budget, or
 * cannot be brought there. */
qs_status qsi_pager_make_room(struct qs_store *store, bool *released_out, enum qsi_wait wait,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* After messages were added to a queue. */
void qsi_pager_wake(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* May release the lock meanwhile, and sets *released_io then.  Looks at the next bytes of
 * content that are to be flushed: bodies that other queues have as well move to the message
 * store, a chunk at a time.  QS_EEMPTY: there are none (more). */
qs_status qsi_share_bodies(struct qs_store *store, struct qsi_store_queue *queue, uint64_t bytes,
                           bool *released_io) QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Drops references of settled messages that were on the disk, and
 * removes files of segments that ended. */
qs_status qsi_pager_release(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Rewrites one sparse segment or compacts one message file; false:
 * there is none. */
bool qsi_pager_compact(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex);
void qsi_forget_dead_files(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* Whether memory is used up.  The next message may need a new part of it. */
bool qsi_pager_is_over_budget(const struct qs_store *store);

/* ---- shared by the files of the pager, and by threads that run its jobs ---- */

/* Around a job: the queue stays while its count is above 0.  begin releases the lock; end
 * REQUIRES it. */
void qsi_pager_job_begin(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex) QSI_RELEASES(qsi_store_mutex);
void qsi_pager_job_end(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* After a file was written or not: what follows for paging, and for the store. */
void qsi_pager_record_failure(struct qs_store *store, enum qsi_disk_use use, qs_status status,
                              const qs_error *error) QSI_REQUIRES(qsi_store_mutex);

/* Releases the lock meanwhile.  Waits until some job has ended.  The queue may be gone
 * afterwards. */
qs_status qsi_pager_wait(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- pager_flush.c ---- */

/* Releases the lock meanwhile.  One flush of the queue; QS_EEMPTY: there is nothing to flush. */
qs_status qsi_pager_flush(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Whether the queue's file cannot be added to, so that the queue is left alone for a while. */
bool qsi_pager_leaves_file(qs_status status);
/* Releases the lock meanwhile.  Writes states of the queue that changed after their content was
 * written; false: nothing was written. */
bool qsi_pager_write_state(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* The same for any queue: one whose content has left memory is not chosen otherwise, and only
 * states may be left to page. */
bool qsi_pager_write_any_state(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* ---- pager_load.c ---- */

/* Releases the lock meanwhile.  Runs and ends a job that was begun.  The queue may be gone
 * afterwards. */
qs_status qsi_pager_run_page_in(struct qs_store *store, struct qsi_store_queue *queue,
                                struct qsi_page_in *job, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Reads the state of this segment, or waits until a job of it has
 * ended; the caller then looks everything up again. */
qs_status qsi_pager_read_state(struct qs_store *store, struct qsi_store_queue *queue,
                               struct qsi_segment *segment, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Releases the lock meanwhile.  Makes one load for a queue that is read; false: there is none to
 * make. */
bool qsi_pager_read_ahead(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Whether there is a consumer for paged messages. */
bool qsi_pager_is_read(struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* How many messages are kept ready in memory in front of a consumer. */
uint64_t qsi_pager_ahead_count(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);
/* For a message in memory; 0: there is none. */
double qsi_pager_average_bytes(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex);

/* Releases the lock meanwhile.  Removes the file at once, unless a checkpoint names it: then it is
 * noted as dead, if there is memory for that. */
void qsi_bury_file(struct qs_store *store, struct qsi_index *index,
                   const struct qsi_segment_file *file, struct qsi_dead_file *dead)
    QSI_REQUIRES(qsi_store_mutex);

static inline uint64_t qsi_pager_memory_used(const struct qs_store *store)
{
    return qsi_budget_bytes(store->budget);
}
/* Where paging begins. */
static inline uint64_t qsi_pager_low_mark(const struct qs_store *store)
{
    return store->options.memory_budget / 2;
}

#endif
