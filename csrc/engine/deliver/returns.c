/* Messages that no queue took, returned to the publisher because of QS_MANDATORY.
 *
 * Returns that the publisher reads are copied, within a share of the memory budget.  Other returns
 * are counted, and in confirm mode the first is copied for the error that reports them. */
#include "returns.h"

#include "alloc.h"
#include "check.h"
#include "enter.h"
#include "error.h"
#include "store.h"

#include <string.h>

#define RETURNS_SHARE 8 /* of memory_budget: returned messages that were not read yet */

void qsi_returns_init(struct qs_channel *channel)
{
    qsi_list_init(&channel->returns);
    qsi_list_init(&channel->tx_returns);
    qsi_list_init(&channel->ignored_returns);
}

void qsi_returns_fini(struct qs_channel *channel)
{
    qsi_free_return_list(channel->store, &channel->returns);
    qsi_free_return_list(channel->store, &channel->tx_returns);
    qsi_free_return_list(channel->store, &channel->ignored_returns);
}

/* ---- keeping ---- */

struct qsi_list *qsi_returns_of(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (channel->tx_selected) {
        return &channel->tx_returns;
    }
    return channel->ignores_returns ? &channel->ignored_returns : &channel->returns;
}

struct qsi_return_rules qsi_return_rules(const struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    return (struct qsi_return_rules){
        .ignores = channel->ignores_returns,
        .keeps_first = channel->confirms.selected && channel->ignored_return_count == 0,
    };
}

bool qsi_wants_return(const struct qsi_return_rules *rules, const struct qsi_list *fresh)
{
    return !rules->ignores || (rules->keeps_first && qsi_list_is_empty(fresh));
}

void qsi_count_returns(struct qs_channel *channel, uint64_t count)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    channel->store->stats.returned += count;
    if (channel->ignores_returns && channel->confirms.selected) {
        channel->ignored_return_count += count;
    }
}

/* The publisher itself reads them, so waiting would never end.  A single one always fits. */
static bool reserve_return(struct qs_store *store, uint64_t bytes, uint64_t *before_out)
{
    *before_out = __atomic_fetch_add(&store->return_bytes, bytes, __ATOMIC_RELAXED);
    if (*before_out == 0 || *before_out + bytes <= store->options.memory_budget / RETURNS_SHARE) {
        return true;
    }
    __atomic_fetch_sub(&store->return_bytes, bytes, __ATOMIC_RELAXED);
    return false;
}

qs_status qsi_return_make(struct qs_store *store, const struct qsi_return_rules *rules,
                          struct qsi_list *returns, struct qsi_slice exchange, struct qsi_slice key,
                          struct qsi_slice properties, struct qsi_slice body, qs_error *error)
{
    size_t bytes = sizeof(struct qsi_returned_message) + exchange.bytes + key.bytes +
                   properties.bytes + body.bytes;
    uint64_t before;
    struct qsi_chunk *chunk;
    struct qsi_returned_message *returned;
    uint8_t *at;

    if (!reserve_return(store, bytes, &before)) {
        return rules->ignores
                   ? QS_OK
                   : qsi_fail(error, QS_ESTORE_FULL,
                              "%llu bytes of returned messages wait to be read, and an eighth of "
                              "memory_budget is the most; nothing was accepted: process the "
                              "channel's events and try again, or publish fewer unroutable "
                              "messages at once",
                              (unsigned long long)before);
    }
    chunk = qsi_chunk_create(bytes);
    if (chunk == NULL) {
        __atomic_fetch_sub(&store->return_bytes, bytes, __ATOMIC_RELAXED);
        return qsi_fail(error, QS_ENOMEM, "returned message of %zu bytes", bytes);
    }
    qsi_chunk_charge(chunk, store->budget);
    returned = (struct qsi_returned_message *)(void *)chunk->data;
    returned->chunk = chunk;
    returned->place = 0;
    at = returned->bytes;
    returned->exchange = qsi_slice_make(at, exchange.bytes);
    at = qsi_slice_put(at, exchange);
    returned->routing_key = qsi_slice_make(at, key.bytes);
    at = qsi_slice_put(at, key);
    returned->properties = qsi_slice_make(at, properties.bytes);
    at = qsi_slice_put(at, properties);
    returned->body = qsi_slice_make(at, body.bytes);
    qsi_slice_put(at, body);
    qsi_list_push_back(returns, &returned->in_channel);
    return QS_OK;
}

static struct qsi_returned_message *returned_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_returned_message, in_channel);
}

