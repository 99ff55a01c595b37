/* Entering and leaving a store: its lock, a fork, and whether it has failed. */
#include "enter.h"

#include "armed.h"
#include "error.h"

#include <pthread.h>

/* ---- fork ----
 *
 * A child inherits descriptors and memory, and no threads.  It must not write: the handler below
 * raises the generation, and every entry compares.  Nor does it keep the lock alive when its
 * parent has died: the environment sees to that. */

static struct {
    pthread_once_t once;
    uint32_t generation;
} process = {.once = PTHREAD_ONCE_INIT};

static void after_fork_in_child(void)
{
    process.generation += 1;
}

static void start_process(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void qsi_store_record_process(struct qs_store *store)
{
    pthread_once(&process.once, start_process);
    store->fork_generation = process.generation;
}

bool qsi_store_is_forked(const struct qs_store *store)
{
    return store->fork_generation != process.generation;
}

/* ---- entering ---- */

static qs_status check_usable(const struct qs_store *store, qs_error *error)
{
    if (qsi_store_is_forked(store)) {
        return qsi_fail(error, QS_EFORKED,
                        "this store was opened before fork(): open it again in this process, "
                        "after the parent has closed it");
    }
    return QS_OK;
}

qs_status qsi_store_enter(struct qs_store *store, qs_error *error)
{
    QS_TRY(check_usable(store, error));
    qsi_store_lock(store);
    if (store->life >= QSI_LIFE_SHUT) {
        qsi_store_unlock(store);
        return qsi_fail(error, QS_ESTORE_CLOSED, "the store is closed");
    }
    return QS_OK;
}

qs_status qsi_store_enter_to_change(struct qs_store *store, qs_error *error)
{
    if (store->options.read_only) {
        return qsi_fail(error, QS_ESTORE_READ_ONLY,
                        "the store was opened for reading only: open it without read_only");
    }
    return qsi_store_enter(store, error);
}

qs_status qsi_channel_enter(struct qs_channel *channel, qs_error *error)
{
    QS_TRY(qsi_store_enter(channel->store, error));
    if (channel->closed) {
        qsi_store_unlock(channel->store);
        return qsi_fail(error, QS_ECHANNEL_CLOSED,
                        "the channel is closed: an earlier error ended it, open another");
    }
    return QS_OK;
}

void qsi_store_leave(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_store_unlock(store);
}

static bool ends_channel(qs_status status)
{
    return status >= 300 && status < 600;
}

/* What AMQP calls a hard error. */
static bool ends_connection(qs_status status)
{
    return status >= 500 && status < 600;
}

qs_status qsi_channel_leave_after(struct qs_channel *channel, enum qsi_wait wait, qs_status status)
{
    struct qs_store *store = channel->store;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (ends_connection(status)) {
        store->upcalls->shut_connection(channel->connection);
    } else if (ends_channel(status)) {
        store->upcalls->shut_channel(channel);
    }
    if (channel->armed_kinds != 0) {
        qsi_notify_if_due(channel);
    }
    if (qsi_has_removals(store)) {
        store->upcalls->drain(store, wait);
    }
    qsi_store_unlock(store);
    return status;
}

qs_status qsi_channel_leave(struct qs_channel *channel, qs_status status)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    return qsi_channel_leave_after(channel, QSI_MAY_WAIT, status);
}

qs_status qsi_store_check_failed(const struct qs_store *store, qs_error *error)
{
    QS_ASSERT_HELD(&store->mutex);
    if (!store->failed) {
        return QS_OK;
    }
    if (error != NULL) {
        *error = store->failure;
        error->status = QS_ESTORE_FAILED;
        qsi_error_prefix(error, "the store failed and must be opened again");
    }
    return QS_ESTORE_FAILED;
}
