/* Encoding and checking of the structures in block_format.h. */
#include "block_format.h"

#include "qstore/codec.h"

#include "check.h"
#include "error.h"
#include "file_head.h"
#include "le.h"
#include "name.h"
#include "record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_MAGIC UINT32_C(0x4b425351)   /* "QSBK" */
#define TRAILER_MAGIC UINT32_C(0x46425351) /* "QSBF" */
#define PLACE_MAX (UINT64_C(1) << 62) /* no file is so large, and sums with this do not overflow */

static const struct qsi_file_kind file_kind = {"QSBLOCK\n", "a block file", 1};

/* Offsets in the file's header. */
enum {
    AT_UUID = 16,
    AT_OWNER = 32,
    AT_NUMBER = 40,
    AT_SALT = 48,
    AT_CRC = QSI_BLOCK_FILE_HEADER_BYTES - 4,
};

/* Offsets in a block's header. */
enum {
    HEAD_MAGIC = 0,
    HEAD_CODEC = 4,
    HEAD_TIME_KIND = 5,
    HEAD_SALT = 8,
    HEAD_OWNER = 16,
    HEAD_FIRST_OFFSET = 24,
    HEAD_FIRST_TIME = 32,
    HEAD_LAST_TIME = 40,
    HEAD_AT = 48,
    HEAD_PREVIOUS = 56,
    HEAD_CONTENT_BYTES = 64,
    HEAD_RAW_BYTES = 68,
    HEAD_ROWS = 72,
    HEAD_RECORD_BYTES = 76,
    HEAD_TIME_COUNT = 80,
    HEAD_DICTIONARY_BYTES = 84,
    HEAD_DICTIONARY_CRC = 88,
    HEAD_CONTENT_CRC = 92,
    HEAD_CRC = QSI_BLOCK_HEAD_BYTES - 4,
};

/* Offsets in the trailer of a footer. */
enum {
    TRAILER_SALT = 0,
    TRAILER_OWNER = 8,
    TRAILER_AT = 16,
    TRAILER_ROWS = 24,
    TRAILER_FIRST_OFFSET = 32,
    TRAILER_LAST_TIME = 40,
    TRAILER_BLOCKS = 48,
    TRAILER_CRC = 56,
    TRAILER_MAGIC_AT = 60,
};

/* ---- names ---- */

void qsi_block_name(char name_out[QSI_BLOCK_NAME_BYTES], const struct qsi_block_file *file,
                    const char *suffix)
{
    snprintf(name_out, QSI_BLOCK_NAME_BYTES, "%016" PRIx64 "-%016" PRIx64 ".%s", file->owner,
             file->number, suffix);
}

bool qsi_block_name_parse(struct qsi_block_file *file_out, const char *name, const char *suffix)
{
    char canonical[QSI_BLOCK_NAME_BYTES];
    const char *at;

    memset(file_out, 0, sizeof *file_out);
    at = qsi_name_hex(name, &file_out->owner);
    qsi_name_hex(*at == '-' ? at + 1 : at, &file_out->number);
    /* Each name has only one form. */
    qsi_block_name(canonical, file_out, suffix);
    return strcmp(canonical, name) == 0;
}

/* ---- files that were staged ---- */

static uint64_t owner_inside(const struct qsi_block_file *file)
{
    return file->adopted ? QSI_BLOCK_STAGED_OWNER : file->owner;
}

void qsi_block_adopt_head(struct qsi_block_head *head, const struct qsi_block_file *file)
{
    if (file->adopted) {
        head->owner = file->owner;
        head->first_offset += file->number;
        head->first_time_us = head->last_time_us = file->time_us;
        head->time_kind = QSI_BLOCK_ONE_TIME;
        head->time_count = 0;
    }
}

void qsi_block_adopt_entry(struct qsi_block_entry *entry, const struct qsi_block_file *file)
{
    if (file->adopted) {
        entry->first_offset += file->number;
        entry->first_time_us = file->time_us;
    }
}

/* ---- the file's header ---- */

