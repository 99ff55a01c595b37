/* Virtual hosts: one store each, and the events of its channels for the I/O thread.
 *
 * Invariant: the count of a vhost's sessions is the number of connections that point to it.  A
 * session is counted when it gets the store, while the vhost serves, and until it is closed.  A
 * thread that ends a vhost waits for the last session, and after that the server does not use the
 * store.  The I/O thread frees ended vhosts between two calls of epoll, since epoll's events may
 * point to them. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "net_server.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define UNFINISHED_SHARE 4
#define TRANSACTION_SHARE 4
#define TRANSACTION_RETURNS_SHARE 16 /* half of the engine's room for all returns */
#define PLACE " in vhost '%s'"       /* clients expect this after names in texts */

static struct qsi_net_vhost *vhost_at(struct qsi_list *node)
{
    return QSI_LIST_OWNER(node, struct qsi_net_vhost, in_server);
}

static bool is_named(const struct qsi_net_vhost *vhost, qs_slice name)
{
    return strlen(vhost->name) == name.bytes && memcmp(vhost->name, name.data, name.bytes) == 0;
}

/* NULL: there is none, or it has ended. */
static struct qsi_net_vhost *find(struct qs_server *server, qs_slice name)
    QSI_REQUIRES(qsi_net_mutex)
{
    for (struct qsi_list *node = server->vhosts.next; node != &server->vhosts; node = node->next) {
        if (vhost_at(node)->state != QSI_NET_VHOST_HAS_ENDED && is_named(vhost_at(node), name)) {
            return vhost_at(node);
        }
    }
    return NULL;
}

/* ---- the beginning ---- */

static qs_status check_free(struct qs_server *server, const struct qsi_net_vhost *added,
                            qs_error *error) QSI_REQUIRES(qsi_net_mutex)
{
    if (server->is_stopping) {
        return qsi_fail(error, QS_ESTORE_CLOSED, "the server is stopped");
    }
    for (struct qsi_list *node = server->vhosts.next; node != &server->vhosts; node = node->next) {
        const struct qsi_net_vhost *vhost = vhost_at(node);
        if (vhost->state == QSI_NET_VHOST_HAS_ENDED) {
            continue;
        }
        if (strcmp(vhost->name, added->name) == 0) {
            return qsi_fail(error, QS_EINVAL, "vhost '%s' is there already", added->name);
        }
        if (vhost->store == added->store) {
            return qsi_fail(error, QS_EINVAL,
                            "vhost '%s': its store is that of vhost '%s'; give each a store of its "
                            "own",
                            added->name, vhost->name);
        }
    }
    return QS_OK;
}

static void set_limits(struct qsi_net_vhost *vhost, const qs_options *of_store)
{
    uint64_t unfinished = vhost->server->options.unfinished_bytes_max;
    uint64_t transactions = vhost->server->options.transaction_bytes_max;

    vhost->body_bytes_max = of_store->body_bytes_max;
    vhost->pool.bytes_max =
        unfinished > 0 ? unfinished : of_store->memory_budget / UNFINISHED_SHARE;
    vhost->pool.tx_bytes_max =
        transactions > 0 ? transactions : of_store->memory_budget / TRANSACTION_SHARE;
    vhost->pool.tx_return_bytes_max = of_store->memory_budget / TRANSACTION_RETURNS_SHARE;
}

static qs_status begin(struct qsi_net_vhost *vhost, qs_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = vhost};
    char place[sizeof PLACE + sizeof vhost->name];

    snprintf(place, sizeof place, PLACE, vhost->name);
    QS_TRY(qs_store_set_place(vhost->store, place, error));
    QS_TRY(qs_listener_open(&vhost->channels, vhost->store, error));
    if (epoll_ctl(vhost->server->epoll_fd, EPOLL_CTL_ADD, qs_listener_fd(vhost->channels),
                  &event) != 0) {
        return qsi_fail_errno(error, QS_EMFILE, errno, "channels of vhost '%s'", vhost->name);
    }
    return QS_OK;
}

