/* Encoding and checking of records about streams. */
#include "stream_record.h"

#include "check.h"
#include "error.h"

#include <inttypes.h>

/* ---- stream trimmed: stream id u64 | first u64 ---- */

void qsi_stream_trim_encode(uint8_t *record_out, const struct qsi_stream_trim *trim)
{
    QS_ASSERT(trim->stream_id != 0);
    qsi_record_put_head(record_out, QSI_STREAM_TRIM_BYTES, QSI_RECORD_STREAM_TRIM, 0);
    qsi_put_u64(record_out + 8, trim->stream_id);
    qsi_put_u64(record_out + 16, trim->first);
}

qs_status qsi_stream_trim_decode(struct qsi_stream_trim *trim_out, const uint8_t *record,
                                 qs_error *error)
{
    if (qsi_record_length(record) != QSI_STREAM_TRIM_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "stream trim record of %u bytes",
                        qsi_record_length(record));
    }
    *trim_out = (struct qsi_stream_trim){
        .stream_id = qsi_get_u64(record + 8),
        .first = qsi_get_u64(record + 16),
    };
    return QS_OK;
}

/* Flags of a segment. */
enum { SEALED = 1, ADOPTED = 2 };

/* ---- stream state: stream id, first, flushed, next, last time u64 each | segment count u32 | 0 |
 * segments: first, next, end, last_at, first time, last time, salt u64 each, block count u32,
 * flags u32: 1 sealed, 2 adopted ---- */

void qsi_stream_state_encode(uint8_t *record_out, const struct qsi_stream_state *state)
{
    QS_ASSERT(state->first <= state->flushed && state->flushed <= state->next);
    QS_ASSERT(state->stream_id != 0);
    qsi_record_put_head(record_out, (uint32_t)qsi_stream_state_bytes(state->segment_count),
                        QSI_RECORD_STREAM_STATE, 0);
    qsi_put_u64(record_out + 8, state->stream_id);
    qsi_put_u64(record_out + 16, state->first);
    qsi_put_u64(record_out + 24, state->flushed);
    qsi_put_u64(record_out + 32, state->next);
    qsi_put_u64(record_out + 40, state->last_time_us);
    qsi_put_u32(record_out + 48, state->segment_count);
    qsi_put_u32(record_out + 52, 0);
}

static void put_segment(uint8_t *at, const struct qsi_stream_state_segment *segment)
{
    QS_ASSERT(segment->first_time_us <= segment->last_time_us);
    QS_ASSERT(segment->block_count > 0 && segment->next - segment->first >= segment->block_count);
    QS_ASSERT(segment->first < segment->next && segment->last_at < segment->end);
    qsi_put_u64(at, segment->first);
    qsi_put_u64(at + 8, segment->next);
    qsi_put_u64(at + 16, segment->end);
    qsi_put_u64(at + 24, segment->last_at);
    qsi_put_u64(at + 32, segment->first_time_us);
    qsi_put_u64(at + 40, segment->last_time_us);
    qsi_put_u64(at + 48, segment->salt);
    qsi_put_u32(at + 56, segment->block_count);
    QS_ASSERT(segment->sealed || !segment->adopted);
    qsi_put_u32(at + 60, (segment->sealed ? SEALED : 0) | (segment->adopted ? ADOPTED : 0));
}

void qsi_stream_state_put_segment(uint8_t *record, uint32_t index,
                                  const struct qsi_stream_state_segment *segment)
{
    put_segment(record + QSI_STREAM_STATE_BYTES +
                    (size_t)index * QSI_STREAM_SEGMENT_BYTES_IN_RECORD,
                segment);
}

