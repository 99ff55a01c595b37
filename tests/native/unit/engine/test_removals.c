/* Dead letters, refusals and rejects where something is in the way: memory, room, damage, a
 * queue that is full.  Nothing that was rejected is lost or moved twice. */
#include "qs_test_sweep.h"
#include "removals_fixture.h"

#define LARGE 20000 /* bytes of a body that goes to the message store */

/* A queue whose dead letters go to the queue "dead". */
static void declare_source(struct engine *engine, const char *queue, bool at_least_once)
{
    struct qs_test_fields fields =
        qs_test_fields_of("x-dead-letter-exchange= x-dead-letter-routing-key=dead");

    if (at_least_once) {
        qs_test_put_text(&fields, "x-overflow", "reject-publish");
        qs_test_put_text(&fields, "x-dead-letter-strategy", "at-least-once");
    }
    declare_with(engine, queue, &fields);
}

/* Takes the next count messages; the tags count up from the channel's last one. */
static uint64_t take(struct engine *engine, const char *queue, uint32_t count)
{
    qs_message message = {0};

    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK_OK(qs_channel_get(engine->channel, text(queue), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    return message.delivery_tag;
}

static void nack(struct engine *engine, uint64_t tag, uint32_t flags)
{
    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, flags, 0, QS_ERROR));
}

static void set_up(struct engine *engine)
{
    declare(engine, "dead", QS_DURABLE);
    declare_source(engine, "q", false);
}

/* ---- transactions ---- */

ENGINE_TEST(test_verbs_of_a_transaction_about_the_same_message_count_once)
{
    set_up(engine);
    publish_many(engine, "q", 6);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    QS_CHECK(take(engine, "q", 6) == 6);
    nack(engine, 2, 0);
    ack(engine, 4, 0);
    nack(engine, 3, QS_REQUEUE);
    nack(engine, 5, QS_MULTIPLE);
    QS_CHECK_OK(commit(engine));
    check_counts(engine, "q", 1, 1);
    check_counts(engine, "dead", 3, 0);
    get(engine, "dead", "1");
    get(engine, "dead", "0");
    get(engine, "dead", "4");
    get(engine, "q", "2");
}

static void begin_rejects(struct engine *engine)
{
    engine_start(engine, IN_MEMORY);
    set_up(engine);
    publish_many(engine, "q", 8);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    take(engine, "q", 8);
    ack(engine, 1, 0);
    nack(engine, 4, QS_MULTIPLE);
    ack(engine, 5, 0);
    nack(engine, 7, 0);
    publish(engine, "dead", "beside");
}

/* Between them are tags that were settled before, and one that the transaction acks. */
ENGINE_TEST(test_rejects_of_a_transaction_find_what_is_outstanding)
{
    set_up(engine);
    publish_many(engine, "q", 300);
    QS_CHECK(take(engine, "q", 300) == 300);
    ack(engine, 100, QS_MULTIPLE);
    for (uint64_t tag = 101; tag <= 200; tag += 2) {
        ack(engine, tag, 0);
    }
    ack(engine, 299, 0);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    ack(engine, 150, 0);
    nack(engine, 0, QS_MULTIPLE);
    QS_CHECK_OK(commit(engine));
    check_counts(engine, "q", 0, 0);
    QS_CHECK(ready_in(engine, "dead") == 50 + 100 - 2);
    for (uint64_t tag = 102; tag <= 300; tag += tag < 200 ? 2 : 1) {
        char body[16];
        snprintf(body, sizeof body, "%u", (uint32_t)tag - 1);
        if (tag != 150 && tag != 299) {
            get(engine, "dead", body);
        }
    }
}

/* Whichever allocation of the engine fails: the commit can be tried again, and then everything
 * of it happens, once. */
