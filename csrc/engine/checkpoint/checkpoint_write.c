/* Writing a checkpoint, without the lock: the flushes and states that its snapshot began,
 * syncing their files, the checkpoint's own file, naming it in MANIFEST, and afterwards the
 * removal of what only the last one named.  The order is that of checkpoint.c. */
#include "qstore/codec.h"

#include "alloc.h"
#include "check.h"
#include "checkpoint_job.h"
#include "clock.h"
#include "commit.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "paging.h"
#include "queue_life.h"
#include "space.h"
#include "transactions_restore.h"

#include <string.h>

/* ---- without the lock: what the snapshot needs is written ---- */

static void end_flush(struct checkpoint *checkpoint, struct flush_job *job, bool done)
{
    struct qs_store *store = checkpoint->store;

    qsi_store_lock(store);
    job->begun = false;
    qsi_flush_end(&job->flush, done);
    job->queue->jobs -= 1;
    qsi_free_queue_if_done(job->queue);
    qsi_cond_broadcast(&store->paging.done);
    qsi_store_unlock(store);
}

/* What a segment is in does not change while a checkpoint tells of it: after all that could not be
 * written to was left, the checkpoint begins again. */
static bool leave_flush(struct checkpoint *checkpoint, struct qsi_flush *flush)
{
    bool left;

    qsi_store_lock(checkpoint->store);
    left = qsi_flush_leave_file(flush) == QS_OK;
    qsi_store_unlock(checkpoint->store);
    checkpoint->left_file = checkpoint->left_file || left;
    return left;
}

static bool leave_state(struct checkpoint *checkpoint, struct qsi_state_write *write)
{
    bool left;

    qsi_store_lock(checkpoint->store);
    left = qsi_state_write_leave_file(write) == QS_OK;
    qsi_store_unlock(checkpoint->store);
    checkpoint->left_file = checkpoint->left_file || left;
    return left;
}

static qs_status run_flushes(struct checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct flush_job *jobs = ITEMS(checkpoint->flushes, struct flush_job);
    struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);
    const struct store_queue *waiting = NULL; /* its file was left */

    for (uint32_t i = 0; i < COUNT(checkpoint->flushes, struct flush_job); i++) {
        qs_status status;
        bool left;
        if (jobs[i].queue == waiting) { /* what is flushed is so up to some sequence */
            end_flush(checkpoint, &jobs[i], false);
            continue;
        }
        qsi_store_lock(store);
        qsi_flush_refresh(&jobs[i].flush);
        store->stats.segments_written += jobs[i].flush.file.heap_end == 0 ? 1 : 0;
        qsi_store_unlock(store);
        status = qsi_flush_run(&jobs[i].flush, store->index, store->transient_index, error);
        if (status == QS_OK && jobs[i].entry != UINT32_MAX) {
            entries[jobs[i].entry].file = jobs[i].flush.file;
            ITEMS(checkpoint->syncs, struct entry_sync)
            [jobs[i].entry].has_content |= jobs[i].flush.message_count > 0;
        }
        left = status == QS_ECORRUPT && leave_flush(checkpoint, &jobs[i].flush);
        waiting = left ? jobs[i].queue : waiting;
        end_flush(checkpoint, &jobs[i], status == QS_OK);
        if (status != QS_OK && !left) {
            return status;
        }
    }
    return checkpoint->left_file ? QS_ECORRUPT : QS_OK;
}

static qs_status encode_carried(struct checkpoint *checkpoint, qs_error *error)
{
    struct flush_job *jobs = ITEMS(checkpoint->carried, struct flush_job);

    for (uint32_t i = 0; i < COUNT(checkpoint->carried, struct flush_job); i++) {
        qs_status status =
            qsi_flush_encode(&jobs[i].flush, &checkpoint->records, &checkpoint->record_count);
        end_flush(checkpoint, &jobs[i], false);
        if (status != QS_OK) {
            return qsi_checkpoint_no_memory(error);
        }
    }
    return QS_OK;
}

