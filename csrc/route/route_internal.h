/* Inside the route floor: declarations shared by the parts of the router. */
#ifndef QSI_ROUTE_INTERNAL_H
#define QSI_ROUTE_INTERNAL_H

#include "error.h"
#include "route.h"

#include <string.h>

struct qsi_exchange_type;

/* Arguments for "%.*s". */
#define QSI_PRINT(slice) (int)(slice).bytes, (const char *)(slice).data

/* Unlike qsi_slice_equals, treats an empty slice and a null one as equal: both are an empty key. */
static inline bool qsi_same_bytes(struct qsi_slice a, struct qsi_slice b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

static inline struct qsi_exchange *qsi_exchange_at(const struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_exchange, in_router);
}

static inline qs_status qsi_router_out_of_memory(qs_error *error)
{
    return qsi_fail(error, QS_ENOMEM, "routing table");
}

/* ---- exchange.c ---- */

qs_status qsi_route_check_name_bytes(struct qsi_slice name, const char *what,
                                     qs_error *error) QS_MUST_CHECK;
/* REQUIRES that no exchange has this name. */
qs_status qsi_router_add_exchange(struct qsi_router *router, struct qsi_slice name,
                                  const struct qsi_exchange_type *type,
                                  const struct qsi_exchange_options *options,
                                  struct qsi_exchange **exchange_out,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_exchange_update_is_plain(struct qsi_exchange *exchange);
/* REQUIRES an exchange in no list and no table.  NULL is fine. */
void qsi_exchange_destroy(struct qsi_router *router, struct qsi_exchange *exchange);

/* ---- route_find.c ---- */

/* QS_PRECONDITION_FAILED: the queue cannot be published to, or bound. */
qs_status qsi_router_fail_takes_none(const struct qsi_router *router, struct qsi_slice queue,
                                     qs_error *error);

/* ---- binding.c ---- */

/* QS_ACCESS_REFUSED: an end is the default exchange. */
qs_status qsi_binding_check_ends(const struct qsi_exchange *exchange,
                                 const struct qsi_destination *destination,
                                 qs_error *error) QS_MUST_CHECK;
/* *binding_out NULL: there is none, and router->identity is its identity.  QS_ENOMEM. */
qs_status qsi_router_find_binding(struct qsi_router *router, const struct qsi_exchange *exchange,
                                  const struct qsi_destination *destination, struct qsi_slice key,
                                  struct qsi_slice arguments, struct qsi_binding **binding_out,
                                  qs_error *error) QS_MUST_CHECK;
void qsi_router_drop_binding(struct qsi_router *router, struct qsi_binding *binding);

/* ---- route_removal.c ---- */

/* Removes the exchange and its bindings from and to it.  done: see there. */
void qsi_router_drop_exchange(struct qsi_router *router, struct qsi_exchange *exchange,
                              struct qsi_list *done);

#endif
