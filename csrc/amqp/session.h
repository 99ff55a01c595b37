/* One AMQP 0-9-1 connection without its socket: bytes in, calls of the engine, bytes out.
 *
 * A session has no thread, no clock and no descriptor.  Its host, the event loop, gives it what
 * the socket read and the time, writes what it puts out, and calls it again when a deadline is
 * over, when one of its channels rang or when a question is answered.  Calls on one session take
 * turns; which thread makes them does not matter.
 *
 * Times are nanoseconds of a clock that only goes forward, the same in all calls.  Nothing waits
 * unless turn->may_block says that it may, except for the store's lock; qsi_amqp_session_close
 * always may. */
#ifndef QSI_AMQP_SESSION_H
#define QSI_AMQP_SESSION_H

#include "qstore/qstore.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct qsi_amqp_session;

#define QSI_AMQP_NEVER UINT64_MAX /* a deadline */

/* ---- what the host is asked ---- */

/* GRANTED_ALL: this right to every name, of permit. */
enum qsi_amqp_verdict { QSI_AMQP_LATER, QSI_AMQP_GRANTED, QSI_AMQP_REFUSED, QSI_AMQP_GRANTED_ALL };

/* ENTER: to use the vhost that name is. */
enum qsi_amqp_right { QSI_AMQP_CONFIGURE, QSI_AMQP_WRITE, QSI_AMQP_READ, QSI_AMQP_ENTER };

struct qsi_amqp_host {
    void *context;
    /* Who is it?  Slices until it returns.  EXTERNAL: user is what the client said, or "", and
     * password is empty.  QSI_AMQP_LATER: qsi_amqp_session_answer brings the verdict. */
    enum qsi_amqp_verdict (*authenticate)(void *context, struct qsi_amqp_session *session,
                                          const char *mechanism, qs_slice user, qs_slice password);
    /* May user do that with the exchange or queue name?  NULL: everybody may do everything. */
    enum qsi_amqp_verdict (*permit)(void *context, struct qsi_amqp_session *session,
                                    enum qsi_amqp_right right, qs_slice name);
    /* The store of a virtual host; NULL: there is none, or (*refused_out) user may not go there. */
    qs_store *(*find_store)(void *context, struct qsi_amqp_session *session, qs_slice vhost,
                            bool *refused_out);
    /* The session has opened a channel of the engine: have the host hear when events come for it
     * (qs_channel_event_fd), and call qsi_amqp_session_rang with that number.  *watch_out goes to
     * unwatch, which is called after qs_channel_close has returned.  Both are called by the thread
     * that has the session's turn. */
    qs_status (*watch)(void *context, struct qsi_amqp_session *session, uint16_t number,
                       qs_channel *channel, void **watch_out, qs_error *error);
    void (*unwatch)(void *context, struct qsi_amqp_session *session, void *watch);
    /* Who is behind the session: its number and peer, until it returns.  NULL: nobody asks. */
    void (*tell_client)(void *context, struct qsi_amqp_session *session, qs_client *client_out);
    /* Bytes that nobody can guess. */
    void (*fill_random)(void *context, void *bytes_out, size_t bytes);
};

/* ---- what is given to a session once ---- */

struct qsi_amqp_limits {
    uint32_t frame_max;        /* offered; 131072.  Before tune-ok 4096 */
    uint16_t channel_max;      /* offered; 2047 */
    uint16_t heartbeat_s;      /* offered; 60 */
    uint32_t consumers_max;    /* of a channel; 65535 */
    uint64_t body_bytes_max;   /* 128 MiB */
    uint32_t unsent_bytes_max; /* no delivery is taken while more waits to be written; 256 KiB */
    uint64_t handshake_ns;     /* until connection.open; 10 s */
    uint64_t silent_close_ns;  /* a refused client is left waiting so long; 3 s */
    uint64_t close_ok_ns;      /* how long connection.close waits for close-ok; 3 s */
};
void qsi_amqp_limits_default(struct qsi_amqp_limits *limits_out);

