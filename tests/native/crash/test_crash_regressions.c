/* What the crash suite found, each as the few calls that showed it.  The names tell the symptom. */
#include "crash_run.h"
#include "pager_steps.h"
#include "qs_test_calls.h"
#include "queue_life.h"

/* A store on a sim, with a model that checks every cut. */
struct scene {
    struct crash_report report;
    struct crash_model model;
    struct crash_env env;
    struct crash_work work;
    qs_env *sim;
    uint32_t cuts; /* at each step: 0 none */
};

static void check_cut(struct scene *scene, enum qsi_cut_how how, uint64_t seed)
{
    qs_env *mem = qsi_env_sim_cut(scene->sim, how, seed);

    scene->report.cut = "cut";
    crash_check_disk(&scene->model, &scene->report, mem);
}

static void on_step(void *context, uint64_t step)
{
    struct scene *scene = context;

    scene->report.step = step;
    for (uint32_t i = 0; i < scene->cuts; i++) {
        check_cut(scene, QSI_CUT_RANDOM, step * 1000 + i);
    }
}

static void start(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    scene->report.told_max = 5;
    scene->sim = qsi_env_sim_create(1);
    crash_model_init(&scene->model);
    crash_env_init(&scene->env, scene->sim, CRASH_NO_BUG);
    scene->work = (struct crash_work){
        .env = &scene->env, .model = &scene->model, .report = &scene->report, .random = 1};
    qsi_env_sim_on_step(scene->sim, on_step, scene);
}

static void stop(struct scene *scene, const char *symptom)
{
    printf("%s: %" PRIu64 " states, %" PRIu64 " violations\n", symptom, scene->report.states,
           scene->report.violations);
    QS_CHECK(scene->report.violations == 0);
    crash_model_fini(&scene->model);
    qsi_env_sim_destroy(scene->sim);
}

static void open_ready(struct scene *scene)
{
    QS_CHECK(crash_open_store(&scene->work));
    crash_set_up(&scene->work);
    QS_CHECK(!scene->work.is_over);
}

/* The process is gone, and what it had out is ready again. */
static void die(struct scene *scene)
{
    scene->env.is_dead = scene->work.is_over = true;
    crash_close_store(&scene->work);
    scene->env.is_dead = scene->work.is_over = false;
    for (int i = 0; i < CRASH_QUEUES; i++) {
        struct crash_queue *queue = &scene->model.queues[i];

        for (uint32_t k = 0; k < queue->count; k++) {
            queue->copies[k].tag = 0;
        }
        queue->exists = queue->is_durable ? queue->exists : CRASH_ABSENT;
    }
}

static void publish(struct scene *scene, uint32_t bytes)
{
    crash_publish(&scene->work, CRASH_PLAIN_CHANNEL, &scene->model.queues[0], bytes, true);
}

static void get_and_ack(struct scene *scene)
{
    QS_CHECK(crash_get(&scene->work, &scene->model.queues[0], CRASH_PLAIN_CHANNEL, QS_NO_ACK) !=
             NULL);
}

/* Records of the message store shared sectors. */
QS_TEST(test_torn_write_damaged_the_confirmed_body_in_front_of_it)
{
    struct scene scene;

    start(&scene);
    open_ready(&scene);
    publish(&scene, 1000);
    crash_work_sync(&scene.work);
    scene.cuts = 400;
    publish(&scene, 1000);
    crash_work_sync(&scene.work);
    scene.cuts = 0;
    die(&scene);
    stop(&scene, "torn write beside a confirmed body");
}

/* A garbled sector of zeros looked like contents without a MANIFEST. */
QS_TEST(test_creation_that_was_cut_off_was_refused)
{
    struct scene scene;

    start(&scene);
    scene.cuts = 1000;
    QS_CHECK(crash_open_store(&scene.work));
    scene.cuts = 0;
    die(&scene);
    stop(&scene, "creation cut off");
}

/* One commit: a body that is acked at once, and a message that stays. */
static void commit_with_a_dead_body(struct scene *scene)
{
    start(scene);
    open_ready(scene);
    publish(scene, 1000);
    publish(scene, 50);
    get_and_ack(scene);
    crash_work_sync(&scene->work);
    die(scene);
}

/* The body was removed by the first recovery, and its absence made the second cut the commit
 * off. */
QS_TEST(test_commit_was_lost_by_the_second_of_two_recoveries)
{
    struct scene scene;

    commit_with_a_dead_body(&scene);
    for (int i = 0; i < 3; i++) {
        QS_CHECK(crash_open_store(&scene.work));
        die(&scene);
        check_cut(&scene, QSI_CUT_DROP_ALL, 1);
    }
    stop(&scene, "two recoveries behind each other");
}

