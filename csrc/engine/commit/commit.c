/* Group commit: leader and followers.
 *
 * The first thread that waits leads: it seals the appended entries, writes and syncs them without
 * the lock, and wakes the others; meanwhile the next batch fills.  A publisher that waits is never
 * delayed by a timer.  The committer thread leads when no call waits (pipelined publishers): it
 * looks after each commit, and sleeps only when the store is idle, so that in steady state no
 * publisher pays for waking it.
 *
 * Deliveries that count are written before the messages are handed out, and synced with the next
 * commit. */
#include "commit.h"

#include "armed.h"
#include "backlog.h"
#include "block_write.h"
#include "check.h"
#include "commit_internal.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "failure.h"
#include "notify.h"
#include "space.h"
#include "store.h"
#include "store_work.h"
#include "stream_cursor.h"
#include "trace.h"
#include "wake.h"
#include "watch.h"

#include <sched.h>

/* A commit may take that long: a wait with a shorter timeout never leads one. */
#define LEAD_NS 50000000u
/* A loop with other work leads a commit that is likely to end soon: the last one took at most this
 * time, and at most these bytes are to be written. */
#define SHORT_NS 1000000u
#define SHORT_BYTES (16u << 10)
#define FILE_NAP_NS 10000000u /* between looks for the journal's next file */
#define FILE_TRIES 100
#define FILL_BYTES (512u << 10) /* zeros ahead of the journal in one step, */
/* turns that the leader yields to followers of the last commit that will wait again */
#define GATHER_YIELDS 16

/* A sync into a file without a name, or into a directory that was moved away, is lost: checked
 * before anything is confirmed. */
static qs_status check_linked(struct qs_store *store, qs_error *error)
{
    QS_TRY(qsi_journal_check_linked(store->journal, error));
    return qsi_env_check_linked(store->env, store->lock_file, error);
}

/* ---- leading ---- */

/* Without the lock.  Room was made before anything was appended, but for what blocks need around
 * their records: should it be missing, the leader waits for it a while.  What is returned
 * after that is an error of the commit. */
static qs_status write_journal(struct qs_store *store, qs_error *error)
{
    for (uint32_t tries = 1;; tries++) {
        qs_status status = qsi_journal_write(store->journal, error);
        if (qsi_consequence_of(QSI_USE_NEXT_FILE, status) != QSI_TRIES_AGAIN ||
            !qsi_journal_wants_file(store->journal) || tries == FILE_TRIES) {
            return status;
        }
        if (qsi_is_full(status) && qsi_space_give(store, QSI_ROOM_CHECKPOINT)) {
            continue;
        }
        qsi_store_lock(store);
        qsi_cond_wait(&store->commit.prepared, &store->mutex, FILE_NAP_NS);
        qsi_journal_take_spares(store->journal);
        qsi_store_unlock(store);
    }
}

/* Lets a bigger group form: threads that waited for the last commit publish again as soon as they
 * run. */
static void gather(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t deadline;

    QS_DCHECK(store->commit.lead == QSI_LEAD_GATHERS);
    if (store->options.commit_delay_us > 0) {
        deadline =
            store->env->monotonic_ns(store->env) + store->options.commit_delay_us * UINT64_C(1000);
        for (;;) {
            uint64_t now = store->env->monotonic_ns(store->env);
            if (now >= deadline || store->life == QSI_LIFE_STOPS ||
                !qsi_cond_wait(&store->commit.work, &store->mutex, deadline - now)) {
                return;
            }
        }
    }
    for (int i = 0; i < GATHER_YIELDS && store->commit.durable_waiters < store->commit.group_size;
         i++) {
        qsi_store_unlock(store);
        sched_yield();
        qsi_store_lock(store);
    }
}

static void record_commit(struct qs_store *store, uint64_t began_ns, uint64_t sealed_ns)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = store->env->monotonic_ns(store->env);

    QS_DCHECK(now >= sealed_ns);
    store->stats.commits += 1;
    store->commit.took_ns = now - sealed_ns;
    qsi_histogram_add(&store->commit.latency, now - sealed_ns);
    qsi_histogram_add(&store->commit.confirm_latency, now - began_ns);
}

bool qsi_commit_has_unsynced(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(qsi_journal_durable_lsn(store->journal) <= qsi_journal_written_lsn(store->journal));
    return qsi_journal_written_lsn(store->journal) > qsi_journal_durable_lsn(store->journal);
}

