/* Publishing record batches.
 *
 * Everything that costs time per row happens without the lock: checking, finding the distinct routes, copying bodies into
 * a record, listing which rows go to which queue.  The lock is held twice, to look the distinct routes up and to accept the
 * encoded records; neither depends on the number of rows. */
#include "alloc.h"
#include "arrow_read.h"
#include "check.h"
#include "error.h"
#include "properties.h"
#include "publish.h"

#include <string.h>

/* A distinct (exchange, routing key) of the batch and where it leads. */
struct batch_route {
    struct qsi_slice exchange, key; /* in the caller's arrays */
    uint64_t hash;
    uint32_t *destinations; /* indexes in destinations */
    uint32_t destination_count;
    bool durable;        /* one of them at least is */
    uint32_t piece_code; /* in the piece being made, or NO_CODE */
};

struct batch_destination {
    uint64_t queue_id;
    bool durable;
    uint32_t piece_code;
    uint32_t piece_rows;
};

#define NO_CODE UINT32_MAX
#define PIECE_ROWS_MAX (256u << 10) /* rows cost bytes beside their bodies */

struct batch {
    struct qs_channel *channel;
    struct qs_store *store;
    const qs_batch *input;
    struct qsi_arrow_batch *arrays;
    uint64_t row_count;
    uint64_t piece_rows_max; /* that the next piece may have */
    bool mandatory;

    struct qsi_properties defaults;
    uint8_t *constant; /* the defaults as a blob */
    uint32_t constant_bytes;

    struct batch_route *routes;
    uint32_t route_count, route_capacity;
    uint32_t *slots; /* open addressing over routes; NO_CODE: free */
    uint32_t slot_count;
    struct batch_destination *destinations;
    uint32_t destination_count, destination_capacity;

    uint32_t *codes; /* route of each row of the array at hand; NULL: all rows take route 0 */
    uint64_t code_capacity;
    struct pieces pieces;
    struct qsi_list returns;
    uint64_t return_count;
};

static qs_status no_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "batch");
}

static qs_status grow(void **items, uint32_t *capacity, uint32_t needed, size_t item_bytes,
                      qs_error *error)
{
    uint32_t wanted = *capacity < 8 ? 8 : *capacity;
    void *grown;

    if (needed <= *capacity) {
        return QS_OK;
    }
    while (wanted < needed) {
        wanted *= 2;
    }
    grown = qsi_realloc(*items, wanted * item_bytes);
    if (grown == NULL) {
        return no_memory(error);
    }
    *items = grown;
    *capacity = wanted;
    return QS_OK;
}

/* ---- reading and checking ---- */

static qs_status read_defaults(struct batch *batch, qs_error *error)
{
    const qs_batch *input = batch->input;
    uint64_t bytes;

    QS_TRY(qsi_properties_decode(&batch->defaults, input->properties.data,
                                 (uint32_t)input->properties.bytes, error));
    if (!qsi_properties_has(&batch->defaults, QSI_PROPERTY_DELIVERY_MODE)) {
        batch->defaults.delivery_mode = 2; /* a batch is persistent unless it says otherwise */
        batch->defaults.present |= qsi_property_flag(QSI_PROPERTY_DELIVERY_MODE);
    }
    bytes = qsi_properties_bytes(&batch->defaults);
    batch->constant = qsi_alloc(bytes);
    if (batch->constant == NULL) {
        return no_memory(error);
    }
    qsi_properties_encode(batch->constant, &batch->defaults);
    batch->constant_bytes = (uint32_t)bytes;
    return QS_OK;
}

static qs_status open_arrays(struct batch *batch, qs_error *error)
{
    const qs_batch *input = batch->input;

    batch->arrays = qsi_zalloc((input->array_count + 1) * sizeof *batch->arrays);
    if (batch->arrays == NULL) {
        return no_memory(error);
    }
    for (size_t i = 0; i < input->array_count; i++) {
        uint64_t longest_row = 0;
        uint32_t longest;
        qs_status status = qsi_arrow_batch_open(&batch->arrays[i], input->schema, input->arrays[i],
                                                input->body_column, batch->row_count, error);
        if (status == QS_OK) {
            longest = qsi_arrow_body_max(&batch->arrays[i], &longest_row);
            status = qsi_check_body_bytes(batch->store, longest, error);
            if (status != QS_OK) {
                qsi_error_prefix(error, "row %llu",
                                 (unsigned long long)(batch->row_count + longest_row));
            }
        }
        if (status != QS_OK) {
            return status;
        }
        batch->row_count += batch->arrays[i].rows;
    }
    return QS_OK;
}

