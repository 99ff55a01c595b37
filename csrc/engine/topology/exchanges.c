/* Exchanges and bindings: declared, bound, unbound, deleted. */
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "queue_life.h"
#include "store.h"
#include "topology.h"
#include "wake.h"

#include <string.h>

/* ---- exchanges ---- */

/* An auto-delete exchange lost its last binding, durable or not: a replay cannot derive that from
 * the durable ones.  The record has a chunk of its own, because the caller may have reserved a
 * place in the shared one.  Without memory or room the exchange is back after a restart, without
 * bindings. */
void qsi_journal_exchange_deleted(void *context, const struct qsi_exchange *exchange)
{
    struct qs_store *store = context;
    struct qsi_topology topology = {.type = QSI_RECORD_EXCHANGE_DELETE,
                                    .strings = {exchange->name}};
    uint64_t bytes = qsi_topology_bytes(&topology);
    struct qsi_chunk *chunk;

    QS_ASSERT_HELD(&store->mutex);
    /* One entry for this record, and the one that the caller has reserved. */
    if (!exchange->durable || store->failed ||
        !qsi_journal_has_room(store->journal, 2 * QSI_TOPOLOGY_ROOM, QSI_TOPOLOGY_ROOM) ||
        qsi_journal_reserve(store->journal, 2) != QS_OK) {
        return;
    }
    chunk = qsi_chunk_create(bytes);
    if (chunk == NULL) {
        return;
    }
    QS_DCHECK(bytes <= QSI_TOPOLOGY_ROOM); /* which was asked for */
    qsi_topology_encode(chunk->data, &topology);
    chunk->used = bytes;
    store->topology_lsn = qsi_store_append(store, chunk, 0, bytes, 1, false);
    qsi_chunk_unref(chunk);
    qsi_commit_wake(store);
}

static qs_status declare_exchange(struct qs_channel *channel, const struct qsi_topology *topology,
                                  struct qsi_slice type, uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_chunk *chunk = NULL;
    bool created = false;
    struct qsi_exchange_options options = {
        .type = type,
        .arguments = topology->strings[2],
        .durable = (topology->flags & QS_DURABLE) != 0,
        .auto_delete = (topology->flags & QS_AUTO_DELETE) != 0,
        .internal = (topology->flags & QS_INTERNAL) != 0,
    };

    QS_TRY(qsi_check_table(options.arguments, error));
    QS_TRY(qsi_check_new_argument(options.arguments, "alternate-exchange", error));
    QS_TRY(qsi_reserve_topology(store, topology, &chunk, error));
    QS_TRY(qsi_router_declare(&store->router, topology->strings[0], &options, &created, error));
    if (created && options.durable) {
        QS_ASSERT(chunk != NULL);
        (void)qsi_append_topology(store, topology, chunk);
    }
    *lsn_out = options.durable ? store->topology_lsn : 0;
    return QS_OK;
}

