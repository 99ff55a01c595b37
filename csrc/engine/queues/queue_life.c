/* The life of a queue: found, made, emptied, and freed when nothing needs it any more. */
#include "queue_life.h"

#include "alloc.h"
#include "arguments.h"
#include "check.h"
#include "deals.h"
#include "error.h"
#include "field_table.h"
#include "notify.h"
#include "priorities.h"
#include "store_kind.h"
#include "thread_safety.h"
#include "turns.h"
#include "wake.h"

#include <string.h>

struct qsi_store_queue *qsi_find_queue(struct qs_store *store, struct qsi_slice name)
{
    struct qsi_destination *destination = qsi_router_find_destination(&store->router, name);

    return destination != NULL ? qsi_queue_of(destination) : NULL;
}

qs_status qsi_fail_locked(const struct qs_store *store, const struct qsi_store_queue *queue,
                          qs_error *error)
{
    return qsi_fail(error, QS_RESOURCE_LOCKED,
                    "cannot obtain exclusive access to locked queue '%.*s'%s. It could be "
                    "originally declared on another connection or the exclusive property value "
                    "does not match that of the original declaration.",
                    QSI_NAME(queue->name), store->place);
}

qs_status qsi_check_owner(const struct qs_channel *channel, const struct qsi_store_queue *queue,
                          qs_error *error)
{
    if (queue->owner != NULL && queue->owner != channel->connection) {
        return qsi_fail_locked(channel->store, queue, error);
    }
    return QS_OK;
}

qs_status qsi_fail_no_queue(const struct qs_store *store, struct qsi_slice name, qs_error *error)
{
    return qsi_fail(error, QS_NOT_FOUND, "no queue '%.*s'%s", QSI_NAME(name), store->place);
}

qs_status qsi_require_queue(struct qs_channel *channel, struct qsi_slice name,
                            struct qsi_store_queue **queue_out, qs_error *error)
{
    *queue_out = qsi_find_queue(channel->store, name);
    if (*queue_out == NULL) {
        return qsi_fail_no_queue(channel->store, name, error);
    }
    return qsi_check_owner(channel, *queue_out, error);
}

qs_status qsi_stream_find(struct qs_store *store, struct qsi_slice name,
                          struct qsi_store_queue **queue_out, qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    *queue_out = qsi_find_queue(store, name);
    if (*queue_out == NULL) {
        return qsi_fail_no_queue(store, name, error);
    }
    return qsi_is_stream(*queue_out) ? QS_OK
                                     : qsi_fail(error, QS_EINVAL, "queue '%.*s'%s is no stream",
                                                QSI_NAME(name), store->place);
}

qs_status qsi_refuse_stream(const struct qs_store *store, const struct qsi_store_queue *queue,
                            const char *what, qs_error *error)
{
    return qsi_is_stream(queue) ? qsi_fail(error, QS_NOT_IMPLEMENTED,
                                           "%s not supported by stream queues queue '%.*s'%s", what,
                                           QSI_NAME(queue->name), store->place)
                                : QS_OK;
}

/* ---- the life of a queue ---- */

void qsi_record_rates(struct qsi_store_queue *queue, uint64_t now)
{
    queue->rate_at_ns = now;
    queue->rate_in = queue->messages->in_count;
    queue->rate_out = queue->container.taken_count;
    queue->rate_settled = queue->container.settled_count;
}

void qsi_begin_rates(struct qs_store *store, struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    queue->rate_weight = queue->ingress_sum = queue->egress_sum = queue->ack_sum = 0;
    qsi_record_rates(queue, store->env->monotonic_ns(store->env));
}

void qsi_free_queue(struct qsi_store_queue *queue)
{
    QS_DCHECK(queue->jobs == 0 && queue->consumer_count == 0 && qsi_list_is_empty(&queue->waiting));
    qsi_list_remove(&queue->in_owner);
    qsi_list_remove(&queue->in_deleted);
    qsi_list_remove(&queue->in_ahead);
    qsi_list_remove(&queue->in_trimming);
    qsi_list_remove(&queue->in_timed);
    qsi_container_fini(&queue->container);
    if (queue->kind->fini != NULL) {
        queue->kind->fini(queue);
    }
    if (queue->parent == NULL) {
        qsi_free(queue->counts);
    }
    qsi_free(queue->priorities);
    qsi_free(queue);
}

/* The queue itself, and room for all the others. */
static qs_status begin_priorities(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(queue->priorities == NULL && queue->parent == NULL);
    if (!queue->policy.has_priorities) {
        return QS_OK;
    }
    queue->priorities =
        qsi_zalloc(sizeof *queue->priorities +
                   (queue->policy.priority_max + (size_t)1) * sizeof(struct qsi_store_queue *));
    if (queue->priorities == NULL) {
        return QS_ENOMEM;
    }
    queue->priorities->count = 1;
    queue->priorities->queues[0] = queue;
    queue->priorities->sum.earliest = QSI_NEVER;
    qsi_queue_join(&queue->core, &queue->priorities->sum, 0);
    return QS_OK;
}

