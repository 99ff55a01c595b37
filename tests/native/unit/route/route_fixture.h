/* What the tests of routing share: slices of literals, queues by number, an allocator that
 * fails. */
#ifndef ROUTE_FIXTURE_H
#define ROUTE_FIXTURE_H

#include "qstore/alloc.h"

#include "check.h"
#include "qs_test_alloc.h"
#include "route.h"

#define NO_ARGUMENTS QSI_SLICE_NULL

static inline struct qsi_slice text(const char *string)
{
    return qsi_slice_make(string, (uint32_t)strlen(string));
}

static inline const struct qsi_routing *routing_of(struct qsi_slice key)
{
    static struct qsi_routing routing;

    routing = (struct qsi_routing){.key = key};
    return &routing;
}

struct queue {
    struct qsi_destination destination;
    char name[16];
};

static inline void add_queue(struct qsi_router *router, struct queue *queue, int number)
{
    snprintf(queue->name, sizeof queue->name, "q%d", number);
    queue->destination.name = text(queue->name);
    queue->destination.takes_none = false;
    QS_CHECK(qsi_router_add_destination(router, &queue->destination, NULL) == QS_OK);
}

static inline struct qsi_exchange *declare(struct qsi_router *router, const char *name,
                                           const char *type)
{
    const struct qsi_exchange_options options = {.type = text(type)};
    bool created;

    QS_CHECK(qsi_router_declare(router, text(name), &options, &created, NULL) == QS_OK);
    return qsi_router_find(router, text(name));
}

static inline bool bind(struct qsi_router *router, struct qsi_exchange *exchange,
                        struct queue *queue, struct qsi_slice key)
{
    bool bound;

    QS_CHECK(qsi_router_bind(router, exchange, &queue->destination, key, NO_ARGUMENTS, &bound,
                             NULL) == QS_OK);
    return bound;
}

static inline bool unbind(struct qsi_router *router, struct qsi_exchange *exchange,
                          struct queue *queue, struct qsi_slice key)
{
    bool unbound;

    QS_CHECK(qsi_router_unbind(router, exchange, &queue->destination, key, NO_ARGUMENTS,
                               QSI_AUTO_DELETE_GOES, &unbound, NULL) == QS_OK);
    return unbound;
}

static inline const struct qsi_route *lookup(struct qsi_router *router,
                                             struct qsi_exchange *exchange, struct qsi_slice key)
{
    const struct qsi_route *route = NULL;

    QS_CHECK(qsi_exchange_lookup(router, exchange, routing_of(key), &route, NULL) == QS_OK);
    return route;
}

static inline bool leads_to(const struct qsi_route *route, const struct queue *queue)
{
    for (uint32_t i = 0; i < route->count; i++) {
        if (route->destinations[i] == &queue->destination) {
            return true;
        }
    }
    return false;
}

#endif
