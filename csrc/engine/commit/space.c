/* Space on the disk: the reserve, whether publishers may go on, and regaining space. */
#include "space.h"

#include "check.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "segment_format.h"
#include "watch.h"

#include <errno.h>

#define RESERVE_NAME "RESERVE"
#define RESERVE_BYTES_MIN (256u << 10)
#define RESERVE_BYTES_MAX (4u << 20)
#define RESERVE_BYTES_LEAST (32u << 10) /* where files must not be larger */
#define RESERVE_SHARE 16                /* of a journal file, and of the disk at most */
#define SETTLE_KEEPS 2                  /* settles leave a half of the reserve to others, */
#define REMOVE_KEEPS 4                  /* and removals a quarter to checkpoints */
#define STEP_SHARE 16 /* of the free space may be published before the disk is checked again */
#define STEP_BYTES_MAX (16u << 20)
#define GROWTH 4 /* bytes of a segment for one of the journal, at most, nearly always */
#define TRY_NS 100000000u

/* ---- the reserve ---- */

void qsi_space_init(struct qs_store *store)
{
    qsi_mutex_init(&store->space.mutex);
}

static void open_reserve(struct qs_store *store, uint32_t flags) QSI_REQUIRES(qsi_space_mutex)
{
    struct qsi_space *space = &store->space;

    if (space->reserve == NULL && qsi_env_open(store->env, store->root, RESERVE_NAME, flags,
                                               &space->reserve, NULL) != QS_OK) {
        space->reserve = NULL;
    }
    if (space->reserve != NULL &&
        qsi_env_size(store->env, space->reserve, &space->reserve_bytes, NULL) != QS_OK) {
        space->reserve_bytes = 0;
    }
}

void qsi_space_open(struct qs_store *store)
{
    qsi_space_lock(&store->space);
    open_reserve(store, QS_OPEN_WRITE);
    qsi_space_unlock(&store->space);
}

static uint64_t reserve_size(struct qs_store *store)
{
    uint64_t bytes = store->options.journal_file_bytes / RESERVE_SHARE;
    uint64_t total = 0, free_bytes = 0;

    bytes = bytes > RESERVE_BYTES_MIN ? bytes : RESERVE_BYTES_MIN;
    bytes = bytes < RESERVE_BYTES_MAX ? bytes : RESERVE_BYTES_MAX;
    if (store->env->space != NULL &&
        store->env->space(store->env, store->root, &total, &free_bytes, NULL) == QS_OK &&
        total / RESERVE_SHARE < bytes) {
        bytes = total / RESERVE_SHARE;
    }
    bytes = bytes > RESERVE_BYTES_LEAST ? bytes : RESERVE_BYTES_LEAST;
    return qsi_round_up(bytes, QSI_BLOCK_ALIGN);
}

/* Refills the reserve if free_bytes suffice, which nothing else needs, or refills as much of it as
 * checkpoints need and there is space for.  False: it is not full. */
static bool restore_reserve(struct qs_store *store, uint64_t free_bytes);

void qsi_space_begin(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_store_is_private(store);
    store->space.whole_bytes = reserve_size(store);
    store->space.named_bytes = store->manifest.checkpoint_bytes;
    (void)restore_reserve(store, qsi_space_beyond_checkpoint(store));
}

void qsi_space_close(struct qs_store *store)
{
    qsi_store_is_private(store);
    store->env->close(store->env, store->space.reserve);
    store->space.reserve = NULL;
    qsi_mutex_fini(&store->space.mutex);
}

/* A store that finds less space makes its reserve smaller, while other threads read its size
 * without the mutex. */
static uint64_t whole_bytes(const struct qsi_space *space)
{
    return __atomic_load_n(&space->whole_bytes, __ATOMIC_RELAXED);
}

static void set_whole(struct qs_store *store, bool whole)
{
    __atomic_store_n(&store->space.is_whole, whole, __ATOMIC_RELEASE);
}

/* The part of the reserve that this use leaves to uses that free space. */
static uint64_t bytes_kept_from(const struct qsi_space *space, enum qsi_room_use use)
    QSI_REQUIRES(qsi_space_mutex)
{
    switch (use) {
    case QSI_ROOM_SETTLE:
        return space->whole_bytes / SETTLE_KEEPS;
    case QSI_ROOM_REMOVE:
        return space->whole_bytes / REMOVE_KEEPS;
    case QSI_ROOM_CHECKPOINT:
        return 0;
    case QSI_ROOM_PUBLISH:
    case QSI_ROOM_DEAD_LETTER:
        break;
    }
    return UINT64_MAX;
}

bool qsi_space_give(struct qs_store *store, enum qsi_room_use use)
{
    struct qsi_space *space = &store->space;
    uint64_t keep;
    bool gave = false;

    qsi_space_lock(space);
    keep = bytes_kept_from(space, use);
    if (space->reserve != NULL && space->reserve_bytes > keep) {
        set_whole(store, false);
        if (store->messages != NULL) {
            qsi_message_store_leave_free(store->messages, UINT64_MAX);
        }
        gave = qsi_env_truncate(store->env, space->reserve, keep, NULL) == QS_OK;
        space->reserve_bytes = gave ? keep : space->reserve_bytes;
    }
    qsi_space_unlock(space);
    return gave;
}

