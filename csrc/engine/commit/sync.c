/* Bodies and journal are synced side by side. */
#include "check.h"
#include "commit_internal.h"
#include "store.h"

#include <string.h>

/* ---- syncing in parallel ---- */

void *qsi_run_sync_helper(void *argument)
{
    struct qs_store *store = argument;
    struct sync_helper *helper = &store->commit.helper;

    qsi_sync_helper_lock(helper);
    while (!helper->stop) {
        struct qsi_dirty_set set;
        qs_error error = {0};
        qs_status status;
        if (!helper->busy) {
            qsi_cond_wait(&helper->cond, &helper->mutex, QSI_WAIT_FOREVER);
            continue;
        }
        set = helper->set;
        qsi_sync_helper_unlock(helper);
        status = qsi_message_store_sync(store->messages, &set, &error);
        qsi_sync_helper_lock(helper);
        helper->status = status;
        helper->error = error;
        helper->busy = false;
        qsi_cond_broadcast(&helper->cond);
    }
    qsi_sync_helper_unlock(helper);
    return NULL;
}

static void helper_begin(struct sync_helper *helper, const struct qsi_dirty_set *set)
{
    qsi_sync_helper_lock(helper);
    helper->set = *set;
    helper->busy = true;
    qsi_cond_broadcast(&helper->cond);
    qsi_sync_helper_unlock(helper);
}

static qs_status helper_end(struct sync_helper *helper, qs_error *error)
{
    qs_status status;

    qsi_sync_helper_lock(helper);
    while (helper->busy) {
        qsi_cond_wait(&helper->cond, &helper->mutex, QSI_WAIT_FOREVER);
    }
    status = helper->status;
    if (status != QS_OK && error != NULL) {
        *error = helper->error;
    }
    qsi_sync_helper_unlock(helper);
    return status;
}

qs_status qsi_commit_sync(struct qs_store *store, struct qsi_dirty_set *set, qs_error *error)
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
