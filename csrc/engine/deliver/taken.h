/* Messages that were found in a queue, on their way into a record batch: for a consumer that takes
 * them, or for a browser that leaves them in place. */
#ifndef QSI_TAKEN_H
#define QSI_TAKEN_H

#include "arrow_build.h"
#include "store.h"

/* Messages of one form: consecutive rows of one record, or one record of a single message. */
struct qsi_taken {
    struct qsi_chunk *chunk; /* the record's chunk, which is held */
    const uint8_t *record;
    uint32_t row; /* of the record */
    uint32_t count;
    uint64_t first_tag; /* or position, when they are browsed */
    uint32_t delivery_count;
    bool redelivered;
    bool is_unacked; /* when they are browsed, like the next field */
    bool is_delayed;
    const struct qsi_stream_batch *of; /* of a stream: which tells when each was published */
    uint32_t index;                    /* of the first, there */
};

struct qsi_taken_batch {
    struct qsi_buf taken; /* struct qsi_taken */
    uint64_t message_count;
    uint64_t body_bytes;
    uint32_t columns; /* of a stream: QS_STREAM_COLUMN_* */
    /* Not NULL: they are rows of one record in this chunk, which has their bodies.  The batch holds
     * the chunk until its receiver frees the batch. */
    struct qsi_chunk *lender;
    enum qsi_arrow_shape shape; /* browsed: "sequence", "unacked", "delayed", not "delivery_tag" */
};

/* Without the lock, as a reader (qsi_reader_begin): copies bodies, unless they are lent, and reads
 * those that lie in files.
 * bad_tag_out  of the message that could not be read, when that is the error; else 0 */
qs_status qsi_taken_build(struct qs_store *store, const struct qsi_taken_batch *batch,
                          uint64_t *bad_tag_out, struct ArrowSchema *schema_out,
                          struct ArrowArray *array_out, qs_error *error) QS_MUST_CHECK;
void qsi_taken_release(struct qsi_buf *taken);

#endif
