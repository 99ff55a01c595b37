/* Layout, writing and checking of records. */
#include "record.h"

#include "check.h"
#include "error.h"

static void put_record_header(uint8_t *record, uint32_t bytes, uint8_t type, uint8_t flags)
{
    qsi_put_u32(record, bytes);
    record[4] = type;
    record[5] = flags;
    qsi_put_u16(record + 6, 0);
}

bool qsi_record_fits(const uint8_t *at, uint64_t bytes)
{
    uint32_t record_bytes;

    if (bytes < QSI_RECORD_HEAD_BYTES) {
        return false;
    }
    record_bytes = qsi_record_length(at);
    return record_bytes >= QSI_RECORD_HEAD_BYTES && record_bytes <= bytes &&
           record_bytes % QSI_RECORD_ALIGN == 0;
}

/* ---- messages ---- */

static uint64_t offsets_bytes(uint32_t row_count)
{
    return 4 * ((uint64_t)row_count + 1);
}

/* Without these the columns are the plain ones, one behind the other. */
#define VIEWED_APART                                                                \
    (QSI_MESSAGES_HAS_STORED | QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE | \
     QSI_MESSAGES_ALIGNED)

/* Of columns, with the gap behind them: what follows begins where it has to. */
static uint64_t column_bytes(uint8_t flags, uint64_t bytes)
{
    return QS_UNLIKELY((flags & QSI_MESSAGES_ALIGNED) != 0)
               ? (bytes + QSI_MESSAGES_ALIGN_TO - 1) & ~(uint64_t)(QSI_MESSAGES_ALIGN_TO - 1)
               : bytes;
}

static uint64_t stored_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_STORED) != 0
               ? column_bytes(flags, ((uint64_t)row_count + 7) / 8)
               : 0;
}

static uint64_t body_offsets_bytes(uint8_t flags, uint32_t row_count)
{
    return column_bytes(flags, offsets_bytes(row_count));
}

static uint64_t expirations_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_EXPIRATION) != 0 ? column_bytes(flags, 4 * (uint64_t)row_count)
                                                      : 0;
}

static uint64_t dues_bytes(uint8_t flags, uint32_t row_count)
{
    return (flags & QSI_MESSAGES_HAS_DUE) != 0 ? column_bytes(flags, 8 * (uint64_t)row_count) : 0;
}

static uint8_t code_width(uint32_t route_count)
{
    if (route_count <= 1) {
        return 0;
    }
    return route_count <= 0x100 ? 1 : route_count <= 0x10000 ? 2 : 4;
}

static inline void place_columns(struct qsi_messages_layout *layout, uint8_t flags)
{
    uint64_t at = QSI_MESSAGES_HEADER_BYTES +
                  (uint64_t)layout->destination_count * QSI_MESSAGES_DESTINATION_BYTES;

    layout->routes_at = at;
    at = column_bytes(flags, at + 4 * (uint64_t)layout->route_count + layout->routes_bytes);
    layout->row_routes_at = at;
    at += column_bytes(flags, (uint64_t)layout->row_count * layout->row_route_width);
    layout->expirations_at = at;
    at += expirations_bytes(flags, layout->row_count);
    layout->dues_at = at;
    at += dues_bytes(flags, layout->row_count);
    layout->properties_at = at;
    at += (flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0 ? offsets_bytes(layout->row_count) : 4;
    at = column_bytes(flags, at + layout->properties_bytes);
    layout->bodies_at = at;
    at += stored_bytes(flags, layout->row_count) + body_offsets_bytes(flags, layout->row_count) +
          layout->bodies_bytes;
    layout->record_bytes = qsi_record_align(at);
}

qs_status qsi_messages_layout(struct qsi_messages_layout *layout, qs_error *error)
{
    layout->row_route_width = code_width(layout->route_count);
    place_columns(layout, (uint8_t)(layout->flags & ~QSI_MESSAGES_ALIGNED));
    if (layout->row_count > 1 && layout->record_bytes >= QSI_MESSAGES_ALIGN_FROM) {
        layout->flags |= QSI_MESSAGES_ALIGNED;
    }
    if (QS_UNLIKELY((layout->flags & QSI_MESSAGES_ALIGNED) != 0)) {
        place_columns(layout, layout->flags);
    }
    if (layout->record_bytes > UINT32_MAX) {
        return qsi_fail(error, QS_EINVAL, "a record of %llu bytes is more than 4 GiB",
                        (unsigned long long)layout->record_bytes);
    }
    return QS_OK;
}

/* Zeros before each place where a column begins: what is the column's own is written over them. */
static void clear_gaps(uint8_t *record, const struct qsi_messages_layout *layout)
{
    uint64_t offsets_at = layout->bodies_at + stored_bytes(layout->flags, layout->row_count);
    const uint64_t places[] = {
        layout->row_routes_at,
        layout->expirations_at,
        layout->dues_at,
        layout->properties_at,
        layout->bodies_at,
        offsets_at,
        offsets_at + body_offsets_bytes(layout->flags, layout->row_count),
    };

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        memset(record + places[i] - QSI_MESSAGES_ALIGN_TO, 0, QSI_MESSAGES_ALIGN_TO);
    }
}

