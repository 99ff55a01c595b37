/* Runs: messages with their records in one chunk of memory.  Containers of all kinds keep the
 * messages that are in memory in runs. */
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
    uint32_t capacity;   /* of messages.rows, with single_records */
    uint32_t live_count; /* not settled */
    bool journalled;
    bool has_stored;    /* some bodies are in the message store */
    bool has_transient; /* some rows of the journalled record end with the process */
    bool was_loaded;    /* read from a file */
};

/* Creates a run of count messages with their record at data[record_at] of chunk.  On success it
 * owns rows (qsi_alloc); NULL: row i is message i.  append sets the sequence. */
qs_status qsi_run_create(struct qsi_run **run_out, struct qsi_chunk *chunk, uint32_t record_at,
                         uint32_t count, uint32_t *rows, bool journalled) QS_MUST_CHECK;
void qsi_run_destroy(struct qsi_run *run); /* one that was not appended; NULL is fine */
/* For a run that is not appended yet. */
uint64_t qsi_run_body_bytes(const struct qsi_run *run);

/* The record of message row of the run, and its row in the record. */
static inline const uint8_t *qsi_run_record(const struct qsi_run *run, uint32_t row,
                                            uint32_t *record_row_out)
{
    return qsi_messages_ref_record(&run->messages, row, record_row_out);
}

#endif
