/* Removing bindings, exchanges and destinations, and with them auto-delete exchanges that lose
 * their last binding.
 *
 * done: a list, for one call, of such exchanges; NULL: they are not deleted. */
#include "check.h"
#include "route_internal.h"
#include "tally.h"

/* Returns the list for a call: an empty one, or NULL. */
static struct qsi_list *done_list(struct qsi_list *list, enum qsi_auto_delete auto_delete)
{
    qsi_list_init(list);
    return auto_delete == QSI_AUTO_DELETE_GOES ? list : NULL;
}

/* Call it after a binding of exchange was dropped: adds an auto-delete exchange without bindings to
 * done. */
static void collect_if_done(struct qsi_exchange *exchange, struct qsi_list *done)
{
    if (exchange->auto_delete && exchange->binding_count == 0 && done != NULL) {
        QS_DCHECK(qsi_list_is_empty(&exchange->in_done));
        qsi_list_push_back(done, &exchange->in_done);
    }
}

/* Drops the bindings to destination; their exchanges may be added to done. */
static void drop_bindings_to(struct qsi_router *router, struct qsi_destination *destination,
                             struct qsi_list *done)
{
    while (!qsi_list_is_empty(&destination->bindings)) {
        struct qsi_binding *binding =
            QSI_LIST_OWNER(destination->bindings.next, struct qsi_binding, in_destination);
        struct qsi_exchange *exchange = binding->exchange;

        QS_DCHECK(binding->destination == destination);
        qsi_router_drop_binding(router, binding);
        collect_if_done(exchange, done);
    }
}

void qsi_router_drop_exchange(struct qsi_router *router, struct qsi_exchange *exchange,
                              struct qsi_list *done)
{
    qsi_exchange_drop_tallies(exchange);
    while (!qsi_list_is_empty(&exchange->bindings)) {
        qsi_router_drop_binding(
            router, QSI_LIST_OWNER(exchange->bindings.next, struct qsi_binding, in_exchange));
    }
    QS_ASSERT(exchange->binding_count == 0 && exchange->onward_count == 0);
    drop_bindings_to(router, &exchange->destination, done);
    QS_DCHECK(qsi_list_is_empty(&exchange->in_done));
    if (router->recent == exchange) {
        router->recent = NULL;
    }
    qsi_map_remove(&router->exchange_names, exchange->name.data, exchange->name.bytes);
    qsi_list_remove(&exchange->in_router);
    qsi_exchange_destroy(router, exchange);
    router->version++;
}

/* Deletes the exchanges in done, and auto-delete exchanges that lose their last binding by that: a
 * list is used because such a chain may be long.  NULL: does nothing. */
static void delete_done(struct qsi_router *router, struct qsi_list *done)
{
    while (done != NULL && !qsi_list_is_empty(done)) {
        struct qsi_exchange *exchange = QSI_LIST_OWNER(done->next, struct qsi_exchange, in_done);

        qsi_list_remove(&exchange->in_done);
        QS_ASSERT(exchange->auto_delete && exchange->binding_count == 0);
        if (router->deleted != NULL) {
            router->deleted(router->deleted_context, exchange);
        }
        qsi_router_drop_exchange(router, exchange, done);
    }
}

qs_status qsi_router_unbind(struct qsi_router *router, struct qsi_exchange *exchange,
                            struct qsi_destination *destination, struct qsi_slice key,
                            struct qsi_slice arguments, enum qsi_auto_delete auto_delete,
                            bool *unbound_out, qs_error *error)
{
    struct qsi_list list, *done = done_list(&list, auto_delete);
    struct qsi_binding *binding = NULL;

    QS_TRY(qsi_binding_check_ends(exchange, destination, error));
    QS_TRY(qsi_router_find_binding(router, exchange, destination, key, arguments, &binding, error));
    *unbound_out = binding != NULL;
    if (binding != NULL) {
        qsi_router_drop_binding(router, binding);
        collect_if_done(exchange, done);
        delete_done(router, done);
    }
    return QS_OK;
}

void qsi_router_delete(struct qsi_router *router, struct qsi_exchange *exchange,
                       enum qsi_auto_delete auto_delete)
{
    struct qsi_list list, *done = done_list(&list, auto_delete);

    QS_ASSERT(!exchange->predeclared);
    qsi_router_drop_exchange(router, exchange, done);
    delete_done(router, done);
}

void qsi_router_remove_destination(struct qsi_router *router, struct qsi_destination *destination,
                                   enum qsi_auto_delete auto_delete)
{
    struct qsi_list list, *done = done_list(&list, auto_delete);
    struct qsi_slice name = destination->name;
    const struct qsi_destination *removed;

    qsi_destination_drop_tallies(destination);
    drop_bindings_to(router, destination, done);
    delete_done(router, done);
    QS_DCHECK(qsi_list_is_empty(&destination->bindings));
    router->recent_destination = NULL;
    removed = qsi_map_remove(&router->destinations, name.data, name.bytes);
    QS_ASSERT(removed == destination);
    router->version++;
}
