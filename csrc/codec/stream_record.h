/* Records about streams (docs/FORMAT.md, "Records"): that the oldest messages went, and, in
 * checkpoints, which files a stream has and how much of them counts. */
#ifndef QSI_STREAM_RECORD_H
#define QSI_STREAM_RECORD_H

#include "qstore/status.h"

#include "record.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- stream trimmed ---- */

#define QSI_STREAM_TRIM_BYTES 24
struct qsi_stream_trim {
    uint64_t stream_id;
    uint64_t first; /* what is below is gone */
};
void qsi_stream_trim_encode(uint8_t *record_out, const struct qsi_stream_trim *trim);
qs_status qsi_stream_trim_decode(struct qsi_stream_trim *trim_out, const uint8_t *record,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- stream state ---- */

#define QSI_STREAM_STATE_BYTES 56
#define QSI_STREAM_SEGMENT_BYTES_IN_RECORD 64
struct qsi_stream_state {
    uint64_t stream_id;
    uint64_t first;   /* what is below was trimmed */
    uint64_t flushed; /* what is below is in the files */
    uint64_t next;    /* of the cut: what lies between is carried, in records behind this one */
    uint64_t last_time_us; /* of the last message that is flushed; 0: there was none */
    uint32_t segment_count;
    const uint8_t *segments; /* decoded: inside the record */
};
struct qsi_stream_state_segment {
    uint64_t first, next; /* offsets */
    uint64_t end;         /* of the file */
    uint64_t last_at;     /* of the last block; of a sealed file, of the footer */
    uint64_t first_time_us, last_time_us;
    uint64_t salt;
    uint32_t block_count;
    bool sealed; /* not: the last one, and files that could not be read when they were to grow */
};
/* 4 GiB and more do not fit a record: check before encoding. */
static inline uint64_t qsi_stream_state_bytes(uint32_t segment_count)
{
    return QSI_STREAM_STATE_BYTES + (uint64_t)segment_count * QSI_STREAM_SEGMENT_BYTES_IN_RECORD;
}
/* All but the segments. */
void qsi_stream_state_encode(uint8_t *record_out, const struct qsi_stream_state *state);
void qsi_stream_state_put_segment(uint8_t *record, uint32_t index,
                                  const struct qsi_stream_state_segment *segment);
/* Checks everything that the record can say: segments ascend, hold blocks, and end at flushed. */
qs_status qsi_stream_state_decode(struct qsi_stream_state *state_out, const uint8_t *record,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_stream_state_segment(const struct qsi_stream_state *state, uint32_t index,
                              struct qsi_stream_state_segment *segment_out);

#endif
