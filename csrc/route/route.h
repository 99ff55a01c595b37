/* Exchanges, bindings and the way from (exchange, routing key, headers) to the queues of a message.
 *
 * One router per store.  Its owner holds one lock around every call; nothing here blocks, does
 * input or output, or keeps a slice it was given (they are copied), save the name of a
 * destination.
 *
 * Names, keys and what is refused follow RabbitMQ: the default exchange "" leads to the
 * destination named like the key and cannot be declared, bound or deleted; names starting with
 * "amq." are reserved; binding twice is binding once; unbinding what is not bound is success.
 *
 * How long a route lasts: until qsi_router.version changes.  Every change of topology raises it,
 * lookups never do, and neither does anything else but a qsi_router_trim() that had something to
 * drop.  So a batch may collect routes for all its rows, and whoever keeps a route for longer
 * keeps the version with it.  Routes that are not remembered (they depend on headers, or on
 * several keys) last until the next lookup only. */
#ifndef QSI_ROUTE_H
#define QSI_ROUTE_H

#include "qstore/status.h"

#include "buf.h"
#include "list.h"
#include "map.h"
#include "slice.h"

#include <stdbool.h>
#include <stdint.h>

/* Of exchange names and routing keys: an AMQP short string. */
#define QSI_ROUTE_NAME_BYTES_MAX 255u
/* Of remembered routes: see qsi_router_trim. */
#define QSI_ROUTE_CACHE_BYTES_MAX (16u * 1024 * 1024)

struct qsi_destination;
struct qsi_exchange;
struct qsi_binding;
struct qsi_binding_set;
struct qsi_headers_pattern;
struct qsi_properties;
struct qsi_shared_selector;
struct qsi_tally; /* tally.h */

/* Where a message goes: each queue once, in the order they were added to the router. */
struct qsi_route {
    uint32_t count;
    bool by_headers; /* one exchange on the way looked at headers: others may lead elsewhere */
    uint16_t by_properties; /* the same of properties: qsi_property_flag() of each */
    struct qsi_destination *const *destinations;
};

/* What of a message decides where it goes. */
struct qsi_routing {
    struct qsi_slice key;
    const struct qsi_slice *copies; /* further keys, of CC and BCC */
    uint32_t copy_count;
    struct qsi_slice headers; /* a field table; null: none.  What is malformed in it is not there */
    const struct qsi_properties *properties; /* NULL: none */
};

/* Routes by key, until topology changes.  Zeroed memory is an empty one. */
struct qsi_route_cache {
    struct qsi_map keys;   /* key -> its route */
    struct qsi_map routes; /* destinations as bytes -> the route, if it has two or more */
    uint64_t bytes;        /* about what all this takes */
};

/* Something that takes messages: a queue (this is embedded in the owner's; the owner sets name and
 * leaves the rest) or an exchange. */
struct qsi_destination {
    struct qsi_slice name; /* unique among queues, or among exchanges; its bytes stay in place until
                              the destination is removed */
    struct qsi_exchange *exchange; /* that this is an end of; NULL: a queue */
    struct qsi_list bindings;      /* of qsi_binding.in_destination, oldest first */
    struct qsi_destination *self;  /* what own_route points to */
    struct qsi_route own_route; /* to here only: the commonest route needs no memory of its own */
    bool takes_none;            /* nothing may be published to it; the owner's, as the name is */
    uint64_t order;             /* the order of routes */
    uint64_t mark;              /* the last collection that has met this destination */
    /* of a queue, tally.h: */
    struct qsi_tally *recent_tally; /* of the exchange by which messages came last; or NULL */
    struct qsi_list tallies;        /* qsi_tally.in_destination */
    /* messages that no tally counts: their exchange is gone */
    uint64_t published, confirmed;
};

struct qsi_exchange_type;

