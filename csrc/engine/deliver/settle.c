/* Acks, rejects and requeues: from tags to bits in queues and records in the journal. */
#include "settle.h"

#include "check.h"
#include "commit.h"
#include "consume.h"
#include "counts.h"
#include "deliveries.h"
#include "early.h"
#include "enter.h"
#include "error.h"
#include "limits.h"
#include "notify.h"
#include "queue_delays.h"
#include "queue_life.h"
#include "queue_take.h"
#include "record.h"
#include "stream_deliver.h"
#include "trace.h"
#include "turns.h"
#include "wake.h"

/* Collects settled ranges into consecutive records of one chunk. */
struct settling {
    struct qs_channel *channel;
    struct qsi_chunk *chunk; /* NULL: nothing is journalled */
    uint32_t record_count;
    struct qsi_settle range; /* not written yet; count 0: none */
    uint64_t due_us;         /* for the kinds that have it, else 0 */
    uint8_t kind;
    bool is_final; /* an acknowledged message does not come again: it is in no transaction */
};

static void flush_range(struct settling *settling)
{
    uint32_t bytes;

    QS_DCHECK(settling->range.count == 0 || settling->chunk != NULL);
    if (settling->range.count == 0) {
        return;
    }
    bytes = qsi_settle_record_bytes(settling->range.kind);
    QS_ASSERT(settling->chunk->capacity - settling->chunk->used >= bytes);
    qsi_settle_encode(settling->chunk->data + settling->chunk->used, &settling->range);
    settling->chunk->used += bytes;
    settling->record_count += 1;
    settling->range.count = 0;
}

/* A queue that counts its deliveries in the journal counts none here. */
static uint8_t record_kind(const struct settling *settling, const struct qsi_store_queue *queue)
{
    if (settling->kind == QSI_SETTLE_REQUEUE_DUE && qsi_policy_counts_deliveries(&queue->policy)) {
        return QSI_SETTLE_DUE;
    }
    return qsi_settle_requeues(settling->kind) ? settling->kind : QSI_SETTLE_ACK;
}

static void record_range(struct settling *settling, const struct qsi_store_queue *queue,
                         uint64_t first_seq, uint32_t count)
{
    struct qsi_settle *range = &settling->range;
    uint64_t queue_id = queue->container.id;

    QS_DCHECK(count > 0 && settling->chunk != NULL);
    if (range->count > 0 && range->queue_id == queue_id &&
        range->first_seq + range->count == first_seq && range->count + count > range->count) {
        range->count += count;
        return;
    }
    flush_range(settling);
    *range = (struct qsi_settle){
        .queue_id = queue_id,
        .first_seq = first_seq,
        .count = count,
        .kind = record_kind(settling, queue),
        .due_us = settling->due_us,
    };
}

static void record_extent(struct settling *settling, const struct qsi_store_queue *queue,
                          const struct qsi_extent *extent, uint64_t mask)
{
    uint64_t first_seq =
        qsi_queue_first_seq(&queue->core, extent->segment) + (uint64_t)extent->word * QSI_WORD_BITS;

    QS_DCHECK((mask & ~extent->messages) == 0);
    while (mask != 0) {
        uint32_t bit = (uint32_t)__builtin_ctzll(mask);
        uint32_t count = qsi_ones_from(mask, bit);
        record_range(settling, queue, first_seq + bit, count);
        mask &= ~(qsi_low_bits(count) << bit);
    }
}

/* The messages are removed by what is appended next, whatever the outcome of its commit. */
static void record_final(const struct settling *settling, const struct qsi_store_queue *queue,
                         const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = settling->channel->store;

    if (settling->is_final && qsi_early_is_used(store) && !qsi_settle_requeues(settling->kind)) {
        uint64_t word_seq = qsi_queue_first_seq(&queue->core, extent->segment) +
                            (uint64_t)extent->word * QSI_WORD_BITS;
        qsi_early_acknowledged(store, queue->container.id, word_seq, mask);
    }
}

/* Those of these messages that were delivered as often as the queue permits. */
static uint64_t worn_out(const struct qsi_store_queue *queue, const struct qsi_extent *extent,
                         uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    uint64_t worn = 0;

    QS_DCHECK((mask & ~extent->messages) == 0);
    for (uint64_t rest = mask; rest != 0; rest &= rest - 1) {
        if (qsi_is_worn_out(queue, extent->segment, qsi_extent_slot(extent, rest))) {
            worn |= rest & -rest;
        }
    }
    return worn;
}

