/* What the files of a server share.
 *
 * Three kinds of threads.  The I/O thread has all sockets and, of every connection, the session,
 * unless it has handed that over.  Two workers go on with sessions that would have to wait, and
 * close them.  The caller's threads listen, answer and stop.  A session is with one thread at a
 * time, and what it stands on needs no lock: who hands a connection over does not look at its
 * session before it has it back.  What several threads look at is under the server's mutex. */
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
    QSI_NET_TURN_BYTES = 256 * 1024,  /* then the others have their turn */
    QSI_NET_TURN_READS = 4,
    QSI_NET_QUESTIONS_MAX = 1024, /* that wait for an answer */
};
#define QSI_NET_MS 1000000ULL
#define QSI_NET_SECOND (1000 * QSI_NET_MS)
#define QSI_NET_WORK_NS (5 * QSI_NET_MS)

/* What epoll tells of: the first member of each. */
enum qsi_net_kind { QSI_NET_WAKE, QSI_NET_LISTENER, QSI_NET_CONNECTION, QSI_NET_CHANNELS };
struct qsi_net_source {
    enum qsi_net_kind kind;
};

struct qsi_net_listener {
    struct qsi_net_source source;
    struct qsi_list in_server;
    int fd;
    bool is_passed; /* its name is not the server's to remove */
    char bound[QS_ADDRESS_BYTES];
};

enum qsi_net_vhost_state {
    QSI_NET_VHOST_BEGINS,
    QSI_NET_VHOST_SERVES,
    QSI_NET_VHOST_ENDS, /* nobody comes in, and those who are in are told */
    QSI_NET_VHOST_HAS_ENDED,
};

struct qsi_net_vhost {
    struct qsi_net_source source; /* its channels */
    struct qs_server *server;
    struct qsi_list in_server;
    qs_store *store;
    qs_listener *channels; /* those of all its sessions; under channels_mutex; NULL: it has ended */
    struct qsi_amqp_pool pool;
    uint64_t body_bytes_max;
    uint32_t alarms; /* QS_ALARM_*; the I/O thread's */
    enum qsi_net_vhost_state state QSI_GUARDED_BY(qsi_net_mutex);
    uint64_t sessions QSI_GUARDED_BY(qsi_net_mutex);
    uint64_t end_by_ns QSI_GUARDED_BY(qsi_net_mutex); /* then its connections are cut off */
    uint32_t enders QSI_GUARDED_BY(qsi_net_mutex);    /* threads that make it or end it */
    bool must_tell QSI_GUARDED_BY(qsi_net_mutex);     /* its connections that it ends */
    char name[256];
};

/* A channel of the engine that rings. */
struct qsi_net_watch {
    struct qsi_net_connection *connection;
    struct qsi_list in_rung; /* of its connection */
    struct qsi_list in_dropped;
    uint16_t number;
};

enum qsi_net_place {
    QSI_NET_HERE,   /* with the I/O thread */
    QSI_NET_AWAY,   /* with a worker, which goes on with it */
    QSI_NET_LEAVES, /* with a worker, which closes its session */
};

/* Of a proxy, before anything else. */
enum qsi_net_header {
    QSI_NET_HEADER_TAKEN, /* or none is to come */
    QSI_NET_HEADER_AWAITED,
    QSI_NET_HEADER_REFUSED,
};

struct qsi_net_connection {
    struct qsi_net_source source;
    struct qs_server *server;
    struct qsi_amqp_session *session; /* of the thread that has it */
    struct qsi_net_vhost *vhost;      /* that thread's, written under the mutex; NULL: none yet */
    uint64_t number;
    int fd;
    struct qsi_list in_server;
    struct qsi_list in_queue; /* new, ready, a worker's, returned */
    struct qsi_list rung;     /* watches that rang since the session was last told */
    struct qsi_timer timer;
    enum qsi_net_place place;
    enum qsi_net_header header;
    enum qsi_amqp_wants wants; /* what a worker's turn ended with */
    uint64_t end_by_ns;        /* when it is cut off, its output written or not */
    uint64_t refuse_at_ns;     /* when it hears that its login failed */
    bool is_ready;             /* in the queue of those that have something to do */
    bool can_read, can_write;  /* as far as the socket has told */
    bool has_ended;            /* no more will come than can be read now */
    bool is_cut;               /* so has epoll; there may be something to read still */
    bool is_lost;              /* the client has gone, or cannot be written to */
    bool must_shut;            /* server or vhost end, and the session was not told */
    bool is_unwanted;          /* the caller ends it: must_shut */
    bool has_asked;            /* to be let in, and was not answered */
    bool is_loopback;
    uint32_t alarms;       /* that the session was told of */
    bool beats_while_away; /* heartbeats are due, and may be written between frames */
    char peer[QS_ADDRESS_BYTES];
    char user[256]; /* whom a certificate names */
};