/* Read by the owner, written by the router. */
struct qsi_exchange {
    struct qsi_list in_router; /* qsi_router.exchanges */
    struct qsi_list in_done;   /* auto-delete exchanges that have lost their last binding */
    struct qsi_destination destination; /* of bindings from other exchanges */
    struct qsi_slice name;
    const struct qsi_exchange_type *type;
    struct qsi_slice arguments; /* as declared */
    struct qsi_slice alternate; /* exchange for what no binding matches; no bytes: none */
    bool durable;
    bool auto_delete;              /* deleted when its last binding from it goes */
    bool internal;                 /* takes no messages from publishers */
    bool predeclared;              /* "" and amq.*: there from the start, never deleted */
    bool by_headers;               /* headers decide where its messages go */
    uint16_t by_properties;        /* these properties do, too */
    bool is_plain;                 /* the key alone decides, and no other exchange takes part */
    uint32_t binding_count;        /* from it */
    uint32_t onward_count;         /* those that lead to exchanges */
    struct qsi_list bindings;      /* of qsi_binding.in_exchange, oldest first */
    void *matcher;                 /* the type's own: bindings arranged for lookup */
    struct qsi_route_cache walked; /* routes through other exchanges */
    uint64_t walked_version;       /* of the router, when they were true */
    /* counters, the owner's */
    uint64_t published_in, returned, dropped, confirmed;
    uint64_t published_out;  /* copies that no tally counts: their queue is gone */
    struct qsi_list tallies; /* qsi_tally.in_exchange */
    uint8_t bytes[];         /* of name and arguments */
};

/* From an exchange to a queue or another exchange.  Whether a binding survives a restart is not its
 * own property: it does when both its ends do. */
struct qsi_binding {
    struct qsi_exchange *exchange;
    struct qsi_destination *destination;
    struct qsi_slice key;
    struct qsi_slice arguments;
    struct qsi_list in_exchange;
    struct qsi_list in_destination;
    struct qsi_list in_set; /* of the bindings that match the same keys */
    struct qsi_binding_set *set;
    struct qsi_headers_pattern *pattern;  /* of a headers exchange, instead of a set */
    struct qsi_shared_selector *selector; /* of an x-jms-topic exchange; NULL: all is selected */
    uint32_t identity_bytes;
    uint8_t identity[]; /* the key of qsi_router.bindings; key and arguments point into it */
};

/* What becomes of auto-delete exchanges that lose their last binding in a call. */
enum qsi_auto_delete {
    QSI_AUTO_DELETE_GOES,
    QSI_AUTO_DELETE_STAYS, /* a history is replayed, which tells of their deletion itself */
};

/* An auto-delete exchange has lost its last binding and goes when this returns; it may be read,
 * and the router must not be called. */
typedef void qsi_exchange_deleted(void *context, const struct qsi_exchange *exchange);

#define QSI_ROUTE_PLACE_DEFAULT " in this store"

struct qsi_router {
    uint64_t version;
    struct qsi_list exchanges;     /* in order of declaration, predeclared ones first */
    struct qsi_map exchange_names; /* name -> qsi_exchange */
    struct qsi_map destinations;   /* name -> queue: the bindings of the default exchange */
    struct qsi_map bindings;       /* exchange, destination, key, arguments -> qsi_binding */
    struct qsi_exchange *recent;   /* last one found by name, or NULL: the next is often the same */
    struct qsi_destination *recent_destination; /* likewise */
    const char *place; /* behind names in texts of errors; the default until it is set */
    qsi_exchange_deleted *deleted; /* may be NULL */
    void *deleted_context;
    uint64_t next_order;
    uint64_t mark;             /* number of the last collection */
    struct qsi_buf collected;  /* qsi_destination *: reused by every collection */
    struct qsi_buf reached;    /* qsi_exchange *: those of the collection */
    struct qsi_route walked;   /* the last route that was not remembered */
    struct qsi_buf identity;   /* a key of bindings under construction */
    uint64_t remembered_bytes; /* of routes */
};

/* Declares "" and amq.direct, amq.fanout, amq.headers, amq.match, amq.topic.  deleted may be
 * NULL. */
qs_status qsi_router_init(struct qsi_router *router, qsi_exchange_deleted *deleted, void *context,
                          qs_error *error) QS_MUST_CHECK;
