/* Gathering messages: first the slots, then their envelopes and bodies in few reads; everything is
 * checked.
 *
 * Invariant: the slot of an embedded or stored row was written for this sequence of this file, and
 * refers to bytes between the slots and heap_end.  After qsi_gather_heap the envelope and the body
 * of an embedded row have the right checksum. */
#include "alloc.h"
#include "check.h"
#include "envelope.h"
#include "error.h"
#include "segment_file.h"

#include <string.h>

#define SLOT_BATCH_MAX 4096u /* slots of one read */
#define SLOT_BATCH_MIN 128u
#define GAP_BYTES_MAX 65536u        /* a larger gap between two bodies is not read */
#define WASTED_BYTES_MAX (8u << 20) /* limit for the sum of the gaps */

/* A stretch of the heap that is read at once. */
struct piece {
    uint64_t from;
    uint64_t to;
    uint64_t heap_index; /* of from in the gathered bytes */
};

void qsi_gather_fini(struct qsi_gather *gather)
{
    qsi_buf_fini(&gather->rows);
    qsi_buf_fini(&gather->envelopes);
    qsi_buf_fini(&gather->pieces);
    qsi_free(gather->heap);
    memset(gather, 0, sizeof *gather);
}

static qs_status fail_memory(const struct qsi_segment_view *view, qs_error *error)
{
    return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "reading messages"), view->file);
}

/* -- planning what to read -------------------------------------------------------------------- */

static struct piece *last_piece(const struct qsi_gather *gather)
{
    QS_DCHECK(gather->pieces.bytes >= sizeof(struct piece));
    return (struct piece *)(void *)(gather->pieces.data + gather->pieces.bytes) - 1;
}

static qs_status add_piece(struct qsi_gather *gather, uint64_t from, uint64_t to)
{
    const struct piece piece = {from, to, gather->heap_bytes};

    QS_DCHECK(from <= to);
    QS_TRY(qsi_buf_append(&gather->pieces, &piece, sizeof piece));
    gather->heap_bytes += to - from;
    return QS_OK;
}

/* Plans to read bytes [from, to) of the file; they will be at *heap_index_out of the gathered
 * ones. */
static inline qs_status plan(struct qsi_gather *gather, uint64_t from, uint64_t to,
                             uint32_t *heap_index_out)
{
    struct piece *piece = gather->pieces.bytes > 0 ? last_piece(gather) : NULL;

    if (piece != NULL && from >= piece->from && from <= piece->to + GAP_BYTES_MAX &&
        (from <= piece->to || gather->wasted_bytes + (from - piece->to) <= WASTED_BYTES_MAX)) {
        gather->wasted_bytes += from > piece->to ? from - piece->to : 0;
        if (to > piece->to) {
            gather->heap_bytes += to - piece->to;
            piece->to = to;
        }
    } else {
        QS_TRY(add_piece(gather, from, to));
        piece = last_piece(gather);
    }
    QS_DCHECK(from >= piece->from && to <= piece->to);
    *heap_index_out = (uint32_t)(piece->heap_index + (from - piece->from));
    return QS_OK;
}

static qs_status add_envelope(struct qsi_gather *gather, uint64_t where, uint32_t bytes)
{
    struct qsi_row_envelope envelope = {.where = where, .bytes = bytes};

    QS_TRY(plan(gather, where, where + bytes, &envelope.heap_index));
    QS_TRY(qsi_buf_append(&gather->envelopes, &envelope, sizeof envelope));
    gather->envelope_count++;
    return QS_OK;
}

static inline qs_status plan_embedded(struct qsi_gather *gather, struct qsi_row *row, uint32_t back)
{
    uint64_t envelope_at = row->where - back;
    const struct qsi_row_envelope *last = qsi_gather_envelopes(gather) + gather->envelope_count;

    QS_DCHECK(back <= row->where); /* checked by qsi_segment_view_holds */
    if (gather->envelope_count == 0 || last[-1].where != envelope_at ||
        last[-1].bytes != row->envelope_bytes) {
        QS_TRY(add_envelope(gather, envelope_at, row->envelope_bytes));
    }
    row->envelope = gather->envelope_count - 1;
    return plan(gather, row->where, row->where + row->body_bytes, &row->heap_index);
}

/* -- slots ------------------------------------------------------------------------------------ */

static bool is_zeros(const uint8_t *bytes)
{
    static const uint8_t zeros[QSI_SLOT_BYTES];

    return memcmp(bytes, zeros, QSI_SLOT_BYTES) == 0;
}

