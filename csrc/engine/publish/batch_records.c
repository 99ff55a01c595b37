/* The rows of a record batch as encoded records.  A pending record holds rows up to some size;
 * what is the same in all rows (the common case) is copied in two passes over offsets and bytes. */
#include "alloc.h"
#include "batch.h"
#include "check.h"
#include "clock.h"
#include "enter.h"
#include "envelope.h"
#include "returns.h"
#include "store.h"

#include <string.h>

struct record_plan {
    const struct qsi_arrow_batch *array;
    const uint32_t *codes; /* of the array's rows; NULL: route 0 */
    uint64_t array_row;    /* of the array's first, in the batch */
    uint64_t from, to;
    uint64_t longest_bytes; /* of the array's bodies */
    bool per_row_properties;
    bool any_transient, any_persistent;
    uint32_t stored_count;
    struct qsi_messages_layout layout;
    uint32_t *used_routes; /* routes of the pending record, in order of their record codes */
    uint32_t *used_destinations;
};

static bool row_is_transient(const struct batch *batch, const struct qsi_arrow_batch *array,
                             uint64_t row)
{
    uint8_t mode = qsi_arrow_delivery_mode(array, row);

    return (mode != 0 ? mode : batch->defaults.delivery_mode) == 1;
}

static struct batch_route *row_route(struct batch *batch, const struct record_plan *plan,
                                     uint64_t row)
{
    return &batch->routes[plan->codes != NULL ? plan->codes[row] : 0];
}

/* Does the row's body go to the message store? */
static bool row_is_stored(struct batch *batch, const struct record_plan *plan, uint64_t row,
                          uint64_t properties_bytes, uint64_t body_bytes)
{
    return qsi_is_stored(batch->store, properties_bytes, body_bytes) &&
           row_route(batch, plan, row)->durable && !row_is_transient(batch, plan->array, row);
}

static uint64_t row_properties_bytes(const struct batch *batch, const struct record_plan *plan,
                                     uint64_t row)
{
    struct qsi_arrow_row properties;

    if (!plan->per_row_properties) {
        return batch->constant_bytes;
    }
    return qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
}

/* How far a pending record that begins at plan->from may reach, and what it holds. */
static qs_status measure_rows(struct batch *batch, struct record_plan *plan, uint64_t limit_bytes,
                              qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;
    uint64_t row = plan->from;

    for (; row < plan->array->rows && row - plan->from < PIECE_ROWS_MAX; row++) {
        uint64_t properties_bytes = row_properties_bytes(batch, plan, row);
        uint64_t body_bytes = qsi_arrow_bytes(&plan->array->body, row).bytes;
        bool stored = row_is_stored(batch, plan, row, properties_bytes, body_bytes);
        uint64_t cost = stored ? QSI_BODY_REF_BYTES : properties_bytes + body_bytes;
        if (properties_bytes > batch->store->options.body_bytes_max) {
            return qsi_fail(error, QS_EINVAL, "row %llu: properties of %llu bytes",
                            (unsigned long long)(plan->array_row + row),
                            (unsigned long long)properties_bytes);
        }
        if (row > plan->from &&
            layout->bodies_bytes + layout->properties_bytes + cost > limit_bytes) {
            break;
        }
        layout->bodies_bytes += stored ? QSI_BODY_REF_BYTES : body_bytes;
        layout->properties_bytes += plan->per_row_properties && !stored ? properties_bytes : 0;
        plan->stored_count += stored ? 1 : 0;
        if (row_is_transient(batch, plan->array, row)) {
            plan->any_transient = true;
        } else {
            plan->any_persistent = true;
        }
    }
    plan->to = row;
    return QS_OK;
}

/* The common case: nothing varies from row to row but the body, and all of them are small. */
static bool measure_plain(struct batch *batch, struct record_plan *plan, uint64_t limit_bytes)
{
    const struct qsi_arrow_batch *array = plan->array;
    uint64_t rows = array->rows - plan->from;
    uint64_t bytes;

    if (plan->per_row_properties || array->delivery_mode.present ||
        qsi_is_stored(batch->store, batch->constant_bytes, plan->longest_bytes)) {
        return false;
    }
    /* Looking no further than twice the last record keeps the work in proportion to the rows. */
    rows = rows < batch->record_rows_max ? rows : batch->record_rows_max;
    bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    while (bytes > limit_bytes &&
           rows > 1) { /* halve the rows as often as it takes: bodies are of one kind, mostly */
        rows = rows > 2 ? (uint64_t)((double)rows * (double)limit_bytes / (double)bytes) : 1;
        rows = rows > 0 ? rows : 1;
        bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    }
    plan->to = plan->from + rows;
    batch->record_rows_max = 2 * rows < PIECE_ROWS_MAX ? 2 * rows : PIECE_ROWS_MAX;
    plan->layout.bodies_bytes = bytes;
    plan->any_transient = batch->defaults.delivery_mode == 1;
    plan->any_persistent = !plan->any_transient;
    return true;
}

