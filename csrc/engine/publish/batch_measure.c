/* Plans the next record of a batch: its rows and its length. */
#include "alloc.h"
#include "batch_plan.h"
#include "block_format.h"
#include "check.h"

static uint64_t row_properties_bytes(const struct qsi_batch *batch,
                                     const struct qsi_record_plan *plan, uint64_t row)
{
    struct qsi_arrow_row properties;

    if (!plan->per_row_properties) {
        return batch->constant_bytes;
    }
    return qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
}

/* A record for one stream may become a block of it. */
static uint64_t rows_limit(const struct qsi_batch *batch)
{
    return batch->is_for_stream ? QSI_BLOCK_ROWS_MAX : RECORD_ROWS_MAX;
}

/* The furthest end of a pending record that begins at plan->from, and its contents. */
static qs_status measure_rows(struct qsi_batch *batch, struct qsi_record_plan *plan,
                              uint64_t limit_bytes, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;
    uint64_t row = plan->from, longest = batch->properties_longest;

    for (; row < plan->array->rows && row - plan->from < rows_limit(batch); row++) {
        uint64_t properties_bytes = row_properties_bytes(batch, plan, row);
        uint64_t body_bytes = qsi_arrow_bytes(&plan->array->body, row).bytes;
        bool stored = qsi_row_is_stored(batch, plan, row, properties_bytes, body_bytes);
        uint64_t cost = stored ? QSI_BODY_REF_BYTES : properties_bytes + body_bytes;
        if (properties_bytes > longest) {
            longest = properties_bytes;
            QS_TRY(qsi_check_properties_bytes(batch->rules.body_bytes_max, longest,
                                              plan->array_row + row, error));
        }
        if (row > plan->from &&
            layout->bodies_bytes + layout->properties_bytes + cost > limit_bytes) {
            break;
        }
        layout->bodies_bytes += stored ? QSI_BODY_REF_BYTES : body_bytes;
        layout->properties_bytes += plan->per_row_properties && !stored ? properties_bytes : 0;
        plan->stored_count += stored ? 1 : 0;
        if (qsi_row_is_transient(batch, plan->array, row)) {
            plan->any_transient = true;
        } else {
            plan->any_persistent = true;
        }
    }
    plan->to = row;
    batch->properties_longest = longest;
    QS_DCHECK(plan->to > plan->from && plan->stored_count <= plan->to - plan->from);
    return QS_OK;
}

/* The common case: only the body differs from row to row, and all bodies are small. */
static bool measure_plain(struct qsi_batch *batch, struct qsi_record_plan *plan,
                          uint64_t limit_bytes)
{
    const struct qsi_arrow_batch *array = plan->array;
    uint64_t rows = array->rows - plan->from;
    uint64_t bytes;

    if (plan->per_row_properties || array->delivery_mode.present ||
        (!(batch->is_for_stream &&
           batch->constant_bytes + plan->longest_bytes < batch->rules.stream_embed_below) &&
         qsi_is_stored(batch->store, batch->constant_bytes, plan->longest_bytes))) {
        return false;
    }
    /* Measuring at most twice the last record keeps the work proportional to the rows. */
    rows = rows < batch->record_rows_max ? rows : batch->record_rows_max;
    rows = rows < rows_limit(batch) ? rows : rows_limit(batch);
    bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    while (bytes > limit_bytes &&
           rows > 1) { /* halve the rows as often as needed: mostly bodies are alike */
        rows = rows > 2 ? (uint64_t)((double)rows * (double)limit_bytes / (double)bytes) : 1;
        rows = rows > 0 ? rows : 1;
        bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    }
    QS_DCHECK(rows > 0 && rows <= array->rows - plan->from);
    plan->to = plan->from + rows;
    batch->record_rows_max = 2 * rows < rows_limit(batch) ? 2 * rows : rows_limit(batch);
    plan->layout.bodies_bytes = bytes;
    plan->any_transient = batch->defaults.delivery_mode == 1 && !batch->keeps_all;
    plan->any_persistent = !plan->any_transient;
    return true;
}

