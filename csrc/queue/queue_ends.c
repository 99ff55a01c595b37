/* The beginning and the end of a queue. */
#include "alloc.h"
#include "check.h"
#include "queue_internal.h"
#include "queue_publish.h"

#include <string.h>

void qsi_queue_shared_init(struct qsi_queue_shared *shared, uint32_t entries)
{
    memset(shared, 0, sizeof *shared);
    shared->entries = entries;
    qsi_list_init(&shared->releasing);
    qsi_list_init(&shared->retired);
}

void qsi_queue_init(struct qsi_queue *queue, struct qsi_queue_shared *shared, uint64_t id,
                    bool durable)
{
    QS_DCHECK(shared->entries > 0 && (shared->entries & (shared->entries - 1)) == 0);
    memset(queue, 0, sizeof *queue);
    queue->container.kind = &qsi_queue_kind;
    queue->shared = shared;
    queue->container.id = id;
    queue->container.durable = durable;
    queue->retired_number = UINT64_MAX;
    queue->ttl_us = queue->earliest = QSI_NEVER;
}

void qsi_queue_set(struct qsi_queue *queue, const struct qsi_queue_settings *settings)
{
    QS_ASSERT(queue->container.next_seq == 0);
    queue->ttl_us = settings->ttl_us;
    queue->counts_bytes = settings->counts_bytes;
    queue->counts_deliveries = settings->counts_deliveries;
}

void qsi_queue_start_at(struct qsi_container *container, uint64_t seq)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    QS_ASSERT(queue->run_count == 0 && seq >= queue->container.next_seq);
    queue->container.next_seq = queue->container.flushed_seq = seq;
}

void qsi_queue_fini(struct qsi_container *container)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    QS_DCHECK(queue->container.flushed_seq <= queue->container.next_seq);
    for (uint32_t i = 0; i < queue->run_count; i++) {
        qsi_run_destroy(qsi_queue_run_at(queue, i));
    }
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        qsi_segment_free_state(queue->shared->budget, segment);
        qsi_segment_leave_releases(queue, segment);
        qsi_segment_free(segment);
    }
    qsi_run_destroy(queue->spare);
    qsi_free(queue->runs);
    qsi_free(queue->segments);
    memset(queue, 0, sizeof *queue);
}