void qsi_messages_begin(uint8_t *record, const struct qsi_messages_layout *layout)
{
    QS_ASSERT(layout->record_bytes % QSI_RECORD_ALIGN == 0);
    if ((layout->flags & QSI_MESSAGES_ALIGNED) != 0) {
        clear_gaps(record, layout);
    }
    put_record_header(record, (uint32_t)layout->record_bytes, QSI_RECORD_MESSAGES, layout->flags);
    record[6] = layout->row_route_width;
    qsi_put_u32(record + 8, layout->row_count);
    qsi_put_u32(record + 12, layout->route_count);
    qsi_put_u32(record + 16, layout->destination_count);
    qsi_put_u32(record + 20, (uint32_t)layout->routes_at);
    qsi_put_u32(record + 24, (uint32_t)layout->row_routes_at);
    qsi_put_u32(record + 28, (uint32_t)layout->properties_at);
    qsi_put_u32(record + 32, (uint32_t)layout->bodies_at);
    qsi_put_u32(record + 36, 0);
    qsi_messages_put_time(record, 0);
    memset(record + layout->record_bytes - QSI_RECORD_ALIGN, 0, QSI_RECORD_ALIGN);
    if ((layout->flags & QSI_MESSAGES_HAS_STORED) != 0) {
        memset(record + layout->bodies_at, 0, stored_bytes(layout->flags, layout->row_count));
    }
}

void qsi_messages_put_route(uint8_t *record, const struct qsi_messages_layout *layout,
                            uint32_t index, uint64_t *at_io, struct qsi_slice exchange,
                            struct qsi_slice key, const uint32_t *destinations,
                            uint32_t destination_count)
{
    uint64_t offset = layout->routes_at + 4 * (uint64_t)layout->route_count + *at_io;
    uint8_t *at = record + offset;

    QS_DCHECK(exchange.bytes <= UINT8_MAX && key.bytes <= UINT8_MAX);
    qsi_put_u32(record + layout->routes_at + 4 * (size_t)index, (uint32_t)offset);
    qsi_put_u32(at, destination_count);
    at[4] = (uint8_t)exchange.bytes;
    at[5] = (uint8_t)key.bytes;
    qsi_put_u16(at + 6, 0);
    at += 8;
    for (uint32_t i = 0; i < destination_count; i++, at += 4) {
        qsi_put_u32(at, destinations[i]);
    }
    if (exchange.bytes > 0) {
        memcpy(at, exchange.data, exchange.bytes);
    }
    if (key.bytes > 0) {
        memcpy(at + exchange.bytes, key.data, key.bytes);
    }
    *at_io += qsi_route_bytes(exchange.bytes, key.bytes, destination_count);
}

void qsi_messages_put_row_routes(uint8_t *record, const struct qsi_messages_layout *layout,
                                 const uint32_t *codes)
{
    uint8_t *at = record + layout->row_routes_at;

    switch (layout->row_route_width) {
    case 0:
        return;
    case 1:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            at[row] = (uint8_t)codes[row];
        }
        return;
    case 2:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            qsi_put_u16(at + 2 * (size_t)row, (uint16_t)codes[row]);
        }
        return;
    default:
        for (uint32_t row = 0; row < layout->row_count; row++) {
            qsi_put_u32(at + 4 * (size_t)row, codes[row]);
        }
    }
}

uint8_t *qsi_messages_stored_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return record + layout->bodies_at;
}

uint8_t *qsi_messages_body_offsets_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return record + layout->bodies_at + stored_bytes(layout->flags, layout->row_count);
}

