/* Alarms about what holds publishers up, for listeners: the timer checks, and calls pay nothing. */
#include "alarms.h"

#include "listener.h"
#include "pager.h"
#include "space.h"

#define LOOK_NS UINT64_C(1000000000)
#define EASE_BYTES (1u << 20) /* bytes that must fit: a disk at its edge does not alarm each time */

static uint32_t find_alarms(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    bool is_over = qsi_pager_is_over_budget(store);
    uint32_t alarms = is_over && store->paging.is_stuck ? QS_ALARM_MEMORY : 0;

    if (store->watch.is_full || (is_over && store->paging.space_is_short)) {
        alarms |= QS_ALARM_DISK;
    }
    return alarms;
}

/* May release the lock.  Publishers that are held back do not find out when there is room again. */
static void look_for_space(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t now = store->env->monotonic_ns(store->env);
    bool released;

    if (now - store->watch.looked_ns >= LOOK_NS) {
        store->watch.looked_ns = now;
        (void)!qsi_space_look(store, EASE_BYTES, true, &released, QSI_MAY_WAIT, NULL);
    }
}

void qsi_alarms_look(struct qs_store *store)
{
    uint32_t alarms;

    QS_ASSERT_HELD(&store->mutex);
    if (qsi_list_is_empty(&store->events.listeners) || store->failed) {
        return;
    }
    if ((store->events.alarms & QS_ALARM_DISK) != 0 && store->watch.is_full) {
        look_for_space(store);
    }
    alarms = find_alarms(store);
    if (alarms == store->events.alarms) {
        return;
    }
    store->events.alarms = alarms;
    for (struct qsi_list *node = store->events.listeners.next; node != &store->events.listeners;
         node = node->next) {
        qsi_listener_wake(QSI_LIST_OWNER(node, struct qs_listener, in_store));
    }
}
