/* The records that a checkpoint has of a queue (docs/FORMAT.md, "Checkpoint"). */
#ifndef QSI_QUEUE_RECORDS_H
#define QSI_QUEUE_RECORDS_H

#include "buf.h"
#include "segment.h"

/* One segment of a queue. */
struct qsi_segment_entry {
    struct qsi_segment_file file;
    uint32_t live_count;    /* delayed ones included */
    uint32_t delayed_count; /* of them */
    uint64_t earliest_due;  /* no delayed one is due before; 0: none is delayed */
    uint32_t seen_end;
    uint32_t given_end; /* slots from here on were never given out; 0: all below base_seq were */
    bool has_stored;
    bool has_expiries;
};
/* A queue: what it holds below base_seq is in these segments; what lies from there on follows as
 * messages records. */
struct qsi_queue_state {
    uint64_t queue_id;
    uint64_t base_seq;
    uint64_t next_seq;
    uint32_t segment_count;
};
/* Its entries are put behind it, segment_count of them, for which there is room then. */
qs_status qsi_queue_state_begin(struct qsi_buf *out,
                                const struct qsi_queue_state *state) QS_MUST_CHECK;
void qsi_segment_entry_put(struct qsi_buf *out, const struct qsi_segment_entry *entry);
qs_status qsi_queue_state_decode(struct qsi_queue_state *state_out, const uint8_t *record,
                                 qs_error *error) QS_MUST_CHECK;
/* REQUIRES index < segment_count of a record that was decoded. */
void qsi_segment_entry_decode(struct qsi_segment_entry *entry_out, const uint8_t *record,
                              uint32_t index);

/* A file that a segment had before, in the order in which they were left; behind the queue's
 * state. */
qs_status qsi_former_file_encode(struct qsi_buf *out, const struct qsi_segment_file *file,
                                 uint32_t end) QS_MUST_CHECK;
qs_status qsi_former_file_decode(struct qsi_segment_file *file_out, uint32_t *end_out,
                                 const uint8_t *record, qs_error *error) QS_MUST_CHECK;

#endif
