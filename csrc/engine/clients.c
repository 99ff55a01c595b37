/* The clients of a store: what hosts report about them, and the listings of connections, channels
 * and consumers. */
#include "qstore/clients.h"

#include "alloc.h"
#include "enter.h"
#include "error.h"
#include "pending_records.h"
#include "prefetch.h"
#include "store.h"

#include <string.h>

static qs_slice keep(qs_slice slice, char **at)
{
    qs_slice kept = {.data = *at, .bytes = slice.bytes};

    if (slice.bytes > 0) {
        memcpy(*at, slice.data, slice.bytes);
    }
    *at += slice.bytes;
    return kept;
}

qs_status qs_connection_set_client(qs_connection *connection, const qs_client *client,
                                   qs_error *error)
{
    size_t bytes = client->peer.bytes + client->user.bytes + client->mechanism.bytes +
                   client->properties.bytes;
    qs_client *kept = qsi_alloc(sizeof *kept + bytes);
    qs_status status;
    char *at;

    if (kept == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a connection");
    }
    *kept = *client;
    at = (char *)(kept + 1);
    kept->peer = keep(client->peer, &at);
    kept->user = keep(client->user, &at);
    kept->mechanism = keep(client->mechanism, &at);
    kept->properties = keep(client->properties, &at);
    status = qsi_store_enter(connection->store, error);
    if (status != QS_OK) {
        qsi_free(kept);
        return status;
    }
    qsi_free(connection->client);
    connection->client = kept;
    qsi_store_leave(connection->store);
    return QS_OK;
}

void qs_channel_set_client_number(qs_channel *channel, uint32_t number)
{
    if (qsi_store_enter(channel->store, NULL) == QS_OK) {
        channel->client_number = number;
        qsi_store_leave(channel->store);
    }
}

/* ---- listings ---- */

static uint64_t count(const struct qsi_list *list)
{
    uint64_t found = 0;

    for (const struct qsi_list *node = list->next; node != list; node = node->next) {
        found += 1;
    }
    return found;
}

qs_status qs_store_visit_connections(qs_store *store,
                                     void (*visit)(void *context, const qs_connection_info *),
                                     void *context)
{
    QS_TRY(qsi_store_enter(store, NULL));
    for (struct qsi_list *node = store->connections.next; node != &store->connections;
         node = node->next) {
        const struct qs_connection *connection =
            QSI_LIST_OWNER(node, struct qs_connection, in_store);
        qs_connection_info info = {.number = connection->number,
                                   .opened_us = connection->opened_us,
                                   .channels = count(&connection->channels)};
        if (connection->client != NULL) {
            info.client = *connection->client;
        }
        if (!connection->closed) {
            visit(context, &info);
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}

/* Publish numbers whose commit is not done yet. */
static uint64_t unconfirmed_count(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    const struct qsi_number_ranges *pending = &channel->confirms.pending;
    uint64_t durable_lsn =
        channel->store->options.read_only ? 0 : qsi_journal_durable_lsn(channel->store->journal);
    uint64_t found = 0;

    for (uint32_t i = 0; i < pending->count; i++) {
        const struct qsi_number_range *range = &pending->items[pending->first + i];
        found += range->lsn > durable_lsn ? range->last - range->first + 1 : 0;
    }
    return found;
}

static uint64_t uncommitted_settles(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    struct qsi_tx_settle settle;
    uint64_t found = 0;

    for (size_t at = 0; at < channel->tx_settles.bytes; at += sizeof settle) {
        memcpy(&settle, channel->tx_settles.data + at, sizeof settle);
        found += settle.last_tag - settle.first_tag + 1;
    }
    return found;
}

static qs_channel_info channel_info(const struct qs_channel *channel) QSI_REQUIRES(qsi_store_mutex)
{
    return (qs_channel_info){
        .number = channel->number,
        .connection = channel->connection->number,
        .client_number = channel->client_number,
        .prefetch = channel->prefetch_new,
        .prefetch_channel = channel->prefetch_channel,
        .consumers = count(&channel->consumers) + count(&channel->resting),
        .unacked = channel->unacked.outstanding_count + channel->deals.count,
        .unconfirmed = unconfirmed_count(channel),
        .messages_uncommitted = channel->tx_records == NULL ? 0 : channel->tx_records->count,
        .acks_uncommitted = uncommitted_settles(channel),
        .confirms = channel->confirms.selected,
        .transactional = channel->tx_selected,
    };
}

qs_status qs_store_visit_channels(qs_store *store,
                                  void (*visit)(void *context, const qs_channel_info *),
                                  void *context)
{
    QS_TRY(qsi_store_enter(store, NULL));
    for (struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        const struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
        if (!channel->closed) {
            qs_channel_info info = channel_info(channel);
            visit(context, &info);
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}

static void visit_consumers_in(const struct qsi_list *list, const struct qs_channel *channel,
                               void (*visit)(void *context, const qs_consumer_info *),
                               void *context) QSI_REQUIRES(qsi_store_mutex)
{
    for (const struct qsi_list *node = list->next; node != list; node = node->next) {
        const struct qsi_store_consumer *consumer =
            QSI_LIST_OWNER(node, const struct qsi_store_consumer, in_channel);
        qs_consumer_info info = {
            .channel = channel->number,
            .queue = qs_slice_of(consumer->queue_name),
            .tag = qs_slice_of(consumer->tag),
            .priority = consumer->priority,
            .prefetch = consumer->prefetch,
            .unacked = consumer->unacked_count + consumer->dealt_count,
            .no_ack = consumer->no_ack,
        };
        info.exclusive = consumer->queue->exclusive_consumer;
        info.is_active = consumer->queue->active == NULL || consumer->queue->active == consumer;
        info.is_slow = qsi_consumer_is_slow(consumer);
        visit(context, &info);
    }
}

qs_status qs_store_visit_consumers(qs_store *store,
                                   void (*visit)(void *context, const qs_consumer_info *),
                                   void *context)
{
    QS_TRY(qsi_store_enter(store, NULL));
    for (struct qsi_list *node = store->channels.next; node != &store->channels;
         node = node->next) {
        const struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
        if (!channel->closed) {
            visit_consumers_in(&channel->consumers, channel, visit, context);
            visit_consumers_in(&channel->resting, channel, visit, context);
        }
    }
    qsi_store_leave(store);
    return QS_OK;
}