/* Shared by all sessions of a server.  Zeroed memory has none; all but limits is touched with
 * atomics only.
 *
 * Bytes of bodies that have not come whole: a session that finds no room waits, except for one,
 * which may go on until it holds body_bytes_max by itself.
 * Memory of transactions that were not committed: a session whose own take more than is left free,
 * and more than 1/1024 of all, has a channel closed (406), which rolls back.  Messages of those
 * that no queue took, until they were sent back: likewise, as all publishers share the room for
 * them. */
struct qsi_amqp_pool {
    uint64_t bytes;
    uint64_t bytes_max;                      /* 0: no limit */
    const struct qsi_amqp_session *favoured; /* may go beyond bytes_max; NULL: none does */
    uint64_t asked_ns;                       /* when a session found no room, at last */
    uint64_t tx_bytes;
    uint64_t tx_bytes_max; /* 0: no limit */
    uint64_t tx_return_bytes;
    uint64_t tx_return_bytes_max; /* 0: no limit */
};

struct qsi_amqp_setup {
    struct qsi_amqp_host host;
    struct qsi_amqp_limits limits;
    struct qsi_amqp_pool *pool; /* outlives the session; NULL: none */
    /* Text of connection.start, NUL-terminated, copied by nobody: they outlive the session. */
    const char *product, *version, *platform, *cluster_name, *copyright, *information;
    const char *mechanisms; /* "PLAIN AMQPLAIN", in order; also what is accepted */
    bool quorum_as_classic; /* declares of quorum queues make durable classic ones */
    /* Changes when what permit said may be no longer so; read with atomics.  NULL: it never does */
    const uint64_t *rights_version;
    void *peer_context; /* the host's own: qsi_amqp_session_peer_context */
};

/* Owns: *session_out, qsi_amqp_session_close. */
qs_status qsi_amqp_session_create(struct qsi_amqp_session **session_out,
                                  const struct qsi_amqp_setup *setup, uint64_t now_ns,
                                  qs_error *error) QS_MUST_CHECK;

/* The socket is gone, or everything was said: closes channels and connection of the engine, and
 * frees.  Blocks as qs_connection_close if qsi_amqp_session_has_connection. */
void qsi_amqp_session_close(struct qsi_amqp_session *session);
bool qsi_amqp_session_has_connection(const struct qsi_amqp_session *session);

/* Of the store that find_store has found, and called by it, in place of the setup's. */
void qsi_amqp_session_set_room(struct qsi_amqp_session *session, struct qsi_amqp_pool *pool,
                               uint64_t body_bytes_max);

void *qsi_amqp_session_peer_context(const struct qsi_amqp_session *session);
/* Who was let in, and where to: as connection.open said.  NUL-terminated. */
const char *qsi_amqp_session_user(const struct qsi_amqp_session *session);
const char *qsi_amqp_session_vhost(const struct qsi_amqp_session *session);

/* ---- turns ---- */

/* What a session needs before it can go on. */
enum qsi_amqp_wants {
    QSI_AMQP_WANTS_INPUT,  /* more bytes, or an event: nothing is left to do */
    QSI_AMQP_WANTS_TURN,   /* nothing: it stopped for the others' sake.  Call run again soon */
    QSI_AMQP_WANTS_WORKER, /* an engine call must wait: run it where waiting is allowed, with
                              may_block, until it wants something else */
    QSI_AMQP_WANTS_ANSWER, /* qsi_amqp_session_answer.  No use in reading */
    QSI_AMQP_WANTS_OUTPUT, /* its output written first.  No use in reading */
    QSI_AMQP_WANTS_END,    /* its output written; then close the socket and the session */
    QSI_AMQP_WANTS_RESET,  /* close the socket at once, without writing (as for lost heartbeats) */
};

struct qsi_amqp_turn {
    uint64_t now_ns;
    bool may_block;
    /* Input after which run answers QSI_AMQP_WANTS_TURN; 0: as much as there is.  A worker that
     * gives 65536 can look at its own clock between turns. */
    size_t bytes_max;
};

