/* Reads the blocks of one file, and passes them to the visitor one by one.  Memory: one chunk
 * shared by small blocks, and one block. */
#include "check.h"
#include "error.h"
#include "file.h"
#include "record.h"
#include "scan_internal.h"

#define ARENA_BYTES (256u << 10)
#define PROGRESS_BYTES (4u << 20)

/* ---- progress and losses ---- */

void qsi_scan_report(struct qsi_scan *scan, uint64_t bytes, uint64_t bytes_min)
{
    uint64_t done = scan->bytes_before + bytes;

    done = done < scan->bytes_total ? done : scan->bytes_total;
    if (scan->options->progress != NULL && done >= scan->bytes_reported + bytes_min) {
        scan->options->progress(scan->options->progress_context, done, scan->bytes_total);
        scan->bytes_reported = done;
    }
}

void qsi_scan_lose(struct qsi_scan *scan, uint64_t lsn)
{
    uint64_t from = scan->lsn > scan->needed_from ? scan->lsn : scan->needed_from;

    if (lsn > from) {
        scan->result->lost_ranges += 1;
        scan->result->lost_bytes += lsn - from;
    }
    scan->lsn = lsn;
}

/* ---- blocks ---- */

/* Memory for the payload of the next block.  Small payloads share a chunk.  A large one has a chunk
 * of its own size, and small ones must not use the rest of it: a reference to a small payload would
 * keep the large chunk. */
static qs_status payload_place(struct qsi_scan *scan, uint64_t bytes, struct qsi_chunk **chunk_out,
                               qs_error *error)
{
    if (bytes <= ARENA_BYTES / 4 && scan->arena != NULL && scan->arena->capacity == ARENA_BYTES &&
        scan->arena->capacity - scan->arena->used >= bytes) {
        *chunk_out = scan->arena;
        return QS_OK;
    }
    qsi_chunk_unref(scan->arena);
    scan->arena = qsi_chunk_create(bytes <= ARENA_BYTES / 4 ? ARENA_BYTES : bytes);
    *chunk_out = scan->arena;
    if (scan->arena == NULL) {
        return qsi_fail(error, QS_ENOMEM, "journal block of %llu bytes", (unsigned long long)bytes);
    }
    qsi_chunk_populate(scan->arena);
    return QS_OK;
}

/* Reads the block at offset; QS_EEMPTY: there is no valid block with the expected LSN. */
static qs_status read_block(struct qsi_scan *scan, const struct qsi_scan_file *file,
                            uint64_t offset, struct qsi_scan_block *out, qs_error *error)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES];
    size_t bytes = 0;
    struct qsi_chunk *chunk;

    QS_TRY(qsi_file_read(scan->env, file->file, header, sizeof header, offset, &bytes, error));
    if (bytes < sizeof header || !qsi_block_decode(&out->block, header, file->header.salt) ||
        out->block.lsn != scan->lsn || out->block.file_number != file->header.number ||
        offset + qsi_block_bytes(out->block.payload_bytes) > file->bytes) {
        return QS_EEMPTY;
    }
    QS_TRY(payload_place(scan, out->block.payload_bytes, &chunk, error));
    out->chunk = chunk;
    out->from = chunk->used;
    out->offset = offset;
    QS_TRY(qsi_file_read(scan->env, file->file, chunk->data + chunk->used, out->block.payload_bytes,
                         offset + QSI_BLOCK_HEADER_BYTES, &bytes, error));
    if (bytes < out->block.payload_bytes ||
        !qsi_block_check(header, chunk->data + chunk->used, out->block.payload_bytes)) {
        return QS_EEMPTY;
    }
    chunk->used += out->block.payload_bytes;
    return QS_OK;
}

