/* Declarations shared by the files of a server.
 *
 * There are three kinds of threads.  The I/O thread has all sockets, and the session of every
 * connection unless it has handed it over.  Two workers continue sessions that would have to wait,
 * and close sessions.  The caller's threads listen, answer and stop.  One thread at a time has a
 * session, so its state needs no lock: a thread that hands over a connection does not touch its
 * session before it has it back.  State shared by several threads is under the server's mutex. */
#ifndef QSI_NET_SERVER_H
#define QSI_NET_SERVER_H

#include "qstore/server.h"

#include "buf.h"
#include "failures.h"
#include "list.h"
#include "lock.h"
#include "map.h"
#include "session.h"
#include "thread_safety.h"
#include "timers.h"

#include <sys/socket.h>

QSI_LOCK_CLASS(qsi_net_mutex);

#define QSI_NET_NO_FD (-1)

enum {
    QSI_NET_WORKERS = 2,
    QSI_NET_INPUT_BYTES = 128 * 1024, /* one buffer for all connections */
    QSI_NET_TURN_BYTES = 256 * 1024,  /* bytes of a turn; then other connections have their turn */
    QSI_NET_TURN_READS = 4,
    QSI_NET_QUESTIONS_MAX = 1024, /* waiting for an answer */
};
#define QSI_NET_MS 1000000ULL
#define QSI_NET_SECOND (1000 * QSI_NET_MS)
#define QSI_NET_WORK_NS (5 * QSI_NET_MS)

/* The source of an epoll event: the first member of each structure that epoll watches. */
enum qsi_net_kind { QSI_NET_WAKE, QSI_NET_LISTENER, QSI_NET_CONNECTION, QSI_NET_CHANNELS };
struct qsi_net_source {
    enum qsi_net_kind kind;
};

struct qsi_net_listener {
    struct qsi_net_source source;
    struct qsi_list in_server;
    int fd;
    bool is_passed; /* the server does not remove its name */
    char bound[QS_ADDRESS_BYTES];
};

enum qsi_net_vhost_state {
    QSI_NET_VHOST_BEGINS,
    QSI_NET_VHOST_SERVES,
    QSI_NET_VHOST_ENDS, /* accepts no clients, and ends its connections */
    QSI_NET_VHOST_HAS_ENDED,
};

struct qsi_net_vhost {
    struct qsi_net_source source; /* events of its channels */
    struct qs_server *server;
    struct qsi_list in_server;
    qs_store *store;
    /* Channels of all its sessions; under channels_mutex; NULL: it has ended. */
    qs_listener *channels;
    struct qsi_amqp_pool pool;
    uint64_t body_bytes_max;
    uint32_t alarms; /* QS_ALARM_*; of the I/O thread */
    enum qsi_net_vhost_state state QSI_GUARDED_BY(qsi_net_mutex);
    uint64_t sessions QSI_GUARDED_BY(qsi_net_mutex);
    uint64_t end_by_ns QSI_GUARDED_BY(qsi_net_mutex); /* then its connections are cut off */
    uint32_t enders QSI_GUARDED_BY(qsi_net_mutex);    /* threads that add or end it */
    bool must_notify QSI_GUARDED_BY(qsi_net_mutex);   /* its connections must be told of its end */
    char name[256];
};

/* A watched channel of the engine. */
struct qsi_net_watch {
    struct qsi_net_connection *connection;
    struct qsi_list in_rung; /* of its connection */
    struct qsi_list in_dropped;
    uint16_t number;
};

enum qsi_net_place {
    QSI_NET_HERE,   /* with the I/O thread */
    QSI_NET_AWAY,   /* with a worker, which continues its session */
    QSI_NET_LEAVES, /* with a worker, which closes its session */
};

/* The state of a proxy's header, which comes before anything else. */
enum qsi_net_header {
    QSI_NET_HEADER_TAKEN, /* or none is expected */
    QSI_NET_HEADER_AWAITED,
    QSI_NET_HEADER_REFUSED,
};

