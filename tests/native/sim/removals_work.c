/* Work on queues whose messages leave by themselves. */
#include "crash_removals.h"

/* -- the work --------------------------------------------------------------------------------- */

uint64_t removal_new(struct removal_work *work, enum removal_queue queue, uint32_t bytes,
                     bool persistent, uint32_t expiration_ms)
{
    struct removal_model *model = work->model;
    struct removal_message *message = &model->messages[model->count];
    uint32_t ttl_ms = removal_kinds[queue].ttl_ms;

    QS_CHECK(model->count < REMOVAL_MESSAGES_MAX);
    if (expiration_ms != 0 && (ttl_ms == 0 || expiration_ms < ttl_ms)) {
        ttl_ms = expiration_ms;
    }
    *message = (struct removal_message){
        .body_bytes = bytes,
        .source = (uint8_t)queue,
        .is_transient = !persistent,
        .expires_us =
            ttl_ms == 0 ? REMOVAL_NEVER : work->sim->wall_us(work->sim) + ttl_ms * UINT64_C(1000),
        .publish_lsn = CRASH_UNDER_WAY,
    };
    return ++model->count;
}

uint32_t removal_any_bytes(struct removal_work *work)
{
    return crash_below(&work->base, 4) == 0 ? 200 + crash_below(&work->base, 3000)
                                            : 8 + crash_below(&work->base, 150);
}

bool removal_has_failed(const struct removal_work *work)
{
    qs_stats stats;

    qs_store_stats(work->base.store, &stats);
    return stats.failed;
}

void removal_hear_nacks(struct removal_work *work)
{
    qs_channel *channel = work->base.channels[CRASH_CONFIRM_CHANNEL];
    qs_event event;

    while (!work->base.env->is_dead && !removal_has_failed(work) &&
           qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event, NULL) == QS_OK) {
        uint64_t id = work->confirm_ids[event.publish_number % CRASH_CONFIRMS_MAX];
        struct removal_message *message = &work->model->messages[id - 1];
        if (event.kind != QS_EVENT_NACK) {
            continue;
        }
        qs_message_release(&event.message);
        if (message->source != REMOVAL_REFUSE && message->source != REMOVAL_OVERFLOW) {
            crash_violation(work->base.report, "%s refuses a message",
                            removal_kinds[message->source].name);
        }
        message->was_refused = message->source == REMOVAL_REFUSE;
    }
    crash_note_durable(&work->base);
    work->model->durable_lsn = work->base.model->durable_lsn;
}

void removal_published(struct removal_work *work, uint64_t first_id, const qs_receipt *receipt)
{
    for (uint64_t i = 0; i < receipt->count; i++) {
        work->model->messages[first_id - 1 + i].publish_lsn = receipt->lsn;
        if (receipt->first_number != 0) {
            work->confirm_ids[(receipt->first_number + i) % CRASH_CONFIRMS_MAX] = first_id + i;
        }
    }
    removal_hear_nacks(work);
}

qs_status removal_publish_as(struct removal_work *work, uint32_t channel, uint64_t id,
                             uint32_t expiration_ms, qs_receipt *receipt)
{
    static uint8_t body[CRASH_BODY_BYTES_MAX];
    const struct removal_message *message = &work->model->messages[id - 1];
    uint8_t properties[16] = {0x10, 0x00, message->is_transient ? 1 : 2};
    size_t bytes = 3;

    if (expiration_ms != 0) {
        int length = snprintf((char *)properties + 4, 12, "%u", expiration_ms);
        properties[0] |= 0x01;
        properties[3] = (uint8_t)length;
        bytes = 4 + (size_t)length;
    }
    crash_body_fill(body, id, message->body_bytes);
    return qs_channel_publish(work->base.channels[channel], (qs_slice){0},
                              text(removal_kinds[message->source].name),
                              (qs_slice){properties, bytes}, (qs_slice){body, message->body_bytes},
                              0, 0, receipt, QS_ERROR);
}

static void removal_publish(struct removal_work *work, uint32_t channel, enum removal_queue queue,
                            uint32_t bytes, bool persistent)
{
    uint32_t expiration_ms = queue != REMOVAL_LEAST && crash_chance(&work->base, 15)
                                 ? 500 + crash_below(&work->base, 4000)
                                 : 0;
    uint64_t id = removal_new(work, queue, bytes, persistent, expiration_ms);
    qs_receipt receipt = {0};

    if (crash_done(&work->base, removal_publish_as(work, channel, id, expiration_ms, &receipt),
                   "publish")) {
        removal_published(work, id, &receipt);
    }
}

static enum removal_queue removal_any_source(struct removal_work *work)
{
    return (enum removal_queue)crash_below(&work->base, REMOVAL_SOURCES);
}

void removal_work_publish(struct removal_work *work)
{
    uint32_t count = 1 + crash_below(&work->base, 6);

    while (count-- > 0 && !work->base.is_over) {
        removal_publish(work, CRASH_CONFIRM_CHANNEL, removal_any_source(work),
                        removal_any_bytes(work), crash_chance(&work->base, 90));
    }
}