/* Messages that become dead letters, or were delivered too often.  Returns those for which there
 * was memory: all, if room was reserved. */
static uint64_t take_for_removal(struct settling *settling, const struct qsi_extent *extent,
                                 uint64_t mask, enum qsi_reason reason)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = settling->channel->store;
    uint64_t removed = 0;

    while (mask != 0 && qsi_reserve_removals(store, 1) == QS_OK) {
        struct qsi_stretch stretch = {
            .segment = extent->segment,
            .slot = qsi_extent_slot(extent, mask),
            .count = qsi_ones_from(mask, (uint32_t)__builtin_ctzll(mask)),
        };
        qsi_add_removal(store, qsi_queue_of_container(extent->container), &stretch, reason);
        removed |= qsi_stretch_mask(&stretch);
        mask &= ~removed;
    }
    return removed;
}

/* The messages that leave another way. */
static uint64_t see_what_is_removed(struct settling *settling, const struct qsi_extent *extent,
                                    uint64_t mask) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);

    if (settling->kind == QSI_SETTLE_REJECT && qsi_has_dead_letters(queue)) {
        return take_for_removal(settling, extent, mask, QSI_REJECTED);
    }
    if (qsi_settle_requeues(settling->kind) && !queue->deleted &&
        qsi_policy_counts_deliveries(&queue->policy) &&
        !qsi_channel_is_internal(settling->channel)) {
        return take_for_removal(settling, extent, worn_out(queue, extent, mask),
                                QSI_DELIVERY_LIMIT);
    }
    return 0;
}

static void trace_settled(const struct settling *settling, struct qsi_store_queue *queue,
                          uint64_t first_tag, uint32_t count) QSI_REQUIRES(qsi_store_mutex)
{
    if (settling->kind != QSI_SETTLE_NO_ACK) { /* the delivery's record says as much */
        qsi_trace_taken(settling->channel,
                        settling->kind == QSI_SETTLE_ACK ? QS_TRACE_ACK : QS_TRACE_NACK, queue,
                        first_tag, count);
    }
}

static void settle_extent(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct settling *settling = context;
    struct qs_store *store = settling->channel->store;
    struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);
    bool by_consumer = !qsi_channel_is_internal(settling->channel);
    uint32_t count = qsi_popcount(mask);
    uint64_t removed;

    QS_DCHECK(mask != 0 && (mask & extent->outstanding) == 0);
    if (QS_LIKELY(by_consumer && settling->kind == QSI_SETTLE_ACK)) {
        qsi_count_acked(settling->channel, queue, count);
    } else {
        qsi_count_settled(settling->channel, queue, settling->kind, count);
    }
    if (qsi_is_traced(store) && by_consumer) {
        trace_settled(settling, queue, qsi_extent_tag(extent, mask), count);
    }
    if (QS_UNLIKELY(extent->segment == NULL)) {
        qsi_stream_settled(extent, mask,
                           settling->kind == QSI_SETTLE_ACK || settling->kind == QSI_SETTLE_NO_ACK
                               ? QSI_STREAM_ACKED
                               : QSI_STREAM_COMES_AGAIN);
        return;
    }
    if (extent->consumer != NULL) {
        qsi_consumer_settled(extent->consumer, count);
    }
    removed = see_what_is_removed(settling, extent, mask);
    if (QS_UNLIKELY(removed != 0)) {
        mask &= ~removed;
        if (mask == 0) {
            return;
        }
        count = qsi_popcount(mask);
    }
    if (settling->chunk != NULL && (queue->flags & QS_DURABLE) != 0 && !queue->deleted &&
        !(settling->kind == QSI_SETTLE_REQUEUE && qsi_policy_counts_deliveries(&queue->policy))) {
        record_extent(settling, queue, extent,
                      qsi_segment_journalled(extent->segment, extent->word, mask));
        record_final(settling, queue, extent, mask);
    }
    if (qsi_settle_requeues(settling->kind) && !queue->deleted) {
        qsi_container_requeue(extent->container, extent->segment, extent->word, mask);
        if (settling->kind == QSI_SETTLE_REQUEUE_DUE) {
            qsi_queue_delay(&queue->core, extent->segment, extent->word, mask, settling->due_us);
        }
        store->stats.requeued += by_consumer ? count : 0;
        qsi_check_growth(store, queue);
        qsi_notify_consumers(store, qsi_owner_of(queue));
        return;
    }
    qsi_container_settle(extent->container, extent->segment, extent->word, mask);
    store->stats.acked += by_consumer ? count : 0;
    qsi_free_queue_if_done(queue);
}

