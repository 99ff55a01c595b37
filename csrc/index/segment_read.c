/* Reads messages of a segment into one messages record, in the journal's format.
 *
 * Invariant: the record has only checked messages; for each damaged message it has the place of the
 * damage. */
#include "alloc.h"
#include "check.h"
#include "chunk.h"
#include "error.h"
#include "record.h"
#include "segment_file.h"

#include <string.h>

#define ROUTES_COMPARED 4u /* with more alternating routes, routes are repeated */
#define NO_ROW UINT32_MAX

/* The record being made. */
struct build {
    struct qsi_gather gather;
    const struct qsi_segment_view *view;
    struct qsi_messages_layout layout;
    /* u32 for each route: the index of its first envelope; NO_ENVELOPE: the route of references. */
    struct qsi_buf routes;
    uint32_t *codes; /* of the rows; NULL with one route */
    uint32_t reference_route;
    bool has_reference_route;
    bool has_properties; /* properties is that of the first row */
    bool differ;         /* some row has different properties */
    struct qsi_slice properties;
    uint64_t properties_bytes;
};
#define NO_ENVELOPE UINT32_MAX

static const struct qsi_slice no_properties = {(const uint8_t *)"", 0};

static void build_fini(struct build *build)
{
    qsi_gather_fini(&build->gather);
    qsi_buf_fini(&build->routes);
    qsi_free(build->codes);
}

static const uint32_t *routes_of(const struct build *build)
{
    return (const uint32_t *)(const void *)build->routes.data;
}

/* -- routes and properties -------------------------------------------------------------------- */

static qs_status add_route(struct build *build, uint32_t envelope, struct qsi_slice exchange,
                           struct qsi_slice key, uint32_t *route_out)
{
    QS_TRY(qsi_buf_append(&build->routes, &envelope, sizeof envelope));
    *route_out = build->layout.route_count++;
    build->layout.routes_bytes += qsi_route_bytes(exchange.bytes, key.bytes, 1);
    return QS_OK;
}

static bool same_bytes(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
}

static qs_status find_route(struct build *build, uint32_t index)
{
    struct qsi_row_envelope *envelopes = qsi_gather_envelopes(&build->gather);
    struct qsi_row_envelope *envelope = &envelopes[index];
    const uint32_t *routes = routes_of(build);
    uint32_t count = build->layout.route_count;

    QS_DCHECK(index < build->gather.envelope_count);
    for (uint32_t i = 0; i < ROUTES_COMPARED && i < count; i++) {
        uint32_t other = routes[count - 1 - i];

        if (other != NO_ENVELOPE && same_bytes(envelopes[other].exchange, envelope->exchange) &&
            same_bytes(envelopes[other].key, envelope->key)) {
            envelope->route = count - 1 - i;
            return QS_OK;
        }
    }
    return add_route(build, index, envelope->exchange, envelope->key, &envelope->route);
}

/* Finds the route of references.  A reference is stored without exchange and routing key: the
 * message store has them with the body. */
static qs_status find_reference_route(struct build *build)
{
    if (build->has_reference_route) {
        return QS_OK;
    }
    build->has_reference_route = true;
    return add_route(build, NO_ENVELOPE, no_properties, no_properties, &build->reference_route);
}

static void compare_properties(struct build *build, struct qsi_slice properties)
{
    if (!build->has_properties) {
        build->has_properties = true;
        build->properties = properties;
    } else if (!build->differ && !same_bytes(build->properties, properties)) {
        build->differ = true;
    }
}

/* Counts the needs of the rows; rows with one envelope share them. */
static qs_status plan_rows(struct build *build)
{
    struct qsi_row_envelope *envelopes = qsi_gather_envelopes(&build->gather);
    const struct qsi_row *row = qsi_gather_rows(&build->gather);
    uint64_t bodies = 0;
    uint64_t properties = 0;

    for (uint32_t i = 0; i < build->gather.row_count; i++, row++) {
        if (row->kind != QSI_ROW_EMBEDDED) {
            build->layout.flags |= QSI_MESSAGES_HAS_STORED;
            QS_TRY(find_reference_route(build));
            compare_properties(build, no_properties);
            bodies += row->kind == QSI_ROW_STORED ? QSI_BODY_REF_BYTES : QSI_BODY_DAMAGE_BYTES;
            continue;
        }
        if (!envelopes[row->envelope].has_route) {
            envelopes[row->envelope].has_route = true;
            QS_TRY(find_route(build, row->envelope));
            compare_properties(build, envelopes[row->envelope].properties);
        }
        bodies += row->body_bytes;
        properties += envelopes[row->envelope].properties.bytes;
    }
    build->layout.bodies_bytes = bodies;
    build->layout.properties_bytes = build->differ ? properties : build->properties.bytes;
    build->layout.flags |= build->differ ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0;
    return QS_OK;
}

