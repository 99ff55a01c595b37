/* How far the journal has grown since the last checkpoint: when the next one is due, and when
 * publishers wait for it. */
#include "backlog.h"

#include "error.h"

#define DEAD_BYTES (64u << 20)  /* that wait for a checkpoint to go: reason enough to make one */
#define DEAD_NS 1000000000u     /* and so long they wait at most */
#define LARGE_BYTES (16u << 20) /* of a checkpoint's file: one a second is no burden on a disk */
#define IDLE_SHARE 16 /* a file as long as so many times the journal waits as many intervals */
#define RETRY_NS 1000000000u /* after one that found no space */
#define HELD 4   /* times checkpoint_bytes of journal that cannot be shortened: they are refused */
#define BEHIND 2 /* times checkpoint_bytes of journal: publishers wait */

uint64_t qsi_backlog_bytes(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_journal_appended_lsn(store->journal) - store->checkpoint.lsn;
}

uint64_t qsi_dead_bytes(const struct qs_store *store)
{
    struct qsi_message_space space;

    QS_ASSERT_HELD(&store->mutex);
    qsi_message_store_space(store->messages, &space);
    return store->paging.dead_bytes + space.doomed_bytes;
}

/* Does the next checkpoint give back enough for what it writes?  It carries small queues, whoever
 * brings it about. */
static bool is_worth_it(const struct qs_store *store, uint64_t dead, uint64_t age)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t named = store->space.named_bytes;

    return (dead >= DEAD_BYTES && dead >= named) ||
           (dead > 0 && age / DEAD_NS >= 1 + named / LARGE_BYTES);
}

static bool is_old(const struct qs_store *store, uint64_t age) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t interval = store->options.checkpoint_interval_ms * UINT64_C(1000000);
    uint64_t backlog = qsi_backlog_bytes(store);
    bool is_large =
        store->space.named_bytes > LARGE_BYTES && store->space.named_bytes / IDLE_SHARE > backlog;

    return interval > 0 && backlog > 0 && age >= (is_large ? IDLE_SHARE * interval : interval);
}

bool qsi_checkpoint_is_due(const struct qs_store *store)
{
    const qs_options *options = &store->options;
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t age = now - store->checkpoint.at_ns;

    QS_ASSERT_HELD(&store->mutex);
    if (store->checkpoint.state != QSI_CHECKPOINT_NONE || store->failed) {
        return false;
    }
    if (store->checkpoint.is_wanted) {
        return true;
    }
    if (!qsi_checkpoint_is_automatic(store) ||
        (store->checkpoint.failed_ns != 0 && now - store->checkpoint.failed_ns < RETRY_NS)) {
        return false;
    }
    return qsi_backlog_bytes(store) >= options->checkpoint_bytes ||
           store->checkpoint.direct_bytes >= options->checkpoint_bytes || /* retention waits */
           is_worth_it(store, qsi_dead_bytes(store), age) || is_old(store, age);
}

bool qsi_checkpoint_wants_begin(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->checkpoint.is_running && store->checkpoint.state == QSI_CHECKPOINT_NONE &&
           store->options.checkpoint_bytes > 0 &&
           (qsi_backlog_bytes(store) >= store->options.checkpoint_bytes ||
            store->checkpoint.direct_bytes >= store->options.checkpoint_bytes);
}

bool qsi_checkpoint_would_free(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_dead_bytes(store) > 0;
}

bool qsi_checkpoint_is_behind(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->checkpoint.is_running && qsi_checkpoint_is_automatic(store) && !store->failed &&
           store->life < QSI_LIFE_STOPS && store->checkpoint.failed_ns == 0 &&
           qsi_backlog_bytes(store) / BEHIND >= store->options.checkpoint_bytes;
}

static qs_status fail_held(const struct qs_store *store, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    if (error != NULL) {
        *error = store->checkpoint.held_by;
        qsi_error_prefix(
            error, "no checkpoint can be made, and the journal has grown to its bound; nothing "
                   "was accepted: put the file back, or consume, purge or delete what is in it, or "
                   "open the store again, which brings back what the journal has");
    }
    return QS_ECORRUPT;
}

qs_status qsi_checkpoint_check_held(const struct qs_store *store, qs_error *error)
{
    uint64_t most = store->options.checkpoint_bytes;

    QS_ASSERT_HELD(&store->mutex);
    return most == 0 || qsi_backlog_bytes(store) / HELD < most ? QS_OK : fail_held(store, error);
}
