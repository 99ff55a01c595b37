/* Opening, stopping and closing a server, and the calls of the caller's threads. */
#include "qstore/server.h"

#include "address.h"
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "net_fork.h"
#include "net_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FRAME_MAX_LEAST 4096
#define FIRST_VHOST "/"

/* ---- opening ---- */

void qs_server_options_default(qs_server_options *options_out)
{
    struct qsi_amqp_limits limits;

    qsi_amqp_limits_default(&limits);
    *options_out = (qs_server_options){.connections_max = 16384,
                                       .channel_max = limits.channel_max,
                                       .heartbeat_s = limits.heartbeat_s,
                                       .frame_max = limits.frame_max,
                                       .product = "RabbitMQ",
                                       .version = "3.10.8",
                                       .mechanisms = "PLAIN AMQPLAIN"};
}

/* False: the text is too long. */
static bool copy_text(char *copy, size_t copy_bytes, const char *text)
{
    return text != NULL && (size_t)snprintf(copy, copy_bytes, "%s", text) < copy_bytes;
}

static qs_status take_options(struct qs_server *server, const qs_server_options *options,
                              qs_error *error)
{
    if (options == NULL) {
        qs_server_options_default(&server->options);
    } else {
        server->options = *options;
    }
    options = &server->options;
    if (options->frame_max < FRAME_MAX_LEAST) {
        return qsi_fail(error, QS_EINVAL, "frame_max is %u: it must be %u at least",
                        options->frame_max, FRAME_MAX_LEAST);
    }
    if (options->channel_max == 0 || options->connections_max == 0) {
        return qsi_fail(error, QS_EINVAL, "%s is 0: nothing could come in",
                        options->channel_max == 0 ? "channel_max" : "connections_max");
    }
    if (!copy_text(server->product, sizeof server->product, options->product) ||
        !copy_text(server->version, sizeof server->version, options->version) ||
        !copy_text(server->mechanisms, sizeof server->mechanisms, options->mechanisms)) {
        return qsi_fail(error, QS_EINVAL, "product, version or mechanisms is too long");
    }
    return QS_OK;
}

/* Prepares the sessions' setup; members that depend on a store are set with the vhost. */
static void set_up_sessions(struct qs_server *server)
{
    struct qsi_amqp_setup *setup = &server->setup;

    qsi_amqp_limits_default(&setup->limits);
    setup->limits.frame_max = server->options.frame_max;
    setup->limits.channel_max = server->options.channel_max;
    setup->limits.heartbeat_s = server->options.heartbeat_s;
    setup->host = qsi_net_host(server->options.asks_permissions);
    setup->rights_version = &server->rights_version;
    setup->product = server->product;
    setup->version = server->version;
    setup->mechanisms = server->mechanisms;
    setup->platform = "C";
    setup->cluster_name = "pyqstore";
    setup->copyright = "";
    setup->information = "pyqstore";
    setup->quorum_as_classic = server->options.quorum_as_classic;
}

static struct qs_server *make(void)
{
    struct qs_server *server = qsi_zalloc(sizeof *server);

    if (server == NULL) {
        return NULL;
    }
    server->env = qs_env_posix();
    server->fork_generation = qsi_net_fork_generation();
    server->epoll_fd = server->wake_fd = server->spare_fd = QSI_NET_NO_FD;
    server->accept_again_ns = QSI_TIMER_NEVER;
    server->wake.kind = QSI_NET_WAKE;
    qsi_mutex_init(&server->mutex);
    qsi_mutex_init(&server->channels_mutex);
    qsi_cond_init(&server->has_jobs);
    qsi_cond_init(&server->has_questions);
    qsi_cond_init(&server->has_left);
    struct qsi_list *lists[] = {&server->connections,   &server->ready,     &server->listeners,
                                &server->new_listeners, &server->newcomers, &server->jobs,
                                &server->returned,      &server->dropped,   &server->questions,
                                &server->permissions,   &server->answers,   &server->vhosts};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        qsi_list_init(lists[i]);
    }
    return server;
}

static qs_status make_descriptors(struct qs_server *server, qs_error *error)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &server->wake};

    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    server->spare_fd = eventfd(0, EFD_CLOEXEC);
    if (server->epoll_fd < 0 || server->wake_fd < 0 || server->spare_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &event) != 0) {
        return qsi_fail_errno(error, QS_EMFILE, errno, "descriptors of a server");
    }
    return QS_OK;
}

