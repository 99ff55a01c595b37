/* Adopting: staged files become segments of the one stream to which all their rows lead.
 *
 * The links are made, and their names synced, before anything is accepted, without the lock.  One
 * group of the journal is accepted: the record that names the segments, and the key.  A crash
 * before it leaves names that the next open removes. */
#include "adopt_files.h"
#include "alloc.h"
#include "block_write.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "failure.h"
#include "pager.h"
#include "publish_counts.h"
#include "publish_direct.h"
#include "publish_prepare.h"
#include "pushed.h"
#include "store_kind.h"
#include "stream_record.h"
#include "topology_record.h"
#include "transactions.h"

#include <string.h>

#define TRIES 16                      /* against other publishers of the stream */
#define RECORD_BYTES_MAX (512u << 10) /* about 8,000 files */

struct linking {
    struct qsi_adoption *adoption;
    struct qs_channel *channel;
    struct qs_store *store;
    struct qsi_store_queue *queue;
    struct qsi_stream_flush_job *job;
    struct qsi_stream_staged *staged;
    struct qsi_topology key;
};

/* ---- the key, and room for the record ---- */

/* May release the lock.  *lsn_out 0: the key was not committed.  The look-up is valid since the
 * last release. */
static qs_status find_key(const struct linking *linking, uint64_t *lsn_out, bool *released_out,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_key_search search = {0};
    bool searched;

    QS_DCHECK(linking->key.strings[0].bytes > 0);
    *released_out = false;
    do {
        QS_TRY(qsi_transactions_find(linking->store, linking->key.strings[0], &search, lsn_out,
                                     &searched, error));
        *released_out = *released_out || searched;
    } while (searched);
    return QS_OK;
}

static uint64_t record_bytes_max(const struct linking *linking)
{
    return qsi_stream_written_bytes(qsi_adopted_count(linking->adoption) +
                                    QSI_STREAM_UNNAMED_SEGMENTS_MAX + 1) +
           qsi_topology_bytes(&linking->key);
}

static qs_status make_room(const struct linking *linking, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = record_bytes_max(linking);
    bool released;

    QS_DCHECK(bytes <= RECORD_BYTES_MAX);
    return qsi_commit_make_room(linking->store, bytes + qsi_reserve_bytes(linking->store), bytes,
                                QSI_ROOM_PUBLISH, &released, wait, error);
}

/* ---- the job ---- */

/* Returns the queue when it can be written; NULL: it cannot be. */
static struct qsi_store_queue *wait_for_queue(struct qs_store *store, uint64_t queue_id)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_store_queue *queue = qsi_direct_look(store, queue_id);

    while (queue != NULL && qsi_direct_is_busy(store, queue)) {
        (void)!qsi_pager_wait(store, queue);
        queue = qsi_direct_look(store, queue_id);
    }
    return queue;
}

static void end_job(struct linking *linking, bool done) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT(linking->job != NULL && linking->queue != NULL);
    qsi_stream_direct_end(linking->job, done);
    linking->job = NULL;
    QS_DCHECK(linking->store->paging.writing > 0);
    linking->store->paging.writing -= 1;
    qsi_pager_job_end(linking->store, linking->queue);
    linking->queue = NULL;
}

/* Linked files are not to be used. */
static void forget_job(struct linking *linking) QSI_REQUIRES(qsi_store_mutex)
{
    if (linking->job != NULL) {
        qsi_store_unlock(linking->store);
        qsi_stream_direct_undo(linking->job);
        qsi_store_lock(linking->store);
        end_job(linking, false);
    }
}

/* Releases the lock meanwhile.  QS_NOT_IMPLEMENTED: links cannot be made, or nothing can be
 * written; QS_EEMPTY: too much of the stream is in no record that names blocks. */
static qs_status run_job(struct linking *linking, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = linking->store;
    const struct qsi_stream_direct_options options = {
        .staged = linking->staged,
        .staged_count = qsi_adopted_count(linking->adoption),
        .now_us = qsi_clock_us(store),
        .reaches_disk = store->options.sync != QS_SYNC_NONE,
    };
    qs_error detail = {0};
    qs_status status;

    status = qsi_container_begin_direct(linking->queue->messages, &options, &linking->job);
    if (status != QS_OK) {
        return status == QS_ENOMEM ? qsi_fail(error, status, "adoption") : status;
    }
    store->paging.writing += 1; /* a checkpoint waits for it */
    qsi_pager_job_begin(store, linking->queue);
    status = qsi_stream_direct_run(linking->job, &detail);
    qsi_store_lock(store);
    if (status == QS_OK) {
        return QS_OK;
    }
    end_job(linking, false);
    if (status == QS_ENOENT) {
        return qsi_fail(error, status, "a staged file was removed meanwhile: %s", detail.text);
    }
    if (status == QS_NOT_IMPLEMENTED ||
        qsi_store_record_failure(store, QSI_USE_DIRECT, status, &detail) == QSI_USES_JOURNAL) {
        return QS_NOT_IMPLEMENTED;
    }
    return qsi_store_check_failed(store, error);
}

/* ---- accepting ---- */

static qs_status reserve(const struct linking *linking, struct qsi_chunk **chunk_out,
                         qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    *chunk_out = NULL;
    QS_DCHECK(linking->job != NULL);
    if (qsi_journal_reserve(linking->store->journal, 1) != QS_OK) {
        return qsi_fail(error, QS_ENOMEM, "journal");
    }
    *chunk_out =
        qsi_chunk_create(qsi_stream_direct_bytes(linking->job) + qsi_topology_bytes(&linking->key));
    if (*chunk_out == NULL) {
        return qsi_fail(error, QS_ENOMEM, "adoption");
    }
    return qsi_transactions_reserve(linking->store, linking->key.strings[0], error);
}

