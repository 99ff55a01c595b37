/* Replaying what was declared, bound and deleted. */
#include "arguments.h"
#include "check.h"
#include "error.h"
#include "field_table.h"
#include "priorities.h"
#include "queue_life.h"
#include "store_kinds.h"
#include "title.h"
#include "topology.h"

/* A build that gives an argument a meaning, or takes one away, meets stores of others. */
static void report_ignored(struct qs_store *store, const struct qsi_topology *topology)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_recovery *recovery = &store->recovery;
    struct qsi_slice arguments = topology->strings[1];
    struct qsi_arguments asked;
    struct qsi_title title;

    if (arguments.bytes > 0 && qsi_table_check(arguments)) {
        recovery->ignored_arguments +=
            qsi_arguments_read(&asked, qsi_kind_declared(topology->type)->arguments, arguments,
                               qsi_title_of(&title, store, topology->strings[0]),
                               recovery->ignored_arguments == 0 ? &recovery->first_ignored : NULL);
    }
}

static qs_status replay_queue_declare(struct qs_store *store, const struct qsi_topology *topology,
                                      qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_kind *kind = qsi_kind_declared(topology->type);
    struct qsi_store_queue *queue = qsi_find_queue(store, topology->strings[0]);
    qs_status status;

    if (qsi_priority_in(topology->number) != 0) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s': id %llu is too large",
                        QSI_NAME(topology->strings[0]), (unsigned long long)topology->number);
    }
    if (qsi_find_by_id(store, topology->number) != NULL) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' is declared twice",
                        QSI_NAME(topology->strings[0]));
    }
    /* As with exchanges: an auto-delete queue may have ended without a record, and then another
     * one took its name. */
    if (queue != NULL) {
        qsi_drop_queue(store, queue, QSI_AUTO_DELETE_STAYS);
    }
    report_ignored(store, topology);
    /* Earlier builds assumed x-queue-type: the record decides, not the argument. */
    QS_DCHECK(qsi_find_queue(store, topology->strings[0]) == NULL);
    QS_TRY(qsi_new_queue(store, kind, topology->number, topology->flags, topology->strings[0],
                         topology->strings[1], &queue, error));
    status = kind->replay != NULL ? kind->replay(store, queue, topology, error) : QS_OK;
    if (status == QS_OK) {
        status = qsi_add_queue(store, queue, error);
    }
    if (status != QS_OK) {
        qsi_free_queue(queue);
    }
    return status;
}

static qs_status replay_exchange_declare(struct qs_store *store,
                                         const struct qsi_topology *topology, qs_error *error)
{
    struct qsi_exchange_options options = {
        .type = topology->strings[1],
        .arguments = topology->strings[2],
        .durable = true,
        .auto_delete = (topology->flags & QS_AUTO_DELETE) != 0,
        .internal = (topology->flags & QS_INTERNAL) != 0,
        .replayed = true,
    };
    struct qsi_exchange *found = qsi_router_find(&store->router, topology->strings[0]);
    bool created;

    /* The journal has only first declarations: a queue that exists already ended without a record
     * (no room for it). */
    if (found != NULL && !found->predeclared) {
        qsi_router_delete(&store->router, found, QSI_AUTO_DELETE_STAYS);
    }
    QS_DCHECK(found == NULL || found->predeclared ||
              qsi_router_find(&store->router, topology->strings[0]) == NULL);
    return qsi_router_declare(&store->router, topology->strings[0], &options, &created, error);
}

/* NULL: it is gone. */
static struct qsi_destination *replayed_destination(struct qs_store *store,
                                                    const struct qsi_topology *topology)
{
    struct qsi_store_queue *queue;
    struct qsi_exchange *exchange;

    if (topology->type == QSI_RECORD_EXCHANGE_BIND ||
        topology->type == QSI_RECORD_EXCHANGE_UNBIND) {
        exchange = qsi_router_find(&store->router, topology->strings[3]);
        return exchange != NULL ? &exchange->destination : NULL;
    }
    queue = qsi_find_by_id(store, topology->number);
    return queue != NULL ? &queue->destination : NULL;
}

/* A binding that its exchange would refuse. */
static void report_ignored_of(struct qs_store *store, const struct qsi_exchange *exchange,
                              const struct qsi_topology *topology) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_recovery *recovery = &store->recovery;
    qs_error *first = recovery->ignored_arguments == 0 ? &recovery->first_ignored : NULL;

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_router_check_binding(exchange, topology->strings[1], topology->strings[2], first) !=
        QS_OK) {
        recovery->ignored_arguments += 1;
    }
}

static qs_status replay_binding(struct qs_store *store, const struct qsi_topology *topology,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_destination *destination = replayed_destination(store, topology);
    struct qsi_exchange *source = qsi_router_find(&store->router, topology->strings[0]);
    bool changed;

    if (destination == NULL || source == NULL) {
        return QS_OK; /* an auto-delete exchange may be gone, with its binding */
    }
    if (topology->type == QSI_RECORD_BIND || topology->type == QSI_RECORD_EXCHANGE_BIND) {
        report_ignored_of(store, source, topology);
        return qsi_router_bind_again(&store->router, source, destination, topology->strings[1],
                                     topology->strings[2], &changed, error);
    }
    return qsi_router_unbind(&store->router, source, destination, topology->strings[1],
                             topology->strings[2], QSI_AUTO_DELETE_STAYS, &changed, error);
}

/* The queue with that id was deleted: priorities that salvage made without it are deleted, too. */
static void drop_salvaged_priorities(struct qs_store *store, uint64_t id)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t priority = 1; store->recovery.queues > 0 && priority <= UINT8_MAX; priority++) {
        struct qsi_store_queue *queue =
            qsi_find_by_id(store, qsi_subqueue_id(id, (uint8_t)priority));
        if (queue != NULL) {
            qsi_drop_queue(store, queue, QSI_AUTO_DELETE_STAYS);
        }
    }
}

static qs_status replay(struct qs_store *store, const struct qsi_topology *topology,
                        qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue;
    struct qsi_exchange *exchange;

    if (qsi_kind_declared(topology->type) != NULL) {
        return replay_queue_declare(store, topology, error);
    }
    switch (topology->type) {
    case QSI_RECORD_QUEUE_DELETE:
        queue = qsi_find_by_id(store, topology->number);
        if (queue != NULL) {
            qsi_drop_queue(store, queue, QSI_AUTO_DELETE_STAYS);
        }
        drop_salvaged_priorities(store, topology->number);
        return QS_OK;
    case QSI_RECORD_QUEUE_MODE:
        queue = qsi_find_by_id(store, topology->number);
        if (queue != NULL) {
            qsi_set_mode(store, queue, (topology->flags & 1) != 0);
        }
        return QS_OK;
    case QSI_RECORD_EXCHANGE_DECLARE:
        return replay_exchange_declare(store, topology, error);
    case QSI_RECORD_EXCHANGE_DELETE:
        exchange = qsi_router_find(&store->router, topology->strings[0]);
        if (exchange != NULL) {
            qsi_router_delete(&store->router, exchange, QSI_AUTO_DELETE_STAYS);
        }
        return QS_OK;
    default:
        return replay_binding(store, topology, error);
    }
}

qs_status qsi_replay_topology(struct qs_store *store, const struct qsi_topology *topology,
                              qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    return replay(store, topology, error);
}
