/* Eventfds for event loops: that of one channel, and listeners, one for many channels. */
#include "listener.h"

#include "alloc.h"
#include "check.h"
#include "commit.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "event_fd.h"
#include "list.h"
#include "notify.h"
#include "thread_safety.h"
#include "wake.h"

#include <unistd.h>

/* QS_EINVAL: no thread could notify it of a commit. */
static qs_status check_has_threads(const struct qs_store *store, qs_error *error)
{
    return store->options.background
               ? QS_OK
               : qsi_fail(error, QS_EINVAL,
                          "a store without background threads commits only when somebody waits: "
                          "there is nobody who could tell of it");
}

qs_status qs_channel_event_fd(qs_channel *channel, int *fd_out, qs_error *error)
{
    qs_status status = QS_OK;

    *fd_out = QSI_NO_EVENT_FD;
    QS_TRY(qsi_channel_enter(channel, error));
    status = check_has_threads(channel->store, error);
    if (status == QS_OK && channel->listener != NULL) {
        status = qsi_fail(error, QS_EINVAL, "the channel has a listener, which is told instead");
    }
    if (status == QS_OK && channel->event_fd == QSI_NO_EVENT_FD) {
        status = qsi_event_fd_open(&channel->event_fd, error);
    }
    *fd_out = channel->event_fd;
    return qsi_channel_leave(channel, status);
}

qs_status qs_listener_open(qs_listener **listener_out, qs_store *store, qs_error *error)
{
    struct qs_listener *listener = qsi_zalloc(sizeof *listener);
    qs_status status;

    *listener_out = NULL;
    if (listener == NULL) {
        return qsi_fail(error, QS_ENOMEM, "listener");
    }
    status = qsi_event_fd_open(&listener->event_fd, error);
    if (status != QS_OK) {
        qsi_free(listener);
        return status;
    }
    status = qsi_store_enter_to_change(store, error);
    if (status != QS_OK) {
        (void)close(listener->event_fd);
        qsi_free(listener);
        return status;
    }
    listener->store = store;
    listener->is_idle = true;
    qsi_list_init(&listener->rang);
    qsi_list_push_back(&store->events.listeners, &listener->in_store);
    store->references += 1;
    qsi_wake_timer(store); /* which looks for alarms from now on */
    qsi_store_leave(store);
    *listener_out = listener;
    return QS_OK;
}

void qs_listener_close(qs_listener *listener)
{
    struct qs_store *store;

    if (listener == NULL || qsi_store_is_forked(listener->store)) {
        return;
    }
    store = listener->store;
    qsi_store_lock(store);
    for (struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
        if (channel->listener == listener) {
            qsi_channel_disarm(channel);
            qsi_channel_leave_listener(channel);
        }
    }
    QS_DCHECK(qsi_list_is_empty(&listener->rang));
    qsi_list_remove(&listener->in_store);
    (void)close(listener->event_fd);
    qsi_free(listener);
    qsi_store_unref(store);
}

int qs_listener_fd(const qs_listener *listener)
{
    return listener->event_fd; /* constant since it was opened */
}

static qs_status check_may_listen(const struct qs_channel *channel,
                                  const struct qs_listener *listener, qs_error *error)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_TRY(check_has_threads(channel->store, error));
    if (channel->store != listener->store) {
        return qsi_fail(error, QS_EINVAL, "the listener is one of another store");
    }
    if (channel->listener != NULL || channel->event_fd != QSI_NO_EVENT_FD) {
        return qsi_fail(error, QS_EINVAL,
                        "the channel has a listener or a qs_channel_event_fd already");
    }
    return QS_OK;
}

qs_status qs_listener_add(qs_listener *listener, qs_channel *channel, void *tag, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_channel_enter(channel, error));
    status = check_may_listen(channel, listener, error);
    if (status == QS_OK) {
        channel->listener = listener;
        channel->listener_tag = tag;
    }
    return qsi_channel_leave_after(channel, QSI_MUST_NOT_WAIT, status);
}

size_t qs_listener_next(qs_listener *listener, void **tags_out, size_t max, uint32_t *alarms_out)
{
    struct qs_store *store = listener->store;
    size_t count = 0;

    if (qsi_store_is_forked(store)) {
        return 0;
    }
    qsi_listener_read(listener);
    qsi_store_lock(store);
    qsi_listener_read(listener); /* written just now: else it would ring for what is told here */
    while (count < max && !qsi_list_is_empty(&listener->rang)) {
        struct qs_channel *channel =
            QSI_LIST_OWNER(listener->rang.next, struct qs_channel, in_rang);
        qsi_list_remove(&channel->in_rang);
        tags_out[count++] = channel->listener_tag;
    }
    listener->is_idle = qsi_list_is_empty(&listener->rang);
    if (alarms_out != NULL) {
        *alarms_out = store->events.alarms;
    }
    qsi_store_unlock(store);
    return count;
}

void qs_listener_hold(qs_listener *listener)
{
    struct qs_store *store = listener->store;

    if (qsi_store_is_forked(store)) {
        return;
    }
    qsi_store_lock(store);
    QS_DCHECK(!listener->holds && !listener->is_awaited);
    listener->holds = true;
    qsi_store_unlock(store);
}

bool qs_listener_is_awaited(const qs_listener *listener)
{
    return __atomic_load_n(&listener->is_awaited, __ATOMIC_RELAXED);
}

bool qs_listener_go(qs_listener *listener, bool may_wait)
{
    struct qs_store *store = listener->store;
    bool leads = false;

    if (qsi_store_is_forked(store)) {
        return false;
    }
    qsi_store_lock(store);
    QS_DCHECK(listener->holds || !listener->is_awaited);
    listener->holds = false;
    if (__atomic_exchange_n(&listener->is_awaited, false, __ATOMIC_RELAXED)) {
        leads = may_wait && qsi_commit_will_be_short(store);
        if (leads) {
            listener->is_idle = false; /* the loop looks by itself: nothing is to be written */
            qsi_commit_lead(store);
        } else {
            qsi_commit_expedite(store);
        }
    }
    qsi_store_unlock(store);
    return leads;
}