void qsi_block_file_header_encode(uint8_t *bytes_out, const struct qsi_block_file *file,
                                  const uint8_t uuid[QSI_UUID_BYTES])
{
    QS_DCHECK(file->salt != 0 || file->end == 0);
    memset(bytes_out, 0, QSI_BLOCK_FILE_HEADER_BYTES);
    qsi_file_head_encode(bytes_out, &file_kind);
    memcpy(bytes_out + AT_UUID, uuid, QSI_UUID_BYTES);
    qsi_put_u64(bytes_out + AT_OWNER, file->owner);
    qsi_put_u64(bytes_out + AT_NUMBER, file->number);
    qsi_put_u64(bytes_out + AT_SALT, file->salt);
    qsi_put_u32(bytes_out + AT_CRC, qs_crc32c(0, bytes_out, AT_CRC));
}

qs_status qsi_block_file_header_check(const uint8_t *bytes, const struct qsi_block_file *file,
                                      const uint8_t uuid[QSI_UUID_BYTES], const char *path,
                                      qs_error *error)
{
    static const uint8_t no_uuid[QSI_UUID_BYTES];

    QS_TRY(qsi_file_header_check(&file_kind, bytes, AT_CRC, path, error));
    if (memcmp(bytes + AT_UUID, file->adopted ? no_uuid : uuid, QSI_UUID_BYTES) != 0) {
        return qsi_fail_corrupt(error, path, AT_UUID, "file header: of another store");
    }
    if (qsi_get_u64(bytes + AT_OWNER) != owner_inside(file) ||
        qsi_get_u64(bytes + AT_NUMBER) != (file->adopted ? 0 : file->number) ||
        qsi_get_u64(bytes + AT_SALT) != file->salt) {
        return qsi_fail_corrupt(error, path, AT_OWNER, "file header: of another file");
    }
    return QS_OK;
}

/* ---- a block's header ---- */

static bool times_are_possible(const struct qsi_block_head *head)
{
    if (head->last_time_us < head->first_time_us ||
        head->last_time_us - head->first_time_us > UINT32_MAX) {
        return false;
    }
    switch (head->time_kind) {
    case QSI_BLOCK_ONE_TIME:
        return head->time_count == 0 && head->last_time_us == head->first_time_us;
    case QSI_BLOCK_TIME_RUNS:
        return head->time_count >= 2 && head->time_count <= head->rows;
    case QSI_BLOCK_ROW_TIMES:
        return head->time_count == head->rows;
    default:
        return false;
    }
}

void qsi_block_head_encode(uint8_t bytes_out[QSI_BLOCK_HEAD_BYTES],
                           const struct qsi_block_head *head)
{
    QS_ASSERT(head->dictionary_bytes <= head->record_bytes &&
              head->record_bytes <= head->content_bytes);
    QS_ASSERT(head->at % QSI_BLOCK_UNIT == 0 && head->previous < head->at);
    QS_ASSERT(head->rows > 0 && head->rows <= QSI_BLOCK_ROWS_MAX && times_are_possible(head));
    memset(bytes_out, 0, QSI_BLOCK_HEAD_BYTES);
    qsi_put_u32(bytes_out + HEAD_MAGIC, BLOCK_MAGIC);
    bytes_out[HEAD_TIME_KIND] = head->time_kind;
    qsi_put_u64(bytes_out + HEAD_SALT, head->salt);
    qsi_put_u64(bytes_out + HEAD_OWNER, head->owner);
    qsi_put_u64(bytes_out + HEAD_FIRST_OFFSET, head->first_offset);
    qsi_put_u64(bytes_out + HEAD_FIRST_TIME, head->first_time_us);
    qsi_put_u64(bytes_out + HEAD_LAST_TIME, head->last_time_us);
    qsi_put_u64(bytes_out + HEAD_AT, head->at);
    qsi_put_u64(bytes_out + HEAD_PREVIOUS, head->previous);
    qsi_put_u32(bytes_out + HEAD_CONTENT_BYTES, head->content_bytes);
    qsi_put_u32(bytes_out + HEAD_RAW_BYTES, head->content_bytes);
    qsi_put_u32(bytes_out + HEAD_ROWS, head->rows);
    qsi_put_u32(bytes_out + HEAD_RECORD_BYTES, head->record_bytes);
    qsi_put_u32(bytes_out + HEAD_TIME_COUNT, head->time_count);
    qsi_put_u32(bytes_out + HEAD_DICTIONARY_BYTES, head->dictionary_bytes);
    qsi_put_u32(bytes_out + HEAD_DICTIONARY_CRC, head->dictionary_crc);
    qsi_put_u32(bytes_out + HEAD_CONTENT_CRC, head->content_crc);
    qsi_put_u32(bytes_out + HEAD_CRC, qs_crc32c(0, bytes_out, HEAD_CRC));
}