/* Numbers the routes and destinations that the pending record's rows use, and counts rows by
 * destination. */
static qs_status number_routes(struct batch *batch, struct record_plan *plan, qs_error *error)
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
        struct batch_route *route = &batch->routes[code];
        if (route->record_code == NO_CODE) {
            route->record_code = layout->route_count++;
            plan->used_routes[route->record_code] = code;
            layout->routes_bytes +=
                qsi_route_bytes(route->exchange.bytes, route->key.bytes, route->destination_count);
        }
        for (uint32_t i = 0; i < route->destination_count; i++) {
            struct batch_destination *destination = &batch->destinations[route->destinations[i]];
            if (destination->record_code == NO_CODE) {
                destination->record_code = layout->destination_count++;
                destination->record_rows = 0;
                plan->used_destinations[destination->record_code] = route->destinations[i];
            }
            destination->record_rows += alike;
        }
        batch->unrouted_count += route->destination_count == 0 ? alike : 0;
    }
    return QS_OK;
}

static void forget_numbers(struct batch *batch, struct record_plan *plan)
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

static qs_status encode_routes(struct batch *batch, const struct record_plan *plan, uint8_t *record,
                               qs_error *error)
{
    uint64_t at = 0;
    uint32_t *codes =
        qsi_alloc((batch->destination_count + plan->layout.row_count + 1) * sizeof *codes);

    if (codes == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; i < plan->layout.route_count; i++) {
        const struct batch_route *route = &batch->routes[plan->used_routes[i]];
        for (uint32_t k = 0; k < route->destination_count; k++) {
            codes[k] = batch->destinations[route->destinations[k]].record_code;
        }
        qsi_messages_put_route(record, &plan->layout, i, &at, route->exchange, route->key, codes,
                               route->destination_count);
    }
    if (plan->codes != NULL) {
        for (uint32_t row = 0; row < plan->layout.row_count; row++) {
            codes[row] = batch->routes[plan->codes[plan->from + row]].record_code;
        }
        qsi_messages_put_row_routes(record, &plan->layout, codes);
    }
    qsi_free(codes);
    return QS_OK;
}

static bool has_expirations(const struct batch *batch, const struct record_plan *plan)
{
    return plan->array->expiration_ms.present ||
           qsi_properties_has(&batch->defaults, QSI_PROPERTY_EXPIRATION);
}

/* How long each row lives: its own column, or what all have. */
static qs_status encode_expirations(const struct batch *batch, const struct record_plan *plan,
                                    uint8_t *record, qs_error *error)
{
    struct qsi_slice text = qsi_properties_text(&batch->defaults, QSI_PROPERTY_EXPIRATION);
    uint32_t common_ms = QSI_NO_EXPIRATION;

    if (text.data != NULL) {
        QS_TRY(qsi_expiration_parse(text, &common_ms, error));
    }
    for (uint32_t i = 0; i < plan->layout.row_count; i++) {
        int64_t own_ms;
        uint32_t ms = common_ms;
        if (qsi_arrow_int(&plan->array->expiration_ms, plan->from + i, &own_ms)) {
            if (own_ms > QSI_EXPIRATION_MS_MAX) {
                return qsi_fail(error, QS_PRECONDITION_FAILED,
                                "row %llu: invalid expiration '%lld': %u milliseconds at most",
                                (unsigned long long)(plan->array_row + plan->from + i),
                                (long long)own_ms, QSI_EXPIRATION_MS_MAX);
            }
            ms = (uint32_t)own_ms;
        }
        qsi_messages_put_expiration(record, &plan->layout, i, ms);
    }
    return QS_OK;
}