/* The last one, after those that were published before it. */
static void put_in_place(struct qsi_list *returns, uint64_t place)
{
    struct qsi_list *last = returns->previous, *before = last->previous;

    returned_at(last)->place = place;
    while (before != returns && returned_at(before)->place > place) {
        before = before->previous;
    }
    qsi_list_remove(last);
    qsi_list_insert_before(before->next, last);
}

/* For returns of the open transaction. */
static void count_memory(struct qs_channel *channel, const struct qsi_list *returns,
                         const struct qsi_returned_message *returned) QSI_REQUIRES(qsi_store_mutex)
{
    if (returns == &channel->tx_returns) {
        channel->tx_return_bytes +=
            sizeof *returned->chunk + returned->chunk->capacity + QSI_ALLOCATION_BYTES;
    }
}

qs_status qsi_return_one(struct qs_channel *channel, struct qsi_list *returns, uint64_t place,
                         struct qsi_slice exchange, struct qsi_slice key,
                         struct qsi_slice properties, struct qsi_slice body, qs_error *error)
{
    const struct qsi_list *last = returns->previous;
    struct qsi_return_rules rules = qsi_return_rules(channel);

    QS_ASSERT_HELD(&channel->store->mutex);
    if (qsi_wants_return(&rules, returns)) {
        QS_TRY(qsi_return_make(channel->store, &rules, returns, exchange, key, properties, body,
                               error));
    }
    if (returns->previous != last) {
        count_memory(channel, returns, returned_at(returns->previous));
        put_in_place(returns, place);
    }
    qsi_count_returns(channel, 1);
    return QS_OK;
}

void qsi_keep_returns(struct qs_channel *channel, struct qsi_list *fresh)
{
    struct qsi_list *returns = qsi_returns_of(channel);

    for (struct qsi_list *node = fresh->next; node != fresh; node = node->next) {
        count_memory(channel, returns, returned_at(node));
    }
    qsi_move_returns(fresh, returns);
}

/* ---- reading ---- */

/* Out of its list: it was read, or will never be read. */
static struct qsi_returned_message *unlink_first(struct qs_store *store, struct qsi_list *returns)
{
    struct qsi_returned_message *returned =
        QSI_LIST_OWNER(returns->next, struct qsi_returned_message, in_channel);

    QS_DCHECK(!qsi_list_is_empty(returns));
    qsi_list_remove(&returned->in_channel);
    QS_DCHECK(returned->chunk->capacity <= __atomic_load_n(&store->return_bytes, __ATOMIC_RELAXED));
    __atomic_fetch_sub(&store->return_bytes, returned->chunk->capacity, __ATOMIC_RELAXED);
    return returned;
}

bool qsi_return_next(struct qs_store *store, struct qsi_list *returns, qs_event *event)
{
    struct qsi_returned_message *returned;

    if (qsi_list_is_empty(returns)) {
        return false;
    }
    returned = unlink_first(store, returns);
    event->kind = QS_EVENT_RETURN;
    event->reply_code = 312;
    event->reply_text = "NO_ROUTE";
    event->message.exchange = qs_slice_of(returned->exchange);
    event->message.routing_key = qs_slice_of(returned->routing_key);
    event->message.properties = qs_slice_of(returned->properties);
    event->message.body = qs_slice_of(returned->body);
    event->message.hold = returned->chunk;
    return true;
}

void qsi_free_return_list(struct qs_store *store, struct qsi_list *returns)
{
    while (!qsi_list_is_empty(returns)) {
        qsi_chunk_unref(unlink_first(store, returns)->chunk);
    }
}

void qsi_move_returns(struct qsi_list *from, struct qsi_list *to)
{
    while (!qsi_list_is_empty(from)) {
        struct qsi_list *node = from->next;
        qsi_list_remove(node);
        qsi_list_push_back(to, node);
    }
}

/* ---- the channel's verbs ---- */

qs_status qs_channel_ignore_returns(qs_channel *channel, bool ignored, qs_error *error)
{
    QS_TRY(qsi_channel_enter(channel, error));
    channel->ignores_returns = ignored;
    return qsi_channel_leave(channel, QS_OK);
}

qs_status qs_channel_take_ignored(qs_channel *channel, qs_event *first_out, uint64_t *count_out,
                                  qs_error *error)
{
    memset(first_out, 0, sizeof *first_out);
    *count_out = 0;
    QS_TRY(qsi_channel_enter(channel, error));
    qsi_return_next(channel->store, &channel->ignored_returns, first_out);
    *count_out = channel->ignored_return_count;
    channel->ignored_return_count = 0;
    return qsi_channel_leave(channel, QS_OK);
}
