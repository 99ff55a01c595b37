/* What a store is after it was closed, after its process died, and after many of both. */
#include "arrow_table.h"
#include "engine_fixture.h"

#include <sys/wait.h>

/* Every way to publish, into one queue: embedded, stored, batch, transient. */
static void publish_some_of_everything(struct engine *engine, char *large)
{
    const char *rows[] = {"row 1", large, "row 3"};
    struct table table;
    qs_receipt receipt;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "embedded");
    publish(engine, "q", large);
    publish_to(engine, "", "q", TRANSIENT, text("transient"));
    table_init(&table, 3);
    table_add_strings(&table, "body", "z", rows);
    QS_CHECK_OK(table_publish(engine->channel, &table, "", "q", 0, &receipt, QS_ERROR));
    table_fini(&table);
    publish(engine, "q", "last");
}

static void get_some_of_everything(struct engine *engine, char *large, bool redelivered)
{
    const char *const expected[] = {"embedded", large, "row 1", large, "row 3", "last"};

    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        qs_message message = get(engine, "q", expected[i]);

        QS_CHECK(message.redelivered == redelivered);
        QS_CHECK(message.delivery_count == (redelivered ? 1 : 0));
    }
    get_nothing(engine, "q");
}

ENGINE_TEST(test_reopening_recovers_everything)
{
    QS_TEST_FREED char *large = make_body(70000, 9);

    publish_some_of_everything(engine, large);
    engine_reopen(engine);
    QS_CHECK(stats_of(engine).recovered_messages == 6);
    get_some_of_everything(engine, large, false);
    ack(engine, 0, QS_MULTIPLE);
    engine_reopen(engine);
    get_nothing(engine, "q");
}

/* Nobody knows what had been delivered: everything says redelivered. */
IN_MEMORY_TEST(test_a_crash_recovers_everything_as_redelivered)
{
    QS_TEST_FREED char *large = make_body(70000, 9);

    publish_some_of_everything(engine, large);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    get_some_of_everything(engine, large, true);
}

IN_MEMORY_TEST(test_after_a_crash_new_messages_are_new)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    publish(engine, "q", "2");
    QS_CHECK(get(engine, "q", "1").redelivered);
    QS_CHECK(!get(engine, "q", "2").redelivered);
    engine_reopen(engine);
    QS_CHECK(get(engine, "q", "1").redelivered);
    QS_CHECK(get(engine, "q", "2").redelivered); /* it was out when the store was closed */
}

/* A flag of the session that crashed says nothing about the one after it. */
IN_MEMORY_TEST(test_what_was_not_delivered_after_a_crash_is_not_redelivered)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    publish(engine, "q", "2");
    engine_reopen(engine); /* in order, this time */
    QS_CHECK(get(engine, "q", "1").redelivered);
    QS_CHECK(!get(engine, "q", "2").redelivered);
}

IN_MEMORY_TEST(test_delivery_counts_go_on_after_a_crash)
{
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    engine_crash(engine);
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 1);
    QS_CHECK_OK(qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR));
    message = get(engine, "q", "1");
    QS_CHECK(message.redelivered && message.delivery_count == 2);
    message = get(engine, "q", "2");
    QS_CHECK(message.redelivered && message.delivery_count == 1);
}

IN_MEMORY_TEST(test_settled_messages_stay_settled_and_requeued_ones_keep_their_place)
{
    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 6; i++) {
        char body[2] = {(char)('0' + i), '\0'};

        publish(engine, "q", body);
    }
    for (int i = 0; i < 6; i++) {
        char body[2] = {(char)('0' + i), '\0'};

        get(engine, "q", body);
    }
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_channel_nack(engine->channel, 3, 0, 0, QS_ERROR));
    QS_CHECK_OK(qs_channel_nack(engine->channel, 2, QS_REQUEUE, 0, QS_ERROR));
    ack(engine, 5, 0);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    for (int turn = 0; turn < 2; turn++) {
        if (turn == 0) {
            engine_crash(engine);
        } else {
            engine_reopen(engine);
        }
        get(engine, "q", "1");
        get(engine, "q", "3");
        get(engine, "q", "5");
        get_nothing(engine, "q");
    }
}

ENGINE_TEST(test_transient_things_end_with_their_process)
{
    declare(engine, "transient", 0);
    declare(engine, "durable", QS_DURABLE);
    publish(engine, "transient", "1");
    publish_to(engine, "", "durable", TRANSIENT, text("2"));
    publish_to(engine, "", "durable", NONE, text("3"));
    publish(engine, "durable", "4");
    engine_reopen(engine);
    QS_CHECK(!has_queue(engine, "transient"));
    get(engine, "durable", "4");
    get_nothing(engine, "durable");
    declare(engine, "transient", 0);
    get_nothing(engine, "transient");
}

/* Transient messages leave gaps in the sequences of those that stay. */
ENGINE_TEST(test_persistent_messages_among_transient_ones)
{
    char body[16];

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 300; i++) {
        snprintf(body, sizeof body, "%d", i);
        publish_to(engine, "", "q", i % 3 == 0 ? PERSISTENT : TRANSIENT, text(body));
    }
    get_numbers(engine, "q", 0, 100);
    ack(engine, 50, QS_MULTIPLE);
    engine_reopen(engine);
    for (int i = 51; i < 300; i += 3) {
        get_number(engine, "q", i);
    }
    get_nothing(engine, "q");
}

