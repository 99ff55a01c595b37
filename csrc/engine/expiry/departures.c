/* Who leaves, and when: limits, expiry, and the thread that keeps the time. */
#include "departures.h"

#include "alloc.h"
#include "bell.h"
#include "check.h"
#include "deliveries.h"
#include "error.h"
#include "pager.h"

#include <string.h>

#define NS_PER_US UINT64_C(1000)
#define RETRY_US QSI_US_PER_S /* what could not leave is tried again */
#define DUE_AT_ONCE 16384     /* messages that become ready in one hold of the lock */
#define LETTERS_AT_ONCE 256   /* that a caller sees off on his way out; the timer goes on */
#define TIMER_NAP_NS 50000u   /* between as many, so that others get the lock */

static uint64_t now_us(const struct qs_store *store)
{
    return qsi_clock_us(store);
}

/* The timer is to look again. */
static void stir(struct departures *departures)
{
    departures->is_stirred = true;
    qsi_cond_signal(&departures->due);
}

void qsi_departures_look_again(struct qs_store *store)
{
    stir(&store->departures);
}

/* ---- holding ---- */

qs_status qsi_depart_reserve(struct qs_store *store, uint32_t stretch_count)
{
    struct departures *departures = &store->departures;
    uint8_t *room;

    QS_TRY(qsi_unacked_reserve(&departures->holder->unacked, stretch_count));
    return qsi_buf_reserve(&departures->fresh, stretch_count * sizeof(struct departure), &room);
}

void qsi_depart(struct qs_store *store, struct store_queue *queue,
                const struct qsi_stretch *stretch, enum qsi_reason reason)
{
    struct departures *departures = &store->departures;
    struct departure departure = {.reason = reason};
    struct departure *last = NULL;

    departure.first_tag =
        qsi_unacked_add(&departures->holder->unacked, &queue->core, stretch, NULL);
    departure.last_tag = departure.first_tag + stretch->count - 1;
    if (departures->fresh.bytes > 0) {
        last = (struct departure *)(void *)(departures->fresh.data + departures->fresh.bytes) - 1;
    }
    if (last != NULL && last->reason == reason && last->last_tag + 1 == departure.first_tag) {
        last->last_tag = departure.last_tag;
    } else if (qsi_buf_append(&departures->fresh, &departure, sizeof departure) != QS_OK) {
        QS_ASSERT(false); /* room was reserved */
    }
}

/* ---- limits ---- */

static bool is_too_much(const struct store_queue *queue, uint64_t ready, uint64_t body_bytes)
{
    return ready > queue->policy.messages_max ||
           (queue->core.counts_bytes && body_bytes > queue->policy.body_bytes_max);
}

static bool is_over(const struct store_queue *queue)
{
    return (queue->policy.messages_max != QSI_UNLIMITED || queue->core.counts_bytes) &&
           is_too_much(queue, qsi_ready_count(queue), qsi_ready_bytes(queue));
}

/* When the queue goes, if nobody uses it. */
static uint64_t idle_end_us(const struct store_queue *queue)
{
    return queue->policy.expires_ms == QSI_UNLIMITED || queue->consumer_count > 0
               ? QSI_NEVER
               : queue->used_at_us + queue->policy.expires_ms * QSI_US_PER_MS;
}

/* Wakes the timer if it sleeps for too long. */
static void note_time(struct qs_store *store, struct store_queue *queue, uint64_t earliest)
{
    if (qsi_list_is_empty(&queue->in_timed)) {
        qsi_list_push_back(&store->departures.timed, &queue->in_timed);
    }
    if (earliest < store->departures.wakes_at_us ||
        idle_end_us(queue) < store->departures.wakes_at_us) {
        stir(&store->departures);
    }
}

void qsi_note_growth(struct qs_store *store, struct store_queue *level)
{
    struct store_queue *queue = qsi_owner_of(level);

    if (queue->policy.overflow == QSI_DROP_HEAD && is_over(queue) &&
        qsi_list_is_empty(&queue->in_trimming)) {
        qsi_list_push_back(&store->departures.trimming, &queue->in_trimming);
    }
    if (level->core.earliest != QSI_NEVER) {
        note_time(store, queue, level->core.earliest);
    }
}

