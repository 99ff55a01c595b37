/* Full disks and failed syncs: what is refused, what goes on, what is there after a fresh open. */
#include "arrow_table.h"
#include "engine_fixture.h"
#include "qs_test_alloc.h"
#include "qs_test_faults.h"

/* The store's own environment is one that fails on demand. */
static void start_faulty(struct engine *engine, enum place place)
{
    engine_init(engine, place);
    engine_put_fault(engine);
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
}

static qs_status try_publish(struct engine *engine, const char *body)
{
    return qs_test_publish(engine->channel, "", "q", PERSISTENT, text(body), 0);
}

/* ---- no space ---- */

QS_BOOL_TEST(test_a_full_disk_refuses_publishes_until_there_is_space, large)
{
    struct engine engine;
    QS_TEST_FREED char *body = make_body(large ? 20000 : 3000, 1);
    uint64_t count = 0;
    qs_status status;

    start_faulty(&engine, IN_MEMORY);
    qsi_env_ram_limit(engine.memory, qsi_env_ram_used(engine.memory) + (1u << 20));
    for (;;) {
        status = try_publish(&engine, body);
        if (status != QS_OK) {
            break;
        }
        QS_CHECK(++count < 2000);
    }
    QS_CHECK(status == QS_ESTORE_FULL);
    check_counts(&engine, "q", count, 0);
    QS_CHECK(stats_of(&engine).messages_published == count && !stats_of(&engine).failed);
    /* Acks have room of their own. */
    QS_CHECK(count > 3);
    for (uint64_t tag = 1; tag <= 3; tag++) {
        get(&engine, "q", body);
        ack(&engine, tag, 0);
    }
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    qsi_env_ram_limit(engine.memory, 0);
    QS_CHECK_OK(try_publish(&engine, body));
    QS_CHECK_OK(try_publish(&engine, body));
    count = count + 2 - 3;
    engine_reopen(&engine);
    check_counts(&engine, "q", count, 0);
    engine_stop(&engine);
}

PLACE_TEST(test_a_full_disk_refuses_a_whole_batch)
{
    enum { ROWS = 300 };
    static const char *bodies[ROWS];
    struct engine engine;
    struct table table;
    qs_receipt receipt;
    QS_TEST_FREED char *body = make_body(2000, 1);

    for (int row = 0; row < ROWS; row++) {
        bodies[row] = body;
    }
    table_init(&table, ROWS);
    table_add_strings(&table, "body", "z", bodies);
    start_faulty(&engine, place);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    qsi_env_fault_arm(engine.env, QSI_FAULT_ALLOCATE, QSI_FAULT_ENOSPC, 1, true);
    QS_CHECK_STATUS(QS_ESTORE_FULL,
                    table_publish(engine.channel, &table, "", "q", 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == 0 && qs_channel_next_publish_number(engine.channel) == 1);
    check_counts(&engine, "q", 0, 0);
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    QS_CHECK_OK(table_publish(engine.channel, &table, "", "q", 0, &receipt, QS_ERROR));
    check_counts(&engine, "q", ROWS, 0);
    table_fini(&table);
    engine_stop(&engine);
}

/* ---- a failed sync ---- */

static void check_failed_store(struct engine *engine, const char *large)
{
    qs_message message;
    qs_event event;
    qs_error error;
    bool nacked = false;
    qs_channel *other;

    QS_CHECK(stats_of(engine).failed);
    /* Sticky, whatever the disk does by now. */
    QS_CHECK_STATUS(QS_ESTORE_FAILED, try_publish(engine, "x"));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_test_declare_as(engine->channel, "new", QS_DURABLE, NONE));
    QS_CHECK_STATUS(QS_ESTORE_FAILED,
                    qs_test_publish(engine->channel, "", "q", PERSISTENT, text(large), 0));
    /* What was not confirmed is nacked. */
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(nacked);
    event = expect_event(engine, QS_EVENT_ACK | QS_EVENT_NACK, QS_EVENT_ACK);
    QS_CHECK(event.publish_number == 2 && event.multiple);
    event = expect_event(engine, QS_EVENT_ACK | QS_EVENT_NACK, QS_EVENT_NACK);
    QS_CHECK(event.publish_number == 4 && event.multiple);
    QS_CHECK(event.reason == QS_ESTORE_FAILED && event.message.queue.bytes == 0);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_failure(engine->store, &error));
    QS_CHECK(error.os_errno != 0 && strstr(error.text, "the store failed and must be") != NULL);
    expect_no_event(engine, QS_EVENT_ACK | QS_EVENT_NACK);
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(!nacked);
    /* Reads go on. */
    get(engine, "q", "durable");
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR));
    QS_CHECK(holds(message.body, large));
    qs_message_release(&message);
    QS_CHECK_OK(qs_channel_open(&other, engine->store, QS_ERROR));
    qs_channel_close(other);
}

