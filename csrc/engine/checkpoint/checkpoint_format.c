#include "checkpoint_format.h"

#include "check.h"
#include "error.h"
#include "le.h"

#include <stdio.h>
#include <string.h>

#define MAGIC "QSCHECK1"
#define VERSION 3
#define STATE_BYTES 40u
#define ENTRY_BYTES 64u
#define STORE_STATE_BYTES 16u
#define KEY_FILE_BYTES 40u
#define FORMER_FILE_BYTES 56u

#define ENTRY_GIVEN_END_SHIFT 16

enum { ENTRY_AREA = 3, ENTRY_PACKED = 4, ENTRY_HAS_STORED = 8, ENTRY_HAS_EXPIRIES = 16 };

void qsi_checkpoint_name(char name_out[QSI_CHECKPOINT_NAME_BYTES], uint64_t number)
{
    snprintf(name_out, QSI_CHECKPOINT_NAME_BYTES, "%010u.ckp", (uint32_t)number);
}

void qsi_checkpoint_path(char path_out[QSI_CHECKPOINT_PATH_BYTES], uint64_t number)
{
    snprintf(path_out, QSI_CHECKPOINT_PATH_BYTES, "checkpoint/%010u.ckp", (uint32_t)number);
}

bool qsi_checkpoint_number(const char *name, uint64_t *number_out)
{
    char again[QSI_CHECKPOINT_NAME_BYTES];
    uint64_t number = 0;

    for (int i = 0; i < 10; i++) {
        if (name[i] < '0' || name[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(name[i] - '0');
    }
    if (number > UINT32_MAX) {
        return false;
    }
    qsi_checkpoint_name(again, number);
    *number_out = number;
    return strcmp(name, again) == 0;
}

void qsi_checkpoint_header_encode(uint8_t out[QSI_CHECKPOINT_HEADER_BYTES],
                                  const struct qsi_checkpoint_header *header)
{
    memset(out, 0, QSI_CHECKPOINT_HEADER_BYTES);
    memcpy(out, MAGIC, 8);
    qsi_put_u32(out + 8, VERSION);
    memcpy(out + 16, header->uuid, QSI_UUID_BYTES);
    qsi_put_u64(out + 32, header->number);
    qsi_put_u64(out + 40, header->lsn);
    qsi_put_u32(out + 48, header->record_count);
}

qs_status qsi_checkpoint_header_decode(struct qsi_checkpoint_header *header_out, const uint8_t *in,
                                       const char *path, const uint8_t uuid[QSI_UUID_BYTES],
                                       uint64_t number, qs_error *error)
{
    if (memcmp(in, MAGIC, 8) != 0) {
        return qsi_fail_corrupt(error, path, 0, "not a checkpoint");
    }
    if (qsi_get_u32(in + 8) != VERSION || qsi_get_u32(in + 12) != 0) {
        return qsi_fail(error, QS_EVERSION,
                        "%s: version %u, features %#x; this build reads version %d without any",
                        path, qsi_get_u32(in + 8), qsi_get_u32(in + 12), VERSION);
    }
    if (memcmp(in + 16, uuid, QSI_UUID_BYTES) != 0 || qsi_get_u64(in + 32) != number) {
        return qsi_fail_corrupt(error, path, 16, "another checkpoint, or of another store");
    }
    memcpy(header_out->uuid, uuid, QSI_UUID_BYTES);
    header_out->number = number;
    header_out->lsn = qsi_get_u64(in + 40);
    header_out->record_count = qsi_get_u32(in + 48);
    return QS_OK;
}

static void put_head(uint8_t *record, uint32_t bytes, uint8_t type)
{
    qsi_put_u32(record, bytes);
    record[4] = type;
    record[5] = 0;
    qsi_put_u16(record + 6, 0);
}

qs_status qsi_queue_state_encode(struct qsi_buf *out, const struct qsi_queue_state *state,
                                 const struct qsi_segment_entry *entries)
{
    uint64_t bytes = STATE_BYTES + (uint64_t)state->segment_count * ENTRY_BYTES;
    uint8_t *at;

    if (bytes > UINT32_MAX) {
        return QS_EINVAL;
    }
    QS_TRY(qsi_buf_reserve(out, bytes, &at));
    out->bytes += bytes;
    put_head(at, (uint32_t)bytes, QSI_RECORD_QUEUE_STATE);
    qsi_put_u64(at + 8, state->queue_id);
    qsi_put_u64(at + 16, state->base_seq);
    qsi_put_u64(at + 24, state->next_seq);
    qsi_put_u32(at + 32, state->segment_count);
    qsi_put_u32(at + 36, 0);
    at += STATE_BYTES;
    for (uint32_t i = 0; i < state->segment_count; i++, at += ENTRY_BYTES) {
        const struct qsi_segment_file *file = &entries[i].file;
        qsi_put_u64(at, file->number);
        qsi_put_u64(at + 8, file->salt);
        qsi_put_u64(at + 16, file->heap_end);
        qsi_put_u32(at + 24, file->generation);
        qsi_put_u32(at + 28, file->slot_count);
        qsi_put_u32(at + 32, file->state_crc);
        qsi_put_u32(at + 36, entries[i].live_count);
        qsi_put_u32(at + 40, entries[i].seen_end);
        qsi_put_u32(at + 44, (uint32_t)file->state_area | (file->packed ? ENTRY_PACKED : 0) |
                                 (entries[i].has_stored ? ENTRY_HAS_STORED : 0) |
                                 (entries[i].has_expiries ? ENTRY_HAS_EXPIRIES : 0) |
                                 entries[i].given_end << ENTRY_GIVEN_END_SHIFT);
        qsi_put_u32(at + 48, entries[i].delayed_count);
        qsi_put_u32(at + 52, 0);
        qsi_put_u64(at + 56, entries[i].earliest_due);
    }
    return QS_OK;
}

qs_status qsi_queue_state_decode(struct qsi_queue_state *state_out, const uint8_t *record,
                                 qs_error *error)
{
    uint64_t bytes = qsi_record_length(record);

    if (bytes < STATE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "queue state of %llu bytes", (unsigned long long)bytes);
    }
    *state_out = (struct qsi_queue_state){
        .queue_id = qsi_get_u64(record + 8),
        .base_seq = qsi_get_u64(record + 16),
        .next_seq = qsi_get_u64(record + 24),
        .segment_count = qsi_get_u32(record + 32),
    };
    if (bytes != STATE_BYTES + (uint64_t)state_out->segment_count * ENTRY_BYTES ||
        state_out->base_seq > state_out->next_seq) {
        return qsi_fail(error, QS_ECORRUPT, "queue state with %u segments in %llu bytes",
                        state_out->segment_count, (unsigned long long)bytes);
    }
    return QS_OK;
}

void qsi_segment_entry_decode(struct qsi_segment_entry *entry_out, const uint8_t *record,
                              uint32_t index)
{
    const uint8_t *at = record + STATE_BYTES + (size_t)index * ENTRY_BYTES;
    uint32_t flags = qsi_get_u32(at + 44);

    *entry_out = (struct qsi_segment_entry){
        .file =
            {
                .queue_id = qsi_get_u64(record + 8),
                .number = qsi_get_u64(at),
                .salt = qsi_get_u64(at + 8),
                .heap_end = qsi_get_u64(at + 16),
                .generation = qsi_get_u32(at + 24),
                .slot_count = qsi_get_u32(at + 28),
                .state_crc = qsi_get_u32(at + 32),
                .state_area = (uint8_t)(flags & ENTRY_AREA),
                .packed = (flags & ENTRY_PACKED) != 0,
            },
        .live_count = qsi_get_u32(at + 36),
        .delayed_count = qsi_get_u32(at + 48),
        .earliest_due = qsi_get_u64(at + 56),
        .seen_end = qsi_get_u32(at + 40),
        .given_end = flags >> ENTRY_GIVEN_END_SHIFT,
        .has_stored = (flags & ENTRY_HAS_STORED) != 0,
        .has_expiries = (flags & ENTRY_HAS_EXPIRIES) != 0,
    };
}

qs_status qsi_store_state_encode(struct qsi_buf *out, uint64_t next_queue_id)
{
    uint8_t *at;

    QS_TRY(qsi_buf_reserve(out, STORE_STATE_BYTES, &at));
    out->bytes += STORE_STATE_BYTES;
    put_head(at, STORE_STATE_BYTES, QSI_RECORD_STORE_STATE);
    qsi_put_u64(at + 8, next_queue_id);
    return QS_OK;
}

qs_status qsi_store_state_decode(uint64_t *next_queue_id_out, const uint8_t *record,
                                 qs_error *error)
{
    if (qsi_record_length(record) != STORE_STATE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "store state of %u bytes", qsi_record_length(record));
    }
    *next_queue_id_out = qsi_get_u64(record + 8);
    return QS_OK;
}

