/* Inside the route floor: what an exchange type has to do, and what all types share. */
#ifndef QSI_MATCH_H
#define QSI_MATCH_H

#include "qstore/status.h"

#include "route.h"

/* The bindings of one exchange that match the same keys.  Zeroed memory is not one: init it. */
struct qsi_binding_set {
    struct qsi_list bindings;      /* of qsi_binding.in_set */
    const struct qsi_route *route; /* of these bindings; NULL until it is asked for */
};

void qsi_binding_set_init(struct qsi_binding_set *set);
/* REQUIRES no bindings. */
void qsi_binding_set_fini(struct qsi_binding_set *set);
void qsi_binding_set_add(struct qsi_binding_set *set, struct qsi_binding *binding);
void qsi_binding_set_remove(struct qsi_binding *binding);
/* The route of this set alone, built when it is first asked for.  QS_ENOMEM. */
qs_status qsi_binding_set_route(struct qsi_router *router, struct qsi_binding_set *set,
                                const struct qsi_route **route_out) QS_MUST_CHECK;

/* A route put together from several sets: begin, add each, then finish.  One at a time: the router
 * keeps the memory of what is collected, and exchanges that are met go to router->reached. */
struct qsi_collection {
    struct qsi_router *router;
    bool has_matched; /* something was met since this was cleared */
};
void qsi_collect_begin(struct qsi_collection *collection, struct qsi_router *router);
qs_status qsi_collect_destination(struct qsi_collection *collection,
                                  struct qsi_destination *destination) QS_MUST_CHECK;
qs_status qsi_collect_add(struct qsi_collection *collection,
                          const struct qsi_binding_set *set) QS_MUST_CHECK;
/* The queues collected, in route order; until the next begin. */
struct qsi_route qsi_collect_finish(const struct qsi_collection *collection);

/* A route with the destinations of that one.  Those of none or one destination take no memory. */
const struct qsi_route *qsi_route_create(const struct qsi_route *model); /* NULL: out of memory */
void qsi_route_destroy(const struct qsi_route *route);                   /* NULL is fine */
extern const struct qsi_route qsi_route_empty;

/* NULL: not remembered. */
const struct qsi_route *qsi_route_cache_get(const struct qsi_route_cache *cache,
                                            struct qsi_slice key);
/* Remembers a route with the destinations of model.  QS_ENOMEM. */
qs_status qsi_route_cache_put(struct qsi_router *router, struct qsi_route_cache *cache,
                              struct qsi_slice key, const struct qsi_route *model,
                              const struct qsi_route **route_out) QS_MUST_CHECK;
void qsi_route_cache_forget(struct qsi_router *router, struct qsi_route_cache *cache);

/* An exchange type.  add and remove keep the matcher such that lookup answers from the bindings
 * of the moment; routes given out earlier may be freed by them (the router raises its version). */
struct qsi_exchange_type {
    struct qsi_slice name;
    qs_status (*create)(void **matcher_out); /* QS_ENOMEM */
    /* REQUIRES no bindings. */
    void (*destroy)(struct qsi_router *router, void *matcher);
    qs_status (*add)(struct qsi_router *router, struct qsi_binding *binding); /* QS_ENOMEM */
    void (*remove)(struct qsi_router *router, struct qsi_binding *binding);
    /* Of a plain exchange: the key decides, and all bindings lead to queues.  NULL: none is plain.
     * QS_ENOMEM */
    qs_status (*lookup)(struct qsi_router *router, struct qsi_exchange *exchange,
                        struct qsi_slice key, const struct qsi_route **route_out);
    /* Adds what the bindings of any exchange lead to.  QS_ENOMEM */
    qs_status (*collect)(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing);
    /* Whether a binding may have this key and these arguments: QS_PRECONDITION_FAILED.  NULL:
     * any. */
    qs_status (*check)(struct qsi_slice key, struct qsi_slice arguments, qs_error *error);
    bool needs_check; /* also of a binding that was accepted before: add relies on it */
    /* Whether an exchange may be declared with these arguments: QS_PRECONDITION_FAILED.  NULL: with
     * any. */
    qs_status (*check_arguments)(struct qsi_slice arguments, qs_error *error);
    /* Do headers decide where messages of an exchange with these arguments go?  NULL: never. */
    bool (*looks_at_headers)(struct qsi_slice arguments);
    /* Drops what is remembered in router->remembered_bytes; NULL: nothing ever is. */
    void (*forget)(struct qsi_router *router, void *matcher);
};

extern const struct qsi_exchange_type qsi_match_default; /* of the exchange "" alone */
extern const struct qsi_exchange_type qsi_match_direct;
extern const struct qsi_exchange_type qsi_match_fanout;
extern const struct qsi_exchange_type qsi_match_topic;
extern const struct qsi_exchange_type qsi_match_jms_topic;
extern const struct qsi_exchange_type qsi_match_headers;
extern const struct qsi_exchange_type qsi_match_consistent_hash;
extern const struct qsi_exchange_type qsi_match_modulus_hash;

#endif
