/* The index, and one segment file: opening and removing it.
 *
 * Invariant: a file is read only after its header was found to be that of the right file. */
#include "segment_file.h"

#include "alloc.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

#include <inttypes.h>
#include <string.h>

/* No file is so large, and sums with this do not overflow. */
#define HEAP_END_MAX (UINT64_C(1) << 62)

/* -- errors ----------------------------------------------------------------------------------- */

qs_status qsi_segment_fail(qs_error *error, qs_status status, const struct qsi_segment_file *file)
{
    char path[QSI_SEGMENT_PATH_BYTES];

    qsi_segment_path(path, file);
    if (status == QS_ENOENT) { /* a file was to be created */
        return qsi_fail_corrupt(error, path, 0, "it cannot be made: the directory is missing");
    }
    return qsi_fail_file(error, status, path);
}

static qs_status fail_damaged(qs_error *error, const struct qsi_segment_file *file, uint64_t offset,
                              const char *what)
{
    char path[QSI_SEGMENT_PATH_BYTES];

    qsi_segment_path(path, file);
    return qsi_fail_corrupt(error, path, offset, "%s", what);
}

qs_status qsi_segment_fail_message(qs_error *error, const struct qsi_body_damage *damage)
{
    struct qsi_segment_file file = {
        .queue_id = damage->queue_id, .number = damage->number, .generation = damage->generation};
    char path[QSI_SEGMENT_PATH_BYTES];

    if (damage->generation == QSI_DAMAGE_OF_STREAM && damage->offset > 0) {
        return qsi_fail(error, QS_ECORRUPT,
                        "the message at offset %" PRIu64 " of stream %" PRIu64
                        " is lost: its body in message file %" PRIu64
                        " was damaged when it was to be written to the stream's file",
                        damage->number + damage->slot, damage->queue_id, damage->offset - 1);
    }
    if (damage->generation == QSI_DAMAGE_OF_STREAM) {
        return qsi_fail(error, QS_ECORRUPT,
                        "the message at offset %" PRIu64 " of stream %" PRIu64
                        " is damaged or missing",
                        damage->number + damage->slot, damage->queue_id);
    }
    qsi_segment_path(path, &file);
    return qsi_fail_corrupt(error, path, damage->offset, "the message in slot %u is damaged",
                            damage->slot);
}

qs_status qsi_segment_fail_unread(qs_error *error, qs_status status,
                                  const struct qsi_segment_file *file)
{
    char path[QSI_SEGMENT_PATH_BYTES];

    qsi_segment_path(path, file);
    return qsi_fail_unread(error, status, path);
}

/* -- bitmaps ---------------------------------------------------------------------------------- */

uint32_t qsi_bitmap_next(const uint64_t *bits, uint32_t from, uint32_t to)
{
    uint32_t word = from / 64;
    uint64_t left;

    if (from >= to) {
        return to;
    }
    left = bits[word] & UINT64_MAX << from % 64;
    while (left == 0) {
        if (++word * 64 >= to) {
            return to;
        }
        left = bits[word];
    }
    from = word * 64 + (uint32_t)__builtin_ctzll(left);
    QS_DCHECK((bits[from / 64] >> from % 64 & 1) != 0);
    return from < to ? from : to;
}

uint32_t qsi_bitmap_next_clear(const uint64_t *bits, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint64_t clear = ~bits[from / 64] >> from % 64;

        if (clear != 0) {
            from += (uint32_t)__builtin_ctzll(clear);
            break;
        }
        from = (from / 64 + 1) * 64;
    }
    return from < to ? from : to;
}

uint32_t qsi_bitmap_end(const uint64_t *bits, uint32_t from, uint32_t to)
{
    while (to > from) {
        uint32_t word = (to - 1) / 64;
        uint64_t left = bits[word] & qsi_bitmap_mask(to, word);

        if (left != 0) {
            uint32_t end = word * 64 + 64 - (uint32_t)__builtin_clzll(left);
            QS_DCHECK(end <= to);
            return end > from ? end : from;
        }
        to = word * 64;
    }
    return from;
}