static void check_a_failure_is_final(enum place place, enum qsi_fault_kind kind)
{
    struct engine engine;
    QS_TEST_FREED char *large = make_body(9000, 5);
    qs_status status;
    qs_env *env;

    start_faulty(&engine, place);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    publish(&engine, "q", "durable");
    publish(&engine, "q", large);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    /* Where there are threads, the first call may be of the one that makes spare files. */
    qsi_env_fault_arm(engine.env, kind, QSI_FAULT_EIO, 1, place == ON_DISK);
    status = try_publish(&engine, "lost");
    if (status == QS_OK) {
        uint64_t lsn = stats_of(&engine).appended_lsn;
        status = try_publish(&engine, "lost");
        QS_CHECK_STATUS(QS_ESTORE_FAILED,
                        qs_store_wait_durable(engine.store, lsn, QS_FOREVER, QS_ERROR));
    }
    /* A thread may meet the fault first, even before anything was published. */
    QS_CHECK(status == QS_OK || (status == QS_ESTORE_FAILED && place == ON_DISK));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_sync(engine.store, QS_ERROR));
    QS_CHECK(qsi_env_fault_fired(engine.env));
    if (place == IN_MEMORY) {
        check_failed_store(&engine, large);
    }
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    env = engine.env;
    engine_open(&engine);
    QS_CHECK(get(&engine, "q", "durable").redelivered);
    get(&engine, "q", large);
    QS_CHECK_OK(try_publish(&engine, "goes on"));
    QS_CHECK(engine.env == env);
    engine_stop(&engine);
}

PLACE_TEST(test_a_failed_sync_is_final)
{
    check_a_failure_is_final(place, QSI_FAULT_SYNC);
    check_a_failure_is_final(place, QSI_FAULT_WRITE);
}

/* What cannot be confirmed before the close is not passed over in silence. */
QS_TEST(test_close_tells_of_a_failed_sync)
{
    struct engine engine;

    start_faulty(&engine, IN_MEMORY);
    publish(&engine, "q", "never durable");
    qsi_env_fault_arm(engine.env, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    engine_open(&engine);
    engine_stop(&engine);
}

/* Opening and closing with any call failing: an error, and the next open works. */
QS_TEST(test_open_and_close_survive_a_fault_of_any_call)
{
    struct engine engine;
    QS_TEST_FREED char *large = make_body(9000, 5);

    start_faulty(&engine, IN_MEMORY);
    publish(&engine, "q", "small");
    publish(&engine, "q", large);
    engine_close(&engine);
    for (struct qs_test_sweep sweep = {.how = QSI_FAULT_EIO}; qs_test_sweep_on(&sweep);) {
        qs_store *store;
        qs_status status;

        qs_test_sweep_calls(&sweep, engine.env);
        status = qs_store_open(&store, engine.path, &engine.options, engine.env, QS_ERROR);
        if (status == QS_OK) {
            status = qs_store_close(store, QS_ERROR);
        } else {
            QS_CHECK(store == NULL && status == QS_EIO);
        }
        qs_test_sweep_rest(&sweep);
        QS_CHECK(sweep.has_failed || status == QS_OK);
    }
    engine_open(&engine);
    get(&engine, "q", "small");
    get(&engine, "q", large);
    engine_stop(&engine);
}
