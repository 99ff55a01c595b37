/* The memory of a store: set up before its files are opened, counted, and freed. */
#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "early.h"
#include "engine.h"
#include "error.h"
#include "event_fd.h"
#include "inbox_dir.h"
#include "pager.h"
#include "queue_life.h"
#include "removals.h"
#include "space.h"
#include "store_files.h"
#include "store_internal.h"
#include "topology.h"
#include "transactions.h"

#include <string.h>

qs_status qsi_store_init(struct qs_store *store, qs_error *error)
{
    QS_DCHECK(store->upcalls != NULL);
    qsi_mutex_init(&store->mutex);
    qsi_mutex_init(&store->commit.helper.mutex);
    qsi_cond_init(&store->commit.helper.cond);
    qsi_cond_init(&store->commit.durable);
    qsi_cond_init(&store->commit.prepared);
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
    qsi_list_init(&store->watch.full);
    qsi_list_init(&store->events.armed_for_changes);
    qsi_list_init(&store->events.armed_for_confirms);
    qsi_list_init(&store->events.grown_streams);
    qsi_list_init(&store->events.listeners);
    qsi_list_init(&store->events.traces);
    qsi_list_init(&store->deleted_queues);
    qsi_list_init(&store->sources);
    qsi_store_is_private(store);
    store->references = 1;
    memcpy(store->place, QSI_PLACE_DEFAULT, sizeof QSI_PLACE_DEFAULT);
    store->next_queue_id = 1;
    store->checkpoint.at_ns = store->env->monotonic_ns(store->env);
    qsi_queue_shared_init(&store->shared, 0);
    qsi_stream_shared_init(&store->streams);
    store->inbox.watch_fd = store->inbox.event_fd = QSI_NO_EVENT_FD;
    store->budget = qsi_budget_create();
    if (store->budget == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    QS_TRY(qsi_removals_open(store, error));
    QS_TRY(qsi_router_init(&store->router, qsi_journal_exchange_deleted, store, error));
    store->router.place = store->place;
    return QS_OK;
}

void qsi_store_free(struct qs_store *store)
{
    qsi_store_is_private(store);
    QS_ASSERT(store->life == QSI_LIFE_STOPS);
    QS_ASSERT(store->commit.lead == QSI_LEAD_NONE && store->paging.flush == QSI_FLUSH_NONE &&
              store->checkpoint.state == QSI_CHECKPOINT_NONE);
    QS_ASSERT(store->references <= 1);
    qsi_removals_free(store);
    qsi_router_fini(&store->router); /* unties the queues from their bindings: before they go */
    qsi_free_all_queues(store);
    while (store->shared.retired.next != NULL && !qsi_list_is_empty(&store->shared.retired)) {
        qsi_segment_free(QSI_LIST_OWNER(store->shared.retired.next, struct qsi_segment, in_shared));
    }
    qsi_forget_dead_files(store);
    qsi_commit_forget_blocks(store);
    qsi_block_cache_destroy(store->streams.cache);
    qsi_block_dir_close(store->streams.blocks);
    qsi_stream_shared_fini(&store->streams);
    qsi_index_close(store->index);
    qsi_index_close(store->transient_index);
    qsi_map_fini(&store->queues_by_id);
    qsi_transactions_free(store);
    qsi_journal_close(store->journal);
    qsi_message_store_close(store->messages);
    qsi_early_fini(store);
    qsi_chunk_unref(store->commit.arena);
    qsi_chunk_unref(store->commit.transient_arena);
    qsi_budget_close(store->budget);
    qsi_manifest_fini(&store->manifest);
    qsi_inbox_close(store);
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
    qsi_cond_fini(&store->commit.prepared);
    qsi_cond_fini(&store->commit.durable);
    qsi_cond_fini(&store->commit.helper.cond);
    qsi_mutex_fini(&store->commit.helper.mutex);
    qsi_mutex_fini(&store->mutex);
    qs_env_memory_destroy(store->own_env);
    qsi_free(store);
}

void qsi_store_unref(struct qs_store *store)
{
    bool last;

    QS_ASSERT_HELD(&store->mutex);
    QS_DCHECK(store->references > 0);
    store->references -= 1;
    last = store->references == 0;
    qsi_store_unlock(store);
    if (last) {
        qsi_store_free(store);
    }
}
