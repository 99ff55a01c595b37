#include "deliveries.h"

#include "check.h"
#include "commit.h"
#include "deals.h"
#include "error.h"
#include "limits.h"
#include "queue_take.h"
#include "record.h"
#include "space.h"
#include "wake.h"

/* In the worst case every second message of a word is journalled. */
#define COUNT_BYTES_MAX ((uint64_t)QSI_WORD_BITS / 2 * QSI_SETTLE_BYTES)

/* A store that failed still delivers, and counts nothing durably. */
static bool is_journalled(const struct qs_store *store, const struct qsi_store_queue *queue)
    QSI_REQUIRES(qsi_store_mutex)
{
    return (queue->flags & QS_DURABLE) != 0 && !queue->deleted && !store->failed;
}

bool qsi_is_worn_out(const struct qsi_store_queue *queue, const struct qsi_segment *segment,
                     uint32_t slot)
{
    return qsi_segment_deliveries(segment, slot) > queue->policy.deliveries_max;
}

qs_status qsi_deliveries_find_room(struct qs_channel *channel, const struct qsi_store_queue *queue,
                                   bool *released_out, enum qsi_wait wait, qs_error *error)
{
    struct qs_store *store = channel->store;

    QS_ASSERT_HELD(&channel->store->mutex);
    *released_out = false;
    if (!is_journalled(store, queue) ||
        (!qsi_has_ready(queue) && qsi_deals_first(channel) == NULL)) {
        return QS_OK;
    }
    QS_TRY(qsi_commit_make_room(store, COUNT_BYTES_MAX, COUNT_BYTES_MAX, QSI_ROOM_SETTLE,
                                released_out, wait, error));
    if (channel->closed) {
        return qsi_fail(error, QS_ECHANNEL_CLOSED, "the channel was closed meanwhile");
    }
    /* An ack needs no room.  A delivery that is not counted could be repeated forever. */
    return *released_out || qsi_journal_has_room(store->journal, COUNT_BYTES_MAX, COUNT_BYTES_MAX)
               ? QS_OK
               : qsi_space_fail_full(error);
}

/* The number of messages at the start of the stretch that are all delivered too often, or all
 * not. */
static uint32_t first_alike(const struct qsi_store_queue *queue, const struct qsi_stretch *stretch,
                            bool worn_out) QSI_REQUIRES(qsi_store_mutex)
{
    uint32_t count = 0;

    while (count < stretch->count &&
           qsi_is_worn_out(queue, stretch->segment, stretch->slot + count) == worn_out) {
        count += 1;
    }
    return count;
}

static qs_status reserve(struct qs_store *store, const struct qsi_store_queue *queue,
                         struct qsi_segment *segment) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *chunk;

    QS_TRY(qsi_segment_keep_deliveries(&queue->core, segment));
    QS_TRY(qsi_reserve_removals(store, 1));
    if (!is_journalled(store, queue)) {
        return QS_OK;
    }
    QS_TRY(qsi_journal_reserve(store->journal, 1));
    return qsi_arena_place(store, true, COUNT_BYTES_MAX, &chunk, NULL);
}

qs_status qsi_deliveries_screen(struct qs_store *store, struct qsi_store_queue *queue,
                                struct qsi_stretch *stretch, qs_error *error)
{
    uint32_t worn, fit;

    QS_ASSERT_HELD(&store->mutex);
    if (reserve(store, queue, stretch->segment) != QS_OK) {
        qsi_container_untake(&queue->container, stretch, 0);
        return qsi_fail(error, QS_ENOMEM, "delivery");
    }
    QS_DCHECK(stretch->count > 0);
    worn = first_alike(queue, stretch, true);
    if (worn > 0) {
        if (worn < stretch->count) {
            qsi_container_untake(&queue->container, stretch, worn);
        }
        qsi_add_removal(store, queue, stretch, QSI_DELIVERY_LIMIT);
        stretch->count = 0;
        return QS_OK;
    }
    fit = first_alike(queue, stretch, false);
    if (fit < stretch->count) {
        qsi_container_untake(&queue->container, stretch, fit);
    }
    return QS_OK;
}