void removal_publish_batch(struct removal_work *work, enum removal_queue queue, uint32_t count)
{
    uint64_t first_id = work->model->count + 1;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = removal_any_bytes(work);
        uint64_t id = removal_new(work, queue, bytes, true, 0);
        crash_body_fill(qs_test_batch_add(&rows, removal_kinds[queue].name, bytes), id, bytes);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(&work->base,
                   qs_channel_publish_batch(work->base.channels[CRASH_CONFIRM_CHANNEL], &batch,
                                            &receipt, QS_ERROR),
                   "publish batch")) {
        removal_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

void removal_work_batch(struct removal_work *work)
{
    enum removal_queue queue = removal_any_source(work);

    removal_publish_batch(work, queue, 2 + crash_below(&work->base, 14));
}

void removal_get(struct removal_work *work, uint32_t channel, enum removal_queue queue)
{
    qs_message message = {0};
    qs_status status = qs_channel_get(work->base.channels[channel], text(removal_kinds[queue].name),
                                      0, &message, QS_ERROR);

    if (status == QS_EEMPTY) {
        return;
    }
    if (crash_done(&work->base, status, "get") && work->out_count < REMOVAL_OUTS_MAX) {
        work->outs[work->out_count++] = (struct removal_out){
            .id = crash_body_id(message.body),
            .tag = message.delivery_tag,
            .channel = channel,
            .place = queue == REMOVAL_FIRST    ? REMOVAL_AT_FIRST
                     : queue == REMOVAL_SECOND ? REMOVAL_AT_SECOND
                                               : REMOVAL_AT_SOURCE,
        };
    }
    qs_message_release(&message);
}

void removal_work_get(struct removal_work *work)
{
    uint32_t queue = crash_below(&work->base, REMOVAL_QUEUES - 1);
    uint32_t count = 1 + crash_below(&work->base, 6);

    queue += queue >= REMOVAL_PLAIN ? 1 : 0;
    while (count-- > 0 && !work->base.is_over) {
        removal_get(work, CRASH_PLAIN_CHANNEL, (enum removal_queue)queue);
    }
}

bool removal_ends(const struct removal_work *work, const struct removal_out *out,
                  enum removal_verb verb)
{
    return verb == REMOVAL_ACK ||
           (verb == REMOVAL_REJECT &&
            (out->place != REMOVAL_AT_SOURCE ||
             removal_kinds[work->model->messages[out->id - 1].source].exchange == NULL));
}

static bool removal_is_meant(const struct removal_out *out, const struct removal_out *by,
                             bool multiple)
{
    return out->channel == by->channel && (multiple ? out->tag <= by->tag : out->tag == by->tag);
}

static void removal_set_settled(struct removal_work *work, const struct removal_out *by,
                                bool multiple, enum removal_verb verb, uint64_t lsn)
{
    for (uint32_t i = 0; i < work->out_count; i++) {
        const struct removal_out *out = &work->outs[i];
        if (removal_is_meant(out, by, multiple) && removal_ends(work, out, verb)) {
            work->model->messages[out->id - 1].settle_lsns[out->place] = lsn;
        }
    }
}

static void removal_forget_outs(struct removal_work *work, const struct removal_out *by,
                                bool multiple)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < work->out_count; i++) {
        if (!removal_is_meant(&work->outs[i], by, multiple)) {
            work->outs[kept++] = work->outs[i];
        }
    }
    work->out_count = kept;
}

qs_status removal_call(struct removal_work *work, const struct removal_out *by, bool multiple,
                       enum removal_verb verb)
{
    qs_channel *channel = work->base.channels[by->channel];
    uint32_t flags = multiple ? QS_MULTIPLE : 0;

    return verb == REMOVAL_ACK
               ? qs_channel_ack(channel, by->tag, flags, QS_ERROR)
               : qs_channel_nack(channel, by->tag,
                                 flags | (verb == REMOVAL_REQUEUE ? QS_REQUEUE : 0), 0, QS_ERROR);
}

void removal_settle(struct removal_work *work, struct removal_out by, bool multiple,
                    enum removal_verb verb)
{
    removal_set_settled(work, &by, multiple, verb, CRASH_UNDER_WAY);
    if (crash_done(&work->base, removal_call(work, &by, multiple, verb), "settle")) {
        removal_set_settled(work, &by, multiple, verb, crash_appended_lsn(&work->base));
        removal_forget_outs(work, &by, multiple);
        removal_hear_nacks(work);
    }
}

void removal_work_settle(struct removal_work *work)
{
    static const enum removal_verb verbs[] = {REMOVAL_ACK,    REMOVAL_REJECT,  REMOVAL_REJECT,
                                              REMOVAL_REJECT, REMOVAL_REQUEUE, REMOVAL_REQUEUE};

    if (work->out_count > 0) {
        removal_settle(work, work->outs[crash_below(&work->base, work->out_count)],
                       crash_chance(&work->base, 30), verbs[crash_below(&work->base, 6)]);
    }
}
