/* Building the record batch of messages that were taken, without the lock. */
#include "taken.h"

#include "arrow_properties.h"
#include "content.h"
#include "error.h"
#include "record.h"
#include "stream.h"

#include <string.h>

/* If a body claims to be larger, its existence is checked before room is made for it. */
#define BELIEVED_BYTES (64u << 10)

void qsi_taken_release(struct qsi_buf *buf)
{
    struct qsi_taken *taken = (struct qsi_taken *)(void *)buf->data;

    for (size_t i = 0; i < buf->bytes / sizeof *taken; i++) {
        qsi_chunk_unref(taken[i].chunk);
    }
    qsi_buf_fini(buf);
}

struct building {
    struct qs_store *store;
    struct qsi_chunk *lender; /* or NULL: bodies are copied */
    struct qsi_arrow_builder builder;
    const uint8_t *record; /* the record of view and codes */
    struct qsi_messages view;
    struct qsi_buf codes; /* int32 pairs by route, -1: not interned yet */
    uint64_t bad_tag;     /* of a message with a damaged body; 0: none */
};

static qs_status begin_record(struct building *building, const uint8_t *record, qs_error *error)
{
    uint8_t *room;
    size_t bytes;

    if (building->record == record) {
        return QS_OK;
    }
    qsi_messages_view(&building->view, record);
    bytes = (size_t)building->view.route_count * 2 * sizeof(int32_t);
    qsi_buf_clear(&building->codes);
    if (qsi_buf_reserve(&building->codes, bytes, &room) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "batch");
    }
    memset(room, 0xff, bytes);
    building->record = record;
    return QS_OK;
}

/* The codes of a route's exchange and its key. */
static qs_status find_codes(struct building *building, uint32_t route, const int32_t **codes_out,
                            qs_error *error)
{
    int32_t *codes = (int32_t *)(void *)building->codes.data + 2 * (size_t)route;

    *codes_out = codes;
    if (QS_UNLIKELY(codes[1] < 0)) {
        struct qsi_route_view names = qsi_messages_route(&building->view, route);
        QS_TRY(qsi_arrow_builder_intern(&building->builder, &codes[0], QSI_ARROW_EXCHANGE,
                                        names.exchange, error));
        QS_TRY(qsi_arrow_builder_intern(&building->builder, &codes[1], QSI_ARROW_ROUTING_KEY,
                                        names.key, error));
    }
    return QS_OK;
}

static qs_status set_route(struct building *building, uint32_t record_row,
                           struct qsi_arrow_run *run, qs_error *error)
{
    const int32_t *codes;

    QS_TRY(
        find_codes(building, qsi_messages_row_route(&building->view, record_row), &codes, error));
    run->exchange_code = codes[0];
    run->routing_key_code = codes[1];
    return QS_OK;
}

/* A record that was read from a segment does not have the routes of its stored messages: their
 * envelopes do. */
static qs_status set_stored_route(struct building *building, uint32_t record_row,
                                  const struct qsi_stored *stored, struct qsi_arrow_run *run,
                                  qs_error *error)
{
    struct qsi_route_view route =
        qsi_messages_route(&building->view, qsi_messages_row_route(&building->view, record_row));

    if (qsi_slice_equals(route.exchange, stored->exchange) &&
        qsi_slice_equals(route.key, stored->key)) {
        return set_route(building, record_row, run, error);
    }
    QS_TRY(qsi_arrow_builder_intern(&building->builder, &run->exchange_code, QSI_ARROW_EXCHANGE,
                                    stored->exchange, error));
    return qsi_arrow_builder_intern(&building->builder, &run->routing_key_code,
                                    QSI_ARROW_ROUTING_KEY, stored->key, error);
}

static qs_status build_row(struct building *building, const struct qsi_taken *taken, uint32_t i,
                           struct qsi_arrow_run *run, qs_error *error)
{
    uint32_t record_row = taken->row + i;
    struct qsi_body body;
    struct qsi_stored stored = {NULL};
    qs_status status;

    run->first_tag = taken->first_tag + i;
    qsi_messages_read_body(&building->view, record_row, &body);
    if (body.kind != QSI_BODY_EMBEDDED) {
        status = qsi_read_stored(building->store, &body, &stored, error);
        if (status != QS_OK) {
            building->bad_tag = qsi_is_unreadable(status) ? run->first_tag : 0;
            return status;
        }
        run->properties = stored.properties;
        status = set_stored_route(building, record_row, &stored, run, error);
    } else {
        status = set_route(building, record_row, run, error);
        stored.body = body.bytes;
        run->properties = qsi_messages_properties(&building->view, record_row);
    }
    if (status == QS_OK) {
        status = qsi_arrow_builder_row(&building->builder, run, stored.body, error);
    }
    qsi_chunk_unref(stored.chunk);
    return status;
}

/* For rows from first on in the batch, each with a route of its own. */
static qs_status put_routes(struct building *building, const struct qsi_taken *taken,
                            uint64_t first, qs_error *error)
{
    struct qsi_arrow_builder *builder = &building->builder;
    int32_t *exchanges = builder->codes[QSI_ARROW_EXCHANGE];
    int32_t *keys = builder->codes[QSI_ARROW_ROUTING_KEY];

    for (uint32_t i = 0; i < taken->count; i++) {
        const int32_t *codes;
        QS_TRY(find_codes(building, qsi_messages_row_route(&building->view, taken->row + i), &codes,
                          error));
        if (exchanges != NULL) {
            exchanges[first + i] = codes[0];
        }
        if (keys != NULL) {
            keys[first + i] = codes[1];
        }
    }
    return QS_OK;
}

