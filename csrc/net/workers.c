/* Threads that may wait: they continue sessions that would have to wait, and close sessions.
 *
 * A worker takes the whole session, not one call of it: with large bodies every publish may have to
 * wait, and two thread switches for each publish would limit the throughput. */
#include "check.h"
#include "net_server.h"

void qsi_net_hand_over(struct qsi_net_connection *connection, enum qsi_net_place place)
{
    struct qs_server *server = connection->server;
    bool beats = qsi_amqp_session_has_connection(connection->session) &&
                 qsi_amqp_session_deadline(connection->session) != QSI_AMQP_NEVER &&
                 qsi_amqp_session_between_frames(connection->session);

    QS_ASSERT(connection->place == QSI_NET_HERE && place != QSI_NET_HERE);
    qsi_list_remove(&connection->in_queue);
    connection->is_ready = false;
    connection->beats_while_away = place == QSI_NET_AWAY && beats;
    connection->place = place;
    qsi_net_lock(server);
    server->counts.handovers += place == QSI_NET_AWAY;
    qsi_list_push_back(&server->jobs, &connection->in_queue);
    qsi_cond_signal(&server->has_jobs);
    qsi_net_unlock(server);
}

static enum qsi_amqp_wants go_on(struct qsi_net_connection *connection)
{
    struct qsi_amqp_turn turn = {.may_block = true, .bytes_max = QSI_NET_TURN_BYTES};
    uint64_t until_ns = qsi_net_now(connection->server) + QSI_NET_WORK_NS;
    enum qsi_amqp_wants wants;

    do {
        turn.now_ns = qsi_net_now(connection->server);
        wants = qsi_amqp_session_run(connection->session, &turn);
    } while ((wants == QSI_AMQP_WANTS_TURN || wants == QSI_AMQP_WANTS_WORKER) &&
             turn.now_ns < until_ns);
    return wants;
}

static void work_on(struct qsi_net_connection *connection)
{
    if (connection->place == QSI_NET_AWAY) {
        connection->wants = go_on(connection);
    } else {
        qsi_amqp_session_close(connection->session);
        connection->session = NULL;
        qsi_net_leave_vhost(connection);
    }
}

void *qsi_net_run_worker(void *argument)
{
    struct qs_server *server = argument;

    qsi_net_lock(server);
    while (!server->workers_end || !qsi_list_is_empty(&server->jobs)) {
        struct qsi_net_connection *connection;
        if (qsi_list_is_empty(&server->jobs)) {
            (void)qsi_cond_wait(&server->has_jobs, &server->mutex, QSI_WAIT_FOREVER);
            continue;
        }
        connection = QSI_LIST_OWNER(server->jobs.next, struct qsi_net_connection, in_queue);
        qsi_list_remove(&connection->in_queue);
        qsi_net_unlock(server);
        work_on(connection);
        qsi_net_lock(server);
        qsi_list_push_back(&server->returned, &connection->in_queue);
        qsi_net_wake(server);
    }
    qsi_net_unlock(server);
    return NULL;
}