static qs_status make(struct qsi_net_vhost **vhost_out, struct qs_server *server, const char *name,
                      qs_store *store, qs_error *error)
{
    struct qsi_net_vhost *vhost;
    qs_options of_store;

    qs_store_options(store, &of_store);
    if (of_store.read_only) {
        return qsi_fail(error, QS_EINVAL,
                        "the store was opened for reading only: nothing to serve");
    }
    if (name[0] == '\0' || strlen(name) >= sizeof vhost->name) {
        return qsi_fail(error, QS_EINVAL, "the name of a vhost has 1 to %zu bytes, not %zu",
                        sizeof vhost->name - 1, strlen(name));
    }
    vhost = qsi_zalloc(sizeof *vhost);
    if (vhost == NULL) {
        return qsi_fail(error, QS_ENOMEM, "vhost '%s'", name);
    }
    vhost->source.kind = QSI_NET_CHANNELS;
    vhost->server = server;
    vhost->store = store;
    qsi_list_init(&vhost->in_server);
    memcpy(vhost->name, name, strlen(name) + 1);
    set_limits(vhost, &of_store);
    *vhost_out = vhost;
    return QS_OK;
}

/* Takes the name before the store is touched. */
static qs_status put(struct qs_server *server, struct qsi_net_vhost *vhost, qs_error *error)
{
    qs_status status;

    qsi_net_lock(server);
    status = check_free(server, vhost, error);
    if (status == QS_OK) {
        vhost->enders = 1; /* the thread that adds it, until it serves */
        qsi_list_push_back(&server->vhosts, &vhost->in_server);
    }
    qsi_net_unlock(server);
    return status;
}

static void close_channels(struct qsi_net_vhost *vhost)
{
    struct qs_server *server = vhost->server;

    qsi_mutex_lock(&server->channels_mutex);
    if (vhost->channels != NULL) {
        epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, qs_listener_fd(vhost->channels), NULL);
        qs_listener_close(vhost->channels);
        vhost->channels = NULL;
    }
    qsi_mutex_unlock(&server->channels_mutex);
}

static void record_begun(struct qsi_net_vhost *vhost)
{
    struct qs_server *server = vhost->server;

    qsi_net_lock(server);
    vhost->state = QSI_NET_VHOST_SERVES;
    vhost->enders -= 1;
    qsi_cond_broadcast(&server->has_left);
    qsi_net_unlock(server);
}

/* REQUIRES that the caller is one of its enders.  The caller does not use the vhost after this. */
static void record_ended(struct qsi_net_vhost *vhost)
{
    struct qs_server *server = vhost->server;

    qsi_net_lock(server);
    vhost->state = QSI_NET_VHOST_HAS_ENDED;
    vhost->enders -= 1;
    server->vhosts_ended = true;
    qsi_cond_broadcast(&server->has_left);
    qsi_net_wake(server);
    qsi_net_unlock(server);
}

qs_status qsi_net_add_vhost(struct qs_server *server, const char *name, qs_store *store,
                            qs_error *error)
{
    struct qsi_net_vhost *vhost = NULL;
    qs_status status;

    QS_TRY(make(&vhost, server, name, store, error));
    status = put(server, vhost, error);
    if (status != QS_OK) {
        qsi_free(vhost);
        return status;
    }
    qsi_mutex_lock(&server->channels_mutex);
    status = begin(vhost, error);
    qsi_mutex_unlock(&server->channels_mutex);
    if (status == QS_OK) {
        record_begun(vhost);
    } else {
        close_channels(vhost);
        record_ended(vhost);
    }
    return status;
}

/* ---- connections ---- */

struct qsi_net_vhost *qsi_net_enter_vhost(struct qsi_net_connection *connection, qs_slice name)
{
    struct qs_server *server = connection->server;
    struct qsi_net_vhost *vhost;

    QS_ASSERT(connection->vhost == NULL);
    qsi_net_lock(server);
    vhost = find(server, name);
    if (vhost != NULL && vhost->state == QSI_NET_VHOST_SERVES) {
        vhost->sessions += 1;
        connection->vhost = vhost;
    } else {
        vhost = NULL;
    }
    qsi_net_unlock(server);
    return vhost;
}

void qsi_net_leave_vhost(struct qsi_net_connection *connection)
{
    struct qs_server *server = connection->server;

    qsi_net_lock(server);
    if (connection->vhost != NULL) {
        connection->vhost->sessions -= 1;
        connection->vhost = NULL;
        qsi_cond_broadcast(&server->has_left);
    }
    qsi_net_unlock(server);
}

/* ---- the end ---- */

