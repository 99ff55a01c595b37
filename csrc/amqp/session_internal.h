/* Inside csrc/amqp: the parts of a session, and the functions that its files share.
 *
 * A frame is handled whole or not at all.  If handling must wait for a worker, an answer of the
 * host, or space, it has changed nothing, and the frame is handled again from its beginning when
 * the session continues.  Only tx.commit records its progress. */
#ifndef QSI_SESSION_INTERNAL_H
#define QSI_SESSION_INTERNAL_H

#include "amqp_content.h"
#include "amqp_fault.h"
#include "amqp_method.h"
#include "amqp_output.h"
#include "list.h"
#include "map.h"
#include "session.h"

#define QSI_AMQP_FRAME_MIN 4096 /* before tune-ok, and the least that a client may choose */
#define QSI_AMQP_NAME_BYTES 256

enum qsi_amqp_state {
    QSI_AMQP_HEADER,   /* the protocol header is next */
    QSI_AMQP_STARTING, /* connection.start-ok is next */
    QSI_AMQP_TUNING,   /* connection.tune-ok */
    QSI_AMQP_OPENING,  /* connection.open */
    QSI_AMQP_RUNNING,
    QSI_AMQP_CLOSING, /* connection.close was sent, and close-ok is next */
    QSI_AMQP_SILENT,  /* nothing is read or written until the socket is closed */
    QSI_AMQP_LEAVING, /* close-ok was sent: the client closes the socket */
    QSI_AMQP_ENDED,   /* the output is to be written, and the socket closed */
    QSI_AMQP_BROKEN,  /* the socket is to be closed at once */
};

/* How handling a frame ended. */
enum qsi_amqp_result {
    QSI_AMQP_DONE,
    QSI_AMQP_FAULT,      /* session->fault says what to close, and why */
    QSI_AMQP_MUST_WAIT,  /* a worker is needed */
    QSI_AMQP_MUST_ASK,   /* the host will answer */
    QSI_AMQP_MUST_WRITE, /* the output must be written first */
    QSI_AMQP_IS_FULL,    /* the store or the pool has no room: try again a little later */
};

/* A capability of the client. */
enum { QSI_AMQP_KNOWS_CANCEL = 1, QSI_AMQP_KNOWS_BLOCKED = 2, QSI_AMQP_KNOWS_REFUSAL = 4 };

struct qsi_amqp_reply_consumer {
    char queue[QSI_AMQP_NAME_BYTES], tag[QSI_AMQP_NAME_BYTES];
};

struct qsi_amqp_channel {
    struct qsi_list in_rung;   /* it may have events */
    struct qsi_list in_doomed; /* the engine's channel is to be closed */
    uint16_t number;
    bool is_closing; /* channel.close was sent, and close-ok has not arrived */
    bool is_watched; /* the host watches it for events */
    bool has_events; /* the client wants its events */
    bool is_transactional;
    bool is_committed;   /* commit-ok is still to be sent, after the returned messages */
    uint8_t queue_bytes; /* length of queue */
    char *queue;         /* name of the queue that was declared last */
    /* Returned messages not yet sent, about; without those of transactions. */
    uint32_t returns_due;
    uint64_t return_bytes_due; /* their bytes */
    uint64_t tx_bytes;         /* memory of its open transaction */
    /* Returned bytes of its open transaction, or of one whose commit-ok was not sent. */
    uint64_t tx_return_bytes;
    qs_channel *engine;
    void *watch;
    struct qsi_map consumers; /* their tags */
    struct qsi_amqp_content content;
    struct qsi_amqp_reply_consumer *reply; /* NULL: there is none */
};

/* The last question to the host. */
struct qsi_amqp_question {
    bool is_open, is_answered;
    enum qsi_amqp_verdict verdict;
    enum qsi_amqp_right right; /* not set for a login */
    uint8_t name_bytes;
    char name[QSI_AMQP_NAME_BYTES];
    uint64_t version; /* of the rights when the question was asked */
};

#define QSI_AMQP_RIGHTS_KEPT 64

/* The latest rights that the user was granted on this connection. */
struct qsi_amqp_rights {
    struct qsi_amqp_granted *granted; /* allocated with the first one */
    uint32_t next, found;             /* the next one to replace, and the one found last */
    uint32_t to_all;                  /* a bit for each right that was granted for every name */
    uint64_t version;
};

