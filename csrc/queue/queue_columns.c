/* Columns: optional values of each message: its expiry, and the length of its body.  Invariants: a
 * segment has a column from the first message with the value on, and slots before that have never,
 * or 0; no ready message expires before its segment's earliest, nor that before the queue's;
 * ready_bytes is the sum over ready messages, if the queue counts bytes. */
#include "alloc.h"
#include "check.h"
#include "queue_internal.h"
#include "queue_publish.h"
#include "queue_take.h"

#include <string.h>

/* In an expiry: the message expires at once, and has the grace. */
#define GRACED UINT64_C(1)

/* ---- room ---- */

static qs_status cover_expiries(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    size_t bytes = (size_t)segment->word_count * QSI_WORD_BITS * sizeof *segment->expiries;

    QS_DCHECK(segment->settled != NULL);
    if (segment->expiries != NULL) {
        return QS_OK;
    }
    segment->expiries = qsi_alloc(bytes);
    if (segment->expiries == NULL) {
        return QS_ENOMEM;
    }
    memset(segment->expiries, 0xff, bytes);
    qsi_budget_add(queue->shared->budget, bytes);
    return QS_OK;
}

static qs_status cover_sizes(struct qsi_queue *queue, struct qsi_segment *segment)
    QSI_REQUIRES(qsi_store_mutex)
{
    size_t bytes = (size_t)segment->word_count * QSI_WORD_BITS * sizeof *segment->sizes;

    QS_DCHECK(segment->settled != NULL);
    if (segment->sizes != NULL) {
        return QS_OK;
    }
    segment->sizes = qsi_zalloc(bytes);
    if (segment->sizes == NULL) {
        return QS_ENOMEM;
    }
    qsi_budget_add(queue->shared->budget, bytes);
    return QS_OK;
}

static qs_status cover(struct qsi_queue *queue, uint64_t count, bool expiries, bool sizes)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t entries = queue->shared->entries;
    uint64_t last = (queue->container.next_seq + count - 1) / entries;

    for (uint64_t number = queue->container.next_seq / entries; count > 0 && number <= last;
         number++) {
        struct qsi_segment *segment = qsi_queue_find_segment(queue, number);
        if (expiries) {
            QS_TRY(cover_expiries(queue, segment));
        }
        if (sizes) {
            QS_TRY(cover_sizes(queue, segment));
        }
    }
    return QS_OK;
}

qs_status qsi_queue_cover_columns(struct qsi_queue *queue, uint64_t count)
{
    return qsi_queue_wants_columns(queue)
               ? cover(queue, count, queue->ttl_us != QSI_NEVER, queue->counts_bytes)
               : QS_OK;
}

qs_status qsi_queue_reserve_expiries(struct qsi_queue *queue, uint64_t count)
{
    return cover(queue, count, true, false);
}

qs_status qsi_queue_reserve_times(struct qsi_container *container, const uint8_t *record,
                                  uint64_t count)
{
    struct qsi_queue *queue = qsi_as_queue(container);

    if (qsi_messages_has_expiration(record)) {
        QS_TRY(qsi_queue_reserve_expiries(queue, count));
    }
    return qsi_messages_has_due(record) ? qsi_queue_reserve_dues(queue, count) : QS_OK;
}

/* ---- noting ---- */

/* The queue's time to live, or the message's own if that is shorter. */
static uint64_t expiry_of(const struct qsi_queue *queue, const struct qsi_messages *view,
                          uint32_t row) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t own_ms = qsi_messages_expiration(view, row);
    uint64_t ttl_us = queue->ttl_us, due_us, from_us;

    if (own_ms != QSI_NO_EXPIRATION && own_ms * QSI_US_PER_MS < ttl_us) {
        ttl_us = own_ms * QSI_US_PER_MS;
    }
    if (ttl_us == QSI_NEVER) {
        return QSI_NEVER;
    }
    /* The time to live of a delayed message begins when it is due. */
    due_us = qsi_messages_due(view, row);
    from_us = qsi_messages_time(view->record);
    from_us = due_us > from_us ? due_us : from_us;
    return ttl_us >= queue->ttl_least_us ? (from_us + ttl_us) & ~GRACED
                                         : (from_us + queue->ttl_least_us) | GRACED;
}

