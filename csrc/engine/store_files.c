/* Opening a store: the lock that its owner holds, its directories and its MANIFEST.
 *
 * Nothing is made, and no file is opened for writing, before the directory is known to be a store's
 * or to become one. */
#include "store_files.h"

#include "check.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "lost_files.h"
#include "thread_safety.h"

#define LOCK_NAME "LOCK"

/* ---- the root and its lock ---- */

void qsi_give_lock_back(struct qs_store *store)
{
    store->env->close(store->env, store->lock_file);
    store->lock_file = NULL;
}

static qs_status take_lock(struct qs_store *store, const char *path, qs_error *error)
{
    uint64_t pid = 0;
    qs_status status =
        store->options.read_only
            ? qsi_env_lock_shared(store->env, store->root, LOCK_NAME, &store->lock_file, &pid,
                                  error)
            : qsi_env_lock(store->env, store->root, LOCK_NAME, &store->lock_file, &pid, error);

    QS_DCHECK(status != QS_OK || store->lock_file != NULL);
    if (status == QS_ESTORE_LOCKED) {
        return qsi_fail_owned(error, pid, path, "one process owns a store at a time");
    }
    QS_TRY(status);
    /* It may have been removed, and made again by another owner, since its path was looked up. */
    return qsi_env_check_linked(store->env, store->lock_file, error);
}

static qs_status open_root_to_read(struct qs_store *store, const char *path, qs_error *error)
{
    bool created;

    QS_ASSERT(store->options.read_only && store->root == NULL);
    QS_TRY(qsi_env_dir_open_root(store->env, path, false, &store->root, &created, error));
    return take_lock(store, path, error);
}

static qs_status open_root_to_write(struct qs_store *store, const char *path, qs_error *error)
{
    bool created = false;
    qs_status status = qsi_env_dir_open_root(store->env, path, store->options.create, &store->root,
                                             &created, error);

    QS_ASSERT(!store->options.read_only);
    if (status == QS_ENOENT && !store->options.create) {
        return qsi_fail(error, QS_ESTORE_NOT_FOUND, "no such directory, and create is off");
    }
    if (status == QS_ENOENT) {
        return qsi_fail(error, QS_ESTORE_NOT_FOUND,
                        "the directory it should lie in does not exist: create that first");
    }
    if (status != QS_OK) {
        return status;
    }
    QS_TRY(qsi_check_nothing_else(store->env, store->root, error));
    QS_TRY(take_lock(store, path, error));
    /* Also if an earlier open made it and was interrupted before this. */
    return qsi_dir_sync_parent(store->env, store->root, error);
}

/* Leaves no trace if there is no store.  Any other error of a store is reported to the holder of
 * its lock. */
static qs_status check_is_there(struct qs_store *store, const char *path, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    bool created = false;
    qs_dir *root = NULL;
    qs_status status = qsi_env_dir_open_root(store->env, path, false, &root, &created, error);

    if (status == QS_ENOENT) {
        return qsi_fail(error, QS_ESTORE_NOT_FOUND, "no such directory, and create is off");
    }
    QS_TRY(status);
    status = qsi_manifest_load(&store->manifest, store->env, root, error);
    if (status == QS_ENOENT) {
        status = qsi_fail_no_manifest(store->env, root, error);
    } else if (status == QS_OK && store->manifest.session_count == 0) {
        status = qsi_fail_not_created(error);
    } else {
        status = QS_OK;
    }
    qsi_manifest_fini(&store->manifest);
    store->env->dir_close(store->env, root);
    return status;
}

qs_status qsi_open_root(struct qs_store *store, const char *path, qs_error *error)
{
    if ((!store->options.create || store->options.read_only) && !store->judges) {
        QS_TRY(check_is_there(store, path, error));
    }
    return store->options.read_only ? open_root_to_read(store, path, error)
                                    : open_root_to_write(store, path, error);
}

/* ---- directories ---- */

/* The store's directories, in the order of directories_of. */
static const char *const directory_names[] = {"journal",   "messages",   "index",
                                              "transient", "checkpoint", "streams"};
#define DIRECTORIES (sizeof directory_names / sizeof directory_names[0])

static void directories_of(struct qs_store *store, qs_dir **dirs_out[DIRECTORIES])
{
    dirs_out[0] = &store->journal_dir;
    dirs_out[1] = &store->messages_dir;
    dirs_out[2] = &store->index_dir;
    dirs_out[3] = &store->transient_dir;
    dirs_out[4] = &store->checkpoint_dir;
    dirs_out[5] = &store->streams_dir;
}

/* If there is a MANIFEST they were durable before it, and a missing one is damage: unless its
 * contents end with a process, or the store is salvaged. */
