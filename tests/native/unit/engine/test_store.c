/* The store as a whole: opening and refusing to, one owner, fork, closing, statistics. */
#include "engine_fixture.h"
#include "rates.h"

#include <sys/stat.h>
#include <sys/wait.h>

QS_TEST(test_open_needs_a_store_or_leave_to_create)
{
    struct engine engine;
    struct stat info;
    qs_store *store;

    for (int place = IN_MEMORY; place <= ON_DISK; place++) {
        engine_init(&engine, (enum place)place);
        engine.options.create = false;
        QS_CHECK_STATUS(QS_ESTORE_NOT_FOUND,
                        qs_store_open(&store, engine.path, &engine.options, engine.env, QS_ERROR));
        QS_CHECK(store == NULL);
        QS_CHECK_STATUS(QS_ESTORE_NOT_FOUND, qs_store_open(&store, "/nowhere/at/all",
                                                           &engine.options, engine.env, QS_ERROR));
        engine.options.create = true;
        QS_CHECK(qs_store_open(&store, "/nowhere/at/all", &engine.options, engine.env, QS_ERROR) !=
                     QS_OK ||
                 place == IN_MEMORY);
        if (store != NULL) {
            QS_CHECK_OK(qs_store_close(store, QS_ERROR));
        }
        engine_open(&engine);
        engine_close(&engine);
        engine.options.create = false;
        engine_open(&engine);
        if (place == ON_DISK) {
            QS_CHECK(stat(engine.path, &info) == 0 && (info.st_mode & 077) == 0);
        }
        engine_stop(&engine);
    }
}

QS_TEST(test_options_that_make_no_sense_are_refused)
{
    struct engine engine;
    qs_options good, seen;
    qs_store *store;

    engine_init(&engine, IN_MEMORY);
    good = engine.options;
    for (int i = 0; i < 10; i++) {
        qs_options bad = good;

        switch (i) {
        case 0:
            bad.journal_file_bytes = 100000;
            break;
        case 1:
            bad.journal_file_bytes = 32768;
            break;
        case 2:
            bad.message_file_bytes = 0;
            break;
        case 3:
            bad.message_file_bytes = (1u << 20) + 1;
            break;
        case 4:
            bad.segment_entries = 1000;
            break;
        case 5:
            bad.body_bytes_max = 0;
            break;
        case 6:
            bad.sync = 2;
            break;
        case 7:
            bad.recovery = 2;
            break;
        case 8:
            bad.message_file_bytes = UINT64_C(32) << 30;
            break;
        default:
            bad.body_bytes_max = UINT64_C(1) << 40;
        }
        QS_CHECK_STATUS(QS_EINVAL, qs_store_open(&store, "store", &bad, engine.env, QS_ERROR));
        QS_CHECK(store == NULL);
    }
    engine.options.segment_entries = 1024;
    engine_open(&engine);
    qs_store_options(engine.store, &seen);
    QS_CHECK(seen.segment_entries == 1024 && seen.journal_file_bytes == good.journal_file_bytes &&
             !seen.background);
    engine_close(&engine);
    engine.options.segment_entries = 2048; /* fixed at creation */
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_store_open(&store, engine.path, &engine.options, engine.env, QS_ERROR));
    engine_fini(&engine);
}

ENGINE_TEST(test_a_second_owner_is_told_of_the_first)
{
    char pid[32];
    qs_store *second;

    snprintf(pid, sizeof pid, " %ld", (long)getpid());
    QS_CHECK_STATUS(QS_ESTORE_LOCKED,
                    qs_store_open(&second, engine->path, &engine->options, engine->env, QS_ERROR));
    QS_CHECK(second == NULL);
    QS_CHECK(engine->memory != NULL || strstr(QS_ERROR->text, pid) != NULL);
    declare(engine, "q", QS_DURABLE); /* and the first one goes on */
    engine_reopen(engine);
    QS_CHECK(has_queue(engine, "q"));
}

/* A call in the child, where QS_CHECK must not run the parent's exit handlers. */
#define CHILD_CHECK(number, cond) \
    do {                          \
        if (!(cond)) {            \
            _exit(number);        \
        }                         \
    } while (0)