uint8_t *qsi_messages_bodies_place(uint8_t *record, const struct qsi_messages_layout *layout)
{
    return qsi_messages_body_offsets_place(record, layout) +
           body_offsets_bytes(layout->flags, layout->row_count);
}

/* The columns that not every record has. */
static void view_columns(struct qsi_messages *view)
{
    const uint8_t *dues = view->properties - dues_bytes(view->flags, view->row_count);
    uint64_t bitmap_bytes = stored_bytes(view->flags, view->row_count);

    if ((view->flags & QSI_MESSAGES_HAS_DUE) != 0) {
        view->dues = dues;
    }
    if ((view->flags & QSI_MESSAGES_HAS_EXPIRATION) != 0) {
        view->expirations = dues - expirations_bytes(view->flags, view->row_count);
    }
    if (bitmap_bytes > 0) {
        view->stored = view->body_offsets;
        view->body_offsets += bitmap_bytes;
    }
    view->bodies = view->body_offsets + body_offsets_bytes(view->flags, view->row_count);
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
        .bodies = bodies + offsets_bytes(row_count),
    };
    if (QS_UNLIKELY((record[5] & VIEWED_APART) != 0)) {
        view_columns(view_out);
    }
}

static qs_status bad(qs_error *error, const char *what)
{
    return qsi_fail(error, QS_ECORRUPT, "message record: %s", what);
}

static bool offsets_ascend(const uint8_t *offsets, uint32_t count, uint64_t limit)
{
    uint32_t previous = 0;

    for (uint32_t i = 0; i <= count; i++) {
        uint32_t offset = qsi_get_u32(offsets + 4 * (size_t)i);
        if (offset < previous) {
            return false;
        }
        previous = offset;
    }
    return qsi_get_u32(offsets) == 0 && previous <= limit;
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
    for (uint32_t row = 0; view->row_route_width > 0 && row < view->row_count; row++) {
        if (qsi_messages_row_route(view, row) >= view->route_count) {
            return bad(error, "a row has no route");
        }
    }
    return QS_OK;
}

static qs_status check_references(const struct qsi_messages *view, qs_error *error)
{
    for (uint32_t row = 0; view->stored != NULL && row < view->row_count; row++) {
        uint32_t bytes = qsi_messages_body(view, row).bytes;
        if (qsi_messages_is_stored(view, row) && bytes != QSI_BODY_REF_BYTES) {
            return qsi_fail(error, QS_ECORRUPT,
                            "message record: row %u has a body reference of %u bytes", row, bytes);
        }
    }
    return QS_OK;
}

qs_status qsi_messages_check(const uint8_t *record, qs_error *error)
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
        view.row_route_width != code_width(view.route_count)) {
        return bad(error, "impossible counts");
    }
    if (routes_at != QSI_MESSAGES_HEADER_BYTES +
                         (uint64_t)view.destination_count * QSI_MESSAGES_DESTINATION_BYTES ||
        routes_at + 4 * (uint64_t)view.route_count > row_routes_at ||
        row_routes_at + column_bytes(view.flags, (uint64_t)view.row_count * view.row_route_width) +
                expirations_bytes(view.flags, view.row_count) +
                dues_bytes(view.flags, view.row_count) !=
            properties_at ||
        properties_at + 4 > bodies_at ||
        bodies_at + stored_bytes(view.flags, view.row_count) +
                body_offsets_bytes(view.flags, view.row_count) >
            bytes) {
        return bad(error, "sections overlap or leave the record");
    }
    if (column_bytes(view.flags, row_routes_at) != row_routes_at ||
        column_bytes(view.flags, bodies_at) != bodies_at) {
        return bad(error, "columns are not aligned");
    }
    QS_TRY(check_routes(&view, row_routes_at, error));
    if ((view.flags & QSI_MESSAGES_PROPERTIES_PER_ROW) != 0) {
        blobs = properties_at + offsets_bytes(view.row_count);
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
    return check_references(&view, error);
}

struct qsi_body_ref qsi_messages_body_ref(const struct qsi_messages *view, uint32_t row)
{
    struct qsi_stored_body stored;

    qsi_messages_stored_body(view, row, &stored);
    QS_ASSERT(!stored.is_damaged);
    return stored.ref;
}

