#include "watch.h"

#include "clock.h"
#include "prefetch.h"
#include "wake.h"

#include <stdarg.h>
#include <stdio.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)
#define US_PER_S INT64_C(1000000)
#define JUMP_US (3600 * US_PER_S) /* clocks that differ by so much */
#define STALL_NS (30 * NS_PER_S)
#define WATCH_US (10 * US_PER_S) /* the timer never sleeps longer */
#define EASE_NS NS_PER_S         /* without a refusal: else a disk at its edge is reported often */
#define TEXT_BYTES (512 + QS_ERROR_TEXT_BYTES)

void qsi_watch_wake(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    qsi_wake_timer(store);
}

/* Releases the lock meanwhile. */
__attribute__((format(printf, 3, 4))) static void report(struct qs_store *store, uint32_t level,
                                                         const char *format, ...)
    QSI_REQUIRES(qsi_store_mutex)
{
    char text[TEXT_BYTES];
    int bytes = snprintf(text, sizeof text, "%s: ", store->path);
    va_list arguments;

    if (store->options.note == NULL) {
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text + bytes, sizeof text - (size_t)bytes, format, arguments);
    va_end(arguments);
    qsi_store_unlock(store);
    store->options.note(store->options.note_context, level, text);
    qsi_store_lock(store);
}

/* ---- a disk that does not answer ---- */

uint64_t qsi_commit_running_ns(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->commit.lead != QSI_LEAD_NONE && store->commit.began_ns != 0
               ? store->env->monotonic_ns(store->env) - store->commit.began_ns
               : 0;
}

static bool is_stall_untold(const struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    return store->commit.lead != QSI_LEAD_NONE &&
           store->watch.stall_told_ns != store->commit.began_ns &&
           qsi_commit_running_ns(store) >= STALL_NS;
}

static void count_stall(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    store->watch.stall_told_ns = store->commit.began_ns;
    store->stats.commit_stalls += 1;
}

void qsi_watch_commit_end(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    QS_ASSERT(store->commit.lead != QSI_LEAD_NONE);
    if (is_stall_untold(store)) {
        count_stall(store);
    }
}

static void report_stall(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (is_stall_untold(store)) {
        count_stall(store);
        report(store, QS_NOTE_WARNING,
               "a commit has waited for the disk for %llu s; nothing is confirmed meanwhile",
               (unsigned long long)(qsi_commit_running_ns(store) / NS_PER_S));
    }
}

/* ---- a clock that is set ---- */

static void report_jump(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    int64_t ahead_us = qsi_clock_ahead_us(store);
    int64_t moved_us = ahead_us - store->watch.ahead_told_us;

    if (moved_us > JUMP_US || moved_us < -JUMP_US) {
        store->watch.ahead_told_us = ahead_us;
        report(
            store, QS_NOTE_WARNING,
            "the machine's clock was set: it differs from the store's by %lld s; messages expire "
            "by the store's until accept_clock()",
            (long long)(ahead_us / US_PER_S));
    }
}

/* ---- a full disk ---- */

void qsi_watch_full(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    store->watch.refused_ns = store->env->monotonic_ns(store->env);
    store->watch.is_full = true;
    if (!store->watch.is_full_told) {
        qsi_watch_wake(store);
    }
}

void qsi_watch_admitted(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    if (store->watch.is_full) {
        store->watch.is_full = false;
        qsi_watch_wake(store);
    }
}

static void report_space(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_watch *watch = &store->watch;

    if (watch->is_full && !watch->is_full_told) {
        watch->is_full_told = true;
        report(store, QS_NOTE_WARNING,
               "the disk is full: who publishes is refused (StoreFull) until messages are consumed "
               "or purged, or some space is freed");
    }
    if (!watch->is_full && watch->is_full_told &&
        store->env->monotonic_ns(store->env) - watch->refused_ns >= EASE_NS) {
        watch->is_full_told = false;
        report(store, QS_NOTE_INFO, "there is space on the disk again: who publishes is admitted");
    }
}

/* ---- slow consumers ---- */

/* The first that is slow and was not reported; NULL: there is none.  It is reported once. */
static struct qsi_store_consumer *find_slow(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_list *next;

    for (struct qsi_list *node = store->watch.full.next; node != &store->watch.full; node = next) {
        struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, struct qsi_store_consumer, in_full);
        next = node->next;
        if (!qsi_consumer_is_used_up(consumer)) {
            qsi_list_remove(node);
        } else if (!consumer->is_slow_told && qsi_consumer_is_slow(consumer)) {
            consumer->is_slow_told = true;
            return consumer;
        }
    }
    return NULL;
}

