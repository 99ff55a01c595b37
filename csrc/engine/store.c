/* Opening a store. */
#include "alloc.h"
#include "check.h"
#include "checkpoint.h"
#include "clock.h"
#include "engine.h"
#include "enter.h"
#include "env_call.h"
#include "error.h"
#include "file.h"
#include "lost_files.h"
#include "pager.h"
#include "queue_life.h"
#include "recover.h"
#include "removals.h"
#include "space.h"
#include "store_internal.h"
#include "thread_safety.h"
#include "topology.h"
#include "transactions.h"

#include <stdio.h>
#include <string.h>

#define LOCK_NAME "LOCK"
#define READ_HANDLES 64

/* ---- opening ---- */

static bool spill_keys(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_transactions_want_spill(store) && qsi_transactions_spill(store, NULL) == QS_OK;
}

static const struct qsi_upcalls upcalls = {
    .shut_channel = qsi_channel_shut,
    .shut_connection = qsi_connection_shut,
    .drain = qsi_drain_removals,
    .checkpoint = qsi_checkpoint,
    .spill_keys = spill_keys,
    .dead_letter_in_tx = qsi_dead_letter_in_tx,
};

static qs_status init_memory(struct qs_store *store, qs_error *error)
{
    qsi_mutex_init(&store->mutex);
    qsi_mutex_init(&store->commit.helper.mutex);
    qsi_cond_init(&store->commit.helper.cond);
    qsi_cond_init(&store->commit.durable);
    qsi_cond_init(&store->commit.prepared);
    qsi_cond_init(&store->events.came);
    qsi_cond_init(&store->commit.work);
    qsi_cond_init(&store->commit.chores);
    qsi_cond_init(&store->paging.wanted);
    qsi_cond_init(&store->paging.done);
    qsi_cond_init(&store->checkpoint.due);
    qsi_cond_init(&store->removals.due);
    qsi_cond_init(&store->removals.quiet);
    qsi_mutex_init(&store->manifest_mutex);
    qsi_space_init(store);
    qsi_list_init(&store->paging.ahead);
    qsi_list_init(&store->paging.dead_files);
    qsi_list_init(&store->connections);
    qsi_list_init(&store->channels);
    qsi_list_init(&store->events.armed_for_changes);
    qsi_list_init(&store->events.armed_for_confirms);
    qsi_list_init(&store->deleted_queues);
    qsi_store_is_private(store);
    store->references = 1;
    store->next_queue_id = 1;
    store->checkpoint.at_ns = store->env->monotonic_ns(store->env);
    qsi_queue_shared_init(&store->shared, 0);
    qsi_stream_shared_init(&store->streams);
    store->budget = qsi_budget_create();
    if (store->budget == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    qsi_transactions_init(store);
    QS_TRY(qsi_removals_open(store, error));
    return qsi_router_init(&store->router, qsi_journal_exchange_deleted, store, error);
}

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

    if (status == QS_ESTORE_LOCKED) {
        return qsi_fail_owned(error, pid, path, "one process owns a store at a time");
    }
    QS_TRY(status);
    /* It may have been removed, and made again by another owner, since its path was looked up. */
    return qsi_env_check_linked(store->env, store->lock_file, error);
}

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

/* Where there is a MANIFEST they were durable before it, and one that is missing is damage:
 * unless nothing in it outlives a process, or what can be saved is to be saved. */
static qs_status open_directories(struct qs_store *store, bool creates, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    qs_dir **dirs[DIRECTORIES];

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
    /* A process that died may have left names the disk has not heard of; nothing is decided on
     * those. */
    QS_TRY(qsi_dir_sync(store->env, store->root, error));
    for (size_t i = 0; i < DIRECTORIES; i++) {
        if (dirs[i] != &store->transient_dir) {
            QS_TRY(qsi_dir_sync(store->env, *dirs[i], error));
        }
    }
    return QS_OK;
}

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