uint32_t qsi_messages_body_bytes(const struct qsi_messages *view, uint32_t row)
{
    struct qsi_stored_body stored;

    if (!qsi_messages_is_stored(view, row)) {
        return qsi_messages_body(view, row).bytes;
    }
    qsi_messages_stored_body(view, row, &stored);
    return stored.is_damaged ? 0 : stored.ref.body_bytes;
}

/* ---- settle ---- */

void qsi_settle_encode(uint8_t *record_out, const struct qsi_settle *settle)
{
    put_record_header(record_out, QSI_SETTLE_BYTES, QSI_RECORD_SETTLE, settle->kind);
    qsi_put_u64(record_out + 8, settle->queue_id);
    qsi_put_u64(record_out + 16, settle->first_seq);
    qsi_put_u32(record_out + 24, settle->count);
    qsi_put_u32(record_out + 28, 0);
    if (QS_UNLIKELY(qsi_settle_has_due(settle->kind))) {
        qsi_put_u32(record_out, QSI_SETTLE_BYTES_MAX);
        qsi_put_u64(record_out + 32, settle->due_us);
    }
}

qs_status qsi_settle_decode(struct qsi_settle *settle_out, const uint8_t *record, qs_error *error)
{
    if (record[5] < QSI_SETTLE_ACK || record[5] > QSI_SETTLE_TAKE_BACK) {
        return qsi_fail(error, QS_ECORRUPT, "settle record of kind %u", record[5]);
    }
    if (qsi_record_length(record) != qsi_settle_record_bytes(record[5])) {
        return qsi_fail(error, QS_ECORRUPT, "settle record of %u bytes", qsi_record_length(record));
    }
    *settle_out = (struct qsi_settle){
        .queue_id = qsi_get_u64(record + 8),
        .first_seq = qsi_get_u64(record + 16),
        .count = qsi_get_u32(record + 24),
        .kind = record[5],
        .due_us = qsi_settle_has_due(record[5]) ? qsi_get_u64(record + 32) : 0,
    };
    if (settle_out->first_seq + settle_out->count < settle_out->first_seq) {
        return qsi_fail(error, QS_ECORRUPT, "settle record past the last sequence");
    }
    return QS_OK;
}

/* ---- message file ----
 * header | number u32 | generation u32 | salt u64 | end u64 | live bytes u64 | slots u32 |
 * runs u32 | runs: count u32, length u32 each */

#define MESSAGE_FILE_END_MIN 4096u /* its header */
#define MESSAGE_FILE_GENERATION_MAX 9999u
#define MESSAGE_FILE_COUNT_MAX 65535u

uint64_t qsi_message_file_record_bytes(uint32_t run_count)
{
    return QSI_MESSAGE_FILE_HEADER_BYTES + (uint64_t)run_count * QSI_MESSAGE_FILE_RUN_BYTES;
}

void qsi_message_file_record_encode(uint8_t *record_out, const struct qsi_message_file_record *file)
{
    put_record_header(record_out, (uint32_t)qsi_message_file_record_bytes(file->run_count),
                      QSI_RECORD_MESSAGE_FILE, file->is_settled ? QSI_MESSAGE_FILE_SETTLED : 0);
    qsi_put_u32(record_out + 8, file->number);
    qsi_put_u32(record_out + 12, file->generation);
    qsi_put_u64(record_out + 16, file->salt);
    qsi_put_u64(record_out + 24, file->end);
    qsi_put_u64(record_out + 32, file->live_bytes);
    qsi_put_u32(record_out + 40, file->slot_count);
    qsi_put_u32(record_out + 44, file->run_count);
}

static qs_status bad_file(qs_error *error, const struct qsi_message_file_record *file,
                          const char *what)
{
    return qsi_fail(error, QS_ECORRUPT, "record of message file %u: %s", file->number, what);
}

static qs_status check_runs(const struct qsi_message_file_record *file, qs_error *error)
{
    uint64_t slots = 0;
    bool is_live = false;

    for (uint32_t i = 0; i < file->run_count; i++) {
        uint32_t count, length;
        qsi_message_file_run(file, i, &count, &length);
        if (length == 0 || count > MESSAGE_FILE_COUNT_MAX) {
            return bad_file(error, file, "an impossible run of counts");
        }
        slots += length;
        is_live = is_live || count > 0;
    }
    if (slots != file->slot_count || !is_live) {
        return bad_file(error, file, "the counts do not make up the file");
    }
    return QS_OK;
}

