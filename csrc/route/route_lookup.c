/* Looking up the queues of a message; every message is looked up here. */
#include "check.h"
#include "error.h"
#include "match.h"
#include "route_internal.h"

/* Adds the alternate exchange, unless there is none or it was reached before.  It is looked up by
 * name each time, because it may be declared after its name was used, deleted, and declared again.
 * The default exchange has no bindings that could match, as in RabbitMQ. */
static qs_status reach_alternate(struct qsi_collection *collection,
                                 const struct qsi_exchange *exchange)
{
    const struct qsi_router *router = collection->router;
    struct qsi_exchange *alternate;

    if (exchange->alternate.bytes == 0) {
        return QS_OK;
    }
    alternate =
        qsi_map_get(&router->exchange_names, exchange->alternate.data, exchange->alternate.bytes);
    return alternate != NULL ? qsi_collect_destination(collection, &alternate->destination) : QS_OK;
}

/* Collects from exchange and from all exchanges reached from it.  Reached exchanges are marked, so
 * each is visited once; router->reached has those that are not visited yet. */
static qs_status walk(struct qsi_router *router, struct qsi_exchange *exchange,
                      const struct qsi_routing *routing)
{
    struct qsi_collection collection;
    uint16_t by_properties = 0;
    bool by_headers = false;

    qsi_collect_begin(&collection, router);
    QS_TRY(qsi_collect_destination(&collection, &exchange->destination));
    for (size_t at = 0; at < router->reached.bytes; at += sizeof exchange) {
        memcpy(&exchange, router->reached.data + at, sizeof exchange);
        collection.has_matched = false;
        by_headers = by_headers || exchange->by_headers;
        by_properties |= exchange->by_properties;
        QS_TRY(exchange->type->collect(&collection, exchange, routing));
        if (!collection.has_matched) {
            QS_TRY(reach_alternate(&collection, exchange));
        }
    }
    router->walked = qsi_collect_finish(&collection);
    router->walked.by_headers = by_headers;
    router->walked.by_properties = by_properties;
    return QS_OK;
}

/* Routes through several exchanges are cached at the first of them, until anything changes. */
static qs_status walk_or_remember(struct qsi_router *router, struct qsi_exchange *exchange,
                                  const struct qsi_routing *routing,
                                  const struct qsi_route **route_out)
{
    bool is_one_key = routing->copy_count == 0;

    if (exchange->walked_version != router->version) {
        qsi_route_cache_forget(router, &exchange->walked);
        exchange->walked_version = router->version;
    }
    *route_out = is_one_key ? qsi_route_cache_get(&exchange->walked, routing->key) : NULL;
    if (*route_out != NULL) {
        return QS_OK;
    }
    QS_TRY(walk(router, exchange, routing));
    *route_out = &router->walked;
    if (is_one_key && !router->walked.by_headers) {
        return qsi_route_cache_put(router, &exchange->walked, routing->key, &router->walked,
                                   route_out);
    }
    return QS_OK;
}

/* Inline, because every message is looked up here. */
static inline qs_status look_up(struct qsi_router *router, struct qsi_exchange *exchange,
                                const struct qsi_routing *routing,
                                const struct qsi_route **route_out, qs_error *error)
{
    qs_status status;

    if (QS_LIKELY(exchange->is_plain && routing->copy_count == 0)) {
        status = exchange->type->lookup(router, exchange, routing->key, route_out);
    } else {
        status = walk_or_remember(router, exchange, routing, route_out);
    }
    return QS_LIKELY(status == QS_OK) ? QS_OK : qsi_router_out_of_memory(error);
}

qs_status qsi_exchange_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                              const struct qsi_routing *routing, const struct qsi_route **route_out,
                              qs_error *error)
{
    return look_up(router, exchange, routing, route_out, error);
}

/* Refuses a publish by name to a queue that takes none. */
static qs_status check_unroutable(struct qsi_router *router, const struct qsi_exchange *exchange,
                                  struct qsi_slice key, qs_error *error)
{
    const struct qsi_destination *destination =
        exchange->type == &qsi_match_default ? qsi_router_find_destination(router, key) : NULL;

    return destination != NULL && destination->takes_none
               ? qsi_router_fail_takes_none(router, key, error)
               : QS_OK;
}

qs_status qsi_router_lookup(struct qsi_router *router, struct qsi_slice exchange,
                            const struct qsi_routing *routing, const struct qsi_route **route_out,
                            qs_error *error)
{
    struct qsi_exchange *found;

    QS_TRY(qsi_router_require(router, exchange, &found, error));
    if (QS_UNLIKELY(found->internal)) {
        return qsi_fail(error, QS_ACCESS_REFUSED, "cannot publish to internal exchange '%.*s'%s",
                        QSI_PRINT(exchange), router->place);
    }
    QS_TRY(look_up(router, found, routing, route_out, error));
    return QS_LIKELY((*route_out)->count > 0)
               ? QS_OK
               : check_unroutable(router, found, routing->key, error);
}
