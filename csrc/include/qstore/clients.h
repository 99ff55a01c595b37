/* Lists the users of a store: connections, channels and consumers. */
#ifndef QSTORE_CLIENTS_H
#define QSTORE_CLIENTS_H

#include "qstore/channel.h"

/* Describes the client behind a connection, as its host (a server) says, for people. */
typedef struct qs_client {
    uint64_t number; /* the host's own, from 1; 0: there is no client but this process */
    qs_slice peer, user, mechanism;
    qs_slice properties; /* an encoded table: the client's own description */
    uint32_t frame_max;
    uint16_t channel_max, heartbeat_s;
} qs_client;

/* qs_connection_set_client - describe the client behind a connection.  The description is copied;
 * once for each connection.
 *
 * Returns: QS_ENOMEM */
QS_API QS_MUST_CHECK qs_status qs_connection_set_client(qs_connection *connection,
                                                        const qs_client *client, qs_error *error);

/* qs_channel_set_client_number - set the number by which the client knows a channel. */
QS_API void qs_channel_set_client_number(qs_channel *channel, uint32_t number);

/* ---- listings: as those of admin.h ---- */

typedef struct qs_connection_info {
    uint64_t number;    /* of the store's connections, from 1 */
    uint64_t opened_us; /* since 1970, by the store's clock */
    uint64_t channels;
    qs_client client;
} qs_connection_info;

typedef struct qs_channel_info {
    uint64_t number, connection; /* of the store's */
    uint64_t client_number;      /* 0: not set */
    uint64_t prefetch;           /* of each new consumer; 0: unlimited, as for the next */
    uint64_t prefetch_channel;   /* of all its consumers together */
    uint64_t consumers, unacked, unconfirmed;
    uint64_t messages_uncommitted, acks_uncommitted; /* of its open transaction */
    bool confirms, transactional;
} qs_channel_info;

typedef struct qs_consumer_info {
    uint64_t channel; /* its number in the store */
    qs_slice queue, tag;
    int64_t priority;
    uint64_t prefetch, unacked;
    bool no_ack, exclusive;
    bool is_active; /* false: another one is the single active consumer of its queue */
    bool is_slow;   /* acknowledged nothing while its queue grew by its prefetch, all used up */
} qs_consumer_info;

/* qs_store_visit_connections - call visit for each connection that is open.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_connections(
    qs_store *store, void (*visit)(void *context, const qs_connection_info *), void *context);

/* qs_store_visit_channels - call visit for each channel that is open.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_channels(
    qs_store *store, void (*visit)(void *context, const qs_channel_info *), void *context);

/* qs_store_visit_consumers - call visit for each consumer, by channel.
 *
 * Returns: QS_OK, or the common statuses */
QS_API QS_MUST_CHECK qs_status qs_store_visit_consumers(
    qs_store *store, void (*visit)(void *context, const qs_consumer_info *), void *context);

#endif
