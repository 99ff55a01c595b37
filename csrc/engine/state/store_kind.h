/* Kinds of queues of a store.
 *
 * A name of the store (its policy, consumers and arguments) has its messages in a container.
 * container.h says what the engine asks of the container; this table says what the store asks of
 * the queue around it.  A new kind has its container in a folder of its own, its row of this table
 * in engine/kinds, as stream_queue.c, and a line in store_kinds.c. */
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

/* All operations REQUIRE the store's lock.  NULL: the kind has nothing to do there;
 * make is never NULL.  A kind with kept_from has trimmed, too, and a container that is trimmed; a
 * kind whose consumers have cursors has has_next and awaits_commit. */
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
    /* find_start checks the declaration, and finds where such a queue begins; it may release the
     * lock meanwhile.  start: the queue was made, and begins there.  QS_PRECONDITION_FAILED. */
    qs_status (*find_start)(struct qs_store *store, struct qsi_slice name, uint32_t flags,
                            struct qsi_slice arguments, uint64_t *start_out, qs_error *error);
    qs_status (*start)(struct qs_store *store, struct qsi_store_queue *queue, uint64_t start,
                       qs_error *error);
    void (*added)(struct qs_store *store, struct qsi_store_queue *queue); /* it has its name */
    /* QS_PRECONDITION_FAILED: others need it. */
    qs_status (*check_delete)(const struct qs_store *store, const struct qsi_store_queue *queue,
                              qs_error *error);
    void (*abandoned)(struct qs_store *store, struct qsi_store_queue *queue); /* it is deleted */

    /* The last count messages came; journalled: in a record that is appended next, in this hold of
     * the lock.  NULL: whoever takes them is told at once. */
    void (*pushed)(struct qs_store *store, struct qsi_store_queue *queue, uint64_t count,
                   bool journalled);
    /* A consumer joined or left it: consumer_count says how many there are. */
    void (*consumers_changed)(struct qs_store *store, struct qsi_store_queue *queue);
    /* For a consumer with a cursor: whether it has something to get; and whether what it gets next
     * waits for a commit. */
    bool (*has_next)(const struct qsi_store_consumer *consumer);
    bool (*awaits_commit)(const struct qsi_store_consumer *consumer);
    /* Delivered and not settled.  NULL: as its container says. */
    uint64_t (*out_count)(const struct qsi_store_queue *queue);
    /* Positions of groups of readers: name -> store_cursor (store_stream.h). */
    struct qsi_map *(*cursors)(struct qsi_store_queue *queue);
    /* Retention: the first message that is kept, if messages below it may go; 0: none may.  And
     * they went. */
    uint64_t (*kept_from)(const struct qsi_store_queue *queue, uint64_t now_us);
    void (*trimmed)(struct qsi_store_queue *queue);
    /* Adds to a status, which has what all kinds have. */
    void (*report)(const struct qsi_store_queue *queue, qs_queue_status *status_io);
    void (*check)(const struct qsi_store_queue *queue); /* debug builds: its parts agree */
    void (*fini)(struct qsi_store_queue *queue);
};

static inline uint64_t qsi_out_count(const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return queue->kind->out_count != NULL ? queue->kind->out_count(queue)
                                          : qsi_queue_out_count(&queue->core);
}
/* NULL: no group reads it. */
static inline struct qsi_map *qsi_cursors_of(struct qsi_store_queue *queue)
{
    return queue->kind->cursors != NULL ? queue->kind->cursors(queue) : NULL;
}

#endif