static void get_segment(const uint8_t *at, struct qsi_stream_state_segment *segment_out)
{
    *segment_out = (struct qsi_stream_state_segment){
        .first = qsi_get_u64(at),
        .next = qsi_get_u64(at + 8),
        .end = qsi_get_u64(at + 16),
        .last_at = qsi_get_u64(at + 24),
        .first_time_us = qsi_get_u64(at + 32),
        .last_time_us = qsi_get_u64(at + 40),
        .salt = qsi_get_u64(at + 48),
        .block_count = qsi_get_u32(at + 56),
        .sealed = (qsi_get_u32(at + 60) & SEALED) != 0,
        .adopted = (qsi_get_u32(at + 60) & ADOPTED) != 0,
    };
}

void qsi_stream_state_segment(const struct qsi_stream_state *state, uint32_t index,
                              struct qsi_stream_state_segment *segment_out)
{
    get_segment(state->segments + (size_t)index * QSI_STREAM_SEGMENT_BYTES_IN_RECORD, segment_out);
}

static qs_status bad(qs_error *error, const struct qsi_stream_state *state, const char *what)
{
    return qsi_fail(error, QS_ECORRUPT, "state of stream %" PRIu64 ": %s", state->stream_id, what);
}

static qs_status check_segments(const struct qsi_stream_state *state, qs_error *error)
{
    uint64_t next = 0, time_us = 0;

    for (uint32_t i = 0; i < state->segment_count; i++) {
        struct qsi_stream_state_segment segment;
        uint32_t flags =
            qsi_get_u32(state->segments + (size_t)i * QSI_STREAM_SEGMENT_BYTES_IN_RECORD + 60);
        qsi_stream_state_segment(state, i, &segment);
        if (flags != 0 && flags != SEALED && flags != (SEALED | ADOPTED)) {
            return bad(error, state, "a segment is neither sealed nor open");
        }
        if (segment.first < next || segment.next <= segment.first) {
            return bad(error, state, "segments overlap");
        }
        if (segment.first_time_us < time_us || segment.last_time_us < segment.first_time_us) {
            return bad(error, state, "times decrease");
        }
        if (segment.block_count == 0 || segment.last_at == 0 || segment.end <= segment.last_at ||
            segment.next - segment.first < segment.block_count) {
            return bad(error, state, "a segment has no such file");
        }
        next = segment.next;
        time_us = segment.last_time_us;
    }
    if (next > state->flushed || time_us > state->last_time_us) {
        return bad(error, state, "segments end behind what is flushed");
    }
    return QS_OK;
}

qs_status qsi_stream_state_decode(struct qsi_stream_state *state_out, const uint8_t *record,
                                  qs_error *error)
{
    uint32_t bytes = qsi_record_length(record);

    if (bytes < QSI_STREAM_STATE_BYTES) {
        return qsi_fail(error, QS_ECORRUPT, "stream state record of %u bytes", bytes);
    }
    *state_out = (struct qsi_stream_state){
        .stream_id = qsi_get_u64(record + 8),
        .first = qsi_get_u64(record + 16),
        .flushed = qsi_get_u64(record + 24),
        .next = qsi_get_u64(record + 32),
        .last_time_us = qsi_get_u64(record + 40),
        .segment_count = qsi_get_u32(record + 48),
        .segments = record + QSI_STREAM_STATE_BYTES,
    };
    if (bytes != qsi_stream_state_bytes(state_out->segment_count)) {
        return qsi_fail(error, QS_ECORRUPT, "stream state record of %u bytes with %u segments",
                        bytes, state_out->segment_count);
    }
    if (state_out->first > state_out->flushed || state_out->flushed > state_out->next) {
        return bad(error, state_out, "offsets contradict each other");
    }
    return check_segments(state_out, error);
}

/* ---- stream written: stream id, first, next u64 each | block count u32 | crc u32 | segment count
 * u32 | 0 u32 | segments as of a state ---- */