static void end_state(struct checkpoint *checkpoint, struct state_job *job, bool done)
{
    struct qs_store *store = checkpoint->store;

    qsi_store_lock(store);
    job->begun = false;
    qsi_state_write_end(&job->write, done);
    job->queue->jobs -= 1;
    qsi_free_queue_if_done(job->queue);
    qsi_store_unlock(store);
}

static qs_status run_states(struct checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct state_job *jobs = ITEMS(checkpoint->states, struct state_job);
    struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);

    for (uint32_t i = 0; i < COUNT(checkpoint->states, struct state_job); i++) {
        struct qsi_segment_entry *entry = &entries[jobs[i].entry];
        qs_status status;
        bool left;
        jobs[i].write.file = entry->file; /* which may have been made since */
        status = qsi_state_write_run(&jobs[i].write, store->index, store->transient_index, error);
        if (status == QS_OK) {
            entry->file = jobs[i].write.file;
        }
        left = status == QS_ECORRUPT && leave_state(checkpoint, &jobs[i].write);
        end_state(checkpoint, &jobs[i], status == QS_OK);
        if (status != QS_OK && !left) {
            return status;
        }
    }
    return checkpoint->left_file ? QS_ECORRUPT : QS_OK;
}

/* ---- the file ---- */

static qs_status put_queue_states(struct checkpoint *checkpoint, struct qsi_buf *out)
{
    const struct carried_queue *queues = ITEMS(checkpoint->queues, struct carried_queue);
    const struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);
    const struct former_entry *formers = ITEMS(checkpoint->formers, struct former_entry);

    for (uint32_t i = 0; i < COUNT(checkpoint->queues, struct carried_queue); i++) {
        QS_TRY(qsi_queue_state_encode(out, &queues[i].state, entries + queues[i].first_entry));
        checkpoint->record_count += 1;
    }
    for (uint32_t i = 0; i < COUNT(checkpoint->formers, struct former_entry); i++) {
        QS_TRY(qsi_former_file_encode(out, &formers[i].file, formers[i].end));
        checkpoint->record_count += 1;
    }
    return QS_OK;
}

/* The records before the carried messages, which need their queues' states first. */
static qs_status write_file(struct checkpoint *checkpoint, struct qsi_buf *states,
                            size_t carried_at, qs_file *file, uint64_t *bytes_out,
                            uint32_t *crc_out, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_checkpoint_header header = {.number = checkpoint->number,
                                           .lsn = checkpoint->lsn,
                                           .record_count = checkpoint->record_count};
    uint8_t head[QSI_CHECKPOINT_HEADER_BYTES];
    qs_part parts[4] = {
        {head, sizeof head},
        {checkpoint->records.data, carried_at},
        {states->data, states->bytes},
        {checkpoint->records.data + carried_at, checkpoint->records.bytes - carried_at}};
    qs_part present[4];
    size_t count = 0;

    memcpy(header.uuid, store->manifest.uuid, sizeof header.uuid);
    qsi_checkpoint_header_encode(head, &header);
    *bytes_out = 0;
    *crc_out = 0;
    for (size_t i = 0; i < 4; i++) {
        if (parts[i].bytes > 0) {
            present[count++] = parts[i];
            *crc_out = qs_crc32c(*crc_out, parts[i].data, parts[i].bytes);
            *bytes_out += parts[i].bytes;
        }
    }
    return qsi_file_write(store->env, file, present, count, 0, error);
}

static qs_status remove_checkpoint(struct qs_store *store, uint64_t number, qs_error *error)
{
    char name[QSI_CHECKPOINT_NAME_BYTES];
    qs_status status;

    qsi_checkpoint_name(name, number);
    status = qsi_env_remove(store->env, store->checkpoint_dir, name, error);
    return status == QS_ENOENT ? QS_OK : status;
}

