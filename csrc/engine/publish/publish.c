/* Publishing one message. */
#include "publish.h"

#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "copies.h"
#include "death.h"
#include "enter.h"
#include "envelope.h"
#include "error.h"
#include "limits.h"
#include "pager.h"
#include "priorities.h"
#include "properties.h"
#include "queue_life.h"
#include "returns.h"
#include "space.h"
#include "store.h"
#include "turns.h"
#include "tx.h"
#include "wake.h"

#include <string.h>

/* ---- sizes ---- */

qs_status qsi_check_body_bytes(const struct qs_store *store, uint64_t bytes, qs_error *error)
{
    if (bytes > store->options.body_bytes_max) {
        return qsi_fail(error, QS_PRECONDITION_FAILED,
                        "message size %llu is larger than max size %llu", (unsigned long long)bytes,
                        (unsigned long long)store->options.body_bytes_max);
    }
    return QS_OK;
}

bool qsi_is_stored(const struct qs_store *store, uint64_t properties_bytes, uint64_t body_bytes)
{
    return properties_bytes + body_bytes >= store->options.embed_below;
}

uint64_t qsi_reserve_bytes(const struct qs_store *store)
{
    uint64_t share = store->options.journal_file_bytes / 16;

    return share < QSI_RESERVE_BYTES_MAX ? share : QSI_RESERVE_BYTES_MAX;
}

/* ---- one message on its way ---- */

struct publishing {
    struct qs_channel *channel;
    struct qsi_slice exchange, properties, body;
    struct qsi_routing routing;
    const struct qsi_copies *copies; /* NULL: neither CC nor BCC */
    bool mandatory;
    bool persistent;     /* by its delivery mode */
    bool is_dead_letter; /* from another queue: not to those that are full */
    bool may_go_round;
    bool expires;           /* somewhere: when it was published is noted then */
    bool may_be_refused;    /* by a queue that refuses when it is full */
    bool is_refused;        /* one of its queues is */
    uint8_t priority;       /* read if a queue has priorities */
    uint32_t expiration_ms; /* its own */
    uint64_t due_us;        /* when it may be delivered; 0: at once */
    bool is_body_constant;  /* nobody changes it meanwhile */
    bool stored;            /* its body is in the message store, and ref tells where */
    struct qsi_body_ref ref;
    struct qsi_place place;
    /* as routed */
    const struct qsi_route *route;
    /* the same without queues that a dead-lettered message may not go to; the destinations are
     * its own */
    struct qsi_route open_route;
    uint32_t durable_count; /* destinations that survive a restart */
    struct qsi_messages_layout layout;
};

static bool is_journalled(const struct publishing *publishing)
{
    return publishing->persistent && publishing->durable_count > 0;
}

/* Would the queue refuse the dead-lettered message, behind what the transaction has for it
 * already? */
static bool is_full_for(const struct publishing *dead_letter, const struct store_queue *queue)
{
    const struct pending_records *pending_records = dead_letter->channel->tx_records;
    uint64_t count = 1, body_bytes = dead_letter->body.bytes;

    for (uint32_t i = 0; pending_records != NULL && i < pending_records->count; i++) {
        const struct pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            const struct pending_destination *destination = &pending_record->destinations[k];
            if (qsi_queue_in(destination->queue_id) == queue->container.id) {
                count += destination->run->count;
                body_bytes += qsi_policy_counts_bytes(&queue->policy)
                                  ? qsi_run_body_bytes(destination->run)
                                  : 0;
            }
        }
    }
    return qsi_queue_would_refuse(queue, count, body_bytes);
}

/* A dead-lettered message does not go where it would go round for ever, nor where it would be
 * refused and dropped. */
static bool is_open(const struct publishing *publishing, const struct store_queue *queue)
{
    return (publishing->may_go_round || !qsi_death_is_cycle(publishing->properties, queue->name)) &&
           !(qsi_queue_refuses(queue) && !qsi_queue_passes_on(queue) &&
             is_full_for(publishing, queue));
}

