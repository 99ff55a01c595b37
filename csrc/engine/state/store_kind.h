/* Kinds of queues of a store.
 *
 * A name of the store (its policy, consumers and arguments) has its messages in a container.
 * container.h says what the engine asks of the container; this table says what the store asks of
 * the queue around it.  A new kind has its container in a folder of its own, its row of this table
 * beside the container, as store_stream.c, and a line in store_kinds.c. */
#ifndef QSI_STORE_KIND_H
#define QSI_STORE_KIND_H

#include "qstore/admin.h"

#include "arguments.h"
#include "store_queue.h"
#include "thread_safety.h"
#include "topology_record.h"
#include "work_record.h"

struct qs_store;

/* The record that declares a queue, and bytes of it. */
struct qsi_declaration {
    struct qsi_topology topology;
    uint8_t source[QSI_WORK_SOURCE_BYTES];
};

/* NULL operations: the kind has nothing to do there. */
struct qsi_store_kind {
    enum qsi_queue_kind arguments;
    uint8_t declares;                 /* type of the record that declares it */
    uint8_t declares_with_priorities; /* the same with x-max-priority; 0: it has no priorities */

    /* A new queue, zeroed but for its name and policy: makes its container.  QS_ENOMEM: the
     * container is made, or fini may be called all the same. */
    qs_status (*make)(struct qs_store *store, struct qsi_store_queue *queue, uint64_t id,
                      const struct qsi_arguments *asked, qs_error *error);
    /* What the declaration has besides name and arguments, and the same at a replay. */
    void (*describe)(const struct qsi_store_queue *queue, struct qsi_declaration *declaration_io);
    qs_status (*replay)(struct qs_store *store, struct qsi_store_queue *queue,
                        const struct qsi_topology *declaration, qs_error *error);
    void (*added)(struct qs_store *store, struct qsi_store_queue *queue);     /* it has its name */
    void (*abandoned)(struct qs_store *store, struct qsi_store_queue *queue); /* it is deleted */
    /* Delivered and not settled. */
    uint64_t (*out_count)(const struct qsi_store_queue *queue);
    /* Adds to a status, which has what all kinds have. */
    void (*tell)(const struct qsi_store_queue *queue, qs_queue_status *status_io);
    void (*fini)(struct qsi_store_queue *queue);
};

extern const struct qsi_store_kind qsi_classic_queue, qsi_stream_queue, qsi_work_queue;

/* The kind that takes such arguments. */
const struct qsi_store_kind *qsi_kind_of(enum qsi_queue_kind arguments);
/* The kind that a record of this type declares; NULL: none. */
const struct qsi_store_kind *qsi_kind_declared(uint8_t type);
/* The record that declares a queue.  It points into the queue, and into itself. */
void qsi_describe_queue(const struct qsi_store_queue *queue,
                        struct qsi_declaration *declaration_out) QSI_REQUIRES(qsi_store_mutex);

static inline uint64_t qsi_out_count(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->kind->out_count(queue);
}

#endif
