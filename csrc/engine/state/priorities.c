/* Sub-queues of queues with priorities: found, and made at their first use. */
#include "priorities.h"

#include "check.h"

#include <string.h>

/* The index of the sub-queue, or of the next one below. */
static uint32_t find_index(const struct qsi_store_priorities *priorities, uint8_t priority)
{
    uint32_t low = 0, high = priorities->count;

    QS_DCHECK(priorities->count > 0);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (priorities->queues[middle]->priority > priority) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct qsi_store_queue *qsi_find_head_subqueue(struct qsi_store_queue *queue)
{
    const struct qsi_store_priorities *priorities = queue->priorities;

    for (size_t word = sizeof priorities->sum.places / sizeof priorities->sum.places[0];
         word-- > 0;) {
        uint64_t filled = priorities->sum.places[word];
        if (filled != 0) {
            uint32_t bit = QSI_WORD_BITS - 1 - (uint32_t)__builtin_clzll(filled);
            return priorities
                ->queues[find_index(priorities, (uint8_t)(word * QSI_WORD_BITS + bit))];
        }
    }
    return queue;
}

uint64_t qsi_delayed_count(const struct qsi_store_queue *queue)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        count += qsi_core_at(queue, i)->delayed_count;
    }
    return count;
}

void qsi_update_earliest(struct qsi_store_queue *queue)
{
    struct qsi_store_priorities *priorities = queue->priorities;

    if (priorities == NULL) {
        return;
    }
    priorities->sum.earliest = QSI_NEVER;
    for (uint32_t i = 0; i < priorities->count; i++) {
        uint64_t of_priority = qsi_queue_earliest(&priorities->queues[i]->core);
        priorities->sum.earliest =
            of_priority < priorities->sum.earliest ? of_priority : priorities->sum.earliest;
    }
}

static uint8_t clamp(const struct qsi_store_queue *queue, uint8_t priority)
{
    return priority < queue->policy.priority_max ? priority : queue->policy.priority_max;
}

struct qsi_store_queue *qsi_find_subqueue(struct qsi_store_queue *queue, uint8_t priority)
{
    uint8_t clamped = clamp(queue, priority);
    struct qsi_store_queue *found =
        queue->priorities->queues[find_index(queue->priorities, clamped)];

    QS_DCHECK(queue->priorities != NULL);
    return found->priority == clamped ? found : NULL;
}

void qsi_add_subqueue(struct qsi_store_queue *queue, struct qsi_store_queue *subqueue)
{
    struct qsi_store_priorities *priorities = queue->priorities;
    uint8_t priority = subqueue->priority;
    uint32_t index = find_index(priorities, priority);

    QS_DCHECK(priority > 0 && subqueue->parent == queue);
    qsi_queue_join(&subqueue->core, &priorities->sum, priority);
    memmove(priorities->queues + index + 1, priorities->queues + index,
            (priorities->count - index) * sizeof(struct qsi_store_queue *));
    priorities->queues[index] = subqueue;
    QS_DCHECK(index == 0 || priorities->queues[index - 1]->priority > priority);
    priorities->count += 1;
    QS_ASSERT(priorities->count <= queue->policy.priority_max + UINT32_C(1));
}

struct qsi_store_queue *qsi_find_by_id(struct qs_store *store, uint64_t id)
{
    return qsi_map_get_number(&store->queues_by_id, id);
}
