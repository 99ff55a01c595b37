/* Runs: creating and freeing them. */
#include "run.h"

#include "alloc.h"
#include "check.h"
#include "record.h"

void qsi_run_destroy(struct qsi_run *run)
{
    if (run == NULL) {
        return;
    }
    QS_DCHECK(run->live_count <= run->count);
    qsi_chunk_unref(run->messages.chunk);
    qsi_free(run->messages.rows);
    qsi_free(run);
}

qs_status qsi_run_create(struct qsi_run **run_out, struct qsi_chunk *chunk, uint32_t record_at,
                         uint32_t count, uint32_t *rows, bool journalled)
{
    struct qsi_run *run = qsi_zalloc(sizeof *run);

    QS_DCHECK(count > 0 && record_at < chunk->used);
    *run_out = run;
    if (run == NULL) {
        return QS_ENOMEM;
    }
    run->messages.chunk = qsi_chunk_ref(chunk);
    run->journalled = journalled;
    run->messages.record_at = record_at;
    run->count = run->live_count = count;
    run->messages.rows = rows;
    run->has_stored = (chunk->data[record_at + 5] & QSI_MESSAGES_HAS_STORED) != 0;
    run->has_transient = (chunk->data[record_at + 5] & QSI_MESSAGES_HAS_TRANSIENT) != 0;
    return QS_OK;
}

uint64_t qsi_run_body_bytes(const struct qsi_run *run)
{
    uint64_t bytes = 0;

    for (uint32_t row = 0; row < run->count; row++) {
        struct qsi_messages view;
        uint32_t record_row;
        qsi_messages_view(&view, qsi_run_record(run, row, &record_row));
        bytes += qsi_messages_body_bytes(&view, record_row);
    }
    return bytes;
}
