/* Operations of the fault sweep: publishing, getting and settling messages, and transactions. */
#ifndef SWEEP_MESSAGES_H
#define SWEEP_MESSAGES_H

#include "sweep_topology.h"

static inline void publish_small(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 100, true);
}

static inline void publish_large(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 3000, true);
}

static inline void publish_transient(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 3000, false);
}

static inline void publish_to_many(struct crash_work *work)
{
    crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150);
}

/* An unroutable message comes back, whole. */
static inline void publish_mandatory(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];
    qs_slice body = {"body", 4};
    qs_receipt receipt;
    qs_event event;

    if (crash_done(work,
                   qs_channel_publish(channel, (qs_slice){0}, text("nobody"), (qs_slice){0}, body,
                                      QS_MANDATORY, 0, &receipt, QS_ERROR),
                   "publish mandatory") &&
        crash_done(work, qs_channel_next_event(channel, QS_EVENT_RETURN, 0, &event, QS_ERROR),
                   "return")) {
        QS_CHECK(event.message.body.bytes == 4);
        qs_message_release(&event.message);
    }
}

static inline void publish_batch(struct crash_work *work)
{
    crash_publish_batch(work, CRASH_CONFIRM_CHANNEL, 20);
}

/* Commits until the journal has gone on in another file, and another. */
static inline void publish_until_files_roll(struct crash_work *work)
{
    for (int i = 0; i < 30 && !work->is_over; i++) {
        crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 1), i % 6 == 0 ? 15000 : 150,
                      true);
        if (!work->is_over) {
            crash_work_sync(work);
        }
    }
}

static inline void publish_and_wait(struct crash_work *work)
{
    publish_small(work);
    if (!work->is_over) {
        publish_large(work);
    }
    if (!work->is_over) {
        crash_work_wait_confirms(work);
    }
}

static inline void publish_both(struct crash_work *work)
{
    publish_small(work);
    publish_large(work);
}

/* Each of them may make a priority. */
static inline void publish_to_priorities(struct crash_work *work)
{
    for (int i = 0; i < 2 * CRASH_PRIORITY_MAX && !work->is_over; i++) {
        crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, CRASH_LEVELS_QUEUE),
                      i % 3 == 0 ? 3000 : 100, i % 4 != 3);
    }
}

static inline void publish_batch_to_priorities(struct crash_work *work)
{
    work->model->next_id += work->model->next_id % 2; /* with a column of priorities */
    crash_publish_rows(work, CRASH_CONFIRM_CHANNEL, queue_of(work, CRASH_LEVELS_QUEUE), 20, 400);
}

static inline void get_all_priorities(struct crash_work *work)
{
    while (!work->is_over &&
           crash_get(work, queue_of(work, CRASH_LEVELS_QUEUE), CRASH_PLAIN_CHANNEL, 0) != NULL) {
    }
}

static inline void purge_priorities(struct crash_work *work)
{
    crash_purge(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static inline void delete_priorities(struct crash_work *work)
{
    crash_delete(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static inline void declare_priorities(struct crash_work *work)
{
    crash_declare(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static inline void new_priorities(struct crash_work *work)
{
    delete_priorities(work);
    declare_priorities(work);
}

/* With the queue's priorities in it, used for the first time and used before. */
static inline void checkpoint_priorities(struct crash_work *work)
{
    publish_to_priorities(work);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

static inline void wait_durable(struct crash_work *work)
{
    if (crash_done(
            work,
            qs_store_wait_durable(work->store, crash_appended_lsn(work), QS_FOREVER, QS_ERROR),
            "wait durable")) {
        crash_note_durable(work);
    }
}

static inline void get_all(struct crash_work *work)
{
    while (!work->is_over && crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, 0) != NULL) {
    }
}

static inline void get_all_without_ack(struct crash_work *work)
{
    while (!work->is_over &&
           crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, QS_NO_ACK) != NULL) {
    }
}

static inline void consume(struct crash_work *work)
{
    crash_consume(work, queue_of(work, 0), 20);
}

/* The rows are not looked at: what the store holds afterwards is. */
static inline void get_batch(struct crash_work *work)
{
    struct ArrowSchema schema;
    struct ArrowArray array;

    if (crash_done(work,
                   qs_channel_get_batch(work->channels[CRASH_PLAIN_CHANNEL],
                                        crash_queue_name(queue_of(work, 0)), 100, 1 << 20, 0, 0,
                                        &schema, &array, QS_ERROR),
                   "get batch")) {
        array.release(&array);
        schema.release(&schema);
    }
}

static inline void ack_one(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), false, false);
}

static inline void ack_many(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), true, false);
}

static inline void reject(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), false, true);
}

static inline void requeue(struct crash_work *work)
{
    crash_requeue(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL));
}

static inline void requeue_all(struct crash_work *work)
{
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
}

static inline void ack_and_sync(struct crash_work *work)
{
    ack_many(work);
    if (!work->is_over) {
        crash_work_sync(work);
    }
}

static inline void purge(struct crash_work *work)
{
    crash_purge(work, queue_of(work, 0));
}

static inline void delete_full_queue(struct crash_work *work)
{
    crash_delete(work, queue_of(work, 0));
}

static inline void commit_transaction(struct crash_work *work)
{
    crash_tx(work, false);
}

static inline void roll_back_transaction(struct crash_work *work)
{
    crash_tx(work, true);
}

#endif
