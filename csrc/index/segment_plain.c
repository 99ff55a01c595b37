/* Messages with contiguous bodies, as batches and flushes write them, are read directly into the
 * bodies of the new record.  Of each message only the data for its checksum is kept, and its bytes
 * are checked while they are in the processor's cache.
 *
 * Invariant: other messages, and damaged ones, are left to gathering, which is slower and handles
 * all cases; no error is reported here. */
#include "alloc.h"
#include "check.h"
#include "chunk.h"
#include "crc32c_rows.h"
#include "envelope.h"
#include "error.h"
#include "record.h"
#include "segment_file.h"

#include <string.h>

#define STRETCHES_MAX 16u /* a batch or a page of a file begins a new one */
/* Of one read: the bytes are still in the cache when they are checked. */
#define READ_BYTES (256u << 10)
#define SLOTS_READ 512u /* of one read, for the same reason */

/* Contiguous bodies after their common envelope. */
struct stretch {
    uint64_t envelope_at;
    uint64_t where; /* of the first body */
    uint32_t envelope_bytes;
    uint32_t first, end; /* rows */
};

struct plain {
    const struct qsi_segment_view *view;
    struct qsi_crc32c_row *rows; /* end: of the body, among the bodies; seed: the identity */
    uint32_t first, count;       /* slots */
    /* Bytes; envelopes count once for each message, as in the limit of a load. */
    uint64_t counted;
    bool is_full; /* the next message would exceed the limit */
    struct stretch stretches[STRETCHES_MAX];
    uint32_t stretch_count;
    uint8_t *envelope; /* the envelope of all rows, and room for another */
};

static uint32_t bodies_bytes(const struct plain *plain, uint32_t count)
{
    QS_DCHECK(count <= plain->count);
    return count > 0 ? plain->rows[count - 1].end : 0;
}

/* -- slots ------------------------------------------------------------------------------------ */

/* Adds a row.  False: the slot is of another kind, or would begin too many stretches. */
static bool add_row(struct plain *plain, const struct qsi_slot *slot, uint32_t identity)
{
    uint32_t at = bodies_bytes(plain, plain->count);
    uint64_t envelope_at = slot->where - slot->back;
    struct stretch *stretch =
        plain->stretch_count > 0 ? &plain->stretches[plain->stretch_count - 1] : NULL;

    if (stretch == NULL || stretch->envelope_at != envelope_at ||
        stretch->envelope_bytes != slot->envelope_bytes ||
        stretch->where + (at - bodies_bytes(plain, stretch->first)) != slot->where) {
        if (plain->stretch_count == STRETCHES_MAX ||
            slot->envelope_bytes != plain->stretches[0].envelope_bytes) {
            return false;
        }
        stretch = &plain->stretches[plain->stretch_count++];
        *stretch = (struct stretch){.envelope_at = envelope_at,
                                    .where = slot->where,
                                    .envelope_bytes = slot->envelope_bytes,
                                    .first = plain->count};
    }
    QS_DCHECK(plain->stretch_count <= STRETCHES_MAX);
    plain->rows[plain->count++] =
        (struct qsi_crc32c_row){at + slot->body_bytes, slot->crc, identity};
    stretch->end = plain->count;
    return true;
}

/* Takes slots that were read; false at the first that does not fit, or exceeds the limit. */
static bool take_slots(struct plain *plain, const uint8_t *bytes, uint32_t count,
                       uint64_t bytes_max)
{
    const struct qsi_segment_view *view = plain->view;
    uint32_t identities[SLOTS_READ];
    uint32_t whole = qsi_crc32c_cells_match(
        bytes, count, view->seed, qsi_segment_view_sequence(view, plain->first + plain->count),
        identities);

    QS_DCHECK(count > 0 && count <= SLOTS_READ);
    for (uint32_t i = 0; i < whole; i++, bytes += QSI_SLOT_BYTES) {
        struct qsi_slot slot = qsi_slot_fields(bytes);

        if (slot.kind != QSI_SLOT_EMBEDDED || !qsi_segment_view_holds(view, &slot)) {
            return false;
        }
        if (plain->count == 0) {
            plain->stretches[0].envelope_bytes = slot.envelope_bytes;
        }
        plain->counted += (uint64_t)slot.envelope_bytes + slot.body_bytes;
        plain->is_full = plain->count > 0 && plain->counted > bytes_max;
        if (plain->is_full || !add_row(plain, &slot, identities[i])) {
            return false;
        }
    }
    return whole == count;
}

