/* Checkpoints.
 *
 * A checkpoint is the exact state of the store at one position L of the journal: topology, the
 * state of each queue, the counts of the message store.  The snapshot of that is taken in one hold
 * of the lock.  Messages of the snapshot that are not on the disk yet are held, and written without
 * the lock afterwards: to segments, or, if they are few, into the checkpoint itself.  So messages
 * that are consumed soon after they were published never reach a segment.
 *
 * Order: segments and packs are written and synced, and their directories; the journal is durable
 * up to L; the checkpoint's file is written and synced, and its directory; then MANIFEST names it,
 * which makes it valid; then files that only the last checkpoint named are removed.  A power cut
 * anywhere before that leaves the last checkpoint, whose files are unchanged: slots and bodies are
 * written once and on pages of their own, states go to the area that it does not name.
 *
 * This file has the conditions of a checkpoint, and the order of the steps.  The snapshot is in
 * checkpoint_snapshot.c, writing it in checkpoint_write.c. */
#include "checkpoint.h"

#include "backlog.h"
#include "check.h"
#include "checkpoint_job.h"
#include "enter.h"
#include "error.h"
#include "keep.h"
#include "limits.h"
#include "pager.h"
#include "queue_life.h"
#include "record_build.h"
#include "space.h"
#include "store_check.h"
#include "transactions.h"
#include "watch.h"

#define LOOK_NS 250000000u

/* ---- before the snapshot: the bulk ---- */

/* Does the container have more than a checkpoint is to carry of it? */
static bool is_bulk(const struct qsi_checkpoint *checkpoint, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = qsi_container_unflushed_bytes(queue->messages);
    uint64_t carried_max = checkpoint->carried.bytes_max;
    uint64_t own_max = queue->messages->kind->carried_max;

    if (!queue->container.durable) {
        return false;
    }
    if (own_max != 0) {
        return bytes > own_max || bytes > carried_max;
    }
    return bytes > carried_max && bytes > qsi_checkpoint_small_max(checkpoint->store);
}

/* Releases the lock meanwhile.  The bulk: flushes queues with more than is to be carried, up to
 * their present end. */
static qs_status flush_bulk(struct qsi_checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_map_cursor cursor;
    struct qsi_store_queue *queue;
    uint64_t passes = store->queues_by_id.count + 1;

    do { /* the map may change while the lock is released: it is walked again after each flush */
        uint64_t end;
        queue = NULL;
        cursor = qsi_map_begin(&store->queues_by_id);
        while (queue == NULL && qsi_map_next(&store->queues_by_id, &cursor)) {
            struct qsi_store_queue *each = cursor.value;
            if (is_bulk(checkpoint, each)) {
                queue = each;
            }
        }
        if (queue == NULL) {
            return QS_OK;
        }
        QS_DCHECK(queue->container.durable &&
                  queue->messages->flushed_seq < queue->messages->next_seq);
        end = queue->messages->next_seq;
        queue->jobs += 1;
        while (!queue->deleted && queue->messages->flushed_seq < end) {
            qs_status status = qsi_pager_flush(store, queue, error);
            if (status != QS_OK && status != QS_EEMPTY) {
                qsi_end_queue_job(queue);
                return status;
            }
        }
        qsi_end_queue_job(queue);
    } while (--passes > 0); /* messages of a faster publisher are flushed after the snapshot */
    return QS_OK;
}

/* Releases the lock meanwhile.  Bodies with several references leave the queues before the
 * snapshot, whatever their number. */
static void share_all_bodies(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    for (bool released = true; released;) { /* the map may be a different one then */
        struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
        released = false;
        while (!released && store->paging.flush == QSI_FLUSH_NONE &&
               qsi_map_next(&store->queues_by_id, &cursor)) {
            struct qsi_store_queue *queue = cursor.value;
            queue->jobs += 1;
            while (!released && qsi_share_bodies(store, queue, UINT64_MAX, &released) == QS_OK) {
            }
            qsi_end_queue_job(queue);
        }
    }
}

/* ---- all of it ---- */

/* After a checkpoint that did not become valid: the next one syncs what this one took for
 * written. */
static void give_up(struct qsi_checkpoint *checkpoint)
{
    struct qs_store *store = checkpoint->store;

    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_store_lock(store);
    QS_ASSERT(store->checkpoint.number < checkpoint->number); /* the old one is still valid */
    qsi_seal_dead_files(store, false);
    qsi_checkpoint_end_snapshots(checkpoint, false);
    store->checkpoint.failed_ns = store->env->monotonic_ns(store->env);
    qsi_store_unlock(store);
    if (checkpoint->sealed) {
        (void)!qsi_message_store_unseal(store->messages, false, NULL);
    }
}

