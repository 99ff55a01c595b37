/* Arrivals: the messages and runs that come to each queue.  Invariants: items are in the order of
 * their queues' ids, one for each queue; each queue of a pending record has one, unless it was
 * deleted. */
#include "arrivals.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "limits.h"

#include <stdlib.h>
#include <string.h>

static int by_queue_id(const void *left, const void *right)
{
    uint64_t a = ((const struct qsi_arrival *)left)->queue_id;
    uint64_t b = ((const struct qsi_arrival *)right)->queue_id;

    return a < b ? -1 : a > b;
}

/* Reserves room for one more item. */
static qs_status grow(struct qsi_arrivals *arrivals)
{
    uint32_t capacity = 4 * arrivals->capacity;
    bool is_few = arrivals->items == arrivals->few;
    struct qsi_arrival *grown;

    if (arrivals->items == NULL) {
        arrivals->items = arrivals->few;
        arrivals->capacity = QSI_ARRIVALS_FEW;
    }
    if (arrivals->count < arrivals->capacity) {
        return QS_OK;
    }
    grown = qsi_realloc(is_few ? NULL : arrivals->items, capacity * sizeof *grown);
    if (grown == NULL) {
        return QS_ENOMEM;
    }
    if (is_few) {
        memcpy(grown, arrivals->few, sizeof arrivals->few);
    }
    arrivals->items = grown;
    arrivals->capacity = capacity;
    return QS_OK;
}

/* Returns the queue's item, or NULL.  Until items are sorted, the queue has the index of its item;
 * an index from an earlier call is recognized. */
static struct qsi_arrival *known(const struct qsi_arrivals *arrivals,
                                 const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t at = queue->arrival_at;

    return at < arrivals->count && arrivals->items[at].queue == queue ? &arrivals->items[at] : NULL;
}

/* Adds an item for the queue, with zero counts. */
static struct qsi_arrival *make(struct qsi_arrivals *arrivals, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_arrival *arrival;

    if (grow(arrivals) != QS_OK) {
        return NULL;
    }
    QS_DCHECK(arrivals->count < arrivals->capacity);
    queue->arrival_at = arrivals->count;
    arrival = &arrivals->items[arrivals->count++];
    *arrival = (struct qsi_arrival){
        .queue_id = queue->container.id, .queue = queue, .is_dead_letter_alone = true};
    return arrival;
}

static void add(struct qsi_arrival *arrival, const struct qsi_pending_record *pending_record,
                const struct qsi_run *run) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue = arrival->queue;
    const uint8_t *record = pending_record->chunk->data;

    QS_DCHECK(run->count > 0);
    arrival->runs += 1;
    arrival->messages += run->count;
    if (qsi_policy_counts_bytes(&queue->policy) && qsi_queue_refuses(queue)) {
        arrival->body_bytes += qsi_run_body_bytes(run);
    }
    arrival->expiring = pending_record->has_expiration ? record : arrival->expiring;
    arrival->delayed = pending_record->has_due ? record : arrival->delayed;
    arrival->any_transient = arrival->any_transient || !run->journalled || run->has_transient;
    arrival->is_dead_letter_alone = arrival->is_dead_letter_alone && pending_record->is_dead_letter;
}

static qs_status count_record(struct qsi_arrivals *arrivals,
                              const struct qsi_pending_record *pending_record)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t k = 0; k < pending_record->destination_count; k++) {
        const struct qsi_pending_destination *destination = &pending_record->destinations[k];
        struct qsi_arrival *arrival;
        if (destination->queue == NULL) {
            continue;
        }
        QS_DCHECK(destination->queue->container.id == destination->queue_id);
        arrival = known(arrivals, destination->queue);
        arrival = arrival != NULL ? arrival : make(arrivals, destination->queue);
        if (arrival == NULL) {
            return QS_ENOMEM;
        }
        add(arrival, pending_record, destination->run);
    }
    return QS_OK;
}

qs_status qsi_arrivals_count(struct qsi_arrivals *arrivals,
                             const struct qsi_pending_records *pending_records, qs_error *error)
{
    QS_ASSERT(arrivals->items == NULL && arrivals->count == 0);
    for (uint32_t i = 0; i < pending_records->count; i++) {
        if (count_record(arrivals, &pending_records->items[i]) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queues of what is published");
        }
    }
    if (arrivals->count > 1) {
        qsort(arrivals->items, arrivals->count, sizeof *arrivals->items, by_queue_id);
    }
    return QS_OK;
}

const struct qsi_arrival *qsi_arrivals_find(const struct qsi_arrivals *arrivals, uint64_t queue_id)
{
    struct qsi_arrival wanted = {.queue_id = queue_id};

    QS_DCHECK(arrivals->count == 0 || arrivals->items != NULL);
    if (QS_LIKELY(arrivals->count == 1)) {
        return arrivals->items[0].queue_id == queue_id ? &arrivals->items[0] : NULL;
    }
    return arrivals->count == 0 ? NULL
                                : bsearch(&wanted, arrivals->items, arrivals->count,
                                          sizeof *arrivals->items, by_queue_id);
}

void qsi_arrivals_fini(struct qsi_arrivals *arrivals)
{
    if (arrivals->items != arrivals->few) {
        qsi_free(arrivals->items);
    }
    arrivals->items = NULL;
    arrivals->count = arrivals->capacity = 0;
}