/* The body was removed before it was written down that the commit counts. */
QS_TEST(test_commit_was_lost_by_a_crash_in_recovery)
{
    struct scene scene;

    commit_with_a_dead_body(&scene);
    scene.cuts = 50;
    QS_CHECK(crash_open_store(&scene.work));
    scene.cuts = 0;
    die(&scene);
    stop(&scene, "crash in recovery");
}

/* Recovery believed what the page cache showed of a commit whose sync had failed. */
QS_TEST(test_store_was_unreadable_after_a_failed_sync_and_a_power_cut)
{
    struct scene scene;
    qs_env *fault;

    start(&scene);
    fault = qsi_env_fault_create(scene.sim);
    scene.env.inner = fault;
    open_ready(&scene);
    publish(&scene, 50);
    crash_work_sync(&scene.work);
    publish(&scene, 60);
    qsi_env_fault_arm(fault, QSI_FAULT_SYNC, QSI_FAULT_SYNC_LOST, 1, false);
    scene.work.has_faults = true;
    crash_work_sync(&scene.work);
    QS_CHECK(scene.work.is_over && qs_test_error.status == QS_ESTORE_FAILED);
    die(&scene);
    scene.model.queues[0].count--; /* nobody confirmed it: it is gone for good */
    QS_CHECK(crash_open_store(&scene.work));
    publish(&scene, 70);
    crash_work_sync(&scene.work);
    check_cut(&scene, QSI_CUT_DROP_ALL, 1);
    die(&scene);
    stop(&scene, "failed sync, reopened, power cut");
    qsi_env_fault_destroy(fault);
}

static struct crash_copy *get(struct scene *scene)
{
    return crash_get(&scene->work, &scene->model.queues[0], CRASH_PLAIN_CHANNEL, 0);
}

/* There was no room in the journal file for the requeues of an orderly close.  Acks use the file
 * up to its end: publishing goes on in the next one earlier. */
QS_TEST(test_message_came_again_unflagged_after_an_orderly_close)
{
    for (uint32_t ack_count = 0; ack_count < 20; ack_count++) {
        struct scene scene;

        start(&scene);
        open_ready(&scene);
        for (int i = 0; i < 25; i++) {
            publish(&scene, 20);
        }
        while (get(&scene) != NULL) {
        }
        for (uint32_t i = 0; i < ack_count; i++) {
            crash_ack(&scene.work, CRASH_PLAIN_CHANNEL,
                      crash_any_out(&scene.work, CRASH_PLAIN_CHANNEL), false, false);
            crash_work_sync(&scene.work);
        }
        crash_close_store(&scene.work);
        check_cut(&scene, QSI_CUT_DROP_ALL, 1);
        crash_model_fini(&scene.model);
        qsi_env_sim_destroy(scene.sim);
        QS_CHECK(scene.report.violations == 0);
    }
    printf("flags after an orderly close: fine\n");
}

/* ---- messages on the disk ---- */

static void start_paging(struct scene *scene, uint32_t segment_entries, uint64_t embed_below)
{
    start(scene);
    scene->work.options = crash_options();
    scene->work.options.segment_entries = segment_entries;
    scene->work.options.embed_below = embed_below;
    scene->work.options.journal_file_bytes = 1 << 20;
    scene->work.options.checkpoint_bytes = 0;
    open_ready(scene);
}

/* What the first queue holds goes to segments. */
static void page_out(struct scene *scene)
{
    qs_store *store = scene->work.store;
    struct qsi_store_queue *queue;

    qsi_mutex_lock(&store->mutex);
    queue = qsi_find_queue(store, qsi_slice_make("q0", 2));
    qsi_pager_settle_queue(store, queue);
    qsi_mutex_unlock(&store->mutex);
}

static void compact(struct scene *scene)
{
    qs_status status;

    QS_CHECK(crash_compact(scene->work.store, CRASH_COMPACTIONS_MAX, &status));
    QS_CHECK_OK(status);
}

static void get_everything(struct scene *scene, uint32_t count)
{
    while (get(scene) != NULL) {
        count--;
    }
    QS_CHECK(count == 0);
}

