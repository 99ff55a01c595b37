/* Descriptors and memory run short: the call that met it says so, the store goes on, and nothing is
 * lost.
 *
 * Every operation has its n-th opening of a file refused, for n = 1, 2, ... until none is; in
 * memory, without threads. */
#include "engine_fixture.h"
#include "qs_test_alloc.h"

enum { MESSAGES = 300, SMALL = 900, LARGE = 6000, N_MAX = 400 };

/* Most of the messages are in segments, every third body is in the message store, every second
 * message is settled: a checkpoint reads references, writes states, flushes, rewrites and compacts.
 */
static void start(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->env = qsi_env_fault_create(engine->env);
    QS_CHECK(engine->env != NULL);
    engine->options.memory_budget = 64u << 10;
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine->options.segment_entries = 64;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        publish(engine, "q", body);
        free(body);
    }
}

static void stop(struct engine *engine)
{
    qs_env *env = engine->env;

    engine_stop(engine);
    qsi_env_fault_destroy(env);
}

/* Tags from 1 on; every second one is settled. */
static void settle_half(struct engine *engine)
{
    for (uint32_t i = 0; i < MESSAGES; i++) {
        char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        uint64_t tag = get(engine, "q", body).delivery_tag;
        if (i % 2 == 0) {
            ack(engine, tag, 0);
        }
        free(body);
    }
}

static void check_rest(struct engine *engine)
{
    check_counts(engine, "q", MESSAGES / 2, 0);
    for (uint32_t i = 1; i < MESSAGES; i += 2) {
        char *body = make_body(i % 3 == 0 ? LARGE : SMALL, i);
        (void)get(engine, "q", body);
        free(body);
    }
    get_nothing(engine, "q");
}

static qs_status make_checkpoint(struct engine *engine)
{
    return qs_store_checkpoint(engine->store, QS_ERROR);
}

static qs_status requeue_and_page(struct engine *engine)
{
    qs_receipt receipt;
    qs_status status;

    status = qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR);
    for (uint32_t i = 0; i < 200 && status == QS_OK; i++) {
        status = qs_channel_publish(engine->channel, text(""), text("other"), PERSISTENT,
                                    text("a body that needs memory"), 0, &receipt, QS_ERROR);
    }
    return status;
}

static void check_goes_on(struct engine *engine, uint64_t n)
{
    struct engine dead;
    qs_status status = make_checkpoint(engine);

    if (status != QS_OK || stats_of(engine).failed) {
        fprintf(stderr, "after shortage %" PRIu64 ": %s: %s\n", n, qs_status_name(status),
                qs_test_error.text);
    }
    QS_CHECK(status == QS_OK && !stats_of(engine).failed);
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE, QS_ERROR));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine->env = engine->memory;
    engine_crash(engine, &dead);
    check_rest(engine);
    engine_stop(engine);
    *engine = dead;
}

static void sweep_openings(qs_status (*operation)(struct engine *engine))
{
    uint64_t n = 1;

    for (bool has_fired = true; has_fired; n++) {
        struct engine engine;
        qs_env *faulty;
        qs_status status;

        QS_CHECK(n < N_MAX);
        start(&engine);
        faulty = engine.env;
        declare(&engine, "other", 0);
        settle_half(&engine);
        qsi_env_fault_arm(faulty, QSI_FAULT_OPEN, QSI_FAULT_EMFILE, n, false);
        status = operation(&engine);
        has_fired = qsi_env_fault_fired(faulty);
        QS_CHECK(status == QS_OK || status == QS_EMFILE || status == QS_ESTORE_FULL);
        qsi_env_fault_arm(faulty, QSI_FAULT_OPEN, QSI_FAULT_EMFILE, 0, false);
        check_goes_on(&engine, n);
        engine.env = faulty;
        stop(&engine);
    }
    printf("%" PRIu64 " openings refused\n", n - 2);
    QS_CHECK(n > 5);
}

static void test_checkpoint_without_descriptors_does_not_fail_the_store(void)
{
    sweep_openings(make_checkpoint);
}

static void test_paging_without_descriptors_does_not_fail_the_store(void)
{
    sweep_openings(requeue_and_page);
}

static void test_open_without_descriptors_says_so_and_can_be_repeated(void)
{
    struct engine engine;
    qs_env *faulty;
    uint64_t n = 1;

    start(&engine);
    faulty = engine.env;
    settle_half(&engine);
    engine_close(&engine);
    for (bool has_fired = true; has_fired; n++) {
        qs_status status;

        QS_CHECK(n < N_MAX);
        qsi_env_fault_arm(faulty, QSI_FAULT_OPEN, QSI_FAULT_EMFILE, n, false);
        status = qs_store_open(&engine.store, engine.path, &engine.options, engine.env, QS_ERROR);
        has_fired = qsi_env_fault_fired(faulty);
        QS_CHECK(status == QS_OK || status == QS_EMFILE);
        if (status == QS_OK) { /* the one that is refused may be the manifest's, of the close */
            status = qs_store_close(engine.store, QS_ERROR);
            QS_CHECK(status == QS_OK || status == QS_EMFILE);
        }
    }
    QS_CHECK(n > 5);
    engine_open(&engine);
    check_rest(&engine);
    stop(&engine);
}

/* References of settled messages that could not be read for want of memory are dropped later:
 * before, the store failed. */
static void test_checkpoint_without_memory_does_not_fail_the_store(void)
{
    struct qs_test_alloc state;
    bool has_failed = true;
    uint64_t n = 1;

    qs_test_alloc_install(&state);
    for (; has_failed; n++) {
        struct engine engine;
        qs_env *faulty;
        qs_status status;

        QS_CHECK(n < 10000);
        start(&engine);
        faulty = engine.env;
        settle_half(&engine);
        qs_test_alloc_arm(&state, n, false);
        status = make_checkpoint(&engine);
        has_failed = state.has_failed;
        qs_test_alloc_arm(&state, 0, false);
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        check_goes_on(&engine, n);
        engine.env = faulty;
        stop(&engine);
        n += n > 60 ? 6 : 0;
    }
    qs_allocator_set(NULL);
    printf("%" PRIu64 " allocations\n", n - 2);
}

int main(void)
{
    test_checkpoint_without_descriptors_does_not_fail_the_store();
    test_paging_without_descriptors_does_not_fail_the_store();
    test_open_without_descriptors_says_so_and_can_be_repeated();
    test_checkpoint_without_memory_does_not_fail_the_store();
    return 0;
}
