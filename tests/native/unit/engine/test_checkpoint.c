/* What checkpoints write, and what they leave as it is. */
#include "engine_fixture.h"

enum { QUEUES = 20, MESSAGES = 100 };

static char *name_of(int queue)
{
    static char name[16];

    snprintf(name, sizeof name, "%d", queue);
    return name;
}

static void checkpoint(struct engine *engine)
{
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
}

static void consume_one(struct engine *engine, const char *queue)
{
    QS_CHECK_OK(qs_test_get(engine->channel, queue, QS_NO_ACK));
}

/* How many calls of this kind a checkpoint takes. */
static uint64_t calls_of_checkpoint(struct engine *engine, enum qsi_fault_kind kind)
{
    qsi_env_fault_arm(engine->env, kind, QSI_FAULT_EIO, 0, false);
    checkpoint(engine);
    return qsi_env_fault_calls(engine->env);
}

/* Queues in segments whose first message is consumed; what comes behind them is little, and
 * carried. */
static void start_with_carried_tails(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(1000, 0);

    engine_init(engine, IN_MEMORY);
    engine_put_fault(engine);
    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
    for (int i = 0; i < QUEUES; i++) {
        declare(engine, name_of(i), QS_DURABLE);
        for (int k = 0; k < MESSAGES; k++) {
            publish(engine, name_of(i), body);
        }
    }
    checkpoint(engine);
    QS_CHECK(stats_of(engine).segments_written == QUEUES);
    for (int i = 0; i < QUEUES; i++) {
        publish(engine, name_of(i), "carried");
        publish_to(engine, "", name_of(i), TRANSIENT, text("transient"));
        consume_one(engine, name_of(i));
    }
}

static void check_after_crash(struct engine *engine, uint64_t ready)
{
    struct engine crashed;

    engine_open_crashed(engine, &crashed);
    for (int i = 0; i < QUEUES; i++) {
        check_counts(&crashed, name_of(i), ready, 0);
    }
    engine_stop(&crashed);
}

QS_TEST(test_states_that_did_not_change_are_not_written_again)
{
    struct engine engine;

    start_with_carried_tails(&engine);
    QS_CHECK(calls_of_checkpoint(&engine, QSI_FAULT_SYNC) >= QUEUES);
    QS_CHECK(calls_of_checkpoint(&engine, QSI_FAULT_SYNC) < QUEUES);
    QS_CHECK(calls_of_checkpoint(&engine, QSI_FAULT_WRITE) < QUEUES);
    check_after_crash(&engine, MESSAGES);
    for (int i = 0; i < QUEUES; i++) {
        consume_one(&engine, name_of(i));
    }
    QS_CHECK(calls_of_checkpoint(&engine, QSI_FAULT_SYNC) >= QUEUES);
    check_after_crash(&engine, MESSAGES - 1);
    engine_stop(&engine);
}

/* The states were written, but not for a checkpoint that counts: the next one has them synced. */
QS_TEST(test_states_of_a_checkpoint_that_failed_are_synced_by_the_next)
{
    struct engine engine;
    uint64_t writes;

    start_with_carried_tails(&engine);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    writes = calls_of_checkpoint(&engine, QSI_FAULT_WRITE);
    engine_stop(&engine);
    start_with_carried_tails(&engine);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    /* The last two are the checkpoint's file and MANIFEST. */
    qsi_env_fault_arm(engine.env, QSI_FAULT_WRITE, QSI_FAULT_ENOSPC, writes - 1, true);
    QS_CHECK_STATUS(QS_ESTORE_FULL, qs_store_checkpoint(engine.store, QS_ERROR));
    QS_CHECK(strstr(QS_ERROR->text, "checkpoint: checkpoint/") != NULL);
    QS_CHECK(strstr(QS_ERROR->text, ".ckp: write") != NULL);
    QS_CHECK(calls_of_checkpoint(&engine, QSI_FAULT_SYNC) >= QUEUES);
    check_after_crash(&engine, MESSAGES);
    engine_stop(&engine);
}

/* A journal of five files, with nothing in it that anybody needs. */
static void fill_and_drain(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(100000, 0);

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 1000; i++) {
        publish(engine, "q", body);
        consume_one(engine, "q");
    }
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
}

/* By a clock that does not go by itself. */
UNOPENED_TEST(test_a_store_that_is_quiet_gives_its_journal_back)
{
    engine->options.background = true;
    engine->options.checkpoint_interval_ms = 0;
    engine->options.journal_file_bytes = 64u << 20;
    engine->options.embed_below = 1u << 20;
    engine_open(engine);
    fill_and_drain(engine);
    QS_CHECK(qsi_env_ram_used(engine->memory) > 150u << 20);
    while (qsi_env_ram_used(engine->memory) > 80u << 20) { /* the file in use is left */
        qsi_env_mem_advance(engine->memory, SECOND / 2);
        usleep(1000);
    }
    publish(engine, "q", "x");
    get(engine, "q", "x");
}
