/* A random workload on one store, with the model told of every call before and after it.
 *
 * Everything follows from one seed: the store runs without threads, so whoever waits commits.  A
 * call may fail only when the process is dead (crash_env.is_dead) or the disk was made to fail
 * (has_faults); the work ends there and the model keeps what was under way as uncertain. */
#ifndef QS_CRASH_WORK_H
#define QS_CRASH_WORK_H

#include "qstore/qstore.h"

#include "qs_crash_env.h"
#include "qs_crash_model.h"
#include "qs_test.h"
#include "qs_test_batch.h"
#include "splitmix.h"

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
    qs_store *store;
    qs_channel *channels[CRASH_CHANNELS];
    uint64_t confirm_lsns[CRASH_CONFIRMS_MAX]; /* by publish number of the confirm channel */
};

static inline qs_options crash_options(void)
{
    qs_options options;

    qs_options_default(&options);
    options.embed_below = 200;
    options.journal_file_bytes = 64 << 10;
    options.message_file_bytes = 64 << 10;
    options.background = false;
    return options;
}

static inline uint32_t crash_below(struct crash_work *work, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&work->random, limit);
}

static inline bool crash_chance(struct crash_work *work, uint32_t percent)
{
    return crash_below(work, 100) < percent;
}

/* Did the call do what it says?  Otherwise the work is over. */
static inline bool crash_done(struct crash_work *work, qs_status status, const char *what)
{
    if (status == QS_OK && !work->env->is_dead) {
        return true;
    }
    if (!work->env->is_dead && !work->has_faults) {
        crash_violation(work->report, "%s on a healthy disk: %s: %s", what, qs_status_name(status),
                        qs_test_error.text);
    }
    work->is_over = true;
    return false;
}

static inline void crash_note_durable(struct crash_work *work)
{
    if (!work->env->is_dead) {
        work->model->durable_lsn = qs_store_durable_lsn(work->store);
    }
}

static inline uint64_t crash_appended_lsn(struct crash_work *work)
{
    qs_stats stats;

    qs_store_stats(work->store, &stats);
    return stats.appended_lsn;
}

static inline struct crash_queue *crash_any_queue(struct crash_work *work)
{
    return &work->model->queues[crash_below(work, CRASH_QUEUES)];
}

/* -- opening and closing ---------------------------------------------------------------------- */

static inline bool crash_open_channels(struct crash_work *work)
{
    for (int i = 0; i < CRASH_CHANNELS; i++) {
        if (!crash_done(work, qs_channel_open(&work->channels[i], work->store, QS_ERROR), "open")) {
            return false;
        }
    }
    return crash_done(work, qs_channel_confirm_select(work->channels[0], QS_ERROR), "confirm") &&
           crash_done(work, qs_channel_tx_select(work->channels[CRASH_TX_CHANNEL], QS_ERROR), "tx");
}

static inline bool crash_open_store(struct crash_work *work)
{
    qs_options options = crash_options();

    if (!crash_done(work,
                    qs_store_open(&work->store, CRASH_PATH, &options, &work->env->env, QS_ERROR),
                    "open store")) {
        return false;
    }
    crash_note_durable(work);
    return crash_open_channels(work);
}

static inline void crash_close_channels(struct crash_work *work)
{
    for (int i = 0; i < CRASH_CHANNELS; i++) {
        qs_channel_close(work->channels[i]);
        work->channels[i] = NULL;
    }
}

/* In order, if the work is not over; frees everything in any case. */
static inline void crash_close_store(struct crash_work *work)
{
    qs_status status;

    crash_close_channels(work);
    status = qs_store_close(work->store, QS_ERROR);
    work->store = NULL;
    if (!work->is_over && crash_done(work, status, "close")) {
        crash_model_close(work->model);
    }
}

/* -- topology --------------------------------------------------------------------------------- */

/* Tells the model that a thing is about to change, makes the call, and tells how it ended. */
#define CRASH_CHANGE(work, certainty, becomes, what, call) \
    do {                                                   \
        (certainty) = CRASH_UNCERTAIN;                     \
        if (crash_done(work, call, what)) {                \
            (certainty) = (becomes);                       \
            crash_note_durable(work);                      \
        }                                                  \
    } while (0)

