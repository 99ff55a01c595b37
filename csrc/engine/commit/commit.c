/* Group commit: leader and followers.
 *
 * Whoever waits first leads: it seals what was appended, writes and syncs it without the lock,
 * and wakes the others; meanwhile the next batch fills.  A publisher that waits is never delayed
 * by a timer.  The committer thread leads when nobody waits (pipelined publishers): it looks
 * after each commit, and goes to sleep only when the store is idle, so that in steady state no
 * publisher pays for waking it.
 *
 * Deliveries that count are written before the messages are handed out, and synced with the next
 * commit. */
#include "commit.h"

#include "alloc.h"
#include "backlog.h"
#include "check.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "park.h"
#include "space.h"
#include "store.h"
#include "wake.h"

#include <sched.h>
#include <string.h>

#define GRACE_NS \
    100000u /* a fresh batch is left this long to its publisher, who may be about to wait */
#define LEAD_NS 50000000u /* a commit may take so long: who has less time to wait leads none */
#define NAP_NS 200000u /* between looks while the store is busy: nobody has to wake the committer */
#define IDLE_NS 20000000u     /* without work for so long, it sleeps until it is called */
#define FILE_NAP_NS 10000000u /* between looks for a file to go on in */
#define FILE_TRIES 100
#define FILL_BYTES (512u << 10)       /* zeros ahead of the journal in one step, */
#define FILL_NAP_NS 1000000u          /* between steps, */
#define FILL_LOOK_NS 50000000u        /* and between looks whether the store is quiet: */
#define QUIET_BYTES_PER_MS (4u << 10) /* it journals no more than some 4 MB/s */
#define GATHER_YIELDS \
    16 /* turns the leader gives to followers of the last commit who will be back */

/* ---- syncing in parallel ---- */

static void *run_helper(void *argument)
{
    struct qs_store *store = argument;
    struct sync_helper *helper = &store->commit.helper;

    qsi_mutex_lock(&helper->mutex);
    while (!helper->stop) {
        struct qsi_dirty_set set;
        qs_status status;
        if (!helper->busy) {
            qsi_cond_wait(&helper->cond, &helper->mutex, QSI_WAIT_FOREVER);
            continue;
        }
        set = helper->set;
        qsi_mutex_unlock(&helper->mutex);
        status = qsi_message_store_sync(store->messages, &set, &helper->error);
        qsi_mutex_lock(&helper->mutex);
        helper->status = status;
        helper->busy = false;
        qsi_cond_broadcast(&helper->cond);
    }
    qsi_mutex_unlock(&helper->mutex);
    return NULL;
}

static void helper_begin(struct sync_helper *helper, const struct qsi_dirty_set *set)
{
    qsi_mutex_lock(&helper->mutex);
    helper->set = *set;
    helper->busy = true;
    qsi_cond_broadcast(&helper->cond);
    qsi_mutex_unlock(&helper->mutex);
}

static qs_status helper_end(struct sync_helper *helper, qs_error *error)
{
    qs_status status;

    qsi_mutex_lock(&helper->mutex);
    while (helper->busy) {
        qsi_cond_wait(&helper->cond, &helper->mutex, QSI_WAIT_FOREVER);
    }
    status = helper->status;
    if (status != QS_OK && error != NULL) {
        *error = helper->error;
    }
    qsi_mutex_unlock(&helper->mutex);
    return status;
}

/* Without the lock: bodies and journal reach the disk, side by side when both have something. */
static qs_status sync_all(struct qs_store *store, struct qsi_dirty_set *set, qs_error *error)
{
    qs_status status, bodies = QS_OK;

    if (store->options.sync == QS_SYNC_NONE) {
        qsi_message_store_release(store->messages, set);
        return QS_OK;
    }
    if (set->count == 0) {
        return qsi_journal_sync(store->journal, error);
    }
    if (!store->commit.helper.running) {
        QS_TRY(qsi_message_store_sync(store->messages, set, error));
        return qsi_journal_sync(store->journal, error);
    }
    helper_begin(&store->commit.helper, set);
    status = qsi_journal_sync(store->journal, error);
    bodies = helper_end(&store->commit.helper, status == QS_OK ? error : NULL);
    memset(set, 0, sizeof *set);
    return status != QS_OK ? status : bodies;
}

