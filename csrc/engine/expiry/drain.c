/* Draining the removal list: what is on it is dropped, or goes to its queue's dead letters. */
#include "check.h"
#include "clock.h"
#include "departures.h"
#include "error.h"
#include "queue_life.h"
#include "settle.h"
#include "wake.h"

#define LETTERS_AT_ONCE 256 /* that a caller sees off on his way out; the timer goes on */

/* May release the lock, unless the caller must not wait: QS_EWOULDBLOCK then.  After a failure
 * the messages stay held, and go with a later try. */
static qs_status drop(struct qs_store *store, const struct departure *departure)
{
    struct qs_channel *holder = store->departures.holder;

    if (departure->reason == QSI_EXPIRED) {
        /* Not journalled: after a restart it has expired as well. */
        qsi_settle_into(holder, departure->first_tag, departure->last_tag, QSI_SETTLE_ACK, 0, NULL);
        return QS_OK;
    }
    return qsi_settle_with_room(holder, departure->first_tag, departure->last_tag, QSI_SETTLE_ACK,
                                NULL);
}

/* The first tags of the departure whose queue has dead letters as the first one's has: the same fate.  Of letters so many at most. */
static struct departure first_fate(struct qs_store *store, const struct departure *departure,
                                   uint64_t letters_max, bool *dead_letters_out)
{
    const struct qsi_unacked *unacked = &store->departures.holder->unacked;
    struct departure first = *departure;
    bool known = false;

    *dead_letters_out = false;
    for (uint64_t tag = departure->first_tag; tag <= departure->last_tag;) {
        const struct qsi_extent *extent;
        bool dead_letters;
        /* Tags between may be gone, with their queue. */
        if (!qsi_unacked_next(unacked, tag, &tag) || tag > departure->last_tag ||
            (*dead_letters_out && tag - first.first_tag >= letters_max)) {
            break;
        }
        extent = qsi_unacked_find(unacked, tag);
        dead_letters = qsi_has_dead_letters(qsi_queue_of_core(extent->queue));
        if (known && dead_letters != *dead_letters_out) {
            first.last_tag = extent->first_tag > first.first_tag ? extent->first_tag - 1 : tag - 1;
            break;
        }
        *dead_letters_out = dead_letters;
        known = true;
        tag = extent->first_tag + extent->count;
    }
    if (*dead_letters_out && first.last_tag - first.first_tag >= letters_max) {
        first.last_tag = first.first_tag + letters_max - 1;
    }
    return first;
}

/* May release the lock, unless the caller must not wait: QS_EWOULDBLOCK then, and nothing has
 * left.  Nor has it after QS_ENOMEM: there was none to note what could not leave. */
static qs_status leave(struct qs_store *store, const struct departure *departure, bool dead_letters)
{
    struct qsi_buf *stuck = &store->departures.stuck;
    size_t before = stuck->bytes;
    qs_status status;
    uint8_t *room;

    QS_TRY(qsi_buf_reserve(stuck, sizeof *departure, &room));
    status = dead_letters ? qsi_dead_letter(store, departure, stuck, NULL) : drop(store, departure);
    if (status != QS_OK) {
        stuck->bytes = before; /* those of it that stayed are among all that are tried again */
    }
    if (status == QS_EWOULDBLOCK) {
        return status;
    }
    if (status != QS_OK && qsi_buf_append(stuck, departure, sizeof *departure) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
    if (stuck->bytes > 0) { /* to be tried again in a while */
        qsi_wake_timer(store);
    }
    return QS_OK;
}

/* May release the lock.  The first of what is leaving, up to *letters_left_io dead letters of
 * it, which are counted; whatever fails is kept for a later try.  False: the rest is the
 * timer's. */
static bool see_off_first(struct qs_store *store, uint64_t *letters_left_io)
{
    struct departures *departures = &store->departures;
    size_t at = departures->leaving_at;
    struct departure *next = (struct departure *)(void *)(departures->leaving.data + at);
    uint64_t letters_max = *letters_left_io > 0 ? *letters_left_io : 1;
    bool dead_letters;
    struct departure first = first_fate(store, next, letters_max, &dead_letters);

    if (dead_letters && *letters_left_io == 0) {
        return false;
    }
    next->first_tag = first.last_tag + 1;
    departures->leaving_at += next->first_tag > next->last_tag ? sizeof *next : 0;
    if (leave(store, &first, dead_letters) != QS_OK) { /* the lock was not released */
        next->first_tag = first.first_tag;
        departures->leaving_at = at;
        return false;
    }
    *letters_left_io -= dead_letters ? first.last_tag + 1 - first.first_tag : 0;
    return true;
}

void qsi_retry_stuck(struct qs_store *store)
{
    struct departures *departures = &store->departures;
    struct qsi_buf *stuck = &departures->stuck, *leaving = &departures->leaving;

    departures->tried_at_us = qsi_clock_us(store);
    if (stuck->bytes == 0 || qsi_buf_append(stuck, leaving->data + departures->leaving_at,
                                            leaving->bytes - departures->leaving_at) != QS_OK) {
        return;
    }
    qsi_buf_fini(leaving);
    *leaving = *stuck;
    departures->leaving_at = 0;
    *stuck = (struct qsi_buf){NULL};
}

bool qsi_is_anybody_leaving(const struct departures *departures)
{
    return departures->leaving_at < departures->leaving.bytes || departures->fresh.bytes > 0 ||
           !qsi_list_is_empty(&departures->trimming);
}

bool qsi_is_retry_due(const struct qs_store *store)
{
    return store->departures.stuck.bytes > 0 &&
           qsi_clock_us(store) - store->departures.tried_at_us >= QSI_RETRY_US;
}

/* How many dead letters the caller moves: a few where the timer can go on with the others, none
 * where the caller must not wait. */
static uint64_t letters_of_caller(const struct qs_store *store)
{
    return !store->departures.has_timer ? UINT64_MAX : store->must_not_wait ? 0 : LETTERS_AT_ONCE;
}

/* May release the lock.  False: nothing is left, or the rest is the timer's. */
static bool see_off_next(struct qs_store *store, uint64_t *letters_left_io)
{
    struct departures *departures = &store->departures;

    qsi_trim(store);
    if (departures->leaving_at == departures->leaving.bytes) {
        qsi_buf_fini(&departures->leaving);
        departures->leaving = departures->fresh;
        departures->leaving_at = 0;
        departures->fresh = (struct qsi_buf){NULL};
    }
    return departures->leaving_at < departures->leaving.bytes &&
           see_off_first(store, letters_left_io);
}

void qsi_see_off(struct qs_store *store)
{
    struct departures *departures = &store->departures;
    uint64_t letters_left = letters_of_caller(store);

    if (store->failed) {
        return;
    }
    if (departures->is_busy) {
        qsi_trim(store); /* so that nobody is given what is too much */
    }
    if (departures->is_busy) {
        return; /* whoever is at it sees to the rest */
    }
    departures->is_busy = true;
    if (qsi_is_retry_due(store)) {
        qsi_retry_stuck(store);
    }
    while (see_off_next(store, &letters_left)) {
    }
    departures->is_busy = false;
    qsi_cond_broadcast(&departures->quiet);
    if (qsi_is_anybody_leaving(departures)) {
        qsi_wake_timer(store);
    }
}
