/* A connection's turn: reading, a turn of its session, writing, and handling the result. */
#include "amqp_fault.h"
#include "check.h"
#include "net_fork.h"
#include "net_server.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>

#define END_NS (3 * QSI_NET_SECOND) /* time for the client to read the last frames */

/* ---- reading ---- */

/* Returns the number of bytes read; 0: there are none now. */
static size_t read_some(struct qsi_net_connection *connection)
{
    ssize_t got;

    do {
        got = recv(connection->fd, connection->server->input, QSI_NET_INPUT_BYTES, MSG_DONTWAIT);
    } while (got < 0 && errno == EINTR);
    if (got > 0) {
        /* The buffer was not filled, so the socket is empty, and epoll reports further input.  If
         * epoll has reported the end already, it will not report it again, so reading goes on. */
        connection->can_read = got == QSI_NET_INPUT_BYTES || connection->has_ended;
        return (size_t)got;
    }
    connection->can_read = false;
    connection->is_lost = connection->is_lost || got == 0 ||
                          (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOMEM);
    return 0;
}

/* False: there was no input. */
static bool read_and_feed(struct qsi_net_connection *connection, const struct qsi_amqp_turn *turn,
                          enum qsi_amqp_wants *wants_out)
{
    struct qsi_amqp_session *session = connection->session;
    size_t total = 0;

    *wants_out = QSI_AMQP_WANTS_INPUT;
    if (connection->header != QSI_NET_HEADER_TAKEN && !qsi_net_take_header(connection)) {
        return false;
    }
    for (int reads = 0; reads < QSI_NET_TURN_READS && total < QSI_NET_TURN_BYTES &&
                        *wants_out == QSI_AMQP_WANTS_INPUT && connection->can_read &&
                        qsi_amqp_session_reads(session);
         reads++) {
        size_t bytes = read_some(connection);
        if (bytes > 0) {
            total += bytes;
            *wants_out = qsi_amqp_session_feed(session, turn, connection->server->input, bytes);
        }
    }
    return total > 0;
}

/* ---- the end ---- */

/* Makes the close a reset, as a client would see if the server failed. */
static void set_reset(int fd)
{
    struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

/* Reads remaining input: unread bytes would make the close a reset, which can overtake the last
 * frames. */
static void drain(struct qsi_net_connection *connection)
{
    shutdown(connection->fd, SHUT_WR);
    for (int reads = 0; reads < QSI_NET_TURN_READS; reads++) {
        if (recv(connection->fd, connection->server->input, QSI_NET_INPUT_BYTES, MSG_DONTWAIT) <=
            0) {
            break;
        }
    }
}

static void count_end(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;
    struct qsi_amqp_counts counts;
    bool was_asked_for;

    qsi_amqp_session_counts(connection->session, &counts);
    was_asked_for = counts.close_code == QSI_AMQP_CONNECTION_FORCED;
    qsi_net_lock(server);
    server->counts.bytes_received += counts.bytes_in;
    server->counts.bytes_sent += counts.bytes_out;
    server->counts.heartbeats_missed += counts.end == QSI_AMQP_END_HEARTBEAT;
    qsi_net_unlock(server);
    if (connection->header != QSI_NET_HEADER_TAKEN) {
        qsi_net_log_missing_header(connection, counts.end);
    } else if (counts.end == QSI_AMQP_END_SERVER) {
        qsi_net_log(server, was_asked_for ? QS_NOTE_INFO : QS_NOTE_WARNING,
                    "AMQP %s: closed with %u %s", connection->peer, counts.close_code,
                    counts.close_text);
    } else if (counts.end == QSI_AMQP_END_HEARTBEAT) {
        qsi_net_log(server, QS_NOTE_WARNING, "AMQP %s: no heartbeat came", connection->peer);
    } else if (counts.end != QSI_AMQP_END_CLIENT) {
        qsi_net_log(server, QS_NOTE_INFO, "AMQP %s: ended by the client without a close",
                    connection->peer);
    }
}

void qsi_net_end(struct qsi_net_connection *connection, bool is_reset)
{
    struct qs_server *server = connection->server;

    QS_ASSERT(connection->place == QSI_NET_HERE);
    count_end(connection);
    qsi_net_withdraw_question(connection);
    if (is_reset) {
        set_reset(connection->fd);
    } else {
        drain(connection);
    }
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, connection->fd, NULL);
    qsi_net_close(connection->fd);
    connection->fd = QSI_NET_NO_FD;
    qsi_timers_set(&server->timers, &connection->timer, QSI_TIMER_NEVER);
    qsi_list_remove(&connection->in_queue);
    connection->is_ready = false;
    qsi_net_hand_over(connection, QSI_NET_LEAVES);
}

/* ---- a turn ---- */

static void pass_rung(struct qsi_net_connection *connection)
{
    while (!qsi_list_is_empty(&connection->rung)) {
        struct qsi_net_watch *watch =
            QSI_LIST_OWNER(connection->rung.next, struct qsi_net_watch, in_rung);
        qsi_list_remove(&watch->in_rung);
        qsi_amqp_session_rang(connection->session, watch->number);
    }
}

