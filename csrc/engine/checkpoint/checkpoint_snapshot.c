/* The snapshot of a checkpoint: topology, keys of transactions, queues and their messages, in one
 * hold of the lock.  It decides which messages that are only in the journal are flushed to
 * segments, and which the checkpoint carries itself; the jobs for both are begun here and run by
 * checkpoint_write.c. */
#include "check.h"
#include "checkpoint_job.h"
#include "error.h"
#include "queue_life.h"
#include "space.h"
#include "store_kinds.h"
#include "store_stream.h"
#include "thread_safety.h"
#include "topology.h"
#include "transactions_restore.h"

#define CARRIED_SHARE 16 /* of checkpoint_bytes: messages the checkpoint carries itself */
#define CARRIED_BYTES_MIN (64u << 10)
#define CARRIED_BYTES_MAX (16u << 20)
/* A queue or stream with less than this share of checkpoint_bytes is small: carrying its messages
 * in sixty checkpoints costs the disk less than a file of its own costs once. */
#define SMALL_SHARE 4096
#define SMALL_QUEUE_MAX (64u << 10)
#define SMALL_BYTES_MAX (1u << 30) /* of all of them: the next open also has them in memory */

/* ---- what is flushed, and what is carried ---- */

uint64_t qsi_checkpoint_carried_max(struct qs_store *store)
{
    uint64_t bytes = store->options.checkpoint_bytes / CARRIED_SHARE;
    uint64_t space = qsi_space_carried_max(store);

    QS_ASSERT_HELD(&store->mutex);
    bytes = bytes < CARRIED_BYTES_MIN ? CARRIED_BYTES_MIN : bytes;
    bytes = bytes < CARRIED_BYTES_MAX ? bytes : CARRIED_BYTES_MAX;
    /* Each checkpoint writes carried messages again: if space is short they go to segments. */
    return bytes < space ? bytes : space;
}

uint64_t qsi_checkpoint_small_max(const struct qs_store *store)
{
    uint64_t share = store->options.checkpoint_bytes / SMALL_SHARE;

    return share > 0 && share < SMALL_QUEUE_MAX ? share : SMALL_QUEUE_MAX;
}

/* For small containers it carries what memory holds, also if space is short: files of their own
 * would take more, and the room that publishers leave for a checkpoint includes those, too. */
static void allow_small(struct qsi_checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qs_store *store = checkpoint->store;
    struct qsi_carried *carried = &checkpoint->carried;
    uint64_t most = store->options.memory_budget;

    most = most > store->options.checkpoint_bytes ? most : store->options.checkpoint_bytes;
    carried->small_bytes_max = most < SMALL_BYTES_MAX ? most : SMALL_BYTES_MAX;
    QS_DCHECK(carried->small_bytes_max >= qsi_checkpoint_small_max(store));
    carried->small_max = qsi_checkpoint_small_max(store);
}

/* ---- the snapshot: topology ---- */

static qs_status put_topology(struct qsi_checkpoint *checkpoint,
                              const struct qsi_topology *topology)
{
    uint64_t bytes = qsi_topology_bytes(topology);
    uint8_t *at;

    QS_TRY(qsi_buf_reserve(&checkpoint->records, bytes, &at));
    qsi_topology_encode(at, topology);
    QS_DCHECK(checkpoint->records.bytes % QSI_RECORD_ALIGN == 0);
    checkpoint->records.bytes += bytes;
    checkpoint->record_count += 1;
    return QS_OK;
}

struct topology_visit {
    struct qsi_checkpoint *checkpoint;
    qs_status status;
};

static void put_exchange(void *context, const struct qsi_exchange *exchange)
{
    struct topology_visit *visit = context;
    struct qsi_topology topology = {
        .type = QSI_RECORD_EXCHANGE_DECLARE,
        .flags = QS_DURABLE | (exchange->auto_delete ? QS_AUTO_DELETE : 0) |
                 (exchange->internal ? QS_INTERNAL : 0),
        .strings = {exchange->name, qsi_exchange_type_name(exchange), exchange->arguments},
    };

    if (visit->status == QS_OK && exchange->durable && !exchange->predeclared) {
        visit->status = put_topology(visit->checkpoint, &topology);
    }
}

static void put_binding(void *context, const struct qsi_binding *binding)
{
    struct topology_visit *visit = context;
    struct qsi_topology topology;
    bool is_durable = qsi_describe_binding(binding, &topology);

    if (visit->status == QS_OK && is_durable) {
        visit->status = put_topology(visit->checkpoint, &topology);
    }
}

static qs_status put_cursors(struct qsi_checkpoint *checkpoint, const struct qsi_map *cursors,
                             uint64_t stream_id)
{
    struct qsi_map_cursor walk = qsi_map_begin(cursors);

    while (qsi_map_next(cursors, &walk)) {
        const struct qsi_store_cursor *cursor = walk.value;
        const struct qsi_cursor_record record = {
            .stream_id = stream_id,
            .offset = cursor->offset,
            .group = qsi_slice_make(walk.key, (uint32_t)walk.key_bytes),
            .own = qsi_slice_make(cursor->own, cursor->own_bytes),
        };
        uint64_t bytes = qsi_cursor_record_bytes(&record);
        uint8_t *at;
        if (cursor->offset == QSI_CURSOR_GONE) {
            continue;
        }
        QS_TRY(qsi_buf_reserve(&checkpoint->records, bytes, &at));
        qsi_cursor_record_encode(at, &record);
        checkpoint->records.bytes += bytes;
        checkpoint->record_count += 1;
    }
    return QS_OK;
}

