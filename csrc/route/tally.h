/* How many messages came to each queue by each exchange, and how many of them were confirmed:
 * counters for each pair that was used.
 *
 * A pair is made when the first message takes it, and goes with either of its ends; what it counted
 * stays with the other one. */
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

/* Of another exchange than the last: finds the pair, or makes it.  Without memory for it the two
 * ends count alone. */
void qsi_tally_other(struct qsi_exchange *exchange, struct qsi_destination *destination,
                     uint64_t count);
/* So many messages that were published to the exchange came to the queue. */
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
/* So many of them were confirmed. */
void qsi_tally_confirmed(struct qsi_exchange *exchange, struct qsi_destination *destination,
                         uint64_t count);

/* Of all exchanges, or of all queues. */
uint64_t qsi_destination_published(const struct qsi_destination *destination);
uint64_t qsi_destination_confirmed(const struct qsi_destination *destination);
uint64_t qsi_exchange_published_out(const struct qsi_exchange *exchange);
void qsi_router_visit_tallies(const struct qsi_router *router,
                              void (*visit)(void *context, const struct qsi_tally *tally),
                              void *context);

/* ---- inside the route floor ---- */

/* One end goes. */
void qsi_exchange_drop_tallies(struct qsi_exchange *exchange);
void qsi_destination_drop_tallies(struct qsi_destination *destination);

#endif
