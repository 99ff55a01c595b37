/* Rows of a record batch that go to queues with priorities.  A route is divided by the priorities
 * of its rows: each part leads to one priority of each of its queues.  Without the lock: a
 * priority's id is derived from its queue's. */
#include "alloc.h"
#include "batch.h"
#include "check.h"

#include <string.h>

struct dividing {
    struct qsi_batch *batch;
    uint32_t route_count; /* before any was divided */
    uint8_t *most;        /* by route: the highest priority of its queues */
    /* by route: the route of each priority, or NO_CODE; NULL: none was needed */
    uint32_t **parts;
};

/* ---- destinations ---- */

static qs_status priority_destination(struct qsi_batch *batch, uint32_t index, uint8_t priority,
                                      uint32_t *index_out, qs_error *error)
{
    struct qsi_batch_destination subqueue = batch->destinations[index];

    QS_DCHECK(qsi_priority_in(subqueue.queue_id) == 0);
    priority = priority < subqueue.priority_max ? priority : subqueue.priority_max;
    subqueue.queue_id = qsi_subqueue_id(subqueue.queue_id, priority);
    return qsi_batch_add_destination(batch, &subqueue, index_out, error);
}

static qs_status lead_to_priorities(struct qsi_batch *batch, uint32_t *destinations, uint32_t count,
                                    uint8_t priority, qs_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        QS_TRY(priority_destination(batch, destinations[i], priority, &destinations[i], error));
    }
    return QS_OK;
}

/* ---- all rows have the same priority ---- */

static qs_status move_routes(struct qsi_batch *batch, uint8_t priority, qs_error *error)
{
    for (uint32_t i = 0; i < batch->route_count; i++) {
        QS_TRY(lead_to_priorities(batch, batch->routes[i].destinations,
                                  batch->routes[i].destination_count, priority, error));
    }
    return QS_OK;
}

/* ---- rows have their own ---- */

static qs_status add_part(struct dividing *dividing, uint32_t code, uint8_t priority,
                          uint32_t *part_out, qs_error *error)
{
    struct qsi_batch *batch = dividing->batch;
    struct qsi_batch_route part = batch->routes[code];
    qs_status status;

    QS_DCHECK(priority > 0 && priority <= dividing->most[code]);
    part.destinations = qsi_alloc(part.destination_count * sizeof *part.destinations);
    if (part.destinations == NULL) {
        return qsi_batch_no_memory(error);
    }
    memcpy(part.destinations, batch->routes[code].destinations,
           part.destination_count * sizeof *part.destinations);
    status = lead_to_priorities(batch, part.destinations, part.destination_count, priority, error);
    if (status == QS_OK) {
        status = qsi_batch_add_route(batch, &part, part_out, error);
    }
    if (status != QS_OK) {
        qsi_free(part.destinations);
    }
    return status;
}

static qs_status find_part(struct dividing *dividing, uint32_t code, uint8_t priority,
                           uint32_t *part_out, qs_error *error)
{
    size_t count = dividing->most[code] + (size_t)1;

    QS_DCHECK(code < dividing->route_count && priority < count);
    if (dividing->parts[code] == NULL) {
        dividing->parts[code] = qsi_alloc(count * sizeof(uint32_t));
        if (dividing->parts[code] == NULL) {
            return qsi_batch_no_memory(error);
        }
        memset(dividing->parts[code], 0xff, count * sizeof(uint32_t));
    }
    *part_out = dividing->parts[code][priority];
    if (*part_out == NO_CODE) {
        QS_TRY(add_part(dividing, code, priority, part_out, error));
        dividing->parts[code][priority] = *part_out;
    }
    return QS_OK;
}

static qs_status divide_array(struct dividing *dividing, const struct qsi_arrow_batch *array,
                              uint32_t *codes, qs_error *error)
{
    for (uint64_t row = 0; row < array->rows; row++) {
        QS_DCHECK(codes[row] < dividing->route_count);
        uint8_t most = dividing->most[codes[row]];
        int64_t priority = dividing->batch->defaults.priority;
        if (most == 0) {
            continue;
        }
        (void)qsi_arrow_int(&array->priority, row, &priority);
        priority = priority < most ? priority : most;
        if (priority > 0) {
            QS_TRY(find_part(dividing, codes[row], (uint8_t)priority, &codes[row], error));
        }
    }
    return QS_OK;
}

static qs_status divide(struct dividing *dividing, qs_error *error)
{
    struct qsi_batch *batch = dividing->batch;
    uint32_t *codes;

    dividing->route_count = batch->route_count;
    dividing->most = qsi_zalloc(batch->route_count * sizeof *dividing->most);
    dividing->parts = qsi_zalloc(batch->route_count * sizeof *dividing->parts);
    if (dividing->most == NULL || dividing->parts == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; i < batch->route_count; i++) {
        const struct qsi_batch_route *route = &batch->routes[i];
        for (uint32_t k = 0; k < route->destination_count; k++) {
            uint8_t most = batch->destinations[route->destinations[k]].priority_max;
            dividing->most[i] = most > dividing->most[i] ? most : dividing->most[i];
        }
    }
    if (batch->refined == NULL) {
        QS_TRY(qsi_batch_code_all_rows(batch, error));
    }
    codes = batch->refined;
    for (size_t i = 0; i < batch->input->array_count; i++) {
        QS_TRY(divide_array(dividing, &batch->arrays[i], codes, error));
        codes += batch->arrays[i].rows;
    }
    return QS_OK;
}

static void fini(struct dividing *dividing)
{
    for (uint32_t i = 0; dividing->parts != NULL && i < dividing->route_count; i++) {
        qsi_free(dividing->parts[i]);
    }
    qsi_free(dividing->parts);
    qsi_free(dividing->most);
}

/* ---- the whole ---- */

static bool any_queue_has_priorities(const struct qsi_batch *batch)
{
    for (uint32_t i = 0; i < batch->destination_count; i++) {
        if (batch->destinations[i].priority_max > 0) {
            return true;
        }
    }
    return false;
}

static bool any_priorities(const struct qsi_batch *batch)
{
    for (size_t i = 0; i < batch->input->array_count; i++) {
        if (batch->arrays[i].priority.present) {
            return true;
        }
    }
    return false;
}

qs_status qsi_batch_divide_routes(struct qsi_batch *batch, qs_error *error)
{
    struct dividing dividing = {.batch = batch};
    qs_status status;

    if (batch->row_count == 0 || !any_queue_has_priorities(batch)) {
        return QS_OK;
    }
    if (!any_priorities(batch)) {
        return batch->defaults.priority > 0 ? move_routes(batch, batch->defaults.priority, error)
                                            : QS_OK;
    }
    status = divide(&dividing, error);
    fini(&dividing);
    return status;
}