static qs_status leave_out(struct publishing *publishing, qs_error *error)
{
    const struct qsi_route *all = publishing->route;
    struct qsi_destination **open =
        qsi_realloc((void *)(uintptr_t)publishing->open_route.destinations,
                    (all->count + 1) * sizeof(struct qsi_destination *));

    if (open == NULL) {
        return qsi_fail(error, QS_ENOMEM, "dead letter");
    }
    publishing->open_route = (struct qsi_route){.destinations = open};
    for (uint32_t i = 0; i < all->count; i++) {
        if (is_open(publishing, qsi_queue_of(all->destinations[i]))) {
            open[publishing->open_route.count++] = all->destinations[i];
        }
    }
    publishing->route = &publishing->open_route;
    return QS_OK;
}

/* Dead letters may go to internal exchanges, and nowhere if there is none. */
static qs_status look_up_once(struct publishing *publishing, qs_error *error)
{
    static const struct qsi_route nowhere = {0};
    struct qsi_router *router = &publishing->channel->store->router;
    struct qsi_exchange *exchange;

    if (QS_LIKELY(!publishing->is_dead_letter)) {
        return qsi_router_lookup(router, publishing->exchange, &publishing->routing,
                                 &publishing->route, error);
    }
    exchange = qsi_router_find(router, publishing->exchange);
    publishing->route = &nowhere;
    return exchange != NULL ? qsi_exchange_lookup(router, exchange, &publishing->routing,
                                                  &publishing->route, error)
                            : QS_OK;
}

/* Looks the route up.  The headers are looked for only where they decide. */
static qs_status look_up(struct publishing *publishing, qs_error *error)
{
    struct qsi_slice properties = publishing->properties;

    QS_TRY(look_up_once(publishing, error));
    if (QS_LIKELY(!publishing->route->by_headers ||
                  !qsi_slice_is_null(publishing->routing.headers))) {
        return QS_OK;
    }
    publishing->routing.headers = qsi_properties_headers(properties.data, properties.bytes);
    if (qsi_slice_is_null(publishing->routing.headers)) {
        return QS_OK;
    }
    return look_up_once(publishing, error);
}

static qs_status route(struct publishing *publishing, qs_error *error)
{
    qsi_router_trim(&publishing->channel->store->router);
    QS_TRY(look_up(publishing, error));
    if (QS_UNLIKELY(publishing->copies != NULL)) {
        QS_TRY(qsi_copies_check(publishing->copies, error));
    }
    if (publishing->is_dead_letter) {
        QS_TRY(leave_out(publishing, error));
    }
    publishing->durable_count = 0;
    publishing->expires = publishing->expiration_ms != QSI_NO_EXPIRATION;
    publishing->may_be_refused = publishing->is_refused = false;
    publishing->priority = 0;
    for (uint32_t i = 0; i < publishing->route->count; i++) {
        const struct store_queue *queue = qsi_queue_of(publishing->route->destinations[i]);
        publishing->durable_count += (queue->flags & QS_DURABLE) != 0 ? 1 : 0;
        publishing->expires = publishing->expires || qsi_policy_has_ttl(&queue->policy);
        if (QS_UNLIKELY(qsi_queue_refuses(queue))) {
            publishing->may_be_refused = true;
            publishing->is_refused =
                publishing->is_refused ||
                (publishing->due_us == 0 && /* what is delayed is not ready, and not too much */
                 qsi_queue_would_refuse(queue, 1, publishing->body.bytes));
        }
        if (QS_UNLIKELY(queue->priorities != NULL)) {
            publishing->priority =
                qsi_properties_priority(publishing->properties.data, publishing->properties.bytes);
        }
    }
    return QS_OK;
}

static qs_status lay_out(struct publishing *publishing, qs_error *error)
{
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
                      (publishing->due_us != 0 ? QSI_MESSAGES_HAS_DUE : 0) |
                      (publishing->expiration_ms != QSI_NO_EXPIRATION ? QSI_MESSAGES_HAS_EXPIRATION
                                                                      : 0)),
    };
    return qsi_messages_layout(&publishing->layout, error);
}

