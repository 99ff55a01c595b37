/* Viewing and checking messages records. */
#include "messages_record.h"

#include "check.h"
#include "error.h"
#include "messages_columns.h"
#include "record_head.h"

/* Without these flags the columns are contiguous. */
#define VIEWED_APART                                                                \
    (QSI_MESSAGES_HAS_STORED | QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE | \
     QSI_MESSAGES_ALIGNED)

/* Sets the columns that only some records have. */
static void view_columns(struct qsi_messages *view)
{
    const uint8_t *dues = view->properties - qsi_dues_bytes(view->flags, view->row_count);
    uint64_t bitmap_bytes = qsi_stored_bytes(view->flags, view->row_count);

    if ((view->flags & QSI_MESSAGES_HAS_DUE) != 0) {
        view->dues = dues;
    }
    if ((view->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
        view->expirations = dues - qsi_expirations_bytes(view->flags, view->row_count);
    }
    if (bitmap_bytes > 0) {
        view->stored = view->body_offsets;
        view->body_offsets += bitmap_bytes;
    }
    view->bodies = view->body_offsets + qsi_body_offsets_bytes(view->flags, view->row_count);
}

void qsi_messages_view(struct qsi_messages *view_out, const uint8_t *record)
{
    const uint8_t *bodies = record + qsi_get_u32(record + 32);
    uint32_t row_count = qsi_get_u32(record + 8);

    *view_out = (struct qsi_messages){
        .record = record,
        .row_count = row_count,
        .route_count = qsi_get_u32(record + 12),
        .destination_count = qsi_get_u32(record + 16),
        .flags = record[5],
        .row_route_width = record[6],
        .destinations = record + QSI_MESSAGES_HEADER_BYTES,
        .routes = record + qsi_get_u32(record + 20),
        .row_routes = record + qsi_get_u32(record + 24),
        .properties = record + qsi_get_u32(record + 28),
        .body_offsets = bodies,
        .bodies = bodies + qsi_offsets_bytes(row_count),
    };
    if (QS_UNLIKELY((record[5] & VIEWED_APART) != 0)) {
        view_columns(view_out);
    }
}

static qs_status bad(qs_error *error, const char *what)
{
    return qsi_fail(error, QS_ECORRUPT, "message record: %s", what);
}

/* Whether the first is 0, they ascend, and the last is at most limit. */
static bool offsets_ascend(const uint8_t *offsets, uint32_t count, uint64_t limit)
{
    const uint8_t *next = offsets + 4;
    uint32_t descents = 0;

    for (size_t at = 0; at < 4 * (size_t)count; at += 4) {
        descents |= (uint32_t)(qsi_get_u32(next + at) < qsi_get_u32(offsets + at));
    }
    return descents == 0 && qsi_get_u32(offsets) == 0 &&
           qsi_get_u32(offsets + 4 * (size_t)count) <= limit;
}

static qs_status check_routes(const struct qsi_messages *view, uint64_t routes_end, qs_error *error)
{
    for (uint32_t route = 0; route < view->route_count; route++) {
        uint64_t offset = qsi_get_u32(view->routes + 4 * (size_t)route);
        const uint8_t *at = view->record + offset;
        uint64_t end;
        if (offset + 8 > routes_end) {
            return bad(error, "a route begins outside its section");
        }
        end = offset + qsi_route_bytes(at[4], at[5], qsi_get_u32(at));
        if (end > routes_end) {
            return bad(error, "a route ends outside its section");
        }
        for (uint32_t i = 0; i < qsi_get_u32(at); i++) {
            if (qsi_get_u32(at + 8 + 4 * (size_t)i) >= view->destination_count) {
                return bad(error, "a route leads to no destination");
            }
        }
    }
    return QS_OK;
}

#define GROUP 16u /* rows that are checked without a branch for each */

/* Checks codes of one byte, which most records have, eight in a word.  Returns the number of rows
 * found valid: all but the last few, or those before a group with an invalid one. */
static uint32_t check_short_codes(const struct qsi_messages *view)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
    uint32_t row = 0;

    QS_DCHECK(view->row_route_width == 1);
    if (view->route_count > 0x80) {
        return 0;
    }
    for (; view->row_count - row >= GROUP; row += GROUP) {
        uint64_t first = qsi_get_u64(view->row_routes + row);
        uint64_t second = qsi_get_u64(view->row_routes + row + 8);
        uint64_t lift = (0x80 - view->route_count) * ones; /* sets the top bit of invalid codes */
        uint64_t lifted = ((first & ~tops) + lift) | ((second & ~tops) + lift);
        if (((first | second | lifted) & tops) != 0) {
            break;
        }
    }
    QS_DCHECK(row <= view->row_count);
    return row;
}

static qs_status check_row_routes(const struct qsi_messages *view, qs_error *error)
{
    uint32_t row = view->row_route_width == 1 ? check_short_codes(view) : 0;

    QS_DCHECK(row <= view->row_count);
    for (; view->row_route_width > 0 && row < view->row_count; row++) {
        if (qsi_messages_row_route(view, row) >= view->route_count) {
            return bad(error, "a row has no route");
        }
    }
    return QS_OK;
}

