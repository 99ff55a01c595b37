/* The last blocks of a file, which a journal record names: read, and compared with the record. */
#include "qstore/codec.h"

#include "alloc.h"
#include "block_dir.h"
#include "block_index.h"
#include "block_load.h"
#include "block_read.h"
#include "error.h"

/* Finds entries from the last one back; the file has at least count of them. */
static qs_status find_entries(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                              qs_file *handle, uint32_t count, struct qsi_block_entry *entries_out,
                              qs_error *error)
{
    uint64_t at = file->last_at, end = file->end;
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, blocks, file);
    for (uint32_t i = count; i-- > 0;) {
        uint8_t bytes[QSI_BLOCK_HEAD_BYTES];
        struct qsi_block_head head;
        if (at < QSI_BLOCK_FILE_HEADER_BYTES || end - at < sizeof bytes) {
            return qsi_block_damaged(error, blocks, file, at, "no block can be there");
        }
        QS_TRY(qsi_block_read_at(blocks, file, handle, bytes, sizeof bytes, at, error));
        QS_TRY(qsi_block_head_decode(&head, bytes, file, at, path, error));
        if (head.content_bytes > end - at - sizeof bytes) {
            return qsi_block_damaged(error, blocks, file, at, "block header: impossible size");
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
    }
    return QS_OK;
}

static qs_status check_entries(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                               qs_file *handle, const struct qsi_block_entry *entries,
                               const struct qsi_block_last *last, qs_error *error)
{
    uint64_t offset = last->first_offset;
    uint32_t crc = 0;

    for (uint32_t i = 0; i < last->count; i++) {
        struct qsi_block_view view;
        if (entries[i].first_offset != offset) {
            return qsi_block_damaged(error, blocks, file, entries[i].at,
                                     "block: not the one that the journal names");
        }
        QS_TRY(qsi_block_load(blocks, file, handle, &entries[i], NULL, &view, error));
        crc = qs_crc32c(crc, view.chunk->data + view.record_at - QSI_BLOCK_HEAD_BYTES,
                        QSI_BLOCK_HEAD_BYTES);
        qsi_block_view_fini(&view);
        offset += entries[i].rows;
    }
    return crc == last->crc && offset == last->next_offset
               ? QS_OK
               : qsi_block_damaged(error, blocks, file, file->last_at,
                                   "block: not the one that the journal names");
}

qs_status qsi_block_file_check_last(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                                    const struct qsi_block_last *last, qs_error *error)
{
    struct qsi_block_entry *entries;
    qs_file *handle;
    qs_status status;

    QS_TRY(qsi_block_check_count(blocks, file, error));
    if (last->count == 0 || last->count > file->block_count) {
        return qsi_block_damaged(error, blocks, file, file->last_at,
                                 "no file has that many blocks");
    }
    entries = qsi_alloc(last->count * sizeof *entries);
    if (entries == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "index of blocks"), blocks, file);
    }
    status = qsi_block_open(blocks, file, QS_OPEN_READ, &handle, error);
    if (status == QS_OK) {
        status = find_entries(blocks, file, handle, last->count, entries, error);
        if (status == QS_OK) {
            status = check_entries(blocks, file, handle, entries, last, error);
        }
        blocks->env->close(blocks->env, handle);
    }
    qsi_free(entries);
    return status;
}
