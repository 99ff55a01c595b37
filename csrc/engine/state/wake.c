/* Who sleeps is woken: the committer, the timer, and threads that wait for events or for
 * readers. */
#include "wake.h"

#include "armed.h"

void qsi_commit_kick(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    if (store->commit.committer_sleeps) {
        store->commit.committer_sleeps = false;
        /* Not a signal: a leader that gathers for commit_delay_us waits here too, and would take
         * it. */
        qsi_cond_broadcast(&store->commit.work);
    }
}

void qsi_commit_hurry(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->commit.is_awaited = true;
    store->commit.committer_sleeps = false;
    qsi_cond_broadcast(&store->commit.work); /* as above */
}

void qsi_wake_timer(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->removals.is_woken = true;
    qsi_cond_signal(&store->removals.due);
}

void qsi_events_announce(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->events.count += 1;
    if (store->events.waiters > 0) {
        qsi_cond_broadcast(&store->events.came);
    }
    if (!qsi_list_is_empty(&store->events.armed_for_changes)) {
        qsi_signal_changes(store);
    }
}

void qsi_reader_end(struct qs_store *store, uint32_t reader)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(store->paging.readers.count[reader] > 0);
    store->paging.readers.count[reader] -= 1;
    if (store->paging.readers.count[reader] == 0) {
        qsi_cond_broadcast(&store->paging.done);
    }
}
