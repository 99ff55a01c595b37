/* Finding exchanges and destinations by name. */
#include "check.h"
#include "error.h"
#include "route_internal.h"

struct qsi_exchange *qsi_router_find(struct qsi_router *router, struct qsi_slice name)
{
    struct qsi_exchange *exchange = router->recent;

    if (exchange == NULL || !qsi_same_bytes(exchange->name, name)) {
        exchange = qsi_map_get(&router->exchange_names, name.data, name.bytes);
        if (exchange != NULL) {
            router->recent = exchange;
        }
    }
    return exchange;
}

struct qsi_exchange *qsi_router_peek(const struct qsi_router *router, struct qsi_slice name)
{
    struct qsi_exchange *recent = router->recent;

    return recent != NULL && qsi_same_bytes(recent->name, name)
               ? recent
               : qsi_map_get(&router->exchange_names, name.data, name.bytes);
}

qs_status qsi_router_require(struct qsi_router *router, struct qsi_slice name,
                             struct qsi_exchange **exchange_out, qs_error *error)
{
    *exchange_out = qsi_router_find(router, name);
    if (*exchange_out == NULL) {
        return qsi_fail(error, QS_NOT_FOUND, "no exchange '%.*s'%s", QSI_PRINT(name),
                        router->place);
    }
    return QS_OK;
}

struct qsi_destination *qsi_router_find_destination(struct qsi_router *router,
                                                    struct qsi_slice name)
{
    struct qsi_destination *destination = router->recent_destination;

    if (destination == NULL || !qsi_same_bytes(destination->name, name)) {
        destination = qsi_map_get(&router->destinations, name.data, name.bytes);
        if (destination != NULL) {
            router->recent_destination = destination;
        }
    }
    return destination;
}

qs_status qsi_router_fail_takes_none(const struct qsi_router *router, struct qsi_slice queue,
                                     qs_error *error)
{
    return qsi_fail(error, QS_PRECONDITION_FAILED,
                    "queue '%.*s'%s takes no messages: it reads a stream, publish to that",
                    QSI_PRINT(queue), router->place);
}
