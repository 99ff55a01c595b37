/* Sleeping threads are woken, and readers of the message store are counted.
 *
 * A thread that waits for a message, a confirm or a step of a trace is woken only for that.  In a
 * call of a channel it is armed like an event loop (armed.h); a thread that gets messages without a
 * consumer, or reads a stream, waits at the queue.  Of the threads that wait at a queue one is
 * woken at a time: it takes what it wants, and wakes the next one if something is left. */
#ifndef QSI_WAKE_H
#define QSI_WAKE_H

#include "store.h"
#include "thread_safety.h"

/* After an append: some thread will commit it. */
void qsi_commit_wake(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* A call waits for a commit that it does not lead: the committer has to. */
void qsi_commit_expedite(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something expires earlier than the timer knows, or the clock was set. */
void qsi_wake_timer(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

struct qsi_waiter {
    struct qsi_cond woken;
};
/* A thread's place in the line at a queue; a thread may stand in several lines.  Threads that were
 * woken and have not run yet come first. */
struct qsi_in_line {
    struct qsi_list in_queue;
    struct qsi_waiter *waiter;
    bool is_woken;
};

/* For the caller's thread.  REQUIRES that the waking thread knows it.  May end early: look
 * again. */
void qsi_waiter_sleep(struct qs_store *store, struct qsi_waiter *waiter, uint64_t timeout_ns)
    QSI_REQUIRES(qsi_store_mutex);
/* NULL is fine. */
void qsi_waiter_wake(struct qs_store *store, struct qsi_waiter *waiter)
    QSI_REQUIRES(qsi_store_mutex);
void qsi_line_join(struct qs_store *store, struct qsi_store_queue *queue, struct qsi_in_line *place,
                   struct qsi_waiter *waiter) QSI_REQUIRES(qsi_store_mutex);
/* Twice is fine. */
void qsi_line_leave(struct qs_store *store, struct qsi_in_line *place)
    QSI_REQUIRES(qsi_store_mutex);
/* For so many messages: wakes the next thread, unless enough are already woken. */
void qsi_line_wake_next(struct qs_store *store, struct qsi_store_queue *queue, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex);
/* Wakes all, and empties the line. */
void qsi_line_wake_all(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex);

/* Around reading from the message store without the lock. */
static inline uint32_t qsi_reader_begin(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    store->paging.readers.count[store->paging.readers.epoch & 1] += 1;
    return store->paging.readers.epoch & 1;
}
void qsi_reader_end(struct qs_store *store, uint32_t reader) QSI_REQUIRES(qsi_store_mutex);

#endif
