/* Work queues over a stream, through the public calls: what retention took, and missing memory. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "queue_life.h"
#include "store.h"

#define BODY 600 /* bytes: so that a checkpoint does not carry them, but has them in files */

static struct qs_test_alloc memory;

static void declare_stream(struct engine *engine, int64_t messages_max)
{
    struct qs_test_fields arguments = {.used = 0};

    if (messages_max > 0) {
        qs_test_put_long(&arguments, "x-max-messages", messages_max);
    }
    qs_test_put_text(&arguments, "x-queue-type", "stream");
    qs_test_put_long(&arguments, "x-stream-max-segment-size-bytes", 4096);
    qs_test_declare(engine->channel, "s", QS_DURABLE, &arguments);
}

/* Its dead letters go to "dead". */
static qs_status try_declare_work(struct engine *engine, const char *name)
{
    struct qs_test_fields arguments =
        qs_test_fields_of("x-dead-letter-exchange= x-dead-letter-routing-key=dead "
                          "x-delivery-limit=20 x-stream-offset=first x-stream-source=s");

    return qs_test_declare_as(engine->channel, name, QS_DURABLE, qs_test_fields_slice(&arguments));
}

static void fill(struct engine *engine, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        QS_TEST_FREED char *body = make_body(BODY, i);
        publish(engine, "s", body);
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

static void forget_content(struct engine *engine, const char *name)
{
    struct qs_store *store = engine->store;
    struct qsi_store_queue *queue;

    qsi_store_lock(store);
    queue = qsi_find_queue(store, qsi_slice_make(name, (uint32_t)strlen(name)));
    QS_CHECK(queue != NULL);
    (void)qsi_container_drop_content(&queue->container, 0, UINT64_MAX);
    QS_CHECK(queue->core.run_count == 0);
    qsi_store_unlock(store);
}

static qs_queue_status status_of(struct engine *engine, const char *name)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(name), &status, QS_ERROR));
    return status;
}

/* Work queue w has message 0 out, and retention dropped it. */
static uint64_t get_one_and_lose_it(struct engine *engine, uint64_t *first_out)
{
    QS_TEST_FREED char *body = make_body(BODY, 0);
    uint64_t tag;

    engine_close(engine);
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
    declare_stream(engine, 50);
    declare(engine, "dead", QS_DURABLE);
    QS_CHECK_OK(try_declare_work(engine, "w"));
    fill(engine, 0, 10);
    tag = get(engine, "w", body).delivery_tag;
    for (uint32_t i = 10; i < 400; i += 30) {
        fill(engine, i, i + 30);
        QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    }
    *first_out = status_of(engine, "s").first;
    QS_CHECK(*first_out > 100);
    forget_content(engine, "w");
    return tag;
}

ENGINE_TEST(test_a_dead_letter_that_retention_took_is_counted_and_gone)
{
    uint64_t first, tag = get_one_and_lose_it(engine, &first);

    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, 0, 0, QS_ERROR));
    check_counts(engine, "dead", 0, 0);
    check_counts(engine, "w", 400 - first, 0);
    QS_CHECK(status_of(engine, "w").messages_passed == first);
    engine_reopen(engine);
    check_counts(engine, "w", 400 - first, 0);
}

ENGINE_TEST(test_what_comes_back_after_retention_took_it_is_passed)
{
    uint64_t first, tag = get_one_and_lose_it(engine, &first);
    char *body;

    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, QS_REQUEUE, 0, QS_ERROR));
    body = make_body(BODY, (uint32_t)first);
    ack(engine, get(engine, "w", body).delivery_tag, 0);
    free(body);
    check_counts(engine, "w", 399 - first, 0);
    QS_CHECK(status_of(engine, "w").messages_passed == first);
}

ENGINE_TEST(test_a_dead_letter_is_read_from_the_stream_again)
{
    QS_TEST_FREED char *body = make_body(BODY, 0);
    uint64_t tag;

    declare_stream(engine, 0);
    declare(engine, "dead", QS_DURABLE);
    QS_CHECK_OK(try_declare_work(engine, "w"));
    fill(engine, 0, 100);
    tag = get(engine, "w", body).delivery_tag;
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    forget_content(engine, "w");
    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, 0, 0, QS_ERROR));
    get(engine, "dead", body);
    check_counts(engine, "w", 99, 0);
}

