/* Inside csrc/amqp: what a session is made of, and what its files call of each other.
 *
 * A frame is handled whole or not at all.  Handling may find that it must wait: for a worker, for
 * an answer of the host, for space.  Then it has changed nothing, and the frame is handled once
 * more from its beginning when the session goes on.  tx.commit alone notes how far it came. */
#ifndef QSI_SESSION_INTERNAL_H
#define QSI_SESSION_INTERNAL_H

#include "amqp_content.h"
#include "amqp_fault.h"
#include "amqp_method.h"
#include "amqp_output.h"
#include "list.h"
#include "map.h"
#include "session.h"

#define QSI_AMQP_FRAME_MIN 4096 /* until it is tuned, and the least that a client may ask for */
#define QSI_AMQP_NAME_BYTES 256

enum qsi_amqp_state {
    QSI_AMQP_HEADER,   /* the protocol header is next */
    QSI_AMQP_STARTING, /* connection.start-ok is next */
    QSI_AMQP_TUNING,   /* connection.tune-ok */
    QSI_AMQP_OPENING,  /* connection.open */
    QSI_AMQP_RUNNING,
    QSI_AMQP_CLOSING, /* connection.close was sent, and close-ok is next */
    QSI_AMQP_SILENT,  /* nothing is read or said until the socket is closed */
    QSI_AMQP_LEAVING, /* close-ok was sent: the client closes the socket */
    QSI_AMQP_ENDED,   /* what is unsent is to be written, and the socket closed */
    QSI_AMQP_BROKEN,  /* the socket is to be closed at once */
};

/* How handling a frame ended. */
enum qsi_amqp_result {
    QSI_AMQP_DONE,
    QSI_AMQP_FAULT,      /* session->fault says what to close, and why */
    QSI_AMQP_MUST_WAIT,  /* a worker is needed */
    QSI_AMQP_MUST_ASK,   /* the host will answer */
    QSI_AMQP_MUST_WRITE, /* output first */
    QSI_AMQP_IS_FULL,    /* the store or the pool has no room: again a little later */
};

/* A capability of the client. */
enum { QSI_AMQP_KNOWS_CANCEL = 1, QSI_AMQP_KNOWS_BLOCKED = 2, QSI_AMQP_KNOWS_REFUSAL = 4 };

struct qsi_amqp_reply_consumer {
    char queue[QSI_AMQP_NAME_BYTES], tag[QSI_AMQP_NAME_BYTES];
};

struct qsi_amqp_channel {
    struct qsi_list in_rung;   /* events may be there for it */
    struct qsi_list in_doomed; /* the engine's channel is to be closed */
    uint16_t number;
    bool is_closing; /* channel.close was sent, and close-ok has not come */
    bool is_watched; /* the host hears of its events */
    bool has_events; /* it wants them */
    bool is_transactional;
    bool is_committed;   /* commit-ok is still to be sent, behind what came back */
    uint8_t queue_bytes; /* of the name of the queue that was declared last */
    char *queue;
    uint32_t returns_due;      /* about so many came back and were not sent, of no transaction */
    uint64_t return_bytes_due; /* of those */
    uint64_t tx_bytes;         /* memory of its open transaction */
    uint64_t tx_return_bytes;  /* of that, or of one whose commit-ok was not sent */
    qs_channel *engine;
    void *watch;
    struct qsi_map consumers; /* their tags */
    struct qsi_amqp_content content;
    struct qsi_amqp_reply_consumer *reply; /* NULL: there is none */
};

/* What the host was asked last. */
struct qsi_amqp_question {
    bool is_open, is_answered;
    enum qsi_amqp_verdict verdict;
    enum qsi_amqp_right right; /* of a login none */
    uint8_t name_bytes;
    char name[QSI_AMQP_NAME_BYTES];
    uint64_t version; /* of the rights when it was asked */
};

#define QSI_AMQP_RIGHTS_KEPT 64

/* Rights that the user was granted on this connection, the last ones that were asked for. */
struct qsi_amqp_rights {
    struct qsi_amqp_granted *granted; /* made when the first is kept */
    uint32_t next, found;             /* where the next one goes, and where the last was found */
    uint32_t to_all;                  /* a bit for each right that was granted to every name */
    uint64_t version;
};

struct qsi_amqp_session {
    struct qsi_amqp_setup setup;
    enum qsi_amqp_state state;
    enum qsi_amqp_result stopped; /* why the next frame was not handled; DONE: it may be */
    bool may_block;               /* of this turn */
    uint64_t now_ns;
    uint64_t last_in_ns, last_out_ns;
    uint64_t until_ns; /* handshake, silence, close-ok: when the state ends by itself */
    uint64_t full_until_ns;
    uint64_t pooled_bytes, pool_taken_ns; /* of all channels, and when the last were taken */
    uint64_t return_bytes_due;            /* of all channels, as the next two */
    uint64_t tx_bytes, tx_return_bytes;
    size_t input_left; /* that this turn may handle */

