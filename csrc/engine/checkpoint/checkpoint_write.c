/* Writing a checkpoint, without the lock: running the jobs of its snapshot, syncing their files,
 * writing the checkpoint's own file, naming it in MANIFEST, and afterwards removing files that only
 * the last one named.  The order is that of checkpoint.c. */
#include "qstore/codec.h"

#include "alloc.h"
#include "backlog.h"
#include "block_file.h"
#include "check.h"
#include "checkpoint_job.h"
#include "clock.h"
#include "commit.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "keep.h"
#include "space.h"
#include "transactions_restore.h"

#include <string.h>

#define OUTPUT_BYTES (1u << 20) /* of carried messages, written at once */

/* ---- without the lock: what the snapshot needs is written ---- */

/* Takes the lock meanwhile. */
static void end_job(struct qsi_checkpoint *checkpoint, struct qsi_job **job, bool done)
{
    struct qs_store *store = checkpoint->store;

    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_store_lock(store);
    qsi_job_end(*job, done);
    *job = NULL;
    qsi_cond_broadcast(&store->paging.done);
    qsi_store_unlock(store);
}

static qs_status run_job(struct qsi_checkpoint *checkpoint, struct qsi_job **job, bool *left_out,
                         qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    qs_status status;

    QS_DCHECK(*job != NULL);
    qsi_store_lock(store);
    qsi_job_refresh(*job);
    qsi_store_unlock(store);
    status = qsi_job_run(*job, error);
    *left_out = false;
    if (status != QS_OK || (*job)->made_file) {
        qsi_store_lock(store);
        /* What a container is in does not change while a checkpoint tells of it: after all that
         * could not be written to was left, the checkpoint begins again. */
        *left_out = qsi_consequence_of(QSI_USE_CHECKPOINT, status) == QSI_HOLDS_UP &&
                    qsi_job_leave_file(*job) == QS_OK;
        store->stats.segments_written += status == QS_OK ? 1 : 0;
        qsi_store_unlock(store);
    }
    checkpoint->left_file = checkpoint->left_file || *left_out;
    end_job(checkpoint, job, status == QS_OK);
    return *left_out ? QS_OK : status;
}

static qs_status run_snapshot(struct qsi_checkpoint *checkpoint, struct qsi_snapshot *snapshot,
                              enum qsi_snapshot_step step, qs_error *error)
{
    bool left = false;

    for (uint32_t i = 0; i < qsi_snapshot_job_count(snapshot, step); i++) {
        struct qsi_job **job = qsi_snapshot_job(snapshot, step, i);
        if (left && step == QSI_SNAPSHOT_FLUSHES) { /* flushing is complete up to some sequence */
            end_job(checkpoint, job, false);
        } else {
            QS_TRY(run_job(checkpoint, job, &left, error));
        }
    }
    return QS_OK;
}

/* QS_ECORRUPT: files were left. */
static qs_status run_jobs(struct qsi_checkpoint *checkpoint, qs_error *error)
{
    QS_ASSERT(!checkpoint->left_file);
    for (enum qsi_snapshot_step step = 0; step < QSI_SNAPSHOT_CARRIES; step++) {
        for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
            QS_TRY(run_snapshot(checkpoint, qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot,
                                step, error));
        }
        if (checkpoint->left_file) {
            return QS_ECORRUPT;
        }
    }
    return QS_OK;
}

/* ---- the file ---- */

static qs_status put_snapshots(struct qsi_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        QS_TRY(qsi_snapshot_encode(qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot,
                                   &checkpoint->records, &checkpoint->record_count));
    }
    return QS_OK;
}

/* A checkpoint's file while it is written. */
struct output {
    struct qsi_checkpoint *checkpoint;
    qs_file *file;
    uint64_t bytes;
    uint32_t crc;
};

static qs_status put(struct output *output, const void *data, size_t bytes, qs_error *error)
{
    const qs_part part = {data, bytes};

    QS_ASSERT_NOT_HELD(&output->checkpoint->store->mutex);
    if (bytes == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_file_stream(output->checkpoint->store->env, output->file, &part, 1, output->bytes,
                           error));
    QS_DCHECK(output->bytes + bytes > output->bytes);
    output->crc = qs_crc32c(output->crc, data, bytes);
    output->bytes += bytes;
    return QS_OK;
}

/* Of carried messages memory has no more than this and a record. */
static qs_status put_carried(struct output *output, uint64_t least, qs_error *error)
{
    struct qsi_buf *records = &output->checkpoint->carried.records;

    if (records->bytes < least) {
        return QS_OK;
    }
    QS_TRY(put(output, records->data, records->bytes, error));
    qsi_buf_clear(records);
    return QS_OK;
}

