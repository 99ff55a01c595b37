/* Room in the journal, made before anything changes, and appending records to it. */
#include "budget.h"
#include "check.h"
#include "commit.h"
#include "commit_internal.h"
#include "enter.h"
#include "error.h"
#include "space.h"
#include "store.h"
#include "watch.h"

/* ---- room ---- */

qs_status qsi_make_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                         uint64_t bytes_max, bool is_awaited, qs_error *error)
{
    struct qsi_spare spare;
    qs_status status;

    QS_DCHECK(!store->commit.preparing);
    QS_ASSERT_HELD(&store->mutex);
    store->commit.preparing = true;
    qsi_journal_spare_begin(store->journal, &spare, bytes, entry_bytes, bytes_max, is_awaited);
    qsi_store_unlock(store);
    status = qsi_journal_spare_make(store->journal, &spare, error);
    qsi_store_lock(store);
    if (status == QS_OK) {
        status = qsi_journal_spare_finish(store->journal, &spare);
        if (status != QS_OK) {
            qsi_fail(error, status, "journal file");
        }
    }
    QS_DCHECK(store->commit.preparing);
    store->commit.preparing = false;
    qsi_cond_broadcast(&store->commit.prepared);
    return status;
}

/* Releases the lock meanwhile.  Makes a small file from the space that is kept for calls that do
 * not publish. */
static qs_status make_reserved_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                     enum qsi_room_use use, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool gave;

    qsi_store_unlock(store);
    gave = qsi_space_give(store, use);
    qsi_store_lock(store);
    while (gave && store->commit.preparing) { /* one at a time: the space is for it */
        qsi_cond_wait(&store->commit.prepared, &store->mutex, QSI_WAIT_FOREVER);
    }
    return gave ? qsi_make_spare(store, bytes, entry_bytes, 0, true, error) : QS_ENOSPC;
}

/* Releases the lock meanwhile.  Makes a file from free space besides the reserve.  QS_OK: look
 * again. */
static qs_status make_free_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                 enum qsi_room_use use, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool is_left;
    qs_status status;

    qsi_store_unlock(store);
    is_left = qsi_space_is_left(store, use);
    qsi_store_lock(store);
    if (store->commit.preparing) {
        return QS_OK; /* another thread has begun one meanwhile */
    }
    if (!is_left || (use == QSI_ROOM_SETTLE && !qsi_space_settles_in_files(store))) {
        return QS_ENOSPC;
    }
    status = qsi_make_spare(store, bytes, entry_bytes, qsi_space_file_max(store), true, error);
    return status == QS_ENOSPC ? qsi_make_spare(store, bytes, entry_bytes, 0, true, error) : status;
}

/* Releases the lock meanwhile.  QS_OK: look again.  QS_ENOSPC: the call that needs the room cannot
 * have it. */
static qs_status make_another_file(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                   enum qsi_room_use use, bool may_regain, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool publishes = use == QSI_ROOM_PUBLISH || use == QSI_ROOM_DEAD_LETTER;
    qs_status status =
        make_free_spare(store, bytes, entry_bytes, publishes ? use : QSI_ROOM_SETTLE, error);

    if (status == QS_ENOSPC && !publishes) {
        status = make_reserved_spare(store, bytes, entry_bytes, QSI_ROOM_SETTLE, error);
    }
    /* A checkpoint has the rest of the reserve, and frees more than any file takes. */
    if (status == QS_ENOSPC && may_regain && qsi_space_regain(store)) {
        return QS_OK;
    }
    if (status == QS_ENOSPC && use == QSI_ROOM_REMOVE) {
        status = make_free_spare(store, bytes, entry_bytes, use, error);
        if (status == QS_ENOSPC) {
            status = make_reserved_spare(store, bytes, entry_bytes, use, error);
        }
    }
    return status;
}

/* Entries that wait to be written are in memory, whatever was paged. */
uint64_t qsi_commit_unsynced_max(const struct qs_store *store)
{
    uint64_t share = store->options.memory_budget / 4;

    return share < QSI_UNSYNCED_BYTES_MAX ? share : QSI_UNSYNCED_BYTES_MAX;
}

/* Whether to wait for a commit before more is appended.  If memory is nearly used up, fewer entries
 * may wait: a settle does not wait for the pager, and each record is in memory until it is
 * written. */
static bool waits_for_commit(const struct qs_store *store, uint64_t waiting, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t part = qsi_part_of_budget(store);

    return waiting > 0 && (waiting + bytes > qsi_commit_unsynced_max(store) ||
                           (waiting > part && qsi_budget_bytes(store->budget) + 2 * part >
                                                  store->options.memory_budget));
}