static uint32_t streams_to_look_at(struct engine *engine)
{
    uint32_t count = 0;

    qsi_store_lock(engine->store);
    for (struct qsi_list *node = engine->store->sources.next; node != &engine->store->sources;
         node = node->next) {
        count += 1;
    }
    qsi_store_unlock(engine->store);
    return count;
}

/* A commit costs nothing for work queues that have all of their streams. */
ENGINE_TEST(test_a_commit_looks_at_no_stream_that_got_nothing)
{
    declare_stream(engine, 0);
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(try_declare_work(engine, "w"));
    fill(engine, 0, 10);
    QS_CHECK(streams_to_look_at(engine) == 0);
    QS_CHECK_OK(try_declare_work(engine, "later"));
    check_counts(engine, "later", 10, 0);
    publish(engine, "q", "body");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(streams_to_look_at(engine) == 0);
    fill(engine, 10, 20);
    check_counts(engine, "w", 20, 0);
    check_counts(engine, "later", 20, 0);
    engine_reopen(engine);
    check_counts(engine, "w", 20, 0);
    fill(engine, 20, 30);
    QS_CHECK(streams_to_look_at(engine) == 0);
    check_counts(engine, "w", 30, 0);
    QS_CHECK_OK(qs_test_delete(engine->channel, "w", 0));
    QS_CHECK_OK(qs_test_delete(engine->channel, "later", 0));
    fill(engine, 30, 40);
    QS_CHECK(streams_to_look_at(engine) == 0);
    QS_CHECK_OK(try_declare_work(engine, "w"));
    check_counts(engine, "w", 40, 0);
}

/* ---- missing memory ---- */

#define FIRST 5u  /* messages before are acknowledged */
#define NEXT 140u /* messages from here on are not published yet */
#define READY (NEXT - FIRST)

static qs_status get_one(struct engine *engine, uint64_t *tag_out)
{
    qs_message message;

    QS_TRY(qs_channel_get(engine->channel, text("w"), 0, &message, QS_ERROR));
    *tag_out = message.delivery_tag;
    qs_message_release(&message);
    return QS_OK;
}

static qs_status get_and_ack(struct engine *engine)
{
    uint64_t tag;

    QS_TRY(get_one(engine, &tag));
    QS_TRY(qs_channel_ack(engine->channel, tag, 0, QS_ERROR));
    return qs_store_sync(engine->store, QS_ERROR);
}

static qs_status get_all_and_requeue(struct engine *engine)
{
    uint64_t tag = 0;

    for (uint32_t i = 0; i < READY; i++) {
        QS_TRY(get_one(engine, &tag));
    }
    return qs_channel_nack(engine->channel, tag, QS_REQUEUE | QS_MULTIPLE, 0, QS_ERROR);
}

static qs_status get_and_reject(struct engine *engine)
{
    uint64_t tag;

    QS_TRY(get_one(engine, &tag));
    QS_TRY(qs_channel_nack(engine->channel, tag, 0, 0, QS_ERROR));
    return qs_store_sync(engine->store, QS_ERROR);
}

static qs_status purge(struct engine *engine)
{
    QS_TRY(qs_test_purge(engine->channel, "w"));
    return qs_store_sync(engine->store, QS_ERROR);
}

static qs_status checkpoint(struct engine *engine)
{
    uint64_t tag;

    QS_TRY(get_one(engine, &tag));
    return qs_store_checkpoint(engine->store, QS_ERROR);
}

static qs_status declare_another(struct engine *engine)
{
    return try_declare_work(engine, "another");
}

static qs_status reopen(struct engine *engine)
{
    qs_store *store = engine->store;

    qs_channel_close(engine->channel);
    engine->channel = NULL;
    engine->store = NULL;
    QS_TRY(qs_store_close(store, QS_ERROR));
    QS_TRY(qs_store_open(&engine->store, engine->path, &engine->options, engine->env, QS_ERROR));
    return qs_channel_open(&engine->channel, engine->store, QS_ERROR);
}