static qs_status make_file(struct checkpoint *checkpoint, size_t carried_at, uint64_t *bytes_out,
                           uint32_t *crc_out, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    char name[QSI_CHECKPOINT_NAME_BYTES];
    struct qsi_buf states = {0};
    qs_file *file = NULL;
    qs_status status = put_queue_states(checkpoint, &states);

    if (status != QS_OK) {
        qsi_buf_fini(&states);
        return qsi_checkpoint_no_memory(error);
    }
    qsi_checkpoint_name(name, checkpoint->number);
    /* One that was begun and did not come to count is in the way. */
    status = remove_checkpoint(store, checkpoint->number, error);
    if (status == QS_OK) {
        status = qsi_env_open(store->env, store->checkpoint_dir, name,
                              QS_OPEN_WRITE | QS_OPEN_CREATE_NEW, &file, error);
    }
    if (status == QS_ENOENT) {
        status = qsi_fail_corrupt(error, "checkpoint", 0,
                                  "the directory was removed while the store was open: make it "
                                  "again and open the store again");
    }
    if (status == QS_OK) {
        status = write_file(checkpoint, &states, carried_at, file, bytes_out, crc_out, error);
    }
    qsi_buf_fini(&states);
    if (status != QS_OK) {
        char path[QSI_CHECKPOINT_PATH_BYTES];
        qsi_checkpoint_path(path, checkpoint->number);
        qsi_error_prefix(error, "%s", path);
    }
    if (status == QS_OK && store->options.sync != QS_SYNC_NONE) {
        status =
            qsi_checkpoint_sync_failed(store, qsi_file_sync_new(store->env, file, error), error);
        if (status == QS_OK) {
            status = qsi_checkpoint_sync_failed(
                store, qsi_dir_sync(store->env, store->checkpoint_dir, error), error);
        }
    }
    if (status == QS_OK) {
        status = qsi_checkpoint_check_file(store, name, error);
    }
    store->env->close(store->env, file);
    if (qsi_is_shortage(status)) { /* its space may be what the next one needs */
        (void)!remove_checkpoint(store, checkpoint->number, NULL);
    }
    return status;
}

/* ---- all that is written before it counts ---- */

void qsi_checkpoint_end_jobs(struct checkpoint *checkpoint)
{
    struct flush_job *flushes = ITEMS(checkpoint->flushes, struct flush_job);
    struct flush_job *carried = ITEMS(checkpoint->carried, struct flush_job);
    struct state_job *states = ITEMS(checkpoint->states, struct state_job);

    for (uint32_t i = 0; i < COUNT(checkpoint->flushes, struct flush_job); i++) {
        if (flushes[i].begun) {
            end_flush(checkpoint, &flushes[i], false);
        }
    }
    for (uint32_t i = 0; i < COUNT(checkpoint->carried, struct flush_job); i++) {
        if (carried[i].begun) {
            end_flush(checkpoint, &carried[i], false);
        }
    }
    for (uint32_t i = 0; i < COUNT(checkpoint->states, struct state_job); i++) {
        if (states[i].begun) {
            end_state(checkpoint, &states[i], false);
        }
    }
}

/* Releases the lock. */
qs_status qsi_write_snapshot(struct checkpoint *checkpoint, uint64_t *bytes_out, uint32_t *crc_out,
                             qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    size_t carried_at = checkpoint->records.bytes;
    qs_status status;

    qsi_store_unlock(store);
    status = run_flushes(checkpoint, error);
    if (status == QS_OK) {
        status = run_states(checkpoint, error);
    }
    if (status == QS_OK) {
        status = encode_carried(checkpoint, error);
    }
    qsi_checkpoint_end_jobs(checkpoint);
    qsi_store_lock(store);
    qsi_checkpoint_step(&store->checkpoint.state, QSI_CHECKPOINT_SYNCS);
    qsi_flush_step(&store->paging.flush, QSI_FLUSH_NONE); /* paging goes on meanwhile */
    qsi_cond_broadcast(&store->paging.done);
    qsi_store_unlock(store);
    if (status == QS_OK) {
        status =
            qsi_checkpoint_sync_failed(store, qsi_checkpoint_sync_files(checkpoint, error), error);
    }
    if (status == QS_OK) {
        qsi_store_lock(store);
        status = qsi_commit_wait(store, checkpoint->lsn, QS_FOREVER, error);
        qsi_store_unlock(store);
    }
    return status == QS_OK ? make_file(checkpoint, carried_at, bytes_out, crc_out, error) : status;
}

