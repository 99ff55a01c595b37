/* Reading blocks and their dictionaries, which are checked before use. */
#include "block_load.h"

#include "qstore/codec.h"

#include "block_dir.h"
#include "check.h"
#include "error.h"

#include <string.h>

#define DICTIONARY_READ_BYTES 4096u /* read before the size is known */
#define PART_BYTES (2u << 20)       /* bytes of a block read at once; most blocks have fewer */

/* Checks an entry, which comes from a file, too. */
static qs_status check_entry(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                             const struct qsi_block_entry *entry, qs_error *error)
{
    uint64_t end = file->sealed ? file->last_at : file->end;

    if (entry->bytes <= QSI_BLOCK_HEAD_BYTES || entry->at < QSI_BLOCK_FILE_HEADER_BYTES ||
        entry->at > end || entry->bytes > end - entry->at) {
        return qsi_block_damaged(error, blocks, file, entry->at, "no block can be there");
    }
    return QS_OK;
}

/* Checks that the header is that of the block of entry.  The path is formatted only for an error:
 * formatting takes as long as the rest. */
static qs_status decode_head(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                             const struct qsi_block_entry *entry, const uint8_t *bytes,
                             struct qsi_block_head *head_out, qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];
    struct qsi_block_entry found;

    if (qsi_block_head_decode(head_out, bytes, file, entry->at, "", NULL) != QS_OK) {
        qsi_block_file_path(path, blocks, file);
        return qsi_block_head_decode(head_out, bytes, file, entry->at, path, error);
    }
    found = (struct qsi_block_entry){.first_offset = head_out->first_offset,
                                     .first_time_us = head_out->first_time_us};
    qsi_block_adopt_entry(&found, file);
    if (head_out->content_bytes != entry->bytes - QSI_BLOCK_HEAD_BYTES ||
        found.first_offset != entry->first_offset || head_out->rows != entry->rows ||
        found.first_time_us != entry->first_time_us) {
        return qsi_block_damaged(error, blocks, file, entry->at,
                                 "block header: not the block that the index tells of");
    }
    return QS_OK;
}

/* Checks content with the right checksum: whether a block can have it. */
static qs_status check_content(const struct qsi_block_dir *blocks,
                               const struct qsi_block_file *file, const struct qsi_block_head *head,
                               const uint8_t *content, qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];

    if (qsi_block_content_check(head, content, "", NULL) == QS_OK) {
        return QS_OK;
    }
    qsi_block_file_path(path, blocks, file);
    return qsi_block_content_check(head, content, path, error);
}

/* Continues the checksum over the block's bytes [from, to); the dictionary has a checksum of its
 * own. */
static uint32_t sum_part(const struct qsi_block_head *head, const uint8_t *block, uint32_t from,
                         uint32_t to, uint32_t crc, bool *matches_io)
{
    uint32_t dictionary_end = QSI_BLOCK_HEAD_BYTES + head->dictionary_bytes;

    QS_DCHECK(from <= to);
    if (from < dictionary_end && dictionary_end <= to) {
        crc = qs_crc32c(crc, block + from, dictionary_end - from);
        *matches_io = *matches_io && crc == head->dictionary_crc;
        from = dictionary_end;
    }
    return qs_crc32c(crc, block + from, to - from);
}

/* Reads in parts, and sums each part while it is in the processor's cache. */
static qs_status read_block(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                            qs_file *handle, const struct qsi_block_entry *entry, uint8_t *block,
                            struct qsi_block_head *head_out, qs_error *error)
{
    uint32_t read = entry->bytes < PART_BYTES ? entry->bytes : PART_BYTES;
    uint32_t summed = QSI_BLOCK_HEAD_BYTES, crc = 0;
    bool matches = true;

    QS_DCHECK(read > QSI_BLOCK_HEAD_BYTES); /* the entry was checked */
    QS_TRY(qsi_block_read_at(blocks, file, handle, block, read, entry->at, error));
    QS_TRY(decode_head(blocks, file, entry, block, head_out, error));
    for (;;) {
        uint32_t part = entry->bytes - read < PART_BYTES ? entry->bytes - read : PART_BYTES;
        crc = sum_part(head_out, block, summed, read, crc, &matches);
        summed = read;
        if (part == 0) {
            break;
        }
        QS_TRY(
            qsi_block_read_at(blocks, file, handle, block + read, part, entry->at + read, error));
        read += part;
    }
    if (!matches || crc != head_out->content_crc) {
        return qsi_block_damaged(error, blocks, file, entry->at, "block: wrong checksum");
    }
    return check_content(blocks, file, head_out, block + QSI_BLOCK_HEAD_BYTES, error);
}

