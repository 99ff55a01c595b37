/* Queues: declared, deleted, and switched between modes. */
#include "arguments.h"
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "field_table.h"
#include "limits.h"
#include "pager.h"
#include "queue_life.h"
#include "store.h"
#include "store_kinds.h"
#include "thread_safety.h"
#include "title.h"
#include "topology.h"

#include <stdio.h>
#include <string.h>

#define SERVER_NAME_PREFIX "amq.gen-"
#define RESERVED_PREFIX "amq."

/* ---- queues ---- */

static const char *yes_no(uint32_t flags, uint32_t flag)
{
    return (flags & flag) != 0 ? "true" : "false";
}

static qs_status check_equivalent(const struct qs_store *store, const struct qsi_store_queue *queue,
                                  uint32_t flags, struct qsi_slice arguments, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } checked[] = {{QS_DURABLE, "durable"}, {QS_AUTO_DELETE, "auto_delete"}};
    struct qsi_title title;

    QS_DCHECK(((queue->flags ^ flags) & QS_PASSIVE) == 0);
    if ((queue->flags & QS_EXCLUSIVE) != (flags & QS_EXCLUSIVE)) { /* RabbitMQ's code for it */
        return qsi_fail_locked(store, queue, error);
    }
    for (size_t i = 0; i < sizeof checked / sizeof checked[0]; i++) {
        if ((queue->flags & checked[i].flag) != (flags & checked[i].flag)) {
            return qsi_fail(
                error, QS_PRECONDITION_FAILED,
                "inequivalent arg '%s' for queue '%.*s'%s: received '%s' but current is '%s'",
                checked[i].name, QSI_NAME(queue->name), store->place,
                yes_no(flags, checked[i].flag), yes_no(queue->flags, checked[i].flag));
        }
    }
    return qsi_queue_arguments_check(queue->arguments, arguments,
                                     qsi_title_of(&title, store, queue->name), error);
}

static qs_status make_server_name(struct qs_store *store, char name_out[32], qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t random;

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_env_random(store->env, &random, sizeof random, error));
    snprintf(name_out, 32, SERVER_NAME_PREFIX "%016llx",
             (unsigned long long)(random + store->next_server_name++));
    return QS_OK;
}

/* The caller has looked up where the new queue begins. */
static qs_status create_queue(struct qs_channel *channel, struct qsi_slice name,
                              bool is_server_named, uint32_t flags, struct qsi_slice arguments,
                              uint64_t start, struct qsi_store_queue **queue_out, uint64_t *lsn_out,
                              qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_declaration declaration;
    struct qsi_chunk *chunk = NULL;
    struct qsi_store_queue *queue;
    const struct qsi_store_kind *kind;
    struct qsi_title title;
    qs_status status;

    QS_TRY(qsi_check_new_argument(arguments, "x-dead-letter-exchange", error));
    QS_TRY(qsi_arguments_check(arguments, flags, is_server_named, qsi_title_of(&title, store, name),
                               error));
    kind = qsi_kind_of(qsi_arguments_kind(arguments));
    QS_TRY(qsi_new_queue(store, kind, store->next_queue_id, flags, name, arguments, &queue, error));
    status = kind->start != NULL ? kind->start(store, queue, start, error) : QS_OK;
    if (status == QS_OK) {
        qsi_describe_queue(queue, &declaration);
        status = qsi_reserve_topology(store, &declaration.topology, &chunk, error);
    }
    if (status == QS_OK) {
        status = qsi_add_queue(store, queue, error);
    }
    if (status != QS_OK) {
        qsi_free_queue(queue);
        return status;
    }
    QS_DCHECK(queue->owner == NULL && queue->container.id == declaration.topology.number);
    if ((flags & QS_EXCLUSIVE) != 0) {
        queue->owner = channel->connection;
        qsi_list_push_back(&queue->owner->exclusive_queues, &queue->in_owner);
    }
    if (qsi_is_journalled(queue)) {
        queue->declared_lsn = *lsn_out = qsi_append_topology(store, &declaration.topology, chunk);
    }
    QS_DCHECK((flags & QS_EXCLUSIVE) == 0 || !qsi_is_journalled(queue));
    store->stats.queues_created += 1;
    *queue_out = queue;
    return QS_OK;
}

