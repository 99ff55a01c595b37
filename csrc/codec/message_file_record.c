/* Records of message files:
 * header | number u32 | generation u32 | salt u64 | end u64 | live bytes u64 | slots u32 |
 * runs u32 | runs: count u32, length u32 each */
#include "message_file_record.h"

#include "check.h"
#include "error.h"
#include "record_head.h"

#define MESSAGE_FILE_END_MIN 4096u /* its header */
#define MESSAGE_FILE_GENERATION_MAX 9999u
#define MESSAGE_FILE_COUNT_MAX 65535u

uint64_t qsi_message_file_record_bytes(uint32_t run_count)
{
    return QSI_MESSAGE_FILE_HEADER_BYTES + (uint64_t)run_count * QSI_MESSAGE_FILE_RUN_BYTES;
}

void qsi_message_file_record_encode(uint8_t *record_out, const struct qsi_message_file_record *file)
{
    QS_ASSERT(file->end > MESSAGE_FILE_END_MIN &&
              file->live_bytes <= file->end - MESSAGE_FILE_END_MIN);
    QS_ASSERT(file->generation == 0 || file->is_settled);
    QS_ASSERT(file->number > 0 && file->generation <= MESSAGE_FILE_GENERATION_MAX);
    qsi_record_put_head(record_out, (uint32_t)qsi_message_file_record_bytes(file->run_count),
                        QSI_RECORD_MESSAGE_FILE, file->is_settled ? QSI_MESSAGE_FILE_SETTLED : 0);
    qsi_put_u32(record_out + 8, file->number);
    qsi_put_u32(record_out + 12, file->generation);
    qsi_put_u64(record_out + 16, file->salt);
    qsi_put_u64(record_out + 24, file->end);
    qsi_put_u64(record_out + 32, file->live_bytes);
    qsi_put_u32(record_out + 40, file->slot_count);
    qsi_put_u32(record_out + 44, file->run_count);
}

static qs_status bad_file(qs_error *error, const struct qsi_message_file_record *file,
                          const char *what)
{
    return qsi_fail(error, QS_ECORRUPT, "record of message file %u: %s", file->number, what);
}

static qs_status check_runs(const struct qsi_message_file_record *file, qs_error *error)
{
    uint64_t slots = 0;
    bool is_live = false;

    for (uint32_t i = 0; i < file->run_count; i++) {
        uint32_t count, length;
        qsi_message_file_run(file, i, &count, &length);
        if (length == 0 || count > MESSAGE_FILE_COUNT_MAX) {
            return bad_file(error, file, "an impossible run of counts");
        }
        slots += length;
        is_live = is_live || count > 0;
    }
    if (slots != file->slot_count || !is_live) {
        return bad_file(error, file, "the counts do not make up the file");
    }
    return QS_OK;
}

qs_status qsi_message_file_record_decode(struct qsi_message_file_record *file_out,
                                         const uint8_t *record, qs_error *error)
{
    uint32_t bytes = qsi_record_length(record);

    if (bytes < QSI_MESSAGE_FILE_HEADER_BYTES ||
        qsi_record_type(record) != QSI_RECORD_MESSAGE_FILE) {
        return qsi_fail(error, QS_ECORRUPT, "message file record of %u bytes, type %u", bytes,
                        qsi_record_type(record));
    }
    *file_out = (struct qsi_message_file_record){
        .number = qsi_get_u32(record + 8),
        .generation = qsi_get_u32(record + 12),
        .salt = qsi_get_u64(record + 16),
        .end = qsi_get_u64(record + 24),
        .live_bytes = qsi_get_u64(record + 32),
        .slot_count = qsi_get_u32(record + 40),
        .is_settled = record[5] == QSI_MESSAGE_FILE_SETTLED,
        .run_count = qsi_get_u32(record + 44),
        .runs = record + QSI_MESSAGE_FILE_HEADER_BYTES,
    };
    if (record[5] > QSI_MESSAGE_FILE_SETTLED || qsi_get_u16(record + 6) != 0 ||
        qsi_message_file_record_bytes(file_out->run_count) != bytes) {
        return bad_file(error, file_out, "unknown flags, or not of the length it says");
    }
    if (file_out->number == 0 || file_out->generation > MESSAGE_FILE_GENERATION_MAX ||
        (file_out->generation > 0 && !file_out->is_settled)) {
        return bad_file(error, file_out, "no such number and generation");
    }
    if (file_out->end <= MESSAGE_FILE_END_MIN ||
        file_out->live_bytes > file_out->end - MESSAGE_FILE_END_MIN) {
        return bad_file(error, file_out, "more live bytes than the file has room for");
    }
    return check_runs(file_out, error);
}
