/* Calls that change something durable and do not wait for it: what they did is there at once, its
 * caller is told when it survives a power cut, and not before. */
#include "armed_fixture.h"
#include "qs_test_calls.h"

#define DURABLE_EVENT (QS_EVENT_DURABLE | QS_EVENT_RETURN)

static uint64_t declare_later(struct engine *engine, const char *queue)
{
    qs_declare_ok ok;

    QS_CHECK_OK(qs_channel_queue_declare(engine->channel, text(queue), QS_DURABLE | QS_NO_WAIT,
                                         NONE, &ok, QS_ERROR));
    QS_CHECK(strcmp(ok.queue, queue) == 0);
    return qs_channel_completion_lsn(engine->channel);
}

/* Waits for it. */
static qs_event next_durable(struct engine *engine)
{
    qs_event event;

    QS_CHECK_OK(
        qs_channel_next_event(engine->channel, DURABLE_EVENT, QS_FOREVER, &event, QS_ERROR));
    QS_CHECK(event.kind == QS_EVENT_DURABLE);
    return event;
}

static void check_nothing_is_awaited(struct engine *engine)
{
    expect_no_event(engine, DURABLE_EVENT);
}

ENGINE_TEST(test_declares_share_a_commit)
{
    uint64_t commits = stats_of(engine).commits, last = 0, told = 0;
    char name[16];

    for (int i = 0; i < 100; i++) {
        uint64_t lsn;
        (void)snprintf(name, sizeof name, "q%d", i);
        lsn = declare_later(engine, name);
        QS_CHECK(lsn == 0 || lsn > last);
        last = lsn != 0 ? lsn : last;
        QS_CHECK(has_queue(engine, name));
    }
    while (last > told) {
        told = next_durable(engine).lsn;
        QS_CHECK(told != 0 && told <= qs_store_durable_lsn(engine->store));
    }
    check_nothing_is_awaited(engine);
    /* On the disk a thread commits, and may do so between any two of them. */
    QS_CHECK(engine->options.background || stats_of(engine).commits == commits + 1);
    QS_CHECK(declare_later(engine, "q0") == 0); /* it was there, and is durable */
}

ENGINE_TEST(test_what_needs_no_disk_is_complete_at_once)
{
    QS_CHECK_OK(qs_test_declare_as(engine->channel, "q", QS_NO_WAIT, NONE));
    QS_CHECK(qs_channel_completion_lsn(engine->channel) == 0);
    QS_CHECK_OK(qs_test_declare_exchange(engine->channel, "x", "direct", QS_NO_WAIT));
    QS_CHECK(qs_channel_completion_lsn(engine->channel) == 0);
    check_nothing_is_awaited(engine);
}

ENGINE_TEST(test_errors_are_those_of_calls_that_wait)
{
    uint64_t count;

    CHECK_CHANNEL_ERROR(
        engine, QS_NOT_FOUND,
        qs_channel_queue_purge(engine->channel, text("none"), QS_NO_WAIT, &count, QS_ERROR));
    declare(engine, "q", QS_DURABLE);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_test_declare_as(engine->channel, "q", QS_NO_WAIT, NONE));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_test_commit(engine->channel, NONE, QS_NO_WAIT));
}

/* A file may have to be read: it is not done, and nothing of it is lost. */
ENGINE_TEST(test_a_commit_with_a_key_or_rejects_has_to_wait)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    get(engine, "q", "1");
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    publish(engine, "q", "2");
    QS_CHECK_STATUS(QS_EWOULDBLOCK, qs_test_commit(engine->channel, text("key"), QS_NO_WAIT));
    QS_CHECK_OK(qs_test_commit(engine->channel, text("key"), 0));
    QS_CHECK_OK(qs_channel_nack(engine->channel, 1, 0, 0, QS_ERROR));
    QS_CHECK_STATUS(QS_EWOULDBLOCK, qs_test_commit(engine->channel, NONE, QS_NO_WAIT));
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    check_counts(engine, "q", 1, 0);
}

ENGINE_TEST(test_recover_need_not_wait)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    get(engine, "q", "1");
    QS_CHECK_OK(qs_channel_recover(engine->channel, QS_REQUEUE | QS_NO_WAIT, QS_ERROR));
    check_counts(engine, "q", 1, 0);
}

/* ---- event loops ---- */

