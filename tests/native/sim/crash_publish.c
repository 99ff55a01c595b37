/* Work that publishes, and waits for what it published. */
#include "commit.h"
#include "crash_work.h"

/* -- publishing ------------------------------------------------------------------------------- */

uint32_t crash_any_bytes(struct crash_work *work)
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
static void crash_expect_at(struct crash_queue *queue, uint64_t id, uint8_t priority,
                            uint32_t bytes, bool persistent, uint32_t tx)
{
    struct crash_copy *copy;

    if (queue->exists != CRASH_PRESENT) {
        return;
    }
    copy = crash_queue_add(queue, priority);
    copy->id = id;
    copy->body_bytes = bytes;
    copy->is_transient = !(persistent || queue->keeps_all) || !queue->is_durable;
    copy->publish_lsn = CRASH_UNDER_WAY;
    copy->publish_tx = tx;
}

/* Has the message, published by itself, a priority? */
static bool crash_has_priority(const struct crash_work *work, uint64_t id)
{
    return work->pages || id % 4 != 0;
}

void crash_expect(const struct crash_work *work, struct crash_queue *queue, uint64_t id,
                  uint32_t bytes, bool persistent, uint32_t tx)
{
    uint8_t priority = crash_has_priority(work, id) ? crash_priority(id) : 0;

    crash_expect_at(queue, id, priority, bytes, persistent, tx);
}

/* A call that published the messages from first_id on came back. */
static void crash_published(struct crash_work *work, uint64_t first_id, const qs_receipt *receipt)
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

qs_status crash_publish_one(struct crash_work *work, uint32_t channel, const char *exchange,
                            const char *key, uint64_t id, uint32_t bytes, bool persistent,
                            qs_receipt *receipt)
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
    return qs_channel_publish(work->channels[channel], text(exchange), text(key), properties,
                              (qs_slice){body, bytes}, 0, 0, receipt, QS_ERROR);
}

void crash_publish(struct crash_work *work, uint32_t channel, struct crash_queue *queue,
                   uint32_t bytes, bool persistent)
{
    uint64_t id = work->model->next_id++;
    qs_receipt receipt = {0};

    crash_expect(work, queue, id, bytes, persistent, 0);
    if (crash_done(work,
                   crash_publish_one(work, channel, "", queue->name, id, bytes,
                                     persistent && !queue->keeps_all, &receipt),
                   "publish")) {
        crash_published(work, id, &receipt);
    }
}

void crash_work_publish(struct crash_work *work)
{
    struct crash_queue *queue = crash_any_queue(work);
    uint32_t bytes = crash_any_bytes(work);
    bool persistent = crash_chance(work, 85);

    crash_publish(work, crash_below(work, 2), queue, bytes, persistent);
}

void crash_fan_out(struct crash_work *work, uint32_t channel, uint32_t bytes)
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

void crash_work_fan_out(struct crash_work *work)
{
    crash_fan_out(work, crash_below(work, 2), crash_any_bytes(work));
}

/* A queue that keeps all has all rows of its batch kept. */
static void crash_expect_kept(struct crash_model *model, uint64_t first_id)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            if (queue->copies[k].id >= first_id) {
                queue->copies[k].is_transient = !queue->is_durable;
            }
        }
    }
}

void crash_publish_rows(struct crash_work *work, uint32_t channel, struct crash_queue *to,
                        uint32_t count, uint32_t bytes_max)
{
    uint64_t first_id = work->model->next_id;
    struct qs_test_batch rows;
    qs_receipt receipt = {0};
    qs_batch batch;
    bool has_modes = work->pages && crash_chance(work, 25);
    bool has_priorities = first_id % 2 == 0, is_kept = false;

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
        is_kept = is_kept || (queue->keeps_all && queue->exists == CRASH_PRESENT);
    }
    if (is_kept) {
        crash_expect_kept(work->model, first_id);
    }
    batch = qs_test_batch_finish(&rows);
    if (crash_done(work,
                   qs_channel_publish_batch(work->channels[channel], &batch, &receipt, QS_ERROR),
                   "publish batch")) {
        crash_published(work, first_id, &receipt);
    }
    qs_test_batch_fini(&rows);
}

void crash_publish_batch(struct crash_work *work, uint32_t channel, uint32_t count)
{
    crash_publish_rows(work, channel, NULL, count, 0);
}

void crash_work_batch(struct crash_work *work)
{
    uint32_t channel = crash_below(work, 2);

    crash_publish_batch(work, channel, 1 + crash_below(work, 12));
}

/* -- waiting ---------------------------------------------------------------------------------- */

/* What a confirm says must be so: the journal is durable up to the message. */
static void crash_check_confirm(struct crash_work *work, uint64_t number)
{
    uint64_t lsn = work->confirm_lsns[number % CRASH_CONFIRMS_MAX];

    if (!work->is_over && lsn > work->model->durable_lsn) {
        crash_violation(work->report,
                        "publish %" PRIu64 " is confirmed at LSN %" PRIu64 ", durable is %" PRIu64,
                        number, lsn, work->model->durable_lsn);
    }
}

static void crash_check_nack(struct crash_work *work)
{
    if (!work->has_faults && !work->env->is_dead) {
        crash_violation(work->report, "a publish was nacked on a healthy disk");
    }
}

void crash_work_wait_confirms(struct crash_work *work)
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
static void crash_work_mark(struct crash_work *work)
{
    qs_store *store = work->store;

    qsi_mutex_lock(&store->mutex);
    if (!store->failed && qsi_journal_has_unmarked(store->journal)) {
        qsi_commit_mark(store);
    }
    qsi_mutex_unlock(&store->mutex);
}

/* And the maintainer, some time later. */
static void crash_work_fill(struct crash_work *work)
{
    qs_store *store = work->store;

    qsi_mutex_lock(&store->mutex);
    if (!store->failed && qsi_journal_wants_fill(store->journal)) {
        qsi_commit_fill(store);
    }
    qsi_mutex_unlock(&store->mutex);
}

void crash_work_sync(struct crash_work *work)
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

void crash_work_wait(struct crash_work *work)
{
    if (crash_chance(work, 50)) {
        crash_work_wait_confirms(work);
    } else {
        crash_work_sync(work);
    }
}

void crash_work_events(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_CONFIRM_CHANNEL];
    qs_event event;

    crash_note_durable(work);
    while (qs_channel_next_event(channel, QS_EVENT_ACK | QS_EVENT_NACK, 0, &event, NULL) == QS_OK) {
        if (event.kind == QS_EVENT_NACK) {
            qs_message_release(&event.message);
            crash_check_nack(work);
        } else {
            crash_check_confirm(work, event.publish_number);
        }
    }
}