static qs_status put_queue(struct qsi_checkpoint *checkpoint, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_map *cursors = qsi_cursors_of(queue);
    struct qsi_declaration declaration;
    struct qsi_topology mode = {
        .type = QSI_RECORD_QUEUE_MODE, .flags = queue->lazy ? 1 : 0, .number = queue->container.id};

    QS_DCHECK(queue->container.durable && queue->parent == NULL);
    qsi_describe_queue(queue, &declaration);
    QS_TRY(put_topology(checkpoint, &declaration.topology));
    if (cursors != NULL) {
        return put_cursors(checkpoint, cursors, queue->container.id);
    }
    return queue->mode_was_set ? put_topology(checkpoint, &mode) : QS_OK;
}

static qs_status put_all_topology(struct qsi_checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    struct topology_visit visit = {checkpoint, QS_OK};
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_store_state_encode(&checkpoint->records, store->next_queue_id));
    checkpoint->record_count += 1;
    qsi_router_visit_exchanges(&store->router, put_exchange, &visit);
    QS_TRY(visit.status);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (queue->container.durable && queue->parent == NULL) {
            QS_TRY(put_queue(checkpoint, queue));
        }
    }
    qsi_router_visit_bindings(&store->router, put_binding, &visit);
    return visit.status;
}

/* ---- the snapshot: queues ---- */

static qs_status put_messages(struct qsi_checkpoint *checkpoint, struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_taken_snapshot taken = {.queue = queue};
    uint8_t *room;
    qs_status status;

    QS_DCHECK(queue->messages->id == queue->container.id);
    QS_TRY(qsi_buf_reserve(&checkpoint->snapshots, sizeof taken, &room));
    status = qsi_container_snapshot(queue->messages, &checkpoint->carried, &taken.snapshot);
    if (taken.snapshot != NULL) {
        queue->jobs += 1;
        QS_ASSERT(qsi_buf_append(&checkpoint->snapshots, &taken, sizeof taken) == QS_OK);
    }
    return status;
}

static qs_status put_all_messages(struct qsi_checkpoint *checkpoint) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    allow_small(checkpoint);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct qsi_store_queue *queue = cursor.value;
        if (queue->container.durable) {
            QS_TRY(put_messages(checkpoint, queue));
        }
    }
    return QS_OK;
}

void qsi_checkpoint_end_snapshots(struct qsi_checkpoint *checkpoint, bool counts)
{
    QS_ASSERT_HELD(&checkpoint->store->mutex);
    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        struct qsi_taken_snapshot *taken = qsi_checkpoint_snapshot_at(checkpoint, i);
        qsi_snapshot_end(taken->snapshot, counts);
        qsi_end_queue_job(taken->queue);
    }
    qsi_buf_clear(&checkpoint->snapshots);
}

void qsi_seal_dead_files(struct qs_store *store, bool sealed)
{
    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->paging.dead_files.next; node != &store->paging.dead_files;
         node = node->next) {
        QSI_LIST_OWNER(node, struct qsi_dead_file, in_store)->sealed = sealed;
    }
    qsi_transactions_seal(store, sealed);
}

/* Does not release the lock: this is the moment of the checkpoint. */
qs_status qsi_take_snapshot(struct qsi_checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    qs_status status;

    QS_ASSERT(store->paging.flush == QSI_FLUSH_SNAPSHOT);
    checkpoint->lsn = qsi_journal_appended_lsn(store->journal);
    QS_ASSERT(checkpoint->lsn >= store->checkpoint.lsn);
    store->checkpoint.direct_bytes = 0;
    status = put_all_topology(checkpoint);
    if (status == QS_OK) {
        status = qsi_transactions_snapshot(store, &checkpoint->records, &checkpoint->record_count);
    }
    if (status == QS_OK) {
        status = put_all_messages(checkpoint);
    }
    if (status != QS_OK) {
        return status == QS_ENOMEM ? qsi_checkpoint_no_memory(error)
                                   : qsi_fail(error, status, "snapshot of the queues");
    }
    QS_TRY(qsi_message_store_snapshot(store->messages, &checkpoint->records,
                                      &checkpoint->record_count, error));
    QS_ASSERT(checkpoint->lsn == qsi_journal_appended_lsn(store->journal)); /* one moment */
    checkpoint->sealed = true;
    qsi_seal_dead_files(store, true);
    checkpoint->dead_stream_bytes = store->streams.dead.bytes;
    checkpoint->epoch = store->paging.readers.epoch & 1;
    store->paging.readers.epoch += 1;
    return QS_OK;
}
