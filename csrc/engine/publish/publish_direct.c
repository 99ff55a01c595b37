/* Large batches that go straight into a stream's file.
 *
 * The file is written before anything is accepted, without the lock, so a full or damaged disk
 * leaves the batch to the journal.  The accepted record names the blocks; the commit that makes it
 * durable syncs the file beside the journal.  If another publisher adds to the stream meanwhile,
 * the written blocks are dropped, and the batch goes through the journal. */
#include "publish_direct.h"

#include "accept.h"
#include "alloc.h"
#include "block_write.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "error.h"
#include "failure.h"
#include "pager.h"
#include "priorities.h"

static bool may_be_block(const struct qsi_pending_record *record, uint64_t queue_id)
{
    const uint8_t wanted = QSI_MESSAGES_ALIGNED;
    const uint8_t unwanted =
        QSI_MESSAGES_HAS_STORED | QSI_MESSAGES_HAS_EXPIRATION | QSI_MESSAGES_HAS_DUE;
    const struct qsi_run *run;

    QS_DCHECK(record->row_count > 0);
    if (record->destination_count != 1 || record->place_count > 0 || !record->journalled ||
        record->row_count > QSI_BLOCK_ROWS_MAX || record->destinations[0].queue_id != queue_id) {
        return false;
    }
    run = record->destinations[0].run;
    return run->messages.rows == NULL && run->count == record->row_count &&
           (record->chunk->data[5] & (wanted | unwanted)) == wanted;
}

/* The first records that could be blocks.  False: there are too few. */
static bool choose_records(const struct qsi_pending_records *pending_records,
                           struct qsi_direct_write *direct)
{
    uint64_t queue_id;

    if (pending_records->count == 0 || pending_records->items[0].destination_count != 1) {
        return false;
    }
    queue_id = pending_records->items[0].destinations[0].queue_id;
    while (direct->record_count < pending_records->count &&
           may_be_block(&pending_records->items[direct->record_count], queue_id)) {
        direct->bytes += pending_records->items[direct->record_count++].chunk->used;
    }
    return direct->bytes >= QSI_DIRECT_BYTES_MIN;
}

static bool list_records(const struct qsi_pending_records *pending_records,
                         struct qsi_direct_write *direct)
{
    direct->records = qsi_alloc(direct->record_count * sizeof *direct->records);
    for (uint32_t i = 0; direct->records != NULL && i < direct->record_count; i++) {
        /* A stream keeps them like other messages. */
        pending_records->items[i].chunk->data[5] &= (uint8_t)~QSI_MESSAGES_HAS_TRANSIENT;
        direct->records[i] = (struct qsi_stream_direct_record){
            .record = pending_records->items[i].chunk->data,
            .rows = pending_records->items[i].row_count,
        };
    }
    return direct->records != NULL;
}

/* Whether a commit must come first: blocks that wait for a sync count like waiting entries of the
 * journal. */
static bool syncs_are_behind(const struct qs_store *store, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t waiting = qsi_commit_block_bytes(store);

    QS_DCHECK(bytes >= QSI_DIRECT_BYTES_MIN);
    return waiting > 0 && waiting + bytes > qsi_commit_unsynced_max(store);
}

/* Whether other threads write so much directly that the journal takes the batch. */
static bool is_too_much(const struct qs_store *store, uint64_t bytes) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t writing = store->paging.writing_bytes;

    return qsi_commit_block_files(store) + store->paging.writing >= QSI_DIRECT_FILES_MAX ||
           (writing > 0 &&
            qsi_commit_block_bytes(store) + writing + bytes > qsi_commit_unsynced_max(store));
}

struct qsi_store_queue *qsi_direct_look(struct qs_store *store, uint64_t queue_id)
{
    struct qsi_store_queue *queue = qsi_find_by_id(store, queue_id);

    QS_ASSERT_HELD(&store->mutex);
    return queue != NULL && qsi_container_is_direct(queue->messages) && !store->failed &&
                   !store->keep.is_active && store->life == QSI_LIFE_OPEN
               ? queue
               : NULL;
}

bool qsi_direct_is_busy(const struct qs_store *store, const struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_container_is_flushing(queue->messages) ||
           store->checkpoint.state == QSI_CHECKPOINT_WAITS;
}

/* Returns the queue if blocks of so many bytes can be written to it, now or later, or NULL.  Where
 * the disk is short of space, if only for a moment, the journal takes the batch. */
static struct qsi_store_queue *look_for(struct qs_store *store, uint64_t queue_id, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = qsi_direct_look(store, queue_id);

    return queue != NULL && bytes <= qsi_container_direct_max(queue->messages) &&
                   qsi_space_may_page(store, queue)
               ? queue
               : NULL;
}

/* Returns the queue if it is to be written; NULL: that takes too long, or it cannot be.  Looks
 * before it waits, because the journal takes other batches without a sync, and after it, because
 * the lock was released. */
