/* What all steps of the pager share: jobs of a queue, what a failure means, waking the thread. */
#include "pager.h"
#include "queue_life.h"

void qsi_pager_job_begin(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    queue->jobs += 1;
    qsi_store_unlock(store);
}

void qsi_pager_job_end(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_end_queue_job(queue);
    qsi_cond_broadcast(&store->paging.done);
}

void qsi_pager_record_failure(struct qs_store *store, enum qsi_disk_use use, qs_status status,
                              const qs_error *error)
{
    enum qsi_consequence consequence = qsi_store_record_failure(store, use, status, error);

    QS_ASSERT_HELD(&store->mutex);
    if (consequence == QSI_TRIES_AGAIN) {
        store->paging.space_is_short = store->paging.space_is_short || status != QS_ENOMEM;
    } else if (consequence == QSI_LEAVES_FILE) {
        store->paging.unpaged = *error;
    }
}

qs_status qsi_pager_wait(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    queue->jobs += 1;
    qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    qsi_end_queue_job(queue);
    return QS_OK;
}

void qsi_pager_wake(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_pager_memory_used(store) > qsi_pager_low_mark(store) || store->paging.lazy_count > 0) {
        store->paging.is_stuck = false;
        qsi_cond_signal(&store->paging.wanted);
    }
}
