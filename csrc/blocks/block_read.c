/* Reading blocks, their dictionaries, and the index of a file. */
#include "block_read.h"

#include "qstore/codec.h"

#include "alloc.h"
#include "block_dir.h"
#include "error.h"
#include "file.h"
#include "le.h"

#include <string.h>

#define DICTIONARY_READ_BYTES 4096u /* what is read before it is known how long it is */
#define PART_BYTES (256u << 10)     /* of a block that are read at once */

/* ---- views ---- */

struct qsi_block_view qsi_block_view_ref(const struct qsi_block_view *view)
{
    struct qsi_block_view copy = *view;

    qsi_chunk_ref(copy.chunk);
    return copy;
}

void qsi_block_view_fini(struct qsi_block_view *view)
{
    qsi_chunk_unref(view->chunk);
    memset(view, 0, sizeof *view);
}

static uint32_t run_row(const struct qsi_block_view *view, uint32_t run)
{
    return qsi_get_u32(view->times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)run);
}

static uint64_t run_time(const struct qsi_block_view *view, uint32_t run)
{
    return view->first_time_us +
           qsi_get_u32(view->times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)run + 4);
}

static uint64_t row_time(const struct qsi_block_view *view, uint32_t row)
{
    return view->first_time_us + qsi_get_u32(view->times + QSI_BLOCK_ROW_TIME_BYTES * (size_t)row);
}

