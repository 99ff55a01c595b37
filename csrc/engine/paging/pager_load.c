/* Reading messages back from the disk: for a caller that needs one now, and ahead of a consumer. */
#include "check.h"
#include "enter.h"
#include "error.h"
#include "notify.h"
#include "pager.h"
#include "paging.h"
#include "priorities.h"
#include "queue_life.h"
#include "queue_take.h"
#include "store.h"
#include "thread_safety.h"
#include "turns.h"
#include "work_load.h"

#define LOAD_BYTES_MAX (2u << 20) /* that one load reads, if the budget is large enough */
#define LOOK_EVERY 64u            /* messages of a work queue that are taken */
#define READ_NS 1000000000u       /* a consumer that came so recently may come again */

static uint64_t load_bytes(const struct qs_store *store)
{
    uint64_t share = qsi_part_of_budget(store);

    return share < LOAD_BYTES_MAX ? share : LOAD_BYTES_MAX;
}

qs_status qsi_pager_run_page_in(struct qs_store *store, struct qsi_store_queue *queue,
                                struct qsi_page_in *job, qs_error *error)
{
    uint64_t number = job->segment->number;
    bool of_state = job->of_state;
    uint32_t count;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    qsi_pager_job_begin(store, queue);
    status = qsi_page_in_run(job, qsi_index_of(store, queue), store->transient_index, error);
    if (status == QS_EIO &&
        !of_state) { /* a bad place on the disk costs the messages that are there */
        qsi_page_in_narrow(job);
        status = qsi_page_in_run(job, qsi_index_of(store, queue), store->transient_index, error);
    }
    if (qsi_is_unreadable(status) && !of_state) {
        status = qsi_page_in_damaged(job);
    }
    qsi_store_lock(store);
    count = job->load.count;
    if (status == QS_OK) {
        status = qsi_page_in_end(job, true);
        if (status == QS_ECORRUPT) {
            qsi_fail(error, status, "queue '%.*s': the state of segment %llu is damaged",
                     (int)queue->name.bytes, (const char *)queue->name.data,
                     (unsigned long long)number);
        } else if (status != QS_OK) {
            qsi_fail(error, status, "messages from the disk");
        }
    } else {
        job->segment->is_damaged =
            job->segment->is_damaged || (of_state && qsi_is_unreadable(status));
        (void)!qsi_page_in_end(job, false);
    }
    store->stats.messages_paged_in += status == QS_OK && !of_state ? count : 0;
    qsi_pager_job_end(store, queue);
    if (status == QS_OK) {
        qsi_events_notify(store);
        qsi_pager_wake(store); /* a large batch exceeds the budget */
    }
    return status;
}

qs_status qsi_pager_read_state(struct qs_store *store, struct qsi_store_queue *queue,
                               struct qsi_segment *segment, qs_error *error)
{
    struct qsi_page_in job;
    qs_status status;

    QS_DCHECK(segment->settled == NULL);
    if (segment->busy > 0) {
        return qsi_pager_wait(store, queue);
    }
    status = qsi_page_in_state(&job, segment);
    return status == QS_OK ? qsi_pager_run_page_in(store, queue, &job, error)
                           : qsi_fail(error, status, "state of a segment");
}

/* Releases the lock meanwhile.  Continues with a job by the result of its begin. */
static qs_status run_begun(struct qs_store *store, struct qsi_store_queue *queue,
                           struct qsi_page_in *job, enum qsi_page_in_begun begun, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    switch (begun) {
    case QSI_PAGE_IN_NOTHING:
        return QS_OK;
    case QSI_PAGE_IN_UNDER_WAY:
        return qsi_pager_wait(store, queue);
    case QSI_PAGE_IN_BEGUN:
        return qsi_pager_run_page_in(store, queue, job, error);
    case QSI_PAGE_IN_NO_MEMORY:
        break;
    }
    return qsi_fail(error, QS_ENOMEM, "messages from the disk");
}

/* If a segment's state cannot be read, its messages are unknown.  A caller that comes for them gets
 * one error, and then the messages behind, until its channel is closed. */
static void set_aside(struct qs_channel *channel, struct qsi_store_queue *queue, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_segment *segment = qsi_queue_head_segment(&queue->core);

    if (segment == NULL || segment->settled != NULL || !segment->is_damaged || segment->busy > 0) {
        return;
    }
    if (error != NULL) {
        qsi_error_prefix(
            error, "queue '%.*s': %u messages cannot be delivered, those behind them can",
            (int)queue->name.bytes, (const char *)queue->name.data, segment->ready_count);
    }
    qsi_segment_set_aside(&queue->core, segment, channel);
    channel->has_aside = true;
}

void qsi_bring_back_aside(struct qs_channel *channel)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&channel->store->queues_by_id);

    QS_ASSERT_HELD(&channel->store->mutex);
    while (channel->has_aside && qsi_map_next(&channel->store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (qsi_queue_aside_count(&queue->core) > 0) {
            qsi_queue_bring_back(&queue->core, channel);
            qsi_notify_consumers(channel->store, qsi_owner_of(queue));
        }
    }
    channel->has_aside = false;
}

static qs_status end_page_in(struct qsi_store_queue *queue, qs_status status)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_end_queue_job(queue);
    return status == QS_EEMPTY ? QS_OK : status;
}

