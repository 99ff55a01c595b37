/* Transactions: buffered work, commit as a whole, keys that are committed once.
 *
 * The cuts at the end take a disk at every step of a commit, with everything kept and everything
 * unsynced gone, and find all of a transaction or nothing. */
#include "arrow_table.h"
#include "engine_fixture.h"

static void select_tx(struct engine *engine)
{
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
}

static bool commit_key(struct engine *engine, const char *key)
{
    bool repeated = true;

    QS_CHECK_OK(qs_channel_tx_commit(engine->channel, text(key), 0, &repeated, QS_ERROR));
    return repeated;
}

static void commit(struct engine *engine)
{
    QS_CHECK(!commit_key(engine, ""));
}

ENGINE_TEST(test_work_shows_at_the_commit)
{
    QS_TEST_FREED char *large = make_body(20000, 1);

    declare(engine, "a", QS_DURABLE);
    declare(engine, "b", QS_DURABLE);
    publish(engine, "a", "0");
    get(engine, "a", "0");
    select_tx(engine);
    select_tx(engine);
    QS_CHECK(publish(engine, "a", "1").lsn == 0);
    publish(engine, "b", large);
    publish_to(engine, "", "b", TRANSIENT, text("2"));
    ack(engine, 1, 0);
    check_counts(engine, "a", 0, 1);
    check_counts(engine, "b", 0, 0);
    commit(engine);
    QS_CHECK(stats_of(engine).durable_lsn == stats_of(engine).appended_lsn);
    check_counts(engine, "a", 1, 0);
    check_counts(engine, "b", 2, 0);
    commit(engine); /* of nothing */
    engine_reopen(engine);
    get(engine, "a", "1");
    get_nothing(engine, "a");
    get(engine, "b", large);
    get_nothing(engine, "b");
}

ENGINE_TEST(test_rollback_drops_publishes_and_forgets_acks)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    publish(engine, "q", "2");
    get(engine, "q", "1");
    get(engine, "q", "2");
    select_tx(engine);
    publish(engine, "q", "never");
    ack(engine, 0, QS_MULTIPLE);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    commit(engine);
    check_counts(engine, "q", 0, 2); /* unacked still, requeued not */
    ack(engine, 2, 0);
    QS_CHECK_OK(qs_channel_nack(engine->channel, 1, QS_REQUEUE, 0, QS_ERROR));
    check_counts(engine, "q", 0, 2);
    commit(engine);
    check_counts(engine, "q", 1, 0);
    QS_CHECK(get(engine, "q", "1").redelivered);
}

ENGINE_TEST(test_closing_the_channel_rolls_back)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    get(engine, "q", "1");
    select_tx(engine);
    publish(engine, "q", "never");
    ack(engine, 1, 0);
    engine_new_channel(engine);
    QS_CHECK(get(engine, "q", "1").redelivered);
    get_nothing(engine, "q");
}

ENGINE_TEST(test_acks_are_checked_when_they_come)
{
    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", "1");
    select_tx(engine);
    publish(engine, "q", "never");
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_ack(engine->channel, 1, 0, QS_ERROR));
    check_counts(engine, "q", 1, 0);
}

ENGINE_TEST(test_modes_exclude_each_other)
{
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED, qs_test_commit(engine->channel, NONE, 0));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_tx_rollback(engine->channel, QS_ERROR));
    select_tx(engine);
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK_STATUS(QS_PRECONDITION_FAILED, qs_channel_tx_select(engine->channel, QS_ERROR));
    engine_new_channel(engine);
}

ENGINE_TEST(test_a_transaction_begins_and_ends_in_confirm_mode)
{
    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_confirm_select(engine->channel, QS_ERROR));
    QS_CHECK(publish(engine, "q", "1").first_number == 1);
    QS_CHECK_OK(qs_channel_tx_begin(engine->channel, QS_ERROR));
    QS_CHECK(publish(engine, "q", "2").first_number == 0);
    check_counts(engine, "q", 1, 0);
    commit(engine);
    check_counts(engine, "q", 2, 0);
    publish(engine, "q", "dropped");
    QS_CHECK_OK(qs_channel_tx_end(engine->channel, QS_ERROR));
    QS_CHECK(publish(engine, "q", "3").first_number == 2);
    check_counts(engine, "q", 3, 0);
    QS_CHECK_OK(qs_channel_tx_begin(engine->channel, QS_ERROR));
    CHECK_CHANNEL_ERROR(engine, QS_PRECONDITION_FAILED,
                        qs_channel_tx_begin(engine->channel, QS_ERROR));
}

