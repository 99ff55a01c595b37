/* The routes of a record batch: each distinct (exchange, routing key) is looked up once, however
 * many rows name it. */
#include "alloc.h"
#include "batch.h"
#include "check.h"
#include "enter.h"
#include "error.h"
#include "hash.h"
#include "queue_life.h"
#include "store.h"
#include "topology.h"

#include <string.h>

#define PAIRS_MIN 1024 /* of an exchange and a key: worth a table, however few the rows */

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
        return qsi_batch_no_memory(error);
    }
    *items = grown;
    QS_DCHECK(wanted >= needed);
    *capacity = wanted;
    return QS_OK;
}

/* ---- distinct routes ---- */

static qs_status grow_slots(struct qsi_batch *batch, qs_error *error)
{
    uint32_t slot_count = batch->slot_count == 0 ? 64 : batch->slot_count * 4;
    uint32_t *slots = qsi_alloc(slot_count * sizeof *slots);

    if (slots == NULL) {
        return qsi_batch_no_memory(error);
    }
    memset(slots, 0xff, slot_count * sizeof *slots);
    for (uint32_t i = 0; i < batch->route_count; i++) {
        uint32_t slot = (uint32_t)batch->routes[i].hash & (slot_count - 1);
        while (slots[slot] != NO_CODE) {
            slot = (slot + 1) & (slot_count - 1);
        }
        slots[slot] = i;
    }
    QS_DCHECK(batch->route_count < slot_count && (slot_count & (slot_count - 1)) == 0);
    qsi_free(batch->slots);
    batch->slots = slots;
    batch->slot_count = slot_count;
    return QS_OK;
}

static bool same_names(const struct qsi_batch_route *route, struct qsi_slice exchange,
                       struct qsi_slice key)
{
    return route->key.bytes == key.bytes && route->exchange.bytes == exchange.bytes &&
           memcmp(route->key.data, key.data, key.bytes) == 0 &&
           memcmp(route->exchange.data, exchange.data, exchange.bytes) == 0;
}

static inline qs_status reserve_route(struct qsi_batch *batch, qs_error *error)
{
    return grow((void **)&batch->routes, &batch->route_capacity, batch->route_count + 1,
                sizeof *batch->routes, error);
}

qs_status qsi_batch_add_route(struct qsi_batch *batch, const struct qsi_batch_route *route,
                              uint32_t *code_out, qs_error *error)
{
    QS_TRY(reserve_route(batch, error));
    *code_out = batch->route_count++;
    QS_DCHECK(batch->route_count <= batch->route_capacity);
    batch->routes[*code_out] = *route;
    return QS_OK;
}

/* Rows often repeat the exchange, so the last one's hash is kept.  It is rotated, so that a key of
 * the same name does not cancel it. */
static uint64_t hash_exchange(struct qsi_batch *batch, struct qsi_slice exchange)
{
    if (batch->hashed_exchange.data != exchange.data ||
        batch->hashed_exchange.bytes != exchange.bytes) {
        batch->hashed_exchange = exchange;
        batch->exchange_hash = qsi_hash(exchange.data, exchange.bytes);
        batch->exchange_hash = batch->exchange_hash << 1 | batch->exchange_hash >> 63;
    }
    return batch->exchange_hash;
}

/* The index of the route with these names, new or not. */
static qs_status intern(struct qsi_batch *batch, struct qsi_slice exchange, struct qsi_slice key,
                        uint32_t *code_out, qs_error *error)
{
    uint64_t hash = qsi_hash(key.data, key.bytes) ^ hash_exchange(batch, exchange);
    uint32_t slot;

    if (batch->route_count * 2 >= batch->slot_count) {
        QS_TRY(grow_slots(batch, error));
    }
    QS_DCHECK(batch->route_count < batch->slot_count);
    slot = (uint32_t)hash & (batch->slot_count - 1);
    for (; batch->slots[slot] != NO_CODE; slot = (slot + 1) & (batch->slot_count - 1)) {
        *code_out = batch->slots[slot];
        if (batch->routes[*code_out].hash == hash &&
            same_names(&batch->routes[*code_out], exchange, key)) {
            return QS_OK;
        }
    }
    QS_TRY(qsi_check_new_name((qs_slice){exchange.data, exchange.bytes}, "exchange", error));
    QS_TRY(reserve_route(batch, error));
    *code_out = batch->route_count++;
    batch->routes[*code_out] = (struct qsi_batch_route){
        .exchange = exchange, .key = key, .hash = hash, .record_code = NO_CODE};
    batch->slots[slot] = *code_out;
    return QS_OK;
}