/* ---- distinct routes ---- */

static qs_status grow_slots(struct batch *batch, qs_error *error)
{
    uint32_t slot_count = batch->slot_count == 0 ? 64 : batch->slot_count * 4;
    uint32_t *slots = qsi_alloc(slot_count * sizeof *slots);

    if (slots == NULL) {
        return no_memory(error);
    }
    memset(slots, 0xff, slot_count * sizeof *slots);
    for (uint32_t i = 0; i < batch->route_count; i++) {
        uint32_t slot = (uint32_t)batch->routes[i].hash & (slot_count - 1);
        while (slots[slot] != NO_CODE) {
            slot = (slot + 1) & (slot_count - 1);
        }
        slots[slot] = i;
    }
    qsi_free(batch->slots);
    batch->slots = slots;
    batch->slot_count = slot_count;
    return QS_OK;
}

static bool same_names(const struct batch_route *route, struct qsi_slice exchange,
                       struct qsi_slice key)
{
    return route->key.bytes == key.bytes && route->exchange.bytes == exchange.bytes &&
           memcmp(route->key.data, key.data, key.bytes) == 0 &&
           memcmp(route->exchange.data, exchange.data, exchange.bytes) == 0;
}

/* The index of the route with these names, new or not. */
static qs_status intern(struct batch *batch, struct qsi_slice exchange, struct qsi_slice key,
                        uint32_t *code_out, qs_error *error)
{
    uint64_t hash = qsi_hash(key.data, key.bytes) ^
                    (exchange.bytes > 0 ? qsi_hash(exchange.data, exchange.bytes) * 31 : 0);
    uint32_t slot;

    if (batch->route_count * 2 >= batch->slot_count) {
        QS_TRY(grow_slots(batch, error));
    }
    slot = (uint32_t)hash & (batch->slot_count - 1);
    for (; batch->slots[slot] != NO_CODE; slot = (slot + 1) & (batch->slot_count - 1)) {
        *code_out = batch->slots[slot];
        if (batch->routes[*code_out].hash == hash &&
            same_names(&batch->routes[*code_out], exchange, key)) {
            return QS_OK;
        }
    }
    QS_TRY(grow((void **)&batch->routes, &batch->route_capacity, batch->route_count + 1,
                sizeof *batch->routes, error));
    *code_out = batch->route_count++;
    batch->routes[*code_out] =
        (struct batch_route){.exchange = exchange, .key = key, .hash = hash, .piece_code = NO_CODE};
    batch->slots[slot] = *code_out;
    return QS_OK;
}

static struct qsi_slice or_default(struct qsi_slice value, qs_slice otherwise)
{
    return qsi_slice_is_null(value) ? qsi_slice_of(otherwise) : value;
}

static qs_status intern_row(struct batch *batch, const struct qsi_arrow_batch *array, uint64_t row,
                            uint32_t *code_out, qs_error *error)
{
    struct qsi_slice exchange = qsi_slice_of(batch->input->exchange);
    struct qsi_slice key = qsi_slice_of(batch->input->routing_key);

    if (array->exchange.present) {
        exchange = or_default(qsi_arrow_bytes(&array->exchange, row), batch->input->exchange);
    }
    if (array->routing_key.present) {
        key = or_default(qsi_arrow_bytes(&array->routing_key, row), batch->input->routing_key);
    }
    return intern(batch, exchange, key, code_out, error);
}

static bool has_route_columns(const struct qsi_arrow_batch *array)
{
    return array->exchange.present || array->routing_key.present;
}