static inline void crash_declare(struct crash_work *work, struct crash_queue *queue)
{
    uint32_t flags = queue->is_durable ? QS_DURABLE : 0;
    qs_declare_ok ok;

    CRASH_CHANGE(work, queue->exists, CRASH_PRESENT, "declare",
                 qs_channel_queue_declare(work->channels[CRASH_PLAIN_CHANNEL],
                                          crash_queue_name(queue), flags, (qs_slice){0}, &ok,
                                          QS_ERROR));
}

static inline void crash_declare_fan(struct crash_work *work)
{
    CRASH_CHANGE(work, work->model->fan_exists, CRASH_PRESENT, "declare exchange",
                 qs_channel_exchange_declare(work->channels[CRASH_PLAIN_CHANNEL], crash_text("fan"),
                                             crash_text("fanout"), QS_DURABLE, (qs_slice){0},
                                             QS_ERROR));
}

static inline void crash_bind(struct crash_work *work, struct crash_queue *queue)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (queue->is_bound == CRASH_ABSENT) {
        CRASH_CHANGE(work, queue->is_bound, CRASH_PRESENT, "bind",
                     qs_channel_queue_bind(channel, crash_queue_name(queue), crash_text("fan"),
                                           (qs_slice){0}, (qs_slice){0}, QS_ERROR));
    } else {
        CRASH_CHANGE(work, queue->is_bound, CRASH_ABSENT, "unbind",
                     qs_channel_queue_unbind(channel, crash_queue_name(queue), crash_text("fan"),
                                             (qs_slice){0}, (qs_slice){0}, QS_ERROR));
    }
}

static inline void crash_delete(struct crash_work *work, struct crash_queue *queue)
{
    uint64_t count;

    CRASH_CHANGE(work, queue->exists, CRASH_ABSENT, "delete",
                 qs_channel_queue_delete(work->channels[CRASH_PLAIN_CHANNEL],
                                         crash_queue_name(queue), 0, &count, QS_ERROR));
    if (!work->is_over) {
        queue->is_bound = CRASH_ABSENT;
        queue->count = 0;
    }
}

/* Whatever is missing, one call at a time: cuts fall in between. */
static inline void crash_set_up(struct crash_work *work)
{
    if (work->model->fan_exists != CRASH_PRESENT) {
        crash_declare_fan(work);
    }
    for (int i = 0; i < CRASH_QUEUES && !work->is_over; i++) {
        if (work->model->queues[i].exists != CRASH_PRESENT) {
            crash_declare(work, &work->model->queues[i]);
        }
    }
}

static inline void crash_work_topology(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    if (queue->exists == CRASH_ABSENT) {
        crash_declare(work, queue);
    } else if (crash_chance(work, 25)) {
        crash_delete(work, queue);
    } else {
        crash_bind(work, queue);
    }
}

/* -- publishing ------------------------------------------------------------------------------- */

static inline uint32_t crash_any_bytes(struct crash_work *work)
{
    switch (crash_below(work, 16)) {
    case 0:
        return 8000 + crash_below(work, 12000); /* a few of these fill a message file */
    case 1:
    case 2:
    case 3:
        return 200 + crash_below(work, 2000);
    default:
        return 8 + crash_below(work, 150);
    }
}

/* The message as the model of its queue sees it while the call is under way. */
static inline void crash_expect(struct crash_queue *queue, uint64_t id, uint32_t bytes,
                                bool persistent, uint32_t tx)
{
    struct crash_copy *copy;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    copy = crash_queue_add(queue);
    copy->id = id;
    copy->body_bytes = bytes;
    copy->is_transient = !persistent || !queue->is_durable;
    copy->publish_lsn = CRASH_UNDER_WAY;
    copy->publish_tx = tx;
}

/* A call that published the messages from first_id on came back. */
static inline void crash_published(struct crash_work *work, uint64_t first_id,
                                   const qs_receipt *receipt)
{
    for (uint64_t number = receipt->first_number; number != 0 && number <= receipt->last_number;
         number++) {
        work->confirm_lsns[number % CRASH_CONFIRMS_MAX] = receipt->lsn;
    }
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        for (uint32_t k = queue->count; k-- > 0 && queue->copies[k].id >= first_id;) {
            queue->copies[k].publish_lsn = receipt->lsn;
        }
    }
    crash_note_durable(work);
}

static const uint8_t crash_persistent[] = {0x10, 0x00, 2}; /* delivery mode 2, encoded */