static struct qsi_slice or_default(struct qsi_slice value, qs_slice otherwise)
{
    return qsi_slice_is_null(value) ? qsi_slice_of(otherwise) : value;
}

static qs_status intern_row(struct qsi_batch *batch, const struct qsi_arrow_batch *array,
                            uint64_t row, uint32_t *code_out, qs_error *error)
{
    struct qsi_slice exchange = qsi_slice_of(batch->input->exchange);
    struct qsi_slice key = qsi_slice_of(batch->input->routing_key);
    qs_status status;

    if (array->exchange.present) {
        exchange = or_default(qsi_arrow_bytes(&array->exchange, row), batch->input->exchange);
    }
    if (array->routing_key.present) {
        key = or_default(qsi_arrow_bytes(&array->routing_key, row), batch->input->routing_key);
    }
    status = intern(batch, exchange, key, code_out, error);
    if (status == QS_EINVAL) {
        for (const struct qsi_arrow_batch *each = batch->arrays; each != array; each++) {
            row += each->rows;
        }
        qsi_error_prefix(error, "row %llu", (unsigned long long)row);
    }
    return status;
}

/* The entries of a column's dictionary, and one for null; 1: there is no column; 0: no
 * dictionary. */
static uint64_t count_entries(const struct qsi_arrow_bytes_column *column)
{
    if (!column->present) {
        return 1;
    }
    return qsi_arrow_has_dictionary(column) ? qsi_arrow_dictionary_count(column) + 1 : 0;
}

static uint64_t entry_of(const struct qsi_arrow_bytes_column *column, uint64_t count, uint64_t row)
{
    int64_t code = column->present ? qsi_arrow_code(column, row) : -1;
    uint64_t entry = code < 0 ? count - 1 : (uint64_t)code;

    QS_DCHECK(entry < count); /* the array was checked */
    return entry;
}

/* Whether a look-up for each pair of entries costs less than one for each row. */
static bool is_worth_pairs(const struct qsi_arrow_batch *array, uint64_t exchanges, uint64_t keys)
{
    return exchanges > 0 && keys > 0 &&
           (exchanges == 1 || exchanges <= (PAIRS_MIN + array->rows) / keys);
}

/* One look-up for each pair of dictionary entries instead of one for each row. */
static qs_status code_dictionaries(struct qsi_batch *batch, const struct qsi_arrow_batch *array,
                                   uint64_t exchanges, uint64_t keys, uint32_t *codes,
                                   qs_error *error)
{
    uint32_t *known = qsi_alloc(exchanges * keys * sizeof *known);
    qs_status status = QS_OK;

    if (known == NULL) {
        return qsi_batch_no_memory(error);
    }
    memset(known, 0xff, exchanges * keys * sizeof *known);
    for (uint64_t row = 0; status == QS_OK && row < array->rows; row++) {
        uint64_t pair = entry_of(&array->exchange, exchanges, row) * keys +
                        entry_of(&array->routing_key, keys, row);
        if (known[pair] == NO_CODE) {
            status = intern_row(batch, array, row, &known[pair], error);
        }
        codes[row] = known[pair];
    }
    qsi_free(known);
    return status;
}

static qs_status reserve_codes(struct qsi_batch *batch, const struct qsi_arrow_batch *array,
                               qs_error *error)
{
    if (array->rows > batch->code_capacity) {
        qsi_free(batch->codes);
        batch->code_capacity = 0;
        batch->codes = qsi_alloc(array->rows * sizeof *batch->codes);
        if (batch->codes == NULL) {
            return qsi_batch_no_memory(error);
        }
        batch->code_capacity = array->rows;
    }
    return QS_OK;
}

qs_status qsi_batch_code_rows(struct qsi_batch *batch, const struct qsi_arrow_batch *array,
                              qs_error *error)
{
    uint64_t exchanges = count_entries(&array->exchange);
    uint64_t keys = count_entries(&array->routing_key);

    QS_TRY(reserve_codes(batch, array, error));
    if (is_worth_pairs(array, exchanges, keys)) {
        return code_dictionaries(batch, array, exchanges, keys, batch->codes, error);
    }
    for (uint64_t row = 0; row < array->rows; row++) {
        QS_TRY(intern_row(batch, array, row, &batch->codes[row], error));
    }
    return QS_OK;
}

qs_status qsi_batch_find_routes(struct qsi_batch *batch, qs_error *error)
{
    uint32_t code;

    for (size_t i = 0; i < batch->input->array_count; i++) {
        const struct qsi_arrow_batch *array = &batch->arrays[i];
        if (!qsi_batch_has_route_columns(array)) {
            QS_TRY(intern(batch, qsi_slice_of(batch->input->exchange),
                          qsi_slice_of(batch->input->routing_key), &code, error));
            continue;
        }
        QS_TRY(qsi_batch_code_rows(batch, array, error));
    }
    return QS_OK;
}