qs_status qsi_messages_check_routes(const uint8_t *record, uint64_t bytes, qs_error *error)
{
    struct qsi_messages view;
    uint64_t routes_at;

    if (bytes < QSI_MESSAGES_HEADER_BYTES) {
        return bad(error, "shorter than its header");
    }
    qsi_messages_view(&view, record);
    routes_at = qsi_get_u32(record + 20);
    if (view.row_count == 0 || view.route_count == 0) {
        return bad(error, "impossible counts");
    }
    if (routes_at != QSI_MESSAGES_HEADER_BYTES +
                         (uint64_t)view.destination_count * QSI_MESSAGES_DESTINATION_BYTES ||
        routes_at + 4 * (uint64_t)view.route_count > bytes) {
        return bad(error, "sections overlap or leave the record");
    }
    return check_routes(&view, bytes, error);
}

/* Checks cells of bodies that are not in the record: each has cell_bytes. */
static qs_status check_cells(const uint8_t *record, uint32_t cell_bytes, qs_error *error)
{
    struct qsi_messages view;

    qsi_messages_view(&view, record);
    for (uint32_t row = 0; view.stored != NULL && row < view.row_count; row++) {
        struct qsi_slice cell = qsi_messages_body(&view, row);
        if (qsi_messages_is_stored(&view, row) && cell.bytes != cell_bytes) {
            return qsi_fail(error, QS_ECORRUPT,
                            "message record: row %u has a body reference of %u bytes", row,
                            cell.bytes);
        }
    }
    return QS_OK;
}

static qs_status check_sections(const uint8_t *record, qs_error *error)
{
    uint64_t bytes = qsi_record_length(record);
    struct qsi_messages view;
    uint64_t routes_at, row_routes_at, properties_at, bodies_at, blobs;

    if (bytes < QSI_MESSAGES_HEADER_BYTES) {
        return bad(error, "shorter than its header");
    }
    qsi_messages_view(&view, record);
    routes_at = qsi_get_u32(record + 20);
    row_routes_at = qsi_get_u32(record + 24);
    properties_at = qsi_get_u32(record + 28);
    bodies_at = qsi_get_u32(record + 32);
    if ((view.flags & ~QSI_MESSAGES_FLAGS) != 0) {
        return qsi_fail(error, QS_EVERSION, "message record: flags %#x: written by a newer version",
                        view.flags);
    }
    if (view.row_count == 0 || view.route_count == 0 ||
        view.row_route_width != qsi_code_width(view.route_count)) {
        return bad(error, "impossible counts");
    }
    if (routes_at != QSI_MESSAGES_HEADER_BYTES +
                         (uint64_t)view.destination_count * QSI_MESSAGES_DESTINATION_BYTES ||
        routes_at + 4 * (uint64_t)view.route_count > row_routes_at ||
        row_routes_at +
                qsi_column_bytes(view.flags, (uint64_t)view.row_count * view.row_route_width) +
                qsi_expirations_bytes(view.flags, view.row_count) +
                qsi_dues_bytes(view.flags, view.row_count) !=
            properties_at ||
        properties_at + 4 > bodies_at ||
        bodies_at + qsi_stored_bytes(view.flags, view.row_count) +
                qsi_body_offsets_bytes(view.flags, view.row_count) >
            bytes) {
        return bad(error, "sections overlap or leave the record");
    }
    if (qsi_column_bytes(view.flags, row_routes_at) != row_routes_at ||
        qsi_column_bytes(view.flags, bodies_at) != bodies_at) {
        return bad(error, "columns are not aligned");
    }
    QS_TRY(check_routes(&view, row_routes_at, error));
    QS_TRY(check_row_routes(&view, error));
    if ((view.flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0) {
        blobs = properties_at + qsi_offsets_bytes(view.row_count);
        if (blobs > bodies_at ||
            !offsets_ascend(view.properties, view.row_count, bodies_at - blobs)) {
            return bad(error, "properties leave their section");
        }
    } else if (properties_at + 4 + (uint64_t)qsi_get_u32(view.properties) > bodies_at) {
        return bad(error, "properties leave their section");
    }
    if (!offsets_ascend(view.body_offsets, view.row_count,
                        bytes - (uint64_t)(view.bodies - record))) {
        return bad(error, "bodies leave their section");
    }
    return QS_OK;
}

qs_status qsi_messages_check(const uint8_t *record, qs_error *error)
{
    QS_TRY(check_sections(record, error));
    return check_cells(record, QSI_BODY_REF_BYTES, error);
}

qs_status qsi_messages_check_whole(const uint8_t *record, qs_error *error)
{
    QS_TRY(check_sections(record, error));
    return check_cells(record, QSI_BODY_DAMAGE_BYTES, error);
}

struct qsi_body_ref qsi_messages_body_ref(const struct qsi_messages *view, uint32_t row)
{
    struct qsi_body body;

    QS_DCHECK(row < view->row_count);
    qsi_messages_read_body(view, row, &body);
    QS_ASSERT(body.kind == QSI_BODY_STORED);
    return body.ref;
}

uint32_t qsi_messages_body_bytes(const struct qsi_messages *view, uint32_t row)
{
    struct qsi_body body;

    QS_DCHECK(row < view->row_count);
    qsi_messages_read_body(view, row, &body);
    switch (body.kind) {
    case QSI_BODY_EMBEDDED:
        return body.bytes.bytes;
    case QSI_BODY_STORED:
        return body.ref.body_bytes;
    case QSI_BODY_DAMAGED:
        break;
    }
    return 0;
}
