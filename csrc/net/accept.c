/* New connections. */
#include "address.h"
#include "alloc.h"
#include "net_fork.h"
#include "net_server.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ACCEPTED_AT_ONCE 64
#define REST_NS (100 * QSI_NET_MS)
#define LOG_AGAIN_NS (10 * QSI_NET_SECOND)
#define TOO_MANY "there are as many connections as may be"
#define NO_MEMORY "no memory is left"

static qs_status make_session(struct qsi_net_connection *connection)
{
    struct qsi_amqp_setup setup = connection->server->setup;

    setup.peer_context = connection;
    return qsi_amqp_session_create(&connection->session, &setup, qsi_net_now(connection->server),
                                   NULL);
}

struct qsi_net_connection *qsi_net_connection_make(struct qs_server *server, int fd,
                                                   const char *peer, const char *user,
                                                   bool is_loopback)
{
    struct qsi_net_connection *connection = qsi_zalloc(sizeof *connection);

    if (connection == NULL) {
        qsi_net_close(fd);
        return NULL;
    }
    *connection = (struct qsi_net_connection){.source.kind = QSI_NET_CONNECTION,
                                              .server = server,
                                              .fd = fd,
                                              .end_by_ns = QSI_TIMER_NEVER,
                                              .refuse_at_ns = QSI_TIMER_NEVER,
                                              .can_write = true,
                                              .is_loopback = is_loopback};
    snprintf(connection->peer, sizeof connection->peer, "%s", peer);
    snprintf(connection->user, sizeof connection->user, "%s", user);
    qsi_list_init(&connection->in_server);
    qsi_list_init(&connection->in_queue);
    qsi_list_init(&connection->rung);
    if (make_session(connection) != QS_OK) {
        qsi_net_connection_free(connection);
        return NULL;
    }
    return connection;
}

void qsi_net_connection_free(struct qsi_net_connection *connection)
{
    if (connection->session != NULL) {
        qsi_amqp_session_close(connection->session);
    }
    qsi_net_close(connection->fd);
    qsi_free(connection);
}

/* Connections are numbered over all servers of the process. */
static uint64_t next_number(void)
{
    static uint64_t last; /* atomic */

    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

/* Registers the socket with epoll.  False: that failed, and the connection is freed. */
static bool begin(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = connection};

    connection->number = next_number();
    if (qsi_timers_reserve(&server->timers, server->by_number.count + 1) != QS_OK ||
        qsi_map_put_number(&server->by_number, connection->number, connection) != QS_OK) {
        qsi_net_connection_free(connection);
        return false;
    }
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
        (void)qsi_map_remove_number(&server->by_number, connection->number);
        qsi_net_connection_free(connection);
        return false;
    }
    qsi_list_push_back(&server->connections, &connection->in_server);
    qsi_net_lock(server);
    server->counts.connections += 1;
    server->counts.connections_accepted += 1;
    qsi_net_unlock(server);
    qsi_net_make_ready(connection); /* sets its deadline */
    return true;
}

static void turn_away(struct qs_server *server, int fd, const char *why)
{
    uint64_t now_ns = qsi_net_now(server);

    qsi_net_lock(server);
    server->counts.connections_turned_away += 1;
    qsi_net_unlock(server);
    qsi_net_close(fd);
    if (now_ns - server->logged_away_ns >= LOG_AGAIN_NS) {
        server->logged_away_ns = now_ns;
        qsi_net_log(server, QS_NOTE_WARNING, "AMQP: clients are turned away: %s", why);
    }
}

/* Stops watching a listener for a while: epoll would report a connection that cannot be accepted
 * again and again. */
static void rest(struct qs_server *server, struct qsi_net_listener *listener)
{
    struct epoll_event event = {.data.ptr = listener};

    epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, listener->fd, &event);
    server->accept_again_ns = qsi_net_now(server) + REST_NS;
}

void qsi_net_listener_free(struct qsi_net_listener *listener)
{
    qsi_net_close(listener->fd);
    if (!listener->is_passed) {
        qsi_address_unlisten(listener->bound);
    }
    qsi_free(listener);
}

void qsi_net_accept_again(struct qs_server *server)
{
    server->accept_again_ns = QSI_TIMER_NEVER;
    for (struct qsi_list *node = server->listeners.next; node != &server->listeners;
         node = node->next) {
        struct qsi_net_listener *listener =
            QSI_LIST_OWNER(node, struct qsi_net_listener, in_server);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = listener};

        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, listener->fd, &event);
    }
}

/* Accepts and closes a connection when no descriptor is left, with the spare one.  Another thread
 * may take that one first.  False: no connection was accepted. */
static bool accept_with_spare(struct qs_server *server, int listener_fd)
{
    int fd;

    if (server->spare_fd != QSI_NET_NO_FD) {
        close(server->spare_fd);
    }
    fd = qsi_net_accept(listener_fd, NULL, NULL);
    if (fd >= 0) {
        turn_away(server, fd, "no descriptor is left");
    }
    server->spare_fd = eventfd(0, EFD_CLOEXEC);
    return fd >= 0;
}

static bool has_as_many_as_may_be(const struct qs_server *server)
{
    return server->by_number.count >= server->options.connections_max;
}

void qsi_net_begin_adopted(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;

    if (has_as_many_as_may_be(server)) {
        qsi_net_connection_free(connection);
        turn_away(server, QSI_NET_NO_FD, TOO_MANY);
    } else if (!begin(connection)) {
        turn_away(server, QSI_NET_NO_FD, NO_MEMORY);
    }
}

static void take_in(struct qs_server *server, int fd, const struct sockaddr *address)
{
    struct qsi_net_connection *connection;
    char peer[QS_ADDRESS_BYTES];
    int one = 1;

    if (has_as_many_as_may_be(server)) {
        turn_away(server, fd, TOO_MANY);
        return;
    }
    if (address->sa_family != AF_UNIX) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
    qsi_address_text(peer, address);
    connection = qsi_net_connection_make(server, fd, peer, "", qsi_address_is_loopback(address));
    if (connection != NULL && server->options.proxy_protocol) {
        connection->header = QSI_NET_HEADER_AWAITED;
    }
    if (connection == NULL || !begin(connection)) {
        turn_away(server, QSI_NET_NO_FD, NO_MEMORY);
    }
}

void qsi_net_accept_all(struct qs_server *server, struct qsi_net_listener *listener)
{
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        struct sockaddr_storage address = {.ss_family = AF_UNIX};
        socklen_t bytes = sizeof address;
        int fd = qsi_net_accept(listener->fd, (struct sockaddr *)&address, &bytes);
        if (fd >= 0) {
            take_in(server, fd, (const struct sockaddr *)&address);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EMFILE || errno == ENFILE) {
            if (!accept_with_spare(server, listener->fd)) {
                rest(server, listener);
                break;
            }
        } else if (errno != EINTR && errno != ECONNABORTED) {
            rest(server, listener);
            break;
        }
    }
}
