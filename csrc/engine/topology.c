/* Exchanges, queues and bindings: declared, bound, deleted and replayed. */
#include "alloc.h"
#include "check.h"
#include "departures.h"
#include "env_call.h"
#include "error.h"
#include "levels.h"
#include "properties.h"
#include "record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SERVER_NAME_PREFIX "amq.gen-"
#define RESERVED_PREFIX "amq."
#define TOPOLOGY_ROOM 4096 /* more than any such record, but for one with large arguments */
#define NAME(slice) (int)(slice).bytes, (const char *)(slice).data

struct store_queue *qsi_queue_of(struct qsi_destination *destination)
{
    return QSI_LIST_OWNER(destination, struct store_queue, destination);
}

struct store_queue *qsi_queue_of_core(struct qsi_queue *core)
{
    return QSI_LIST_OWNER(core, struct store_queue, core);
}

struct store_queue *qsi_find_queue(struct qs_store *store, struct qsi_slice name)
{
    struct qsi_destination *destination = qsi_router_find_destination(&store->router, name);

    return destination != NULL ? qsi_queue_of(destination) : NULL;
}

static qs_status fail_locked(const struct store_queue *queue, qs_error *error)
{
    return qsi_fail(error, QS_RESOURCE_LOCKED,
                    "cannot obtain exclusive access to locked queue '%.*s' in this store. It could "
                    "be originally declared on another connection or the exclusive property value "
                    "does not match that of the original declaration.",
                    NAME(queue->name));
}

static qs_status check_owner(const struct qs_channel *channel, const struct store_queue *queue,
                             qs_error *error)
{
    if (queue->owner != NULL && queue->owner != channel->connection) {
        return fail_locked(queue, error);
    }
    return QS_OK;
}

qs_status qsi_require_queue(struct qs_channel *channel, struct qsi_slice name,
                            struct store_queue **queue_out, qs_error *error)
{
    *queue_out = qsi_find_queue(channel->store, name);
    if (*queue_out == NULL) {
        return qsi_fail(error, QS_NOT_FOUND, "no queue '%.*s' in this store", NAME(name));
    }
    return check_owner(channel, *queue_out, error);
}

/* ---- the life of a queue ---- */

static void free_queue(struct store_queue *queue)
{
    qsi_list_remove(&queue->in_owner);
    qsi_list_remove(&queue->in_deleted);
    qsi_list_remove(&queue->in_ahead);
    qsi_list_remove(&queue->in_trimming);
    qsi_list_remove(&queue->in_timed);
    qsi_queue_fini(&queue->core);
    qsi_free(queue->levels);
    qsi_free(queue);
}

/* The queue itself, and room for all the others. */
static qs_status begin_levels(struct store_queue *queue)
{
    if (!queue->policy.has_priorities) {
        return QS_OK;
    }
    queue->levels = qsi_zalloc(sizeof *queue->levels + (queue->policy.priority_max + (size_t)1) *
                                                           sizeof(struct store_queue *));
    if (queue->levels == NULL) {
        return QS_ENOMEM;
    }
    queue->levels->count = 1;
    queue->levels->queues[0] = queue;
    queue->levels->sum.earliest = QSI_NEVER;
    qsi_queue_join(&queue->core, &queue->levels->sum, 0);
    return QS_OK;
}

static qs_status new_queue(struct qs_store *store, uint64_t id, uint32_t flags,
                           struct qsi_slice name, struct qsi_slice arguments,
                           struct store_queue **queue_out, qs_error *error)
{
    struct store_queue *queue = qsi_zalloc(sizeof *queue + name.bytes + arguments.bytes);
    qs_status status;

    if (queue == NULL) {
        return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", NAME(name));
    }
    qsi_queue_init(&queue->core, &store->shared, id, (flags & QS_DURABLE) != 0);
    qsi_list_init(&queue->in_owner);
    qsi_list_init(&queue->in_ahead);
    qsi_list_init(&queue->in_trimming);
    qsi_list_init(&queue->in_timed);
    queue->target_ram_count = INFINITY;
    qsi_list_init(&queue->consumers);
    qsi_list_init(&queue->in_deleted);
    queue->flags = flags & (QS_DURABLE | QS_EXCLUSIVE | QS_AUTO_DELETE);
    if (name.bytes > 0) {
        memcpy(queue->bytes, name.data, name.bytes);
    }
    if (arguments.bytes > 0) {
        memcpy(queue->bytes + name.bytes, arguments.data, arguments.bytes);
    }
    queue->name = qsi_slice_make(queue->bytes, name.bytes);
    queue->arguments = qsi_slice_make(queue->bytes + name.bytes, arguments.bytes);
    queue->destination.name = queue->name;
    status = qsi_queue_policy_parse(&queue->policy, queue->arguments, queue->name, error);
    if (status != QS_OK) {
        free_queue(queue);
        return status;
    }
    queue->lazy = queue->policy.lazy;
    queue->core.counts_bytes = queue->policy.body_bytes_max != QSI_UNLIMITED;
    queue->core.wears_out = queue->policy.deliveries_max != QSI_UNLIMITED;
    if (queue->policy.message_ttl_ms != QSI_UNLIMITED) {
        queue->core.ttl_us = queue->policy.message_ttl_ms * QSI_US_PER_MS;
    }
    *queue_out = queue;
    return QS_OK;
}

