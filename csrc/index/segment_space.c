/* Space: rewriting segments without settled messages, syncing, removing and checking them.
 *
 * Invariant: only functions whose comments say so remove a file; rewriting keeps the old one. */
#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "segment_file.h"

#include <string.h>

#define STEP_BYTES (1u << 20) /* of messages copied or checked at a time */

/* -- rewriting -------------------------------------------------------------------------------- */

struct rewrite {
    struct qsi_segment_view from;
    struct qsi_segment_writer *writer;
    struct qsi_segment_buffers buffers;
    uint64_t *live; /* without bits after the last slot */
};

/* Copies a damaged slot with its bytes, and a check that is wrong by the same difference. */
static qs_status copy_slot(struct rewrite *rewrite, const struct qsi_row *row, qs_error *error)
{
    uint8_t bytes[QSI_SLOT_BYTES] = {0};
    uint32_t difference = 0;

    QS_DCHECK(row->kind == QSI_ROW_NO_SLOT || row->kind == QSI_ROW_NOTHING_THERE);
    if (row->kind == QSI_ROW_NO_SLOT) {
        qs_status status =
            qsi_segment_view_read(&rewrite->from, bytes, sizeof bytes, row->where, error);
        if (status != QS_OK) {
            return qsi_segment_fail_unread(error, status, rewrite->from.file);
        }
        difference = qs_crc32c(row->identity, bytes, QSI_SLOT_BYTES - 4) ^
                     qsi_get_u32(bytes + QSI_SLOT_BYTES - 4);
        /* The check is right, but the lengths are impossible; in the new file they might be
         * possible. */
        difference = difference == 0 ? 1 : difference;
    }
    return qsi_segment_put_raw(rewrite->writer, row->slot, bytes, difference, error);
}

/* Copies a message, also a damaged one: its checksum stays wrong. */
static qs_status copy_embedded(struct rewrite *rewrite, const struct qsi_gather *gather,
                               const struct qsi_row *row, qs_error *error)
{
    const struct qsi_row_envelope *envelope = qsi_gather_envelopes(gather) + row->envelope;
    uint32_t difference = row->kind == QSI_ROW_EMBEDDED ? 0 : qsi_row_crc(gather, row) ^ row->crc;

    QS_DCHECK(row->envelope < gather->envelope_count);
    return qsi_segment_put_wrong(
        rewrite->writer, row->slot,
        qsi_slice_make(gather->heap + envelope->heap_index, envelope->bytes),
        qsi_slice_make(gather->heap + row->heap_index, row->body_bytes), difference, error);
}

static qs_status copy_row(struct rewrite *rewrite, const struct qsi_gather *gather,
                          const struct qsi_row *row, qs_error *error)
{
    struct qsi_body_ref ref;

    switch ((enum qsi_row_kind)row->kind) {
    case QSI_ROW_STORED:
        ref = qsi_row_ref(row);
        return qsi_segment_put_stored(rewrite->writer, row->slot, &ref, error);
    case QSI_ROW_EMBEDDED:
    case QSI_ROW_NO_BODY:
        return copy_embedded(rewrite, gather, row, error);
    case QSI_ROW_NO_SLOT:
    case QSI_ROW_NOTHING_THERE:
        break;
    }
    return copy_slot(rewrite, row, error);
}

static qs_status copy_rows(struct rewrite *rewrite, const struct qsi_gather *gather,
                           qs_error *error)
{
    const struct qsi_row *rows = qsi_gather_rows(gather);

    for (uint32_t i = 0; i < gather->row_count; i++) {
        QS_DCHECK(i == 0 || rows[i - 1].slot < rows[i].slot);
        QS_TRY(copy_row(rewrite, gather, &rows[i], error));
    }
    return QS_OK;
}

static qs_status copy_live(struct rewrite *rewrite, qs_error *error)
{
    uint32_t entries = rewrite->from.index->entries;

    for (uint32_t from = 0; from < entries;) {
        struct qsi_gather gather = {.heap = NULL};
        qs_status status = qsi_gather_slots(&gather, &rewrite->from, from, entries, rewrite->live,
                                            STEP_BYTES, &from, error);

        if (status == QS_OK) {
            status = qsi_gather_heap(&gather, &rewrite->from, error);
        }
        status = qsi_segment_fail_unread(error, status, rewrite->from.file);
        if (status == QS_OK) {
            status = copy_rows(rewrite, &gather, error);
        }
        qsi_gather_fini(&gather);
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_OK;
}

static qs_status write_packed(struct rewrite *rewrite, struct qsi_segment_file *to, qs_error *error)
{
    struct qsi_segment_writer *writer;
    qs_status status;

    QS_TRY(qsi_segment_writer_begin_packed(&writer, rewrite->from.index, to, rewrite->live,
                                           &rewrite->buffers, error));
    rewrite->writer = writer;
    status = copy_live(rewrite, error);
    if (status != QS_OK) {
        qsi_segment_writer_abandon(writer);
        return status;
    }
    return qsi_segment_writer_end(writer, error);
}

static qs_status take_live(struct rewrite *rewrite, const uint64_t *live, qs_error *error)
{
    uint32_t entries = rewrite->from.index->entries;
    uint32_t words = qsi_bitmap_words(entries);

    rewrite->live = qsi_alloc(words * sizeof *rewrite->live);
    if (rewrite->live == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "bitmap of slots"),
                                rewrite->from.file);
    }
    for (uint32_t i = 0; i < words; i++) {
        rewrite->live[i] = live[i] & qsi_bitmap_mask(entries, i);
    }
    QS_DCHECK(rewrite->writer == NULL);
    return qsi_segment_buffers_init(&rewrite->buffers, entries, error);
}

