/* Building a record from rows of other records: collecting the rows.
 *
 * Invariants: codes has one code for each row, an index of routes; contents has one entry for each
 * stored row that was read, in order; every stretch has rows; the sums are those of the
 * stretches. */
#include "alloc.h"
#include "check.h"
#include "hash.h"
#include "messages_write.h"
#include "record_build.h"
#include "record_build_internal.h"

#include <string.h>

#define NO_CODE UINT32_MAX
#define SLOTS_FIRST 64u
/* Bytes of a row besides properties and body: two offsets, and a code of its route. */
#define ROW_BYTES 9u
#define RECORD_BYTES 1024u /* bytes of a record besides rows and routes, gaps included */

struct qsi_record_build *qsi_record_build_create(uint32_t options, qsi_stored_reader *reader,
                                                 void *context)
{
    struct qsi_record_build *build = qsi_zalloc(sizeof *build);

    if (build != NULL) {
        build->options = options;
        build->reader = reader;
        build->context = context;
        qsi_record_build_clear(build);
    }
    return build;
}

void qsi_record_build_destroy(struct qsi_record_build *build)
{
    if (build == NULL) {
        return;
    }
    qsi_buf_fini(&build->stretches);
    qsi_buf_fini(&build->codes);
    qsi_buf_fini(&build->routes);
    qsi_buf_fini(&build->contents);
    qsi_buf_fini(&build->stored);
    qsi_buf_fini(&build->record_codes);
    qsi_free(build->slots);
    qsi_free(build);
}

void qsi_record_build_clear(struct qsi_record_build *build)
{
    qsi_buf_clear(&build->stretches);
    qsi_buf_clear(&build->codes);
    qsi_buf_clear(&build->routes);
    qsi_buf_clear(&build->contents);
    qsi_buf_clear(&build->stored);
    if (build->slots != NULL) {
        memset(build->slots, 0xff, build->slot_count * sizeof *build->slots);
    }
    build->record = NULL;
    build->properties = QSI_SLICE_NULL;
    build->stored_properties_at = QSI_NO_PLACE;
    build->properties_differ = build->has_expiration = build->has_due = build->has_stored = false;
    build->row_count = build->route_count = 0;
    build->routes_bytes = build->properties_bytes = build->bodies_bytes = 0;
    build->layout = (struct qsi_messages_layout){0};
}

uint32_t qsi_record_build_rows(const struct qsi_record_build *build)
{
    return build->row_count;
}

/* ---- routes ---- */

static uint64_t hash_route(struct qsi_slice exchange, struct qsi_slice key)
{
    uint8_t bytes[1 + 2 * UINT8_MAX];
    uint8_t *end = bytes + 1;

    QS_DCHECK(exchange.bytes <= UINT8_MAX && key.bytes <= UINT8_MAX);
    bytes[0] = (uint8_t)exchange.bytes;
    end = qsi_slice_put(end, exchange);
    end = qsi_slice_put(end, key);
    return qsi_hash(bytes, (size_t)(end - bytes));
}

static void put_slot(struct qsi_record_build *build, uint64_t hash, uint32_t code)
{
    uint32_t mask = build->slot_count - 1;
    uint32_t i = (uint32_t)hash & mask;

    QS_DCHECK(build->route_count < build->slot_count && (build->slot_count & mask) == 0);
    while (build->slots[i] != NO_CODE) {
        i = (i + 1) & mask;
    }
    build->slots[i] = code;
}

/* Grows the table so that at most half of the slots are used. */
static qs_status grow_slots(struct qsi_record_build *build)
{
    uint32_t count = build->slot_count == 0 ? SLOTS_FIRST : 2 * build->slot_count;
    uint32_t *slots;

    if (2 * (build->route_count + 1) <= build->slot_count) {
        return QS_OK;
    }
    slots = qsi_alloc(count * sizeof *slots);
    if (slots == NULL) {
        return QS_ENOMEM;
    }
    memset(slots, 0xff, count * sizeof *slots);
    qsi_free(build->slots);
    build->slots = slots;
    build->slot_count = count;
    QS_DCHECK(2 * build->route_count <= build->slot_count);
    for (uint32_t code = 0; code < build->route_count; code++) {
        put_slot(build, qsi_build_routes(build)[code].hash, code);
    }
    return QS_OK;
}

static bool is_route(const struct qsi_build_route *route, const struct qsi_route_view *view)
{
    return qsi_slice_compare(route->exchange, view->exchange) == 0 &&
           qsi_slice_compare(route->key, view->key) == 0;
}

