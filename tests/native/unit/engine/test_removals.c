/* Dead letters, refusals and rejects where something is in the way: memory, room, damage, a
 * queue that is full.  Nothing that was rejected is lost or moved twice. */
#include "engine_damage.h"
#include "engine_fixture.h"
#include "pager.h"
#include "qs_test_alloc.h"
#include "qs_test_batch.h"
#include "qs_test_fields.h"
#include "removals.h"

#define LARGE 20000 /* bytes of a body that goes to the message store */

static void declare_with(struct engine *engine, const char *queue,
                         const struct qs_test_fields *fields)
{
    qs_declare_ok ok;

    QS_CHECK_OK(qs_channel_queue_declare(engine->channel, text(queue), QS_DURABLE,
                                         qs_test_fields_slice(fields), &ok, QS_ERROR));
}

/* A queue whose dead letters go to the queue "dead". */
static void declare_source(struct engine *engine, const char *queue, bool at_least_once)
{
    struct qs_test_fields fields = {.used = 0};

    qs_test_put_text(&fields, "x-dead-letter-exchange", "");
    qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
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

static void publish_many(struct engine *engine, const char *queue, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        publish(engine, queue, body);
    }
}

static void nack(struct engine *engine, uint64_t tag, uint32_t flags)
{
    QS_CHECK_OK(qs_channel_nack(engine->channel, tag, flags, QS_ERROR));
}

static qs_status commit(struct engine *engine)
{
    bool repeated;

    return qs_channel_tx_commit(engine->channel, NONE, &repeated, QS_ERROR);
}

static uint64_t ready_in(struct engine *engine, const char *queue)
{
    qs_queue_status status;

    QS_CHECK_OK(qs_store_queue_status(engine->store, text(queue), &status, QS_ERROR));
    return status.messages_ready;
}

static void set_up(struct engine *engine)
{
    declare(engine, "dead", QS_DURABLE);
    declare_source(engine, "q", false);
}

/* ---- whose time it takes ---- */

#define BACKLOG 2000u /* messages that leave a queue at once */
#define AT_ONCE 256u  /* of their dead letters go on the way out of a call */

/* The queue takes two: the others leave, the first ones first.  Two calls may see to it: the
 * commit, and the channel's end. */
static void leave_at_once(struct engine *engine)
{
    struct qs_test_fields fields = {.used = 0};
    qs_receipt receipt;

    declare(engine, "dead", QS_DURABLE);
    qs_test_put_long(&fields, "x-max-length", 2);
    qs_test_put_text(&fields, "x-dead-letter-exchange", "");
    qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    declare_with(engine, "q", &fields);
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (uint32_t i = 0; i < BACKLOG + 2; i++) {
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text("q"), PERSISTENT, text(body),
                                       0, &receipt, QS_ERROR));
    }
    QS_CHECK_OK(commit(engine));
    engine_new_channel(engine);
}

static void take_letters_in_order(struct engine *engine)
{
    for (uint32_t i = 0; i < BACKLOG; i++) {
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        get(engine, "dead", body);
    }
    get_nothing(engine, "dead");
}

/* Calls remove so many, in their order; what is left when the store closes goes with it. */
static void test_a_call_sees_off_a_few_where_a_timer_goes_on(void)
{
    struct engine engine;

    engine_start(&engine, IN_MEMORY);
    engine.store->removals.has_timer = true; /* its thread is slow today */
    leave_at_once(&engine);
    QS_CHECK(ready_in(&engine, "dead") == 2 * AT_ONCE && ready_in(&engine, "q") == 2);
    QS_CHECK_OK(qs_channel_qos(engine.channel, 0, 0, 0, QS_ERROR));
    QS_CHECK(ready_in(&engine, "dead") == 3 * AT_ONCE);
    publish(&engine, "q", "last"); /* its dead letter is the last: those before it left before */
    QS_CHECK(ready_in(&engine, "dead") == 4 * AT_ONCE && ready_in(&engine, "q") == 2);
    engine.store->removals.has_timer = false;
    engine_reopen(&engine);
    QS_CHECK(ready_in(&engine, "dead") == BACKLOG + 1 && ready_in(&engine, "q") == 2);
    for (uint32_t i = 0; i <= BACKLOG; i++) {
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        get(&engine, "dead", body);
    }
    engine_stop(&engine);
}

static void test_without_a_timer_a_call_sees_off_all(void)
{
    struct engine engine;

    engine_start(&engine, IN_MEMORY);
    leave_at_once(&engine);
    QS_CHECK(ready_in(&engine, "dead") == BACKLOG);
    QS_CHECK(stats_of(&engine).messages_dead_lettered == BACKLOG);
    take_letters_in_order(&engine);
    engine_stop(&engine);
}