qs_status qsi_segment_rewrite(struct qsi_index *index, const struct qsi_segment_file *from,
                              const uint64_t *live, const struct qsi_segment_state *state,
                              struct qsi_segment_file *to_out, qs_error *error)
{
    struct qsi_segment_file to = {
        .queue_id = from->queue_id, .number = from->number, .generation = from->generation + 1};
    struct rewrite rewrite = {.live = NULL};
    qs_status status;

    if (from->generation == UINT32_MAX) {
        return qsi_segment_fail(error, qsi_fail(error, QS_EINVAL, "no generation is left"), from);
    }
    status = qsi_segment_view_open(&rewrite.from, index, from, QS_OPEN_READ, error);
    if (status != QS_OK) {
        return qsi_segment_fail_unread(error, status, from);
    }
    QS_DCHECK(to.generation > from->generation);
    status = take_live(&rewrite, live, error);
    if (status == QS_OK) {
        status = write_packed(&rewrite, &to, error);
    }
    if (status == QS_OK && state != NULL) {
        status = qsi_segment_write_state(index, &to, 0, state, error);
        if (status != QS_OK) {
            /* If this fails, the file stays until its name is used again, or keep returns false for
             * it. */
            (void)!qsi_segment_remove(index, &to, NULL);
        }
    }
    if (status == QS_OK) {
        QS_ASSERT(to.packed && to.heap_end > 0 && to.slot_count <= index->entries);
        *to_out = to;
    }
    qsi_segment_buffers_fini(&rewrite.buffers);
    qsi_free(rewrite.live);
    qsi_segment_view_close(&rewrite.from);
    return status;
}

/* -- syncs ------------------------------------------------------------------------------------ */

qs_status qsi_segment_sync(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error)
{
    char path[QSI_SEGMENT_PATH_BYTES];
    struct qsi_segment_view view;
    qs_status status;

    QS_TRY(qsi_segment_view_open_to_write(&view, index, file, error));
    status = qsi_file_sync(index->env, view.handle, error);
    if (status != QS_OK && error != NULL) {
        /* Not qsi_segment_fail(): a failed sync must not be tried again, whatever its cause. */
        qsi_segment_path(path, file);
        qsi_error_prefix(error, "%s", path);
    }
    qsi_segment_view_close(&view);
    return status;
}

qs_status qsi_segment_find(struct qsi_index *index, const struct qsi_segment_file *file,
                           qs_error *error)
{
    struct qsi_segment_view view;

    QS_TRY(qsi_segment_view_open_to_write(&view, index, file, error));
    qsi_segment_view_close(&view);
    return QS_OK;
}

qs_status qsi_index_sync(struct qsi_index *index, qs_error *error)
{
    return qsi_dir_sync(index->env, index->dir, error);
}

/* -- removing --------------------------------------------------------------------------------- */

struct others {
    qsi_segment_filter *keep;
    void *context;
    struct qsi_buf *files;
    qs_status status;
};

static bool record_other(void *context, const char *name)
{
    struct others *others = context;
    struct qsi_segment_file file;

    QS_DCHECK(others->status == QS_OK);
    if (qsi_segment_name_parse(&file, name) && !others->keep(others->context, &file)) {
        others->status = qsi_buf_append(others->files, &file, sizeof file);
    }
    return others->status == QS_OK;
}

qs_status qsi_index_list_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                struct qsi_buf *files_out, qs_error *error)
{
    struct others others = {keep, context, files_out, QS_OK};
    qs_status status = qsi_env_dir_list(index->env, index->dir, record_other, &others, error);

    return status == QS_OK && others.status != QS_OK
               ? qsi_fail(error, others.status, "index: list of files to remove")
               : status;
}