ENGINE_TEST(test_returns_arrive_at_the_commit)
{
    qs_event event;

    select_tx(engine);
    QS_CHECK_OK(
        qs_test_publish(engine->channel, "", "nobody", NONE, text("dropped"), QS_MANDATORY));
    expect_no_event(engine, QS_EVENT_RETURN);
    QS_CHECK_OK(qs_channel_tx_rollback(engine->channel, QS_ERROR));
    expect_no_event(engine, QS_EVENT_RETURN);
    QS_CHECK_OK(qs_test_publish(engine->channel, "", "nobody", NONE, text("back"), QS_MANDATORY));
    expect_no_event(engine, QS_EVENT_RETURN);
    commit(engine);
    event = expect_event(engine, QS_EVENT_RETURN, QS_EVENT_RETURN);
    QS_CHECK(holds(event.message.body, "back"));
    qs_message_release(&event.message);
    expect_no_event(engine, QS_EVENT_RETURN);
}

ENGINE_TEST(test_a_key_is_committed_once)
{
    QS_TEST_FREED char *long_key = make_body(1025, 0);

    declare(engine, "q", QS_DURABLE);
    select_tx(engine);
    QS_CHECK(!is_known(engine->store, text("batch 7")));
    publish(engine, "q", "1");
    QS_CHECK(!commit_key(engine, "batch 7"));
    QS_CHECK(is_known(engine->store, text("batch 7")));
    publish(engine, "q", "1 again");
    QS_CHECK(commit_key(engine, "batch 7"));
    commit(engine);
    check_counts(engine, "q", 1, 0);
    engine_reopen(engine);
    select_tx(engine);
    QS_CHECK(is_known(engine->store, text("batch 7")));
    QS_CHECK(!is_known(engine->store, text("batch 8")));
    QS_CHECK(!is_known(engine->store, NONE));
    publish(engine, "q", "1 again");
    QS_CHECK(commit_key(engine, "batch 7"));
    QS_CHECK_STATUS(QS_EINVAL, qs_test_commit(engine->channel, text(long_key), 0));
    QS_CHECK(!commit_key(engine, "batch 8")); /* nothing but a key */
    check_counts(engine, "q", 1, 0);
}

/* Once, keys were forgotten behind the latest 65,536: a repetition published again. */
ENGINE_TEST(test_a_key_is_known_after_70000_others)
{
    uint64_t count;
    char key[32];

    if (engine->memory == NULL) {
        return; /* as many syncs */
    }
    declare(engine, "q", QS_DURABLE);
    select_tx(engine);
    publish(engine, "q", "1");
    QS_CHECK(!commit_key(engine, "the first"));
    for (uint32_t i = 0; i < 70000; i++) {
        snprintf(key, sizeof key, "another %u", i);
        QS_CHECK(!commit_key(engine, key));
    }
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    select_tx(engine);
    QS_CHECK(is_known(engine->store, text("the first")));
    publish(engine, "q", "1 again");
    QS_CHECK(commit_key(engine, "the first"));
    check_counts(engine, "q", 1, 0);
    QS_CHECK(!is_known(engine->store, text("another 70000")));
    QS_CHECK_OK(qs_store_forget_transaction(engine->store, text("the first"), &count, QS_ERROR));
    QS_CHECK(count == 1);
    QS_CHECK_OK(qs_store_forget_transaction(engine->store, text("the first"), &count, QS_ERROR));
    QS_CHECK(count == 0);
    publish(engine, "q", "2");
    QS_CHECK(!commit_key(engine, "the first"));
    check_counts(engine, "q", 2, 0);
    QS_CHECK_OK(qs_store_forget_transactions(engine->store, 0, &count, QS_ERROR));
    QS_CHECK(count == 70001);
    QS_CHECK(!is_known(engine->store, text("another 69999")));
    engine_reopen(engine);
    QS_CHECK(!is_known(engine->store, text("another 1")));
    select_tx(engine);
}

ENGINE_TEST(test_keys_of_an_age_are_forgotten)
{
    uint64_t count;

    if (engine->memory == NULL) {
        return; /* time passes there by itself */
    }
    select_tx(engine);
    QS_CHECK(!commit_key(engine, "old"));
    qsi_env_mem_advance(engine->memory, 10 * SECOND);
    QS_CHECK(!commit_key(engine, "new"));
    QS_CHECK_OK(qs_store_forget_transactions(engine->store, 11000000, &count, QS_ERROR));
    QS_CHECK(count == 0 && is_known(engine->store, text("old")));
    QS_CHECK_OK(qs_store_forget_transactions(engine->store, 10000000, &count, QS_ERROR));
    QS_CHECK(count == 1 && !is_known(engine->store, text("old")));
    QS_CHECK(is_known(engine->store, text("new")));
    QS_CHECK_OK(qs_store_forget_transactions(engine->store, 10000000, &count, QS_ERROR));
    QS_CHECK(count == 0);
    QS_CHECK(!commit_key(engine, "old"));
    engine_reopen(engine);
    select_tx(engine);
    QS_CHECK(is_known(engine->store, text("old")) && is_known(engine->store, text("new")));
}