static inline qs_status crash_publish_one(qs_channel *channel, const char *exchange,
                                          const char *key, uint64_t id, uint32_t bytes,
                                          bool persistent, qs_receipt *receipt)
{
    static uint8_t body[CRASH_BODY_BYTES_MAX];
    qs_slice properties = {crash_persistent, persistent ? sizeof crash_persistent : 0};

    crash_body_fill(body, id, bytes);
    return qs_channel_publish(channel, crash_text(exchange), crash_text(key), properties,
                              (qs_slice){body, bytes}, 0, receipt, QS_ERROR);
}

static inline void crash_publish(struct crash_work *work, uint32_t channel,
                                 struct crash_queue *queue, uint32_t bytes, bool persistent)
{
    uint64_t id = work->model->next_id++;
    qs_receipt receipt = {0};

    crash_expect(queue, id, bytes, persistent, 0);
    if (crash_done(work,
                   crash_publish_one(work->channels[channel], "", queue->name, id, bytes,
                                     persistent, &receipt),
                   "publish")) {
        crash_published(work, id, &receipt);
    }
}

static inline void crash_work_publish(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);
    uint32_t bytes = crash_any_bytes(work);
    bool persistent = crash_chance(work, 85);

    crash_publish(work, crash_below(work, 2), queue, bytes, persistent);
}

static inline void crash_fan_out(struct crash_work *work, uint32_t channel, uint32_t bytes)
{
    uint64_t id = work->model->next_id++;
    qs_receipt receipt = {0};

    for (int i = 0; i < CRASH_QUEUES; i++) {
        if (work->model->queues[i].is_bound == CRASH_PRESENT) {
            crash_expect(&work->model->queues[i], id, bytes, true, 0);
        }
    }
    if (crash_done(work,
                   crash_publish_one(work->channels[channel], "fan", "", id, bytes, true, &receipt),
                   "publish to fan")) {
        crash_published(work, id, &receipt);
    }
}

static inline void crash_work_fan_out(struct crash_work *work)
{
    crash_fan_out(work, crash_below(work, 2), crash_any_bytes(work));
}

static inline void crash_publish_batch(struct crash_work *work, uint32_t channel, uint32_t count)
{
    uint64_t first_id = work->model->next_id;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < count; i++) {
        struct crash_queue *queue = crash_any_queue(work);
        uint64_t id = work->model->next_id++;
        uint32_t bytes = crash_any_bytes(work);

        crash_body_fill(qs_test_batch_add(&rows, queue->name, bytes), id, bytes);
        crash_expect(queue, id, bytes, true, 0);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(work,
                   qs_channel_publish_batch(work->channels[channel], &batch, &receipt, QS_ERROR),
                   "publish batch")) {
        crash_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

static inline void crash_work_batch(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);

    crash_publish_batch(work, channel, 1 + crash_below(work, 12));
}

/* -- waiting ---------------------------------------------------------------------------------- */

/* What a confirm says must be so: the journal is durable up to the message. */
static inline void crash_check_confirm(struct crash_work *work, uint64_t number)
{
    uint64_t lsn = work->confirm_lsns[number % CRASH_CONFIRMS_MAX];

    if (!work->is_over && lsn > work->model->durable_lsn) {
        crash_violation(work->report,
                        "publish %" PRIu64 " is confirmed at LSN %" PRIu64 ", durable is %" PRIu64,
                        number, lsn, work->model->durable_lsn);
    }
}

static inline void crash_check_nack(struct crash_work *work)
{
    if (!work->has_faults && !work->env->is_dead) {
        crash_violation(work->report, "a publish was nacked on a healthy disk");
    }
}

static inline void crash_work_wait_confirms(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_CONFIRM_CHANNEL];
    bool nacked = false;

    if (!crash_done(work, qs_channel_wait_confirms(channel, QS_FOREVER, &nacked, QS_ERROR),
                    "wait for confirms")) {
        return;
    }
    crash_note_durable(work);
    if (nacked) {
        crash_check_nack(work);
    } else {
        crash_check_confirm(work, qs_channel_next_publish_number(channel) - 1);
    }
}