qs_status qsi_create_level(struct qs_store *store, struct store_queue *queue, uint8_t level,
                           struct store_queue **level_out)
{
    struct store_queue *created;
    uint64_t id = qsi_level_id(queue->core.id, level);

    QS_TRY(new_queue(store, id, queue->flags, queue->name, queue->arguments, &created, NULL));
    if (qsi_map_put(&store->queues_by_id, &id, sizeof id, created) != QS_OK) {
        free_queue(created);
        return QS_ENOMEM;
    }
    created->parent = queue;
    created->level = level;
    created->lazy = queue->lazy;
    created->core.ttl_least_us = queue->core.ttl_least_us;
    store->lazy_count += queue->lazy ? 1 : 0;
    *level_out = created;
    return QS_OK;
}

static qs_status add_queue(struct qs_store *store, struct store_queue *queue, qs_error *error)
{
    qs_status status =
        qsi_map_put(&store->queues_by_id, &queue->core.id, sizeof queue->core.id, queue);

    if (status != QS_OK) {
        return qsi_fail(error, status, "queue '%.*s'", NAME(queue->name));
    }
    status = begin_levels(queue);
    if (status == QS_OK) {
        status = qsi_router_add_destination(&store->router, &queue->destination, error);
    } else {
        status = qsi_fail(error, status, "queue '%.*s'", NAME(queue->name));
    }
    if (status != QS_OK) {
        qsi_map_remove(&store->queues_by_id, &queue->core.id, sizeof queue->core.id);
        return status;
    }
    store->lazy_count += queue->lazy ? 1 : 0;
    if (queue->core.id >= store->next_queue_id) {
        store->next_queue_id = queue->core.id + 1;
    }
    return QS_OK;
}

static void ignore_range(void *context, uint64_t first_seq, uint32_t count)
{
    (void)context;
    (void)first_seq;
    (void)count;
}

/* The consumers learn of it through an event; they hold the queue no longer. */
static void cancel_consumers(struct store_queue *queue)
{
    while (!qsi_list_is_empty(&queue->consumers)) {
        struct store_consumer *consumer =
            QSI_LIST_OWNER(queue->consumers.next, struct store_consumer, in_queue);
        qsi_list_remove(&consumer->in_queue);
        consumer->queue = NULL;
        consumer->cancelled = true;
        if ((consumer->channel->armed_kinds & QS_EVENT_CANCEL) != 0) {
            qsi_channel_ring(consumer->channel);
        }
    }
    queue->consumer_count = 0;
    queue->active = NULL;
}

void qsi_free_queue_if_done(struct store_queue *queue)
{
    if (queue->deleted && queue->core.out_count == 0 && queue->jobs == 0) {
        free_queue(queue);
    }
}

/* Takes the queue, or a level, from those that have messages. */
static void abandon_queue(struct qs_store *store, struct store_queue *queue)
{
    qsi_map_remove(&store->queues_by_id, &queue->core.id, sizeof queue->core.id);
    qsi_list_remove(&queue->in_owner);
    qsi_list_remove(&queue->in_ahead);
    qsi_list_remove(&queue->in_trimming);
    qsi_list_remove(&queue->in_timed);
    store->lazy_count -= queue->lazy ? 1 : 0;
    qsi_queue_abandon(&queue->core);
    queue->deleted = true;
    qsi_list_push_back(&store->deleted_queues, &queue->in_deleted);
    qsi_free_queue_if_done(queue);
}

/* From here on each level lives as long as its own messages are out. */
static void abandon_levels(struct qs_store *store, struct store_queue *queue)
{
    for (uint32_t i = 0; i + 1 < qsi_level_count(queue); i++) {
        struct store_queue *level = qsi_level_at(queue, i);
        level->parent = NULL;
        qsi_queue_join(&level->core, NULL, 0);
        abandon_queue(store, level);
    }
    qsi_queue_join(&queue->core, NULL, 0);
    qsi_free(queue->levels);
    queue->levels = NULL;
}

