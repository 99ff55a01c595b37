/* The messages that a call of browsing found, and the batch that is built from them. */
#include "browse_internal.h"
#include "check.h"

qs_status qsi_browse_add(struct qsi_browse *browse, const struct qsi_taken *next, uint32_t bytes)
{
    struct qsi_buf *buf = &browse->batch.taken;
    struct qsi_taken *last = NULL;

    QS_DCHECK(browse->messages_left > 0 && next->count == 1);
    if (buf->bytes > 0) {
        last = (struct qsi_taken *)(void *)(buf->data + buf->bytes) - 1;
    }
    if (last != NULL && last->record == next->record && last->row + last->count == next->row &&
        last->first_tag + last->count == next->first_tag &&
        last->redelivered == next->redelivered && last->is_unacked == next->is_unacked &&
        last->is_delayed == next->is_delayed && last->delivery_count == next->delivery_count) {
        last->count += 1;
    } else {
        QS_TRY(qsi_buf_append(buf, next, sizeof *next));
        qsi_chunk_ref(next->chunk);
    }
    browse->batch.message_count += 1;
    browse->batch.body_bytes += bytes;
    browse->messages_left -= 1;
    browse->bytes_left -= bytes < browse->bytes_left ? bytes : browse->bytes_left;
    return QS_OK;
}

void qsi_browse_pass_added(struct qsi_browse *browse)
{
    const struct qsi_buf *buf = &browse->batch.taken;

    if (buf->bytes > 0) {
        const struct qsi_taken *last =
            (const struct qsi_taken *)(const void *)(buf->data + buf->bytes) - 1;
        uint64_t behind = last->first_tag + last->count;
        browse->position = browse->position > behind ? browse->position : behind;
    }
}

/* Removes the messages from position on. */
static void cut(struct qsi_browse *browse, uint64_t position)
{
    struct qsi_buf *buf = &browse->batch.taken;

    while (buf->bytes > 0) {
        struct qsi_taken *last = (struct qsi_taken *)(void *)(buf->data + buf->bytes) - 1;
        uint64_t keep = position > last->first_tag ? position - last->first_tag : 0;
        if (keep >= last->count) {
            return;
        }
        QS_DCHECK(browse->batch.message_count >= last->count - keep);
        browse->batch.message_count -= last->count - keep;
        last->count = (uint32_t)keep;
        if (keep > 0) {
            return;
        }
        qsi_chunk_unref(last->chunk);
        buf->bytes -= sizeof *last;
    }
}

qs_status qsi_browse_build(struct qsi_browse *browse, struct ArrowSchema *schema_out,
                           struct ArrowArray *array_out, qs_error *error)
{
    uint64_t first = ((const struct qsi_taken *)(const void *)browse->batch.taken.data)->first_tag;
    uint64_t bad = 0;
    qs_error detail = {0};
    qs_status status;

    QS_DCHECK(browse->batch.message_count > 0);
    for (;;) {
        status =
            qsi_taken_build(browse->store, &browse->batch, &bad, schema_out, array_out, &detail);
        if (status != QS_ECORRUPT) {
            break;
        }
        if (bad == first) {
            browse->position = bad + 1;
            break;
        }
        QS_ASSERT(bad > first); /* otherwise this loop would not end */
        cut(browse, bad);
        browse->position = bad;
    }
    if (status != QS_OK && error != NULL) {
        *error = detail;
    }
    return status;
}
