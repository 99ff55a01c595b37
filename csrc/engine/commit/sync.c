/* Bodies and journal are synced side by side. */
#include "block_write.h"
#include "check.h"
#include "commit_internal.h"
#include "store.h"

#include <string.h>

/* Names of new ones are durable already. */
static qs_status sync_blocks(const struct qsi_dirty_blocks *blocks, qs_error *error)
{
    const struct qsi_block_unsynced *files =
        (const struct qsi_block_unsynced *)(const void *)blocks->files.data;

    for (size_t i = 0; i < blocks->files.bytes / sizeof *files; i++) {
        QS_TRY(qsi_block_unsynced_sync(blocks->dir, &files[i], error));
    }
    return QS_OK;
}

void qsi_commit_close_blocks(struct qsi_dirty_blocks *blocks)
{
    struct qsi_block_unsynced *files = (struct qsi_block_unsynced *)(void *)blocks->files.data;

    for (size_t i = 0; i < blocks->files.bytes / sizeof *files; i++) {
        qsi_block_unsynced_close(blocks->dir, &files[i]);
    }
    qsi_buf_clear(&blocks->files);
}

static qs_status sync_bodies(struct qs_store *store, struct qsi_dirty_set *set,
                             const struct qsi_dirty_blocks *blocks, qs_error *error)
{
    qs_status status = set->count > 0 ? qsi_message_store_sync(store->messages, set, error) : QS_OK;

    return status == QS_OK ? sync_blocks(blocks, error) : status;
}

/* ---- syncing in parallel ---- */

void *qsi_run_sync_helper(void *argument)
{
    struct qs_store *store = argument;
    struct qsi_sync_helper *helper = &store->commit.helper;

    qsi_sync_helper_lock(helper);
    while (!helper->stop) {
        struct qsi_dirty_set set;
        const struct qsi_dirty_blocks *blocks;
        qs_error error = {0};
        qs_status status;
        if (!helper->busy) {
            qsi_cond_wait(&helper->cond, &helper->mutex, QSI_WAIT_FOREVER);
            continue;
        }
        set = helper->set;
        blocks = helper->blocks;
        qsi_sync_helper_unlock(helper);
        status = sync_bodies(store, &set, blocks, &error);
        qsi_sync_helper_lock(helper);
        helper->status = status;
        helper->error = error;
        helper->busy = false;
        qsi_cond_broadcast(&helper->cond);
    }
    qsi_sync_helper_unlock(helper);
    return NULL;
}

static void helper_begin(struct qsi_sync_helper *helper, const struct qsi_dirty_set *set,
                         const struct qsi_dirty_blocks *blocks)
{
    qsi_sync_helper_lock(helper);
    helper->set = *set;
    helper->blocks = blocks;
    helper->busy = true;
    qsi_cond_broadcast(&helper->cond);
    qsi_sync_helper_unlock(helper);
}

static qs_status helper_end(struct qsi_sync_helper *helper, qs_error *error)
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

qs_status qsi_commit_sync(struct qs_store *store, struct qsi_dirty_set *set,
                          const struct qsi_dirty_blocks *blocks, qs_error *error)
{
    qs_status status, bodies = QS_OK;

    if (store->options.sync == QS_SYNC_NONE) {
        qsi_message_store_release(store->messages, set);
        return QS_OK;
    }
    if (set->count == 0 && blocks->files.bytes == 0) {
        return qsi_journal_sync(store->journal, error);
    }
    if (!store->commit.helper.running) {
        QS_TRY(sync_bodies(store, set, blocks, error));
        return qsi_journal_sync(store->journal, error);
    }
    helper_begin(&store->commit.helper, set, blocks);
    status = qsi_journal_sync(store->journal, error);
    bodies = helper_end(&store->commit.helper, status == QS_OK ? error : NULL);
    memset(set, 0, sizeof *set);
    return status != QS_OK ? status : bodies;
}
