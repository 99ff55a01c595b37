/* The life of a session: creation, alarms, deadlines, ends. */
#include "alloc.h"
#include "check.h"
#include "error.h"
#include "session_internal.h"

#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define HEARTBEATS_MISSED 3
#define SETUP_TEXT_BYTES_MAX 512 /* of all texts of connection.start together */

const uint8_t qsi_amqp_heartbeat_frame[8] = {QSI_AMQP_FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0,
                                             QSI_AMQP_FRAME_END};

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

/* ---- ends ---- */

void qsi_amqp_end_as(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    if (session->counts.end == QSI_AMQP_END_NONE) {
        session->counts.end = end;
    }
}

void qsi_amqp_fall_silent(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    qsi_amqp_end_as(session, end);
    session->state = QSI_AMQP_SILENT;
    session->until_ns = session->now_ns + session->setup.limits.silent_close_ns;
}

void qsi_amqp_close_connection(struct qsi_amqp_session *session, enum qsi_amqp_end end)
{
    const struct qsi_amqp_fault *fault = &session->fault;
    struct qsi_amqp_arguments arguments = {0};

    qsi_amqp_end_as(session, end);
    session->counts.close_code = fault->code;
    memcpy(session->counts.close_text, fault->text, sizeof session->counts.close_text);
    arguments.number[0] = fault->code;
    arguments.number[1] = fault->class_id;
    arguments.number[2] = fault->method_id;
    arguments.text[0] = qsi_slice_make(fault->text, (uint32_t)strlen(fault->text));
    qsi_amqp_send(session, 0, QSI_AMQP_CONNECTION_CLOSE, &arguments);
    session->state = QSI_AMQP_CLOSING;
    session->until_ns = session->now_ns + session->setup.limits.close_ok_ns;
    if (fault->is_fatal) {
        qsi_amqp_fall_silent(session, end);
    }
}

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

/* ---- errors of the engine ---- */

static uint16_t code_of(qs_status status)
{
    switch (status) {
    case QS_ACCESS_REFUSED:
    case QS_NOT_FOUND:
    case QS_RESOURCE_LOCKED:
    case QS_PRECONDITION_FAILED:
    case QS_CONTENT_TOO_LARGE:
    case QS_COMMAND_INVALID:
    case QS_NOT_ALLOWED:
    case QS_NOT_IMPLEMENTED:
        return (uint16_t)status;
    case QS_EINVAL:
        return QS_PRECONDITION_FAILED;
    case QS_ENOMEM:
    case QS_EMFILE:
        return QSI_AMQP_RESOURCE_ERROR;
    case QS_ESTORE_CLOSED:
        return QSI_AMQP_CONNECTION_FORCED;
    default:
        return QSI_AMQP_INTERNAL_ERROR;
    }
}

enum qsi_amqp_result qsi_amqp_engine_fault(struct qsi_amqp_session *session, qs_status status,
                                           const qs_error *error)
{
    if (status == QS_EWOULDBLOCK) {
        return QSI_AMQP_MUST_WAIT;
    }
    if (qsi_is_full(status)) {
        return QSI_AMQP_IS_FULL;
    }
    qsi_amqp_fault_set(&session->fault, code_of(status), "%s", error->text);
    return QSI_AMQP_FAULT;
}

/* ---- alarms ---- */

static const char *block_reason(const struct qsi_amqp_session *session)
{
    if (qsi_amqp_is_alarmed(session)) {
        return session->alarm;
    }
    if (session->is_full) {
        return session->waits_for_pool ? "low on memory" : "low on disk";
    }
    return NULL;
}

void qsi_amqp_send_blocked(struct qsi_amqp_session *session)
{
    const char *reason = block_reason(session);
    struct qsi_amqp_arguments arguments = {0};

    if ((session->capabilities & QSI_AMQP_KNOWS_BLOCKED) == 0 ||
        session->state != QSI_AMQP_RUNNING || (reason != NULL) == session->is_told_blocked) {
        return;
    }
    session->is_told_blocked = reason != NULL;
    if (reason != NULL) {
        arguments.text[0] = qsi_slice_make(reason, (uint32_t)strlen(reason));
    }
    qsi_amqp_send(session, 0,
                  reason != NULL ? QSI_AMQP_CONNECTION_BLOCKED : QSI_AMQP_CONNECTION_UNBLOCKED,
                  &arguments);
}

