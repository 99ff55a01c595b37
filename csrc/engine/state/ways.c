/* The destinations of unconfirmed messages.
 *
 * Invariant: ways are in [begin, ways.bytes), in order of numbers and of LSNs, the last one at
 * last_at. */
#include "ways.h"

#include "check.h"
#include "priorities.h"
#include "tally.h"

#include <string.h>

#define ALIGN 8u

static struct qsi_confirm_way *way_at(const struct qsi_confirm_ways *ways, size_t at)
{
    return (struct qsi_confirm_way *)(void *)(ways->ways.data + at);
}

static size_t bytes_of(const struct qsi_confirm_way *way)
{
    return sizeof *way + way->queue_count * sizeof(uint64_t) +
           (way->exchange_bytes + ALIGN - 1u) / ALIGN * ALIGN;
}

const uint64_t *qsi_way_ids(const struct qsi_confirm_way *way)
{
    return (const uint64_t *)(const void *)(way + 1);
}

struct qsi_slice qsi_way_exchange(const struct qsi_confirm_way *way)
{
    return qsi_slice_make(qsi_way_ids(way) + way->queue_count, way->exchange_bytes);
}

/* ---- counting ---- */

void qsi_ways_count(struct qs_store *store, struct qsi_slice exchange, const uint64_t *ids,
                    uint32_t queue_count, uint64_t count)
{
    struct qsi_exchange *found = qsi_router_peek(&store->router, exchange);

    QS_ASSERT_HELD(&store->mutex);
    if (found == NULL) {
        return;
    }
    found->confirmed += count;
    for (uint32_t i = 0; i < queue_count; i++) {
        struct qsi_store_queue *queue = qsi_find_by_id(store, qsi_queue_in(ids[i]));
        if (queue != NULL) {
            qsi_tally_confirmed(found, &queue->destination, count);
        }
    }
}

static void count_way(struct qs_channel *channel, const struct qsi_confirm_way *way, uint64_t count)
    QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(count <= way->count);
    qsi_ways_count(channel->store, qsi_way_exchange(way), qsi_way_ids(way), way->queue_count,
                   count);
}

void qsi_ways_leave(struct qs_channel *channel)
{
    struct qsi_confirm_ways *ways = &channel->ways;
    uint64_t durable = qsi_journal_durable_lsn(channel->store->journal);

    QS_ASSERT_HELD(&channel->store->mutex);
    while (ways->begin < ways->ways.bytes && way_at(ways, ways->begin)->lsn <= durable) {
        const struct qsi_confirm_way *way = way_at(ways, ways->begin);
        QS_DCHECK(way->early_count <= way->count);
        count_way(channel, way, way->count - way->early_count);
        ways->begin += bytes_of(way);
    }
    QS_DCHECK(ways->begin <= ways->ways.bytes);
    if (ways->begin == ways->ways.bytes) {
        ways->begin = 0;
        ways->tally = NULL;
        qsi_buf_clear(&ways->ways);
    }
}

void qsi_ways_reported(struct qs_channel *channel, uint64_t number)
{
    struct qsi_confirm_ways *ways = &channel->ways;
    struct qsi_confirm_way *way;
    uint64_t count;

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_ways_leave(channel);
    if (ways->begin == ways->ways.bytes) {
        return;
    }
    /* A way that grows while it is reported: of a batch all or nothing is durable. */
    way = way_at(ways, ways->begin);
    if (way->first_number <= number && number < way->last_number && way->early_count == 0 &&
        way->count == way->last_number - way->first_number + 1) {
        count = number - way->first_number + 1;
        count_way(channel, way, count);
        way->count -= count;
        way->first_number = number + 1;
    }
}

void qsi_ways_reported_early(struct qs_channel *channel, uint64_t number)
{
    struct qsi_confirm_ways *ways = &channel->ways;

    QS_ASSERT_HELD(&channel->store->mutex);
    for (size_t at = ways->begin; at < ways->ways.bytes; at += bytes_of(way_at(ways, at))) {
        struct qsi_confirm_way *way = way_at(ways, at);
        if (way->first_number <= number && number <= way->last_number) {
            count_way(channel, way, 1);
            way->early_count += 1;
            if (at == ways->last_at) { /* it leaves as a whole, so it may grow no more */
                ways->tally = NULL;
            }
            return;
        }
    }
}

/* ---- noting ---- */

qs_status qsi_ways_make_room(struct qs_channel *channel, size_t bytes)
{
    struct qsi_confirm_ways *ways = &channel->ways;
    uint8_t *room;

    QS_ASSERT_HELD(&channel->store->mutex);
    qsi_ways_leave(channel);
    if (ways->begin > ways->ways.capacity / 2) {
        memmove(ways->ways.data, ways->ways.data + ways->begin, ways->ways.bytes - ways->begin);
        ways->ways.bytes -= ways->begin;
        ways->last_at -= ways->begin;
        ways->begin = 0;
    }
    return qsi_buf_reserve(&ways->ways, bytes, &room);
}

static struct qsi_confirm_way *last_of(const struct qsi_confirm_ways *ways)
{
    return ways->begin < ways->ways.bytes ? way_at(ways, ways->last_at) : NULL;
}

void qsi_ways_record(struct qs_channel *channel, struct qsi_confirm_way *next,
                     struct qsi_slice exchange)
{
    struct qsi_confirm_ways *ways = &channel->ways;
    const struct qsi_confirm_way *last = last_of(ways);

    QS_ASSERT_HELD(&channel->store->mutex);
    QS_DCHECK(next == way_at(ways, ways->ways.bytes) && exchange.bytes <= UINT8_MAX);
    QS_DCHECK(last == NULL || (last->lsn <= next->lsn && last->first_number <= next->first_number));
    QS_DCHECK(ways->ways.capacity - ways->ways.bytes >= qsi_way_bytes(next->queue_count));
    (void)last;
    next->exchange_bytes = (uint8_t)exchange.bytes;
    qsi_slice_put((uint8_t *)(uintptr_t)qsi_way_exchange(next).data, exchange);
    ways->tally = NULL;
    ways->last_at = ways->ways.bytes;
    ways->ways.bytes += bytes_of(next);
}

/* ---- reading ---- */

const struct qsi_confirm_way *qsi_ways_first(const struct qs_channel *channel)
{
    const struct qsi_confirm_ways *ways = &channel->ways;

    return ways->begin < ways->ways.bytes ? way_at(ways, ways->begin) : NULL;
}

const struct qsi_confirm_way *qsi_ways_after(const struct qs_channel *channel,
                                             const struct qsi_confirm_way *way)
{
    const struct qsi_confirm_ways *ways = &channel->ways;
    size_t next = (size_t)((const uint8_t *)way - ways->ways.data) + bytes_of(way);

    return next < ways->ways.bytes ? way_at(ways, next) : NULL;
}
