/* Full disks, failed syncs and missing memory: what is refused, what goes on, what is there
 * after a fresh open. */
#include "arrow_table.h"
#include "engine_fixture.h"
#include "qs_test_alloc.h"

/* The store's own environment is one that fails on demand. */
static void start_faulty(struct engine *engine, enum place place)
{
    engine_init(engine, place);
    engine->env = qsi_env_fault_create(engine->env);
    QS_CHECK(engine->env != NULL);
    engine->options.journal_file_bytes = 64u << 10;
    engine->options.message_file_bytes = 64u << 10;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
}

static void stop_faulty(struct engine *engine)
{
    qs_env *env = engine->env;

    engine_stop(engine);
    qsi_env_fault_destroy(env);
}

static qs_status try_publish(struct engine *engine, const char *body)
{
    qs_receipt receipt;

    return qs_channel_publish(engine->channel, NONE, text("q"), PERSISTENT, text(body), 0, &receipt,
                              QS_ERROR);
}

/* ---- no space ---- */

static void test_a_full_disk_refuses_publishes_until_there_is_space(bool large)
{
    struct engine engine;
    char *body = make_body(large ? 20000 : 3000, 1);
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
    stop_faulty(&engine);
    free(body);
}

static void test_a_full_disk_refuses_a_whole_batch(enum place place)
{
    enum { ROWS = 300 };
    static const char *bodies[ROWS];
    struct engine engine;
    struct table table;
    qs_receipt receipt;
    char *body = make_body(2000, 1);

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
    stop_faulty(&engine);
    free(body);
}

/* ---- a failed sync ---- */

static void check_failed_store(struct engine *engine, const char *large)
{
    qs_declare_ok ok;
    qs_message message;
    qs_receipt receipt;
    qs_event event;
    bool nacked = false;
    qs_channel *other;

    QS_CHECK(stats_of(engine).failed);
    /* Sticky, whatever the disk does by now. */
    QS_CHECK_STATUS(QS_ESTORE_FAILED, try_publish(engine, "x"));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_channel_queue_declare(engine->channel, text("new"),
                                                               QS_DURABLE, NONE, &ok, QS_ERROR));
    QS_CHECK_STATUS(QS_ESTORE_FAILED,
                    qs_channel_publish(engine->channel, NONE, text("q"), PERSISTENT, text(large), 0,
                                       &receipt, QS_ERROR));
    /* What was not confirmed is nacked. */
    QS_CHECK_OK(qs_channel_wait_confirms(engine->channel, QS_FOREVER, &nacked, QS_ERROR));
    QS_CHECK(nacked);
    event = expect_event(engine, QS_EVENT_ACK | QS_EVENT_NACK, QS_EVENT_ACK);
    QS_CHECK(event.publish_number == 2 && event.multiple);
    event = expect_event(engine, QS_EVENT_ACK | QS_EVENT_NACK, QS_EVENT_NACK);
    QS_CHECK(event.publish_number == 4 && event.multiple);
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

static void test_a_failed_sync_is_final(enum place place, enum qsi_fault_kind kind)
{
    struct engine engine;
    char *large = make_body(9000, 5);
    qs_receipt receipt;
    qs_env *env;

    start_faulty(&engine, place);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    publish(&engine, "q", "durable");
    publish(&engine, "q", large);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    qsi_env_fault_arm(engine.env, kind, QSI_FAULT_EIO, 1, false);
    QS_CHECK_OK(try_publish(&engine, "lost"));
    receipt = (qs_receipt){.lsn = stats_of(&engine).appended_lsn};
    if (try_publish(&engine, "lost") != QS_OK) { /* a thread has met the fault already */
        QS_CHECK(place == ON_DISK);
    }
    QS_CHECK_STATUS(QS_ESTORE_FAILED,
                    qs_store_wait_durable(engine.store, receipt.lsn, QS_FOREVER, QS_ERROR));
    QS_CHECK(qsi_env_fault_fired(engine.env));
    if (place == IN_MEMORY) {
        check_failed_store(&engine, large);
    }
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    env = engine.env;
    engine_open(&engine);
    QS_CHECK(get(&engine, "q", "durable").redelivered);
    get(&engine, "q", large);
    QS_CHECK_OK(try_publish(&engine, "goes on"));
    QS_CHECK(engine.env == env);
    stop_faulty(&engine);
    free(large);
}

/* What cannot be confirmed before the close is not passed over in silence. */
static void test_close_tells_of_a_failed_sync(void)
{
    struct engine engine;

    start_faulty(&engine, IN_MEMORY);
    publish(&engine, "q", "never durable");
    qsi_env_fault_arm(engine.env, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, true);
    qs_channel_close(engine.channel);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_store_close(engine.store, QS_ERROR));
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    engine_open(&engine);
    stop_faulty(&engine);
}