qs_status qsi_message_file_record_decode(struct qsi_message_file_record *file_out,
                                         const uint8_t *record, qs_error *error)
{
    uint32_t bytes = qsi_record_length(record);

    if (bytes < QSI_MESSAGE_FILE_HEADER_BYTES ||
        qsi_record_type(record) != QSI_RECORD_MESSAGE_FILE) {
        return qsi_fail(error, QS_ECORRUPT, "message file record of %u bytes, type %u", bytes,
                        qsi_record_type(record));
    }
    *file_out = (struct qsi_message_file_record){
        .number = qsi_get_u32(record + 8),
        .generation = qsi_get_u32(record + 12),
        .salt = qsi_get_u64(record + 16),
        .end = qsi_get_u64(record + 24),
        .live_bytes = qsi_get_u64(record + 32),
        .slot_count = qsi_get_u32(record + 40),
        .is_settled = record[5] == QSI_MESSAGE_FILE_SETTLED,
        .run_count = qsi_get_u32(record + 44),
        .runs = record + QSI_MESSAGE_FILE_HEADER_BYTES,
    };
    if (record[5] > QSI_MESSAGE_FILE_SETTLED || qsi_get_u16(record + 6) != 0 ||
        qsi_message_file_record_bytes(file_out->run_count) != bytes) {
        return bad_file(error, file_out, "unknown flags, or not of the length it says");
    }
    if (file_out->number == 0 || file_out->generation > MESSAGE_FILE_GENERATION_MAX ||
        (file_out->generation > 0 && !file_out->is_settled)) {
        return bad_file(error, file_out, "no such number and generation");
    }
    if (file_out->end <= MESSAGE_FILE_END_MIN ||
        file_out->live_bytes > file_out->end - MESSAGE_FILE_END_MIN) {
        return bad_file(error, file_out, "more live bytes than the file has room for");
    }
    return check_runs(file_out, error);
}

/* ---- topology ----
 * header | flags u32 | lengths of the strings u32 x 4 | u32 0 | number u64 | strings */

#define TOPOLOGY_FIXED_BYTES (QSI_RECORD_HEAD_BYTES + 4 + 4 * QSI_TOPOLOGY_STRINGS + 4 + 8)

uint64_t qsi_topology_bytes(const struct qsi_topology *topology)
{
    uint64_t bytes = TOPOLOGY_FIXED_BYTES;

    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        bytes += topology->strings[i].bytes;
    }
    return qsi_record_align(bytes);
}

void qsi_topology_encode(uint8_t *record_out, const struct qsi_topology *topology)
{
    uint64_t bytes = qsi_topology_bytes(topology);
    uint8_t *at = record_out + TOPOLOGY_FIXED_BYTES;

    memset(record_out, 0, bytes);
    put_record_header(record_out, (uint32_t)bytes, topology->type, 0);
    qsi_put_u32(record_out + 8, topology->flags);
    qsi_put_u64(record_out + 32, topology->number);
    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        qsi_put_u32(record_out + 12 + 4 * i, topology->strings[i].bytes);
        if (topology->strings[i].bytes > 0) {
            memcpy(at, topology->strings[i].data, topology->strings[i].bytes);
            at += topology->strings[i].bytes;
        }
    }
}

qs_status qsi_topology_decode(struct qsi_topology *topology_out, const uint8_t *record,
                              qs_error *error)
{
    uint64_t left = qsi_record_length(record);
    const uint8_t *at = record + TOPOLOGY_FIXED_BYTES;

    if (left < TOPOLOGY_FIXED_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "topology record of %llu bytes",
                        (unsigned long long)left);
    }
    left -= TOPOLOGY_FIXED_BYTES;
    *topology_out = (struct qsi_topology){
        .type = qsi_record_type(record),
        .flags = qsi_get_u32(record + 8),
        .number = qsi_get_u64(record + 32),
    };
    for (int i = 0; i < QSI_TOPOLOGY_STRINGS; i++) {
        uint32_t bytes = qsi_get_u32(record + 12 + 4 * i);
        if (bytes > left) {
            return qsi_fail(error, QS_ECORRUPT, "topology record: string %d leaves the record", i);
        }
        topology_out->strings[i] = qsi_slice_make(at, bytes);
        at += bytes;
        left -= bytes;
    }
    return QS_OK;
}
