/* Connections through a proxy: the header that the proxy sends before the client's bytes. */
#include "error.h"
#include "net_server.h"

#include <errno.h>
#include <stdio.h>

/* Reads the input and leaves it in the socket: the bytes after the header are the session's. */
static size_t peek(struct qsi_net_connection *connection)
{
    ssize_t got;

    do {
        got = recv(connection->fd, connection->server->input, QS_PROXY_HEADER_BYTES,
                   MSG_PEEK | MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) {
        connection->can_read = false; /* epoll reports further input */
        connection->is_lost = connection->is_lost || got == 0 ||
                              (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOMEM);
    }
    return got > 0 ? (size_t)got : 0;
}

static void await_rest(struct qsi_net_connection *connection)
{
    connection->can_read = false;
    connection->is_lost = connection->is_lost || connection->has_ended;
}

/* The peer is loopback only if both the proxy's connection and the client's address are: a proxy on
 * this machine serves clients of any machine, and a client on the proxy's machine may not be on
 * this one. */
static void take_peer(struct qsi_net_connection *connection, const qs_proxy_header *header)
{
    if (header->has_peer) {
        connection->is_loopback = connection->is_loopback && header->is_loopback;
        snprintf(connection->peer, sizeof connection->peer, "%s", header->peer);
    }
}

bool qsi_net_take_header(struct qsi_net_connection *connection)
{
    qs_proxy_header header;
    qs_error error = {0};
    size_t bytes = connection->can_read ? peek(connection) : 0;

    if (bytes == 0) {
        return false;
    }
    if (qs_proxy_header_read(connection->server->input, bytes, &header, &error) != QS_OK) {
        qsi_net_log(connection->server, QS_NOTE_WARNING, "AMQP %s: closed: %s", connection->peer,
                    error.text);
        connection->header = QSI_NET_HEADER_REFUSED;
        connection->is_lost = true;
        return false;
    }
    if (header.bytes == 0) {
        await_rest(connection);
        return false;
    }
    if (recv(connection->fd, connection->server->input, header.bytes, MSG_DONTWAIT) !=
        (ssize_t)header.bytes) {
        connection->is_lost = true;
        return false;
    }
    take_peer(connection, &header);
    connection->header = QSI_NET_HEADER_TAKEN;
    return true;
}

void qsi_net_log_missing_header(struct qsi_net_connection *connection, enum qsi_amqp_end end)
{
    if (connection->header == QSI_NET_HEADER_REFUSED) { /* this was logged */
        return;
    }
    if (end == QSI_AMQP_END_HANDSHAKE) {
        qsi_net_log(connection->server, QS_NOTE_WARNING,
                    "AMQP %s: closed: no PROXY header came in time", connection->peer);
    } else {
        qsi_net_log(connection->server, QS_NOTE_INFO, "AMQP %s: ended before its PROXY header came",
                    connection->peer);
    }
}