struct qsi_net_connection {
    struct qsi_net_source source;
    struct qs_server *server;
    struct qsi_amqp_session *session; /* of the thread that has the session */
    /* Of the same thread, written under the mutex; NULL: none yet. */
    struct qsi_net_vhost *vhost;
    uint64_t number;
    int fd;
    struct qsi_list in_server;
    struct qsi_list in_queue; /* one of: new, ready, a worker's jobs, returned */
    struct qsi_list rung;     /* watches with events of which the session was not told yet */
    struct qsi_timer timer;
    enum qsi_net_place place;
    enum qsi_net_header header;
    enum qsi_amqp_wants wants; /* the result of a worker's turn */
    uint64_t end_by_ns;        /* when it is cut off, even with unwritten output */
    uint64_t refuse_at_ns;     /* when the client gets the answer that its login failed */
    bool is_ready;             /* in server->ready */
    bool can_read, can_write;  /* according to epoll */
    bool has_ended;            /* the client sends no more than can be read now */
    /* Closed in both directions, according to epoll; input may be left. */
    bool is_cut;
    bool is_lost;     /* the client has gone, or cannot be written to */
    bool must_shut;   /* server or vhost end, and the session was not told yet */
    bool is_unwanted; /* the caller ends it: implies must_shut */
    bool has_asked;   /* it has a login without an answer */
    bool is_loopback;
    uint32_t alarms;       /* of which the session was told */
    bool beats_while_away; /* heartbeats are due, and may be written by the I/O thread */
    char peer[QS_ADDRESS_BYTES];
    char user[256]; /* the user named by a certificate */
};

struct qsi_net_question {
    struct qsi_list in_list;
    qs_question asked;
    uint64_t connection; /* its number */
    bool is_taken;
    uint32_t answer; /* QS_ANSWER_* */
    size_t user_bytes;
    char user[256];
    char text[]; /* the bytes of the slices of asked */
};

struct qs_server {
    qs_env *env;
    uint32_t fork_generation;
    qs_server_options options;
    struct qsi_amqp_setup setup;
    uint64_t rights_version; /* atomic */
    char product[64], version[32], mechanisms[64];
    int epoll_fd, wake_fd;
    struct qsi_net_source wake;
    /* Of the channels of vhosts, which serve one thread at a time; held during a commit. */
    struct qsi_mutex channels_mutex;
    pthread_t io_thread, workers[QSI_NET_WORKERS];
    uint32_t worker_count;
    bool has_io_thread;

    /* Of the I/O thread only. */
    int spare_fd; /* closed to accept, and then close, a connection when no descriptor is left */
    uint8_t *input;
    struct qsi_map by_number;    /* connections */
    struct qsi_list connections; /* all of them */
    struct qsi_list ready;       /* connections with something to do */
    struct qsi_list listeners;   /* watched by epoll */
    struct qsi_timers timers;
    struct qsi_failures failures;
    uint64_t accept_again_ns; /* when listeners that failed to accept are watched again */
    uint64_t logged_away_ns;  /* the last time when the log said that clients are turned away */
    uint64_t cut_by_ns;       /* stop_by_ns */
    bool is_shutting;

    struct qsi_mutex mutex;
    struct qsi_cond has_jobs, has_questions, has_left; /* has_left: a session left its vhost */
    /* Listeners and connections that the I/O thread has not seen yet. */
    struct qsi_list new_listeners QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list newcomers QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list jobs QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list returned QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list dropped QSI_GUARDED_BY(qsi_net_mutex);   /* watches */
    struct qsi_list questions QSI_GUARDED_BY(qsi_net_mutex); /* logins */
    /* Permissions; taken before logins. */
    struct qsi_list permissions QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list answers QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list vhosts QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_buf unwanted QSI_GUARDED_BY(qsi_net_mutex); /* numbers of connections to end */
    /* Some vhost's connections must be told of its end. */
    bool vhosts_end QSI_GUARDED_BY(qsi_net_mutex);
    bool vhosts_ended QSI_GUARDED_BY(qsi_net_mutex); /* some vhost is to be freed */
    uint64_t last_question QSI_GUARDED_BY(qsi_net_mutex);
    uint32_t question_count QSI_GUARDED_BY(qsi_net_mutex); /* in questions */
    uint64_t stop_by_ns QSI_GUARDED_BY(qsi_net_mutex);
    bool is_stopping QSI_GUARDED_BY(qsi_net_mutex);
    bool workers_end QSI_GUARDED_BY(qsi_net_mutex);
    bool is_awake QSI_GUARDED_BY(qsi_net_mutex); /* the eventfd was written and not read */
    qs_server_counts counts QSI_GUARDED_BY(qsi_net_mutex);
};

/* ---- net_server.c ---- */

