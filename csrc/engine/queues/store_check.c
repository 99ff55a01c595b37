/* Debug builds: do the parts of a store agree with each other? */
#include "store_check.h"

#include "check.h"
#include "prefetch.h"
#include "priorities.h"
#include "store_kind.h"
#include "turns.h"

#ifndef NDEBUG

/* What belongs together and stands in different places. */
struct tally {
    uint64_t out;         /* out, by the queues' counts */
    uint64_t outstanding; /* and those that channels have, withheld and dealt ones among them */
    uint32_t streams;
    uint32_t channels, armed; /* of the last: what counts there, waits at queues among them */
};

static void check_consumer(const struct qsi_store_queue *queue,
                           const struct qsi_store_consumer *consumer) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(consumer->queue == queue && !consumer->is_gone);
    QS_DCHECK(!consumer->rests || !qsi_consumer_can_take(consumer));
    QS_DCHECK(consumer->dealt_count <= consumer->channel->deals.count);
    QS_DCHECK(!qsi_consumer_is_slow(consumer) || !qsi_list_is_empty(&consumer->in_full));
}

static void check_consumers(const struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = 0;
    int64_t priority = INT64_MAX;

    for (const struct qsi_list *node = queue->consumers.next; node != &queue->consumers;
         node = node->next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, const struct qsi_store_consumer, in_queue);
        check_consumer(queue, consumer);
        QS_DCHECK(!consumer->is_full && consumer->priority <= priority);
        priority = consumer->priority;
        count += 1;
    }
    for (const struct qsi_list *node = queue->full.next; node != &queue->full; node = node->next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, const struct qsi_store_consumer, in_queue);
        check_consumer(queue, consumer);
        QS_DCHECK(consumer->is_full && qsi_consumer_is_used_up(consumer));
        count += 1;
    }
    QS_DCHECK(queue->consumer_count == count);
    QS_DCHECK(queue->active == NULL || count > 0);
    QS_DCHECK(!queue->exclusive_consumer || count == 1);
}

/* A queue with priorities, by its sub-queues. */
static void check_priorities(struct qsi_store_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_priorities *priorities = queue->priorities;
    uint64_t ready = 0, bytes = 0;

    QS_DCHECK(priorities->count > 0 && priorities->queues[priorities->count - 1] == queue);
    for (uint32_t i = 0; i < priorities->count; i++) {
        const struct qsi_store_queue *subqueue = priorities->queues[i];
        QS_DCHECK(i == 0 || subqueue->priority < priorities->queues[i - 1]->priority);
        QS_DCHECK(subqueue == queue || subqueue->parent == queue);
        QS_DCHECK(subqueue->core.sum == &priorities->sum);
        QS_DCHECK(subqueue->core.place == subqueue->priority);
        ready += qsi_queue_ready_count(&subqueue->core);
        bytes += qsi_queue_ready_bytes(&subqueue->core);
    }
    QS_DCHECK(priorities->sum.ready_count == ready);
    QS_DCHECK(priorities->sum.ready_bytes == bytes);
}

static void check_queue(struct qsi_store_queue *queue, struct tally *tally)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_queue_check(&queue->core);
    check_consumers(queue);
    tally->out += qsi_out_count(queue);
    for (const struct qsi_list *node = queue->waiting.next; node != &queue->waiting;
         node = node->next) {
        tally->armed += 1;
    }
    if (queue->priorities != NULL) {
        check_priorities(queue);
    }
    QS_DCHECK(queue->messages != &queue->container || !qsi_is_stream(queue));
    QS_DCHECK(qsi_takes(queue) != qsi_is_stream(queue));
    tally->streams += qsi_is_stream(queue) ? 1 : 0;
    if (queue->kind->check != NULL) {
        queue->kind->check(queue);
    }
}

static void check_queues(struct qs_store *store, struct tally *tally) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        QS_DCHECK(!queue->deleted && qsi_find_by_id(store, queue->container.id) == queue);
        check_queue(queue, tally);
    }
    QS_DCHECK(store->stream_count == tally->streams);
    for (struct qsi_list *node = store->deleted_queues.next; node != &store->deleted_queues;
         node = node->next) {
        struct qsi_store_queue *queue = QSI_LIST_OWNER(node, struct qsi_store_queue, in_deleted);
        QS_DCHECK(queue->deleted && qsi_queue_ready_count(&queue->core) == 0);
        tally->out += qsi_out_count(queue);
    }
}

static void check_channel(const struct qs_channel *channel, struct tally *tally)
    QSI_REQUIRES(qsi_store_mutex)
{
    qsi_unacked_check(&channel->unacked);
    qsi_confirms_check(&channel->confirms);
    QS_DCHECK(channel->armed_kinds == 0 || channel->is_armed);
    QS_DCHECK(!channel->closed || channel->unacked.outstanding_count == 0);
    tally->outstanding +=
        channel->unacked.outstanding_count + channel->unacked.withheld_count + channel->deals.count;
    tally->armed += channel->armed_kinds != 0 ? 1 : 0;
    tally->channels += 1;
}

static void check_channels(const struct qs_store *store, struct tally *tally)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (const struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        check_channel(QSI_LIST_OWNER(node, const struct qs_channel, in_store), tally);
    }
    QS_DCHECK(store->references >= tally->channels); /* and the handle, and connections */
    QS_DCHECK(store->events.armed_count == tally->armed);
    if (store->removals.internal_channel != NULL) {
        check_channel(store->removals.internal_channel, tally);
    }
    /* Messages are out before they have their tags, and while they are settled. */
    QS_DCHECK(tally->outstanding <= tally->out);
}

void qsi_store_check(struct qs_store *store)
{
    struct tally tally = {0};

    QS_ASSERT_HELD(&store->mutex);
    qsi_router_check(&store->router);
    check_queues(store, &tally);
    check_channels(store, &tally);
    if (store->journal != NULL) { /* none in a store that is only read */
        qsi_journal_check(store->journal);
        QS_DCHECK(store->checkpoint.lsn <= qsi_journal_durable_lsn(store->journal));
    }
    if (store->messages != NULL) {
        qsi_message_store_check_counts(store->messages);
    }
}

#endif
