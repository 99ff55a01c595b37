/* The work itself: a store that is opened, worked on and closed; bugs planted in it. */
#include "crash_work.h"

#include "qs_test_calls.h"

qs_options crash_options(void)
{
    qs_options options = qs_test_small_options();

    options.embed_below = 200;
    return options;
}

qs_options crash_paging_options(uint64_t random)
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

uint32_t crash_below(struct crash_work *work, uint32_t limit)
{
    return (uint32_t)qsi_splitmix_below(&work->random, limit);
}

bool crash_chance(struct crash_work *work, uint32_t percent)
{
    return crash_below(work, 100) < percent;
}

bool crash_went_well(const struct crash_env *env, struct crash_report *report, bool has_faults,
                     qs_status status, const char *what)
{
    if (status == QS_OK && !env->is_dead) {
        return true;
    }
    if (!env->is_dead && !has_faults && (status != QS_ECORRUPT || env->unread_percent == 0)) {
        crash_violation(report, "%s on a healthy disk: %s: %s", what, qs_status_name(status),
                        qs_test_error.text);
    }
    return false;
}

bool crash_done(struct crash_work *work, qs_status status, const char *what)
{
    bool is_done = crash_went_well(work->env, work->report, work->has_faults, status, what);

    work->is_over = work->is_over || !is_done;
    return is_done;
}

void crash_note_durable(struct crash_work *work)
{
    if (!work->env->is_dead) {
        work->model->durable_lsn = qs_store_durable_lsn(work->store);
    }
}

uint64_t crash_appended_lsn(struct crash_work *work)
{
    qs_stats stats;

    qs_store_stats(work->store, &stats);
    return stats.appended_lsn;
}

struct crash_queue *crash_any_queue(struct crash_work *work)
{
    return &work->model->queues[crash_below(work, CRASH_QUEUES)];
}

/* -- bugs in memory --------------------------------------------------------------------------- */

/* One reference more or less than there is for each stored body that recovery brought into
 * memory. */
static void crash_plant_refs(qs_store *store, const struct qsi_queue *queue, bool more)
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

static void crash_plant_in_segment(struct qsi_segment *segment, enum crash_bug bug)
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
static void crash_plant_removal(qs_store *store)
{
    struct qsi_buf records = {0};
    uint32_t count = 0;

    if (qsi_message_store_snapshot(store->messages, &records, &count, NULL) == QS_OK) {
        (void)!qsi_message_store_unseal(store->messages, true, NULL);
    }
    qsi_buf_fini(&records);
}

void crash_plant(struct crash_work *work, bool was_opened)
{
    enum crash_bug bug = work->env->bug;
    struct qsi_map_cursor cursor;
    struct qsi_store_queue *queue;

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

bool crash_open_channels(struct crash_work *work)
{
    for (int i = 0; i < CRASH_CHANNELS; i++) {
        if (!crash_done(work, qs_channel_open(&work->channels[i], work->store, QS_ERROR), "open")) {
            return false;
        }
    }
    return crash_done(work, qs_channel_confirm_select(work->channels[0], QS_ERROR), "confirm") &&
           crash_done(work, qs_channel_tx_select(work->channels[CRASH_TX_CHANNEL], QS_ERROR), "tx");
}

bool crash_open_store(struct crash_work *work)
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

void crash_close_channels(struct crash_work *work)
{
    for (int i = 0; i < CRASH_CHANNELS; i++) {
        qs_channel_close(work->channels[i]);
        work->channels[i] = NULL;
    }
}

void crash_close_store(struct crash_work *work)
{
    qs_status status;

    crash_close_channels(work);
    status = qs_store_close(work->store, QS_ERROR);
    work->store = NULL;
    if (!work->is_over && crash_done(work, status, "close")) {
        crash_model_close(work->model);
    }
}

/* -- all of it -------------------------------------------------------------------------------- */

/* Forgets what can never matter again, so that long runs stay fast. */
static void crash_forget_settled(struct crash_model *model)
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

void crash_work_reopen(struct crash_work *work)
{
    crash_close_store(work);
    if (!work->is_over && crash_open_store(work)) {
        crash_set_up(work);
    }
}

void crash_work_new_channel(struct crash_work *work)
{
    uint32_t channel = CRASH_PLAIN_CHANNEL;

    qs_channel_close(work->channels[channel]);
    work->channels[channel] = NULL;
    crash_each_out(work, channel, 0, crash_set_ready, 0);
    crash_done(work, qs_channel_open(&work->channels[channel], work->store, QS_ERROR), "open");
}

static void crash_work_once(struct crash_work *work)
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

static void crash_work_once_paging(struct crash_work *work)
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

void crash_work_run(struct crash_work *work, uint32_t op_count)
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
