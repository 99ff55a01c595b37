/* The store's threads: started and stopped in the order in which they need each other. */
#include "checkpoint.h"
#include "commit.h"
#include "engine.h"
#include "pager.h"
#include "removals.h"

static qs_status start_all(struct qs_store *store, qs_error *error)
{
    QS_TRY(qsi_commit_start_threads(store, error));
    QS_TRY(qsi_thread_start(&store->paging.thread, "qs-page", qsi_run_pager, store, error));
    store->paging.is_running = true;
    QS_TRY(qsi_thread_start(&store->checkpoint.thread, "qs-checkpoint", qsi_run_checkpointer, store,
                            error));
    store->checkpoint.is_running = true;
    QS_TRY(qsi_thread_start(&store->removals.thread, "qs-timer", qsi_run_timer, store, error));
    store->removals.has_timer = true;
    return QS_OK;
}

/* Under the lock, so that no thread looks at what is noted of the others before all of it is. */
qs_status qsi_start_threads(struct qs_store *store, qs_error *error)
{
    qs_status status;

    qsi_mutex_lock(&store->mutex);
    status = start_all(store, error);
    qsi_mutex_unlock(&store->mutex);
    return status;
}

void qsi_stop_threads(struct qs_store *store)
{
    qsi_mutex_lock(&store->mutex);
    qsi_life_step(&store->life, QSI_LIFE_STOPS);
    qsi_cond_broadcast(&store->commit.work);
    qsi_cond_broadcast(&store->commit.durable);
    qsi_cond_broadcast(&store->commit.chores);
    qsi_cond_broadcast(&store->paging.wanted);
    qsi_cond_broadcast(&store->paging.done);
    qsi_cond_broadcast(&store->checkpoint.due);
    qsi_cond_broadcast(&store->removals.due);
    qsi_mutex_unlock(&store->mutex);
    if (store->removals.has_timer) { /* before those it may wait for */
        pthread_join(store->removals.thread, NULL);
    }
    if (store->checkpoint.is_running) { /* first: it may wait for the others */
        pthread_join(store->checkpoint.thread, NULL);
    }
    if (store->paging.is_running) {
        pthread_join(store->paging.thread, NULL);
    }
    store->paging.is_running = store->checkpoint.is_running = store->removals.has_timer = false;
    qsi_commit_join_threads(store);
}
