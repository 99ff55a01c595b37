/* What a session does as time passes: heartbeats, and ends of states that took too long. */
#include "session_internal.h"

#define SECOND_NS UINT64_C(1000000000)
#define HEARTBEATS_MISSED 3

const uint8_t qsi_amqp_heartbeat_frame[8] = {QSI_AMQP_FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0,
                                             QSI_AMQP_FRAME_END};

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