static qs_status declare_queue(struct qs_channel *channel, struct qsi_slice name, uint32_t flags,
                               struct qsi_slice arguments, uint64_t start,
                               struct qsi_store_queue **queue_out, uint64_t *lsn_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    char server_name[32];
    bool is_reserved = (flags & QS_RESERVED_NAME) != 0;

    flags &= ~(uint32_t)QS_RESERVED_NAME;
    QS_ASSERT_HELD(&channel->store->mutex);
    if (name.bytes == 0 && (flags & QS_PASSIVE) == 0) {
        QS_TRY(make_server_name(channel->store, server_name, error));
        return create_queue(channel, qsi_slice_make(server_name, (uint32_t)strlen(server_name)),
                            true, flags, arguments, start, queue_out, lsn_out, error);
    }
    if ((flags & QS_PASSIVE) != 0) {
        return qsi_require_queue(channel, name, queue_out, error);
    }
    *queue_out = qsi_find_queue(channel->store, name);
    if (*queue_out != NULL) {
        *lsn_out = (*queue_out)->declared_lsn; /* its declarer may not have waited */
        QS_TRY(qsi_check_owner(channel, *queue_out, error));
        return check_equivalent(channel->store, *queue_out, flags, arguments, error);
    }
    if (!is_reserved && name.bytes >= strlen(RESERVED_PREFIX) &&
        memcmp(name.data, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0) {
        return qsi_fail(error, QS_ACCESS_REFUSED,
                        "queue name '%.*s' contains reserved prefix '%s*'", QSI_NAME(name),
                        RESERVED_PREFIX);
    }
    return create_queue(channel, name, false, flags, arguments, start, queue_out, lsn_out, error);
}

/* May release the lock meanwhile. */
static qs_status find_start(struct qs_channel *channel, struct qsi_slice name, uint32_t flags,
                            struct qsi_slice arguments, uint64_t *start_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool is_there = name.bytes > 0 && qsi_find_queue(channel->store, name) != NULL;
    const struct qsi_store_kind *kind;

    if ((flags & QS_PASSIVE) != 0 || is_there || !qsi_table_check(arguments)) {
        return QS_OK;
    }
    kind = qsi_kind_of(qsi_arguments_kind(arguments));
    if (kind->find_start == NULL) {
        return QS_OK;
    }
    QS_TRY(qsi_check_may_wait(qsi_wait_of(flags)));
    QS_TRY(kind->find_start(channel->store, name, flags, arguments, start_out, error));
    return channel->closed ? qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile")
                           : QS_OK;
}

/* REQUIRES arguments in order. */
static qs_status declare_and_wait(struct qs_channel *channel, qs_slice queue, uint32_t flags,
                                  qs_slice arguments, qs_declare_ok *ok_out, qs_error *error)
{
    struct qsi_store_queue *found = NULL;
    uint32_t kept = flags & (QS_DURABLE | QS_EXCLUSIVE | QS_AUTO_DELETE);
    uint64_t lsn = 0, start = 0;
    qs_status status;

    if ((kept & QS_EXCLUSIVE) != 0) {
        kept &= ~(uint32_t)QS_DURABLE; /* it ends with its connection */
    }
    QS_TRY(qsi_enter_topology(channel, arguments.bytes, qsi_wait_of(flags), error));
    status =
        find_start(channel, qsi_slice_of(queue), flags, qsi_slice_of(arguments), &start, error);
    if (status == QS_OK) {
        status = declare_queue(channel, qsi_slice_of(queue),
                               kept | (flags & (QS_PASSIVE | QS_RESERVED_NAME)),
                               qsi_slice_of(arguments), start, &found, &lsn, error);
    }
    if (status == QS_OK) {
        channel->store->stats.queues_declared += (flags & QS_PASSIVE) == 0 ? 1 : 0;
        qsi_record_use(channel->store, found);
        (void)!qsi_expire(channel->store, found, NULL); /* if not, they still count */
        QS_ASSERT(found->name.bytes < sizeof ok_out->queue);
        memcpy(ok_out->queue, found->name.data, found->name.bytes);
        ok_out->queue[found->name.bytes] = '\0';
        ok_out->message_count =
            qsi_takes(found) ? qsi_ready_count(found) : qsi_container_ready_count(found->messages);
        ok_out->consumer_count = found->consumer_count;
        status = qsi_commit_complete(channel, lsn, flags, error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

qs_status qs_channel_queue_declare(qs_channel *channel, qs_slice queue, uint32_t flags,
                                   qs_slice arguments, qs_declare_ok *ok_out, qs_error *error)
{
    struct qsi_buf sorted = {0};
    qs_status status;

    QS_TRY(qsi_check_new_name(queue, "queue name", error));
    status = qsi_order_arguments(&sorted, &arguments, error);
    if (status == QS_OK) {
        status = declare_and_wait(channel, queue, flags, arguments, ok_out, error);
    }
    qsi_buf_fini(&sorted);
    return status;
}

static qs_status delete_queue(struct qs_channel *channel, struct qsi_store_queue *queue,
                              uint64_t *lsn_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_DELETE, .number = queue->container.id};
    struct qsi_chunk *chunk = NULL;

    QS_TRY(qsi_reserve_topology(store, &topology, &chunk, error));
    if (qsi_is_journalled(queue)) {
        *lsn_out = qsi_append_topology(store, &topology, chunk);
    }
    QS_DCHECK(qsi_find_by_id(store, topology.number) == queue);
    qsi_drop_queue(store, queue, QSI_AUTO_DELETE_GOES);
    return QS_OK;
}

void qsi_delete_queue_now(struct qs_store *store, struct qsi_store_queue *queue)
{
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_DELETE, .number = queue->container.id};
    struct qsi_chunk *chunk = NULL;

    QS_ASSERT_HELD(&store->mutex);
    /* Without memory or with a failed store the queue is back after a restart, without consumers:
     * it is deleted again then. */
    if (qsi_is_journalled(queue) && !store->failed &&
        qsi_journal_has_room(store->journal, QSI_TOPOLOGY_ROOM, QSI_TOPOLOGY_ROOM) &&
        qsi_reserve_topology(store, &topology, &chunk, NULL) == QS_OK) {
        qsi_append_topology(store, &topology, chunk);
    }
    qsi_drop_queue(store, queue, QSI_AUTO_DELETE_GOES);
}

static qs_status check_delete(const struct qs_store *store, const struct qsi_store_queue *queue,
                              uint32_t flags, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    if (queue->kind->check_delete != NULL) {
        QS_TRY(queue->kind->check_delete(store, queue, error));
    }
    if (qsi_is_stream(queue)) { /* RabbitMQ checks neither for a stream */
        return QS_OK;
    }
    if ((flags & QS_IF_UNUSED) != 0 && queue->consumer_count > 0) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "queue '%.*s'%s in use",
                        QSI_NAME(queue->name), store->place);
    }
    if ((flags & QS_IF_EMPTY) != 0 && (qsi_has_ready(queue) || qsi_delayed_count(queue) > 0)) {
        return qsi_fail(error, QS_PRECONDITION_FAILED, "queue '%.*s'%s not empty",
                        QSI_NAME(queue->name), store->place);
    }
    return QS_OK;
}

