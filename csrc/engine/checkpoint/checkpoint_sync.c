/* What a checkpoint needs of files on the disk: that they are synced, and that whoever opens the
 * store next finds them.
 *
 * The journal has whatever was written to them since the last checkpoint, until this one counts.
 * So a file with such messages that is damaged or gone holds the checkpoint up, and with it the
 * files of the journal: nothing is lost, and only who publishes is stopped, when the journal has
 * grown to its bound (qsi_checkpoint_check_held).  It goes on when the file is back, or when
 * nothing in it is needed any more.  A sync that fails is the end of the store. */
#include "alloc.h"
#include "check.h"
#include "checkpoint_job.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "file.h"

/* ---- segments ---- */

/* The segment of an entry; NULL: it has ended. */
static struct qsi_segment *segment_of(struct qs_store *store, const struct qsi_segment_file *file)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct store_queue *queue = qsi_map_get_number(&store->queues_by_id, file->queue_id);

    return queue != NULL ? qsi_queue_find_segment(&queue->core, file->number) : NULL;
}

/* The file was left since the snapshot; NULL: it was not. */
static struct qsi_former_file *former_of(struct qsi_segment *segment,
                                         const struct qsi_segment_file *file)
    QSI_REQUIRES(qsi_store_mutex)
{
    for (uint32_t i = 0; segment != NULL && i < segment->former_count; i++) {
        struct qsi_former_file *former = &segment->formers[i];
        if (!former->of_transients && former->file.generation == file->generation) {
            return former;
        }
    }
    return NULL;
}

void qsi_checkpoint_want_syncs(struct checkpoint *checkpoint)
{
    const struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);

    for (uint32_t i = 0; i < COUNT(checkpoint->entries, struct qsi_segment_entry); i++) {
        struct entry_sync sync = ITEMS(checkpoint->syncs, struct entry_sync)[i];
        struct qsi_segment *segment = segment_of(checkpoint->store, &entries[i].file);
        struct qsi_former_file *former = former_of(segment, &entries[i].file);
        if (former != NULL) {
            former->is_dirty = former->is_dirty || sync.has_content;
        } else if (segment != NULL && sync.is_wanted) {
            segment->file_dirty = true;
            segment->content_dirty = segment->content_dirty || sync.has_content;
        }
    }
}

void qsi_checkpoint_note_synced(struct checkpoint *checkpoint)
{
    const struct former_entry *formers = ITEMS(checkpoint->formers, struct former_entry);

    for (uint32_t i = 0; i < COUNT(checkpoint->formers, struct former_entry); i++) {
        struct qsi_former_file *former =
            former_of(segment_of(checkpoint->store, &formers[i].file), &formers[i].file);
        if (former != NULL) {
            former->is_dirty = false;
        }
    }
}

/* A file in which only a state is new that memory has as well is not needed: the next try tells
 * a new file. */
static bool leave_state(struct checkpoint *checkpoint, uint32_t index)
{
    const struct qsi_segment_file *file =
        &ITEMS(checkpoint->entries, struct qsi_segment_entry)[index].file;
    struct qs_store *store = checkpoint->store;
    struct qsi_segment *segment;
    bool left = false;

    if (ITEMS(checkpoint->syncs, struct entry_sync)[index].has_content) {
        return false;
    }
    qsi_store_lock(store);
    segment = segment_of(store, file);
    if (segment != NULL && segment->settled != NULL && segment->busy == 0 &&
        segment->file.generation == file->generation) {
        const struct qsi_queue *queue = segment->queue;
        uint64_t first_seq = qsi_segment_first_seq(&store->shared, segment);
        uint64_t end = queue->container.flushed_seq - first_seq;
        left = qsi_segment_leave_file(segment, false,
                                      end < store->shared.entries ? (uint32_t)end
                                                                  : store->shared.entries) == QS_OK;
    }
    qsi_store_unlock(store);
    checkpoint->left_file = checkpoint->left_file || left;
    return left;
}

