/* Faults that were found by reading or by use, each named after what one saw. */
#include "arrow_table.h"
#include "engine_fixture.h"
#include "store.h"

#include <sys/wait.h>

/* A tag that was acked alone and again with multiple splits a range of the second ack in two:
 * the commit wrote more records than it had counted. */
ENGINE_TEST(test_commit_of_acks_that_overlap_ended_the_process)
{
    declare(engine, "q", QS_DURABLE);
    for (int i = 0; i < 9; i++) {
        publish(engine, "q", "m");
        get(engine, "q", "m");
    }
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    ack(engine, 2, 0);
    ack(engine, 5, 0);
    ack(engine, 8, QS_MULTIPLE);
    QS_CHECK_OK(qs_test_commit(engine->channel, text("key"), 0));
    check_counts(engine, "q", 0, 1);
    engine_reopen(engine);
    QS_CHECK(is_known(engine->store, text("key")));
    check_counts(engine, "q", 1, 0);
}

/* The names lay in the journal record, which the settling freed. */
ENGINE_TEST(test_names_of_a_stored_message_got_without_ack_were_freed)
{
    QS_TEST_FREED char *large = make_body(70000, 1);
    qs_message message;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", large);
    engine_reopen(engine);
    QS_CHECK_OK(qs_channel_get(engine->channel, text("q"), QS_NO_ACK, &message, QS_ERROR));
    QS_CHECK(holds(message.exchange, "") && holds(message.routing_key, "q"));
    qs_message_release(&message);
}

ENGINE_TEST(test_names_of_a_stored_delivery_without_ack_were_freed)
{
    QS_TEST_FREED char *large = make_body(70000, 1);
    qs_event event;

    declare(engine, "q", QS_DURABLE);
    publish(engine, "q", large);
    engine_reopen(engine);
    QS_CHECK_OK(qs_test_consume(engine->channel, "q", "", QS_NO_ACK, NONE));
    event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
    QS_CHECK(holds(event.message.routing_key, "q") && holds(event.message.body, large));
    qs_message_release(&event.message);
}

/* Deleting finds no room in the journal near the end of a file, and is not journalled. */
static void redeclare_after(uint32_t messages)
{
    struct engine engine;

    engine_init(&engine, IN_MEMORY);
    engine.options.journal_file_bytes = 64u << 10;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE | QS_AUTO_DELETE);
    declare(&engine, "other", QS_DURABLE);
    for (uint32_t i = 0; i < messages; i++) {
        publish(&engine, "other", "m");
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    }
    publish(&engine, "q", "old");
    QS_CHECK_OK(qs_test_consume(engine.channel, "q", "c", 0, NONE));
    QS_CHECK_OK(qs_channel_cancel(engine.channel, text("c"), QS_ERROR));
    QS_CHECK(!has_queue(&engine, "q"));
    declare(&engine, "q", QS_DURABLE | QS_AUTO_DELETE);
    engine_reopen(&engine);
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

QS_TEST(test_a_queue_declared_again_near_the_end_of_a_file_made_the_store_unreadable)
{
    for (uint32_t messages = 0; messages < 40; messages++) {
        redeclare_after(messages);
    }
}

static void redeclare_exchange_after(uint32_t messages)
{
    struct engine engine;

    engine_init(&engine, IN_MEMORY);
    engine.options.journal_file_bytes = 64u << 10;
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    declare_exchange(&engine, "e", "fanout", QS_DURABLE | QS_AUTO_DELETE);
    bind_queue(&engine, "q", "e", "k");
    for (uint32_t i = 0; i < messages; i++) {
        publish(&engine, "q", "m");
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    }
    QS_CHECK_OK(qs_test_bind(engine.channel, "q", "e", "k", QS_UNBIND));
    declare_exchange(&engine, "e", "topic", QS_DURABLE | QS_AUTO_DELETE);
    engine_reopen(&engine);
    declare_exchange(&engine, "e", "topic", QS_DURABLE | QS_AUTO_DELETE);
    engine_stop(&engine);
}

QS_TEST(test_an_exchange_declared_anew_near_the_end_of_a_file_made_the_store_unreadable)
{
    for (uint32_t messages = 0; messages < 40; messages++) {
        redeclare_exchange_after(messages);
    }
}