qs_status qsi_deliveries_reserve_worn_out(struct qs_store *store, struct qsi_store_queue *queue,
                                          qs_error *error)
{
    struct qsi_stretch stretch;
    uint32_t worn;

    QS_ASSERT_HELD(&store->mutex);
    for (;;) {
        if (qsi_reserve_removals(store, 1) != QS_OK) {
            return qsi_fail(error, QS_ENOMEM, "messages that were delivered too often");
        }
        if (qsi_container_take(&queue->container, QSI_WORD_BITS, &stretch) != QSI_TAKE_TAKEN) {
            return QS_OK;
        }
        worn = first_alike(queue, &stretch, true);
        if (worn < stretch.count) {
            qsi_container_untake(&queue->container, &stretch, worn);
        }
        if (worn == 0) {
            return QS_OK;
        }
        qsi_add_removal(store, queue, &stretch, QSI_DELIVERY_LIMIT);
    }
}

/* ---- records ---- */

/* A record for each run of a word's journalled messages.  REQUIRES a place in the arena and in
 * the journal.  0: there is none. */
static uint64_t append(struct qs_store *store, const struct qsi_store_queue *queue,
                       const struct qsi_segment *segment, uint32_t word, uint64_t mask,
                       enum qsi_settle_kind kind) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_chunk *chunk = store->commit.arena;
    uint64_t from = chunk->used;
    uint64_t first_seq =
        qsi_queue_first_seq(&queue->core, segment) + (uint64_t)word * QSI_WORD_BITS;
    uint64_t left = qsi_segment_journalled(segment, word, mask);
    uint32_t record_count = 0;

    QS_DCHECK(chunk != NULL && mask != 0);
    while (left != 0) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left);
        struct qsi_settle settle = {
            .queue_id = queue->container.id,
            .first_seq = first_seq + bit,
            .count = qsi_ones_from(left, bit),
            .kind = (uint8_t)kind,
        };
        left &= ~(qsi_low_bits(settle.count) << bit);
        QS_ASSERT(chunk->capacity - chunk->used >= QSI_SETTLE_BYTES);
        qsi_settle_encode(chunk->data + chunk->used, &settle);
        chunk->used += QSI_SETTLE_BYTES;
        record_count += 1;
    }
    return record_count > 0
               ? qsi_store_append(store, chunk, from, chunk->used - from, record_count, false)
               : 0;
}

void qsi_deliveries_count(struct qs_channel *channel, struct qsi_store_queue *queue,
                          const struct qsi_stretch *stretch)
{
    struct qs_store *store = channel->store;
    uint64_t before = qsi_journal_appended_lsn(store->journal), lsn;

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_queue_count_stretch(&queue->core, stretch);
    if (!is_journalled(store, queue)) {
        return;
    }
    lsn = append(store, queue, stretch->segment, stretch->slot / QSI_WORD_BITS,
                 qsi_stretch_mask(stretch), QSI_SETTLE_DELIVER);
    if (lsn > 0) {
        QS_DCHECK(lsn > before);
        store->commit.count_bytes += lsn - before;
        channel->counted_lsn = lsn;
    }
}

qs_status qsi_deliveries_write_now(struct qs_channel *channel, qs_error *error)
{
    uint64_t lsn = channel->counted_lsn;

    QS_DCHECK(lsn <= qsi_journal_appended_lsn(channel->store->journal));
    QS_ASSERT_HELD(&channel->store->mutex);
    channel->counted_lsn = 0;
    return qsi_commit_write(channel->store, lsn, error);
}

bool qsi_deliveries_room_to_take_back(struct qs_channel *channel, uint64_t count)
{
    uint64_t bytes = count * QSI_SETTLE_BYTES;
    bool released;

    QS_ASSERT_HELD(&channel->store->mutex);
    if (bytes > 0 && qsi_commit_make_room(channel->store, bytes, bytes, QSI_ROOM_SETTLE, &released,
                                          QSI_MAY_WAIT, NULL) != QS_OK) {
        /* They are handed back all the same. */
    }
    return !channel->closed;
}

void qsi_deliveries_take_back(struct qs_store *store, const struct qsi_store_queue *queue,
                              const struct qsi_segment *segment, uint32_t word, uint64_t mask)
{
    uint64_t journalled = qsi_segment_journalled(segment, word, mask);
    uint64_t bytes = QSI_SETTLE_BYTES * (uint64_t)qsi_popcount(journalled & ~(journalled << 1));
    struct qsi_chunk *chunk;

    QS_ASSERT_HELD(&store->mutex);
    if (bytes > 0 && is_journalled(store, queue) &&
        qsi_journal_has_room(store->journal, bytes, bytes) &&
        qsi_journal_reserve(store->journal, 1) == QS_OK &&
        qsi_arena_place(store, true, bytes, &chunk, NULL) == QS_OK &&
        append(store, queue, segment, word, mask, QSI_SETTLE_TAKE_BACK) > 0) {
        qsi_commit_wake(store);
    }
}
