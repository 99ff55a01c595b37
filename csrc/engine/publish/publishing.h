/* One message that is being published: shared by the files that route it, store its body, encode
 * and accept it. */
#ifndef QSI_PUBLISHING_H
#define QSI_PUBLISHING_H

#include "copies.h"
#include "enter.h"
#include "error.h"
#include "refuse.h"

struct qsi_publishing {
    struct qs_channel *channel;
    struct qsi_slice exchange, properties, body;
    struct qsi_routing routing;
    const struct qsi_copies *copies; /* NULL: neither CC nor BCC */
    enum qsi_wait wait;
    uint32_t flags;      /* the caller's: QS_MANDATORY, QS_BODY_CONSTANT, QS_INTERNAL */
    bool persistent;     /* by its delivery mode, or because of one of its queues */
    bool is_dead_letter; /* from another queue: not to those that are full */
    bool may_go_round;
    bool expires;           /* in some queue: then the time of publishing is stored */
    bool may_be_refused;    /* by a queue that refuses when it is full */
    bool is_refused;        /* one of its queues is */
    uint8_t priority;       /* read if a queue has priorities */
    uint32_t expiration_ms; /* its own */
    uint64_t due_us;        /* its due time; 0: at once */
    bool stored;            /* its body is in the message store, and ref has its place */
    struct qsi_place place;
    /* the same without queues that a dead-lettered message may not go to, with its own
     * destinations */
    struct qsi_route open_route;
    /* Fields from here on are set before they are read, so publishing need not zero them.  Of the
     * routing: */
    const struct qsi_route *route;
    uint32_t durable_count; /* destinations that survive a restart */
    uint32_t keeping_count; /* of them: queues that make messages persistent */
    struct qsi_messages_layout layout;
    struct qsi_body_ref ref; /* if stored */
};

static inline bool qsi_publishing_is_mandatory(const struct qsi_publishing *publishing)
{
    return (publishing->flags & QS_MANDATORY) != 0;
}
static inline bool qsi_publishing_is_journalled(const struct qsi_publishing *publishing)
{
    return (publishing->persistent && publishing->durable_count > 0) ||
           publishing->keeping_count > 0;
}
/* Whether the message survives a restart in this queue. */
static inline bool qsi_publishing_is_journalled_in(const struct qsi_publishing *publishing,
                                                   const struct qsi_store_queue *queue)
{
    return qsi_keeps_all(queue) || (publishing->persistent && (queue->flags & QS_DURABLE) != 0);
}

/* ---- publish_route.c ---- */

/* Looks up the route.  Reads the headers only if they decide. */
qs_status qsi_publishing_look_up(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* The same, and computes what the queues need to know of the message. */
qs_status qsi_publishing_route(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- publish_prepare.c ---- */

/* May release the lock meanwhile.  Routes, stores the body if it is large, makes room and lays out
 * the record; if the lock was released, it looks at everything again. */
qs_status qsi_publishing_prepare(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

/* ---- publish_record.c: REQUIRES a prepared message with a route ---- */

/* In a transaction: the encoded record waits for the commit, which gives it its sequences. */
qs_status qsi_publishing_keep(struct qsi_publishing *publishing, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Pushes it to its queues and the journal.  *lsn_out 0: nothing to wait for. */
qs_status qsi_publishing_accept(struct qsi_publishing *publishing, struct qsi_refusals *refusals,
                                uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;

#endif
