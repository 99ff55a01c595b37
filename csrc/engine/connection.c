/* Connections and channels: opened, shut and freed.
 *
 * Invariant: a shut channel is in no list of its connection, a shut connection has neither
 * channels nor queues. */
#include "alloc.h"
#include "check.h"
#include "clock.h"
#include "commit.h"
#include "consume.h"
#include "counts.h"
#include "deals.h"
#include "early.h"
#include "engine.h"
#include "enter.h"
#include "error.h"
#include "event_fd.h"
#include "listener.h"
#include "notify.h"
#include "pager.h"
#include "queue_life.h"
#include "removals.h"
#include "returns.h"
#include "settle.h"
#include "thread_safety.h"
#include "tx.h"

/* ---- the end ---- */

void qsi_make_room_to_shut(struct qs_store *store, const void *only)
{
    bool released = true;
    qs_status status = QS_OK;

    QS_ASSERT_HELD(&store->mutex);
    while (released && status == QS_OK) {
        uint64_t bytes = 0;
        for (struct qsi_list *node = store->channels.next; node != &store->channels;
             node = node->next) {
            const struct qs_channel *channel = QSI_LIST_OWNER(node, struct qs_channel, in_store);
            if (!channel->closed &&
                (only == NULL || only == channel || only == channel->connection)) {
                bytes +=
                    qsi_settle_bytes(channel, 1, channel->unacked.last_tag, QSI_SETTLE_REQUEUE) +
                    channel->unacked.withheld_count * QSI_SETTLE_BYTES;
            }
        }
        released = false;
        if (bytes > 0) {
            status = qsi_commit_make_room(store, bytes, bytes, QSI_ROOM_SETTLE, &released,
                                          QSI_MAY_WAIT, NULL);
        }
    }
}

void qsi_channel_shut(struct qs_channel *channel)
{
    QS_ASSERT_HELD(&channel->store->mutex);
    if (channel->closed) {
        return;
    }
    channel->closed = true;
    qsi_channel_notify_shut(channel);
    qsi_list_remove(&channel->in_connection);
    qsi_tx_drop(channel);
    qsi_requeue_tags(channel, 1, channel->unacked.last_tag);
    qsi_hand_back_withheld(channel);
    qsi_bring_back_aside(channel);
    qsi_drop_consumers(channel);
    qsi_deals_fini(channel);
    QS_DCHECK(channel->unacked.outstanding_count == 0);
    qsi_counts_keep(channel);
    if (!channel->connection->is_shared) {
        qsi_connection_shut(channel->connection);
    }
    QS_ASSERT(channel->unacked.withheld_count == 0 && qsi_list_is_empty(&channel->consumers) &&
              qsi_list_is_empty(&channel->resting) && qsi_list_is_empty(&channel->cancelled));
    qsi_events_notify(channel->store);
}

void qsi_connection_shut(struct qs_connection *connection)
{
    QS_ASSERT_HELD(&connection->store->mutex);
    if (connection->closed) {
        return;
    }
    connection->closed = true;
    connection->store->stats.connections_closed += 1;
    while (!qsi_list_is_empty(&connection->channels)) {
        qsi_channel_shut(
            QSI_LIST_OWNER(connection->channels.next, struct qs_channel, in_connection));
    }
    QS_DCHECK(qsi_list_is_empty(&connection->channels));
    while (!qsi_list_is_empty(&connection->exclusive_queues)) {
        qsi_drop_queue(
            connection->store,
            QSI_LIST_OWNER(connection->exclusive_queues.next, struct qsi_store_queue, in_owner),
            QSI_AUTO_DELETE_GOES);
    }
}

static void unref_connection(struct qs_connection *connection) QSI_REQUIRES(qsi_store_mutex)
{
    QS_DCHECK(connection->references > 0);
    connection->references -= 1;
    if (connection->references == 0) {
        QS_ASSERT(connection->closed && qsi_list_is_empty(&connection->channels));
        qsi_list_remove(&connection->in_store);
        qsi_free(connection->client);
        qsi_free(connection);
    }
}

/* ---- connections ---- */

/* The caller has its one reference. */
static struct qs_connection *new_connection(struct qs_store *store, bool is_shared)
{
    struct qs_connection *connection = qsi_zalloc(sizeof *connection);

    if (connection != NULL) {
        qsi_connection_is_private(connection);
        connection->store = store;
        connection->references = 1;
        connection->is_shared = is_shared;
        qsi_list_init(&connection->in_store);
        qsi_list_init(&connection->channels);
        qsi_list_init(&connection->exclusive_queues);
    }
    return connection;
}

static void add_connection(struct qs_connection *connection) QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = connection->store;

    connection->number = ++store->last_connection_number;
    connection->opened_us = qsi_clock_us(store);
    qsi_list_push_back(&store->connections, &connection->in_store);
}

qs_status qs_connection_open(qs_connection **connection_out, qs_store *store, qs_error *error)
{
    struct qs_connection *connection = new_connection(store, true);
    qs_status status;

    *connection_out = NULL;
    if (connection == NULL) {
        return qsi_fail(error, QS_ENOMEM, "connection");
    }
    status = qsi_store_enter_to_change(store, error);
    if (status != QS_OK) {
        qsi_free(connection);
        return status;
    }
    add_connection(connection);
    store->references += 1;
    qsi_store_leave(store);
    *connection_out = connection;
    return QS_OK;
}

