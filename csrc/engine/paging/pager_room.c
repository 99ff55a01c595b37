/* Room in memory for publishers: they wait for the pager, or page themselves. */
#include "backlog.h"
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "pager.h"
#include "pager_steps.h"
#include "space.h"
#include "store.h"

/* ---- room ---- */

bool qsi_pager_is_over_budget(const struct qs_store *store)
{
    return qsi_pager_memory_used(store) + 3 * qsi_part_of_budget(store) >
           store->options.memory_budget;
}

/* Whether commits, or the pager, can still bring memory down. */
static bool may_shrink(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_journal_appended_lsn(store->journal) > qsi_journal_durable_lsn(store->journal) ||
           !store->paging.is_stuck;
}

/* Without threads the publisher pages, and makes a checkpoint that is due. */
static qs_status make_room_alone(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_checkpoint_is_due(store) && store->upcalls->checkpoint(store, NULL) != QS_OK) {
        QS_TRY(qsi_store_check_failed(store, error));
    }
    while (qsi_pager_page_lazy(store)) {
    }
    while (qsi_pager_is_over_budget(store)) {
        uint64_t durable = qsi_journal_durable_lsn(store->journal);
        if (qsi_pager_step(store)) {
            continue;
        }
        if (qsi_journal_appended_lsn(store->journal) == durable) {
            break;
        }
        QS_TRY(qsi_commit_wait(store, durable + 1, QS_FOREVER, error));
    }
    return qsi_store_check_failed(store, error);
}

static qs_status check_open(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_TRY(qsi_store_check_failed(store, error));
    return store->life >= QSI_LIFE_SHUT ? qsi_fail(error, QS_ESTORE_CLOSED, "closed meanwhile")
                                        : QS_OK;
}

static qs_status fail_unpaged(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (error != NULL) {
        *error = store->paging.unpaged;
        qsi_error_prefix(error,
                         "memory_budget is used up and messages cannot be paged; nothing was "
                         "accepted");
    }
    return store->paging.unpaged.status;
}

/* Releases the lock meanwhile.  Returns when there is memory, or commits and the pager can do no
 * more for it. */
static qs_status wait_for_memory(struct qs_store *store, bool *released_out, enum qsi_wait wait,
                                 qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    while (qsi_pager_is_over_budget(store) && may_shrink(store)) {
        uint64_t durable = qsi_journal_durable_lsn(store->journal);
        QS_TRY(check_open(store, error));
        QS_TRY(qsi_check_may_wait(wait));
        *released_out = true;
        if (store->paging.is_stuck && qsi_journal_appended_lsn(store->journal) > durable) {
            QS_TRY(qsi_commit_wait(store, durable + 1, QS_FOREVER, error));
            store->paging.is_stuck = false;
            continue;
        }
        store->paging.memory_waiters += 1;
        qsi_cond_signal(&store->paging.wanted);
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
        QS_DCHECK(store->paging.memory_waiters > 0);
        store->paging.memory_waiters -= 1;
    }
    return QS_OK;
}

qs_status qsi_pager_make_room(struct qs_store *store, bool *released_out, enum qsi_wait wait,
                              qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    *released_out = false;
    if (QS_UNLIKELY(store->checkpoint.is_held_up)) {
        QS_TRY(qsi_checkpoint_check_held(store, error));
    }
    if (!store->paging.is_running) {
        QS_TRY(qsi_check_may_wait(wait));
        return make_room_alone(store, error); /* no other thread runs: look-ups are still valid */
    }
    while (qsi_checkpoint_is_behind(store) || store->paging.garbage_is_much) {
        QS_TRY(check_open(store, error));
        QS_TRY(qsi_check_may_wait(wait));
        *released_out = true;
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    }
    QS_TRY(wait_for_memory(store, released_out, wait, error));
    if (qsi_pager_is_over_budget(store) && store->paging.unpaged.status != QS_OK) {
        return fail_unpaged(store, error);
    }
    if (qsi_pager_is_over_budget(store) &&
        store->paging.space_is_short) { /* which may be long ago */
        QS_TRY(qsi_check_may_wait(wait));
        store->paging.space_is_short = store->paging.is_stuck = false;
        QS_TRY(wait_for_memory(store, released_out, wait, error));
    }
    if (qsi_pager_is_over_budget(store) && store->paging.space_is_short) {
        return qsi_fail(error, QS_ESTORE_FULL,
                        "memory_budget is used up and there is no space on the disk to page to; "
                        "nothing was accepted: free some space and try again");
    }
    return qsi_store_check_failed(store, error);
}
