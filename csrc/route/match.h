/* Inside the route floor: the interface of exchange types, and their common parts. */
#ifndef QSI_MATCH_H
#define QSI_MATCH_H

#include "qstore/status.h"

#include "route.h"

/* The bindings of one exchange that match the same keys.  Zeroed memory is invalid: call init. */
struct qsi_binding_set {
    struct qsi_list bindings;      /* list of qsi_binding.in_set */
    const struct qsi_route *route; /* of these bindings; NULL: not built yet */
};

void qsi_binding_set_init(struct qsi_binding_set *set);
/* REQUIRES no bindings. */
void qsi_binding_set_fini(struct qsi_binding_set *set);
void qsi_binding_set_add(struct qsi_binding_set *set, struct qsi_binding *binding);
void qsi_binding_set_remove(struct qsi_binding *binding);
/* The route of this set alone, built at the first call.  QS_ENOMEM. */
qs_status qsi_binding_set_route(struct qsi_router *router, struct qsi_binding_set *set,
                                const struct qsi_route **route_out) QS_MUST_CHECK;

/* Builds a route from several sets: begin, add each set, then finish.  Only one at a time: the
 * router has its memory, and exchanges found on the way are added to router->reached. */
struct qsi_collection {
    struct qsi_router *router;
    bool has_matched; /* a destination was found since this was set to false */
};
void qsi_collect_begin(struct qsi_collection *collection, struct qsi_router *router);
qs_status qsi_collect_destination(struct qsi_collection *collection,
                                  struct qsi_destination *destination) QS_MUST_CHECK;
qs_status qsi_collect_add(struct qsi_collection *collection,
                          const struct qsi_binding_set *set) QS_MUST_CHECK;
/* The queues found, in the order of routes; valid until the next begin. */
struct qsi_route qsi_collect_finish(const struct qsi_collection *collection);

/* Creates a route with the destinations of model.  With at most one destination it takes no
 * memory. */
const struct qsi_route *qsi_route_create(const struct qsi_route *model); /* NULL: out of memory */
void qsi_route_destroy(const struct qsi_route *route);                   /* NULL is fine */
extern const struct qsi_route qsi_route_empty;

/* NULL: not in the cache. */
const struct qsi_route *qsi_route_cache_get(const struct qsi_route_cache *cache,
                                            struct qsi_slice key);
/* Adds a route with the destinations of model.  QS_ENOMEM. */
qs_status qsi_route_cache_put(struct qsi_router *router, struct qsi_route_cache *cache,
                              struct qsi_slice key, const struct qsi_route *model,
                              const struct qsi_route **route_out) QS_MUST_CHECK;
void qsi_route_cache_forget(struct qsi_router *router, struct qsi_route_cache *cache);

/* An exchange type.  add and remove update the matcher, so that lookup uses the current bindings;
 * they may free routes returned earlier (the router raises its version). */
struct qsi_exchange_type {
    struct qsi_slice name;
    qs_status (*create)(void **matcher_out); /* QS_ENOMEM */
    /* REQUIRES no bindings. */
    void (*destroy)(struct qsi_router *router, void *matcher);
    qs_status (*add)(struct qsi_router *router, struct qsi_binding *binding); /* QS_ENOMEM */
    void (*remove)(struct qsi_router *router, struct qsi_binding *binding);
    /* For a plain exchange: only the key decides, all bindings lead to queues, and there is no
     * alternate exchange.  NULL: no exchange of the type is plain.  QS_ENOMEM. */
    qs_status (*lookup)(struct qsi_router *router, struct qsi_exchange *exchange,
                        struct qsi_slice key, const struct qsi_route **route_out);
    /* Adds the destinations of matching bindings, for any exchange.  QS_ENOMEM. */
    qs_status (*collect)(struct qsi_collection *collection, struct qsi_exchange *exchange,
                         const struct qsi_routing *routing);
    /* Checks key and arguments of a binding: QS_PRECONDITION_FAILED.  NULL: any are allowed. */
    qs_status (*check)(struct qsi_slice key, struct qsi_slice arguments, qs_error *error);
    bool needs_check; /* also for a binding that was accepted before: add relies on the check */
    /* Checks the arguments of an exchange: QS_PRECONDITION_FAILED.  NULL: any are allowed. */
    qs_status (*check_arguments)(struct qsi_slice arguments, qs_error *error);
    /* Whether headers decide about messages of an exchange with these arguments.  NULL: never. */
    bool (*looks_at_headers)(struct qsi_slice arguments);
    /* Drops what is counted in router->remembered_bytes; NULL: the type caches nothing. */
    void (*forget)(struct qsi_router *router, void *matcher);
};

extern const struct qsi_exchange_type qsi_match_default; /* only of the exchange "" */
extern const struct qsi_exchange_type qsi_match_direct;
extern const struct qsi_exchange_type qsi_match_fanout;
extern const struct qsi_exchange_type qsi_match_topic;
extern const struct qsi_exchange_type qsi_match_jms_topic;
extern const struct qsi_exchange_type qsi_match_headers;
extern const struct qsi_exchange_type qsi_match_consistent_hash;
extern const struct qsi_exchange_type qsi_match_modulus_hash;

#endif
