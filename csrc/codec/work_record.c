/* Encoding and checking of records about work queues. */
#include "work_record.h"

#include "check.h"
#include "error.h"
#include "record_head.h"

#define WORD_BITS 64u

/* ---- source: stream id u64 | first u64 ---- */

void qsi_work_source_encode(uint8_t *bytes_out, const struct qsi_work_source *source)
{
    qsi_put_u64(bytes_out, source->stream_id);
    qsi_put_u64(bytes_out + 8, source->first);
}

qs_status qsi_work_source_decode(struct qsi_work_source *source_out, struct qsi_slice bytes,
                                 qs_error *error)
{
    if (bytes.bytes != QSI_WORK_SOURCE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "the source of a work queue in %u bytes", bytes.bytes);
    }
    *source_out = (struct qsi_work_source){
        .stream_id = qsi_get_u64(bytes.data),
        .first = qsi_get_u64(bytes.data + 8),
    };
    return QS_OK;
}

/* ---- state: queue id, next, seen_upto, passed u64 each ---- */

void qsi_work_state_encode(uint8_t *record_out, const struct qsi_work_state *state)
{
    qsi_record_put_head(record_out, QSI_WORK_STATE_BYTES, QSI_RECORD_WORK_STATE, 0);
    qsi_put_u64(record_out + 8, state->queue_id);
    qsi_put_u64(record_out + 16, state->next_seq);
    qsi_put_u64(record_out + 24, state->seen_upto);
    qsi_put_u64(record_out + 32, state->passed_count);
}

qs_status qsi_work_state_decode(struct qsi_work_state *state_out, const uint8_t *record,
                                qs_error *error)
{
    if (qsi_record_length(record) != QSI_WORK_STATE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "work queue record of %u bytes",
                        qsi_record_length(record));
    }
    *state_out = (struct qsi_work_state){
        .queue_id = qsi_get_u64(record + 8),
        .next_seq = qsi_get_u64(record + 16),
        .seen_upto = qsi_get_u64(record + 24),
        .passed_count = qsi_get_u64(record + 32),
    };
    return QS_OK;
}

/* ---- segment: queue id, number u64 | word base, word count, note count u32 | flags u8, planes
 * u8, 0 u16 | bitmaps: u64 for each word | notes: slot, deliveries u32, due u64 ---- */

#define KEEPS_DELIVERIES 1u

void qsi_work_segment_encode(uint8_t *record_out, const struct qsi_work_segment *segment)
{
    uint64_t bytes = qsi_work_segment_bytes(segment);

    QS_ASSERT(bytes <= UINT32_MAX && segment->plane_count <= QSI_WORK_PLANES_MAX);
    qsi_record_put_head(record_out, (uint32_t)bytes, QSI_RECORD_WORK_SEGMENT, 0);
    qsi_put_u64(record_out + 8, segment->queue_id);
    qsi_put_u64(record_out + 16, segment->number);
    qsi_put_u32(record_out + 24, segment->word_base);
    qsi_put_u32(record_out + 28, segment->word_count);
    qsi_put_u32(record_out + 32, segment->note_count);
    qsi_put_u32(record_out + 36,
                (segment->keeps_deliveries ? KEEPS_DELIVERIES : 0) | segment->plane_count << 8);
}

static uint32_t words_of(const uint8_t *record)
{
    return qsi_get_u32(record + 28) * (QSI_WORK_PLANES + record[37]);
}

void qsi_work_segment_put_word(uint8_t *record, uint32_t bitmap, uint32_t index, uint64_t bits)
{
    size_t at = (size_t)bitmap * qsi_get_u32(record + 28) + index;

    QS_DCHECK(index < qsi_get_u32(record + 28) && at < words_of(record));
    qsi_put_u64(record + QSI_WORK_SEGMENT_BYTES + 8 * at, bits);
}