uint32_t qsi_refused_count(struct store_queue *level, uint64_t first_seq, uint32_t count)
{
    const struct qsi_queue *core = &level->core;
    const struct store_queue *queue = qsi_owner_of(level);
    uint64_t ready = qsi_ready_count(queue), bytes = qsi_ready_bytes(queue);
    uint32_t refused = 0;

    while (refused < count && is_too_much(queue, ready, bytes)) {
        refused += 1;
        ready -= 1;
        bytes -= core->counts_bytes ? qsi_queue_body_bytes(core, first_seq + count - refused) : 0;
    }
    return refused;
}

/* What would be delivered next and can be read: the segment, and the level that it is of.  NULL:
 * there is nothing. */
static struct qsi_segment *find_head(struct store_queue *queue, struct store_queue **level_out,
                                     struct qsi_passed *passed_out)
{
    struct qsi_segment *head = NULL;

    *passed_out = (struct qsi_passed){0};
    for (uint32_t i = 0; head == NULL && i < qsi_level_count(queue); i++) {
        *level_out = qsi_level_at(queue, i);
        head = qsi_queue_readable_head(&(*level_out)->core, passed_out);
    }
    return head;
}

/* May release the lock.  If the state cannot be read the segment is damaged, which says enough. */
static qs_status bring_state(struct qs_store *store, struct store_queue *level,
                             struct qsi_segment *segment)
{
    struct qsi_page_in job;
    qs_status status;

    QS_TRY(qsi_check_may_wait(store));
    if (segment->busy > 0) {
        return qsi_pager_wait(store, level);
    }
    QS_TRY(qsi_page_in_state(&job, segment));
    status = qsi_pager_run_page_in(store, level, &job, NULL);
    return status == QS_ECORRUPT || status == QS_EIO ? QS_OK : status;
}

/* The head leaves, which is what would be delivered next, until the others are not too many.  What
 * cannot be read neither counts nor leaves: whoever comes for it learns why. */
static qs_status trim(struct qs_store *store, struct store_queue *queue)
{
    while (!queue->deleted && is_over(queue)) {
        struct store_queue *level;
        struct qsi_passed passed;
        struct qsi_segment *head = find_head(queue, &level, &passed);
        uint64_t ready = qsi_ready_count(queue) - passed.messages;
        uint64_t bytes = qsi_ready_bytes(queue), max = queue->policy.messages_max;
        uint64_t excess = ready > max ? ready - max : 1;
        struct qsi_stretch stretch;
        bytes -= passed.body_bytes < bytes ? passed.body_bytes : bytes;
        if (head == NULL || !is_too_much(queue, ready, bytes)) {
            break;
        }
        QS_TRY(qsi_depart_reserve(store, 1));
        if (qsi_queue_hold_in(&level->core, head,
                              excess < QSI_WORD_BITS ? (uint32_t)excess : QSI_WORD_BITS,
                              &stretch) == QSI_TAKE_TAKEN) {
            qsi_depart(store, level, &stretch, QSI_MAXLEN);
        } else {
            QS_TRY(bring_state(store, level, head));
        }
    }
    return QS_OK;
}

/* May release the lock, unless the caller must not wait: then a queue whose head is on the disk
 * stays for the timer.  So does one for which memory or descriptors do not suffice. */
void qsi_trim(struct qs_store *store)
{
    struct departures *departures = &store->departures;
    struct qsi_list later;

    qsi_list_init(&later);
    while (!qsi_list_is_empty(&departures->trimming)) {
        struct store_queue *queue =
            QSI_LIST_OWNER(departures->trimming.next, struct store_queue, in_trimming);
        qs_status status;
        qsi_list_remove(&queue->in_trimming);
        queue->jobs += 1;
        status = trim(store, queue);
        queue->jobs -= 1;
        if (!queue->deleted && qsi_list_is_empty(&queue->in_trimming) &&
            (status == QS_EWOULDBLOCK || qsi_is_shortage(status))) {
            qsi_list_push_back(&later, &queue->in_trimming);
        }
        qsi_free_queue_if_done(queue);
    }
    while (!qsi_list_is_empty(&later)) {
        struct qsi_list *node = later.next;
        qsi_list_remove(node);
        qsi_list_push_back(&departures->trimming, node);
    }
}

/* ---- expiry ---- */

/* Messages of the level have become ready. */
static void tell_ready(struct qs_store *store, struct store_queue *queue)
{
    qsi_note_growth(store, queue);
    qsi_ring_consumers(store, qsi_owner_of(queue));
    qsi_events_announce(store);
}

