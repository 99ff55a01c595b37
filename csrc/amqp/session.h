/* One AMQP 0-9-1 connection without its socket: bytes in, calls of the engine, bytes out.
 *
 * A session has no thread, no clock and no descriptor.  Its host is the event loop.  The host
 * passes it the bytes of the socket and the time, and writes the session's output.  The host calls
 * the session again when a deadline is over, when one of its channels has events, or when a
 * question is answered.  Calls on one session take turns; any thread may make them.
 *
 * Times are nanoseconds of a monotonic clock, the same clock in all calls.  A call waits for the
 * store's lock, and for anything else only if turn->may_block; qsi_amqp_session_close may always
 * wait. */
#ifndef QSI_AMQP_SESSION_H
#define QSI_AMQP_SESSION_H

#include "qstore/qstore.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct qsi_amqp_session;

#define QSI_AMQP_NEVER UINT64_MAX /* a deadline */

/* ---- questions to the host ---- */

/* GRANTED_ALL: an answer to permit: this right to every name. */
enum qsi_amqp_verdict { QSI_AMQP_LATER, QSI_AMQP_GRANTED, QSI_AMQP_REFUSED, QSI_AMQP_GRANTED_ALL };

/* ENTER: the right to use the vhost of that name. */
enum qsi_amqp_right { QSI_AMQP_CONFIGURE, QSI_AMQP_WRITE, QSI_AMQP_READ, QSI_AMQP_ENTER };

struct qsi_amqp_host {
    void *context;
    /* Checks a login.  The slices are valid until the call returns.  EXTERNAL: user is the name
     * that the client sent, or "", and password is empty.  QSI_AMQP_LATER: qsi_amqp_session_answer
     * brings the verdict. */
    enum qsi_amqp_verdict (*authenticate)(void *context, struct qsi_amqp_session *session,
                                          const char *mechanism, qs_slice user, qs_slice password);
    /* Whether the user has the right to the exchange or queue name.  NULL: each user may do
     * everything. */
    enum qsi_amqp_verdict (*permit)(void *context, struct qsi_amqp_session *session,
                                    enum qsi_amqp_right right, qs_slice name);
    /* Finds the store of a virtual host; NULL: there is none, or, with *refused_out, the user may
     * not enter it. */
    qs_store *(*find_store)(void *context, struct qsi_amqp_session *session, qs_slice vhost,
                            bool *refused_out);
    /* The session has opened a channel of the engine.  The host watches the channel for events
     * (qs_channel_event_fd), and then calls qsi_amqp_session_rang with that number.  unwatch gets
     * *watch_out, and is called after qs_channel_close has returned.  The thread that has the
     * session's turn makes both calls. */
    qs_status (*watch)(void *context, struct qsi_amqp_session *session, uint16_t number,
                       qs_channel *channel, void **watch_out, qs_error *error);
    void (*unwatch)(void *context, struct qsi_amqp_session *session, void *watch);
    /* Fills in the number and the peer of the client, valid until the call returns.  NULL: not
     * needed. */
    void (*describe_client)(void *context, struct qsi_amqp_session *session, qs_client *client_out);
    /* Fills in unpredictable random bytes. */
    void (*fill_random)(void *context, void *bytes_out, size_t bytes);
};

/* ---- settings of a session ---- */

struct qsi_amqp_limits {
    uint32_t frame_max;      /* offered; 131072.  It is 4096 before tune-ok */
    uint16_t channel_max;    /* offered; 2047 */
    uint16_t heartbeat_s;    /* offered; 60 */
    uint32_t consumers_max;  /* of a channel; 65535 */
    uint64_t body_bytes_max; /* 128 MiB */
    /* No delivery is taken while more bytes wait to be written; 256 KiB. */
    uint32_t unsent_bytes_max;
    uint64_t handshake_ns;    /* until connection.open; 10 s */
    uint64_t silent_close_ns; /* delay before the socket of a refused client is closed; 3 s */
    uint64_t close_ok_ns;     /* how long connection.close waits for close-ok; 3 s */
};
void qsi_amqp_limits_default(struct qsi_amqp_limits *limits_out);

