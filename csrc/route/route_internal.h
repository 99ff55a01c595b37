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
/* done: a list, for one call, of auto-delete exchanges that lost their last binding in it; NULL:
 * they are not deleted. */
/* Call it after a binding of exchange was dropped: adds an auto-delete exchange without bindings to
 * done. */
void qsi_exchange_collect_if_done(struct qsi_exchange *exchange, struct qsi_list *done);
void qsi_router_drop_exchange(struct qsi_router *router, struct qsi_exchange *exchange,
                              struct qsi_list *done);
/* Deletes the exchanges in done, and auto-delete exchanges that lose their last binding by that.
 * NULL: does nothing. */
void qsi_router_delete_done(struct qsi_router *router, struct qsi_list *done);
/* Returns the list for a call: an empty one, or NULL. */
static inline struct qsi_list *qsi_done_list(struct qsi_list *list,
                                             enum qsi_auto_delete auto_delete)
{
    qsi_list_init(list);
    return auto_delete == QSI_AUTO_DELETE_GOES ? list : NULL;
}

/* ---- route_lookup.c ---- */

/* QS_PRECONDITION_FAILED: the queue cannot be published to, or bound. */
qs_status qsi_router_fail_takes_none(const struct qsi_router *router, struct qsi_slice queue,
                                     qs_error *error);

/* ---- binding.c ---- */

void qsi_router_drop_binding(struct qsi_router *router, struct qsi_binding *binding);
/* Drops the bindings to destination; their exchanges may be added to done. */
void qsi_router_drop_bindings_to(struct qsi_router *router, struct qsi_destination *destination,
                                 struct qsi_list *done);

#endif