void qsi_net_lock(struct qs_server *server) QSI_ACQUIRES(qsi_net_mutex);
void qsi_net_unlock(struct qs_server *server) QSI_RELEASES(qsi_net_mutex);
uint64_t qsi_net_now(const struct qs_server *server);
/* Makes the I/O thread look at its lists. */
void qsi_net_wake(struct qs_server *server) QSI_REQUIRES(qsi_net_mutex);
void qsi_net_log(struct qs_server *server, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts the connection into server->ready, unless a worker has it. */
void qsi_net_make_ready(struct qsi_net_connection *connection);

/* ---- loop.c ---- */

void *qsi_net_run_loop(void *server);

/* ---- accept.c ---- */

void qsi_net_accept_all(struct qs_server *server, struct qsi_net_listener *listener);
void qsi_net_listener_free(struct qsi_net_listener *listener);
/* Has epoll watch the listeners again that could not accept. */
void qsi_net_accept_again(struct qs_server *server);
/* Creates a connection with a session; NULL: no memory, and fd is closed. */
struct qsi_net_connection *qsi_net_connection_make(struct qs_server *server, int fd,
                                                   const char *peer, const char *user,
                                                   bool is_loopback);
/* Begins a connection that a caller's thread created; it is turned away above connections_max. */
void qsi_net_begin_adopted(struct qsi_net_connection *connection);
void qsi_net_connection_free(struct qsi_net_connection *connection);

/* ---- turn.c ---- */

/* One turn of a ready connection. */
void qsi_net_serve(struct qsi_net_connection *connection, uint64_t now_ns);
/* Continues after a turn, here or in a worker, with this result: writes the output first. */
void qsi_net_go_on(struct qsi_net_connection *connection, enum qsi_amqp_wants wants,
                   uint64_t now_ns);
/* Ends a connection; is_reset closes the socket with a reset. */
void qsi_net_end(struct qsi_net_connection *connection, bool is_reset);

/* ---- proxy.c ---- */

/* Takes the header of a proxy from the input.  False: it is incomplete, or the input is no header,
 * and then the connection is lost. */
bool qsi_net_take_header(struct qsi_net_connection *connection);
/* Logs why a connection without a complete header ended. */
void qsi_net_log_missing_header(struct qsi_net_connection *connection, enum qsi_amqp_end end);

/* ---- output.c ---- */

/* Writes as much as the socket takes. */
void qsi_net_flush(struct qsi_net_connection *connection, uint64_t now_ns);
/* For a session that is with a worker.  False: it cannot be sent now. */
bool qsi_net_send_heartbeat(struct qsi_net_connection *connection);

/* ---- workers.c ---- */

void *qsi_net_run_worker(void *server);
void qsi_net_hand_over(struct qsi_net_connection *connection, enum qsi_net_place place);

/* ---- host.c ---- */

/* The callbacks of sessions. */
struct qsi_amqp_host qsi_net_host(bool asks_permissions);
/* Takes channels with events and changed alarms from the vhost's listener. */
void qsi_net_take_rung(struct qsi_net_vhost *vhost);
/* Called around a turn of a connection of the vhost: qs_listener_hold and qs_listener_go. */
void qsi_net_hold(struct qsi_net_vhost *vhost);
void qsi_net_go(struct qsi_net_vhost *vhost, bool (*may_wait)(const struct qs_server *server));
/* Frees dropped watches, whose channels are closed. */
void qsi_net_free_watches(struct qsi_list *dropped);

/* ---- vhosts.c ---- */

qs_status qsi_net_add_vhost(struct qs_server *server, const char *name, qs_store *store,
                            qs_error *error) QS_MUST_CHECK;
/* Finds the vhost and counts the session; NULL: there is none of that name, or it is ending. */
struct qsi_net_vhost *qsi_net_enter_vhost(struct qsi_net_connection *connection, qs_slice name);
/* Called after the connection's session was closed. */
void qsi_net_leave_vhost(struct qsi_net_connection *connection);
/* Returns when no session is in the vhost any more; at once if there is no vhost of that name. */
void qsi_net_end_vhost(struct qs_server *server, const char *name, uint64_t end_by_ns);
void qsi_net_notify_ended_vhosts(struct qs_server *server);
/* Called by the I/O thread, between two calls of epoll. */
void qsi_net_free_ended_vhosts(struct qs_server *server);
/* REQUIRES that no session is left. */
void qsi_net_close_vhosts(struct qs_server *server);
void qsi_net_free_vhosts(struct qs_server *server);

/* ---- questions.c ---- */

/* Asks whether a client may log in.  QSI_AMQP_LATER, or QSI_AMQP_REFUSED: no memory, or too many
 * logins wait. */
enum qsi_amqp_verdict qsi_net_ask(struct qsi_net_connection *connection, qs_slice mechanism,
                                  qs_slice user, qs_slice password);
/* QSI_AMQP_LATER, or QSI_AMQP_REFUSED: no memory. */
enum qsi_amqp_verdict qsi_net_ask_permission(struct qsi_net_connection *connection,
                                             enum qsi_amqp_right right, qs_slice name);
void qsi_net_take_answers(struct qs_server *server);
/* Answers the client that its login failed. */
void qsi_net_refuse_login(struct qsi_net_connection *connection);
/* Removes the login of a client that has gone, so that later ones need not wait for it. */
void qsi_net_withdraw_question(struct qsi_net_connection *connection);
void qsi_net_free_questions(struct qs_server *server);

#endif