ARMED_TEST(test_an_armed_channel_is_called_when_it_is_durable)
{
    int event_fd = event_fd_of(engine->channel);
    char name[16];

    for (int i = 0; i < 50; i++) {
        qs_event event;
        uint64_t lsn, told = 0;
        (void)snprintf(name, sizeof name, "q%d", i);
        lsn = declare_later(engine, name);
        while (told < lsn) {
            qs_status status = qs_channel_next_event(
                engine->channel, DURABLE_EVENT | QS_EVENT_ARM | QS_NO_WAIT, 0, &event, QS_ERROR);
            if (status == QS_EEMPTY) {
                QS_CHECK(is_signalled(event_fd, AWAITED));
                (void)listen_to(event_fd);
                continue;
            }
            QS_CHECK_OK(status);
            QS_CHECK(event.kind == QS_EVENT_DURABLE && event.lsn >= lsn);
            told = event.lsn;
        }
    }
}

/* ---- the end ---- */

QS_TEST(test_a_store_that_fails_says_that_nothing_more_is_durable)
{
    struct engine engine;
    qs_env *fault;

    engine_init(&engine, IN_MEMORY);
    fault = engine_put_fault(&engine);
    engine_open(&engine);
    QS_CHECK(declare_later(&engine, "a") != 0);
    QS_CHECK(next_durable(&engine).lsn != 0);
    qsi_env_fault_arm(fault, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    QS_CHECK(declare_later(&engine, "b") != 0);
    QS_CHECK(next_durable(&engine).lsn == 0);
    check_nothing_is_awaited(&engine);
    qsi_env_fault_arm(fault, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    engine_fini(&engine);
}

/* ---- power cuts ---- */

/* Every verb once. */
static void change_everything(struct engine *engine)
{
    qs_channel *channel = engine->channel;
    uint64_t count;

    QS_CHECK(declare_later(engine, "new") != 0);
    QS_CHECK_OK(qs_test_declare_exchange(channel, "x", "direct", QS_DURABLE | QS_NO_WAIT));
    QS_CHECK_OK(qs_test_bind(channel, "new", "x", "k", QS_NO_WAIT));
    QS_CHECK_OK(qs_channel_exchange_delete(channel, text("old"), QS_NO_WAIT, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_delete(channel, text("gone"), QS_NO_WAIT, &count, QS_ERROR));
    QS_CHECK_OK(qs_channel_queue_purge(channel, text("purged"), QS_NO_WAIT, &count, QS_ERROR));
    QS_CHECK(count == 1);
    QS_CHECK_OK(qs_channel_tx_select(channel, QS_ERROR));
    publish_to(engine, "x", "k", PERSISTENT, text("committed"));
    QS_CHECK_OK(qs_test_commit(channel, NONE, QS_NO_WAIT));
    QS_CHECK(qs_channel_completion_lsn(channel) != 0);
}

/* What a disk without power has: all of it or, before it was told, nothing. */
static void check_after_cut(const struct engine *engine, bool is_changed)
{
    qs_env *disk = qsi_env_sim_cut(engine->env, QSI_CUT_DROP_ALL, 1);
    struct engine after = {.env = disk, .path = "store", .options = engine->options};

    engine_open(&after);
    QS_CHECK(has_queue(&after, "new") == is_changed);
    QS_CHECK(has_queue(&after, "gone") == !is_changed);
    check_counts(&after, "purged", is_changed ? 0 : 1, 0);
    if (is_changed) {
        get(&after, "new", "committed");
        QS_CHECK_STATUS(QS_EEMPTY, qs_test_get(after.channel, "new", 0));
        declare_exchange(&after, "old", "fanout", 0); /* the durable one is gone */
    }
    engine_close(&after);
    qsi_env_mem_destroy(disk);
}

QS_TEST(test_what_is_told_to_be_durable_survives_a_power_cut)
{
    struct engine engine = {.path = "store", .env = qsi_env_sim_create(1)};
    uint64_t last, told = 0;

    qs_options_default(&engine.options);
    engine.options.background = false;
    engine.options.journal_file_bytes = 1u << 20; /* no other file need be made */
    engine_open(&engine);
    declare(&engine, "gone", QS_DURABLE);
    declare(&engine, "purged", QS_DURABLE);
    declare_exchange(&engine, "old", "direct", QS_DURABLE);
    publish(&engine, "purged", "1");
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    change_everything(&engine);
    check_after_cut(&engine, false);
    for (last = qs_channel_completion_lsn(engine.channel); told < last;) {
        told = next_durable(&engine).lsn;
    }
    check_after_cut(&engine, true);
    engine_close(&engine);
    qsi_env_sim_destroy(engine.env);
}