static void encode_route(const struct publishing *publishing, uint8_t *record)
{
    const struct qsi_messages_layout *layout = &publishing->layout;
    uint8_t *at = record + layout->routes_at;

    qsi_put_u32(at, (uint32_t)(layout->routes_at + 4));
    qsi_put_u32(at + 4, publishing->route->count);
    at[8] = (uint8_t)publishing->exchange.bytes;
    at[9] = (uint8_t)publishing->routing.key.bytes;
    qsi_put_u16(at + 10, 0);
    at += 12;
    for (uint32_t i = 0; i < publishing->route->count; i++, at += 4) {
        qsi_put_u32(at, i);
    }
    qsi_slice_put(qsi_slice_put(at, publishing->exchange), publishing->routing.key);
}

static void encode(const struct publishing *publishing, uint8_t *record)
{
    const struct qsi_messages_layout *layout = &publishing->layout;
    uint8_t *offsets, *properties = qsi_messages_properties_place(record, layout);

    qsi_messages_begin(record, layout);
    encode_route(publishing, record);
    if (publishing->expiration_ms != QSI_NO_EXPIRATION) {
        qsi_messages_put_expiration(record, layout, 0, publishing->expiration_ms);
    }
    if (publishing->due_us != 0) {
        qsi_messages_put_due(record, layout, 0, publishing->due_us);
    }
    qsi_put_u32(properties, (uint32_t)layout->properties_bytes);
    if (layout->properties_bytes > 0) {
        qsi_slice_put(properties + 4, publishing->properties);
    }
    offsets = qsi_messages_body_offsets_place(record, layout);
    qsi_put_u32(offsets, 0);
    qsi_put_u32(offsets + 4, (uint32_t)layout->bodies_bytes);
    if (publishing->stored) {
        *qsi_messages_stored_place(record, layout) = 1;
        qsi_body_ref_encode(offsets + 8, &publishing->ref);
    } else {
        qsi_slice_put(offsets + 8, publishing->body);
    }
}

/* Into its queues.  Nothing can fail any more. */
static void enqueue(const struct publishing *publishing, struct qsi_chunk *chunk, uint64_t from)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_route *route = publishing->route;
    struct qs_store *store = publishing->channel->store;
    uint8_t *record = chunk->data + from;
    uint32_t share = (uint32_t)(publishing->layout.record_bytes);

    if (publishing->expires) {
        qsi_messages_put_time(record, qsi_clock_us(store));
    }
    for (uint32_t i = 0; i < route->count; i++) {
        struct store_queue *queue =
            qsi_subqueue_of(qsi_queue_of(route->destinations[i]), publishing->priority);
        bool journalled = is_journalled(publishing) && (queue->flags & QS_DURABLE) != 0;
        uint64_t seq = qsi_container_append_one(&queue->container, chunk, (uint32_t)from, share,
                                                journalled, publishing->stored);
        qsi_messages_put_destination(record, i, queue->container.id, seq, 1);
        qsi_note_growth(store, queue);
        qsi_signal_consumers(store, qsi_owner_of(queue));
    }
    store->stats.routed += route->count;
    qsi_pager_kick(store);
    qsi_events_announce(store);
}