ENGINE_TEST(test_many_sessions)
{
    char body[16];

    declare(engine, "q", QS_DURABLE);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 3; i++) {
            publish_number(engine, "q", 3 * turn + i);
        }
        if (turn % 5 != 4) { /* some sessions journal nothing more */
            snprintf(body, sizeof body, "%d", 2 * (turn - turn / 5));
            get_flags(engine, "q", body, QS_NO_ACK);
            snprintf(body, sizeof body, "%d", 2 * (turn - turn / 5) + 1);
            get_flags(engine, "q", body, QS_NO_ACK);
        }
        engine_reopen(engine);
        engine_reopen(engine);
    }
    check_counts(engine, "q", 60 - 32, 0);
    get(engine, "q", "32");
}

IN_MEMORY_TEST(test_sessions_that_crash_one_after_the_other)
{
    declare(engine, "q", QS_DURABLE);
    for (int turn = 0; turn < 8; turn++) {
        publish_number(engine, "q", turn);
        QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
        publish(engine, "q", "never committed");
        engine_crash(engine);
        check_counts(engine, "q", (uint64_t)turn + 1, 0);
    }
    get_numbers(engine, "q", 0, 8);
}

/* The bitmaps of a whole segment would be 6 KiB. */
UNOPENED_TEST(test_a_queue_of_few_messages_costs_little_memory_when_reopened)
{
    enum { QUEUES = 400, MESSAGES = 100 };
    char name[16];

    engine->options.checkpoint_bytes = 1u << 20;
    engine_open(engine);
    for (int i = 0; i < QUEUES; i++) {
        snprintf(name, sizeof name, "%d", i);
        declare(engine, name, QS_DURABLE);
        for (int k = 0; k < MESSAGES; k++) {
            publish(engine, name, "m");
        }
    }
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    QS_CHECK(stats_of(engine).ram_bytes < QUEUES * 1024);
    for (int i = 0; i < QUEUES; i++) { /* and it grows as any other */
        snprintf(name, sizeof name, "%d", i);
        publish(engine, name, "n");
        ack(engine, get(engine, name, "m").delivery_tag, 0);
        check_counts(engine, name, MESSAGES, 0);
    }
}

/* A process that is killed on a real disk. */
QS_TEST(test_a_killed_process_loses_nothing_that_was_confirmed)
{
    QS_TEST_FREED char *large = make_body(70000, 9);
    struct engine engine;
    int result;
    pid_t child;

    engine_init(&engine, ON_DISK);
    child = fork();
    QS_CHECK(child >= 0);
    if (child == 0) {
        engine.options.background = false; /* not every sanitizer likes threads in a child */
        engine_open(&engine);
        publish_some_of_everything(&engine, large);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        _exit(7);
    }
    QS_CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result));
    QS_CHECK(WEXITSTATUS(result) == 7);
    engine_open(&engine);
    get_some_of_everything(&engine, large, true);
    engine_stop(&engine);
}

/* ---- the page cache outlives the process, and not the power ---- */

#define ROLLING_BODY_BYTES 3000
#define ROLLING_MESSAGES 120 /* some six journal files */

static void open_on(struct engine *engine, qs_env *env)
{
    memset(engine, 0, sizeof *engine);
    qs_options_default(&engine->options);
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.background = false;
    engine->env = env;
    snprintf(engine->path, sizeof engine->path, "store");
    engine_open(engine);
}

/* From the given call on none works, as for a process that died there. */
static bool dies_at_call(struct engine *engine, qs_env *fault, uint64_t call)
{
    QS_TEST_FREED char *body = make_body(ROLLING_BODY_BYTES, 1);
    qs_receipt receipt;
    qs_status status = QS_OK;

    qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, call, true);
    for (int i = 0; status == QS_OK && i < ROLLING_MESSAGES; i++) {
        status = qs_channel_publish(engine->channel, text(""), text("q"), PERSISTENT, text(body), 0,
                                    0, &receipt, NULL);
        if (status == QS_OK && i % 3 == 2) {
            status = qs_store_sync(engine->store, NULL);
        }
    }
    return status != QS_OK;
}

static uint64_t ready_in(struct engine *engine)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    return status.messages_ready;
}

static bool check_death_at(uint64_t call)
{
    qs_env *sim = qsi_env_sim_create(call);
    qs_env *fault = qsi_env_fault_create(sim);
    qs_env *disk;
    struct engine engine;
    uint64_t ready;
    bool died;

    open_on(&engine, fault);
    declare(&engine, "q", QS_DURABLE);
    died = dies_at_call(&engine, fault, call);
    qs_channel_close(engine.channel);
    (void)!qs_store_close(engine.store, NULL);
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    open_on(&engine, fault);
    ready = ready_in(&engine);
    disk = qsi_env_sim_cut(sim, QSI_CUT_DROP_ALL, call);
    engine_close(&engine);
    qsi_env_fault_destroy(fault);
    qsi_env_sim_destroy(sim);
    open_on(&engine, disk);
    QS_CHECK(ready_in(&engine) == ready);
    engine_close(&engine);
    qsi_env_mem_destroy(disk);
    return died;
}

/* The process died between writing an end block and syncing it: recovery went on in the next
 * file, and synced only that. */
QS_TEST(test_store_was_refused_after_a_kill_between_two_files_and_a_power_cut)
{
    uint64_t call = 1;

    while (check_death_at(call)) {
        call += 1;
    }
    QS_CHECK(call > ROLLING_MESSAGES / 3);
}
