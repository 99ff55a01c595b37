/* The threads of the commit: the committer leads commits when no call waits for one; the maintainer
 * makes journal files ahead of time and fills them with zeros. */
#include "check.h"
#include "commit.h"
#include "commit_internal.h"
#include "space.h"
#include "store.h"

/* the committer leaves a new batch this long to its publisher, which may be about to wait */
#define GRACE_NS 100000u
#define NAP_NS 200000u       /* between looks while busy: no publisher has to wake the committer */
#define IDLE_NS 20000000u    /* without work for so long, it sleeps until it is called */
#define FILL_NAP_NS 1000000u /* between steps, */
#define FILL_LOOK_NS 50000000u        /* and between looks whether the store is quiet: */
#define QUIET_BYTES_PER_MS (4u << 10) /* it journals no more than some 4 MB/s */

/* ---- the committer ---- */

static bool has_work(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return !store->failed &&
           (qsi_journal_unsealed_bytes(store->journal) > 0 || store->commit.owes_sync);
}

/* How long the committer should nap before it looks again; 0: it should lead now. */
static uint64_t committer_nap(struct qs_store *store, bool just_led) QSI_REQUIRES(qsi_store_mutex)
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

    qsi_store_lock(store);
    while (store->life < QSI_LIFE_STOPS) {
        uint64_t nap_ns = committer_nap(store, just_led);
        just_led = nap_ns == 0;
        idle_ns = has_work(store) || store->commit.lead != QSI_LEAD_NONE ? 0 : idle_ns + nap_ns;
        if (just_led) {
            qsi_commit_lead(store);
        } else if (idle_ns < IDLE_NS) {
            qsi_cond_wait(&store->commit.work, &store->mutex, nap_ns);
        } else if (store->commit.lead == QSI_LEAD_NONE && !store->failed &&
                   qsi_commit_has_unsynced(store)) {
            qsi_commit_lead(store);
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
    qsi_store_unlock(store);
    return NULL;
}

/* How fast the journal grew between the last two measurements. */
struct quiet {
    uint64_t looked_ns, lsn;
    bool is_quiet;
};

static bool is_quiet(struct qs_store *store, struct quiet *quiet) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t lsn = qsi_journal_appended_lsn(store->journal);
    uint64_t elapsed_ns = now - quiet->looked_ns;

    if (elapsed_ns >= FILL_LOOK_NS) {
        /* After a long pause the recent rate is unknown. */
        quiet->is_quiet = elapsed_ns < 4 * (uint64_t)FILL_LOOK_NS &&
                          (lsn - quiet->lsn) / (elapsed_ns / 1000000) <= QUIET_BYTES_PER_MS;
        quiet->looked_ns = now;
        quiet->lsn = lsn;
    }
    return quiet->is_quiet;
}

/* Writes a step of zeros ahead of the journal, if the store is quiet and the disk has space: a file
 * system that copies on write takes new blocks for them.  A thread that is leading a commit writes
 * them after the commit instead.  Returns the time until the next step.  Releases the lock
 * meanwhile. */
static uint64_t fill_ahead(struct qs_store *store, struct quiet *quiet)
    QSI_REQUIRES(qsi_store_mutex)
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

    qsi_store_lock(store);
    while (store->life < QSI_LIFE_STOPS) {
        bool failed = false;
        if (!store->failed && !store->commit.preparing && qsi_journal_wants_spare(store->journal)) {
            uint64_t bytes_max = qsi_space_file_max(store);
            failed = bytes_max < QSI_JOURNAL_FILE_BYTES_MIN ||
                     qsi_make_spare(store, 0, 0, bytes_max, false, NULL) != QS_OK;
        }
        if (store->life < QSI_LIFE_STOPS && !failed &&
            qsi_message_store_needs_maintenance(store->messages)) {
            qsi_store_unlock(store);
            failed = qsi_message_store_maintain(store->messages, NULL) != QS_OK;
            qsi_store_lock(store);
        }
        /* A failure is not reported here: the next commit tries again, and publishers get the error
         * themselves. */
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
    qsi_store_unlock(store);
    return NULL;
}

/* ---- threads ---- */

qs_status qsi_commit_start_threads(struct qs_store *store, qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_thread_start(&store->commit.helper.thread, "qs-sync", qsi_run_sync_helper, store,
                            error));
    store->commit.helper.running = true;
    QS_TRY(qsi_thread_start(&store->commit.committer, "qs-commit", run_committer, store, error));
    QS_DCHECK(store->commit.helper.running);
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
        qsi_sync_helper_lock(&store->commit.helper);
        store->commit.helper.stop = true;
        qsi_cond_broadcast(&store->commit.helper.cond);
        qsi_sync_helper_unlock(&store->commit.helper);
        pthread_join(store->commit.helper.thread, NULL);
    }
    store->commit.committer_running = store->commit.maintainer_running =
        store->commit.helper.running = false;
}

/* ---- calls that do not wait ---- */

/* Notes an LSN for QS_EVENT_DURABLE, unless it is durable already. */
static void record_completion(struct qs_channel *channel, uint64_t lsn)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool is_durable = lsn <= qsi_journal_durable_lsn(channel->store->journal);

    channel->completion_lsn = is_durable ? 0 : lsn;
    if (is_durable) {
        return;
    }
    if (channel->awaited_first_lsn == 0) {
        channel->awaited_first_lsn = lsn;
    }
    channel->awaited_last_lsn = lsn > channel->awaited_last_lsn ? lsn : channel->awaited_last_lsn;
    QS_DCHECK(channel->awaited_first_lsn <= channel->awaited_last_lsn);
}

qs_status qsi_commit_complete(struct qs_channel *channel, uint64_t lsn, uint32_t flags,
                              qs_error *error)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    QS_DCHECK(lsn <= qsi_journal_appended_lsn(channel->store->journal));
    if ((flags & QS_NO_WAIT) != 0) {
        record_completion(channel, lsn);
        return QS_OK;
    }
    return (flags & QS_NO_SYNC) != 0 ? QS_OK
                                     : qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
}

uint64_t qs_channel_completion_lsn(const qs_channel *channel)
{
    return channel->completion_lsn; /* written by calls on this channel alone */
}
