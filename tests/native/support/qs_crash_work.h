/* A random workload on one store, with the model told of every call before and after it.
 *
 * Everything follows from one seed: the store runs without threads, so whoever waits commits.  A
 * call may fail only when the process is dead (crash_env.is_dead) or the disk was made to fail
 * (has_faults); the work ends there and the model keeps what was under way as uncertain. */
#ifndef QS_CRASH_WORK_H
#define QS_CRASH_WORK_H

#include "qstore/qstore.h"

#include "engine.h"
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
    bool pages;         /* more messages than fit, checkpoints, compaction */
    qs_options options; /* memory_budget 0: crash_options() */
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

/* Stores that have to page: little memory, small segments and files, checkpoints all the time. */
static inline qs_options crash_paging_options(uint64_t random)
{
    static const uint32_t entries[] = {16, 16, 64, 64, 256, 1024};
    static const uint64_t embeds[] = {0, 1, 100, 4096, 1 << 20};
    static const uint64_t budgets[] = {64 << 10, 64 << 10, 128 << 10, 256 << 10};
    static const uint64_t checkpoints[] = {0, 16 << 10, 64 << 10, 256 << 10};
    qs_options options = crash_options();

    (void)qsi_splitmix_next(&random);
    options.segment_entries = entries[qsi_splitmix_below(&random, 6)];
    options.embed_below = embeds[qsi_splitmix_below(&random, 5)];
    options.memory_budget = budgets[qsi_splitmix_below(&random, 4)];
    options.checkpoint_bytes = checkpoints[qsi_splitmix_below(&random, 4)];
    options.checkpoint_interval_ms = 0;
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
    if (!work->env->is_dead && !work->has_faults &&
        (status != QS_ECORRUPT || work->env->unread_percent == 0)) {
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

/* -- bugs in memory --------------------------------------------------------------------------- */

/* One reference more or less than there is for each stored body that recovery brought into memory. */
static inline void crash_plant_refs(qs_store *store, const struct qsi_queue *queue, bool more)
{
    for (uint32_t i = 0; i < queue->run_count; i++) {
        const struct qsi_run *run = qsi_queue_run_at(queue, i);

        for (uint32_t k = 0; run->journalled && k < run->count; k++) {
            struct qsi_messages view;
            struct qsi_body_ref ref;
            uint32_t row;

            qsi_messages_view(&view, qsi_run_record(run, k, &row));
            if (!qsi_messages_is_stored(&view, row)) {
                continue;
            }
            ref = qsi_messages_body_ref(&view, row);
            if (more) {
                qsi_message_store_add_refs(store->messages, &ref, 1, 0);
            } else {
                qsi_message_store_drop_ref(store->messages, &ref, false);
            }
        }
    }
}

static inline void crash_plant_in_segment(struct qsi_segment *segment, enum crash_bug bug)
{
    if (bug == CRASH_EARLY_REMOVAL) {
        segment->named = false;
    } else if (bug == CRASH_AREA_OVERWRITTEN) {
        segment->durable_area = 0;
    } else {
        segment->page_aligned = false;
    }
}

/* As if a checkpoint had been made. */
static inline void crash_plant_removal(qs_store *store)
{
    struct qsi_buf records = {0};
    uint32_t count = 0;

    if (qsi_message_store_snapshot(store->messages, &records, &count, NULL) == QS_OK) {
        (void)!qsi_message_store_unseal(store->messages, true, NULL);
    }
    qsi_buf_fini(&records);
}

/* Makes the engine forget, or know, what it would if it had that bug. */
static inline void crash_plant(struct crash_work *work, bool was_opened)
{
    enum crash_bug bug = work->env->bug;
    struct qsi_map_cursor cursor;
    struct store_queue *queue;

    if (bug < CRASH_EARLY_REMOVAL) {
        return;
    }
    if (bug == CRASH_EARLY_MESSAGE_REMOVAL) {
        crash_plant_removal(work->store);
        return;
    }
    qsi_mutex_lock(&work->store->mutex);
    cursor = qsi_map_begin(&work->store->queues_by_id);
    while (qsi_map_next(&work->store->queues_by_id, &cursor)) {
        queue = cursor.value;
        if (bug == CRASH_COUNTED_TWICE || bug == CRASH_DROPPED_TWICE) {
            if (was_opened) {
                crash_plant_refs(work->store, &queue->core, bug == CRASH_COUNTED_TWICE);
            }
            continue;
        }
        for (uint32_t i = 0; i < queue->core.segment_count; i++) {
            crash_plant_in_segment(qsi_queue_segment_at(&queue->core, i), bug);
        }
    }
    qsi_mutex_unlock(&work->store->mutex);
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
    qs_options options = work->options.memory_budget != 0 ? work->options : crash_options();

    if (!crash_done(work,
                    qs_store_open(&work->store, CRASH_PATH, &options, &work->env->env, QS_ERROR),
                    "open store")) {
        return false;
    }
    crash_plant(work, true);
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
    static const uint8_t levels[] = {14,
                                     'x',
                                     '-',
                                     'm',
                                     'a',
                                     'x',
                                     '-',
                                     'p',
                                     'r',
                                     'i',
                                     'o',
                                     'r',
                                     'i',
                                     't',
                                     'y',
                                     'B',
                                     CRASH_PRIORITY_MAX};
    uint32_t flags = queue->is_durable ? QS_DURABLE : 0;
    qs_slice arguments = {levels, queue->has_levels ? sizeof levels : 0};
    qs_declare_ok ok;

    CRASH_CHANGE(work, queue->exists, CRASH_PRESENT, "declare",
                 qs_channel_queue_declare(work->channels[CRASH_PLAIN_CHANNEL],
                                          crash_queue_name(queue), flags, arguments, &ok,
                                          QS_ERROR));
}

static inline void crash_declare_fan(struct crash_work *work)
{
    CRASH_CHANGE(work, work->model->fan_exists, CRASH_PRESENT, "declare exchange",
                 qs_channel_exchange_declare(work->channels[CRASH_PLAIN_CHANNEL], crash_text("fan"),
                                             crash_text("fanout"), QS_DURABLE, (qs_slice){0},
                                             QS_ERROR));
}

static inline void crash_declare_way(struct crash_work *work)
{
    static const uint8_t arguments[] = "\x12"
                                       "alternate-exchange"
                                       "S\0\0\0\3fan";

    CRASH_CHANGE(work, work->model->way_exists, CRASH_PRESENT, "declare exchange",
                 qs_channel_exchange_declare(
                     work->channels[CRASH_PLAIN_CHANNEL], crash_text("way"), crash_text("headers"),
                     QS_DURABLE, (qs_slice){arguments, sizeof arguments - 1}, QS_ERROR));
}

/* Binds the one exchange to the other, or unbinds it. */
static inline void crash_lead(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (work->model->way_leads == CRASH_ABSENT) {
        CRASH_CHANGE(work, work->model->way_leads, CRASH_PRESENT, "bind exchange",
                     qs_channel_exchange_bind(channel, crash_text("fan"), crash_text("way"),
                                              (qs_slice){0}, (qs_slice){0}, QS_ERROR));
    } else {
        CRASH_CHANGE(work, work->model->way_leads, CRASH_ABSENT, "unbind exchange",
                     qs_channel_exchange_unbind(channel, crash_text("fan"), crash_text("way"),
                                                (qs_slice){0}, (qs_slice){0}, QS_ERROR));
    }
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
        queue->is_lazy = CRASH_ABSENT;
        queue->count = 0;
    }
}

/* Whatever is missing, one call at a time: cuts fall in between. */
static inline void crash_set_up(struct crash_work *work)
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
    if (!work->is_over && work->model->next_id % 4 == 0) {
        crash_lead(work);
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
static inline void crash_expect_at(struct crash_queue *queue, uint64_t id, uint8_t priority,
                                   uint32_t bytes, bool persistent, uint32_t tx)
{
    struct crash_copy *copy;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    copy = crash_queue_add(queue, priority);
    copy->id = id;
    copy->body_bytes = bytes;
    copy->is_transient = !persistent || !queue->is_durable;
    copy->publish_lsn = CRASH_UNDER_WAY;
    copy->publish_tx = tx;
}

/* Has the message, published by itself, a priority? */
static inline bool crash_has_priority(const struct crash_work *work, uint64_t id)
{
    return work->pages || id % 4 != 0;
}

static inline void crash_expect(const struct crash_work *work, struct crash_queue *queue,
                                uint64_t id, uint32_t bytes, bool persistent, uint32_t tx)
{
    uint8_t priority = crash_has_priority(work, id) ? crash_priority(id) : 0;

    crash_expect_at(queue, id, priority, bytes, persistent, tx);
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

        for (uint32_t k = 0; k < queue->count; k++) {
            if (queue->copies[k].id >= first_id) {
                queue->copies[k].publish_lsn = receipt->lsn;
            }
        }
    }
    crash_note_durable(work);
}

/* Priorities tell one message from another, too (crash_properties_are_right). */
static inline qs_status crash_publish_one(struct crash_work *work, uint32_t channel,
                                          const char *exchange, const char *key, uint64_t id,
                                          uint32_t bytes, bool persistent, qs_receipt *receipt)
{
    static uint8_t body[CRASH_BODY_BYTES_MAX];
    const uint8_t plain[] = {0x10, 0x00, 2}; /* delivery mode, encoded */
    const uint8_t varied[] = {0x18, 0x00, persistent ? 2 : 1,
                              crash_priority(id)}; /* and priority */
    qs_slice properties = {plain, persistent ? sizeof plain : 0};

    if (crash_has_priority(work, id)) {
        properties = (qs_slice){varied, sizeof varied};
    }
    crash_body_fill(body, id, bytes);
    return qs_channel_publish(work->channels[channel], crash_text(exchange), crash_text(key),
                              properties, (qs_slice){body, bytes}, 0, receipt, QS_ERROR);
}

static inline void crash_publish(struct crash_work *work, uint32_t channel,
                                 struct crash_queue *queue, uint32_t bytes, bool persistent)
{
    uint64_t id = work->model->next_id++;
    qs_receipt receipt = {0};

    crash_expect(work, queue, id, bytes, persistent, 0);
    if (crash_done(
            work,
            crash_publish_one(work, channel, "", queue->name, id, bytes, persistent, &receipt),
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
            crash_expect(work, &work->model->queues[i], id, bytes, true, 0);
        }
    }
    if (crash_done(work,
                   crash_publish_one(work, channel, id % 2 == 0 ? "fan" : "way", "", id, bytes,
                                     true, &receipt),
                   "publish to fan")) {
        crash_published(work, id, &receipt);
    }
}

static inline void crash_work_fan_out(struct crash_work *work)
{
    crash_fan_out(work, crash_below(work, 2), crash_any_bytes(work));
}

/* bytes_max 0: of any size.  queue NULL: each to any. */
static inline void crash_publish_rows(struct crash_work *work, uint32_t channel,
                                      struct crash_queue *to, uint32_t count, uint32_t bytes_max)
{
    uint64_t first_id = work->model->next_id;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;
    bool has_modes = work->pages && crash_chance(work, 25);
    bool has_priorities = first_id % 2 == 0;

    qs_test_batch_init(&rows);
    for (uint32_t i = 0; i < count; i++) {
        struct crash_queue *queue = to != NULL ? to : crash_any_queue(work);
        uint64_t id = work->model->next_id++;
        uint32_t bytes =
            bytes_max == 0 ? crash_any_bytes(work) : 8 + crash_below(work, bytes_max - 8);

        bool is_persistent = !has_modes || crash_chance(work, 60);

        crash_body_fill(qs_test_batch_add(&rows, queue->name, bytes), id, bytes);
        if (has_modes) {
            qs_test_batch_set_mode(&rows, is_persistent ? 2 : 1);
        }
        if (has_priorities) {
            qs_test_batch_set_priority(&rows, crash_priority(id));
        }
        crash_expect_at(queue, id, has_priorities ? crash_priority(id) : 0, bytes, is_persistent,
                        0);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(work,
                   qs_channel_publish_batch(work->channels[channel], &batch, &receipt, QS_ERROR),
                   "publish batch")) {
        crash_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

static inline void crash_publish_batch(struct crash_work *work, uint32_t channel, uint32_t count)
{
    crash_publish_rows(work, channel, NULL, count, 0);
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

/* What the committer does when the store goes quiet. */
static inline void crash_work_mark(struct crash_work *work)
{
    qs_store *store = work->store;

    qsi_mutex_lock(&store->mutex);
    if (!store->failed && qsi_journal_has_unmarked(store->journal)) {
        qsi_commit_mark(store);
    }
    qsi_mutex_unlock(&store->mutex);
}

/* And the maintainer, some time later. */
static inline void crash_work_fill(struct crash_work *work)
{
    qs_store *store = work->store;

    qsi_mutex_lock(&store->mutex);
    if (!store->failed && qsi_journal_wants_fill(store->journal)) {
        qsi_commit_fill(store);
    }
    qsi_mutex_unlock(&store->mutex);
}

static inline void crash_work_sync(struct crash_work *work)
{
    if (crash_chance(work, 30)) {
        crash_work_mark(work);
    }
    if (crash_chance(work, 50)) {
        crash_work_fill(work);
    }
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
                      crash_publish_one(work, CRASH_TX_CHANNEL, part->queue != NULL ? "" : "fan",
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
        crash_expect(work, part->queue, part->id, part->bytes, true, tx);
    } else {
        for (int i = 0; part->bytes > 0 && i < CRASH_QUEUES; i++) {
            if (work->model->queues[i].is_bound == CRASH_PRESENT) {
                crash_expect(work, &work->model->queues[i], part->id, part->bytes, true, tx);
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

/* -- memory and disk -------------------------------------------------------------------------- */

#define CRASH_COMPACTIONS_MAX 1000 /* behind each other: they should come to an end */

static inline void crash_work_checkpoint(struct crash_work *work)
{
    uint64_t lsn = crash_appended_lsn(work);
    qs_status status = qs_store_checkpoint(work->store, QS_ERROR);

    if (status == QS_ECORRUPT && work->env->unread_percent > 0) {
        return; /* it is held up: the journal has everything */
    }
    if (crash_done(work, status, "checkpoint")) {
        crash_note_durable(work);
        if (lsn > work->model->durable_lsn) {
            crash_violation(work->report, "a checkpoint came to its end before the journal did");
        }
    }
}

/* What the pager's thread would do; false: it would never rest. */
static inline bool crash_compact(qs_store *store, uint32_t limit, qs_status *status_out)
{
    uint32_t count = 0;
    qs_error error = {0};

    qsi_mutex_lock(&store->mutex);
    *status_out = store->failed ? QS_ESTORE_FAILED : qsi_pager_release(store, &error);
    while (*status_out == QS_OK && count < limit && qsi_pager_compact(store, &error)) {
        *status_out = qsi_pager_release(store, &error);
        count++;
    }
    if (store->failed) {
        *status_out = QS_ESTORE_FAILED;
        error = store->failure;
    }
    qsi_mutex_unlock(&store->mutex);
    if (*status_out != QS_OK) {
        qs_test_error = error;
    }
    return count < CRASH_COMPACTIONS_MAX;
}

static inline void crash_work_compact(struct crash_work *work)
{
    qs_status status;

    if (!crash_compact(work->store,
                       crash_chance(work, 50) ? 1 + crash_below(work, 3) : CRASH_COMPACTIONS_MAX,
                       &status)) {
        crash_violation(work->report, "compaction never ends");
    }
    crash_done(work, status, "compact");
}

static inline void crash_work_mode(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);

    if (queue->exists == CRASH_PRESENT) {
        bool lazy = crash_chance(work, 50);

        CRASH_CHANGE(work, queue->is_lazy, lazy ? CRASH_PRESENT : CRASH_ABSENT, "set mode",
                     qs_store_set_queue_mode(work->store, crash_queue_name(queue), lazy, QS_ERROR));
    }
}

/* Many messages to one queue, in one record or each by itself. */
static inline void crash_work_bulk(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 4 + crash_below(work, 60);
    uint32_t bytes_max = crash_chance(work, 60) ? 16 + crash_below(work, 300) : 3000;

    if (crash_chance(work, 50)) {
        crash_publish_rows(work, channel, queue, count, bytes_max);
        return;
    }
    for (count /= 2; count > 0 && !work->is_over; count--) {
        crash_publish(work, channel, queue, 8 + crash_below(work, bytes_max - 8),
                      crash_chance(work, 90));
    }
}

/* Small bodies to many queues: they are packed when they are paged. */
static inline void crash_work_fan_bulk(struct crash_work *work)
{
    uint32_t count = 1 + crash_below(work, 20);

    for (int i = 0; i < CRASH_QUEUES && !work->is_over; i++) {
        struct crash_queue *queue = &work->model->queues[i];

        if (queue->is_bound == CRASH_ABSENT && queue->exists == CRASH_PRESENT) {
            crash_bind(work, queue);
        }
    }
    while (count-- > 0 && !work->is_over) {
        crash_fan_out(work, crash_below(work, 2), 8 + crash_below(work, 200));
    }
}

/* Takes a good part of a queue: some of it is acked at once, some behind that later, some never. */
static inline void crash_work_take_many(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);
    uint32_t count = 1 + crash_below(work, 80);
    uint32_t acked = crash_below(work, 101);
    struct crash_queue *queue = crash_any_queue(work);

    while (count-- > 0 && !work->is_over) {
        struct crash_copy *copy = crash_get(work, queue, channel, 0);

        if (copy == NULL) {
            return;
        }
        if (crash_chance(work, acked)) {
            crash_ack(work, channel, copy, false, crash_chance(work, 30));
        }
    }
}

/* As one record batch without acks: its rows are the first ready ones, whatever was on the disk. */
static inline void crash_work_get_batch(struct crash_work *work)
{
    uint32_t count = 1 + crash_below(work, 60);
    uint64_t bytes = crash_chance(work, 50) ? 1 << 20 : 1 + crash_below(work, 20000);
    struct crash_queue *queue = crash_any_queue(work);
    struct ArrowSchema schema;
    struct ArrowArray array;
    uint64_t left = count;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    for (uint32_t i = 0; i < queue->count && left > 0; i++) {
        if (queue->copies[i].tag == 0 && queue->copies[i].settle_lsn == 0) {
            queue->copies[i].settle_lsn = CRASH_UNDER_WAY;
            left--;
        }
    }
    if (!crash_done(work,
                    qs_channel_get_batch(work->channels[CRASH_PLAIN_CHANNEL],
                                         crash_queue_name(queue), count, bytes, QS_NO_ACK, 0,
                                         &schema, &array, QS_ERROR),
                    "get batch")) {
        return;
    }
    if ((uint64_t)array.length > count - left || (array.length == 0 && left < count)) {
        crash_violation(work->report, "%s: %d rows where %d messages are ready", queue->name,
                        (int)array.length, (int)(count - left));
    }
    left = (uint64_t)array.length;
    for (uint32_t i = 0; i < queue->count; i++) {
        struct crash_copy *copy = &queue->copies[i];

        if (copy->settle_lsn == CRASH_UNDER_WAY) {
            copy->settle_lsn = left > 0 ? crash_appended_lsn(work) : 0;
            left -= left > 0;
        }
    }
    array.release(&array);
    schema.release(&schema);
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

static inline void crash_work_once_paging(struct crash_work *work)
{
    uint32_t ticket = crash_below(work, 100);

    if (ticket < 10) {
        crash_work_bulk(work);
    } else if (ticket < 14) {
        crash_work_fan_bulk(work);
    } else if (ticket < 24) {
        crash_work_take_many(work);
    } else if (ticket < 26) {
        crash_work_get_batch(work);
    } else if (ticket < 31) {
        crash_work_checkpoint(work);
    } else if (ticket < 36) {
        crash_work_compact(work);
    } else if (ticket < 39) {
        crash_work_mode(work);
    } else {
        crash_work_once(work);
    }
}

static inline void crash_work_run(struct crash_work *work, uint32_t op_count)
{
    for (uint32_t i = 0; i < op_count && !work->is_over; i++) {
        crash_plant(work, false);
        if (work->pages) {
            crash_work_once_paging(work);
        } else {
            crash_work_once(work);
        }
        if (i % 8 == 7) {
            crash_forget_settled(work->model);
        }
    }
}

#endif