/* The last run that begins at or before row. */
static uint32_t run_of(const struct qsi_block_view *view, uint32_t row)
{
    uint32_t low = 0, high = view->time_count;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (run_row(view, middle) <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t qsi_block_view_time(const struct qsi_block_view *view, uint32_t row)
{
    QS_DCHECK(row < view->rows);
    switch (view->time_kind) {
    case QSI_BLOCK_ONE_TIME:
        return view->first_time_us;
    case QSI_BLOCK_TIME_RUNS:
        return run_time(view, run_of(view, row));
    default:
        return row_time(view, row);
    }
}

static void fill_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                       int64_t *times_out)
{
    uint32_t row = from, run = run_of(view, from);

    while (row < from + count) {
        uint32_t end = run + 1 < view->time_count ? run_row(view, run + 1) : view->rows;
        int64_t time_us = (int64_t)run_time(view, run);
        for (; row < end && row < from + count; row++) {
            times_out[row - from] = time_us;
        }
        run += 1;
    }
}

void qsi_block_view_times(const struct qsi_block_view *view, uint32_t from, uint32_t count,
                          int64_t *times_out)
{
    QS_ASSERT(from <= view->rows && count <= view->rows - from);
    if (view->time_kind == QSI_BLOCK_TIME_RUNS) {
        fill_times(view, from, count, times_out);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        times_out[i] = (int64_t)(view->time_kind == QSI_BLOCK_ONE_TIME ? view->first_time_us
                                                                       : row_time(view, from + i));
    }
}

uint32_t qsi_block_view_row_at(const struct qsi_block_view *view, uint64_t time_us)
{
    bool by_row = view->time_kind == QSI_BLOCK_ROW_TIMES;
    uint32_t low = 0, high = view->time_count;

    if (time_us <= view->first_time_us) {
        return 0;
    }
    if (time_us > view->last_time_us) {
        return view->rows;
    }
    while (low < high) { /* the first entry that is not before time_us; there is one */
        uint32_t middle = low + (high - low) / 2;
        if ((by_row ? row_time(view, middle) : run_time(view, middle)) < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return by_row ? low : run_row(view, low);
}

void qsi_block_dictionary_fini(struct qsi_block_dictionary *dictionary)
{
    qsi_chunk_unref(dictionary->chunk);
    memset(dictionary, 0, sizeof *dictionary);
}

/* ---- reading ---- */

static qs_status read_at(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                         qs_file *handle, void *data, size_t bytes, uint64_t at, qs_error *error)
{
    size_t read = 0;
    qs_status status = qsi_file_read(blocks->env, handle, data, bytes, at, &read, error);

    if (status != QS_OK) {
        return qsi_block_fail(error, status, blocks, file);
    }
    return read == bytes ? QS_OK
                         : qsi_block_damaged(error, blocks, file, at + read,
                                             "the file ends before what it should have");
}

/* Entries come from a file as well. */
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

/* Whether the header that is there is that of the block which entry tells of. */
static qs_status decode_head(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                             const struct qsi_block_entry *entry, const uint8_t *bytes,
                             const char *path, struct qsi_block_head *head_out, qs_error *error)
{
    QS_TRY(qsi_block_head_decode(head_out, bytes, file, entry->at, path, error));
    if (head_out->content_bytes != entry->bytes - QSI_BLOCK_HEAD_BYTES ||
        head_out->first_offset != entry->first_offset || head_out->rows != entry->rows ||
        head_out->first_time_us != entry->first_time_us) {
        return qsi_block_damaged(error, blocks, file, entry->at,
                                 "block header: not the block that the index tells of");
    }
    return QS_OK;
}

/* Sums the block's bytes [from, to) up; those of the dictionary have a checksum of their own. */
static uint32_t sum_part(const struct qsi_block_head *head, const uint8_t *block, uint32_t from,
                         uint32_t to, uint32_t crc, bool *matches_io)
{
    uint32_t dictionary_end = QSI_BLOCK_HEAD_BYTES + head->dictionary_bytes;

    if (from < dictionary_end && dictionary_end <= to) {
        crc = qs_crc32c(crc, block + from, dictionary_end - from);
        *matches_io = *matches_io && crc == head->dictionary_crc;
        from = dictionary_end;
    }
    return qs_crc32c(crc, block + from, to - from);
}

/* Reads in parts and sums each one up while the processor's cache has it. */
static qs_status read_block(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                            qs_file *handle, const struct qsi_block_entry *entry, uint8_t *block,
                            struct qsi_block_head *head_out, qs_error *error)
{
    uint32_t read = entry->bytes < PART_BYTES ? entry->bytes : PART_BYTES;
    uint32_t summed = QSI_BLOCK_HEAD_BYTES, crc = 0;
    char path[QSI_BLOCK_PATH_BYTES];
    bool matches = true;

    qsi_block_file_path(path, blocks, file);
    QS_TRY(read_at(blocks, file, handle, block, read, entry->at, error));
    QS_TRY(decode_head(blocks, file, entry, block, path, head_out, error));
    for (;;) {
        uint32_t part = entry->bytes - read < PART_BYTES ? entry->bytes - read : PART_BYTES;
        crc = sum_part(head_out, block, summed, read, crc, &matches);
        summed = read;
        if (part == 0) {
            break;
        }
        QS_TRY(read_at(blocks, file, handle, block + read, part, entry->at + read, error));
        read += part;
    }
    if (!matches || crc != head_out->content_crc) {
        return qsi_block_damaged(error, blocks, file, entry->at, "block: wrong checksum");
    }
    return qsi_block_content_check(head_out, block + QSI_BLOCK_HEAD_BYTES, path, error);
}

static void fill_view(struct qsi_block_view *view, const struct qsi_block_head *head,
                      struct qsi_chunk *chunk, uint32_t record_at)
{
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

size_t qsi_block_chunk_bytes(uint32_t block_bytes)
{
    return (size_t)block_bytes + QSI_BLOCK_UNIT;
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
    /* So that columns begin at multiples of 64 in memory as they do in the file. */
    shift = (uint32_t)(-(uintptr_t)room->data & (QSI_BLOCK_UNIT - 1));
    room->used = shift + entry->bytes;
    status = read_block(blocks, file, handle, entry, room->data + shift, &head, error);
    if (status == QS_OK) {
        fill_view(view_out, &head, room, shift + QSI_BLOCK_HEAD_BYTES);
        room = NULL;
    }
out:
    qsi_chunk_unref(room);
    return status;
}

/* The page that was read has the whole header; there may be more of the dictionary to be read. */
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
    return read_at(blocks, file, handle, larger->data + read, wanted - read, head->at + read,
                   error);
}

static qs_status check_dictionary(const struct qsi_block_dir *blocks,
                                  const struct qsi_block_file *file,
                                  const struct qsi_block_head *head, const uint8_t *content,
                                  const char *path, qs_error *error)
{
    if (qs_crc32c(0, content, head->dictionary_bytes) != head->dictionary_crc) {
        return qsi_block_damaged(error, blocks, file, head->at,
                                 "block: wrong checksum of its dictionary");
    }
    return qsi_block_dictionary_check(head, content, path, error);
}

qs_status qsi_block_load_dictionary(const struct qsi_block_dir *blocks,
                                    const struct qsi_block_file *file, qs_file *handle,
                                    const struct qsi_block_entry *entry,
                                    struct qsi_block_dictionary *dictionary_out, qs_error *error)
{
    uint32_t read = entry->bytes < DICTIONARY_READ_BYTES ? entry->bytes : DICTIONARY_READ_BYTES;
    char path[QSI_BLOCK_PATH_BYTES];
    struct qsi_chunk *chunk;
    struct qsi_block_head head;
    qs_status status;

    memset(dictionary_out, 0, sizeof *dictionary_out);
    QS_TRY(check_entry(blocks, file, entry, error));
    chunk = qsi_chunk_create(DICTIONARY_READ_BYTES);
    if (chunk == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "a dictionary"), blocks, file);
    }
    qsi_block_file_path(path, blocks, file);
    status = read_at(blocks, file, handle, chunk->data, read, entry->at, error);
    if (status == QS_OK) {
        status = decode_head(blocks, file, entry, chunk->data, path, &head, error);
    }
    if (status == QS_OK) {
        status = read_rest(blocks, file, handle, &head, read, &chunk, error);
    }
    if (status == QS_OK) {
        status =
            check_dictionary(blocks, file, &head, chunk->data + QSI_BLOCK_HEAD_BYTES, path, error);
    }
    if (status != QS_OK) {
        qsi_chunk_unref(chunk);
        return status;
    }
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

/* ---- the index ---- */

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

    if (footer == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "footer"), blocks, file);
    }
    qsi_block_file_path(path, blocks, file);
    status = read_at(blocks, file, handle, footer, bytes, file->last_at, error);
    if (status == QS_OK) {
        status = qsi_block_footer_check(footer, file, path, error);
    }
    for (uint32_t i = 0; status == QS_OK && i < file->block_count; i++) {
        qsi_block_entry_decode(&entries_out[i], footer + (size_t)i * QSI_BLOCK_ENTRY_BYTES);
    }
    qsi_free(footer);
    return status;
}