static bool must_notify(const struct qsi_net_vhost *vhost) QSI_REQUIRES(qsi_net_mutex)
{
    return vhost != NULL && vhost->must_notify;
}

static void notify(struct qsi_net_connection *connection, uint64_t end_by_ns)
{
    connection->must_shut = true;
    if (end_by_ns < connection->end_by_ns) {
        connection->end_by_ns = end_by_ns;
    }
    qsi_net_make_ready(connection);
}

void qsi_net_notify_ended_vhosts(struct qs_server *server)
{
    qsi_net_lock(server);
    if (server->vhosts_end) {
        for (struct qsi_list *node = server->connections.next; node != &server->connections;
             node = node->next) {
            struct qsi_net_connection *connection =
                QSI_LIST_OWNER(node, struct qsi_net_connection, in_server);
            if (must_notify(connection->vhost)) {
                notify(connection, connection->vhost->end_by_ns);
            }
        }
        for (struct qsi_list *node = server->vhosts.next; node != &server->vhosts;
             node = node->next) {
            vhost_at(node)->must_notify = false;
        }
        server->vhosts_end = false;
    }
    qsi_net_unlock(server);
}

void qsi_net_end_vhost(struct qs_server *server, const char *name, uint64_t end_by_ns)
{
    struct qsi_net_vhost *vhost;

    qsi_net_lock(server);
    while ((vhost = find(server, (qs_slice){.data = name, .bytes = strlen(name)})) != NULL &&
           vhost->state == QSI_NET_VHOST_BEGINS) {
        (void)qsi_cond_wait(&server->has_left, &server->mutex, QSI_WAIT_FOREVER);
    }
    if (vhost != NULL) {
        vhost->enders += 1;
    }
    if (vhost != NULL && vhost->state == QSI_NET_VHOST_SERVES) {
        vhost->state = QSI_NET_VHOST_ENDS;
        vhost->end_by_ns = end_by_ns;
        vhost->must_notify = server->vhosts_end = true;
        qsi_net_wake(server);
    }
    while (vhost != NULL && vhost->sessions > 0) {
        (void)qsi_cond_wait(&server->has_left, &server->mutex, QSI_WAIT_FOREVER);
    }
    qsi_net_unlock(server);
    if (vhost != NULL) {
        close_channels(vhost);
        record_ended(vhost);
    }
}

static bool is_done_with(const struct qsi_net_vhost *vhost) QSI_REQUIRES(qsi_net_mutex)
{
    return vhost->state == QSI_NET_VHOST_HAS_ENDED && vhost->enders == 0;
}

/* An ended vhost with enders stays; the last ender sets vhosts_ended again. */
void qsi_net_free_ended_vhosts(struct qs_server *server)
{
    qsi_net_lock(server);
    server->vhosts_ended = false;
    for (struct qsi_list *node = server->vhosts.next; node != &server->vhosts;) {
        struct qsi_net_vhost *vhost = vhost_at(node);
        node = node->next;
        if (is_done_with(vhost)) {
            qsi_list_remove(&vhost->in_server);
            qsi_free(vhost);
        }
    }
    qsi_net_unlock(server);
}

/* Waits until vhosts that callers are adding are added; no further ones begin. */
static void await_beginnings(struct qs_server *server) QSI_REQUIRES(qsi_net_mutex)
{
    struct qsi_list *node = server->vhosts.next;

    while (node != &server->vhosts) {
        if (vhost_at(node)->state != QSI_NET_VHOST_BEGINS) {
            node = node->next;
            continue;
        }
        (void)qsi_cond_wait(&server->has_left, &server->mutex, QSI_WAIT_FOREVER);
    }
}

/* No vhost is added or freed meanwhile. */
void qsi_net_close_vhosts(struct qs_server *server) QSI_UNCHECKED
{
    qsi_net_lock(server);
    await_beginnings(server);
    qsi_net_unlock(server);
    for (struct qsi_list *node = server->vhosts.next; node != &server->vhosts; node = node->next) {
        close_channels(vhost_at(node));
    }
}

void qsi_net_free_vhosts(struct qs_server *server) QSI_UNCHECKED
{
    while (!qsi_list_is_empty(&server->vhosts)) {
        struct qsi_net_vhost *vhost = vhost_at(server->vhosts.next);
        qsi_list_remove(&vhost->in_server);
        qsi_free(vhost);
    }
}
