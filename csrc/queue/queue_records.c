#include "queue_records.h"

#include "check.h"
#include "error.h"
#include "le.h"
#include "record.h"

#define STATE_BYTES 40u
#define ENTRY_BYTES 64u
#define FORMER_FILE_BYTES 56u

#define ENTRY_GIVEN_END_SHIFT 16

enum { ENTRY_AREA = 3, ENTRY_PACKED = 4, ENTRY_HAS_STORED = 8, ENTRY_HAS_EXPIRIES = 16 };

qs_status qsi_queue_state_begin(struct qsi_buf *out, const struct qsi_queue_state *state)
{
    uint64_t bytes = STATE_BYTES + (uint64_t)state->segment_count * ENTRY_BYTES;
    uint8_t *at;

    if (bytes > UINT32_MAX) {
        return QS_EINVAL;
    }
    QS_TRY(qsi_buf_reserve(out, bytes, &at));
    out->bytes += STATE_BYTES;
    QS_DCHECK(state->base_seq <= state->next_seq);
    qsi_record_put_head(at, (uint32_t)bytes, QSI_RECORD_QUEUE_STATE, 0);
    qsi_put_u64(at + 8, state->queue_id);
    qsi_put_u64(at + 16, state->base_seq);
    qsi_put_u64(at + 24, state->next_seq);
    qsi_put_u32(at + 32, state->segment_count);
    qsi_put_u32(at + 36, 0);
    return QS_OK;
}

void qsi_segment_entry_put(struct qsi_buf *out, const struct qsi_segment_entry *entry)
{
    const struct qsi_segment_file *file = &entry->file;
    uint8_t *at = out->data + out->bytes;

    QS_DCHECK(entry->live_count > 0);
    out->bytes += ENTRY_BYTES;
    qsi_put_u64(at, file->number);
    qsi_put_u64(at + 8, file->salt);
    qsi_put_u64(at + 16, file->heap_end);
    qsi_put_u32(at + 24, file->generation);
    qsi_put_u32(at + 28, file->slot_count);
    qsi_put_u32(at + 32, file->state_crc);
    qsi_put_u32(at + 36, entry->live_count);
    qsi_put_u32(at + 40, entry->seen_end);
    qsi_put_u32(at + 44, (uint32_t)file->state_area | (file->packed ? ENTRY_PACKED : 0) |
                             (entry->has_stored ? ENTRY_HAS_STORED : 0) |
                             (entry->has_expiries ? ENTRY_HAS_EXPIRIES : 0) |
                             entry->given_end << ENTRY_GIVEN_END_SHIFT);
    qsi_put_u32(at + 48, entry->delayed_count);
    qsi_put_u32(at + 52, 0);
    qsi_put_u64(at + 56, entry->earliest_due);
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

    QS_DCHECK(index < qsi_get_u32(record + 32));
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

qs_status qsi_former_file_encode(struct qsi_buf *out, const struct qsi_segment_file *file,
                                 uint32_t end)
{
    uint8_t *at;

    QS_DCHECK(file->heap_end > 0);
    QS_TRY(qsi_buf_reserve(out, FORMER_FILE_BYTES, &at));
    out->bytes += FORMER_FILE_BYTES;
    qsi_record_put_head(at, FORMER_FILE_BYTES, QSI_RECORD_FORMER_FILE, 0);
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
