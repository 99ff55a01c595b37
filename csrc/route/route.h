/* Exchanges, bindings, and routing: from (exchange, routing key, headers) to the queues of a
 * message.
 *
 * There is one router per store.  Its owner holds one lock around every call.  No function blocks
 * or does input or output, and slices are copied, except the name of a destination.
 *
 * Names, keys and refusals follow RabbitMQ.  The default exchange "" leads to the destination with
 * the name of the key, and cannot be declared, bound or deleted.  Names that begin with "amq." are
 * reserved.  Binding twice is like binding once, and unbinding a missing binding succeeds.
 *
 * A route is valid until qsi_router.version changes.  Every change of topology raises it, and so
 * does a qsi_router_trim() that drops something; lookups do not.  So a batch may look up routes for
 * all its rows, and a caller that keeps a route for longer keeps the version with it.  Routes that
 * are not cached, because they depend on headers or on several keys, are valid only until the next
 * lookup. */
#ifndef QSI_ROUTE_H
#define QSI_ROUTE_H

#include "qstore/status.h"

#include "buf.h"
#include "list.h"
#include "map.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Limit of exchange names and routing keys: an AMQP short string. */
#define QSI_ROUTE_NAME_BYTES_MAX 255u
/* Limit of cached routes: see qsi_router_trim. */
#define QSI_ROUTE_CACHE_BYTES_MAX (16u * 1024 * 1024)

struct qsi_destination;
struct qsi_exchange;
struct qsi_binding;
struct qsi_binding_set;
struct qsi_headers_pattern;
struct qsi_properties;
struct qsi_shared_selector;
struct qsi_tally; /* tally.h */

/* The destinations of a message: each queue once, in the order in which they were added to the
 * router. */
struct qsi_route {
    uint32_t count;
    /* An exchange on the way used headers: other messages with this key may have other routes. */
    bool by_headers;
    uint16_t by_properties; /* the same for properties: qsi_property_flag() of each */
    struct qsi_destination *const *destinations;
};

/* The parts of a message that determine its route. */
struct qsi_routing {
    struct qsi_slice key;
    const struct qsi_slice *copies; /* further keys, from CC and BCC */
    uint32_t copy_count;
    struct qsi_slice headers; /* a field table; null: none.  Malformed parts are ignored */
    const struct qsi_properties *properties; /* NULL: none */
};

/* Routes by key, valid until topology changes.  Zeroed memory is an empty cache. */
struct qsi_route_cache {
    struct qsi_map keys;   /* key to its route */
    struct qsi_map routes; /* destinations as bytes to the route, if it has two or more */
    uint64_t bytes;        /* approximate memory of the cache */
};

/* A queue or an exchange as a destination.  A queue embeds this; its owner sets the name and leaves
 * the rest. */
struct qsi_destination {
    /* Unique among queues, or among exchanges; its bytes stay in place until the destination is
     * removed. */
    struct qsi_slice name;
    struct qsi_exchange *exchange; /* the exchange that this is part of; NULL: a queue */
    struct qsi_list bindings;      /* of qsi_binding.in_destination, oldest first */
    struct qsi_destination *self;  /* target of own_route */
    /* A route to this destination only: the most frequent route needs no memory of its own. */
    struct qsi_route own_route;
    bool takes_none; /* publishing to it is refused; set by the owner, like the name */
    uint64_t order;  /* the order of routes */
    uint64_t mark;   /* number of the last collection that found this destination */
    /* Of a queue, see tally.h. */
    struct qsi_tally *recent_tally; /* of the exchange of the latest messages; or NULL */
    struct qsi_list tallies;        /* qsi_tally.in_destination */
    /* Messages without a tally, because their exchange was deleted. */
    uint64_t published, confirmed;
};

struct qsi_exchange_type;

