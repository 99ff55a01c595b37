/* The turns of a session: handles input as far as possible, then sends the events of the channels.
 *
 * `stopped` says why the next frame was not handled: all later frames wait, so that a client's
 * requests on one connection take effect in their order. */
#include "session_internal.h"

#include <string.h>

#define FULL_RETRY_NS UINT64_C(100000000)

/* ---- input ---- */

static void keep_rest(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes)
{
    struct qsi_buf *rest = &session->rest;

    if (session->rest_from > 0) {
        memmove(rest->data, rest->data + session->rest_from, rest->bytes - session->rest_from);
        rest->bytes -= session->rest_from;
        session->rest_from = 0;
    }
    if (qsi_buf_append(rest, data, bytes) != QS_OK) {
        qsi_amqp_end_as(session, QSI_AMQP_END_MEMORY);
        session->state = QSI_AMQP_BROKEN;
    }
}

static void handle_rest(struct qsi_amqp_session *session)
{
    struct qsi_buf *rest = &session->rest;

    session->rest_from += qsi_amqp_handle_input(session, rest->data + session->rest_from,
                                                rest->bytes - session->rest_from);
    if (session->rest_from == rest->bytes) {
        qsi_buf_fini(rest);
        session->rest_from = 0;
    }
}

/* Completes the first frame of the rest with new input; returns the number of bytes taken. */
static size_t complete_rest(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes)
{
    size_t lacks = qsi_amqp_frame_lacks(session, session->rest.data + session->rest_from,
                                        session->rest.bytes - session->rest_from);
    size_t taken = lacks < bytes ? lacks : bytes;

    keep_rest(session, data, taken);
    return taken;
}

/* Handles kept input first; new input is handled in place if nothing is kept. */
static void take_input(struct qsi_amqp_session *session, const uint8_t *data, size_t bytes)
{
    while (session->rest.bytes > 0 && session->state < QSI_AMQP_ENDED) {
        size_t before = session->rest.bytes - session->rest_from, taken;

        handle_rest(session);
        if (session->rest.bytes == 0) {
            break;
        }
        taken = complete_rest(session, data, bytes);
        data += taken;
        bytes -= taken;
        if (taken == 0 && session->rest.bytes - session->rest_from == before) {
            break; /* it waits for bytes, or for the reason in stopped */
        }
    }
    if (session->rest.bytes == 0 && bytes > 0 && session->state < QSI_AMQP_ENDED) {
        size_t used = qsi_amqp_handle_input(session, data, bytes);

        data += used;
        bytes -= used;
    }
    if (bytes > 0 && session->state < QSI_AMQP_SILENT) {
        keep_rest(session, data, bytes);
    }
}

/* ---- turns ---- */

/* Excludes the time that the host takes for a login from the client's time. */
static void pass_time(struct qsi_amqp_session *session, uint64_t now_ns)
{
    if (session->stopped == QSI_AMQP_MUST_ASK && session->state < QSI_AMQP_RUNNING) {
        session->until_ns += now_ns - session->now_ns;
    }
    session->now_ns = now_ns;
    qsi_amqp_pool_pass_time(session);
}

/* Begins a turn after frames that had to wait: the reason may have gone.  MUST_ASK ends with an
 * answer, and IS_FULL with a time. */
static void begin_turn(struct qsi_amqp_session *session, const struct qsi_amqp_turn *turn)
{
    pass_time(session, turn->now_ns);
    session->may_block = turn->may_block;
    session->input_left = turn->bytes_max > 0 ? turn->bytes_max : SIZE_MAX;
    if ((session->stopped == QSI_AMQP_MUST_WAIT && turn->may_block) ||
        session->stopped == QSI_AMQP_MUST_WRITE ||
        (session->stopped == QSI_AMQP_MUST_ASK && session->question.is_answered)) {
        session->stopped = QSI_AMQP_DONE;
    }
    if (turn->may_block) {
        qsi_amqp_close_doomed(session);
    }
    qsi_amqp_look_at_clock(session);
}

/* A full store is asked again after a while.  The client is told that the store is full, and when
 * it is not full any more, but not while a worker asks. */
static void record_fullness(struct qsi_amqp_session *session)
{
    bool is_full = session->stopped == QSI_AMQP_IS_FULL ||
                   (session->is_full && session->stopped != QSI_AMQP_DONE);

    if (session->stopped == QSI_AMQP_IS_FULL && session->full_until_ns <= session->now_ns) {
        session->full_until_ns = session->now_ns + FULL_RETRY_NS;
    }
    if (is_full != session->is_full) {
        session->is_full = is_full;
        qsi_amqp_send_blocked(session);
    }
}

/* Handles input, then sends the events of the channels. */
static enum qsi_amqp_result take_events(struct qsi_amqp_session *session)
{
    enum qsi_amqp_result result;

