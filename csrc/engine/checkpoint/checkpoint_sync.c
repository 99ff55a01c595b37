/* A checkpoint syncs its files and checks that the next open of the store will find them.
 *
 * Until this checkpoint is valid, the journal also has the messages that were written to these
 * files since the last one.  If such a file is damaged or missing, the checkpoint is held up and
 * the journal keeps its files: nothing is lost.  Only publishers are stopped, once the journal has
 * grown to its bound (qsi_checkpoint_check_held).  The checkpoint goes on when the file is back, or
 * when nothing in it is needed any more. */
#include "check.h"
#include "checkpoint_job.h"
#include "env_call.h"
#include "error.h"
#include "watch.h"

/* ---- files of queues ---- */

/* Abandons a file whose messages memory has as well: the next try writes a new file. */
static bool leave_file(struct qsi_checkpoint *checkpoint, struct qsi_snapshot *snapshot,
                       uint32_t file)
{
    bool left;

    QS_ASSERT_NOT_HELD(&checkpoint->store->mutex);
    qsi_store_lock(checkpoint->store);
    left = qsi_snapshot_leave_file(snapshot, file) == QS_OK;
    qsi_store_unlock(checkpoint->store);
    checkpoint->left_file = checkpoint->left_file || left;
    return left;
}

/* QS_ECORRUPT: a file was abandoned, or is still needed. */
static qs_status sync_files(struct qsi_checkpoint *checkpoint, qs_error *error)
{
    bool reaches_disk = checkpoint->store->options.sync != QS_SYNC_NONE;
    qs_status status = QS_OK;

    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        struct qsi_snapshot *snapshot = qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot;
        for (uint32_t file = 0; file < snapshot->file_count; file++) {
            QS_DCHECK(file < snapshot->file_count);
            qs_status each = qsi_snapshot_sync(snapshot, file, reaches_disk, error);
            if (each != QS_OK && (qsi_consequence_of(QSI_USE_CHECKPOINT, each) != QSI_HOLDS_UP ||
                                  !leave_file(checkpoint, snapshot, file))) {
                return each;
            }
            status = each == QS_OK ? status : each;
        }
    }
    return status;
}

/* ---- directories ---- */

/* Checks that the directory of this name still contains the file. */
static qs_status check_place(struct qs_store *store, const char *dir_name, const char *file_name,
                             qs_error *error)
{
    qs_dir *dir = NULL;
    qs_file *file = NULL;
    bool created;
    qs_status status =
        qsi_env_dir_open(store->env, store->root, dir_name, false, &dir, &created, error);

    if (status == QS_OK) {
        status =
            qsi_env_open(store->env, dir, file_name, QS_OPEN_READ | QS_OPEN_LINKED, &file, error);
        if (status == QS_OK) {
            store->env->close(store->env, file);
        }
        store->env->dir_close(store->env, dir);
    }
    return status == QS_ENOENT
               ? qsi_fail_corrupt(error, dir_name, 0,
                                  "the directory was removed or replaced while the store was open: "
                                  "'%s' is not in it; put it back, or make it again and open the "
                                  "store again",
                                  file_name)
               : qsi_fail_unread(error, status, dir_name);
}

/* Checks one file in each directory that this checkpoint wrote to.  Files of a kind share a
 * directory. */
static qs_status check_places(struct qsi_checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    const struct qsi_snapshot_kind *checked[2] = {NULL, NULL}; /* the kinds that there are */
    char name[QSI_MESSAGE_NAME_BYTES];

    for (uint32_t i = 0; i < qsi_checkpoint_snapshot_count(checkpoint); i++) {
        const struct qsi_snapshot *snapshot = qsi_checkpoint_snapshot_at(checkpoint, i)->snapshot;
        char path[QSI_CONTAINER_PATH_BYTES];
        if (snapshot->kind != checked[0] && snapshot->kind != checked[1] &&
            qsi_snapshot_written_path(snapshot, path)) {
            char *slash = strchr(path, '/');
            checked[checked[0] != NULL] = snapshot->kind;
            QS_ASSERT(slash != NULL);
            *slash = 0;
            QS_TRY(check_place(store, path, slash + 1, error));
        }
    }
    return qsi_message_store_written_name(store->messages, name)
               ? check_place(store, "messages", name, error)
               : QS_OK;
}

/* ---- all of it ---- */

qs_status qsi_checkpoint_record_failure(struct qs_store *store, qs_status status,
                                        const qs_error *error)
{
    if (status != QS_OK) {
        qsi_store_lock(store);
        (void)qsi_store_record_failure(store, QSI_USE_CHECKPOINT, status, error);
        qsi_store_unlock(store);
    }
    return status;
}

qs_status qsi_checkpoint_sync_files(struct qsi_checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;

    QS_ASSERT_NOT_HELD(&store->mutex);
    /* Message files with packs settle only after this sync. */
    QS_TRY(qsi_message_store_sync_packs(store->messages, error));
    QS_TRY(sync_files(checkpoint, error));
    QS_TRY(check_places(checkpoint, error));
    return store->options.sync == QS_SYNC_NONE ? QS_OK : qsi_index_sync(store->index, error);
}

qs_status qsi_checkpoint_check_file(struct qs_store *store, const char *name, qs_error *error)
{
    return check_place(store, "checkpoint", name, error);
}

/* ---- a checkpoint that is held up ---- */

void qsi_checkpoint_record_held(struct qs_store *store, const qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    store->checkpoint.is_held_up = error != NULL;
    if (store->checkpoint.is_held_up) {
        store->checkpoint.held_by = *error;
        qsi_watch_wake(store);
    }
}