static void encode(struct linking *linking, struct qsi_chunk *chunk) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_block_unsynced none;

    qsi_stream_direct_encode(linking->job, chunk->data, &none);
    chunk->used = qsi_stream_direct_bytes(linking->job);
    linking->key.number = qsi_transactions_time(linking->store);
    qsi_topology_encode(chunk->data + chunk->used, &linking->key);
    chunk->used += qsi_topology_bytes(&linking->key);
    QS_ASSERT(none.handle == NULL && chunk->used <= chunk->capacity);
}

/* REQUIRES reserve.  Cannot fail. */
static uint64_t accept(struct linking *linking, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = linking->store;
    struct qsi_store_queue *queue = linking->queue;
    uint64_t rows = linking->adoption->rows, lsn;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(qsi_container_is_direct(queue->messages) && rows > 0);
    qsi_stream_direct_push_staged(linking->job);
    encode(linking, chunk);
    store->stats.published += rows;
    store->stats.routed += rows;
    qsi_check_growth(store, queue);
    queue->kind->pushed(store, queue, rows, true);
    end_job(linking, true);
    lsn = qsi_store_append(store, chunk, 0, chunk->used, 2, false);
    qsi_transactions_record(store, linking->key.strings[0], lsn, linking->key.number, false);
    qsi_count_notes(linking->channel, &linking->adoption->notes);
    qsi_notify_accepted(store, true);
    return lsn;
}

/* QS_EWOULDBLOCK: other publishers came first, or a checkpoint must make room. */
static qs_status accept_if_next(struct linking *linking, uint64_t *lsn_out, bool *repeated_out,
                                qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *chunk;
    bool released;
    qs_status status;

    QS_TRY(find_key(linking, lsn_out, &released, error));
    *repeated_out = *lsn_out != 0;
    if (*repeated_out) {
        return QS_OK;
    }
    QS_TRY(qsi_store_check_failed(linking->store, error));
    if (linking->queue->deleted || !qsi_stream_direct_is_next(linking->job) ||
        make_room(linking, QSI_MUST_NOT_WAIT, NULL) != QS_OK) {
        return QS_EWOULDBLOCK;
    }
    status = reserve(linking, &chunk, error);
    if (status == QS_OK) {
        *lsn_out = accept(linking, chunk);
    }
    qsi_chunk_unref(chunk);
    return status;
}

/* One try.  QS_EWOULDBLOCK: another one may succeed. */
static qs_status try_link(struct linking *linking, uint64_t *lsn_out, bool *repeated_out,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    bool paged, released;
    qs_status status;

    QS_DCHECK(linking->job == NULL);
    QS_TRY(qsi_transactions_make_room(linking->store, &paged, error));
    QS_TRY(make_room(linking, QSI_MAY_WAIT, error));
    QS_TRY(find_key(linking, lsn_out, &released, error));
    *repeated_out = *lsn_out != 0;
    if (*repeated_out) {
        return QS_OK;
    }
    linking->queue = wait_for_queue(linking->store, linking->adoption->stream_id);
    if (linking->queue == NULL) {
        return QS_EEMPTY;
    }
    QS_TRY(run_job(linking, error));
    status = accept_if_next(linking, lsn_out, repeated_out, error);
    forget_job(linking);
    return status;
}

/* Releases the lock meanwhile.  The stream's messages that only the journal has may be too many for
 * another record that names files: then a checkpoint flushes them. */
static void report_stream(const struct linking *linking) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT_HELD(&linking->store->mutex);
    if (linking->store->life == QSI_LIFE_OPEN && !linking->store->failed) {
        qs_status ignored = linking->store->upcalls->checkpoint(linking->store, NULL);
        (void)ignored; /* the next try finds out whether it helped */
    }
}

static struct qsi_stream_staged *list_staged(const struct qsi_adoption *adoption)
{
    const struct qsi_adopted_file *files = qsi_adopted_files(adoption);
    uint32_t count = qsi_adopted_count(adoption);
    struct qsi_stream_staged *staged = qsi_alloc(count * sizeof *staged);

    QS_DCHECK(count > 0);
    for (uint32_t i = 0; staged != NULL && i < count; i++) {
        staged[i] = (struct qsi_stream_staged){.folder = files[i].folder,
                                               .name = files[i].name,
                                               .file = &files[i].staged.file,
                                               .rows = files[i].staged.rows};
    }
    return staged;
}

qs_status qsi_adoption_link(struct qsi_adoption *adoption, struct qs_channel *channel,
                            uint64_t *lsn_out, bool *repeated_out, qs_error *error)
{
    struct linking linking = {
        .adoption = adoption,
        .channel = channel,
        .store = adoption->store,
        .key = {.type = QSI_RECORD_TRANSACTION, .strings = {qsi_slice_of(adoption->key)}},
    };
    bool is_reported = false;
    qs_status status = QS_EWOULDBLOCK;

    QS_ASSERT_HELD(&adoption->store->mutex);
    if (record_bytes_max(&linking) > RECORD_BYTES_MAX || linking.store->keep.is_active) {
        return QS_EEMPTY;
    }
    linking.staged = list_staged(adoption);
    if (linking.staged == NULL) {
        return qsi_fail(error, QS_ENOMEM, "staged files");
    }
    for (int i = 0; i < TRIES && status == QS_EWOULDBLOCK; i++) {
        status = try_link(&linking, lsn_out, repeated_out, error);
        if (status == QS_EEMPTY && !is_reported) {
            report_stream(&linking);
            is_reported = true;
            status = QS_EWOULDBLOCK;
        }
    }
    qsi_free(linking.staged);
    return status == QS_EWOULDBLOCK || status == QS_NOT_IMPLEMENTED ? QS_EEMPTY : status;
}