void qsi_amqp_session_alarm(struct qsi_amqp_session *session, const char *reason, uint64_t now_ns)
{
    session->now_ns = now_ns;
    qsi_amqp_pool_pass_time(session);
    snprintf(session->alarm, sizeof session->alarm, "%s", reason != NULL ? reason : "");
    qsi_amqp_send_blocked(session);
}

/* ---- time ---- */

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static bool has_heartbeats(const struct qsi_amqp_session *session)
{
    return session->heartbeat_s > 0 && session->state >= QSI_AMQP_OPENING &&
           session->state <= QSI_AMQP_CLOSING;
}

static uint64_t heartbeat_due_ns(const struct qsi_amqp_session *session)
{
    return session->last_out_ns + session->heartbeat_s * SECOND_NS / 2;
}

static uint64_t silence_ends_ns(const struct qsi_amqp_session *session)
{
    return session->last_in_ns + HEARTBEATS_MISSED * session->heartbeat_s * SECOND_NS;
}

uint64_t qsi_amqp_session_deadline(const struct qsi_amqp_session *session)
{
    uint64_t deadline = earlier(session->until_ns, qsi_amqp_pool_deadline(session));

    if (session->stopped == QSI_AMQP_IS_FULL) {
        deadline = earlier(deadline, session->full_until_ns);
    }
    if (has_heartbeats(session)) {
        deadline = earlier(deadline, heartbeat_due_ns(session));
        deadline = earlier(deadline, silence_ends_ns(session));
    }
    return deadline;
}

/* Ends a state whose time is over: disconnects refused clients, and those that take too long. */
static void end_state(struct qsi_amqp_session *session)
{
    session->until_ns = QSI_AMQP_NEVER;
    if (session->state < QSI_AMQP_RUNNING) {
        qsi_amqp_end_as(session, QSI_AMQP_END_HANDSHAKE);
        session->state = QSI_AMQP_BROKEN;
    } else {
        session->state = QSI_AMQP_ENDED;
    }
}

/* While the socket is not read, heartbeats of the client cannot arrive: its silence counts from the
 * next read.  No heartbeat is added while unwritten output waits. */
static void keep_heartbeats(struct qsi_amqp_session *session)
{
    if (!qsi_amqp_session_reads(session)) {
        session->last_in_ns = session->now_ns;
    }
    if (session->now_ns >= silence_ends_ns(session)) {
        qsi_amqp_end_as(session, QSI_AMQP_END_HEARTBEAT);
        session->state = QSI_AMQP_BROKEN;
    } else if (session->now_ns >= heartbeat_due_ns(session)) {
        session->last_out_ns = session->now_ns;
        if (session->output.unsent == 0) {
            qsi_amqp_output_trim(&session->output);
            qsi_amqp_put_bytes(&session->output, qsi_amqp_heartbeat_frame,
                               sizeof qsi_amqp_heartbeat_frame);
        }
    }
}

void qsi_amqp_look_at_clock(struct qsi_amqp_session *session)
{
    if (session->now_ns >= session->until_ns) {
        end_state(session);
    }
    if (has_heartbeats(session)) {
        keep_heartbeats(session);
    }
    if (!qsi_amqp_pool_is_patient(session)) {
        qsi_amqp_close_connection(session, QSI_AMQP_END_SERVER);
    }
    if (session->stopped == QSI_AMQP_IS_FULL && session->now_ns >= session->full_until_ns) {
        session->stopped = QSI_AMQP_DONE;
    }
}

bool qsi_amqp_session_reads(const struct qsi_amqp_session *session)
{
    bool is_held = qsi_amqp_is_alarmed(session) && session->state == QSI_AMQP_RUNNING &&
                   session->tx_bytes == 0;

    return session->state != QSI_AMQP_SILENT && session->state < QSI_AMQP_ENDED && !is_held &&
           !qsi_amqp_is_shutting(session) && session->stopped == QSI_AMQP_DONE &&
           qsi_list_is_empty(&session->doomed) && !qsi_amqp_has_frame(session);
}

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
