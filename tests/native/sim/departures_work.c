/* Work on queues whose messages leave by themselves. */
#include "crash_departures.h"

/* -- the work --------------------------------------------------------------------------------- */

uint64_t depart_new(struct depart_work *work, enum depart_queue queue, uint32_t bytes,
                    bool persistent, uint32_t expiration_ms)
{
    struct depart_model *model = work->model;
    struct depart_message *message = &model->messages[model->count];
    uint32_t ttl_ms = depart_kinds[queue].ttl_ms;

    QS_CHECK(model->count < DEPART_MESSAGES_MAX);
    if (expiration_ms != 0 && (ttl_ms == 0 || expiration_ms < ttl_ms)) {
        ttl_ms = expiration_ms;
    }
    *message = (struct depart_message){
        .body_bytes = bytes,
        .source = (uint8_t)queue,
        .is_transient = !persistent,
        .expires_us =
            ttl_ms == 0 ? DEPART_NEVER : work->sim->wall_us(work->sim) + ttl_ms * UINT64_C(1000),
        .publish_lsn = CRASH_UNDER_WAY,
    };
    return ++model->count;
}

uint32_t depart_any_bytes(struct depart_work *work)
{
    return crash_below(&work->base, 4) == 0 ? 200 + crash_below(&work->base, 3000)
                                            : 8 + crash_below(&work->base, 150);
}

bool depart_has_failed(const struct depart_work *work)
{
    qs_stats stats;

    qs_store_stats(work->base.store, &stats);
    return stats.failed;
}

void depart_hear_nacks(struct depart_work *work)
{
    qs_channel *channel = work->base.channels[CRASH_CONFIRM_CHANNEL];
    qs_event event;

    while (!work->base.env->is_dead && !depart_has_failed(work) &&
           qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event, NULL) == QS_OK) {
        uint64_t id = work->confirm_ids[event.publish_number % CRASH_CONFIRMS_MAX];
        struct depart_message *message = &work->model->messages[id - 1];
        if (event.kind != QS_EVENT_NACK) {
            continue;
        }
        if (message->source != DEPART_REFUSE && message->source != DEPART_OVERFLOW) {
            crash_violation(work->base.report, "%s refuses a message",
                            depart_kinds[message->source].name);
        }
        message->was_refused = message->source == DEPART_REFUSE;
    }
    crash_note_durable(&work->base);
    work->model->durable_lsn = work->base.model->durable_lsn;
}

void depart_published(struct depart_work *work, uint64_t first_id, const qs_receipt *receipt)
{
    for (uint64_t i = 0; i < receipt->count; i++) {
        work->model->messages[first_id - 1 + i].publish_lsn = receipt->lsn;
        if (receipt->first_number != 0) {
            work->confirm_ids[(receipt->first_number + i) % CRASH_CONFIRMS_MAX] = first_id + i;
        }
    }
    depart_hear_nacks(work);
}

qs_status depart_publish_as(struct depart_work *work, uint32_t channel, uint64_t id,
                            uint32_t expiration_ms, qs_receipt *receipt)
{
    static uint8_t body[CRASH_BODY_BYTES_MAX];
    const struct depart_message *message = &work->model->messages[id - 1];
    uint8_t properties[16] = {0x10, 0x00, message->is_transient ? 1 : 2};
    size_t bytes = 3;

    if (expiration_ms != 0) {
        int length = snprintf((char *)properties + 4, 12, "%u", expiration_ms);
        properties[0] |= 0x01;
        properties[3] = (uint8_t)length;
        bytes = 4 + (size_t)length;
    }
    crash_body_fill(body, id, message->body_bytes);
    return qs_channel_publish(
        work->base.channels[channel], (qs_slice){0}, crash_text(depart_kinds[message->source].name),
        (qs_slice){properties, bytes}, (qs_slice){body, message->body_bytes}, 0, receipt, QS_ERROR);
}

static void depart_publish(struct depart_work *work, uint32_t channel, enum depart_queue queue,
                           uint32_t bytes, bool persistent)
{
    uint32_t expiration_ms = queue != DEPART_LEAST && crash_chance(&work->base, 15)
                                 ? 500 + crash_below(&work->base, 4000)
                                 : 0;
    uint64_t id = depart_new(work, queue, bytes, persistent, expiration_ms);
    qs_receipt receipt = {0};

    if (crash_done(&work->base, depart_publish_as(work, channel, id, expiration_ms, &receipt),
                   "publish")) {
        depart_published(work, id, &receipt);
    }
}

static enum depart_queue depart_any_source(struct depart_work *work)
{
    return (enum depart_queue)crash_below(&work->base, DEPART_SOURCES);
}

void depart_work_publish(struct depart_work *work)
{
    uint32_t count = 1 + crash_below(&work->base, 6);

    while (count-- > 0 && !work->base.is_over) {
        depart_publish(work, CRASH_CONFIRM_CHANNEL, depart_any_source(work), depart_any_bytes(work),
                       crash_chance(&work->base, 90));
    }
}