void qsi_queue_end_grace(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                         uint64_t mask)
{
    for (; segment->expiries != NULL && mask != 0; mask &= mask - 1) {
        uint64_t *expiry = &segment->expiries[(size_t)(word - segment->word_base) * QSI_WORD_BITS +
                                              (uint32_t)__builtin_ctzll(mask)];
        if (*expiry != QSI_NEVER && (*expiry & GRACED) != 0 && *expiry > queue->ttl_least_us) {
            *expiry = (*expiry - queue->ttl_least_us) & ~GRACED;
            qsi_segment_dirty_state(segment);
        }
    }
}

void qsi_queue_update_columns(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t slot,
                              const struct qsi_run *run, uint32_t row, uint32_t count)
{
    uint32_t base = segment->word_base * QSI_WORD_BITS;
    const uint8_t *viewed = NULL;
    struct qsi_messages view;

    QS_DCHECK(row + count <= run->count && slot >= base);
    qsi_segment_dirty_state(segment);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t record_row, at = slot + i - base;
        const uint8_t *record = qsi_run_record(run, row + i, &record_row);
        if (record != viewed) {
            qsi_messages_view(&view, record);
            viewed = record;
        }
        if (segment->expiries != NULL) {
            segment->expiries[at] = expiry_of(queue, &view, record_row);
            segment->earliest = segment->expiries[at] < segment->earliest ? segment->expiries[at]
                                                                          : segment->earliest;
        }
        if (segment->sizes != NULL) {
            segment->sizes[at] = qsi_messages_body_bytes(&view, record_row);
            qsi_queue_more_bytes(queue, segment->sizes[at]);
        }
    }
    qsi_queue_update_earliest(queue, segment->earliest);
}

void qsi_queue_count_columns(struct qsi_queue *queue, const struct qsi_segment *segment)
{
    size_t slots = (size_t)segment->word_count * QSI_WORD_BITS;

    qsi_budget_add(queue->shared->budget,
                   (segment->transient != NULL ? slots / 8 : 0) +
                       (segment->deliveries != NULL ? slots : 0) +
                       (segment->expiries != NULL ? slots * sizeof *segment->expiries : 0) +
                       (segment->sizes != NULL ? slots * sizeof *segment->sizes : 0));
}

/* ---- ready, or not ready any more ---- */

static uint64_t bytes_of(const struct qsi_segment *segment, uint32_t word, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    const uint32_t *sizes = segment->sizes + (size_t)(word - segment->word_base) * QSI_WORD_BITS;
    uint64_t bytes = 0;

    QS_DCHECK(segment->sizes != NULL && word - segment->word_base < segment->word_count);
    for (; mask != 0; mask &= mask - 1) {
        bytes += sizes[__builtin_ctzll(mask)];
    }
    return bytes;
}

void qsi_queue_count_unready(struct qsi_queue *queue, const struct qsi_segment *segment,
                             uint32_t word, uint64_t mask)
{
    if (segment->sizes != NULL) {
        qsi_queue_fewer_bytes(queue, bytes_of(segment, word, mask));
    }
}

void qsi_queue_count_ready(struct qsi_queue *queue, struct qsi_segment *segment, uint32_t word,
                           uint64_t mask)
{
    if (segment->sizes != NULL) {
        qsi_queue_more_bytes(queue, bytes_of(segment, word, mask));
    }
    for (; segment->expiries != NULL && mask != 0; mask &= mask - 1) {
        uint64_t expiry = segment->expiries[(size_t)(word - segment->word_base) * QSI_WORD_BITS +
                                            (uint32_t)__builtin_ctzll(mask)];
        segment->earliest = expiry < segment->earliest ? expiry : segment->earliest;
    }
    qsi_queue_update_earliest(queue, segment->earliest);
}

uint32_t qsi_queue_body_bytes(const struct qsi_queue *queue, uint64_t seq)
{
    uint32_t entries = queue->shared->entries;
    const struct qsi_segment *segment = qsi_queue_find_segment(queue, seq / entries);

    QS_DCHECK(segment != NULL && segment->sizes != NULL);
    return segment->sizes[(seq & (entries - 1)) - (uint64_t)segment->word_base * QSI_WORD_BITS];
}