    if (session->state != QSI_AMQP_RUNNING) {
        return QSI_AMQP_DONE;
    }
    result = qsi_amqp_take_events(session);
    if (result == QSI_AMQP_FAULT) {
        qsi_amqp_close_connection(session, QSI_AMQP_END_SERVER);
    }
    if (result == QSI_AMQP_IS_FULL && session->stopped == QSI_AMQP_DONE) {
        session->stopped = QSI_AMQP_IS_FULL;
    }
    return result;
}

static bool has_more_events(const struct qsi_amqp_session *session)
{
    return session->state == QSI_AMQP_RUNNING && !qsi_list_is_empty(&session->rung) &&
           session->stopped != QSI_AMQP_IS_FULL && !qsi_amqp_output_is_full(session);
}

/* Whether the output is full of answers that wait for the disk: a worker waits until they are
 * durable. */
static bool is_full_of_held(const struct qsi_amqp_session *session)
{
    return session->output.barrier_count > 0 && qsi_amqp_output_is_full(session) &&
           qsi_amqp_output_writable(&session->output) == 0;
}

static enum qsi_amqp_wants wants_of(const struct qsi_amqp_session *session,
                                    enum qsi_amqp_result events)
{
    if (session->state == QSI_AMQP_BROKEN) {
        return QSI_AMQP_WANTS_RESET;
    }
    if (session->state == QSI_AMQP_ENDED) {
        return QSI_AMQP_WANTS_END;
    }
    if (session->stopped == QSI_AMQP_MUST_WAIT || events == QSI_AMQP_MUST_WAIT ||
        ((!qsi_list_is_empty(&session->doomed) || is_full_of_held(session)) &&
         !session->may_block)) {
        return QSI_AMQP_WANTS_WORKER;
    }
    if (qsi_amqp_is_shutting(session) && !session->may_block && !qsi_amqp_output_is_full(session)) {
        return QSI_AMQP_WANTS_WORKER; /* the worker waits for the disk */
    }
    if (has_more_events(session)) {
        return QSI_AMQP_WANTS_TURN;
    }
    if (session->stopped == QSI_AMQP_MUST_ASK) {
        return QSI_AMQP_WANTS_ANSWER;
    }
    if (session->stopped == QSI_AMQP_MUST_WRITE && qsi_amqp_output_writable(&session->output) > 0) {
        return QSI_AMQP_WANTS_OUTPUT;
    }
    return session->stopped == QSI_AMQP_DONE && qsi_amqp_has_frame(session) ? QSI_AMQP_WANTS_TURN
                                                                            : QSI_AMQP_WANTS_INPUT;
}

/* Releases answers whose effects are durable. */
static void lift_barriers(struct qsi_amqp_session *session)
{
    if (session->may_block && is_full_of_held(session)) {
        qsi_amqp_await_answers(session);
    } else if (session->output.barrier_count > 0 && session->connection != NULL) {
        qsi_amqp_output_lift(&session->output, qs_store_durable_lsn(session->store));
    }
}

/* Makes the effects of the handled input durable, so that their confirms can be taken.  If the
 * store fails, the confirms report it. */
static void make_durable(struct qsi_amqp_session *session)
{
    if (qsi_amqp_is_shutting(session) && session->may_block &&
        qs_store_sync(session->store, NULL) == QS_OK) {
        qsi_amqp_output_lift(&session->output, qs_store_durable_lsn(session->store));
    }
}

/* Closes the session when the client has heard of everything that was done for it, or its time is
 * over. */
static void shut_at_last(struct qsi_amqp_session *session, enum qsi_amqp_result events)
{
    bool has_more = !qsi_list_is_empty(&session->rung) || session->stopped == QSI_AMQP_MUST_WRITE ||
                    (session->stopped == QSI_AMQP_DONE && qsi_amqp_has_frame(session));

    if (qsi_amqp_is_shutting(session) && session->may_block &&
        (events != QSI_AMQP_DONE || !has_more)) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_CONNECTION_FORCED, "%s", session->shut_text);
        qsi_amqp_close_connection(session, QSI_AMQP_END_SERVER);
    }
}

static enum qsi_amqp_wants give_turn(struct qsi_amqp_session *session,
                                     const struct qsi_amqp_turn *turn, const void *data,
                                     size_t bytes)
{
    enum qsi_amqp_result events;

    begin_turn(session, turn);
    lift_barriers(session);
    take_input(session, data, bytes);
    make_durable(session);
    events = take_events(session);
    shut_at_last(session, events);
    record_fullness(session);
    if (session->output.failed) {
        qsi_amqp_end_as(session, QSI_AMQP_END_MEMORY);
        session->state = QSI_AMQP_BROKEN;
    }
    return wants_of(session, events);
}

enum qsi_amqp_wants qsi_amqp_session_feed(struct qsi_amqp_session *session,
                                          const struct qsi_amqp_turn *turn, const void *data,
                                          size_t bytes)
{
    session->last_in_ns = turn->now_ns;
    session->counts.bytes_in += bytes;
    return give_turn(session, turn, data, bytes);
}

enum qsi_amqp_wants qsi_amqp_session_run(struct qsi_amqp_session *session,
                                         const struct qsi_amqp_turn *turn)
{
    return give_turn(session, turn, "", 0);
}
