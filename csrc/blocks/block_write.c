/* Writing block files.
 *
 * Invariant: file describes only complete writes; bytes of a failed write are after file->end, and
 * the next write overwrites them. */
#include "block_write.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "block_dir.h"
#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "record_head.h"

#include <string.h>

struct qsi_block_writer {
    struct qsi_block_dir *blocks;
    struct qsi_block_file *file;
    qs_file *handle;
    bool page_aligned;
};

uint64_t qsi_block_next_place(const struct qsi_block_file *file, bool page_aligned)
{
    return file->end == 0 ? QSI_BLOCK_FILE_HEADER_BYTES
                          : qsi_round_up(file->end, page_aligned ? QSI_BLOCK_PAGE : QSI_BLOCK_UNIT);
}

/* Creates the file.  A file of that name, left by a crash, has no references and is replaced. */
static qs_status create(struct qsi_block_writer *writer, qs_error *error)
{
    const uint32_t flags = QS_OPEN_WRITE | QS_OPEN_CREATE_NEW;
    struct qsi_block_dir *blocks = writer->blocks;
    char name[QSI_BLOCK_NAME_BYTES];
    qs_status status;

    QS_DCHECK(writer->handle == NULL && writer->file->end == 0);
    qsi_block_dir_name(name, blocks, writer->file);
    status = qsi_env_open(blocks->env, blocks->dir, name, flags, &writer->handle, error);
    if (status == QS_EEXIST) {
        QS_TRY(qsi_env_remove(blocks->env, blocks->dir, name, error));
        status = qsi_env_open(blocks->env, blocks->dir, name, flags, &writer->handle, error);
    }
    if (status == QS_OK) {
        atomic_store(&blocks->has_new_names, true);
    }
    return status;
}

static qs_status write_header(struct qsi_block_writer *writer, qs_error *error)
{
    uint8_t header[QSI_BLOCK_FILE_HEADER_BYTES];
    qs_part part = {header, sizeof header};

    QS_DCHECK(writer->handle != NULL);
    QS_TRY(
        qsi_env_random(writer->blocks->env, &writer->file->salt, sizeof writer->file->salt, error));
    qsi_block_file_header_encode(header, writer->file, writer->blocks->uuid);
    return qsi_file_write(writer->blocks->env, writer->handle, &part, 1, 0, error);
}

static qs_status make_file(struct qsi_block_writer *writer, qs_error *error)
{
    struct qsi_block_file *file = writer->file;
    qs_status status = create(writer, error);

    if (status == QS_OK) {
        status = write_header(writer, error);
    }
    if (status != QS_OK) {
        if (writer->handle != NULL) {
            writer->blocks->env->close(writer->blocks->env, writer->handle);
            /* A remaining file is replaced the next time. */
            qs_status ignored = qsi_block_file_remove(writer->blocks, file, NULL);
            (void)ignored;
        }
        file->salt = 0;
        if (status == QS_ENOENT) { /* the directory is missing */
            return qsi_block_damaged(error, writer->blocks, file, 0,
                                     "it cannot be made: the directory is missing");
        }
        return qsi_block_fail(error, status, writer->blocks, file);
    }
    file->end = QSI_BLOCK_FILE_HEADER_BYTES;
    file->last_at = 0;
    file->block_count = 0;
    file->sealed = false;
    return QS_OK;
}

static qs_status open_file(struct qsi_block_writer *writer, qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];

    QS_DCHECK(writer->file->end > 0);
    qsi_block_file_path(path, writer->blocks, writer->file);
    return qsi_fail_unread(
        error, qsi_block_open(writer->blocks, writer->file, QS_OPEN_WRITE, &writer->handle, error),
        path);
}

qs_status qsi_block_writer_begin(struct qsi_block_writer **writer_out, struct qsi_block_dir *blocks,
                                 struct qsi_block_file *file, bool page_aligned, qs_error *error)
{
    struct qsi_block_writer *writer = qsi_alloc(sizeof *writer);
    qs_status status;

