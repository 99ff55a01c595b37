/* Columns: optional values of each message: its expiry, and the length of its body.  Invariants: a
 * segment has a column from the first message with the value on, and slots before that have never,
 * or 0; no ready message expires before its segment's earliest (queue_expiry.c);
 * ready_bytes is the sum over ready messages, if the queue counts bytes. */
#include "queue_columns.h"

#include "alloc.h"
#include "check.h"
#include "queue_internal.h"

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