/* Is the file there, and synced, unless nobody syncs? */
static qs_status sync_segment(struct qs_store *store, const struct qsi_segment_file *file,
                              qs_error *error)
{
    return store->options.sync == QS_SYNC_NONE ? qsi_segment_find(store->index, file, error)
                                               : qsi_segment_sync(store->index, file, error);
}

static qs_status sync_segments(struct checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    const struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);
    const struct former_entry *formers = ITEMS(checkpoint->formers, struct former_entry);
    qs_status status = QS_OK;

    for (uint32_t i = 0; i < COUNT(checkpoint->formers, struct former_entry); i++) {
        if (formers[i].is_dirty) {
            QS_TRY(sync_segment(store, &formers[i].file, error));
        }
    }
    for (uint32_t i = 0; i < COUNT(checkpoint->entries, struct qsi_segment_entry); i++) {
        if (ITEMS(checkpoint->syncs, struct entry_sync)[i].is_wanted) {
            qs_status each = sync_segment(store, &entries[i].file, error);
            if (each != QS_OK && (each != QS_ECORRUPT || !leave_state(checkpoint, i))) {
                return each;
            }
            status = each == QS_OK ? status : each;
        }
    }
    return status;
}

/* ---- directories ---- */

/* The directory that has this name now is the one that has the file. */
static qs_status check_place(struct qs_store *store, const char *dir_name, const char *file_name,
                             qs_error *error)
{
    qs_dir *dir = NULL;
    qs_file *file = NULL;
    bool created;
    qs_status status =
        qsi_env_dir_open(store->env, store->root, dir_name, false, &dir, &created, error);

    if (status == QS_OK) {
        status = qsi_env_open(store->env, dir, file_name, QS_OPEN_READ, &file, error);
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

/* One file of each directory that this checkpoint wrote to. */
static qs_status check_places(struct checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;
    const struct qsi_segment_entry *entries = ITEMS(checkpoint->entries, struct qsi_segment_entry);
    char name[QSI_MESSAGE_NAME_BYTES];

    for (uint32_t i = 0; i < COUNT(checkpoint->entries, struct qsi_segment_entry); i++) {
        if (ITEMS(checkpoint->syncs, struct entry_sync)[i].is_wanted) {
            char path[QSI_SEGMENT_PATH_BYTES];
            qsi_segment_path(path, &entries[i].file);
            QS_TRY(check_place(store, "index", path + strlen("index/"), error));
            break;
        }
    }
    return qsi_message_store_written_name(store->messages, name)
               ? check_place(store, "messages", name, error)
               : QS_OK;
}

/* ---- all of it ---- */

qs_status qsi_checkpoint_sync_failed(struct qs_store *store, qs_status status,
                                     const qs_error *error)
{
    if (status != QS_OK && !qsi_is_shortage(status) && status != QS_ECORRUPT) {
        qsi_store_lock(store);
        qsi_store_fail(store, error);
        qsi_store_unlock(store);
    }
    return status;
}

qs_status qsi_checkpoint_sync_files(struct checkpoint *checkpoint, qs_error *error)
{
    struct qs_store *store = checkpoint->store;

    /* Files with packs settle only after this. */
    QS_TRY(qsi_message_store_sync_packs(store->messages, error));
    QS_TRY(sync_segments(checkpoint, error));
    QS_TRY(check_places(checkpoint, error));
    return store->options.sync == QS_SYNC_NONE ? QS_OK : qsi_index_sync(store->index, error);
}

qs_status qsi_checkpoint_check_file(struct qs_store *store, const char *name, qs_error *error)
{
    return check_place(store, "checkpoint", name, error);
}

/* ---- a checkpoint that is held up ---- */

void qsi_checkpoint_note_held(struct qs_store *store, qs_status status, const qs_error *error)
{
    store->checkpoint.is_held_up = status == QS_ECORRUPT;
    if (store->checkpoint.is_held_up) {
        store->checkpoint.held_by = *error;
        qsi_watch_wake(store);
    }
}
