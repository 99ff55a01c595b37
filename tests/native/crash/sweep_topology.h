/* Operations of the fault sweep: declaring, binding, deleting, opening and closing. */
#ifndef SWEEP_TOPOLOGY_H
#define SWEEP_TOPOLOGY_H

#include "crash_run.h"
#include "qs_test_calls.h"

static inline struct crash_queue *queue_of(struct crash_work *work, int index)
{
    return &work->model->queues[index];
}

static inline void declare(struct crash_work *work)
{
    crash_declare(work, queue_of(work, 4));
}

static inline void delete_fourth(struct crash_work *work)
{
    crash_delete(work, queue_of(work, 4));
}

static inline void declare_transient(struct crash_work *work)
{
    crash_declare(work, queue_of(work, CRASH_QUEUES - 1));
}

static inline void delete_transient(struct crash_work *work)
{
    crash_delete(work, queue_of(work, CRASH_QUEUES - 1));
}

static inline void bind_third(struct crash_work *work)
{
    crash_bind(work, queue_of(work, 3));
}

static inline void unbind_first(struct crash_work *work)
{
    crash_bind(work, queue_of(work, 0));
}

static inline void exchange_life(struct crash_work *work)
{
    static const uint8_t selector[] = "\x0e"
                                      "x-jms-selector"
                                      "S\0\0\0\x10"
                                      "side LIKE '%buy'";
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (crash_done(work,
                   qs_channel_exchange_declare(channel, text("topic"), text("x-jms-topic"),
                                               QS_DURABLE, (qs_slice){0}, QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_change_binding(
                       channel, crash_queue_name(queue_of(work, 2)), text("topic"), text("a.#"),
                       (qs_slice){selector, sizeof selector - 1}, 0, QS_ERROR),
                   "bind")) {
        crash_done(work, qs_channel_exchange_delete(channel, text("topic"), 0, QS_ERROR),
                   "delete exchange");
    }
}

static inline void lead(struct crash_work *work)
{
    crash_lead(work);
}

static inline void lead_and_publish(struct crash_work *work)
{
    crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150);
    if (!work->is_over) {
        crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150); /* one of the two to the other exchange */
    }
}

/* An auto-delete exchange goes with the exchange it leads to: two records. */
static inline void exchange_cascade(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (crash_done(work,
                   qs_channel_exchange_declare(channel, text("source"), text("topic"),
                                               QS_DURABLE | QS_AUTO_DELETE, (qs_slice){0},
                                               QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_exchange_declare(channel, text("target"), text("headers"), QS_DURABLE,
                                               (qs_slice){0}, QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_change_binding(channel, text("target"), text("source"), text("#"),
                                             (qs_slice){0}, QS_TO_EXCHANGE, QS_ERROR),
                   "bind exchange")) {
        crash_done(work, qs_channel_exchange_delete(channel, text("target"), 0, QS_ERROR),
                   "delete exchange");
    }
}

static inline void open_new_channel(struct crash_work *work)
{
    crash_work_new_channel(work);
}

/* Nothing of it is durable: an exclusive queue, a consumer of it, and an error that ends both. */
static inline void connection_life(struct crash_work *work)
{
    qs_connection *connection = NULL;
    qs_channel *channel = NULL;
    char tag[256];

    if (crash_done(work, qs_connection_open(&connection, work->store, QS_ERROR), "connect") &&
        crash_done(work, qs_connection_channel(&channel, connection, QS_ERROR), "open") &&
        crash_done(work, qs_test_declare_as(channel, "mine", QS_EXCLUSIVE, (qs_slice){0}),
                   "declare") &&
        crash_done(
            work,
            qs_channel_consume(channel, text("mine"), text("tag"), 0, (qs_slice){0}, tag, QS_ERROR),
            "consume")) {
        QS_CHECK_STATUS(QS_NOT_ALLOWED, qs_channel_consume(channel, text("mine"), text("tag"), 0,
                                                           (qs_slice){0}, tag, QS_ERROR));
        QS_CHECK(qs_connection_is_closed(connection));
    }
    qs_connection_close(connection);
    qs_channel_close(channel);
}

static inline void visit_queue(void *context, const qs_queue_info *queue)
{
    *(size_t *)context += queue->name.bytes;
}

static inline void look_around(struct crash_work *work)
{
    size_t name_bytes = 0;
    qs_queue_status queue;
    qs_stats stats;

    qs_store_stats(work->store, &stats);
    QS_CHECK(!stats.failed);
    crash_done(work, qs_store_visit_queues(work->store, visit_queue, &name_bytes), "visit");
    crash_done(
        work,
        qs_store_queue_status(work->store, crash_queue_name(queue_of(work, 0)), &queue, QS_ERROR),
        "status");
}

static inline void open_store(struct crash_work *work)
{
    crash_open_store(work);
}

static inline void close_store(struct crash_work *work)
{
    crash_close_store(work);
}

#endif
