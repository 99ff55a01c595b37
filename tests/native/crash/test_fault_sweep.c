/* Every public operation with its n-th environment call failing, in every way, and its n-th
 * allocation, for n = 1, 2, ... until nothing fails any more.
 *
 * What must hold each time: no crash and no leak; an error means that nothing happened, where the
 * call promises that; a success is true, also after a power cut right behind it; the store opens
 * again on a disk that is well, with the four sentences intact; an interrupted or short call is
 * none of the caller's business; and a disk that was full is as good as new once there is space.
 *
 * Arguments: seed, a part of the names of the operations to try. */
#include "crash_faults.h"
#include "crash_run.h"
#include "qs_test_alloc.h"

#define STEP_BYTES (32u << 10) /* of space, from trial to trial */
#define N_MAX 3000             /* a sweep that does not come to an end is a failure */

/* What an error tells. */
enum promise {
    NOTHING_HAPPENED,
    MAY_HAVE_HAPPENED, /* it was on its way to the disk */
};

enum start {
    ON_NOTHING,
    ON_CLOSED_STORE,
    ON_CRASHED_STORE,
    ON_CLOSED_PAGED_STORE,  /* a small memory, a checkpoint, most of it in segments */
    ON_CRASHED_PAGED_STORE, /* with a journal behind the checkpoint */
    ON_OPEN_STORE,
    ON_OPEN_PAGED_STORE,
};

struct operation {
    const char *name;
    enum start start;
    enum promise promise;
    void (*prepare)(struct crash_work *work); /* NULL: nothing */
    void (*run)(struct crash_work *work);
};

/* ---- the operations ---- */

static struct crash_queue *queue_of(struct crash_work *work, int index)
{
    return &work->model->queues[index];
}

static void declare(struct crash_work *work)
{
    crash_declare(work, queue_of(work, 4));
}

static void delete_fourth(struct crash_work *work)
{
    crash_delete(work, queue_of(work, 4));
}

static void declare_transient(struct crash_work *work)
{
    crash_declare(work, queue_of(work, CRASH_QUEUES - 1));
}

static void delete_transient(struct crash_work *work)
{
    crash_delete(work, queue_of(work, CRASH_QUEUES - 1));
}

static void bind_third(struct crash_work *work)
{
    crash_bind(work, queue_of(work, 3));
}

static void unbind_first(struct crash_work *work)
{
    crash_bind(work, queue_of(work, 0));
}

static void exchange_life(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (crash_done(work,
                   qs_channel_exchange_declare(channel, crash_text("topic"), crash_text("topic"),
                                               QS_DURABLE, (qs_slice){0}, QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_queue_bind(channel, crash_queue_name(queue_of(work, 2)),
                                         crash_text("topic"), crash_text("a.#"), (qs_slice){0},
                                         QS_ERROR),
                   "bind")) {
        crash_done(work, qs_channel_exchange_delete(channel, crash_text("topic"), 0, QS_ERROR),
                   "delete exchange");
    }
}

static void lead(struct crash_work *work)
{
    crash_lead(work);
}

static void lead_and_publish(struct crash_work *work)
{
    crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150);
    if (!work->is_over) {
        crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150); /* one of the two to the other exchange */
    }
}

/* An auto-delete exchange goes with the exchange it leads to: two records. */
static void exchange_cascade(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];

    if (crash_done(work,
                   qs_channel_exchange_declare(channel, crash_text("source"), crash_text("topic"),
                                               QS_DURABLE | QS_AUTO_DELETE, (qs_slice){0},
                                               QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_exchange_declare(channel, crash_text("target"), crash_text("headers"),
                                               QS_DURABLE, (qs_slice){0}, QS_ERROR),
                   "declare exchange") &&
        crash_done(work,
                   qs_channel_exchange_bind(channel, crash_text("target"), crash_text("source"),
                                            crash_text("#"), (qs_slice){0}, QS_ERROR),
                   "bind exchange")) {
        crash_done(work, qs_channel_exchange_delete(channel, crash_text("target"), 0, QS_ERROR),
                   "delete exchange");
    }
}

