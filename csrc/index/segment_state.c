/* The settled and seen messages of a segment: two areas, which are written in turn.
 *
 * Invariant: the area that a checkpoint names is never overwritten. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "file.h"
#include "segment_file.h"

#include <string.h>

/* An area that no checkpoint names may be overwritten again. */
static uint8_t area_to_write(const struct qsi_segment_file *file, uint8_t durable_area)
{
    QS_ASSERT(file->state_area <= 2 && durable_area <= 2);
    if (file->state_area != 0 && file->state_area != durable_area) {
        return file->state_area;
    }
    return durable_area == 1 ? 2 : 1;
}

static uint8_t *alloc_area(const struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error)
{
    uint8_t *area = qsi_alloc((size_t)qsi_segment_state_bytes(index->entries));

    if (area == NULL) {
        qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "state of a segment"), file);
    }
    return area;
}

static qs_status write_area(const struct qsi_segment_view *view, const uint8_t *area,
                            uint64_t bytes, uint8_t number, qs_error *error)
{
    const qs_part part = {area, (size_t)bytes};
    qs_status status = qsi_file_write(view->index->env, view->handle, &part, 1,
                                      qsi_segment_state_at(view->index->entries, number), error);

    QS_DCHECK(number == 1 || number == 2);
    return status == QS_OK ? QS_OK : qsi_segment_fail(error, status, view->file);
}

/* Updates the file's description only after everything is written. */
static qs_status write_encoded(const struct qsi_segment_view *view, struct qsi_segment_file *file,
                               uint8_t number, const struct qsi_segment_state *state,
                               qs_error *error)
{
    uint8_t *area = alloc_area(view->index, file, error);
    uint64_t bytes;
    uint32_t crc;
    qs_status status;

    if (area == NULL) {
        return QS_ENOMEM;
    }
    crc = qsi_segment_state_encode(area, &bytes, file, view->index->entries, state);
    QS_DCHECK(bytes <= qsi_segment_state_bytes(view->index->entries));
    status = write_area(view, area, bytes, number, error);
    qsi_free(area);
    if (status == QS_OK) {
        file->state_area = number;
        file->state_crc = crc;
    }
    return status;
}

static qs_status write_state(struct qsi_index *index, struct qsi_segment_file *file,
                             uint8_t durable_area, const struct qsi_segment_state *state,
                             qs_error *error)
{
    struct qsi_segment_view view;
    qs_status status;

    QS_TRY(qsi_segment_view_open_to_write(&view, index, file, error));
    status = write_encoded(&view, file, area_to_write(file, durable_area), state, error);
    QS_ASSERT(status != QS_OK ||
              file->state_area != durable_area); /* a power cut leaves durable_area intact */
    qsi_segment_view_close(&view);
    return status;
}

qs_status qsi_segment_write_state(struct qsi_index *index, struct qsi_segment_file *file,
                                  uint8_t durable_area, const struct qsi_segment_state *state,
                                  qs_error *error)
{
    struct qsi_segment_file before = *file;
    qs_status status = QS_OK;

    QS_ASSERT(durable_area <= 2);
    if (file->heap_end == 0) {
        status = qsi_segment_make(index, file, error);
    }
    if (status == QS_OK) {
        status = write_state(index, file, durable_area, state, error);
    }
    if (status != QS_OK && before.heap_end == 0 && file->heap_end > 0) {
        /* If this fails, the file stays until its name is used again, or keep returns false for
         * it. */
        (void)!qsi_segment_remove(index, file, NULL);
        *file = before;
    }
    return status;
}

/* -- reading ---------------------------------------------------------------------------------- */

/* Allocates zeros for a wanted column that the file has; false: no memory. */
static bool make_column(void **column_out, uint32_t wanted, uint32_t column, size_t bytes)
{
    if ((wanted & column) != 0) {
        *column_out = qsi_zalloc(bytes);
    }
    return (wanted & column) == 0 || *column_out != NULL;
}

static qs_status make_columns(const struct qsi_segment_view *view, struct qsi_segment_state *state,
                              uint32_t columns, qs_error *error)
{
    size_t slots = (size_t)qsi_bitmap_words(view->index->entries) * QSI_WORD_BITS;
    uint32_t wanted = columns & state->wanted;
    void *deliveries = state->deliveries, *expiries = state->expiries, *sizes = state->sizes,
         *dues = state->dues;
    bool made =
        make_column(&deliveries, wanted, QSI_STATE_DELIVERIES, slots) &&
        make_column(&expiries, wanted, QSI_STATE_EXPIRIES, slots * sizeof *state->expiries) &&
        make_column(&sizes, wanted, QSI_STATE_SIZES, slots * sizeof *state->sizes) &&
        make_column(&dues, wanted, QSI_STATE_DUES, slots * sizeof *state->dues);

    state->deliveries = deliveries;
    state->expiries = expiries;
    state->sizes = sizes;
    state->dues = dues;
    return made ? QS_OK
                : qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "state of a segment"),
                                   view->file);
}

static qs_status read_area(const struct qsi_segment_view *view, uint8_t *area,
                           struct qsi_segment_state *state, uint32_t *columns_out, qs_error *error)
{
    uint32_t entries = view->index->entries;
    uint64_t at = qsi_segment_state_at(entries, view->file->state_area);
    uint64_t common = qsi_segment_state_used(entries, QSI_STATE_DELIVERIES), used;

    QS_DCHECK(view->file->state_area == 1 || view->file->state_area == 2);
    QS_TRY(qsi_segment_view_read(view, area, (size_t)common, at, error));
    used = qsi_segment_state_used(entries, qsi_segment_state_columns(area));
    if (used > common) { /* rare: columns are most of the area */
        QS_TRY(qsi_segment_view_read(view, area + common, (size_t)(used - common), at + common,
                                     error));
    }
    QS_TRY(qsi_segment_state_check(area, view->file, entries, error));
    *columns_out = qsi_segment_state_columns(area);
    QS_TRY(make_columns(view, state, *columns_out, error));
    qsi_segment_state_decode(area, entries, state);
    return QS_OK;
}

qs_status qsi_segment_view_state(const struct qsi_segment_view *view,
                                 struct qsi_segment_state *state, uint32_t *columns_out,
                                 qs_error *error)
{
    uint32_t entries = view->index->entries;
    uint32_t words = qsi_bitmap_words(entries);
    qs_status status = QS_OK;
    uint8_t *area;

    *columns_out = 0;
    memset(state->settled, 0, words * sizeof *state->settled);
    memset(state->seen, 0, words * sizeof *state->seen);
    if (view->file->state_area != 0) {
        area = alloc_area(view->index, view->file, error);
        status = area == NULL ? QS_ENOMEM : read_area(view, area, state, columns_out, error);
        qsi_free(area);
    }
    /* Messages that a packed file lacks are settled, whatever the state area has. */
    for (uint32_t i = 0; status == QS_OK && view->present != NULL && i < words; i++) {
        state->settled[i] |= ~view->present[i] & qsi_bitmap_mask(entries, i);
    }
    return status;
}

qs_status qsi_segment_read_state(struct qsi_index *index, const struct qsi_segment_file *file,
                                 struct qsi_segment_state *state, uint32_t *columns_out,
                                 qs_error *error)
{
    struct qsi_segment_view view;
    qs_status status;

    QS_TRY(qsi_segment_view_open(&view, index, file, QS_OPEN_READ, error));
    status = qsi_segment_view_state(&view, state, columns_out, error);
    qsi_segment_view_close(&view);
    return status;
}
