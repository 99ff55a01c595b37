/* Verbs about keys of transactions: whether one is known, and forgetting them. */
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "store.h"
#include "topology.h"
#include "transactions.h"

static qs_status check_key(qs_slice key, qs_error *error)
{
    return key.bytes <= QSI_TRANSACTION_KEY_BYTES_MAX
               ? QS_OK
               : qsi_fail(error, QS_EINVAL, "transaction key of %zu bytes: %d at most", key.bytes,
                          QSI_TRANSACTION_KEY_BYTES_MAX);
}

static qs_status is_known(struct qs_store *store, struct qsi_slice key, bool *known_out,
                          qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_key_search search = {0};
    bool released = true;
    uint64_t lsn = 0;

    while (released) {
        QS_TRY(qsi_transactions_find(store, key, &search, &lsn, &released, error));
    }
    if (lsn == 0 || store->options.read_only) {
        *known_out = lsn != 0;
        return QS_OK;
    }
    /* One that is not durable yet may still fail, or be lost in a power cut. */
    *known_out = qsi_commit_wait(store, lsn, QS_FOREVER, NULL) == QS_OK;
    return QS_OK;
}

qs_status qs_store_transaction_known(qs_store *store, qs_slice key, bool *known_out,
                                     qs_error *error)
{
    qs_status status;

    *known_out = false;
    QS_TRY(check_key(key, error));
    QS_TRY(qsi_store_enter(store, error));
    status = key.bytes > 0 ? is_known(store, qsi_slice_of(key), known_out, error) : QS_OK;
    qsi_store_leave(store);
    return status;
}

/* Makes room in the journal; the lock may be released. */
static qs_status make_room(struct qs_store *store, const struct qsi_topology *record,
                           bool *released_out, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t bytes = QSI_TOPOLOGY_ROOM + qsi_topology_bytes(record);

    QS_ASSERT_HELD(&store->mutex);
    QS_TRY(qsi_commit_make_room(store, bytes, bytes, QSI_ROOM_REMOVE, released_out, QSI_MAY_WAIT,
                                error));
    return store->life >= QSI_LIFE_SHUT ? qsi_fail(error, QS_ESTORE_CLOSED, "closed meanwhile")
                                        : QS_OK;
}

static qs_status forget_key(struct qs_store *store, struct qsi_slice key, uint64_t *count_out,
                            qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_topology record = {.type = QSI_RECORD_TRANSACTION_FORGET, .strings = {key}};
    struct qsi_key_search search = {0};
    struct qsi_chunk *chunk = NULL;
    bool waited = true, paged = false, searched = false;
    uint64_t lsn = 0;

    while (waited || paged || searched) {
        QS_TRY(qsi_transactions_make_room(store, &paged, error));
        QS_TRY(make_room(store, &record, &waited, error));
        QS_TRY(qsi_transactions_find(store, key, &search, &lsn, &searched, error));
    }
    if (lsn == 0) {
        return QS_OK;
    }
    QS_TRY(qsi_transactions_reserve(store, key, error));
    if (qsi_reserve_topology(store, &record, &chunk, error) != QS_OK) {
        qsi_transactions_unreserve(store, key);
        return QS_ENOMEM;
    }
    QS_ASSERT(chunk != NULL);
    lsn = qsi_append_topology(store, &record, chunk);
    qsi_transactions_record(store, key, lsn, 0, true);
    *count_out = 1;
    return qsi_commit_wait(store, lsn, QS_FOREVER, error);
}

qs_status qs_store_forget_transaction(qs_store *store, qs_slice key, uint64_t *count_out,
                                      qs_error *error)
{
    qs_status status;

    *count_out = 0;
    QS_TRY(check_key(key, error));
    QS_TRY(qsi_store_enter_to_change(store, error));
    status = key.bytes > 0 ? forget_key(store, qsi_slice_of(key), count_out, error) : QS_OK;
    qsi_store_leave(store);
    return status;
}

/* The count is made first: a caller that gets an error for damage has lost nothing. */
static qs_status forget_before(struct qs_store *store, uint64_t before_us, uint64_t *count_out,
                               qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_transactions *keys = store->transactions;
    struct qsi_topology record = {.type = QSI_RECORD_TRANSACTION_FORGET, .number = before_us};
    struct qsi_chunk *chunk = NULL;
    bool released = true;
    qs_status status = QS_OK;

    while (status == QS_OK && released) {
        status = make_room(store, &record, &released, error);
    }
    if (status == QS_OK) {
        status = qsi_reserve_topology(store, &record, &chunk, error);
    }
    if (status != QS_OK || *count_out == 0 || before_us <= keys->forgotten_before_us) {
        return status;
    }
    QS_ASSERT(keys->is_busy); /* the counted keys are the forgotten ones */
    keys->forgotten_before_us = before_us;
    keys->sweeps = true;
    return qsi_commit_wait(store, qsi_append_topology(store, &record, chunk), QS_FOREVER, error);
}

qs_status qs_store_forget_transactions(qs_store *store, uint64_t older_than_us, uint64_t *count_out,
                                       qs_error *error)
{
    uint64_t now, count = 0;
    qs_status status;

    *count_out = 0;
    QS_TRY(qsi_store_enter_to_change(store, error));
    now = qsi_transactions_time(store) + 1; /* with 0: all up to now */
    now = now > older_than_us ? now - older_than_us : 0;
    status = qsi_transactions_count(store, now, &count, error);
    if (status == QS_OK) {
        status = forget_before(store, now, &count, error);
        qsi_transactions_end_count(store);
    }
    *count_out = status == QS_OK ? count : 0;
    qsi_store_leave(store);
    return status;
}