static void publish_small(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 100, true);
}

static void publish_large(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 3000, true);
}

static void publish_transient(struct crash_work *work)
{
    crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 3000, false);
}

static void publish_to_many(struct crash_work *work)
{
    crash_fan_out(work, CRASH_CONFIRM_CHANNEL, 150);
}

/* An unroutable message comes back, whole. */
static void publish_mandatory(struct crash_work *work)
{
    qs_channel *channel = work->channels[CRASH_PLAIN_CHANNEL];
    qs_slice body = {"body", 4};
    qs_receipt receipt;
    qs_event event;

    if (crash_done(work,
                   qs_channel_publish(channel, (qs_slice){0}, crash_text("nobody"), (qs_slice){0},
                                      body, QS_MANDATORY, &receipt, QS_ERROR),
                   "publish mandatory") &&
        crash_done(work, qs_channel_next_event(channel, QS_EVENT_RETURN, 0, &event, QS_ERROR),
                   "return")) {
        QS_CHECK(event.message.body.bytes == 4);
        qs_message_release(&event.message);
    }
}

static void publish_batch(struct crash_work *work)
{
    crash_publish_batch(work, CRASH_CONFIRM_CHANNEL, 20);
}

/* Commits until the journal has gone on in another file, and another. */
static void publish_until_files_roll(struct crash_work *work)
{
    for (int i = 0; i < 30 && !work->is_over; i++) {
        crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 1), i % 6 == 0 ? 15000 : 150,
                      true);
        if (!work->is_over) {
            crash_work_sync(work);
        }
    }
}

static void publish_and_wait(struct crash_work *work)
{
    publish_small(work);
    if (!work->is_over) {
        publish_large(work);
    }
    if (!work->is_over) {
        crash_work_wait_confirms(work);
    }
}

static void publish_both(struct crash_work *work)
{
    publish_small(work);
    publish_large(work);
}

/* Each of them may make a priority. */
static void publish_to_priorities(struct crash_work *work)
{
    for (int i = 0; i < 2 * CRASH_PRIORITY_MAX && !work->is_over; i++) {
        crash_publish(work, CRASH_CONFIRM_CHANNEL, queue_of(work, CRASH_LEVELS_QUEUE),
                      i % 3 == 0 ? 3000 : 100, i % 4 != 3);
    }
}

static void publish_batch_to_priorities(struct crash_work *work)
{
    work->model->next_id += work->model->next_id % 2; /* with a column of priorities */
    crash_publish_rows(work, CRASH_CONFIRM_CHANNEL, queue_of(work, CRASH_LEVELS_QUEUE), 20, 400);
}

static void get_all_priorities(struct crash_work *work)
{
    while (!work->is_over &&
           crash_get(work, queue_of(work, CRASH_LEVELS_QUEUE), CRASH_PLAIN_CHANNEL, 0) != NULL) {
    }
}

static void purge_priorities(struct crash_work *work)
{
    crash_purge(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static void delete_priorities(struct crash_work *work)
{
    crash_delete(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static void declare_priorities(struct crash_work *work)
{
    crash_declare(work, queue_of(work, CRASH_LEVELS_QUEUE));
}

static void new_priorities(struct crash_work *work)
{
    delete_priorities(work);
    declare_priorities(work);
}

/* With the queue's priorities in it, used for the first time and used before. */
static void checkpoint_priorities(struct crash_work *work)
{
    publish_to_priorities(work);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

static void wait_durable(struct crash_work *work)
{
    if (crash_done(
            work,
            qs_store_wait_durable(work->store, crash_appended_lsn(work), QS_FOREVER, QS_ERROR),
            "wait durable")) {
        crash_note_durable(work);
    }
}

static void get_all(struct crash_work *work)
{
    while (!work->is_over && crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, 0) != NULL) {
    }
}

static void get_all_without_ack(struct crash_work *work)
{
    while (!work->is_over &&
           crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, QS_NO_ACK) != NULL) {
    }
}

static void consume(struct crash_work *work)
{
    crash_consume(work, queue_of(work, 0), 20);
}

/* The rows are not looked at: what the store holds afterwards is. */
static void get_batch(struct crash_work *work)
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

static void ack_one(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), false, false);
}

static void ack_many(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), true, false);
}