/* -- filling the record ----------------------------------------------------------------------- */

static void put_routes(const struct build *build, uint8_t *record)
{
    const struct qsi_row_envelope *envelopes = qsi_gather_envelopes(&build->gather);
    const uint32_t *routes = routes_of(build);
    const uint32_t destination = 0;
    uint64_t at = 0;

    for (uint32_t i = 0; i < build->layout.route_count; i++) {
        struct qsi_slice exchange = no_properties;
        struct qsi_slice key = no_properties;
        QS_DCHECK(routes[i] == NO_ENVELOPE || routes[i] < build->gather.envelope_count);

        if (routes[i] != NO_ENVELOPE) {
            exchange = envelopes[routes[i]].exchange;
            key = envelopes[routes[i]].key;
        }
        qsi_messages_put_route(record, &build->layout, i, &at, exchange, key, &destination, 1);
    }
}

static void put_row_routes(struct build *build, uint8_t *record)
{
    const struct qsi_row_envelope *envelopes = qsi_gather_envelopes(&build->gather);
    const struct qsi_row *rows = qsi_gather_rows(&build->gather);

    if (build->codes == NULL) {
        return;
    }
    for (uint32_t i = 0; i < build->gather.row_count; i++) {
        build->codes[i] = rows[i].kind == QSI_ROW_EMBEDDED ? envelopes[rows[i].envelope].route
                                                           : build->reference_route;
    }
    QS_DCHECK(build->layout.route_count > 1);
    qsi_messages_put_row_routes(record, &build->layout, build->codes);
}

static void put_properties(const struct build *build, uint8_t *record)
{
    const struct qsi_row_envelope *envelopes = qsi_gather_envelopes(&build->gather);
    const struct qsi_row *rows = qsi_gather_rows(&build->gather);
    uint8_t *offsets = qsi_messages_properties_place(record, &build->layout);
    uint8_t *blobs = offsets + 4 * ((size_t)build->gather.row_count + 1);
    uint32_t at = 0;

    if (!build->differ) {
        qsi_put_u32(offsets, build->properties.bytes);
        memcpy(offsets + 4, build->properties.data, build->properties.bytes);
        return;
    }
    for (uint32_t i = 0; i < build->gather.row_count; i++) {
        qsi_put_u32(offsets + 4 * (size_t)i, at);
        if (rows[i].kind == QSI_ROW_EMBEDDED) {
            struct qsi_slice blob = envelopes[rows[i].envelope].properties;

            memcpy(blobs + at, blob.data, blob.bytes);
            at += blob.bytes;
        }
    }
    QS_DCHECK(at == build->layout.properties_bytes);
    qsi_put_u32(offsets + 4 * (size_t)build->gather.row_count, at);
}

/* Adjacent bodies of the file, which are copied at once. */
struct copy {
    uint8_t *out;
    const uint8_t *from;
    size_t bytes;
};

static void copy_flush(struct copy *copy)
{
    if (copy->bytes > 0) {
        memcpy(copy->out, copy->from, copy->bytes);
        copy->out += copy->bytes;
        copy->bytes = 0;
    }
}

/* Returns the bytes of the cell. */
static uint32_t put_stored(const struct build *build, uint8_t *out, uint8_t *stored, uint32_t index)
{
    const struct qsi_row *row = qsi_gather_rows(&build->gather) + index;

    stored[index / 8] |= (uint8_t)(1u << index % 8);
    if (row->kind == QSI_ROW_STORED) {
        struct qsi_body_ref ref = qsi_row_ref(row);
        qsi_body_ref_encode(out, &ref);
        return QSI_BODY_REF_BYTES;
    }
    struct qsi_body_damage damage = qsi_segment_damage(build->view->file, row->slot, row->where);
    qsi_body_damage_encode(out, &damage);
    return QSI_BODY_DAMAGE_BYTES;
}

static void put_bodies(const struct build *build, uint8_t *record)
{
    const struct qsi_row *row = qsi_gather_rows(&build->gather);
    uint8_t *stored = qsi_messages_stored_place(record, &build->layout);
    uint8_t *offset = qsi_messages_body_offsets_place(record, &build->layout);
    struct copy copy = {.out = qsi_messages_bodies_place(record, &build->layout)};
    uint32_t at = 0;

    for (uint32_t i = 0; i < build->gather.row_count; i++, row++, offset += 4) {
        qsi_put_u32(offset, at);
        if (QS_LIKELY(row->kind == QSI_ROW_EMBEDDED)) {
            const uint8_t *body = build->gather.heap + row->heap_index;

            if (body != copy.from + copy.bytes) {
                copy_flush(&copy);
                copy.from = body;
            }
            copy.bytes += row->body_bytes;
            at += row->body_bytes;
        } else {
            uint32_t bytes;
            copy_flush(&copy);
            copy.from = NULL;
            bytes = put_stored(build, copy.out, stored, i);
            copy.out += bytes;
            at += bytes;
        }
    }
    copy_flush(&copy);
    qsi_put_u32(offset, at);
}

