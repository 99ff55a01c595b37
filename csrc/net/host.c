/* The callbacks of sessions: logins, stores, and events of channels. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "net_server.h"

#include <string.h>

#define RUNG_AT_ONCE 64

static struct qsi_net_connection *connection_of(const struct qsi_amqp_session *session)
{
    return qsi_amqp_session_peer_context(session);
}

static enum qsi_amqp_verdict authenticate(void *context, struct qsi_amqp_session *session,
                                          const char *mechanism, qs_slice user, qs_slice password)
{
    qs_slice name = {.data = mechanism, .bytes = strlen(mechanism)};

    (void)context;
    return qsi_net_ask(connection_of(session), name, user, password);
}

static enum qsi_amqp_verdict permit(void *context, struct qsi_amqp_session *session,
                                    enum qsi_amqp_right right, qs_slice name)
{
    (void)context;
    return qsi_net_ask_permission(connection_of(session), right, name);
}

static qs_store *find_store(void *context, struct qsi_amqp_session *session, qs_slice vhost,
                            bool *refused_out)
{
    struct qsi_net_vhost *found = qsi_net_enter_vhost(connection_of(session), vhost);

    (void)context;
    *refused_out = false;
    if (found == NULL) {
        return NULL;
    }
    qsi_amqp_session_set_room(session, &found->pool, found->body_bytes_max);
    return found->store;
}

static qs_status watch(void *context, struct qsi_amqp_session *session, uint16_t number,
                       qs_channel *channel, void **watch_out, qs_error *error)
{
    struct qsi_net_connection *connection = connection_of(session);
    struct qs_server *server = connection->server;
    struct qsi_net_watch *made = qsi_zalloc(sizeof *made);
    qs_status status;

    (void)context;
    if (made == NULL) {
        return qsi_fail(error, QS_ENOMEM, "channel %u", number);
    }
    *made = (struct qsi_net_watch){.connection = connection, .number = number};
    qsi_list_init(&made->in_rung);
    qsi_list_init(&made->in_dropped);
    qsi_mutex_lock(&server->channels_mutex);
    status = qs_listener_add(connection->vhost->channels, channel, made, error);
    qsi_mutex_unlock(&server->channels_mutex);
    if (status != QS_OK) {
        qsi_free(made);
        return status;
    }
    *watch_out = made;
    return QS_OK;
}

/* Drops the watch.  The I/O thread may have it in a list of events, so it frees the watch after
 * handling that list. */
static void unwatch(void *context, struct qsi_amqp_session *session, void *watched)
{
    struct qsi_net_watch *watch = watched;
    struct qs_server *server = watch->connection->server;

    (void)context;
    (void)session;
    qsi_net_lock(server);
    qsi_list_push_back(&server->dropped, &watch->in_dropped);
    qsi_net_unlock(server);
}

static void record_rung(struct qsi_net_watch *watch)
{
    if (qsi_list_is_empty(&watch->in_rung)) {
        qsi_list_push_back(&watch->connection->rung, &watch->in_rung);
    }
    qsi_net_make_ready(watch->connection);
}

/* Records the alarms; each connection tells its session in its next turn. */
static void record_alarms(struct qsi_net_vhost *vhost, uint32_t alarms)
{
    struct qs_server *server = vhost->server;

    if (alarms == vhost->alarms) {
        return;
    }
    vhost->alarms = alarms;
    for (struct qsi_list *node = server->connections.next; node != &server->connections;
         node = node->next) {
        qsi_net_make_ready(QSI_LIST_OWNER(node, struct qsi_net_connection, in_server));
    }
}

void qsi_net_take_rung(struct qsi_net_vhost *vhost)
{
    struct qs_server *server = vhost->server;
    void *rung[RUNG_AT_ONCE];
    uint32_t alarms = 0;
    size_t count;

    do {
        qsi_mutex_lock(&server->channels_mutex);
        count = vhost->channels == NULL
                    ? 0
                    : qs_listener_next(vhost->channels, rung, RUNG_AT_ONCE, &alarms);
        qsi_mutex_unlock(&server->channels_mutex);
        for (size_t i = 0; i < count; i++) {
            record_rung(rung[i]);
        }
    } while (count == RUNG_AT_ONCE);
    record_alarms(vhost, alarms);
}

void qsi_net_hold(struct qsi_net_vhost *vhost)
{
    qsi_mutex_lock(&vhost->server->channels_mutex);
    if (vhost->channels != NULL) {
        qs_listener_hold(vhost->channels);
    }
    qsi_mutex_unlock(&vhost->server->channels_mutex);
}

void qsi_net_go(struct qsi_net_vhost *vhost, bool (*may_wait)(const struct qs_server *server))
{
    struct qs_server *server = vhost->server;
    qs_listener *channels;
    bool rang = false;

    qsi_mutex_lock(&server->channels_mutex);
    channels = vhost->channels;
    if (channels != NULL) {
        rang = qs_listener_go(channels, qs_listener_is_awaited(channels) && may_wait(server));
    }
    qsi_mutex_unlock(&server->channels_mutex);
    if (rang) {
        qsi_net_take_rung(vhost);
    }
}

void qsi_net_free_watches(struct qsi_list *dropped)
{
    while (!qsi_list_is_empty(dropped)) {
        struct qsi_net_watch *watch =
            QSI_LIST_OWNER(dropped->next, struct qsi_net_watch, in_dropped);
        qsi_list_remove(&watch->in_dropped);
        qsi_list_remove(&watch->in_rung);
        qsi_free(watch);
    }
}

static void fill_random(void *context, void *bytes_out, size_t bytes)
{
    qs_env *env = qs_env_posix();
    qs_status status = env->random(env, bytes_out, bytes, NULL);

    (void)context;
    QS_ASSERT(status == QS_OK);
}

static void describe_client(void *context, struct qsi_amqp_session *session, qs_client *client_out)
{
    const struct qsi_net_connection *connection = connection_of(session);

    (void)context;
    client_out->number = connection->number;
    client_out->peer = (qs_slice){.data = connection->peer, .bytes = strlen(connection->peer)};
}

struct qsi_amqp_host qsi_net_host(bool asks_permissions)
{
    return (struct qsi_amqp_host){.authenticate = authenticate,
                                  .permit = asks_permissions ? permit : NULL,
                                  .find_store = find_store,
                                  .describe_client = describe_client,
                                  .watch = watch,
                                  .unwatch = unwatch,
                                  .fill_random = fill_random};
}
