/* Committing a transaction: it assigns the sequences, appends everything as one group, which a
 * reader sees as a whole or not at all, and returns when the group is durable. */
#include "accept.h"
#include "arrivals.h"
#include "check.h"
#include "commit.h"
#include "cursors.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "publish_counts.h"
#include "publish_trace.h"
#include "returns.h"
#include "settle.h"
#include "trace.h"
#include "transactions.h"
#include "tx.h"

struct commit {
    struct qs_channel *channel;
    struct qsi_topology key; /* the record that names the transaction; no key: none */
    struct qsi_pending_records none;
    struct qsi_pending_records *pending_records;
    const struct qsi_tx_settle *settles;
    uint32_t settle_count;
    uint64_t settle_bytes;
    uint64_t bytes; /* of everything */
};

static void measure(struct commit *commit) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = commit->channel;

    commit->pending_records = channel->tx_records != NULL ? channel->tx_records : &commit->none;
    commit->settles = (const struct qsi_tx_settle *)(void *)channel->tx_settles.data;
    commit->settle_count = (uint32_t)(channel->tx_settles.bytes / sizeof *commit->settles);
    commit->settle_bytes = 0;
    for (uint32_t i = 0; i < commit->settle_count; i++) {
        commit->settle_bytes +=
            qsi_settle_bytes(channel, commit->settles[i].first_tag, commit->settles[i].last_tag,
                             commit->settles[i].kind);
        /* Each end of its range may divide a range that another settle takes. */
        commit->settle_bytes += UINT64_C(2) * QSI_SETTLE_BYTES_MAX;
    }
    commit->bytes = commit->pending_records->journal_bytes + commit->settle_bytes;
    QS_DCHECK(commit->bytes >= commit->settle_bytes);
    commit->bytes += channel->tx_cursors.bytes;
    commit->bytes += commit->key.strings[0].bytes > 0 ? qsi_topology_bytes(&commit->key) : 0;
}

static enum qsi_room_use use_of(const struct commit *commit) QSI_REQUIRES(qsi_store_mutex)
{
    if (qsi_channel_is_internal(commit->channel)) {
        return QSI_ROOM_DEAD_LETTER;
    }
    return commit->pending_records->count > 0 ? QSI_ROOM_PUBLISH : QSI_ROOM_REMOVE;
}

static qs_status make_room(struct commit *commit, enum qsi_wait wait, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool released = true;

    while (released) {
        uint64_t entry_bytes;
        if (commit->channel->closed) {
            return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
        }
        measure(commit);
        entry_bytes = commit->bytes - commit->pending_records->journal_bytes;
        entry_bytes = entry_bytes > commit->pending_records->entry_bytes_max
                          ? entry_bytes
                          : commit->pending_records->entry_bytes_max;
        QS_TRY(qsi_commit_make_room(commit->channel->store, commit->bytes, entry_bytes,
                                    use_of(commit), &released, wait, error));
    }
    return QS_OK;
}

/* Room for rejected messages without a dead letter, and for dead letters that a full queue passes
 * on. */
static qs_status reserve_rejects(const struct commit *commit, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t runs = 0;

    for (uint32_t i = 0; i < commit->pending_records->count; i++) {
        const struct qsi_pending_record *pending_record = &commit->pending_records->items[i];
        runs += pending_record->is_dead_letter ? pending_record->destination_count : 0;
    }

    for (uint32_t i = 0; i < commit->settle_count; i++) {
        if (commit->settles[i].kind == QSI_SETTLE_REJECT) {
            runs += qsi_unacked_runs(&commit->channel->unacked, commit->settles[i].first_tag,
                                     commit->settles[i].last_tag);
        }
    }
    return runs == 0 || qsi_reserve_removals(commit->channel->store, (uint32_t)runs) == QS_OK
               ? QS_OK
               : qsi_fail(error, QS_ENOMEM, "rejected messages");
}

/* Reserves memory for everything that apply does, and checks whether full queues take it. */
static qs_status reserve(struct commit *commit, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = commit->channel;
    struct qs_store *store = channel->store;
    struct qsi_slice key = commit->key.strings[0];
    struct qsi_arrivals arrivals = {0};
    qs_status status = QS_OK;

    if (key.bytes > 0) {
        QS_TRY(qsi_transactions_reserve(store, key, error));
    }
    status = qsi_tx_cursors_reserve(channel, error);
    if (status == QS_OK) {
        status = qsi_pending_records_reserve(store, commit->pending_records, 1, &arrivals, error);
    }
    for (uint32_t i = 0; status == QS_OK && i < commit->settle_count; i++) {
        const struct qsi_tx_settle *settle = &commit->settles[i];
        if (qsi_settle_has_due(settle->kind)) {
            status = qsi_settle_cover_delays(channel, settle->first_tag, settle->last_tag, error);
        }
    }
    if (status == QS_OK && !qsi_channel_is_internal(channel)) {
        status = qsi_refusals_check(&arrivals, error);
        if (status == QS_OK) {
            status = reserve_rejects(commit, error);
        }
    }
    qsi_arrivals_fini(&arrivals);
    if (status != QS_OK && key.bytes > 0) {
        qsi_transactions_unreserve(store, key);
    }
    return status;
}