static void free_checkpoint(struct qsi_checkpoint *checkpoint)
{
    qsi_buf_fini(&checkpoint->records);
    qsi_buf_fini(&checkpoint->snapshots);
    qsi_buf_fini(&checkpoint->carried.records);
    qsi_record_build_destroy(checkpoint->carried.build);
}

/* Releases the lock meanwhile.  Many keys of transactions go to a file of their own;
 * without space the checkpoint carries them. */
static qs_status spill_keys(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status = QS_OK;

    if (qsi_transactions_are_many(store)) {
        status = qsi_transactions_spill(store, error);
    }
    return qsi_consequence_of(QSI_USE_REWRITING, status) == QSI_FAILS_STORE ? status : QS_OK;
}

/* Releases the lock meanwhile.  Everything before the snapshot that may take its time. */
static qs_status prepare(struct qsi_checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;

    QS_ASSERT(store->checkpoint.state == QSI_CHECKPOINT_PREPARES);
    QS_TRY(qsi_store_check_failed(store, error));
    checkpoint->carried.bytes_max = qsi_checkpoint_carried_max(store);
    share_all_bodies(store);
    QS_TRY(flush_bulk(checkpoint, error));
    QS_TRY(spill_keys(store, error));
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_WAITS);
    for (;;) {
        QS_TRY(qsi_store_check_failed(store, error));
        /* Readers from before a failed snapshot cannot be distinguished from new ones after the
         * next. */
        if (store->paging.rewriting ||
            store->paging.readers.count[(store->paging.readers.epoch + 1) & 1] > 0) {
            qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
        } else if (!qsi_list_is_empty(&store->shared.releasing) ||
                   !qsi_list_is_empty(&store->shared.retired) || store->paging.releasing) {
            /* Counts and bitmaps must be of the same moment. */
            if (store->paging.releasing) {
                qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
            } else {
                QS_TRY(qsi_pager_release(store, error));
            }
        } else if (store->paging.flush != QSI_FLUSH_NONE || store->paging.writing > 0) {
            qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
        } else {
            QS_ASSERT(store->paging.flush == QSI_FLUSH_NONE && !store->paging.rewriting);
            return QS_OK;
        }
    }
}

static qs_status make_checkpoint(struct qsi_checkpoint *checkpoint, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    uint64_t last_number = store->checkpoint.number;
    struct qsi_session start;
    uint64_t bytes = 0;
    uint32_t crc = 0;
    qs_status status;

    QS_DCHECK(qsi_checkpoint_snapshot_count(checkpoint) == 0);
    status = prepare(checkpoint, error);
    if (status != QS_OK) {
        store->checkpoint.failed_ns = store->env->monotonic_ns(store->env);
        return status;
    }
    checkpoint->number = last_number + 1;
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_WRITES);
    qsi_flush_step(&store->paging.flush, QSI_FLUSH_SNAPSHOT);
    checkpoint->unjournalled = store->space.unjournalled;
    status = qsi_take_snapshot(checkpoint, error);
    qsi_cond_broadcast(&store->paging.done); /* publishers of large batches go on */
    if (status == QS_OK) {
        status = qsi_write_snapshot(checkpoint, &bytes, &crc, error);
    } else {
        qsi_flush_step(&store->paging.flush, QSI_FLUSH_NONE);
        qsi_store_unlock(store);
        qsi_checkpoint_end_jobs(checkpoint);
    }
    if (status == QS_OK) {
        status = qsi_name_checkpoint(checkpoint, bytes, crc, &start, error);
        /* The old one or the new one counts, unless nothing was renamed yet. */
        status = qsi_checkpoint_record_failure(store, status, error);
    }
    if (status != QS_OK) {
        give_up(checkpoint);
        qsi_store_lock(store);
        return status;
    }
    qsi_store_lock(store);
    QS_ASSERT(bytes >= QSI_CHECKPOINT_HEADER_BYTES);
    store->stats.bytes_checkpointed += bytes;
    store->space.named_bytes = bytes;
    return qsi_checkpoint_clean_up(checkpoint, &start, last_number, error);
}

/* Releases the lock meanwhile. */
static qs_status try_checkpoint(struct qs_store *store, bool *left_file_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_checkpoint checkpoint = {.store = store};
    qs_status status;

    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_PREPARES);
    status = make_checkpoint(&checkpoint, error);
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_TRIED);
    *left_file_out = qsi_is_damage(status) && checkpoint.left_file;
    free_checkpoint(&checkpoint);
    return status;
}

/* Releases the lock meanwhile.  For a checkpoint that found no space; false: no more space can be
 * freed. */
