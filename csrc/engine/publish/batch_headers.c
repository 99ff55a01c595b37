/* Rows whose own headers, or properties, decide their route.
 *
 * A route is first looked up once for all of its rows, with the properties that they have in
 * common.  If an exchange on the route looks at headers, rows with headers of their own are looked
 * up again: some thousand at a time, equal headers once.  So are rows with their own values of
 * properties that selectors read; only these properties of a row count.  The result is one route
 * for each set of queues, so the records of a batch do not grow with the number of different
 * headers. */
#include "alloc.h"
#include "batch.h"
#include "check.h"
#include "enter.h"

#include <string.h>

#define ROWS_AT_ONCE 4096u

/* Rows of one route with the same properties, among rows that are looked up together. */
struct variant {
    struct base {
        uint32_t code;       /* the route by name */
        uint32_t has_copies; /* the defaults' carbon copies: the row has no headers of its own */
    } base;
    uint32_t code; /* the route of these properties */
    uint64_t at;   /* of its properties in refining.blobs */
    uint32_t bytes;
};

struct refining {
    struct qsi_batch *batch;
    struct qsi_map known;    /* base and properties -> index in variants + 1 */
    struct qsi_map finished; /* base and destinations -> code + 1 */
    struct qsi_buf variants; /* struct variant */
    struct qsi_buf blobs;    /* base and encoded properties of each */
    struct qsi_buf key;      /* of finished, under construction */
};

static struct variant *variant_at(const struct refining *refining, uint64_t index)
{
    QS_DCHECK(index < refining->variants.bytes / sizeof(struct variant));
    return (struct variant *)(void *)refining->variants.data + index;
}

/* ---- CC and BCC ---- */

qs_status qsi_batch_check_headers(const struct qsi_batch *batch, qs_error *error)
{
    uint64_t rows_before = 0;

    for (size_t i = 0; i < batch->input->array_count; i++) {
        QS_TRY(qsi_arrow_check_headers(&batch->arrays[i], rows_before, error));
        rows_before += batch->arrays[i].rows;
    }
    return QS_OK;
}

/* ---- some rows at a time ---- */

/* Whether rows of this route with headers of their own take the same route as the others. */
static bool is_settled(const struct qsi_batch *batch, uint32_t code)
{
    QS_DCHECK(code < batch->route_count);
    return !batch->routes[code].by_headers && batch->copies.count == 0;
}

/* Whether the row has headers of its own, or a column that selectors of its route read. */
static bool may_differ(const struct qsi_batch_route *route, const struct qsi_arrow_batch *array,
                       uint64_t row)
{
    struct qsi_arrow_entries entries;

    return route->by_properties != 0 || qsi_arrow_row_headers(array, row, &entries);
}

/* The row's own bytes; those of the defaults are counted already. */
static bool row_has_headers(const struct qsi_arrow_row *row)
{
    return qsi_properties_has(&row->properties, QSI_PROPERTY_HEADERS) &&
           row->properties.text[QSI_PROPERTY_HEADERS].data == NULL;
}

/* The variant of a row, new or not; its index replaces the row's code. */
static qs_status add_row(struct refining *refining, const struct qsi_arrow_batch *array,
                         const struct qsi_arrow_row *row, uint64_t blob_bytes, uint32_t *code_io)
{
    struct variant variant = {
        .base = {*code_io, !row_has_headers(row)},
        .at = refining->blobs.bytes,
    };
    uint64_t bytes = sizeof variant.base + blob_bytes;
    uint64_t index = refining->variants.bytes / sizeof variant;
    uintptr_t found;
    uint8_t *key;

    QS_TRY(qsi_buf_reserve(&refining->blobs, bytes, &key));
    memcpy(key, &variant.base, sizeof variant.base);
    qsi_arrow_row_encode(key + sizeof variant.base, row, array);
    found = (uintptr_t)qsi_map_get(&refining->known, key, bytes);
    if (found != 0) {
        *code_io = (uint32_t)(found - 1);
        return QS_OK;
    }
    variant.at += sizeof variant.base;
    variant.bytes = (uint32_t)blob_bytes;
    QS_TRY(qsi_buf_append(&refining->variants, &variant, sizeof variant));
    QS_TRY(qsi_map_put(&refining->known, key, bytes, (void *)(uintptr_t)(index + 1)));
    refining->blobs.bytes += bytes;
    *code_io = (uint32_t)index;
    return QS_OK;
}