static bool is_full(const struct qsi_net_connection *connection)
{
    return qsi_amqp_session_unsent(connection->session) >=
           connection->server->setup.limits.unsent_bytes_max;
}

static const char *reason_of(uint32_t alarms)
{
    if (alarms == 0) {
        return NULL;
    }
    return (alarms & QS_ALARM_DISK) != 0 ? "low on disk" : "low on memory";
}

static void pass_alarms(struct qsi_net_connection *connection, uint64_t now_ns)
{
    uint32_t alarms = connection->vhost == NULL ? 0 : connection->vhost->alarms;

    if (connection->alarms != alarms) {
        connection->alarms = alarms;
        qsi_amqp_session_alarm(connection->session, reason_of(alarms), now_ns);
    }
}

static void pass_shut(struct qsi_net_connection *connection, uint64_t now_ns)
{
    char text[sizeof connection->vhost->name + 64];

    if (!connection->must_shut) {
        return;
    }
    connection->must_shut = false;
    if (connection->server->is_shutting) {
        snprintf(text, sizeof text, "broker forced connection closure with reason 'shutdown'");
    } else if (connection->is_unwanted) {
        snprintf(text, sizeof text, "Closed via management plugin");
    } else {
        snprintf(text, sizeof text, "vhost '%s' is down", connection->vhost->name);
    }
    qsi_amqp_session_shut(connection->session, text, now_ns);
}

/* Waits until the output is written. */
static void go_on_writing(struct qsi_net_connection *connection)
{
    if (connection->is_lost) {
        qsi_net_end(connection, false);
    } else if (connection->can_write) {
        qsi_net_make_ready(connection);
    }
}

static void finish(struct qsi_net_connection *connection, uint64_t now_ns)
{
    if (connection->is_lost || qsi_amqp_session_unsent(connection->session) == 0) {
        qsi_net_end(connection, false);
    } else if (connection->end_by_ns == QSI_TIMER_NEVER) {
        connection->end_by_ns = now_ns + END_NS;
    }
}

static void set_timer(struct qsi_net_connection *connection)
{
    uint64_t due_ns = qsi_amqp_session_deadline(connection->session);

    if (connection->end_by_ns < due_ns) {
        due_ns = connection->end_by_ns;
    }
    if (connection->refuse_at_ns < due_ns) {
        due_ns = connection->refuse_at_ns;
    }
    /* A timer that fires too early costs one turn; moving it would cost something in every turn. */
    if (connection->timer.place == 0 || due_ns < connection->timer.due_ns) {
        qsi_timers_set(&connection->server->timers, &connection->timer, due_ns);
    }
}

void qsi_net_go_on(struct qsi_net_connection *connection, enum qsi_amqp_wants wants,
                   uint64_t now_ns)
{
    bool was_full = is_full(connection);

    qsi_net_flush(connection, now_ns);
    if (was_full && !is_full(connection)) { /* messages may wait that it did not take */
        qsi_net_make_ready(connection);
    }
    switch (wants) {
    case QSI_AMQP_WANTS_WORKER:
        qsi_net_hand_over(connection, QSI_NET_AWAY);
        return;
    case QSI_AMQP_WANTS_RESET:
        qsi_net_end(connection, true);
        return;
    case QSI_AMQP_WANTS_END:
        finish(connection, now_ns);
        break;
    case QSI_AMQP_WANTS_TURN:
        qsi_net_make_ready(connection);
        break;
    case QSI_AMQP_WANTS_OUTPUT:
        go_on_writing(connection);
        break;
    case QSI_AMQP_WANTS_ANSWER:
        /* A client that left before its login was answered needs no answer; nothing is read, so no
         * read would notice that it left. */
        connection->is_lost =
            connection->is_lost || (connection->has_asked && connection->has_ended);
        /* fall through */
    case QSI_AMQP_WANTS_INPUT:
        if (connection->is_lost) {
            qsi_net_end(connection, false);
        } else if (connection->can_read && qsi_amqp_session_reads(connection->session)) {
            qsi_net_make_ready(connection);
        }
        break;
    }
    if (connection->place == QSI_NET_HERE) {
        set_timer(connection);
    }
}

void qsi_net_serve(struct qsi_net_connection *connection, uint64_t now_ns)
{
    struct qsi_amqp_session *session = connection->session;
    struct qsi_amqp_turn turn = {.now_ns = now_ns, .bytes_max = QSI_NET_TURN_BYTES};
    enum qsi_amqp_wants wants = QSI_AMQP_WANTS_INPUT;

    QS_ASSERT(connection->place == QSI_NET_HERE);
    if (connection->end_by_ns <= now_ns) {
        qsi_net_end(connection, true);
        return;
    }
    if (connection->refuse_at_ns <= now_ns) {
        qsi_net_refuse_login(connection);
    }
    pass_shut(connection, now_ns);
    qsi_net_flush(connection, now_ns);
    pass_rung(connection);
    pass_alarms(connection, now_ns);
    if (connection->is_cut && !qsi_amqp_session_reads(session)) {
        connection->is_lost = true; /* nothing is read, so no read would notice */
    }
    if (!read_and_feed(connection, &turn, &wants)) {
        wants = qsi_amqp_session_run(session, &turn);
    }
    qsi_net_go_on(connection, wants, now_ns);
}