/* From the last block, which is known from outside, back through all before it: what a crash left
 * between them is in nobody's way. */
static qs_status walk_back(const struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                           qs_file *handle, struct qsi_block_entry *entries_out, qs_error *error)
{
    uint64_t at = file->last_at, end = file->end, offset_end = UINT64_MAX, time_us = UINT64_MAX;
    char path[QSI_BLOCK_PATH_BYTES];

    qsi_block_file_path(path, blocks, file);
    for (uint32_t i = file->block_count; i-- > 0;) {
        uint8_t bytes[QSI_BLOCK_HEAD_BYTES];
        struct qsi_block_head head;
        if (end - at < sizeof bytes) {
            return qsi_block_damaged(error, blocks, file, at, "no block can be there");
        }
        QS_TRY(read_at(blocks, file, handle, bytes, sizeof bytes, at, error));
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

/* ---- one open file ---- */

struct qsi_block_reader {
    struct qsi_block_dir *blocks;
    struct qsi_block_file file;
    qs_file *handle;
};

qs_status qsi_block_reader_open(struct qsi_block_reader **reader_out, struct qsi_block_dir *blocks,
                                const struct qsi_block_file *file, qs_error *error)
{
    struct qsi_block_reader *reader = qsi_alloc(sizeof *reader);
    qs_status status;

    *reader_out = NULL;
    if (reader == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "reader of blocks"), blocks, file);
    }
    *reader = (struct qsi_block_reader){.blocks = blocks, .file = *file};
    status = qsi_block_open(blocks, file, QS_OPEN_READ, &reader->handle, error);
    if (status != QS_OK) {
        qsi_free(reader);
        return status;
    }
    *reader_out = reader;
    return QS_OK;
}

