/* A copy of an open store: holding off changes of its files meanwhile.
 *
 * The copy is a state that a crash at one moment could leave.  After a checkpoint the journal is
 * copied while nothing is written to it.  All other files are copied after the journal.  What they
 * have and the journal does not is what a crash leaves of unfinished work, and what the journal has
 * needs nothing later.  A file that the last checkpoint, or a record after it, names is removed
 * only with the next checkpoint, which does not begin.
 *
 * While either is held no code of the caller runs that could wait for this store, or for one that
 * waits for it: in Python a garbage collection in the copying thread could close a channel, which
 * waits for the journal. */
#include "check.h"
#include "checkpoint.h"
#include "copy_files.h"
#include "enter.h"
#include "failure.h"

static void release_journal(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    qsi_lead_step(&store->commit.lead, QSI_LEAD_NONE);
    qsi_cond_broadcast(&store->commit.durable); /* threads that came meanwhile found a leader */
    qsi_cond_signal(&store->commit.work);
}

/* Releases the lock meanwhile.  The leader hands the lead over when it is done, even when the store
 * has failed. */
static qs_status hold_journal(struct qs_store *store, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    qs_status status;

    QS_DCHECK(!store->commit.copy_waits); /* one at a time: it holds checkpoints */
    if (store->commit.lead == QSI_LEAD_NONE) {
        qsi_lead_step(&store->commit.lead, QSI_LEAD_COPIES);
    } else {
        store->commit.copy_waits = true;
        while (store->commit.copy_waits) {
            qsi_cond_wait(&store->commit.durable, &store->mutex, QSI_WAIT_FOREVER);
        }
    }
    QS_ASSERT(store->commit.lead == QSI_LEAD_COPIES);
    store->commit.began_ns = 0; /* it waits for no disk */
    status = qsi_store_check_failed(store, error);
    if (status != QS_OK) {
        release_journal(store);
    }
    return status;
}

static qs_status copy_journal(struct qsi_copy *copy, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = copy->store;
    uint32_t last;
    qs_status status;

    QS_TRY(hold_journal(store, error));
    last = qsi_journal_last_file(store->journal);
    qsi_store_unlock(store);
    status = qsi_copy_journal(copy, last, error);
    qsi_store_lock(store);
    release_journal(store);
    return status;
}

/* The text stays. */
static qs_status fail_with_store(qs_error *error)
{
    if (error != NULL) {
        error->status = QS_ESTORE_FAILED;
    }
    return QS_ESTORE_FAILED;
}

/* Releases the lock meanwhile. */
static qs_status copy_held(struct qsi_copy *copy, qs_error *error) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = copy->store;
    qs_status status;

    status = qsi_checkpoint_and_hold(store, error);
    if (qsi_consequence_of(QSI_USE_CHECKPOINT, status) == QSI_FAILS_STORE) { /* not the copy */
        return fail_with_store(error);
    }
    if (status != QS_OK) {
        return status;
    }
    status = copy_journal(copy, error);
    if (status == QS_OK) {
        qsi_store_unlock(store);
        status = qsi_copy_rest(copy, error);
        qsi_store_lock(store);
    }
    qsi_checkpoint_release(store);
    return status;
}

static qs_status copy_all(struct qsi_copy *copy, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_copy_begin(copy, error));
    QS_TRY(qsi_copy_sealed(copy, error));
    QS_TRY(qsi_store_enter_to_change(copy->store, error));
    status = copy_held(copy, error);
    qsi_store_leave(copy->store);
    return status == QS_OK ? qsi_copy_end(copy, error) : status;
}

qs_status qs_store_copy(qs_store *store, const char *path, qs_copy_goes_on goes_on, void *context,
                        qs_copied *copied_out, qs_error *error)
{
    struct qsi_copy copy = {.store = store, .path = path, .goes_on = goes_on, .context = context};
    qs_status status;

    *copied_out = (qs_copied){0};
    QS_TRY(qsi_store_enter_to_change(store, error)); /* before anything is made */
    qsi_store_leave(store);
    status = copy_all(&copy, error);
    qsi_copy_fini(&copy);
    if (status == QS_OK) {
        *copied_out = copy.copied;
    }
    return status;
}