static void reject(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), false, true);
}

static void requeue(struct crash_work *work)
{
    crash_requeue(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL));
}

static void requeue_all(struct crash_work *work)
{
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
}

static void ack_and_sync(struct crash_work *work)
{
    ack_many(work);
    if (!work->is_over) {
        crash_work_sync(work);
    }
}

static void purge(struct crash_work *work)
{
    crash_purge(work, queue_of(work, 0));
}

static void delete_full_queue(struct crash_work *work)
{
    crash_delete(work, queue_of(work, 0));
}

static void commit_transaction(struct crash_work *work)
{
    crash_tx(work, false);
}

static void roll_back_transaction(struct crash_work *work)
{
    crash_tx(work, true);
}

static void open_new_channel(struct crash_work *work)
{
    crash_work_new_channel(work);
}

/* Nothing of it is durable: an exclusive queue, a consumer of it, and an error that ends both. */
static void connection_life(struct crash_work *work)
{
    qs_connection *connection = NULL;
    qs_channel *channel = NULL;
    qs_declare_ok ok;
    char tag[256];

    if (crash_done(work, qs_connection_open(&connection, work->store, QS_ERROR), "connect") &&
        crash_done(work, qs_connection_channel(&channel, connection, QS_ERROR), "open") &&
        crash_done(work,
                   qs_channel_queue_declare(channel, crash_text("mine"), QS_EXCLUSIVE,
                                            (qs_slice){0}, &ok, QS_ERROR),
                   "declare") &&
        crash_done(work,
                   qs_channel_consume(channel, crash_text("mine"), crash_text("tag"), 0,
                                      (qs_slice){0}, tag, QS_ERROR),
                   "consume")) {
        QS_CHECK_STATUS(QS_NOT_ALLOWED,
                        qs_channel_consume(channel, crash_text("mine"), crash_text("tag"), 0,
                                           (qs_slice){0}, tag, QS_ERROR));
        QS_CHECK(qs_connection_is_closed(connection));
    }
    qs_connection_close(connection);
    qs_channel_close(channel);
}

static void visit_queue(void *context, const qs_queue_info *queue)
{
    *(size_t *)context += queue->name.bytes;
}

static void look_around(struct crash_work *work)
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

static void open_store(struct crash_work *work)
{
    crash_open_store(work);
}

static void close_store(struct crash_work *work)
{
    crash_close_store(work);
}

/* Of the queue that is on the disk for the greater part. */
static void publish_and_page(struct crash_work *work)
{
    for (int i = 0; i < 30 && !work->is_over; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, i % 2), 3000, i % 7 != 0);
    }
}

static void publish_batch_and_page(struct crash_work *work)
{
    crash_publish_rows(work, CRASH_CONFIRM_CHANNEL, queue_of(work, 0), 40, 3000);
}

static void take_most(struct crash_work *work)
{
    for (int i = 0; i < 3 && !work->is_over; i++) {
        uint32_t left = i == 0 ? 70 : 12;

        while (left-- > 0 && crash_get(work, queue_of(work, i), CRASH_PLAIN_CHANNEL, 0) != NULL) {
        }
    }
}

/* All but each eighth, so that much is left of segments and message files, and little of their
 * contents. */
static void settle_most(struct crash_work *work)
{
    take_most(work);
    for (int i = 0; i < 3; i++) {
        struct crash_queue *queue = queue_of(work, i);

        for (uint32_t k = 0; k < queue->count && !work->is_over; k++) {
            if (queue->copies[k].tag != 0 && queue->copies[k].settle_lsn == 0 && k % 8 != 0) {
                crash_ack(work, CRASH_PLAIN_CHANNEL, &queue->copies[k], false, false);
            }
        }
    }
    crash_requeue_all(work, CRASH_PLAIN_CHANNEL);
}

