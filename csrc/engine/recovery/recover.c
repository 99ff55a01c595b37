/* Recovery: the same at every start.  The journal is scanned and replayed into memory, its tail is
 * made durable, and a new session begins after it. */
#include "recover.h"

#include "check.h"
#include "clock.h"
#include "env_call.h"
#include "file.h"
#include "pager.h"
#include "replay_journal.h"
#include "restore.h"
#include "salvage.h"
#include "scan.h"
#include "space.h"
#include "states.h"
#include "thread_safety.h"

#include <string.h>

/* ---- the message store ---- */

/* Drops references of messages that the replay settled, and syncs the message files that live
 * messages need: the bytes that were read may be only in the page cache. */
static qs_status retain_bodies(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    qs_status status;

    QS_DCHECK(store->judges || store->journal == NULL);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        QS_TRY(qsi_load_head(store, cursor.value, error));
    }
    status = qsi_pager_release(store, error);
    if (status != QS_OK) {
        return status;
    }
    /* Salvage treats a missing file as bodies that cannot be read. */
    return qsi_message_store_retain_counted(store->messages,
                                            store->judges           ? QSI_RETAIN_JUDGE
                                            : qsi_is_salvage(store) ? QSI_RETAIN_SALVAGE
                                                                    : QSI_RETAIN,
                                            error);
}

/* ---- all of it ---- */

static qs_status sync_journal_file(struct qs_store *store, uint32_t number, qs_error *error)
{
    char name[QSI_JOURNAL_NAME_BYTES];
    qs_file *file = NULL;
    qs_status status;

    if (number == 0) {
        return QS_OK;
    }
    qsi_journal_name(name, number);
    status = qsi_env_open(store->env, store->journal_dir, name, QS_OPEN_READ | QS_OPEN_WRITE, &file,
                          error);
    if (status != QS_OK) {
        return status;
    }
    status = qsi_file_sync(store->env, file, error);
    store->env->close(store->env, file);
    return status;
}

/* The same for blocks that the journal names. */
static qs_status sync_streams(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (store->stream_count > 0 && qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        QS_TRY(qsi_container_sync_named(queue->messages, error));
    }
    return QS_OK;
}

/* The bytes that were read must be on the disk before a decision depends on them: they may be only
 * in the page cache.  Two files need that: a process may die when the end block of the first one is
 * written and not synced, and the header of the second one is durable already. */
static qs_status sync_tail(struct qs_store *store, const struct qsi_scan_result *result,
                           qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    QS_ASSERT(!store->options.read_only);
    if (qsi_manifest_is_ended(&store->manifest) || store->options.sync == QS_SYNC_NONE) {
        return QS_OK;
    }
    QS_TRY(sync_streams(store, error));
    QS_TRY(sync_journal_file(store, result->file_before, error));
    return sync_journal_file(store, result->last_file, error);
}

static void lock_store(void *context) QSI_ACQUIRES(qsi_store_mutex)
{
    qsi_store_lock(context);
}

static void unlock_store(void *context) QSI_RELEASES(qsi_store_mutex)
{
    qsi_store_unlock(context);
}

static qs_status begin_session(struct qs_store *store, const struct qsi_scan_result *result,
                               qs_error *error) QSI_REQUIRES(qsi_manifest_mutex)
{
    struct qsi_journal_options options = {
        .file_bytes = store->options.journal_file_bytes,
        .sync = store->options.sync == QS_SYNC_FDATASYNC,
        .anew = store->manifest.failed,
        .salvage = store->options.recovery == QS_RECOVERY_SALVAGE,
        .lock = lock_store,
        .unlock = unlock_store,
        .lock_context = store,
    };
    qs_status status;

    QS_ASSERT(store->journal == NULL && !store->options.read_only);
    /* Salvage leaves alone files that it could not read: they are not recycled. */
    uint32_t used_upto =
        store->options.recovery == QS_RECOVERY_SALVAGE ? result->highest_file : result->last_file;

    /* Below the last session's files there may be one that an earlier session had begun after what
     * became its end.  Its header would contradict a torn tail if a new session took that file and
     * lost its own. */
    if (store->manifest.session_count > 0) {
        uint32_t first_file =
            store->manifest.sessions[store->manifest.session_count - 1].first_file;
        used_upto = used_upto >= first_file ? used_upto : first_file - 1;
    }
    QS_ASSERT(used_upto >= result->last_file || result->last_file == 0);
    memcpy(options.uuid, store->manifest.uuid, sizeof options.uuid);
    store->manifest.clock_us = qsi_clock_us(store);
    do {
        status = qsi_journal_open(&store->journal, store->env, store->root, store->journal_dir,
                                  &options, &store->manifest, used_upto, result->end_lsn, error);
    } while (status == QS_ENOSPC && qsi_space_give(store, QSI_ROOM_CHECKPOINT));
    return status;
}

static void count_recovered(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        store->recovery.messages += qsi_container_ready_count(queue->messages);
        store->recovery.messages += qsi_queue_delayed_count(&queue->core);
    }
}

/* Nothing is removed, truncated or renamed before everything was read that could make the open
 * fail. */
static qs_status recover(struct qs_store *store, struct qsi_scan_result *result,
                         struct qsi_leftovers *leftovers, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    QS_TRY(qsi_restore(store, error));
    QS_TRY(qsi_list_leftovers(store, leftovers, error));
    QS_TRY(qsi_replay_journal(store, result, error));
    store->recovery.read_lsn = result->end_lsn;
    store->recovery.torn_bytes = result->torn_bytes;
    store->recovery.lost_ranges += result->lost_ranges;
    store->recovery.lost_bytes += result->lost_bytes;
    count_recovered(store);
    if (store->options.read_only) {
        return store->judges ? retain_bodies(store, error) : QS_OK;
    }
    QS_TRY(sync_tail(store, result, error));
    QS_TRY(retain_bodies(store, error));
    QS_TRY(begin_session(store, result, error));
    QS_TRY(qsi_message_store_trim_counted(store->messages, error));
    return qsi_remove_leftovers(store, leftovers, error);
}

qs_status qsi_recover(struct qs_store *store, qs_error *error)
{
    uint64_t began_ns = store->env->monotonic_ns(store->env);
    struct qsi_scan_result result = {0};
    struct qsi_leftovers leftovers = {.segments = {0}};
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    store->streams.recovers = true;
    store->streams.salvages = qsi_is_salvage(store);
    status = recover(store, &result, &leftovers, error);
    store->streams.recovers = false;
    qsi_buf_fini(&leftovers.segments);
    qsi_buf_fini(&leftovers.blocks);
    store->recovery.took_us = (store->env->monotonic_ns(store->env) - began_ns) / 1000;
    return status;
}