    *writer_out = NULL;
    QS_ASSERT(!file->sealed);
    if (writer == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "writer of blocks"), blocks, file);
    }
    *writer = (struct qsi_block_writer){
        .blocks = blocks, .file = file, .page_aligned = page_aligned && file->end != 0};
    status = file->end == 0 ? make_file(writer, error) : open_file(writer, error);
    if (status != QS_OK) {
        qsi_free(writer);
        return status;
    }
    *writer_out = writer;
    return QS_OK;
}

static qs_status write_at(struct qsi_block_writer *writer, const void *data, size_t bytes,
                          uint64_t at, qs_error *error)
{
    qs_part part = {data, bytes};
    qs_status status = qsi_file_write(writer->blocks->env, writer->handle, &part, 1, at, error);

    return status == QS_OK ? QS_OK : qsi_block_fail(error, status, writer->blocks, writer->file);
}

static void sum_content(struct qsi_block_head *head, const uint8_t *content)
{
    head->dictionary_crc = qs_crc32c(0, content, head->dictionary_bytes);
    head->content_crc = qs_crc32c(head->dictionary_crc, content + head->dictionary_bytes,
                                  head->content_bytes - head->dictionary_bytes);
}

/* Updates file after the block was written. */
static void record_block(struct qsi_block_writer *writer, const struct qsi_block_head *head,
                         struct qsi_block_entry *entry_out)
{
    struct qsi_block_file *file = writer->file;
    uint32_t bytes = QSI_BLOCK_HEAD_BYTES + head->content_bytes;

    QS_DCHECK(head->at >= file->end && head->at % QSI_BLOCK_UNIT == 0);
    writer->page_aligned = false;
    file->end = head->at + qsi_round_up(bytes, QSI_BLOCK_UNIT);
    file->last_at = head->at;
    file->block_count += 1;
    if (entry_out != NULL) {
        *entry_out = (struct qsi_block_entry){
            .first_offset = head->first_offset,
            .first_time_us = head->first_time_us,
            .at = head->at,
            .bytes = bytes,
            .rows = head->rows,
        };
    }
}

qs_status qsi_block_writer_put(struct qsi_block_writer *writer, struct qsi_built_block *block,
                               struct qsi_block_entry *entry_out, qs_error *error)
{
    struct qsi_block_file *file = writer->file;
    const uint8_t *content = block->chunk->data + QSI_BLOCK_HEAD_BYTES;
    uint64_t at = qsi_block_next_place(file, writer->page_aligned);
    size_t padded = (size_t)qsi_round_up(block->bytes, QSI_BLOCK_UNIT);
    struct qsi_block_head head = {
        .salt = file->salt,
        .owner = block->owner,
        .first_offset = block->first_offset,
        .first_time_us = block->first_time_us,
        .last_time_us = block->last_time_us,
        .at = at,
        .previous = file->last_at,
        .content_bytes = block->bytes - QSI_BLOCK_HEAD_BYTES,
        .rows = block->rows,
        .record_bytes = block->record_bytes,
        .time_count = block->time_count,
        .dictionary_bytes = block->dictionary_bytes,
        .time_kind = block->time_kind,
    };

    QS_DCHECK(block->rows > 0 && block->bytes > QSI_BLOCK_HEAD_BYTES);
    QS_DCHECK(block->first_time_us <= block->last_time_us);
    QS_ASSERT(!file->sealed && padded <= block->chunk->capacity);
    QS_ASSERT(file->owner == 0 || file->owner == block->owner);
    sum_content(&head, content);
    qsi_block_head_encode(block->chunk->data, &head);
    QS_TRY(write_at(writer, block->chunk->data, padded, at, error));
    record_block(writer, &head, entry_out);
    return QS_OK;
}