/* One look per dictionary entry instead of one per row. */
static qs_status code_dictionary(struct batch *batch, const struct qsi_arrow_batch *array,
                                 uint32_t *codes, qs_error *error)
{
    uint64_t count = qsi_arrow_dictionary_count(&array->routing_key);
    uint32_t *known = qsi_alloc((count + 1) * sizeof *known);
    qs_status status = QS_OK;

    if (known == NULL) {
        return no_memory(error);
    }
    memset(known, 0xff, (count + 1) * sizeof *known);
    for (uint64_t row = 0; status == QS_OK && row < array->rows; row++) {
        int64_t code = qsi_arrow_code(&array->routing_key, row);
        uint64_t entry = code < 0 ? count : (uint64_t)code;
        if (known[entry] == NO_CODE) {
            status = intern_row(batch, array, row, &known[entry], error);
        }
        codes[row] = known[entry];
    }
    qsi_free(known);
    return status;
}

/* Fills codes with the route of each row. */
static qs_status code_rows(struct batch *batch, const struct qsi_arrow_batch *array,
                           uint32_t *codes, qs_error *error)
{
    if (!array->exchange.present && qsi_arrow_has_dictionary(&array->routing_key)) {
        return code_dictionary(batch, array, codes, error);
    }
    for (uint64_t row = 0; row < array->rows; row++) {
        QS_TRY(intern_row(batch, array, row, &codes[row], error));
    }
    return QS_OK;
}

static qs_status reserve_codes(struct batch *batch, const struct qsi_arrow_batch *array,
                               qs_error *error)
{
    if (array->rows > batch->code_capacity) {
        qsi_free(batch->codes);
        batch->code_capacity = 0;
        batch->codes = qsi_alloc(array->rows * sizeof *batch->codes);
        if (batch->codes == NULL) {
            return no_memory(error);
        }
        batch->code_capacity = array->rows;
    }
    return QS_OK;
}

static qs_status find_routes(struct batch *batch, qs_error *error)
{
    uint32_t code;

    for (size_t i = 0; i < batch->input->array_count; i++) {
        const struct qsi_arrow_batch *array = &batch->arrays[i];
        if (!has_route_columns(array)) {
            QS_TRY(intern(batch, qsi_slice_of(batch->input->exchange),
                          qsi_slice_of(batch->input->routing_key), &code, error));
            continue;
        }
        QS_TRY(reserve_codes(batch, array, error));
        QS_TRY(code_rows(batch, array, batch->codes, error));
    }
    return QS_OK;
}

/* ---- looking routes up, under the lock ---- */

static qs_status add_destination(struct batch *batch, struct qsi_map *known,
                                 const struct store_queue *queue, uint32_t *index_out,
                                 qs_error *error)
{
    uintptr_t found = (uintptr_t)qsi_map_get(known, &queue->core.id, sizeof queue->core.id);

    if (found != 0) {
        *index_out = (uint32_t)(found - 1);
        return QS_OK;
    }
    QS_TRY(grow((void **)&batch->destinations, &batch->destination_capacity,
                batch->destination_count + 1, sizeof *batch->destinations, error));
    *index_out = batch->destination_count++;
    batch->destinations[*index_out] =
        (struct batch_destination){.queue_id = queue->core.id,
                                   .durable = (queue->flags & QS_DURABLE) != 0,
                                   .piece_code = NO_CODE};
    if (qsi_map_put(known, &queue->core.id, sizeof queue->core.id,
                    (void *)((uintptr_t)*index_out + 1)) != QS_OK) {
        return no_memory(error);
    }
    return QS_OK;
}

static qs_status look_up(struct batch *batch, struct qsi_map *known, struct batch_route *route,
                         qs_error *error)
{
    const struct qsi_route *found;

    QS_TRY(qsi_router_lookup(&batch->store->router, route->exchange, route->key, &found, error));
    if (found->count == 0) {
        return QS_OK;
    }
    route->destinations = qsi_alloc(found->count * sizeof *route->destinations);
    if (route->destinations == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < found->count; i++) {
        const struct store_queue *queue = qsi_queue_of(found->destinations[i]);
        QS_TRY(add_destination(batch, known, queue, &route->destinations[i], error));
        route->durable = route->durable || (queue->flags & QS_DURABLE) != 0;
    }
    route->destination_count = found->count;
    return QS_OK;
}