static qs_status start(struct qs_server *server, qs_error *error)
{
    QS_TRY(qsi_thread_start(&server->io_thread, "qs-amqp", qsi_net_run_loop, server, error));
    server->has_io_thread = true;
    while (server->worker_count < QSI_NET_WORKERS) {
        QS_TRY(qsi_thread_start(&server->workers[server->worker_count], "qs-amqp-wait",
                                qsi_net_run_worker, server, error));
        server->worker_count += 1;
    }
    return QS_OK;
}

qs_status qs_server_open(qs_server **server_out, qs_store *store, const qs_server_options *options,
                         qs_error *error)
{
    struct qs_server *server;
    qs_status status;

    *server_out = NULL;
    qsi_net_fork_prepare();
    server = make();
    if (server == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a server");
    }
    status = take_options(server, options, error);
    if (status != QS_OK) {
        goto out;
    }
    set_up_sessions(server);
    server->input = qsi_alloc(QSI_NET_INPUT_BYTES);
    if (server->input == NULL) {
        status = qsi_fail(error, QS_ENOMEM, "the buffer of a server");
        goto out;
    }
    status = make_descriptors(server, error);
    if (status == QS_OK) {
        status = qsi_net_add_vhost(server, FIRST_VHOST, store, error);
    }
    if (status == QS_OK) {
        status = start(server, error);
    }
    if (status == QS_OK) {
        *server_out = server;
        server = NULL;
    }
out:
    qs_server_close(server);
    return status;
}

/* ---- listening ---- */

static qs_status check_usable(struct qs_server *server, qs_error *error)
{
    if (server->fork_generation != qsi_net_fork_generation()) {
        return qsi_fail(error, QS_EFORKED, "the server was opened before fork()");
    }
    return QS_OK;
}

/* Puts an element into a list for the I/O thread; false: the server is stopped. */
static bool put(struct qs_server *server, struct qsi_list *list, struct qsi_list *node)
{
    bool is_open;

    qsi_net_lock(server);
    is_open = !server->is_stopping;
    if (is_open) {
        qsi_list_push_back(list, node);
        qsi_net_wake(server);
    }
    qsi_net_unlock(server);
    return is_open;
}

qs_status qs_server_listen(qs_server *server, const char *address, char bound_out[QS_ADDRESS_BYTES],
                           qs_error *error)
{
    struct qsi_net_listener *listener;
    qs_status status;

    QS_TRY(check_usable(server, error));
    listener = qsi_zalloc(sizeof *listener);
    if (listener == NULL) {
        return qsi_fail(error, QS_ENOMEM, "listen on '%s'", address);
    }
    listener->source.kind = QSI_NET_LISTENER;
    listener->is_passed = qsi_address_is_passed(address);
    qsi_list_init(&listener->in_server);
    status = qsi_address_listen(&listener->fd, listener->bound, address, error);
    if (status != QS_OK) {
        qsi_free(listener);
        return status;
    }
    memcpy(bound_out, listener->bound, QS_ADDRESS_BYTES);
    if (!put(server, &server->new_listeners, &listener->in_server)) {
        qsi_net_listener_free(listener);
        return qsi_fail(error, QS_ESTORE_CLOSED, "the server is stopped");
    }
    return QS_OK;
}

qs_status qs_server_bind(const char *address, int *fd_out, char bound_out[QS_ADDRESS_BYTES],
                         qs_error *error)
{
    qsi_net_fork_prepare();
    QS_TRY(qsi_address_listen(fd_out, bound_out, address, error));
    qsi_net_release(*fd_out);
    return QS_OK;
}

/* Sets the options that the server's own sockets have. */
static qs_status prepare(int fd, qs_error *error)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) {
        return qsi_fail_errno(error, QS_EINVAL, errno, "adopt descriptor %d", fd);
    }
    return QS_OK;
}