/* When each row is due that is not to be delivered at once. */
static qs_status encode_dues(const struct batch *batch, const struct record_plan *plan,
                             uint8_t *record, qs_error *error)
{
    for (uint32_t i = 0; i < plan->layout.row_count; i++) {
        uint64_t due_us = qsi_arrow_due_us(plan->array, plan->from + i);
        if (due_us > batch->now_us && qsi_check_delay(due_us - batch->now_us, error) != QS_OK) {
            return qsi_fail(
                error, QS_EINVAL,
                "row %llu: due in more than 100 years: a later time cannot be waited for",
                (unsigned long long)(plan->array_row + plan->from + i));
        }
        qsi_messages_put_due(record, &plan->layout, i, due_us > batch->now_us ? due_us : 0);
    }
    return QS_OK;
}

/* Writes one row's body to the message store and its reference to cell. */
static qs_status store_row(struct batch *batch, const struct record_plan *plan,
                           struct pending_record *pending_record, uint64_t row,
                           const uint8_t *properties, uint32_t properties_bytes, uint8_t *cell,
                           qs_error *error)
{
    const struct batch_route *route = row_route(batch, plan, row);
    struct qsi_slice blob = qsi_slice_make(properties, properties_bytes);
    struct qsi_slice body = qsi_arrow_bytes(&plan->array->body, row);
    uint32_t envelope_bytes = qsi_envelope_bytes(route->exchange, route->key, blob);
    struct qsi_place *place = &pending_record->places[pending_record->place_count];
    uint8_t *envelope = qsi_alloc(envelope_bytes);
    qs_part parts[2] = {{envelope, envelope_bytes}, {body.data, body.bytes}};
    struct qsi_body_ref ref;
    qs_status status;

    if (envelope == NULL) {
        return qsi_batch_no_memory(error);
    }
    qsi_envelope_encode(envelope, route->exchange, route->key, blob);
    status = qsi_store_enter(batch->store, error);
    if (status == QS_OK) {
        status = qsi_message_store_reserve(batch->store->messages, envelope_bytes, body.bytes,
                                           place, error);
        qsi_store_leave(batch->store);
    }
    if (status == QS_OK) {
        pending_record->place_count += 1;
        status = qsi_message_store_write(batch->store->messages, place, parts, 2, &ref, error);
    }
    if (status == QS_OK) {
        qsi_body_ref_encode(cell, &ref);
    }
    qsi_free(envelope);
    return status;
}

/* Row by row: properties, bodies and references to stored ones. */
static qs_status encode_rows(struct batch *batch, const struct record_plan *plan,
                             struct pending_record *pending_record, uint8_t *record,
                             qs_error *error)
{
    const struct qsi_messages_layout *layout = &plan->layout;
    uint8_t *property_offsets = qsi_messages_properties_place(record, layout);
    uint8_t *blobs = property_offsets + 4 * ((size_t)layout->row_count + 1);
    uint8_t *body_offsets = qsi_messages_body_offsets_place(record, layout);
    uint8_t *bodies = qsi_messages_bodies_place(record, layout);
    uint32_t blob_at = 0, body_at = 0;
    uint8_t *scratch = NULL;
    qs_status status = QS_OK;

    for (uint32_t i = 0; i < layout->row_count && status == QS_OK; i++) {
        uint64_t row = plan->from + i;
        struct qsi_slice body = qsi_arrow_bytes(&plan->array->body, row);
        uint64_t properties_bytes = batch->constant_bytes;
        struct qsi_arrow_row properties;
        bool stored;
        if (plan->per_row_properties) {
            properties_bytes = qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
            qsi_put_u32(property_offsets + 4 * (size_t)i, blob_at);
        }
        stored = row_is_stored(batch, plan, row, properties_bytes, body.bytes);
        qsi_put_u32(body_offsets + 4 * (size_t)i, body_at);
        if (!stored) {
            if (plan->per_row_properties) {
                qsi_arrow_row_encode(blobs + blob_at, &properties, plan->array);
                blob_at += (uint32_t)properties_bytes;
            }
            if (body.bytes > 0) {
                memcpy(bodies + body_at, body.data, body.bytes);
            }
            body_at += body.bytes;
            continue;
        }
        scratch = qsi_alloc(properties_bytes + 1);
        if (scratch == NULL) {
            return qsi_batch_no_memory(error);
        }
        if (plan->per_row_properties) {
            qsi_arrow_row_encode(scratch, &properties, plan->array);
        } else {
            memcpy(scratch, batch->constant, batch->constant_bytes);
        }
        qsi_messages_stored_place(record, layout)[i / 8] |= (uint8_t)(1u << (i % 8));
        status = store_row(batch, plan, pending_record, row, scratch, (uint32_t)properties_bytes,
                           bodies + body_at, error);
        body_at += QSI_BODY_REF_BYTES;
        qsi_free(scratch);
    }
    if (plan->per_row_properties) {
        qsi_put_u32(property_offsets + 4 * (size_t)layout->row_count, blob_at);
    }
    qsi_put_u32(body_offsets + 4 * (size_t)layout->row_count, body_at);
    return status;
}