void qsi_drop_queue(struct qs_store *store, struct store_queue *queue)
{
    cancel_consumers(queue);
    qsi_router_remove_destination(&store->router, &queue->destination);
    abandon_levels(store, queue);
    abandon_queue(store, queue);
    qsi_events_announce(store);
}

void qsi_free_all_queues(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        free_queue(cursor.value);
    }
    while (store->deleted_queues.next != NULL && !qsi_list_is_empty(&store->deleted_queues)) {
        free_queue(QSI_LIST_OWNER(store->deleted_queues.next, struct store_queue, in_deleted));
    }
}

/* ---- journalling ---- */

static bool is_journalled(const struct store_queue *queue)
{
    return (queue->flags & QS_DURABLE) != 0;
}

/* REQUIRES lock.  A place for the record, made before anything changes: append_topology cannot fail then. */
static qs_status reserve_topology(struct qs_store *store, const struct qsi_topology *topology,
                                  struct qsi_chunk **chunk_out, qs_error *error)
{
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    return qsi_arena_place(store, true, qsi_topology_bytes(topology), chunk_out, error);
}

static uint64_t append_topology(struct qs_store *store, const struct qsi_topology *topology,
                                struct qsi_chunk *chunk)
{
    uint64_t from = chunk->used;
    uint64_t bytes = qsi_topology_bytes(topology);

    qsi_topology_encode(chunk->data + from, topology);
    chunk->used += bytes;
    qsi_commit_kick(store);
    return qsi_store_append(store, chunk, from, bytes, 1, false);
}

/* REQUIRES lock; may release it meanwhile. */
static qs_status enter_topology(struct qs_channel *channel, uint64_t bytes, qs_error *error)
{
    bool released;
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status = qsi_commit_make_room(channel->store, TOPOLOGY_ROOM + bytes, TOPOLOGY_ROOM + bytes,
                                  &released, error);
    if (status == QS_OK && channel->closed) {
        status = qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    if (status != QS_OK) {
        qsi_store_leave(channel->store);
    }
    return status;
}

/* ---- exchanges ---- */

static qs_status check_table(struct qsi_slice arguments, qs_error *error)
{
    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    return QS_OK;
}

/* An auto-delete exchange lost its last binding, durable or not: replay cannot tell by the durable ones.  The record lies in a
 * chunk of its own, because the caller may have reserved a place in the shared one.  Without memory or room the exchange is back after
 * a restart, without bindings. */
void qsi_journal_exchange_deleted(void *context, const struct qsi_exchange *exchange)
{
    struct qs_store *store = context;
    struct qsi_topology topology = {.type = QSI_RECORD_EXCHANGE_DELETE,
                                    .strings = {exchange->name}};
    uint64_t bytes = qsi_topology_bytes(&topology);
    struct qsi_chunk *chunk;

    /* One entry for this record, and the one that the caller has reserved. */
    if (!exchange->durable || store->failed ||
        !qsi_journal_has_room(store->journal, 2 * TOPOLOGY_ROOM, TOPOLOGY_ROOM) ||
        qsi_journal_reserve(store->journal, 2) != QS_OK) {
        return;
    }
    chunk = qsi_chunk_create(bytes);
    if (chunk == NULL) {
        return;
    }
    qsi_topology_encode(chunk->data, &topology);
    chunk->used = bytes;
    qsi_store_append(store, chunk, 0, bytes, 1, false);
    qsi_chunk_unref(chunk);
    qsi_commit_kick(store);
}

static qs_status declare_exchange(struct qs_channel *channel, const struct qsi_topology *topology,
                                  struct qsi_slice type, uint64_t *lsn_out, qs_error *error)
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

    QS_TRY(check_table(options.arguments, error));
    QS_TRY(reserve_topology(store, topology, &chunk, error));
    QS_TRY(qsi_router_declare(&store->router, topology->strings[0], &options, &created, error));
    if (created && options.durable) {
        *lsn_out = append_topology(store, topology, chunk);
    }
    return QS_OK;
}

