/* Sets of bindings, and routes built from them.
 *
 * A destination of several bindings is found several times and added once: each collection has a
 * number, and a destination is marked with the number of the last collection that added it.
 * Exchanges are not added to the route: the caller visits them next.
 *
 * Invariant: a set's route has exactly the destinations of its bindings, or is NULL. */
#include "alloc.h"
#include "check.h"
#include "match.h"

#include <stdlib.h>
#include <string.h>

const struct qsi_route qsi_route_empty = {0};

/* -- routes ----------------------------------------------------------------------------------- */

const struct qsi_route *qsi_route_create(const struct qsi_route *model)
{
    struct qsi_destination **destinations;
    struct qsi_route *route;

    QS_DCHECK(model->count == 0 || model->destinations != NULL);
    if (model->count == 0) {
        return &qsi_route_empty;
    }
    if (model->count == 1) {
        return &model->destinations[0]->own_route;
    }
    route = qsi_alloc(sizeof *route + model->count * sizeof(struct qsi_destination *));
    if (route == NULL) {
        return NULL;
    }
    destinations = (struct qsi_destination **)(void *)(route + 1);
    memcpy(destinations, model->destinations, model->count * sizeof(struct qsi_destination *));
    *route = (struct qsi_route){.count = model->count, .destinations = destinations};
    return route;
}

void qsi_route_destroy(const struct qsi_route *route)
{
    if (route != NULL && route->count > 1) {
        qsi_free((void *)route);
    }
}

/* -- collecting ------------------------------------------------------------------------------- */

void qsi_collect_begin(struct qsi_collection *collection, struct qsi_router *router)
{
    *collection = (struct qsi_collection){.router = router};
    qsi_buf_clear(&router->collected);
    qsi_buf_clear(&router->reached);
    router->mark++;
}

static struct qsi_binding *binding_at(const struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_binding, in_set);
}

qs_status qsi_collect_destination(struct qsi_collection *collection,
                                  struct qsi_destination *destination)
{
    struct qsi_router *router = collection->router;

    QS_DCHECK(destination->mark <= router->mark);
    collection->has_matched = true;
    if (destination->mark == router->mark) {
        return QS_OK;
    }
    if (destination->exchange != NULL) {
        QS_TRY(
            qsi_buf_append(&router->reached, &destination->exchange, sizeof destination->exchange));
    } else {
        QS_TRY(qsi_buf_append(&router->collected, &destination, sizeof destination));
    }
    destination->mark = router->mark;
    return QS_OK;
}

qs_status qsi_collect_add(struct qsi_collection *collection, const struct qsi_binding_set *set)
{
    const struct qsi_list *node;

    for (node = set->bindings.next; node != &set->bindings; node = node->next) {
        QS_DCHECK(binding_at(node)->set == set);
        QS_TRY(qsi_collect_destination(collection, binding_at(node)->destination));
    }
    return QS_OK;
}

static int compare_order(const void *left, const void *right)
{
    const struct qsi_destination *const *a = left;
    const struct qsi_destination *const *b = right;

    return ((*a)->order > (*b)->order) - ((*a)->order < (*b)->order);
}

/* Queues are usually bound in the order of their declaration, so usually no sort is needed. */
static bool is_sorted(const struct qsi_route *route)
{
    for (uint32_t i = 1; i < route->count; i++) {
        if (route->destinations[i - 1]->order > route->destinations[i]->order) {
            return false;
        }
    }
    return true;
}

struct qsi_route qsi_collect_finish(const struct qsi_collection *collection)
{
    const struct qsi_router *router = collection->router;
    struct qsi_destination **destinations =
        (struct qsi_destination **)(void *)router->collected.data;
    struct qsi_route route = {
        .count = (uint32_t)(router->collected.bytes / sizeof(struct qsi_destination *)),
        .destinations = destinations,
    };

    if (!is_sorted(&route)) {
        qsort(destinations, route.count, sizeof(struct qsi_destination *), compare_order);
    }
    QS_DCHECK(is_sorted(&route));
    return route;
}

/* -- sets ------------------------------------------------------------------------------------- */

static void drop_route(struct qsi_binding_set *set)
{
    qsi_route_destroy(set->route);
    set->route = NULL;
}

void qsi_binding_set_init(struct qsi_binding_set *set)
{
    qsi_list_init(&set->bindings);
    set->route = NULL;
}

void qsi_binding_set_fini(struct qsi_binding_set *set)
{
    QS_ASSERT(qsi_list_is_empty(&set->bindings));
    drop_route(set);
}

void qsi_binding_set_add(struct qsi_binding_set *set, struct qsi_binding *binding)
{
    QS_DCHECK(binding->set == NULL && qsi_list_is_empty(&binding->in_set));
    qsi_list_push_back(&set->bindings, &binding->in_set);
    binding->set = set;
    drop_route(set);
}

void qsi_binding_set_remove(struct qsi_binding *binding)
{
    QS_DCHECK(binding->set != NULL);
    qsi_list_remove(&binding->in_set);
    drop_route(binding->set);
    binding->set = NULL;
}

qs_status qsi_binding_set_route(struct qsi_router *router, struct qsi_binding_set *set,
                                const struct qsi_route **route_out)
{
    if (QS_UNLIKELY(set->route == NULL)) {
        struct qsi_collection collection;
        struct qsi_route collected;

        qsi_collect_begin(&collection, router);
        QS_TRY(qsi_collect_add(&collection, set));
        collected = qsi_collect_finish(&collection);
        set->route = qsi_route_create(&collected);
        if (set->route == NULL) {
            return QS_ENOMEM;
        }
    }
    *route_out = set->route;
    return QS_OK;
}