/* The jobs that carry; output NULL: only count them. */
static qs_status run_carries(struct qsi_checkpoint *checkpoint, struct output *output,
                             qs_error *error)
{
    checkpoint->carried.counts_only = output == NULL;
    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        struct qsi_snapshot *snapshot = qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot;
        for (uint32_t k = 0; k < qsi_snapshot_job_count(snapshot, QSI_SNAPSHOT_CARRIES); k++) {
            struct qsi_job *job = *qsi_snapshot_job(snapshot, QSI_SNAPSHOT_CARRIES, k);
            if (qsi_job_run(job, error) != QS_OK) {
                return qsi_checkpoint_no_memory(error);
            }
            if (output != NULL) {
                QS_TRY(put_carried(output, OUTPUT_BYTES, error));
            }
        }
    }
    return QS_OK;
}

/* Carried messages come last, after the states of their queues. */
static qs_status write_file(struct qsi_checkpoint *checkpoint, struct output *output,
                            qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_carried *carried = &checkpoint->carried;
    struct qsi_checkpoint_header header = {.number = checkpoint->number, .lsn = checkpoint->lsn};
    uint32_t encoded = carried->record_count; /* those of streams */
    uint8_t head[QSI_CHECKPOINT_HEADER_BYTES];

    QS_TRY(run_carries(checkpoint, NULL, error));
    header.record_count = checkpoint->record_count + carried->record_count;
    carried->record_count = encoded;
    memcpy(header.uuid, store->manifest.uuid, sizeof header.uuid);
    qsi_checkpoint_header_encode(head, &header);
    QS_TRY(put(output, head, sizeof head, error));
    QS_ASSERT(output->bytes == QSI_CHECKPOINT_HEADER_BYTES);
    QS_TRY(put(output, checkpoint->records.data, checkpoint->records.bytes, error));
    QS_TRY(run_carries(checkpoint, output, error));
    QS_TRY(put_carried(output, 0, error));
    QS_ASSERT(header.record_count == checkpoint->record_count + carried->record_count);
    return QS_OK;
}

static qs_status remove_checkpoint(struct qs_store *store, uint64_t number, qs_error *error)
{
    char name[QSI_CHECKPOINT_NAME_BYTES];
    qs_status status;

    QS_ASSERT(number > 0);
    qsi_checkpoint_name(name, number);
    status = qsi_env_remove(store->env, store->checkpoint_dir, name, error);
    return status == QS_ENOENT ? QS_OK : status;
}

static qs_status make_file(struct qsi_checkpoint *checkpoint, uint64_t *bytes_out,
                           uint32_t *crc_out, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct output output = {.checkpoint = checkpoint};
    char name[QSI_CHECKPOINT_NAME_BYTES];
    qs_status status = put_snapshots(checkpoint);

    if (status != QS_OK) {
        return qsi_checkpoint_no_memory(error);
    }
    qsi_checkpoint_name(name, checkpoint->number);
    /* A file that was begun and did not become valid is in the way. */
    status = remove_checkpoint(store, checkpoint->number, error);
    if (status == QS_OK) {
        status = qsi_env_open(store->env, store->checkpoint_dir, name,
                              QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &output.file, error);
    }
    if (status == QS_ENOENT) {
        status = qsi_fail_corrupt(error, "checkpoint", 0,
                                  "the directory was removed while the store was open: make it "
                                  "again and open the store again");
    }
    if (status == QS_OK) {
        status = write_file(checkpoint, &output, error);
    }
    if (status != QS_OK) {
        char path[QSI_CHECKPOINT_PATH_BYTES];
        qsi_checkpoint_path(path, checkpoint->number);
        qsi_error_prefix(error, "%s", path);
    }
    if (status == QS_OK && store->options.sync != QS_SYNC_NONE) {
        status = qsi_file_sync_new(store->env, output.file, error);
        if (status == QS_OK) {
            status = qsi_dir_sync(store->env, store->checkpoint_dir, error);
        }
        status = qsi_checkpoint_record_failure(store, status, error);
    }
    if (status == QS_OK) {
        status = qsi_checkpoint_check_file(store, name, error);
    }
    store->env->close(store->env, output.file);
    *bytes_out = output.bytes;
    *crc_out = output.crc;
    if (qsi_is_shortage(status)) { /* the next one may need its space */
        (void)!remove_checkpoint(store, checkpoint->number, NULL);
    }
    return status;
}

/* ---- everything that is written before it is valid ---- */