struct qsi_amqp_session {
    struct qsi_amqp_setup setup;
    enum qsi_amqp_state state;
    enum qsi_amqp_result stopped; /* why the next frame was not handled; DONE: it may be */
    bool may_block;               /* of this turn */
    uint64_t now_ns;
    uint64_t last_in_ns, last_out_ns;
    uint64_t until_ns; /* when the state ends by itself: handshake, silence, close-ok */
    uint64_t full_until_ns;
    uint64_t pooled_bytes, pool_taken_ns; /* of all channels; when the last bytes were taken */
    uint64_t return_bytes_due;            /* of all channels, as the next two */
    uint64_t tx_bytes, tx_return_bytes;
    size_t input_left; /* input bytes that this turn may still handle */

    uint32_t frame_max;
    uint16_t channel_max;
    uint16_t heartbeat_s;
    uint8_t capabilities;
    uint8_t minor; /* 9; 8 for a client that speaks 0-8 */
    bool has_published, has_sent_blocked, is_full, waits_for_pool;
    char alarm[32];  /* "": none */
    char *shut_text; /* text of the close after its publishes are confirmed; NULL: it stays open */

    struct qsi_buf rest; /* unused input, from rest_from on */
    size_t rest_from;
    struct qsi_amqp_output output;

    struct qsi_map channels;          /* by number */
    struct qsi_amqp_channel *current; /* the channel that was looked up last */
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

/* Whether its publishes must wait until an alarm is over. */
static inline bool qsi_amqp_is_alarmed(const struct qsi_amqp_session *session)
{
    return session->alarm[0] != '\0' && session->has_published;
}

/* Whether the session reads nothing more, and closes when its publishes are confirmed. */
static inline bool qsi_amqp_is_shutting(const struct qsi_amqp_session *session)
{
    return session->shut_text != NULL && session->state == QSI_AMQP_RUNNING;
}

/* Whether so much output is unwritten that no method is answered and no delivery taken. */
static inline bool qsi_amqp_output_is_full(const struct qsi_amqp_session *session)
{
    return session->output.unsent >= session->setup.limits.unsent_bytes_max;
}

/* ---- session_end.c ---- */

/* Closes the connection for session->fault; after that only close-ok is handled. */
void qsi_amqp_close_connection(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* Sends nothing more; the socket is closed after a delay. */
void qsi_amqp_fall_silent(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* Sets the reason for the end, unless it has one already. */
void qsi_amqp_end_as(struct qsi_amqp_session *session, enum qsi_amqp_end end);
/* Sets session->fault for an error of the engine, or returns that the session must wait. */
enum qsi_amqp_result qsi_amqp_engine_fault(struct qsi_amqp_session *session, qs_status status,
                                           const qs_error *error);

/* ---- session_alarm.c ---- */

/* Tells the client, if it knows connection.blocked, when an alarm or a full store begins or ceases
 * to hold back its publishes. */
void qsi_amqp_send_blocked(struct qsi_amqp_session *session);

/* ---- session_clock.c ---- */

/* Does everything that is due by now_ns. */
void qsi_amqp_look_at_clock(struct qsi_amqp_session *session);

/* ---- session_frames.c ---- */

/* Handles frames as far as possible; returns the number of bytes used. */
size_t qsi_amqp_handle_input(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes);
/* The number of bytes missing from the first frame, as far as known. */
size_t qsi_amqp_frame_lacks(const struct qsi_amqp_session *session, const uint8_t *data,
                            size_t bytes);
/* Whether the unhandled input has a whole frame. */
bool qsi_amqp_has_frame(const struct qsi_amqp_session *session);

/* ---- session_handshake.c ---- */

/* Handles the protocol header: answers with connection.start, or with the supported header. */
void qsi_amqp_handle_header(struct qsi_amqp_session *session, const uint8_t data[8]);
/* Handles a method on channel 0. */
enum qsi_amqp_result qsi_amqp_handle_method0(struct qsi_amqp_session *session,
                                             enum qsi_amqp_method method,
                                             const struct qsi_amqp_arguments *arguments);

/* ---- session_channels.c ---- */

struct qsi_amqp_channel *qsi_amqp_find_channel(struct qsi_amqp_session *session, uint16_t number);
enum qsi_amqp_result qsi_amqp_channel_open(struct qsi_amqp_session *session, uint16_t number);
/* Handles channel.close of the client. */
enum qsi_amqp_result qsi_amqp_channel_leave(struct qsi_amqp_session *session,
                                            struct qsi_amqp_channel *channel);
/* Closes the channel for session->fault: sends channel.close; the engine's channel is closed in a
 * turn that may block. */
void qsi_amqp_channel_refuse(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* Handles close-ok of the client. */
void qsi_amqp_channel_forget(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* Waits until the effects of the held answers are durable, and releases the answers.  If the store
 * fails meanwhile, the next call reports it.  REQUIRES may_block. */
void qsi_amqp_await_answers(struct qsi_amqp_session *session);
/* REQUIRES may_block. */
void qsi_amqp_close_doomed(struct qsi_amqp_session *session);
void qsi_amqp_close_channels(struct qsi_amqp_session *session);
/* Asks the host to watch the channel for events.  False: session->fault. */
bool qsi_amqp_channel_watch(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* Marks a channel that may have events: they are looked for at the end of the turn. */
void qsi_amqp_channel_rung(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);
/* Adds a consumer's tag to the channel.  False: no memory. */
bool qsi_amqp_add_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                           struct qsi_slice tag);
void qsi_amqp_remove_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                              struct qsi_slice tag);
/* Ends the content after its publish, or because it is no longer wanted. */
void qsi_amqp_end_content(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);

/* ---- session_events.c ---- */

/* Sends the events of the channels that may have some.  MUST_WAIT: a delivery has to be read from a
 * file. */
enum qsi_amqp_result qsi_amqp_take_events(struct qsi_amqp_session *session);
/* Sends the returned messages of this channel, which go out before the answer to the commit.
 * MUST_WRITE: the output is full, and more may be left. */
enum qsi_amqp_result qsi_amqp_send_returns(struct qsi_amqp_session *session,
                                           struct qsi_amqp_channel *channel);

/* ---- session_returns.c ---- */

/* Counts a returned message of that many bytes, which belongs to no transaction. */
void qsi_amqp_count_return(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                           uint64_t bytes);
/* Counts a returned message as sent.  Returns of a transaction were never counted as due, so the
 * counts stay at 0. */
void qsi_amqp_count_return_sent(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                                const qs_message *message);
/* Resets the channel's counts: it has no returned messages any more. */
void qsi_amqp_forget_returns(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel);

/* ---- session_pool.c ---- */

/* Takes room before bytes of an incomplete body are kept.  IS_FULL: there is no room yet. */
enum qsi_amqp_result qsi_amqp_pool_take(struct qsi_amqp_session *session,
                                        struct qsi_amqp_content *content, uint32_t bytes);
void qsi_amqp_pool_give_back(struct qsi_amqp_session *session, struct qsi_amqp_content *content);
/* Does not count the time for which the server keeps a session waiting. */
void qsi_amqp_pool_pass_time(struct qsi_amqp_session *session);
/* The time of the next qsi_amqp_pool_is_patient. */
uint64_t qsi_amqp_pool_deadline(const struct qsi_amqp_session *session);
/* False: other sessions have waited too long for this one.  session->fault says so. */
bool qsi_amqp_pool_is_patient(struct qsi_amqp_session *session);

/* ---- session_transactions.c ---- */

/* Counts the channel's open transaction, if it has one, after a change of it.  FAULT: it is too
 * large. */
enum qsi_amqp_result qsi_amqp_count_transaction(struct qsi_amqp_session *session,
                                                struct qsi_amqp_channel *channel);
/* Counts a message of that many bytes, which is returned after the commit.  FAULT likewise. */
enum qsi_amqp_result qsi_amqp_count_transaction_return(struct qsi_amqp_session *session,
                                                       struct qsi_amqp_channel *channel,
                                                       uint64_t bytes);
/* Resets the counts of the transaction: the engine's channel is closed. */
void qsi_amqp_forget_transaction(struct qsi_amqp_session *session,
                                 struct qsi_amqp_channel *channel);

/* ---- session_rights.c ---- */

/* Whether the user has the right.  DONE: yes; MUST_ASK: not known yet. */
enum qsi_amqp_result qsi_amqp_require(struct qsi_amqp_session *session, enum qsi_amqp_right right,
                                      bool is_exchange, struct qsi_slice name);
/* Whether the user may use the vhost. */
enum qsi_amqp_result qsi_amqp_require_vhost(struct qsi_amqp_session *session);
void qsi_amqp_rights_fini(struct qsi_amqp_rights *rights);

/* ---- verbs.c ---- */

/* Handles a method on an open channel. */
enum qsi_amqp_result qsi_amqp_handle_verb(struct qsi_amqp_session *session,
                                          struct qsi_amqp_channel *channel,
                                          enum qsi_amqp_method method,
                                          const struct qsi_amqp_arguments *arguments);

#endif
