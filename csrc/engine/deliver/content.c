/* The contents of messages for callers.
 *
 * A message holds the chunk in which its names, properties and body are. */
#include "content.h"

#include "check.h"
#include "envelope.h"
#include "error.h"
#include "record.h"

void qsi_view_row(struct qsi_chunk *chunk, const uint8_t *record, uint32_t row, qs_message *message,
                  struct qsi_body *body_out)
{
    struct qsi_messages view;
    struct qsi_route_view route;

    qsi_messages_view(&view, record);
    route = qsi_messages_route(&view, qsi_messages_row_route(&view, row));
    qsi_messages_read_body(&view, row, body_out);
    message->exchange = qs_slice_of(route.exchange);
    message->routing_key = qs_slice_of(route.key);
    if (body_out->kind != QSI_BODY_EMBEDDED) {
        return;
    }
    message->properties = qs_slice_of(qsi_messages_properties(&view, row));
    message->body = qs_slice_of(body_out->bytes);
    message->hold = qsi_chunk_ref(chunk);
}

void qsi_view_message(const struct qsi_run *run, uint32_t run_row, qs_message *message,
                      struct qsi_body *body_out)
{
    uint32_t row;
    const uint8_t *record = qsi_run_record(run, run_row, &row);

    qsi_view_row(run->messages.chunk, record, row, message, body_out);
}

qs_status qsi_read_stored(struct qs_store *store, const struct qsi_body *body,
                          struct qsi_stored *stored_out, qs_error *error)
{
    const struct qsi_body_ref *ref = &body->ref;
    struct qsi_chunk *chunk;
    qs_status status;

    if (body->kind == QSI_BODY_DAMAGED) {
        return qsi_segment_fail_message(error, &body->damage);
    }
    QS_ASSERT(body->kind == QSI_BODY_STORED);
    status = qsi_message_store_locate(store->messages, ref, error);
    if (status != QS_OK) {
        return status;
    }
    chunk = qsi_chunk_create(qsi_body_record_bytes(ref));
    if (chunk == NULL) {
        return qsi_fail(error, QS_ENOMEM, "body of %u bytes", ref->body_bytes);
    }
    status = qsi_message_store_read(store->messages, ref, chunk->data, error);
    if (status == QS_OK &&
        !qsi_envelope_decode(chunk->data + QSI_BODY_HEADER_BYTES, ref->envelope_bytes,
                             &stored_out->exchange, &stored_out->key, &stored_out->properties)) {
        status = qsi_fail(error, QS_ECORRUPT,
                          "the envelope of message file %u, offset %llu is malformed", ref->file,
                          (unsigned long long)ref->offset);
    }
    if (status != QS_OK) {
        qsi_chunk_unref(chunk);
        return status;
    }
    stored_out->body =
        qsi_slice_make(chunk->data + QSI_BODY_HEADER_BYTES + ref->envelope_bytes, ref->body_bytes);
    stored_out->chunk = chunk;
    return QS_OK;
}

qs_status qsi_deliver_body(struct qs_store *store, qs_message *message, const struct qsi_body *body,
                           qs_error *error)
{
    struct qsi_stored stored;

    if (body->kind == QSI_BODY_EMBEDDED) {
        return QS_OK;
    }
    QS_TRY(qsi_read_stored(store, body, &stored, error));
    /* The names are copied, too: the journal record, which also has them, is freed when the message
     * is settled. */
    message->exchange = qs_slice_of(stored.exchange);
    message->routing_key = qs_slice_of(stored.key);
    message->properties = qs_slice_of(stored.properties);
    message->body = qs_slice_of(stored.body);
    message->hold = stored.chunk;
    return QS_OK;
}

void qs_message_release(qs_message *message)
{
    qsi_chunk_unref(message->hold);
    qsi_chunk_unref(message->hold_names);
    message->hold = NULL;
    message->hold_names = NULL;
}
