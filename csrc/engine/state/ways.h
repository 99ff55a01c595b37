/* The destinations of a channel's messages whose confirms wait for the disk: the exchange, and the
 * queues.  They are noted at the publish, and counted at the confirm.
 *
 * Consecutive messages with the same destinations are one way.  A batch has a way for each exchange
 * and set of queues, each with the numbers of the whole batch. */
#ifndef QSI_WAYS_H
#define QSI_WAYS_H

#include "store.h"
#include "thread_safety.h"

struct qsi_confirm_way { /* followed by the ids of the queues, then the exchange's name */
    uint64_t first_number, last_number;
    uint64_t count; /* of messages: fewer than numbers if some went elsewhere */
    uint64_t lsn;   /* the last of them is durable with it */
    uint32_t queue_count;
    uint32_t early_count; /* of count: confirmed and counted ahead of their LSN */
    bool persistent; /* messages of durable queues wait for the disk, not only those of streams */
    uint8_t exchange_bytes;
};

static inline size_t qsi_way_bytes(uint32_t queue_count)
{
    /* as if all names were as long as any: what follows lies where numbers may */
    return sizeof(struct qsi_confirm_way) + queue_count * sizeof(uint64_t) + UINT8_MAX + 1;
}

/* The slow part of the next one.  Counts and removes the ways that are durable by now. */
qs_status qsi_ways_make_room(struct qs_channel *channel, size_t bytes)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
/* Reserves room for ways of so many bytes, of qsi_way_bytes() each; outside confirm mode there are
 * none. */
static inline qs_status qsi_ways_reserve(struct qs_channel *channel, size_t bytes)
    QSI_REQUIRES(qsi_store_mutex) QS_MUST_CHECK;
static inline qs_status qsi_ways_reserve(struct qs_channel *channel, size_t bytes)
{
    const struct qsi_buf *ways = &channel->ways.ways;

    return QS_LIKELY(ways->capacity - ways->bytes >= bytes || !channel->confirms.selected)
               ? QS_OK
               : qsi_ways_make_room(channel, bytes);
}

/* One to be filled and noted: its ids have room for as many as were reserved.  REQUIRES room. */
static inline struct qsi_confirm_way *qsi_ways_next(struct qs_channel *channel, uint64_t **ids_out)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_buf *ways = &channel->ways.ways;
    struct qsi_confirm_way *next = (struct qsi_confirm_way *)(void *)(ways->data + ways->bytes);

    *ids_out = (uint64_t *)(void *)(next + 1);
    return next;
}
/* REQUIRES that all of it is set but exchange_bytes, and that its numbers are behind those of the
 * last one, or of the same batch. */
void qsi_ways_record(struct qs_channel *channel, struct qsi_confirm_way *next,
                     struct qsi_slice exchange) QSI_REQUIRES(qsi_store_mutex);
/* Adds one message, counted already, to the last way, if it has the same one queue; false: it has
 * not, or does not follow directly. */
static inline bool qsi_ways_again(struct qs_channel *channel, const struct qsi_route *route,
                                  bool persistent, uint64_t number, uint64_t lsn)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_confirm_ways *ways = &channel->ways;
    struct qsi_confirm_way *last;

    if (ways->tally == NULL || route->count != 1 ||
        route->destinations[0]->recent_tally != ways->tally || ways->next_number != number ||
        ways->version != channel->store->router.version || ways->persistent != persistent) {
        return false;
    }
    last = (struct qsi_confirm_way *)(void *)(ways->ways.data + ways->last_at);
    last->last_number = number;
    last->count += 1;
    last->lsn = lsn;
    ways->next_number += 1;
    return true;
}
/* It was noted by itself: the next one may go the same way. */
static inline void qsi_ways_expect(struct qs_channel *channel, const struct qsi_route *route,
                                   bool persistent, uint64_t number) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_confirm_ways *ways = &channel->ways;

    ways->tally = route->count == 1 ? route->destinations[0]->recent_tally : NULL;
    ways->version = channel->store->router.version;
    ways->next_number = number + 1;
    ways->persistent = persistent;
}

/* Messages of this way are confirmed. */
void qsi_ways_count(struct qs_store *store, struct qsi_slice exchange, const uint64_t *ids,
                    uint32_t queue_count, uint64_t count) QSI_REQUIRES(qsi_store_mutex);
/* Counts and removes the ways that are durable by now. */
void qsi_ways_leave(struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex);
/* The publisher gets an answer to numbers up to this one, and to all that are durable. */
void qsi_ways_reported(struct qs_channel *channel, uint64_t number) QSI_REQUIRES(qsi_store_mutex);

/* The publisher gets an answer to this one alone, and its LSN may not be durable. */
void qsi_ways_reported_early(struct qs_channel *channel, uint64_t number)
    QSI_REQUIRES(qsi_store_mutex);

/* In order; NULL: the end. */
const struct qsi_confirm_way *qsi_ways_first(const struct qs_channel *channel)
    QSI_REQUIRES(qsi_store_mutex);
const struct qsi_confirm_way *qsi_ways_after(const struct qs_channel *channel,
                                             const struct qsi_confirm_way *way)
    QSI_REQUIRES(qsi_store_mutex);
const uint64_t *qsi_way_ids(const struct qsi_confirm_way *way);
struct qsi_slice qsi_way_exchange(const struct qsi_confirm_way *way);

#endif