ENGINE_TEST(test_a_queue_deleted_meanwhile_gets_nothing)
{
    declare(engine, "gone", QS_DURABLE);
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "gone", "amq.fanout", "");
    bind_queue(engine, "q", "amq.fanout", "");
    select_tx(engine);
    publish_to(engine, "amq.fanout", "", PERSISTENT, text("1"));
    publish(engine, "gone", "2");
    QS_CHECK_OK(qs_test_delete(engine->channel, "gone", 0));
    declare(engine, "gone", QS_DURABLE);
    commit(engine);
    check_counts(engine, "gone", 0, 0);
    engine_reopen(engine);
    check_counts(engine, "gone", 0, 0);
    get(engine, "q", "1");
}

static qs_event next_return(struct engine *engine)
{
    qs_event event;

    QS_CHECK_OK(qs_channel_next_event(engine->channel, QS_EVENT_RETURN, 0, &event, QS_ERROR));
    QS_CHECK(event.kind == QS_EVENT_RETURN && event.reply_code == 312);
    return event;
}

static void publish_mandatory(struct engine *engine, const char *exchange, const char *key,
                              const char *body)
{
    QS_CHECK_OK(
        qs_test_publish(engine->channel, exchange, key, PERSISTENT, text(body), QS_MANDATORY));
}

/* One of them lies in the message store, one went to two queues. */
ENGINE_TEST(test_mandatory_messages_come_back_whose_queues_went_before_the_commit)
{
    QS_TEST_FREED char *large = make_body(100000, 1);
    qs_event event;

    declare(engine, "gone", QS_DURABLE);
    declare(engine, "q", QS_DURABLE);
    bind_queue(engine, "gone", "amq.fanout", "");
    bind_queue(engine, "q", "amq.fanout", "");
    select_tx(engine);
    publish_mandatory(engine, "", "gone", "small");
    publish_mandatory(engine, "", "never there", "between");
    publish_mandatory(engine, "", "gone", large);
    publish_mandatory(engine, "amq.fanout", "", "stays");
    publish(engine, "gone", "nobody asked");
    QS_CHECK_OK(qs_test_delete(engine->channel, "gone", 0));
    expect_no_event(engine, QS_EVENT_RETURN);
    commit(engine);
    event = next_return(engine);
    QS_CHECK(holds(event.message.body, "small") && holds(event.message.routing_key, "gone"));
    QS_CHECK(holds(event.message.exchange, "") && event.message.properties.bytes == 3);
    qs_message_release(&event.message);
    event = next_return(engine);
    QS_CHECK(holds(event.message.body, "between"));
    qs_message_release(&event.message);
    event = next_return(engine);
    QS_CHECK(holds(event.message.body, large));
    qs_message_release(&event.message);
    expect_no_event(engine, QS_EVENT_RETURN);
    QS_CHECK(stats_of(engine).messages_returned == 3);
    get(engine, "q", "stays");
}

/* A body that has to be read for it is: the commit that must not wait is not done. */
ENGINE_TEST(test_a_commit_that_must_not_wait_reads_no_message_that_comes_back)
{
    QS_TEST_FREED char *large = make_body(100000, 1);
    qs_event event;

    declare(engine, "gone", QS_DURABLE);
    select_tx(engine);
    publish_mandatory(engine, "", "gone", large);
    QS_CHECK_OK(qs_test_delete(engine->channel, "gone", 0));
    QS_CHECK_STATUS(QS_EWOULDBLOCK, qs_test_commit(engine->channel, NONE, QS_NO_WAIT));
    commit(engine);
    event = next_return(engine);
    qs_message_release(&event.message);
}

ENGINE_TEST(test_batches_join_the_transaction)
{
    static const char *const bodies[] = {"1", "2", "3"};
    struct table table;
    qs_receipt receipt;

    declare(engine, "q", QS_DURABLE);
    select_tx(engine);
    table_init(&table, 3);
    table_add_strings(&table, "body", "u", bodies);
    QS_CHECK_OK(table_publish(engine->channel, &table, "", "q", 0, &receipt, QS_ERROR));
    QS_CHECK(receipt.count == 3 && receipt.lsn == 0);
    publish(engine, "q", "4");
    check_counts(engine, "q", 0, 0);
    commit(engine);
    check_counts(engine, "q", 4, 0);
    engine_reopen(engine);
    get(engine, "q", "1");
    get(engine, "q", "2");
    get(engine, "q", "3");
    get(engine, "q", "4");
    table_fini(&table);
}

