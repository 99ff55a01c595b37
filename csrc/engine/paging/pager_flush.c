/* Writing the content of queues to the disk, and states that changed since. */
#include "check.h"
#include "enter.h"
#include "pager.h"
#include "paging.h"
#include "queue_life.h"
#include "space.h"

#define FLUSH_BYTES (4u << 20) /* of content that one flush writes */

/* ---- content ---- */

bool qsi_pager_leaves_file(qs_status status)
{
    return qsi_consequence_of(QSI_USE_PAGING, status) == QSI_LEAVES_FILE;
}

/* Releases the lock meanwhile.  A container whose file cannot be added to goes on in a new one. */
static qs_status run_job(struct qs_store *store, struct qsi_job *job, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    do {
        qsi_store_unlock(store);
        status = qsi_job_run(job, error);
        qsi_store_lock(store);
        QS_DCHECK(job->container != NULL);
    } while (qsi_pager_leaves_file(status) && qsi_job_leave_file(job) == QS_OK);
    return status;
}

/* A queue that cannot be paged, because its directory is gone, is left alone for a while, so that
 * others are paged. */
static void record_paged(struct qs_store *store, struct qsi_store_queue *queue, qs_status status,
                         const qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_pager_record_failure(store, QSI_USE_PAGING, status, error);
    queue->unpaged_ns = qsi_pager_leaves_file(status) ? store->env->monotonic_ns(store->env) : 0;
    if (status == QS_OK) {
        store->paging.unpaged.status = QS_OK;
    }
}

qs_status qsi_pager_flush(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
{
    struct qsi_job *job;
    qs_error detail = {0};
    bool released = false;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_store_check_failed(store, error));
    if (!qsi_space_may_page(store, queue)) {
        store->paging.space_is_short = true;
        return qsi_space_fail_full(error);
    }
    if (store->paging.flush != QSI_FLUSH_NONE || store->checkpoint.state == QSI_CHECKPOINT_WAITS ||
        qsi_container_is_flushing(queue->messages)) {
        return qsi_pager_wait(store, queue);
    }
    queue->jobs += 1;
    /* Without memory or space the bodies are flushed as they are. */
    status = qsi_share_bodies(store, queue, FLUSH_BYTES, &released);
    QS_DCHECK(queue->jobs > 0);
    queue->jobs -= 1;
    if (status == QS_OK || queue->deleted || store->paging.flush != QSI_FLUSH_NONE ||
        (released && qsi_container_is_flushing(queue->messages))) {
        qsi_free_queue_if_done(queue);
        return QS_OK;
    }
    status = qsi_container_begin_flush(queue->messages, FLUSH_BYTES, &job);
    if (status != QS_OK) {
        return status;
    }
    qsi_flush_step(&store->paging.flush, QSI_FLUSH_PAGES);
    queue->jobs += 1;
    QS_ASSERT(store->paging.flush == QSI_FLUSH_PAGES);
    status = run_job(store, job, &detail);
    store->stats.messages_paged_out += status == QS_OK ? job->message_count : 0;
    store->stats.segments_written += status == QS_OK && job->made_file ? 1 : 0;
    qsi_job_end(job, status == QS_OK);
    qsi_flush_step(&store->paging.flush, QSI_FLUSH_NONE);
    store->paging.space_is_short = store->paging.space_is_short && status != QS_OK;
    record_paged(store, queue, status, &detail);
    if (status != QS_OK && error != NULL) {
        *error = detail;
    }
    qsi_pager_job_end(store, queue);
    return status;
}

/* ---- states ---- */

/* Changed states of content that is already on the disk.  Not while a checkpoint is made, because
 * it names their places. */
static bool begin_state(struct qs_store *store, struct qsi_store_queue *queue,
                        struct qsi_job **job_out) QSI_REQUIRES(qsi_store_mutex)
{
    return store->checkpoint.state == QSI_CHECKPOINT_NONE &&
           qsi_container_begin_state(&queue->container, job_out) == QS_OK;
}

/* Releases the lock meanwhile. */
static bool write_begun_state(struct qs_store *store, struct qsi_store_queue *queue,
                              struct qsi_job *job) QSI_REQUIRES(qsi_store_mutex)
{
    qs_error error = {0};
    qs_status status;

    QS_DCHECK(store->checkpoint.state == QSI_CHECKPOINT_NONE);
    store->paging.rewriting += 1;
    queue->jobs += 1;
    status = run_job(store, job, &error);
    QS_DCHECK(store->paging.rewriting > 0);
    store->paging.rewriting -= 1;
    qsi_job_end(job, status == QS_OK);
    record_paged(store, queue, status, &error);
    qsi_container_drop_states(&queue->container);
    qsi_pager_job_end(store, queue);
    return status == QS_OK;
}

bool qsi_pager_write_state(struct qs_store *store, struct qsi_store_queue *queue)
{
    struct qsi_job *job;

    return begin_state(store, queue, &job) && write_begun_state(store, queue, job);
}

bool qsi_pager_write_any_state(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    struct qsi_job *job;

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (begin_state(store, queue, &job)) {
            return write_begun_state(store, queue, job);
        }
    }
    return false;
}