/* Opening and closing with any call failing: an error, and the next open works. */
static void test_open_and_close_survive_a_fault_of_any_call(void)
{
    struct engine engine;
    char *large = make_body(9000, 5);

    start_faulty(&engine, IN_MEMORY);
    publish(&engine, "q", "small");
    publish(&engine, "q", large);
    engine_close(&engine);
    for (uint64_t n = 1;; n++) {
        qs_store *store;
        qs_status status;

        qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, n, false);
        status = qs_store_open(&store, engine.path, &engine.options, engine.env, QS_ERROR);
        if (status == QS_OK) {
            status = qs_store_close(store, QS_ERROR);
            if (!qsi_env_fault_fired(engine.env)) {
                QS_CHECK(status == QS_OK);
                break;
            }
        } else {
            QS_CHECK(store == NULL && status == QS_EIO);
        }
        QS_CHECK(n < 1000);
    }
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    engine_open(&engine);
    get(&engine, "q", "small");
    get(&engine, "q", large);
    stop_faulty(&engine);
    free(large);
}

/* ---- out of memory ---- */

static struct qs_test_alloc memory;
static char *large_body;

static qs_status do_open(struct engine *engine)
{
    qs_store *store;
    qs_status status;

    qs_channel_close(engine->channel);
    engine->channel = NULL;
    status = qs_store_close(engine->store, QS_ERROR);
    engine->store = NULL;
    if (status != QS_OK) {
        return status;
    }
    status = qs_store_open(&store, engine->path, &engine->options, engine->env, QS_ERROR);
    engine->store = store;
    return status;
}

static qs_status do_declare(struct engine *engine)
{
    qs_declare_ok ok;

    return qs_channel_queue_declare(engine->channel, text("new"), QS_DURABLE, NONE, &ok, QS_ERROR);
}

static qs_status do_bind(struct engine *engine)
{
    return qs_channel_queue_bind(engine->channel, text("q"), text("amq.topic"), text("a.#"), NONE,
                                 QS_ERROR);
}

static qs_status do_declare_exchange(struct engine *engine)
{
    return qs_channel_exchange_declare(engine->channel, text("new"), text("topic"), QS_DURABLE,
                                       NONE, QS_ERROR);
}

static qs_status do_delete(struct engine *engine)
{
    uint64_t count;

    return qs_channel_queue_delete(engine->channel, text("q"), 0, &count, QS_ERROR);
}

static qs_status do_purge(struct engine *engine)
{
    uint64_t count;

    return qs_channel_queue_purge(engine->channel, text("q"), &count, QS_ERROR);
}

static qs_status do_publish(struct engine *engine)
{
    qs_receipt receipt;

    return qs_channel_publish(engine->channel, text("amq.fanout"), NONE, PERSISTENT, text("new"), 0,
                              &receipt, QS_ERROR);
}

static qs_status do_publish_large(struct engine *engine)
{
    qs_receipt receipt;

    return qs_channel_publish(engine->channel, text("amq.fanout"), NONE, PERSISTENT,
                              text(large_body), 0, &receipt, QS_ERROR);
}

static qs_status do_publish_batch(struct engine *engine)
{
    const char *const bodies[] = {"1", large_body, "3", "4"};
    static const char *const keys[] = {"q", "r", "nobody", "q"};
    struct table table;
    qs_receipt receipt;
    qs_status status;

    table_init(&table, 4);
    table_add_strings(&table, "body", "z", bodies);
    table_add_strings(&table, "routing_key", "u", keys);
    status = table_publish(engine->channel, &table, "", "", QS_MANDATORY, &receipt, QS_ERROR);
    table_fini(&table);
    return status;
}

static qs_status do_get(struct engine *engine)
{
    qs_message message;
    qs_status status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&message);
    }
    return status;
}

static qs_status do_get_large(struct engine *engine)
{
    qs_message message;
    qs_status status = qs_channel_get(engine->channel, text("r"), QS_NO_ACK, &message, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&message);
    }
    return status;
}

static qs_status do_get_batch(struct engine *engine)
{
    struct received received;
    qs_status status = qs_channel_get_batch(engine->channel, text("q"), 100, UINT64_MAX, 0, 0,
                                            &received.schema, &received.array, QS_ERROR);

    if (status == QS_OK) {
        received_release(&received);
    }
    return status;
}

static qs_status do_consume(struct engine *engine)
{
    char tag[256];
    qs_event event;
    qs_status status = qs_channel_consume(engine->channel, text("q"), NONE, 0, NONE, tag, QS_ERROR);

    if (status == QS_OK) {
        status = qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
    }
    if (status == QS_OK) {
        qs_message_release(&event.message);
    }
    return status;
}