static void fill_view(struct qsi_block_view *view, const struct qsi_block_head *head,
                      struct qsi_chunk *chunk, uint32_t record_at)
{
    QS_DCHECK(record_at + (uint64_t)head->content_bytes <= chunk->capacity);
    *view = (struct qsi_block_view){
        .chunk = chunk,
        .record_at = record_at,
        .owner = head->owner,
        .first_offset = head->first_offset,
        .first_time_us = head->first_time_us,
        .last_time_us = head->last_time_us,
        .rows = head->rows,
        .time_kind = head->time_kind,
        .time_count = head->time_count,
        .times = chunk->data + record_at + head->record_bytes,
    };
    qsi_messages_view(&view->messages, chunk->data + record_at);
}

qs_status qsi_block_load(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         qs_file *handle, const struct qsi_block_entry *entry,
                         struct qsi_chunk *room, struct qsi_block_view *view_out, qs_error *error)
{
    struct qsi_block_head head;
    uint32_t shift;
    qs_status status;

    memset(view_out, 0, sizeof *view_out);
    status = check_entry(blocks, file, entry, error);
    if (status == QS_OK && room == NULL) {
        room = qsi_chunk_create(qsi_block_chunk_bytes(entry->bytes));
        if (room == NULL) {
            status = qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "a block"), blocks, file);
        }
    }
    if (status != QS_OK) {
        goto out;
    }
    QS_ASSERT(room->capacity >= qsi_block_chunk_bytes(entry->bytes));
    /* Columns begin at multiples of 64 in memory, as in the file. */
    shift = (uint32_t)(-(uintptr_t)room->data & (QSI_BLOCK_UNIT - 1));
    room->used = shift + entry->bytes;
    status = read_block(blocks, file, handle, entry, room->data + shift, &head, error);
    if (status == QS_OK) {
        qsi_block_adopt_head(&head, file);
        fill_view(view_out, &head, room, shift + QSI_BLOCK_HEAD_BYTES);
        room = NULL;
    }
out:
    qsi_chunk_unref(room);
    return status;
}

/* Reads the rest of a dictionary; the first page has the whole header. */
static qs_status read_rest(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                           qs_file *handle, const struct qsi_block_head *head, uint32_t read,
                           struct qsi_chunk **chunk_io, qs_error *error)
{
    uint32_t wanted = QSI_BLOCK_HEAD_BYTES + head->dictionary_bytes;
    struct qsi_chunk *larger;

    if (wanted <= read) {
        return QS_OK;
    }
    larger = qsi_chunk_create(wanted);
    if (larger == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "a dictionary"), blocks, file);
    }
    memcpy(larger->data, (*chunk_io)->data, read);
    qsi_chunk_unref(*chunk_io);
    *chunk_io = larger;
    return qsi_block_read_at(blocks, file, handle, larger->data + read, wanted - read,
                             head->at + read, error);
}

static qs_status check_dictionary(const struct qsi_block_dir *blocks,
                                  const struct qsi_block_file *file,
                                  const struct qsi_block_head *head, const uint8_t *content,
                                  qs_error *error)
{
    char path[QSI_BLOCK_PATH_BYTES];

    if (qs_crc32c(0, content, head->dictionary_bytes) != head->dictionary_crc) {
        return qsi_block_damaged(error, blocks, file, head->at,
                                 "block: wrong checksum of its dictionary");
    }
    qsi_block_file_path(path, blocks, file);
    return qsi_block_dictionary_check(head, content, path, error);
}

qs_status qsi_block_load_dictionary(const struct qsi_block_dir *blocks,
                                    const struct qsi_block_file *file, qs_file *handle,
                                    const struct qsi_block_entry *entry,
                                    struct qsi_block_dictionary *dictionary_out, qs_error *error)
{
    uint32_t read = entry->bytes < DICTIONARY_READ_BYTES ? entry->bytes : DICTIONARY_READ_BYTES;
    struct qsi_chunk *chunk;
    struct qsi_block_head head;
    qs_status status;

    memset(dictionary_out, 0, sizeof *dictionary_out);
    QS_TRY(check_entry(blocks, file, entry, error));
    chunk = qsi_chunk_create(DICTIONARY_READ_BYTES);
    if (chunk == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "a dictionary"), blocks, file);
    }
    status = qsi_block_read_at(blocks, file, handle, chunk->data, read, entry->at, error);
    if (status == QS_OK) {
        status = decode_head(blocks, file, entry, chunk->data, &head, error);
    }
    if (status == QS_OK) {
        status = read_rest(blocks, file, handle, &head, read, &chunk, error);
    }
    if (status == QS_OK) {
        status = check_dictionary(blocks, file, &head, chunk->data + QSI_BLOCK_HEAD_BYTES, error);
    }
    if (status != QS_OK) {
        qsi_chunk_unref(chunk);
        return status;
    }
    qsi_block_adopt_head(&head, file);
    *dictionary_out = (struct qsi_block_dictionary){
        .chunk = chunk,
        .first_offset = head.first_offset,
        .first_time_us = head.first_time_us,
        .last_time_us = head.last_time_us,
        .rows = head.rows,
    };
    qsi_messages_view(&dictionary_out->messages, chunk->data + QSI_BLOCK_HEAD_BYTES);
    return QS_OK;
}