/* Finds the code of a route, or assigns one to a new route. */
static qs_status find_code(struct qsi_record_build *build, const struct qsi_route_view *view,
                           uint32_t *code_out)
{
    struct qsi_build_route route = {.exchange = view->exchange, .key = view->key};
    uint32_t last = build->row_count > 0
                        ? ((uint32_t *)(void *)build->codes.data)[build->row_count - 1]
                        : NO_CODE;

    /* Usually the route of the previous row. */
    if (last != NO_CODE && is_route(&qsi_build_routes(build)[last], view)) {
        *code_out = last;
        return QS_OK;
    }
    QS_TRY(grow_slots(build));
    route.hash = hash_route(route.exchange, route.key);
    for (uint32_t i = (uint32_t)route.hash;; i++) {
        uint32_t code = build->slots[i & (build->slot_count - 1)];
        if (code == NO_CODE) {
            break;
        }
        if (qsi_build_routes(build)[code].hash == route.hash &&
            is_route(&qsi_build_routes(build)[code], view)) {
            *code_out = code;
            return QS_OK;
        }
    }
    QS_TRY(qsi_buf_append(&build->routes, &route, sizeof route));
    *code_out = build->route_count;
    put_slot(build, route.hash, build->route_count);
    QS_DCHECK(build->routes.bytes == (build->route_count + 1) * sizeof route);
    build->route_count += 1;
    build->routes_bytes += qsi_route_bytes(route.exchange.bytes, route.key.bytes, 1);
    return QS_OK;
}

/* Finds the code of a row, using the known codes of its record. */
static qs_status row_code(struct qsi_record_build *build, const struct qsi_messages *view,
                          uint32_t row, uint32_t *code_out)
{
    uint32_t *codes = (uint32_t *)(void *)build->record_codes.data;
    uint32_t route = qsi_messages_row_route(view, row);
    struct qsi_route_view route_view;

    QS_DCHECK(route < view->route_count && build->record == view->record);
    if (codes[route] != NO_CODE) {
        *code_out = codes[route];
        return QS_OK;
    }
    route_view = qsi_messages_route(view, route);
    QS_TRY(find_code(build, &route_view, code_out));
    codes[route] = *code_out;
    return QS_OK;
}

static qs_status begin_record(struct qsi_record_build *build, const struct qsi_messages *view)
{
    size_t bytes = view->route_count * sizeof(uint32_t);
    uint8_t *room;

    if (build->record == view->record) {
        return QS_OK;
    }
    qsi_buf_clear(&build->record_codes);
    QS_TRY(qsi_buf_reserve(&build->record_codes, bytes, &room));
    memset(room, 0xff, bytes);
    build->record = view->record;
    return QS_OK;
}

/* ---- adding rows ---- */

/* One row to add. */
struct row {
    struct qsi_slice properties;
    uint32_t body_bytes;
    bool was_read; /* from the message store: content has its place */
    struct qsi_stored_content content;
};

static qs_status look_at(struct qsi_record_build *build, const struct qsi_messages *view,
                         uint32_t row, struct row *row_out, qs_error *error)
{
    struct qsi_body stored;

    QS_DCHECK(row < view->row_count);
    if (QS_LIKELY(!qsi_build_reads_row(build, view, row))) {
        *row_out = (struct row){
            .properties = qsi_messages_properties(view, row),
            .body_bytes = qsi_messages_body(view, row).bytes,
        };
        return QS_OK;
    }
    *row_out = (struct row){.was_read = true};
    QS_ASSERT(build->reader != NULL);
    qsi_messages_read_body(view, row, &stored);
    QS_TRY(build->reader(build->context, &stored, &build->stored, &row_out->content, error));
    row_out->properties = qsi_slice_make(build->stored.data + row_out->content.properties_at,
                                         row_out->content.properties_bytes);
    row_out->body_bytes = row_out->content.body_bytes;
    return QS_OK;
}

static bool has_same_properties(const struct qsi_record_build *build, const struct row *row)
{
    struct qsi_slice first = qsi_build_first_properties(build);

    return build->row_count == 0 ||
           (first.data == row->properties.data && first.bytes == row->properties.bytes) ||
           qsi_slice_compare(first, row->properties) == 0;
}

static bool fits(const struct qsi_record_build *build, const struct row *row, bool differ,
                 uint32_t rows_max, uint64_t bytes_max)
{
    uint64_t properties = differ ? build->properties_bytes + row->properties.bytes : 0;

    QS_DCHECK(rows_max > 0);
    return build->row_count == 0 ||
           (build->row_count < rows_max && RECORD_BYTES + build->routes_bytes + properties +
                                                   build->bodies_bytes + row->body_bytes +
                                                   ROW_BYTES * ((uint64_t)build->row_count + 1) <=
                                               bytes_max);
}