static qs_status bad_head(const struct qsi_block_head *head, const char *path, qs_error *error,
                          const char *what)
{
    return qsi_fail_corrupt(error, path, head->at, "block header: %s", what);
}

/* Checks the fields of a head, whose checksum is right, against each other. */
static qs_status check_head(const struct qsi_block_head *head, const struct qsi_block_file *file,
                            const char *path, qs_error *error)
{
    if (file->owner != 0 && head->owner != owner_inside(file)) {
        return bad_head(head, path, error, "of another owner");
    }
    if (head->previous != 0 ? head->previous < QSI_BLOCK_FILE_HEADER_BYTES ||
                                  head->previous >= head->at || head->previous % QSI_BLOCK_UNIT != 0
                            : head->at != QSI_BLOCK_FILE_HEADER_BYTES) {
        return bad_head(head, path, error, "no block can be before it there");
    }
    if (head->rows == 0 || head->rows > QSI_BLOCK_ROWS_MAX ||
        head->first_offset + head->rows < head->first_offset) {
        return bad_head(head, path, error, "impossible number of rows");
    }
    if (!times_are_possible(head)) {
        return bad_head(head, path, error, "impossible times");
    }
    if (head->record_bytes < QSI_MESSAGES_HEADER_BYTES + QSI_MESSAGES_DESTINATION_BYTES ||
        head->record_bytes % QSI_RECORD_ALIGN != 0 ||
        head->record_bytes + qsi_block_times_bytes(head->time_kind, head->time_count) !=
            head->content_bytes ||
        head->content_bytes > QSI_BLOCK_CONTENT_MAX ||
        head->dictionary_bytes < QSI_MESSAGES_HEADER_BYTES + QSI_MESSAGES_DESTINATION_BYTES ||
        head->dictionary_bytes > head->record_bytes) {
        return bad_head(head, path, error, "impossible sizes");
    }
    return QS_OK;
}

qs_status qsi_block_head_decode(struct qsi_block_head *head_out,
                                const uint8_t bytes[QSI_BLOCK_HEAD_BYTES],
                                const struct qsi_block_file *file, uint64_t at, const char *path,
                                qs_error *error)
{
    *head_out = (struct qsi_block_head){
        .salt = qsi_get_u64(bytes + HEAD_SALT),
        .owner = qsi_get_u64(bytes + HEAD_OWNER),
        .first_offset = qsi_get_u64(bytes + HEAD_FIRST_OFFSET),
        .first_time_us = qsi_get_u64(bytes + HEAD_FIRST_TIME),
        .last_time_us = qsi_get_u64(bytes + HEAD_LAST_TIME),
        .at = at,
        .previous = qsi_get_u64(bytes + HEAD_PREVIOUS),
        .content_bytes = qsi_get_u32(bytes + HEAD_CONTENT_BYTES),
        .rows = qsi_get_u32(bytes + HEAD_ROWS),
        .record_bytes = qsi_get_u32(bytes + HEAD_RECORD_BYTES),
        .time_count = qsi_get_u32(bytes + HEAD_TIME_COUNT),
        .dictionary_bytes = qsi_get_u32(bytes + HEAD_DICTIONARY_BYTES),
        .dictionary_crc = qsi_get_u32(bytes + HEAD_DICTIONARY_CRC),
        .content_crc = qsi_get_u32(bytes + HEAD_CONTENT_CRC),
        .time_kind = bytes[HEAD_TIME_KIND],
    };
    if (qsi_get_u32(bytes + HEAD_MAGIC) != BLOCK_MAGIC) {
        return bad_head(head_out, path, error, "there is none");
    }
    if (qs_crc32c(0, bytes, HEAD_CRC) != qsi_get_u32(bytes + HEAD_CRC)) {
        return bad_head(head_out, path, error, "wrong checksum");
    }
    if (head_out->salt != file->salt) {
        return bad_head(head_out, path, error, "of another file");
    }
    if (qsi_get_u64(bytes + HEAD_AT) != at) {
        return bad_head(head_out, path, error, "of another place");
    }
    if (bytes[HEAD_CODEC] != 0) {
        return qsi_fail(error, QS_EVERSION, "%s: block with codec %u at %" PRIu64, path,
                        bytes[HEAD_CODEC], at);
    }
    return check_head(head_out, file, path, error);
}