static qs_status look_up_routes(struct batch *batch, qs_error *error)
{
    struct qsi_map known = {0};
    qs_status status;

    QS_TRY(qsi_channel_enter(batch->channel, error));
    qsi_router_trim(&batch->store->router);
    status = qsi_store_check_failed(batch->store, error);
    for (uint32_t i = 0; status == QS_OK && i < batch->route_count; i++) {
        status = look_up(batch, &known, &batch->routes[i], error);
    }
    qsi_map_fini(&known);
    return qsi_channel_leave(batch->channel, status);
}

/* ---- one piece ---- */

struct piece_plan {
    const struct qsi_arrow_batch *array;
    const uint32_t *codes; /* of the array's rows; NULL: route 0 */
    uint64_t from, to;
    uint64_t longest_bytes; /* of the array's bodies */
    bool per_row_properties;
    bool any_transient, any_persistent;
    uint32_t stored_count;
    struct qsi_messages_layout layout;
    uint32_t *used_routes; /* routes of the piece, in order of their piece codes */
    uint32_t *used_destinations;
};

static bool row_is_transient(const struct batch *batch, const struct qsi_arrow_batch *array,
                             uint64_t row)
{
    uint8_t mode = qsi_arrow_delivery_mode(array, row);

    return (mode != 0 ? mode : batch->defaults.delivery_mode) == 1;
}

static struct batch_route *row_route(struct batch *batch, const struct piece_plan *plan,
                                     uint64_t row)
{
    return &batch->routes[plan->codes != NULL ? plan->codes[row] : 0];
}

/* Does the row's body go to the message store? */
static bool row_is_stored(struct batch *batch, const struct piece_plan *plan, uint64_t row,
                          uint64_t properties_bytes, uint64_t body_bytes)
{
    return qsi_is_stored(batch->store, properties_bytes, body_bytes) &&
           row_route(batch, plan, row)->durable && !row_is_transient(batch, plan->array, row);
}

static uint64_t row_properties_bytes(const struct batch *batch, const struct piece_plan *plan,
                                     uint64_t row)
{
    struct qsi_arrow_row properties;

    if (!plan->per_row_properties) {
        return batch->constant_bytes;
    }
    return qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
}

/* How far a piece that begins at plan->from may reach, and what it holds. */
static qs_status measure_rows(struct batch *batch, struct piece_plan *plan, uint64_t limit_bytes,
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
                            (unsigned long long)row, (unsigned long long)properties_bytes);
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
static bool measure_plain(struct batch *batch, struct piece_plan *plan, uint64_t limit_bytes)
{
    const struct qsi_arrow_batch *array = plan->array;
    uint64_t rows = array->rows - plan->from;
    uint64_t bytes;

    if (plan->per_row_properties || array->delivery_mode.present ||
        qsi_is_stored(batch->store, batch->constant_bytes, plan->longest_bytes)) {
        return false;
    }
    /* Looking no further than twice the last piece keeps the work in proportion to the rows. */
    rows = rows < batch->piece_rows_max ? rows : batch->piece_rows_max;
    bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    while (bytes > limit_bytes &&
           rows > 1) { /* halve the rows as often as it takes: bodies are of one kind, mostly */
        rows = rows > 2 ? (uint64_t)((double)rows * (double)limit_bytes / (double)bytes) : 1;
        rows = rows > 0 ? rows : 1;
        bytes = qsi_arrow_body_total(array, plan->from, plan->from + rows);
    }
    plan->to = plan->from + rows;
    batch->piece_rows_max = 2 * rows < PIECE_ROWS_MAX ? 2 * rows : PIECE_ROWS_MAX;
    plan->layout.bodies_bytes = bytes;
    plan->any_transient = batch->defaults.delivery_mode == 1;
    plan->any_persistent = !plan->any_transient;
    return true;
}