/* The row's properties that its route depends on.  Returns their bytes. */
static uint64_t read_row(const struct qsi_batch *batch, const struct qsi_batch_route *route,
                         const struct qsi_arrow_batch *array, uint64_t row,
                         struct qsi_arrow_row *row_out)
{
    uint64_t bytes = qsi_arrow_row_begin(row_out, array, row, &batch->defaults);

    if (bytes > batch->store->options.body_bytes_max) {
        return bytes;
    }
    row_out->properties.present &= route->by_properties | qsi_property_flag(QSI_PROPERTY_HEADERS);
    return qsi_properties_bytes(&row_out->properties);
}

static qs_status make_key(struct refining *refining, uint32_t base,
                          const struct qsi_batch_route *route)
{
    QS_DCHECK(base < refining->batch->route_count);
    qsi_buf_clear(&refining->key);
    QS_TRY(qsi_buf_append(&refining->key, &base, sizeof base));
    return route->destination_count == 0
               ? QS_OK
               : qsi_buf_append(&refining->key, route->destinations,
                                route->destination_count * sizeof *route->destinations);
}

/* The only route of these names to these queues: route is used, or freed if there is one. */
static qs_status finish(struct refining *refining, uint32_t base, struct qsi_batch_route *route,
                        uint32_t *code_out, qs_error *error)
{
    uintptr_t found;
    qs_status status = make_key(refining, base, route);

    if (status == QS_OK) {
        found =
            (uintptr_t)qsi_map_get(&refining->finished, refining->key.data, refining->key.bytes);
        if (found != 0) {
            *code_out = (uint32_t)(found - 1);
            qsi_free(route->destinations);
            return QS_OK;
        }
        status = qsi_batch_add_route(refining->batch, route, code_out, error);
    }
    if (status != QS_OK) {
        qsi_free(route->destinations);
        return status;
    }
    QS_DCHECK(*code_out < refining->batch->route_count);
    return qsi_map_put(&refining->finished, refining->key.data, refining->key.bytes,
                       (void *)((uintptr_t)*code_out + 1));
}

static qs_status look_up_variant(struct refining *refining, struct variant *variant,
                                 qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_batch_route *base = &refining->batch->routes[variant->base.code];
    struct qsi_batch_route route = {
        .exchange = base->exchange, .key = base->key, .record_code = NO_CODE};
    struct qsi_properties properties;
    qs_status status = qsi_properties_decode(&properties, refining->blobs.data + variant->at,
                                             variant->bytes, error);

    QS_DCHECK(variant->at + variant->bytes <= refining->blobs.bytes);
    if (status == QS_OK) {
        status = qsi_batch_look_up(refining->batch, &route, &properties,
                                   variant->base.has_copies != 0, error);
    }
    if (status != QS_OK) {
        qsi_free(route.destinations);
        return status;
    }
    return finish(refining, variant->base.code, &route, &variant->code, error);
}

static qs_status look_up_variants(struct refining *refining, qs_error *error)
{
    struct qsi_batch *batch = refining->batch;
    uint64_t count = refining->variants.bytes / sizeof(struct variant);
    qs_status status;

    if (count == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_channel_enter(batch->channel, error));
    qsi_router_trim(&batch->store->router);
    status = qsi_store_check_failed(batch->store, error);
    for (uint64_t i = 0; status == QS_OK && i < count; i++) {
        status = look_up_variant(refining, variant_at(refining, i), error);
    }
    return qsi_channel_leave(batch->channel, status);
}

