/* Before a message is accepted, its body is put into the message store, and room for it is found in
 * memory, in the journal and on the disk. */
#include "publish_prepare.h"

#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "envelope.h"
#include "pager.h"
#include "publishing.h"
#include "space.h"

#define RESERVE_BYTES_MAX (256u << 10)

bool qsi_is_stored(const struct qs_store *store, uint64_t properties_bytes, uint64_t body_bytes)
{
    return properties_bytes + body_bytes >= store->options.embed_below;
}

uint64_t qsi_reserve_bytes(const struct qs_store *store)
{
    uint64_t share = store->options.journal_file_bytes / 16;

    return share < RESERVE_BYTES_MAX ? share : RESERVE_BYTES_MAX;
}

qs_status qsi_make_envelope(struct qsi_slice exchange, struct qsi_slice key,
                            struct qsi_slice properties, struct qsi_slice *envelope_out,
                            qs_error *error)
{
    uint32_t bytes = qsi_envelope_bytes(exchange, key, properties);
    uint8_t *envelope = qsi_alloc(bytes);

    if (envelope == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    qsi_envelope_encode(envelope, exchange, key, properties);
    *envelope_out = qsi_slice_make(envelope, bytes);
    return QS_OK;
}

static qs_status lay_out(struct qsi_publishing *publishing, qs_error *error)
{
    QS_DCHECK(publishing->route->count > 0);
    publishing->layout = (struct qsi_messages_layout){
        .row_count = 1,
        .route_count = 1,
        .destination_count = publishing->route->count,
        .routes_bytes = qsi_route_bytes(publishing->exchange.bytes, publishing->routing.key.bytes,
                                        publishing->route->count),
        .properties_bytes = publishing->stored ? 0 : publishing->properties.bytes,
        .bodies_bytes = publishing->stored ? QSI_BODY_REF_BYTES : publishing->body.bytes,
        .flags =
            (uint8_t)((publishing->stored ? QSI_MESSAGES_HAS_STORED : 0) |
                      (qsi_publishing_is_journalled(publishing) && !publishing->persistent
                           ? QSI_MESSAGES_HAS_TRANSIENT
                           : 0) |
                      (publishing->due_us != 0 ? QSI_MESSAGES_HAS_DUE : 0) |
                      (publishing->expiration_ms != QSI_NO_EXPIRATION ? QSI_MESSAGES_HAS_EXPIRATION
                                                                      : 0)),
    };
    return qsi_messages_layout(&publishing->layout, error);
}

/* Releases the lock while it writes.  Puts the body into the message store. */
static qs_status store_body(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    struct qsi_slice envelope = {NULL, 0};
    qs_status status;

    QS_DCHECK(!publishing->stored && publishing->persistent);
    QS_TRY(qsi_make_envelope(publishing->exchange, publishing->routing.key, publishing->properties,
                             &envelope, error));
    status = qsi_message_store_reserve(store->messages, envelope.bytes, publishing->body.bytes,
                                       &publishing->place, error);
    if (status == QS_OK) {
        qs_part parts[2] = {{envelope.data, envelope.bytes},
                            {publishing->body.data, publishing->body.bytes}};
        qsi_store_unlock(store);
        status = ((publishing->flags & QS_BODY_CONSTANT) != 0 ? qsi_message_store_write_constant
                                                              : qsi_message_store_write)(
            store->messages, &publishing->place, parts, 2, &publishing->ref, error);
        qsi_store_lock(store);
        QS_DCHECK(status != QS_OK || publishing->ref.body_bytes == publishing->body.bytes);
        publishing->stored = status == QS_OK;
        if (status != QS_OK) {
            qsi_message_store_abandon(store->messages, &publishing->place);
        }
    }
    qsi_free((void *)(uintptr_t)envelope.data);
    return status;
}

/* Stores the body if the disk has space; releases the lock meanwhile.  QS_OK without a stored body
 * means that space was freed: the caller tries again. */
static qs_status store_body_if_there_is_space(struct qsi_publishing *publishing, bool may_regain,
                                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    bool released = false;
    qs_status status = qsi_space_admit(store, publishing->body.bytes, may_regain, &released,
                                       publishing->wait, error);

    if (status == QS_OK && !released) {
        status = store_body(publishing, error);
    }
    return qsi_is_full(status) && may_regain && qsi_space_regain(store) ? QS_OK : status;
}

qs_status qsi_publishing_prepare(struct qsi_publishing *publishing, qs_error *error)
{
    struct qs_channel *channel = publishing->channel;
    struct qs_store *store = channel->store;
    uint32_t looks = 0; /* how often the caller looked for space on a disk that may be full */
    bool released = true;

    while (released) {
        uint64_t bytes;
        released = false;
        if (channel->closed ||
            (store->life >= QSI_LIFE_SHUT && !qsi_channel_is_internal(channel))) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(qsi_store_check_failed(store, error));
        QS_TRY(qsi_publishing_route(publishing, error));
        if (publishing->route->count == 0) {
            return QS_OK;
        }
        if (publishing->stored && !qsi_publishing_is_journalled(publishing)) {
            /* The durable queue was deleted while the body was written: the message keeps its body
             * in memory. */
            qsi_message_store_abandon(store->messages, &publishing->place);
            publishing->stored = false;
        }
        QS_TRY(qsi_pager_make_room(store, &released, publishing->wait, error));
        if (released) {
            continue;
        }
        if (qsi_publishing_is_journalled(publishing) && publishing->persistent &&
            !publishing->stored &&
            qsi_is_stored(store, publishing->properties.bytes, publishing->body.bytes)) {
            QS_TRY(qsi_check_may_wait(publishing->wait));
            QS_TRY(store_body_if_there_is_space(
                publishing, !publishing->is_dead_letter && looks++ < QSI_REGAIN_TRIES, error));
            released = true;
            continue;
        }
        QS_TRY(lay_out(publishing, error));
        if (qsi_publishing_is_journalled(publishing)) {
            bytes = publishing->layout.record_bytes;
            if (publishing->is_refused) {
                bytes += publishing->route->count * (uint64_t)QSI_SETTLE_BYTES;
            }
            QS_TRY(qsi_commit_make_room(store, bytes + qsi_reserve_bytes(store), bytes,
                                        publishing->is_dead_letter ? QSI_ROOM_DEAD_LETTER
                                                                   : QSI_ROOM_PUBLISH,
                                        &released, publishing->wait, error));
        }
    }
    return QS_OK;
}