static void fill(struct build *build, uint8_t *record)
{
    const struct qsi_segment_view *view = build->view;
    const struct qsi_row *first = qsi_gather_rows(&build->gather);

    qsi_messages_begin(record, &build->layout);
    qsi_messages_put_destination(record, 0, view->file->queue_id,
                                 qsi_segment_view_sequence(view, first->slot),
                                 build->gather.row_count);
    put_routes(build, record);
    put_row_routes(build, record);
    put_properties(build, record);
    put_bodies(build, record);
}

/* -- load ------------------------------------------------------------------------------------- */

static qs_status fail_memory(const struct build *build, qs_error *error)
{
    return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "reading messages"),
                            build->view->file);
}

/* Maps slots to rows; load->rows stays NULL if every slot has a row. */
static qs_status map_rows(const struct build *build, struct qsi_segment_load *load, qs_error *error)
{
    const struct qsi_row *rows = qsi_gather_rows(&build->gather);
    uint32_t row_count = build->gather.row_count;

    load->first = rows[0].slot;
    load->count = rows[row_count - 1].slot + 1 - load->first;
    if (load->count == row_count) {
        return QS_OK;
    }
    QS_DCHECK(load->count > row_count);
    load->rows = qsi_alloc(load->count * sizeof *load->rows);
    if (load->rows == NULL) {
        return fail_memory(build, error);
    }
    for (uint32_t i = 0; i < load->count; i++) {
        load->rows[i] = NO_ROW;
    }
    for (uint32_t i = 0; i < row_count; i++) {
        load->rows[rows[i].slot - load->first] = i;
    }
    return QS_OK;
}

static qs_status make_record(struct build *build, struct qsi_segment_load *load, qs_error *error)
{
    build->layout.row_count = build->gather.row_count;
    build->layout.destination_count = 1;
    if (plan_rows(build) != QS_OK) {
        return fail_memory(build, error);
    }
    QS_DCHECK(build->layout.route_count > 0);
    QS_TRY(qsi_messages_layout(&build->layout, error));
    if (build->layout.route_count > 1) {
        build->codes = qsi_alloc(build->gather.row_count * sizeof *build->codes);
        if (build->codes == NULL) {
            return fail_memory(build, error);
        }
    }
    load->chunk = qsi_chunk_create_reusable(load->budget, (size_t)build->layout.record_bytes);
    if (load->chunk == NULL) {
        return fail_memory(build, error);
    }
    fill(build, load->chunk->data);
    load->chunk->used = (size_t)build->layout.record_bytes;
    load->has_stored = (build->layout.flags & QSI_MESSAGES_HAS_STORED) != 0;
    load->damaged_count = build->gather.damaged_count;
    return QS_OK;
}

static qs_status load_from(const struct qsi_segment_view *view, struct qsi_segment_load *load,
                           qs_error *error)
{
    struct build build = {.view = view};
    uint32_t next;
    qs_status status = qsi_gather_slots(&build.gather, view, load->from, load->to, load->wanted,
                                        load->bytes_max, &next, error);

    if (status == QS_OK) {
        status = qsi_gather_heap(&build.gather, view, error);
    }
    if (status == QS_OK) {
        status = map_rows(&build, load, error);
    }
    if (status == QS_OK) {
        status = make_record(&build, load, error);
    }
    build_fini(&build);
    return status;
}

qs_status qsi_segment_load(struct qsi_index *index, const struct qsi_segment_file *file,
                           struct qsi_segment_load *load, qs_error *error)
{
    struct qsi_segment_view view;
    qs_status status;

    QS_ASSERT(load->from <= load->to && load->to <= index->entries);
    load->chunk = NULL;
    load->rows = NULL;
    load->first = load->from;
    load->count = 0;
    load->has_stored = false;
    load->damaged_count = 0;
    if (qsi_bitmap_next(load->wanted, load->from, load->to) == load->to) {
        return QS_OK;
    }
    QS_TRY(qsi_segment_view_open(&view, index, file, QS_OPEN_READ, error));
    status = qsi_segment_load_plain(&view, load, error);
    if (status == QS_OK && load->chunk == NULL) {
        status = load_from(&view, load, error);
    }
    qsi_segment_view_close(&view);
    if (status != QS_OK) {
        qsi_free(load->rows);
        load->rows = NULL;
        load->count = 0;
    }
    return status;
}
