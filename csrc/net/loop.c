/* The I/O thread: waits for sockets, channels, timers and other threads, and gives a turn to each
 * connection that has something to do. */
#include "net_server.h"

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define EVENTS 256
#define BEAT_WHILE_AWAY_NS QSI_NET_SECOND

/* Moves a list that other threads fill into a local one. */
static void move_all(struct qsi_list *from, struct qsi_list *to)
{
    qsi_list_init(to);
    while (!qsi_list_is_empty(from)) {
        struct qsi_list *node = from->next;
        qsi_list_remove(node);
        qsi_list_push_back(to, node);
    }
}

static struct qsi_net_connection *first_of(struct qsi_list *list)
{
    struct qsi_net_connection *connection =
        QSI_LIST_OWNER(list->next, struct qsi_net_connection, in_queue);

    qsi_list_remove(&connection->in_queue);
    return connection;
}

/* ---- requests of other threads ---- */

static void begin_listeners(struct qs_server *server, struct qsi_list *listeners)
{
    while (!qsi_list_is_empty(listeners)) {
        struct qsi_net_listener *listener =
            QSI_LIST_OWNER(listeners->next, struct qsi_net_listener, in_server);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = listener};
        qsi_list_remove(&listener->in_server);
        qsi_list_push_back(&server->listeners, &listener->in_server);
        if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, listener->fd, &event) != 0) {
            qsi_net_log(server, QS_NOTE_ERROR, "AMQP: %s is not served: no memory for epoll",
                        listener->bound);
        }
    }
}

static void begin_newcomers(struct qsi_list *newcomers)
{
    while (!qsi_list_is_empty(newcomers)) {
        qsi_net_begin_adopted(first_of(newcomers));
    }
}

static void bury(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;

    (void)qsi_map_remove_number(&server->by_number, connection->number);
    qsi_list_remove(&connection->in_server);
    qsi_net_lock(server);
    server->counts.connections -= 1;
    qsi_net_unlock(server);
    qsi_net_connection_free(connection);
}

static void welcome_back(struct qsi_list *returned, uint64_t now_ns)
{
    while (!qsi_list_is_empty(returned)) {
        struct qsi_net_connection *connection = first_of(returned);
        if (connection->place == QSI_NET_LEAVES) {
            bury(connection);
        } else {
            connection->place = QSI_NET_HERE;
            qsi_timers_set(&connection->server->timers, &connection->timer, QSI_TIMER_NEVER);
            qsi_net_go_on(connection, connection->wants, now_ns);
            qsi_net_make_ready(connection); /* for events that came meanwhile */
        }
    }
}

/* Marks all connections: each tells its session of the end in its next turn.  One that is with a
 * worker has that turn when it is back. */
static void notify_all(struct qs_server *server)
{
    for (struct qsi_list *node = server->connections.next; node != &server->connections;
         node = node->next) {
        struct qsi_net_connection *connection =
            QSI_LIST_OWNER(node, struct qsi_net_connection, in_server);
        connection->must_shut = true;
        qsi_net_make_ready(connection);
    }
}

static void close_listeners(struct qs_server *server)
{
    while (!qsi_list_is_empty(&server->listeners)) {
        struct qsi_net_listener *listener =
            QSI_LIST_OWNER(server->listeners.next, struct qsi_net_listener, in_server);
        qsi_list_remove(&listener->in_server);
        epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, listener->fd, NULL);
        qsi_net_listener_free(listener);
    }
}

static void cut_off(struct qs_server *server)
{
    for (struct qsi_list *node = server->connections.next; node != &server->connections;) {
        struct qsi_net_connection *connection =
            QSI_LIST_OWNER(node, struct qsi_net_connection, in_server);
        node = node->next;
        if (connection->place == QSI_NET_HERE) {
            qsi_net_end(connection, true);
        }
    }
}

/* Ends connections by number, some of which may have ended already. */
static void end_unwanted(struct qs_server *server, struct qsi_buf *numbers)
{
    for (size_t at = 0; at < numbers->bytes; at += sizeof(uint64_t)) {
        struct qsi_net_connection *connection;
        uint64_t number;
        memcpy(&number, numbers->data + at, sizeof number);
        connection = qsi_map_get_number(&server->by_number, number);
        if (connection != NULL) {
            connection->must_shut = connection->is_unwanted = true;
            qsi_net_make_ready(connection);
        }
    }
    qsi_buf_fini(numbers);
}

/* Handles the requests of other threads.  False: the server is stopped, and no connection is
 * left. */
static bool look_around(struct qs_server *server)
{
    struct qsi_list listeners, newcomers, dropped, returned;
    struct qsi_buf unwanted;
    uint64_t now_ns = qsi_net_now(server);
    bool is_stopping, vhosts_end, vhosts_ended;

    qsi_net_lock(server);
    move_all(&server->new_listeners, &listeners);
    move_all(&server->newcomers, &newcomers);
    move_all(&server->dropped, &dropped);
    move_all(&server->returned, &returned);
    is_stopping = server->is_stopping;
    vhosts_end = server->vhosts_end;
    vhosts_ended = server->vhosts_ended;
    unwanted = server->unwanted;
    server->unwanted = (struct qsi_buf){0};
    server->cut_by_ns = server->stop_by_ns;
    server->is_awake = false;
    qsi_net_unlock(server);
    qsi_net_free_watches(&dropped); /* before their connections */
    begin_listeners(server, &listeners);
    begin_newcomers(&newcomers);
    welcome_back(&returned, now_ns);
    qsi_net_take_answers(server);
    end_unwanted(server, &unwanted);
    if (vhosts_end) {
        qsi_net_notify_ended_vhosts(server);
    }
    if (vhosts_ended) {
        qsi_net_free_ended_vhosts(server);
    }
    if (is_stopping && !server->is_shutting) {
        server->is_shutting = true;
        close_listeners(server);
        notify_all(server);
    }
    if (is_stopping && now_ns >= server->cut_by_ns) {
        cut_off(server);
    }
    return !is_stopping || server->by_number.count > 0;
}