qs_status qs_server_adopt(qs_server *server, int fd, const char *peer, const char *user,
                          bool is_loopback, qs_error *error)
{
    struct qsi_net_connection *connection;
    qs_status status;

    status = check_usable(server, error);
    if (status == QS_OK) {
        status = prepare(fd, error);
    }
    if (status != QS_OK) {
        close(fd);
        return status;
    }
    if (!qsi_net_adopt(fd)) {
        return qsi_fail(error, QS_ENOMEM, "adopt descriptor %d", fd);
    }
    connection = qsi_net_connection_make(server, fd, peer, user, is_loopback);
    if (connection == NULL) {
        return qsi_fail(error, QS_ENOMEM, "a connection");
    }
    if (!put(server, &server->newcomers, &connection->in_queue)) {
        qsi_net_connection_free(connection);
        return qsi_fail(error, QS_ESTORE_CLOSED, "the server is stopped");
    }
    return QS_OK;
}

/* ---- virtual hosts ---- */

qs_status qs_server_add_vhost(qs_server *server, const char *name, qs_store *store, qs_error *error)
{
    QS_TRY(check_usable(server, error));
    return qsi_net_add_vhost(server, name, store, error);
}

/* By the server's clock. */
static uint64_t end_of(const struct qs_server *server, uint64_t timeout_ns)
{
    uint64_t now_ns = qsi_net_now(server);

    return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX;
}

void qs_server_end_vhost(qs_server *server, const char *name, uint64_t timeout_ns)
{
    if (server->fork_generation == qsi_net_fork_generation()) {
        qsi_net_end_vhost(server, name, end_of(server, timeout_ns));
    }
}

qs_status qs_server_end_connection(qs_server *server, uint64_t number, qs_error *error)
{
    qs_status status;

    QS_TRY(check_usable(server, error));
    qsi_net_lock(server);
    if (server->is_stopping) {
        status = qsi_fail(error, QS_ESTORE_CLOSED, "the server is stopped");
    } else if (qsi_buf_append(&server->unwanted, &number, sizeof number) != QS_OK) {
        status = qsi_fail(error, QS_ENOMEM, "end a connection");
    } else {
        qsi_net_wake(server);
        status = QS_OK;
    }
    qsi_net_unlock(server);
    return status;
}

void qs_server_get_counts(qs_server *server, qs_server_counts *counts_out)
{
    qsi_net_lock(server);
    *counts_out = server->counts;
    qsi_net_unlock(server);
}

/* ---- the end ---- */

static void ask_to_stop(struct qs_server *server, uint64_t timeout_ns)
{
    uint64_t stop_by_ns = end_of(server, timeout_ns);

    qsi_net_lock(server);
    server->stop_by_ns = stop_by_ns;
    server->is_stopping = true;
    qsi_cond_broadcast(&server->has_questions);
    qsi_net_wake(server);
    qsi_net_unlock(server);
}

static void join_workers(struct qs_server *server)
{
    qsi_net_lock(server);
    server->workers_end = true;
    qsi_cond_broadcast(&server->has_jobs);
    qsi_net_unlock(server);
    while (server->worker_count > 0) {
        server->worker_count -= 1;
        pthread_join(server->workers[server->worker_count], NULL);
    }
}

void qs_server_stop(qs_server *server, uint64_t timeout_ns)
{
    if (server->fork_generation != qsi_net_fork_generation()) {
        return;
    }
    ask_to_stop(server, timeout_ns);
    if (server->has_io_thread) {
        pthread_join(server->io_thread, NULL);
        server->has_io_thread = false;
    }
    join_workers(server);
    qsi_net_close_vhosts(server);
}

static void close_descriptors(struct qs_server *server)
{
    int descriptors[] = {server->epoll_fd, server->wake_fd, server->spare_fd};

    for (size_t i = 0; i < sizeof descriptors / sizeof descriptors[0]; i++) {
        if (descriptors[i] != QSI_NET_NO_FD) {
            close(descriptors[i]);
        }
    }
}

void qs_server_close(qs_server *server)
{
    if (server == NULL) {
        return;
    }
    if (server->fork_generation == qsi_net_fork_generation()) {
        qs_server_stop(server, 0);
        qsi_net_free_questions(server);
        qsi_cond_fini(&server->has_left);
        qsi_cond_fini(&server->has_questions);
        qsi_cond_fini(&server->has_jobs);
        qsi_mutex_fini(&server->channels_mutex);
        qsi_mutex_fini(&server->mutex);
    }
    qsi_net_free_vhosts(server);
    close_descriptors(server);
    qsi_timers_fini(&server->timers);
    qsi_map_fini(&server->by_number);
    qsi_buf_fini(&server->unwanted);
    qsi_free(server->input);
    qsi_free(server);
}