/* Nobody calls the store any more: the timer drains the removal list the others. */
static void test_the_timer_sees_off_the_others(void)
{
    struct engine engine;
    char tag[256];

    engine_start(&engine, ON_DISK);
    leave_at_once(&engine);
    QS_CHECK_OK(qs_channel_consume(engine.channel, text("dead"), text("c"), QS_NO_ACK, NONE, tag,
                                   QS_ERROR));
    for (uint32_t i = 0; i < BACKLOG; i++) {
        qs_event event = expect_event(&engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        QS_CHECK(holds(event.message.body, body));
        qs_message_release(&event.message);
    }
    engine_stop(&engine);
}

/* ---- who must not wait ---- */

static void publish_at_once(struct engine *engine, const char *body)
{
    qs_receipt receipt;

    QS_CHECK_OK(qs_channel_publish(engine->channel, text(""), text("one"), PERSISTENT, text(body),
                                   QS_NO_WAIT, &receipt, QS_ERROR));
}

static void declare_one(struct engine *engine, bool dead_letters)
{
    struct qs_test_fields fields = {.used = 0};

    qs_test_put_long(&fields, "x-max-length", 1);
    if (dead_letters) {
        qs_test_put_text(&fields, "x-dead-letter-exchange", "");
        qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    }
    declare_with(engine, "one", &fields);
    declare(engine, "dead", QS_DURABLE);
}

/* Its head was dropped by the timer, some time later.  Only dead letters may wait for it. */
static void test_a_full_queue_drops_its_head_before_anybody_can_get_it(bool dead_letters,
                                                                       bool is_busy)
{
    struct engine engine;

    engine_start(&engine, IN_MEMORY);
    declare_one(&engine, dead_letters);
    engine.store->removals.has_timer = engine.store->paging.is_running =
        true; /* their threads are slow today */
    engine.store->removals.is_busy = is_busy;
    publish_at_once(&engine, "dropped");
    publish_at_once(&engine, "kept");
    get_flags(&engine, "one", "kept", QS_NO_ACK | QS_NO_WAIT);
    check_counts(&engine, "one", 0, dead_letters || is_busy ? 1 : 0);
    get_nothing(&engine, "one");
    engine.store->removals.has_timer = engine.store->paging.is_running = false;
    engine.store->removals.is_busy = false;
    get_nothing(&engine, "one");
    check_counts(&engine, "dead", dead_letters ? 1 : 0, 0);
    check_counts(&engine, "one", 0, 0);
    engine_stop(&engine);
}

/* ---- expired while nobody was there ---- */

#define EXPIRING 1000u

struct listed {
    uint64_t ready;
    uint32_t count;
};

static void add_listed(void *context, const qs_queue_info *info)
{
    struct listed *listed = context;

    listed->ready += info->messages_ready;
    listed->count += 1;
}

static void check_listed(struct engine *engine, uint64_t ready)
{
    struct listed listed = {0};

    QS_CHECK_OK(qs_store_visit_queues(engine->store, add_listed, &listed));
    QS_CHECK(listed.count == 2 && listed.ready == ready);
}

static void fill_and_expire(struct engine *engine, bool dead_letters)
{
    struct qs_test_fields fields = {.used = 0};

    engine_init(engine, IN_MEMORY);
    engine->options.segment_entries = 64;
    engine_open(engine);
    qs_test_put_long(&fields, "x-message-ttl", 10000);
    if (dead_letters) {
        qs_test_put_text(&fields, "x-dead-letter-exchange", "");
        qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    }
    declare(engine, "dead", QS_DURABLE);
    declare_with(engine, "q", &fields);
    publish_many(engine, "q", EXPIRING);
    engine_close(engine);
    qsi_env_mem_advance(engine->memory, 11 * SECOND);
}

static void open_again(struct engine *engine, bool read_only)
{
    engine->options.read_only = read_only;
    QS_CHECK_OK(
        qs_store_open(&engine->store, engine->path, &engine->options, engine->env, QS_ERROR));
}

/* They counted as ready until the timer had come to them, and for ever where nobody writes. */
static void test_what_expired_while_the_store_was_closed_is_told_to_nobody(bool dead_letters)
{
    struct engine engine;

    fill_and_expire(&engine, dead_letters);
    open_again(&engine, true);
    check_listed(&engine, 0);
    check_counts(&engine, "q", 0, 0);
    QS_CHECK_OK(qs_store_close(engine.store, QS_ERROR));
    open_again(&engine, false);
    check_listed(&engine, 0);
    check_counts(&engine, "q", 0, dead_letters ? EXPIRING : 0);
    QS_CHECK_OK(qs_channel_open(&engine.channel, engine.store, QS_ERROR));
    get_nothing(&engine, "q");
    check_counts(&engine, "q", 0, 0);
    check_counts(&engine, "dead", dead_letters ? EXPIRING : 0, 0);
    engine_stop(&engine);
}

/* ---- transactions ---- */

static void test_verbs_of_a_transaction_about_the_same_message_count_once(struct engine *engine)
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
static void test_rejects_of_a_transaction_find_what_is_outstanding(struct engine *engine)
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
static void test_a_commit_with_rejects_that_fails_can_be_tried_again(void)
{
    struct qs_test_alloc alloc;
    uint64_t failed = 0;

    qs_test_alloc_install(&alloc);
    for (uint64_t n = 1;; n++) {
        struct engine engine;
        qs_status status;

        begin_rejects(&engine);
        qs_test_alloc_arm(&alloc, n, false);
        status = commit(&engine);
        if (!alloc.has_failed || status == QS_ESTORE_FAILED) { /* it was the disk's */
            qs_test_alloc_arm(&alloc, 0, false);
            qs_channel_close(engine.channel);
            (void)!qs_store_close(engine.store, NULL);
            engine_fini(&engine);
            break;
        }
        qs_test_alloc_arm(&alloc, 0, false);
        if (status != QS_OK) {
            failed++;
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
    QS_CHECK(failed > 10 && alloc.alive == 0);
    qs_allocator_set(NULL);
}

/* ---- memory ---- */

/* A reject that fails leaves the message out; one that does not moves it, now or later. */
static void test_a_reject_without_memory_loses_nothing(void)
{
    struct qs_test_alloc alloc;
    bool is_refused = false;

    qs_test_alloc_install(&alloc);
    for (uint64_t n = 1;; n++) {
        struct engine engine;
        qs_status status;
        bool has_failed;

        engine_start(&engine, IN_MEMORY);
        set_up(&engine);
        publish_many(&engine, "q", 40);
        take(&engine, "q", 40);
        for (uint64_t tag = 2; tag <= 40; tag += 2) { /* each of the others by itself */
            ack(&engine, tag, 0);
        }
        qs_test_alloc_arm(&alloc, n, true);
        status = qs_channel_nack(engine.channel, 39, QS_MULTIPLE, QS_ERROR);
        has_failed = alloc.has_failed;
        qs_test_alloc_arm(&alloc, 0, false);
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
        if (!has_failed) {
            break;
        }
    }
    QS_CHECK(is_refused && alloc.alive == 0);
    qs_allocator_set(NULL);
}

/* ---- full queues ---- */

/* As many records as there may be entries in the open end of the journal, and as many ends of
 * theirs. */
static void test_each_record_of_a_batch_can_be_refused(void)
{
    struct qs_test_fields fields = {.used = 0};
    struct qs_test_batch rows;
    struct engine engine;
    qs_receipt receipt;
    qs_batch batch;

    engine_init(&engine, IN_MEMORY);
    engine.options.embed_below = 1u << 20; /* each body is a record of its own */
    engine_open(&engine);
    qs_test_put_long(&fields, "x-max-length", 1);
    qs_test_put_text(&fields, "x-overflow", "reject-publish");
    declare_with(&engine, "few", &fields);
    for (uint32_t count = 30; count < 35; count++) {
        qs_test_batch_init(&rows);
        for (uint32_t i = 0; i < count; i++) {
            memset(qs_test_batch_add(&rows, "few", 700u << 10), (int)i, 700u << 10);
        }
        batch = qs_test_batch_finish(&rows);
        QS_CHECK_OK(qs_channel_publish_batch(engine.channel, &batch, &receipt, QS_ERROR));
        qs_test_batch_fini(&rows);
        check_counts(&engine, "few", 1, 0);
    }
    QS_CHECK(stats_of(&engine).messages_refused == 30 + 31 + 32 + 33 + 34 - 1);
    engine_reopen(&engine);
    check_counts(&engine, "few", 1, 0);
    engine_stop(&engine);
}

static void test_letters_fill_a_queue_that_refuses_no_further(struct engine *engine)
{
    struct qs_test_fields fields = {.used = 0};

    qs_test_put_long(&fields, "x-max-length", 2);
    qs_test_put_text(&fields, "x-overflow", "reject-publish");
    declare_with(engine, "dead", &fields);
    declare_source(engine, "q", false);
    publish_many(engine, "q", 5);
    nack(engine, take(engine, "q", 5), QS_MULTIPLE);
    check_counts(engine, "dead", 2, 0);
    check_counts(engine, "q", 0, 0);
    get(engine, "dead", "0");
    get(engine, "dead", "1");
}

/* In a store without threads whoever calls next tries again. */
static void test_letters_that_found_no_room_try_again(struct engine *engine)
{
    struct qs_test_fields fields = {.used = 0};

    if (engine->memory == NULL) {
        return; /* the clock is turned by hand */
    }
    qs_test_put_long(&fields, "x-max-length", 2);
    qs_test_put_text(&fields, "x-overflow", "reject-publish");
    declare_with(engine, "dead", &fields);
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

/* ---- columns ---- */

/* A segment that is written anew, without the many that were settled, keeps what it knows of the
 * others. */
static void test_rewritten_segments_know_when_messages_expire(void)
{
    struct qs_test_fields fields = {.used = 0};
    struct engine engine;
    uint32_t rewritten = 0;

    engine_init(&engine, IN_MEMORY);
    engine.options.segment_entries = 64;
    engine_open(&engine);
    qs_test_put_long(&fields, "x-message-ttl", 10000);
    qs_test_put_text(&fields, "x-queue-mode", "lazy");
    declare_with(&engine, "q", &fields);
    publish_many(&engine, "q", 64);
    take(&engine, "q", 60);
    publish_many(&engine, "q", 64);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    ack(&engine, 60, QS_MULTIPLE);
    qsi_mutex_lock(&engine.store->mutex);
    while (qsi_pager_compact(engine.store, QS_ERROR)) {
        rewritten++;
    }
    qsi_mutex_unlock(&engine.store->mutex);
    QS_CHECK(rewritten > 0);
    QS_CHECK_OK(qs_store_checkpoint(engine.store, QS_ERROR));
    engine_reopen(&engine);
    check_counts(&engine, "q", 68, 0);
    qsi_env_mem_advance(engine.memory, 11 * SECOND);
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

/* ---- damage ---- */

static void test_a_damaged_message_holds_up_no_other(struct engine *engine)
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
static void test_a_damaged_state_is_told_to_whoever_comes_for_it(bool has_limit)
{
    struct qs_test_fields fields = {.used = 0};
    struct engine engine;
    qs_message message;

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
        QS_CHECK_OK(qs_channel_get(engine.channel, text("q"), 0, &message, QS_ERROR));
        qs_message_release(&message);
    }
    QS_CHECK_STATUS(QS_ECORRUPT, qs_channel_get(engine.channel, text("q"), 0, &message, QS_ERROR));
    check_counts(&engine, "q", 300 - 192, 192);
    engine_stop(&engine);
}

/* ---- threads ---- */

/* Nobody waits for a dead letter, and it becomes durable all the same. */
static void test_dead_letters_are_committed_by_themselves(void)
{
    struct engine engine;
    qs_env *env = qs_env_posix();
    uint64_t end;

    engine_start(&engine, ON_DISK);
    set_up(&engine);
    for (uint32_t i = 0; i < 5; i++) {
        publish(&engine, "q", "1");
        take(&engine, "q", 1);
        QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
        qsi_mutex_lock(&engine.store->mutex);
        while (!engine.store->commit.committer_sleeps) {
            qsi_cond_wait(&engine.store->commit.durable, &engine.store->mutex, SECOND / 1000);
        }
        qsi_mutex_unlock(&engine.store->mutex);
        nack(&engine, i + 1, 0);
        check_counts(&engine, "dead", i + 1, 0);
        end = env->monotonic_ns(env) + 10 * SECOND;
        while (stats_of(&engine).durable_lsn < stats_of(&engine).appended_lsn) {
            QS_CHECK(env->monotonic_ns(env) < end);
        }
    }
    engine_stop(&engine);
}

int main(void)
{
    test_a_commit_with_rejects_that_fails_can_be_tried_again();
    test_a_reject_without_memory_loses_nothing();
    test_each_record_of_a_batch_can_be_refused();
    test_rewritten_segments_know_when_messages_expire();
    RUN_TESTS(test_verbs_of_a_transaction_about_the_same_message_count_once,
              test_rejects_of_a_transaction_find_what_is_outstanding,
              test_letters_fill_a_queue_that_refuses_no_further,
              test_letters_that_found_no_room_try_again, test_a_damaged_message_holds_up_no_other);
    test_a_damaged_state_is_told_to_whoever_comes_for_it(true);
    test_a_damaged_state_is_told_to_whoever_comes_for_it(false);
    test_dead_letters_are_committed_by_themselves();
    test_a_call_sees_off_a_few_where_a_timer_goes_on();
    test_without_a_timer_a_call_sees_off_all();
    test_the_timer_sees_off_the_others();
    for (int letters = 0; letters < 2; letters++) {
        test_a_full_queue_drops_its_head_before_anybody_can_get_it(letters, false);
        test_a_full_queue_drops_its_head_before_anybody_can_get_it(letters, true);
        test_what_expired_while_the_store_was_closed_is_told_to_nobody(letters);
    }
    return 0;
}
