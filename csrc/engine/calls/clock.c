/* The store's clock.
 *
 * Messages expire by it.  It follows the machine's monotonic clock, so setting the wall clock while
 * the store is open makes no message expire.  From one session to the next it follows the wall
 * clock, as long as that makes sense: MANIFEST has its last time. */
#include "clock.h"

#include "enter.h"
#include "wake.h"

#define NS_PER_US UINT64_C(1000)
#define US_PER_S INT64_C(1000000)
#define AWAY_US_MAX (30 * 24 * 3600 * (uint64_t)US_PER_S) /* longer than a store is closed */

static uint64_t monotonic_us(const struct qs_store *store)
{
    return store->env->monotonic_ns(store->env) / NS_PER_US;
}

/* Sums and differences wrap around, so the offset may stand for a negative one. */
uint64_t qsi_clock_us(const struct qs_store *store)
{
    return monotonic_us(store) + store->clock.offset_us;
}

int64_t qsi_clock_ahead_us(const struct qs_store *store)
{
    return (int64_t)(store->env->wall_us(store->env) - qsi_clock_us(store));
}

uint64_t qsi_due_us(const struct qs_store *store, uint64_t delay_us)
{
    return delay_us > 0 ? qsi_clock_us(store) + delay_us : 0;
}

static void set(struct qs_store *store, uint64_t now_us)
{
    store->clock.offset_us = now_us - monotonic_us(store);
}

/* A clock that goes back, or too far ahead, is ignored: time goes on from its last value. */
void qsi_clock_start(struct qs_store *store)
{
    uint64_t last_us = store->manifest.clock_us;
    uint64_t wall_us = store->env->wall_us(store->env);
    bool is_believed = last_us == 0 || (wall_us >= last_us && wall_us - last_us <= AWAY_US_MAX);

    QS_ASSERT_HELD(&store->mutex);
    set(store, is_believed ? wall_us : last_us);
    store->watch.ahead_told_us = qsi_clock_ahead_us(store); /* the stats report it */
}

qs_status qs_store_accept_clock(qs_store *store, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    set(store, store->env->wall_us(store->env));
    store->watch.ahead_told_us = 0;
    qsi_wake_timer(store);
    qsi_store_leave(store);
    qsi_manifest_lock(store);
    store->manifest.clock_us = qsi_clock_us(store);
    status = qsi_manifest_store(&store->manifest, store->env, store->root, error);
    qsi_manifest_unlock(store);
    return status;
}