qs_status qs_channel_exchange_declare(qs_channel *channel, qs_slice exchange, qs_slice type,
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

    QS_TRY(enter_topology(channel, arguments.bytes, error));
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
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

static qs_status delete_exchange(struct qs_channel *channel, struct qsi_slice name, bool if_unused,
                                 uint64_t *lsn_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_topology topology = {.type = QSI_RECORD_EXCHANGE_DELETE, .strings = {name}};
    struct qsi_exchange *exchange = qsi_router_find(&store->router, name);
    struct qsi_chunk *chunk = NULL;
    bool durable;

    if (exchange == NULL) { /* as a broker: gone is gone */
        return qsi_exchange_check_delete_name(name, error);
    }
    durable = exchange->durable;
    QS_TRY(qsi_exchange_check_delete(exchange, if_unused, error));
    QS_TRY(reserve_topology(store, &topology, &chunk, error));
    qsi_router_delete(&store->router, exchange);
    if (durable) {
        *lsn_out = append_topology(store, &topology, chunk);
    }
    return QS_OK;
}

qs_status qs_channel_exchange_delete(qs_channel *channel, qs_slice exchange, uint32_t flags,
                                     qs_error *error)
{
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(enter_topology(channel, 0, error));
    status =
        delete_exchange(channel, qsi_slice_of(exchange), (flags & QS_IF_UNUSED) != 0, &lsn, error);
    if (status == QS_OK) {
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

/* ---- queues ---- */

static const char *yes_no(uint32_t flags, uint32_t flag)
{
    return (flags & flag) != 0 ? "true" : "false";
}

static qs_status check_equivalent(const struct store_queue *queue, uint32_t flags,
                                  struct qsi_slice arguments, qs_error *error)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } checked[] = {{QS_DURABLE, "durable"}, {QS_AUTO_DELETE, "auto_delete"}};

    if ((queue->flags & QS_EXCLUSIVE) != (flags & QS_EXCLUSIVE)) { /* a broker's code for it */
        return fail_locked(queue, error);
    }
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++) {
        if ((queue->flags & checked[i].flag) != (flags & checked[i].flag)) {
            return qsi_fail(
                error, QS_PRECONDITION_FAILED,
                "inequivalent arg '%s' for queue '%.*s': received '%s' but current is '%s'",
                checked[i].name, NAME(queue->name), yes_no(flags, checked[i].flag),
                yes_no(queue->flags, checked[i].flag));
        }
    }
    return qsi_queue_arguments_check(queue->arguments, arguments, queue->name, error);
}

static qs_status make_server_name(struct qs_store *store, char name_out[32], qs_error *error)
{
    uint64_t random;

    QS_TRY(qsi_env_random(store->env, &random, sizeof random, error));
    snprintf(name_out, 32, SERVER_NAME_PREFIX "%016llx",
             (unsigned long long)(random + store->next_server_name++));
    return QS_OK;
}

static qs_status create_queue(struct qs_channel *channel, struct qsi_slice name, uint32_t flags,
                              struct qsi_slice arguments, struct store_queue **queue_out,
                              uint64_t *lsn_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_DECLARE,
                                    .flags = flags,
                                    .number = store->next_queue_id,
                                    .strings = {name, arguments}};
    struct qsi_chunk *chunk = NULL;
    struct store_queue *queue;
    qs_status status;

    QS_TRY(reserve_topology(store, &topology, &chunk, error));
    QS_TRY(new_queue(store, topology.number, flags, name, arguments, &queue, error));
    if (queue->policy.has_priorities) {
        topology.type = QSI_RECORD_PRIORITY_QUEUE_DECLARE;
    }
    status = qsi_queue_type_check(queue->arguments, queue->name, error);
    if (status == QS_OK) {
        status = add_queue(store, queue, error);
    }
    if (status != QS_OK) {
        free_queue(queue);
        return status;
    }
    if ((flags & QS_EXCLUSIVE) != 0) {
        queue->owner = channel->connection;
        qsi_list_push_back(&queue->owner->exclusive_queues, &queue->in_owner);
    }
    if (is_journalled(queue)) {
        *lsn_out = append_topology(store, &topology, chunk);
    }
    *queue_out = queue;
    return QS_OK;
}

