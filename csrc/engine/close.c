/* Closing a store, and making all of it durable. */
#include "backlog.h"
#include "check.h"
#include "checkpoint.h"
#include "clock.h"
#include "commit.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "failure.h"
#include "inbox.h"
#include "removals.h"
#include "settle.h"
#include "space.h"
#include "store_check.h"
#include "store_files.h"
#include "transactions.h"

/* Settles that only a checkpoint makes durable, because the disk was full. */
static bool has_unjournalled(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->space.unjournalled != store->space.covered;
}

/* A checkpoint leaves nothing to replay.  A store that cannot make one, for lack of space, memory,
 * descriptors or a file, is closed anyway: the journal has everything. */
static qs_status last_checkpoint(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_error detail = {0};
    qs_status status;

    QS_ASSERT(store->life >= QSI_LIFE_SHUT && !store->options.read_only);
    if (!store->failed && has_unjournalled(store)) {
        status = qsi_checkpoint(store, &detail);
        if (status != QS_OK && qsi_is_shortage(status)) {
            qsi_error_prefix(&detail, "the store was closed, but messages that were acknowledged "
                                      "last come again when it is opened");
        }
        if (status != QS_OK && error != NULL) {
            *error = detail;
        }
        return status;
    }
    if (!qsi_checkpoint_is_automatic(store) || store->failed ||
        (qsi_journal_appended_lsn(store->journal) == store->checkpoint.lsn &&
         !qsi_checkpoint_would_free(store))) {
        return QS_OK;
    }
    status = qsi_checkpoint(store, error);
    return qsi_consequence_of(QSI_USE_CHECKPOINT, status) == QSI_FAILS_STORE ? status : QS_OK;
}

/* Everything accepted becomes durable, and the manifest gets the end of the journal. */
static qs_status settle(struct qs_store *store, qs_error *error)
{
    qs_status status;

    qsi_store_lock(store);
    status = last_checkpoint(store, error);
    if (status != QS_OK) {
        qsi_store_unlock(store);
        return status;
    }
    status = qsi_commit_wait(store, qsi_journal_appended_lsn(store->journal), QS_FOREVER, error);
    if (status == QS_OK) {
        /* A store that has failed since its last durable byte must not look closed in order. */
        status = qsi_store_check_failed(store, error);
    }
    qsi_store_unlock(store);
    if (status == QS_OK) {
        status = qsi_message_store_settle(store->messages, error);
    }
    if (status != QS_OK) {
        return status;
    }
    QS_ASSERT_NOT_HELD(&store->mutex);
    qsi_store_is_private(store); /* its threads have ended, and no call can begin any more */
    store->manifest.clock_us = qsi_clock_us(store);
    do {
        status = qsi_journal_close_clean(store->journal, &store->manifest, error);
    } while (status == QS_ENOSPC && qsi_space_give(store, QSI_ROOM_CHECKPOINT));
    return status;
}

qs_status qs_store_close(qs_store *store, qs_error *error)
{
    qs_status status;

    if (store == NULL) {
        return QS_OK;
    }
    if (qsi_store_is_forked(store)) { /* the parent's: its locks may be held */
        return QS_OK;
    }
    qsi_inbox_stop(store); /* it is a caller like others: ended before the store is shut */
    qsi_store_lock(store);
    qsi_store_check(store);
    qsi_transactions_check(store);
    qsi_life_step(&store->life, QSI_LIFE_SHUT);
    qsi_make_room_to_shut(store, NULL);
    for (struct qsi_list *node = store->connections.next; node != &store->connections;
         node = node->next) {
        qsi_connection_shut(QSI_LIST_OWNER(node, struct qs_connection, in_store));
    }
    qsi_cond_broadcast(&store->commit.durable);
    qsi_wake_everyone(store);
    qsi_store_unlock(store);
    qsi_stop_threads(store);
    qsi_store_lock(store);
    qsi_removals_shut(store);
    qsi_store_unlock(store);
    status = store->options.read_only ? QS_OK : settle(store, error);
    qsi_give_lock_back(store);
    qsi_store_lock(store);
    qsi_store_unref(store);
    return status;
}

qs_status qs_store_sync(qs_store *store, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter(store, error));
    status = qsi_store_check_failed(store, error);
    if (status == QS_OK && has_unjournalled(store)) {
        status = qsi_checkpoint(store, error);
    }
    if (status == QS_OK && !store->options.read_only) {
        status =
            qsi_commit_wait(store, qsi_journal_appended_lsn(store->journal), QS_FOREVER, error);
    }
    qsi_store_leave(store);
    return status;
}

qs_status qs_store_wait_durable(qs_store *store, uint64_t lsn, uint64_t timeout_ns, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    if (lsn > qsi_journal_appended_lsn(store->journal)) {
        status =
            qsi_fail(error, QS_EINVAL, "LSN %llu was never handed out", (unsigned long long)lsn);
    } else {
        status = qsi_commit_wait(store, lsn, timeout_ns, error);
    }
    qsi_store_leave(store);
    return status;
}

qs_status qs_store_failure(qs_store *store, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter(store, error));
    status = qsi_store_check_failed(store, error);
    qsi_store_leave(store);
    return status;
}

uint64_t qs_store_durable_lsn(qs_store *store)
{
    uint64_t lsn = 0;

    if (qsi_store_enter_to_change(store, NULL) == QS_OK) {
        lsn = qsi_journal_durable_lsn(store->journal);
        qsi_store_leave(store);
    }
    return lsn;
}

uint64_t qs_store_topology(qs_store *store)
{
    uint64_t version = 0;

    if (qsi_store_enter(store, NULL) == QS_OK) {
        version = store->router.version + 1;
        qsi_store_leave(store);
    }
    return version;
}