/* codes: of the rows [from, to) of the array. */
static qs_status refine_rows(struct refining *refining, const struct qsi_arrow_batch *array,
                             uint64_t from, uint64_t to, uint32_t *codes, qs_error *error)
{
    bool is_variant[ROWS_AT_ONCE] = {false};
    const struct qsi_batch *batch = refining->batch;
    struct qsi_arrow_row values;
    uint64_t bytes;

    QS_DCHECK(to - from <= ROWS_AT_ONCE);
    qsi_map_fini(&refining->known);
    qsi_buf_clear(&refining->variants);
    qsi_buf_clear(&refining->blobs);
    for (uint64_t row = from; row < to; row++) {
        uint32_t *code = &codes[row - from];
        const struct qsi_batch_route *route = &batch->routes[*code];
        if (is_settled(batch, *code) || !may_differ(route, array, row)) {
            continue;
        }
        bytes = read_row(batch, route, array, row, &values);
        if (bytes <= batch->store->options.body_bytes_max) { /* else measuring refuses it */
            QS_TRY(add_row(refining, array, &values, bytes, code));
            is_variant[row - from] = true;
        }
    }
    QS_TRY(look_up_variants(refining, error));
    for (uint64_t i = 0; i < to - from; i++) {
        if (is_variant[i]) {
            QS_DCHECK(variant_at(refining, codes[i])->code < refining->batch->route_count);
            codes[i] = variant_at(refining, codes[i])->code;
        }
    }
    return QS_OK;
}

static qs_status refine_array(struct refining *refining, const struct qsi_arrow_batch *array,
                              uint32_t *codes, qs_error *error)
{
    for (uint64_t from = 0, to; from < array->rows; from = to) {
        to = array->rows - from > ROWS_AT_ONCE ? from + ROWS_AT_ONCE : array->rows;
        QS_TRY(refine_rows(refining, array, from, to, codes + from, error));
    }
    return QS_OK;
}

/* ---- the whole ---- */

static qs_status record_finished(struct refining *refining)
{
    struct qsi_batch *batch = refining->batch;

    for (uint32_t code = 0; code < batch->route_count; code++) {
        if (!is_settled(batch, code)) {
            QS_TRY(make_key(refining, code, &batch->routes[code]));
            QS_TRY(qsi_map_put(&refining->finished, refining->key.data, refining->key.bytes,
                               (void *)((uintptr_t)code + 1)));
        }
    }
    return QS_OK;
}

static bool needs_refining(const struct qsi_batch *batch)
{
    for (uint32_t code = 0; code < batch->route_count; code++) {
        if (!is_settled(batch, code)) {
            return true;
        }
    }
    return false;
}

static qs_status refine(struct refining *refining, qs_error *error)
{
    struct qsi_batch *batch = refining->batch;
    uint32_t *codes;

    QS_TRY(qsi_batch_code_all_rows(batch, error)); /* no route is added by name afterwards */
    QS_TRY(record_finished(refining));
    codes = batch->refined;
    for (size_t i = 0; i < batch->input->array_count; i++) {
        QS_TRY(refine_array(refining, &batch->arrays[i], codes, error));
        QS_DCHECK(codes + batch->arrays[i].rows <= batch->refined + batch->row_count);
        codes += batch->arrays[i].rows;
    }
    return QS_OK;
}

qs_status qsi_batch_refine_routes(struct qsi_batch *batch, qs_error *error)
{
    struct refining refining = {.batch = batch};
    qs_status status;

    if (batch->row_count == 0 || !qsi_arrow_has_properties(&batch->arrays[0])) {
        return QS_OK;
    }
    QS_TRY(qsi_batch_check_headers(batch, error));
    if (!needs_refining(batch)) {
        return QS_OK;
    }
    status = refine(&refining, error);
    qsi_map_fini(&refining.known);
    qsi_map_fini(&refining.finished);
    qsi_buf_fini(&refining.variants);
    qsi_buf_fini(&refining.blobs);
    qsi_buf_fini(&refining.key);
    if (status == QS_ENOMEM) {
        qsi_batch_no_memory(error);
    }
    return status;
}
