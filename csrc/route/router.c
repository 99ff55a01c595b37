/* The router: predeclared exchanges, destinations, and visiting all of them.
 *
 * Invariants: a binding is in router->bindings, in its exchange's list, in its destination's list
 * and in the set of its exchange's matcher, or in none of them; every change that can change a
 * route raises the version; a failed call changes nothing. */
#include "check.h"
#include "match.h"
#include "route_internal.h"

#include <string.h>

qs_status qsi_router_add_destination(struct qsi_router *router, struct qsi_destination *destination,
                                     qs_error *error)
{
    struct qsi_slice name = destination->name;

    QS_ASSERT(qsi_router_find_destination(router, name) == NULL);
    if (qsi_map_put(&router->destinations, name.data, name.bytes, destination) != QS_OK) {
        return qsi_router_out_of_memory(error);
    }
    qsi_list_init(&destination->bindings);
    qsi_list_init(&destination->tallies);
    destination->recent_tally = NULL;
    destination->published = 0;
    destination->exchange = NULL;
    destination->self = destination;
    destination->own_route = (struct qsi_route){.count = 1, .destinations = &destination->self};
    QS_DCHECK(destination->own_route.count == 1);
    destination->order = router->next_order++;
    destination->mark = 0;
    router->version++;
    return QS_OK;
}

void qsi_router_forget(struct qsi_router *router)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        struct qsi_exchange *exchange = qsi_exchange_at(node);

        qsi_route_cache_forget(router, &exchange->walked);
        if (exchange->type->forget != NULL) {
            exchange->type->forget(router, exchange->matcher);
        }
    }
    QS_ASSERT(router->remembered_bytes == 0);
    router->version++;
}

void qsi_router_visit_exchanges(const struct qsi_router *router,
                                void (*visit)(void *context, const struct qsi_exchange *exchange),
                                void *context)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        visit(context, qsi_exchange_at(node));
    }
}

void qsi_router_visit_bindings(const struct qsi_router *router,
                               void (*visit)(void *context, const struct qsi_binding *binding),
                               void *context)
{
    for (struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        const struct qsi_list *bindings = &qsi_exchange_at(node)->bindings;

        for (struct qsi_list *at = bindings->next; at != bindings; at = at->next) {
            visit(context, QSI_LIST_OWNER(at, struct qsi_binding, in_exchange));
        }
    }
}

static qs_status predeclare(struct qsi_router *router, struct qsi_slice name,
                            const struct qsi_exchange_type *type, bool internal, qs_error *error)
{
    const struct qsi_exchange_options options = {.durable = true, .internal = internal};
    struct qsi_exchange *exchange;

    QS_TRY(qsi_router_add_exchange(router, name, type, &options, &exchange, error));
    QS_DCHECK(exchange->durable && !exchange->auto_delete);
    exchange->predeclared = true;
    return QS_OK;
}

/* amq.rabbitmq.trace, the last one, gets the copies of traced messages; clients cannot publish to
 * it. */
static qs_status predeclare_all(struct qsi_router *router, qs_error *error)
{
    static const struct {
        const char *name;
        const struct qsi_exchange_type *type;
        bool internal;
    } all[] = {
        {"", &qsi_match_default, false},
        {"amq.direct", &qsi_match_direct, false},
        {"amq.fanout", &qsi_match_fanout, false},
        {"amq.headers", &qsi_match_headers, false},
        {"amq.match", &qsi_match_headers, false},
        {"amq.topic", &qsi_match_topic, false},
        {"amq.rabbitmq.trace", &qsi_match_topic, true},
    };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct qsi_slice name = qsi_slice_make(all[i].name, (uint32_t)strlen(all[i].name));
        QS_TRY(predeclare(router, name, all[i].type, all[i].internal, error));
    }
    return QS_OK;
}

qs_status qsi_router_init(struct qsi_router *router, qsi_exchange_deleted *deleted, void *context,
                          qs_error *error)
{
    qs_status status;

    *router = (struct qsi_router){
        .place = QSI_ROUTE_PLACE_DEFAULT, .deleted = deleted, .deleted_context = context};
    qsi_list_init(&router->exchanges);
    status = predeclare_all(router, error);
    if (status != QS_OK) {
        qsi_router_fini(router);
    }
    return status;
}

void qsi_router_fini(struct qsi_router *router)
{
    if (router == NULL || router->exchanges.next == NULL) {
        return; /* zeroed memory */
    }
    while (!qsi_list_is_empty(&router->exchanges)) {
        qsi_router_drop_exchange(router, qsi_exchange_at(router->exchanges.next), NULL);
    }
    QS_ASSERT(router->bindings.count == 0);
    QS_DCHECK(router->exchange_names.count == 0 && router->remembered_bytes == 0);
    qsi_map_fini(&router->exchange_names);
    qsi_map_fini(&router->destinations);
    qsi_map_fini(&router->bindings);
    qsi_buf_fini(&router->collected);
    qsi_buf_fini(&router->reached);
    qsi_buf_fini(&router->identity);
    *router = (struct qsi_router){0};
}