void depart_publish_batch(struct depart_work *work, enum depart_queue queue, uint32_t count)
{
    uint64_t first_id = work->model->count + 1;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bytes = depart_any_bytes(work);
        uint64_t id = depart_new(work, queue, bytes, true, 0);
        crash_body_fill(qs_test_batch_add(&rows, depart_kinds[queue].name, bytes), id, bytes);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(&work->base,
                   qs_channel_publish_batch(work->base.channels[CRASH_CONFIRM_CHANNEL], &batch,
                                            &receipt, QS_ERROR),
                   "publish batch")) {
        depart_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

void depart_work_batch(struct depart_work *work)
{
    enum depart_queue queue = depart_any_source(work);

    depart_publish_batch(work, queue, 2 + crash_below(&work->base, 14));
}

void depart_get(struct depart_work *work, uint32_t channel, enum depart_queue queue)
{
    qs_message message = {0};
    qs_status status = qs_channel_get(work->base.channels[channel],
                                      crash_text(depart_kinds[queue].name), 0, &message, QS_ERROR);

    if (status == QS_EEMPTY) {
        return;
    }
    if (crash_done(&work->base, status, "get") && work->out_count < DEPART_OUTS_MAX) {
        work->outs[work->out_count++] = (struct depart_out){
            .id = crash_body_id(message.body),
            .tag = message.delivery_tag,
            .channel = channel,
            .place = queue == DEPART_FIRST    ? DEPART_AT_FIRST
                     : queue == DEPART_SECOND ? DEPART_AT_SECOND
                                              : DEPART_AT_SOURCE,
        };
    }
    qs_message_release(&message);
}

void depart_work_get(struct depart_work *work)
{
    uint32_t queue = crash_below(&work->base, DEPART_QUEUES - 1);
    uint32_t count = 1 + crash_below(&work->base, 6);

    queue += queue >= DEPART_PLAIN ? 1 : 0;
    while (count-- > 0 && !work->base.is_over) {
        depart_get(work, CRASH_PLAIN_CHANNEL, (enum depart_queue)queue);
    }
}

bool depart_ends(const struct depart_work *work, const struct depart_out *out,
                 enum depart_verb verb)
{
    return verb == DEPART_ACK ||
           (verb == DEPART_REJECT &&
            (out->place != DEPART_AT_SOURCE ||
             depart_kinds[work->model->messages[out->id - 1].source].exchange == NULL));
}

static bool depart_is_meant(const struct depart_out *out, const struct depart_out *by,
                            bool multiple)
{
    return out->channel == by->channel && (multiple ? out->tag <= by->tag : out->tag == by->tag);
}

static void depart_set_settled(struct depart_work *work, const struct depart_out *by, bool multiple,
                               enum depart_verb verb, uint64_t lsn)
{
    for (uint32_t i = 0; i < work->out_count; i++) {
        const struct depart_out *out = &work->outs[i];
        if (depart_is_meant(out, by, multiple) && depart_ends(work, out, verb)) {
            work->model->messages[out->id - 1].settle_lsns[out->place] = lsn;
        }
    }
}

static void depart_forget_outs(struct depart_work *work, const struct depart_out *by, bool multiple)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < work->out_count; i++) {
        if (!depart_is_meant(&work->outs[i], by, multiple)) {
            work->outs[kept++] = work->outs[i];
        }
    }
    work->out_count = kept;
}

qs_status depart_call(struct depart_work *work, const struct depart_out *by, bool multiple,
                      enum depart_verb verb)
{
    qs_channel *channel = work->base.channels[by->channel];
    uint32_t flags = multiple ? QS_MULTIPLE : 0;

    return verb == DEPART_ACK
               ? qs_channel_ack(channel, by->tag, flags, QS_ERROR)
               : qs_channel_nack(channel, by->tag,
                                 flags | (verb == DEPART_REQUEUE ? QS_REQUEUE : 0), QS_ERROR);
}

void depart_settle(struct depart_work *work, struct depart_out by, bool multiple,
                   enum depart_verb verb)
{
    depart_set_settled(work, &by, multiple, verb, CRASH_UNDER_WAY);
    if (crash_done(&work->base, depart_call(work, &by, multiple, verb), "settle")) {
        depart_set_settled(work, &by, multiple, verb, crash_appended_lsn(&work->base));
        depart_forget_outs(work, &by, multiple);
        depart_hear_nacks(work);
    }
}

void depart_work_settle(struct depart_work *work)
{
    static const enum depart_verb verbs[] = {DEPART_ACK,    DEPART_REJECT,  DEPART_REJECT,
                                             DEPART_REJECT, DEPART_REQUEUE, DEPART_REQUEUE};

    if (work->out_count > 0) {
        depart_settle(work, work->outs[crash_below(&work->base, work->out_count)],
                      crash_chance(&work->base, 30), verbs[crash_below(&work->base, 6)]);
    }
}