/* Checks once that the records fill the payload exactly, so that no visitor has to check it. */
static qs_status check_records(const struct qsi_scan_file *file, const struct qsi_scan_block *block,
                               qs_error *error)
{
    const uint8_t *at = block->chunk->data + block->from;
    uint64_t left = block->block.payload_bytes;
    uint32_t count = 0;

    for (; left > 0; count++) {
        if (!qsi_record_fits(at, left)) {
            return qsi_fail_corrupt(error, file->path, block->offset, "a record leaves its block");
        }
        left -= qsi_record_length(at);
        at += qsi_record_length(at);
    }
    if (count != block->block.record_count) {
        return qsi_fail_corrupt(error, file->path, block->offset, "%u records, the block tells %u",
                                count, block->block.record_count);
    }
    return QS_OK;
}

qs_status qsi_scan_skip_damage(struct qsi_scan *scan, const struct qsi_scan_file *file,
                               uint64_t *offset_io, qs_error *error)
{
    uint8_t header[QSI_BLOCK_HEADER_BYTES];
    uint64_t bad_lsn = scan->lsn;

    for (uint64_t offset = *offset_io + QSI_BLOCK_ALIGN; offset < file->bytes;
         offset += QSI_BLOCK_ALIGN) {
        struct qsi_scan_block block = {0};
        size_t bytes = 0;
        qs_status status;
        QS_TRY(qsi_file_read(scan->env, file->file, header, sizeof header, offset, &bytes, error));
        if (bytes < sizeof header || !qsi_block_decode(&block.block, header, file->header.salt) ||
            block.block.lsn < bad_lsn || block.block.lsn >= scan->end_lsn) {
            continue;
        }
        scan->lsn = block.block.lsn;
        status = read_block(scan, file, offset, &block, error);
        if (status == QS_OK) {
            block.chunk->used = block.from; /* the caller reads it again */
            scan->lsn = bad_lsn;
            qsi_scan_lose(scan, block.block.lsn);
            *offset_io = offset;
            return QS_OK;
        }
        scan->lsn = bad_lsn;
        if (status != QS_EEMPTY) {
            return status;
        }
    }
    return QS_EEMPTY;
}

/* Visits a block, unless the whole block is before the checkpoint; then its memory is used for the
 * next one. */
static qs_status hand_over(struct qsi_scan *scan, const struct qsi_scan_block *block,
                           qs_error *error)
{
    if (block->block.lsn + block->block.payload_bytes <= scan->needed_from) {
        block->chunk->used = block->from;
        return QS_OK;
    }
    QS_TRY(scan->visit(scan->context, block, error));
    scan->result->blocks += 1;
    scan->result->bytes += block->block.payload_bytes;
    return QS_OK;
}

qs_status qsi_scan_blocks(struct qsi_scan *scan, const struct qsi_scan_file *file, uint32_t session,
                          qs_error *error)
{
    struct qsi_scan_result *result = scan->result;
    struct qsi_scan_block block = {.session = session};
    qs_status status;

    result->last_file = file->header.number;
    result->end_offset = QSI_JOURNAL_HEADER_BYTES;
    scan->next_file = 0;
    while (scan->lsn < scan->end_lsn) {
        status = read_block(scan, file, result->end_offset, &block, error);
        if (status == QS_EEMPTY && scan->options->salvage) {
            status = qsi_scan_skip_damage(scan, file, &result->end_offset, error);
            if (status == QS_OK) {
                continue;
            }
        }
        if (status != QS_OK) {
            return status == QS_EEMPTY ? QS_OK : status;
        }
        if ((block.block.flags & QSI_BLOCK_LAST) != 0) {
            scan->next_file = block.block.next_file;
            return QS_OK;
        }
        QS_TRY(check_records(file, &block, error));
        QS_TRY(hand_over(scan, &block, error));
        scan->lsn += block.block.payload_bytes;
        result->end_offset += qsi_block_bytes(block.block.payload_bytes);
        qsi_scan_report(scan, result->end_offset, PROGRESS_BYTES);
    }
    return QS_OK;
}