static qs_status declare_queue(struct qs_channel *channel, struct qsi_slice name, uint32_t flags,
                               struct qsi_slice arguments, struct store_queue **queue_out,
                               uint64_t *lsn_out, qs_error *error)
{
    char server_name[32];

    if (name.bytes == 0 && (flags & QS_PASSIVE) == 0) {
        QS_TRY(make_server_name(channel->store, server_name, error));
        return create_queue(channel, qsi_slice_make(server_name, (uint32_t)strlen(server_name)),
                            flags, arguments, queue_out, lsn_out, error);
    }
    if ((flags & QS_PASSIVE) != 0) {
        return qsi_require_queue(channel, name, queue_out, error);
    }
    *queue_out = qsi_find_queue(channel->store, name);
    if (*queue_out != NULL) {
        QS_TRY(check_owner(channel, *queue_out, error));
        return check_equivalent(*queue_out, flags, arguments, error);
    }
    if (name.bytes >= strlen(RESERVED_PREFIX) &&
        memcmp(name.data, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0) {
        return qsi_fail(error, QS_ACCESS_REFUSED,
                        "queue name '%.*s' contains reserved prefix '%s*'", NAME(name),
                        RESERVED_PREFIX);
    }
    return create_queue(channel, name, flags, arguments, queue_out, lsn_out, error);
}

qs_status qs_channel_queue_declare(qs_channel *channel, qs_slice queue, uint32_t flags,
                                   qs_slice arguments, qs_declare_ok *ok_out, qs_error *error)
{
    struct store_queue *found = NULL;
    uint32_t kept = flags & (QS_DURABLE | QS_EXCLUSIVE | QS_AUTO_DELETE);
    uint64_t lsn = 0;
    qs_status status;

    if (queue.bytes > QSI_EXCHANGE_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "queue name of %zu bytes: 255 at most", queue.bytes);
    }
    if ((kept & QS_EXCLUSIVE) != 0) {
        kept &= ~(uint32_t)QS_DURABLE; /* it ends with its connection */
    }
    QS_TRY(enter_topology(channel, arguments.bytes, error));
    status = declare_queue(channel, qsi_slice_of(queue), kept | (flags & QS_PASSIVE),
                           qsi_slice_of(arguments), &found, &lsn, error);
    if (status == QS_OK) {
        qsi_note_use(channel->store, found);
        qsi_expire(channel->store, found);
        memcpy(ok_out->queue, found->name.data, found->name.bytes);
        ok_out->queue[found->name.bytes] = '\0';
        ok_out->message_count = qsi_ready_count(found);
        ok_out->consumer_count = found->consumer_count;
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

static qs_status delete_queue(struct qs_channel *channel, struct store_queue *queue,
                              uint64_t *lsn_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_DELETE, .number = queue->core.id};
    struct qsi_chunk *chunk = NULL;

    QS_TRY(reserve_topology(store, &topology, &chunk, error));
    if (is_journalled(queue)) {
        *lsn_out = append_topology(store, &topology, chunk);
    }
    qsi_drop_queue(store, queue);
    return QS_OK;
}

void qsi_delete_queue_now(struct qs_store *store, struct store_queue *queue)
{
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_DELETE, .number = queue->core.id};
    struct qsi_chunk *chunk = NULL;

    /* Without memory or with a failed store the queue is back after a restart, empty of consumers: it is deleted again then. */
    if (is_journalled(queue) && !store->failed &&
        qsi_journal_has_room(store->journal, TOPOLOGY_ROOM, TOPOLOGY_ROOM) &&
        reserve_topology(store, &topology, &chunk, NULL) == QS_OK) {
        append_topology(store, &topology, chunk);
    }
    qsi_drop_queue(store, queue);
}

static qs_status check_delete(const struct store_queue *queue, uint32_t flags, qs_error *error)
{
    if ((flags & QS_IF_UNUSED) != 0 && queue->consumer_count > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "queue '%.*s' in use", NAME(queue->name));
    }
    if ((flags & QS_IF_EMPTY) != 0 && qsi_has_ready(queue)) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "queue '%.*s' not empty", NAME(queue->name));
    }
    return QS_OK;
}

qs_status qs_channel_queue_delete(qs_channel *channel, qs_slice queue, uint32_t flags,
                                  uint64_t *count_out, qs_error *error)
{
    struct store_queue *found;
    uint64_t lsn = 0;
    qs_status status = QS_OK;

    *count_out = 0;
    QS_TRY(enter_topology(channel, 0, error));
    found = qsi_find_queue(channel->store, qsi_slice_of(queue));
    if (found != NULL) { /* as a broker: gone is gone */
        status = check_owner(channel, found, error);
        if (status == QS_OK) {
            status = check_delete(found, flags, error);
        }
        if (status == QS_OK) {
            *count_out = qsi_ready_count(found);
            status = delete_queue(channel, found, &lsn, error);
        }
    }
    if (status == QS_OK) {
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

/* ---- purging ---- */

struct purge {
    uint64_t queue_id;
    uint8_t *at;
    uint32_t count;
};

static void record_purged(void *context, uint64_t first_seq, uint32_t count)
{
    struct purge *purge = context;
    struct qsi_settle settle = {purge->queue_id, first_seq, count, QSI_SETTLE_ACK};

    qsi_settle_encode(purge->at, &settle);
    purge->at += QSI_SETTLE_BYTES;
    purge->count += 1;
}

/* What the purge's records take. */
static uint64_t purge_bytes(const struct store_queue *queue)
{
    uint64_t ranges = 0;

    for (uint32_t i = 0; i < qsi_level_count(queue); i++) {
        ranges += qsi_queue_purge_ranges(qsi_core_at(queue, i));
    }
    return ranges * QSI_SETTLE_BYTES;
}

static uint64_t purge_levels(struct store_queue *queue, qsi_range_visitor *visit,
                             struct purge *purge)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < qsi_level_count(queue); i++) {
        struct qsi_queue *core = &qsi_level_at(queue, i)->core;
        purge->queue_id = core->id;
        count += qsi_queue_purge(core, visit, purge);
    }
    return count;
}