/* Without the lock.  If this fails too, the next open finds out for itself, as after a crash. */
static void give_up(struct qs_store *store)
{
    qsi_manifest_lock(store);
    (void)qsi_journal_give_up(store->journal, &store->manifest, NULL);
    qsi_manifest_unlock(store);
}

/* A thread that waits to copy the journal's files comes before all that would lead next. */
static void end_lead(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    if (QS_UNLIKELY(store->commit.copy_waits)) {
        store->commit.copy_waits = false;
        qsi_lead_step(&store->commit.lead, QSI_LEAD_COPIES);
        store->commit.began_ns = 0;
        qsi_cond_broadcast(&store->commit.durable);
    }
}

/* Called without the lock; takes it.  Ends a write of the journal; false: the store has failed. */
static bool end_write(struct qs_store *store, qs_status status, const qs_error *error)
    QSI_ACQUIRES(qsi_store_mutex)
{
    if (status != QS_OK) {
        give_up(store);
    }
    qsi_store_lock(store);
    qsi_watch_commit_end(store);
    end_lead(store);
    return qsi_store_record_failure(store, QSI_USE_COMMIT, status, error) == QSI_GOES_ON;
}

/* Wakes publishers, work queues, and consumers of streams, which get only durable messages. */
static void notify_durable(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    store->commit.group_size = store->commit.durable_waiters;
    if (store->commit.durable_waiters > 0) {
        qsi_cond_broadcast(&store->commit.durable);
    }
    qsi_work_advance(store);
    if (qsi_is_traced(store)) {
        qsi_trace_synced(store);
    }
    qsi_events_notify(store);
    qsi_notify_confirmed(store);
    qsi_streams_notify(store);
}

/* What was written before the commit was sealed, and perhaps more. */
static struct qsi_dirty_blocks take_dirty_blocks(struct qs_store *store)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_dirty_blocks blocks = store->commit.dirty_blocks;

    QS_DCHECK((blocks.bytes > 0) == (blocks.files.bytes > 0));
    QS_DCHECK(store->commit.spare_blocks.bytes == 0);
    blocks.dir = store->streams.blocks;
    store->commit.dirty_blocks = (struct qsi_dirty_blocks){.files = store->commit.spare_blocks};
    store->commit.spare_blocks = (struct qsi_buf){0};
    store->commit.syncing_bytes = blocks.bytes;
    return blocks;
}

/* They were closed. */
static void end_dirty_blocks(struct qs_store *store, struct qsi_dirty_blocks *blocks)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(blocks->files.bytes == 0);
    qsi_buf_fini(&store->commit.spare_blocks);
    store->commit.spare_blocks = blocks->files;
    store->commit.syncing_bytes = 0;
}

void qsi_commit_forget_blocks(struct qs_store *store)
{
    struct qsi_dirty_blocks blocks = take_dirty_blocks(store);

    qsi_commit_close_blocks(&blocks);
    qsi_buf_fini(&blocks.files);
    qsi_buf_fini(&store->commit.dirty_blocks.files);
}

qs_status qsi_commit_reserve_blocks(struct qs_store *store)
{
    uint8_t *room;

    QS_ASSERT_HELD(&store->mutex);
    return qsi_buf_reserve(&store->commit.dirty_blocks.files, sizeof(struct qsi_block_unsynced),
                           &room);
}

void qsi_commit_add_blocks(struct qs_store *store, struct qsi_block_unsynced *unsynced,
                           uint64_t bytes)
{
    struct qsi_dirty_blocks *dirty = &store->commit.dirty_blocks;
    struct qsi_block_unsynced *files = (struct qsi_block_unsynced *)(void *)dirty->files.data;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(bytes > 0 && unsynced->handle != NULL);
    dirty->bytes += bytes;
    for (size_t i = 0; i < dirty->files.bytes / sizeof *files; i++) {
        if (files[i].file.owner == unsynced->file.owner &&
            files[i].file.salt == unsynced->file.salt) {
            qsi_block_unsynced_close(store->streams.blocks, unsynced); /* open already */
            return;
        }
    }
    QS_ASSERT(qsi_buf_append(&dirty->files, unsynced, sizeof *unsynced) == QS_OK);
}

