/* The store's threads: started and stopped in the order of their dependencies. */
#include "check.h"
#include "checkpoint.h"
#include "commit.h"
#include "engine.h"
#include "inbox.h"
#include "pager_steps.h"
#include "removals.h"

static qs_status start_all(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT(!store->paging.is_running && !store->checkpoint.is_running &&
              !store->options.read_only);
    QS_TRY(qsi_commit_start_threads(store, error));
    QS_TRY(qsi_thread_start(&store->paging.thread, "qs-page", qsi_run_pager, store, error));
    store->paging.is_running = true;
    QS_TRY(qsi_thread_start(&store->checkpoint.thread, "qs-checkpoint", qsi_run_checkpointer, store,
                            error));
    store->checkpoint.is_running = true;
    QS_TRY(qsi_thread_start(&store->removals.thread, "qs-timer", qsi_run_timer, store, error));
    store->removals.has_timer = true;
    return qsi_inbox_start(store, error);
}

/* Under the lock, so that no thread sees an incomplete record of the others. */
qs_status qsi_start_threads(struct qs_store *store, qs_error *error)
{
    qs_status status;

    qsi_store_lock(store);
    status = start_all(store, error);
    qsi_store_unlock(store);
    return status;
}

void qsi_stop_threads(struct qs_store *store)
{
    pthread_t timer, checkpointer, pager;
    bool has_timer, has_checkpointer, has_pager;

    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_inbox_stop(store);
    qsi_store_lock(store);
    qsi_life_step(&store->life, QSI_LIFE_STOPS);
    qsi_cond_broadcast(&store->commit.work);
    qsi_cond_broadcast(&store->commit.durable);
    qsi_cond_broadcast(&store->commit.chores);
    qsi_cond_broadcast(&store->paging.wanted);
    qsi_cond_broadcast(&store->paging.done);
    qsi_cond_broadcast(&store->checkpoint.due);
    qsi_cond_broadcast(&store->removals.due);
    has_timer = store->removals.has_timer;
    has_checkpointer = store->checkpoint.is_running;
    has_pager = store->paging.is_running;
    timer = store->removals.thread;
    checkpointer = store->checkpoint.thread;
    pager = store->paging.thread;
    qsi_store_unlock(store);
    if (has_timer) { /* before those that it may wait for */
        pthread_join(timer, NULL);
    }
    if (has_checkpointer) { /* first: it may wait for the others */
        pthread_join(checkpointer, NULL);
    }
    if (has_pager) {
        pthread_join(pager, NULL);
    }
    qsi_store_lock(store);
    store->paging.is_running = store->checkpoint.is_running = store->removals.has_timer = false;
    qsi_store_unlock(store);
    qsi_commit_join_threads(store);
}
