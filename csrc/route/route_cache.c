/* Routes cached by routing key: an exchange's results until topology changes.
 *
 * There are many more keys than routes, so equal routes are stored once.
 *
 * Invariant: the memory of a cache is counted in it and in its router. */
#include "check.h"
#include "match.h"

/* Approximate memory of a cached key or route besides its bytes: an entry of a map. */
#define ENTRY_BYTES 80u

static void count_remembered(struct qsi_router *router, struct qsi_route_cache *cache,
                             uint64_t bytes)
{
    cache->bytes += bytes;
    router->remembered_bytes += bytes;
    QS_DCHECK(cache->bytes <= router->remembered_bytes);
}

void qsi_route_cache_forget(struct qsi_router *router, struct qsi_route_cache *cache)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&cache->routes);

    while (qsi_map_next(&cache->routes, &cursor)) {
        qsi_route_destroy(cursor.value);
    }
    qsi_map_fini(&cache->routes);
    qsi_map_fini(&cache->keys);
    QS_ASSERT(router->remembered_bytes >= cache->bytes);
    router->remembered_bytes -= cache->bytes;
    cache->bytes = 0;
}

static qs_status add_route(struct qsi_router *router, struct qsi_route_cache *cache,
                           const struct qsi_route *model, const struct qsi_route **route_out)
{
    size_t bytes = model->count * sizeof(struct qsi_destination *);
    const struct qsi_route *route = qsi_route_create(model);

    QS_DCHECK(model->count > 1);
    if (route == NULL) {
        return QS_ENOMEM;
    }
    if (qsi_map_put(&cache->routes, model->destinations, bytes, (void *)route) != QS_OK) {
        qsi_route_destroy(route);
        return QS_ENOMEM;
    }
    count_remembered(router, cache, 2 * bytes + ENTRY_BYTES); /* as a key and in the route */
    *route_out = route;
    return QS_OK;
}

/* Finds or creates the route with the destinations of model. */
static qs_status share_route(struct qsi_router *router, struct qsi_route_cache *cache,
                             const struct qsi_route *model, const struct qsi_route **route_out)
{
    if (model->count <= 1) {
        *route_out = qsi_route_create(model); /* these take no memory, so they are shared anyway */
        return QS_OK;
    }
    *route_out = qsi_map_get(&cache->routes, model->destinations,
                             model->count * sizeof(struct qsi_destination *));
    return *route_out != NULL ? QS_OK : add_route(router, cache, model, route_out);
}

const struct qsi_route *qsi_route_cache_get(const struct qsi_route_cache *cache,
                                            struct qsi_slice key)
{
    return qsi_map_get(&cache->keys, key.data, key.bytes);
}

qs_status qsi_route_cache_put(struct qsi_router *router, struct qsi_route_cache *cache,
                              struct qsi_slice key, const struct qsi_route *model,
                              const struct qsi_route **route_out)
{
    QS_DCHECK(!model->by_headers); /* other messages with this key may have other routes */
    QS_TRY(share_route(router, cache, model, route_out));
    QS_TRY(qsi_map_put(&cache->keys, key.data, key.bytes, (void *)*route_out));
    count_remembered(router, cache, key.bytes + ENTRY_BYTES);
    return QS_OK;
}
