/* Records about work queues over a stream (docs/FORMAT.md, "Records"): the source of a queue, and,
 * in checkpoints, the messages of the stream that it has settled. */
#ifndef QSI_WORK_RECORD_H
#define QSI_WORK_RECORD_H

#include "qstore/status.h"

#include "le.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- source: the third string of WORK_QUEUE_DECLARE ---- */

#define QSI_WORK_SOURCE_BYTES 16
#define QSI_WORK_SOURCE_LOST 0 /* salvage found no stream; ids begin at 1 */
struct qsi_work_source {
    uint64_t stream_id; /* or QSI_WORK_SOURCE_LOST */
    uint64_t first;     /* offset of the queue's first message */
};
void qsi_work_source_encode(uint8_t *bytes_out, const struct qsi_work_source *source);
qs_status qsi_work_source_decode(struct qsi_work_source *source_out, struct qsi_slice bytes,
                                 qs_error *error) QS_MUST_CHECK;

/* ---- state: precedes the queue's segments ---- */

#define QSI_WORK_STATE_BYTES 40
struct qsi_work_state {
    uint64_t queue_id;
    uint64_t next_seq; /* messages from here on have no state */
    /* Lower ones count as delivered: a crashed process may have delivered them. */
    uint64_t seen_upto;
    uint64_t passed_count; /* messages that retention dropped before they were settled */
};
void qsi_work_state_encode(uint8_t *record_out, const struct qsi_work_state *state);
qs_status qsi_work_state_decode(struct qsi_work_state *state_out, const uint8_t *record,
                                qs_error *error) QS_MUST_CHECK;

/* ---- the messages of one segment ----
 *
 * Bitmaps of its words, one after another: settled messages; messages delivered before; and, if
 * more is known, plane_count bits of the count of deliveries, lowest bit first.  A note has what no
 * bitmap has. */

#define QSI_WORK_SEGMENT_BYTES 40 /* before its bitmaps */
#define QSI_WORK_NOTE_BYTES 16
#define QSI_WORK_PLANES_MAX 8
enum qsi_work_bitmap { QSI_WORK_SETTLED, QSI_WORK_SEEN, QSI_WORK_PLANES /* the first of them */ };
struct qsi_work_segment {
    uint64_t queue_id;
    uint64_t number;
    uint32_t word_base, word_count; /* of each bitmap: messages before are settled */
    uint32_t note_count;
    uint32_t plane_count;  /* 0: seen messages count as delivered once */
    bool keeps_deliveries; /* counts are kept */
    const uint8_t *words;  /* decoded: u64 each */
    const uint8_t *notes;  /* decoded */
};
/* A message that is delayed, or whose count of deliveries is not in the bitmaps. */
struct qsi_work_note {
    uint32_t slot;
    uint32_t deliveries;
    uint64_t due_us; /* 0: it is not delayed */
};
static inline uint64_t qsi_work_segment_bytes(const struct qsi_work_segment *segment)
{
    return QSI_WORK_SEGMENT_BYTES +
           (uint64_t)segment->word_count * (QSI_WORK_PLANES + segment->plane_count) * 8 +
           (uint64_t)segment->note_count * QSI_WORK_NOTE_BYTES;
}
/* Encodes the record without words and notes. */
void qsi_work_segment_encode(uint8_t *record_out, const struct qsi_work_segment *segment);
void qsi_work_segment_put_word(uint8_t *record, uint32_t bitmap, uint32_t index, uint64_t bits);
void qsi_work_segment_put_note(uint8_t *record, uint32_t index, const struct qsi_work_note *note);
/* Checks everything that the record alone allows. */
qs_status qsi_work_segment_decode(struct qsi_work_segment *segment_out, const uint8_t *record,
                                  qs_error *error) QS_MUST_CHECK;
static inline uint64_t qsi_work_segment_word(const struct qsi_work_segment *segment,
                                             uint32_t bitmap, uint32_t index)
{
    return qsi_get_u64(segment->words + 8 * ((size_t)bitmap * segment->word_count + index));
}
/* The message's count of deliveries in the bitmaps. */
uint32_t qsi_work_segment_deliveries(const struct qsi_work_segment *segment, uint32_t slot);
void qsi_work_segment_note(const struct qsi_work_segment *segment, uint32_t index,
                           struct qsi_work_note *note_out);

#endif