static qs_status open_directories(struct qs_store *store, bool creates, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    qs_dir **dirs[DIRECTORIES];

    QS_ASSERT(store->lock_file != NULL && !store->options.read_only);
    directories_of(store, dirs);
    for (size_t i = 0; i < DIRECTORIES; i++) {
        bool is_needed = dirs[i] == &store->checkpoint_dir && store->manifest.checkpoint_number > 0;
        bool is_new = dirs[i] == &store->streams_dir && !store->manifest.has_streams;
        bool may_make = creates || is_new || dirs[i] == &store->transient_dir ||
                        (store->options.recovery == QS_RECOVERY_SALVAGE && !is_needed);
        QS_TRY(may_make ? qsi_dir_open(store->env, store->root, directory_names[i], dirs[i], error)
                        : qsi_require_directory(store->env, store->root, directory_names[i],
                                                dirs[i], error));
    }
    /* A process that died may have left names that are not durable; no decision depends on
     * those. */
    QS_TRY(qsi_dir_sync(store->env, store->root, error));
    for (size_t i = 0; i < DIRECTORIES; i++) {
        if (dirs[i] != &store->transient_dir) {
            QS_TRY(qsi_dir_sync(store->env, *dirs[i], error));
        }
    }
    return QS_OK;
}

/* Nothing is made, and nothing is synced: what is read may be gone after a power cut. */
static qs_status open_directories_to_read(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    qs_dir **dirs[DIRECTORIES];

    QS_ASSERT(store->options.read_only);
    directories_of(store, dirs);
    for (size_t i = 0; i < DIRECTORIES; i++) {
        bool is_new = dirs[i] == &store->streams_dir && !store->manifest.has_streams;
        if (dirs[i] != &store->transient_dir && !is_new) {
            QS_TRY(
                qsi_require_directory(store->env, store->root, directory_names[i], dirs[i], error));
        }
    }
    return QS_OK;
}

/* ---- MANIFEST ---- */

static void choose_segment_entries(struct qs_store *store) QSI_REQUIRES(qsi_manifest_mutex)
{
    if (store->options.segment_entries == 0) {
        store->options.segment_entries = QSI_SEGMENT_ENTRIES;
    }
    store->manifest.segment_entries = store->options.segment_entries;
}

/* No file is made before a MANIFEST says that there is a store. */
static qs_status create_manifest(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    QS_ASSERT(store->lock_file != NULL && store->manifest.session_count == 0);
    choose_segment_entries(store);
    QS_TRY(qsi_env_random(store->env, store->manifest.uuid, sizeof store->manifest.uuid, error));
    QS_TRY(open_directories(store, true, error));
    return qsi_manifest_store(&store->manifest, store->env, store->root, error);
}

static qs_status check_features(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    if (store->manifest.read_features == 0 || store->options.read_only) {
        return QS_OK;
    }
    return qsi_fail(error, QS_EVERSION,
                    "MANIFEST: features %#x, which this build can read and not write: open the "
                    "store read-only, or inspect, dump or verify it",
                    store->manifest.read_features);
}

static qs_status check_segment_entries(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    if (!qsi_segment_entries_are_possible(store->manifest.segment_entries)) {
        return qsi_fail_corrupt(error, "MANIFEST", 48, "segments of %u entries",
                                store->manifest.segment_entries);
    }
    if (store->manifest.session_count == 0) { /* nothing was stored yet */
        choose_segment_entries(store);
    }
    if (store->options.segment_entries == 0) {
        store->options.segment_entries = store->manifest.segment_entries;
    }
    if (store->manifest.segment_entries != store->options.segment_entries) {
        return qsi_fail(error, QS_EINVAL, "segment_entries is %u; this store was created with %u",
                        store->options.segment_entries, store->manifest.segment_entries);
    }
    return QS_OK;
}

qs_status qsi_open_manifest(struct qs_store *store, qs_error *error)
{
    bool creates = store->options.create && !store->options.read_only;
    qs_status status = qsi_manifest_load(&store->manifest, store->env, store->root, error);

    if (status == QS_ENOENT) {
        if (!creates) {
            return qsi_fail_no_manifest(store->env, store->root, error);
        }
        QS_TRY(qsi_check_never_was(store->env, store->root, error));
        return create_manifest(store, error);
    }
    QS_TRY(status);
    QS_TRY(check_features(store, error));
    QS_TRY(check_segment_entries(store, error));
    if (store->manifest.session_count == 0 && !creates) {
        return qsi_fail_not_created(error);
    }
    return store->options.read_only ? open_directories_to_read(store, error)
                                    : open_directories(store, false, error);
}