static bool find_space(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    bool found;

    QS_ASSERT_HELD(&store->mutex);
    qsi_store_unlock(store);
    found = qsi_space_lend(store);
    if (!found) {
        found = qsi_keep_give_way(store);
    }
    if (!found) { /* files that were only made ahead */
        uint32_t spares = qsi_journal_spare_count(store->journal);
        found = qsi_journal_release(store->journal, 0, 0, NULL) == QS_OK &&
                qsi_journal_spare_count(store->journal) < spares;
    }
    qsi_store_lock(store);
    return found;
}

/* Releases the lock meanwhile.  In the order of the requests: if checkpoints follow each other
 * without a pause, their thread would otherwise begin the next one before a thread that waits gets
 * the lock. */
static void take_turn(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t turn = store->checkpoint.turns_asked;

    store->checkpoint.turns_asked += 1;
    while (store->checkpoint.turns_ended < turn) {
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    }
    QS_ASSERT(store->checkpoint.state == QSI_CHECKPOINT_NONE);
}

static void end_turn(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT(store->checkpoint.state == QSI_CHECKPOINT_NONE);
    store->checkpoint.turns_ended += 1;
    QS_DCHECK(store->checkpoint.turns_ended <= store->checkpoint.turns_asked);
    qsi_cond_broadcast(&store->paging.done);
}

/* Releases the lock meanwhile.  REQUIRES a turn. */
static qs_status checkpoint_in_turn(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_error detail = {0};
    uint64_t began_ns;
    bool left_file;
    enum qsi_consequence consequence;
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    store->checkpoint.is_wanted = false;
    began_ns = store->env->monotonic_ns(store->env);
    do {
        status = try_checkpoint(store, &left_file, &detail);
    } while (left_file || (qsi_is_full(status) && find_space(store)));
    if (!qsi_space_is_whole(store)) {
        /* Before any other thread: the free space must suffice for the next one, too. */
        uint64_t beyond = qsi_space_beyond_checkpoint(store);
        qsi_store_unlock(store);
        qsi_space_take_back(store, beyond);
        qsi_store_lock(store);
    }
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_NONE);
    qsi_store_check(store);
    qsi_transactions_check(store);
    status = status == QS_ENOSPC ? QS_ESTORE_FULL : status;
    detail.status = status;
    consequence = qsi_store_record_failure(store, QSI_USE_CHECKPOINT, status, &detail);
    qsi_checkpoint_record_held(store, consequence == QSI_HOLDS_UP ? &detail : NULL);
    if (consequence == QSI_GOES_ON) {
        qsi_retain_streams(store);
        qsi_watch_checkpoint_end(store, began_ns);
    } else {
        qsi_error_prefix(&detail, "checkpoint");
        if (error != NULL) {
            *error = detail;
        }
    }
    return status;
}

qs_status qsi_checkpoint(struct qs_store *store, qs_error *error)
{
    qs_status status;

    take_turn(store);
    status = checkpoint_in_turn(store, error);
    end_turn(store);
    return status;
}

qs_status qsi_checkpoint_and_hold(struct qs_store *store, qs_error *error)
{
    qs_status status;

    take_turn(store);
    status = checkpoint_in_turn(store, error);
    if (status != QS_OK) {
        end_turn(store);
        return status;
    }
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_HELD);
    qsi_cond_broadcast(&store->paging.done); /* publishers that waited for a checkpoint go on */
    return QS_OK;
}

void qsi_checkpoint_release(struct qs_store *store)
{
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_NONE);
    end_turn(store);
    qsi_cond_signal(&store->checkpoint.due); /* one may have become due */
}

qs_status qs_store_checkpoint(qs_store *store, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    status = qsi_checkpoint(store, error);
    qsi_store_leave(store);
    return status;
}

/* ---- the thread ---- */

void *qsi_run_checkpointer(void *argument)
{
    struct qs_store *store = argument;

    qsi_store_lock(store);
    while (store->life < QSI_LIFE_STOPS) {
        qsi_backlog_look(store);
        if (qsi_checkpoint_is_due(store) || qsi_checkpoint_would_tidy(store)) {
            /* Without space it is tried again; a failed store reports its failure itself. */
            (void)!qsi_checkpoint(store, NULL);
            continue;
        }
        if (store->failed || !qsi_checkpoint_comes_by_itself(store)) {
            store->checkpoint.sleeps = true;
            qsi_cond_wait(&store->checkpoint.due, &store->mutex, QSI_WAIT_FOREVER);
            store->checkpoint.sleeps = false;
        } else {
            qsi_cond_wait(&store->checkpoint.due, &store->mutex, LOOK_NS);
        }
    }
    qsi_store_unlock(store);
    return NULL;
}