/* Limits shared by all sessions of a server.  Zeroed memory has no limits.  Members other than the
 * limits (*_max) are accessed only with atomics.
 *
 * bytes counts incomplete bodies.  A session that exceeds bytes_max waits.  One session is
 * favoured: it may continue until it alone holds body_bytes_max.
 *
 * tx_bytes counts memory of uncommitted transactions.  If the transactions of a session take more
 * than the remaining room, and more than 1/1024 of the limit, a channel of it is closed (406),
 * which rolls back.
 *
 * tx_return_bytes counts messages of transactions that no queue took, until they are returned to
 * the client.  Its limit works likewise, because all publishers share the room for returns. */
struct qsi_amqp_pool {
    uint64_t bytes;
    uint64_t bytes_max;                      /* 0: no limit */
    const struct qsi_amqp_session *favoured; /* may exceed bytes_max; NULL: none may */
    uint64_t asked_ns;                       /* the last time when a session found no room */
    uint64_t tx_bytes;
    uint64_t tx_bytes_max; /* 0: no limit */
    uint64_t tx_return_bytes;
    uint64_t tx_return_bytes_max; /* 0: no limit */
};

struct qsi_amqp_setup {
    struct qsi_amqp_host host;
    struct qsi_amqp_limits limits;
    struct qsi_amqp_pool *pool; /* outlives the session; NULL: none */
    /* Texts of connection.start, NUL-terminated and not copied: they outlive the session. */
    const char *product, *version, *platform, *cluster_name, *copyright, *information;
    const char *mechanisms; /* "PLAIN AMQPLAIN", in order; the accepted ones as well */
    bool quorum_as_classic; /* a declared quorum queue becomes a durable classic queue */
    /* A number that changes when earlier answers of permit may be outdated; read with atomics.
     * NULL: answers are never outdated. */
    const uint64_t *rights_version;
    void *peer_context; /* the host's own: qsi_amqp_session_peer_context */
};

/* Owns: *session_out, qsi_amqp_session_close. */
qs_status qsi_amqp_session_create(struct qsi_amqp_session **session_out,
                                  const struct qsi_amqp_setup *setup, uint64_t now_ns,
                                  qs_error *error) QS_MUST_CHECK;

/* Closes channels and connection of the engine, and frees the session, after the socket was lost or
 * all output was written.  Blocks as qs_connection_close if qsi_amqp_session_has_connection. */
void qsi_amqp_session_close(struct qsi_amqp_session *session);
bool qsi_amqp_session_has_connection(const struct qsi_amqp_session *session);

/* Sets the pool and the limit of the store that find_store found, in place of those of the setup.
 * find_store calls this. */
void qsi_amqp_session_set_room(struct qsi_amqp_session *session, struct qsi_amqp_pool *pool,
                               uint64_t body_bytes_max);

void *qsi_amqp_session_peer_context(const struct qsi_amqp_session *session);
/* The user of the login and the vhost of connection.open.  NUL-terminated. */
const char *qsi_amqp_session_user(const struct qsi_amqp_session *session);
const char *qsi_amqp_session_vhost(const struct qsi_amqp_session *session);

/* ---- turns ---- */

/* What a session needs before it can go on. */
enum qsi_amqp_wants {
    QSI_AMQP_WANTS_INPUT, /* more bytes, or an event: nothing is left to do */
    /* Nothing: it stopped so that other sessions get their turns.  Call run again soon. */
    QSI_AMQP_WANTS_TURN,
    /* An engine call must wait: run the session in a thread that may wait, with may_block, until it
     * wants something else. */
    QSI_AMQP_WANTS_WORKER,
    QSI_AMQP_WANTS_ANSWER, /* qsi_amqp_session_answer.  Do not read the socket */
    QSI_AMQP_WANTS_OUTPUT, /* its output must be written first.  Do not read the socket */
    QSI_AMQP_WANTS_END,    /* its output written; then close the socket and the session */
    /* Close the socket at once, without writing, as after missed heartbeats. */
    QSI_AMQP_WANTS_RESET,
};

struct qsi_amqp_turn {
    uint64_t now_ns;
    bool may_block;
    /* Input bytes after which run returns QSI_AMQP_WANTS_TURN; 0: no limit.  With 65536, a worker
     * can check its own clock between turns. */
    size_t bytes_max;
};

/* Takes all of the bytes: parses them in place, and copies those that it cannot use yet.  After
 * QSI_AMQP_WANTS_WORKER, _ANSWER or _OUTPUT the host should not feed: up to twice frame_max is
 * kept, and more ends the session. */
