/* Work that receives and settles. */
#include "crash_work.h"

/* -- receiving -------------------------------------------------------------------------------- */

static struct crash_copy *crash_first_ready(struct crash_queue *queue)
{
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->copies[i].tag == 0 && queue->copies[i].settle_lsn == 0) {
            return &queue->copies[i];
        }
    }
    return NULL;
}

/* A delivery must be the first ready message of its queue, whole. */
static void crash_delivered(struct crash_work *work, const struct crash_queue *queue,
                            struct crash_copy *copy, const qs_message *message, uint32_t channel)
{
    if (!crash_body_is_right(message->body, copy->id, copy->body_bytes) ||
        !crash_properties_are_right(message->properties, copy->id)) {
        crash_violation(work->report, "%s: delivered %" PRIu64 ", not %" PRIu64, queue->name,
                        crash_body_id(message->body), copy->id);
    }
    if (copy->was_delivered && !message->redelivered) {
        crash_violation(work->report, "%s: message %" PRIu64 " comes again unflagged", queue->name,
                        copy->id);
    }
    copy->was_delivered = true;
    copy->channel = channel;
    copy->tag = message->delivery_tag;
}

struct crash_copy *crash_get(struct crash_work *work, struct crash_queue *queue, uint32_t channel,
                             uint32_t flags)
{
    struct crash_copy *copy = crash_first_ready(queue);
    qs_message message = {0};
    qs_status status;

    if (queue->exists != CRASH_PRESENT) {
        return NULL;
    }
    if (copy != NULL && (flags & QS_NO_ACK) != 0) {
        copy->settle_lsn = CRASH_UNDER_WAY;
    }
    status =
        qs_channel_get(work->channels[channel], crash_queue_name(queue), flags, &message, QS_ERROR);
    if (copy == NULL && status == QS_EEMPTY) {
        return NULL;
    }
    if (!crash_done(work, status, "get")) {
        return NULL;
    }
    if (copy == NULL) {
        crash_violation(work->report, "%s: delivered %" PRIu64 " from an empty queue", queue->name,
                        crash_body_id(message.body));
    } else {
        crash_delivered(work, queue, copy, &message, channel);
        if ((flags & QS_NO_ACK) != 0) {
            copy->settle_lsn = crash_appended_lsn(work);
        }
    }
    qs_message_release(&message);
    return copy;
}

void crash_work_get(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 1 + crash_below(work, 5);
    uint32_t flags = crash_chance(work, 25) ? QS_NO_ACK : 0;
    struct crash_queue *queue = crash_any_queue(work);

    while (count-- > 0 && crash_get(work, queue, channel, flags) != NULL) {
    }
}

void crash_consume(struct crash_work *work, struct crash_queue *queue, uint32_t count)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];
    char tag[256];

    if (queue->exists != CRASH_PRESENT ||
        !crash_done(work,
                    qs_channel_consume(channel, crash_queue_name(queue), text("c"), 0,
                                       (qs_slice){0}, tag, QS_ERROR),
                    "consume")) {
        return;
    }
    while (count-- > 0) {
        struct crash_copy *copy = crash_first_ready(queue);
        qs_event event;
        qs_status status = qs_channel_next_event(channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);

        if (status == QS_EEMPTY && copy == NULL) {
            break;
        }
        if (!crash_done(work, status, "next event")) {
            return;
        }
        if (copy != NULL) {
            crash_delivered(work, queue, copy, &event.message, CRASH_PLAIN_CHANNEL);
        }
        qs_message_release(&event.message);
    }
    crash_done(work, qs_channel_cancel(channel, text("c"), QS_ERROR), "cancel");
}

void crash_work_consume(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    crash_consume(work, queue, crash_below(work, 5));
}

/* -- settling --------------------------------------------------------------------------------- */

uint32_t crash_each_out(struct crash_work *work, uint32_t channel, uint64_t last_tag,
                        crash_copy_visitor *visit, uint64_t value)
{
    uint32_t count = 0;

    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy *copy = &queue->copies[k];

            if (copy->tag != 0 && copy->channel == channel &&
                (last_tag == 0 || copy->tag <= last_tag)) {
                visit(copy, value);
                count++;
            }
        }
    }
    return count;
}