static const struct starved {
    const char *name;
    qs_status (*run)(struct engine *engine);
    uint32_t fewest, rejected; /* what w and dead may have in the end; and READY or 0 */
} operations[] = {
    {"get and ack", get_and_ack, READY - 1, 0},
    {"get all and requeue", get_all_and_requeue, READY, 0},
    {"get and reject", get_and_reject, READY - 1, 1},
    {"purge", purge, 0, 0},
    {"checkpoint", checkpoint, READY, 0},
    {"declare", declare_another, READY, 0},
    {"reopen", reopen, READY, 0},
};

/* Each message of w is the next one, whole; how many there are. */
static uint32_t drain(struct engine *engine)
{
    uint32_t next = NEXT - (uint32_t)status_of(engine, "w").messages_ready, count = 0;

    for (; next < NEXT; next++, count++) {
        QS_TEST_FREED char *body = make_body(BODY, next);
        ack(engine, get(engine, "w", body).delivery_tag, 0);
    }
    get_nothing(engine, "w");
    return count;
}

/* One run of one operation with the n-th allocation failing, and those behind it if is_sticky;
 * false when none failed. */
static bool run_starved(qs_env *prepared, const qs_options *options,
                        const struct starved *operation, uint64_t n, bool is_sticky)
{
    struct engine engine = {.path = "store", .options = *options};
    uint32_t found, dead;
    qs_status status;
    bool failed;

    engine.env = qsi_env_mem_clone(prepared, 3);
    engine_open(&engine);
    qs_test_alloc_arm(&memory, n, is_sticky);
    status = operation->run(&engine);
    failed = memory.has_failed;
    qs_test_alloc_arm(&memory, 0, false);
    QS_CHECK(failed || status == QS_OK);
    QS_CHECK(status == QS_OK || status == QS_ENOMEM || status == QS_ESTORE_FAILED);
    qs_channel_close(engine.channel);
    if (engine.store != NULL) {
        qs_status closed = qs_store_close(engine.store, QS_ERROR);
        QS_CHECK(closed == QS_OK || (failed && closed == QS_ESTORE_FAILED));
    }
    engine_open(&engine);
    dead = (uint32_t)status_of(&engine, "dead").messages_ready;
    found = drain(&engine);
    if (!(found + dead == READY ||
          (found == operation->fewest && dead == 0 && operation->rejected == 0)) ||
        dead > operation->rejected || (!failed && found != operation->fewest)) {
        fprintf(stderr, "%s, allocation %" PRIu64 ": %s, w has %u, dead has %u\n", operation->name,
                n, qs_status_name(status), found, dead);
        QS_CHECK(!"contents");
    }
    engine_close(&engine);
    qsi_env_mem_destroy(engine.env);
    return failed;
}

static void prepare(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
    declare_stream(engine, 0);
    declare(engine, "dead", QS_DURABLE);
    QS_CHECK_OK(try_declare_work(engine, "w"));
    fill(engine, 0, 120);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    for (uint32_t i = 0; i < FIRST; i++) {
        QS_TEST_FREED char *body = make_body(BODY, i);
        ack(engine, get(engine, "w", body).delivery_tag, 0);
    }
    fill(engine, 120, NEXT);
    engine_close(engine);
}

QS_TEST(test_every_allocation_may_fail)
{
    struct engine engine;
    uint64_t alive, count = 0;

    qs_test_alloc_install(&memory);
    prepare(&engine);
    alive = memory.alive;
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        for (int is_sticky = 0; is_sticky <= 1; is_sticky++) {
            uint64_t n = 1;
            while (run_starved(engine.env, &engine.options, &operations[i], n, is_sticky != 0)) {
                n += 1;
                QS_CHECK(n < 2000);
            }
            count += n - 1;
            QS_CHECK(memory.alive == alive);
        }
    }
    QS_CHECK(count > 100);
    engine_fini(&engine);
    qs_test_alloc_end(&memory);
}
