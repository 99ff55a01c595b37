/* How far the journal has grown since the last checkpoint: when the next one is due, and when
 * publishers wait for it. */
#include "backlog.h"

#include "error.h"

#define DEAD_BYTES (64u << 20) /* that wait for a checkpoint to go: reason enough to make one */
#define DEAD_NS 1000000000u    /* and so long they wait at most */
#define RETRY_NS 1000000000u   /* after one that found no space */
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

bool qsi_checkpoint_is_due(const struct qs_store *store)
{
    const qs_options *options = &store->options;
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t age = now - store->checkpoint.at_ns;
    uint64_t dead;

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
    dead = qsi_dead_bytes(store);
    return qsi_backlog_bytes(store) >= options->checkpoint_bytes || dead >= DEAD_BYTES ||
           (dead > 0 && age >= DEAD_NS) ||
           (options->checkpoint_interval_ms > 0 && qsi_backlog_bytes(store) > 0 &&
            age >= options->checkpoint_interval_ms * UINT64_C(1000000));
}

bool qsi_checkpoint_wants_begin(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->checkpoint.is_running && store->checkpoint.state == QSI_CHECKPOINT_NONE &&
           store->options.checkpoint_bytes > 0 &&
           qsi_backlog_bytes(store) >= store->options.checkpoint_bytes;
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
