/* Draining the removal list: its messages are dropped, or go to their queue's dead letters. */
#include "check.h"
#include "clock.h"
#include "queue_life.h"
#include "removals.h"
#include "settle.h"
#include "wake.h"

#define DEAD_LETTERS_AT_ONCE 256 /* that a caller removes; the timer goes on */

/* May release the lock, unless the caller must not wait: QS_EWOULDBLOCK then.  After a failure the
 * messages stay reserved, and leave with a later try. */
static qs_status drop(struct qs_store *store, const struct qsi_removal *removal, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *internal_channel = store->removals.internal_channel;

    QS_DCHECK(store->removals.is_busy && removal->first_tag <= removal->last_tag);
    if (removal->reason == QSI_EXPIRED) {
        /* Not journalled: after a restart it has expired as well. */
        qsi_settle_into(internal_channel, removal->first_tag, removal->last_tag, QSI_SETTLE_ACK, 0,
                        NULL);
        return QS_OK;
    }
    return qsi_settle_with_room(internal_channel, removal->first_tag, removal->last_tag,
                                QSI_SETTLE_ACK, wait, NULL);
}

/* The first tags of the removal with one outcome: all of their queues have dead letters, or none
 * has.  At most so many dead letters. */
static struct qsi_removal first_fate(struct qs_store *store, const struct qsi_removal *removal,
                                     uint64_t dead_letters_max, bool *dead_letters_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_unacked *unacked = &store->removals.internal_channel->unacked;
    struct qsi_removal first = *removal;
    bool known = false;

    QS_DCHECK(removal->first_tag <= removal->last_tag && dead_letters_max > 0);
    *dead_letters_out = false;
    for (uint64_t tag = removal->first_tag; tag <= removal->last_tag;) {
        const struct qsi_extent *extent;
        bool dead_letters;
        /* Tags between may be gone, with their queue. */
        if (!qsi_unacked_next(unacked, tag, &tag) || tag > removal->last_tag ||
            (*dead_letters_out && tag - first.first_tag >= dead_letters_max)) {
            break;
        }
        extent = qsi_unacked_find(unacked, tag);
        dead_letters = qsi_has_dead_letters(qsi_queue_of_container(extent->container));
        if (known && dead_letters != *dead_letters_out) {
            first.last_tag = extent->first_tag > first.first_tag ? extent->first_tag - 1 : tag - 1;
            break;
        }
        *dead_letters_out = dead_letters;
        known = true;
        tag = extent->first_tag + extent->count;
    }
    if (*dead_letters_out && first.last_tag - first.first_tag >= dead_letters_max) {
        first.last_tag = first.first_tag + dead_letters_max - 1;
    }
    QS_ASSERT(first.first_tag <= first.last_tag && first.last_tag <= removal->last_tag);
    return first;
}

/* May release the lock, unless the caller must not wait: QS_EWOULDBLOCK then, and nothing has left.
 * Nor has it after QS_ENOMEM: there was no memory to note the messages that could not leave. */
static qs_status leave(struct qs_store *store, const struct qsi_removal *removal, bool dead_letters,
                       enum qsi_wait wait) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_buf *stuck = &store->removals.stuck;
    size_t before = stuck->bytes;
    qs_status status;
    uint8_t *room;

    QS_DCHECK(store->removals.is_busy);
    QS_TRY(qsi_buf_reserve(stuck, sizeof *removal, &room));
    status = dead_letters ? qsi_dead_letter(store, removal, stuck, wait, NULL)
                          : drop(store, removal, wait);
    if (status != QS_OK) {
        stuck->bytes = before; /* its remaining messages are among those that are tried again */
    }
    if (status == QS_EWOULDBLOCK) {
        return status;
    }
    if (status != QS_OK && qsi_buf_append(stuck, removal, sizeof *removal) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
    QS_DCHECK(stuck->bytes >= before && stuck->bytes % sizeof *removal == 0);
    if (stuck->bytes > 0) { /* to be tried again in a while */
        qsi_wake_timer(store);
    }
    return QS_OK;
}

/* May release the lock.  Removes the first messages of the list, up to *dead_letters_left_io dead
 * letters, which are counted; failures are kept for a later try.  False: the rest is the
 * timer's. */
