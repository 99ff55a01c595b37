/* The other side of a session: a store in memory, the end of a client that takes and gives bytes,
 * and a host that answers at once, or when it is told to. */
#ifndef QS_TEST_PEER_H
#define QS_TEST_PEER_H

#include "qstore/qstore.h"

#include "env_test.h"
#include "qs_test.h"
#include "session_internal.h"

#define SECOND UINT64_C(1000000000)
#define BYTES_MAX (4u << 20)

struct peer {
    qs_env *env;
    qs_store *store;
    qs_options options;
    struct qsi_amqp_setup setup;
    struct qsi_amqp_session *session;
    enum qsi_amqp_wants wants;
    uint64_t now_ns;
    bool must_not_block;  /* WANTS_WORKER is left to the test */
    bool must_not_commit; /* answers that wait for the disk are left to the test */
    enum qsi_amqp_verdict login, right;
    uint8_t *in; /* what the session has put out, from in_from on */
    size_t in_from, in_bytes;
    uint8_t *out; /* what the client is going to send */
    size_t out_bytes;
    uint64_t random;
};

/* ---- the host ---- */

static inline enum qsi_amqp_verdict log_in(void *context, struct qsi_amqp_session *session,
                                           const char *mechanism, qs_slice user, qs_slice password)
{
    struct peer *peer = context;

    (void)session;
    (void)mechanism;
    if (peer->login != QSI_AMQP_GRANTED) {
        return peer->login;
    }
    return user.bytes == 5 && memcmp(user.data, "guest", 5) == 0 && password.bytes == 5 &&
                   memcmp(password.data, "guest", 5) == 0
               ? QSI_AMQP_GRANTED
               : QSI_AMQP_REFUSED;
}

static inline qs_store *find_store(void *context, struct qsi_amqp_session *session, qs_slice vhost,
                                   bool *refused_out)
{
    struct peer *peer = context;

    (void)session;
    *refused_out = vhost.bytes == 6 && memcmp(vhost.data, "secret", 6) == 0;
    return vhost.bytes == 1 && memcmp(vhost.data, "/", 1) == 0 ? peer->store : NULL;
}

static inline void fill_random(void *context, void *bytes_out, size_t bytes)
{
    struct peer *peer = context;
    uint8_t *out = bytes_out;

    for (size_t i = 0; i < bytes; i++) {
        peer->random = peer->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
        out[i] = (uint8_t)(peer->random >> 56);
    }
}

/* ---- the store and the connection ---- */

static inline void open_store(struct peer *peer)
{
    QS_CHECK_OK(qs_store_open(&peer->store, "store", &peer->options, peer->env, QS_ERROR));
    QS_CHECK_OK(qs_store_set_place(peer->store, " in vhost '/'", QS_ERROR));
}

/* The environment stays the caller's. */
static inline void peer_init_in(struct peer *peer, qs_env *env)
{
    *peer = (struct peer){.env = env, .login = QSI_AMQP_GRANTED, .right = QSI_AMQP_GRANTED};
    qs_options_default(&peer->options);
    peer->options.journal_file_bytes = 1u << 20;
    peer->options.message_file_bytes = 1u << 20;
    peer->options.background = false;
    qsi_amqp_limits_default(&peer->setup.limits);
    peer->setup.host = (struct qsi_amqp_host){.context = peer,
                                              .authenticate = log_in,
                                              .find_store = find_store,
                                              .fill_random = fill_random};
    peer->setup.product = "test";
    peer->setup.version = "1.0.0";
    peer->setup.mechanisms = "PLAIN AMQPLAIN EXTERNAL";
    peer->now_ns = SECOND;
    peer->in = malloc(BYTES_MAX);
    peer->out = malloc(BYTES_MAX);
    QS_CHECK(peer->in != NULL && peer->out != NULL);
    open_store(peer);
}

static inline void peer_init(struct peer *peer)
{
    peer_init_in(peer, qsi_env_mem_create(1));
}

static inline void connect_peer(struct peer *peer)
{
    peer->in_from = peer->in_bytes = peer->out_bytes = 0;
    QS_CHECK_OK(qsi_amqp_session_create(&peer->session, &peer->setup, peer->now_ns, QS_ERROR));
}

