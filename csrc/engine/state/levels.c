/* The levels of queues with priorities: found, and made when they are first needed. */
#include "levels.h"

#include "check.h"
#include "error.h"
#include "queue_life.h"

#include <string.h>

/* The index of the level, or of the next one below. */
static uint32_t find_index(const struct store_levels *levels, uint8_t level)
{
    uint32_t low = 0, high = levels->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (levels->queues[middle]->level > level) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct store_queue *qsi_find_head_level(struct store_queue *queue)
{
    const struct store_levels *levels = queue->levels;

    for (size_t word = sizeof levels->sum.places / sizeof levels->sum.places[0]; word-- > 0;) {
        uint64_t filled = levels->sum.places[word];
        if (filled != 0) {
            uint32_t bit = QSI_WORD_BITS - 1 - (uint32_t)__builtin_clzll(filled);
            return levels->queues[find_index(levels, (uint8_t)(word * QSI_WORD_BITS + bit))];
        }
    }
    return queue;
}

uint64_t qsi_delayed_count(const struct store_queue *queue)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < qsi_level_count(queue); i++) {
        count += qsi_core_at(queue, i)->delayed_count;
    }
    return count;
}

void qsi_tell_earliest(struct store_queue *queue)
{
    struct store_levels *levels = queue->levels;

    if (levels == NULL) {
        return;
    }
    levels->sum.earliest = QSI_NEVER;
    for (uint32_t i = 0; i < levels->count; i++) {
        uint64_t of_level = qsi_queue_earliest(&levels->queues[i]->core);
        levels->sum.earliest = of_level < levels->sum.earliest ? of_level : levels->sum.earliest;
    }
}

static uint8_t clamp(const struct store_queue *queue, uint8_t priority)
{
    return priority < queue->policy.priority_max ? priority : queue->policy.priority_max;
}

struct store_queue *qsi_find_level(struct store_queue *queue, uint8_t priority)
{
    uint8_t level = clamp(queue, priority);
    struct store_queue *found = queue->levels->queues[find_index(queue->levels, level)];

    return found->level == level ? found : NULL;
}

static qs_status make_level(struct qs_store *store, struct store_queue *queue, uint8_t level,
                            struct store_queue **level_out)
{
    struct store_levels *levels = queue->levels;
    uint32_t index = find_index(levels, level);

    QS_TRY(qsi_create_level(store, queue, level, level_out));
    qsi_queue_join(&(*level_out)->core, &levels->sum, level);
    memmove(levels->queues + index + 1, levels->queues + index,
            (levels->count - index) * sizeof(struct store_queue *));
    levels->queues[index] = *level_out;
    levels->count += 1;
    QS_ASSERT(levels->count <= queue->policy.priority_max + UINT32_C(1));
    return QS_OK;
}

qs_status qsi_make_level_of(struct qs_store *store, struct store_queue *queue, uint8_t priority)
{
    struct store_queue *level;

    return qsi_find_level(queue, priority) != NULL
               ? QS_OK
               : make_level(store, queue, clamp(queue, priority), &level);
}

struct store_queue *qsi_find_by_id(struct qs_store *store, uint64_t id)
{
    return qsi_map_get_number(&store->queues_by_id, id);
}

qs_status qsi_require_by_id(struct qs_store *store, uint64_t id, struct store_queue **queue_out,
                            qs_error *error)
{
    struct store_queue *queue;

    *queue_out = qsi_find_by_id(store, id);
    if (QS_LIKELY(*queue_out != NULL || qsi_level_in(id) == 0)) {
        return QS_OK;
    }
    queue = qsi_find_by_id(store, qsi_queue_in(id));
    if (queue == NULL) {
        return QS_OK;
    }
    if (qsi_level_in(id) > queue->policy.priority_max) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s': it has no priority %u",
                        (int)queue->name.bytes, (const char *)queue->name.data, qsi_level_in(id));
    }
    return make_level(store, queue, qsi_level_in(id), queue_out) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                          (const char *)queue->name.data);
}