/* What is synced into a file without a name, or into a directory that was moved away, is durable
 * and lost: asked before anything is confirmed. */
static qs_status check_linked(struct qs_store *store, qs_error *error)
{
    QS_TRY(qsi_journal_check_linked(store->journal, error));
    return qsi_env_check_linked(store->env, store->lock_file, error);
}

/* ---- leading ---- */

/* Without the lock.  Room was made before anything was appended, but for what blocks need around
 * their records: should it be missing, the leader waits for it a while.  Nothing else than a write
 * or a sync that failed ends a store. */
static qs_status write_journal(struct qs_store *store, qs_error *error)
{
    for (uint32_t tries = 1;; tries++) {
        qs_status status = qsi_journal_write(store->journal, error);
        if (!qsi_is_shortage(status) || !qsi_journal_wants_file(store->journal) ||
            tries == FILE_TRIES) {
            return status;
        }
        if (qsi_is_full(status) && qsi_space_give(store, QSI_ROOM_CHECKPOINT)) {
            continue;
        }
        qsi_mutex_lock(&store->mutex);
        qsi_cond_wait(&store->commit.prepared, &store->mutex, FILE_NAP_NS);
        qsi_mutex_unlock(&store->mutex);
    }
}

/* Gives a bigger group the chance to form: those who waited for the last commit publish again as soon as they run. */
static void gather(struct qs_store *store)
{
    uint64_t deadline;

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
        qsi_mutex_unlock(&store->mutex);
        sched_yield();
        qsi_mutex_lock(&store->mutex);
    }
}

static void record_commit(struct qs_store *store, uint64_t began_ns, uint64_t sealed_ns)
{
    uint64_t now = store->env->monotonic_ns(store->env);

    store->stats.commits += 1;
    qsi_histogram_add(&store->commit.latency, now - sealed_ns);
    qsi_histogram_add(&store->commit.confirm_latency, now - began_ns);
}

static bool has_unsynced(const struct qs_store *store)
{
    return qsi_journal_written_lsn(store->journal) > qsi_journal_durable_lsn(store->journal);
}

/* Without the lock.  If this fails too, the next open finds out for itself, as after a crash. */
static void give_up(struct qs_store *store)
{
    qsi_mutex_lock(&store->manifest_mutex);
    (void)qsi_journal_give_up(store->journal, &store->manifest, NULL);
    qsi_mutex_unlock(&store->manifest_mutex);
}

/* REQUIRES lock and nobody leading; releases it meanwhile. */
static void lead(struct qs_store *store)
{
    struct qsi_dirty_set set = {0};
    qs_error error = {0};
    qs_status status;
    uint64_t began_ns, sealed_ns, message_syncs;

    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_GATHERS);
    store->commit.began_ns = 0;
    gather(store);
    store->commit.is_awaited = false; /* whoever asked has his bytes in this one */
    if (!qsi_journal_seal(store->journal) && !has_unsynced(store)) {
        qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
        return;
    }
    qsi_lead_step(&store->commit.lead, QSI_LEAD_COMMITS);
    store->commit.owes_sync = false;
    store->commit.count_bytes = 0;
    began_ns = store->commit.batch_began_ns;
    qsi_message_store_dirty_take(store->messages, &set);
    message_syncs = set.count;
    sealed_ns = store->env->monotonic_ns(store->env);
    store->commit.began_ns = sealed_ns;
    qsi_mutex_unlock(&store->mutex);
    status = write_journal(store, &error);
    if (status == QS_OK) {
        status = sync_all(store, &set, &error);
    }
    if (status == QS_OK) {
        status = check_linked(store, &error);
    }
    qsi_message_store_release(store->messages, &set);
    if (status != QS_OK) {
        give_up(store);
    }
    qsi_mutex_lock(&store->mutex);
    qsi_watch_commit_end(store);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    if (status != QS_OK) {
        qsi_store_fail(store, &error);
        return;
    }
    qsi_journal_finish(store->journal);
    store->stats.message_syncs += store->options.sync == QS_SYNC_FDATASYNC ? message_syncs : 0;
    record_commit(store, began_ns, sealed_ns);
    store->commit.group_size = store->commit.durable_waiters;
    if (store->commit.durable_waiters > 0) {
        qsi_cond_broadcast(&store->commit.durable);
    }
    qsi_events_announce(store);
    qsi_ring_confirmed(store);
    if (store->checkpoint.sleeps || qsi_checkpoint_wants_begin(store)) {
        qsi_cond_signal(&store->checkpoint.due);
    }
    if (qsi_journal_wants_spare(store->journal) ||
        qsi_message_store_needs_maintenance(store->messages) ||
        (qsi_journal_wants_fill(store->journal) && !store->commit.looks_for_quiet)) {
        qsi_cond_signal(&store->commit.chores);
    }
    if (store->commit.fill_is_due) { /* whoever waited was told before */
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

/* Whoever leads cannot stop for a deadline: one that is near leaves it to the committer. */
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
            lead(store);
        } else {
            uint64_t left = time_left(store, deadline_ns);
            if (left == 0) {
                status = QS_ETIMEDOUT;
            } else {
                if (store->commit.lead == QSI_LEAD_NONE) {
                    qsi_commit_hurry(store);
                }
                qsi_cond_wait(&store->commit.durable, &store->mutex, left);
            }
        }
    }
    store->commit.durable_waiters -= 1;
    return status;
}

