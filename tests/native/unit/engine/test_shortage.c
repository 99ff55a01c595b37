/* Descriptors and memory run short, or the disk cannot be read for a while: the call that met it
 * says so, the store goes on, and nothing is lost.
 *
 * Every operation has its n-th opening of a file refused, or its n-th read failed, for n = 1, 2,
 * ...  until none is; in memory, without threads. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_dirs.h"
#include "qs_test_faults.h"

enum { MESSAGES = 300, SMALL = 900, LARGE = 6000 };

/* Most of the messages are in segments, every third body is in the message store, every second
 * message is settled: a checkpoint reads references, writes states, flushes, rewrites and compacts.
 */
static void start(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine_put_fault(engine);
    engine->options.memory_budget = 64u << 10;
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine->options.segment_entries = 64;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        QS_TEST_FREED char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        publish(engine, "q", body);
    }
}

/* Tags from 1 on; every second one is settled. */
static void settle_half(struct engine *engine)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        QS_TEST_FREED char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        uint64_t tag = get(engine, "q", body).delivery_tag;
        if (i % 2 == 0) {
            ack(engine, tag, 0);
        }
    }
}

static void check_rest(struct engine *engine)
{
    check_counts(engine, "q", MESSAGES / 2, 0);
    for (uint32_t i = 1; i < MESSAGES; i += 2) {
        QS_TEST_FREED char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        (void)get(engine, "q", body);
    }
    get_nothing(engine, "q");
}

static qs_status make_checkpoint(struct engine *engine)
{
    return qs_store_checkpoint(engine->store, QS_ERROR);
}

static qs_status requeue_and_page(struct engine *engine)
{
    qs_status status;

    qsi_env_mem_advance(engine->memory, 60 * SECOND); /* queues that are slow keep less in memory */
    status = qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR);
    for (uint32_t i = 0; i < 200 && status == QS_OK; i++) {
        status = qs_test_publish(engine->channel, "", "other", PERSISTENT,
                                 text("a body that needs memory"), 0);
    }
    return status;
}

static void check_goes_on(struct engine *engine, uint64_t n)
{
    struct engine crashed;
    qs_status status = make_checkpoint(engine);

    if (status != QS_OK || stats_of(engine).failed) {
        fprintf(stderr, "after shortage %" PRIu64 ": %s: %s\n", n, qs_status_name(status),
                qs_test_error.text);
    }
    QS_CHECK(status == QS_OK && !stats_of(engine).failed);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine->env = engine->memory;
    engine_open_crashed(engine, &crashed);
    check_rest(&crashed);
    engine_stop(&crashed);
}

static void sweep(enum qsi_fault_kind kind, enum qsi_fault_how how, bool sticky,
                  qs_status (*operation)(struct engine *engine))
{
    struct qs_test_sweep sweep = {.kind = kind, .how = how, .is_sticky = sticky, .fewest = 4};

    while (qs_test_sweep_on(&sweep)) {
        struct engine engine;
        qs_env *faulty;
        qs_status status;

        start(&engine);
        faulty = engine.env;
        declare(&engine, "other", 0);
        settle_half(&engine);
        qs_test_sweep_calls(&sweep, faulty);
        status = operation(&engine);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || status == QS_ESTORE_FULL ||
                 status == (how == QSI_FAULT_EMFILE ? QS_EMFILE : QS_ECORRUPT));
        check_goes_on(&engine, sweep.n);
        engine.env = faulty;
        engine_stop(&engine);
    }
}

static void sweep_openings(qs_status (*operation)(struct engine *engine))
{
    sweep(QSI_FAULT_OPEN, QSI_FAULT_EMFILE, false, operation);
}

QS_TEST(test_a_read_that_failed_in_a_checkpoint_failed_the_store)
{
    sweep(QSI_FAULT_READ, QSI_FAULT_EIO, false, make_checkpoint);
    sweep(QSI_FAULT_READ, QSI_FAULT_EIO, true, make_checkpoint);
}

QS_TEST(test_a_read_that_failed_in_paging_failed_the_store)
{
    sweep(QSI_FAULT_READ, QSI_FAULT_EIO, false, requeue_and_page);
    sweep(QSI_FAULT_READ, QSI_FAULT_EIO, true, requeue_and_page);
}

QS_TEST(test_checkpoint_without_descriptors_does_not_fail_the_store)
{
    sweep_openings(make_checkpoint);
}

QS_TEST(test_paging_without_descriptors_does_not_fail_the_store)
{
    sweep_openings(requeue_and_page);
}