struct qsi_net_question {
    struct qsi_list in_list;
    qs_question asked;
    uint64_t connection; /* its number */
    bool is_taken;
    uint32_t answer; /* QS_ANSWER_* */
    size_t user_bytes;
    char user[256];
    char text[]; /* what the slices of asked point to */
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
    struct qsi_mutex channels_mutex; /* vhosts' channels serve one thread; held for a commit */
    pthread_t io_thread, workers[QSI_NET_WORKERS];
    uint32_t worker_count;
    bool has_io_thread;

    /* The I/O thread's own. */
    int spare_fd; /* given up to accept, and close, a connection when no descriptor is left */
    uint8_t *input;
    struct qsi_map by_number;    /* connections */
    struct qsi_list connections; /* all of them */
    struct qsi_list ready;       /* have something to do */
    struct qsi_list listeners;   /* that are watched */
    struct qsi_timers timers;
    struct qsi_failures failures;
    uint64_t accept_again_ns; /* listeners that failed to accept are told of connections again */
    uint64_t told_away_ns;    /* when the log was last told that clients are turned away */
    uint64_t cut_by_ns;       /* stop_by_ns */
    bool is_shutting;

    struct qsi_mutex mutex;
    struct qsi_cond has_jobs, has_questions, has_left; /* the last: a session its vhost */
    /* Listeners and connections that the I/O thread has not seen yet. */
    struct qsi_list new_listeners QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list newcomers QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list jobs QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list returned QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list dropped QSI_GUARDED_BY(qsi_net_mutex);     /* watches */
    struct qsi_list questions QSI_GUARDED_BY(qsi_net_mutex);   /* of those who would log in */
    struct qsi_list permissions QSI_GUARDED_BY(qsi_net_mutex); /* questions for these come first */
    struct qsi_list answers QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_list vhosts QSI_GUARDED_BY(qsi_net_mutex);
    struct qsi_buf unwanted QSI_GUARDED_BY(qsi_net_mutex); /* numbers of connections to be ended */
    bool vhosts_end QSI_GUARDED_BY(qsi_net_mutex); /* there is one whose connections must be told */
    bool vhosts_ended QSI_GUARDED_BY(qsi_net_mutex); /* there is one to be freed */
    uint64_t last_question QSI_GUARDED_BY(qsi_net_mutex);
    uint32_t question_count QSI_GUARDED_BY(qsi_net_mutex); /* in questions */
    uint64_t stop_by_ns QSI_GUARDED_BY(qsi_net_mutex);
    bool is_stopping QSI_GUARDED_BY(qsi_net_mutex);
    bool workers_end QSI_GUARDED_BY(qsi_net_mutex);
    bool is_awake QSI_GUARDED_BY(qsi_net_mutex); /* the eventfd was signalled and not read */
    qs_server_counts counts QSI_GUARDED_BY(qsi_net_mutex);
};

/* ---- server.c ---- */