/* Of one level: what is due is ready. */
static void release_due(struct qs_store *store, struct store_queue *queue,
                        struct qsi_segment **lacks_state_out)
{
    if (qsi_queue_release_due(&queue->core, now_us(store), DUE_AT_ONCE, lacks_state_out) > 0) {
        tell_ready(store, queue);
    }
}

/* Of one level: what is due is ready, and what has expired departs.  *lacks_state_out: a segment whose state is wanted, if one is.  What
 * has no dead letters ends at once, and is not journalled: after a restart it has expired as well.  Who only reads moves none. */
static qs_status expire(struct qs_store *store, struct store_queue *queue,
                        struct qsi_segment **lacks_state_out)
{
    bool dead_letters = qsi_has_dead_letters(queue) && !store->options.read_only;
    struct qsi_expiry_walk walk = {.now_us = now_us(store)};
    struct qsi_stretch stretch;

    *lacks_state_out = NULL;
    if (queue->core.earliest > walk.now_us) {
        return QS_OK;
    }
    release_due(store, queue, lacks_state_out);
    for (;;) {
        if (dead_letters) {
            QS_TRY(qsi_depart_reserve(store, 1));
        }
        if (!qsi_queue_hold_expired(&queue->core, &walk, &stretch)) {
            break;
        }
        store->stats.expired += stretch.count;
        if (dead_letters) {
            qsi_depart(store, queue, &stretch, QSI_EXPIRED);
        } else {
            qsi_queue_settle(&queue->core, stretch.segment, stretch.slot / QSI_WORD_BITS,
                             qsi_stretch_mask(&stretch));
        }
    }
    *lacks_state_out = *lacks_state_out == NULL ? walk.lacks_state : *lacks_state_out;
    return QS_OK;
}

/* Delayed messages of the segment, of which some are due, count as ready until its state is read. */
static void count_unread(struct qs_store *store, struct store_queue *level,
                         struct qsi_segment *segment)
{
    if (segment->delayed_count > 0 && segment->earliest_due <= now_us(store)) {
        qsi_queue_release_unread(&level->core, segment);
        tell_ready(store, level);
    }
}

qs_status qsi_expire_now(struct qs_store *store, struct store_queue *queue, qs_error *error)
{
    qs_status status = QS_OK;

    if (qsi_earliest(queue) > now_us(store)) {
        return QS_OK;
    }
    for (uint32_t i = 0; i < qsi_level_count(queue) && status == QS_OK; i++) {
        struct store_queue *level = qsi_level_at(queue, i);
        struct qsi_segment *lacks_state;
        status = expire(store, level, &lacks_state);
        if (status == QS_OK && lacks_state != NULL && !store->timer_running) {
            /* Nobody else reads its state: who comes for its messages does. */
            count_unread(store, level, lacks_state);
        }
    }
    qsi_tell_earliest(queue);
    return status == QS_OK ? QS_OK : qsi_fail(error, status, "expired messages");
}

/* Nothing is known of when its messages expire: never, if it is damaged, and looked at again in a while if not. */
static void put_off(struct qs_store *store, struct store_queue *queue, struct qsi_segment *segment)
{
    uint64_t later_us = now_us(store) + RETRY_US;

    segment->earliest = segment->is_damaged ? QSI_NEVER : later_us;
    if (segment->delayed_count > 0 && segment->is_damaged) {
        qsi_queue_release_unread(&queue->core, segment); /* whoever comes for them is told */
        tell_ready(store, queue);
    } else if (segment->earliest_due < later_us) {
        segment->earliest_due = later_us;
    }
}

/* Releases the lock.  Reads a state from the disk. */
static void load_state(struct qs_store *store, struct store_queue *queue,
                       struct qsi_segment *segment)
{
    uint64_t number = segment->number;
    struct qsi_page_in job;

    if (segment->is_damaged || qsi_page_in_state(&job, segment) != QS_OK) {
        put_off(store, queue, segment);
        return;
    }
    if (qsi_pager_run_page_in(store, queue, &job, NULL) == QS_OK) {
        if (!queue->deleted) {
            tell_ready(store, queue); /* more may be than anybody knew */
        }
        return;
    }
    segment = qsi_queue_find_segment(&queue->core, number); /* it may be gone meanwhile */
    if (segment != NULL && segment->settled == NULL) {
        put_off(store, queue, segment);
    }
}