void qsi_checkpoint_end_jobs(struct qsi_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        struct qsi_snapshot *snapshot = qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot;
        for (enum qsi_snapshot_step step = 0; step < QSI_SNAPSHOT_STEPS; step++) {
            for (uint32_t k = 0; k < qsi_snapshot_job_count(snapshot, step); k++) {
                struct qsi_job **job = qsi_snapshot_job(snapshot, step, k);
                if (*job != NULL) {
                    end_job(checkpoint, job, false);
                }
            }
        }
    }
}

/* Releases the lock. */
qs_status qsi_write_snapshot(struct qsi_checkpoint *checkpoint, uint64_t *bytes_out,
                             uint32_t *crc_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    qs_status status;

    qsi_store_unlock(store);
    status = run_jobs(checkpoint, error);
    if (status != QS_OK) {
        qsi_checkpoint_end_jobs(checkpoint);
    }
    qsi_store_lock(store);
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_SYNCS);
    qsi_flush_step(&store->paging.flush, QSI_FLUSH_NONE); /* paging goes on meanwhile */
    qsi_cond_broadcast(&store->paging.done);
    qsi_store_unlock(store);
    if (status == QS_OK) {
        status = qsi_checkpoint_record_failure(store, qsi_checkpoint_sync_files(checkpoint, error),
                                               error);
    }
    if (status == QS_OK) {
        qsi_store_lock(store);
        status = qsi_commit_wait(store, checkpoint->lsn, QS_FOREVER, error);
        qsi_store_unlock(store);
    }
    if (status == QS_OK) {
        QS_ASSERT(!checkpoint->left_file);
        status = make_file(checkpoint, bytes_out, crc_out, error);
    }
    qsi_checkpoint_end_jobs(checkpoint);
    return status;
}

/* ---- when it becomes valid ---- */

static qs_status copy_manifest(struct qsi_manifest *copy, const struct qsi_manifest *manifest)
{
    *copy = *manifest;
    copy->sessions = qsi_alloc(manifest->session_count * sizeof *copy->sessions);
    if (copy->sessions == NULL) {
        return QS_ENOMEM;
    }
    memcpy(copy->sessions, manifest->sessions, manifest->session_count * sizeof *copy->sessions);
    return QS_OK;
}

/* A commit syncs block files that a checkpoint names.  If that fails, the checkpoint's own sync of
 * the file may succeed, because the kernel reports each failure once. */
static qs_status check_blocks(const struct qsi_block_dir *blocks, qs_error *error)
{
    return blocks != NULL ? qsi_block_dir_check_synced(blocks, error) : QS_OK;
}

/* MANIFEST names the checkpoint. start_out: the beginning of the journal from now on. */
qs_status qsi_name_checkpoint(struct qsi_checkpoint *checkpoint, uint64_t bytes, uint32_t crc,
                              struct qsi_session *start_out, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    const struct qsi_block_dir *blocks;
    struct qsi_manifest manifest;
    qs_status status;

    qsi_store_lock(store);
    qsi_journal_session_at(store->journal, checkpoint->lsn, start_out);
    blocks = store->streams.blocks;
    qsi_store_unlock(store);
    qsi_manifest_lock(store);
    status = copy_manifest(&manifest, &store->manifest);
    if (status != QS_OK) {
        qsi_manifest_unlock(store);
        return qsi_checkpoint_no_memory(error);
    }
    qsi_manifest_begin_at(&manifest, start_out);
    QS_ASSERT(checkpoint->number > manifest.checkpoint_number);
    manifest.checkpoint_number = checkpoint->number;
    QS_ASSERT(checkpoint->lsn >= manifest.checkpoint_lsn);
    manifest.checkpoint_lsn = checkpoint->lsn;
    manifest.checkpoint_bytes = bytes;
    manifest.checkpoint_crc = crc;
    manifest.clock_us = qsi_clock_us(store);
    status = manifest.failed ? qsi_fail(error, QS_ESTORE_FAILED,
                                        "a commit failed while the checkpoint was made")
                             : check_blocks(blocks, error);
    if (status == QS_OK) {
        status = qsi_manifest_store(&manifest, store->env, store->root, error);
    }
    if (status == QS_OK) {
        struct qsi_session *old = store->manifest.sessions;
        store->manifest = manifest;
        qsi_free(old);
    } else {
        qsi_free(manifest.sessions);
    }
    qsi_manifest_unlock(store);
    return status;
}

/* ---- afterwards: files that only the last one needed are removed ---- */

/* Releases the lock meanwhile.  Without memory it is tried again with the next checkpoint;
 * otherwise the next open removes files that no checkpoint names. */