static qs_status purge_queue(struct qs_store *store, struct store_queue *queue, uint64_t *count_out,
                             uint64_t *lsn_out, qs_error *error)
{
    struct purge purge = {0};
    struct qsi_chunk *chunk = NULL;
    uint64_t from, bytes = purge_bytes(queue);

    if (!is_journalled(queue) || bytes == 0) {
        *count_out = purge_levels(queue, ignore_range, &purge);
        return QS_OK;
    }
    if (qsi_journal_reserve(store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    QS_TRY(qsi_arena_place(store, true, bytes, &chunk, error));
    from = chunk->used;
    purge.at = chunk->data + from;
    *count_out = purge_levels(queue, record_purged, &purge);
    chunk->used += (uint64_t)purge.count * QSI_SETTLE_BYTES;
    *lsn_out = qsi_store_append(store, chunk, from, chunk->used - from, purge.count, false);
    qsi_commit_kick(store);
    return QS_OK;
}

/* Finds the queue and makes room for the purge's records, which may take turns. */
static qs_status prepare_purge(struct qs_channel *channel, struct qsi_slice name,
                               struct store_queue **queue_out, qs_error *error)
{
    bool released = true;

    while (released) {
        uint64_t bytes;
        QS_TRY(qsi_require_queue(channel, name, queue_out, error));
        bytes = purge_bytes(*queue_out);
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, &released, error));
    }
    return QS_OK;
}

