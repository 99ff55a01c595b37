/* The rows of a record batch as pending records, each of rows up to some size. */
#include "alloc.h"
#include "batch_plan.h"
#include "check.h"
#include "publish_counts.h"
#include "publish_direct.h"
#include "returns.h"
#include "store.h"

/* The rows for a destination that does not take all: ascending. */
static qs_status list_rows(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                           uint32_t ***rows_out, qs_error *error)
{
    uint32_t count = plan->layout.destination_count;
    uint32_t **rows = qsi_zalloc((count + 1) * sizeof *rows);
    uint32_t *fill = qsi_zalloc((count + 1) * sizeof *fill);
    bool any = false;

    *rows_out = rows;
    if (rows == NULL || fill == NULL) {
        qsi_free(fill);
        return qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct qsi_batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        if (destination->record_rows == plan->layout.row_count) {
            continue;
        }
        any = true;
        QS_DCHECK(destination->record_rows > 0 &&
                  destination->record_rows < plan->layout.row_count);
        rows[i] = qsi_alloc(destination->record_rows * sizeof *rows[i]);
        if (rows[i] == NULL) {
            qsi_free(fill);
            return qsi_batch_no_memory(error);
        }
    }
    for (uint32_t row = 0; any && row < plan->layout.row_count; row++) {
        const struct qsi_batch_route *route = qsi_row_route(batch, plan, plan->from + row);
        for (uint32_t i = 0; i < route->destination_count; i++) {
            uint32_t code = batch->destinations[route->destinations[i]].record_code;
            if (rows[code] != NULL) {
                QS_DCHECK(fill[code] < batch->destinations[route->destinations[i]].record_rows);
                rows[code][fill[code]++] = row;
            }
        }
    }
    qsi_free(fill);
    return QS_OK;
}

/* A run for each destination, of all rows or of those for it. */
static qs_status make_runs(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                           struct qsi_pending_record *pending_record, qs_error *error)
{
    uint32_t count = plan->layout.destination_count;
    uint32_t **rows = NULL;
    qs_status status = list_rows(batch, plan, &rows, error);

    for (uint32_t i = 0; status == QS_OK && i < count; i++) {
        const struct qsi_batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        if (qsi_pending_record_lead_to(pending_record, destination->queue_id, rows[i],
                                       destination->record_rows, destination->durable) != QS_OK) {
            status = qsi_batch_no_memory(error);
            break;
        }
        rows[i] = NULL;
    }
    for (uint32_t i = 0; rows != NULL && i < count; i++) {
        qsi_free(rows[i]);
    }
    qsi_free(rows);
    return status;
}

/* Whether anything of the pending record is journalled. */
static bool plan_is_journalled(const struct qsi_batch *batch, const struct qsi_record_plan *plan)
{
    for (uint32_t i = 0; i < plan->layout.destination_count; i++) {
        const struct qsi_batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        if (destination->keeps_all || (plan->any_persistent && destination->durable)) {
            return true;
        }
    }
    return false;
}

static qs_status make_record(struct qsi_batch *batch, struct qsi_record_plan *plan, qs_error *error)
{
    struct qsi_pending_record *pending_record;

    QS_TRY(qsi_plan_routes(batch, plan, error));
    if (plan->layout.destination_count == 0) {
        return QS_OK; /* unroutable, every row */
    }
    QS_TRY(qsi_plan_layout(batch, plan, error));
    pending_record = qsi_pending_records_add(&batch->pending_records);
    if (pending_record == NULL ||
        qsi_pending_record_create(pending_record, &plan->layout, plan->stored_count,
                                  batch->rules.budget) != QS_OK) {
        return qsi_batch_no_memory(error);
    }
    QS_DCHECK(pending_record->row_count == plan->to - plan->from);
    pending_record->first_row = plan->array_row + plan->from;
    pending_record->journalled = plan_is_journalled(batch, plan);
    QS_TRY(qsi_plan_encode(batch, plan, pending_record, error));
    QS_TRY(make_runs(batch, plan, pending_record, error));
    QS_ASSERT(pending_record->place_count == plan->stored_count);
    qsi_pending_records_add_bytes(&batch->pending_records, pending_record);
    return QS_OK;
}

