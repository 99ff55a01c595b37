/* The trie of the topic type, for types that check more than the key. */
#ifndef QSI_MATCH_TOPIC_H
#define QSI_MATCH_TOPIC_H

#include "match.h"

struct topic;

qs_status qsi_topic_create(struct topic **topic_out) QS_MUST_CHECK; /* QS_ENOMEM */
/* REQUIRES no bindings. */
void qsi_topic_destroy(struct qsi_router *router, struct topic *topic);
qs_status qsi_topic_add(struct qsi_router *router, struct topic *topic,
                        struct qsi_binding *binding) QS_MUST_CHECK; /* QS_ENOMEM */
void qsi_topic_remove(struct qsi_router *router, struct topic *topic, struct qsi_binding *binding);
/* For a plain exchange.  QS_ENOMEM */
qs_status qsi_topic_lookup(struct qsi_router *router, struct topic *topic, struct qsi_slice key,
                           const struct qsi_route **route_out) QS_MUST_CHECK;
void qsi_topic_forget(struct qsi_router *router, struct topic *topic);

/* Finds the sets of bindings that match the key; they are valid until the next walk.  QS_ENOMEM */
qs_status qsi_topic_walk(struct topic *topic, struct qsi_slice key,
                         uint32_t *count_out) QS_MUST_CHECK;
const struct qsi_binding_set *qsi_topic_found(const struct topic *topic, uint32_t index);

#endif