static void begin_lists(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_list_init(&queue->in_owner);
    qsi_list_init(&queue->in_ahead);
    qsi_list_init(&queue->in_trimming);
    qsi_list_init(&queue->in_timed);
    qsi_list_init(&queue->in_source);
    qsi_list_init(&queue->consumers);
    qsi_list_init(&queue->full);
    qsi_list_init(&queue->awaiting);
    qsi_list_init(&queue->waiting);
    qsi_list_init(&queue->in_deleted);
}

/* Before there is a container. */
static void begin_queue(struct qsi_store_queue *queue, const struct qsi_store_kind *kind,
                        uint32_t flags, struct qsi_slice name, struct qsi_slice arguments)
    QSI_REQUIRES(qsi_store_mutex)
{
    queue->kind = kind;
    begin_lists(queue);
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
}

qs_status qsi_new_queue(struct qs_store *store, const struct qsi_store_kind *kind, uint64_t id,
                        uint32_t flags, struct qsi_slice name, struct qsi_slice arguments,
                        struct qsi_store_queue **queue_out, qs_error *error)
{
    struct qsi_store_queue *queue;
    struct qsi_arguments asked;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    if (!qsi_table_check(arguments)) {
        return qsi_fail(error, QS_EINVAL, "the arguments are not an AMQP field table");
    }
    queue = qsi_zalloc(sizeof *queue + name.bytes + arguments.bytes);
    if (queue == NULL) {
        return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", QSI_NAME(name));
    }
    begin_queue(queue, kind, flags, name, arguments);
    (void)qsi_arguments_read(&asked, kind->arguments, queue->arguments, queue->name, NULL);
    queue->policy = asked.queue;
    status = kind->make(store, queue, id, &asked, error);
    if (status != QS_OK) {
        qsi_free_queue(queue);
        return status;
    }
    qsi_begin_rates(store, queue);
    queue->lazy = queue->policy.lazy;
    qsi_queue_set(&queue->core,
                  &(struct qsi_queue_settings){
                      .ttl_us = qsi_policy_has_ttl(&queue->policy)
                                    ? queue->policy.message_ttl_ms * QSI_US_PER_MS
                                    : QSI_NEVER,
                      .counts_bytes = qsi_policy_counts_bytes(&queue->policy),
                      .counts_deliveries = qsi_policy_counts_deliveries(&queue->policy),
                  });
    *queue_out = queue;
    return QS_OK;
}

/* ---- priorities ---- */

static qs_status make_subqueue(struct qs_store *store, struct qsi_store_queue *queue,
                               uint8_t priority, struct qsi_store_queue **subqueue_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *created;
    uint64_t id = qsi_priority_id(queue, priority);

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_new_queue(store, queue->kind, id, queue->flags, queue->name, queue->arguments,
                         &created, NULL));
    if (qsi_map_put_number(&store->queues_by_id, id, created) != QS_OK) {
        qsi_free_queue(created);
        return QS_ENOMEM;
    }
    created->parent = queue;
    created->priority = qsi_priority_in(id);
    created->lazy = queue->lazy;
    qsi_queue_set_grace(&created->core, qsi_queue_grace(&queue->core));
    store->paging.lazy_count += queue->lazy ? 1 : 0;
    qsi_add_subqueue(queue, created);
    *subqueue_out = created;
    return QS_OK;
}

qs_status qsi_make_subqueue_of(struct qs_store *store, struct qsi_store_queue *queue,
                               uint8_t priority)
{
    struct qsi_store_queue *subqueue;

    QS_ASSERT_HELD(&store->mutex);
    return qsi_find_subqueue(queue, priority) != NULL
               ? QS_OK
               : make_subqueue(store, queue, priority, &subqueue);
}

qs_status qsi_require_by_id(struct qs_store *store, uint64_t id, struct qsi_store_queue **queue_out,
                            qs_error *error)
{
    struct qsi_store_queue *queue;

    QS_ASSERT_HELD(&store->mutex);
    *queue_out = qsi_find_by_id(store, id);
    if (QS_LIKELY(*queue_out != NULL || qsi_priority_in(id) == 0)) {
        return QS_OK;
    }
    queue = qsi_find_by_id(store, qsi_queue_in(id));
    if (queue == NULL) {
        return QS_OK;
    }
    if (qsi_priority_in(id) > queue->policy.priority_max) {
        return qsi_fail(error, QS_ECORRUPT, "queue '%.*s': it has no priority %u",
                        QSI_NAME(queue->name), qsi_priority_in(id));
    }
    return make_subqueue(store, queue, qsi_priority_in(id), queue_out) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "queue '%.*s'", QSI_NAME(queue->name));
}

