/* How much comes to each queue.  Invariants: items are in order of their queues' ids, and no two
 * are of one queue; each queue that a pending record leads to has one, unless it was deleted. */
#include "arrivals.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "limits.h"

#include <stdlib.h>
#include <string.h>

static int by_queue_id(const void *left, const void *right)
{
    uint64_t a = ((const struct arrival *)left)->queue_id;
    uint64_t b = ((const struct arrival *)right)->queue_id;

    return a < b ? -1 : a > b;
}

static void add(struct arrival *into, const struct arrival *arrival)
{
    QS_DCHECK(into->queue_id == arrival->queue_id && into->queue == arrival->queue);
    into->messages += arrival->messages;
    into->body_bytes += arrival->body_bytes;
    into->is_dead_letter_alone = into->is_dead_letter_alone && arrival->is_dead_letter_alone;
}

/* Of several that go to one queue one is left, with all they have. */
static uint32_t merge(struct arrival *items, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && items[kept - 1].queue_id == items[i].queue_id) {
            add(&items[kept - 1], &items[i]);
        } else {
            items[kept++] = items[i];
        }
    }
    QS_DCHECK(kept <= count);
    return kept;
}

static struct arrival arrival_of(const struct pending_record *pending_record,
                                 const struct pending_destination *destination)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct store_queue *queue = destination->queue;
    bool by_bytes = qsi_policy_counts_bytes(&queue->policy) && qsi_queue_refuses(queue);

    QS_DCHECK(queue->container.id == destination->queue_id && destination->run->count > 0);
    return (struct arrival){
        .queue_id = destination->queue_id,
        .queue = destination->queue,
        .messages = destination->run->count,
        .body_bytes = by_bytes ? qsi_run_body_bytes(destination->run) : 0,
        .is_dead_letter_alone = pending_record->is_dead_letter,
    };
}

qs_status qsi_arrivals_count(struct arrivals *arrivals,
                             const struct pending_records *pending_records, qs_error *error)
{
    uint64_t room = 0;
    uint32_t count = 0;

    QS_ASSERT(arrivals->items == NULL && arrivals->count == 0);
    for (uint32_t i = 0; i < pending_records->count; i++) {
        room += pending_records->items[i].destination_count;
    }
    arrivals->items =
        room <= QSI_ARRIVALS_FEW ? arrivals->few : qsi_alloc(room * sizeof *arrivals->items);
    if (arrivals->items == NULL) {
        return qsi_fail(error, QS_ENOMEM, "queues of what is published");
    }
    for (uint32_t i = 0; i < pending_records->count; i++) {
        const struct pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            struct arrival arrival;
            if (pending_record->destinations[k].queue == NULL) {
                continue;
            }
            arrival = arrival_of(pending_record, &pending_record->destinations[k]);
            /* as the one before, mostly */
            if (count > 0 && arrivals->items[count - 1].queue_id == arrival.queue_id) {
                add(&arrivals->items[count - 1], &arrival);
            } else {
                arrivals->items[count++] = arrival;
            }
        }
    }
    QS_DCHECK(count <= room);
    if (count > 1) {
        qsort(arrivals->items, count, sizeof *arrivals->items, by_queue_id);
        count = merge(arrivals->items, count);
    }
    arrivals->count = count;
    return QS_OK;
}

const struct arrival *qsi_arrivals_find(const struct arrivals *arrivals, uint64_t queue_id)
{
    struct arrival wanted = {.queue_id = queue_id};

    QS_DCHECK(arrivals->count == 0 || arrivals->items != NULL);
    if (QS_LIKELY(arrivals->count == 1)) {
        return arrivals->items[0].queue_id == queue_id ? &arrivals->items[0] : NULL;
    }
    return arrivals->count == 0 ? NULL
                                : bsearch(&wanted, arrivals->items, arrivals->count,
                                          sizeof *arrivals->items, by_queue_id);
}

void qsi_arrivals_fini(struct arrivals *arrivals)
{
    if (arrivals->items != arrivals->few) {
        qsi_free(arrivals->items);
    }
    arrivals->items = NULL;
    arrivals->count = 0;
}
