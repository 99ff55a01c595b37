/* Debug builds: checks that exchanges, bindings and destinations agree. */
#include "check.h"
#include "match.h"
#include "route_internal.h"

#ifndef NDEBUG

static bool has_node(const struct qsi_list *list, const struct qsi_list *node)
{
    for (const struct qsi_list *at = list->next; at != list; at = at->next) {
        if (at == node) {
            return true;
        }
    }
    return false;
}

static void check_list(const struct qsi_list *list)
{
    const struct qsi_list *at = list;

    do {
        QS_DCHECK(at->next->previous == at && at->previous->next == at);
        at = at->next;
    } while (at != list);
}

/* Returns the number of bindings from the exchange. */
static uint32_t check_exchange(const struct qsi_router *router, const struct qsi_exchange *exchange)
{
    uint32_t count = 0, onward = 0;

    check_list(&exchange->bindings);
    check_list(&exchange->destination.bindings);
    QS_DCHECK(exchange->destination.exchange == exchange);
    QS_DCHECK(qsi_map_get(&router->exchange_names, exchange->name.data, exchange->name.bytes) ==
              exchange);
    for (const struct qsi_list *node = exchange->bindings.next; node != &exchange->bindings;
         node = node->next) {
        const struct qsi_binding *binding =
            QSI_LIST_OWNER(node, const struct qsi_binding, in_exchange);
        QS_DCHECK(binding->exchange == exchange);
        QS_DCHECK(qsi_map_get(&router->bindings, binding->identity, binding->identity_bytes) ==
                  binding);
        count += 1;
        onward += binding->destination->exchange != NULL ? 1 : 0;
    }
    QS_DCHECK(exchange->binding_count == count && exchange->onward_count == onward);
    QS_DCHECK(!exchange->is_plain || (onward == 0 && exchange->type->lookup != NULL &&
                                      !exchange->by_headers && exchange->alternate.bytes == 0));
    return count;
}

/* Checks that each destination has the bindings to it; their other end is checked above. */
static uint32_t check_destination(const struct qsi_destination *destination)
{
    uint32_t count = 0;

    check_list(&destination->bindings);
    for (const struct qsi_list *node = destination->bindings.next; node != &destination->bindings;
         node = node->next) {
        const struct qsi_binding *binding =
            QSI_LIST_OWNER(node, const struct qsi_binding, in_destination);
        QS_DCHECK(binding->destination == destination);
        count += 1;
    }
    return count;
}

void qsi_router_check(const struct qsi_router *router)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&router->destinations);
    uint64_t from_exchanges = 0, to_destinations = 0, exchanges = 0;

    check_list(&router->exchanges);
    for (const struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        const struct qsi_exchange *exchange = qsi_exchange_at(node);
        exchanges += 1;
        from_exchanges += check_exchange(router, exchange);
        to_destinations += check_destination(&exchange->destination);
    }
    while (qsi_map_next(&router->destinations, &cursor)) {
        const struct qsi_destination *destination = cursor.value;
        QS_DCHECK(destination->exchange == NULL && destination->order < router->next_order);
        to_destinations += check_destination(destination);
    }
    QS_DCHECK(router->exchange_names.count == exchanges);
    QS_DCHECK(router->bindings.count == from_exchanges && from_exchanges == to_destinations);
    QS_DCHECK(router->recent == NULL || has_node(&router->exchanges, &router->recent->in_router));
}

#endif
