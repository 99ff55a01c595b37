/* Work on topology: exchanges, bindings and queues come and go. */
#include "crash_work.h"

/* -- topology --------------------------------------------------------------------------------- */

void crash_declare(struct crash_work *work, struct crash_queue *queue)
{
    static const uint8_t priorities[] = "\x0e"
                                        "x-max-priority"
                                        "B";
    static const uint8_t keeps_all[] = "\x0c"
                                       "x-persistent"
                                       "t\x01";
    uint8_t levels[sizeof priorities];
    uint32_t flags = queue->is_durable ? QS_DURABLE : 0;
    qs_slice arguments = {NULL, 0};
    qs_declare_ok ok;

    memcpy(levels, priorities, sizeof priorities);
    levels[sizeof levels - 1] = CRASH_PRIORITY_MAX;
    if (queue->has_priorities) {
        arguments = (qs_slice){levels, sizeof levels};
    } else if (queue->keeps_all) {
        arguments = (qs_slice){keeps_all, sizeof keeps_all - 1};
    }

    CRASH_CHANGE(work, queue->exists, CRASH_PRESENT, "declare",
                 qs_channel_queue_declare(work->channels[CRASH_PLAIN_CHANNEL],
                                          crash_queue_name(queue), flags, arguments, &ok,
                                          QS_ERROR));
}

static void crash_declare_fan(struct crash_work *work)
{
    CRASH_CHANGE(work, work->model->fan_exists, CRASH_PRESENT, "declare exchange",
                 qs_channel_exchange_declare(work->channels[CRASH_PLAIN_CHANNEL], text("fan"),
                                             text("fanout"), QS_DURABLE, (qs_slice){0}, QS_ERROR));
}

static void crash_declare_way(struct crash_work *work)
{
    static const uint8_t arguments[] = "\x12"
                                       "alternate-exchange"
                                       "S\0\0\0\3fan";

    CRASH_CHANGE(work, work->model->way_exists, CRASH_PRESENT, "declare exchange",
                 qs_channel_exchange_declare(
                     work->channels[CRASH_PLAIN_CHANNEL], text("way"), text("x-jms-topic"),
                     QS_DURABLE, (qs_slice){arguments, sizeof arguments - 1}, QS_ERROR));
}

/* By a binding whose selector selects all that there is, else as the alternate exchange. */
void crash_lead(struct crash_work *work)
{
    static const uint8_t selector[] = "\x0e"
                                      "x-jms-selector"
                                      "S\0\0\0\x0c"
                                      "side IS NULL";
    const qs_slice arguments = {selector, sizeof selector - 1}, key = text("#");
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (work->model->way_leads == CRASH_ABSENT) {
        CRASH_CHANGE(work, work->model->way_leads, CRASH_PRESENT, "bind exchange",
                     qs_channel_change_binding(channel, text("fan"), text("way"), key, arguments,
                                               QS_TO_EXCHANGE, QS_ERROR));
    } else {
        CRASH_CHANGE(work, work->model->way_leads, CRASH_ABSENT, "unbind exchange",
                     qs_channel_change_binding(channel, text("fan"), text("way"), key, arguments,
                                               QS_TO_EXCHANGE | QS_UNBIND, QS_ERROR));
    }
}

void crash_bind(struct crash_work *work, struct crash_queue *queue)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (queue->is_bound == CRASH_ABSENT) {
        CRASH_CHANGE(work, queue->is_bound, CRASH_PRESENT, "bind",
                     qs_channel_change_binding(channel, crash_queue_name(queue), text("fan"),
                                               (qs_slice){0}, (qs_slice){0}, 0, QS_ERROR));
    } else {
        CRASH_CHANGE(work, queue->is_bound, CRASH_ABSENT, "unbind",
                     qs_channel_change_binding(channel, crash_queue_name(queue), text("fan"),
                                               (qs_slice){0}, (qs_slice){0}, QS_UNBIND, QS_ERROR));
    }
}

void crash_delete(struct crash_work *work, struct crash_queue *queue)
{
    uint64_t count;

    CRASH_CHANGE(work, queue->exists, CRASH_ABSENT, "delete",
                 qs_channel_queue_delete(work->channels[CRASH_PLAIN_CHANNEL],
                                         crash_queue_name(queue), 0, &count, QS_ERROR));
    if (!work->is_over) {
        queue->is_bound = CRASH_ABSENT;
        queue->is_lazy = CRASH_ABSENT;
        queue->count = 0;
    }
}

void crash_set_up(struct crash_work *work)
{
    if (work->model->fan_exists != CRASH_PRESENT) {
        crash_declare_fan(work);
    }
    if (work->model->way_exists != CRASH_PRESENT && !work->is_over) {
        crash_declare_way(work);
    }
    for (int i = 0; i < CRASH_QUEUES && !work->is_over; i++) {
        if (work->model->queues[i].exists != CRASH_PRESENT) {
            crash_declare(work, &work->model->queues[i]);
        }
    }
}

void crash_work_topology(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    if (queue->exists == CRASH_ABSENT) {
        crash_declare(work, queue);
    } else if (crash_chance(work, 25)) {
        crash_delete(work, queue);
    } else {
        crash_bind(work, queue);
    }
    if (!work->is_over && work->model->next_id % 4 == 0) {
        crash_lead(work);
    }
}