/* Finds as many consecutive wanted slots as fit together. */
static qs_status find_rows(struct plain *plain, uint32_t end, uint64_t bytes_max, qs_error *error)
{
    const struct qsi_segment_view *view = plain->view;
    uint8_t *bytes = qsi_alloc((size_t)SLOTS_READ * QSI_SLOT_BYTES);
    qs_status status = QS_OK;
    bool alike = bytes != NULL;

    plain->rows = qsi_alloc((size_t)(end - plain->first) * sizeof *plain->rows);
    if (plain->rows == NULL || bytes == NULL) {
        qsi_free(bytes);
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "reading messages"), view->file);
    }
    for (uint32_t slot = plain->first; alike && slot < end; slot = plain->first + plain->count) {
        uint32_t count = end - slot < SLOTS_READ ? end - slot : SLOTS_READ;
        uint32_t place = qsi_segment_view_place(view, slot);
        /* a packed file may lack some */
        if (qsi_segment_view_place(view, slot + count - 1) - place != count - 1 ||
            !qsi_segment_view_has(view, slot + count - 1)) {
            break;
        }
        status = qsi_segment_view_read(view, bytes, (size_t)count * QSI_SLOT_BYTES,
                                       view->slots_at + (uint64_t)place * QSI_SLOT_BYTES, error);
        if (status != QS_OK) {
            break;
        }
        alike = take_slots(plain, bytes, count, bytes_max);
    }
    qsi_free(bytes);
    return status;
}

/* -- envelopes -------------------------------------------------------------------------------- */

/* Keeps only rows whose envelope equals that of the first. */
static qs_status compare_envelopes(struct plain *plain, qs_error *error)
{
    uint32_t bytes = plain->stretches[0].envelope_bytes;

    plain->envelope = qsi_alloc(2 * (size_t)bytes);
    if (plain->envelope == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "reading messages"),
                                plain->view->file);
    }
    for (uint32_t i = 0; i < plain->stretch_count; i++) {
        struct stretch *stretch = &plain->stretches[i];
        uint8_t *into = plain->envelope + (i > 0 ? bytes : 0);

        QS_TRY(qsi_segment_view_read(plain->view, into, bytes, stretch->envelope_at, error));
        if (memcmp(plain->envelope, into, bytes) != 0) {
            QS_DCHECK(i > 0 && stretch->first <= plain->count);
            plain->stretch_count = i;
            plain->count = stretch->first;
            plain->is_full = false;
        }
    }
    return QS_OK;
}

/* -- the record ------------------------------------------------------------------------------- */

/* Reads the bodies of a stretch into the record, and checks them.  QS_ECORRUPT: one is damaged. */
static qs_status read_stretch(const struct plain *plain, const struct stretch *stretch,
                              uint8_t *bodies, qs_error *error)
{
    uint32_t begin = bodies_bytes(plain, stretch->first);
    uint32_t end = bodies_bytes(plain, stretch->end);
    uint32_t row = stretch->first;
    uint32_t from = begin; /* of the row */

    QS_DCHECK(begin <= end && stretch->first < stretch->end);
    for (uint32_t at = begin; at < end || row < stretch->end;) {
        uint32_t bytes = end - at < READ_BYTES ? end - at : READ_BYTES;
        uint32_t count = 0;

        if (bytes > 0) {
            QS_TRY(qsi_segment_view_read(plain->view, bodies + at, bytes,
                                         stretch->where + (at - begin), error));
        }
        at += bytes;
        while (row + count < stretch->end && plain->rows[row + count].end <= at) {
            count++;
        }
        if (!qsi_crc32c_rows_match(plain->rows + row, count, plain->envelope,
                                   stretch->envelope_bytes, bodies, from)) {
            return QS_ECORRUPT;
        }
        row += count;
        from = row > stretch->first ? plain->rows[row - 1].end : from;
    }
    return QS_OK;
}

static void put_head(const struct plain *plain, const struct qsi_messages_layout *layout,
                     uint8_t *record, struct qsi_slice exchange, struct qsi_slice key,
                     struct qsi_slice properties)
{
    uint8_t *place = qsi_messages_properties_place(record, layout);
    uint8_t *offsets = qsi_messages_body_offsets_place(record, layout);
    const uint32_t destination = 0;
    uint64_t at = 0;

