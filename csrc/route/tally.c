/* Counters of exchange and queue together.
 *
 * Invariant: a tally is in the list of its exchange and in that of its destination, or in neither.
 * The last tally of a destination is found at once: most queues get all messages from one
 * exchange. */
#include "tally.h"

#include "alloc.h"
#include "route_internal.h"

static struct qsi_tally *at_exchange(const struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_tally, in_exchange);
}

static struct qsi_tally *at_destination(const struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_tally, in_destination);
}

/* NULL: there is none.  Both lists are walked in step, so the shorter one limits the search: an
 * exchange may have many queues, and a queue many exchanges. */
static struct qsi_tally *find(const struct qsi_exchange *exchange,
                              const struct qsi_destination *destination)
{
    const struct qsi_list *one = exchange->tallies.next, *other = destination->tallies.next;

    while (one != &exchange->tallies && other != &destination->tallies) {
        if (at_exchange(one)->destination == destination) {
            return at_exchange(one);
        }
        if (at_destination(other)->exchange == exchange) {
            return at_destination(other);
        }
        one = one->next;
        other = other->next;
    }
    return NULL;
}

/* NULL: out of memory. */
static struct qsi_tally *create(struct qsi_exchange *exchange, struct qsi_destination *destination)
{
    struct qsi_tally *tally = qsi_zalloc(sizeof *tally);

    QS_DCHECK(destination->exchange == NULL);
    if (tally == NULL) {
        return NULL;
    }
    tally->exchange = exchange;
    tally->destination = destination;
    qsi_list_push_back(&exchange->tallies, &tally->in_exchange);
    qsi_list_push_back(&destination->tallies, &tally->in_destination);
    return tally;
}

void qsi_tally_other(struct qsi_exchange *exchange, struct qsi_destination *destination,
                     uint64_t count)
{
    struct qsi_tally *tally = find(exchange, destination);

    if (tally == NULL) {
        tally = create(exchange, destination);
    }
    if (tally == NULL) {
        exchange->published_out += count;
        destination->published += count;
        return;
    }
    QS_DCHECK(tally->exchange == exchange && tally->destination == destination);
    tally->published += count;
    destination->recent_tally = tally;
}

void qsi_tally_confirmed(struct qsi_exchange *exchange, struct qsi_destination *destination,
                         uint64_t count)
{
    struct qsi_tally *tally = destination->recent_tally;

    if (tally == NULL || tally->exchange != exchange) {
        tally = find(exchange, destination);
    }
    if (tally == NULL) { /* there was no memory for it */
        destination->confirmed += count;
        return;
    }
    QS_DCHECK(tally->exchange == exchange && tally->destination == destination);
    tally->confirmed += count;
}

static void drop(struct qsi_tally *tally)
{
    tally->exchange->published_out += tally->published;
    tally->destination->published += tally->published;
    tally->destination->confirmed += tally->confirmed;
    if (tally->destination->recent_tally == tally) {
        tally->destination->recent_tally = NULL;
    }
    qsi_list_remove(&tally->in_exchange);
    qsi_list_remove(&tally->in_destination);
    qsi_free(tally);
}

void qsi_exchange_drop_tallies(struct qsi_exchange *exchange)
{
    while (!qsi_list_is_empty(&exchange->tallies)) {
        drop(at_exchange(exchange->tallies.next));
    }
}

void qsi_destination_drop_tallies(struct qsi_destination *destination)
{
    while (!qsi_list_is_empty(&destination->tallies)) {
        drop(at_destination(destination->tallies.next));
    }
    QS_DCHECK(destination->recent_tally == NULL);
}

uint64_t qsi_destination_published(const struct qsi_destination *destination)
{
    uint64_t sum = destination->published;

    for (const struct qsi_list *node = destination->tallies.next; node != &destination->tallies;
         node = node->next) {
        sum += at_destination(node)->published;
    }
    return sum;
}

uint64_t qsi_destination_confirmed(const struct qsi_destination *destination)
{
    uint64_t sum = destination->confirmed;

    for (const struct qsi_list *node = destination->tallies.next; node != &destination->tallies;
         node = node->next) {
        sum += at_destination(node)->confirmed;
    }
    return sum;
}

uint64_t qsi_exchange_published_out(const struct qsi_exchange *exchange)
{
    uint64_t sum = exchange->published_out;

    for (const struct qsi_list *node = exchange->tallies.next; node != &exchange->tallies;
         node = node->next) {
        sum += at_exchange(node)->published;
    }
    return sum;
}

void qsi_router_visit_tallies(const struct qsi_router *router,
                              void (*visit)(void *context, const struct qsi_tally *tally),
                              void *context)
{
    for (const struct qsi_list *node = router->exchanges.next; node != &router->exchanges;
         node = node->next) {
        const struct qsi_list *tallies = &qsi_exchange_at(node)->tallies;

        for (const struct qsi_list *at = tallies->next; at != tallies; at = at->next) {
            visit(context, at_exchange(at));
        }
    }
}
