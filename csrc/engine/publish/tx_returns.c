/* Mandatory messages of a transaction whose queues were deleted before its commit: they are
 * returned. */
#include "check.h"
#include "content.h"
#include "enter.h"
#include "error.h"
#include "priorities.h"
#include "returns.h"
#include "tx.h"
#include "wake.h"

static bool is_gone(struct qs_store *store, const struct qsi_pending_record *pending_record)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i < pending_record->destination_count; i++) {
        if (qsi_find_by_id(store, qsi_queue_in(pending_record->destinations[i].queue_id)) != NULL) {
            return false;
        }
    }
    return true;
}

/* Releases the lock, and reports that, to read a body from a file. */
static qs_status read_body(struct qs_channel *channel, const struct qsi_body *body,
                           struct qsi_stored *stored_out, bool *released_out, enum qsi_wait wait,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    uint32_t reader;
    qs_status status;

    QS_TRY(qsi_check_may_wait(wait));
    *released_out = true;
    reader = qsi_reader_begin(store);
    qsi_store_unlock(store);
    status = qsi_read_stored(store, body, stored_out, error);
    qsi_store_lock(store);
    qsi_reader_end(store, reader);
    if (status == QS_OK && channel->closed) {
        qsi_chunk_unref(stored_out->chunk);
        return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    return status;
}

/* The record is the transaction's only while the channel is open. */
static qs_status give_back(struct qs_channel *channel, uint32_t place, bool *released_out,
                           enum qsi_wait wait, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_pending_record *pending_record = &channel->tx_records->items[place];
    struct qsi_chunk *chunk = qsi_chunk_ref(pending_record->chunk);
    struct qsi_stored stored = {.chunk = NULL};
    struct qsi_messages view;
    struct qsi_route_view route;
    struct qsi_body body;
    qs_status status = QS_OK;

    QS_DCHECK(pending_record->row_count <= 1);
    qsi_messages_view(&view, chunk->data);
    route = qsi_messages_route(&view, 0);
    qsi_messages_read_body(&view, 0, &body);
    if (body.kind == QSI_BODY_EMBEDDED) {
        stored.properties = qsi_messages_properties(&view, 0);
        stored.body = body.bytes;
    } else {
        status = read_body(channel, &body, &stored, released_out, wait, error);
    }
    if (status == QS_OK) {
        status = qsi_return_one(channel, &channel->tx_returns, place, route.exchange, route.key,
                                stored.properties, stored.body, error);
        pending_record->is_mandatory = status != QS_OK; /* it comes back once */
        qsi_chunk_unref(stored.chunk);
    }
    qsi_chunk_unref(chunk);
    return status;
}

qs_status qsi_tx_return_gone(struct qs_channel *channel, bool *released_out, enum qsi_wait wait,
                             qs_error *error)
{
    const struct qsi_pending_records *pending_records = channel->tx_records;

    QS_ASSERT_HELD(&channel->store->mutex);
    *released_out = false;
    for (uint32_t i = 0; pending_records != NULL && i < pending_records->count; i++) {
        const struct qsi_pending_record *pending_record = &pending_records->items[i];
        if (pending_record->is_mandatory && is_gone(channel->store, pending_record)) {
            QS_TRY(give_back(channel, i, released_out, wait, error));
        }
    }
    return QS_OK;
}