static void remove_dead_file(struct qs_store *store, struct qsi_dead_file *dead)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    qsi_store_unlock(store);
    status = qsi_segment_remove(store->index, &dead->file, NULL);
    qsi_store_lock(store);
    if (qsi_is_shortage(status)) {
        qsi_list_push_back(&store->paging.dead_files, &dead->in_store);
        return;
    }
    QS_DCHECK(store->paging.dead_bytes >= qsi_segment_disk_bytes(store->index, &dead->file));
    store->paging.dead_bytes -= qsi_segment_disk_bytes(store->index, &dead->file);
    qsi_free(dead);
}

/* Releases the lock meanwhile. */
static void remove_dead_files(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list *node = store->paging.dead_files.next;
    struct qsi_list sealed;

    qsi_list_init(&sealed);
    while (node != &store->paging.dead_files) {
        struct qsi_dead_file *dead = QSI_LIST_OWNER(node, struct qsi_dead_file, in_store);
        node = node->next;
        if (dead->sealed) {
            qsi_list_remove(&dead->in_store);
            qsi_list_push_back(&sealed, &dead->in_store);
        }
    }
    while (!qsi_list_is_empty(&sealed)) {
        struct qsi_dead_file *dead = QSI_LIST_OWNER(sealed.next, struct qsi_dead_file, in_store);
        qsi_list_remove(&dead->in_store);
        remove_dead_file(store, dead);
    }
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_list_is_empty(&store->paging.dead_files)) {
        store->paging.dead_since_ns = 0;
    }
}

/* Releases the lock meanwhile.  Removes files that no stream had any more at the snapshot; the next
 * open removes those that cannot be removed now. */
static void remove_stream_files(struct qs_store *store, size_t bytes) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_buf *dead = &store->streams.dead;
    struct qsi_block_cache *cache = store->streams.cache;
    struct qsi_block_dir *blocks = store->streams.blocks;
    struct qsi_block_file file;

    QS_ASSERT(bytes <= dead->bytes && bytes % sizeof file == 0);
    for (size_t at = 0; at < bytes; at += sizeof file) {
        memcpy(&file, dead->data + at, sizeof file);
        qsi_store_unlock(store);
        qsi_block_cache_forget(cache, &file);
        (void)!qsi_block_file_remove(blocks, &file, NULL);
        qsi_store_lock(store);
    }
    dead->bytes -= bytes;
    if (bytes > 0) {
        memmove(dead->data, dead->data + bytes, dead->bytes);
    }
}

/* As many as were in use since the last one; none in a quiet store. */
static uint32_t spares_to_keep(struct qs_store *store, uint64_t lsn) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t used = (lsn - store->checkpoint.lsn) / store->options.journal_file_bytes + 1;
    uint64_t most = store->options.checkpoint_bytes / store->options.journal_file_bytes + 1;

    QS_DCHECK(lsn >= store->checkpoint.lsn);
    if (qsi_backlog_is_quiet(store)) {
        store->checkpoint.tidied_lsn = store->checkpoint.seen_lsn;
        return 0;
    }
    return qsi_space_is_tight(store) ? 0 : (uint32_t)(used < most ? used : most);
}

/* Releases the lock meanwhile. */
qs_status qsi_checkpoint_clean_up(struct qsi_checkpoint *checkpoint,
                                  const struct qsi_session *start, uint64_t last_number,
                                  qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    uint32_t keep = spares_to_keep(store, checkpoint->lsn);
    uint32_t below_number;
    bool is_kept;
    qs_status status;

    qsi_checkpoint_end_snapshots(checkpoint, true);
    QS_ASSERT(checkpoint->number > last_number && checkpoint->lsn >= store->checkpoint.lsn);
    store->checkpoint.number = checkpoint->number;
    store->checkpoint.lsn = checkpoint->lsn;
    store->checkpoint.at_ns = store->env->monotonic_ns(store->env);
    store->checkpoint.failed_ns = 0;
    store->space.covered = checkpoint->unjournalled;
    store->space.settles_in_memory = false;
    store->space.open_upto = 0; /* there is more space now, or there was less than it seemed */
    store->stats.checkpoints += 1;
    while (store->paging.readers.count[checkpoint->epoch] > 0) {
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    }
    remove_dead_files(store);
    remove_stream_files(store, checkpoint->dead_stream_bytes);
    qsi_transactions_remove_dead(store);
    is_kept = qsi_keep_below(store, start->first_file, &below_number);
    qsi_store_unlock(store);
    checkpoint->sealed = false;
    status = qsi_message_store_unseal(store->messages, !is_kept, error);
    if (status == QS_OK) {
        status = qsi_journal_release(store->journal, below_number, keep, error);
    }
    if (status == QS_OK && last_number != 0) {
        status = remove_checkpoint(store, last_number, error);
    }
    qsi_store_lock(store);
    if (qsi_journal_wants_spare(store->journal)) {
        qsi_cond_signal(&store->commit.chores);
    }
    return status;
}
