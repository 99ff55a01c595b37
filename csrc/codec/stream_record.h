/* Records about streams (docs/FORMAT.md, "Records"): the retention of the oldest messages, and, in
 * checkpoints, the files of a stream and their valid parts. */
#ifndef QSI_STREAM_RECORD_H
#define QSI_STREAM_RECORD_H

#include "qstore/status.h"

#include "record_head.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- stream trimmed ---- */

#define QSI_STREAM_TRIM_BYTES 24
struct qsi_stream_trim {
    uint64_t stream_id;
    uint64_t first; /* lower offsets were dropped */
};
void qsi_stream_trim_encode(uint8_t *record_out, const struct qsi_stream_trim *trim);
qs_status qsi_stream_trim_decode(struct qsi_stream_trim *trim_out, const uint8_t *record,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- stream state ---- */

#define QSI_STREAM_STATE_BYTES 56
#define QSI_STREAM_SEGMENT_BYTES_IN_RECORD 64
struct qsi_stream_state {
    uint64_t stream_id;
    uint64_t first;   /* lower offsets were trimmed */
    uint64_t flushed; /* lower offsets are in the files */
    /* Of the checkpoint: messages in [flushed, next) are in records after this one. */
    uint64_t next;
    uint64_t last_time_us; /* of the last flushed message; 0: there was none */
    uint32_t segment_count;
    const uint8_t *segments; /* decoded: inside the record */
};
struct qsi_stream_state_segment {
    uint64_t first, next; /* offsets */
    uint64_t end;         /* of the file */
    uint64_t last_at;     /* of the last block; of a sealed file, of its footer */
    uint64_t first_time_us, last_time_us;
    uint64_t salt;
    uint32_t block_count;
    /* False: the last file, and files that could not be read when they were to grow. */
    bool sealed;
    bool adopted; /* a staged file: it does not name the stream, and its rows have one time */
};
/* Check before encoding that this is below 4 GiB, the limit of a record. */
static inline uint64_t qsi_stream_state_bytes(uint32_t segment_count)
{
    return QSI_STREAM_STATE_BYTES + (uint64_t)segment_count * QSI_STREAM_SEGMENT_BYTES_IN_RECORD;
}
/* Encodes the record without the segments. */
void qsi_stream_state_encode(uint8_t *record_out, const struct qsi_stream_state *state);
void qsi_stream_state_put_segment(uint8_t *record, uint32_t index,
                                  const struct qsi_stream_state_segment *segment);
/* Checks everything that the record alone allows: segments ascend, have blocks, and end at
 * flushed. */
qs_status qsi_stream_state_decode(struct qsi_stream_state *state_out, const uint8_t *record,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_stream_state_segment(const struct qsi_stream_state *state, uint32_t index,
                              struct qsi_stream_state_segment *segment_out);

/* ---- stream written, and stream adopted: messages that are already in the stream's files ----
 *
 * The record has the stream's files with these messages, from the last segment of the previous
 * record or checkpoint on.  Written: these messages are the last blocks of the last segment; all
 * blocks before were durable before the record was written.  Adopted: they are the last segments,
 * which were staged files, and all of them were durable. */

#define QSI_STREAM_WRITTEN_BYTES 48
struct qsi_stream_written {
    uint64_t stream_id;
    uint64_t first, next; /* offsets of the messages */
    uint32_t block_count; /* blocks of the messages */
    uint32_t crc;         /* of the headers of these blocks, in order */
    uint32_t segment_count;
    bool adopts;             /* the record's type; then there are no blocks */
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
/* Encodes the record without the segments. */
void qsi_stream_written_encode(uint8_t *record_out, const struct qsi_stream_written *written);
void qsi_stream_written_put_segment(uint8_t *record, uint32_t index,
                                    const struct qsi_stream_state_segment *segment);
/* Checks everything that the record alone allows, like that of a state. */
qs_status qsi_stream_written_decode(struct qsi_stream_written *written_out, const uint8_t *record,
                                    qs_error *error) QS_MUST_CHECK;
void qsi_stream_written_segment(const struct qsi_stream_written *written, uint32_t index,
                                struct qsi_stream_state_segment *segment_out);

#endif