void qsi_stream_written_encode(uint8_t *record_out, const struct qsi_stream_written *written)
{
    qsi_record_put_head(record_out, (uint32_t)qsi_stream_written_bytes(written->segment_count),
                        written->adopts ? QSI_RECORD_STREAM_ADOPTED : QSI_RECORD_STREAM_WRITTEN, 0);
    qsi_put_u64(record_out + 8, written->stream_id);
    qsi_put_u64(record_out + 16, written->first);
    qsi_put_u64(record_out + 24, written->next);
    qsi_put_u32(record_out + 32, written->block_count);
    qsi_put_u32(record_out + 36, written->crc);
    qsi_put_u32(record_out + 40, written->segment_count);
    qsi_put_u32(record_out + 44, 0);
}

void qsi_stream_written_put_segment(uint8_t *record, uint32_t index,
                                    const struct qsi_stream_state_segment *segment)
{
    put_segment(record + QSI_STREAM_WRITTEN_BYTES +
                    (size_t)index * QSI_STREAM_SEGMENT_BYTES_IN_RECORD,
                segment);
}

void qsi_stream_written_segment(const struct qsi_stream_written *written, uint32_t index,
                                struct qsi_stream_state_segment *segment_out)
{
    get_segment(written->segments + (size_t)index * QSI_STREAM_SEGMENT_BYTES_IN_RECORD,
                segment_out);
}

static bool is_end_of_last(const struct qsi_stream_written *written)
{
    struct qsi_stream_state_segment last;

    qsi_stream_written_segment(written, written->segment_count - 1, &last);
    if (last.next != written->next || written->first >= written->next) {
        return false;
    }
    return written->adopts
               ? last.adopted && written->block_count == 0 && written->crc == 0
               : !last.sealed && written->first >= last.first && written->block_count > 0 &&
                     written->block_count <= last.block_count;
}

/* Whether the messages are those of whole adopted segments. */
static bool is_of_adopted(const struct qsi_stream_written *written)
{
    uint64_t next = written->first;

    for (uint32_t i = 0; i < written->segment_count; i++) {
        struct qsi_stream_state_segment segment;
        qsi_stream_written_segment(written, i, &segment);
        if (segment.next > written->first && (!segment.adopted || segment.first != next)) {
            return false;
        }
        next = segment.next > next ? segment.next : next;
    }
    return true;
}

qs_status qsi_stream_written_decode(struct qsi_stream_written *written_out, const uint8_t *record,
                                    qs_error *error)
{
    uint32_t bytes = qsi_record_length(record);
    struct qsi_stream_state state;

    if (bytes < qsi_stream_written_bytes(1)) {
        return qsi_fail(error, QS_ECORRUPT, "stream written record of %u bytes", bytes);
    }
    *written_out = (struct qsi_stream_written){
        .stream_id = qsi_get_u64(record + 8),
        .first = qsi_get_u64(record + 16),
        .next = qsi_get_u64(record + 24),
        .block_count = qsi_get_u32(record + 32),
        .crc = qsi_get_u32(record + 36),
        .segment_count = qsi_get_u32(record + 40),
        .adopts = qsi_record_type(record) == QSI_RECORD_STREAM_ADOPTED,
        .segments = record + QSI_STREAM_WRITTEN_BYTES,
    };
    if (written_out->segment_count == 0 ||
        bytes != qsi_stream_written_bytes(written_out->segment_count)) {
        return qsi_fail(error, QS_ECORRUPT, "stream written record of %u bytes with %u segments",
                        bytes, written_out->segment_count);
    }
    state = (struct qsi_stream_state){
        .stream_id = written_out->stream_id,
        .flushed = written_out->next,
        .last_time_us = UINT64_MAX,
        .segment_count = written_out->segment_count,
        .segments = written_out->segments,
    };
    QS_TRY(check_segments(&state, error));
    if (!is_end_of_last(written_out)) {
        return bad(error, &state, "what was written is not the end of the last segment");
    }
    return !written_out->adopts || is_of_adopted(written_out)
               ? QS_OK
               : bad(error, &state, "what was adopted is not in whole segments");
}
