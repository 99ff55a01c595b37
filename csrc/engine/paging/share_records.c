/* Writes bodies that move to the message store, and builds the records of their chunk again with
 * references in place of them.  All of it runs without the lock: it reads a chunk, which does not
 * change, and notes about it.
 *
 * The record builder makes records for one queue, of the rows that it keeps.  Here several queues
 * have the record and name its rows by number, so the copy has the same rows, routes and
 * destinations, each in its place. */
#include "share_records.h"

#include "alloc.h"
#include "check.h"
#include "error.h"
#include "record.h"

#include <string.h>

#define PACK_BYTES_MAX (1u << 20)
#define PACK_BODIES_MAX 4096u

/* ---- bodies ---- */

static qs_status write_pack(struct qsi_sharing *sharing, const struct qsi_pack_body *bodies,
                            struct qsi_body_ref **targets, uint32_t count, qs_error *error)
{
    struct qsi_body_ref *refs = qsi_alloc((count + 1) * sizeof *refs);
    struct qsi_place place = {0};
    uint8_t *room;
    qs_status status = QS_ENOMEM;

    QS_DCHECK(count > 0 && count <= PACK_BODIES_MAX);
    if (refs != NULL && qsi_buf_reserve(&sharing->places, sizeof place, &room) == QS_OK) {
        status = qsi_message_store_write_pack(sharing->store->messages, bodies, count, refs, &place,
                                              error);
    }
    for (uint32_t i = 0; status == QS_OK && i < count; i++) {
        *targets[i] = refs[i];
    }
    qsi_free(refs);
    return status == QS_OK ? qsi_buf_append(&sharing->places, &place, sizeof place) : status;
}

struct packing {
    struct qsi_pack_body bodies[PACK_BODIES_MAX];
    struct qsi_body_ref *targets[PACK_BODIES_MAX];
    uint32_t count;
    uint64_t bytes;
};

static qs_status pack_record(struct qsi_sharing *sharing, struct packing *packing,
                             const struct qsi_moved_record *record, qs_error *error)
{
    struct qsi_messages view;

    qsi_messages_view(&view, sharing->chunk->data + record->at);
    for (uint32_t row = 0; row < view.row_count; row++) {
        struct qsi_body_ref *ref =
            &ITEMS(sharing->refs, struct qsi_body_ref)[record->first_row + row];
        struct qsi_route_view route;
        if (ref->file == 0) {
            continue;
        }
        route = qsi_messages_route(&view, qsi_messages_row_route(&view, row));
        QS_DCHECK(packing->count < PACK_BODIES_MAX);
        packing->targets[packing->count] = ref;
        packing->bodies[packing->count] =
            (struct qsi_pack_body){route.exchange, route.key, qsi_messages_properties(&view, row),
                                   qsi_messages_body(&view, row)};
        packing->bytes += packing->bodies[packing->count].body.bytes;
        packing->count += 1;
        if (packing->count == PACK_BODIES_MAX || packing->bytes >= PACK_BYTES_MAX) {
            QS_TRY(write_pack(sharing, packing->bodies, packing->targets, packing->count, error));
            packing->count = 0;
            packing->bytes = 0;
        }
    }
    return QS_OK;
}

qs_status qsi_sharing_write(struct qsi_sharing *sharing, qs_error *error)
{
    struct packing *packing = qsi_alloc(sizeof *packing);
    const struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);
    qs_status status = QS_OK;

    if (packing == NULL) {
        return qsi_fail(error, QS_ENOMEM, "bodies");
    }
    packing->count = 0;
    packing->bytes = 0;
    for (uint32_t i = 0; status == QS_OK && i < COUNT(sharing->records, struct qsi_moved_record);
         i++) {
        if (records[i].first_row != UINT32_MAX) {
            status = pack_record(sharing, packing, &records[i], error);
        }
    }
    if (status == QS_OK && packing->count > 0) {
        status = write_pack(sharing, packing->bodies, packing->targets, packing->count, error);
    }
    qsi_free(packing);
    return status;
}

/* ---- records ---- */