QS_TEST(test_a_commit_with_rejects_that_fails_can_be_tried_again)
{
    uint64_t refused = 0;

    for (struct qs_test_sweep sweep = {.has_own_memory = true}; qs_test_sweep_on(&sweep);) {
        struct engine engine;
        qs_status status;

        begin_rejects(&engine);
        qs_test_sweep_allocations(&sweep);
        status = commit(&engine);
        qs_test_sweep_rest(&sweep);
        if (status == QS_ESTORE_FAILED) { /* it was the disk's */
            qs_channel_close(engine.channel);
            (void)!qs_store_close(engine.store, NULL);
            engine_fini(&engine);
            continue;
        }
        if (status != QS_OK) {
            refused++;
            QS_CHECK(status == QS_ENOMEM);
            check_counts(&engine, "q", 0, 8);
            check_counts(&engine, "dead", 0, 0);
            QS_CHECK_OK(commit(&engine));
        }
        check_counts(&engine, "q", 0, 2);
        check_counts(&engine, "dead", 5, 0);
        QS_CHECK(stats_of(&engine).messages_dead_lettered == 4); /* once each */
        engine_reopen(&engine);
        check_counts(&engine, "q", 2, 0);
        check_counts(&engine, "dead", 5, 0);
        engine_stop(&engine);
    }
    QS_CHECK(refused > 10);
}

/* ---- memory ---- */

/* A reject that fails leaves the message out; one that does not moves it, now or later. */
QS_TEST(test_a_reject_without_memory_loses_nothing)
{
    bool is_refused = false;

    for (struct qs_test_sweep sweep = {.has_own_memory = true, .is_sticky = true};
         qs_test_sweep_on(&sweep);) {
        struct engine engine;
        qs_status status;

        engine_start(&engine, IN_MEMORY);
        set_up(&engine);
        publish_many(&engine, "q", 40);
        take(&engine, "q", 40);
        for (uint64_t tag = 2; tag <= 40; tag += 2) { /* each of the others by itself */
            ack(&engine, tag, 0);
        }
        qs_test_sweep_allocations(&sweep);
        status = qs_channel_nack(engine.channel, 39, QS_MULTIPLE, 0, QS_ERROR);
        qs_test_sweep_rest(&sweep);
        QS_CHECK(status == QS_OK || status == QS_ENOMEM);
        is_refused = is_refused || status == QS_ENOMEM;
        if (status == QS_ENOMEM) {
            check_counts(&engine, "q", 0, 20);
        }
        QS_CHECK(stats_of(&engine).messages_dead_lettered == ready_in(&engine, "dead"));
        qsi_env_mem_advance(engine.memory, 2 * SECOND); /* what is stuck tries again */
        QS_CHECK_OK(qs_channel_qos(engine.channel, 0, 0, 0, QS_ERROR));
        QS_CHECK(stats_of(&engine).messages_dead_lettered == ready_in(&engine, "dead"));
        engine_close(&engine);
        engine_open(&engine);
        QS_CHECK(ready_in(&engine, "q") + ready_in(&engine, "dead") == 20);
        engine_stop(&engine);
    }
    QS_CHECK(is_refused);
}

/* ---- full queues ---- */

/* As many records as there may be entries in the open end of the journal, and as many ends of
 * theirs. */
UNOPENED_TEST(test_each_record_of_a_batch_can_be_refused)
{
    struct qs_test_batch rows;
    qs_receipt receipt;
    qs_batch batch;

    engine->options.embed_below = 1u << 20; /* each body is a record of its own */
    engine_open(engine);
    qs_test_declare_with(engine->channel, "few", QS_DURABLE,
                         "x-max-length=1 x-overflow=reject-publish");
    for (uint32_t count = 30; count < 35; count++) {
        qs_test_batch_init(&rows);
        for (uint32_t i = 0; i < count; i++) {
            memset(qs_test_batch_add(&rows, "few", 700u << 10), (int)i, 700u << 10);
        }
        batch = qs_test_batch_finish(&rows);
        QS_CHECK_OK(qs_channel_publish_batch(engine->channel, &batch, &receipt, QS_ERROR));
        qs_test_batch_fini(&rows);
        check_counts(engine, "few", 1, 0);
    }
    QS_CHECK(stats_of(engine).messages_refused == 30 + 31 + 32 + 33 + 34 - 1);
    engine_reopen(engine);
    check_counts(engine, "few", 1, 0);
}

