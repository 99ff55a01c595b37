/* The index of a block file: reading it, and lookups. */
#include "block_index.h"

#include "alloc.h"
#include "block_dir.h"
#include "check.h"
#include "error.h"

qs_status qsi_block_check_count(const struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error)
{
    uint64_t room = file->end > QSI_BLOCK_FILE_HEADER_BYTES
                        ? (file->end - QSI_BLOCK_FILE_HEADER_BYTES) / QSI_BLOCK_HEAD_BYTES
                        : 0;

    if (file->block_count == 0 || file->block_count > room ||
        file->last_at < QSI_BLOCK_FILE_HEADER_BYTES || file->last_at >= file->end ||
        (file->sealed && file->end - file->last_at != qsi_block_footer_bytes(file->block_count))) {
        return qsi_block_damaged(error, blocks, file, file->last_at,
                                 "no file has that many blocks there");
    }
    return QS_OK;
}

static qs_status load_footer(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                             qs_file *handle, struct qsi_block_entry *entries_out, qs_error *error)
{
    size_t bytes = (size_t)qsi_block_footer_bytes(file->block_count);
    uint8_t *footer = qsi_alloc(bytes);
    char path[QSI_BLOCK_PATH_BYTES];
    qs_status status;

    QS_DCHECK(file->sealed && file->block_count > 0);
    if (footer == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "footer"), blocks, file);
    }
    qsi_block_file_path(path, blocks, file);
    status = qsi_block_read_at(blocks, file, handle, footer, bytes, file->last_at, error);
    if (status == QS_OK) {
        status = qsi_block_footer_check(footer, file, path, error);
    }
    for (uint32_t i = 0; status == QS_OK && i < file->block_count; i++) {
        qsi_block_entry_decode(&entries_out[i], footer + (size_t)i * QSI_BLOCK_ENTRY_BYTES);
        qsi_block_adopt_entry(&entries_out[i], file);
    }
    qsi_free(footer);
    return status;
}

/* Walks from the last block, which the checkpoint names, back through all blocks: leftovers of a
 * crash between them are not reached. */
static qs_status walk_back(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                           qs_file *handle, struct qsi_block_entry *entries_out, qs_error *error)
{
    uint64_t at = file->last_at, end = file->end, offset_end = UINT64_MAX, time_us = UINT64_MAX;
    char path[QSI_BLOCK_PATH_BYTES];

    QS_DCHECK(!file->sealed && !file->adopted);
    qsi_block_file_path(path, blocks, file);
    for (uint32_t i = file->block_count; i-- > 0;) {
        uint8_t bytes[QSI_BLOCK_HEAD_BYTES];
        struct qsi_block_head head;
        if (end - at < sizeof bytes) {
            return qsi_block_damaged(error, blocks, file, at, "no block can be there");
        }
        QS_TRY(qsi_block_read_at(blocks, file, handle, bytes, sizeof bytes, at, error));
        QS_TRY(qsi_block_head_decode(&head, bytes, file, at, path, error));
        if (head.content_bytes > end - at - sizeof bytes || (head.previous == 0) != (i == 0) ||
            (file->owner != 0 &&
             (head.first_offset + head.rows > offset_end || head.last_time_us > time_us))) {
            return qsi_block_damaged(error, blocks, file, at,
                                     "block header: not the one before the next");
        }
        entries_out[i] = (struct qsi_block_entry){
            .first_offset = head.first_offset,
            .first_time_us = head.first_time_us,
            .at = at,
            .bytes = QSI_BLOCK_HEAD_BYTES + head.content_bytes,
            .rows = head.rows,
        };
        end = at;
        at = head.previous;
        offset_end = head.first_offset;
        time_us = head.first_time_us;
    }
    return QS_OK;
}

qs_status qsi_block_load_index(const struct qsi_block_dir *blocks,
                               const struct qsi_block_file *file, qs_file *handle,
                               struct qsi_block_entry *entries_out, qs_error *error)
{
    QS_TRY(qsi_block_check_count(blocks, file, error));
    return file->sealed ? load_footer(blocks, file, handle, entries_out, error)
                        : walk_back(blocks, file, handle, entries_out, error);
}

/* ---- look-up ---- */

uint32_t qsi_block_entries_find(const struct qsi_block_entry *entries, uint32_t count,
                                uint64_t offset)
{
    uint32_t low = 0, high = count;

    while (low < high) { /* finds the first one that ends after offset */
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].first_offset + entries[middle].rows <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    QS_DCHECK(low == count || entries[low].first_offset + entries[low].rows > offset);
    return low;
}

uint32_t qsi_block_entries_find_time(const struct qsi_block_entry *entries, uint32_t count,
                                     uint64_t time_us)
{
    uint32_t low = 0, high = count;

    while (low < high) { /* finds the first one that begins at or after time_us */
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].first_time_us < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    QS_DCHECK(low == count || entries[low].first_time_us >= time_us);
    return low > 0 ? low - 1 : 0;
}

/* ---- indexes that are shared ---- */

void qsi_block_index_unref(struct qsi_block_index *index)
{
    QS_DCHECK(index == NULL || __atomic_load_n(&index->refs, __ATOMIC_RELAXED) > 0);
    if (index != NULL && __atomic_fetch_sub(&index->refs, 1, __ATOMIC_ACQ_REL) == 1) {
        qsi_free(index);
    }
}

struct qsi_block_index *qsi_block_index_ref(struct qsi_block_index *index)
{
    QS_DCHECK(__atomic_load_n(&index->refs, __ATOMIC_RELAXED) > 0);
    __atomic_fetch_add(&index->refs, 1, __ATOMIC_RELAXED);
    return index;
}

struct qsi_block_index *qsi_block_index_create(uint32_t count)
{
    struct qsi_block_index *index =
        qsi_alloc(sizeof *index + (size_t)count * sizeof index->entries[0]);

    if (index != NULL) {
        index->refs = 1;
        index->count = count;
    }
    return index;
}