/* Delivers them on a channel of their own and requeues all but every gap-th: what is ready is as
 * many ranges. */
static qs_channel *keep_every(struct engine *engine, uint64_t gap, uint64_t count)
{
    qs_channel *keeper;

    QS_CHECK_OK(qs_channel_open(&keeper, engine->store, QS_ERROR));
    for (uint64_t i = 0; i < count; i++) {
        QS_CHECK_OK(qs_test_get(keeper, "q", 0));
    }
    for (uint64_t tag = 1; tag <= count; tag++) {
        if (tag % gap != 0) {
            QS_CHECK_OK(qs_channel_nack(keeper, tag, QS_REQUEUE, 0, QS_ERROR));
        }
    }
    return keeper;
}

/* The room for their acks was made for one of them. */
UNOPENED_TEST(test_messages_got_without_ack_came_back_after_a_close)
{
    const uint64_t count = 4000;
    struct ArrowSchema schema;
    struct ArrowArray array;
    qs_channel *keeper;

    engine->options.journal_file_bytes = 64u << 10;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
    for (uint64_t i = 0; i < count; i++) {
        publish(engine, "q", "m");
    }
    keeper = keep_every(engine, 2, count);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    QS_CHECK_OK(qs_channel_get_batch(engine->channel, text("q"), count, UINT64_MAX, QS_NO_ACK, 0,
                                     &schema, &array, QS_ERROR));
    QS_CHECK((uint64_t)array.length == count / 2);
    schema.release(&schema);
    array.release(&array);
    qs_channel_close(keeper);
    engine_reopen(engine);
    check_counts(engine, "q", count / 2, 0);
}

/* Runs in a process that dies.  The transaction fills whole files; what follows it is confirmed
 * in a later one. */
static void publish_a_large_transaction(struct engine *engine)
{
    QS_TEST_FREED char *body = make_body(4000, 1);

    declare(engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (int i = 0; i < 100; i++) {
        publish(engine, "q", body);
    }
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    for (int i = 0; i < 20; i++) {
        publish(engine, "q", "later");
        QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    }
}

/* False when the file is not there or was never begun. */
static bool damage_header(const struct engine *engine, unsigned number)
{
    char path[256];
    FILE *file;
    int magic, byte;

    snprintf(path, sizeof path, "%s/journal/%010u.jnl", engine->path, number);
    file = fopen(path, "r+");
    if (file == NULL) {
        return false;
    }
    magic = fgetc(file);
    QS_CHECK(fseek(file, 40, SEEK_SET) == 0);
    byte = fgetc(file);
    QS_CHECK(byte != EOF && fseek(file, 40, SEEK_SET) == 0);
    QS_CHECK(fputc(byte ^ 0x55, file) != EOF && fclose(file) == 0);
    return magic == 'Q';
}

static bool is_refused_with_damaged_file(unsigned number)
{
    struct engine engine;
    int result;
    pid_t child;
    bool damaged;

    engine_init(&engine, ON_DISK);
    engine.options.journal_file_bytes = 64u << 10;
    engine.options.background = false; /* not every sanitizer likes threads in a child */
    child = fork();
    QS_CHECK(child >= 0);
    if (child == 0) {
        engine_open(&engine);
        publish_a_large_transaction(&engine);
        _exit(7);
    }
    QS_CHECK(waitpid(child, &result, 0) == child && WIFEXITED(result) && WEXITSTATUS(result) == 7);
    damaged = damage_header(&engine, number);
    if (damaged) {
        QS_CHECK_STATUS(QS_ECORRUPT, qs_store_open(&engine.store, engine.path, &engine.options,
                                                   engine.env, QS_ERROR));
    }
    engine_fini(&engine);
    return damaged;
}

QS_TEST(test_damage_in_a_file_that_one_commit_filled_was_cut_off_in_silence)
{
    unsigned number = 1;

    while (is_refused_with_damaged_file(number)) {
        number += 1;
    }
    QS_CHECK(number > 3);
}

/* A commit over several files fails at its n-th sync.  Those behind the end that was written
 * down then were used again, and their headers looked as if the next session had been longer.
 * False when the commit makes fewer syncs. */
static bool reopens_twice_after_failing_sync(uint64_t n)
{
    QS_TEST_FREED char *body = make_body(4000, 1);
    struct engine engine;
    bool failed;

    engine_init(&engine, IN_MEMORY);
    engine.options.journal_file_bytes = 64u << 10;
    engine_put_fault(&engine);
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_tx_select(engine.channel, QS_ERROR));
    for (int i = 0; i < 100; i++) {
        publish(&engine, "q", body);
    }
    qsi_env_fault_arm(engine.env, QSI_FAULT_SYNC, QSI_FAULT_EIO, n, false);
    failed = qs_test_commit(engine.channel, NONE, 0) != QS_OK;
    qsi_env_fault_arm(engine.env, QSI_FAULT_ANY, QSI_FAULT_EIO, 0, false);
    qs_channel_close(engine.channel);
    (void)qs_store_close(engine.store, QS_ERROR);
    engine.env = engine.memory;
    engine_open(&engine);
    engine_crash(&engine);
    check_counts(&engine, "q", failed ? 0 : 100, 0);
    engine_stop(&engine);
    return failed;
}