static inline void crash_work_sync(struct crash_work *work)
{
    if (crash_done(work, qs_store_sync(work->store, QS_ERROR), "sync")) {
        crash_note_durable(work);
        if (crash_appended_lsn(work) != work->model->durable_lsn) {
            crash_violation(work->report, "sync returned before all was durable");
        }
    }
}

static inline void crash_work_wait(struct crash_work *work)
{
    if (crash_chance(work, 50)) {
        crash_work_wait_confirms(work);
    } else {
        crash_work_sync(work);
    }
}

/* Events instead of waiting: each tells which publishes became durable. */
static inline void crash_work_events(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_CONFIRM_CHANNEL];
    qs_event event;

    crash_note_durable(work);
    while (qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event, NULL) == QS_OK) {
        if (event.kind == QS_EVENT_NACK) {
            crash_check_nack(work);
        } else {
            crash_check_confirm(work, event.publish_number);
        }
    }
}

/* -- receiving -------------------------------------------------------------------------------- */

static inline struct crash_copy *crash_first_ready(struct crash_queue *queue)
{
    for (uint32_t i = 0; i < queue->count; i++) {
        if (queue->copies[i].tag == 0 && queue->copies[i].settle_lsn == 0) {
            return &queue->copies[i];
        }
    }
    return NULL;
}