static qs_status record_row(struct qsi_record_build *build, const struct qsi_messages *view,
                            uint32_t row, const struct row *note)
{
    uint32_t code;

    QS_DCHECK(build->codes.bytes == build->row_count * sizeof code);
    QS_TRY(row_code(build, view, row, &code));
    QS_TRY(qsi_buf_append(&build->codes, &code, sizeof code));
    if (note->was_read) {
        qs_status status = qsi_buf_append(&build->contents, &note->content, sizeof note->content);
        if (status != QS_OK) {
            build->codes.bytes -= sizeof code;
            return status;
        }
    }
    if (build->row_count == 0) {
        build->properties = note->properties;
        build->stored_properties_at = note->was_read ? note->content.properties_at : QSI_NO_PLACE;
    }
    build->properties_bytes += note->properties.bytes;
    build->bodies_bytes += note->body_bytes;
    build->has_expiration =
        build->has_expiration || qsi_messages_expiration(view, row) != QSI_NO_EXPIRATION;
    build->has_due = build->has_due || qsi_messages_due(view, row) != 0;
    build->has_stored = build->has_stored || (note->was_read ? note->content.is_damaged
                                                             : qsi_messages_is_stored(view, row));
    QS_DCHECK(code < build->route_count);
    build->row_count += 1;
    return QS_OK;
}

/* Makes room for the stretch, so that its rows are in one stretch. */
static qs_status open_stretch(struct qsi_record_build *build, const struct qsi_row_stretch *stretch)
{
    struct qsi_row_stretch empty = {.record = stretch->record, .first_row = stretch->first_row};
    size_t count = build->stretches.bytes / sizeof empty;

    if (count > 0) {
        const struct qsi_row_stretch *last =
            (const struct qsi_row_stretch *)(const void *)build->stretches.data + count - 1;
        QS_DCHECK(last->count > 0); /* empty ones were removed */
        if (last->record == stretch->record &&
            last->first_row + last->count == stretch->first_row) {
            return QS_OK;
        }
    }
    return qsi_buf_append(&build->stretches, &empty, sizeof empty);
}

static void close_stretch(struct qsi_record_build *build, uint32_t taken)
{
    size_t count = build->stretches.bytes / sizeof(struct qsi_row_stretch);
    struct qsi_row_stretch *last =
        (struct qsi_row_stretch *)(void *)build->stretches.data + count - 1;

    QS_DCHECK(count > 0);
    last->count += taken;
    if (last->count == 0) {
        build->stretches.bytes -= sizeof *last;
    }
}

qs_status qsi_record_build_add(struct qsi_record_build *build,
                               const struct qsi_row_stretch *stretch, uint32_t rows_max,
                               uint64_t bytes_max, uint32_t *taken_out, qs_error *error)
{
    struct qsi_messages view;
    qs_status status;
    uint32_t taken = 0;

    *taken_out = 0;
    if (stretch->count == 0) {
        return QS_OK;
    }
    qsi_messages_view(&view, stretch->record);
    QS_ASSERT(stretch->first_row < view.row_count &&
              stretch->count <= view.row_count - stretch->first_row);
    QS_TRY(begin_record(build, &view));
    QS_TRY(open_stretch(build, stretch));
    for (status = QS_OK; taken < stretch->count; taken++) {
        uint32_t row = stretch->first_row + taken;
        size_t stored_bytes = build->stored.bytes;
        struct row note;
        bool differ;
        status = look_at(build, &view, row, &note, error);
        if (status != QS_OK) {
            build->stored.bytes = stored_bytes;
            break;
        }
        differ = build->properties_differ || !has_same_properties(build, &note);
        if (!fits(build, &note, differ, rows_max, bytes_max)) {
            build->stored.bytes = stored_bytes;
            break;
        }
        status = record_row(build, &view, row, &note);
        if (status != QS_OK) {
            build->stored.bytes = stored_bytes;
            break;
        }
        build->properties_differ = differ;
    }
    close_stretch(build, taken);
    QS_DCHECK(taken <= stretch->count && build->row_count <= rows_max);
    *taken_out = taken;
    return taken > 0 ? QS_OK : status;
}

struct qsi_row_stretch qsi_messages_ref_stretch(const struct qsi_messages_ref *ref, uint32_t i,
                                                uint32_t end)
{
    struct qsi_row_stretch stretch = {.count = 1};

    QS_DCHECK(i < end);
    stretch.record = qsi_messages_ref_record(ref, i, &stretch.first_row);
    if (ref->single_records) {
        return stretch;
    }
    if (ref->rows == NULL) {
        stretch.count = end - i;
        return stretch;
    }
    while (i + stretch.count < end &&
           ref->rows[i + stretch.count] == stretch.first_row + stretch.count) {
        stretch.count += 1;
    }
    return stretch;
}
