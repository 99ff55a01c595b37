/* The types that compare the whole key or ignore it: default, direct and fanout.
 *
 * The matcher of a direct exchange maps each key to the set of its bindings; that of a fanout
 * exchange is one set.  The default exchange needs none: its bindings are the router's table of
 * destinations. */
#include "alloc.h"
#include "check.h"
#include "match.h"

/* -- default ---------------------------------------------------------------------------------- */

static qs_status create_nothing(void **matcher_out)
{
    *matcher_out = NULL;
    return QS_OK;
}

static void destroy_nothing(struct qsi_router *router, void *matcher)
{
    (void)router;
    QS_ASSERT(matcher == NULL);
}

static qs_status lookup_default(struct qsi_router *router, struct qsi_exchange *exchange,
                                struct qsi_slice key, const struct qsi_route **route_out)
{
    const struct qsi_destination *destination = qsi_router_find_destination(router, key);

    (void)exchange;
    *route_out = destination != NULL && !destination->takes_none ? &destination->own_route
                                                                 : &qsi_route_empty;
    return QS_OK;
}

static qs_status collect_named(struct qsi_collection *collection, struct qsi_slice name)
{
    struct qsi_destination *destination = qsi_router_find_destination(collection->router, name);

    return destination != NULL && !destination->takes_none
               ? qsi_collect_destination(collection, destination)
               : QS_OK;
}

static qs_status collect_default(struct qsi_collection *collection, struct qsi_exchange *exchange,
                                 const struct qsi_routing *routing)
{
    (void)exchange;
    QS_TRY(collect_named(collection, routing->key));
    for (uint32_t i = 0; i < routing->copy_count; i++) {
        QS_TRY(collect_named(collection, routing->copies[i]));
    }
    return QS_OK;
}

/* No add and no remove: the router refuses bindings of the default exchange. */
const struct qsi_exchange_type qsi_match_default = {
    .name = {(const uint8_t *)"direct", 6},
    .create = create_nothing,
    .destroy = destroy_nothing,
    .lookup = lookup_default,
    .collect = collect_default,
};

/* -- direct ----------------------------------------------------------------------------------- */

static qs_status create_map(void **matcher_out)
{
    *matcher_out = qsi_zalloc(sizeof(struct qsi_map));
    return *matcher_out != NULL ? QS_OK : QS_ENOMEM;
}

static void destroy_map(struct qsi_router *router, void *matcher)
{
    struct qsi_map *sets = matcher;

    (void)router;
    QS_ASSERT(sets->count == 0);
    qsi_map_fini(sets);
    qsi_free(sets);
}

static qs_status add_set(struct qsi_map *sets, struct qsi_slice key,
                         struct qsi_binding_set **set_out)
{
    struct qsi_binding_set *set = qsi_alloc(sizeof *set);

    if (set == NULL) {
        return QS_ENOMEM;
    }
    qsi_binding_set_init(set);
    if (qsi_map_put(sets, key.data, key.bytes, set) != QS_OK) {
        qsi_free(set);
        return QS_ENOMEM;
    }
    *set_out = set;
    return QS_OK;
}

static qs_status add_by_key(struct qsi_router *router, struct qsi_binding *binding)
{
    struct qsi_map *sets = binding->exchange->matcher;
    struct qsi_binding_set *set = qsi_map_get(sets, binding->key.data, binding->key.bytes);

    (void)router;
    if (set == NULL) {
        QS_TRY(add_set(sets, binding->key, &set));
    }
    qsi_binding_set_add(set, binding);
    return QS_OK;
}

static void remove_by_key(struct qsi_router *router, struct qsi_binding *binding)
{
    struct qsi_map *sets = binding->exchange->matcher;
    struct qsi_binding_set *set = binding->set;

    QS_DCHECK(set == qsi_map_get(sets, binding->key.data, binding->key.bytes));
    (void)router;
    qsi_binding_set_remove(binding);
    if (qsi_list_is_empty(&set->bindings)) {
        qsi_map_remove(sets, binding->key.data, binding->key.bytes);
        qsi_binding_set_fini(set);
        qsi_free(set);
    }
}

static qs_status lookup_by_key(struct qsi_router *router, struct qsi_exchange *exchange,
                               struct qsi_slice key, const struct qsi_route **route_out)
{
    struct qsi_binding_set *set = qsi_map_get(exchange->matcher, key.data, key.bytes);

    if (set == NULL) {
        *route_out = &qsi_route_empty;
        return QS_OK;
    }
    return qsi_binding_set_route(router, set, route_out);
}

static qs_status collect_key(struct qsi_collection *collection, const struct qsi_exchange *exchange,
                             struct qsi_slice key)
{
    const struct qsi_binding_set *set = qsi_map_get(exchange->matcher, key.data, key.bytes);

    return set != NULL ? qsi_collect_add(collection, set) : QS_OK;
}

static qs_status collect_keys(struct qsi_collection *collection, struct qsi_exchange *exchange,
                              const struct qsi_routing *routing)
{
    QS_TRY(collect_key(collection, exchange, routing->key));
    for (uint32_t i = 0; i < routing->copy_count; i++) {
        QS_TRY(collect_key(collection, exchange, routing->copies[i]));
    }
    return QS_OK;
}

const struct qsi_exchange_type qsi_match_direct = {
    .name = {(const uint8_t *)"direct", 6},
    .create = create_map,
    .destroy = destroy_map,
    .add = add_by_key,
    .remove = remove_by_key,
    .lookup = lookup_by_key,
    .collect = collect_keys,
};

/* -- fanout ----------------------------------------------------------------------------------- */

static qs_status create_set(void **matcher_out)
{
    struct qsi_binding_set *set = qsi_alloc(sizeof *set);

    if (set == NULL) {
        return QS_ENOMEM;
    }
    qsi_binding_set_init(set);
    *matcher_out = set;
    return QS_OK;
}

static void destroy_set(struct qsi_router *router, void *matcher)
{
    (void)router;
    qsi_binding_set_fini(matcher);
    qsi_free(matcher);
}

static qs_status add_to_all(struct qsi_router *router, struct qsi_binding *binding)
{
    (void)router;
    qsi_binding_set_add(binding->exchange->matcher, binding);
    return QS_OK;
}

static void remove_from_all(struct qsi_router *router, struct qsi_binding *binding)
{
    (void)router;
    QS_ASSERT(binding->set == binding->exchange->matcher);
    qsi_binding_set_remove(binding);
}

static qs_status lookup_all(struct qsi_router *router, struct qsi_exchange *exchange,
                            struct qsi_slice key, const struct qsi_route **route_out)
{
    (void)key;
    return qsi_binding_set_route(router, exchange->matcher, route_out);
}

static qs_status collect_all(struct qsi_collection *collection, struct qsi_exchange *exchange,
                             const struct qsi_routing *routing)
{
    (void)routing;
    return qsi_collect_add(collection, exchange->matcher);
}

const struct qsi_exchange_type qsi_match_fanout = {
    .name = {(const uint8_t *)"fanout", 6},
    .create = create_set,
    .destroy = destroy_set,
    .add = add_to_all,
    .remove = remove_from_all,
    .lookup = lookup_all,
    .collect = collect_all,
};
