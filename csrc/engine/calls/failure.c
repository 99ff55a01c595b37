/* The table of failures, and the only place that makes a store fail. */
#include "failure.h"

#include "armed.h"
#include "error.h"
#include "notify.h"
#include "trace.h"
#include "wake.h"
#include "watch.h"

enum error_class { SHORTAGE, DAMAGE, OTHER, ERROR_CLASSES };

static const enum qsi_consequence consequences[QSI_DISK_USES][ERROR_CLASSES] = {
#define QSI_DISK_USE(name, words, shortage, damage, other) \
    [QSI_USE_##name] = {QSI_##shortage, QSI_##damage, QSI_##other},
#include "failure.def"
#undef QSI_DISK_USE
};

static enum error_class class_of(qs_status status)
{
    if (qsi_is_shortage(status)) {
        return SHORTAGE;
    }
    return qsi_is_damage(status) ? DAMAGE : OTHER;
}

enum qsi_consequence qsi_consequence_of(enum qsi_disk_use use, qs_status status)
{
    QS_ASSERT(use < QSI_DISK_USES);
    return status == QS_OK ? QSI_GOES_ON : consequences[use][class_of(status)];
}

qs_status qsi_pass_over(const struct qs_store *store, qs_status status)
{
    return qsi_is_unreadable(status) && (status != QS_EIO || !store->judges) ? QS_OK : status;
}

void qsi_wake_everyone(struct qs_store *store)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);

    QS_ASSERT_HELD(&store->mutex);
    for (struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        qsi_waiter_wake(store, QSI_LIST_OWNER(node, struct qs_channel, in_store)->waiter);
    }
    for (struct qsi_list *node = store->events.traces.next; node != &store->events.traces;
         node = node->next) {
        qsi_waiter_wake(store, QSI_LIST_OWNER(node, struct qs_trace, in_store)->waiter);
    }
    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        qsi_line_wake_all(store, cursor.value);
    }
}

static void fail(struct qs_store *store, const qs_error *cause) QSI_REQUIRES(qsi_store_mutex)
{
    if (store->failed) {
        return;
    }
    store->failed = true;
    store->failure = *cause;
    qsi_watch_wake(store);
    qsi_cond_broadcast(&store->commit.durable);
    qsi_cond_broadcast(&store->commit.prepared);
    qsi_cond_broadcast(&store->paging.done);
    qsi_wake_everyone(store);
    qsi_events_notify(store);
    qsi_notify_confirmed(store);
}

enum qsi_consequence qsi_store_record_failure(struct qs_store *store, enum qsi_disk_use use,
                                              qs_status status, const qs_error *error)
{
    enum qsi_consequence consequence = qsi_consequence_of(use, status);

    QS_ASSERT_HELD(&store->mutex);
    if (consequence == QSI_FAILS_STORE) {
        fail(store, error);
    }
    return consequence;
}