/* ---- power cuts ---- */

#define CUT_MESSAGES 12
#define CUT_BYTES 20000
#define CUTS_MAX 2000

struct cutting {
    qs_env *sim;
    qs_options options;
    bool has_acks, has_key;
    int whole, nothing;
    qs_env *disks[CUTS_MAX];
    size_t disk_count;
};

static void take_disk(struct cutting *cutting, enum qsi_cut_how how)
{
    qs_env *disk = qsi_env_sim_cut(cutting->sim, how, 1);

    QS_CHECK(cutting->disk_count < CUTS_MAX);
    cutting->disks[cutting->disk_count++] = disk;
}

static void on_step(void *context, uint64_t step)
{
    (void)step;
    take_disk(context, QSI_CUT_KEEP_ALL);
    take_disk(context, QSI_CUT_DROP_ALL);
}

/* All of the transaction, or nothing: what is in the store after a cut. */
static void check_disk(struct cutting *cutting, qs_env *disk)
{
    struct engine engine = {.env = disk, .path = "store", .options = cutting->options};
    qs_queue_status a, b, old;

    engine_open(&engine);
    QS_CHECK_OK(qs_store_queue_status(engine.store, text("a"), &a, QS_ERROR));
    QS_CHECK_OK(qs_store_queue_status(engine.store, text("b"), &b, QS_ERROR));
    QS_CHECK_OK(qs_store_queue_status(engine.store, text("old"), &old, QS_ERROR));
    if (a.messages_ready == 0) {
        QS_CHECK(b.messages_ready == 0 && old.messages_ready == 2);
        QS_CHECK(!is_known(engine.store, text("key")));
        cutting->nothing += 1;
    } else {
        QS_CHECK(a.messages_ready == CUT_MESSAGES && b.messages_ready == CUT_MESSAGES);
        QS_CHECK(old.messages_ready == (cutting->has_acks ? 0 : 2));
        QS_CHECK(is_known(engine.store, text("key")) == cutting->has_key);
        cutting->whole += 1;
    }
    engine_close(&engine);
    qsi_env_mem_destroy(disk);
}

static void check_disks(struct cutting *cutting)
{
    cutting->whole = cutting->nothing = 0;
    for (size_t i = 0; i < cutting->disk_count; i++) {
        check_disk(cutting, cutting->disks[i]);
    }
    cutting->disk_count = 0;
}

/* A transaction that is several times the size of a journal file. */
static void check_commit_is_atomic(bool has_acks, bool has_key, bool has_large)
{
    static struct cutting cutting;
    struct engine engine = {.path = "store"};
    QS_TEST_FREED char *body = make_body(CUT_BYTES, 2);

    cutting =
        (struct cutting){.sim = qsi_env_sim_create(1), .has_acks = has_acks, .has_key = has_key};
    engine.env = cutting.sim;
    qs_options_default(&engine.options);
    engine.options.background = false;
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.message_file_bytes = 64u << 10;
    engine.options.embed_below = has_large ? 4096 : 1u << 20;
    cutting.options = engine.options;
    engine_open(&engine);
    declare(&engine, "a", QS_DURABLE);
    declare(&engine, "b", QS_DURABLE);
    declare(&engine, "old", QS_DURABLE);
    publish(&engine, "old", "1");
    publish(&engine, "old", "2");
    get(&engine, "old", "1");
    get(&engine, "old", "2");
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    select_tx(&engine);
    for (int i = 0; i < CUT_MESSAGES; i++) {
        publish(&engine, "a", body);
        publish(&engine, "b", "small");
    }
    if (has_acks) {
        ack(&engine, 0, QS_MULTIPLE);
    }
    qsi_env_sim_on_step(cutting.sim, on_step, &cutting);
    QS_CHECK(!commit_key(&engine, has_key ? "key" : ""));
    qsi_env_sim_on_step(cutting.sim, NULL, NULL);
    check_disks(&cutting);
    QS_CHECK(cutting.nothing > 0);
    take_disk(&cutting, QSI_CUT_KEEP_ALL);
    take_disk(&cutting, QSI_CUT_DROP_ALL);
    check_disks(&cutting);
    QS_CHECK(cutting.whole == 2 && cutting.nothing == 0);
    engine_close(&engine);
    qsi_env_sim_destroy(cutting.sim);
}

int main(void)
{
    qs_test_run_all();
    check_commit_is_atomic(true, true, false);
    check_commit_is_atomic(true, false, true);
    check_commit_is_atomic(false, true, true);
    check_commit_is_atomic(false, false, true);
    check_commit_is_atomic(false, false, false); /* nothing but publishes ends the group */
    return 0;
}