/* Classifies a slot.  bytes NULL: the file lacks the slot. */
static inline enum qsi_row_kind judge(const struct qsi_segment_view *view, struct qsi_row *row,
                                      const uint8_t *bytes, uint32_t *back_out)
{
    struct qsi_slot slot;

    row->identity = qsi_slot_identity(view->seed, qsi_segment_view_sequence(view, row->slot));
    row->where =
        view->slots_at + (uint64_t)qsi_segment_view_place(view, row->slot) * QSI_SLOT_BYTES;
    if (bytes == NULL) {
        return QSI_ROW_NOTHING_THERE;
    }
    if (QS_UNLIKELY(!qsi_slot_decode(&slot, bytes, row->identity) ||
                    (slot.kind == QSI_SLOT_EMBEDDED && !qsi_segment_view_holds(view, &slot)))) {
        return is_zeros(bytes) ? QSI_ROW_NOTHING_THERE : QSI_ROW_NO_SLOT;
    }
    row->where = slot.where;
    row->envelope = slot.back;
    row->envelope_bytes = slot.envelope_bytes;
    row->body_bytes = slot.body_bytes;
    row->crc = slot.crc;
    *back_out = slot.back;
    return slot.kind == QSI_SLOT_EMBEDDED ? QSI_ROW_EMBEDDED : QSI_ROW_STORED;
}

/* Slots of the file from the first to the last wanted one in [from, to). */
struct batch {
    uint32_t from;
    uint32_t to;
    uint32_t first_place; /* place of the first slot in bytes */
    uint8_t *bytes;
};

static qs_status read_batch(struct batch *batch, const struct qsi_segment_view *view,
                            qs_error *error)
{
    uint32_t place = qsi_segment_view_place(view, batch->from);
    uint32_t last = batch->to - 1;
    uint32_t end = qsi_segment_view_place(view, last) + (qsi_segment_view_has(view, last) ? 1 : 0);

    QS_DCHECK(batch->from < batch->to && batch->to <= view->index->entries);
    batch->first_place = place;
    if (place == end) {
        return QS_OK;
    }
    return qsi_segment_view_read(view, batch->bytes, (size_t)(end - place) * QSI_SLOT_BYTES,
                                 view->slots_at + (uint64_t)place * QSI_SLOT_BYTES, error);
}

/* Turns slots into rows up to bytes_max; *next_out is the first remaining one, or batch->to. */
static qs_status take_batch(struct qsi_gather *gather, const struct qsi_segment_view *view,
                            const struct batch *batch, const uint64_t *wanted, uint64_t bytes_max,
                            uint64_t *bytes_io, uint32_t *next_out)
{
    uint32_t room = qsi_bitmap_count(wanted, batch->from, batch->to);
    uint8_t *place;
    struct qsi_row *row;

    QS_TRY(qsi_buf_reserve(&gather->rows, room * sizeof *row, &place));
    row = (struct qsi_row *)(void *)place;
    for (uint32_t slot = qsi_bitmap_next(wanted, batch->from, batch->to); slot < batch->to;
         slot = qsi_bitmap_next(wanted, slot + 1, batch->to), row++) {
        uint32_t at = qsi_segment_view_place(view, slot) - batch->first_place;
        uint32_t back = 0;
        uint64_t bytes;

        *row = (struct qsi_row){.slot = slot};
        row->kind = (uint8_t)judge(
            view, row,
            qsi_segment_view_has(view, slot) ? batch->bytes + (size_t)at * QSI_SLOT_BYTES : NULL,
            &back);
        bytes = row->kind == QSI_ROW_EMBEDDED ? (uint64_t)row->envelope_bytes + row->body_bytes : 0;
        if (gather->row_count > 0 && *bytes_io + bytes > bytes_max) {
            *next_out = slot;
            return QS_OK;
        }
        QS_DCHECK(slot >= batch->from && slot < batch->to);
        *bytes_io += bytes;
        if (row->kind == QSI_ROW_EMBEDDED) {
            QS_TRY(plan_embedded(gather, row, back));
        }
        gather->damaged_count += row->kind > QSI_ROW_STORED;
        gather->rows.bytes += sizeof *row;
        gather->row_count++;
    }
    *next_out = batch->to;
    return QS_OK;
}

/* Slots to read at once: a message takes about 64 bytes at least, so a small bytes_max needs few
 * slots. */
static uint32_t batch_slots(uint64_t bytes_max)
{
    uint64_t slots = bytes_max / 64;

    return slots < SLOT_BATCH_MIN   ? SLOT_BATCH_MIN
           : slots > SLOT_BATCH_MAX ? SLOT_BATCH_MAX
                                    : (uint32_t)slots;
}

