/* Records about work queues over a stream (docs/FORMAT.md, "Records"): where one reads from, and,
 * in checkpoints, which messages of the stream it is done with. */
#ifndef QSI_WORK_RECORD_H
#define QSI_WORK_RECORD_H

#include "qstore/status.h"

#include "record.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- where it reads from: the third string of WORK_QUEUE_DECLARE ---- */

#define QSI_WORK_SOURCE_BYTES 16
struct qsi_work_source {
    uint64_t stream_id;
    uint64_t first; /* offset of the first message that is its own */
};
void qsi_work_source_encode(uint8_t *bytes_out, const struct qsi_work_source *source);
qs_status qsi_work_source_decode(struct qsi_work_source *source_out, struct qsi_slice bytes,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- its state: comes before its segments ---- */

#define QSI_WORK_STATE_BYTES 40
struct qsi_work_state {
    uint64_t queue_id;
    uint64_t next_seq;     /* from there on nothing has a state */
    uint64_t seen_upto;    /* what is below counts as delivered: a process that crashed had it */
    uint64_t passed_count; /* messages that retention dropped before they were settled */
};
void qsi_work_state_encode(uint8_t *record_out, const struct qsi_work_state *state);
qs_status qsi_work_state_decode(struct qsi_work_state *state_out, const uint8_t *record,
                                qs_error *error) QS_MUST_CHECK;

/* ---- the messages of one segment: bitmaps, and what is told of single ones ---- */

#define QSI_WORK_SEGMENT_BYTES 40 /* before its bitmaps */
#define QSI_WORK_NOTE_BYTES 16
struct qsi_work_segment {
    uint64_t queue_id;
    uint64_t number;
    uint32_t word_base, word_count; /* of the bitmaps: what is before is settled */
    uint32_t note_count;
    bool keeps_deliveries; /* counts are kept: 1 for what was seen, unless a note says more */
    const uint8_t *words;  /* decoded: settled and seen of each word, u64 each */
    const uint8_t *notes;  /* decoded */
};
/* A message whose count of deliveries does not follow from the bitmap, or that is delayed. */
struct qsi_work_note {
    uint32_t slot;
    uint32_t deliveries;
    uint64_t due_us; /* 0: it is not delayed */
};
static inline uint64_t qsi_work_segment_bytes(uint32_t word_count, uint32_t note_count)
{
    return QSI_WORK_SEGMENT_BYTES + (uint64_t)word_count * 16 +
           (uint64_t)note_count * QSI_WORK_NOTE_BYTES;
}
/* All but words and notes. */
void qsi_work_segment_encode(uint8_t *record_out, const struct qsi_work_segment *segment);
void qsi_work_segment_put_word(uint8_t *record, uint32_t index, uint64_t settled, uint64_t seen);
/* REQUIRES all words. */
void qsi_work_segment_put_note(uint8_t *record, uint32_t index, const struct qsi_work_note *note);
/* Checks everything that the record alone can say. */
qs_status qsi_work_segment_decode(struct qsi_work_segment *segment_out, const uint8_t *record,
                                  qs_error *error) QS_MUST_CHECK;
static inline uint64_t qsi_work_segment_settled(const struct qsi_work_segment *segment, uint32_t i)
{
    return qsi_get_u64(segment->words + 16 * (size_t)i);
}
static inline uint64_t qsi_work_segment_seen(const struct qsi_work_segment *segment, uint32_t i)
{
    return qsi_get_u64(segment->words + 16 * (size_t)i + 8);
}
void qsi_work_segment_note(const struct qsi_work_segment *segment, uint32_t index,
                           struct qsi_work_note *note_out);

#endif