/* Takes all of the bytes: parses them where they lie, and keeps a copy of those that it cannot use
 * yet.  After QSI_AMQP_WANTS_WORKER, _ANSWER or _OUTPUT nothing should be fed (it would be kept, up
 * to twice frame_max, and more is refused by ending the session). */
enum qsi_amqp_wants qsi_amqp_session_feed(struct qsi_amqp_session *session,
                                          const struct qsi_amqp_turn *turn, const void *data,
                                          size_t bytes);

/* Goes on: with what it has kept, then with deliveries, confirms, returns and cancels of the
 * channels that rang, the channels in turn, 64 events each, while less than unsent_bytes_max waits
 * to be written.  Call it after rang, answer, written below unsent_bytes_max, and tick. */
enum qsi_amqp_wants qsi_amqp_session_run(struct qsi_amqp_session *session,
                                         const struct qsi_amqp_turn *turn);

/* Should the host read the socket?  Not while it wants something else than input, while its output
 * is full, or while an alarm holds back publishers. */
bool qsi_amqp_session_reads(const struct qsi_amqp_session *session);

/* An event may be there for that channel.  A number that is not open is fine.  Then run it. */
void qsi_amqp_session_rang(struct qsi_amqp_session *session, uint16_t number);

/* The answer to authenticate or permit.  Then run it.  user: who it is, of authenticate; the slice
 * of the question when empty. */
void qsi_amqp_session_answer(struct qsi_amqp_session *session, enum qsi_amqp_verdict verdict,
                             qs_slice user);

/* ---- output ---- */

/* Up to count pieces of what waits to be written, in order; how many.  They stay valid until
 * qsi_amqp_session_written or a call that gives the session a turn. */
int qsi_amqp_session_output(struct qsi_amqp_session *session, struct iovec *pieces_out, int count);
void qsi_amqp_session_written(struct qsi_amqp_session *session, size_t bytes, uint64_t now_ns);
size_t qsi_amqp_session_unsent(const struct qsi_amqp_session *session);
/* Does what was written end with a whole frame?  Then the host may write a heartbeat by itself
 * while another thread has the session's turn. */
bool qsi_amqp_session_between_frames(const struct qsi_amqp_session *session);
extern const uint8_t qsi_amqp_heartbeat_frame[8];

/* ---- time ---- */

/* When qsi_amqp_session_run is to be called at the latest: handshake, heartbeats to send and to
 * miss, silence before a close.  Changes with every call. */
uint64_t qsi_amqp_session_deadline(const struct qsi_amqp_session *session);

/* ---- from the server ---- */

/* Memory or disk is short ("memory", "disk", "low on memory"); NULL: no longer.  A session that has
 * published is told, if its client can be.  It is not read meanwhile, unless it has a transaction
 * open, which only its client can end; and then it publishes nothing outside of open ones. */
void qsi_amqp_session_alarm(struct qsi_amqp_session *session, const char *reason, uint64_t now_ns);

/* connection.close with 320 "CONNECTION_FORCED - <text>"; then run it until it wants its end.  What
 * it has published is made durable and confirmed first, which takes a worker; nothing more is read
 * for that, and nothing delivered.  Before the handshake is over: the end at once. */
void qsi_amqp_session_shut(struct qsi_amqp_session *session, const char *text, uint64_t now_ns);

/* ---- counts ---- */

enum qsi_amqp_end {
    QSI_AMQP_END_NONE,      /* it goes on, or the socket was lost */
    QSI_AMQP_END_CLIENT,    /* connection.close by the client */
    QSI_AMQP_END_SERVER,    /* connection.close by the server; code and text say why */
    QSI_AMQP_END_HEADER,    /* another protocol */
    QSI_AMQP_END_REFUSED,   /* login or tuning refused without a word */
    QSI_AMQP_END_HANDSHAKE, /* not done in time */
    QSI_AMQP_END_HEARTBEAT, /* the client is silent */
    QSI_AMQP_END_MEMORY,    /* no memory to go on with */
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