/* The ack of the same transaction had retired the segment that the message was to go to. */
QS_TEST(test_transaction_that_acked_all_and_published_dereferenced_null)
{
    struct scene scene;
    qs_channel *channel;
    qs_message message;
    qs_receipt receipt;

    start_paging(&scene, 64, 200);
    publish(&scene, 20);
    page_out(&scene);
    channel = scene.work.channels[CRASH_TX_CHANNEL];
    QS_CHECK_OK(qs_channel_get(channel, text("q0"), 0, &message, QS_ERROR));
    QS_CHECK_OK(qs_channel_ack(channel, message.delivery_tag, 0, QS_ERROR));
    qs_message_release(&message);
    QS_CHECK_OK(crash_publish_one(&scene.work, CRASH_TX_CHANNEL, "", "q0", 7, 30, true, &receipt));
    QS_CHECK_OK(qs_test_commit(channel, (qs_slice){0}, 0));
    QS_CHECK_OK(qs_channel_get(channel, text("q0"), 0, &message, QS_ERROR));
    QS_CHECK(crash_body_is_right(message.body, 7, 30));
    qs_message_release(&message);
    die(&scene);
    stop(&scene, "transaction that acks all and publishes");
}

/* The checkpoint's counts and the messages that it carries were both counted. */
QS_TEST(test_message_file_stayed_after_its_last_message_was_acked)
{
    struct scene scene;
    qs_env *mem;

    start_paging(&scene, 64, 0);
    publish(&scene, 500);
    crash_work_checkpoint(&scene.work);
    mem = qsi_env_sim_cut(scene.sim, QSI_CUT_DROP_ALL, 1);
    scene.report.cut = "cut";
    crash_check_disk_as(&scene.model, &scene.report, mem, scene.work.options, 1);
    die(&scene);
    stop(&scene, "message file of a carried message");
}

/* The last segment's successor was written under its name, and removed with it. */
QS_TEST(test_segment_of_new_messages_was_removed_after_a_purge)
{
    struct scene scene;

    start_paging(&scene, 16, 200);
    for (int i = 0; i < 20; i++) {
        publish(&scene, 20);
    }
    page_out(&scene);
    crash_purge(&scene.work, &scene.model.queues[0]);
    publish(&scene, 30);
    page_out(&scene);
    compact(&scene);
    get_everything(&scene, 1);
    die(&scene);
    stop(&scene, "messages behind a purge");
}

/* Nobody looked at a segment's state for a requeue of all of it. */
QS_TEST(test_messages_of_a_whole_segment_came_again_unflagged)
{
    struct scene scene;

    start_paging(&scene, 16, 200);
    for (int i = 0; i < 40; i++) {
        publish(&scene, 20);
    }
    page_out(&scene);
    crash_work_checkpoint(&scene.work);
    get_everything(&scene, 40);
    crash_requeue_all(&scene.work, CRASH_PLAIN_CHANNEL);
    crash_close_store(&scene.work);
    open_ready(&scene);
    get_everything(&scene, 40);
    die(&scene);
    stop(&scene, "requeue of whole segments");
}

/* One range of tags is several in the journal when some of its messages are not journalled. */
QS_TEST(test_ack_of_persistent_and_transient_messages_overran_its_room)
{
    struct scene scene;
    qs_channel *channel;

    start_paging(&scene, 64, 200);
    for (int i = 0; i < 40; i++) {
        crash_publish(&scene.work, CRASH_PLAIN_CHANNEL, &scene.model.queues[0], 20, i % 2 == 0);
    }
    channel = scene.work.channels[CRASH_TX_CHANNEL];
    for (int i = 0; i < 40; i++) {
        QS_CHECK_OK(qs_test_get(channel, "q0", 0));
    }
    QS_CHECK_OK(qs_channel_ack(channel, 40, QS_MULTIPLE, QS_ERROR));
    QS_CHECK_OK(qs_test_commit(channel, (qs_slice){0}, 0));
    scene.model.queues[0].count = 0;
    check_cut(&scene, QSI_CUT_DROP_ALL, 1);
    die(&scene);
    stop(&scene, "ack of persistent and transient messages");
}

/* It was written with the properties of the one before it, because these had lain in the same
 * place of memory. */
QS_TEST(test_paged_message_was_unreadable_behind_one_with_other_properties)
{
    struct scene scene;

    start_paging(&scene, 64, 200);
    scene.work.pages = true;
    for (int i = 0; i < 10; i++) {
        publish(&scene, 20);
    }
    page_out(&scene);
    get_everything(&scene, 10);
    die(&scene);
    stop(&scene, "properties of paged messages");
}

/* The same where a segment is rewritten in several steps. */
QS_TEST(test_message_of_a_rewritten_segment_was_unreadable)
{
    struct scene scene;

    start_paging(&scene, 256, 1 << 20);
    scene.work.pages = true;
    for (int i = 0; i < 220; i++) {
        publish(&scene, 20);
    }
    for (int i = 0; i < 220; i++) {
        get_and_ack(&scene);
    }
    for (int i = 0; i < 37; i++) {
        publish(&scene, 59000);
        crash_work_sync(&scene.work);
    }
    page_out(&scene);
    compact(&scene);
    get_everything(&scene, 37);
    die(&scene);
    stop(&scene, "properties of rewritten messages");
}
