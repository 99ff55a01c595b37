/* Building a record from rows of other records: its size and its bytes.
 *
 * Invariant: the written record has the measured size; each body is copied once. */
#include "check.h"
#include "record_build_internal.h"

qs_status qsi_record_build_measure(struct qsi_record_build *build, uint64_t *bytes_out,
                                   qs_error *error)
{
    QS_ASSERT(build->row_count > 0);
    build->layout = (struct qsi_messages_layout){
        .row_count = build->row_count,
        .route_count = build->route_count,
        .destination_count = 1,
        .routes_bytes = build->routes_bytes,
        .properties_bytes =
            build->properties_differ ? build->properties_bytes : build->properties.bytes,
        .bodies_bytes = build->bodies_bytes,
        .flags = (uint8_t)((build->properties_differ ? QSI_MESSAGES_PROPERTIES_PER_ROW : 0) |
                           (build->has_stored ? QSI_MESSAGES_HAS_STORED : 0)),
    };
    if ((build->options & QSI_BUILD_ALIGNED) != 0) {
        build->layout.flags |= QSI_MESSAGES_ALIGNED;
    }
    if ((build->options & QSI_BUILD_EXPIRATIONS) != 0 && build->has_expiration) {
        build->layout.flags |= QSI_MESSAGES_HAS_EXPIRATION;
    }
    if ((build->options & QSI_BUILD_DUES) != 0 && build->has_due) {
        build->layout.flags |= QSI_MESSAGES_HAS_DUE;
    }
    QS_TRY(qsi_messages_layout(&build->layout, error));
    *bytes_out = build->layout.record_bytes;
    return QS_OK;
}

static uint32_t put_routes(const struct qsi_record_build *build, uint8_t *record)
{
    static const uint32_t destination = 0;
    const struct qsi_messages_layout *layout = &build->layout;
    uint64_t at = 0;

    for (uint32_t i = 0; i < build->route_count; i++) {
        const struct qsi_build_route *route = &qsi_build_routes(build)[i];
        qsi_messages_put_route(record, layout, i, &at, route->exchange, route->key, &destination,
                               1);
    }
    QS_DCHECK(at == layout->routes_bytes);
    qsi_messages_put_row_routes(record, layout, (const uint32_t *)(const void *)build->codes.data);
    return (uint32_t)(layout->routes_at + 4 * (uint64_t)build->route_count + at);
}

/* The place of the next row. */
struct writing {
    const struct qsi_record_build *build;
    uint8_t *record;
    uint8_t *property_offsets, *property_blobs;
    uint8_t *body_offsets, *bodies, *stored;
    uint32_t row, property_at, body_at, content;
};