qs_status qs_channel_queue_delete(qs_channel *channel, qs_slice queue, uint32_t flags,
                                  uint64_t *count_out, qs_error *error)
{
    struct qsi_store_queue *found;
    uint64_t lsn = 0;
    qs_status status = QS_OK;

    *count_out = 0;
    QS_TRY(qsi_enter_topology(channel, 0, qsi_wait_of(flags), error));
    found = qsi_find_queue(channel->store, qsi_slice_of(queue));
    if (found == NULL) { /* as in RabbitMQ: deleting a missing one succeeds */
        lsn = channel->store->topology_lsn;
    } else {
        status = qsi_check_owner(channel, found, error);
        if (status == QS_OK) {
            status = check_delete(channel->store, found, flags, error);
        }
        if (status == QS_OK) {
            *count_out = qsi_ready_count(found) + qsi_delayed_count(found);
            status = delete_queue(channel, found, &lsn, error);
        }
    }
    if (status == QS_OK) {
        status = qsi_commit_complete(channel, lsn, flags, error);
    }
    return qsi_channel_leave_after(channel, qsi_wait_of(flags), status);
}

/* ---- the queue's mode ---- */

void qsi_set_mode(struct qs_store *store, struct qsi_store_queue *queue, bool lazy)
{
    QS_ASSERT_HELD(&store->mutex);
    for (uint32_t i = 0; i < qsi_subqueue_count(queue); i++) {
        struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
        store->paging.lazy_count += lazy ? 1 : 0;
        store->paging.lazy_count -= subqueue->lazy ? 1 : 0;
        subqueue->lazy = lazy;
    }
    queue->mode_was_set = true;
    qsi_pager_wake(store);
}

qs_status qs_store_set_queue_mode(qs_store *store, qs_slice name, bool lazy, qs_error *error)
{
    struct qsi_topology topology = {.type = QSI_RECORD_QUEUE_MODE, .flags = lazy ? 1 : 0};
    struct qsi_chunk *chunk = NULL;
    struct qsi_store_queue *queue;
    uint64_t lsn = 0;
    bool released;
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    status = qsi_commit_make_room(store, QSI_TOPOLOGY_ROOM, QSI_TOPOLOGY_ROOM, QSI_ROOM_REMOVE,
                                  &released, QSI_MAY_WAIT, error);
    queue = qsi_find_queue(store, qsi_slice_of(name));
    if (status == QS_OK && queue == NULL) {
        status = qsi_fail_no_queue(store, qsi_slice_of(name), error);
    }
    if (status == QS_OK) {
        status = qsi_reserve_topology(store, &topology, &chunk, error);
    }
    if (status == QS_OK) {
        topology.number = queue->container.id;
        qsi_set_mode(store, queue, lazy);
        if (qsi_is_journalled(queue)) {
            lsn = qsi_append_topology(store, &topology, chunk);
        }
        status = qsi_commit_wait(store, lsn, QS_FOREVER, error);
    }
    qsi_store_leave(store);
    return status;
}
