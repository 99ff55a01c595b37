/* Counts of messages that came to each queue by each exchange, and of confirmed ones: counters for
 * each pair of exchange and queue.
 *
 * A pair is created with its first message, and deleted with either of its ends; its counts are
 * added to the other end. */
#ifndef QSI_TALLY_H
#define QSI_TALLY_H

#include "check.h"
#include "route.h"

struct qsi_tally {
    struct qsi_exchange *exchange;
    struct qsi_destination *destination;
    uint64_t published, confirmed;
    struct qsi_list in_exchange;
    struct qsi_list in_destination;
};

/* Counts messages of an exchange other than the last: finds or creates the pair.  Without memory
 * for it, exchange and queue count separately. */
void qsi_tally_other(struct qsi_exchange *exchange, struct qsi_destination *destination,
                     uint64_t count);
/* Counts messages published to the exchange that came to the queue. */
static inline void qsi_tally(struct qsi_exchange *exchange, struct qsi_destination *destination,
                             uint64_t count)
{
    struct qsi_tally *tally = destination->recent_tally;

    if (QS_LIKELY(tally != NULL && tally->exchange == exchange)) {
        tally->published += count;
    } else {
        qsi_tally_other(exchange, destination, count);
    }
}
/* Counts confirmed messages of the pair. */
void qsi_tally_confirmed(struct qsi_exchange *exchange, struct qsi_destination *destination,
                         uint64_t count);

/* Sums over all exchanges, or over all queues. */
uint64_t qsi_destination_published(const struct qsi_destination *destination);
uint64_t qsi_destination_confirmed(const struct qsi_destination *destination);
uint64_t qsi_exchange_published_out(const struct qsi_exchange *exchange);
void qsi_router_visit_tallies(const struct qsi_router *router,
                              void (*visit)(void *context, const struct qsi_tally *tally),
                              void *context);

/* ---- inside the route floor ---- */

/* One end is deleted. */
void qsi_exchange_drop_tallies(struct qsi_exchange *exchange);
void qsi_destination_drop_tallies(struct qsi_destination *destination);

#endif