/* All or nothing. */
static qs_status fill_upto(struct qs_store *store, uint64_t bytes) QSI_REQUIRES(qsi_space_mutex)
{
    struct qsi_space *space = &store->space;
    qs_error error = {0};
    qs_status status = qsi_file_allocate(store->env, space->reserve, bytes, &error);

    if (status == QS_OK) {
        space->reserve_bytes = bytes;
        return QS_OK;
    }
    /* A part of it may have been found, which other uses need. */
    (void)!qsi_env_truncate(store->env, space->reserve, space->reserve_bytes, NULL);
    return error.os_errno == EFBIG ? QS_EINVAL : status;
}

/* If files may not be that large, the whole reserve is smaller.  If there is less space, a part is
 * kept as well: otherwise the next settle would take the free space, and none would be left for the
 * checkpoint that helps all of them. */
static void fill_reserve(struct qs_store *store, uint64_t bytes) QSI_REQUIRES(qsi_space_mutex)
{
    struct qsi_space *space = &store->space;
    qs_status status = fill_upto(store, bytes);

    while (status == QS_EINVAL && space->whole_bytes > RESERVE_BYTES_LEAST) {
        __atomic_store_n(&space->whole_bytes, qsi_round_up(space->whole_bytes / 2, QSI_BLOCK_ALIGN),
                         __ATOMIC_RELAXED);
        bytes = bytes < space->whole_bytes ? bytes : space->whole_bytes;
        status = fill_upto(store, bytes);
    }
    while (status == QS_ENOSPC && bytes > QSI_BLOCK_ALIGN) {
        bytes = qsi_round_up(bytes / 2, QSI_BLOCK_ALIGN);
        status = bytes > space->reserve_bytes ? fill_upto(store, bytes) : QS_OK;
    }
}

static void restore(struct qs_store *store, uint64_t bytes) QSI_REQUIRES(qsi_space_mutex)
{
    struct qsi_space *space = &store->space;

    if (qsi_space_is_whole(store) || space->is_lent) {
        return;
    }
    if (space->reserve == NULL) {
        open_reserve(store, QS_OPEN_WRITE);
    }
    if (space->reserve == NULL) {
        open_reserve(store, QS_OPEN_WRITE | QS_OPEN_CREATE_NEW);
    }
    if (space->reserve == NULL) {
        return;
    }
    if (space->reserve_bytes < bytes) {
        fill_reserve(store, bytes);
    }
    if (space->reserve_bytes >= space->whole_bytes) {
        /* So that it exists after a power cut.  If that fails, the call that needs it finds out. */
        (void)!qsi_file_sync_new(store->env, space->reserve, NULL);
        qsi_message_store_leave_free(store->messages, space->whole_bytes);
        set_whole(store, true);
    }
}

/* Settles had a part of it: they do not get it again from the space that a checkpoint would
 * write. */
static void restore_from(struct qs_store *store, uint64_t free_bytes) QSI_REQUIRES(qsi_space_mutex)
{
    const struct qsi_space *space = &store->space;
    bool has_all = space->whole_bytes <= space->reserve_bytes ||
                   space->whole_bytes - space->reserve_bytes <= free_bytes;

    restore(store, has_all ? space->whole_bytes : bytes_kept_from(space, QSI_ROOM_SETTLE));
}

static bool restore_reserve(struct qs_store *store, uint64_t free_bytes)
{
    if (!qsi_space_is_whole(store)) {
        qsi_space_lock(&store->space);
        restore_from(store, free_bytes);
        qsi_space_unlock(&store->space);
    }
    return qsi_space_is_whole(store);
}

void qsi_space_take_back(struct qs_store *store, uint64_t free_bytes)
{
    qsi_space_lock(&store->space);
    store->space.is_lent = false;
    restore_from(store, free_bytes);
    qsi_space_unlock(&store->space);
}

bool qsi_space_is_left(struct qs_store *store, enum qsi_room_use use)
{
    struct qsi_space *space = &store->space;
    bool is_left = qsi_space_is_whole(store);

    if (!is_left && use != QSI_ROOM_PUBLISH && use != QSI_ROOM_DEAD_LETTER) {
        qsi_space_lock(space);
        restore(store, bytes_kept_from(space, use));
        is_left = !space->is_lent && space->reserve_bytes >= bytes_kept_from(space, use);
        qsi_space_unlock(space);
    }
    return is_left;
}

bool qsi_space_lend(struct qs_store *store)
{
    qsi_space_lock(&store->space);
    store->space.is_lent = true;
    qsi_space_unlock(&store->space);
    return qsi_space_give(store, QSI_ROOM_CHECKPOINT);
}

/* ---- free space, and what it must suffice for ---- */

static uint64_t checkpoint_cost(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t bytes = 0;

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        const struct qsi_store_queue *queue = cursor.value;
        bytes += queue->container.durable ? qsi_container_checkpoint_bytes(queue->messages) : 0;
    }
    return bytes + store->space.named_bytes;
}

