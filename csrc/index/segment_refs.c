/* The references of a segment to the message store, which keep message files.
 *
 * Invariant: damage of one slot does not prevent the visit of other references. */
#include "check.h"
#include "segment_file.h"

struct visit {
    qsi_segment_ref_visitor *visit;
    void *context;
    bool has_damage;
    struct qsi_row damage; /* the first */
};

static void visit_rows(struct visit *visit, const struct qsi_gather *gather)
{
    const struct qsi_row *row = qsi_gather_rows(gather);

    for (uint32_t i = 0; i < gather->row_count; i++, row++) {
        if (row->kind == QSI_ROW_STORED) {
            struct qsi_body_ref ref = qsi_row_ref(row);

            QS_DCHECK(i == 0 || row[-1].slot < row->slot);
            visit->visit(visit->context, row->slot, &ref);
        } else if (row->kind != QSI_ROW_EMBEDDED && !visit->has_damage) {
            visit->has_damage = true;
            visit->damage = *row;
        }
    }
}

static qs_status visit_all(struct visit *visit, const struct qsi_segment_view *view,
                           const uint64_t *wanted, qs_error *error)
{
    uint32_t entries = view->index->entries;

    for (uint32_t from = 0; from < entries;) {
        struct qsi_gather gather = {.heap = NULL};
        qs_status status =
            qsi_gather_slots(&gather, view, from, entries, wanted, UINT64_MAX, &from, error);

        if (status == QS_OK) {
            visit_rows(visit, &gather);
        }
        qsi_gather_fini(&gather);
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_OK;
}

qs_status qsi_segment_read_refs(struct qsi_index *index, const struct qsi_segment_file *file,
                                const uint64_t *wanted, qsi_segment_ref_visitor *visit,
                                void *context, qs_error *error)
{
    struct visit visiting = {.visit = visit, .context = context};
    struct qsi_segment_view view;
    qs_status status;

    if (qsi_bitmap_next(wanted, 0, index->entries) == index->entries) {
        return QS_OK;
    }
    QS_TRY(qsi_segment_view_open(&view, index, file, QS_OPEN_READ, error));
    status = visit_all(&visiting, &view, wanted, error);
    qsi_segment_view_close(&view);
    if (status == QS_OK && visiting.has_damage) {
        return qsi_segment_fail_slot(error, file, &visiting.damage);
    }
    return status;
}