static void be_a_child(struct engine *engine, int pipe_in, int pipe_out)
{
    qs_receipt receipt;
    qs_message message;
    qs_declare_ok ok;
    qs_channel *channel;
    qs_event event;
    qs_store *second;
    char byte;

    CHILD_CHECK(2, qs_store_sync(engine->store, NULL) == QS_EFORKED);
    CHILD_CHECK(3, qs_channel_publish(engine->channel, NONE, text("q"), NONE, NONE, 0, 0, &receipt,
                                      NULL) == QS_EFORKED);
    CHILD_CHECK(4, qs_channel_get(engine->channel, text("q"), 0, &message, NULL) == QS_EFORKED);
    CHILD_CHECK(5, qs_channel_queue_declare(engine->channel, text("x"), 0, NONE, &ok, NULL) ==
                       QS_EFORKED);
    CHILD_CHECK(6, qs_channel_open(&channel, engine->store, NULL) == QS_EFORKED);
    CHILD_CHECK(7, qs_channel_next_event(engine->channel, QS_EVENT_ACK, 0, &event, NULL) ==
                       QS_EFORKED);
    CHILD_CHECK(8, qs_channel_ack(engine->channel, 1, 0, NULL) == QS_EFORKED);
    /* The parent has it open. */
    CHILD_CHECK(9, qs_store_open(&second, engine->path, &engine->options, engine->env, NULL) ==
                       QS_ESTORE_LOCKED);
    qs_channel_close(engine->channel);
    CHILD_CHECK(10, qs_store_close(engine->store, NULL) == QS_OK);
    CHILD_CHECK(11, write(pipe_out, "x", 1) == 1);
    CHILD_CHECK(12, read(pipe_in, &byte, 1) == 1); /* lives until the parent says so */
    _exit(0);
}

ON_DISK_TEST(test_fork_leaves_the_store_to_the_parent)
{
    int to_child[2], to_parent[2];
    int result;
    pid_t child;
    char byte;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    QS_CHECK(pipe(to_child) == 0 && pipe(to_parent) == 0);
    child = fork();
    QS_CHECK(child >= 0);
    if (child == 0) {
        be_a_child(engine, to_child[0], to_parent[1]);
    }
    close(to_parent[1]);
    if (read(to_parent[0], &byte, 1) == 1) {
        publish(engine, "q", "2");
        engine_reopen(engine); /* the lock is free although the child lives */
        get(engine, "q", "1");
        get(engine, "q", "2");
    }
    QS_CHECK(write(to_child[1], "x", 1) == 1);
    QS_CHECK(waitpid(child, &result, 0) == child);
    if (!WIFEXITED(result) || WEXITSTATUS(result) != 0) {
        fprintf(stderr, "child: %d\n", result);
        QS_CHECK(!"child");
    }
    close(to_child[0]);
    close(to_child[1]);
    close(to_parent[0]);
}

ON_DISK_TEST(test_a_child_opens_the_store_when_the_parent_has_closed_it)
{
    int result;
    pid_t child;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    engine_close(engine);
    child = fork();
    QS_CHECK(child >= 0);
    if (child == 0) {
        qs_message message;

        engine->options.background = false; /* not every sanitizer likes threads in a child */
        CHILD_CHECK(2, qs_store_open(&engine->store, engine->path, &engine->options, engine->env,
                                     NULL) == QS_OK);
        CHILD_CHECK(3, qs_channel_open(&engine->channel, engine->store, NULL) == QS_OK);
        CHILD_CHECK(4,
                    qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &message, NULL) == QS_OK);
        qs_message_release(&message);
        qs_channel_close(engine->channel);
        CHILD_CHECK(5, qs_store_close(engine->store, NULL) == QS_OK);
        _exit(0);
    }
    QS_CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result));
    QS_CHECK(WEXITSTATUS(result) == 0);
    engine_open(engine);
    get_nothing(engine, "q");
}