/* Numbers the routes and destinations that the piece's rows use, and counts rows by destination. */
static qs_status number_routes(struct batch *batch, struct piece_plan *plan, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;

    plan->used_routes = qsi_alloc((batch->route_count + 1) * sizeof *plan->used_routes);
    plan->used_destinations =
        qsi_alloc((batch->destination_count + 1) * sizeof *plan->used_destinations);
    if (plan->used_routes == NULL || plan->used_destinations == NULL) {
        return no_memory(error);
    }
    for (uint64_t row = plan->from; row < plan->to; row++) {
        uint32_t code = plan->codes != NULL ? plan->codes[row] : 0;
        struct batch_route *route = &batch->routes[code];
        if (route->piece_code == NO_CODE) {
            route->piece_code = layout->route_count++;
            plan->used_routes[route->piece_code] = code;
            layout->routes_bytes +=
                qsi_route_bytes(route->exchange.bytes, route->key.bytes, route->destination_count);
        }
        for (uint32_t i = 0; i < route->destination_count; i++) {
            struct batch_destination *destination = &batch->destinations[route->destinations[i]];
            if (destination->piece_code == NO_CODE) {
                destination->piece_code = layout->destination_count++;
                destination->piece_rows = 0;
                plan->used_destinations[destination->piece_code] = route->destinations[i];
            }
            destination->piece_rows += 1;
        }
        if (plan->codes == NULL) { /* all rows alike */
            for (uint32_t i = 0; i < route->destination_count; i++) {
                batch->destinations[route->destinations[i]].piece_rows =
                    (uint32_t)(plan->to - plan->from);
            }
            break;
        }
    }
    return QS_OK;
}

static void forget_numbers(struct batch *batch, struct piece_plan *plan)
{
    for (uint32_t i = 0; plan->used_routes != NULL && i < plan->layout.route_count; i++) {
        batch->routes[plan->used_routes[i]].piece_code = NO_CODE;
    }
    for (uint32_t i = 0; plan->used_destinations != NULL && i < plan->layout.destination_count;
         i++) {
        batch->destinations[plan->used_destinations[i]].piece_code = NO_CODE;
    }
    qsi_free(plan->used_routes);
    qsi_free(plan->used_destinations);
}

static qs_status encode_routes(struct batch *batch, const struct piece_plan *plan, uint8_t *record,
                               qs_error *error)
{
    uint64_t at = 0;
    uint32_t *codes =
        qsi_alloc((batch->destination_count + plan->layout.row_count + 1) * sizeof *codes);

    if (codes == NULL) {
        return no_memory(error);
    }
    for (uint32_t i = 0; i < plan->layout.route_count; i++) {
        const struct batch_route *route = &batch->routes[plan->used_routes[i]];
        for (uint32_t k = 0; k < route->destination_count; k++) {
            codes[k] = batch->destinations[route->destinations[k]].piece_code;
        }
        qsi_messages_put_route(record, &plan->layout, i, &at, route->exchange, route->key, codes,
                               route->destination_count);
    }
    if (plan->codes != NULL) {
        for (uint32_t row = 0; row < plan->layout.row_count; row++) {
            codes[row] = batch->routes[plan->codes[plan->from + row]].piece_code;
        }
        qsi_messages_put_row_routes(record, &plan->layout, codes);
    }
    qsi_free(codes);
    return QS_OK;
}

/* Writes one row's body to the message store and its reference to cell. */
static qs_status store_row(struct batch *batch, const struct piece_plan *plan, struct piece *piece,
                           uint64_t row, const uint8_t *properties, uint32_t properties_bytes,
                           uint8_t *cell, qs_error *error)
{
    const struct batch_route *route = row_route(batch, plan, row);
    struct qsi_slice blob = qsi_slice_make(properties, properties_bytes);
    struct qsi_slice body = qsi_arrow_bytes(&plan->array->body, row);
    uint32_t envelope_bytes = qsi_envelope_bytes(route->exchange, route->key, blob);
    struct qsi_place *place = &piece->places[piece->place_count];
    uint8_t *envelope = qsi_alloc(envelope_bytes);
    qs_part parts[2] = {{envelope, envelope_bytes}, {body.data, body.bytes}};
    struct qsi_body_ref ref;
    qs_status status;

    if (envelope == NULL) {
        return no_memory(error);
    }
    qsi_envelope_encode(envelope, route->exchange, route->key, blob);
    status = qsi_store_enter(batch->store, error);
    if (status == QS_OK) {
        status = qsi_message_store_reserve(batch->store->messages, envelope_bytes, body.bytes,
                                           place, error);
        qsi_store_leave(batch->store);
    }
    if (status == QS_OK) {
        piece->place_count += 1;
        status = qsi_message_store_write(batch->store->messages, place, parts, 2, &ref, error);
    }
    if (status == QS_OK) {
        qsi_body_ref_encode(cell, &ref);
    }
    qsi_free(envelope);
    return status;
}