void qsi_commit_lead(struct qs_store *store)
{
    struct qsi_dirty_set set = {0};
    struct qsi_dirty_blocks blocks;
    qs_error error = {0};
    qs_status status;
    uint64_t began_ns, sealed_ns, message_syncs;

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_GATHERS);
    store->commit.began_ns = 0;
    gather(store);
    store->commit.is_awaited = false; /* this commit has the requested entries */
    if (!qsi_journal_seal(store->journal) && !qsi_commit_has_unsynced(store)) {
        end_lead(store);
        return;
    }
    qsi_lead_step(&store->commit.lead, QSI_LEAD_COMMITS);
    store->commit.owes_sync = false;
    store->commit.count_bytes = 0;
    began_ns = store->commit.batch_began_ns;
    qsi_message_store_dirty_take(store->messages, &set);
    blocks = take_dirty_blocks(store);
    message_syncs = set.count;
    sealed_ns = store->env->monotonic_ns(store->env);
    store->commit.began_ns = sealed_ns;
    qsi_store_unlock(store);
    status = write_journal(store, &error);
    if (status == QS_OK) {
        status = qsi_commit_sync(store, &set, &blocks, &error);
    }
    if (status == QS_OK) {
        status = check_linked(store, &error);
    }
    qsi_message_store_release(store->messages, &set);
    qsi_commit_close_blocks(&blocks);
    if (!end_write(store, status, &error)) {
        qsi_buf_fini(&blocks.files);
        return;
    }
    end_dirty_blocks(store, &blocks);
    qsi_journal_finish(store->journal);
    QS_DCHECK(!qsi_commit_has_unsynced(store));
    store->stats.message_syncs += store->options.sync == QS_SYNC_FDATASYNC ? message_syncs : 0;
    record_commit(store, began_ns, sealed_ns);
    notify_durable(store);
    if (store->checkpoint.sleeps || qsi_checkpoint_wants_begin(store)) {
        qsi_cond_signal(&store->checkpoint.due);
    }
    if (qsi_journal_wants_spare(store->journal) ||
        qsi_message_store_needs_maintenance(store->messages) ||
        (qsi_journal_wants_fill(store->journal) && !store->commit.looks_for_quiet)) {
        qsi_cond_signal(&store->commit.chores);
    }
    if (store->commit.fill_is_due && store->commit.lead == QSI_LEAD_NONE) { /* all were told */
        store->commit.fill_is_due = false;
        qsi_commit_fill(store);
    }
}

static uint64_t time_left(struct qs_store *store, uint64_t deadline_ns)
{
    uint64_t now;

    if (deadline_ns == UINT64_MAX) {
        return QSI_WAIT_FOREVER;
    }
    now = store->env->monotonic_ns(store->env);
    return now < deadline_ns ? deadline_ns - now : 0;
}

bool qsi_commit_will_be_short(const struct qs_store *store)
{
    const struct qsi_commit *commit = &store->commit;
    uint64_t bytes = qsi_journal_unsealed_bytes(store->journal);

    QS_ASSERT_HELD(&store->mutex);
    return store->life == QSI_LIFE_OPEN && !store->failed && commit->lead == QSI_LEAD_NONE &&
           0 < bytes && bytes <= SHORT_BYTES && store->stats.commits > 0 &&
           commit->took_ns <= SHORT_NS && store->options.commit_delay_us == 0 &&
           !commit->fill_is_due && !qsi_journal_wants_spare(store->journal) &&
           commit->dirty_blocks.bytes == 0 && !qsi_message_store_is_dirty(store->messages);
}

/* A leader cannot stop at a deadline: if one is near, the committer leads. */
static bool has_time_to_lead(struct qs_store *store, uint64_t deadline_ns)
{
    return deadline_ns == UINT64_MAX || !store->commit.committer_running ||
           time_left(store, deadline_ns) >=
               LEAD_NS + store->options.commit_delay_us * UINT64_C(1000);
}