void qsi_block_reader_close(struct qsi_block_reader *reader)
{
    if (reader != NULL) {
        reader->blocks->env->close(reader->blocks->env, reader->handle);
        qsi_free(reader);
    }
}

qs_status qsi_block_reader_read(struct qsi_block_reader *reader,
                                const struct qsi_block_entry *entry, struct qsi_chunk *room,
                                struct qsi_block_view *view_out, qs_error *error)
{
    return qsi_block_load(reader->blocks, &reader->file, reader->handle, entry, room, view_out,
                          error);
}

qs_status qsi_block_reader_read_dictionary(struct qsi_block_reader *reader,
                                           const struct qsi_block_entry *entry,
                                           struct qsi_block_dictionary *dictionary_out,
                                           qs_error *error)
{
    return qsi_block_load_dictionary(reader->blocks, &reader->file, reader->handle, entry,
                                     dictionary_out, error);
}

qs_status qsi_block_reader_read_index(struct qsi_block_reader *reader,
                                      struct qsi_block_entry **entries_out, qs_error *error)
{
    struct qsi_block_entry *entries;
    qs_status status;

    *entries_out = NULL;
    QS_TRY(qsi_block_check_count(reader->blocks, &reader->file, error));
    entries = qsi_alloc(reader->file.block_count * sizeof *entries);
    if (entries == NULL) {
        return qsi_block_fail(error, qsi_fail(error, QS_ENOMEM, "index of blocks"), reader->blocks,
                              &reader->file);
    }
    status = qsi_block_load_index(reader->blocks, &reader->file, reader->handle, entries, error);
    if (status != QS_OK) {
        qsi_free(entries);
        return status;
    }
    *entries_out = entries;
    return QS_OK;
}

/* ---- look-up ---- */

uint32_t qsi_block_entries_find(const struct qsi_block_entry *entries, uint32_t count,
                                uint64_t offset)
{
    uint32_t low = 0, high = count;

    while (low < high) { /* the first one that ends behind offset */
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].first_offset + entries[middle].rows <= offset) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t qsi_block_entries_find_time(const struct qsi_block_entry *entries, uint32_t count,
                                     uint64_t time_us)
{
    uint32_t low = 0, high = count;

    while (low < high) { /* the first one that begins at or behind time_us */
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].first_time_us < time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? low - 1 : 0;
}

/* ---- the whole file ---- */

qs_status qsi_block_file_check(struct qsi_block_dir *blocks, const struct qsi_block_file *file,
                               qsi_block_visitor *visit, void *context, qs_error *error)
{
    struct qsi_block_reader *reader;
    struct qsi_block_entry *entries = NULL;
    qs_status status;

    QS_TRY(qsi_block_reader_open(&reader, blocks, file, error));
    status = qsi_block_reader_read_index(reader, &entries, error);
    for (uint32_t i = 0; entries != NULL && i < file->block_count; i++) {
        struct qsi_block_view view;
        qs_error this_error = {0};
        qs_status read = qsi_block_reader_read(reader, &entries[i], NULL, &view, &this_error);
        qsi_block_view_fini(&view);
        visit(context, &entries[i], read != QS_OK ? &this_error : NULL);
        if (read != QS_OK && status == QS_OK) {
            status = read;
            if (error != NULL) {
                *error = this_error;
            }
        }
    }
    qsi_free(entries);
    qsi_block_reader_close(reader);
    return status;
}