/* May release the lock.  waits: for others who are about to bring a state; else the timer comes
 * again. */
static void expire_level(struct qs_store *store, struct store_queue *queue, bool waits)
{
    struct qsi_segment *lacks_state;
    qs_status status = expire(store, queue, &lacks_state); /* if it fails, the timer comes again */
    uint64_t before = 0;

    queue->jobs += 1;
    while (status == QS_OK && lacks_state != NULL && lacks_state->number + 1 > before &&
           !queue->deleted && (waits || lacks_state->busy == 0)) {
        if (lacks_state->busy > 0) {
            (void)!qsi_pager_wait(store, queue);
        } else {
            before = lacks_state->number + 1;
            load_state(store, queue, lacks_state);
        }
        if (queue->deleted) {
            break;
        }
        status = expire(store, queue, &lacks_state);
    }
    queue->jobs -= 1;
    qsi_free_queue_if_done(queue);
}

/* May release the lock: levels may come meanwhile, and all may go.  REQUIRES a job of the queue. */
static void expire_all(struct qs_store *store, struct store_queue *queue, bool waits)
{
    for (uint32_t i = 0; !queue->deleted && i < qsi_level_count(queue); i++) {
        expire_level(store, qsi_level_at(queue, i), waits);
    }
    qsi_tell_earliest(queue);
}

void qsi_expire_to_tell(struct qs_store *store, struct store_queue *queue)
{
    if (qsi_earliest(queue) > now_us(store)) {
        return;
    }
    queue->jobs += 1;
    expire_all(store, queue, true);
    queue->jobs -= 1;
    if (store->departures.fresh.bytes > 0) { /* dead letters */
        stir(&store->departures);
    }
    qsi_free_queue_if_done(queue);
}

/* ---- queues that go when nobody uses them ---- */

void qsi_note_use(struct qs_store *store, struct store_queue *queue)
{
    if (queue->policy.expires_ms != QSI_UNLIMITED) {
        queue->used_at_us = now_us(store);
        note_time(store, queue, QSI_NEVER);
    }
}

/* ---- seeing off ---- */

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
        stir(&store->departures);
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

/* What found no way out tries again, before what came later.  REQUIRES that nobody sees off: its list must not change then. */
static void retry_stuck(struct qs_store *store)
{
    struct departures *departures = &store->departures;
    struct qsi_buf *stuck = &departures->stuck, *leaving = &departures->leaving;

    departures->tried_at_us = now_us(store);
    if (stuck->bytes == 0 || qsi_buf_append(stuck, leaving->data + departures->leaving_at,
                                            leaving->bytes - departures->leaving_at) != QS_OK) {
        return;
    }
    qsi_buf_fini(leaving);
    *leaving = *stuck;
    departures->leaving_at = 0;
    *stuck = (struct qsi_buf){NULL};
}

static bool is_anybody_leaving(const struct departures *departures)
{
    return departures->leaving_at < departures->leaving.bytes || departures->fresh.bytes > 0 ||
           !qsi_list_is_empty(&departures->trimming);
}

static bool is_retry_due(const struct qs_store *store)
{
    return store->departures.stuck.bytes > 0 &&
           now_us(store) - store->departures.tried_at_us >= RETRY_US;
}

/* How many dead letters the caller moves: a few where the timer can go on with the others, none
 * where the caller must not wait. */
static uint64_t letters_of_caller(const struct qs_store *store)
{
    return !store->timer_running ? UINT64_MAX : store->must_not_wait ? 0 : LETTERS_AT_ONCE;
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
    if (is_retry_due(store)) {
        retry_stuck(store);
    }
    while (see_off_next(store, &letters_left)) {
    }
    departures->is_busy = false;
    qsi_cond_broadcast(&departures->quiet);
    if (is_anybody_leaving(departures)) {
        stir(departures);
    }
}

/* ---- the timer ---- */

