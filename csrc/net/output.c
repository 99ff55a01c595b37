/* Writing the output of sessions. */
#include "net_server.h"

#include <errno.h>

#define PIECES 64

/* Whether the error means that the client cannot be written to any more. */
static bool is_final(int os_errno)
{
    return os_errno != EAGAIN && os_errno != EWOULDBLOCK && os_errno != EINTR &&
           os_errno != ENOBUFS && os_errno != ENOMEM;
}

/* False: the socket takes nothing now, or never again. */
static bool write_some(struct qsi_net_connection *connection, uint64_t now_ns)
{
    struct iovec pieces[PIECES];
    int count = qsi_amqp_session_output(connection->session, pieces, PIECES);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
    size_t wanted = 0;
    ssize_t sent;

    if (count == 0) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        wanted += pieces[i].iov_len;
    }
    sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        connection->is_lost = connection->is_lost || is_final(errno);
        connection->can_write = errno == EINTR;
        return errno == EINTR;
    }
    qsi_amqp_session_written(connection->session, (size_t)sent, now_ns);
    connection->can_write = (size_t)sent == wanted;
    return connection->can_write;
}

void qsi_net_flush(struct qsi_net_connection *connection, uint64_t now_ns)
{
    while (connection->can_write && write_some(connection, now_ns)) {
    }
}

bool qsi_net_send_heartbeat(struct qsi_net_connection *connection)
{
    ssize_t sent;

    if (!connection->beats_while_away || connection->is_lost) {
        return false;
    }
    sent = send(connection->fd, qsi_amqp_heartbeat_frame, sizeof qsi_amqp_heartbeat_frame,
                MSG_NOSIGNAL | MSG_DONTWAIT);
    /* Part of a frame cannot be withdrawn, and the session does not know of it, so its rest cannot
     * be written later. */
    if (sent > 0 && (size_t)sent < sizeof qsi_amqp_heartbeat_frame) {
        connection->is_lost = true;
    }
    return sent == (ssize_t)sizeof qsi_amqp_heartbeat_frame;
}
