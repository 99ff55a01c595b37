/* A channel's open transaction: publishes are routed and encoded, and acks are checked, when they
 * are made.  They are kept aside until the commit. */
#include "tx.h"

#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "error.h"
#include "publish_counts.h"
#include "returns.h"

#define BUFFER_KEPT_BYTES (64u << 10) /* kept from one transaction to the next */

qs_status qsi_tx_take(struct qs_channel *channel, struct qsi_pending_records *pending_records,
                      const struct qsi_published_notes *published, qs_error *error)
{
    struct qsi_pending_records *kept = channel->tx_records;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (kept == NULL) {
        kept = qsi_zalloc(sizeof *kept);
        if (kept == NULL) {
            return qsi_fail(error, QS_ENOMEM, "transaction");
        }
        channel->tx_records = kept;
    }
    for (uint32_t i = 0; i < pending_records->count;
         i++) { /* room first: a batch is in the transaction as a whole or not at all */
        if (qsi_pending_records_add(kept) == NULL) {
            QS_DCHECK(kept->count >= i);
            kept->count -= i;
            return qsi_fail(error, QS_ENOMEM, "transaction");
        }
    }
    QS_DCHECK(kept->count >= pending_records->count);
    kept->count -= pending_records->count;
    if (published != NULL && qsi_published_notes_add(&channel->tx_published, published) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "transaction");
    }
    for (uint32_t i = 0; i < pending_records->count; i++) {
        kept->items[kept->count] = pending_records->items[i];
        qsi_pending_records_add_bytes(kept, &kept->items[kept->count]);
        kept->memory_bytes += qsi_pending_record_memory(&kept->items[kept->count]);
        kept->count += 1;
    }
    QS_DCHECK(kept->count <= kept->capacity);
    pending_records->count = 0;
    return QS_OK;
}

static void clear_buffer(struct qsi_buf *buffer)
{
    if (buffer->capacity > BUFFER_KEPT_BYTES) {
        qsi_buf_fini(buffer);
    } else {
        qsi_buf_clear(buffer);
    }
}

static void give_back_settles(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_tx_settle *settles =
        (const struct qsi_tx_settle *)(const void *)channel->tx_settles.data;

    for (size_t i = 0; i < channel->tx_settles.bytes / sizeof *settles; i++) {
        qsi_unacked_give_back(&channel->unacked, settles[i].first_tag, settles[i].last_tag);
    }
    clear_buffer(&channel->tx_settles);
}

void qsi_tx_drop(struct qs_channel *channel)
{
    if (channel->tx_records != NULL) {
        qsi_pending_records_fini(channel->tx_records, channel->store->messages);
        qsi_free(channel->tx_records);
        channel->tx_records = NULL;
    }
    clear_buffer(&channel->tx_cursors);
    clear_buffer(&channel->tx_published.notes);
    channel->tx_published.last_at = 0;
    qsi_map_fini(&channel->tx_published.known);
    channel->tx_dead_letters = 0;
    give_back_settles(channel);
    QS_DCHECK(channel->tx_records == NULL && channel->tx_settles.bytes == 0);
    qsi_free_return_list(channel->store, &channel->tx_returns);
    channel->tx_return_bytes = 0;
}

static uint64_t memory_of(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_pending_records *kept = channel->tx_records;
    uint64_t bytes = channel->tx_return_bytes + channel->tx_settles.bytes +
                     channel->tx_cursors.bytes + qsi_published_notes_memory(&channel->tx_published);

    if (kept != NULL) {
        bytes += kept->memory_bytes + kept->capacity * sizeof *kept->items;
    }
    return bytes;
}

uint64_t qs_channel_tx_bytes(qs_channel *channel)
{
    uint64_t bytes;

    if (qsi_store_is_forked(channel->store)) {
        return 0;
    }
    qsi_store_lock(channel->store);
    bytes = memory_of(channel);
    qsi_store_unlock(channel->store);
    return bytes;
}

qs_status qs_channel_tx_select(qs_channel *channel, qs_error *error)
{
    qs_status status = QS_OK;

    QS_TRY(qsi_channel_enter(channel, error));
    if (channel->confirms.selected) {
        status = qsi_fail(error, QS_PRECONDITION_FAILED, "cannot switch from confirm to tx mode");
    } else {
        channel->tx_selected = true;
    }
    return qsi_channel_leave_after(channel, QSI_MUST_NOT_WAIT, status);
}

qs_status qs_channel_tx_begin(qs_channel *channel, qs_error *error)
{
    qs_status status = QS_OK;

    QS_TRY(qsi_channel_enter(channel, error));
    if (channel->tx_selected) {
        status = qsi_fail(error, QS_PRECONDITION_FAILED, "channel is transactional already");
    } else {
        channel->tx_selected = true;
    }
    return qsi_channel_leave(channel, status);
}

qs_status qs_channel_tx_end(qs_channel *channel, qs_error *error)
{
    QS_TRY(qsi_channel_enter(channel, error));
    qsi_tx_drop(channel);
    channel->tx_selected = false;
    return qsi_channel_leave(channel, QS_OK);
}

qs_status qsi_tx_check_selected(const struct qs_channel *channel, qs_error *error)
{
    return channel->tx_selected
               ? QS_OK
               : qsi_fail(error, QS_PRECONDITION_FAILED, "channel is not transactional");
}

qs_status qs_channel_tx_rollback(qs_channel *channel, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status = qsi_tx_check_selected(channel, error);
    if (status == QS_OK) {
        qsi_tx_drop(channel);
    }
    return qsi_channel_leave(channel, status);
}