ENGINE_TEST(test_letters_fill_a_queue_that_refuses_no_further)
{
    qs_test_declare_with(engine->channel, "dead", QS_DURABLE,
                         "x-max-length=2 x-overflow=reject-publish");
    declare_source(engine, "q", false);
    publish_many(engine, "q", 5);
    nack(engine, take(engine, "q", 5), QS_MULTIPLE);
    check_counts(engine, "dead", 2, 0);
    check_counts(engine, "q", 0, 0);
    get(engine, "dead", "0");
    get(engine, "dead", "1");
}

/* In a store without threads whoever calls next tries again. */
ENGINE_TEST(test_letters_that_found_no_room_try_again)
{
    if (engine->memory == NULL) {
        return; /* the clock is turned by hand */
    }
    qs_test_declare_with(engine->channel, "dead", QS_DURABLE,
                         "x-max-length=2 x-overflow=reject-publish");
    declare_source(engine, "q", true);
    publish_many(engine, "q", 6);
    nack(engine, take(engine, "q", 6), QS_MULTIPLE);
    check_counts(engine, "dead", 2, 0);
    check_counts(engine, "q", 0, 4);
    get_flags(engine, "dead", "0", QS_NO_ACK);
    check_counts(engine, "dead", 2, 0);
    get_flags(engine, "dead", "1", QS_NO_ACK); /* too soon for another try */
    check_counts(engine, "dead", 1, 0);
    check_counts(engine, "q", 0, 3);
    qsi_env_mem_advance(engine->memory, 2 * SECOND);
    get_flags(engine, "dead", "2", QS_NO_ACK);
    check_counts(engine, "dead", 2, 0);
    check_counts(engine, "q", 0, 1);
    engine_reopen(engine);
    check_counts(engine, "dead", 2, 0);
    check_counts(engine, "q", 1, 0);
    get(engine, "q", "5");
}

/* Whether full queues take a transaction is judged by all that it has for each of them, however
 * many queues there are, and of a queue with priorities by all priorities together. */
ENGINE_TEST(test_a_transaction_counts_all_that_comes_to_each_queue)
{
    struct qs_test_fields fields = {.used = 0}, priorities = {.used = 0};
    const uint8_t first[] = {0x18, 0, 2, 1};
    const qs_slice urgent = {first, sizeof first};
    char name[8];

    qs_test_put_long(&fields, "x-max-length", 3);
    qs_test_put_text(&fields, "x-overflow", "reject-publish");
    qs_test_put_long(&priorities, "x-max-length", 3);
    qs_test_put_text(&priorities, "x-overflow", "reject-publish");
    qs_test_put_long(&priorities, "x-max-priority", 1);
    declare_with(engine, "prior", &priorities);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (uint32_t i = 0; i < 3 * 12; i++) {
        snprintf(name, sizeof name, "q%u", i % 12);
        declare_with(engine, name, &fields);
        publish(engine, name, "x");
        if (i < 3) {
            publish_to(engine, "", "prior", i == 0 ? urgent : PERSISTENT, text("x"));
        }
    }
    QS_CHECK_OK(commit(engine)); /* each is full now, and none was too full */
    QS_CHECK(ready_in(engine, "prior") == 3 && ready_in(engine, "q7") == 3);
    get_flags(engine, "prior", "x", QS_NO_ACK);
    publish_to(engine, "", "prior", urgent, text("x"));
    publish(engine, "prior", "x");
    QS_CHECK(commit(engine) == QS_PRECONDITION_FAILED);
    engine_new_channel(engine);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (uint32_t i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "q%u", i);
        get_flags(engine, name, "x", i == 7 ? 0 : QS_NO_ACK);
        publish(engine, name, "y");
    }
    publish(engine, "q7", "y");
    publish(engine, "q7", "y");
    QS_CHECK(commit(engine) == QS_PRECONDITION_FAILED);
    QS_CHECK(ready_in(engine, "prior") == 2 && ready_in(engine, "q11") == 2);
}

/* ---- columns ---- */

/* A segment that is written anew, without the many that were settled, keeps what it knows of the
 * others. */