/* ---- when it counts ---- */

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

/* MANIFEST names the checkpoint.  start_out: where the journal begins from now on. */
qs_status qsi_name_checkpoint(struct checkpoint *checkpoint, uint64_t bytes, uint32_t crc,
                              struct qsi_session *start_out, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    struct qsi_manifest manifest;
    qs_status status;

    qsi_store_lock(store);
    qsi_journal_session_at(store->journal, checkpoint->lsn, start_out);
    qsi_store_unlock(store);
    qsi_mutex_lock(&store->manifest_mutex);
    status = copy_manifest(&manifest, &store->manifest);
    if (status != QS_OK) {
        qsi_mutex_unlock(&store->manifest_mutex);
        return qsi_checkpoint_no_memory(error);
    }
    qsi_manifest_begin_at(&manifest, start_out);
    manifest.checkpoint_number = checkpoint->number;
    manifest.checkpoint_lsn = checkpoint->lsn;
    manifest.checkpoint_bytes = bytes;
    manifest.checkpoint_crc = crc;
    manifest.clock_us = qsi_clock_us(store);
    status = manifest.failed ? qsi_fail(error, QS_ESTORE_FAILED,
                                        "a commit failed while the checkpoint was made")
                             : qsi_manifest_store(&manifest, store->env, store->root, error);
    if (status == QS_OK) {
        struct qsi_session *old = store->manifest.sessions;
        store->manifest = manifest;
        qsi_free(old);
    } else {
        qsi_free(manifest.sessions);
    }
    qsi_mutex_unlock(&store->manifest_mutex);
    return status;
}

/* ---- afterwards: what only the last one needed goes ---- */

/* Releases the lock meanwhile.  For want of memory it is tried again with the next checkpoint;
 * else the next open removes what no checkpoint names. */
static void remove_dead_file(struct qs_store *store, struct dead_file *dead)
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
        struct dead_file *dead = QSI_LIST_OWNER(node, struct dead_file, in_store);
        node = node->next;
        if (dead->sealed) {
            qsi_list_remove(&dead->in_store);
            qsi_list_push_back(&sealed, &dead->in_store);
        }
    }
    while (!qsi_list_is_empty(&sealed)) {
        struct dead_file *dead = QSI_LIST_OWNER(sealed.next, struct dead_file, in_store);
        qsi_list_remove(&dead->in_store);
        remove_dead_file(store, dead);
    }
    if (qsi_list_is_empty(&store->paging.dead_files)) {
        store->paging.dead_since_ns = 0;
    }
}

/* From now on these are the areas that must not be written. */
static void note_durable_areas(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_queue *queue = &((struct store_queue *)cursor.value)->core;
        for (uint32_t i = 0; queue->container.durable && i < qsi_queue_segment_count(queue); i++) {
            struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
            segment->durable_area = segment->file.state_area;
        }
    }
}

static uint32_t spares_to_keep(const struct qs_store *store, uint64_t lsn)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t used = (lsn - store->checkpoint.lsn) / store->options.journal_file_bytes + 1;
    uint64_t most = store->options.checkpoint_bytes / store->options.journal_file_bytes + 1;

    return (uint32_t)(used < most ? used : most);
}

/* Releases the lock meanwhile. */
qs_status qsi_checkpoint_clean_up(struct checkpoint *checkpoint, const struct qsi_session *start,
                                  uint64_t last_number, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = checkpoint->store;
    uint32_t keep = qsi_space_is_tight(store) ? 0 : spares_to_keep(store, checkpoint->lsn);
    qs_status status;

    note_durable_areas(store);
    qsi_checkpoint_note_synced(checkpoint);
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
    qsi_transactions_remove_dead(store);
    qsi_store_unlock(store);
    checkpoint->sealed = false;
    status = qsi_message_store_unseal(store->messages, true, error);
    if (status == QS_OK) {
        status = qsi_journal_release(store->journal, start->first_file, keep, error);
    }
    if (status == QS_OK && last_number != 0) {
        status = remove_checkpoint(store, last_number, error);
    }
    qsi_store_lock(store);
    return status;
}