/* Nothing is made, and nothing is synced: whatever is read may be gone after a power cut. */
static qs_status open_directories_to_read(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
{
    qs_dir **dirs[DIRECTORIES];

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

static qs_status load_manifest(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_manifest_mutex)
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

static qs_status open_root_to_read(struct qs_store *store, const char *path, qs_error *error)
{
    bool created;

    QS_TRY(qsi_env_dir_open_root(store->env, path, false, &store->root, &created, error));
    return take_lock(store, path, error);
}

static qs_status open_root(struct qs_store *store, const char *path, qs_error *error)
{
    bool created = false;
    qs_status status = qsi_env_dir_open_root(store->env, path, store->options.create, &store->root,
                                             &created, error);

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
    /* Also when an earlier open made it and was cut off before this. */
    return qsi_dir_sync_parent(store->env, store->root, error);
}

/* The index of durable queues, and that of messages that end with the process. */
static qs_status open_index(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    uint32_t entries = store->manifest.segment_entries;

    store->shared.entries = entries;
    store->shared.messages = store->messages;
    store->shared.budget = store->budget;
    QS_TRY(qsi_index_open(&store->index, store->env, store->index_dir, store->manifest.uuid,
                          entries, error));
    store->shared.index = store->index;
    if (store->options.read_only) { /* what is transient ended with its process */
        return QS_OK;
    }
    QS_TRY(qsi_index_open(&store->transient_index, store->env, store->transient_dir,
                          store->manifest.uuid, entries, error));
    store->shared.transient_index = store->transient_index;
    return QS_OK;
}

/* A store of an earlier version that is only read has no directory of them, and none of them. */
static qs_status open_streams(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_block_cache_options options = {
        .bytes_max = qsi_part_of_budget(store),
        .index_bytes_max = qsi_part_of_budget(store) / 4,
        .budget = store->budget,
    };

    store->streams.messages = store->messages;
    store->streams.budget = store->budget;
    if (store->streams_dir == NULL) {
        return QS_OK;
    }
    QS_TRY(qsi_block_dir_open(&store->streams.blocks, store->env, store->streams_dir,
                              store->manifest.uuid, "streams", "str", error));
    return qsi_block_cache_create(&store->streams.cache, store->streams.blocks, &options, error);
}

/* Leaves no trace where there is no store.  Whatever else is wrong with one is told to who has
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

/* What was recovered came in before. */
static void begin_all_rates(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        qsi_begin_rates(store, cursor.value);
    }
    store->paging.rates_at_ns = store->env->monotonic_ns(store->env);
}

static qs_status open_files(struct qs_store *store, const char *path, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    struct qsi_message_store_options message_options = {store->options.message_file_bytes,
                                                        READ_HANDLES};

    if ((!store->options.create || store->options.read_only) && !store->judges) {
        QS_TRY(check_is_there(store, path, error));
    }
    QS_TRY(store->options.read_only ? open_root_to_read(store, path, error)
                                    : open_root(store, path, error));
    QS_TRY(load_manifest(store, error));
    qsi_clock_start(store);
    QS_TRY(qsi_message_store_open(&store->messages, store->env, store->messages_dir,
                                  store->manifest.uuid, &message_options, error));
    QS_TRY(open_index(store, error));
    QS_TRY(open_streams(store, error));
    store->transactions.dir.dir = store->checkpoint_dir;
    memcpy(store->transactions.dir.uuid, store->manifest.uuid, sizeof store->transactions.dir.uuid);
    if (!store->options.read_only) {
        qsi_space_open(store);
    }
    QS_TRY(qsi_recover(store, error));
    begin_all_rates(store);
    if (store->options.read_only) {
        return QS_OK;
    }
    qsi_space_begin(store);
    return qsi_removals_after_recovery(store, error);
}

void qsi_free_store(struct qs_store *store)
{
    qsi_store_is_private(store);
    QS_ASSERT(store->life == QSI_LIFE_STOPS);
    QS_ASSERT(store->commit.lead == QSI_LEAD_NONE && store->paging.flush == QSI_FLUSH_NONE &&
              store->checkpoint.state == QSI_CHECKPOINT_NONE);
    qsi_removals_free(store);
    qsi_router_fini(&store->router); /* unties the queues from their bindings: before they go */
    qsi_free_all_queues(store);
    while (store->shared.retired.next != NULL && !qsi_list_is_empty(&store->shared.retired)) {
        qsi_segment_free(QSI_LIST_OWNER(store->shared.retired.next, struct qsi_segment, in_shared));
    }
    qsi_forget_dead_files(store);
    qsi_block_cache_destroy(store->streams.cache);
    qsi_block_dir_close(store->streams.blocks);
    qsi_stream_shared_fini(&store->streams);
    qsi_index_close(store->index);
    qsi_index_close(store->transient_index);
    qsi_map_fini(&store->queues_by_id);
    qsi_transactions_free(store);
    qsi_journal_close(store->journal);
    qsi_message_store_close(store->messages);
    qsi_chunk_unref(store->commit.arena);
    qsi_chunk_unref(store->commit.transient_arena);
    qsi_budget_unref(store->budget);
    qsi_manifest_fini(&store->manifest);
    store->env->dir_close(store->env, store->streams_dir);
    store->env->dir_close(store->env, store->checkpoint_dir);
    store->env->dir_close(store->env, store->transient_dir);
    store->env->dir_close(store->env, store->index_dir);
    store->env->dir_close(store->env, store->messages_dir);
    store->env->dir_close(store->env, store->journal_dir);
    store->env->dir_close(store->env, store->root);
    qsi_give_lock_back(store);
    qsi_mutex_fini(&store->manifest_mutex);
    qsi_space_close(store);
    qsi_cond_fini(&store->checkpoint.due);
    qsi_cond_fini(&store->removals.due);
    qsi_cond_fini(&store->removals.quiet);
    qsi_cond_fini(&store->paging.done);
    qsi_cond_fini(&store->paging.wanted);
    qsi_cond_fini(&store->commit.chores);
    qsi_cond_fini(&store->commit.work);
    qsi_cond_fini(&store->events.came);
    qsi_cond_fini(&store->commit.prepared);
    qsi_cond_fini(&store->commit.durable);
    qsi_cond_fini(&store->commit.helper.cond);
    qsi_mutex_fini(&store->commit.helper.mutex);
    qsi_mutex_fini(&store->mutex);
    qs_env_memory_destroy(store->own_env);
    qsi_free(store);
}

static qs_status open_store(qs_store **store_out, const char *path, const qs_options *options,
                            bool judges, qs_env *env, qs_error *error)
{
    struct qs_store *store = NULL;
    qs_options defaults;
    qs_error detail = {0};
    qs_status status;

    *store_out = NULL;
    qs_options_default(&defaults);
    options = options != NULL ? options : &defaults;
    QS_TRY(qsi_check_options(options, error));
    store = qsi_zalloc(sizeof *store);
    if (store == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    if (env == NULL && strcmp(path, QS_PATH_MEMORY) == 0) {
        env = store->own_env = qs_env_memory_create();
        if (env == NULL) {
            qsi_free(store);
            return qsi_fail(error, QS_ENOMEM, "store in memory");
        }
    }
    store->env = env != NULL ? env : qs_env_posix();
    store->options = *options;
    store->judges = judges;
    (void)snprintf(store->path, sizeof store->path, "%s", path);
    qsi_store_note_process(store);
    store->upcalls = &upcalls;
    status = init_memory(store, &detail);
    if (status == QS_OK) {
        /* Held all the while, though files are read: nobody waits for it yet. */
        qsi_store_lock(store);
        qsi_store_is_private(store); /* which goes for its other mutexes */
        status = open_files(store, path, &detail);
        qsi_store_unlock(store);
    }
    if (status == QS_OK && options->background && !options->read_only) {
        status = qsi_start_threads(store, &detail);
    }
    if (status != QS_OK) {
        qsi_error_prefix(&detail, "open store '%s'", path);
        if (error != NULL) {
            *error = detail;
        }
        qsi_stop_threads(store);
        qsi_free_store(store);
        return status;
    }
    qsi_store_lock(store);
    qsi_life_step(&store->life, QSI_LIFE_OPEN);
    qsi_store_unlock(store);
    *store_out = store;
    return QS_OK;
}

qs_status qs_store_open(qs_store **store_out, const char *path, const qs_options *options,
                        qs_env *env, qs_error *error)
{
    return open_store(store_out, path, options, false, env, error);
}

qs_status qsi_store_judge(const char *path, qs_env *env, qs_error *error)
{
    struct qs_store *store = NULL;
    qs_options options;

    qs_options_default(&options);
    options.create = options.background = false;
    options.read_only = true;
    QS_TRY(open_store(&store, path, &options, true, env, error));
    return qs_store_close(store, error);
}
