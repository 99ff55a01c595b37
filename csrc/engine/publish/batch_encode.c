/* The rows of a record batch as an encoded record.  Columns that are the same in all rows (the
 * common case) are copied in two passes over offsets and bytes. */
#include "alloc.h"
#include "batch_plan.h"
#include "check.h"
#include "enter.h"
#include "store.h"

#include <string.h>

static qs_status encode_routes(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                               uint8_t *record, qs_error *error)
{
    uint64_t at = 0;
    uint32_t *codes =
        qsi_alloc((batch->destination_count + plan->layout.row_count + 1) * sizeof *codes);

    if (codes == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; i < plan->layout.route_count; i++) {
        const struct qsi_batch_route *route = &batch->routes[plan->used_routes[i]];
        for (uint32_t k = 0; k < route->destination_count; k++) {
            QS_DCHECK(batch->destinations[route->destinations[k]].record_code <
                      plan->layout.destination_count);
            codes[k] = batch->destinations[route->destinations[k]].record_code;
        }
        qsi_messages_put_route(record, &plan->layout, i, &at, route->exchange, route->key, codes,
                               route->destination_count);
    }
    if (plan->codes != NULL) {
        for (uint32_t row = 0; row < plan->layout.row_count; row++) {
            QS_DCHECK(batch->routes[plan->codes[plan->from + row]].record_code <
                      plan->layout.route_count);
            codes[row] = batch->routes[plan->codes[plan->from + row]].record_code;
        }
        qsi_messages_put_row_routes(record, &plan->layout, codes);
    }
    QS_DCHECK(at == plan->layout.routes_bytes);
    qsi_free(codes);
    return QS_OK;
}

/* Each row's time to live: its own column, or the common one. */
static qs_status encode_expirations(const struct qsi_batch *batch,
                                    const struct qsi_record_plan *plan, uint8_t *record,
                                    qs_error *error)
{
    struct qsi_slice text = qsi_properties_text(&batch->defaults, QSI_PROPERTY_EXPIRATION);
    uint32_t common_ms = QSI_NO_EXPIRATION;

    QS_DCHECK((plan->layout.flags & QSI_MESSAGES_HAS_EXPIRATION) != 0);
    if (text.data != NULL) {
        QS_TRY(qsi_expiration_parse(text, &common_ms, error));
    }
    for (uint32_t i = 0; i < plan->layout.row_count; i++) {
        int64_t own_ms;
        uint32_t ms = common_ms;
        if (qsi_arrow_int(&plan->array->expiration_ms, plan->from + i, &own_ms)) {
            QS_TRY(qsi_check_row_expiration(own_ms, plan->array_row + plan->from + i, error));
            ms = (uint32_t)own_ms;
        }
        qsi_messages_put_expiration(record, &plan->layout, i, ms);
    }
    return QS_OK;
}

/* The due time of each row that is not to be delivered at once. */
static qs_status encode_dues(const struct qsi_batch *batch, const struct qsi_record_plan *plan,
                             uint8_t *record, qs_error *error)
{
    QS_DCHECK((plan->layout.flags & QSI_MESSAGES_HAS_DUE) != 0);
    for (uint32_t i = 0; i < plan->layout.row_count; i++) {
        uint64_t due_us = qsi_arrow_due_us(plan->array, plan->from + i);
        QS_TRY(qsi_check_row_due(due_us, batch->now_us, plan->array_row + plan->from + i, error));
        qsi_messages_put_due(record, &plan->layout, i, due_us > batch->now_us ? due_us : 0);
    }
    return QS_OK;
}

/* ---- rows ---- */

qs_status qsi_plan_blob(const struct qsi_batch *batch, const struct qsi_record_plan *plan,
                        uint64_t row, struct qsi_slice *blob_out, qs_error *error)
{
    struct qsi_arrow_row properties;
    uint64_t bytes;
    uint8_t *blob;

    *blob_out = qsi_slice_make(batch->constant, batch->constant_bytes);
    if (!plan->per_row_properties) {
        return QS_OK;
    }
    bytes = qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
    blob = qsi_alloc(bytes + 1);
    if (blob == NULL) {
        return qsi_batch_no_memory(error);
    }
    qsi_arrow_row_encode(blob, &properties, plan->array);
    QS_ASSERT(bytes <= UINT32_MAX);
    *blob_out = qsi_slice_make(blob, (uint32_t)bytes);
    return QS_OK;
}

void qsi_plan_free_blob(const struct qsi_record_plan *plan, struct qsi_slice blob)
{
    if (plan->per_row_properties) {
        qsi_free((void *)(uintptr_t)blob.data);
    }
}