/* Row by row: properties, bodies and references to stored ones. */
static qs_status encode_rows(struct batch *batch, const struct piece_plan *plan,
                             struct piece *piece, uint8_t *record, qs_error *error)
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
            return no_memory(error);
        }
        if (plan->per_row_properties) {
            qsi_arrow_row_encode(scratch, &properties, plan->array);
        } else {
            memcpy(scratch, batch->constant, batch->constant_bytes);
        }
        qsi_messages_stored_place(record, layout)[i / 8] |= (uint8_t)(1u << (i % 8));
        status = store_row(batch, plan, piece, row, scratch, (uint32_t)properties_bytes,
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
static qs_status list_rows(struct batch *batch, const struct piece_plan *plan, uint32_t ***rows_out,
                           qs_error *error)
{
    uint32_t count = plan->layout.destination_count;
    uint32_t **rows = qsi_zalloc((count + 1) * sizeof *rows);
    uint32_t *fill = qsi_zalloc((count + 1) * sizeof *fill);
    bool any = false;

    *rows_out = rows;
    if (rows == NULL || fill == NULL) {
        qsi_free(fill);
        return no_memory(error);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        if (destination->piece_rows == plan->layout.row_count) {
            continue;
        }
        any = true;
        rows[i] = qsi_alloc(destination->piece_rows * sizeof *rows[i]);
        if (rows[i] == NULL) {
            qsi_free(fill);
            return no_memory(error);
        }
    }
    for (uint32_t row = 0; any && row < plan->layout.row_count; row++) {
        const struct batch_route *route = row_route(batch, plan, plan->from + row);
        for (uint32_t i = 0; i < route->destination_count; i++) {
            uint32_t code = batch->destinations[route->destinations[i]].piece_code;
            if (rows[code] != NULL) {
                rows[code][fill[code]++] = row;
            }
        }
    }
    qsi_free(fill);
    return QS_OK;
}

static qs_status make_runs(struct batch *batch, const struct piece_plan *plan, struct piece *piece,
                           qs_error *error)
{
    uint32_t count = plan->layout.destination_count;
    uint32_t **rows = NULL;
    qs_status status = list_rows(batch, plan, &rows, error);

    piece->destinations =
        status == QS_OK ? qsi_zalloc((count + 1) * sizeof *piece->destinations) : NULL;
    if (status == QS_OK && piece->destinations == NULL) {
        status = no_memory(error);
    }
    for (uint32_t i = 0; status == QS_OK && i < count; i++) {
        const struct batch_destination *destination =
            &batch->destinations[plan->used_destinations[i]];
        struct piece_destination *target = &piece->destinations[i];
        target->queue_id = destination->queue_id;
        if (qsi_run_create(&target->run, piece->chunk, 0, destination->piece_rows, rows[i],
                           piece->journalled && destination->durable) != QS_OK) {
            status = no_memory(error);
            break;
        }
        rows[i] = NULL;
        target->run->ram_bytes =
            piece->chunk->used * destination->piece_rows / plan->layout.row_count;
        piece->destination_count = i + 1;
        qsi_messages_put_destination(piece->chunk->data, i, destination->queue_id, 0,
                                     destination->piece_rows);
    }
    for (uint32_t i = 0; rows != NULL && i < count; i++) {
        qsi_free(rows[i]);
    }
    qsi_free(rows);
    return status;
}

static qs_status encode_piece(struct batch *batch, struct piece_plan *plan, struct piece *piece,
                              qs_error *error)
{
    const struct qsi_messages_layout *layout = &plan->layout;
    uint8_t *record, *properties;

    piece->chunk = qsi_chunk_create(layout->record_bytes);
    piece->places =
        plan->stored_count > 0 ? qsi_zalloc(plan->stored_count * sizeof *piece->places) : NULL;
    if (piece->chunk == NULL || (plan->stored_count > 0 && piece->places == NULL)) {
        return no_memory(error);
    }
    piece->row_count = layout->row_count;
    piece->chunk->used = layout->record_bytes;
    record = piece->chunk->data;
    qsi_messages_begin(record, layout);
    QS_TRY(encode_routes(batch, plan, record, error));
    if (!plan->per_row_properties) {
        properties = qsi_messages_properties_place(record, layout);
        qsi_put_u32(properties, batch->constant_bytes);
        memcpy(properties + 4, batch->constant, batch->constant_bytes);
    }
    if (plan->per_row_properties || plan->stored_count > 0) {
        QS_TRY(encode_rows(batch, plan, piece, record, error));
    } else {
        qsi_arrow_body_copy(plan->array, plan->from, plan->to,
                            qsi_messages_body_offsets_place(record, layout),
                            qsi_messages_bodies_place(record, layout));
    }
    return make_runs(batch, plan, piece, error);
}

/* Is anything of the piece to be journalled? */
static bool plan_is_journalled(const struct batch *batch, const struct piece_plan *plan)
{
    for (uint32_t i = 0; plan->any_persistent && i < plan->layout.destination_count; i++) {
        if (batch->destinations[plan->used_destinations[i]].durable) {
            return true;
        }
    }
    return false;
}

static qs_status finish_plan(struct batch *batch, struct piece_plan *plan, qs_error *error)
{
    struct qsi_messages_layout *layout = &plan->layout;
    struct piece *piece;

    QS_TRY(number_routes(batch, plan, error));
    if (layout->destination_count == 0) {
        return QS_OK; /* unroutable, every row */
    }
    layout->row_count = (uint32_t)(plan->to - plan->from);
    layout->properties_bytes += plan->per_row_properties ? 0 : batch->constant_bytes;
    layout->flags = (uint8_t)((plan->per_row_properties ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0) |
                              (plan->stored_count > 0 ? QSI_MESSAGES_HAS_STORED : 0) |
                              (plan->any_transient ? QSI_MESSAGES_HAS_TRANSIENT : 0));
    QS_TRY(qsi_messages_layout(layout, error));
    piece = qsi_pieces_add(&batch->pieces);
    if (piece == NULL) {
        return no_memory(error);
    }
    piece->journalled = plan_is_journalled(batch, plan);
    QS_TRY(encode_piece(batch, plan, piece, error));
    qsi_pieces_note_bytes(&batch->pieces, piece);
    return QS_OK;
}

static qs_status return_rows(struct batch *batch, const struct piece_plan *plan, qs_error *error)
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
        if (plan->per_row_properties) {
            bytes = qsi_arrow_row_begin(&properties, plan->array, row, &batch->defaults);
        }
        blob = qsi_alloc(bytes + 1);
        if (blob == NULL) {
            return no_memory(error);
        }
        if (plan->per_row_properties) {
            qsi_arrow_row_encode(blob, &properties, plan->array);
        } else {
            memcpy(blob, batch->constant, batch->constant_bytes);
        }
        status = qsi_return_make(&batch->returns, route->exchange, route->key,
                                 qsi_slice_make(blob, (uint32_t)bytes),
                                 qsi_arrow_bytes(&plan->array->body, row), error);
        qsi_free(blob);
        if (status != QS_OK) {
            return status;
        }
        batch->return_count += 1;
    }
    return QS_OK;
}