QS_TEST(test_close_ends_open_channels)
{
    struct engine engine;
    qs_channel *other, *late;
    qs_message message;
    qs_stats stats;

    for (int place = IN_MEMORY; place <= ON_DISK; place++) {
        engine_start(&engine, (enum place)place);
        declare(&engine, "q", QS_DURABLE);
        declare(&engine, "mine", QS_EXCLUSIVE);
        QS_CHECK_OK(qs_channel_open(&other, engine.store, QS_ERROR));
        publish(&engine, "q", "1");
        publish(&engine, "q", "2");
        QS_CHECK_OK(qs_channel_get(other, text("q"), 0, &message, QS_ERROR));
        QS_CHECK_OK(qs_store_close(engine.store, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_channel_ack(other, message.delivery_tag, 0, QS_ERROR));
        QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_test_publish(other, "", "q", NONE, NONE, 0));
        QS_CHECK_STATUS(QS_ESTORE_CLOSED, qs_channel_open(&late, engine.store, QS_ERROR));
        QS_CHECK(late == NULL && qs_store_durable_lsn(engine.store) == 0);
        qs_store_stats(engine.store, &stats);
        QS_CHECK(stats.appended_lsn == 0);
        QS_CHECK(holds(message.body, "1"));
        qs_message_release(&message);
        qs_channel_close(engine.channel);
        qs_channel_close(other); /* the last one frees the store */
        engine_open(&engine);
        QS_CHECK(get(&engine, "q", "1").redelivered);
        QS_CHECK(!get(&engine, "q", "2").redelivered);
        QS_CHECK(!has_queue(&engine, "mine"));
        engine_stop(&engine);
    }
    QS_CHECK_OK(qs_store_close(NULL, QS_ERROR));
    qs_channel_close(NULL);
}

ENGINE_TEST(test_sync_makes_everything_durable)
{
    qs_stats before, after;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 100; i++) {
        publish(engine, "q", "x");
    }
    before = stats_of(engine);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    after = stats_of(engine);
    QS_CHECK(after.durable_lsn == after.appended_lsn && after.appended_lsn == before.appended_lsn);
    QS_CHECK(after.durable_lsn == qs_store_durable_lsn(engine->store));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(stats_of(engine).commits == after.commits);
    QS_CHECK_STATUS(QS_EINVAL,
                    qs_store_wait_durable(engine->store, after.appended_lsn + 1, 0, QS_ERROR));
    QS_CHECK_OK(qs_store_wait_durable(engine->store, 0, 0, QS_ERROR));
}

ENGINE_TEST(test_statistics_count)
{
    qs_queue_status status;
    qs_stats stats;

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 10; i++) {
        publish(engine, "q", "x");
    }
    publish_to(engine, "", "nowhere", PERSISTENT, text("x"));
    get(engine, "q", "x");
    get(engine, "q", "x");
    get(engine, "q", "x");
    ack(engine, 1, 0);
    QS_CHECK_OK(qs_channel_nack(engine->channel, 2, QS_REQUEUE, 0, QS_ERROR));
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    stats = stats_of(engine);
    QS_CHECK(stats.messages_published == 11 && stats.messages_routed == 10 &&
             stats.messages_delivered == 3 && stats.messages_acked == 1 &&
             stats.messages_requeued == 1 && stats.messages_confirmed == 0);
    QS_CHECK(stats.commits >= 2 && stats.fdatasyncs >= stats.commits && !stats.failed);
    QS_CHECK(stats.bytes_journalled >= stats.durable_lsn && stats.ram_bytes > 0);
    QS_CHECK(stats.sync == QS_SYNC_FDATASYNC);
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.messages_ready == 8 && status.messages_unacked == 1 && status.alpha == 9 &&
             status.q4 == 8 && status.durable && !status.exclusive);
    QS_CHECK_STATUS(QS_NOT_FOUND,
                    qs_store_queue_status(engine->store, text("x"), &status, QS_ERROR));
    engine_reopen(engine);
    stats = stats_of(engine);
    QS_CHECK(stats.recovered_messages == 9 && stats.torn_bytes == 0 && stats.lost_bytes == 0);
    QS_CHECK(stats.recovered_lsn > 0 && stats.recovered_records == 0); /* closing is a checkpoint */
}

IN_MEMORY_TEST(test_rates_follow_the_clock)
{
    qs_queue_status status;

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    QS_CHECK(status.ingress_rate == 0 && status.egress_rate == 0);
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 10; i++) {
            publish(engine, "q", "x");
        }
        get(engine, "q", "x");
        qsi_env_mem_advance(engine->memory, 5 * SECOND);
        QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    }
    QS_CHECK(status.ingress_rate > 1.9 && status.ingress_rate < 2.1);
    QS_CHECK(status.egress_rate > 0.19 && status.egress_rate < 0.21);
}