qs_status qsi_page_in(struct qs_store *store, struct qsi_store_queue *queue,
                      struct qs_channel *channel, enum qsi_wait wait, qs_error *error)
{
    struct qsi_page_in job;
    enum qsi_page_in_begun begun;
    bool is_ahead;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_check_may_wait(wait));
    queue = qsi_head_subqueue(queue);
    queue->jobs += 1;
    queue->read_at_ns = store->env->monotonic_ns(store->env);
    if (!qsi_appends(queue)) {
        return end_page_in(queue, qsi_work_load_head(store, queue, error));
    }
    begun = qsi_page_in_begin(&job, &queue->core, load_bytes(store));
    is_ahead = begun == QSI_PAGE_IN_BEGUN && job.is_ahead;
    status = run_begun(store, queue, &job, begun, error);
    /* A state behind what is wanted is told to whoever comes to it; nobody tries it again
     * before. */
    status = is_ahead && qsi_is_unreadable(status) ? QS_OK : status;
    QS_DCHECK(queue->jobs > 0);
    queue->jobs -= 1;
    if (qsi_is_unreadable(status) && channel != NULL && !channel->closed && !queue->deleted) {
        set_aside(channel, queue, error);
    }
    qsi_free_queue_if_done(queue);
    return status;
}

qs_status qsi_page_in_one(struct qs_store *store, struct qsi_store_queue *queue,
                          struct qsi_segment *segment, uint32_t slot, qs_error *error)
{
    struct qsi_page_in job;
    enum qsi_page_in_begun begun;

    QS_ASSERT_HELD(&store->mutex);
    if (!qsi_appends(queue)) {
        qs_status status = qsi_work_load_one(
            store, queue, qsi_queue_first_seq(&queue->core, segment) + slot, error);
        return status == QS_EEMPTY ? QS_OK : status;
    }
    begun = qsi_page_in_message(&job, &queue->core, segment, slot, load_bytes(store));
    return run_begun(store, queue, &job, begun, error);
}

double qsi_pager_average_bytes(const struct qsi_store_queue *queue)
{
    return queue->container.ram_count > 0
               ? (double)queue->container.ram_bytes / (double)queue->container.ram_count
               : 0;
}

/* The number of messages that are kept ready in memory in front of a consumer: a segment, if that
 * is not too much of the budget. */
uint64_t qsi_pager_ahead_count(const struct qs_store *store, const struct qsi_store_queue *queue)
{
    double bytes = qsi_pager_average_bytes(queue);
    double most = bytes > 0 ? (double)(2 * qsi_part_of_budget(store)) / bytes : 0;
    uint64_t entries = store->shared.entries;

    QS_ASSERT_HELD(&store->mutex);
    return bytes <= 0 || most >= (double)entries ? entries : (uint64_t)most + 1;
}

/* Whether there is a consumer for paged messages. */
bool qsi_pager_is_read(struct qs_store *store, const struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    return queue->read_at_ns != 0 &&
           store->env->monotonic_ns(store->env) - queue->read_at_ns < READ_NS;
}

static bool wants_more(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t ahead = qsi_pager_ahead_count(store, queue);
    bool missing;

    return qsi_queue_ready_in_memory(&queue->core, ahead, &missing) < ahead && missing;
}

void qsi_pager_look_ahead(struct qs_store *store, struct qsi_store_queue *queue)
{
    const struct qsi_queue *core = &queue->core;

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_queue_is_in_memory(core) || !store->paging.is_running) {
        return; /* nothing was paged */
    }
    if (!qsi_appends(queue)) { /* content is always missing, and looking takes longer than get */
        if (core->container.taken_count - queue->looked_at < LOOK_EVERY) {
            return;
        }
        queue->looked_at = core->container.taken_count;
    }
    queue->read_at_ns = store->env->monotonic_ns(store->env);
    if (qsi_queue_ready_count(core) > 0 && qsi_list_is_empty(&queue->in_ahead) &&
        wants_more(store, queue)) {
        qsi_list_push_back(&store->paging.ahead, &queue->in_ahead);
        qsi_cond_signal(&store->paging.wanted);
    }
}

/* Releases the lock meanwhile.  Makes one load for a queue that is read; false: there is none to
 * make. */
bool qsi_pager_read_ahead(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    while (!qsi_list_is_empty(&store->paging.ahead)) {
        struct qsi_store_queue *queue =
            QSI_LIST_OWNER(store->paging.ahead.next, struct qsi_store_queue, in_ahead);
        struct qsi_page_in job;
        bool is_work;
        qs_status status;
        qsi_list_remove(&queue->in_ahead);
        is_work = !qsi_appends(queue);
        if (!wants_more(store, queue) ||
            (!is_work &&
             qsi_page_in_begin(&job, &queue->core, load_bytes(store)) != QSI_PAGE_IN_BEGUN)) {
            continue;
        }
        queue->jobs += 1;
        /* The consumer that reaches it gets the failure. */
        status = is_work ? qsi_work_load_head(store, queue, NULL)
                         : qsi_pager_run_page_in(store, queue, &job, NULL);
        if (status == QS_OK && !queue->deleted && wants_more(store, queue) &&
            qsi_list_is_empty(&queue->in_ahead)) {
            qsi_list_push_back(&store->paging.ahead, &queue->in_ahead);
        }
        qsi_end_queue_job(queue);
        return true;
    }
    return false;
}