qs_status qsi_plan_rows(struct qsi_batch *batch, struct qsi_record_plan *plan, uint64_t limit_bytes,
                        qs_error *error)
{
    QS_DCHECK(plan->from < plan->array->rows);
    return measure_plain(batch, plan, limit_bytes) ? QS_OK
                                                   : measure_rows(batch, plan, limit_bytes, error);
}

qs_status qsi_plan_routes(struct qsi_batch *batch, struct qsi_record_plan *plan, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;
    uint32_t alike = plan->codes == NULL ? (uint32_t)(plan->to - plan->from) : 1; /* rows at once */

    plan->used_routes = qsi_alloc((batch->route_count + 1) * sizeof *plan->used_routes);
    plan->used_destinations =
        qsi_alloc((batch->destination_count + 1) * sizeof *plan->used_destinations);
    if (plan->used_routes == NULL || plan->used_destinations == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (uint64_t row = plan->from; row < plan->to; row += alike) {
        uint32_t code = plan->codes != NULL ? plan->codes[row] : 0;
        QS_DCHECK(code < batch->route_count);
        struct qsi_batch_route *route = &batch->routes[code];
        if (route->record_code == NO_CODE) {
            route->record_code = layout->route_count++;
            plan->used_routes[route->record_code] = code;
            layout->routes_bytes +=
                qsi_route_bytes(route->exchange.bytes, route->key.bytes, route->destination_count);
        }
        for (uint32_t i = 0; i < route->destination_count; i++) {
            struct qsi_batch_destination *destination =
                &batch->destinations[route->destinations[i]];
            if (destination->record_code == NO_CODE) {
                destination->record_code = layout->destination_count++;
                destination->record_rows = 0;
                plan->used_destinations[destination->record_code] = route->destinations[i];
            }
            QS_DCHECK(destination->record_rows + alike <= plan->to - plan->from);
            destination->record_rows += alike;
        }
        route->rows += alike;
        batch->unrouted_count += route->destination_count == 0 ? alike : 0;
    }
    return QS_OK;
}

void qsi_plan_forget_routes(struct qsi_batch *batch, struct qsi_record_plan *plan)
{
    for (uint32_t i = 0; plan->used_routes != NULL && i < plan->layout.route_count; i++) {
        batch->routes[plan->used_routes[i]].record_code = NO_CODE;
    }
    for (uint32_t i = 0; plan->used_destinations != NULL && i < plan->layout.destination_count;
         i++) {
        batch->destinations[plan->used_destinations[i]].record_code = NO_CODE;
    }
    qsi_free(plan->used_routes);
    qsi_free(plan->used_destinations);
}

/* A column of nulls is as good as none: an expiry time takes 8 bytes of each message in its
 * queue. */
static bool has_expirations(const struct qsi_batch *batch, const struct qsi_record_plan *plan)
{
    int64_t own_ms;
    uint64_t row = plan->from;

    if (qsi_properties_has(&batch->defaults, QSI_PROPERTY_EXPIRATION)) {
        return true;
    }
    while (row < plan->to && !qsi_arrow_int(&plan->array->expiration_ms, row, &own_ms)) {
        row = plan->array->expiration_ms.present ? row + 1 : plan->to;
    }
    return row < plan->to;
}

qs_status qsi_plan_layout(struct qsi_batch *batch, struct qsi_record_plan *plan, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;

    QS_ASSERT(plan->to - plan->from <= UINT32_MAX);
    layout->row_count = (uint32_t)(plan->to - plan->from);
    layout->properties_bytes += plan->per_row_properties ? 0 : batch->constant_bytes;
    layout->flags = (uint8_t)(batch->rules.record_flags |
                              (plan->per_row_properties ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0) |
                              (plan->stored_count > 0 ? QSI_MESSAGES_HAS_STORED : 0) |
                              (plan->any_transient ? QSI_MESSAGES_HAS_TRANSIENT : 0) |
                              (has_expirations(batch, plan) ? QSI_MESSAGES_HAS_EXPIRATION : 0) |
                              (plan->array->due.present ? QSI_MESSAGES_HAS_DUE : 0));
    return qsi_messages_layout(layout, error);
}