enum qsi_amqp_wants qsi_amqp_session_feed(struct qsi_amqp_session *session,
                                          const struct qsi_amqp_turn *turn, const void *data,
                                          size_t bytes);

/* Continues with the kept input, then with deliveries, confirms, returns and cancels of the
 * channels that have events.  Channels take turns of 64 events each, while less than
 * unsent_bytes_max waits to be written.  Call it after rang, after answer, at the deadline, and
 * after written if less than unsent_bytes_max is left. */
enum qsi_amqp_wants qsi_amqp_session_run(struct qsi_amqp_session *session,
                                         const struct qsi_amqp_turn *turn);

/* Whether the host should read the socket.  False while the session wants something other than
 * input, while its output is full, and while an alarm holds back its publisher. */
bool qsi_amqp_session_reads(const struct qsi_amqp_session *session);

/* Marks a channel that may have events; call run afterwards.  A number that is not open is
 * ignored. */
void qsi_amqp_session_rang(struct qsi_amqp_session *session, uint16_t number);

/* Delivers the answer to authenticate or permit; call run afterwards.  user: of authenticate, the
 * name of the user; empty: the name in the question. */
void qsi_amqp_session_answer(struct qsi_amqp_session *session, enum qsi_amqp_verdict verdict,
                             qs_slice user);

/* ---- output ---- */

/* Returns in pieces_out up to count pieces of the unwritten output, in order, and their number.
 * They are valid until qsi_amqp_session_written or a call that gives the session a turn. */
int qsi_amqp_session_output(struct qsi_amqp_session *session, struct iovec *pieces_out, int count);
void qsi_amqp_session_written(struct qsi_amqp_session *session, size_t bytes, uint64_t now_ns);
size_t qsi_amqp_session_unsent(const struct qsi_amqp_session *session);
/* Whether the written output ends at the end of a frame.  Then the host may write a heartbeat
 * itself while another thread has the session's turn. */
bool qsi_amqp_session_between_frames(const struct qsi_amqp_session *session);
extern const uint8_t qsi_amqp_heartbeat_frame[8];

/* ---- time ---- */

/* The latest time for the next qsi_amqp_session_run: handshake timeout, heartbeats to send and to
 * miss, the delay before a close.  It changes with every call. */
uint64_t qsi_amqp_session_deadline(const struct qsi_amqp_session *session);

/* ---- calls of the server ---- */

/* Starts an alarm because memory or disk is short (reason: "memory", "disk", "low on memory"); NULL
 * ends it.  A session that has published gets connection.blocked, if its client knows that method.
 * Its socket is not read during the alarm.  Exception: if it has an open transaction, which only
 * its client can end, it is read, and publishes only in open transactions. */
void qsi_amqp_session_alarm(struct qsi_amqp_session *session, const char *reason, uint64_t now_ns);

/* Sends connection.close with 320 "CONNECTION_FORCED - <text>"; then call run until the session
 * wants its end.  Before the close, messages that it has published become durable and are
 * confirmed, which takes a worker; nothing more is read or delivered meanwhile.  During the
 * handshake the session ends at once. */
void qsi_amqp_session_shut(struct qsi_amqp_session *session, const char *text, uint64_t now_ns);

/* ---- counts ---- */

enum qsi_amqp_end {
    QSI_AMQP_END_NONE,      /* the session is open, or the socket was lost */
    QSI_AMQP_END_CLIENT,    /* connection.close by the client */
    QSI_AMQP_END_SERVER,    /* connection.close by the server, with code and text */
    QSI_AMQP_END_HEADER,    /* another protocol */
    QSI_AMQP_END_REFUSED,   /* login or tuning refused without connection.close */
    QSI_AMQP_END_HANDSHAKE, /* not done in time */
    QSI_AMQP_END_HEARTBEAT, /* the client is silent */
    QSI_AMQP_END_MEMORY,    /* memory was short */
};

struct qsi_amqp_counts {
    uint64_t bytes_in, bytes_out, frames_in;
    uint64_t published, delivered, got, returned, confirmed;
    uint32_t channels, consumers;
    enum qsi_amqp_end end;
    uint16_t close_code;
    char close_text[256];
};
void qsi_amqp_session_counts(const struct qsi_amqp_session *session,
                             struct qsi_amqp_counts *counts_out);

#endif