static struct qsi_store_queue *wait_for_queue(struct qs_store *store, uint64_t queue_id,
                                              uint64_t bytes, bool *released_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = look_for(store, queue_id, bytes);

    QS_ASSERT_HELD(&store->mutex);
    while (queue != NULL) {
        if (syncs_are_behind(store, bytes)) {
            *released_out = true;
            if (qsi_commit_wait(store, qsi_journal_durable_lsn(store->journal) + 1, QS_FOREVER,
                                NULL) != QS_OK) {
                return NULL;
            }
        } else if (is_too_much(store, bytes)) {
            return NULL;
        } else if (qsi_direct_is_busy(store, queue)) {
            *released_out = true;
            (void)!qsi_pager_wait(store, queue);
        } else {
            return queue;
        }
        queue = look_for(store, queue_id, bytes);
    }
    return NULL;
}

static void end_job(struct qs_store *store, struct qsi_direct_write *direct, bool done)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_stream_direct_end(direct->job, done);
    direct->job = NULL;
    QS_DCHECK(store->paging.writing > 0 && store->paging.writing_bytes >= direct->bytes);
    store->paging.writing -= 1;
    store->paging.writing_bytes -= direct->bytes;
    qsi_pager_job_end(store, direct->queue);
    direct->queue = NULL;
}

/* Releases the lock meanwhile.  Where the store has not failed the journal takes the batch. */
static void run_job(struct qs_store *store, struct qsi_direct_write *direct)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_error error = {0};
    qs_status status;

    QS_ASSERT(direct->job != NULL && direct->queue != NULL);
    store->paging.writing += 1;
    store->paging.writing_bytes += direct->bytes;
    qsi_pager_job_begin(store, direct->queue);
    status = qsi_stream_direct_run(direct->job, &error);
    qsi_store_lock(store);
    if (qsi_store_record_failure(store, QSI_USE_DIRECT, status, &error) != QSI_GOES_ON) {
        end_job(store, direct, false);
    }
}

void qsi_direct_write(struct qs_store *store, const struct qsi_pending_records *pending_records,
                      struct qsi_direct_write *direct, bool *released_out)
{
    struct qsi_stream_direct_options options = {
        .now_us = qsi_clock_us(store),
        .reaches_disk = store->options.sync != QS_SYNC_NONE,
    };
    struct qsi_store_queue *queue;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(direct->job == NULL);
    *released_out = false;
    if (store->stream_count == 0 || !choose_records(pending_records, direct)) {
        return;
    }
    queue = wait_for_queue(store, pending_records->items[0].destinations[0].queue_id, direct->bytes,
                           released_out);
    if (queue == NULL || !list_records(pending_records, direct)) {
        return;
    }
    options.records = direct->records;
    options.record_count = direct->record_count;
    if (qsi_container_begin_direct(queue->messages, &options, &direct->job) == QS_OK) {
        *released_out = true;
        direct->queue = queue;
        run_job(store, direct);
    }
}

bool qsi_direct_may_accept(const struct qsi_direct_write *direct,
                           const struct qsi_pending_records *pending_records)
{
    QS_DCHECK(direct->job != NULL);
    /* The journal has room for entries of these bytes. */
    return !direct->queue->deleted && qsi_stream_direct_is_next(direct->job) &&
           qsi_stream_direct_bytes(direct->job) <= pending_records->entry_bytes_max;
}

qs_status qsi_direct_reserve(struct qs_store *store, struct qsi_direct_write *direct,
                             qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    if (direct->job == NULL) {
        return QS_OK;
    }
    if (qsi_commit_reserve_blocks(store) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "files to be synced");
    }
    return qsi_arena_place(store, true, qsi_stream_direct_bytes(direct->job), &direct->chunk,
                           error);
}

uint64_t qsi_direct_accept(struct qs_store *store, struct qsi_pending_records *pending_records,
                           struct qsi_direct_write *direct)
{
    struct qsi_chunk *chunk = direct->chunk;
    uint64_t from = chunk->used, bytes = qsi_stream_direct_bytes(direct->job);
    struct qsi_block_unsynced unsynced;

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(chunk != NULL && chunk->capacity - from >= bytes);
    qsi_pending_records_push_written(store, pending_records, direct->record_count);
    qsi_stream_direct_encode(direct->job, chunk->data + from, &unsynced);
    chunk->used += bytes;
    qsi_commit_add_blocks(store, &unsynced, direct->bytes);
    end_job(store, direct, true);
    store->checkpoint.direct_bytes += direct->bytes;
    /* The disk has less room than the journal assumes. */
    store->space.open_upto -=
        direct->bytes < store->space.open_upto ? direct->bytes : store->space.open_upto;
    return qsi_store_append(store, chunk, from, bytes, 1, false);
}

void qsi_direct_forget(struct qs_store *store, struct qsi_direct_write *direct)
{
    QS_ASSERT_HELD(&store->mutex);
    if (direct->job != NULL) {
        qsi_store_unlock(store);
        qsi_stream_direct_undo(direct->job);
        qsi_store_lock(store);
        end_job(store, direct, false);
    }
    qsi_free(direct->records);
    direct->records = NULL;
}
