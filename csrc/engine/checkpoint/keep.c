/* Keeping the journal for an archive.
 *
 * MANIFEST has nothing of it: kept files have numbers below those of its first session, like files
 * that a crash kept from being removed, and the next open removes them.  Their reader then begins
 * anew. */
#include "keep.h"

#include "body_ref.h"
#include "check.h"
#include "commit.h"
#include "enter.h"
#include "error.h"
#include "message_format.h"
#include "space.h"

/* ---- checkpoints ---- */

bool qsi_keep_below(struct qs_store *store, uint32_t first_file, uint32_t *below_out)
{
    struct qsi_keep *keep = &store->keep;
    struct qsi_session start;
    uint64_t doomed;

    QS_ASSERT_HELD(&store->mutex);
    *below_out = first_file;
    keep->held_bytes = 0;
    if (!keep->is_active || keep->lsn >= store->checkpoint.lsn) {
        return false;
    }
    doomed = qsi_message_store_doomed_bytes(store->messages);
    if (store->checkpoint.lsn - keep->lsn + doomed > keep->bytes_max || qsi_space_is_tight(store)) {
        qsi_keep_lose(store);
        return false;
    }
    keep->held_bytes = doomed;
    keep->held_upto = store->checkpoint.lsn;
    qsi_journal_session_at(store->journal, keep->lsn, &start);
    QS_DCHECK(start.first_file <= first_file);
    *below_out = start.first_file;
    return true;
}

bool qsi_keep_give_way(struct qs_store *store)
{
    struct qsi_session start = {.first_file = 0};
    bool holds;

    qsi_store_lock(store);
    holds = store->keep.is_active && store->keep.lsn < store->checkpoint.lsn;
    if (holds) {
        qsi_journal_session_at(store->journal, store->checkpoint.lsn, &start);
        qsi_keep_lose(store);
    }
    qsi_store_unlock(store);
    /* Message files wait for the checkpoint. */
    return holds && qsi_journal_release(store->journal, start.first_file, 0, NULL) == QS_OK;
}

/* ---- the calls ---- */

static void report(struct qs_store *store, qs_kept *kept_out) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_session start = {.first_file = 0};

    if (store->keep.is_active) {
        qsi_journal_session_at(store->journal, store->keep.lsn, &start);
    }
    *kept_out = (qs_kept){
        .lsn = store->keep.lsn,
        .durable_lsn = qsi_journal_durable_lsn(store->journal),
        .file_salt = start.salt,
        .file_lsn = start.base_lsn,
        .file = start.first_file,
        .is_lost = !store->keep.is_active,
    };
}

/* Releases the lock meanwhile.  Writes to files of streams are accepted, or given up: from here on
 * the journal has everything. */
static qs_status begin(struct qs_store *store, uint64_t bytes_max, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    if (store->keep.is_active) {
        return qsi_fail(error, QS_EEXIST, "the store is archived already");
    }
    store->keep = (struct qsi_keep){
        .is_active = true,
        .lsn = qsi_journal_durable_lsn(store->journal),
        .bytes_max = bytes_max,
    };
    while (store->paging.writing > 0) {
        qsi_cond_wait(&store->paging.done, &store->mutex, QSI_WAIT_FOREVER);
    }
    status = qsi_commit_wait(store, qsi_journal_appended_lsn(store->journal), QS_FOREVER, error);
    if (status == QS_OK && store->keep.is_active) {
        store->keep.lsn = qsi_journal_durable_lsn(store->journal);
    } else {
        store->keep.is_active = false;
    }
    return status;
}

qs_status qs_store_keep(qs_store *store, uint64_t bytes_max, qs_kept *kept_out, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    status = begin(store, bytes_max, error);
    if (status == QS_OK) {
        report(store, kept_out);
    }
    qsi_store_leave(store);
    return status;
}

static void read_upto(struct qs_store *store, uint64_t lsn) QSI_REQUIRES(qsi_store_mutex)
{
    store->keep.lsn = lsn;
    if (store->keep.held_bytes > 0 && lsn >= store->keep.held_upto) {
        store->keep.held_bytes = 0;
        qsi_cond_signal(&store->checkpoint.due); /* which gives the files back */
    }
}

qs_status qs_store_keep_from(qs_store *store, uint64_t lsn, qs_kept *kept_out, qs_error *error)
{
    qs_status status = QS_OK;

    QS_TRY(qsi_store_enter_to_change(store, error));
    if (store->keep.is_active &&
        (lsn < store->keep.lsn || lsn > qsi_journal_durable_lsn(store->journal))) {
        status = qsi_fail(error, QS_EINVAL,
                          "the journal is kept from LSN %llu on, and %llu is none"
                          " that could have been read",
                          (unsigned long long)store->keep.lsn, (unsigned long long)lsn);
    } else if (store->keep.is_active) {
        read_upto(store, lsn);
    }
    report(store, kept_out);
    qsi_store_leave(store);
    return status;
}

void qs_store_keep_end(qs_store *store)
{
    qsi_store_lock(store);
    store->keep.is_active = false;
    store->keep.held_bytes = 0;
    qsi_store_unlock(store);
}

qs_status qs_store_read_body(qs_store *store, const void *reference, void *data, size_t data_bytes,
                             qs_error *error)
{
    struct qsi_slice cell = qsi_slice_make(reference, QSI_BODY_REF_BYTES);
    struct qsi_body body;

    qsi_body_decode(&body, cell);
    if (qsi_body_record_bytes(&body.ref) != data_bytes) {
        return qsi_fail(error, QS_EINVAL, "room for %llu bytes, of a body that takes %llu",
                        (unsigned long long)data_bytes,
                        (unsigned long long)qsi_body_record_bytes(&body.ref));
    }
    QS_TRY(qsi_store_enter(store, error));
    qsi_store_leave(store);
    return qsi_message_store_read_dead(store->messages, &body.ref, data, error);
}
