/* The channels of a session: opening, lookup, closing.
 *
 * A refused channel stays until the client's close-ok, so that frames already sent do not reach a
 * new channel with its number.  Closing the engine's channel may block: the channel is doomed until
 * a turn that may. */
#include "alloc.h"
#include "check.h"
#include "session_internal.h"

#include <string.h>

struct qsi_amqp_channel *qsi_amqp_find_channel(struct qsi_amqp_session *session, uint16_t number)
{
    if (session->current == NULL || session->current->number != number) {
        session->current = qsi_map_get_number(&session->channels, number);
    }
    return session->current;
}

/* ---- opening ---- */

static enum qsi_amqp_result no_memory(struct qsi_amqp_session *session)
{
    qsi_amqp_fault_set(&session->fault, QSI_AMQP_RESOURCE_ERROR, "out of memory for a channel");
    return QSI_AMQP_FAULT;
}

static enum qsi_amqp_result make_channel(struct qsi_amqp_session *session, uint16_t number)
{
    struct qsi_amqp_channel *channel = qsi_zalloc(sizeof *channel);
    qs_error error;
    qs_status status;

    if (channel == NULL || qsi_map_put_number(&session->channels, number, channel) != QS_OK) {
        qsi_free(channel);
        return no_memory(session);
    }
    channel->number = number;
    qsi_list_init(&channel->in_rung);
    qsi_list_init(&channel->in_doomed);
    status = qs_connection_channel(&channel->engine, session->connection, &error);
    if (status != QS_OK) {
        qsi_map_remove_number(&session->channels, number);
        qsi_free(channel);
        return qsi_amqp_engine_fault(session, status, &error);
    }
    qs_channel_set_client_number(channel->engine, number);
    session->current = channel;
    session->counts.channels++;
    qsi_amqp_send_empty(session, number, QSI_AMQP_CHANNEL_OPEN_OK);
    return QSI_AMQP_DONE;
}

enum qsi_amqp_result qsi_amqp_channel_open(struct qsi_amqp_session *session, uint16_t number)
{
    if (qsi_amqp_find_channel(session, number) != NULL) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_CHANNEL_ERROR, "second 'channel.open' seen");
        return QSI_AMQP_FAULT;
    }
    if (session->channels.count >= session->channel_max) {
        qsi_amqp_fault_set(&session->fault, QS_NOT_ALLOWED,
                           "number of channels opened (%zu) has reached the negotiated channel_max "
                           "(%u)",
                           session->channels.count, session->channel_max);
        return QSI_AMQP_FAULT;
    }
    if (qsi_amqp_output_is_full(session)) {
        return QSI_AMQP_MUST_WRITE;
    }
    return make_channel(session, number);
}

/* ---- events ---- */

void qsi_amqp_channel_rung(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    if (qsi_list_is_empty(&channel->in_rung)) {
        qsi_list_push_back(&session->rung, &channel->in_rung);
    }
}

bool qsi_amqp_channel_watch(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    const struct qsi_amqp_host *host = &session->setup.host;
    qs_error error;
    qs_status status;

    qsi_amqp_channel_rung(session, channel);
    channel->has_events = true;
    if (channel->is_watched || host->watch == NULL) {
        return true;
    }
    status = host->watch(host->context, session, channel->number, channel->engine, &channel->watch,
                         &error);
    channel->is_watched = status == QS_OK;
    if (status != QS_OK) {
        qsi_amqp_fault_set(&session->fault, QSI_AMQP_RESOURCE_ERROR, "%s", error.text);
    }
    return channel->is_watched;
}

/* ---- consumers ---- */

bool qsi_amqp_add_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                           struct qsi_slice tag)
{
    if (qsi_map_put(&channel->consumers, tag.data, tag.bytes, channel) != QS_OK) {
        return false;
    }
    session->counts.consumers++;
    return true;
}

void qsi_amqp_remove_consumer(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel,
                              struct qsi_slice tag)
{
    if (qsi_map_remove(&channel->consumers, tag.data, tag.bytes) != NULL) {
        session->counts.consumers--;
    }
}

/* ---- the end ---- */

void qsi_amqp_end_content(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    struct qsi_amqp_content *content = &channel->content;

    qsi_amqp_pool_give_back(session, content);
    qsi_amqp_content_end(content);
}

/* A closed channel of the engine gives no QS_EVENT_DURABLE any more, so answers are awaited before
 * the close. */