static bool drain_first(struct qs_store *store, uint64_t *dead_letters_left_io, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_removals *removals = &store->removals;
    size_t at = removals->leaving_at;
    struct qsi_removal *next = (struct qsi_removal *)(void *)(removals->leaving.data + at);
    uint64_t dead_letters_max = *dead_letters_left_io > 0 ? *dead_letters_left_io : 1;
    bool dead_letters;
    struct qsi_removal first = first_fate(store, next, dead_letters_max, &dead_letters);

    QS_ASSERT(at + sizeof *next <= removals->leaving.bytes);
    if (dead_letters && *dead_letters_left_io == 0) {
        return false;
    }
    next->first_tag = first.last_tag + 1;
    removals->leaving_at += next->first_tag > next->last_tag ? sizeof *next : 0;
    if (leave(store, &first, dead_letters, wait) != QS_OK) { /* the lock was not released */
        next->first_tag = first.first_tag;
        removals->leaving_at = at;
        return false;
    }
    QS_DCHECK(!dead_letters || *dead_letters_left_io >= first.last_tag + 1 - first.first_tag);
    *dead_letters_left_io -= dead_letters ? first.last_tag + 1 - first.first_tag : 0;
    return true;
}

void qsi_retry_stuck(struct qs_store *store)
{
    struct qsi_removals *removals = &store->removals;
    struct qsi_buf *stuck = &removals->stuck, *leaving = &removals->leaving;

    QS_DCHECK(removals->leaving_at <= removals->leaving.bytes);
    removals->tried_at_us = qsi_clock_us(store);
    if (stuck->bytes == 0 || qsi_buf_append(stuck, leaving->data + removals->leaving_at,
                                            leaving->bytes - removals->leaving_at) != QS_OK) {
        return;
    }
    qsi_buf_fini(leaving);
    *leaving = *stuck;
    removals->leaving_at = 0;
    *stuck = (struct qsi_buf){NULL};
}

bool qsi_has_leaving(const struct qsi_removals *removals)
{
    return removals->leaving_at < removals->leaving.bytes || removals->fresh.bytes > 0 ||
           !qsi_list_is_empty(&removals->trimming);
}

bool qsi_is_retry_due(const struct qs_store *store)
{
    QS_ASSERT_HELD(&store->mutex);
    return store->removals.stuck.bytes > 0 &&
           qsi_clock_us(store) - store->removals.tried_at_us >= QSI_RETRY_US;
}

/* How many dead letters the caller moves: a few if the timer can move the others, none if the
 * caller must not wait. */
static uint64_t dead_letters_of_caller(const struct qs_store *store, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    return !store->removals.has_timer  ? UINT64_MAX
           : wait == QSI_MUST_NOT_WAIT ? 0
                                       : DEAD_LETTERS_AT_ONCE;
}

/* May release the lock.  False: nothing is left, or the rest is the timer's. */
static bool drain_next(struct qs_store *store, uint64_t *dead_letters_left_io, enum qsi_wait wait)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_removals *removals = &store->removals;

    qsi_trim(store, wait);
    if (removals->leaving_at == removals->leaving.bytes) {
        qsi_buf_fini(&removals->leaving);
        removals->leaving = removals->fresh;
        removals->leaving_at = 0;
        removals->fresh = (struct qsi_buf){NULL};
    }
    QS_DCHECK(removals->leaving_at <= removals->leaving.bytes);
    return removals->leaving_at < removals->leaving.bytes &&
           drain_first(store, dead_letters_left_io, wait);
}

void qsi_drain_removals(struct qs_store *store, enum qsi_wait wait)
{
    struct qsi_removals *removals = &store->removals;
    uint64_t dead_letters_left = dead_letters_of_caller(store, wait);

    QS_ASSERT_HELD(&store->mutex);
    if (store->failed) {
        return;
    }
    if (removals->is_busy) {
        qsi_trim(store, wait); /* so that no consumer gets a message above the limit */
    }
    if (removals->is_busy) {
        return; /* the thread that drains handles the rest */
    }
    removals->is_busy = true;
    if (qsi_is_retry_due(store)) {
        qsi_retry_stuck(store);
    }
    while (drain_next(store, &dead_letters_left, wait)) {
    }
    QS_ASSERT(removals->is_busy);
    removals->is_busy = false;
    qsi_cond_broadcast(&removals->quiet);
    if (qsi_has_leaving(removals)) {
        qsi_wake_timer(store);
    }
}