static qs_status reserve_memory(const struct publishing *publishing, struct qsi_chunk **chunk_out,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    bool journalled = is_journalled(publishing);

    QS_TRY(qsi_arena_place(store, journalled, publishing->layout.record_bytes, chunk_out, error));
    for (uint32_t i = 0; i < publishing->route->count; i++) {
        struct store_queue *queue = qsi_queue_of(publishing->route->destinations[i]);
        if (QS_UNLIKELY(queue->priorities != NULL) &&
            qsi_make_subqueue_of(store, queue, publishing->priority) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
        queue = qsi_subqueue_of(queue, publishing->priority);
        if (qsi_container_reserve_one(&queue->container, *chunk_out,
                                      journalled && (queue->flags & QS_DURABLE) != 0) != QS_OK ||
            (publishing->expiration_ms != QSI_NO_EXPIRATION &&
             qsi_queue_reserve_expiries(&queue->core, 1) != QS_OK) ||
            (publishing->due_us != 0 && qsi_queue_reserve_dues(&queue->core, 1) != QS_OK)) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
    }
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return QS_OK;
}

static qs_status return_unroutable(const struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct qsi_list *returns = qsi_returns_of(channel);

    if (!publishing->mandatory) {
        return QS_OK;
    }
    if (qsi_wants_return(channel, returns)) {
        QS_TRY(qsi_return_make(channel, returns, publishing->exchange, publishing->routing.key,
                               publishing->properties, publishing->body, error));
    }
    qsi_note_returns(channel, 1);
    return QS_OK;
}

/* The encoded message as a pending record; what the pending record holds is its own on success. */
static qs_status make_pending_record(struct publishing *publishing,
                                     struct pending_records *pending_records, qs_error *error)
{
    const struct qsi_route *route = publishing->route;
    struct pending_record *pending_record = qsi_pending_records_add(pending_records);
    struct qs_store *store = publishing->channel->store;

    if (pending_record == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    pending_record->is_dead_letter = publishing->is_dead_letter;
    pending_record->journalled = is_journalled(publishing);
    pending_record->has_expiration = publishing->expiration_ms != QSI_NO_EXPIRATION;
    pending_record->has_due = publishing->due_us != 0;
    pending_record->row_count = 1;
    pending_record->chunk = qsi_chunk_create(publishing->layout.record_bytes);
    pending_record->destinations = qsi_zalloc(route->count * sizeof *pending_record->destinations);
    pending_record->places = qsi_zalloc(sizeof *pending_record->places);
    if (pending_record->chunk == NULL || pending_record->destinations == NULL ||
        pending_record->places == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    qsi_chunk_charge(pending_record->chunk, store->budget);
    pending_record->chunk->used = publishing->layout.record_bytes;
    encode(publishing, pending_record->chunk->data);
    for (uint32_t i = 0; i < route->count; i++) {
        const struct store_queue *queue = qsi_queue_of(route->destinations[i]);
        bool journalled = pending_record->journalled && (queue->flags & QS_DURABLE) != 0;
        uint64_t id = qsi_priority_id(queue, publishing->priority);
        pending_record->destinations[i].queue_id = id;
        if (qsi_run_create(&pending_record->destinations[i].run, pending_record->chunk, 0, 1, NULL,
                           journalled) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "message");
        }
        pending_record->destinations[i].run->ram_bytes = pending_record->chunk->used;
        pending_record->destination_count = i + 1;
        qsi_messages_put_destination(pending_record->chunk->data, i, id, 0, 1);
    }
    if (publishing->stored) {
        pending_record->places[pending_record->place_count++] = publishing->place;
        memset(&publishing->place, 0, sizeof publishing->place);
    }
    qsi_pending_records_note_bytes(pending_records, pending_record);
    return QS_OK;
}

/* In a transaction: the encoded record waits for the commit, which gives it its sequences. */
static qs_status buffer(struct publishing *publishing, qs_error *error)
{
    struct pending_records pending_records = {0};
    qs_status status = make_pending_record(publishing, &pending_records, error);

    if (status == QS_OK) {
        status = qsi_tx_take(publishing->channel, &pending_records, error);
    }
    qsi_pending_records_fini(&pending_records, publishing->channel->store->messages);
    return status;
}

/* REQUIRES a route and room.  To queues of which one refuses it. */
static qs_status offer(struct publishing *publishing, struct refusals *refusals, uint64_t *lsn_out,
                       qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    struct pending_records pending_records = {0};
    qs_status status = make_pending_record(publishing, &pending_records, error);

    if (status == QS_OK &&
        qsi_confirms_reserve_batch(&publishing->channel->confirms, 1,
                                   qsi_journal_durable_lsn(store->journal)) != QS_OK) {
        status = qsi_fail(error, QS_ENOMEM, "confirms");
    }
    if (status == QS_OK) {
        status = qsi_pending_records_reserve(store, &pending_records, 0, error);
    }
    if (status == QS_OK) {
        status = qsi_refusals_reserve(refusals, store, &pending_records, 1, error);
    }
    if (status == QS_OK) {
        *lsn_out = qsi_pending_records_accept(store, &pending_records, refusals);
    }
    qsi_pending_records_fini(&pending_records, store->messages);
    return status;
}

/* REQUIRES a route and room.  *lsn_out 0: nothing to wait for. */
static qs_status accept(struct publishing *publishing, uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    struct qsi_chunk *chunk = NULL;
    uint64_t from;

    *lsn_out = 0;
    if (qsi_confirms_reserve(&publishing->channel->confirms,
                             qsi_journal_durable_lsn(store->journal)) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "confirms");
    }
    if (publishing->route->count == 0) {
        return return_unroutable(publishing, error);
    }
    QS_TRY(reserve_memory(publishing, &chunk, error));
    from = chunk->used;
    encode(publishing, chunk->data + from);
    chunk->used += publishing->layout.record_bytes;
    enqueue(publishing, chunk, from);
    if (is_journalled(publishing)) {
        if (publishing->stored) {
            qsi_message_store_mark(store->messages, &publishing->place);
        }
        *lsn_out = qsi_store_append(store, chunk, from, publishing->layout.record_bytes, 1, false);
        qsi_commit_kick(store);
    }
    return QS_OK;
}

/* Releases the lock while it writes.  Puts the body into the message store. */
static qs_status store_body(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    uint32_t envelope_bytes =
        qsi_envelope_bytes(publishing->exchange, publishing->routing.key, publishing->properties);
    uint8_t *envelope = qsi_alloc(envelope_bytes);
    qs_part parts[2] = {{envelope, envelope_bytes},
                        {publishing->body.data, publishing->body.bytes}};
    qs_status status;

    if (envelope == NULL) {
        return qsi_fail(error, QS_ENOMEM, "message");
    }
    status = qsi_message_store_reserve(store->messages, envelope_bytes, publishing->body.bytes,
                                       &publishing->place, error);
    if (status == QS_OK) {
        qsi_envelope_encode(envelope, publishing->exchange, publishing->routing.key,
                            publishing->properties);
        qsi_store_unlock(store);
        status = (publishing->is_body_constant ? qsi_message_store_write_constant
                                               : qsi_message_store_write)(
            store->messages, &publishing->place, parts, 2, &publishing->ref, error);
        qsi_store_lock(store);
        publishing->stored = status == QS_OK;
        if (status != QS_OK) {
            qsi_message_store_abandon(store->messages, &publishing->place);
        }
    }
    qsi_free(envelope);
    return status;
}

/* Releases the lock meanwhile.  QS_OK without a body: space was had back, to be looked at again. */
static qs_status store_body_if_there_is_space(struct publishing *publishing, bool may_regain,
                                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = publishing->channel->store;
    bool released = false;
    qs_status status = qsi_space_admit(store, publishing->body.bytes, may_regain, &released, error);

    if (status == QS_OK && !released) {
        status = store_body(publishing, error);
    }
    return qsi_is_full(status) && may_regain && qsi_space_regain(store) ? QS_OK : status;
}

/* Routes, stores the body if it is large, and makes room; whenever the lock was released on the
 * way, all of it is looked at again. */
static qs_status prepare(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct qs_store *store = channel->store;
    uint32_t looks = 0; /* at a disk that may be full */
    bool released = true;

    while (released) {
        uint64_t bytes;
        released = false;
        if (channel->closed ||
            (store->life >= QSI_LIFE_SHUT && channel != store->removals.internal_channel)) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        QS_TRY(qsi_store_check_failed(store, error));
        QS_TRY(route(publishing, error));
        if (publishing->route->count == 0) {
            return QS_OK;
        }
        if (publishing->stored && !is_journalled(publishing)) {
            /* The durable queue went while the body was written: it comes along like any other. */
            qsi_message_store_abandon(store->messages, &publishing->place);
            publishing->stored = false;
        }
        QS_TRY(qsi_pager_make_room(store, &released, error));
        if (released) {
            continue;
        }
        if (is_journalled(publishing) && !publishing->stored &&
            qsi_is_stored(store, publishing->properties.bytes, publishing->body.bytes)) {
            QS_TRY(qsi_check_may_wait(store));
            QS_TRY(store_body_if_there_is_space(
                publishing, !publishing->is_dead_letter && looks++ < QSI_REGAIN_TRIES, error));
            released = true;
            continue;
        }
        QS_TRY(lay_out(publishing, error));
        if (is_journalled(publishing)) {
            bytes = publishing->layout.record_bytes;
            if (publishing->is_refused) {
                bytes += publishing->route->count * (uint64_t)QSI_SETTLE_BYTES;
            }
            QS_TRY(qsi_commit_make_room(store, bytes + qsi_reserve_bytes(store), bytes,
                                        publishing->is_dead_letter ? QSI_ROOM_DEAD_LETTER
                                                                   : QSI_ROOM_PUBLISH,
                                        &released, error));
        }
    }
    return QS_OK;
}

static qs_status take(struct publishing *publishing, struct refusals *refusals, qs_receipt *receipt,
                      qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if (publishing->route->count > 0 && publishing->channel->tx_selected) {
        return buffer(publishing, error);
    }
    return publishing->route->count > 0 && publishing->is_refused
               ? offer(publishing, refusals, &receipt->lsn, error)
               : accept(publishing, &receipt->lsn, error);
}

static qs_status publish(struct publishing *publishing, qs_receipt *receipt, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = publishing->channel;
    struct refusals refusals = {NULL};
    qs_status status = prepare(publishing, error);

    if (status == QS_OK) {
        status = take(publishing, &refusals, receipt, error);
    }
    qsi_message_store_abandon(channel->store->messages, &publishing->place);
    if (status == QS_OK) {
        channel->store->stats.published += 1;
        receipt->count = 1;
        receipt->unrouted_count = publishing->route->count == 0 ? 1 : 0;
        qsi_refusals_tell(&refusals, receipt);
    }
    if (status == QS_OK && channel->confirms.selected) {
        receipt->first_number =
            qsi_confirms_add_batch(&channel->confirms, 1, receipt->lsn, refusals.rows);
        receipt->last_number = receipt->first_number;
        if (receipt->lsn == 0 || refusals.count > 0) {
            qsi_events_announce(channel->store);
        }
    }
    qsi_refusals_fini(&refusals);
    return status;
}

static bool may_have_copies(struct qsi_slice properties)
{
    return qsi_properties_may_have_headers(properties.data, properties.bytes) &&
           qsi_may_have_copies(properties);
}

static qs_status send_dead_letter(struct publishing *dead_letter, uint32_t *queue_count_out,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status = prepare(dead_letter, error);

    *queue_count_out = status == QS_OK ? dead_letter->route->count : 0;
    if (*queue_count_out > 0) {
        status = buffer(dead_letter, error);
    }
    qsi_message_store_abandon(dead_letter->channel->store->messages, &dead_letter->place);
    qsi_free((void *)(uintptr_t)dead_letter->open_route.destinations);
    return status;
}

qs_status qsi_publish_dead_letter(struct qs_channel *channel, const struct dead_letter *dead_letter,
                                  uint32_t *queue_count_out, bool *may_be_refused_out,
                                  qs_error *error)
{
    struct qsi_copies copies = {NULL};
    struct publishing publishing = {
        .channel = channel,
        .exchange = dead_letter->exchange,
        .routing.key = dead_letter->key,
        .properties = dead_letter->properties,
        .body = dead_letter->body,
        .is_dead_letter = true,
        .is_body_constant = true,
        .may_go_round = dead_letter->may_go_round,
        .expiration_ms = QSI_NO_EXPIRATION,
        .persistent = qsi_properties_delivery_mode(dead_letter->properties.data,
                                                   dead_letter->properties.bytes) == 2,
    };
    qs_status status;

    *queue_count_out = 0;
    *may_be_refused_out = false;
    if (may_have_copies(dead_letter->properties)) {
        /* what is wrong with them is no key: the dead-lettered message goes on */
        QS_TRY(qsi_copies_read(&copies, dead_letter->properties, error));
        publishing.routing.copies = copies.keys;
        publishing.routing.copy_count = copies.count;
    }
    status = send_dead_letter(&publishing, queue_count_out, error);
    *may_be_refused_out = *queue_count_out > 0 && publishing.may_be_refused;
    qsi_copies_fini(&copies);
    return status;
}

qs_status qsi_check_names(size_t exchange_bytes, size_t key_bytes, qs_error *error)
{
    if (exchange_bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "exchange name of %zu bytes: 255 at most",
                        exchange_bytes);
    }
    if (key_bytes > QSI_ROUTE_NAME_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "routing key of %zu bytes: 255 at most", key_bytes);
    }
    return QS_OK;
}

