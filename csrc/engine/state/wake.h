/* Sleeping threads are woken, and readers of the message store are counted. */
#ifndef QSI_WAKE_H
#define QSI_WAKE_H

#include "store.h"
#include "thread_safety.h"

/* After an append: some thread will commit it. */
void qsi_commit_kick(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* A call waits for a commit that it does not lead: the committer has to. */
void qsi_commit_hurry(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something came: threads that wait look for themselves, and so do channels that listen for any
 * change. The eventfds of armed channels are signalled where it is known which:
 * qsi_signal_consumers, qsi_signal_confirmed, and for its own channel qsi_channel_leave. */
void qsi_events_announce(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);
/* Something expires earlier than the timer knows, or the clock was set. */
void qsi_wake_timer(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex);

/* Around reading from the message store without it. */
static inline uint32_t qsi_reader_begin(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    store->paging.readers.count[store->paging.readers.epoch & 1] += 1;
    return store->paging.readers.epoch & 1;
}
void qsi_reader_end(struct qs_store *store, uint32_t reader) QSI_REQUIRES(qsi_store_mutex);

#endif