QS_TEST(test_open_without_descriptors_says_so_and_can_be_repeated)
{
    struct qs_test_sweep sweep = {.kind = QSI_FAULT_OPEN, .how = QSI_FAULT_EMFILE, .fewest = 4};
    struct engine engine;

    start(&engine);
    settle_half(&engine);
    engine_close(&engine);
    while (qs_test_sweep_on(&sweep)) {
        qs_status status;

        qs_test_sweep_calls(&sweep, engine.env);
        status = qs_store_open(&engine.store, engine.path, &engine.options, engine.env, QS_ERROR);
        QS_CHECK(status == QS_OK || status == QS_EMFILE);
        if (status == QS_OK) { /* the one that is refused may be the manifest's, of the close */
            status = qs_store_close(engine.store, QS_ERROR);
            QS_CHECK(status == QS_OK || status == QS_EMFILE);
        }
        qs_test_sweep_rest(&sweep);
    }
    engine_open(&engine);
    check_rest(&engine);
    engine_stop(&engine);
}

/* References of settled messages that could not be read for want of memory are dropped later:
 * before, the store failed. */
QS_TEST(test_checkpoint_without_memory_does_not_fail_the_store)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true, .thins = 60};
         qs_test_sweep_on(&sweep);) {
        struct engine engine;
        qs_env *faulty;
        qs_status status;

        start(&engine);
        faulty = engine.env;
        settle_half(&engine);
        /* The memory of the disk counts as well, and a write to the journal that fails is final. */
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        qs_test_sweep_allocations(&sweep);
        status = make_checkpoint(&engine);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        check_goes_on(&engine, sweep.n);
        engine.env = faulty;
        engine_stop(&engine);
    }
}

/* ---- what goes by itself, without memory: later ---- */

static uint32_t count_segments(struct engine *engine)
{
    return qs_test_count_files(engine->memory, engine->path, "index", ".seg");
}

/* Their files stayed until the next open when there was no memory to note them. */
QS_TEST(test_segments_that_ended_without_memory_go_with_a_later_checkpoint)
{
    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct engine engine;
        qs_status status;

        start(&engine);
        QS_CHECK_OK(make_checkpoint(&engine));
        settle_half(&engine);
        ack(&engine, MESSAGES, QS_MULTIPLE);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        QS_CHECK(count_segments(&engine) > 0);
        qs_test_sweep_allocations(&sweep);
        status = make_checkpoint(&engine);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        QS_CHECK_OK(make_checkpoint(&engine));
        QS_CHECK_OK(make_checkpoint(&engine));
        QS_CHECK(count_segments(&engine) == 0 && !stats_of(&engine).failed);
        engine_stop(&engine);
    }
}

enum { LIMIT = 4, PUBLISHED = 12 };

/* A queue that keeps so many, what is more goes to "dead". */
static void start_limited(struct engine *engine, bool dead_letters)
{
    struct qs_test_fields fields = {.used = 0};

    engine_start(engine, IN_MEMORY);
    declare(engine, "dead", QS_DURABLE);
    qs_test_put_long(&fields, "x-max-length", LIMIT);
    if (dead_letters) {
        qs_test_put_text(&fields, "x-dead-letter-exchange", "");
        qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    }
    qs_test_declare(engine->channel, "q", QS_DURABLE, &fields);
}

/* Messages that a limit puts out stay too many, or with nobody, when memory runs out: until
 * memory is back. */
static void sweep_limit(bool dead_letters, bool is_sticky)
{
    struct qs_test_sweep sweep = {.has_own_memory = true, .is_sticky = is_sticky};

    while (qs_test_sweep_on(&sweep)) {
        struct engine engine;
        qs_queue_status left, dead;
        uint64_t published = 0;

        start_limited(&engine, dead_letters);
        for (; published < LIMIT; published++) {
            publish(&engine, "q", "a message");
        }
        qs_test_sweep_allocations(&sweep);
        for (uint32_t i = LIMIT; i < PUBLISHED; i++) {
            qs_status status =
                qs_test_publish(engine.channel, "", "q", PERSISTENT, text("a message"), 0);
            QS_CHECK(status == QS_OK || status == QS_ENOMEM);
            published += status == QS_OK ? 1 : 0;
        }
        qs_test_sweep_rest(&sweep);
        qsi_env_mem_advance(engine.memory, 2 * SECOND); /* what was stuck is tried again, */
        declare(&engine, "dead", QS_DURABLE); /* by whoever comes, where there is no timer */
        QS_CHECK_OK(qs_store_queue_status(engine.store, text("q"), &left, QS_ERROR));
        QS_CHECK_OK(qs_store_queue_status(engine.store, text("dead"), &dead, QS_ERROR));
        if (left.messages_ready > LIMIT || left.messages_unacked > 0 ||
            (dead_letters && left.messages_ready + dead.messages_ready != published)) {
            fprintf(stderr,
                    "allocation %" PRIu64 ": %" PRIu64 " published, %" PRIu64 " there, %" PRIu64
                    " held, %" PRIu64 " dead\n",
                    sweep.n, published, left.messages_ready, left.messages_unacked,
                    dead.messages_ready);
            QS_CHECK(!"where they belong");
        }
        QS_CHECK(!stats_of(&engine).failed);
        engine_stop(&engine);
    }
}

QS_TEST(test_what_leaves_without_memory_leaves_later)
{
    sweep_limit(false, false);
    sweep_limit(false, true);
    sweep_limit(true, false);
    sweep_limit(true, true);
}