qs_status qsi_index_remove_listed(struct qsi_index *index, const struct qsi_buf *files,
                                  qsi_segment_filter *keep, void *context, uint64_t *removed_out,
                                  qs_error *error)
{
    const struct qsi_segment_file *items =
        (const struct qsi_segment_file *)(const void *)files->data;
    size_t count = files->bytes / sizeof *items;

    *removed_out = 0;
    for (size_t i = 0; i < count; i++) {
        if (!keep(context, &items[i])) {
            QS_TRY(qsi_segment_remove(index, &items[i], error));
            ++*removed_out;
        }
    }
    return QS_OK;
}

/* Lists first: a walk over a directory whose names change meanwhile may miss or repeat names. */
qs_status qsi_index_remove_others(struct qsi_index *index, qsi_segment_filter *keep, void *context,
                                  uint64_t *removed_out, qs_error *error)
{
    struct qsi_buf files = {0};
    qs_status status = qsi_index_list_others(index, keep, context, &files, error);

    *removed_out = 0;
    if (status == QS_OK) {
        status = qsi_index_remove_listed(index, &files, keep, context, removed_out, error);
    }
    qsi_buf_fini(&files);
    return status;
}

/* -- checking --------------------------------------------------------------------------------- */

qs_status qsi_segment_fail_slot(qs_error *error, const struct qsi_segment_file *file,
                                const struct qsi_row *row)
{
    static const char *const what[] = {
        [QSI_ROW_NO_SLOT] = "the slot is not what was written",
        [QSI_ROW_NO_BODY] = "envelope and body are not what was written",
        [QSI_ROW_NOTHING_THERE] = "nothing is there",
    };
    char path[QSI_SEGMENT_PATH_BYTES];

    QS_ASSERT(row->kind > QSI_ROW_STORED);
    qsi_segment_path(path, file);
    return qsi_fail_corrupt(error, path, row->where, "slot %u: %s", row->slot, what[row->kind]);
}

static qs_status check_rows(const struct qsi_segment_view *view, const struct qsi_gather *gather,
                            bool may_lack, qs_error *error)
{
    const struct qsi_row *row = qsi_gather_rows(gather);

    for (uint32_t i = 0; gather->damaged_count > 0 && i < gather->row_count; i++, row++) {
        if (row->kind > QSI_ROW_STORED && !(may_lack && row->kind == QSI_ROW_NOTHING_THERE)) {
            return qsi_segment_fail_slot(error, view->file, row);
        }
    }
    return QS_OK;
}

static qs_status check_messages(const struct qsi_segment_view *view, const uint64_t *live,
                                bool may_lack, qs_error *error)
{
    uint32_t entries = view->index->entries;

    for (uint32_t from = 0; from < entries;) {
        struct qsi_gather gather = {.heap = NULL};
        qs_status status =
            qsi_gather_slots(&gather, view, from, entries, live, STEP_BYTES, &from, error);

        if (status == QS_OK) {
            status = qsi_gather_heap(&gather, view, error);
        }
        if (status == QS_OK) {
            status = check_rows(view, &gather, may_lack, error);
        }
        qsi_gather_fini(&gather);
        if (status != QS_OK) {
            return status;
        }
    }
    return QS_OK;
}

/* live NULL: messages that were written and are not settled. */
static qs_status check_view(const struct qsi_segment_view *view, const uint64_t *live,
                            qs_error *error)
{
    uint32_t words = qsi_bitmap_words(view->index->entries);
    uint64_t *bits = qsi_alloc(2 * words * sizeof *bits);
    struct qsi_segment_state state = {.settled = bits, .seen = bits + words};
    uint32_t columns;
    qs_status status;

    if (bits == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "checking a segment"),
                                view->file);
    }
    status = qsi_segment_view_state(view, &state, &columns, error);
    for (uint32_t i = 0; i < words; i++) {
        bits[i] = ~bits[i];
    }
    if (status == QS_OK) {
        status = check_messages(view, live != NULL ? live : bits, live == NULL, error);
    }
    qsi_free(bits);
    return status;
}

qs_status qsi_segment_check(struct qsi_index *index, const struct qsi_segment_file *file,
                            const uint64_t *live, qs_error *error)
{
    struct qsi_segment_view view;
    qs_status status;

    QS_TRY(qsi_segment_view_open(&view, index, file, QS_OPEN_READ, error));
    status = check_view(&view, live, error);
    qsi_segment_view_close(&view);
    return status;
}

uint64_t qsi_segment_disk_bytes(const struct qsi_index *index, const struct qsi_segment_file *file)
{
    uint64_t states = 2 * qsi_segment_state_bytes(index->entries);
    uint64_t state = QSI_SEGMENT_STATE_HEAD_BYTES + qsi_segment_bitmaps_bytes(index->entries);

    if (file->heap_end < states) { /* there is no file, or the checkpoint is damaged */
        return 0;
    }
    return file->heap_end - states +
           (file->state_area != 0 ? 2 * qsi_round_up(state, QSI_SEGMENT_PAGE) : 0);
}
