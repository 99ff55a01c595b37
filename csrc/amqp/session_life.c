/* The life of a session: creation, what its host tells it, and its end. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "session_internal.h"

#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define SETUP_TEXT_BYTES_MAX 512 /* of all texts of connection.start together */

void qsi_amqp_limits_default(struct qsi_amqp_limits *limits_out)
{
    *limits_out = (struct qsi_amqp_limits){
        .frame_max = 131072,
        .channel_max = 2047,
        .heartbeat_s = 60,
        .consumers_max = 65535,
        .body_bytes_max = UINT64_C(128) << 20,
        .unsent_bytes_max = 256u << 10,
        .handshake_ns = 10 * SECOND_NS,
        .silent_close_ns = 3 * SECOND_NS,
        .close_ok_ns = 3 * SECOND_NS,
    };
}

/* ---- creating and freeing ---- */

static qs_status check_setup(const struct qsi_amqp_setup *setup, qs_error *error)
{
    const char *const texts[] = {setup->product,      setup->version,   setup->platform,
                                 setup->cluster_name, setup->copyright, setup->information};
    size_t bytes = 0;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        bytes += texts[i] != NULL ? strlen(texts[i]) : 0;
    }
    if (bytes > SETUP_TEXT_BYTES_MAX) {
        return qsi_fail(error, QS_EINVAL, "%zu bytes of texts about the server: %u at most", bytes,
                        SETUP_TEXT_BYTES_MAX);
    }
    if (setup->limits.frame_max < QSI_AMQP_FRAME_MIN || setup->limits.channel_max == 0) {
        return qsi_fail(error, QS_EINVAL, "frame_max is %u and channel_max %u: %u and 1 at least",
                        setup->limits.frame_max, setup->limits.channel_max, QSI_AMQP_FRAME_MIN);
    }
    if (setup->limits.body_bytes_max > UINT32_MAX) {
        return qsi_fail(error, QS_EINVAL, "body_bytes_max is %llu: %u at most",
                        (unsigned long long)setup->limits.body_bytes_max, UINT32_MAX);
    }
    return QS_OK;
}

qs_status qsi_amqp_session_create(struct qsi_amqp_session **session_out,
                                  const struct qsi_amqp_setup *setup, uint64_t now_ns,
                                  qs_error *error)
{
    struct qsi_amqp_session *session;

    *session_out = NULL;
    QS_TRY(check_setup(setup, error));
    session = qsi_zalloc(sizeof *session);
    if (session == NULL) {
        return qsi_fail(error, QS_ENOMEM, "session");
    }
    session->setup = *setup;
    session->now_ns = session->last_in_ns = session->last_out_ns = now_ns;
    session->until_ns = now_ns + setup->limits.handshake_ns;
    session->frame_max = QSI_AMQP_FRAME_MIN;
    qsi_list_init(&session->rung);
    qsi_list_init(&session->doomed);
    *session_out = session;
    return QS_OK;
}

void qsi_amqp_session_close(struct qsi_amqp_session *session)
{
    if (session == NULL) {
        return;
    }
    if (session->connection != NULL) {
        qsi_amqp_close_channels(session);
    }
    qsi_map_fini(&session->channels);
    qsi_amqp_rights_fini(&session->rights);
    qsi_amqp_output_fini(&session->output);
    qsi_buf_fini(&session->rest);
    qsi_buf_fini(&session->client_properties);
    qsi_free(session->shut_text);
    qsi_free(session);
}

bool qsi_amqp_session_has_connection(const struct qsi_amqp_session *session)
{
    return session->connection != NULL;
}

void qsi_amqp_session_set_room(struct qsi_amqp_session *session, struct qsi_amqp_pool *pool,
                               uint64_t body_bytes_max)
{
    session->setup.pool = pool;
    session->setup.limits.body_bytes_max = body_bytes_max;
}

void *qsi_amqp_session_peer_context(const struct qsi_amqp_session *session)
{
    return session->setup.peer_context;
}

const char *qsi_amqp_session_user(const struct qsi_amqp_session *session)
{
    return session->user;
}

const char *qsi_amqp_session_vhost(const struct qsi_amqp_session *session)
{
    return session->vhost;
}

/* ---- shutting ---- */

/* False: no memory. */
static bool keep_shut_text(struct qsi_amqp_session *session, const char *text)
{
    size_t bytes = strlen(text) + 1;

    session->shut_text = qsi_alloc(bytes);
    if (session->shut_text != NULL) {
        memcpy(session->shut_text, text, bytes);
    }
    return session->shut_text != NULL;
}

/* Whether the client may not have heard of everything that was done for it. */
static bool may_owe_answers(const struct qsi_amqp_session *session)
{
    return session->state == QSI_AMQP_RUNNING &&
           (session->has_published || session->output.barrier_count > 0);
}

void qsi_amqp_session_shut(struct qsi_amqp_session *session, const char *text, uint64_t now_ns)
{
    session->now_ns = now_ns;
    if (session->state < QSI_AMQP_OPENING) {
        qsi_amqp_end_as(session, QSI_AMQP_END_SERVER);
        session->state = QSI_AMQP_ENDED;
    } else if (session->state < QSI_AMQP_CLOSING && session->shut_text == NULL &&
               !(may_owe_answers(session) && keep_shut_text(session, text))) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_CONNECTION_FORCED, "%s", text);
        qsi_amqp_close_connection(session, QSI_AMQP_END_SERVER);
    }
}

/* ---- from the host ---- */

void qsi_amqp_session_rang(struct qsi_amqp_session *session, uint16_t number)
{
    struct qsi_amqp_channel *channel = qsi_amqp_find_channel(session, number);

    if (channel != NULL && !channel->is_closing) {
        qsi_amqp_channel_rung(session, channel);
    }
}

void qsi_amqp_session_answer(struct qsi_amqp_session *session, enum qsi_amqp_verdict verdict,
                             qs_slice user)
{
    if (!session->question.is_open || session->question.is_answered) {
        return;
    }
    session->question.verdict = verdict;
    session->question.is_answered = true;
    if (user.bytes > 0 && user.bytes < sizeof session->user) {
        memcpy(session->user, user.data, user.bytes);
        session->user[user.bytes] = '\0';
    }
}

/* ---- output ---- */

int qsi_amqp_session_output(struct qsi_amqp_session *session, struct iovec *pieces_out, int count)
{
    return qsi_amqp_output_pieces(&session->output, pieces_out, count);
}

void qsi_amqp_session_written(struct qsi_amqp_session *session, size_t bytes, uint64_t now_ns)
{
    session->last_out_ns = now_ns;
    session->counts.bytes_out += bytes;
    qsi_amqp_output_written(&session->output, bytes);
}

size_t qsi_amqp_session_unsent(const struct qsi_amqp_session *session)
{
    return qsi_amqp_output_writable(&session->output);
}

bool qsi_amqp_session_between_frames(const struct qsi_amqp_session *session)
{
    return session->output.unsent == 0;
}

void qsi_amqp_session_counts(const struct qsi_amqp_session *session,
                             struct qsi_amqp_counts *counts_out)
{
    *counts_out = session->counts;
}