uint32_t qsi_bitmap_count(const uint64_t *bits, uint32_t from, uint32_t to)
{
    uint32_t count = 0;

    for (uint32_t word = from / 64; word * 64 < to; word++) {
        uint64_t left = bits[word] & qsi_bitmap_mask(to, word);

        if (word == from / 64) {
            left &= UINT64_MAX << from % 64;
        }
        count += qsi_popcount(left);
    }
    return count;
}

/* -- the index -------------------------------------------------------------------------------- */

qs_status qsi_segment_buffers_init(struct qsi_segment_buffers *buffers, uint32_t entries,
                                   qs_error *error)
{
    QS_DCHECK(qsi_segment_entries_are_possible(entries));
    buffers->slots = qsi_alloc((size_t)entries * QSI_SLOT_BYTES);
    buffers->heap = qsi_alloc(QSI_SEGMENT_HEAP_BUFFER_BYTES);
    if (buffers->slots == NULL || buffers->heap == NULL) {
        qsi_segment_buffers_fini(buffers);
        return qsi_fail(error, QS_ENOMEM, "index: buffers of a segment writer");
    }
    return QS_OK;
}

void qsi_segment_buffers_fini(struct qsi_segment_buffers *buffers)
{
    qsi_free(buffers->slots);
    qsi_free(buffers->heap);
    *buffers = (struct qsi_segment_buffers){NULL, NULL};
}

qs_status qsi_index_open(struct qsi_index **index_out, qs_env *env, qs_dir *dir,
                         const uint8_t uuid[QSI_UUID_BYTES], uint32_t entries, qs_error *error)
{
    struct qsi_index *index;
    qs_status status;

    *index_out = NULL;
    QS_ASSERT(qsi_segment_entries_are_possible(entries));
    index = qsi_zalloc(sizeof *index);
    if (index == NULL) {
        return qsi_fail(error, QS_ENOMEM, "index");
    }
    index->env = env;
    index->dir = dir;
    index->entries = entries;
    memcpy(index->uuid, uuid, QSI_UUID_BYTES);
    status = qsi_segment_buffers_init(&index->buffers, entries, error);
    if (status != QS_OK) {
        qsi_free(index);
        return status;
    }
    *index_out = index;
    return QS_OK;
}

void qsi_index_close(struct qsi_index *index)
{
    if (index == NULL) {
        return;
    }
    QS_ASSERT(!index->is_writing);
    qsi_segment_buffers_fini(&index->buffers);
    qsi_free(index);
}

/* -- one open file ---------------------------------------------------------------------------- */

/* Checks the description: it comes from a checkpoint, which is a file, too. */
static qs_status check_description(const struct qsi_segment_view *view, qs_error *error)
{
    const struct qsi_segment_file *file = view->file;
    uint32_t entries = view->index->entries;

    if (file->slot_count > entries || (!file->packed && file->slot_count != entries) ||
        file->state_area > 2) {
        return fail_damaged(error, file, 0, "no segment has these slots");
    }
    if (file->heap_end < view->heap_at || file->heap_end > HEAP_END_MAX) {
        return fail_damaged(error, file, 0, "no segment ends there");
    }
    return QS_OK;
}

qs_status qsi_segment_view_read(const struct qsi_segment_view *view, void *data, size_t bytes,
                                uint64_t offset, qs_error *error)
{
    size_t read = 0;
    qs_status status =
        qsi_file_read(view->index->env, view->handle, data, bytes, offset, &read, error);

    QS_DCHECK(view->handle != NULL);
    if (status != QS_OK) {
        return qsi_segment_fail(error, status, view->file);
    }
    if (read != bytes) {
        return fail_damaged(error, view->file, offset + read,
                            "the file ends before what it should have");
    }
    return QS_OK;
}