/* Read by the owner, written by the router. */
struct qsi_exchange {
    struct qsi_list in_router; /* qsi_router.exchanges */
    /* In the list of auto-delete exchanges that lost their last binding. */
    struct qsi_list in_done;
    struct qsi_destination destination; /* for bindings from other exchanges */
    struct qsi_slice name;
    const struct qsi_exchange_type *type;
    struct qsi_slice arguments; /* as declared */
    /* Exchange for messages without a matching binding; no bytes: none. */
    struct qsi_slice alternate;
    bool durable;
    bool auto_delete;              /* deleted when the last binding from it is removed */
    bool internal;                 /* takes no messages from publishers */
    bool predeclared;              /* "" and amq.*: always there, never deleted */
    bool by_headers;               /* headers determine its routes */
    uint16_t by_properties;        /* these properties do, too */
    bool is_plain;                 /* only the key decides, and no other exchange takes part */
    uint32_t binding_count;        /* from it */
    uint32_t onward_count;         /* bindings that lead to exchanges */
    struct qsi_list bindings;      /* of qsi_binding.in_exchange, oldest first */
    void *matcher;                 /* of the type: bindings arranged for lookup */
    struct qsi_route_cache walked; /* routes through other exchanges */
    uint64_t walked_version;       /* router's version for which walked is valid */
    /* Counters of the owner. */
    uint64_t published_in, returned, dropped, confirmed;
    uint64_t published_out;  /* copies without a tally, because their queue was deleted */
    struct qsi_list tallies; /* qsi_tally.in_exchange */
    uint8_t bytes[];         /* of name and arguments */
};

/* A binding from an exchange to a queue or another exchange.  It survives a restart if both its
 * ends do. */
struct qsi_binding {
    struct qsi_exchange *exchange;
    struct qsi_destination *destination;
    struct qsi_slice key;
    struct qsi_slice arguments;
    struct qsi_list in_exchange;
    struct qsi_list in_destination;
    struct qsi_list in_set; /* in the set of bindings that match the same keys */
    struct qsi_binding_set *set;
    struct qsi_headers_pattern *pattern; /* of a headers exchange, in place of a set */
    /* Of an x-jms-topic exchange; NULL: all messages are selected. */
    struct qsi_shared_selector *selector;
    uint32_t identity_bytes;
    uint8_t identity[]; /* the key of qsi_router.bindings; key and arguments point into it */
};

/* What happens to auto-delete exchanges that lose their last binding in a call. */
enum qsi_auto_delete {
    QSI_AUTO_DELETE_GOES,
    QSI_AUTO_DELETE_STAYS, /* during replay: the journal has a record of their deletion */
};

/* Called when an auto-delete exchange has lost its last binding; it is deleted after the call,
 * which may read it but must not call the router. */
typedef void qsi_exchange_deleted(void *context, const struct qsi_exchange *exchange);

#define QSI_ROUTE_PLACE_DEFAULT " in this store"

struct qsi_router {
    uint64_t version;
    struct qsi_list exchanges;     /* in order of declaration, predeclared ones first */
    struct qsi_map exchange_names; /* name to qsi_exchange */
    struct qsi_map destinations;   /* name to queue: the bindings of the default exchange */
    struct qsi_map bindings;       /* exchange, destination, key, arguments to qsi_binding */
    /* The last exchange found by name, or NULL: the next one is often the same. */
    struct qsi_exchange *recent;
    struct qsi_destination *recent_destination; /* likewise */
    /* Text after names in error texts; QSI_ROUTE_PLACE_DEFAULT until it is set. */
    const char *place;
    qsi_exchange_deleted *deleted; /* may be NULL */
    void *deleted_context;
    uint64_t next_order;
    uint64_t mark;             /* number of the last collection */
    struct qsi_buf collected;  /* qsi_destination *: reused by every collection */
    struct qsi_buf reached;    /* qsi_exchange *: exchanges found by the collection */
    struct qsi_route walked;   /* the last route that was not cached */
    struct qsi_buf identity;   /* a key of bindings, while it is built */
    uint64_t remembered_bytes; /* bytes of cached routes */
};

/* Declares "" and amq.direct, amq.fanout, amq.headers, amq.match, amq.topic.  deleted may be
 * NULL. */
qs_status qsi_router_init(struct qsi_router *router, qsi_exchange_deleted *deleted, void *context,
                          qs_error *error) QS_MUST_CHECK;