static qs_status do_transaction(struct engine *engine)
{
    qs_receipt receipt;
    bool repeated;
    qs_status status = qs_channel_tx_select(engine->channel, QS_ERROR);

    if (status == QS_OK) {
        status = qs_channel_publish(engine->channel, NONE, text("q"), PERSISTENT, text("tx"), 0,
                                    &receipt, QS_ERROR);
    }
    if (status == QS_OK) {
        status = qs_channel_publish(engine->channel, NONE, text("r"), PERSISTENT, text(large_body),
                                    0, &receipt, QS_ERROR);
    }
    return status == QS_OK ? qs_channel_tx_commit(engine->channel, text("key"), &repeated, QS_ERROR)
                           : status;
}

static qs_status do_settle(struct engine *engine)
{
    qs_message message;
    qs_status status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&message);
        status = qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, QS_ERROR);
    }
    return status;
}

/* ready_*: messages in q and r when it went well, and the same when it did not. */
static const struct {
    const char *name;
    qs_status (*run)(struct engine *engine);
    int64_t ready_q, ready_r;
} operations[] = {
    {"open", do_open, 3, 1},
    {"declare", do_declare, 3, 1},
    {"declare exchange", do_declare_exchange, 3, 1},
    {"bind", do_bind, 3, 1},
    {"delete", do_delete, -1, 1},
    {"purge", do_purge, 0, 1},
    {"publish", do_publish, 4, 2},
    {"publish large", do_publish_large, 4, 2},
    {"publish batch", do_publish_batch, 5, 2},
    {"get", do_get, 3, 1},
    {"get large", do_get_large, 3, 0},
    {"get batch", do_get_batch, 3, 1},
    {"consume", do_consume, 3, 1},
    {"transaction", do_transaction, 4, 2},
    {"settle", do_settle, 3, 1},
};

static int64_t ready_in(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    return qs_store_queue_status(engine->store, text(queue), &status, NULL) == QS_OK
               ? (int64_t)status.messages_ready
               : -1;
}

/* One run of one operation with the n-th allocation failing; false when none failed. */
static bool run_starved(qs_env *prepared, const qs_options *options, size_t index, uint64_t n)
{
    struct engine engine = {.path = "store", .options = *options};
    int64_t q, r;
    qs_status status;
    bool failed;

    engine.env = qsi_env_mem_clone(prepared, 3);
    QS_CHECK(engine.env != NULL);
    engine_open(&engine);
    qs_test_alloc_arm(&memory, n, false);
    status = operations[index].run(&engine);
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
    q = ready_in(&engine, "q");
    r = ready_in(&engine, "r");
    if (!((q == 3 && r == 1 && (status != QS_OK || operations[index].ready_q == 3)) ||
          (q == operations[index].ready_q && r == operations[index].ready_r))) {
        fprintf(stderr, "%s, allocation %" PRIu64 ": %s, q has %" PRId64 ", r has %" PRId64 "\n",
                operations[index].name, n, qs_status_name(status), q, r);
        QS_CHECK(!"contents");
    }
    engine_close(&engine);
    qsi_env_mem_destroy(engine.env);
    return failed;
}

static void test_every_allocation_may_fail(void)
{
    struct engine engine;
    uint64_t alive;

    qs_test_alloc_install(&memory);
    large_body = make_body(9000, 7);
    engine_init(&engine, IN_MEMORY);
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.message_file_bytes = 64u << 10;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    declare(&engine, "r", QS_DURABLE);
    bind_queue(&engine, "q", "amq.fanout", "");
    bind_queue(&engine, "r", "amq.fanout", "");
    publish(&engine, "q", "1");
    publish(&engine, "q", "2");
    publish(&engine, "q", "3");
    publish(&engine, "r", large_body);
    engine_close(&engine);
    alive = memory.alive;
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++) {
        uint64_t n = 1;

        while (run_starved(engine.env, &engine.options, i, n)) {
            n += 1;
            QS_CHECK(n < 2000);
        }
        QS_CHECK(memory.alive == alive);
    }
    engine_fini(&engine);
    QS_CHECK(memory.alive == 0);
    qs_allocator_set(NULL);
    free(large_body);
}

int main(void)
{
    test_a_full_disk_refuses_publishes_until_there_is_space(false);
    test_a_full_disk_refuses_publishes_until_there_is_space(true);
    for (int place = IN_MEMORY; place <= ON_DISK; place++) {
        test_a_full_disk_refuses_a_whole_batch((enum place)place);
        test_a_failed_sync_is_final((enum place)place, QSI_FAULT_SYNC);
        test_a_failed_sync_is_final((enum place)place, QSI_FAULT_WRITE);
    }
    test_close_tells_of_a_failed_sync();
    test_open_and_close_survive_a_fault_of_any_call();
    test_every_allocation_may_fail();
    return 0;
}