qs_status qsi_former_file_encode(struct qsi_buf *out, const struct qsi_segment_file *file,
                                 uint32_t end)
{
    uint8_t *at;

    QS_TRY(qsi_buf_reserve(out, FORMER_FILE_BYTES, &at));
    out->bytes += FORMER_FILE_BYTES;
    put_head(at, FORMER_FILE_BYTES, QSI_RECORD_FORMER_FILE);
    qsi_put_u64(at + 8, file->queue_id);
    qsi_put_u64(at + 16, file->number);
    qsi_put_u64(at + 24, file->salt);
    qsi_put_u64(at + 32, file->heap_end);
    qsi_put_u32(at + 40, file->generation);
    qsi_put_u32(at + 44, file->slot_count);
    qsi_put_u32(at + 48, end);
    qsi_put_u32(at + 52, file->packed ? ENTRY_PACKED : 0);
    return QS_OK;
}

qs_status qsi_former_file_decode(struct qsi_segment_file *file_out, uint32_t *end_out,
                                 const uint8_t *record, qs_error *error)
{
    if (qsi_record_length(record) != FORMER_FILE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "former file of a segment in %u bytes",
                        qsi_record_length(record));
    }
    *file_out = (struct qsi_segment_file){
        .queue_id = qsi_get_u64(record + 8),
        .number = qsi_get_u64(record + 16),
        .salt = qsi_get_u64(record + 24),
        .heap_end = qsi_get_u64(record + 32),
        .generation = qsi_get_u32(record + 40),
        .slot_count = qsi_get_u32(record + 44),
        .packed = (qsi_get_u32(record + 52) & ENTRY_PACKED) != 0,
    };
    *end_out = qsi_get_u32(record + 48);
    return file_out->heap_end > 0
               ? QS_OK
               : qsi_fail(error, QS_ECORRUPT, "impossible former file of segment %llu",
                          (unsigned long long)file_out->number);
}