qs_status qs_channel_queue_purge(qs_channel *channel, qs_slice queue, uint64_t *count_out,
                                 qs_error *error)
{
    struct store_queue *found = NULL;
    uint64_t lsn = 0;
    qs_status status;

    *count_out = 0;
    QS_TRY(enter_topology(channel, 0, error));
    status = prepare_purge(channel, qsi_slice_of(queue), &found, error);
    if (status == QS_OK) {
        status = purge_queue(channel->store, found, count_out, &lsn, error);
    }
    if (status == QS_OK) {
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

/* ---- the queue's mode ---- */

static void set_mode(struct qs_store *store, struct store_queue *queue, bool lazy)
{
    for (uint32_t i = 0; i < qsi_level_count(queue); i++) {
        struct store_queue *level = qsi_level_at(queue, i);
        store->lazy_count += lazy ? 1 : 0;
        store->lazy_count -= level->lazy ? 1 : 0;
        level->lazy = lazy;
    }
    queue->mode_was_set = true;
    qsi_pager_kick(store);
}

qs_status qs_store_set_queue_mode(qs_store *store, qs_slice name, bool lazy, qs_error *error)
{
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_MODE, .flags = lazy ? 1 : 0};
    struct qsi_chunk *chunk = NULL;
    struct store_queue *queue;
    uint64_t lsn = 0;
    bool released;
    qs_status status;

    QS_TRY(qsi_store_enter(store, error));
    status = qsi_commit_make_room(store, TOPOLOGY_ROOM, TOPOLOGY_ROOM, &released, error);
    queue = qsi_find_queue(store, qsi_slice_of(name));
    if (status == QS_OK && queue == NULL) {
        status = qsi_fail(error, QS_NOT_FOUND, "no queue '%.*s' in this store", NAME(name));
    }
    if (status == QS_OK) {
        status = reserve_topology(store, &topology, &chunk, error);
    }
    if (status == QS_OK) {
        topology.number = queue->core.id;
        set_mode(store, queue, lazy);
        if (is_journalled(queue)) {
            lsn = append_topology(store, &topology, chunk);
        }
        status = qsi_commit_wait(store, lsn, QS_FOREVER, error);
    }
    qsi_store_leave(store);
    return status;
}

/* ---- bindings ---- */

struct binding_call {
    qs_slice source, destination, routing_key, arguments;
    bool to_exchange;
    bool unbind;
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
    topology_out->number = qsi_queue_of(binding->destination)->core.id;
    return binding->exchange->durable && is_journalled(qsi_queue_of(binding->destination));
}

/* Both ends, in the order in which a broker looks for them. */
static qs_status find_ends(struct qs_channel *channel, const struct binding_call *call,
                           struct qsi_exchange **source_out,
                           struct qsi_destination **destination_out, qs_error *error)
{
    struct qsi_router *router = &channel->store->router;
    struct qsi_slice destination = qsi_slice_of(call->destination);
    struct qsi_exchange *exchange;
    struct store_queue *queue;

    QS_TRY(qsi_exchange_check_name(qsi_slice_of(call->source), error));
    if (call->to_exchange) {
        QS_TRY(qsi_exchange_check_name(destination, error));
    }
    QS_TRY(qsi_router_require(router, qsi_slice_of(call->source), source_out, error));
    if (call->to_exchange) {
        QS_TRY(qsi_router_require(router, destination, &exchange, error));
        *destination_out = &exchange->destination;
        return QS_OK;
    }
    QS_TRY(qsi_require_queue(channel, destination, &queue, error));
    *destination_out = &queue->destination;
    return QS_OK;
}

static qs_status change_binding(struct qs_channel *channel, const struct binding_call *call,
                                uint64_t *lsn_out, qs_error *error)
{
    struct qs_store *store = channel->store;
    struct qsi_exchange *source;
    struct qsi_destination *destination;
    struct qsi_chunk *chunk = NULL;
    struct qsi_topology topology;
    bool changed = false;
    bool durable;
    qs_status status = find_ends(channel, call, &source, &destination, error);

    if (status == QS_NOT_FOUND && call->unbind) {
        return QS_OK; /* as a broker: what is not there is not bound */
    }
    QS_TRY(status);
    QS_TRY(check_table(qsi_slice_of(call->arguments), error));
    durable =
        qsi_describe_binding(&(struct qsi_binding){.exchange = source,
                                                   .destination = destination,
                                                   .key = qsi_slice_of(call->routing_key),
                                                   .arguments = qsi_slice_of(call->arguments)},
                             &topology);
    QS_TRY(reserve_topology(store, &topology, &chunk, error));
    if (call->unbind) {
        topology.type = call->to_exchange ? QSI_RECORD_EXCHANGE_UNBIND : QSI_RECORD_UNBIND;
        topology.strings[0] = qsi_slice_of(call->source); /* the exchange may go */
        topology.strings[3] = qsi_slice_of(call->to_exchange ? call->destination : (qs_slice){0});
        QS_TRY(qsi_router_unbind(&store->router, source, destination, topology.strings[1],
                                 topology.strings[2], &changed, error));
    } else {
        QS_TRY(qsi_router_bind(&store->router, source, destination, topology.strings[1],
                               topology.strings[2], &changed, error));
    }
    if (changed && durable) {
        *lsn_out = append_topology(store, &topology, chunk);
    }
    return QS_OK;
}

static qs_status bind_or_unbind(struct qs_channel *channel, const struct binding_call *call,
                                qs_error *error)
{
    uint64_t lsn = 0;
    qs_status status;

    QS_TRY(enter_topology(channel, call->arguments.bytes, error));
    status = change_binding(channel, call, &lsn, error);
    if (status == QS_OK) {
        status = qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    return qsi_channel_leave(channel, status);
}

qs_status qs_channel_queue_bind(qs_channel *channel, qs_slice queue, qs_slice exchange,
                                qs_slice routing_key, qs_slice arguments, qs_error *error)
{
    const struct binding_call call = {exchange, queue, routing_key, arguments, false, false};

    return bind_or_unbind(channel, &call, error);
}

qs_status qs_channel_queue_unbind(qs_channel *channel, qs_slice queue, qs_slice exchange,
                                  qs_slice routing_key, qs_slice arguments, qs_error *error)
{
    const struct binding_call call = {exchange, queue, routing_key, arguments, false, true};

    return bind_or_unbind(channel, &call, error);
}

qs_status qs_channel_exchange_bind(qs_channel *channel, qs_slice destination, qs_slice source,
                                   qs_slice routing_key, qs_slice arguments, qs_error *error)
{
    const struct binding_call call = {source, destination, routing_key, arguments, true, false};

    return bind_or_unbind(channel, &call, error);
}

qs_status qs_channel_exchange_unbind(qs_channel *channel, qs_slice destination, qs_slice source,
                                     qs_slice routing_key, qs_slice arguments, qs_error *error)
{
    const struct binding_call call = {source, destination, routing_key, arguments, true, true};

    return bind_or_unbind(channel, &call, error);
}

/* ---- replay ---- */

static qs_status replay_queue_declare(struct qs_store *store, const struct qsi_topology *topology,
                                      qs_error *error)
{
    struct store_queue *queue = qsi_find_queue(store, topology->strings[0]);
    qs_status status;

    if (qsi_level_in(topology->number) != 0) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s': id %llu is too large",
                        NAME(topology->strings[0]), (unsigned long long)topology->number);
    }
    if (qsi_find_by_id(store, topology->number) != NULL) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s' is declared twice",
                        NAME(topology->strings[0]));
    }
    /* As with exchanges: an auto-delete queue may have ended without a record, and then another one took its name. */
    if (queue != NULL) {
        qsi_drop_queue(store, queue);
    }
    QS_TRY(new_queue(store, topology->number, topology->flags, topology->strings[0],
                     topology->strings[1], &queue, error));
    status = add_queue(store, queue, error);
    if (status != QS_OK) {
        free_queue(queue);
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

    /* The journal holds first declarations only: one that is there already ended without a record (no room for it). */
    if (found != NULL && !found->predeclared) {
        qsi_router_delete(&store->router, found);
    }
    return qsi_router_declare(&store->router, topology->strings[0], &options, &created, error);
}