static bool times_ascend(const struct qsi_block_head *head, const uint8_t *times)
{
    uint32_t span = (uint32_t)(head->last_time_us - head->first_time_us);
    uint32_t row = 0, delta = 0;

    QS_DCHECK(times_are_possible(head));
    if (head->time_kind == QSI_BLOCK_ONE_TIME) {
        return true;
    }
    for (uint32_t i = 0; i < head->time_count; i++) {
        uint32_t this_delta;
        if (head->time_kind == QSI_BLOCK_TIME_RUNS) {
            uint32_t this_row = qsi_get_u32(times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)i);
            this_delta = qsi_get_u32(times + QSI_BLOCK_TIME_RUN_BYTES * (size_t)i + 4);
            if (i == 0 ? this_row != 0 || this_delta != 0
                       : this_row <= row || this_row >= head->rows || this_delta <= delta) {
                return false;
            }
            row = this_row;
        } else {
            this_delta = qsi_get_u32(times + QSI_BLOCK_ROW_TIME_BYTES * (size_t)i);
            if (i == 0 ? this_delta != 0 : this_delta < delta) {
                return false;
            }
        }
        delta = this_delta;
    }
    return delta == span;
}

qs_status qsi_block_dictionary_check(const struct qsi_block_head *head, const uint8_t *content,
                                     const char *path, qs_error *error)
{
    uint64_t at = head->at + QSI_BLOCK_HEAD_BYTES;
    struct qsi_messages view;
    qs_status status;

    if (qsi_record_length(content) != head->record_bytes ||
        qsi_record_type(content) != QSI_RECORD_MESSAGES) {
        return qsi_fail_corrupt(error, path, at, "block: its content is not a record of messages");
    }
    status = qsi_messages_check_routes(content, head->dictionary_bytes, error);
    if (status != QS_OK) {
        qsi_error_prefix(error, "%s: block at %" PRIu64, path, head->at);
        return status;
    }
    qsi_messages_view(&view, content);
    if (view.row_count != head->rows || view.destination_count != 1 ||
        qsi_messages_destination_queue(&view, 0) != head->owner ||
        qsi_messages_destination_seq(&view, 0) != head->first_offset ||
        qsi_messages_destination_rows(&view, 0) != head->rows) {
        return qsi_fail_corrupt(error, path, at, "block: its rows are not those of its header");
    }
    return QS_OK;
}

qs_status qsi_block_content_check(const struct qsi_block_head *head, const uint8_t *content,
                                  const char *path, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_block_dictionary_check(head, content, path, error));
    status = qsi_messages_check_whole(content, error);
    if (status != QS_OK) {
        qsi_error_prefix(error, "%s: block at %" PRIu64, path, head->at);
        return status;
    }
    if (!times_ascend(head, content + head->record_bytes)) {
        return qsi_fail_corrupt(error, path, head->at, "block: its times do not ascend");
    }
    return QS_OK;
}

/* ---- footer ---- */

static void encode_entry(uint8_t *bytes_out, const struct qsi_block_entry *entry)
{
    QS_DCHECK(entry->rows > 0 && entry->bytes > QSI_BLOCK_HEAD_BYTES);
    qsi_put_u64(bytes_out, entry->first_offset);
    qsi_put_u64(bytes_out + 8, entry->first_time_us);
    qsi_put_u64(bytes_out + 16, entry->at);
    qsi_put_u32(bytes_out + 24, entry->bytes);
    qsi_put_u32(bytes_out + 28, entry->rows);
}

void qsi_block_entry_decode(struct qsi_block_entry *entry_out, const uint8_t *bytes)
{
    *entry_out = (struct qsi_block_entry){
        .first_offset = qsi_get_u64(bytes),
        .first_time_us = qsi_get_u64(bytes + 8),
        .at = qsi_get_u64(bytes + 16),
        .bytes = qsi_get_u32(bytes + 24),
        .rows = qsi_get_u32(bytes + 28),
    };
}