qs_status qsi_key_file_encode(struct qsi_buf *out, const struct qsi_key_file_entry *entry)
{
    uint8_t *at;

    QS_TRY(qsi_buf_reserve(out, KEY_FILE_BYTES, &at));
    out->bytes += KEY_FILE_BYTES;
    put_head(at, KEY_FILE_BYTES, QSI_RECORD_KEY_FILE);
    qsi_put_u64(at + 8, entry->number);
    qsi_put_u64(at + 16, entry->key_count);
    qsi_put_u64(at + 24, entry->bytes);
    qsi_put_u32(at + 32, entry->header_crc);
    qsi_put_u32(at + 36, 0);
    return QS_OK;
}

qs_status qsi_key_file_decode(struct qsi_key_file_entry *entry_out, const uint8_t *record,
                              qs_error *error)
{
    if (qsi_record_length(record) != KEY_FILE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "key file in %u bytes", qsi_record_length(record));
    }
    *entry_out = (struct qsi_key_file_entry){
        .number = qsi_get_u64(record + 8),
        .key_count = qsi_get_u64(record + 16),
        .bytes = qsi_get_u64(record + 24),
        .header_crc = qsi_get_u32(record + 32),
    };
    return entry_out->number > 0 && entry_out->number < UINT32_MAX
               ? QS_OK
               : qsi_fail(error, QS_ECORRUPT, "key file %llu",
                          (unsigned long long)entry_out->number);
}
