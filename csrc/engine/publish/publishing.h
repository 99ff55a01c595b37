/* One message on its way: what the files share that route it, store its body, encode and accept
 * it. */
#ifndef QSI_PUBLISHING_H
#define QSI_PUBLISHING_H

#include "copies.h"
#include "enter.h"
#include "error.h"
#include "publish.h"

struct publishing {
    struct qs_channel *channel;
    struct qsi_slice exchange, properties, body;
    struct qsi_routing routing;
    const struct qsi_copies *copies; /* NULL: neither CC nor BCC */
    enum qsi_wait wait;
    uint32_t flags;      /* the caller's: QS_MANDATORY, QS_BODY_CONSTANT, QS_INTERNAL */
    bool persistent;     /* by its delivery mode, or as one of its queues has it */
    bool is_dead_letter; /* from another queue: not to those that are full */
    bool may_go_round;
    bool expires;           /* somewhere: when it was published is noted then */
    bool may_be_refused;    /* by a queue that refuses when it is full */
    bool is_refused;        /* one of its queues is */
    uint8_t priority;       /* read if a queue has priorities */
    uint32_t expiration_ms; /* its own */
    uint64_t due_us;        /* when it may be delivered; 0: at once */
    bool stored;            /* its body is in the message store, and ref tells where */
    struct qsi_place place;
    /* the same without queues that a dead-lettered message may not go to; the destinations are
     * its own */
    struct qsi_route open_route;
    /* From here on nothing is read before it is set, so a message that is published does not pay
     * for zeros.  As routed: */
    const struct qsi_route *route;
    uint32_t durable_count; /* destinations that survive a restart */
    uint32_t keeping_count; /* of them: which keep whatever they get */
    struct qsi_messages_layout layout;
    struct qsi_body_ref ref; /* if stored */
};

static inline bool qsi_publishing_is_mandatory(const struct publishing *publishing)
{
    return (publishing->flags & QS_MANDATORY) != 0;
}
static inline bool qsi_publishing_is_journalled(const struct publishing *publishing)
{
    return (publishing->persistent && publishing->durable_count > 0) ||
           publishing->keeping_count > 0;
}
/* Does the message survive a restart in this queue? */
static inline bool qsi_publishing_is_journalled_in(const struct publishing *publishing,
                                                   const struct store_queue *queue)
{
    return qsi_keeps_all(queue) || (publishing->persistent && (queue->flags & QS_DURABLE) != 0);
}

/* ---- publish_route.c ---- */

/* Looks the route up.  The headers are looked for only where they decide. */
qs_status qsi_publishing_look_up(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same, and what the queues there say of the message. */
qs_status qsi_publishing_route(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- publish_prepare.c ---- */

/* May release the lock meanwhile.  Routes, stores the body if it is large, makes room and lays the
 * record out; whenever the lock was released on the way, all of it is looked at again. */
qs_status qsi_publishing_prepare(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- publish_record.c: REQUIRES a prepared message with a route ---- */

/* In a transaction: the encoded record waits for the commit, which gives it its sequences. */
qs_status qsi_publishing_keep(struct publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Into its queues and the journal.  *lsn_out 0: nothing to wait for. */
qs_status qsi_publishing_accept(struct publishing *publishing, struct refusals *refusals,
                                uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
