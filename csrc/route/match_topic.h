/* Operations of the topic type, for types that check more than the key.  struct qsi_exchange_type
 * (match.h) says what the first six of them REQUIRE, and which errors they return. */
#ifndef QSI_MATCH_TOPIC_H
#define QSI_MATCH_TOPIC_H

#include "match.h"

qs_status qsi_topic_create(void **matcher_out) QS_MUST_CHECK;
void qsi_topic_destroy(struct qsi_router *router, void *matcher);
qs_status qsi_topic_add(struct qsi_router *router, struct qsi_binding *binding) QS_MUST_CHECK;
void qsi_topic_remove(struct qsi_router *router, struct qsi_binding *binding);
qs_status qsi_topic_lookup(struct qsi_router *router, struct qsi_exchange *exchange,
                           struct qsi_slice key, const struct qsi_route **route_out) QS_MUST_CHECK;
void qsi_topic_forget(struct qsi_router *router, void *matcher);
/* What such a type adds to the matcher. */
void **qsi_topic_extra(void *matcher);

/* Finds the sets of bindings that match the key; they are valid until the next walk.  QS_ENOMEM */
qs_status qsi_topic_walk(void *matcher, struct qsi_slice key, uint32_t *count_out) QS_MUST_CHECK;
const struct qsi_binding_set *qsi_topic_found(const void *matcher, uint32_t index);

#endif