qs_status qsi_commit_make_room(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                               enum qsi_room_use use, bool *released_out, enum qsi_wait wait,
                               qs_error *error)
{
    bool publishes = use == QSI_ROOM_PUBLISH || use == QSI_ROOM_DEAD_LETTER;

    QS_ASSERT_HELD(&store->mutex);
    *released_out = false;
    for (uint32_t tries = 0;; tries++) {
        bool may_regain = use != QSI_ROOM_DEAD_LETTER && tries < QSI_REGAIN_TRIES;
        uint64_t durable = qsi_journal_durable_lsn(store->journal);
        uint64_t appended = qsi_journal_appended_lsn(store->journal);
        bool waited = false;
        qs_status status;
        QS_TRY(qsi_store_check_failed(store, error));
        if (waits_for_commit(store, appended - durable, bytes)) {
            QS_TRY(qsi_check_may_wait(wait));
            *released_out = true;
            QS_TRY(qsi_commit_wait(store, durable + 1, QS_FOREVER, error));
            tries = 0;
            continue;
        }
        if (publishes) {
            QS_TRY(qsi_space_admit(store, bytes, may_regain, &waited, wait, error));
        }
        if (waited) {
            *released_out = true;
            continue;
        }
        QS_DCHECK(durable <= appended);
        if (qsi_journal_has_room(store->journal, bytes, entry_bytes)) {
            return QS_OK;
        }
        if (use == QSI_ROOM_SETTLE && store->space.settles_in_memory) {
            return QS_OK;
        }
        QS_TRY(qsi_check_may_wait(wait));
        *released_out = true;
        if (store->commit.preparing) {
            qsi_cond_wait(&store->commit.prepared, &store->mutex, QSI_WAIT_FOREVER);
            continue;
        }
        status = make_another_file(store, bytes, entry_bytes, use, may_regain, error);
        if (status == QS_ENOSPC && use != QSI_ROOM_SETTLE) {
            if (publishes) {
                qsi_watch_full(store);
            }
            return qsi_space_fail_full(error);
        }
        if (status == QS_ENOSPC) {
            store->space.settles_in_memory = true;
        } else if (status != QS_OK) {
            return status;
        }
    }
}

/* ---- records ---- */

void qsi_arena_leave(struct qs_store *store, struct qsi_chunk **arena)
{
    QS_ASSERT_HELD(&store->mutex);
    if (*arena != NULL) {
        qsi_chunk_end(*arena, store->budget);
        qsi_chunk_unref(*arena);
        *arena = NULL;
    }
}

qs_status qsi_arena_place(struct qs_store *store, bool journalled, uint64_t bytes,
                          struct qsi_chunk **chunk_out, qs_error *error)
{
    struct qsi_chunk **arena = journalled ? &store->commit.arena : &store->commit.transient_arena;
    uint64_t arena_bytes = store->options.journal_file_bytes / 4;
    struct qsi_chunk *chunk;

    QS_DCHECK(bytes > 0);
    QS_ASSERT_HELD(&store->mutex);
    if (*arena != NULL && (*arena)->capacity - (*arena)->used >= bytes) {
        QS_DCHECK((*arena)->used <= (*arena)->capacity);
        *chunk_out = *arena;
        return QS_OK;
    }
    arena_bytes = arena_bytes < QSI_ARENA_BYTES_MAX ? arena_bytes : QSI_ARENA_BYTES_MAX;
    arena_bytes = arena_bytes < qsi_part_of_budget(store) ? arena_bytes : qsi_part_of_budget(store);
    chunk = qsi_chunk_create(bytes > arena_bytes ? bytes : arena_bytes);
    if (chunk == NULL) {
        return qsi_fail(error, QS_ENOMEM, "record of %llu bytes", (unsigned long long)bytes);
    }
    qsi_chunk_charge(chunk, store->budget);
    qsi_arena_leave(store, arena);
    *arena = chunk;
    *chunk_out = chunk;
    return QS_OK;
}

uint64_t qsi_store_append(struct qs_store *store, struct qsi_chunk *chunk, uint64_t from,
                          uint64_t bytes, uint32_t record_count, bool more)
{
    QS_DCHECK(bytes > 0 && record_count > 0);
    QS_DCHECK(!store->options.read_only);
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_journal_unsealed_bytes(store->journal) == 0) {
        store->commit.batch_began_ns = store->env->monotonic_ns(store->env);
    }
    return qsi_journal_append(store->journal, chunk, from, bytes, record_count, more);
}