    uint32_t frame_max;
    uint16_t channel_max;
    uint16_t heartbeat_s;
    uint8_t capabilities;
    uint8_t minor; /* 9, or 8 of a client that speaks 0-8 */
    bool has_published, is_told_blocked, is_full, waits_for_pool;
    char alarm[32];  /* "": none */
    char *shut_text; /* what it closes with when what it published is confirmed; NULL: it goes on */

    struct qsi_buf rest; /* input that was not used yet, from rest_from on */
    size_t rest_from;
    struct qsi_amqp_output output;

    struct qsi_map channels;          /* by number */
    struct qsi_amqp_channel *current; /* that was looked up last */
    struct qsi_list rung, doomed;
    qs_store *store;
    qs_connection *connection;

    struct qsi_amqp_question question;
    struct qsi_amqp_rights rights;
    struct qsi_amqp_fault fault;
    struct qsi_amqp_counts counts;
    struct qsi_buf client_properties; /* until the connection is open */
    char user[QSI_AMQP_NAME_BYTES], vhost[QSI_AMQP_NAME_BYTES];
    char mechanism[32];
};

/* ---- session.c ---- */

/* Has the fault closed the connection; then input is not handled any more, except for close-ok. */
void qsi_amqp_close_connection(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* Nothing more is said, and the socket is closed after a while. */
void qsi_amqp_fall_silent(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* The first reason counts. */
void qsi_amqp_end_as(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* What is due by the session's clock. */
void qsi_amqp_look_at_clock(struct qsi_amqp_session *session);
/* What the engine refused, as a fault; or that the session must wait. */
enum qsi_amqp_result qsi_amqp_engine_fault(struct qsi_amqp_session *session, qs_status status,
                                           const qs_error *error);
/* Are publishers held back, by an alarm or by a full store?  The client is told, if it can be. */
void qsi_amqp_tell_blocked(struct qsi_amqp_session *session);

static inline void qsi_amqp_send(struct qsi_amqp_session *session, uint16_t channel,
                                 enum qsi_amqp_method method,
                                 const struct qsi_amqp_arguments *arguments)
{
    qsi_amqp_put_method(&session->output, channel, method, arguments);
}

static inline void qsi_amqp_send_empty(struct qsi_amqp_session *session, uint16_t channel,
                                       enum qsi_amqp_method method)
{
    static const struct qsi_amqp_arguments none = {0};

    qsi_amqp_put_method(&session->output, channel, method, &none);
}

/* ---- session_turns.c ---- */

/* What was read and not handled: is a frame of it whole? */
bool qsi_amqp_has_frame(const struct qsi_amqp_session *session);

/* ---- session_frames.c ---- */

/* Handles frames as far as it can; returns how many bytes it has used. */
size_t qsi_amqp_handle_input(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes);
/* How many bytes more make the first frame whole, as far as can be told. */
size_t qsi_amqp_frame_lacks(const struct qsi_amqp_session *session, const uint8_t *data,
                            size_t bytes);

/* ---- session_handshake.c ---- */

/* The protocol header: connection.start, or the header that would have been right. */
void qsi_amqp_handle_header(struct qsi_amqp_session *session, const uint8_t data[8]);
/* A method on channel 0. */
enum qsi_amqp_result qsi_amqp_handle_method0(struct qsi_amqp_session *session,
                                             enum qsi_amqp_method method,
                                             const struct qsi_amqp_arguments *arguments);

/* ---- session_channels.c ---- */

struct qsi_amqp_channel *qsi_amqp_find_channel(struct qsi_amqp_session *session, uint16_t number);
enum qsi_amqp_result qsi_amqp_channel_open(struct qsi_amqp_session *session, uint16_t number);
/* channel.close by the client. */
enum qsi_amqp_result qsi_amqp_channel_leave(struct qsi_amqp_session *session,
                                            struct qsi_amqp_channel *channel);
/* The fault closes the channel: the client is told; the engine's is closed when that may block. */
void qsi_amqp_channel_refuse(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* close-ok of the client. */
void qsi_amqp_channel_forget(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* REQUIRES may_block.  Until what the client was answered is durable, and the answers may go out; a
 * store that fails meanwhile tells so to the next call. */
void qsi_amqp_await_answers(struct qsi_amqp_session *session);
/* REQUIRES may_block. */
void qsi_amqp_close_doomed(struct qsi_amqp_session *session);
void qsi_amqp_close_channels(struct qsi_amqp_session *session);
/* Events are wanted of it from now on.  False: session->fault. */
bool qsi_amqp_channel_watch(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* Events may be there: they are looked for at the end of the turn. */
void qsi_amqp_channel_rung(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* A consumer of the channel is there, or was cancelled.  False: no memory. */
bool qsi_amqp_add_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                           struct qsi_slice tag);
void qsi_amqp_remove_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                              struct qsi_slice tag);
/* Its content was published, or is not wanted any more. */
void qsi_amqp_end_content(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);

/* Must what it publishes wait until an alarm is over? */
static inline bool qsi_amqp_is_alarmed(const struct qsi_amqp_session *session)
{
    return session->alarm[0] != '\0' && session->has_published;
}

/* Nothing more is read: it closes when what it has published is confirmed. */
static inline bool qsi_amqp_is_shutting(const struct qsi_amqp_session *session)
{
    return session->shut_text != NULL && session->state == QSI_AMQP_RUNNING;
}

/* So much waits to be written that nothing more is answered, and no delivery taken. */
static inline bool qsi_amqp_output_is_full(const struct qsi_amqp_session *session)
{
    return session->output.unsent >= session->setup.limits.unsent_bytes_max;
}

/* ---- session_events.c ---- */

/* Sends what came for the channels that rang.  MUST_WAIT: a delivery has to be read from a file. */
enum qsi_amqp_result qsi_amqp_take_events(struct qsi_amqp_session *session);
/* Sends what came back of this channel: it goes out before what is said of the commit.
 * MUST_WRITE: the output is full, and more may be left. */
enum qsi_amqp_result qsi_amqp_send_returns(struct qsi_amqp_session *session,
                                           struct qsi_amqp_channel *channel);

/* A message of so many bytes came back, of no transaction. */
void qsi_amqp_note_return(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                          uint64_t bytes);
/* None of the channel's is left. */
void qsi_amqp_forget_returns(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);

/* ---- session_pool.c ---- */

/* Before bytes of a body that is not whole then are kept.  IS_FULL: there is no room yet. */
enum qsi_amqp_result qsi_amqp_pool_take(struct qsi_amqp_session *session,
                                        struct qsi_amqp_content *content, uint32_t bytes);
void qsi_amqp_pool_give_back(struct qsi_amqp_session *session, struct qsi_amqp_content *content);
/* The time for which a session is kept waiting does not count as its own. */
void qsi_amqp_pool_pass_time(struct qsi_amqp_session *session);
/* When qsi_amqp_pool_is_patient is to be asked. */
uint64_t qsi_amqp_pool_deadline(const struct qsi_amqp_session *session);
/* False: others have waited too long for this one.  session->fault says so. */
bool qsi_amqp_pool_is_patient(struct qsi_amqp_session *session);

/* ---- session_transactions.c ---- */

/* After what changes the channel's open transaction, if it has one.  FAULT: it has become too
 * large. */
enum qsi_amqp_result qsi_amqp_note_transaction(struct qsi_amqp_session *session,
                                               struct qsi_amqp_channel *channel);
/* A message of so many bytes comes back when that is committed.  FAULT likewise. */
enum qsi_amqp_result qsi_amqp_note_transaction_return(struct qsi_amqp_session *session,
                                                      struct qsi_amqp_channel *channel,
                                                      uint64_t bytes);
/* The engine's channel is closed, and the transaction with it. */
void qsi_amqp_forget_transaction(struct qsi_amqp_session *session,
                                 struct qsi_amqp_channel *channel);

/* ---- session_rights.c ---- */

/* May the user do that?  DONE: yes; MUST_ASK: not known yet. */
enum qsi_amqp_result qsi_amqp_require(struct qsi_amqp_session *session, enum qsi_amqp_right right,
                                      bool is_exchange, struct qsi_slice name);
/* May the user use the vhost? */
enum qsi_amqp_result qsi_amqp_require_vhost(struct qsi_amqp_session *session);
void qsi_amqp_rights_fini(struct qsi_amqp_rights *rights);

/* ---- verbs.c ---- */

/* A method on a channel that is open. */
enum qsi_amqp_result qsi_amqp_handle_verb(struct qsi_amqp_session *session,
                                          struct qsi_amqp_channel *channel,
                                          enum qsi_amqp_method method,
                                          const struct qsi_amqp_arguments *arguments);
/* The whole content has come. */
enum qsi_amqp_result qsi_amqp_publish(struct qsi_amqp_session *session,
                                      struct qsi_amqp_channel *channel, struct qsi_slice body);

#endif