static qs_status publish_with_copies(struct publishing *publishing, qs_receipt *receipt,
                                     qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_copies copies;
    qs_status status;

    QS_TRY(qsi_copies_read(&copies, publishing->properties, error));
    if (copies.properties != NULL) {
        publishing->properties = qsi_slice_make(copies.properties, copies.properties_bytes);
    }
    publishing->copies = &copies;
    publishing->routing.copies = copies.keys;
    publishing->routing.copy_count = copies.count;
    status = publish(publishing, receipt, error);
    qsi_copies_fini(&copies);
    return status;
}

/* A broker looks for the exchange before it looks at the message: what is wrong with that comes
 * first. */
static qs_status read_expiration(struct publishing *publishing, qs_error *error)
{
    struct qsi_slice blob = publishing->properties, text;

    publishing->expiration_ms = QSI_NO_EXPIRATION;
    if (QS_LIKELY(!qsi_properties_may_have_expiration(blob.data, blob.bytes))) {
        return QS_OK;
    }
    text = qsi_properties_expiration(blob.data, blob.bytes);
    if (text.data == NULL ||
        qsi_expiration_parse(text, &publishing->expiration_ms, error) == QS_OK) {
        return QS_OK;
    }
    QS_TRY(look_up(publishing, error));
    return qsi_expiration_parse(text, &publishing->expiration_ms, error);
}