uint64_t qsi_settle_bytes(const struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                          uint8_t kind)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    return qsi_settle_record_bytes(kind) * qsi_unacked_stretches(&channel->unacked, first_tag,
                                                                 last_tag,
                                                                 qsi_settle_requeues(kind)) +
           channel->tracking_bytes;
}

/* The number of records in its chunk now. */
static uint32_t settle_range(struct settling *settling, uint64_t first_tag, uint64_t last_tag)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_channel *channel = settling->channel;

    qsi_unacked_take(&channel->unacked, first_tag, last_tag, settle_extent, settling);
    flush_range(settling);
    if (QS_UNLIKELY(!qsi_list_is_empty(&channel->acked_cursors))) {
        settling->record_count += qsi_stream_record_acked(channel, settling->chunk);
    }
    if (qsi_settle_requeues(settling->kind) || channel->prefetch_channel > 0) {
        qsi_events_notify(channel->store);
    }
    return settling->record_count;
}

uint32_t qsi_settle_into(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                         uint8_t kind, uint64_t due_us, struct qsi_chunk *chunk)
{
    struct settling settling = {.channel = channel, .chunk = chunk, .kind = kind, .due_us = due_us};

    QS_ASSERT_HELD(&channel->store->mutex);
    return settle_range(&settling, first_tag, last_tag);
}

/* A place for so many bytes of records; NULL: there is none. */
static struct qsi_chunk *place_records(struct qs_store *store, uint64_t bytes)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *chunk = NULL;

    if (!store->failed && bytes > 0 && qsi_journal_has_room(store->journal, bytes, bytes) &&
        qsi_journal_reserve(store->journal, 1) == QS_OK &&
        qsi_arena_place(store, true, bytes, &chunk, NULL) == QS_OK) {
        return chunk;
    }
    return NULL;
}

/* chunk NULL: only in memory.  So settles a store that failed, or a channel that closes without
 * memory or room: the messages come back after a restart, as for any ack that was not durable. */
static void settle_into(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                        uint8_t kind, uint64_t due_us, struct qsi_chunk *chunk)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = channel->store;
    uint64_t from = chunk != NULL ? chunk->used : 0;
    struct settling settling = {.channel = channel,
                                .chunk = chunk,
                                .kind = kind,
                                .due_us = due_us,
                                .is_final = !qsi_channel_is_internal(channel)};
    uint32_t record_count = settle_range(&settling, first_tag, last_tag);

    QS_DCHECK(record_count == 0 || (chunk != NULL && chunk->used > from));
    QS_DCHECK(chunk == NULL || chunk->used <= chunk->capacity);
    if (record_count > 0) {
        qsi_store_append(store, chunk, from, chunk->used - from, record_count, false);
        if (qsi_early_is_used(store)) {
            qsi_early_confirm(store);
        }
        qsi_commit_wake(store);
    }
}

/* Messages without a record become durable only with a checkpoint, and no archive has them. */
static void record_unjournalled(struct qs_store *store, const struct qsi_chunk *chunk,
                                uint64_t bytes) QSI_REQUIRES(qsi_store_mutex)
{
    if (chunk == NULL && bytes > 0 && !store->failed) {
        store->space.unjournalled += 1;
        qsi_keep_lose(store);
    }
}

void qsi_settle_within(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                       uint8_t kind, uint64_t due_us, uint64_t bytes)
{
    struct qsi_chunk *chunk = place_records(channel->store, bytes);

    QS_ASSERT_HELD(&channel->store->mutex);
    record_unjournalled(channel->store, chunk, bytes);
    settle_into(channel, first_tag, last_tag, kind, due_us, chunk);
}

qs_status qsi_settle_surely(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                            uint8_t kind, uint64_t due_us, uint64_t bytes, qs_error *error)
{
    struct qsi_chunk *chunk = place_records(channel->store, bytes);

    QS_ASSERT_HELD(&channel->store->mutex);
    if (chunk == NULL && bytes > 0 && qsi_journal_has_room(channel->store->journal, bytes, bytes)) {
        return qsi_fail(error, QS_ENOMEM, "settling");
    }
    record_unjournalled(channel->store, chunk, bytes);
    settle_into(channel, first_tag, last_tag, kind, due_us, chunk);
    return QS_OK;
}