static qs_status put_properties(struct building *building, const struct qsi_taken *taken,
                                uint64_t first, qs_error *error)
{
    for (uint32_t i = 0; i < taken->count; i++) {
        QS_TRY(qsi_arrow_builder_properties(
            &building->builder, first + i, 1,
            qsi_messages_properties(&building->view, taken->row + i), error));
    }
    return QS_OK;
}

/* Rows whose bodies are in the record, column by column. */
static qs_status build_rows(struct building *building, const struct qsi_taken *taken,
                            struct qsi_arrow_run *run, qs_error *error)
{
    const struct qsi_messages *view = &building->view;
    const uint8_t *offsets = view->body_offsets + 4 * (size_t)taken->row;
    uint64_t first = building->builder.rows;
    bool per_row = (view->flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0;

    if (view->row_route_width == 0) {
        QS_TRY(set_route(building, taken->row, run, error));
    }
    if (!per_row) {
        run->properties = qsi_messages_properties(view, taken->row);
    }
    if (building->lender != NULL) {
        QS_TRY(qsi_arrow_builder_borrow(&building->builder, run, building->lender, offsets,
                                        view->bodies, taken->count, error));
    } else {
        QS_TRY(qsi_arrow_builder_rows(&building->builder, run, offsets, view->bodies, taken->count,
                                      error));
    }
    if (view->row_route_width != 0) {
        QS_TRY(put_routes(building, taken, first, error));
    }
    return per_row ? put_properties(building, taken, first, error) : QS_OK;
}

static qs_status build_taken(struct building *building, const struct qsi_taken *taken,
                             qs_error *error)
{
    struct qsi_arrow_run run = {.first_tag = taken->first_tag,
                                .delivery_count = taken->delivery_count,
                                .redelivered = taken->redelivered,
                                .is_unacked = taken->is_unacked,
                                .is_delayed = taken->is_delayed};

    QS_TRY(begin_record(building, taken->record, error));
    if (building->view.stored == NULL) {
        return build_rows(building, taken, &run, error);
    }
    for (uint32_t i = 0; i < taken->count; i++) {
        QS_TRY(build_row(building, taken, i, &run, error));
    }
    return QS_OK;
}

/* For the rows that were appended last. */
static void put_times(struct qsi_arrow_builder *builder, const struct qsi_taken *taken)
{
    if ((builder->columns & QS_STREAM_COLUMN_TIMESTAMP) != 0) {
        qsi_stream_batch_times(taken->of, taken->index, taken->count,
                               qsi_arrow_builder_times(builder, builder->rows - taken->count));
    }
}

/* Bytes of bodies that the record's rows claim and their message files cannot hold. */
static uint64_t claimed_bytes(struct qs_store *store, const struct qsi_taken *taken)
{
    struct qsi_messages view;
    uint64_t bytes = 0;

    qsi_messages_view(&view, taken->record);
    for (uint32_t i = 0; view.stored != NULL && i < taken->count; i++) {
        struct qsi_body body;
        if (qsi_messages_body_bytes(&view, taken->row + i) <= BELIEVED_BYTES) {
            continue;
        }
        qsi_messages_read_body(&view, taken->row + i, &body);
        if (body.kind == QSI_BODY_STORED &&
            qsi_message_store_locate(store->messages, &body.ref, NULL) != QS_OK) {
            bytes += body.ref.body_bytes;
        }
    }
    return bytes;
}

/* The bytes of bodies to make room for: a damaged reference may claim any size. */
static uint64_t expected_bytes(struct qs_store *store, const struct qsi_taken_batch *batch)
{
    const struct qsi_taken *taken = (const struct qsi_taken *)(void *)batch->taken.data;
    uint64_t bytes = batch->body_bytes;

    for (size_t i = 0; bytes > BELIEVED_BYTES && i < batch->taken.bytes / sizeof *taken; i++) {
        uint64_t claimed = claimed_bytes(store, &taken[i]);
        bytes -= claimed < bytes ? claimed : bytes;
    }
    return bytes;
}

qs_status qsi_taken_build(struct qs_store *store, const struct qsi_taken_batch *batch,
                          uint64_t *bad_tag_out, struct ArrowSchema *schema_out,
                          struct ArrowArray *array_out, qs_error *error)
{
    struct building building = {.store = store, .lender = batch->lender};
    const struct qsi_taken *taken = (const struct qsi_taken *)(void *)batch->taken.data;
    size_t count = batch->taken.bytes / sizeof *taken;
    qs_status status;

    qsi_arrow_builder_init(&building.builder);
    building.builder.shape = batch->shape;
    building.builder.columns = batch->columns;
    QS_ASSERT(batch->lender == NULL || count == 1);
    status = batch->lender != NULL
                 ? QS_OK
                 : qsi_arrow_builder_reserve(&building.builder, batch->message_count,
                                             expected_bytes(store, batch), error);
    for (size_t i = 0; status == QS_OK && i < count; i++) {
        status = build_taken(&building, &taken[i], error);
        if (status == QS_OK && batch->shape == QSI_ARROW_STREAM) {
            put_times(&building.builder, &taken[i]);
        }
    }
    if (status == QS_OK) {
        status = qsi_arrow_builder_finish(&building.builder, schema_out, array_out, error);
    }
    *bad_tag_out = building.bad_tag;
    qsi_buf_fini(&building.codes);
    qsi_arrow_builder_fini(&building.builder);
    return status;
}
