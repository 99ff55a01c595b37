/* Channels that are armed for notification: those of event loops, which wait without a thread until
 * an eventfd is signalled, and those of threads that sleep in a call until they are woken.
 *
 * An armed channel counts as waiting until it asks for events again, like a thread that was woken
 * and has not run yet.  Invariant: a channel that is to be signalled (armed_kinds) is armed, and
 * stays armed until it asks again.  Only channels that may have the event are checked: messages
 * check the consumers of their queue, and a commit the channels that wait for confirms. */
#include "armed.h"

#include "check.h"
#include "error.h"
#include "listener.h"
#include "notify.h"
#include "store_kind.h"
#include "turns.h"
#include "wake.h"

/* True: a loop handles it once it has handled all that came. */
static bool is_held(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_listener *listener = channel->listener;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (listener == NULL || !listener->holds) {
        return false;
    }
    __atomic_store_n(&listener->is_awaited, true, __ATOMIC_RELAXED);
    return true;
}

uint64_t qsi_deliveries_awaited_lsn(const struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (!channel->reads_streams || channel->store->failed) {
        return 0;
    }
    for (const struct qsi_list *node = channel->consumers.next; node != &channel->consumers;
         node = node->next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_channel);
        if (consumer->cursor != NULL && consumer->queue != NULL &&
            consumer->queue->kind->awaits_commit(consumer)) {
            return qsi_journal_durable_lsn(channel->store->journal) + 1;
        }
    }
    return 0;
}

/* It waits for a commit. */
static void expedite(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    if (!is_held(channel)) {
        qsi_commit_expedite(channel->store);
    }
}

static void begin_arm(struct qs_channel *channel, uint32_t kinds) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(!channel->is_armed && channel->armed_kinds == 0 && !channel->closed);
    channel->is_armed = true;
    channel->waits = (kinds & QS_EVENT_DELIVERY) != 0;
    channel->armed_kinds = kinds;
    channel->store->events.armed_count += kinds != 0 ? 1 : 0;
}

qs_status qsi_channel_arm(struct qs_channel *channel, uint32_t kinds, qs_error *error)
{
    struct qs_store *store = channel->store;

    QS_DCHECK(kinds != 0);
    QS_ASSERT_HELD(&channel->store->mutex);
    if (!qsi_channel_is_listened_to(channel)) {
        return qsi_fail(error, QS_EINVAL,
                        "QS_EVENT_ARM without a qs_channel_event_fd or a qs_listener");
    }
    begin_arm(channel, kinds);
    if ((kinds & QS_EVENT_CHANGE) != 0) {
        qsi_list_push_back(&store->events.armed_for_changes, &channel->in_changes);
    }
    if ((kinds & QS_EVENT_ACK) != 0 &&
        qsi_confirms_last_lsn(&channel->confirms) > qsi_journal_durable_lsn(store->journal)) {
        expedite(channel);
    }
    if (((kinds & QS_EVENT_DELIVERY) != 0 && qsi_deliveries_awaited_lsn(channel) != 0) ||
        ((kinds & QS_EVENT_DURABLE) != 0 && channel->awaited_first_lsn != 0)) {
        expedite(channel);
    }
    return QS_OK;
}

static bool awaits_commit(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    return ((channel->armed_kinds & (QS_EVENT_ACK | QS_EVENT_NACK)) != 0 &&
            qsi_confirms_last_lsn(&channel->confirms) != 0) ||
           ((channel->armed_kinds & QS_EVENT_DURABLE) != 0 && channel->awaited_first_lsn != 0);
}

/* True: from now on it is in the list of channels that a commit checks. */
static bool ask_at_commits(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    if (!awaits_commit(channel) || !qsi_list_is_empty(&channel->in_confirms)) {
        return false;
    }
    qsi_list_push_back(&channel->store->events.armed_for_confirms, &channel->in_confirms);
    return true;
}

void qsi_channel_await(struct qs_channel *channel, uint32_t kinds, uint64_t timeout_ns)
{
    struct qs_store *store = channel->store;
    struct qsi_waiter waiter;
    bool reads_streams = channel->reads_streams && (kinds & QS_EVENT_DELIVERY) != 0;

    QS_ASSERT_HELD(&store->mutex);
    begin_arm(channel, kinds & ~(uint32_t)QS_EVENT_CHANGE);
    channel->is_armed_by_thread = true;
    channel->waiter = &waiter;
    store->events.stream_thread_count += reads_streams ? 1 : 0;
    (void)ask_at_commits(channel);
    qsi_waiter_sleep(store, &waiter, timeout_ns);
    store->events.stream_thread_count -= reads_streams ? 1 : 0;
    channel->waiter = NULL;
    qsi_channel_disarm(channel);
}

void qsi_notify_if_due(struct qs_channel *channel)
{
    QS_DCHECK(channel->armed_kinds == 0 || channel->is_armed);
    QS_ASSERT_HELD(&channel->store->mutex);
    if ((channel->armed_kinds & QS_EVENT_CHANGE) != 0 ||
        qsi_has_event(channel, channel->armed_kinds)) {
        qsi_channel_notify(channel);
    } else if (ask_at_commits(channel)) {
        (void)is_held(channel); /* otherwise it was armed before it published: nothing waits */
    }
}

void qsi_notify_confirmed(struct qs_store *store)
{
    struct qsi_list asked;

    QS_ASSERT_HELD(&store->mutex);
    qsi_list_init(&asked);
    while (!qsi_list_is_empty(&store->events.armed_for_confirms)) {
        struct qsi_list *node = store->events.armed_for_confirms.next;
        qsi_list_remove(node);
        qsi_list_push_back(&asked, node);
    }
    /* Each is put back into the list, unless it is signalled, because other events may follow. */
    while (!qsi_list_is_empty(&asked)) {
        struct qs_channel *channel = QSI_LIST_OWNER(asked.next, struct qs_channel, in_confirms);
        qsi_list_remove(&channel->in_confirms);
        qsi_list_push_back(&store->events.armed_for_confirms, &channel->in_confirms);
        qsi_notify_if_due(channel);
    }
}
