/* Runs: messages whose records lie in one chunk of memory.  Whatever its kind, a container keeps in
 * runs what it has of its messages in memory. */
#ifndef QSI_RUN_H
#define QSI_RUN_H

#include "qstore/status.h"

#include "messages_ref.h"

#include <stdbool.h>
#include <stdint.h>

struct qsi_run {
    struct qsi_messages_ref messages;
    uint64_t first_seq;
    uint64_t ram_bytes; /* the container's share of the chunk */
    uint32_t count;
    uint32_t capacity;   /* of messages.rows, if single_records */
    uint32_t live_count; /* not settled */
    bool journalled;
    bool has_stored;    /* some bodies are in the message store */
    bool has_transient; /* some rows of the journalled record end with the process */
    bool was_loaded;    /* from a file */
};

/* A run of count messages with their record at data[record_at] of chunk; rows becomes its own
 * (qsi_alloc) on success, NULL: row i is message i.  The sequence is set by append. */
qs_status qsi_run_create(struct qsi_run **run_out, struct qsi_chunk *chunk, uint32_t record_at,
                         uint32_t count, uint32_t *rows, bool journalled) QS_MUST_CHECK;
void qsi_run_destroy(struct qsi_run *run); /* one that was not appended; NULL is fine */
/* Of a run that is not appended yet. */
uint64_t qsi_run_body_bytes(const struct qsi_run *run);

/* Where message row of the run is: the record, and the row in it. */
static inline const uint8_t *qsi_run_record(const struct qsi_run *run, uint32_t row,
                                            uint32_t *record_row_out)
{
    return qsi_messages_ref_record(&run->messages, row, record_row_out);
}

#endif