static bool report_one_slow(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_consumer *consumer = find_slow(store);
    struct qsi_chunk *names;

    QS_ASSERT_HELD(&store->mutex);
    if (consumer == NULL) {
        return false;
    }
    names = qsi_chunk_ref(consumer->names); /* it may end while it is reported */
    report(store, QS_NOTE_WARNING,
           "consumer '%.*s' of queue '%.*s' is slow: it holds the %u messages that its prefetch "
           "allows, and acknowledged none while the queue grew by %u",
           QSI_NAME(consumer->tag), QSI_NAME(consumer->queue_name), consumer->prefetch,
           consumer->prefetch);
    qsi_chunk_unref(names);
    return true;
}

static void report_slow(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    while (store->options.note != NULL && report_one_slow(store)) {
    }
}

/* ---- what the open found ---- */

static void report_ignored(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (store->recovery.ignored_arguments > 0 && !store->watch.are_ignored_told) {
        qs_error first = store->recovery.first_ignored;
        store->watch.are_ignored_told = true;
        report(store, QS_NOTE_WARNING,
               "arguments of queues and bindings that make no sense to this build are ignored, "
               "%llu in all; the first: %s",
               (unsigned long long)store->recovery.ignored_arguments, first.text);
    }
}

/* ---- checkpoints and failure ---- */

void qsi_watch_checkpoint_end(struct qs_store *store, uint64_t began_ns)
{
    struct qsi_watch *watch = &store->watch;

    QS_ASSERT_HELD(&store->mutex);
    watch->checkpoint.number = store->checkpoint.number;
    watch->checkpoint.lsn = store->checkpoint.lsn;
    watch->checkpoint.bytes = store->space.named_bytes;
    watch->checkpoint.took_ns = store->env->monotonic_ns(store->env) - began_ns;
    watch->checkpoint.is_told = false;
    qsi_watch_wake(store);
}

static void report_checkpoint(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_watch *watch = &store->watch;

    if (watch->checkpoint.number != 0 && !watch->checkpoint.is_told) {
        watch->checkpoint.is_told = true;
        report(store, QS_NOTE_DEBUG, "checkpoint %llu, up to LSN %llu: %llu bytes, in %llu ms",
               (unsigned long long)watch->checkpoint.number,
               (unsigned long long)watch->checkpoint.lsn,
               (unsigned long long)watch->checkpoint.bytes,
               (unsigned long long)(watch->checkpoint.took_ns / NS_PER_MS));
    }
}

static void report_held(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (store->checkpoint.is_held_up && !store->watch.is_held_told) {
        qs_error held_by = store->checkpoint.held_by;
        store->watch.is_held_told = true;
        report(store, QS_NOTE_WARNING, "no checkpoint can be made, so the journal grows: %s",
               held_by.text);
    }
    if (!store->checkpoint.is_held_up && store->watch.is_held_told) {
        store->watch.is_held_told = false;
        report(store, QS_NOTE_INFO, "checkpoints can be made again");
    }
}

static void report_failure(struct qs_store *store) QSI_REQUIRES(qsi_store_mutex)
{
    if (store->failed && !store->watch.is_failure_told) {
        qs_error failure = store->failure;
        store->watch.is_failure_told = true;
        report(store, QS_NOTE_ERROR, "the store has failed, and must be opened again: %s",
               failure.text);
    }
}

/* ---- all of it ---- */

void qsi_watch_report(struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    report_ignored(store);
    report_failure(store);
    report_stall(store);
    report_jump(store);
    report_space(store);
    report_held(store);
    report_slow(store);
    report_checkpoint(store);
}

uint64_t qsi_watch_again_us(const struct qs_store *store)
{
    uint64_t running_ns = qsi_commit_running_ns(store);

    QS_ASSERT_HELD(&store->mutex);
    if ((store->watch.is_full_told && !store->watch.is_full) ||
        !qsi_list_is_empty(&store->events.listeners)) {
        return EASE_NS / NS_PER_US;
    }
    return running_ns > 0 && running_ns < STALL_NS && STALL_NS - running_ns < WATCH_US * NS_PER_US
               ? (STALL_NS - running_ns) / NS_PER_US + 1
               : WATCH_US;
}