qs_status qsi_batch_code_all_rows(struct qsi_batch *batch, qs_error *error)
{
    uint32_t *codes;

    QS_DCHECK(batch->refined == NULL);
    batch->refined = qsi_zalloc(batch->row_count * sizeof *batch->refined);
    if (batch->refined == NULL) {
        return qsi_batch_no_memory(error);
    }
    codes = batch->refined;
    for (size_t i = 0; i < batch->input->array_count; i++) {
        const struct qsi_arrow_batch *array = &batch->arrays[i];
        if (qsi_batch_has_route_columns(array)) {
            QS_TRY(qsi_batch_code_rows(batch, array, error));
            if (array->rows > 0) {
                memcpy(codes, batch->codes, array->rows * sizeof *codes);
            }
        }
        codes += array->rows;
    }
    return QS_OK;
}

/* ---- looking routes up, under the lock ---- */

qs_status qsi_batch_add_destination(struct qsi_batch *batch,
                                    const struct qsi_batch_destination *destination,
                                    uint32_t *index_out, qs_error *error)
{
    struct qsi_map *known = &batch->destination_codes;
    uint64_t id = destination->queue_id;
    uintptr_t found = (uintptr_t)qsi_map_get_number(known, id);

    if (found != 0) {
        *index_out = (uint32_t)(found - 1);
        return QS_OK;
    }
    QS_TRY(grow((void **)&batch->destinations, &batch->destination_capacity,
                batch->destination_count + 1, sizeof *batch->destinations, error));
    *index_out = batch->destination_count++;
    QS_DCHECK(destination->record_code == NO_CODE);
    batch->destinations[*index_out] = *destination;
    if (qsi_map_put_number(known, id, (void *)((uintptr_t)*index_out + 1)) != QS_OK) {
        return qsi_batch_no_memory(error);
    }
    return QS_OK;
}

qs_status qsi_batch_look_up(struct qsi_batch *batch, struct qsi_batch_route *route,
                            const struct qsi_properties *properties, bool has_copies,
                            qs_error *error)
{
    const struct qsi_routing routing = {
        .key = route->key,
        .copies = batch->copies.keys,
        .copy_count = has_copies ? batch->copies.count : 0,
        .headers = qsi_properties_text(properties, QSI_PROPERTY_HEADERS),
        .properties = properties,
    };
    const struct qsi_route *found;

    QS_ASSERT_HELD(&batch->store->mutex);
    QS_TRY(qsi_router_lookup(&batch->store->router, route->exchange, &routing, &found, error));
    route->by_headers = found->by_headers;
    route->by_properties = found->by_properties;
    if (found->count == 0) {
        return QS_OK;
    }
    QS_DCHECK(route->destinations == NULL && route->destination_count == 0);
    route->destinations = qsi_alloc(found->count * sizeof *route->destinations);
    if (route->destinations == NULL) {
        return qsi_batch_no_memory(error);
    }
    for (uint32_t i = 0; i < found->count; i++) {
        const struct qsi_store_queue *queue = qsi_queue_of(found->destinations[i]);
        const struct qsi_batch_destination destination = {
            .queue_id = queue->container.id,
            .durable = (queue->flags & QS_DURABLE) != 0,
            .keeps_all = qsi_keeps_all(queue),
            .is_direct = qsi_container_is_direct(queue->messages),
            .priority_max = queue->policy.priority_max,
            .record_code = NO_CODE,
        };
        QS_TRY(qsi_batch_add_destination(batch, &destination, &route->destinations[i], error));
        route->durable = route->durable || (queue->flags & QS_DURABLE) != 0;
        batch->keeps_all = batch->keeps_all || queue->policy.keeps_all;
    }
    route->destination_count = found->count;
    return QS_OK;
}

qs_status qsi_batch_look_up_routes(struct qsi_batch *batch, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_channel_enter(batch->channel, error));
    batch->return_rules = qsi_return_rules(batch->channel);
    qsi_router_trim(&batch->store->router);
    status = qsi_store_check_failed(batch->store, error);
    for (uint32_t i = 0; status == QS_OK && i < batch->route_count; i++) {
        status = qsi_batch_look_up(batch, &batch->routes[i], &batch->defaults, true, error);
    }
    if (status == QS_OK && batch->row_count > 0) {
        status = qsi_copies_check(&batch->copies, error);
    }
    return qsi_channel_leave(batch->channel, status);
}