/* A delivery must be the first ready message of its queue, whole. */
static inline void crash_delivered(struct crash_work *work, const struct crash_queue *queue,
                                   struct crash_copy *copy, const qs_message *message,
                                   uint32_t channel)
{
    if (!crash_body_is_right(message->body, copy->id, copy->body_bytes)) {
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

/* NULL when the queue is empty, or the work over. */
static inline struct crash_copy *crash_get(struct crash_work *work, struct crash_queue *queue,
                                           uint32_t channel, uint32_t flags)
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

static inline void crash_work_get(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 1 + crash_below(work, 5);
    uint32_t flags = crash_chance(work, 25) ? QS_NO_ACK : 0;
    struct crash_queue *queue = crash_any_queue(work);

    while (count-- > 0 && crash_get(work, queue, channel, flags) != NULL) {
    }
}

/* The same by a consumer that comes and goes; what it got stays out. */
static inline void crash_consume(struct crash_work *work, struct crash_queue *queue, uint32_t count)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];
    char tag[256];

    if (queue->exists != CRASH_PRESENT ||
        !crash_done(work,
                    qs_channel_consume(channel, crash_queue_name(queue), crash_text("c"), 0,
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
    crash_done(work, qs_channel_cancel(channel, crash_text("c"), QS_ERROR), "cancel");
}

static inline void crash_work_consume(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    crash_consume(work, queue, crash_below(work, 5));
}

/* -- settling --------------------------------------------------------------------------------- */

typedef void crash_copy_visitor(struct crash_copy *copy, uint64_t value);

/* Visits what is out on a channel up to a tag (0: everything). */
static inline uint32_t crash_each_out(struct crash_work *work, uint32_t channel, uint64_t last_tag,
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

static inline void crash_set_settling(struct crash_copy *copy, uint64_t lsn)
{
    if (copy->settle_lsn == 0 || copy->settle_lsn == CRASH_UNDER_WAY) {
        copy->settle_lsn = lsn;
    }
}

static inline void crash_set_ready(struct crash_copy *copy, uint64_t ignored)
{
    (void)ignored;
    if (copy->settle_lsn == 0) {
        copy->tag = 0;
    }
}

/* Settled copies are out of the way of later tags. */
static inline void crash_set_settled(struct crash_copy *copy, uint64_t lsn)
{
    if (copy->settle_lsn == CRASH_UNDER_WAY) {
        copy->settle_lsn = lsn;
        copy->channel = CRASH_CHANNELS;
    }
}

static inline struct crash_copy *crash_any_out(struct crash_work *work, uint32_t channel)
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

/* A reject without requeue is an ack as far as the disk goes. */
static inline void crash_ack(struct crash_work *work, uint32_t channel, struct crash_copy *copy,
                             bool multiple, bool rejects)
{
    uint64_t tag = copy->tag;
    qs_status status;

    if (multiple) {
        crash_each_out(work, channel, tag, crash_set_settling, CRASH_UNDER_WAY);
    } else {
        copy->settle_lsn = CRASH_UNDER_WAY;
    }
    status = (rejects ? qs_channel_nack : qs_channel_ack)(work->channels[channel], tag,
                                                          multiple ? QS_MULTIPLE : 0, QS_ERROR);
    if (crash_done(work, status, "ack")) {
        crash_each_out(work, channel, 0, crash_set_settled, crash_appended_lsn(work));
        crash_note_durable(work);
    }
}

static inline void crash_work_ack(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    struct crash_copy *copy = crash_any_out(work, channel);
    bool multiple = crash_chance(work, 30);

    if (copy != NULL) {
        crash_ack(work, channel, copy, multiple, crash_chance(work, 30));
    }
}

static inline void crash_requeue(struct crash_work *work, uint32_t channel, struct crash_copy *copy)
{
    if (crash_done(work, qs_channel_nack(work->channels[channel], copy->tag, QS_REQUEUE, QS_ERROR),
                   "requeue")) {
        copy->tag = 0;
    }
}

static inline void crash_requeue_all(struct crash_work *work, uint32_t channel)
{
    if (crash_done(work, qs_channel_recover(work->channels[channel], QS_REQUEUE, QS_ERROR),
                   "recover")) {
        crash_each_out(work, channel, 0, crash_set_ready, 0);
    }
}

static inline void crash_work_requeue(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    struct crash_copy *copy = crash_any_out(work, channel);

    if (copy != NULL && crash_chance(work, 60)) {
        crash_requeue(work, channel, copy);
    } else {
        crash_requeue_all(work, channel);
    }
}

static inline void crash_purge(struct crash_work *work, struct crash_queue *queue)
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
                                           crash_queue_name(queue), &count, QS_ERROR),
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

static inline void crash_work_purge(struct crash_work *work)
{
    crash_purge(work, crash_any_queue(work));
}

/* -- transactions ----------------------------------------------------------------------------- */

struct crash_tx_part {         /* of a transaction that is not committed yet */
    struct crash_queue *queue; /* NULL: the fanout exchange */
    uint64_t id;
    uint32_t bytes;
    struct crash_copy *acked; /* instead of a publish */
};

static inline bool crash_tx_publish(struct crash_work *work, struct crash_tx_part *part)
{
    qs_receipt receipt;

    *part = (struct crash_tx_part){
        .queue = crash_chance(work, 75) ? crash_any_queue(work) : NULL,
        .id = work->model->next_id++,
        .bytes = crash_any_bytes(work),
    };
    return crash_done(work,
                      crash_publish_one(work->channels[CRASH_TX_CHANNEL],
                                        part->queue != NULL ? "" : "fan",
                                        part->queue != NULL ? part->queue->name : "", part->id,
                                        part->bytes, true, &receipt),
                      "publish in a transaction");
}

static inline bool crash_tx_ack(struct crash_work *work, struct crash_tx_part *part)
{
    *part = (struct crash_tx_part){0};
    part->acked = crash_get(work, crash_any_queue(work), CRASH_TX_CHANNEL, 0);
    if (part->acked == NULL) {
        return !work->is_over;
    }
    return crash_done(
        work, qs_channel_ack(work->channels[CRASH_TX_CHANNEL], part->acked->tag, 0, QS_ERROR),
        "ack in a transaction");
}

static inline uint32_t crash_tx_fill(struct crash_work *work, struct crash_tx_part *parts)
{
    uint32_t count = 1 + crash_below(work, CRASH_TX_PARTS_MAX);

    for (uint32_t i = 0; i < count; i++) {
        if (!(crash_chance(work, 60) ? crash_tx_publish(work, &parts[i])
                                     : crash_tx_ack(work, &parts[i]))) {
            return 0;
        }
    }
    return count;
}

static inline void crash_tx_expect(struct crash_work *work, const struct crash_tx_part *part,
                                   uint32_t tx)
{
    if (part->acked != NULL) {
        part->acked->settle_lsn = CRASH_UNDER_WAY;
        part->acked->settle_tx = tx;
    } else if (part->queue != NULL) {
        crash_expect(part->queue, part->id, part->bytes, true, tx);
    } else {
        for (int i = 0; part->bytes > 0 && i < CRASH_QUEUES; i++) {
            if (work->model->queues[i].is_bound == CRASH_PRESENT) {
                crash_expect(&work->model->queues[i], part->id, part->bytes, true, tx);
            }
        }
    }
}

static inline void crash_tx_committed(struct crash_work *work, uint32_t tx)
{
    work->model->txs[tx - 1] = CRASH_PRESENT;
    crash_note_durable(work);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy *copy = &queue->copies[k];

            if (copy->publish_tx == tx) {
                copy->publish_lsn = work->model->durable_lsn;
            }
            if (copy->settle_tx == tx) {
                copy->settle_lsn = work->model->durable_lsn;
            }
        }
    }
}

static inline void crash_tx(struct crash_work *work, bool rolls_back)
{
    struct crash_tx_part parts[CRASH_TX_PARTS_MAX];
    uint32_t count, tx = work->model->tx_count + 1;
    bool repeated = false;
    char text[16];

    count = tx <= CRASH_TXS_MAX ? crash_tx_fill(work, parts) : 0;
    if (count == 0) {
        return;
    }
    if (rolls_back) { /* nothing of it happened, then */
        crash_done(work, qs_channel_tx_rollback(work->channels[CRASH_TX_CHANNEL], QS_ERROR),
                   "rollback");
        return;
    }
    work->model->tx_count = tx;
    work->model->txs[tx - 1] = CRASH_UNCERTAIN;
    /* Acks first: adding copies moves the others. */
    for (int is_ack = 1; is_ack >= 0; is_ack--) {
        for (uint32_t i = 0; i < count; i++) {
            if ((parts[i].acked != NULL) == (is_ack == 1)) {
                crash_tx_expect(work, &parts[i], tx);
            }
        }
    }
    if (crash_done(work,
                   qs_channel_tx_commit(work->channels[CRASH_TX_CHANNEL],
                                        crash_tx_key(text, tx - 1), &repeated, QS_ERROR),
                   "commit")) {
        crash_tx_committed(work, tx);
    }
}

static inline void crash_work_tx(struct crash_work *work)
{
    crash_tx(work, crash_chance(work, 15));
}

/* -- all of it -------------------------------------------------------------------------------- */

/* Forgets what can never matter again, so that long runs stay fast. */
static inline void crash_forget_settled(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];
        uint32_t kept = 0;

        for (uint32_t k = 0; k < queue->count; k++) {
            const struct crash_copy *copy = &queue->copies[k];

            /* Its coming back would be reported as a message that was never published. */
            if (copy->settle_lsn == 0 || copy->settle_lsn > model->durable_lsn) {
                queue->copies[kept++] = *copy;
            }
        }
        queue->count = kept;
    }
}