/* The free space beyond that; 0: none.  Computed with the store's lock held, because it is compared
 * with costs of the same moment: no file is touched, the file system answers from counters in
 * memory, and publishers come here once for a sixteenth of the free space (open_publishing). */
static uint64_t free_beyond(struct qs_store *store, uint64_t needs)
{
    uint64_t total, free_bytes;

    if (store->env->space == NULL ||
        store->env->space(store->env, store->root, &total, &free_bytes, NULL) != QS_OK) {
        return UINT64_MAX / GROWTH;
    }
    return free_bytes > needs ? free_bytes - needs : 0;
}

/* The free space beyond what the store itself needs. */
static uint64_t free_beyond_needs(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return free_beyond(store, checkpoint_cost(store) + whole_bytes(&store->space) / SETTLE_KEEPS);
}

/* Publishing is open for a while if bytes more leave enough. */
static bool open_publishing(struct qs_store *store, uint64_t bytes) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t beyond = free_beyond_needs(store);
    uint64_t step = beyond / STEP_SHARE;
    bool opens = bytes <= beyond / GROWTH;

    step = step < STEP_BYTES_MAX ? step : STEP_BYTES_MAX;
    step = step > bytes ? step : bytes;
    step = opens ? step : 0;
    qsi_message_store_leave_free(store->messages, checkpoint_cost(store) + step * GROWTH +
                                                      whole_bytes(&store->space) / SETTLE_KEEPS);
    if (opens) {
        store->space.open_upto = qsi_journal_appended_lsn(store->journal) + step;
    }
    return opens;
}

uint64_t qsi_space_file_max(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_space_is_whole(store) ? free_beyond_needs(store) / GROWTH : 0;
}

uint64_t qsi_space_beyond_checkpoint(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return free_beyond(store, checkpoint_cost(store));
}

bool qsi_space_settles_in_files(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_space_beyond_checkpoint(store) >= QSI_JOURNAL_FILE_BYTES_MIN;
}

uint64_t qsi_space_carried_max(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return free_beyond_needs(store) / STEP_SHARE;
}

bool qsi_space_is_tight(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_space_file_max(store) < store->options.journal_file_bytes;
}

bool qsi_space_may_page(struct qs_store *store, const struct qsi_store_queue *queue)
{
    QS_ASSERT_HELD(&store->mutex);
    /* A recovery pages the contents of the journal, and cannot refuse any of them.  What it pages
     * of a durable queue a checkpoint need not write; space that was lent to it is not for
     * others. */
    if (store->journal == NULL ||
        (store->checkpoint.state != QSI_CHECKPOINT_NONE && queue->container.durable)) {
        return true;
    }
    return qsi_space_is_whole(store) && (queue->container.durable || free_beyond_needs(store) > 0);
}

/* ---- regaining space ---- */

/* It differs whenever there may be more space to regain than before. */
static uint64_t changes(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_journal_appended_lsn(store->journal) + store->space.unjournalled +
           store->stats.acked + store->paging.dead_bytes;
}

bool qsi_space_regain(struct qs_store *store)
{
    struct qsi_space *space = &store->space;
    uint64_t now = store->env->monotonic_ns(store->env);
    bool changed = space->tried_at_ns == 0 || space->tried_changes != changes(store);
    uint64_t beyond;
    bool restored;

    QS_ASSERT_HELD(&store->mutex);
    if (now - space->tried_at_ns < TRY_NS && space->tried_at_ns != 0 && store->paging.is_running) {
        if (!changed) {
            return false;
        }
        qsi_cond_wait(&store->commit.prepared, &store->mutex, TRY_NS - (now - space->tried_at_ns));
        return true; /* another thread may have tried meanwhile: to be looked at again */
    }
    space->tried_at_ns = now;
    space->tried_changes = changes(store);
    if (changed && store->options.recovery != QS_RECOVERY_SALVAGE) {
        restored = store->upcalls->checkpoint(store, NULL) == QS_OK;
    } else {
        beyond = qsi_space_beyond_checkpoint(store);
        qsi_store_unlock(store);
        restored = !qsi_space_is_whole(store) && restore_reserve(store, beyond);
        qsi_store_lock(store);
    }
    space->tried_changes = changes(store);
    return restored;
}

qs_status qsi_space_fail_full(qs_error *error)
{
    return qsi_fail(error, QS_ESTORE_FULL,
                    "the disk is full; nothing was accepted: consume or purge messages, or free "
                    "some space, and try again");
}

qs_status qsi_space_look(struct qs_store *store, uint64_t bytes, bool may_regain,
                         bool *released_out, enum qsi_wait wait, qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    if (qsi_space_is_whole(store) && open_publishing(store, bytes)) {
        qsi_watch_admitted(store);
        return QS_OK;
    }
    if (may_regain) {
        QS_TRY(qsi_check_may_wait(wait));
        *released_out = true;
        if (qsi_space_regain(store)) {
            return QS_OK;
        }
    }
    qsi_watch_full(store);
    return qsi_space_fail_full(error);
}
