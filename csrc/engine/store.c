/* Opening a store. */
#include "alloc.h"
#include "check.h"
#include "checkpoint.h"
#include "clock.h"
#include "commit.h"
#include "early.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "inbox.h"
#include "inbox_dir.h"
#include "pager.h"
#include "queue_life.h"
#include "recover.h"
#include "removals.h"
#include "space.h"
#include "store_check.h"
#include "store_files.h"
#include "store_internal.h"
#include "thread_safety.h"
#include "topology.h"
#include "transactions.h"

#include <stdio.h>
#include <string.h>

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

/* The index of durable queues, and that of messages that end with the process. */
static qs_status open_index(struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex, qsi_manifest_mutex)
{
    uint32_t entries = store->manifest.segment_entries;

    QS_ASSERT(qsi_segment_entries_are_possible(entries));
    store->shared.entries = entries;
    store->shared.messages = store->messages;
    store->shared.budget = store->budget;
    QS_TRY(qsi_index_open(&store->index, store->env, store->index_dir, store->manifest.uuid,
                          entries, error));
    store->shared.index = store->index;
    if (store->options.read_only) { /* transient messages ended with their process */
        return QS_OK;
    }
    QS_TRY(qsi_index_open(&store->transient_index, store->env, store->transient_dir,
                          store->manifest.uuid, entries, error));
    store->shared.transient_index = store->transient_index;
    return QS_OK;
}

/* A store of an earlier version that is only read has no such directory, and no such files. */
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

/* Recovered messages came in before. */
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

    QS_TRY(qsi_open_root(store, path, error));
    QS_TRY(qsi_open_manifest(store, error));
    qsi_clock_start(store);
    QS_TRY(qsi_message_store_open(&store->messages, store->env, store->messages_dir,
                                  store->manifest.uuid, &message_options, error));
    QS_TRY(open_index(store, error));
    QS_TRY(open_streams(store, error));
    QS_TRY(qsi_transactions_open(store, error));
    if (!store->options.read_only) {
        qsi_space_open(store);
    }
    QS_ASSERT(store->lock_file != NULL); /* it is this process's alone */
    QS_TRY(qsi_recover(store, error));
    begin_all_rates(store);
    if (store->options.read_only) {
        return QS_OK;
    }
    qsi_space_begin(store);
    QS_TRY(qsi_inbox_open(store, error));
    return qsi_removals_after_recovery(store, error);
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
    qsi_store_record_process(store);
    store->upcalls = &upcalls;
    status = qsi_store_init(store, &detail);
    if (status == QS_OK) {
        /* Held all the while, though files are read: no other thread waits for it yet. */
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
        qsi_store_free(store);
        return status;
    }
    qsi_store_lock(store);
    qsi_store_check(store);
    qsi_transactions_check(store);
    qsi_life_step(&store->life, QSI_LIFE_OPEN);
    qsi_store_unlock(store);
    qsi_inbox_ring(store);
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
