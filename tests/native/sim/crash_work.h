/* A random workload on one store, with the model told of every call before and after it.
 *
 * Everything follows from one seed: the store runs without threads, so whoever waits commits.  A
 * call may fail only when the process is dead (crash_env.is_dead) or the disk was made to fail
 * (has_faults); the work ends there and the model keeps what was under way as uncertain. */
#ifndef CRASH_WORK_H
#define CRASH_WORK_H

#include "qstore/qstore.h"

#include "crash_env.h"
#include "crash_model.h"
#include "qs_test_batch.h"
#include "store.h"

#define CRASH_PATH "store"
#define CRASH_CHANNELS 3
#define CRASH_CONFIRM_CHANNEL 0
#define CRASH_PLAIN_CHANNEL 1
#define CRASH_TX_CHANNEL 2
#define CRASH_TX_PARTS_MAX 12
#define CRASH_CONFIRMS_MAX 4096 /* more than one channel ever publishes here */

struct crash_work {
    struct crash_env *env;
    struct crash_model *model;
    struct crash_report *report;
    uint64_t random;
    bool has_faults;
    bool is_over;
    bool pages;         /* more messages than fit, checkpoints, compaction */
    qs_options options; /* memory_budget 0: crash_options() */
    qs_store *store;
    qs_channel *channels[CRASH_CHANNELS];
    uint64_t confirm_lsns[CRASH_CONFIRMS_MAX]; /* by publish number of the confirm channel */
};

/* Tells the model that a thing is about to change, makes the call, and tells how it ended. */
#define CRASH_CHANGE(work, certainty, becomes, what, call) \
    do {                                                   \
        (certainty) = CRASH_UNCERTAIN;                     \
        if (crash_done(work, call, what)) {                \
            (certainty) = (becomes);                       \
            crash_note_durable(work);                      \
        }                                                  \
    } while (0)

typedef void crash_copy_visitor(struct crash_copy *copy, uint64_t value);

#define CRASH_COMPACTIONS_MAX 1000 /* behind each other: they should come to an end */

qs_options crash_options(void);

/* Stores that have to page: little memory, small segments and files, checkpoints all the time. */
qs_options crash_paging_options(uint64_t random);
uint32_t crash_below(struct crash_work *work, uint32_t limit);
bool crash_chance(struct crash_work *work, uint32_t percent);

/* Did the call do what it says?  Where nothing fails it is a violation that it did not. */
bool crash_went_well(const struct crash_env *env, struct crash_report *report, bool has_faults,
                     qs_status status, const char *what);
/* The same of this work, which is over otherwise. */
bool crash_done(struct crash_work *work, qs_status status, const char *what);
void crash_note_durable(struct crash_work *work);
uint64_t crash_appended_lsn(struct crash_work *work);
struct crash_queue *crash_any_queue(struct crash_work *work);

/* Makes the engine forget, or know, what it would if it had that bug. */
void crash_plant(struct crash_work *work, bool was_opened);
bool crash_open_channels(struct crash_work *work);
bool crash_open_store(struct crash_work *work);
void crash_close_channels(struct crash_work *work);

/* In order, if the work is not over; frees everything in any case. */
void crash_close_store(struct crash_work *work);
void crash_work_reopen(struct crash_work *work);
void crash_work_new_channel(struct crash_work *work);
void crash_work_run(struct crash_work *work, uint32_t op_count);
void crash_declare(struct crash_work *work, struct crash_queue *queue);

/* Binds the one exchange to the other, or unbinds it. */
void crash_lead(struct crash_work *work);
void crash_bind(struct crash_work *work, struct crash_queue *queue);
void crash_delete(struct crash_work *work, struct crash_queue *queue);

/* Whatever is missing, one call at a time: cuts fall in between. */
void crash_set_up(struct crash_work *work);
void crash_work_topology(struct crash_work *work);
uint32_t crash_any_bytes(struct crash_work *work);
void crash_expect(const struct crash_work *work, struct crash_queue *queue, uint64_t id,
                  uint32_t bytes, bool persistent, uint32_t tx);

/* Priorities tell one message from another, too (crash_properties_are_right). */
qs_status crash_publish_one(struct crash_work *work, uint32_t channel, const char *exchange,
                            const char *key, uint64_t id, uint32_t bytes, bool persistent,
                            qs_receipt *receipt);
void crash_publish(struct crash_work *work, uint32_t channel, struct crash_queue *queue,
                   uint32_t bytes, bool persistent);
void crash_work_publish(struct crash_work *work);
void crash_fan_out(struct crash_work *work, uint32_t channel, uint32_t bytes);
void crash_work_fan_out(struct crash_work *work);

/* bytes_max 0: of any size.  queue NULL: each to any. */
void crash_publish_rows(struct crash_work *work, uint32_t channel, struct crash_queue *to,
                        uint32_t count, uint32_t bytes_max);
void crash_publish_batch(struct crash_work *work, uint32_t channel, uint32_t count);
void crash_work_batch(struct crash_work *work);
void crash_work_wait_confirms(struct crash_work *work);
void crash_work_sync(struct crash_work *work);
void crash_work_wait(struct crash_work *work);

/* Events instead of waiting: each tells which publishes became durable. */
void crash_work_events(struct crash_work *work);

/* NULL when the queue is empty, or the work over. */
struct crash_copy *crash_get(struct crash_work *work, struct crash_queue *queue, uint32_t channel,
                             uint32_t flags);
void crash_work_get(struct crash_work *work);

/* The same by a consumer that comes and goes; what it got stays out. */
void crash_consume(struct crash_work *work, struct crash_queue *queue, uint32_t count);
void crash_work_consume(struct crash_work *work);

/* Visits what is out on a channel up to a tag (0: everything). */
uint32_t crash_each_out(struct crash_work *work, uint32_t channel, uint64_t last_tag,
                        crash_copy_visitor *visit, uint64_t value);
void crash_set_ready(struct crash_copy *copy, uint64_t ignored);
struct crash_copy *crash_any_out(struct crash_work *work, uint32_t channel);

/* A reject without requeue is an ack as far as the disk goes. */
void crash_ack(struct crash_work *work, uint32_t channel, struct crash_copy *copy, bool multiple,
               bool rejects);
void crash_work_ack(struct crash_work *work);
void crash_requeue(struct crash_work *work, uint32_t channel, struct crash_copy *copy);
void crash_requeue_all(struct crash_work *work, uint32_t channel);
void crash_work_requeue(struct crash_work *work);
void crash_purge(struct crash_work *work, struct crash_queue *queue);
void crash_work_purge(struct crash_work *work);
void crash_tx(struct crash_work *work, bool rolls_back);
void crash_work_tx(struct crash_work *work);
void crash_work_checkpoint(struct crash_work *work);

/* What the pager's thread would do; false: it would never rest. */
bool crash_compact(qs_store *store, uint32_t limit, qs_status *status_out);
void crash_work_compact(struct crash_work *work);
void crash_work_mode(struct crash_work *work);

/* Many messages to one queue, in one record or each by itself. */
void crash_work_bulk(struct crash_work *work);

/* Small bodies to many queues: they are packed when they are paged. */
void crash_work_fan_bulk(struct crash_work *work);

/* Takes a good part of a queue: some of it is acked at once, some behind that later, some never. */
void crash_work_take_many(struct crash_work *work);

/* As one record batch without acks: its rows are the first ready ones, whatever was on the disk. */
void crash_work_get_batch(struct crash_work *work);

#endif
