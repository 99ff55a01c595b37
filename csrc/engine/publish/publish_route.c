/* Routing one message. */
#include "alloc.h"
#include "check.h"
#include "death.h"
#include "limits.h"
#include "priorities.h"
#include "properties.h"
#include "publishing.h"
#include "queue_life.h"

/* Whether the queue would refuse the dead-lettered message, after those that the transaction
 * already has for it. */
static bool is_full_for(const struct qsi_publishing *dead_letter,
                        const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_pending_records *pending_records = dead_letter->channel->tx_records;
    uint64_t count = 1, body_bytes = dead_letter->body.bytes;

    QS_DCHECK(dead_letter->is_dead_letter && queue->parent == NULL);
    for (uint32_t i = 0; pending_records != NULL && i < pending_records->count; i++) {
        const struct qsi_pending_record *pending_record = &pending_records->items[i];
        for (uint32_t k = 0; k < pending_record->destination_count; k++) {
            const struct qsi_pending_destination *destination = &pending_record->destinations[k];
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

/* A dead-lettered message does not go to a queue where it would go round forever, nor to one that
 * would refuse and drop it. */
static bool is_open(const struct qsi_publishing *publishing, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return (publishing->may_go_round || !qsi_death_is_cycle(publishing->properties, queue->name)) &&
           !(qsi_queue_refuses(queue) && !qsi_queue_passes_on(queue) &&
             is_full_for(publishing, queue));
}

static qs_status leave_out(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_route *all = publishing->route;
    struct qsi_destination **open =
        qsi_realloc((void *)(uintptr_t)publishing->open_route.destinations,
                    (all->count + 1) * sizeof(struct qsi_destination *));

    QS_DCHECK(publishing->is_dead_letter);
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

/* Also to an internal exchange; dead letters are dropped if it does not exist. */
static qs_status look_up_any(struct qsi_publishing *publishing, qs_error *error)
{
    static const struct qsi_route nowhere = {0};
    struct qsi_router *router = &publishing->channel->store->router;
    struct qsi_exchange *exchange = qsi_router_find(router, publishing->exchange);

    if (exchange == NULL && publishing->is_dead_letter) {
        publishing->route = &nowhere;
        return QS_OK;
    }
    QS_TRY(qsi_router_require(router, publishing->exchange, &exchange, error));
    return qsi_exchange_lookup(router, exchange, &publishing->routing, &publishing->route, error);
}

static qs_status look_up_once(struct qsi_publishing *publishing, qs_error *error)
{
    return QS_LIKELY((publishing->flags & QS_INTERNAL) == 0)
               ? qsi_router_lookup(&publishing->channel->store->router, publishing->exchange,
                                   &publishing->routing, &publishing->route, error)
               : look_up_any(publishing, error);
}

/* Properties decide, too: they are decoded for this look-up alone. */
static qs_status look_at_properties(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_slice blob = publishing->properties;
    struct qsi_properties properties;
    qs_status status;

    if (qsi_properties_decode(&properties, blob.data, blob.bytes, NULL) == QS_OK) {
        publishing->routing.properties = &properties; /* none, if they make no sense */
    }
    status = look_up_once(publishing, error);
    publishing->routing.properties = NULL;
    return status;
}

qs_status qsi_publishing_look_up(struct qsi_publishing *publishing, qs_error *error)
{
    struct qsi_slice properties = publishing->properties;
    bool had_headers;

    QS_TRY(look_up_once(publishing, error));
    if (QS_LIKELY(!publishing->route->by_headers || properties.bytes == 0)) {
        return QS_OK;
    }
    had_headers = !qsi_slice_is_null(publishing->routing.headers);
    if (!had_headers) {
        publishing->routing.headers = qsi_properties_headers(properties.data, properties.bytes);
    }
    if (publishing->route->by_properties != 0) {
        return look_at_properties(publishing, error);
    }
    return had_headers || qsi_slice_is_null(publishing->routing.headers)
               ? QS_OK
               : look_up_once(publishing, error);
}

/* Values that most queues do not need. */
static void ask_more(struct qsi_publishing *publishing, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    publishing->persistent = publishing->persistent || queue->policy.keeps_all;
    if (qsi_queue_refuses(queue)) {
        publishing->may_be_refused = true;
        publishing->is_refused =
            publishing->is_refused ||
            (publishing->due_us == 0 && /* a delayed message is not ready, and exceeds no limit */
             qsi_queue_would_refuse(queue, 1, publishing->body.bytes));
    }
    if (queue->priorities != NULL) {
        publishing->priority =
            qsi_properties_priority(publishing->properties.data, publishing->properties.bytes);
    }
}

qs_status qsi_publishing_route(struct qsi_publishing *publishing, qs_error *error)
{
    qsi_router_trim(&publishing->channel->store->router);
    QS_TRY(qsi_publishing_look_up(publishing, error));
    if (QS_UNLIKELY(publishing->copies != NULL)) {
        QS_TRY(qsi_copies_check(publishing->copies, error));
    }
    if (publishing->is_dead_letter) {
        QS_TRY(leave_out(publishing, error));
    }
    publishing->durable_count = publishing->keeping_count = 0;
    publishing->expires = publishing->expiration_ms != QSI_NO_EXPIRATION;
    publishing->may_be_refused = publishing->is_refused = false;
    publishing->priority = 0;
    for (uint32_t i = 0; i < publishing->route->count; i++) {
        const struct qsi_store_queue *queue = qsi_queue_of(publishing->route->destinations[i]);
        publishing->durable_count += (queue->flags & QS_DURABLE) != 0 ? 1 : 0;
        publishing->keeping_count += qsi_keeps_all(queue) ? 1 : 0;
        publishing->expires =
            publishing->expires || qsi_policy_has_ttl(&queue->policy) || qsi_keeps_all(queue);
        if (QS_UNLIKELY(queue->policy.asks_more)) {
            ask_more(publishing, queue);
        }
    }
    return QS_OK;
}