/* Frees exchanges and bindings without calling deleted, and removes the destinations, which must
 * still exist.  Zeroed memory is fine. */
void qsi_router_fini(struct qsi_router *router);

/* ---- exchanges ---- */

struct qsi_exchange_options {
    struct qsi_slice type;      /* "direct", "fanout", "headers", "topic", "x-consistent-hash",
                                   "x-modulus-hash", "x-jms-topic" */
    struct qsi_slice arguments; /* an encoded table, stored unchanged */
    bool durable;
    bool auto_delete;
    bool internal;
    bool replayed; /* its arguments were accepted when it was declared first */
};

/* Creates the exchange, or checks that an existing one equals the declaration; *created_out: it was
 * created.  Of the arguments only alternate-exchange is compared, as in RabbitMQ.
 * QS_ACCESS_REFUSED         "" or a reserved name that is not predeclared
 * QS_PRECONDITION_FAILED    it is there with another type, other flags or another alternate
 *                           exchange; alternate-exchange is not a string
 * QS_COMMAND_INVALID        no such type;  QS_EINVAL  name too long;  QS_ENOMEM */
qs_status qsi_router_declare(struct qsi_router *router, struct qsi_slice name,
                             const struct qsi_exchange_options *options, bool *created_out,
                             qs_error *error) QS_MUST_CHECK;
/* NULL: there is none.  The exchange stays in place until it is deleted. */
struct qsi_exchange *qsi_router_find(struct qsi_router *router, struct qsi_slice name);
/* The same during a publish: it does not change qsi_router_looked_up. */
struct qsi_exchange *qsi_router_peek(const struct qsi_router *router, struct qsi_slice name);
/* The same, with QS_NOT_FOUND and its text. */
qs_status qsi_router_require(struct qsi_router *router, struct qsi_slice name,
                             struct qsi_exchange **exchange_out, qs_error *error) QS_MUST_CHECK;
/* The name of its type, "topic". */
struct qsi_slice qsi_exchange_type_name(const struct qsi_exchange *exchange);
/* Checks the name of an exchange to declare or to check, existing or not: QS_ACCESS_REFUSED for the
 * default exchange. */
qs_status qsi_exchange_check_name(struct qsi_slice name, qs_error *error) QS_MUST_CHECK;
/* Checks whether an exchange of this name may be deleted: QS_ACCESS_REFUSED for "" and reserved
 * names. */
qs_status qsi_router_check_delete_name(const struct qsi_router *router, struct qsi_slice name,
                                       qs_error *error) QS_MUST_CHECK;
/* The same for an existing one; QS_PRECONDITION_FAILED if if_unused is set and there are bindings
 * from it. */
qs_status qsi_router_check_delete(const struct qsi_router *router,
                                  const struct qsi_exchange *exchange, bool if_unused,
                                  qs_error *error) QS_MUST_CHECK;
/* Deletes the exchange and its bindings from and to it; with QSI_AUTO_DELETE_GOES also auto-delete
 * exchanges that lose their last binding by that.  deleted is not called for this one.  REQUIRES
 * that qsi_router_check_delete allows it. */
void qsi_router_delete(struct qsi_router *router, struct qsi_exchange *exchange,
                       enum qsi_auto_delete auto_delete);

/* ---- destinations ---- */

/* Adds a queue.  REQUIRES that destination->name is set and not in use.  QS_ENOMEM. */
qs_status qsi_router_add_destination(struct qsi_router *router, struct qsi_destination *destination,
                                     qs_error *error) QS_MUST_CHECK;
/* Removes a queue and its bindings, in time proportional to their number; may delete auto-delete
 * exchanges. */
void qsi_router_remove_destination(struct qsi_router *router, struct qsi_destination *destination,
                                   enum qsi_auto_delete auto_delete);
/* NULL: there is none. */
struct qsi_destination *qsi_router_find_destination(struct qsi_router *router,
                                                    struct qsi_slice name);

/* ---- bindings ---- */

/* Adds a binding; *bound_out false: the same binding exists.  Bindings with different arguments are
 * different; for a headers exchange they are the pattern.  QS_ACCESS_REFUSED: the default exchange,
 * at either end; QS_PRECONDITION_FAILED: the exchange's type refuses the arguments; QS_EINVAL: the
 * key is too long; QS_ENOMEM. */