qs_status qsi_commit_wait(struct qs_store *store, uint64_t lsn, uint64_t timeout_ns,
                          qs_error *error)
{
    uint64_t deadline_ns = UINT64_MAX;
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(lsn <= qsi_journal_appended_lsn(store->journal));
    if (qsi_journal_durable_lsn(store->journal) >= lsn) {
        return QS_OK;
    }
    if (timeout_ns != QS_FOREVER) {
        uint64_t now = store->env->monotonic_ns(store->env);
        deadline_ns = now + timeout_ns < now ? UINT64_MAX : now + timeout_ns;
    }
    store->commit.durable_waiters += 1;
    while (status == QS_OK && qsi_journal_durable_lsn(store->journal) < lsn) {
        status = qsi_store_check_failed(store, error);
        if (status != QS_OK) {
            break;
        }
        if (store->commit.lead == QSI_LEAD_NONE && has_time_to_lead(store, deadline_ns)) {
            qsi_commit_lead(store);
        } else {
            uint64_t left = time_left(store, deadline_ns);
            if (left == 0) {
                status = QS_ETIMEDOUT;
            } else {
                if (store->commit.lead == QSI_LEAD_NONE) {
                    qsi_commit_expedite(store);
                }
                qsi_cond_wait(&store->commit.durable, &store->mutex, left);
            }
        }
    }
    QS_DCHECK(status != QS_OK || qsi_journal_durable_lsn(store->journal) >= lsn);
    QS_DCHECK(store->commit.durable_waiters > 0);
    store->commit.durable_waiters -= 1;
    return status;
}

/* Takes the entries to be written; deliveries among them need no commit of their own. */
static bool seal_for_write(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t open_bytes = qsi_journal_unsealed_bytes(store->journal);
    bool sealed = qsi_journal_seal(store->journal);

    QS_DCHECK(store->commit.lead == QSI_LEAD_NONE);
    if (open_bytes - qsi_journal_unsealed_bytes(store->journal) != store->commit.count_bytes) {
        store->commit.owes_sync = store->commit.owes_sync || sealed;
    }
    store->commit.count_bytes = 0; /* a commit takes care of the rest of a part */
    return sealed;
}

/* REQUIRES that no thread leads; releases it meanwhile. */
static void write_out(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    qs_error error = {0};
    qs_status status;

    QS_ASSERT(store->commit.lead == QSI_LEAD_NONE && !store->failed);
    if (!seal_for_write(store)) {
        return;
    }
    qsi_lead_step(&store->commit.lead, QSI_LEAD_WRITES);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_store_unlock(store);
    status = write_journal(store, &error);
    if (!end_write(store, status, &error)) {
        return;
    }
    qsi_journal_finish_write(store->journal);
    if (store->commit.durable_waiters > 0) { /* threads that came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
    if (qsi_journal_wants_spare(store->journal)) {
        qsi_cond_signal(&store->commit.chores);
    }
}

qs_status qsi_commit_write(struct qs_store *store, uint64_t lsn, qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(lsn <= qsi_journal_appended_lsn(store->journal));
    while (qsi_journal_written_lsn(store->journal) < lsn) {
        QS_TRY(qsi_store_check_failed(store, error));
        if (store->commit.lead != QSI_LEAD_NONE) {
            store->commit.durable_waiters += 1;
            qsi_cond_wait(&store->commit.durable, &store->mutex, QSI_WAIT_FOREVER);
            QS_DCHECK(store->commit.durable_waiters > 0);
            store->commit.durable_waiters -= 1;
        } else {
            write_out(store);
        }
    }
    QS_DCHECK(qsi_journal_written_lsn(store->journal) >= lsn);
    qsi_commit_wake(store);
    return QS_OK;
}

void qsi_commit_mark(struct qs_store *store)
{
    qs_error error = {0};
    qs_status status;

    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_MARKS);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_store_unlock(store);
    status = qsi_journal_mark(store->journal, &error);
    qsi_store_lock(store);
    qsi_watch_commit_end(store);
    end_lead(store);
    if (qsi_store_record_failure(store, QSI_USE_COMMIT, status, &error) == QSI_GOES_ON &&
        store->commit.durable_waiters > 0) { /* threads that came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
}

void qsi_commit_fill(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_FILLS);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_store_unlock(store);
    /* If it fails the journal is unchanged: the next commit finds out what it can still write. */
    (void)!qsi_journal_fill(store->journal, FILL_BYTES, NULL);
    qsi_store_lock(store);
    qsi_watch_commit_end(store);
    end_lead(store);
    qsi_journal_record_fill(store->journal);
    if (store->commit.durable_waiters > 0) { /* threads that came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
}