/* REQUIRES arguments in order. */
static qs_status declare_and_wait(struct qs_channel *channel, qs_slice exchange, qs_slice type,
                                  uint32_t flags, qs_slice arguments, qs_error *error)
{
    struct qsi_topology topology = {
        .type = QSI_RECORD_EXCHANGE_DECLARE,
        .flags = flags & (QS_DURABLE | QS_AUTO_DELETE | QS_INTERNAL),
        .strings = {qsi_slice_of(exchange), qsi_slice_of(type), qsi_slice_of(arguments)},
    };
    struct qsi_exchange *found;
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(qsi_enter_topology(channel, arguments.bytes, qsi_wait_of(flags), error));
    if ((flags & QS_PASSIVE) != 0) {
        status = qsi_exchange_check_name(topology.strings[0], error);
        if (status == QS_OK) {
            status =
                qsi_router_require(&channel->store->router, topology.strings[0], &found, error);
        }
    } else {
        status = declare_exchange(channel, &topology, topology.strings[1], &lsn, error);
    }
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, flags, error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

qs_status qs_channel_exchange_declare(qs_channel *channel, qs_slice exchange, qs_slice type,
                                      uint32_t flags, qs_slice arguments, qs_error *error)
{
    struct qsi_buf sorted = {0};
    qs_status status;

    QS_TRY(qsi_check_new_name(exchange, "exchange name", error));
    status = qsi_order_arguments(&sorted, &arguments, error);
    if (status == QS_OK) {
        status = declare_and_wait(channel, exchange, type, flags, arguments, error);
    }
    qsi_buf_fini(&sorted);
    return status;
}

static qs_status delete_exchange(struct qs_channel *channel, struct qsi_slice name, bool if_unused,
                                 uint64_t *lsn_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_topology topology = {.type = QSI_RECORD_EXCHANGE_DELETE, .strings = {name}};
    struct qsi_exchange *exchange = qsi_router_find(&store->router, name);
    struct qsi_chunk *chunk = NULL;
    bool durable;

    if (exchange == NULL) { /* as in RabbitMQ: deleting a missing one succeeds */
        *lsn_out = store->topology_lsn;
        return qsi_router_check_delete_name(&store->router, name, error);
    }
    QS_DCHECK(qsi_slice_equals(exchange->name, name));
    durable = exchange->durable;
    QS_TRY(qsi_router_check_delete(&store->router, exchange, if_unused, error));
    QS_TRY(qsi_reserve_topology(store, &topology, &chunk, error));
    qsi_router_delete(&store->router, exchange, QSI_AUTO_DELETE_GOES);
    if (durable) {
        *lsn_out = qsi_append_topology(store, &topology, chunk);
    }
    return QS_OK;
}

qs_status qs_channel_exchange_delete(qs_channel *channel, qs_slice exchange, uint32_t flags,
                                     qs_error *error)
{
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(qsi_enter_topology(channel, 0, qsi_wait_of(flags), error));
    status =
        delete_exchange(channel, qsi_slice_of(exchange), (flags & QS_IF_UNUSED) != 0, &lsn, error);
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, flags, error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

/* ---- bindings ---- */

struct binding_call {
    qs_slice source, destination, routing_key, arguments;
    uint32_t flags; /* QS_TO_EXCHANGE, QS_UNBIND, QS_NO_SYNC, QS_NO_WAIT */
};

bool qsi_describe_binding(const struct qsi_binding *binding, struct qsi_topology *topology_out)
{
    const struct qsi_exchange *onward = binding->destination->exchange;

    *topology_out = (struct qsi_topology){
        .type = QSI_RECORD_BIND,
        .strings = {binding->exchange->name, binding->key, binding->arguments},
    };
    if (onward != NULL) {
        topology_out->type = QSI_RECORD_EXCHANGE_BIND;
        topology_out->strings[3] = onward->name;
        return binding->exchange->durable && onward->durable;
    }
    QS_DCHECK(binding->destination->exchange == NULL);
    topology_out->number = qsi_queue_of(binding->destination)->container.id;
    return binding->exchange->durable && qsi_is_journalled(qsi_queue_of(binding->destination));
}

/* Both ends, in the order of RabbitMQ's checks. */
static qs_status find_ends(struct qs_channel *channel, const struct binding_call *call,
                           struct qsi_exchange **source_out,
                           struct qsi_destination **destination_out, qs_error *error)
{
    struct qsi_router *router = &channel->store->router;
    struct qsi_slice destination = qsi_slice_of(call->destination);
    struct qsi_exchange *exchange;
    struct qsi_store_queue *queue;

    QS_TRY(qsi_exchange_check_name(qsi_slice_of(call->source), error));
    if ((call->flags & QS_TO_EXCHANGE) != 0) {
        QS_TRY(qsi_exchange_check_name(destination, error));
    }
    QS_TRY(qsi_router_require(router, qsi_slice_of(call->source), source_out, error));
    if ((call->flags & QS_TO_EXCHANGE) != 0) {
        QS_TRY(qsi_router_require(router, destination, &exchange, error));
        *destination_out = &exchange->destination;
        return QS_OK;
    }
    QS_TRY(qsi_require_queue(channel, destination, &queue, error));
    *destination_out = &queue->destination;
    return QS_OK;
}

static qs_status change_binding(struct qs_channel *channel, const struct binding_call *call,
                                uint64_t *lsn_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_exchange *source;
    struct qsi_destination *destination;
    struct qsi_chunk *chunk = NULL;
    struct qsi_topology topology;
    bool unbind = (call->flags & QS_UNBIND) != 0;
    bool to_exchange = (call->flags & QS_TO_EXCHANGE) != 0;
    bool changed = false;
    bool durable;
    qs_status status = find_ends(channel, call, &source, &destination, error);

    if (status == QS_NOT_FOUND && unbind) {
        *lsn_out = store->topology_lsn;
        return QS_OK; /* as in RabbitMQ: unbinding a missing binding succeeds */
    }
    QS_TRY(status);
    QS_TRY(qsi_check_table(qsi_slice_of(call->arguments), error));
    durable =
        qsi_describe_binding(&(struct qsi_binding){.exchange = source,
                                                   .destination = destination,
                                                   .key = qsi_slice_of(call->routing_key),
                                                   .arguments = qsi_slice_of(call->arguments)},
                             &topology);
    QS_TRY(qsi_reserve_topology(store, &topology, &chunk, error));
    if (unbind) {
        topology.type = to_exchange ? QSI_RECORD_EXCHANGE_UNBIND : QSI_RECORD_UNBIND;
        topology.strings[0] = qsi_slice_of(call->source); /* the exchange may be deleted */
        topology.strings[3] = qsi_slice_of(to_exchange ? call->destination : (qs_slice){0});
        QS_TRY(qsi_router_unbind(&store->router, source, destination, topology.strings[1],
                                 topology.strings[2], QSI_AUTO_DELETE_GOES, &changed, error));
    } else {
        QS_TRY(qsi_router_bind(&store->router, source, destination, topology.strings[1],
                               topology.strings[2], &changed, error));
    }
    if (changed && durable) {
        (void)qsi_append_topology(store, &topology, chunk);
    }
    *lsn_out = durable ? store->topology_lsn : 0;
    return QS_OK;
}

/* REQUIRES arguments in order. */
static qs_status change_and_wait(struct qs_channel *channel, const struct binding_call *call,
                                 qs_error *error)
{
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(qsi_enter_topology(channel, call->arguments.bytes, qsi_wait_of(call->flags), error));
    status = change_binding(channel, call, &lsn, error);
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, call->flags, error);
    }
    QS_ASSERT_HELD(&channel->store->mutex);
    return qsi_channel_leave_after(channel, qsi_wait_of(call->flags), status);
}

qs_status qs_channel_change_binding(qs_channel *channel, qs_slice destination, qs_slice source,
                                    qs_slice routing_key, qs_slice arguments, uint32_t flags,
                                    qs_error *error)
{
    struct binding_call call = {source, destination, routing_key, arguments, flags};
    struct qsi_buf sorted = {0};
    qs_status status = qsi_order_arguments(&sorted, &call.arguments, error);

    if (status == QS_OK) {
        status = change_and_wait(channel, &call, error);
    }
    qsi_buf_fini(&sorted);
    return status;
}