/* May release the lock.  Returns when to come again. */
static uint64_t keep_time(struct qs_store *store)
{
    struct departures *departures = &store->departures;
    uint64_t now = now_us(store), next = QSI_NEVER;
    struct qsi_list due;

    /* Queues may come and go while the lock is released: each is taken from a list of its own. */
    qsi_list_init(&due);
    while (!qsi_list_is_empty(&departures->timed)) {
        struct qsi_list *node = departures->timed.next;
        qsi_list_remove(node);
        qsi_list_push_back(&due, node);
    }
    while (!qsi_list_is_empty(&due)) {
        struct store_queue *queue = QSI_LIST_OWNER(due.next, struct store_queue, in_timed);
        uint64_t earliest;
        qsi_list_remove(&queue->in_timed);
        if (idle_end_us(queue) <= now) {
            qsi_delete_queue_now(store, queue);
            continue;
        }
        qsi_list_push_back(&departures->timed, &queue->in_timed);
        if (qsi_earliest(queue) <= now) {
            queue->jobs += 1;
            expire_all(store, queue, false);
            queue->jobs -= 1;
            if (queue->deleted) {
                qsi_free_queue_if_done(queue);
                continue;
            }
        }
        earliest = qsi_earliest(queue);
        next = earliest < next ? earliest : next;
        next = idle_end_us(queue) < next ? idle_end_us(queue) : next;
        if (earliest == QSI_NEVER && queue->policy.expires_ms == QSI_UNLIMITED) {
            qsi_list_remove(&queue->in_timed);
        }
    }
    return departures->stuck.bytes > 0 && now + RETRY_US < next ? now + RETRY_US : next;
}

void *qsi_run_timer(void *argument)
{
    struct qs_store *store = argument;
    struct departures *departures = &store->departures;

    qsi_mutex_lock(&store->mutex);
    while (!store->closing) {
        uint64_t now, next, watch_us;
        departures->wakes_at_us = QSI_NEVER;
        departures->is_stirred = false;
        qsi_watch_tell(store);
        next = keep_time(store);
        if ((qsi_has_departures(store) || is_retry_due(store)) && !store->failed &&
            !departures->is_busy) {
            qsi_see_off(store);
            if (is_anybody_leaving(departures)) {
                qsi_cond_wait(&departures->due, &store->mutex, TIMER_NAP_NS);
            }
            continue;
        }
        now = now_us(store);
        if (store->closing || departures->is_stirred) { /* while the lock was released */
            continue;
        }
        departures->wakes_at_us = next;
        watch_us = qsi_watch_again_us(store);
        qsi_cond_wait(&departures->due, &store->mutex,
                      next <= now             ? NS_PER_US * QSI_US_PER_MS
                      : next - now > watch_us ? watch_us * NS_PER_US
                                              : (next - now) * NS_PER_US);
    }
    qsi_watch_tell(store); /* what happened last */
    qsi_mutex_unlock(&store->mutex);
    return NULL;
}

/* ---- the life of it ---- */

qs_status qsi_departures_open(struct qs_store *store, qs_error *error)
{
    struct departures *departures = &store->departures;
    struct qs_channel *holder = qsi_zalloc(sizeof *holder);

    qsi_list_init(&departures->trimming);
    qsi_list_init(&departures->timed);
    if (holder == NULL) {
        return qsi_fail(error, QS_ENOMEM, "store");
    }
    holder->store = store;
    holder->tx_selected = true;
    holder->bell = QSI_NO_BELL;
    qsi_list_init(&holder->in_store);
    qsi_returns_init(holder);
    qsi_list_init(&holder->consumers);
    departures->holder = holder;
    return QS_OK;
}

/* What a queue refused that has dead letters for it, and that found no way out before the store went: the last messages. */
static qs_status hold_excess(struct qs_store *store, struct store_queue *level, qs_error *error)
{
    const struct store_queue *queue = qsi_owner_of(level);
    uint64_t ready = qsi_ready_count(queue), body_bytes = qsi_ready_bytes(queue);
    uint64_t seq = level->core.next_seq;
    struct qsi_stretch stretch;

    QS_TRY(qsi_load_all_states(store, level, error));
    while (is_too_much(queue, ready, body_bytes) && qsi_queue_ready_before(&level->core, &seq)) {
        ready -= 1;
        body_bytes -= queue->core.counts_bytes ? qsi_queue_body_bytes(&level->core, seq) : 0;
    }
    for (;;) {
        if (qsi_depart_reserve(store, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "queue '%.*s'", (int)queue->name.bytes,
                            (const char *)queue->name.data);
        }
        if (!qsi_queue_hold_next(&level->core, &seq, &stretch)) {
            return QS_OK;
        }
        qsi_depart(store, level, &stretch, QSI_MAXLEN);
    }
}