qs_status qsi_router_bind(struct qsi_router *router, struct qsi_exchange *exchange,
                          struct qsi_destination *destination, struct qsi_slice key,
                          struct qsi_slice arguments, bool *bound_out,
                          qs_error *error) QS_MUST_CHECK;
/* Checks key and arguments of a binding from the exchange: QS_PRECONDITION_FAILED. */
qs_status qsi_router_check_binding(const struct qsi_exchange *exchange, struct qsi_slice key,
                                   struct qsi_slice arguments, qs_error *error) QS_MUST_CHECK;
/* Like bind, for a binding that was accepted before: arguments that this build does not understand,
 * stored by another one, are ignored. */
qs_status qsi_router_bind_again(struct qsi_router *router, struct qsi_exchange *exchange,
                                struct qsi_destination *destination, struct qsi_slice key,
                                struct qsi_slice arguments, bool *bound_out,
                                qs_error *error) QS_MUST_CHECK;
/* Removes a binding; *unbound_out false: there was none.  May delete the exchange, if it is
 * auto-delete.  QS_ACCESS_REFUSED: the default exchange; QS_ENOMEM. */
qs_status qsi_router_unbind(struct qsi_router *router, struct qsi_exchange *exchange,
                            struct qsi_destination *destination, struct qsi_slice key,
                            struct qsi_slice arguments, enum qsi_auto_delete auto_delete,
                            bool *unbound_out, qs_error *error) QS_MUST_CHECK;

/* ---- lookup ---- */

/* Looks up the route of a message published to the named exchange; a route without queues is QS_OK
 * with count 0.
 *
 * Each exchange on the way passes the message to the destinations of its matching bindings, or, if
 * none matches, to its alternate exchange.  Each exchange is visited once, so circles end.  Unless
 * headers or several keys decide, a cached route takes one probe of a hash table and no allocation.
 * QS_NOT_FOUND: no such exchange; QS_ACCESS_REFUSED: it is internal; QS_ENOMEM. */
qs_status qsi_router_lookup(struct qsi_router *router, struct qsi_slice exchange,
                            const struct qsi_routing *routing, const struct qsi_route **route_out,
                            qs_error *error) QS_MUST_CHECK;
/* The exchange of the last successful lookup by name.  REQUIRES that no call since then changed
 * topology or found another exchange. */
static inline struct qsi_exchange *qsi_router_looked_up(const struct qsi_router *router)
{
    return router->recent;
}
/* The same for a given exchange, which may be internal.  QS_ENOMEM. */
qs_status qsi_exchange_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                              const struct qsi_routing *routing, const struct qsi_route **route_out,
                              qs_error *error) QS_MUST_CHECK;
/* Drops all cached routes. */
void qsi_router_forget(struct qsi_router *router);
/* The same if they take more than QSI_ROUTE_CACHE_BYTES_MAX.  Lookups only add, so call this once
 * in an operation, while no route is in use (before the rows of a batch are looked up). */
static inline void qsi_router_trim(struct qsi_router *router)
{
    if (router->remembered_bytes > QSI_ROUTE_CACHE_BYTES_MAX) {
        qsi_router_forget(router);
    }
}

/* ---- visiting ---- */

/* Visits exchanges in order of declaration, predeclared ones included. */
void qsi_router_visit_exchanges(const struct qsi_router *router,
                                void (*visit)(void *context, const struct qsi_exchange *exchange),
                                void *context);
/* Visits bindings by exchange, oldest first, without those of the default exchange. */
void qsi_router_visit_bindings(const struct qsi_router *router,
                               void (*visit)(void *context, const struct qsi_binding *binding),
                               void *context);

/* Debug builds: asserts that each binding is in the lists of both its ends and in the table, and
 * that exchanges count their bindings.  Release builds do nothing. */
#ifdef NDEBUG
#define qsi_router_check(router) ((void)(router))
#else
void qsi_router_check(const struct qsi_router *router);
#endif

#endif