UNOPENED_TEST(test_rewritten_segments_know_when_messages_expire)
{
    uint32_t rewritten = 0;

    engine->options.segment_entries = 64;
    engine_open(engine);
    qs_test_declare_with(engine->channel, "q", QS_DURABLE, "x-message-ttl=10000 x-queue-mode=lazy");
    publish_many(engine, "q", 64);
    take(engine, "q", 60);
    publish_many(engine, "q", 64);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    ack(engine, 60, QS_MULTIPLE);
    qsi_mutex_lock(&engine->store->mutex);
    while (qsi_pager_compact(engine->store, QS_ERROR)) {
        rewritten++;
    }
    qsi_mutex_unlock(&engine->store->mutex);
    QS_CHECK(rewritten > 0);
    QS_CHECK_OK(qs_store_checkpoint(engine->store, QS_ERROR));
    engine_reopen(engine);
    check_counts(engine, "q", 68, 0);
    qsi_env_mem_advance(engine->memory, 11 * SECOND);
    get_nothing(engine, "q");
}

/* ---- damage ---- */

ENGINE_TEST(test_a_damaged_message_holds_up_no_other)
{
    char *bodies[3];

    set_up(engine);
    for (uint32_t i = 0; i < 3; i++) {
        bodies[i] = make_body(LARGE, i);
        bodies[i][0] = (char)('0' + i);
        publish(engine, "q", bodies[i]);
    }
    take(engine, "q", 3);
    QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
    damage(engine, "messages", ".msg", bodies[1], 100);
    nack(engine, 3, QS_MULTIPLE);
    check_counts(engine, "q", 0, 1);
    get(engine, "dead", bodies[0]);
    get(engine, "dead", bodies[2]);
    engine_reopen(engine);
    check_counts(engine, "q", 1, 0);
    check_counts(engine, "dead", 2, 0);
    for (uint32_t i = 0; i < 3; i++) {
        free(bodies[i]);
    }
}

/* It costs its own messages only: not those before it, although it is read before they are, and
 * not when a queue with a limit reads all of its states at the opening. */
QS_BOOL_TEST(test_a_damaged_state_is_told_to_whoever_comes_for_it, has_limit)
{
    struct qs_test_fields fields = {.used = 0};
    struct engine engine;

    engine_init(&engine, IN_MEMORY);
    engine.options.segment_entries = 64;
    engine_open(&engine);
    if (has_limit) {
        qs_test_put_long(&fields, "x-max-length-bytes", 1 << 20);
    }
    qs_test_put_text(&fields, "x-queue-mode", "lazy");
    declare_with(&engine, "q", &fields);
    publish_many(&engine, "q", 300);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    engine_close(&engine);
    damage(&engine, "index", "-000000000002-", has_limit ? "QSSEGST\n" : "QSSEGMT\n", 8);
    engine_open(&engine);
    check_counts(&engine, "q", 300, 0);
    for (uint32_t i = 0; i < 128; i++) {
        QS_CHECK_OK(qs_test_get(engine.channel, "q", 0));
    }
    QS_CHECK_STATUS(QS_ECORRUPT, qs_test_get(engine.channel, "q", 0));
    check_counts(&engine, "q", 300 - 192, 192);
    engine_stop(&engine);
}

/* ---- threads ---- */

/* Nobody waits for a dead letter, and it becomes durable all the same. */
ON_DISK_TEST(test_dead_letters_are_committed_by_themselves)
{
    set_up(engine);
    for (uint32_t i = 0; i < 5; i++) {
        publish(engine, "q", "1");
        take(engine, "q", 1);
        QS_CHECK_OK(qs_store_sync(engine->store, QS_ERROR));
        qsi_mutex_lock(&engine->store->mutex);
        while (!engine->store->commit.committer_sleeps) {
            qsi_cond_wait(&engine->store->commit.durable, &engine->store->mutex, SECOND / 1000);
        }
        qsi_mutex_unlock(&engine->store->mutex);
        nack(engine, i + 1, 0);
        check_counts(engine, "dead", i + 1, 0);
        while (stats_of(engine).durable_lsn < stats_of(engine).appended_lsn) {
            usleep(1000);
        }
    }
}
