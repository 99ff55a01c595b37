/* A consumer of a stream that notes how far it is: it takes messages, and acks what it took. */
#include "crash_log.h"
#include "field_table.h"
#include "properties.h"
#include "qs_test_fields.h"

#define TAG "c" /* the last of the groups */

static qs_status consume(struct log_work *work, qs_channel *channel, uint32_t stream)
{
    struct qs_test_fields arguments = qs_test_fields_of("x-stream-offset=first");
    char made[256];

    qs_test_put_name(&arguments, "x-stream-automatic-offset-tracking", 't');
    arguments.bytes[arguments.used++] = 1;
    QS_TRY(qs_channel_qos(channel, 1 + log_below(work, 40), 0, 0, QS_ERROR));
    return qs_channel_consume(channel, log_stream_name(stream), text(TAG), 0,
                              qs_test_fields_slice(&arguments), made, QS_ERROR);
}

static uint64_t offset_of(const qs_message *message)
{
    struct qsi_slice headers =
        qsi_properties_headers(message->properties.data, (uint32_t)message->properties.bytes);
    struct qsi_field field;
    struct qsi_number number;

    QS_CHECK(qsi_table_find(headers, QSI_SLICE_LITERAL("x-stream-offset"), &field) &&
             qsi_field_integer(&field, &number));
    return number.bits;
}

struct taken {
    uint64_t tag;  /* 0: nothing came */
    uint64_t next; /* behind the last */
};

/* Each message is the one of its offset, and durable; none is left out. */
static void check(struct log_work *work, uint32_t stream, const qs_message *message,
                  struct taken *taken)
{
    const struct log_state *state = &work->model->states[work->model->last];
    const struct log_life *life = log_life_of(work->model, state, stream);
    uint64_t cursor = state->streams[stream].cursors[LOG_GROUPS - 1];
    uint64_t offset = offset_of(message);
    uint64_t expected = taken->tag > 0 ? taken->next : cursor == LOG_NO_CURSOR ? 0 : cursor;

    if (offset >= state->streams[stream].next || offset < expected ||
        (offset > expected && offset != state->streams[stream].first && taken->tag > 0) ||
        crash_body_id(message->body) != life->rows[offset].id) {
        crash_violation(work->report, "s%u: a consumer gets offset %" PRIu64 ", not %" PRIu64,
                        stream, offset, expected);
    }
    *taken = (struct taken){message->delivery_tag, offset + 1};
}

static qs_status take(struct log_work *work, qs_channel *channel, uint32_t stream,
                      struct taken *taken)
{
    for (uint32_t n = 1 + log_below(work, 60); n > 0; n--) {
        qs_event event;
        qs_status status = qs_channel_next_event(channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
        if (status == QS_EEMPTY) {
            break;
        }
        QS_TRY(status);
        check(work, stream, &event.message, taken);
        qs_message_release(&event.message);
    }
    return QS_OK;
}

void log_consume(struct log_work *work)
{
    uint32_t stream = log_below(work, LOG_STREAMS);
    struct taken taken = {0};
    qs_channel *channel;
    struct log_state *state;

    if (work->model->states[work->model->last].streams[stream].life == 0) {
        return;
    }
    if (!log_done(work, qs_channel_open(&channel, work->store, QS_ERROR), "open a channel")) {
        return;
    }
    if (log_done(work, consume(work, channel, stream), "consume") &&
        log_done(work, take(work, channel, stream, &taken), "receive") && taken.tag > 0) {
        state = log_model_begin(work->model);
        state->streams[stream].cursors[LOG_GROUPS - 1] = taken.next;
        log_end_call(work, qs_channel_ack(channel, taken.tag, QS_MULTIPLE, QS_ERROR), "ack");
    }
    qs_channel_close(channel);
}