void qsi_block_footer_encode(uint8_t *bytes_out, const struct qsi_block_file *file,
                             const struct qsi_block_entry *entries, uint64_t last_time_us,
                             uint64_t at)
{
    size_t entries_bytes = (size_t)file->block_count * QSI_BLOCK_ENTRY_BYTES;
    uint8_t *trailer = bytes_out + entries_bytes;
    uint64_t rows = 0;

    QS_ASSERT(file->block_count > 0);
    memset(trailer, 0, QSI_BLOCK_TRAILER_BYTES);
    for (uint32_t i = 0; i < file->block_count; i++) {
        encode_entry(bytes_out + (size_t)i * QSI_BLOCK_ENTRY_BYTES, &entries[i]);
        QS_ASSERT(i == 0 || entries[i].at >= entries[i - 1].at + entries[i - 1].bytes);
        rows += entries[i].rows;
    }
    qsi_put_u64(trailer + TRAILER_SALT, file->salt);
    qsi_put_u64(trailer + TRAILER_OWNER, file->owner);
    qsi_put_u64(trailer + TRAILER_AT, at);
    qsi_put_u64(trailer + TRAILER_ROWS, rows);
    qsi_put_u64(trailer + TRAILER_FIRST_OFFSET, entries[0].first_offset);
    qsi_put_u64(trailer + TRAILER_LAST_TIME, last_time_us);
    qsi_put_u32(trailer + TRAILER_BLOCKS, file->block_count);
    qsi_put_u32(trailer + TRAILER_CRC, qs_crc32c(0, bytes_out, entries_bytes + TRAILER_CRC));
    qsi_put_u32(trailer + TRAILER_MAGIC_AT, TRAILER_MAGIC);
}

/* Blocks must not overlap and must end before the footer; offsets and times must ascend. */
static bool entries_are_possible(const uint8_t *bytes, const struct qsi_block_file *file,
                                 uint64_t *rows_out)
{
    uint64_t at = QSI_BLOCK_FILE_HEADER_BYTES, offset = 0, time_us = 0;

    *rows_out = 0;
    for (uint32_t i = 0; i < file->block_count; i++) {
        struct qsi_block_entry entry;
        qsi_block_entry_decode(&entry, bytes + (size_t)i * QSI_BLOCK_ENTRY_BYTES);
        if (entry.at < at || entry.at > PLACE_MAX || entry.at % QSI_BLOCK_UNIT != 0 ||
            entry.bytes <= QSI_BLOCK_HEAD_BYTES || entry.at + entry.bytes > file->last_at ||
            (file->owner != 0 && (entry.first_offset < offset || entry.first_time_us < time_us)) ||
            entry.rows == 0 || entry.first_offset + entry.rows < entry.first_offset) {
            return false;
        }
        at = entry.at + entry.bytes;
        offset = entry.first_offset + entry.rows;
        time_us = entry.first_time_us;
        *rows_out += entry.rows;
    }
    return true;
}

qs_status qsi_block_footer_check(const uint8_t *bytes, const struct qsi_block_file *file,
                                 const char *path, qs_error *error)
{
    size_t entries_bytes = (size_t)file->block_count * QSI_BLOCK_ENTRY_BYTES;
    const uint8_t *trailer = bytes + entries_bytes;
    uint64_t rows;

    if (qsi_get_u32(trailer + TRAILER_MAGIC_AT) != TRAILER_MAGIC ||
        qs_crc32c(0, bytes, entries_bytes + TRAILER_CRC) != qsi_get_u32(trailer + TRAILER_CRC)) {
        return qsi_fail_corrupt(error, path, file->last_at, "footer: wrong checksum");
    }
    if (qsi_get_u64(trailer + TRAILER_SALT) != file->salt ||
        qsi_get_u64(trailer + TRAILER_OWNER) != owner_inside(file) ||
        qsi_get_u64(trailer + TRAILER_AT) != file->last_at ||
        qsi_get_u32(trailer + TRAILER_BLOCKS) != file->block_count) {
        return qsi_fail_corrupt(error, path, file->last_at, "footer: of another file");
    }
    if (!entries_are_possible(bytes, file, &rows) || rows != qsi_get_u64(trailer + TRAILER_ROWS)) {
        return qsi_fail_corrupt(error, path, file->last_at, "footer: impossible blocks");
    }
    return QS_OK;
}