/* Frees exchanges and bindings without calling deleted, and forgets the destinations, which must
 * still be there.  Zeroed memory is fine. */
void qsi_router_fini(struct qsi_router *router);

/* ---- exchanges ---- */

struct qsi_exchange_options {
    struct qsi_slice type;      /* "direct", "fanout", "headers", "topic", "x-consistent-hash",
                                   "x-modulus-hash", "x-jms-topic" */
    struct qsi_slice arguments; /* an encoded table, kept as it is */
    bool durable;
    bool auto_delete;
    bool internal;
    bool replayed; /* its arguments were accepted when it was declared */
};

/* Makes the exchange, or finds that it is there as asked for; *created_out tells which.  Of the
 * arguments alternate-exchange is compared, as RabbitMQ does.
 * QS_ACCESS_REFUSED         "" or a reserved name that is not predeclared
 * QS_PRECONDITION_FAILED    it is there with another type, other flags or another alternate
 *                           exchange; alternate-exchange is not a string
 * QS_COMMAND_INVALID        no such type;  QS_EINVAL  name too long;  QS_ENOMEM */
qs_status qsi_router_declare(struct qsi_router *router, struct qsi_slice name,
                             const struct qsi_exchange_options *options, bool *created_out,
                             qs_error *error) QS_MUST_CHECK;
/* NULL when there is none.  Stays in place until it is deleted. */
struct qsi_exchange *qsi_router_find(struct qsi_router *router, struct qsi_slice name);
/* The same in the middle of a publish: qsi_router_looked_up stays as it is. */
struct qsi_exchange *qsi_router_peek(const struct qsi_router *router, struct qsi_slice name);
/* The same, with QS_NOT_FOUND and its text. */
qs_status qsi_router_require(struct qsi_router *router, struct qsi_slice name,
                             struct qsi_exchange **exchange_out, qs_error *error) QS_MUST_CHECK;
/* The type as it was declared, "topic". */
struct qsi_slice qsi_exchange_type_name(const struct qsi_exchange *exchange);
/* Whether an exchange, there or not, may be declared or asked for by this name:
 * QS_ACCESS_REFUSED for the default exchange. */
qs_status qsi_exchange_check_name(struct qsi_slice name, qs_error *error) QS_MUST_CHECK;
/* Whether an exchange of this name may be deleted: QS_ACCESS_REFUSED for "" and reserved names. */
qs_status qsi_router_check_delete_name(const struct qsi_router *router, struct qsi_slice name,
                                       qs_error *error) QS_MUST_CHECK;
/* The same of one that is there, and QS_PRECONDITION_FAILED if if_unused is set and bindings lead
 * from it. */
qs_status qsi_router_check_delete(const struct qsi_router *router,
                                  const struct qsi_exchange *exchange, bool if_unused,
                                  qs_error *error) QS_MUST_CHECK;
/* Drops the exchange and its bindings, those from it and those to it; may delete auto-delete
 * exchanges that led to it.  deleted is not called for this one.  REQUIRES that
 * qsi_router_check_delete allows it. */
void qsi_router_delete(struct qsi_router *router, struct qsi_exchange *exchange,
                       enum qsi_auto_delete auto_delete);

/* ---- destinations ---- */

/* Queues.  REQUIRES destination->name set and not in use.  QS_ENOMEM. */
qs_status qsi_router_add_destination(struct qsi_router *router, struct qsi_destination *destination,
                                     qs_error *error) QS_MUST_CHECK;
/* Drops its bindings too, in time proportional to their number; may delete auto-delete
 * exchanges. */
void qsi_router_remove_destination(struct qsi_router *router, struct qsi_destination *destination,
                                   enum qsi_auto_delete auto_delete);
/* NULL when there is none. */
struct qsi_destination *qsi_router_find_destination(struct qsi_router *router,
                                                    struct qsi_slice name);

/* ---- bindings ---- */

/* *bound_out false: the same binding was there.  arguments take part in being the same, and tell a
 * headers exchange what to look for.
 * QS_ACCESS_REFUSED default exchange, at either end; QS_PRECONDITION_FAILED the exchange's type
 * cannot make sense of the arguments; QS_EINVAL key too long; QS_ENOMEM. */
