/* The store's threads: started and stopped in the order in which they need each other. */
#include "departures.h"
#include "engine.h"

static qs_status start_all(struct qs_store *store, qs_error *error)
{
    QS_TRY(qsi_commit_start_threads(store, error));
    QS_TRY(qsi_thread_start(&store->pager, "qs-page", qsi_run_pager, store, error));
    store->pager_running = true;
    QS_TRY(qsi_thread_start(&store->checkpointer, "qs-checkpoint", qsi_run_checkpointer, store,
                            error));
    store->checkpointer_running = true;
    QS_TRY(qsi_thread_start(&store->timer, "qs-timer", qsi_run_timer, store, error));
    store->timer_running = true;
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
    store->closing = true;
    qsi_cond_broadcast(&store->work);
    qsi_cond_broadcast(&store->durable);
    qsi_cond_broadcast(&store->chores);
    qsi_cond_broadcast(&store->paging);
    qsi_cond_broadcast(&store->paged);
    qsi_cond_broadcast(&store->checkpoint_due);
    qsi_cond_broadcast(&store->departures.due);
    qsi_mutex_unlock(&store->mutex);
    if (store->timer_running) { /* before those it may wait for */
        pthread_join(store->timer, NULL);
    }
    if (store->checkpointer_running) { /* first: it may wait for the others */
        pthread_join(store->checkpointer, NULL);
    }
    if (store->pager_running) {
        pthread_join(store->pager, NULL);
    }
    store->pager_running = store->checkpointer_running = store->timer_running = false;
    qsi_commit_join_threads(store);
}