void qsi_net_lock(struct qs_server *server) QSI_ACQUIRES(qsi_net_mutex);
void qsi_net_unlock(struct qs_server *server) QSI_RELEASES(qsi_net_mutex);
uint64_t qsi_net_now(const struct qs_server *server);
/* The I/O thread looks at its lists soon. */
void qsi_net_wake(struct qs_server *server) QSI_REQUIRES(qsi_net_mutex);
void qsi_net_note(struct qs_server *server, uint32_t level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- loop.c ---- */

void *qsi_net_run_loop(void *server);
/* Into the queue of those that have something to do; nothing while it is with a worker. */
void qsi_net_make_ready(struct qsi_net_connection *connection);

/* ---- accept.c ---- */

void qsi_net_accept_all(struct qs_server *server, struct qsi_net_listener *listener);
void qsi_net_listener_free(struct qsi_net_listener *listener);
/* Listeners that could accept nobody try again. */
void qsi_net_accept_again(struct qs_server *server);
/* A connection with a session; NULL: there is no memory, and fd is closed. */
struct qsi_net_connection *qsi_net_connection_make(struct qs_server *server, int fd,
                                                   const char *peer, const char *user,
                                                   bool is_loopback);
/* One that the caller's thread made; it may be one too many. */
void qsi_net_begin_adopted(struct qsi_net_connection *connection);
void qsi_net_connection_free(struct qsi_net_connection *connection);

/* ---- turn.c ---- */

/* One turn of a connection that is ready. */
void qsi_net_serve(struct qsi_net_connection *connection, uint64_t now_ns);
/* What comes of a turn, here or in a worker, that ended so: its output is written first. */
void qsi_net_go_on(struct qsi_net_connection *connection, enum qsi_amqp_wants wants,
                   uint64_t now_ns);
/* The end: with is_reset the client hears of it as of a fault. */
void qsi_net_end(struct qsi_net_connection *connection, bool is_reset);

/* ---- proxy.c ---- */

/* Takes the header of a proxy from what has come.  False: it has not come whole, or is none, and
 * then the connection is lost. */
bool qsi_net_take_header(struct qsi_net_connection *connection);
/* Why one ends whose header has not come. */
void qsi_net_note_no_header(struct qsi_net_connection *connection, enum qsi_amqp_end end);

/* ---- output.c ---- */

/* As much as the socket takes. */
void qsi_net_flush(struct qsi_net_connection *connection, uint64_t now_ns);
/* While the session is with a worker.  False: not now. */
bool qsi_net_send_heartbeat(struct qsi_net_connection *connection);

/* ---- workers.c ---- */

void *qsi_net_run_worker(void *server);
void qsi_net_hand_over(struct qsi_net_connection *connection, enum qsi_net_place place);

/* ---- host.c ---- */

/* What sessions ask their host. */
struct qsi_amqp_host qsi_net_host(bool asks_permissions);
/* Channels rang, or alarms changed. */
void qsi_net_take_rung(struct qsi_net_vhost *vhost);
/* Around a turn of a connection of the vhost: qs_listener_hold and qs_listener_go. */
void qsi_net_hold(struct qsi_net_vhost *vhost);
void qsi_net_go(struct qsi_net_vhost *vhost, bool (*may_wait)(const struct qs_server *server));
/* Watches that were dropped may be freed: their channels ring no more. */
void qsi_net_free_watches(struct qsi_list *dropped);

/* ---- vhosts.c ---- */

qs_status qsi_net_add_vhost(struct qs_server *server, const char *name, qs_store *store,
                            qs_error *error) QS_MUST_CHECK;
/* NULL: there is none of that name, or it ends. */
struct qsi_net_vhost *qsi_net_enter_vhost(struct qsi_net_connection *connection, qs_slice name);
/* Its session is closed. */
void qsi_net_leave_vhost(struct qsi_net_connection *connection);
/* Returns when it has no session any more; without one of that name at once. */
void qsi_net_end_vhost(struct qs_server *server, const char *name, uint64_t end_by_ns);
void qsi_net_tell_ended_vhosts(struct qs_server *server);
/* The I/O thread's, between two calls of epoll. */
void qsi_net_free_ended_vhosts(struct qs_server *server);
/* No session is left. */
void qsi_net_close_vhosts(struct qs_server *server);
void qsi_net_free_vhosts(struct qs_server *server);

/* ---- questions.c ---- */

/* QSI_AMQP_LATER, or QSI_AMQP_REFUSED: there is no memory, or too many others wait. */
enum qsi_amqp_verdict qsi_net_ask(struct qsi_net_connection *connection, qs_slice mechanism,
                                  qs_slice user, qs_slice password);
/* QSI_AMQP_LATER, or QSI_AMQP_REFUSED: there is no memory. */
enum qsi_amqp_verdict qsi_net_ask_permission(struct qsi_net_connection *connection,
                                             enum qsi_amqp_right right, qs_slice name);
void qsi_net_take_answers(struct qs_server *server);
/* The client hears that its login failed. */
void qsi_net_refuse_login(struct qsi_net_connection *connection);
/* The client has gone: whoever waits behind it need not wait for it. */
void qsi_net_withdraw_question(struct qsi_net_connection *connection);
void qsi_net_free_questions(struct qs_server *server);

#endif