/* Which rows go to a destination that does not take all: ascending. */
static qs_status list_rows(struct batch *batch, const struct record_plan *plan,
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
        const struct batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        if (destination->record_rows == plan->layout.row_count) {
            continue;
        }
        any = true;
        rows[i] = qsi_alloc(destination->record_rows * sizeof *rows[i]);
        if (rows[i] == NULL) {
            qsi_free(fill);
            return qsi_batch_no_memory(error);
        }
    }
    for (uint32_t row = 0; any && row < plan->layout.row_count; row++) {
        const struct batch_route *route = row_route(batch, plan, plan->from + row);
        for (uint32_t i = 0; i < route->destination_count; i++) {
            uint32_t code = batch->destinations[route->destinations[i]].record_code;
            if (rows[code] != NULL) {
                rows[code][fill[code]++] = row;
            }
        }
    }
    qsi_free(fill);
    return QS_OK;
}

static qs_status make_runs(struct batch *batch, const struct record_plan *plan,
                           struct pending_record *pending_record, qs_error *error)
{
    uint32_t count = plan->layout.destination_count;
    uint32_t **rows = NULL;
    qs_status status = list_rows(batch, plan, &rows, error);

    pending_record->destinations =
        status == QS_OK ? qsi_zalloc((count + 1) * sizeof *pending_record->destinations) : NULL;
    if (status == QS_OK && pending_record->destinations == NULL) {
        status = qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; status == QS_OK && i < count; i++) {
        const struct batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        struct pending_destination *target = &pending_record->destinations[i];
        target->queue_id = destination->queue_id;
        if (qsi_run_create(&target->run, pending_record->chunk, 0, destination->record_rows,
                           rows[i], pending_record->journalled && destination->durable) != QS_OK) {
            status = qsi_batch_no_memory(error);
            break;
        }
        rows[i] = NULL;
        target->run->ram_bytes =
            pending_record->chunk->used * destination->record_rows / plan->layout.row_count;
        pending_record->destination_count = i + 1;
        qsi_messages_put_destination(pending_record->chunk->data, i, destination->queue_id, 0,
                                     destination->record_rows);
    }
    for (uint32_t i = 0; rows != NULL && i < count; i++) {
        qsi_free(rows[i]);
    }
    qsi_free(rows);
    return status;
}

static qs_status encode_record(struct batch *batch, struct record_plan *plan,
                               struct pending_record *pending_record, qs_error *error)
{
    const struct qsi_messages_layout *layout = &plan->layout;
    uint8_t *record, *properties;