QS_TEST(test_a_store_opened_twice_after_a_failed_commit_was_refused)
{
    uint64_t n = 1;

    while (reopens_twice_after_failing_sync(n)) {
        n += 1;
    }
    QS_CHECK(n > 5);
}

QS_TEST(test_the_key_of_a_transaction_that_failed_was_known)
{
    struct engine engine;

    engine_init(&engine, IN_MEMORY);
    engine_put_fault(&engine);
    engine_open(&engine);
    declare(&engine, "q", QS_DURABLE);
    QS_CHECK_OK(qs_channel_tx_select(engine.channel, QS_ERROR));
    publish(&engine, "q", "m");
    QS_CHECK_OK(qs_test_commit(engine.channel, text("durable"), 0));
    publish(&engine, "q", "m");
    qsi_env_fault_arm(engine.env, QSI_FAULT_SYNC, QSI_FAULT_EIO, 1, false);
    QS_CHECK_STATUS(QS_ESTORE_FAILED, qs_test_commit(engine.channel, text("failed"), 0));
    QS_CHECK(is_known(engine.store, text("durable")));
    QS_CHECK(!is_known(engine.store, text("failed")));
    qs_channel_close(engine.channel);
    QS_CHECK(qs_store_close(engine.store, QS_ERROR) != QS_OK);
    engine_fini(&engine);
}

#define BURST 1500 /* messages of 2000 bytes; a file has one MiB */

static bool wants_fill(struct engine *engine)
{
    bool wants;

    qsi_mutex_lock(&engine->store->mutex);
    wants = qsi_journal_wants_fill(engine->store->journal);
    qsi_mutex_unlock(&engine->store->mutex);
    return wants;
}

/* More than any file has room for: a file is made for it, in a hurry.  Returns how many it has. */
static uint64_t publish_a_burst(struct engine *engine, const char *body)
{
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (uint64_t i = 0; i < BURST; i++) {
        publish(engine, "q", body);
    }
    QS_CHECK_OK(qs_test_commit(engine->channel, NONE, 0));
    engine_new_channel(engine);
    return BURST;
}

/* Its commits took longer until the files that were made during the burst were used up. */
ON_DISK_TEST(test_a_lone_publisher_paid_for_the_burst_before)
{
    QS_TEST_FREED char *body = make_body(2000, 1);
    uint64_t count = 0;

    declare(engine, "q", QS_DURABLE);
    while (!wants_fill(engine)) { /* which a thread may have seen to already */
        count += publish_a_burst(engine, body);
    }
    while (wants_fill(engine)) {
        QS_CHECK_OK(qs_store_wait_durable(engine->store, publish(engine, "q", body).lsn, QS_FOREVER,
                                          QS_ERROR));
        count += 1;
        usleep(1000); /* the store is quiet, however fast its disk is */
    }
    engine_reopen(engine);
    check_counts(engine, "q", count, 0);
}
