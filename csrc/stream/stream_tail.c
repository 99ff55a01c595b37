/* Pieces of the tail: runs, or parts of them, that jobs and views hold.
 *
 * Invariant: a piece owns its chunk and its rows, so the run may grow or be dropped meanwhile. */
#include "alloc.h"
#include "check.h"
#include "stream_internal.h"

#include <string.h>

qs_status qsi_stream_tail_take(struct qsi_stream_tail *tail_out, const struct qsi_stream_run *run,
                               uint32_t from, uint32_t count)
{
    const struct qsi_messages_ref *messages = &run->run->messages;

    QS_ASSERT(from <= run->run->count && count <= run->run->count - from);
    *tail_out = (struct qsi_stream_tail){
        .messages = *messages,
        .first_offset = run->run->first_seq + from,
        .run_offset = run->run->first_seq,
        .floor_us = run->floor_us,
        .count = count,
        .has_stored = run->run->has_stored,
    };
    if (messages->rows == NULL) {
        tail_out->messages.first_row += from;
    } else { /* the run's own may move while it grows */
        tail_out->messages.rows = qsi_alloc(count * sizeof *messages->rows);
        if (tail_out->messages.rows == NULL) {
            return QS_ENOMEM;
        }
        memcpy(tail_out->messages.rows, messages->rows + from, count * sizeof *messages->rows);
    }
    qsi_chunk_ref(messages->chunk);
    return QS_OK;
}

void qsi_stream_tail_fini(struct qsi_stream_tail *tail)
{
    qsi_chunk_unref(tail->messages.chunk);
    qsi_free(tail->messages.rows);
}

uint64_t qsi_stream_tail_time(const struct qsi_stream_tail *tail, uint32_t i)
{
    uint32_t row;
    uint64_t time_us = qsi_messages_time(qsi_messages_ref_record(&tail->messages, i, &row));

    return time_us > tail->floor_us ? time_us : tail->floor_us;
}