static void settle_most_and_checkpoint(struct crash_work *work)
{
    settle_most(work);
    crash_work_checkpoint(work);
}

static void compact(struct crash_work *work)
{
    qs_status status;

    QS_CHECK(crash_compact(work->store, CRASH_COMPACTIONS_MAX, &status));
    crash_done(work, status, "compact");
}

static void compact_and_checkpoint(struct crash_work *work)
{
    compact(work);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

static void set_mode(struct crash_work *work, bool lazy)
{
    struct crash_queue *queue = queue_of(work, 0);

    CRASH_CHANGE(work, queue->is_lazy, lazy ? CRASH_PRESENT : CRASH_ABSENT, "set mode",
                 qs_store_set_queue_mode(work->store, crash_queue_name(queue), lazy, QS_ERROR));
}

static void set_lazy(struct crash_work *work)
{
    set_mode(work, true);
}

static void set_default(struct crash_work *work)
{
    set_mode(work, false);
}

static void publish_to_lazy(struct crash_work *work)
{
    set_mode(work, true);
    publish_small(work);
    if (!work->is_over) {
        publish_small(work);
    }
}

static void ack_paged(struct crash_work *work)
{
    crash_ack(work, CRASH_PLAIN_CHANNEL, crash_any_out(work, CRASH_PLAIN_CHANNEL), true, false);
    if (!work->is_over) {
        crash_work_checkpoint(work);
    }
}

static const struct operation operations[] = {
    {"create", ON_NOTHING, NOTHING_HAPPENED, NULL, open_store},
    {"open", ON_CLOSED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"recover", ON_CRASHED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"close", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, close_store},
    {"declare a queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_fourth, declare},
    {"declare a transient queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_transient,
     declare_transient},
    {"bind", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, bind_third},
    {"unbind", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, unbind_first},
    {"exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, exchange_life},
    {"bind an exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, lead},
    {"unbind an exchange", ON_OPEN_STORE, MAY_HAVE_HAPPENED, lead, lead},
    {"exchanges that go together", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, exchange_cascade},
    {"publish through exchanges", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, lead_and_publish},
    {"publish embedded", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_small},
    {"publish stored", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_large},
    {"publish transient", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_transient},
    {"publish to many", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_to_many},
    {"publish mandatory", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_mandatory},
    {"publish a batch", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, publish_batch},
    {"publish until files roll", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, publish_until_files_roll},
    {"publish and wait for confirms", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, publish_and_wait},
    {"sync", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, crash_work_sync},
    {"wait durable", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_both, wait_durable},
    {"get", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_all},
    {"get without ack", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_all_without_ack},
    {"get a batch", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, get_batch},
    {"consume", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, consume},
    {"ack", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, ack_one},
    {"ack many", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, ack_many},
    {"ack and sync", ON_OPEN_STORE, MAY_HAVE_HAPPENED, get_all, ack_and_sync},
    {"reject", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, reject},
    {"requeue", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, requeue},
    {"requeue all", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, requeue_all},
    {"purge", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, purge},
    {"delete a queue", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, delete_full_queue},
    {"commit", ON_OPEN_STORE, MAY_HAVE_HAPPENED, NULL, commit_transaction},
    {"roll back", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, roll_back_transaction},
    {"channel", ON_OPEN_STORE, NOTHING_HAPPENED, get_all, open_new_channel},
    {"connection", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, connection_life},
    {"declare with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, delete_priorities,
     declare_priorities},
    {"publish with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, new_priorities,
     publish_to_priorities},
    {"publish a batch with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, new_priorities,
     publish_batch_to_priorities},
    {"get with priorities", ON_OPEN_STORE, NOTHING_HAPPENED, publish_to_priorities,
     get_all_priorities},
    {"purge with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_to_priorities,
     purge_priorities},
    {"delete with priorities", ON_OPEN_STORE, MAY_HAVE_HAPPENED, publish_to_priorities,
     delete_priorities},
    {"look around", ON_OPEN_STORE, NOTHING_HAPPENED, NULL, look_around},
    {"checkpoint", ON_OPEN_STORE, NOTHING_HAPPENED, publish_both, crash_work_checkpoint},
    {"open behind a checkpoint", ON_CLOSED_PAGED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"recover behind a checkpoint", ON_CRASHED_PAGED_STORE, NOTHING_HAPPENED, NULL, open_store},
    {"close, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, publish_both, close_store},
    {"checkpoint, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, publish_and_page,
     crash_work_checkpoint},
    {"publish and page", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, publish_and_page},
    {"publish a batch and page", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL,
     publish_batch_and_page},
    {"checkpoint with priorities, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL,
     checkpoint_priorities},
    {"get with priorities, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, publish_to_priorities,
     get_all_priorities},
    {"get, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_all},
    {"get without ack, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_all_without_ack},
    {"get a batch, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, get_batch},
    {"consume, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, consume},
    {"ack and checkpoint, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, take_most, ack_paged},
    {"requeue, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, take_most, requeue_all},
    {"settle, paged", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, NULL, settle_most},
    {"compact", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, settle_most_and_checkpoint, compact},
    {"compact and checkpoint", ON_OPEN_PAGED_STORE, NOTHING_HAPPENED, settle_most_and_checkpoint,
     compact_and_checkpoint},
    {"purge, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, purge},
    {"delete, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, delete_full_queue},
    {"set lazy", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, set_lazy},
    {"set lazy and publish", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, publish_to_lazy},
    {"set default", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, set_lazy, set_default},
    {"commit, paged", ON_OPEN_PAGED_STORE, MAY_HAVE_HAPPENED, NULL, commit_transaction},
};
#define OPERATION_COUNT (sizeof operations / sizeof operations[0])

/* ---- the disks that the operations start on ---- */

struct disk {
    qs_env *mem;
    struct crash_model model;
};

static struct disk disks[ON_OPEN_STORE]; /* by enum start */

static void fill(struct crash_work *work)
{
    crash_set_up(work);
    crash_bind(work, queue_of(work, 0));
    crash_bind(work, queue_of(work, 1));
    for (int i = 0; i < 6; i++) {
        crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, i % 3), i % 2 == 0 ? 100 : 2000,
                      true);
    }
    crash_publish_batch(work, CRASH_PLAIN_CHANNEL, 12);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 500);
    crash_work_sync(work);
    get_all(work);
    ack_one(work);
    crash_publish(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 100, true);
    crash_tx(work, false);
}

static qs_options paged_options(void)
{
    qs_options options = crash_options();

    options.memory_budget = 64 << 10;
    options.segment_entries = 16;
    options.embed_below = 2500;
    options.checkpoint_bytes = 0;
    return options;
}

/* Embedded and stored bodies, alone and in several queues; a checkpoint; and some of everything
 * behind it. */
static void fill_paged(struct crash_work *work)
{
    crash_set_up(work);
    crash_bind(work, queue_of(work, 1));
    crash_bind(work, queue_of(work, 2));
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 60, 2200);
    for (int i = 0; i < 12; i++) {
        crash_fan_out(work, CRASH_PLAIN_CHANNEL, i % 2 == 0 ? 100 : 4000);
    }
    crash_work_checkpoint(work);
    crash_publish_rows(work, CRASH_PLAIN_CHANNEL, queue_of(work, 0), 20, 2200);
    crash_fan_out(work, CRASH_PLAIN_CHANNEL, 4000);
    crash_work_sync(work);
    for (int i = 0; i < 6; i++) {
        crash_get(work, queue_of(work, 0), CRASH_PLAIN_CHANNEL, QS_NO_ACK);
        crash_get(work, queue_of(work, 1), CRASH_PLAIN_CHANNEL, i % 2 == 0 ? QS_NO_ACK : 0);
    }
    crash_work_sync(work);
}

/* The process is gone: what it had out is ready again, what was transient is not. */
static void note_death(struct crash_model *model)
{
    crash_model_close(model);
    for (int i = 0; i < CRASH_QUEUES; i++) {
        for (uint32_t k = 0; k < model->queues[i].count; k++) {
            model->queues[i].copies[k].was_delivered = true;
        }
    }
}

static void make_disk(struct disk *disk, bool is_filled, bool is_closed, bool is_paged)
{
    struct crash_report report = {.told_max = 10, .cut = "preparing"};
    struct crash_env env;
    struct crash_work work = {.env = &env, .model = &disk->model, .report = &report, .random = 3};

    if (is_paged) {
        work.options = paged_options();
    }
    disk->mem = qsi_env_mem_create(1);
    crash_model_init(&disk->model);
    crash_env_init(&env, disk->mem, CRASH_NO_BUG);
    if (is_filled) {
        QS_CHECK(crash_open_store(&work));
        if (is_paged) {
            fill_paged(&work);
        } else {
            fill(&work);
        }
        QS_CHECK(!work.is_over);
        if (!is_closed) {
            env.is_dead = work.is_over = true;
        }
        crash_close_store(&work);
        if (is_paged && !is_closed) {
            note_death(&disk->model);
        }
    }
    QS_CHECK(report.violations == 0);
}

/* ---- one case ---- */

struct trial {
    const struct operation *operation;
    const struct crash_fault *fault; /* NULL: the n-th allocation fails */
    uint64_t n;
    struct qs_test_alloc *alloc;
    struct crash_report *report;
    struct crash_model model;
    qs_env *sim;
    qs_env *faulty;
    struct crash_env env;
    struct crash_work work;
    bool has_fired;
};

static bool is_paged(const struct trial *trial)
{
    enum start start = trial->operation->start;

    return start == ON_CLOSED_PAGED_STORE || start == ON_CRASHED_PAGED_STORE ||
           start == ON_OPEN_PAGED_STORE;
}

static void begin(struct trial *trial)
{
    enum start start = trial->operation->start;
    const struct disk *disk = &disks[start == ON_OPEN_STORE         ? ON_CLOSED_STORE
                                     : start == ON_OPEN_PAGED_STORE ? ON_CRASHED_PAGED_STORE
                                                                    : start];
    qs_env *mem = qsi_env_mem_clone(disk->mem, 1);

    QS_CHECK(mem != NULL);
    trial->sim = qsi_env_sim_from_mem(mem, 1);
    trial->faulty = qsi_env_fault_create(trial->sim);
    QS_CHECK(trial->sim != NULL && trial->faulty != NULL);
    crash_env_init(&trial->env, trial->faulty, CRASH_NO_BUG);
    crash_model_copy(&trial->model, &disk->model);
    trial->work = (struct crash_work){
        .env = &trial->env, .model = &trial->model, .report = trial->report, .random = 11};
    if (is_paged(trial)) {
        trial->work.options = paged_options();
    }
    if (start == ON_OPEN_STORE || start == ON_OPEN_PAGED_STORE) {
        QS_CHECK(crash_open_store(&trial->work));
        crash_set_up(&trial->work); /* the transient queue */
    }
    if (trial->operation->prepare != NULL) {
        trial->operation->prepare(&trial->work);
    }
    QS_CHECK(!trial->work.is_over);
}

/* The part that faults may hit. */
static void run(struct trial *trial)
{
    trial->work.has_faults = true;
    if (trial->fault != NULL) {
        qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, trial->fault->how, trial->n,
                          trial->fault->is_sticky);
    } else {
        qs_test_alloc_arm(trial->alloc, trial->n, false);
    }
    qs_test_error = (qs_error){0};
    trial->operation->run(&trial->work);
    trial->has_fired =
        trial->fault != NULL ? qsi_env_fault_fired(trial->faulty) : trial->alloc->has_failed;
    qsi_env_fault_arm(trial->faulty, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_test_alloc_arm(trial->alloc, 0, false);
}

/* An error means that nothing happened: the model forgets that it was tried. */
static void undo(struct crash_model *model)
{
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &model->queues[i];

        uint32_t kept = 0;

        for (uint32_t k = 0; k < queue->count; k++) {
            struct crash_copy copy = queue->copies[k];

            copy.settle_lsn = copy.settle_lsn == CRASH_UNDER_WAY ? 0 : copy.settle_lsn;
            if (copy.publish_lsn != CRASH_UNDER_WAY) {
                queue->copies[kept++] = copy;
            }
        }
        queue->count = kept;
    }
}

/* What comes after the faults ends the same way each time; the kind of end takes turns. */
static void finish(struct trial *trial)
{
    struct crash_work *work = &trial->work;

    if (work->store == NULL) {
        crash_close_channels(work);
    } else if (trial->n % 2 == 0) {
        work->is_over = work->is_over || trial->has_fired; /* it may close in failure */
        crash_close_store(work);
    } else {
        work->is_over = trial->env.is_dead = true;
        crash_close_store(work);
    }
}

static void check_cut(struct trial *trial, enum qsi_cut_how how, const char *name)
{
    qs_env *mem = qsi_env_sim_cut(trial->sim, how, trial->n);

    QS_CHECK(mem != NULL);
    trial->report->cut = name;
    if (is_paged(trial)) { /* by turns with as little memory, and with enough */
        crash_check_disk_as(&trial->model, trial->report, mem,
                            trial->n % 2 == 0 ? paged_options() : crash_options(),
                            trial->n % 3 == 0 ? trial->n << 8 | 1 : 0);
    } else {
        crash_check_disk(&trial->model, trial->report, mem);
    }
}

static void tell(const struct trial *trial, const char *what)
{
    crash_violation(trial->report, "%s, %s %" PRIu64 ": %s: %s", trial->operation->name,
                    trial->fault != NULL ? trial->fault->name : "allocation", trial->n, what,
                    qs_test_error.text);
}

/* Errors that a caller cannot be asked to understand. */
static void check_status(struct trial *trial)
{
    bool is_sync = strstr(qs_test_error.text, "sync") != NULL;

    if (!trial->work.is_over) {
        return;
    }
    if (!trial->has_fired) {
        tell(trial, "failed without a fault");
    } else if (trial->fault != NULL && trial->fault->is_invisible && !is_sync) {
        tell(trial, "is visible");
    } else if (qs_test_error.status == QS_OK || qs_test_error.text[0] == '\0') {
        tell(trial, "failed without a word");
    } else if (qs_test_error.status == QS_EINTR) {
        tell(trial, "QS_EINTR");
    }
}

static bool sweep_one(struct trial *trial)
{
    uint64_t violations = trial->report->violations;
    uint64_t alive = trial->alloc->alive;

    begin(trial);
    run(trial);
    check_status(trial);
    if (trial->work.is_over && trial->operation->promise == NOTHING_HAPPENED) {
        undo(&trial->model);
    }
    check_cut(trial, QSI_CUT_DROP_ALL, "all dropped behind the fault");
    check_cut(trial, QSI_CUT_RANDOM, "random behind the fault");
    finish(trial);
    check_cut(trial, QSI_CUT_KEEP_ALL, "reopened");
    check_cut(trial, QSI_CUT_RANDOM, "random after the end");
    crash_model_fini(&trial->model);
    qsi_env_fault_destroy(trial->faulty);
    qsi_env_sim_destroy(trial->sim);
    if (trial->alloc->alive != alive) {
        tell(trial, "leaks");
    }
    if (trial->report->violations > violations && trial->report->violations < 40) {
        tell(trial, "see above");
    }
    return trial->has_fired;
}

/* Each call in turn; with the sanitizer, which takes ten times as long, one in four. */
#ifdef __SANITIZE_ADDRESS__
#define SWEEP_STEP 4
#else
#define SWEEP_STEP 1
#endif

static uint64_t sweep(struct trial *trial)
{
    for (trial->n = 1; trial->n < N_MAX; trial->n += SWEEP_STEP) {
        trial->report->seed = trial->n;
        if (!sweep_one(trial)) {
            break;
        }
    }
    QS_CHECK(trial->n < N_MAX);
    return trial->n - 1;
}

/* ---- a full disk ---- */

/* No space for another file is QS_ESTORE_FULL, and nobody has to open the store again for it. */
static void test_store_accepts_again_when_space_returns(struct qs_test_alloc *alloc,
                                                        struct crash_report *report)
{
    static const struct operation operation = {"publish until full", ON_OPEN_STORE,
                                               NOTHING_HAPPENED, NULL, publish_until_files_roll};
    struct trial trial = {.operation = &operation, .alloc = alloc, .report = report};
    uint64_t full_count = 0;

    for (trial.n = 1;; trial.n++) {
        bool was_full;

        begin(&trial);
        trial.work.has_faults = true;
        qsi_env_ram_limit(trial.sim, qsi_env_ram_used(trial.sim) + trial.n * STEP_BYTES);
        publish_until_files_roll(&trial.work);
        was_full = trial.work.is_over;
        qsi_env_ram_limit(trial.sim, 0);
        if (was_full) {
            QS_CHECK(qs_test_error.status == QS_ESTORE_FULL);
            undo(&trial.model);
            full_count++;
            trial.work.is_over = trial.work.has_faults = false;
            publish_until_files_roll(&trial.work);
            QS_CHECK(!trial.work.is_over);
        }
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned");
        crash_close_store(&trial.work);
        check_cut(&trial, QSI_CUT_DROP_ALL, "space returned, closed");
        crash_model_fini(&trial.model);
        qsi_env_fault_destroy(trial.faulty);
        qsi_env_sim_destroy(trial.sim);
        if (!was_full) {
            break;
        }
    }
    printf("full disk: %" PRIu64 " times, accepts again\n", full_count);
    QS_CHECK(full_count > 0);
}

int main(int argc, char **argv)
{
    struct crash_report report = {.told_max = 60};
    struct qs_test_alloc alloc;
    uint64_t trials = 0;

    (void)qs_test_seed(argc, argv);
    qs_test_alloc_install(&alloc);
    make_disk(&disks[ON_NOTHING], false, false, false);
    make_disk(&disks[ON_CLOSED_STORE], true, true, false);
    make_disk(&disks[ON_CRASHED_STORE], true, false, false);
    make_disk(&disks[ON_CLOSED_PAGED_STORE], true, true, true);
    make_disk(&disks[ON_CRASHED_PAGED_STORE], true, false, true);
    for (size_t i = 0; i < OPERATION_COUNT; i++) {
        if (argc > 2 && strstr(operations[i].name, argv[2]) == NULL) {
            continue;
        }
        struct trial trial = {.operation = &operations[i], .alloc = &alloc, .report = &report};
        uint64_t allocations = sweep(&trial), calls = 0;

        for (size_t k = 0; k < CRASH_FAULT_COUNT; k++) {
            uint64_t count;

            trial.fault = &crash_faults[k];
            count = sweep(&trial);
            trials += count;
            calls =
                crash_faults[k].how == QSI_FAULT_EIO && !crash_faults[k].is_sticky ? count : calls;
        }
        trials += allocations;
        printf("%s: %" PRIu64 " calls, %" PRIu64 " allocations\n", operations[i].name, calls,
               allocations);
    }
    test_store_accepts_again_when_space_returns(&alloc, &report);
    for (int i = 0; i < ON_OPEN_STORE; i++) {
        qsi_env_mem_destroy(disks[i].mem);
        crash_model_fini(&disks[i].model);
    }
    QS_CHECK(alloc.alive == 0);
    qs_allocator_set(NULL);
    printf("%" PRIu64 " faults, %" PRIu64 " states, %" PRIu64 " violations\n", trials,
           report.states, report.violations);
    QS_CHECK(report.violations == 0);
    return 0;
}