/* Takes what is to be written; the deliveries among it need no commit of their own. */
static bool seal_for_write(struct qs_store *store)
{
    uint64_t open_bytes = qsi_journal_unsealed_bytes(store->journal);
    bool sealed = qsi_journal_seal(store->journal);

    if (open_bytes - qsi_journal_unsealed_bytes(store->journal) != store->commit.count_bytes) {
        store->commit.owes_sync = store->commit.owes_sync || sealed;
    }
    store->commit.count_bytes = 0; /* of a part that is left a commit takes care */
    return sealed;
}

/* REQUIRES lock and nobody leading; releases it meanwhile. */
static void write_out(struct qs_store *store)
{
    qs_error error = {0};
    qs_status status;

    QS_ASSERT(store->commit.lead == QSI_LEAD_NONE && !store->failed);
    if (!seal_for_write(store)) {
        return;
    }
    qsi_lead_step(&store->commit.lead, QSI_LEAD_WRITES);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_mutex_unlock(&store->mutex);
    status = write_journal(store, &error);
    if (status != QS_OK) {
        give_up(store);
    }
    qsi_mutex_lock(&store->mutex);
    qsi_watch_commit_end(store);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    if (status != QS_OK) {
        qsi_store_fail(store, &error);
        return;
    }
    qsi_journal_finish_write(store->journal);
    if (store->commit.durable_waiters > 0) { /* who came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
    if (qsi_journal_wants_spare(store->journal)) {
        qsi_cond_signal(&store->commit.chores);
    }
}

qs_status qsi_commit_write(struct qs_store *store, uint64_t lsn, qs_error *error)
{
    QS_ASSERT(lsn <= qsi_journal_appended_lsn(store->journal));
    while (qsi_journal_written_lsn(store->journal) < lsn) {
        QS_TRY(qsi_store_check_failed(store, error));
        if (store->commit.lead != QSI_LEAD_NONE) {
            store->commit.durable_waiters += 1;
            qsi_cond_wait(&store->commit.durable, &store->mutex, QSI_WAIT_FOREVER);
            store->commit.durable_waiters -= 1;
        } else {
            write_out(store);
        }
    }
    qsi_commit_kick(store);
    return QS_OK;
}

/* ---- the committer ---- */

static bool has_work(const struct qs_store *store)
{
    return !store->failed &&
           (qsi_journal_unsealed_bytes(store->journal) > 0 || store->commit.owes_sync);
}

void qsi_commit_mark(struct qs_store *store)
{
    qs_error error = {0};
    qs_status status;

    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_MARKS);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_mutex_unlock(&store->mutex);
    status = qsi_journal_mark(store->journal, &error);
    qsi_mutex_lock(&store->mutex);
    qsi_watch_commit_end(store);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    if (status != QS_OK) {
        qsi_store_fail(store, &error);
    } else if (store->commit.durable_waiters > 0) { /* who came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
}

void qsi_commit_fill(struct qs_store *store)
{
    QS_ASSERT(!store->failed);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_FILLS);
    store->commit.began_ns = store->env->monotonic_ns(store->env);
    qsi_mutex_unlock(&store->mutex);
    /* If it fails the journal is as it was: the next commit finds out what it can still write. */
    (void)!qsi_journal_fill(store->journal, FILL_BYTES, NULL);
    qsi_mutex_lock(&store->mutex);
    qsi_watch_commit_end(store);
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    qsi_journal_note_fill(store->journal);
    if (store->commit.durable_waiters > 0) { /* who came meanwhile found a leader */
        qsi_cond_broadcast(&store->commit.durable);
    }
}

/* How long the committer should nap before it looks again; 0: it should lead now. */
static uint64_t committer_nap(struct qs_store *store, bool just_led)
{
    uint64_t age;

    if (!has_work(store) || store->commit.lead != QSI_LEAD_NONE) {
        return NAP_NS;
    }
    age = store->env->monotonic_ns(store->env) - store->commit.batch_began_ns;
    return just_led || store->commit.is_awaited || age >= GRACE_NS ? 0 : GRACE_NS - age;
}

static void *run_committer(void *argument)
{
    struct qs_store *store = argument;
    uint64_t idle_ns = 0;
    bool just_led = false;

    qsi_mutex_lock(&store->mutex);
    while (store->life < QSI_LIFE_STOPS) {
        uint64_t nap_ns = committer_nap(store, just_led);
        just_led = nap_ns == 0;
        idle_ns = has_work(store) || store->commit.lead != QSI_LEAD_NONE ? 0 : idle_ns + nap_ns;
        if (just_led) {
            lead(store);
        } else if (idle_ns < IDLE_NS) {
            qsi_cond_wait(&store->commit.work, &store->mutex, nap_ns);
        } else if (store->commit.lead == QSI_LEAD_NONE && !store->failed && has_unsynced(store)) {
            lead(store);
        } else if (store->commit.lead == QSI_LEAD_NONE && !store->failed &&
                   qsi_journal_has_unmarked(store->journal)) {
            qsi_commit_mark(store);
        } else {
            store->commit.committer_sleeps = true;
            qsi_cond_wait(&store->commit.work, &store->mutex, QSI_WAIT_FOREVER);
            store->commit.committer_sleeps = false;
            idle_ns = 0;
        }
    }
    qsi_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- room ---- */

/* REQUIRES lock, releases it meanwhile. */
static qs_status make_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                            uint64_t bytes_max, bool hurried, qs_error *error)
{
    struct qsi_spare spare;
    qs_status status;

    store->commit.preparing = true;
    qsi_journal_spare_begin(store->journal, &spare, bytes, entry_bytes, bytes_max, hurried);
    qsi_mutex_unlock(&store->mutex);
    status = qsi_journal_spare_make(store->journal, &spare, error);
    qsi_mutex_lock(&store->mutex);
    if (status == QS_OK) {
        status = qsi_journal_spare_finish(store->journal, &spare);
        if (status != QS_OK) {
            qsi_fail(error, status, "journal file");
        }
    }
    store->commit.preparing = false;
    qsi_cond_broadcast(&store->commit.prepared);
    return status;
}

/* REQUIRES lock; releases it meanwhile.  A small file of what is kept for those who do not publish. */
static qs_status make_reserved_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                     enum qsi_room_use use, qs_error *error)
{
    bool gave;

    qsi_mutex_unlock(&store->mutex);
    gave = qsi_space_give(store, use);
    qsi_mutex_lock(&store->mutex);
    return gave ? make_spare(store, bytes, entry_bytes, 0, true, error) : QS_ENOSPC;
}

/* REQUIRES lock; releases it meanwhile.  A file of what is free beside the reserve. */
static qs_status make_free_spare(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                 enum qsi_room_use use, qs_error *error)
{
    bool is_left;
    qs_status status;

    qsi_mutex_unlock(&store->mutex);
    is_left = qsi_space_is_left(store, use);
    qsi_mutex_lock(&store->mutex);
    if (!is_left || (use == QSI_ROOM_SETTLE && !qsi_space_settles_in_files(store))) {
        return QS_ENOSPC;
    }
    status = make_spare(store, bytes, entry_bytes, qsi_space_file_max(store), true, error);
    return status == QS_ENOSPC ? make_spare(store, bytes, entry_bytes, 0, true, error) : status;
}

/* REQUIRES lock; releases it meanwhile.  QS_OK: look again.  QS_ENOSPC: whoever needs the room cannot have it. */
static qs_status make_another_file(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                                   enum qsi_room_use use, bool may_regain, qs_error *error)
{
    bool publishes = use == QSI_ROOM_PUBLISH || use == QSI_ROOM_LETTER;
    qs_status status =
        make_free_spare(store, bytes, entry_bytes, publishes ? use : QSI_ROOM_SETTLE, error);

    if (status == QS_ENOSPC && !publishes) {
        status = make_reserved_spare(store, bytes, entry_bytes, QSI_ROOM_SETTLE, error);
    }
    /* A checkpoint has the rest of the reserve, and brings more back than any file has. */
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

/* What waits to be written is in memory, whatever was paged. */
static uint64_t unsynced_bytes_max(const struct qs_store *store)
{
    uint64_t share = store->options.memory_budget / 4;

    return share < QSI_UNSYNCED_BYTES_MAX ? share : QSI_UNSYNCED_BYTES_MAX;
}

qs_status qsi_commit_make_room(struct qs_store *store, uint64_t bytes, uint64_t entry_bytes,
                               enum qsi_room_use use, bool *released_out, qs_error *error)
{
    bool publishes = use == QSI_ROOM_PUBLISH || use == QSI_ROOM_LETTER;

    *released_out = false;
    for (uint32_t tries = 0;; tries++) {
        bool may_regain = use != QSI_ROOM_LETTER && tries < QSI_REGAIN_TRIES;
        uint64_t durable = qsi_journal_durable_lsn(store->journal);
        uint64_t appended = qsi_journal_appended_lsn(store->journal);
        bool waited = false;
        qs_status status;
        QS_TRY(qsi_store_check_failed(store, error));
        if (appended - durable > 0 && appended - durable + bytes > unsynced_bytes_max(store)) {
            QS_TRY(qsi_check_may_wait(store));
            *released_out = true;
            QS_TRY(qsi_commit_wait(store, durable + 1, QS_FOREVER, error));
            tries = 0;
            continue;
        }
        if (publishes) {
            QS_TRY(qsi_space_admit(store, bytes, may_regain, &waited, error));
        }
        if (waited) {
            *released_out = true;
            continue;
        }
        if (qsi_journal_has_room(store->journal, bytes, entry_bytes)) {
            return QS_OK;
        }
        if (use == QSI_ROOM_SETTLE && store->space.settles_in_memory) {
            return QS_OK;
        }
        QS_TRY(qsi_check_may_wait(store));
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

/* How fast the journal grew between the last two looks. */
struct quiet {
    uint64_t looked_ns, lsn;
    bool is_quiet;
};

static bool is_quiet(struct qs_store *store, struct quiet *quiet)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t lsn = qsi_journal_appended_lsn(store->journal);
    uint64_t elapsed_ns = now - quiet->looked_ns;

    if (elapsed_ns >= FILL_LOOK_NS) {
        /* After a long pause nobody knows how fast it grew of late. */
        quiet->is_quiet = elapsed_ns < 4 * (uint64_t)FILL_LOOK_NS &&
                          (lsn - quiet->lsn) / (elapsed_ns / 1000000) <= QUIET_BYTES_PER_MS;
        quiet->looked_ns = now;
        quiet->lsn = lsn;
    }
    return quiet->is_quiet;
}

/* REQUIRES lock; releases it meanwhile.  A step of zeros ahead of the journal, if it is quiet
 * and there is space enough: on a file system that takes new blocks to overwrite old ones zeros
 * need some.  Returns when to come again.  While somebody leads, the leader does it behind the
 * commit. */
static uint64_t fill_ahead(struct qs_store *store, struct quiet *quiet)
{
    store->commit.looks_for_quiet = !store->failed && qsi_journal_wants_fill(store->journal);
    if (!store->commit.looks_for_quiet) {
        return QSI_WAIT_FOREVER;
    }
    if (!is_quiet(store, quiet) || qsi_space_is_tight(store)) {
        return FILL_LOOK_NS;
    }
    if (store->commit.lead != QSI_LEAD_NONE) {
        store->commit.fill_is_due = true;
    } else {
        qsi_commit_fill(store);
    }
    return FILL_NAP_NS;
}

static void *run_maintainer(void *argument)
{
    struct qs_store *store = argument;
    struct quiet quiet = {0};

    qsi_mutex_lock(&store->mutex);
    while (store->life < QSI_LIFE_STOPS) {
        bool failed = false;
        if (!store->failed && !store->commit.preparing && qsi_journal_wants_spare(store->journal)) {
            uint64_t bytes_max = qsi_space_file_max(store);
            failed = bytes_max < QSI_JOURNAL_FILE_BYTES_MIN ||
                     make_spare(store, 0, 0, bytes_max, false, NULL) != QS_OK;
        }
        if (store->life < QSI_LIFE_STOPS && !failed &&
            qsi_message_store_needs_maintenance(store->messages)) {
            qsi_mutex_unlock(&store->mutex);
            failed = qsi_message_store_maintain(store->messages, NULL) != QS_OK;
            qsi_mutex_lock(&store->mutex);
        }
        /* A failure is no news to anybody yet: the next commit calls again, and publishers meet it themselves. */
        if (store->life < QSI_LIFE_STOPS &&
            (failed || !(qsi_journal_wants_spare(store->journal) && !store->commit.preparing &&
                         !store->failed))) {
            uint64_t wait_ns = failed ? QSI_WAIT_FOREVER : fill_ahead(store, &quiet);
            if (store->life < QSI_LIFE_STOPS) {
                qsi_cond_wait(&store->commit.chores, &store->mutex, wait_ns);
            }
        }
    }
    store->commit.fill_is_due = false;
    qsi_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- threads ---- */

qs_status qsi_commit_start_threads(struct qs_store *store, qs_error *error)
{
    QS_TRY(qsi_thread_start(&store->commit.helper.thread, "qs-sync", run_helper, store, error));
    store->commit.helper.running = true;
    QS_TRY(qsi_thread_start(&store->commit.committer, "qs-commit", run_committer, store, error));
    store->commit.committer_running = true;
    QS_TRY(
        qsi_thread_start(&store->commit.maintainer, "qs-maintain", run_maintainer, store, error));
    store->commit.maintainer_running = true;
    return QS_OK;
}

void qsi_commit_join_threads(struct qs_store *store)
{
    if (store->commit.committer_running) {
        pthread_join(store->commit.committer, NULL);
    }
    if (store->commit.maintainer_running) {
        pthread_join(store->commit.maintainer, NULL);
    }
    if (store->commit.helper.running) {
        qsi_mutex_lock(&store->commit.helper.mutex);
        store->commit.helper.stop = true;
        qsi_cond_broadcast(&store->commit.helper.cond);
        qsi_mutex_unlock(&store->commit.helper.mutex);
        pthread_join(store->commit.helper.thread, NULL);
    }
    store->commit.committer_running = store->commit.maintainer_running =
        store->commit.helper.running = false;
}

/* ---- records ---- */

qs_status qsi_arena_place(struct qs_store *store, bool journalled, uint64_t bytes,
                          struct qsi_chunk **chunk_out, qs_error *error)
{
    struct qsi_chunk **arena = journalled ? &store->commit.arena : &store->commit.transient_arena;
    uint64_t arena_bytes = store->options.journal_file_bytes / 4;
    struct qsi_chunk *chunk;

    if (*arena != NULL && (*arena)->capacity - (*arena)->used >= bytes) {
        *chunk_out = *arena;
        return QS_OK;
    }
    arena_bytes = arena_bytes < QSI_ARENA_BYTES_MAX ? arena_bytes : QSI_ARENA_BYTES_MAX;
    arena_bytes =
        arena_bytes < qsi_piece_of_budget(store) ? arena_bytes : qsi_piece_of_budget(store);
    chunk = qsi_chunk_create(bytes > arena_bytes ? bytes : arena_bytes);
    if (chunk == NULL) {
        return qsi_fail(error, QS_ENOMEM, "record of %llu bytes", (unsigned long long)bytes);
    }
    qsi_chunk_charge(chunk, store->budget);
    qsi_chunk_unref(*arena);
    *arena = chunk;
    *chunk_out = chunk;
    return QS_OK;
}

uint64_t qsi_store_append(struct qs_store *store, struct qsi_chunk *chunk, uint64_t from,
                          uint64_t bytes, uint32_t record_count, bool more)
{
    if (qsi_journal_unsealed_bytes(store->journal) == 0) {
        store->commit.batch_began_ns = store->env->monotonic_ns(store->env);
    }
    return qsi_journal_append(store->journal, chunk, from, bytes, record_count, more);
}