qs_status qsi_block_writer_put_rows(struct qsi_block_writer *writer,
                                    const struct qsi_block_rows *rows,
                                    struct qsi_block_entry *entry_out, uint32_t *crc_io,
                                    qs_error *error)
{
    static const uint8_t zeros[QSI_BLOCK_UNIT];
    struct qsi_block_file *file = writer->file;
    uint8_t bytes[QSI_BLOCK_HEAD_BYTES];
    uint32_t record_bytes = qsi_record_length(rows->record);
    struct qsi_block_head head = {
        .salt = file->salt,
        .owner = rows->owner,
        .first_offset = rows->first_offset,
        .first_time_us = rows->time_us,
        .last_time_us = rows->time_us,
        .at = qsi_block_next_place(file, writer->page_aligned),
        .previous = file->last_at,
        .content_bytes = record_bytes,
        .rows = rows->rows,
        .record_bytes = record_bytes,
        .dictionary_bytes = qsi_messages_routes_end(rows->record),
        .time_kind = QSI_BLOCK_ONE_TIME,
    };
    size_t padding = (size_t)(qsi_round_up(record_bytes, QSI_BLOCK_UNIT) - record_bytes);
    qs_part parts[3] = {{bytes, sizeof bytes}, {rows->record, record_bytes}, {zeros, padding}};
    qs_status status;

    QS_ASSERT(!file->sealed && rows->rows > 0 && rows->rows <= QSI_BLOCK_ROWS_MAX);
    QS_ASSERT(file->owner == 0 || file->owner == rows->owner);
    QS_DCHECK(record_bytes <= QSI_BLOCK_CONTENT_MAX && head.dictionary_bytes <= record_bytes);
    sum_content(&head, rows->record);
    qsi_block_head_encode(bytes, &head);
    status = qsi_file_stream(writer->blocks->env, writer->handle, parts, padding > 0 ? 3 : 2,
                             head.at, error);
    if (status != QS_OK) {
        return qsi_block_fail(error, status, writer->blocks, file);
    }
    *crc_io = qs_crc32c(*crc_io, bytes, sizeof bytes);
    record_block(writer, &head, entry_out);
    return QS_OK;
}

qs_status qsi_block_writer_seal(struct qsi_block_writer *writer,
                                const struct qsi_block_entry *entries, uint64_t last_time_us,
                                qs_error *error)
{
    struct qsi_block_file *file = writer->file;
    size_t bytes = (size_t)qsi_block_footer_bytes(file->block_count);
    uint64_t at = qsi_block_next_place(file, writer->page_aligned);
    uint8_t *footer = qsi_alloc(bytes);
    qs_status status;

    QS_ASSERT(!file->sealed && file->block_count > 0);
    if (footer == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "footer"), writer->blocks, file);
    }
    qsi_block_footer_encode(footer, file, entries, last_time_us, at);
    status = write_at(writer, footer, bytes, at, error);
    qsi_free(footer);
    if (status == QS_OK) {
        QS_DCHECK(at >= file->end);
        file->end = at + bytes;
        file->last_at = at;
        file->sealed = true;
    }
    return status;
}

qs_status qsi_block_writer_append(struct qsi_block_writer *writer, const qs_part *parts,
                                  size_t part_count, qs_error *error)
{
    const struct qsi_block_file *file = writer->file;
    qs_status status;

    QS_ASSERT(file->sealed);
    status =
        qsi_file_write(writer->blocks->env, writer->handle, parts, part_count, file->end, error);
    return status == QS_OK ? QS_OK : qsi_block_fail(error, status, writer->blocks, file);
}

void qsi_block_writer_leave(struct qsi_block_writer *writer,
                            struct qsi_block_unsynced *unsynced_out)
{
    QS_ASSERT(writer->handle != NULL && writer->file->block_count > 0);
    *unsynced_out = (struct qsi_block_unsynced){.file = *writer->file, .handle = writer->handle};
    writer->handle = NULL;
}

qs_status qsi_block_unsynced_sync(struct qsi_block_dir *blocks,
                                  const struct qsi_block_unsynced *unsynced, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_block_sync_handle(blocks, &unsynced->file, unsynced->handle, error));
    status = qsi_env_check_linked(blocks->env, unsynced->handle, error);
    return status == QS_OK ? QS_OK : qsi_block_fail(error, status, blocks, &unsynced->file);
}

void qsi_block_unsynced_close(struct qsi_block_dir *blocks, struct qsi_block_unsynced *unsynced)
{
    if (unsynced->handle != NULL) {
        blocks->env->close(blocks->env, unsynced->handle);
        unsynced->handle = NULL;
    }
}

void qsi_block_writer_close(struct qsi_block_writer *writer)
{
    if (writer != NULL) {
        if (writer->handle != NULL) {
            writer->blocks->env->close(writer->blocks->env, writer->handle);
        }
        qsi_free(writer);
    }
}