static qs_status take_present(struct qsi_segment_view *view, const uint8_t *header, qs_error *error)
{
    uint32_t entries = view->index->entries;
    uint32_t words = qsi_bitmap_words(entries);
    uint32_t rank = 0;

    view->present = qsi_alloc(words * (sizeof *view->present + sizeof *view->ranks));
    if (view->present == NULL) {
        return qsi_segment_fail(error, qsi_fail(error, QS_ENOMEM, "bitmap of slots"), view->file);
    }
    view->ranks = (uint32_t *)(void *)(view->present + words);
    qsi_bitmap_decode(view->present, header + QSI_SEGMENT_PRESENT_AT, words);
    for (uint32_t i = 0; i < words; i++) {
        view->present[i] &= qsi_bitmap_mask(entries, i);
        QS_DCHECK(rank <= entries);
        view->ranks[i] = rank;
        rank += qsi_popcount(view->present[i]);
    }
    if (rank != view->file->slot_count) {
        return fail_damaged(error, view->file, QSI_SEGMENT_PRESENT_AT,
                            "file header: not as many slots as expected");
    }
    return QS_OK;
}

static qs_status check_header(struct qsi_segment_view *view, qs_error *error)
{
    const struct qsi_index *index = view->index;
    uint8_t header[QSI_SEGMENT_HEADER_BYTES_MAX];

    QS_DCHECK(qsi_segment_header_bytes(index->entries) <= sizeof header);
    QS_TRY(qsi_segment_view_read(view, header, (size_t)qsi_segment_header_bytes(index->entries), 0,
                                 error));
    QS_TRY(qsi_segment_header_check(header, view->file, index->entries, index->uuid, error));
    return view->file->packed ? take_present(view, header, error) : QS_OK;
}

static qs_status check_size(const struct qsi_segment_view *view, qs_error *error)
{
    uint64_t bytes;
    qs_status status = qsi_env_size(view->index->env, view->handle, &bytes, error);

    if (status != QS_OK) {
        return qsi_segment_fail(error, status, view->file);
    }
    if (bytes < view->file->heap_end) {
        return fail_damaged(error, view->file, bytes, "the file ends before its last body");
    }
    return QS_OK;
}

static qs_status open_handle(struct qsi_segment_view *view, uint32_t flags, qs_error *error)
{
    char name[QSI_SEGMENT_NAME_BYTES];
    qs_status status;

    QS_DCHECK(view->handle == NULL);
    qsi_segment_name(name, view->file);
    status = qsi_env_open(view->index->env, view->index->dir, name, flags, &view->handle, error);
    if (status == QS_ENOENT) {
        return fail_damaged(error, view->file, 0, "the file is missing");
    }
    return status == QS_OK ? QS_OK : qsi_segment_fail(error, status, view->file);
}

qs_status qsi_segment_view_open(struct qsi_segment_view *view_out, struct qsi_index *index,
                                const struct qsi_segment_file *file, uint32_t flags,
                                qs_error *error)
{
    qs_status status;

    QS_ASSERT(qsi_segment_entries_are_possible(index->entries));
    *view_out = (struct qsi_segment_view){
        .index = index,
        .file = file,
        .slots_at = qsi_segment_slots_at(index->entries),
        .heap_at = qsi_segment_heap_at(index->entries, file->packed, file->slot_count),
        .seed = qsi_slot_seed(file),
    };
    QS_TRY(check_description(view_out, error));
    QS_TRY(open_handle(view_out, flags, error));
    status = check_header(view_out, error);
    if (status == QS_OK) {
        status = check_size(view_out, error);
    }
    if (status != QS_OK) {
        qsi_segment_view_close(view_out);
    }
    return status;
}

qs_status qsi_segment_view_open_to_write(struct qsi_segment_view *view_out, struct qsi_index *index,
                                         const struct qsi_segment_file *file, qs_error *error)
{
    qs_status status = qsi_segment_view_open(view_out, index, file, QS_OPEN_WRITE, error);

    return qsi_segment_fail_unread(error, status, file);
}

void qsi_segment_view_close(struct qsi_segment_view *view)
{
    view->index->env->close(view->index->env, view->handle);
    qsi_free(view->present);
    view->handle = NULL;
    view->present = NULL;
}

/* -- removing --------------------------------------------------------------------------------- */

qs_status qsi_segment_remove(struct qsi_index *index, const struct qsi_segment_file *file,
                             qs_error *error)
{
    char name[QSI_SEGMENT_NAME_BYTES];
    qs_status status;

    qsi_segment_name(name, file);
    status = qsi_env_remove(index->env, index->dir, name, error);
    return status == QS_OK || status == QS_ENOENT ? QS_OK : qsi_segment_fail(error, status, file);
}