static void put_times(struct writing *writing, const struct qsi_messages *view, uint32_t row)
{
    const struct qsi_messages_layout *layout = &writing->build->layout;

    if ((layout->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
        qsi_messages_put_expiration(writing->record, layout, writing->row,
                                    qsi_messages_expiration(view, row));
    }
    if ((layout->flags & QSI_MESSAGES_HAS_DUE) != 0) {
        qsi_messages_put_due(writing->record, layout, writing->row, qsi_messages_due(view, row));
    }
}

static void put_row(struct writing *writing, struct qsi_slice properties, struct qsi_slice body)
{
    QS_DCHECK(writing->row < writing->build->row_count);
    if (writing->property_offsets != NULL) {
        qsi_put_u32(writing->property_offsets + 4 * (size_t)writing->row, writing->property_at);
        qsi_slice_put(writing->property_blobs + writing->property_at, properties);
        writing->property_at += properties.bytes;
    }
    qsi_put_u32(writing->body_offsets + 4 * (size_t)writing->row, writing->body_at);
    QS_DCHECK(writing->body_at + (uint64_t)body.bytes <= writing->build->bodies_bytes);
    qsi_slice_put(writing->bodies + writing->body_at, body);
    writing->body_at += body.bytes;
}

/* Copies the cells of several rows at once: none was read from the message store, and only their
 * offsets need adjusting. */
static void put_plain_rows(struct writing *writing, const struct qsi_messages *view, uint32_t row,
                           uint32_t count)
{
    const uint8_t *from = view->body_offsets + 4 * (size_t)row;
    uint8_t *to = writing->body_offsets + 4 * (size_t)writing->row;
    uint32_t first = qsi_get_u32(from);
    uint32_t bytes = qsi_get_u32(from + 4 * (size_t)count) - first;
    uint32_t shift = writing->body_at - first;

    QS_DCHECK(writing->row + count <= writing->build->row_count);
    for (uint32_t i = 0; i < count; i++) {
        qsi_put_u32(to + 4 * (size_t)i, qsi_get_u32(from + 4 * (size_t)i) + shift);
    }
    QS_DCHECK(writing->body_at + (uint64_t)bytes <= writing->build->bodies_bytes);
    qsi_slice_put(writing->bodies + writing->body_at, qsi_slice_make(view->bodies + first, bytes));
    writing->body_at += bytes;
    writing->row += count;
}

static void put_stretch(struct writing *writing, const struct qsi_row_stretch *stretch)
{
    const struct qsi_record_build *build = writing->build;
    const struct qsi_stored_content *contents =
        (const struct qsi_stored_content *)(const void *)build->contents.data;
    bool has_times =
        (build->layout.flags & (QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE)) != 0;
    struct qsi_messages view;

    qsi_messages_view(&view, stretch->record);
    if (view.stored == NULL && !has_times && writing->property_offsets == NULL) {
        put_plain_rows(writing, &view, stretch->first_row, stretch->count);
        return;
    }
    for (uint32_t i = 0; i < stretch->count; i++, writing->row++) {
        uint32_t row = stretch->first_row + i;
        struct qsi_slice properties = qsi_messages_properties(&view, row);
        struct qsi_slice body = qsi_messages_body(&view, row);
        bool is_marked = qsi_messages_is_stored(&view, row);
        if (qsi_build_reads_row(build, &view, row)) {
            QS_DCHECK(writing->content < build->contents.bytes / sizeof *contents);
            const struct qsi_stored_content *content = &contents[writing->content++];
            properties = qsi_slice_make(build->stored.data + content->properties_at,
                                        content->properties_bytes);
            body = qsi_slice_make(build->stored.data + content->body_at, content->body_bytes);
            is_marked = content->is_damaged;
        }
        if (is_marked) {
            QS_DCHECK(build->has_stored);
            writing->stored[writing->row / 8] |= (uint8_t)(1u << (writing->row % 8));
        }
        put_row(writing, properties, body);
        put_times(writing, &view, row);
    }
}

void qsi_record_build_write(struct qsi_record_build *build, uint8_t *record_out,
                            uint64_t destination_id, uint64_t first_seq, uint64_t time_us,
                            uint32_t *dictionary_bytes_out)
{
    const struct qsi_messages_layout *layout = &build->layout;
    const struct qsi_row_stretch *stretches =
        (const struct qsi_row_stretch *)(const void *)build->stretches.data;
    size_t count = build->stretches.bytes / sizeof *stretches;
    struct writing writing = {.build = build, .record = record_out};
    uint8_t *properties = qsi_messages_properties_place(record_out, layout);
    uint32_t dictionary_bytes;

    QS_ASSERT(layout->row_count == build->row_count && layout->row_count > 0);
    qsi_messages_begin(record_out, layout);
    qsi_messages_put_time(record_out, time_us);
    qsi_messages_put_destination(record_out, 0, destination_id, first_seq, build->row_count);
    dictionary_bytes = put_routes(build, record_out);
    if (build->properties_differ) {
        writing.property_offsets = properties;
        writing.property_blobs = properties + 4 * ((size_t)build->row_count + 1);
    } else {
        qsi_put_u32(properties, build->properties.bytes);
        qsi_slice_put(properties + 4, qsi_build_first_properties(build));
    }
    writing.stored = qsi_messages_stored_place(record_out, layout);
    writing.body_offsets = qsi_messages_body_offsets_place(record_out, layout);
    writing.bodies = qsi_messages_bodies_place(record_out, layout);
    for (size_t i = 0; i < count; i++) {
        put_stretch(&writing, &stretches[i]);
    }
    QS_ASSERT(writing.row == build->row_count && writing.body_at == build->bodies_bytes);
    qsi_put_u32(writing.body_offsets + 4 * (size_t)writing.row, writing.body_at);
    if (writing.property_offsets != NULL) {
        qsi_put_u32(writing.property_offsets + 4 * (size_t)writing.row, writing.property_at);
    }
    QS_DCHECK(writing.content == build->contents.bytes / sizeof(struct qsi_stored_content));
    if (dictionary_bytes_out != NULL) {
        *dictionary_bytes_out = dictionary_bytes;
    }
}