/* REQUIRES all states of all levels in memory, where bytes are counted. */
static qs_status refuse_excess(struct qs_store *store, struct store_queue *queue, qs_error *error)
{
    if (!qsi_queue_passes_on(queue)) {
        return QS_OK;
    }
    for (uint32_t i = qsi_level_count(queue); i-- > 0 && is_over(queue);) {
        QS_TRY(hold_excess(store, qsi_level_at(queue, i), error));
    }
    return QS_OK;
}

qs_status qsi_departures_after_recovery(struct qs_store *store, qs_error *error)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&store->queues_by_id);
    uint64_t now = now_us(store);

    while (qsi_map_next(&store->queues_by_id, &cursor)) {
        struct store_queue *queue = cursor.value;
        queue->used_at_us = now;
        if (queue->core.counts_bytes) {
            QS_TRY(qsi_load_all_states(store, queue, error));
            qsi_queue_recount_bytes(&queue->core);
        }
    }
    cursor = qsi_map_begin(&store->queues_by_id);
    while (qsi_map_next(&store->queues_by_id, &cursor)) { /* with all their levels counted */
        struct store_queue *queue = cursor.value;
        qsi_note_growth(store, queue);
        if (queue->core.counts_deliveries) {
            QS_TRY(qsi_deliveries_hold_worn_out(store, queue, error));
        }
        if (queue->parent == NULL) {
            QS_TRY(refuse_excess(store, queue, error));
        }
        if (queue->policy.expires_ms != QSI_UNLIMITED && queue->parent == NULL) {
            note_time(store, queue, QSI_NEVER);
        }
    }
    return QS_OK;
}

static void unhold_extent(void *context, const struct qsi_extent *extent, uint64_t tags)
{
    struct store_queue *queue = qsi_queue_of_core(extent->queue);

    (void)context;
    if (!queue->deleted) {
        qsi_queue_unhold(extent->queue, extent->segment, qsi_extent_word(extent),
                         qsi_extent_mask(extent, tags));
    } else {
        qsi_queue_settle(extent->queue, extent->segment, qsi_extent_word(extent),
                         qsi_extent_mask(extent, tags));
        qsi_free_queue_if_done(queue);
    }
}

/* What no consumer had goes back as if nobody had: no delivery is counted. */
static void unhold(struct qs_store *store, const struct qsi_buf *departures)
{
    struct qs_channel *holder = store->departures.holder;

    for (size_t at = 0; at < departures->bytes; at += sizeof(struct departure)) {
        const struct departure *departure =
            (const struct departure *)(const void *)(departures->data + at);
        if (departure->reason == QSI_EXPIRED || departure->reason == QSI_MAXLEN) {
            qsi_unacked_take(&holder->unacked, departure->first_tag, departure->last_tag,
                             unhold_extent, NULL);
        }
    }
}

void qsi_departures_shut(struct qs_store *store)
{
    struct qs_channel *holder = store->departures.holder;

    while (store->departures.is_busy) { /* a call that was under way */
        qsi_cond_wait(&store->departures.quiet, &store->mutex, QSI_WAIT_FOREVER);
    }
    retry_stuck(store); /* what was in the way of a rejected message may be gone */
    qsi_see_off(store);
    qsi_tx_drop(holder);
    unhold(store, &store->departures.leaving);
    unhold(store, &store->departures.fresh);
    unhold(store, &store->departures.stuck);
    qsi_settle_tags(holder, 1, holder->unacked.last_tag, QSI_SETTLE_REQUEUE);
    qsi_buf_clear(&store->departures.leaving);
    store->departures.leaving_at = 0;
    qsi_buf_clear(&store->departures.fresh);
    qsi_buf_clear(&store->departures.stuck);
}

void qsi_departures_free(struct qs_store *store)
{
    struct departures *departures = &store->departures;

    if (departures->holder != NULL) {
        qsi_tx_drop(departures->holder);
        qsi_unacked_fini(&departures->holder->unacked);
        qsi_buf_fini(&departures->holder->tx_settles);
        qsi_free(departures->holder);
    }
    qsi_buf_fini(&departures->leaving);
    qsi_buf_fini(&departures->fresh);
    qsi_buf_fini(&departures->stuck);
}