/* NULL: it is gone. */
static struct qsi_destination *replayed_destination(struct qs_store *store,
                                                    const struct qsi_topology *topology)
{
    struct store_queue *queue;
    struct qsi_exchange *exchange;

    if (topology->type == QSI_RECORD_EXCHANGE_BIND ||
        topology->type == QSI_RECORD_EXCHANGE_UNBIND) {
        exchange = qsi_router_find(&store->router, topology->strings[3]);
        return exchange != NULL ? &exchange->destination : NULL;
    }
    queue = qsi_find_by_id(store, topology->number);
    return queue != NULL ? &queue->destination : NULL;
}

static qs_status replay_binding(struct qs_store *store, const struct qsi_topology *topology,
                                qs_error *error)
{
    struct qsi_destination *destination = replayed_destination(store, topology);
    struct qsi_exchange *source = qsi_router_find(&store->router, topology->strings[0]);
    bool changed;

    if (destination == NULL || source == NULL) {
        return QS_OK; /* an auto-delete exchange may be gone, and with it the binding */
    }
    if (topology->type == QSI_RECORD_BIND || topology->type == QSI_RECORD_EXCHANGE_BIND) {
        return qsi_router_bind(&store->router, source, destination, topology->strings[1],
                               topology->strings[2], &changed, error);
    }
    return qsi_router_unbind(&store->router, source, destination, topology->strings[1],
                             topology->strings[2], &changed, error);
}

static qs_status replay(struct qs_store *store, const struct qsi_topology *topology,
                        qs_error *error)
{
    struct store_queue *queue;
    struct qsi_exchange *exchange;

    switch (topology->type) {
    case QSI_RECORD_QUEUE_DECLARE:
    case QSI_RECORD_PRIORITY_QUEUE_DECLARE:
        return replay_queue_declare(store, topology, error);
    case QSI_RECORD_QUEUE_DELETE:
        queue = qsi_find_by_id(store, topology->number);
        if (queue != NULL) {
            qsi_drop_queue(store, queue);
        }
        return QS_OK;
    case QSI_RECORD_QUEUE_MODE:
        queue = qsi_find_by_id(store, topology->number);
        if (queue != NULL) {
            set_mode(store, queue, (topology->flags & 1) != 0);
        }
        return QS_OK;
    case QSI_RECORD_EXCHANGE_DECLARE:
        return replay_exchange_declare(store, topology, error);
    case QSI_RECORD_EXCHANGE_DELETE:
        exchange = qsi_router_find(&store->router, topology->strings[0]);
        if (exchange != NULL) {
            qsi_router_delete(&store->router, exchange);
        }
        return QS_OK;
    default:
        return replay_binding(store, topology, error);
    }
}

qs_status qsi_replay_topology(struct qs_store *store, const struct qsi_topology *topology,
                              qs_error *error)
{
    qs_status status;

    store->router.keeps_auto_delete = true;
    status = replay(store, topology, error);
    store->router.keeps_auto_delete = false;
    return status;
}