/* REQUIRES room.  The settles and the key follow each other in one chunk, which ends the group. */
static qs_status apply(struct commit *commit, uint64_t *lsn_out, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = commit->channel;
    struct qs_store *store = channel->store;
    bool keyed = commit->key.strings[0].bytes > 0;
    uint64_t tail_bytes = commit->bytes - commit->pending_records->journal_bytes;
    struct qsi_chunk *tail = NULL;
    uint32_t tail_records = 0;
    qs_status status;

    *lsn_out = 0;
    if (tail_bytes > 0) {
        tail = qsi_chunk_create(tail_bytes);
        if (tail == NULL) {
            return qsi_fail(error, QS_ENOMEM, "transaction");
        }
    }
    status = reserve(commit, error);
    if (status != QS_OK) {
        qsi_chunk_unref(tail);
        return status;
    }
    for (uint32_t i = 0; i < commit->settle_count; i++) {
        tail_records +=
            qsi_settle_into(channel, commit->settles[i].first_tag, commit->settles[i].last_tag,
                            commit->settles[i].kind, commit->settles[i].due_us, tail);
    }
    tail_records += qsi_tx_cursors_put(channel, tail);
    if (keyed) {
        commit->key.number = qsi_transactions_time(store);
        qsi_topology_encode(tail->data + tail->used, &commit->key);
        tail->used += qsi_topology_bytes(&commit->key);
        tail_records += 1;
    }
    QS_ASSERT(tail == NULL ? tail_records == 0 : tail->used <= tail_bytes);
    *lsn_out = qsi_pending_records_accept_group(store, commit->pending_records, tail_records > 0);
    if (tail_records > 0) {
        *lsn_out = qsi_store_append(store, tail, 0, tail->used, tail_records, false);
    }
    if (keyed) {
        qsi_transactions_record(store, commit->key.strings[0], *lsn_out, commit->key.number, false);
    }
    qsi_chunk_unref(tail);
    qsi_move_returns(&channel->tx_returns, &channel->returns);
    store->stats.dead_lettered += channel->tx_dead_letters;
    qsi_count_notes(channel, &channel->tx_published);
    if (qsi_is_traced(store)) {
        qsi_trace_committed(channel, &channel->tx_published, *lsn_out);
    }
    qsi_tx_drop(channel);
    return QS_OK;
}

qs_status qsi_tx_apply(struct qs_channel *channel, uint64_t *lsn_out, enum qsi_wait wait,
                       qs_error *error)
{
    struct commit commit = {.channel = channel, .key = {.type = QSI_RECORD_TRANSACTION}};

    QS_ASSERT_HELD(&channel->store->mutex);
    commit.key.strings[0] = qsi_slice_make("", 0);
    QS_TRY(make_room(&commit, wait, error));
    return apply(&commit, lsn_out, error);
}

/* *lsn_out 0: no transaction was committed with that key. */
static qs_status make_room_and_find(struct commit *commit, uint64_t *lsn_out, enum qsi_wait wait,
                                    qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = commit->channel->store;
    struct qsi_slice key = commit->key.strings[0];
    struct qsi_key_search search = {0};
    bool paged = false, searched = false, released = false;

    *lsn_out = 0;
    do {
        if (key.bytes > 0) {
            QS_TRY(qsi_transactions_make_room(store, &paged, error));
        }
        QS_TRY(make_room(commit, wait, error));
        if (key.bytes > 0) {
            QS_TRY(qsi_transactions_find(store, key, &search, lsn_out, &searched, error));
        }
        if (!searched && *lsn_out == 0) {
            QS_TRY(qsi_tx_return_gone(commit->channel, &released, wait, error));
        }
    } while (searched || released);
    return QS_OK;
}

/* A file may be read for a key, and for rejected messages. */
static qs_status check_need_not_wait(const struct commit *commit, uint32_t flags)
    QSI_REQUIRES(qsi_store_mutex)
{
    bool has_rejects = false;

    for (size_t i = 0; i < commit->channel->tx_settles.bytes / sizeof(struct qsi_tx_settle); i++) {
        const struct qsi_tx_settle *settles =
            (const struct qsi_tx_settle *)(const void *)commit->channel->tx_settles.data;
        has_rejects = has_rejects || settles[i].kind == QSI_SETTLE_REJECT;
    }
    return commit->key.strings[0].bytes > 0 || has_rejects ? qsi_check_may_wait(qsi_wait_of(flags))
                                                           : QS_OK;
}

static qs_status commit_locked(struct commit *commit, uint32_t flags, bool *repeated_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = commit->channel;
    uint64_t lsn;

    QS_ASSERT_HELD(&channel->store->mutex);
    QS_TRY(qsi_tx_check_selected(channel, error));
    QS_TRY(check_need_not_wait(commit, flags));
    QS_TRY(channel->store->upcalls->dead_letter_in_tx(channel, error));
    QS_TRY(make_room_and_find(commit, &lsn, qsi_wait_of(flags), error));
    *repeated_out = lsn != 0;
    if (*repeated_out) {
        qsi_tx_drop(channel);
        /* The first commit with this key may not be durable yet. */
        return qsi_commit_wait(channel->store, lsn, QS_FOREVER, error);
    }
    QS_TRY(apply(commit, &lsn, error));
    qsi_trim(channel->store, qsi_wait_of(flags)); /* others take messages while this one waits */
    return qsi_commit_complete(channel, lsn, flags, error);
}

qs_status qs_channel_tx_commit(qs_channel *channel, qs_slice key, uint32_t flags,
                               bool *repeated_out, qs_error *error)
{
    struct commit commit = {
        .channel = channel,
        .key = {.type = QSI_RECORD_TRANSACTION, .strings = {qsi_slice_of(key)}},
    };

    *repeated_out = false;
    if (key.bytes > QSI_TRANSACTION_KEY_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "transaction key of %zu bytes: %d at most", key.bytes,
                        QSI_TRANSACTION_KEY_BYTES_MAX);
    }
    QS_TRY(qsi_channel_enter(channel, error));
    return qsi_channel_leave_after(channel, qsi_wait_of(flags),
                                   commit_locked(&commit, flags, repeated_out, error));
}