static inline qs_status publish_message(qs_channel *channel, qs_slice exchange,
                                        qs_slice routing_key, qs_slice properties, qs_slice body,
                                        uint32_t flags, uint64_t delay_us, qs_receipt *receipt_out,
                                        qs_error *error)
{
    struct publishing publishing;
    qs_status status;

    memset(receipt_out, 0, sizeof *receipt_out);
    QS_TRY(qsi_check_names(exchange.bytes, routing_key.bytes, error));
    if (properties.bytes > channel->store->options.body_bytes_max) {
        return qsi_fail(error, QS_EINVAL, "properties of %zu bytes", properties.bytes);
    }
    QS_TRY(qsi_channel_enter_to(channel, flags, error));
    memset(&publishing, 0, sizeof publishing);
    publishing.channel = channel;
    publishing.exchange = qsi_slice_of(exchange);
    publishing.routing.key = qsi_slice_of(routing_key);
    publishing.properties = qsi_slice_of(properties);
    publishing.body = qsi_slice_of(body);
    if (delay_us > 0) {
        publishing.due_us = qsi_due_us(channel->store, delay_us);
    }
    publishing.mandatory = (flags & QS_MANDATORY) != 0;
    publishing.is_body_constant = (flags & QS_BODY_CONSTANT) != 0;
    publishing.persistent =
        qsi_properties_delivery_mode(properties.data, (uint32_t)properties.bytes) == 2;
    status = (flags & QS_IMMEDIATE) != 0 ? qsi_fail(error, QS_NOT_IMPLEMENTED, "immediate=true")
                                         : read_expiration(&publishing, error);
    if (status == QS_OK) {
        status = qsi_check_body_bytes(channel->store, body.bytes, error);
    }
    if (status == QS_OK) {
        status = may_have_copies(publishing.properties)
                     ? publish_with_copies(&publishing, receipt_out, error)
                     : publish(&publishing, receipt_out, error);
    }
    return qsi_channel_leave(channel, status);
}

qs_status qs_channel_publish(qs_channel *channel, qs_slice exchange, qs_slice routing_key,
                             qs_slice properties, qs_slice body, uint32_t flags,
                             qs_receipt *receipt_out, qs_error *error)
{
    return publish_message(channel, exchange, routing_key, properties, body, flags, 0, receipt_out,
                           error);
}

qs_status qs_channel_publish_delayed(qs_channel *channel, qs_slice exchange, qs_slice routing_key,
                                     qs_slice properties, qs_slice body, uint32_t flags,
                                     uint64_t delay_us, qs_receipt *receipt_out, qs_error *error)
{
    if (delay_us == 0) {
        return publish_message(channel, exchange, routing_key, properties, body, flags, 0,
                               receipt_out, error);
    }
    memset(receipt_out, 0, sizeof *receipt_out);
    QS_TRY(qsi_check_delay(delay_us, error));
    return publish_message(channel, exchange, routing_key, properties, body, flags, delay_us,
                           receipt_out, error);
}
