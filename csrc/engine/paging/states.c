/* States of segments, read at once and under the lock: at open, when no other thread has the
 * store. */
#include "states.h"

#include "check.h"
#include "error.h"
#include "pager.h"
#include "paging.h"
#include "queue_replay.h"

qs_status qsi_load_segment_state(struct qs_store *store, struct qsi_store_queue *queue,
                                 struct qsi_segment *segment, qs_error *error)
{
    struct qsi_page_in job;
    uint64_t number = segment->number;
    qs_status status = qsi_page_in_state(&job, segment);

    QS_ASSERT_HELD(&store->mutex);
    if (status != QS_OK) {
        return qsi_fail(error, status, "state of a segment");
    }
    status = qsi_page_in_run(&job, store->index, store->transient_index, error);
    if (status != QS_OK) {
        (void)!qsi_page_in_end(&job, false);
        return status;
    }
    status = qsi_page_in_end(&job, true);
    if (status == QS_ECORRUPT) {
        return qsi_fail(error, QS_ECORRUPT,
                        "queue '%.*s', segment %llu: its state does not hold as many messages as "
                        "the checkpoint says",
                        (int)queue->name.bytes, (const char *)queue->name.data,
                        (unsigned long long)number);
    }
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "state of a segment");
}

qs_status qsi_load_states(struct qs_store *store, struct qsi_store_queue *queue,
                          const struct qsi_settle *settle, qs_error *error)
{
    struct qsi_segment *segment;

    QS_ASSERT_HELD(&store->mutex);
    while ((segment = qsi_queue_needs_state(&queue->core, settle)) != NULL) {
        QS_TRY(qsi_load_segment_state(store, queue, segment, error));
    }
    return QS_OK;
}

qs_status qsi_load_all_states(struct qs_store *store, struct qsi_store_queue *queue,
                              qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = 0; i < qsi_queue_segment_count(&queue->core); i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(&queue->core, i);
        qs_status status =
            segment->settled == NULL ? qsi_load_segment_state(store, queue, segment, error) : QS_OK;
        if (status != QS_OK && !qsi_is_unreadable(status)) {
            return status;
        }
    }
    return QS_OK;
}

qs_status qsi_load_head(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
{
    const struct qsi_queue *core = &queue->core;

    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = qsi_queue_first_ready_segment(core); i < qsi_queue_segment_count(core); i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(core, i);
        if (segment->ready_count > 0) {
            qs_status status = segment->settled == NULL
                                   ? qsi_load_segment_state(store, queue, segment, error)
                                   : QS_OK;
            return qsi_pass_over(store, status);
        }
    }
    return QS_OK;
}
