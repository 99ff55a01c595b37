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
    bool sealed;  /* not: the last one, and files that could not be read when they were to grow */
    bool adopted; /* staged: it says nothing of the stream, and its rows have one time */
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

/* ---- stream written, and stream adopted: messages that are in the stream's files already ----
 *
 * What the stream's files are with them, from the segment on that was the last one when the journal
 * or a checkpoint last told.  Written: the last blocks of the last segment are those messages; all
 * before them was durable before the record was written.  Adopted: the last segments are, which
 * were staged, and all of them was durable. */

#define QSI_STREAM_WRITTEN_BYTES 48
struct qsi_stream_written {
    uint64_t stream_id;
    uint64_t first, next; /* offsets of the messages */
    uint32_t block_count; /* that they are */
    uint32_t crc;         /* of the headers of these blocks, in order */
    uint32_t segment_count;
    bool adopts;             /* the record's type; no blocks then */
    const uint8_t *segments; /* decoded: inside the record */
};
static inline bool qsi_is_stream_written(const uint8_t *record)
{
    return qsi_record_type(record) == QSI_RECORD_STREAM_WRITTEN ||
           qsi_record_type(record) == QSI_RECORD_STREAM_ADOPTED;
}
static inline uint64_t qsi_stream_written_bytes(uint32_t segment_count)
{
    return QSI_STREAM_WRITTEN_BYTES + (uint64_t)segment_count * QSI_STREAM_SEGMENT_BYTES_IN_RECORD;
}
/* All but the segments. */
void qsi_stream_written_encode(uint8_t *record_out, const struct qsi_stream_written *written);
void qsi_stream_written_put_segment(uint8_t *record, uint32_t index,
                                    const struct qsi_stream_state_segment *segment);
/* Checks everything that the record can say, as of a state. */
qs_status qsi_stream_written_decode(struct qsi_stream_written *written_out, const uint8_t *record,
                                    qs_error *error) QS_MUST_CHECK;
void qsi_stream_written_segment(const struct qsi_stream_written *written, uint32_t index,
                                struct qsi_stream_state_segment *segment_out);

#endif