qs_status qsi_router_bind(struct qsi_router *router, struct qsi_exchange *exchange,
                          struct qsi_destination *destination, struct qsi_slice key,
                          struct qsi_slice arguments, bool *bound_out,
                          qs_error *error) QS_MUST_CHECK;
/* Whether a binding from the exchange may have this key and these arguments:
 * QS_PRECONDITION_FAILED. */
qs_status qsi_router_check_binding(const struct qsi_exchange *exchange, struct qsi_slice key,
                                   struct qsi_slice arguments, qs_error *error) QS_MUST_CHECK;
/* The same as bind, of one that was accepted when it was made: arguments that make no sense to
 * this build, as another one may have stored them, have no effect. */
qs_status qsi_router_bind_again(struct qsi_router *router, struct qsi_exchange *exchange,
                                struct qsi_destination *destination, struct qsi_slice key,
                                struct qsi_slice arguments, bool *bound_out,
                                qs_error *error) QS_MUST_CHECK;
/* *unbound_out false: there was no such binding.  May delete exchange, if it is auto-delete.
 * QS_ACCESS_REFUSED default exchange; QS_ENOMEM. */
qs_status qsi_router_unbind(struct qsi_router *router, struct qsi_exchange *exchange,
                            struct qsi_destination *destination, struct qsi_slice key,
                            struct qsi_slice arguments, enum qsi_auto_delete auto_delete,
                            bool *unbound_out, qs_error *error) QS_MUST_CHECK;

/* ---- lookup ---- */

/* Where a message published to the named exchange goes; no queues is QS_OK with count 0.
 *
 * Each exchange on the way gives the message to what its bindings lead to, or, if none matches, to
 * its alternate exchange; each is passed once, so circles end.  Unless headers or several keys
 * decide, what was looked up before is found with one probe of a hash table and without
 * allocating.
 * QS_NOT_FOUND no such exchange; QS_ACCESS_REFUSED it is internal; QS_ENOMEM. */
qs_status qsi_router_lookup(struct qsi_router *router, struct qsi_slice exchange,
                            const struct qsi_routing *routing, const struct qsi_route **route_out,
                            qs_error *error) QS_MUST_CHECK;
/* The exchange of the last lookup by name that succeeded.  REQUIRES that nothing was called since
 * that changes topology or finds another. */
static inline struct qsi_exchange *qsi_router_looked_up(const struct qsi_router *router)
{
    return router->recent;
}
/* The same from an exchange in hand, internal or not.  QS_ENOMEM. */
qs_status qsi_exchange_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                              const struct qsi_routing *routing, const struct qsi_route **route_out,
                              qs_error *error) QS_MUST_CHECK;
/* Forgets all remembered routes. */
void qsi_router_forget(struct qsi_router *router);
/* The same when they take more than QSI_ROUTE_CACHE_BYTES_MAX.  Lookups only add: call this once in
 * an operation, where no route is held (before the rows of a batch are looked up). */
static inline void qsi_router_trim(struct qsi_router *router)
{
    if (router->remembered_bytes > QSI_ROUTE_CACHE_BYTES_MAX) {
        qsi_router_forget(router);
    }
}

/* ---- visiting ---- */

/* Exchanges in order of declaration, the predeclared ones among them. */
void qsi_router_visit_exchanges(const struct qsi_router *router,
                                void (*visit)(void *context, const struct qsi_exchange *exchange),
                                void *context);
/* Bindings by exchange, oldest first; those of the default exchange are not listed. */
void qsi_router_visit_bindings(const struct qsi_router *router,
                               void (*visit)(void *context, const struct qsi_binding *binding),
                               void *context);

/* Debug builds: asserts that each binding is known at both its ends and by its identity, and that
 * exchanges count theirs.  In release builds it is nothing. */
#ifdef NDEBUG
#define qsi_router_check(router) ((void)(router))
#else
void qsi_router_check(const struct qsi_router *router);
#endif

#endif