/* Room for a body in the message store, which the pending record then owns. */
static qs_status reserve_body(struct qsi_batch *batch, struct qsi_pending_record *pending_record,
                              uint32_t envelope_bytes, uint32_t body_bytes, qs_error *error)
{
    struct qsi_place *place = &pending_record->places[pending_record->place_count];
    qs_status status;

    QS_TRY(qsi_store_enter(batch->store, error));
    QS_DCHECK(place->bytes == 0);
    status =
        qsi_message_store_reserve(batch->store->messages, envelope_bytes, body_bytes, place, error);
    qsi_store_leave(batch->store);
    pending_record->place_count += status == QS_OK ? 1 : 0;
    return status;
}

/* Writes one row's body to the message store. */
static qs_status store_row(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                           struct qsi_pending_record *pending_record, uint64_t row,
                           struct qsi_slice blob, struct qsi_body_ref *ref_out, qs_error *error)
{
    const struct qsi_batch_route *route = qsi_row_route(batch, plan, row);
    struct qsi_slice body = qsi_arrow_bytes(&plan->array->body, row);
    struct qsi_slice envelope = {NULL, 0};
    qs_status status;

    QS_TRY(qsi_make_envelope(route->exchange, route->key, blob, &envelope, error));
    status = reserve_body(batch, pending_record, envelope.bytes, body.bytes, error);
    if (status == QS_OK) {
        QS_DCHECK(pending_record->place_count <= plan->stored_count);
        qs_part parts[2] = {{envelope.data, envelope.bytes}, {body.data, body.bytes}};
        status = qsi_message_store_write(batch->store->messages,
                                         &pending_record->places[pending_record->place_count - 1],
                                         parts, 2, ref_out, error);
    }
    qsi_free((void *)(uintptr_t)envelope.data);
    return status;
}

static qs_status encode_stored(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                               struct qsi_pending_record *pending_record, uint64_t row,
                               struct qsi_messages_writer *writer, qs_error *error)
{
    struct qsi_slice blob = {NULL, 0};
    struct qsi_body_ref ref;
    qs_status status;

    QS_TRY(qsi_plan_blob(batch, plan, row, &blob, error));
    status = store_row(batch, plan, pending_record, row, blob, &ref, error);
    qsi_plan_free_blob(plan, blob);
    if (status == QS_OK) {
        qsi_messages_write_ref(writer, &ref);
    }
    return status;
}

/* Row by row: properties, bodies and references to stored bodies, whose properties are in their
 * envelopes. */
static qs_status encode_rows(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                             struct qsi_pending_record *pending_record, uint8_t *record,
                             qs_error *error)
{
    struct qsi_messages_writer writer;

    qsi_messages_writer_begin(&writer, record, &plan->layout);
    for (uint64_t row = plan->from; row < plan->to; row++) {
        struct qsi_slice body = qsi_arrow_bytes(&plan->array->body, row);
        uint64_t properties_bytes = batch->constant_bytes;
        struct qsi_arrow_row properties;
        if (plan->per_row_properties) {
            properties_bytes = qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
        }
        if (QS_UNLIKELY(qsi_row_is_stored(batch, plan, row, properties_bytes, body.bytes))) {
            QS_DCHECK(pending_record->place_count < plan->stored_count);
            QS_TRY(encode_stored(batch, plan, pending_record, row, &writer, error));
            continue;
        }
        if (plan->per_row_properties) {
            qsi_arrow_row_encode(qsi_messages_write_properties(&writer, (uint32_t)properties_bytes),
                                 &properties, plan->array);
        }
        qsi_messages_write_body(&writer, body);
    }
    return QS_OK;
}

qs_status qsi_plan_encode(struct qsi_batch *batch, const struct qsi_record_plan *plan,
                          struct qsi_pending_record *pending_record, qs_error *error)
{
    const struct qsi_messages_layout *layout = &plan->layout;
    uint8_t *record = pending_record->chunk->data;

    QS_ASSERT(pending_record->chunk->capacity >= layout->record_bytes);
    qsi_messages_begin(record, layout);
    QS_TRY(encode_routes(batch, plan, record, error));
    if (pending_record->has_expiration) {
        QS_TRY(encode_expirations(batch, plan, record, error));
    }
    if (pending_record->has_due) {
        QS_TRY(encode_dues(batch, plan, record, error));
    }
    if (!plan->per_row_properties) {
        qsi_messages_put_properties(record, layout,
                                    qsi_slice_make(batch->constant, batch->constant_bytes));
    }
    if (plan->per_row_properties || plan->stored_count > 0) {
        return encode_rows(batch, plan, pending_record, record, error);
    }
    qsi_arrow_body_copy(plan->array, plan->from, plan->to,
                        qsi_messages_body_offsets_place(record, layout),
                        qsi_messages_bodies_place(record, layout));
    return QS_OK;
}
