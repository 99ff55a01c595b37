/* Missing memory: each call without its n-th allocation does all or nothing; the store goes on. */
#include "arrow_table.h"
#include "check.h"
#include "engine_fixture.h"
#include "qs_test_alloc.h"

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
    return qs_test_declare_as(engine->channel, "new", QS_DURABLE, NONE);
}

static qs_status do_bind(struct engine *engine)
{
    return qs_test_bind(engine->channel, "q", "amq.topic", "a.#", 0);
}

static qs_status do_declare_exchange(struct engine *engine)
{
    return qs_test_declare_exchange(engine->channel, "new", "topic", QS_DURABLE);
}

static qs_status do_delete(struct engine *engine)
{
    return qs_test_delete(engine->channel, "q", 0);
}

static qs_status do_purge(struct engine *engine)
{
    return qs_test_purge(engine->channel, "q");
}

static qs_status do_publish(struct engine *engine)
{
    return qs_test_publish(engine->channel, "amq.fanout", "", PERSISTENT, text("new"), 0);
}

static qs_status do_publish_large(struct engine *engine)
{
    return qs_test_publish(engine->channel, "amq.fanout", "", PERSISTENT, text(large_body), 0);
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
    qs_event event;
    qs_status status = qs_test_consume(engine->channel, "q", "", 0, NONE);

    if (status == QS_OK) {
        status = qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
    }
    if (status == QS_OK) {
        qs_message_release(&event.message);
    }
    return status;
}

/* The second consumer asks: the first is dealt its messages. */
static qs_status do_deal(struct engine *engine)
{
    qs_event event;
    qs_channel *other;
    qs_status status;

    QS_TRY(qs_channel_open(&other, engine->store, QS_ERROR));
    status = qs_test_consume(other, "q", "", 0, NONE);
    if (status == QS_OK) {
        status = qs_test_consume(engine->channel, "q", "", 0, NONE);
    }
    if (status == QS_OK) {
        status = qs_channel_next_event(engine->channel, QS_EVENT_DELIVERY, 0, &event, QS_ERROR);
    }
    if (status == QS_OK) {
        qs_message_release(&event.message);
    }
    qs_channel_close(other);
    return status;
}

static qs_status do_transaction(struct engine *engine)
{
    qs_status status = qs_channel_tx_select(engine->channel, QS_ERROR);

    if (status == QS_OK) {
        status = qs_test_publish(engine->channel, "", "q", PERSISTENT, text("tx"), 0);
    }
    if (status == QS_OK) {
        status = qs_test_publish(engine->channel, "", "r", PERSISTENT, text(large_body), 0);
    }
    return status == QS_OK ? qs_test_commit(engine->channel, text("key"), 0) : status;
}

static qs_status do_settle(struct engine *engine)
{
    qs_message message;
    qs_status status = qs_channel_get(engine->channel, text("q"), 0, &message, QS_ERROR);

    if (status == QS_OK) {
        qs_message_release(&message);
        status = qs_channel_nack(engine->channel, message.delivery_tag, QS_REQUEUE, 0, QS_ERROR);
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
    {"deal", do_deal, 3, 1},
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

QS_TEST(test_every_allocation_may_fail)
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
    qs_test_alloc_end(&memory);
    free(large_body);
}

/* Without memory for the name of the queue a nack is one all the same. */
QS_TEST(test_a_nack_needs_no_memory)
{
    struct qs_test_fields fields = {0};
    struct engine engine;

    qs_test_alloc_install(&memory);
    engine_init(&engine, IN_MEMORY);
    engine_open(&engine);
    QS_CHECK_OK(qs_store_failure(engine.store, QS_ERROR));
    qs_test_put_long(&fields, "x-max-length", 0);
    qs_test_put_text(&fields, "x-overflow", "reject-publish");
    qs_test_declare(engine.channel, "full", QS_DURABLE, &fields);
    QS_CHECK_OK(qs_channel_confirm_select(engine.channel, QS_ERROR));
    for (uint64_t fail_at = 0; fail_at < 2; fail_at++) {
        qs_event event;

        publish(&engine, "full", "x");
        qs_test_alloc_arm(&memory, fail_at, false);
        event = expect_event(&engine, QS_EVENT_ACK | QS_EVENT_NACK, QS_EVENT_NACK);
        QS_CHECK(memory.has_failed == (fail_at > 0));
        qs_test_alloc_arm(&memory, 0, false);
        QS_CHECK(event.publish_number == 1 + fail_at && event.reason == QS_EQUEUE_FULL);
        QS_CHECK(holds(event.message.queue, fail_at > 0 ? "" : "full"));
        qs_message_release(&event.message);
    }
    engine_close(&engine);
    engine_fini(&engine);
    qs_test_alloc_end(&memory);
}