static void sample_rates(struct engine *engine)
{
    qsi_mutex_lock(&engine->store->mutex);
    qsi_sample_rates(engine->store);
    qsi_mutex_unlock(&engine->store->mutex);
}

/* Ten come in and one goes out each second; is_sampled: as the pager does meanwhile. */
static void move_for(struct engine *engine, int seconds, bool is_sampled)
{
    for (int second = 0; second < seconds; second++) {
        for (int i = 0; i < 10; i++) {
            publish(engine, "q", "x");
        }
        get(engine, "q", "x");
        qsi_env_mem_advance(engine->memory, 1 * SECOND);
        if (is_sampled) {
            sample_rates(engine);
        }
    }
}

static void rest_for(struct engine *engine, int seconds, bool is_sampled)
{
    for (int second = 0; second < seconds; second++) {
        qsi_env_mem_advance(engine->memory, 1 * SECOND);
        if (is_sampled) {
            sample_rates(engine);
        }
    }
}

static void check_rates(struct engine *engine, double in, double out)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text("q"), &status, QS_ERROR));
    if (!(status.ingress_rate > 0.95 * in - 0.01 && status.ingress_rate < 1.05 * in + 0.01 &&
          status.egress_rate > 0.95 * out - 0.01 && status.egress_rate < 1.05 * out + 0.01)) {
        fprintf(stderr, "%f in, %f out\n", status.ingress_rate, status.egress_rate);
        QS_CHECK(!"rates");
    }
}

/* They were 0 then, and moved only when somebody looked. */
QS_BOOL_TEST(test_rates_are_right_when_somebody_looks_for_the_first_time, is_sampled)
{
    struct engine engine;

    engine_start(&engine, IN_MEMORY);
    declare(&engine, "q", QS_DURABLE);
    move_for(&engine, 3, is_sampled);
    check_rates(&engine, 10, 1);
    check_rates(&engine, 10, 1);
    rest_for(&engine, 5, is_sampled);
    if (is_sampled) { /* 3 s of movement and 5 s without it, after the half-life of 5 s */
        check_rates(&engine, 10 * 0.2538, 0.2538);
    }
    rest_for(&engine, 24, is_sampled);
    check_rates(&engine, 10 * 0.0062, 0.0062);
    rest_for(&engine, 100, is_sampled);
    check_rates(&engine, 0, 0);
    engine_stop(&engine);
}

IN_MEMORY_TEST(test_rates_do_not_count_the_time_before_and_what_was_recovered)
{
    declare(engine, "q", QS_DURABLE);
    rest_for(engine, 3600, true);
    move_for(engine, 2, true);
    check_rates(engine, 10, 1);
    engine_reopen(engine);
    rest_for(engine, 1, false);
    check_rates(engine, 0, 0);
    rest_for(engine, 60, true);
    move_for(engine, 2, true);
    check_rates(engine, 10, 1);
}

UNOPENED_TEST(test_without_sync_nothing_is_synced_but_what_opens_a_store)
{
    uint64_t before;

    engine->options.sync = QS_SYNC_NONE;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    before = stats_of(engine).fdatasyncs;
    publish(engine, "q", "1");
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK(stats_of(engine).fdatasyncs == before);
    QS_CHECK(stats_of(engine).sync == QS_SYNC_NONE);
    engine_reopen(engine);
    get(engine, "q", "1");
}

/* Many channels at once, closed in another order. */
ENGINE_TEST(test_channels_come_and_go)
{
    qs_channel *channels[50];

    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 50; i++) {
        qs_message message;

        publish(engine, "q", "x");
        QS_CHECK_OK(qs_channel_open(&channels[i], engine->store, QS_ERROR));
        QS_CHECK_OK(qs_channel_get(channels[i], text("q"), 0, &message, QS_ERROR));
        QS_CHECK(message.delivery_tag == 1);
        qs_message_release(&message);
    }
    check_counts(engine, "q", 0, 50);
    for (int i = 0; i < 50; i++) {
        qs_channel_close(channels[i * 7 % 50]);
    }
    check_counts(engine, "q", 50, 0);
}