/* The layout of the record with references for bodies. */
static qs_status new_layout(const struct qsi_messages *view, struct qsi_messages_layout *layout)
{
    bool per_row = (view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0;

    QS_DCHECK(view->stored == NULL && view->destination_count > 1);
    *layout = (struct qsi_messages_layout){
        .row_count = view->row_count,
        .route_count = view->route_count,
        .destination_count = view->destination_count,
        .properties_bytes = per_row ? 0 : qsi_messages_properties(view, 0).bytes,
        .bodies_bytes = (uint64_t)view->row_count * QSI_BODY_REF_BYTES,
        .flags = (uint8_t)(view->flags | QSI_MESSAGES_HAS_STORED),
    };
    for (uint32_t i = 0; i < view->route_count; i++) {
        struct qsi_route_view route = qsi_messages_route(view, i);
        layout->routes_bytes +=
            qsi_route_bytes(route.exchange.bytes, route.key.bytes, route.destination_count);
    }
    return qsi_messages_layout(layout, NULL);
}

static qs_status copy_routes(uint8_t *out, const struct qsi_messages_layout *layout,
                             const struct qsi_messages *view)
{
    uint32_t *codes = qsi_alloc((view->row_count + view->destination_count + 1) * sizeof *codes);
    uint64_t at = 0;

    if (codes == NULL) {
        return QS_ENOMEM;
    }
    for (uint32_t i = 0; i < view->route_count; i++) {
        struct qsi_route_view route = qsi_messages_route(view, i);
        for (uint32_t k = 0; k < route.destination_count; k++) {
            codes[k] = qsi_get_u32(route.destinations + 4 * (size_t)k);
        }
        qsi_messages_put_route(out, layout, i, &at, route.exchange, route.key, codes,
                               route.destination_count);
    }
    QS_DCHECK(at == layout->routes_bytes);
    if (layout->row_route_width > 0) {
        for (uint32_t row = 0; row < view->row_count; row++) {
            codes[row] = qsi_messages_row_route(view, row);
        }
        qsi_messages_put_row_routes(out, layout, codes);
    }
    qsi_free(codes);
    return QS_OK;
}

static void copy_properties(uint8_t *out, const struct qsi_messages_layout *layout,
                            const struct qsi_messages *view)
{
    uint8_t *at = qsi_messages_properties_place(out, layout);

    if ((view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0) {
        memset(at, 0, 4 * ((size_t)view->row_count + 1)); /* they are in the envelopes */
        return;
    }
    qsi_put_u32(at, (uint32_t)layout->properties_bytes);
    if (layout->properties_bytes > 0) {
        memcpy(at + 4, qsi_messages_properties(view, 0).data, layout->properties_bytes);
    }
}

static qs_status build_record(uint8_t *out, const struct qsi_messages_layout *layout,
                              const struct qsi_messages *view, const struct qsi_body_ref *refs)
{
    uint8_t *stored, *offsets, *bodies;

    qsi_messages_begin(out, layout);
    qsi_messages_put_time(out, qsi_messages_time(view->record));
    QS_TRY(copy_routes(out, layout, view));
    copy_properties(out, layout, view);
    stored = qsi_messages_stored_place(out, layout);
    offsets = qsi_messages_body_offsets_place(out, layout);
    bodies = qsi_messages_bodies_place(out, layout);
    QS_DCHECK(layout->row_count == view->row_count && layout->route_count == view->route_count);
    for (uint32_t row = 0; row < view->row_count; row++) {
        qsi_put_u32(offsets + 4 * (size_t)row, row * QSI_BODY_REF_BYTES);
        stored[row / 8] |= (uint8_t)(1u << (row % 8));
        qsi_body_ref_encode(bodies + (size_t)row * QSI_BODY_REF_BYTES, &refs[row]);
        if (view->expirations != NULL) {
            qsi_messages_put_expiration(out, layout, row, qsi_messages_expiration(view, row));
        }
        if (view->dues != NULL) {
            qsi_messages_put_due(out, layout, row, qsi_messages_due(view, row));
        }
    }
    qsi_put_u32(offsets + 4 * (size_t)view->row_count, view->row_count * QSI_BODY_REF_BYTES);
    for (uint32_t i = 0; i < view->destination_count; i++) {
        qsi_messages_put_destination(out, i, qsi_messages_destination_queue(view, i),
                                     qsi_messages_destination_seq(view, i),
                                     qsi_messages_destination_rows(view, i));
    }
    return QS_OK;
}

static qs_status measure_new(struct qsi_sharing *sharing, uint64_t *bytes_out)
{
    struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);

    *bytes_out = 0;
    for (uint32_t i = 0; i < COUNT(sharing->records, struct qsi_moved_record); i++) {
        const uint8_t *record = sharing->chunk->data + records[i].at;
        struct qsi_messages_layout layout = {.record_bytes = qsi_record_length(record)};
        struct qsi_messages view;
        if (records[i].first_row != UINT32_MAX) {
            qsi_messages_view(&view, record);
            QS_TRY(new_layout(&view, &layout));
        }
        QS_DCHECK(layout.record_bytes % QSI_RECORD_ALIGN == 0);
        records[i].new_at = (uint32_t)*bytes_out;
        *bytes_out += layout.record_bytes;
    }
    return *bytes_out <= UINT32_MAX ? QS_OK : QS_EINVAL;
}

qs_status qsi_sharing_build(struct qsi_sharing *sharing)
{
    const struct qsi_moved_record *records = ITEMS(sharing->records, struct qsi_moved_record);
    uint64_t bytes;

    QS_TRY(measure_new(sharing, &bytes));
    sharing->new_chunk = qsi_chunk_create(bytes);
    if (sharing->new_chunk == NULL) {
        return QS_ENOMEM;
    }
    sharing->new_chunk->used = bytes;
    for (uint32_t i = 0; i < COUNT(sharing->records, struct qsi_moved_record); i++) {
        const uint8_t *record = sharing->chunk->data + records[i].at;
        uint8_t *out = sharing->new_chunk->data + records[i].new_at;
        struct qsi_messages_layout layout;
        struct qsi_messages view;
        if (records[i].first_row == UINT32_MAX) {
            memcpy(out, record, qsi_record_length(record));
            continue;
        }
        QS_DCHECK(records[i].new_at < bytes);
        qsi_messages_view(&view, record);
        QS_TRY(new_layout(&view, &layout));
        QS_TRY(build_record(out, &layout, &view,
                            ITEMS(sharing->refs, struct qsi_body_ref) + records[i].first_row));
    }
    return QS_OK;
}