static qs_status return_rows(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                             qs_error *error)
{
    for (uint64_t row = plan->from; row < plan->to; row++) {
        const struct qsi_batch_route *route = qsi_row_route(batch, plan, row);
        struct qsi_slice blob = {NULL, 0};
        qs_status status;
        if (route->destination_count > 0) {
            continue;
        }
        if (!qsi_wants_return(&batch->return_rules, &batch->returns)) {
            return QS_OK;
        }
        QS_TRY(qsi_plan_blob(batch, plan, row, &blob, error));
        status =
            qsi_return_make(batch->store, &batch->return_rules, &batch->returns, route->exchange,
                            route->key, blob, qsi_arrow_bytes(&plan->array->body, row), error);
        qsi_plan_free_blob(plan, blob);
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_OK;
}

static qs_status make_pending_record(struct qsi_batch *batch, struct qsi_record_plan *plan,
                                     qs_error *error)
{
    qs_status status = qsi_plan_rows(batch, plan, batch->rules.record_bytes_max, error);

    if (status == QS_OK) {
        status = make_record(batch, plan, error);
    }
    if (status == QS_OK && batch->mandatory) {
        status = return_rows(batch, plan, error);
    }
    qsi_plan_forget_routes(batch, plan);
    return status;
}

/* The number of rows for each destination, to be counted when they are accepted. */
static qs_status keep_rows(struct qsi_batch *batch, qs_error *error)
{
    for (uint32_t i = 0; i < batch->route_count; i++) {
        const struct qsi_batch_route *route = &batch->routes[i];
        uint64_t *ids;
        if (route->rows == 0) {
            continue;
        }
        if (qsi_published_note_begin(&batch->published, route->destination_count, &ids) != QS_OK) {
            return qsi_batch_no_memory(error);
        }
        for (uint32_t k = 0; k < route->destination_count; k++) {
            ids[k] = qsi_queue_in(batch->destinations[route->destinations[k]].queue_id);
        }
        qsi_published_note_end(&batch->published, route->exchange, route->destination_count,
                               route->rows, batch->mandatory);
    }
    return QS_OK;
}

/* The bytes are worth a block, and exactly one stream gets them. */
static bool is_for_stream(const struct qsi_batch *batch)
{
    uint64_t bytes = 0;

    if (batch->destination_count != 1 || !batch->destinations[0].is_direct) {
        return false;
    }
    for (size_t i = 0; i < batch->input->array_count; i++) {
        bytes += qsi_arrow_body_total(&batch->arrays[i], 0, batch->arrays[i].rows);
    }
    return bytes >= QSI_DIRECT_BYTES_MIN;
}

qs_status qsi_batch_make_records(struct qsi_batch *batch, qs_error *error)
{
    uint64_t rows_before = 0;

    batch->is_for_stream = batch->is_for_stream || is_for_stream(batch);
    for (size_t i = 0; i < batch->input->array_count; i++) {
        const struct qsi_arrow_batch *array = &batch->arrays[i];
        uint64_t from = 0, longest_row;
        uint64_t longest_bytes = qsi_arrow_body_max(array, &longest_row);
        const uint32_t *codes = NULL;
        if (batch->refined != NULL) {
            codes = batch->refined + rows_before;
        } else if (qsi_batch_has_route_columns(array)) {
            QS_TRY(qsi_batch_code_rows(batch, array, error));
            codes = batch->codes;
        }
        while (from < array->rows) {
            struct qsi_record_plan plan = {
                .array = array,
                .codes = codes,
                .array_row = rows_before,
                .from = from,
                .longest_bytes = longest_bytes,
                .per_row_properties = qsi_arrow_has_properties(array),
            };
            QS_TRY(make_pending_record(batch, &plan, error));
            QS_ASSERT(plan.to > from && plan.to <= array->rows);
            from = plan.to;
        }
        rows_before += array->rows;
    }
    return keep_rows(batch, error);
}