static void crash_set_settling(struct crash_copy *copy, uint64_t lsn)
{
    if (copy->settle_lsn == 0 || copy->settle_lsn == CRASH_UNDER_WAY) {
        copy->settle_lsn = lsn;
    }
}

void crash_set_ready(struct crash_copy *copy, uint64_t ignored)
{
    (void)ignored;
    if (copy->settle_lsn == 0) {
        copy->tag = 0;
    }
}

/* Settled copies are out of the way of later tags. */
static void crash_set_settled(struct crash_copy *copy, uint64_t lsn)
{
    if (copy->settle_lsn == CRASH_UNDER_WAY) {
        copy->settle_lsn = lsn;
        copy->channel = CRASH_CHANNELS;
    }
}

struct crash_copy *crash_any_out(struct crash_work *work, uint32_t channel)
{
    uint32_t skip = crash_below(work, 8);
    struct crash_copy *found = NULL;

    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy *copy = &queue->copies[k];

            if (copy->tag != 0 && copy->settle_lsn == 0 && copy->channel == channel) {
                found = copy;
                if (skip-- == 0) {
                    return found;
                }
            }
        }
    }
    return found;
}

void crash_ack(struct crash_work *work, uint32_t channel, struct crash_copy *copy, bool multiple,
               bool rejects)
{
    uint64_t tag = copy->tag;
    uint32_t flags = multiple ? QS_MULTIPLE : 0;
    qs_status status;

    if (multiple) {
        crash_each_out(work, channel, tag, crash_set_settling, CRASH_UNDER_WAY);
    } else {
        copy->settle_lsn = CRASH_UNDER_WAY;
    }
    status = rejects ? qs_channel_nack(work->channels[channel], tag, flags, 0, QS_ERROR)
                     : qs_channel_ack(work->channels[channel], tag, flags, QS_ERROR);
    if (crash_done(work, status, "ack")) {
        crash_each_out(work, channel, 0, crash_set_settled, crash_appended_lsn(work));
        crash_note_durable(work);
    }
}

void crash_work_ack(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    struct crash_copy *copy = crash_any_out(work, channel);
    bool multiple = crash_chance(work, 30);

    if (copy != NULL) {
        crash_ack(work, channel, copy, multiple, crash_chance(work, 30));
    }
}

void crash_requeue(struct crash_work *work, uint32_t channel, struct crash_copy *copy)
{
    if (crash_done(work,
                   qs_channel_nack(work->channels[channel], copy->tag, QS_REQUEUE, 0, QS_ERROR),
                   "requeue")) {
        copy->tag = 0;
    }
}

void crash_requeue_all(struct crash_work *work, uint32_t channel)
{
    if (crash_done(work, qs_channel_recover(work->channels[channel], QS_REQUEUE, QS_ERROR),
                   "recover")) {
        crash_each_out(work, channel, 0, crash_set_ready, 0);
    }
}

void crash_work_requeue(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    struct crash_copy *copy = crash_any_out(work, channel);

    if (copy != NULL && crash_chance(work, 60)) {
        crash_requeue(work, channel, copy);
    } else {
        crash_requeue_all(work, channel);
    }
}

void crash_purge(struct crash_work *work, struct crash_queue *queue)
{
    uint64_t count = 0, expected = 0;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->copies[i].tag == 0 && queue->copies[i].settle_lsn == 0) {
            queue->copies[i].settle_lsn = CRASH_UNDER_WAY;
            expected++;
        }
    }
    if (!crash_done(work,
                    qs_channel_queue_purge(work->channels[CRASH_PLAIN_CHANNEL],
                                           crash_queue_name(queue), 0, &count, QS_ERROR),
                    "purge")) {
        return;
    }
    if (count != expected) {
        crash_violation(work->report, "%s: purged %" PRIu64 ", not %" PRIu64, queue->name, count,
                        expected);
    }
    crash_note_durable(work);
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->copies[i].settle_lsn == CRASH_UNDER_WAY) {
            queue->copies[i].settle_lsn = work->model->durable_lsn;
        }
    }
}

void crash_work_purge(struct crash_work *work)
{
    crash_purge(work, crash_any_queue(work));
}