static inline void crash_work_reopen(struct crash_work *work)
{
    crash_close_store(work);
    if (!work->is_over && crash_open_store(work)) {
        crash_set_up(work);
    }
}

static inline void crash_work_new_channel(struct crash_work *work)
{
    uint32_t channel = CRASH_PLAIN_CHANNEL;

    qs_channel_close(work->channels[channel]);
    work->channels[channel] = NULL;
    crash_each_out(work, channel, 0, crash_set_ready, 0);
    crash_done(work, qs_channel_open(&work->channels[channel], work->store, QS_ERROR), "open");
}

static inline void crash_work_once(struct crash_work *work)
{
    uint32_t ticket = crash_below(work, 100);

    if (ticket < 26) {
        crash_work_publish(work);
    } else if (ticket < 34) {
        crash_work_fan_out(work);
    } else if (ticket < 42) {
        crash_work_batch(work);
    } else if (ticket < 54) {
        crash_work_wait(work);
    } else if (ticket < 57) {
        crash_work_events(work);
    } else if (ticket < 67) {
        crash_work_get(work);
    } else if (ticket < 71) {
        crash_work_consume(work);
    } else if (ticket < 80) {
        crash_work_ack(work);
    } else if (ticket < 84) {
        crash_work_requeue(work);
    } else if (ticket < 86) {
        crash_work_purge(work);
    } else if (ticket < 89) {
        crash_work_topology(work);
    } else if (ticket < 97) {
        crash_work_tx(work);
    } else if (ticket < 98) {
        crash_work_new_channel(work);
    } else {
        crash_work_reopen(work);
    }
}

static inline void crash_work_run(struct crash_work *work, uint32_t op_count)
{
    for (uint32_t i = 0; i < op_count && !work->is_over; i++) {
        crash_work_once(work);
        if (i % 8 == 7) {
            crash_forget_settled(work->model);
        }
    }
}

#endif