void qsi_amqp_await_answers(struct qsi_amqp_session *session)
{
    struct qsi_amqp_output *output = &session->output;
    uint64_t lsn = output->barrier_count > 0 ? output->barriers[output->barrier_count - 1].lsn : 0;

    if (lsn > 0 && qs_store_wait_durable(session->store, lsn, QS_FOREVER, NULL) == QS_OK) {
        qsi_amqp_output_lift(output, lsn);
    }
}

/* Closes the engine's channel; this blocks. */
static void close_engine(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    qsi_list_remove(&channel->in_rung);
    qsi_list_remove(&channel->in_doomed);
    qs_channel_close(channel->engine);
    channel->engine = NULL;
    qsi_amqp_forget_transaction(session, channel);
    qsi_amqp_forget_returns(session, channel);
    if (channel->is_watched) {
        session->setup.host.unwatch(session->setup.host.context, session, channel->watch);
        channel->is_watched = false;
    }
}

static void free_channel(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    QS_ASSERT(channel->engine == NULL && !channel->is_watched);
    qsi_amqp_end_content(session, channel);
    qsi_amqp_content_fini(&channel->content);
    qsi_map_fini(&channel->consumers);
    qsi_free(channel->queue);
    qsi_free(channel->reply);
    qsi_free(channel);
}

void qsi_amqp_channel_forget(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    qsi_map_remove_number(&session->channels, channel->number);
    if (session->current == channel) {
        session->current = NULL;
    }
    free_channel(session, channel);
}

/* Removes a channel that was closed or refused from the counts. */
static void stop_counting(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    session->counts.channels--;
    session->counts.consumers -= (uint32_t)channel->consumers.count;
    qsi_map_fini(&channel->consumers);
}

enum qsi_amqp_result qsi_amqp_channel_leave(struct qsi_amqp_session *session,
                                            struct qsi_amqp_channel *channel)
{
    uint16_t number = channel->number;

    QS_ASSERT(session->may_block);
    qsi_amqp_await_answers(session);
    close_engine(session, channel);
    stop_counting(session, channel);
    qsi_amqp_channel_forget(session, channel);
    qsi_amqp_send_empty(session, number, QSI_AMQP_CHANNEL_CLOSE_OK);
    return QSI_AMQP_DONE;
}

static void send_close(struct qsi_amqp_session *session, uint16_t number)
{
    const struct qsi_amqp_fault *fault = &session->fault;
    struct qsi_amqp_arguments arguments = {0};

    arguments.number[0] = fault->code;
    arguments.number[1] = fault->class_id;
    arguments.number[2] = fault->method_id;
    arguments.text[0] = qsi_slice_make(fault->text, (uint32_t)strlen(fault->text));
    qsi_amqp_send(session, number, QSI_AMQP_CHANNEL_CLOSE, &arguments);
}

void qsi_amqp_channel_refuse(struct qsi_amqp_session *session, struct qsi_amqp_channel *channel)
{
    QS_ASSERT(!channel->is_closing);
    channel->is_closing = true;
    qsi_amqp_end_content(session, channel);
    qsi_list_remove(&channel->in_rung);
    stop_counting(session, channel);
    send_close(session, channel->number);
    if (session->may_block) {
        qsi_amqp_await_answers(session);
        close_engine(session, channel);
    } else {
        qsi_list_push_back(&session->doomed, &channel->in_doomed);
    }
}

void qsi_amqp_close_doomed(struct qsi_amqp_session *session)
{
    if (!qsi_list_is_empty(&session->doomed)) {
        qsi_amqp_await_answers(session);
    }
    while (!qsi_list_is_empty(&session->doomed)) {
        close_engine(session,
                     QSI_LIST_OWNER(session->doomed.next, struct qsi_amqp_channel, in_doomed));
    }
}

void qsi_amqp_close_channels(struct qsi_amqp_session *session)
{
    struct qsi_map_cursor cursor = qsi_map_begin(&session->channels);

    while (qsi_map_next(&session->channels, &cursor)) {
        struct qsi_amqp_channel *channel = cursor.value;

        if (channel->engine != NULL) {
            close_engine(session, channel);
        }
        qsi_amqp_channel_forget(session, channel);
    }
    session->counts.channels = session->counts.consumers = 0;
    qs_connection_close(session->connection);
    session->connection = NULL;
}