uint64_t qsi_segment_ready_bytes(const struct qsi_queue *queue, const struct qsi_segment *segment)
{
    uint64_t bytes = 0;

    for (uint32_t at = 0; segment->sizes != NULL && at < segment->word_count; at++) {
        uint32_t word = segment->word_base + at;
        bytes += bytes_of(segment, word, qsi_segment_ready(queue, segment, word));
    }
    return bytes;
}

void qsi_queue_recount_bytes(struct qsi_queue *queue)
{
    qsi_queue_fewer_bytes(queue, queue->ready_bytes);
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        qsi_queue_more_bytes(queue, qsi_segment_ready_bytes(queue, qsi_queue_segment_at(queue, i)));
    }
}

/* ---- what has expired ---- */

/* The ready messages of one word that have expired.  The others change *earliest_io. */
static uint64_t expired_of(const struct qsi_queue *queue, const struct qsi_segment *segment,
                           uint32_t word, uint64_t now_us, uint64_t *earliest_io)
    QSI_REQUIRES(qsi_store_mutex)
{
    const uint64_t *expiries =
        segment->expiries + (size_t)(word - segment->word_base) * QSI_WORD_BITS;
    uint64_t expired = 0;

    QS_DCHECK(segment->expiries != NULL);
    for (uint64_t rest = qsi_segment_ready(queue, segment, word); rest != 0; rest &= rest - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(rest);
        if (expiries[bit] <= now_us) {
            expired |= UINT64_C(1) << bit;
        } else {
            *earliest_io = expiries[bit] < *earliest_io ? expiries[bit] : *earliest_io;
        }
    }
    return expired;
}

/* The next stretch of one segment; false: it has no more, and has the time of the next. */
static bool reserve_in_segment(struct qsi_queue *queue, struct qsi_segment *segment,
                               struct qsi_expiry_walk *walk, struct qsi_stretch *stretch_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t end = segment->word_base + segment->word_count;
    uint32_t word = walk->word > segment->word_base ? walk->word : segment->word_base;

    QS_DCHECK(segment->settled != NULL && segment->number == walk->number);
    for (; segment->expiries != NULL && word < end; word++) {
        uint64_t earliest = walk->earliest;
        uint64_t expired = expired_of(queue, segment, word, walk->now_us, &earliest);
        uint32_t bit;
        walk->word = word;
        if (expired == 0) {
            walk->earliest = earliest;
            continue;
        }
        /* The word is checked again, until nothing in it has expired. */
        bit = (uint32_t)__builtin_ctzll(expired);
        *stretch_out = (struct qsi_stretch){
            .segment = segment,
            .slot = word * QSI_WORD_BITS + bit,
            .count = qsi_ones_from(expired, bit),
        };
        qsi_queue_reserve_removal(queue, segment, word, qsi_stretch_mask(stretch_out));
        return true;
    }
    segment->earliest = walk->earliest;
    return false;
}

static void update_earliest(struct qsi_queue *queue) QSI_REQUIRES(qsi_store_mutex)
{
    queue->earliest = QSI_NEVER;
    for (uint32_t i = 0; i < queue->segment_count; i++) {
        const struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        uint64_t earliest =
            segment->earliest < segment->earliest_due ? segment->earliest : segment->earliest_due;
        queue->earliest = earliest < queue->earliest ? earliest : queue->earliest;
    }
}

bool qsi_queue_reserve_expired(struct qsi_queue *queue, struct qsi_expiry_walk *walk,
                               struct qsi_stretch *stretch_out)
{
    uint32_t i = qsi_queue_segment_index(queue, walk->number);

    for (; i < queue->segment_count; i++) {
        struct qsi_segment *segment = qsi_queue_segment_at(queue, i);
        if (segment->number != walk->number || walk->word == 0) {
            walk->number = segment->number;
            walk->word = 0;
            walk->earliest = QSI_NEVER;
        }
        if (walk->word == 0 && segment->earliest > walk->now_us) {
            continue;
        }
        if (segment->settled == NULL) {
            walk->lacks_state = walk->lacks_state == NULL ? segment : walk->lacks_state;
            continue;
        }
        if (reserve_in_segment(queue, segment, walk, stretch_out)) {
            return true;
        }
        walk->number = segment->number + 1;
        walk->word = 0;
    }
    update_earliest(queue);
    return false;
}