static qs_status make_piece(struct batch *batch, struct piece_plan *plan, qs_error *error)
{
    uint64_t limit = batch->store->options.journal_file_bytes / 4;
    qs_status status = QS_OK;

    limit = limit < QSI_PIECE_BYTES_MAX ? limit : QSI_PIECE_BYTES_MAX;
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

static qs_status make_pieces(struct batch *batch, qs_error *error)
{
    for (size_t i = 0; i < batch->input->array_count; i++) {
        const struct qsi_arrow_batch *array = &batch->arrays[i];
        uint64_t from = 0, longest_row;
        uint64_t longest_bytes = qsi_arrow_body_max(array, &longest_row);
        if (has_route_columns(array)) {
            QS_TRY(reserve_codes(batch, array, error));
            QS_TRY(code_rows(batch, array, batch->codes, error));
        }
        while (from < array->rows) {
            struct piece_plan plan = {
                .array = array,
                .codes = has_route_columns(array) ? batch->codes : NULL,
                .from = from,
                .longest_bytes = longest_bytes,
                .per_row_properties = qsi_arrow_has_properties(array),
            };
            QS_TRY(make_piece(batch, &plan, error));
            from = plan.to;
        }
    }
    return QS_OK;
}

/* ---- accepting ---- */

/* REQUIRES lock. */
static qs_status accept(struct batch *batch, qs_receipt *receipt, qs_error *error)
{
    struct qs_channel *channel = batch->channel;
    struct qs_store *store = batch->store;
    bool released;

    if (channel->tx_selected) {
        QS_TRY(qsi_tx_take(channel, &batch->pieces, error));
    } else {
        if (batch->pieces.journal_bytes > 0) {
            QS_TRY(qsi_commit_make_room(store,
                                        batch->pieces.journal_bytes + qsi_reserve_bytes(store),
                                        batch->pieces.entry_bytes_max, &released, error));
        }
        if (channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        if (qsi_confirms_reserve(&channel->confirms) != QS_OK) {
            return no_memory(error);
        }
        QS_TRY(qsi_pieces_reserve(store, &batch->pieces, 0, error));
        receipt->lsn = qsi_pieces_accept(store, &batch->pieces, false, false);
    }
    receipt->count = batch->row_count;
    store->stats.published += batch->row_count;
    store->stats.returned += batch->return_count;
    qsi_move_returns(&batch->returns, qsi_returns_of(channel));
    if (channel->confirms.selected && batch->row_count > 0) {
        receipt->first_number =
            qsi_confirms_add(&channel->confirms, batch->row_count, receipt->lsn);
        receipt->last_number = receipt->first_number + batch->row_count - 1;
        if (receipt->lsn == 0) {
            qsi_events_announce(store);
        }
    }
    return QS_OK;
}

static void fini(struct batch *batch)
{
    for (uint32_t i = 0; i < batch->route_count; i++) {
        qsi_free(batch->routes[i].destinations);
    }
    qsi_free_return_list(&batch->returns);
    qsi_pieces_fini(&batch->pieces, batch->store->messages);
    qsi_free(batch->routes);
    qsi_free(batch->slots);
    qsi_free(batch->destinations);
    qsi_free(batch->codes);
    qsi_free(batch->constant);
    qsi_free(batch->arrays);
}

qs_status qs_channel_publish_batch(qs_channel *channel, const qs_batch *input,
                                   qs_receipt *receipt_out, qs_error *error)
{
    struct batch batch = {
        .channel = channel,
        .store = channel->store,
        .input = input,
        .piece_rows_max = PIECE_ROWS_MAX,
        .mandatory = (input->flags & QS_MANDATORY) != 0,
    };
    qs_status status;

    memset(receipt_out, 0, sizeof *receipt_out);
    qsi_list_init(&batch.returns);
    QS_TRY(qsi_check_names(input->exchange.bytes, input->routing_key.bytes, error));
    QS_TRY(qsi_channel_enter(channel,
                             error)); /* a closed store or channel answers before a bad batch */
    qsi_store_leave(channel->store);
    status = read_defaults(&batch, error);
    if (status == QS_OK) {
        status = open_arrays(&batch, error);
    }
    if (status == QS_OK) {
        status = find_routes(&batch, error);
    }
    if (status == QS_OK) {
        status = look_up_routes(&batch, error);
    }
    if (status == QS_OK) {
        status = make_pieces(&batch, error);
    }
    if (status == QS_OK) {
        status = qsi_channel_enter(channel, error);
        if (status == QS_OK) {
            status = qsi_channel_leave(channel, accept(&batch, receipt_out, error));
        }
    }
    fini(&batch);
    return status;
}
