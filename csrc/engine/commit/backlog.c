/* How far the journal has grown since the last checkpoint: when the next checkpoint is due, and
 * when publishers wait for it. */
#include "backlog.h"

#include "error.h"

#define DEAD_BYTES (64u << 20)  /* of files that wait for a checkpoint: reason for one */
#define DEAD_NS 1000000000u     /* and they wait so long at most */
#define LARGE_BYTES (16u << 20) /* of a checkpoint's file: one a second is little */
#define IDLE_SHARE 16 /* a file as long as so many times the journal waits as many intervals */
#define QUIET_NS 1000000000u   /* without an append: then */
#define TIDY_BYTES (32u << 20) /* so much journal that a checkpoint gives back causes one */
#define RETRY_NS 1000000000u   /* after a checkpoint that found no space */
#define HELD 4                 /* times checkpoint_bytes of journal: publishers are refused */
#define BEHIND 2               /* times checkpoint_bytes of journal: publishers wait */

static uint64_t backlog_bytes(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return qsi_journal_appended_lsn(store->journal) - store->checkpoint.lsn;
}

/* Bytes of files that are removed when the next checkpoint is valid. */
static uint64_t dead_bytes(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->paging.dead_bytes +
           qsi_keep_free_bytes(store, qsi_message_store_doomed_bytes(store->messages));
}

/* Whether the next checkpoint gives back enough for what it writes.  It carries small queues,
 * whatever its cause. */
static bool is_worth_it(const struct qs_store *store, uint64_t dead, uint64_t age)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t named = store->space.named_bytes;

    return (dead >= DEAD_BYTES && dead >= named) ||
           (dead > 0 && age / DEAD_NS >= 1 + named / LARGE_BYTES);
}

static bool is_old(const struct qs_store *store, uint64_t backlog, uint64_t age)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t interval = store->options.checkpoint_interval_ms * UINT64_C(1000000);
    bool is_large =
        store->space.named_bytes > LARGE_BYTES && store->space.named_bytes / IDLE_SHARE > backlog;

    return interval > 0 && backlog > 0 && age >= (is_large ? IDLE_SHARE * interval : interval);
}

void qsi_backlog_look(struct qs_store *store)
{
    uint64_t lsn = qsi_journal_appended_lsn(store->journal);

    QS_ASSERT_HELD(&store->mutex);
    if (lsn != store->checkpoint.seen_lsn) {
        store->checkpoint.seen_lsn = lsn;
        store->checkpoint.seen_ns = store->env->monotonic_ns(store->env);
    }
}

bool qsi_backlog_is_quiet(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_journal_appended_lsn(store->journal) == store->checkpoint.seen_lsn &&
           store->env->monotonic_ns(store->env) - store->checkpoint.seen_ns >= QUIET_NS;
}

/* Old files of the journal, and those made ahead, are larger than a checkpoint.  Tried once for
 * each end of the journal, because a checkpoint may not be able to give all of them back. */
static bool is_untidy(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = qsi_journal_excess_bytes(store->journal, store->checkpoint.lsn);

    return bytes >= TIDY_BYTES && bytes >= store->space.named_bytes &&
           qsi_journal_appended_lsn(store->journal) != store->checkpoint.tidied_lsn;
}

bool qsi_checkpoint_comes_by_itself(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return backlog_bytes(store) > 0 || dead_bytes(store) > 0 ||
           (qsi_checkpoint_is_automatic(store) && is_untidy(store));
}

/* Nothing prevents a checkpoint that no call asked for. */
static bool may_make_one(const struct qs_store *store, uint64_t now) QSI_REQUIRES(qsi_store_mutex)
{
    return store->checkpoint.state == QSI_CHECKPOINT_NONE && !store->failed &&
           qsi_checkpoint_is_automatic(store) &&
           (store->checkpoint.failed_ns == 0 || now - store->checkpoint.failed_ns >= RETRY_NS);
}

bool qsi_checkpoint_is_due(const struct qs_store *store)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    uint64_t age = now - store->checkpoint.at_ns;
    uint64_t backlog = backlog_bytes(store);
    uint64_t most = store->options.checkpoint_bytes;

    QS_ASSERT_HELD(&store->mutex);
    if (store->checkpoint.is_wanted) {
        return store->checkpoint.state == QSI_CHECKPOINT_NONE && !store->failed;
    }
    return may_make_one(store, now) &&
           (backlog >= most || store->checkpoint.direct_bytes >= most || /* retention waits */
            is_worth_it(store, dead_bytes(store), age) || is_old(store, backlog, age));
}

bool qsi_checkpoint_would_tidy(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return qsi_backlog_is_quiet(store) && is_untidy(store) &&
           may_make_one(store, store->env->monotonic_ns(store->env));
}

bool qsi_checkpoint_wants_begin(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->checkpoint.is_running && store->checkpoint.state == QSI_CHECKPOINT_NONE &&
           store->options.checkpoint_bytes > 0 &&
           (backlog_bytes(store) >= store->options.checkpoint_bytes ||
            store->checkpoint.direct_bytes >= store->options.checkpoint_bytes);
}

bool qsi_checkpoint_would_free(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return dead_bytes(store) > 0;
}

bool qsi_checkpoint_is_behind(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->checkpoint.is_running && qsi_checkpoint_is_automatic(store) && !store->failed &&
           store->life < QSI_LIFE_STOPS && store->checkpoint.failed_ns == 0 &&
           backlog_bytes(store) / BEHIND >= store->options.checkpoint_bytes;
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
    return store->checkpoint.held_by.status;
}

qs_status qsi_checkpoint_check_held(const struct qs_store *store, qs_error *error)
{
    uint64_t most = store->options.checkpoint_bytes;

    QS_ASSERT_HELD(&store->mutex);
    return most == 0 || backlog_bytes(store) / HELD < most ? QS_OK : fail_held(store, error);
}
