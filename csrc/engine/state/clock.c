/* The store's clock, and what it watches over.
 *
 * Messages expire by it.  It goes on with the machine's monotonic clock, so nobody who sets the
 * wall clock while the store is open makes messages expire.  From one session to the next it goes
 * on with the wall clock, as long as that makes sense: MANIFEST says what time it was last. */
#include "departures.h"
#include "engine.h"
#include "error.h"

#include <stdio.h>

#define NS_PER_US UINT64_C(1000)
#define US_PER_S INT64_C(1000000)
#define AWAY_US_MAX (30 * 24 * 3600 * (uint64_t)US_PER_S) /* a store is not opened for so long */
#define TELL_US (3600 * US_PER_S)                         /* clocks that differ by so much */
#define STALL_NS (UINT64_C(30) * 1000000000)
#define DELAY_US_MAX (UINT64_C(100) * 366 * 24 * 3600 * (uint64_t)US_PER_S)
#define WATCH_US (10 * US_PER_S) /* the timer never sleeps longer */
#define WARNING_BYTES 256

static uint64_t monotonic_us(const struct qs_store *store)
{
    return store->env->monotonic_ns(store->env) / NS_PER_US;
}

/* Sums and differences go round, so the offset may stand for a negative one. */
uint64_t qsi_clock_us(const struct qs_store *store)
{
    return monotonic_us(store) + store->clock.offset_us;
}

int64_t qsi_clock_ahead_us(const struct qs_store *store)
{
    return (int64_t)(store->env->wall_us(store->env) - qsi_clock_us(store));
}

qs_status qsi_check_delay(uint64_t delay_us, qs_error *error)
{
    return delay_us <= DELAY_US_MAX
               ? QS_OK
               : qsi_fail(error, QS_EINVAL, "a delay of %llu s: 100 years at most",
                          (unsigned long long)(delay_us / US_PER_S));
}

uint64_t qsi_due_us(const struct qs_store *store, uint64_t delay_us)
{
    return delay_us > 0 ? qsi_clock_us(store) + delay_us : 0;
}

static void set(struct qs_store *store, uint64_t now_us)
{
    store->clock.offset_us = now_us - monotonic_us(store);
}

/* A clock that goes back, or too far ahead, is not obeyed: time goes on from where it was. */
void qsi_clock_start(struct qs_store *store)
{
    uint64_t last_us = store->manifest.clock_us;
    uint64_t wall_us = store->env->wall_us(store->env);
    bool is_believed = last_us == 0 || (wall_us >= last_us && wall_us - last_us <= AWAY_US_MAX);

    set(store, is_believed ? wall_us : last_us);
    store->clock.ahead_told_us = qsi_clock_ahead_us(store); /* who opens is told by the stats */
}

qs_status qs_store_accept_clock(qs_store *store, qs_error *error)
{
    qs_status status;

    QS_TRY(qsi_store_enter_to_change(store, error));
    set(store, store->env->wall_us(store->env));
    store->clock.ahead_told_us = 0;
    qsi_departures_look_again(store);
    qsi_store_leave(store);
    qsi_mutex_lock(&store->manifest_mutex);
    store->manifest.clock_us = qsi_clock_us(store);
    status = qsi_manifest_store(&store->manifest, store->env, store->root, error);
    qsi_mutex_unlock(&store->manifest_mutex);
    return status;
}

/* ---- what is wrong and no call tells ---- */

uint64_t qsi_commit_running_ns(const struct qs_store *store)
{
    return store->leading && store->commit_began_ns != 0
               ? store->env->monotonic_ns(store->env) - store->commit_began_ns
               : 0;
}

static bool is_stall_untold(const struct qs_store *store)
{
    return store->leading && store->stall_told_ns != store->commit_began_ns &&
           qsi_commit_running_ns(store) >= STALL_NS;
}

/* Lets go of the lock meanwhile. */
static void warn(struct qs_store *store, const char *what)
{
    char text[WARNING_BYTES + sizeof store->path];

    qsi_mutex_unlock(&store->mutex);
    if (store->options.warn != NULL) {
        (void)snprintf(text, sizeof text, "store '%s': %s", store->path, what);
        store->options.warn(store->options.warn_context, text);
    }
    qsi_mutex_lock(&store->mutex);
}

static void count_stall(struct qs_store *store)
{
    store->stall_told_ns = store->commit_began_ns;
    store->stats.commit_stalls += 1;
}

void qsi_watch_commit_end(struct qs_store *store)
{
    if (is_stall_untold(store)) {
        count_stall(store);
    }
}

uint64_t qsi_watch_again_us(const struct qs_store *store)
{
    uint64_t running_ns = qsi_commit_running_ns(store);

    return running_ns > 0 && running_ns < STALL_NS && STALL_NS - running_ns < WATCH_US * NS_PER_US
               ? (STALL_NS - running_ns) / NS_PER_US + 1
               : WATCH_US;
}

static void tell_stall(struct qs_store *store)
{
    char text[WARNING_BYTES];

    count_stall(store);
    (void)snprintf(text, sizeof text,
                   "a commit has waited for the disk for %llu s; nothing is confirmed meanwhile",
                   (unsigned long long)(qsi_commit_running_ns(store) / 1000000000));
    warn(store, text);
}

static void tell_jump(struct qs_store *store, int64_t ahead_us)
{
    char text[WARNING_BYTES];

    store->clock.ahead_told_us = ahead_us;
    (void)snprintf(text, sizeof text,
                   "the machine's clock was set: it differs from the store's by %lld s; messages "
                   "expire by the store's until accept_clock()",
                   (long long)(ahead_us / US_PER_S));
    warn(store, text);
}

void qsi_watch(struct qs_store *store)
{
    int64_t ahead_us = qsi_clock_ahead_us(store);
    int64_t moved_us = ahead_us - store->clock.ahead_told_us;

    if (is_stall_untold(store)) {
        tell_stall(store);
    }
    if (moved_us > TELL_US || moved_us < -TELL_US) {
        tell_jump(store, ahead_us);
    }
}