/* ---- into the store, and out ---- */

qs_status qsi_add_queue(struct qs_store *store, struct qsi_store_queue *queue, qs_error *error)
{
    qs_status status = qsi_map_put_number(&store->queues_by_id, queue->container.id, queue);

    QS_ASSERT_HELD(&store->mutex);
    if (status != QS_OK) {
        return qsi_fail(error, status, "queue '%.*s'", QSI_NAME(queue->name));
    }
    status = begin_priorities(queue);
    if (status == QS_OK) {
        status = qsi_router_add_destination(&store->router, &queue->destination, error);
    } else {
        status = qsi_fail(error, status, "queue '%.*s'", QSI_NAME(queue->name));
    }
    if (status != QS_OK) {
        qsi_map_remove_number(&store->queues_by_id, queue->container.id);
        return status;
    }
    store->paging.lazy_count += queue->lazy ? 1 : 0;
    queue->destination.takes_none = !qsi_appends(queue);
    if (queue->kind->added != NULL) {
        queue->kind->added(store, queue);
    }
    if (qsi_queue_in(queue->container.id) >= store->next_queue_id) {
        store->next_queue_id = qsi_queue_in(queue->container.id) + 1;
    }
    return QS_OK;
}

/* The consumers learn of it through an event; they do not hold the queue any more. */
static void cancel_consumers(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    while (queue->consumer_count > 0) {
        struct qsi_store_consumer *consumer = qsi_any_consumer(queue);
        (void)qsi_deals_return(consumer);
        qsi_list_remove(&consumer->in_queue);
        queue->consumer_count -= 1;
        qsi_list_remove(&consumer->in_awaiting);
        consumer->queue = NULL;
        qsi_list_remove(&consumer->in_channel);
        qsi_list_push_back(&consumer->channel->cancelled, &consumer->in_channel);
        if ((consumer->channel->armed_kinds & QS_EVENT_CANCEL) != 0) {
            qsi_channel_notify(consumer->channel);
        }
    }
    queue->active = NULL;
}

void qsi_free_queue_if_done(struct qsi_store_queue *queue)
{
    if (queue->deleted && queue->jobs == 0 && qsi_out_count(queue) == 0) {
        qsi_free_queue(queue);
    }
}

void qsi_end_queue_job(struct qsi_store_queue *queue)
{
    QS_DCHECK(queue->jobs > 0);
    queue->jobs -= 1;
    qsi_free_queue_if_done(queue);
}

/* Removes the queue, or a priority, from those that have messages. */
static void abandon_queue(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_map_remove_number(&store->queues_by_id, queue->container.id);
    qsi_list_remove(&queue->in_owner);
    qsi_list_remove(&queue->in_ahead);
    qsi_list_remove(&queue->in_trimming);
    qsi_list_remove(&queue->in_timed);
    store->paging.lazy_count -= queue->lazy ? 1 : 0;
    if (queue->kind->abandoned != NULL) {
        queue->kind->abandoned(store, queue);
    }
    qsi_container_abandon(&queue->container);
    queue->deleted = true;
    qsi_list_push_back(&store->deleted_queues, &queue->in_deleted);
    qsi_free_queue_if_done(queue);
}

/* From here on each priority lives until its own outstanding messages are settled. */
static void abandon_priorities(struct qs_store *store, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; i + 1 < qsi_subqueue_count(queue); i++) {
        struct qsi_store_queue *subqueue = qsi_subqueue_at(queue, i);
        subqueue->parent = NULL;
        subqueue->counts = NULL; /* they are the queue's */
        qsi_queue_join(&subqueue->core, NULL, 0);
        abandon_queue(store, subqueue);
    }
    qsi_queue_join(&queue->core, NULL, 0);
    qsi_free(queue->priorities);
    queue->priorities = NULL;
}

void qsi_drop_queue(struct qs_store *store, struct qsi_store_queue *queue,
                    enum qsi_auto_delete auto_delete)
{
    QS_ASSERT_HELD(&store->mutex);
    if (auto_delete == QSI_AUTO_DELETE_GOES) { /* not by a replay */
        store->stats.queues_deleted += 1;
    }
    cancel_consumers(queue);
    qsi_line_wake_all(store, queue);
    qsi_router_remove_destination(&store->router, &queue->destination, auto_delete);
    abandon_priorities(store, queue);
    abandon_queue(store, queue);
    qsi_events_notify(store);
}

void qsi_free_all_queues(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        qsi_free_queue(cursor.value);
    }
    while (store->deleted_queues.next != NULL && !qsi_list_is_empty(&store->deleted_queues)) {
        qsi_free_queue(
            QSI_LIST_OWNER(store->deleted_queues.next, struct qsi_store_queue, in_deleted));
    }
}