static inline void disconnect_peer(struct peer *peer)
{
    qsi_amqp_session_close(peer->session);
    peer->session = NULL;
}

/* But for the environment. */
static inline void peer_fini_in(struct peer *peer)
{
    disconnect_peer(peer);
    QS_CHECK_OK(qs_store_close(peer->store, QS_ERROR));
    free(peer->in);
    free(peer->out);
}

static inline void peer_fini(struct peer *peer)
{
    peer_fini_in(peer);
    qsi_env_mem_destroy(peer->env);
}

/* ---- turns ---- */

/* Writes all that there is; how much that was. */
static inline size_t drain(struct peer *peer)
{
    struct iovec pieces[7]; /* few: so that what is left is asked for again */
    size_t drained = 0;
    int count;

    while ((count = qsi_amqp_session_output(peer->session, pieces, 7)) > 0) {
        for (int i = 0; i < count; i++) {
            size_t first = pieces[i].iov_len > 3 ? pieces[i].iov_len / 2 : pieces[i].iov_len;

            if (peer->in_bytes + pieces[i].iov_len > BYTES_MAX) {
                memmove(peer->in, peer->in + peer->in_from, peer->in_bytes - peer->in_from);
                peer->in_bytes -= peer->in_from;
                peer->in_from = 0;
            }
            QS_CHECK(peer->in_bytes + pieces[i].iov_len <= BYTES_MAX);
            memcpy(peer->in + peer->in_bytes, pieces[i].iov_base, pieces[i].iov_len);
            peer->in_bytes += pieces[i].iov_len;
            /* In two parts, as a socket would that has no room. */
            qsi_amqp_session_written(peer->session, first, peer->now_ns);
            qsi_amqp_session_written(peer->session, pieces[i].iov_len - first, peer->now_ns);
            drained += pieces[i].iov_len;
        }
    }
    QS_CHECK(qsi_amqp_session_unsent(peer->session) == 0);
    return drained;
}

/* As the loop and its workers do, until the session wants something from outside. */
static inline void go_on(struct peer *peer)
{
    for (int rounds = 0; rounds < 100000; rounds++) {
        struct qsi_amqp_turn turn = {.now_ns = peer->now_ns};
        bool has_room = drain(peer) >= peer->setup.limits.unsent_bytes_max;

        if (peer->wants == QSI_AMQP_WANTS_WORKER && !peer->must_not_block) {
            turn.may_block = true;
        } else if (peer->session->output.barrier_count > 0 && !peer->must_not_commit) {
            QS_CHECK_OK(qs_store_sync(peer->store, QS_ERROR));
        } else if (peer->wants != QSI_AMQP_WANTS_TURN && peer->wants != QSI_AMQP_WANTS_OUTPUT &&
                   !has_room) {
            return;
        }
        peer->wants = qsi_amqp_session_run(peer->session, &turn);
    }
    QS_CHECK(!"the session does not come to rest");
}

static inline void run(struct peer *peer)
{
    struct qsi_amqp_turn turn = {.now_ns = peer->now_ns};

    peer->wants = qsi_amqp_session_run(peer->session, &turn);
    go_on(peer);
}

static inline void feed(struct peer *peer, const void *data, size_t bytes)
{
    struct qsi_amqp_turn turn = {.now_ns = peer->now_ns};
    /* A copy of its own size: reading past its end is seen. */
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);

    QS_CHECK(copy != NULL);
    memcpy(copy, data, bytes);
    peer->wants = qsi_amqp_session_feed(peer->session, &turn, copy, bytes);
    memset(copy, 0xaa, bytes);
    free(copy);
    go_on(peer);
}

static inline void flush(struct peer *peer)
{
    size_t bytes = peer->out_bytes;

    peer->out_bytes = 0;
    feed(peer, peer->out, bytes);
}

/* What is published becomes durable, and is confirmed. */
static inline void commit(struct peer *peer)
{
    QS_CHECK_OK(qs_store_sync(peer->store, QS_ERROR));
    run(peer);
}

#endif