void qs_connection_close(qs_connection *connection)
{
    struct qs_store *store;

    if (connection == NULL || qsi_store_is_forked(connection->store)) {
        return;
    }
    store = connection->store;
    qsi_store_lock(store);
    if (store->life < QSI_LIFE_SHUT) {
        qsi_make_room_to_shut(store, connection);
    }
    qsi_connection_shut(connection);
    if (store->life < QSI_LIFE_SHUT && qsi_has_removals(store)) {
        qsi_drain_removals(store, QSI_MAY_WAIT);
    }
    unref_connection(connection);
    qsi_store_unref(store);
}

bool qs_connection_is_closed(qs_connection *connection)
{
    bool closed;

    if (qsi_store_enter(connection->store, NULL) != QS_OK) {
        return true;
    }
    closed = connection->closed;
    qsi_store_leave(connection->store);
    return closed;
}

/* ---- channels ---- */

static void add_channel(struct qs_channel *channel, struct qs_connection *connection)
    QSI_REQUIRES(qsi_store_mutex)
{
    struct qs_store *store = connection->store;

    QS_ASSERT(connection->references > 0 && store->life < QSI_LIFE_SHUT);
    QS_DCHECK(!connection->closed);
    channel->store = store;
    channel->connection = connection;
    channel->number = ++store->last_channel_number;
    channel->event_fd = QSI_NO_EVENT_FD;
    qsi_returns_init(channel);
    qsi_list_init(&channel->consumers);
    qsi_list_init(&channel->resting);
    qsi_list_init(&channel->cancelled);
    qsi_list_init(&channel->acked_cursors);
    qsi_list_init(&channel->in_changes);
    qsi_list_init(&channel->in_confirms);
    qsi_list_init(&channel->in_rang);
    qsi_list_push_back(&connection->channels, &channel->in_connection);
    qsi_list_push_back(&store->channels, &channel->in_store);
    store->references += 1;
}

qs_status qs_channel_open(qs_channel **channel_out, qs_store *store, qs_error *error)
{
    struct qs_channel *channel = qsi_zalloc(sizeof *channel);
    struct qs_connection *connection = new_connection(store, false);
    qs_status status;

    *channel_out = NULL;
    if (channel == NULL || connection == NULL) {
        qsi_free(channel);
        qsi_free(connection);
        return qsi_fail(error, QS_ENOMEM, "channel");
    }
    status = qsi_store_enter_to_change(store, error);
    if (status != QS_OK) {
        qsi_free(channel);
        qsi_free(connection);
        return status;
    }
    add_connection(connection);
    add_channel(channel, connection);
    qsi_store_leave(store);
    *channel_out = channel;
    return QS_OK;
}

qs_status qs_connection_channel(qs_channel **channel_out, qs_connection *connection,
                                qs_error *error)
{
    struct qs_channel *channel = qsi_zalloc(sizeof *channel);
    qs_status status;

    *channel_out = NULL;
    if (channel == NULL) {
        return qsi_fail(error, QS_ENOMEM, "channel");
    }
    status = qsi_store_enter(connection->store, error);
    if (status != QS_OK) {
        qsi_free(channel);
        return status;
    }
    if (connection->closed) {
        qsi_store_leave(connection->store);
        qsi_free(channel);
        return qsi_fail(error, QS_ECHANNEL_CLOSED,
                        "the connection is closed: an earlier error ended it, open another");
    }
    connection->references += 1;
    add_channel(channel, connection);
    qsi_store_leave(connection->store);
    *channel_out = channel;
    return QS_OK;
}

uint64_t qs_channel_number(const qs_channel *channel)
{
    return channel->number; /* constant since it was opened */
}

void qs_channel_close(qs_channel *channel)
{
    struct qs_store *store;

    if (channel == NULL || qsi_store_is_forked(channel->store)) {
        return;
    }
    store = channel->store;
    qsi_store_lock(store);
    if (store->life < QSI_LIFE_SHUT) {
        qsi_make_room_to_shut(store, channel);
    }
    qsi_channel_shut(channel);
    qsi_early_forget(channel);
    if (store->life < QSI_LIFE_SHUT && qsi_has_removals(store)) {
        qsi_drain_removals(store, QSI_MAY_WAIT);
    }
    unref_connection(channel->connection);
    qsi_channel_leave_listener(channel);
    qsi_list_remove(&channel->in_store);
    QS_DCHECK(channel->unacked.outstanding_count == 0 && channel->unacked.withheld_count == 0);
    QS_ASSERT(channel->closed && channel->tx_records == NULL);
    qsi_unacked_fini(&channel->unacked);
    qsi_confirms_fini(&channel->confirms);
    qsi_buf_fini(&channel->ways.ways);
    qsi_returns_fini(channel);
    qsi_buf_fini(&channel->tx_settles);
    qsi_buf_fini(&channel->tx_cursors);
    qsi_buf_fini(&channel->tx_published.notes);
    qsi_map_fini(&channel->tx_published.known);
    qsi_free(channel);
    qsi_store_unref(store);
}