void qsi_work_segment_put_note(uint8_t *record, uint32_t index, const struct qsi_work_note *note)
{
    uint8_t *at = record + QSI_WORK_SEGMENT_BYTES + 8 * (size_t)words_of(record) +
                  QSI_WORK_NOTE_BYTES * (size_t)index;

    QS_DCHECK(index < qsi_get_u32(record + 32));
    qsi_put_u32(at, note->slot);
    qsi_put_u32(at + 4, note->deliveries);
    qsi_put_u64(at + 8, note->due_us);
}

static qs_status check_notes(const struct qsi_work_segment *segment, qs_error *error)
{
    for (uint32_t i = 0; i < segment->note_count; i++) {
        struct qsi_work_note note;
        qsi_work_segment_note(segment, i, &note);
        if (note.slot / WORD_BITS < segment->word_base ||
            note.slot / WORD_BITS - segment->word_base >= segment->word_count ||
            note.deliveries > UINT8_MAX) {
            return qsi_fail(error, QS_ECORRUPT, "work queue's segment %llu: a note of slot %u",
                            (unsigned long long)segment->number, note.slot);
        }
    }
    return QS_OK;
}

qs_status qsi_work_segment_decode(struct qsi_work_segment *segment_out, const uint8_t *record,
                                  qs_error *error)
{
    struct qsi_work_segment *segment = segment_out;
    uint32_t bytes = qsi_record_length(record);

    if (bytes < QSI_WORK_SEGMENT_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "work queue's segment in %u bytes", bytes);
    }
    *segment = (struct qsi_work_segment){
        .queue_id = qsi_get_u64(record + 8),
        .number = qsi_get_u64(record + 16),
        .word_base = qsi_get_u32(record + 24),
        .word_count = qsi_get_u32(record + 28),
        .note_count = qsi_get_u32(record + 32),
        .plane_count = record[37],
        .keeps_deliveries = record[36] == KEEPS_DELIVERIES,
        .words = record + QSI_WORK_SEGMENT_BYTES,
    };
    if (record[36] > KEEPS_DELIVERIES || segment->plane_count > QSI_WORK_PLANES_MAX ||
        qsi_get_u16(record + 38) != 0 || (segment->plane_count > 0 && !segment->keeps_deliveries)) {
        return qsi_fail(error, QS_ECORRUPT, "work queue's segment %llu: flags %#x",
                        (unsigned long long)segment->number, qsi_get_u32(record + 36));
    }
    if (segment->word_count == 0 || qsi_work_segment_bytes(segment) != bytes) {
        return qsi_fail(error, QS_ECORRUPT, "work queue's segment %llu: %u words in %u bytes",
                        (unsigned long long)segment->number, segment->word_count, bytes);
    }
    segment->notes = segment->words + 8 * (size_t)words_of(record);
    return check_notes(segment, error);
}

uint32_t qsi_work_segment_deliveries(const struct qsi_work_segment *segment, uint32_t slot)
{
    uint32_t at = slot / WORD_BITS - segment->word_base, bit = slot % WORD_BITS, count = 0;

    QS_DCHECK(at < segment->word_count);
    if (segment->plane_count == 0) {
        return (uint32_t)(qsi_work_segment_word(segment, QSI_WORK_SEEN, at) >> bit & 1);
    }
    for (uint32_t plane = 0; plane < segment->plane_count; plane++) {
        uint64_t bits = qsi_work_segment_word(segment, QSI_WORK_PLANES + plane, at);
        count |= (uint32_t)(bits >> bit & 1) << plane;
    }
    return count;
}

void qsi_work_segment_note(const struct qsi_work_segment *segment, uint32_t index,
                           struct qsi_work_note *note_out)
{
    const uint8_t *at = segment->notes + QSI_WORK_NOTE_BYTES * (size_t)index;

    QS_DCHECK(index < segment->note_count);
    *note_out = (struct qsi_work_note){
        .slot = qsi_get_u32(at),
        .deliveries = qsi_get_u32(at + 4),
        .due_us = qsi_get_u64(at + 8),
    };
}