    qsi_messages_begin(record, layout);
    qsi_messages_put_destination(record, 0, plain->view->file->queue_id,
                                 qsi_segment_view_sequence(plain->view, plain->first),
                                 plain->count);
    qsi_messages_put_route(record, layout, 0, &at, exchange, key, &destination, 1);
    QS_DCHECK(at == layout->routes_bytes);
    qsi_put_u32(place, properties.bytes);
    memcpy(place + 4, properties.data, properties.bytes);
    qsi_put_u32(offsets, 0);
    for (uint32_t i = 0; i < plain->count; i++) {
        qsi_put_u32(offsets + 4 * ((size_t)i + 1), plain->rows[i].end);
    }
}

/* QS_ECORRUPT: some bytes are damaged. */
static qs_status make_record(const struct plain *plain, struct qsi_segment_load *load,
                             qs_error *error)
{
    struct qsi_messages_layout layout = {
        .row_count = plain->count,
        .route_count = 1,
        .destination_count = 1,
        .bodies_bytes = bodies_bytes(plain, plain->count),
    };
    struct qsi_slice exchange, key, properties;
    struct qsi_chunk *chunk;
    qs_status status = QS_OK;

    QS_DCHECK(plain->count > 0 && plain->stretch_count > 0);
    if (!qsi_envelope_decode(plain->envelope, plain->stretches[0].envelope_bytes, &exchange, &key,
                             &properties)) {
        return QS_ECORRUPT;
    }
    layout.routes_bytes = qsi_route_bytes(exchange.bytes, key.bytes, 1);
    layout.properties_bytes = properties.bytes;
    QS_TRY(qsi_messages_layout(&layout, error));
    chunk = qsi_chunk_create_reusable(load->budget, (size_t)layout.record_bytes);
    if (chunk == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "reading messages"),
                                plain->view->file);
    }
    put_head(plain, &layout, chunk->data, exchange, key, properties);
    for (uint32_t i = 0; status == QS_OK && i < plain->stretch_count; i++) {
        status = read_stretch(plain, &plain->stretches[i],
                              qsi_messages_bodies_place(chunk->data, &layout), error);
    }
    if (status != QS_OK) {
        qsi_chunk_unref(chunk);
        return status;
    }
    chunk->used = (size_t)layout.record_bytes;
    load->chunk = chunk;
    return QS_OK;
}

/* Whether the rows are all that one load would bring. */
static bool is_all(const struct plain *plain, const struct qsi_segment_load *load)
{
    return plain->is_full ||
           qsi_bitmap_next(load->wanted, plain->first + plain->count, load->to) == load->to;
}

static qs_status load_rows(struct plain *plain, struct qsi_segment_load *load, uint32_t end,
                           qs_error *error)
{
    uint64_t bytes_max = load->bytes_max < QSI_SEGMENT_MESSAGE_BYTES_MAX
                             ? load->bytes_max
                             : QSI_SEGMENT_MESSAGE_BYTES_MAX;

    QS_TRY(find_rows(plain, end, bytes_max, error));
    if (!is_all(plain, load)) {
        return QS_OK;
    }
    QS_TRY(compare_envelopes(plain, error));
    if (!is_all(plain, load)) {
        return QS_OK;
    }
    QS_TRY(make_record(plain, load, error));
    load->first = plain->first;
    load->count = plain->count;
    return QS_OK;
}

qs_status qsi_segment_load_plain(const struct qsi_segment_view *view, struct qsi_segment_load *load,
                                 qs_error *error)
{
    struct plain plain = {.view = view};
    qs_error own = {0}; /* not the caller's: gathering reports which message is damaged */
    uint32_t end;
    qs_status status;

    QS_DCHECK(load->chunk == NULL);
    plain.first = qsi_bitmap_next(load->wanted, load->from, load->to);
    end = qsi_bitmap_next_clear(load->wanted, plain.first, load->to);
    status = load_rows(&plain, load, end, &own);
    qsi_free(plain.rows);
    qsi_free(plain.envelope);
    if (status == QS_OK || qsi_is_unreadable(status)) {
        return QS_OK;
    }
    if (error != NULL) {
        *error = own;
    }
    return status;
}