/* ---- events of epoll and timers ---- */

static void record_events(struct qsi_net_connection *connection, uint32_t events)
{
    if (connection->fd == QSI_NET_NO_FD) { /* it ended after epoll_wait returned */
        return;
    }
    connection->can_read = connection->can_read || (events & ~(uint32_t)EPOLLOUT) != 0;
    connection->can_write = connection->can_write || (events & EPOLLOUT) != 0;
    connection->has_ended =
        connection->has_ended || (events & ~(uint32_t)(EPOLLIN | EPOLLOUT)) != 0;
    connection->is_cut = connection->is_cut || (events & (EPOLLHUP | EPOLLERR)) != 0;
    qsi_net_make_ready(connection);
}

static void take_event(struct qs_server *server, const struct epoll_event *event)
{
    struct qsi_net_source *source = event->data.ptr;
    eventfd_t unused;

    switch (source->kind) {
    case QSI_NET_WAKE:
        (void)eventfd_read(server->wake_fd, &unused);
        break;
    case QSI_NET_LISTENER:
        qsi_net_accept_all(server, (struct qsi_net_listener *)(void *)source);
        break;
    case QSI_NET_CONNECTION:
        record_events((struct qsi_net_connection *)(void *)source, event->events);
        break;
    case QSI_NET_CHANNELS:
        qsi_net_take_rung((struct qsi_net_vhost *)(void *)source);
        break;
    }
}

static void fire_timers(struct qs_server *server, uint64_t now_ns)
{
    struct qsi_timer *timer;

    while ((timer = qsi_timers_take_due(&server->timers, now_ns)) != NULL) {
        struct qsi_net_connection *connection =
            QSI_LIST_OWNER(timer, struct qsi_net_connection, timer);
        if (connection->place != QSI_NET_AWAY) {
            qsi_net_make_ready(connection);
        } else if (connection->beats_while_away) {
            (void)qsi_net_send_heartbeat(connection);
            qsi_timers_set(&server->timers, timer, now_ns + BEAT_WHILE_AWAY_NS);
        }
    }
}

/* Whether no connection is ready and epoll has no event. */
static bool is_idle(const struct qs_server *server)
{
    struct pollfd asked = {.fd = server->epoll_fd, .events = POLLIN};

    return qsi_list_is_empty(&server->ready) && poll(&asked, 1, 0) == 0;
}

/* The vhost of the only ready connection; NULL: there are several, or it has none yet. */
static struct qsi_net_vhost *vhost_of_single(const struct qsi_list *ready)
{
    return qsi_list_is_single(ready)
               ? QSI_LIST_OWNER(ready->next, struct qsi_net_connection, in_queue)->vhost
               : NULL;
}

/* Serves the connections that are ready now; those that become ready meanwhile wait for the next
 * round.  If there is only one, and nothing else to do after it, this thread leads the commit for
 * which it waits: two threads fewer have to wake before the client gets its confirm. */
static void serve_ready(struct qs_server *server)
{
    struct qsi_list now;
    struct qsi_net_vhost *held;

    move_all(&server->ready, &now);
    held = vhost_of_single(&now);
    if (held != NULL) {
        qsi_net_hold(held);
    }
    while (!qsi_list_is_empty(&now)) {
        struct qsi_net_connection *connection = first_of(&now);
        connection->is_ready = false;
        qsi_net_serve(connection, qsi_net_now(server));
    }
    if (held != NULL) {
        qsi_net_go(held, is_idle);
    }
}

static int timeout_ms(struct qs_server *server)
{
    uint64_t now_ns = qsi_net_now(server), due_ns = qsi_timers_next_ns(&server->timers);

    if (server->is_shutting && server->cut_by_ns > now_ns && server->cut_by_ns < due_ns) {
        due_ns = server->cut_by_ns; /* at that time workers take the remaining connections */
    }
    if (server->accept_again_ns < due_ns) {
        due_ns = server->accept_again_ns;
    }
    if (!qsi_list_is_empty(&server->ready) || due_ns <= now_ns) {
        return 0;
    }
    if (due_ns == QSI_TIMER_NEVER) {
        return -1;
    }
    due_ns = (due_ns - now_ns) / QSI_NET_MS + 1;
    return due_ns < INT32_MAX ? (int)due_ns : INT32_MAX;
}

void *qsi_net_run_loop(void *argument)
{
    struct qs_server *server = argument;
    struct epoll_event events[EVENTS];

    while (look_around(server)) {
        int count = epoll_wait(server->epoll_fd, events, EVENTS, timeout_ms(server));
        for (int i = 0; i < count; i++) {
            take_event(server, &events[i]);
        }
        fire_timers(server, qsi_net_now(server));
        if (qsi_net_now(server) >= server->accept_again_ns) {
            qsi_net_accept_again(server);
        }
        serve_ready(server);
    }
    return NULL;
}