void qsi_requeue_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_settle_within(channel, first_tag, last_tag, QSI_SETTLE_REQUEUE, 0,
                      qsi_settle_bytes(channel, first_tag, last_tag, QSI_SETTLE_REQUEUE));
}

void qsi_settle_no_ack(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                       enum qsi_wait wait)
{
    uint64_t bytes = qsi_settle_bytes(channel, first_tag, last_tag, QSI_SETTLE_NO_ACK);
    bool released = false;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released, wait,
                             NULL) != QS_OK) {
        /* They were delivered all the same: settled only in memory. */
    }
    qsi_settle_within(channel, first_tag, last_tag, QSI_SETTLE_NO_ACK, 0,
                      released ? qsi_settle_bytes(channel, first_tag, last_tag, QSI_SETTLE_NO_ACK)
                               : bytes);
}

qs_status qsi_settle_with_room(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                               uint8_t kind, enum qsi_wait wait, qs_error *error)
{
    uint64_t bytes = 0;
    bool released = true;

    QS_ASSERT_HELD(&channel->store->mutex);
    while (released) {
        QS_TRY(qsi_store_check_failed(channel->store, error));
        bytes = qsi_settle_bytes(channel, first_tag, last_tag, kind);
        QS_TRY(qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released, wait,
                                    error));
    }
    return qsi_settle_surely(channel, first_tag, last_tag, kind, 0, bytes, error);
}

/* ---- what never reached the caller ---- */

/* The caller does not have them, so they do not count in its prefetch. */
static void make_room_of_withheld(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(mask != 0 && (mask & extent->outstanding) == 0);
    (void)context;
    if (extent->segment == NULL) {
        qsi_stream_withheld(extent, mask);
    }
    if (extent->consumer != NULL) {
        qsi_consumer_settled(extent->consumer, qsi_popcount(mask));
    }
}

void qsi_withhold_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_unacked_withhold(&channel->unacked, first_tag, last_tag, make_room_of_withheld, NULL);
}

/* The messages are ready again, as if they had not been taken: nothing is journalled, and no
 * delivery is counted. */
static void hand_back_extent(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = ((struct qs_channel *)context)->store;
    struct qsi_store_queue *queue = qsi_queue_of_container(extent->container);

    QS_DCHECK(mask != 0 && (mask & (extent->outstanding | extent->withheld)) == 0);
    if (extent->segment == NULL) {
        qsi_stream_hand_back(extent, mask);
        return;
    }
    if (queue->deleted) {
        qsi_container_settle(extent->container, extent->segment, extent->word, mask);
        qsi_free_queue_if_done(queue);
        return;
    }
    if (qsi_policy_counts_deliveries(&queue->policy)) {
        qsi_deliveries_take_back(store, queue, extent->segment, extent->word, mask);
    }
    qsi_container_give_back(extent->container, extent->segment, extent->word, mask);
    qsi_check_growth(store, queue);
    qsi_notify_consumers(store, qsi_owner_of(queue));
}

void qsi_hand_back_tags(struct qs_channel *channel, uint64_t first_tag, uint64_t last_tag)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_unacked_take(&channel->unacked, first_tag, last_tag, hand_back_extent, channel);
    qsi_events_notify(channel->store);
}

static void hand_back_one(void *context, const struct qsi_extent *extent, uint64_t mask)
    QSI_REQUIRES(qsi_store_mutex)
{
    make_room_of_withheld(context, extent, mask);
    hand_back_extent(context, extent, mask);
}

void qsi_hand_back_delivery(struct qs_channel *channel, uint64_t tag)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (!channel->closed) { /* otherwise it was handed back already */
        qsi_unacked_take(&channel->unacked, tag, tag, hand_back_one, channel);
        qsi_events_notify(channel->store);
    }
}

void qsi_hand_back_withheld(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (channel->unacked.withheld_count > 0) {
        qsi_unacked_take_withheld(&channel->unacked, hand_back_extent, channel);
        qsi_events_notify(channel->store);
    }
}

qs_status qs_channel_withhold(qs_channel *channel, uint64_t first_tag, uint64_t last_tag,
                              qs_error *error)
{
    QS_TRY(qsi_channel_enter(channel, error));
    qsi_withhold_tags(channel, first_tag, last_tag);
    return qsi_channel_leave(channel, QS_OK);
}