static qs_status take_slots(struct qsi_gather *gather, const struct qsi_segment_view *view,
                            struct batch *batch, uint32_t from, uint32_t to, const uint64_t *wanted,
                            uint64_t bytes_max, uint32_t *next_out, qs_error *error)
{
    uint32_t step = batch_slots(bytes_max);
    uint64_t bytes = 0;

    /* The rest of the record and the gaps must fit below 4 GiB, too. */
    if (bytes_max > QSI_SEGMENT_MESSAGE_BYTES_MAX) {
        bytes_max = QSI_SEGMENT_MESSAGE_BYTES_MAX;
    }
    for (batch->from = qsi_bitmap_next(wanted, from, to); batch->from < to;
         batch->from = qsi_bitmap_next(wanted, batch->to, to)) {
        uint32_t next;

        batch->to = to - batch->from > step ? batch->from + step : to;
        batch->to = qsi_bitmap_end(wanted, batch->from, batch->to);
        QS_DCHECK(batch->to - batch->from <= step);
        QS_TRY(read_batch(batch, view, error));
        if (take_batch(gather, view, batch, wanted, bytes_max, &bytes, &next) != QS_OK) {
            return fail_memory(view, error);
        }
        if (next < batch->to) {
            *next_out = next;
            return QS_OK;
        }
    }
    *next_out = to;
    return QS_OK;
}

qs_status qsi_gather_slots(struct qsi_gather *gather, const struct qsi_segment_view *view,
                           uint32_t from, uint32_t to, const uint64_t *wanted, uint64_t bytes_max,
                           uint32_t *next_out, qs_error *error)
{
    struct batch batch = {.bytes = NULL};
    uint32_t count = to - from < batch_slots(bytes_max) ? to - from : batch_slots(bytes_max);
    qs_status status;

    QS_ASSERT(from < to && to <= view->index->entries && gather->row_count == 0);
    *next_out = to;
    batch.bytes = qsi_alloc((size_t)count * QSI_SLOT_BYTES);
    if (batch.bytes == NULL) {
        return fail_memory(view, error);
    }
    status = take_slots(gather, view, &batch, from, to, wanted, bytes_max, next_out, error);
    qsi_free(batch.bytes);
    return status;
}

/* -- envelopes and bodies --------------------------------------------------------------------- */

static qs_status read_pieces(struct qsi_gather *gather, const struct qsi_segment_view *view,
                             qs_error *error)
{
    const struct piece *pieces = (const struct piece *)(const void *)gather->pieces.data;
    size_t count = gather->pieces.bytes / sizeof *pieces;

    for (size_t i = 0; i < count; i++) {
        QS_DCHECK(pieces[i].heap_index + (pieces[i].to - pieces[i].from) <= gather->heap_bytes);
        QS_TRY(qsi_segment_view_read(view, gather->heap + pieces[i].heap_index,
                                     (size_t)(pieces[i].to - pieces[i].from), pieces[i].from,
                                     error));
    }
    return QS_OK;
}

static void open_envelopes(struct qsi_gather *gather)
{
    struct qsi_row_envelope *envelopes = qsi_gather_envelopes(gather);

    for (uint32_t i = 0; i < gather->envelope_count; i++) {
        struct qsi_row_envelope *envelope = &envelopes[i];

        QS_DCHECK(envelope->heap_index + (uint64_t)envelope->bytes <= gather->heap_bytes);
        envelope->is_malformed =
            !qsi_envelope_decode(gather->heap + envelope->heap_index, envelope->bytes,
                                 &envelope->exchange, &envelope->key, &envelope->properties);
    }
}

uint32_t qsi_row_crc(const struct qsi_gather *gather, const struct qsi_row *row)
{
    const struct qsi_row_envelope *envelope = qsi_gather_envelopes(gather) + row->envelope;
    uint32_t crc =
        qs_crc32c(row->identity, gather->heap + envelope->heap_index, row->envelope_bytes);

    QS_DCHECK(row->envelope < gather->envelope_count);
    QS_DCHECK(row->heap_index + (uint64_t)row->body_bytes <= gather->heap_bytes);
    return qs_crc32c(crc, gather->heap + row->heap_index, row->body_bytes);
}

static void check_rows(struct qsi_gather *gather)
{
    const struct qsi_row_envelope *envelopes = qsi_gather_envelopes(gather);
    struct qsi_row *row = qsi_gather_rows(gather);

    for (uint32_t i = 0; i < gather->row_count; i++, row++) {
        if (row->kind == QSI_ROW_EMBEDDED && QS_UNLIKELY(qsi_row_crc(gather, row) != row->crc ||
                                                         envelopes[row->envelope].is_malformed)) {
            row->kind = QSI_ROW_NO_BODY;
            gather->damaged_count++;
        }
    }
}

qs_status qsi_gather_heap(struct qsi_gather *gather, const struct qsi_segment_view *view,
                          qs_error *error)
{
    if (gather->heap_bytes == 0) {
        return QS_OK;
    }
    gather->heap = qsi_alloc((size_t)gather->heap_bytes);
    if (gather->heap == NULL) {
        return fail_memory(view, error);
    }
    QS_TRY(read_pieces(gather, view, error));
    open_envelopes(gather);
    check_rows(gather);
    return QS_OK;
}