    pending_record->chunk = qsi_chunk_create(layout->record_bytes);
    pending_record->places = plan->stored_count > 0
                                 ? qsi_zalloc(plan->stored_count * sizeof *pending_record->places)
                                 : NULL;
    if (pending_record->chunk == NULL ||
        (plan->stored_count > 0 && pending_record->places == NULL)) {
        return qsi_batch_no_memory(error);
    }
    qsi_chunk_populate(pending_record->chunk);
    qsi_chunk_charge(pending_record->chunk, batch->store->budget);
    pending_record->row_count = layout->row_count;
    pending_record->first_row = plan->array_row + plan->from;
    pending_record->has_expiration = (layout->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0;
    pending_record->has_due = (layout->flags & QSI_MESSAGES_HAS_DUE) != 0;
    pending_record->chunk->used = layout->record_bytes;
    record = pending_record->chunk->data;
    qsi_messages_begin(record, layout);
    QS_TRY(encode_routes(batch, plan, record, error));
    if (pending_record->has_expiration) {
        QS_TRY(encode_expirations(batch, plan, record, error));
    }
    if (pending_record->has_due) {
        QS_TRY(encode_dues(batch, plan, record, error));
    }
    if (!plan->per_row_properties) {
        properties = qsi_messages_properties_place(record, layout);
        qsi_put_u32(properties, batch->constant_bytes);
        memcpy(properties + 4, batch->constant, batch->constant_bytes);
    }
    if (plan->per_row_properties || plan->stored_count > 0) {
        QS_TRY(encode_rows(batch, plan, pending_record, record, error));
    } else {
        qsi_arrow_body_copy(plan->array, plan->from, plan->to,
                            qsi_messages_body_offsets_place(record, layout),
                            qsi_messages_bodies_place(record, layout));
    }
    return make_runs(batch, plan, pending_record, error);
}

/* Is anything of the pending record to be journalled? */
static bool plan_is_journalled(const struct batch *batch, const struct record_plan *plan)
{
    for (uint32_t i = 0; plan->any_persistent && i < plan->layout.destination_count; i++) {
        if (batch->destinations[plan->used_destinations[i]].durable) {
            return true;
        }
    }
    return false;
}

static qs_status finish_plan(struct batch *batch, struct record_plan *plan, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;
    struct pending_record *pending_record;

    QS_TRY(number_routes(batch, plan, error));
    if (layout->destination_count == 0) {
        return QS_OK; /* unroutable, every row */
    }
    layout->row_count = (uint32_t)(plan->to - plan->from);
    layout->properties_bytes += plan->per_row_properties ? 0 : batch->constant_bytes;
    layout->flags = (uint8_t)((plan->per_row_properties ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0) |
                              (plan->stored_count > 0 ? QSI_MESSAGES_HAS_STORED : 0) |
                              (plan->any_transient ? QSI_MESSAGES_HAS_TRANSIENT : 0) |
                              (has_expirations(batch, plan) ? QSI_MESSAGES_HAS_EXPIRATION : 0) |
                              (plan->array->due.present ? QSI_MESSAGES_HAS_DUE : 0));
    QS_TRY(qsi_messages_layout(layout, error));
    pending_record = qsi_pending_records_add(&batch->pending_records);
    if (pending_record == NULL) {
        return qsi_batch_no_memory(error);
    }
    pending_record->journalled = plan_is_journalled(batch, plan);
    QS_TRY(encode_record(batch, plan, pending_record, error));
    qsi_pending_records_note_bytes(&batch->pending_records, pending_record);
    return QS_OK;
}

static qs_status return_rows(struct batch *batch, const struct record_plan *plan, qs_error *error)
{
    for (uint64_t row = plan->from; row < plan->to; row++) {
        const struct batch_route *route = row_route(batch, plan, row);
        struct qsi_arrow_row properties;
        uint64_t bytes = batch->constant_bytes;
        uint8_t *blob;
        qs_status status;
        if (route->destination_count > 0) {
            continue;
        }
        if (!qsi_wants_return(batch->channel, &batch->returns)) {
            return QS_OK;
        }
        if (plan->per_row_properties) {
            bytes = qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
        }
        blob = qsi_alloc(bytes + 1);
        if (blob == NULL) {
            return qsi_batch_no_memory(error);
        }
        if (plan->per_row_properties) {
            qsi_arrow_row_encode(blob, &properties, plan->array);
        } else {
            memcpy(blob, batch->constant, batch->constant_bytes);
        }
        status = qsi_return_make(batch->channel, &batch->returns, route->exchange, route->key,
                                 qsi_slice_make(blob, (uint32_t)bytes),
                                 qsi_arrow_bytes(&plan->array->body, row), error);
        qsi_free(blob);
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_OK;
}

static qs_status make_pending_record(struct batch *batch, struct record_plan *plan, qs_error *error)
{
    uint64_t limit = batch->store->options.journal_file_bytes / 4;
    qs_status status = QS_OK;

    limit = limit < QSI_PIECE_BYTES_MAX ? limit : QSI_PIECE_BYTES_MAX;
    limit = limit < qsi_part_of_budget(batch->store) ? limit : qsi_part_of_budget(batch->store);
    if (!measure_plain(batch, plan, limit)) {
        status = measure_rows(batch, plan, limit, error);
    }
    if (status == QS_OK) {
        status = finish_plan(batch, plan, error);
    }
    if (status == QS_OK && batch->mandatory) {
        status = return_rows(batch, plan, error);
    }
    forget_numbers(batch, plan);
    return status;
}

qs_status qsi_batch_make_records(struct batch *batch, qs_error *error)
{
    uint64_t rows_before = 0;

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
            struct record_plan plan = {
                .array = array,
                .codes = codes,
                .array_row = rows_before,
                .from = from,
                .longest_bytes = longest_bytes,
                .per_row_properties = qsi_arrow_has_properties(array),
            };
            QS_TRY(make_pending_record(batch, &plan, error));
            from = plan.to;
        }
        rows_before += array->rows;
    }
    return QS_OK;
}
