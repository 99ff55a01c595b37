/* Draining the removal list: what a call drains where a timer goes on and where none does, and what
 * a full queue or a clock removes before anybody can get it. */
#include "qs_test_calls.h"
#include "removals_fixture.h"

#define BACKLOG 2000u /* messages that leave a queue at once */
#define AT_ONCE 256u  /* of their dead letters go on the way out of a call */

/* The queue takes two: the others leave, the first ones first.  Two calls may see to it: the
 * commit, and the channel's end. */
static void leave_at_once(struct engine *engine)
{
    declare(engine, "dead", QS_DURABLE);
    qs_test_declare_with(engine->channel, "q", QS_DURABLE,
                         "x-max-length=2 x-dead-letter-exchange= x-dead-letter-routing-key=dead");
    QS_CHECK_OK(qs_channel_tx_select(engine->channel, QS_ERROR));
    for (uint32_t i = 0; i < BACKLOG + 2; i++) {
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        QS_CHECK_OK(qs_test_publish(engine->channel, "", "q", PERSISTENT, text(body), 0));
    }
    QS_CHECK_OK(commit(engine));
    engine_new_channel(engine);
}

static void take_letters_in_order(struct engine *engine)
{
    get_numbers(engine, "dead", 0, BACKLOG);
    get_nothing(engine, "dead");
}

/* Calls remove so many, in their order; what is left when the store closes goes with it. */
IN_MEMORY_TEST(test_a_call_sees_off_a_few_where_a_timer_goes_on)
{
    engine->store->removals.has_timer = true; /* its thread is slow today */
    leave_at_once(engine);
    QS_CHECK(ready_in(engine, "dead") == 2 * AT_ONCE && ready_in(engine, "q") == 2);
    QS_CHECK_OK(qs_channel_pause(engine->channel, text("t"), true, QS_ERROR));
    QS_CHECK(ready_in(engine, "dead") == 3 * AT_ONCE);
    publish(engine, "q", "last"); /* its dead letter is the last: those before it left before */
    QS_CHECK(ready_in(engine, "dead") == 4 * AT_ONCE && ready_in(engine, "q") == 2);
    engine->store->removals.has_timer = false;
    engine_reopen(engine);
    QS_CHECK(ready_in(engine, "dead") == BACKLOG + 1 && ready_in(engine, "q") == 2);
    for (uint32_t i = 0; i <= BACKLOG; i++) {
        get_number(engine, "dead", i);
    }
}

IN_MEMORY_TEST(test_without_a_timer_a_call_sees_off_all)
{
    leave_at_once(engine);
    QS_CHECK(ready_in(engine, "dead") == BACKLOG);
    QS_CHECK(stats_of(engine).messages_dead_lettered == BACKLOG);
    take_letters_in_order(engine);
}

/* Nobody calls the store any more: the timer drains the removal list the others. */
ON_DISK_TEST(test_the_timer_sees_off_the_others)
{
    leave_at_once(engine);
    QS_CHECK_OK(qs_test_consume(engine->channel, "dead", "c", QS_NO_ACK, NONE));
    for (uint32_t i = 0; i < BACKLOG; i++) {
        qs_event event = expect_event(engine, QS_EVENT_DELIVERY, QS_EVENT_DELIVERY);
        char body[16];
        snprintf(body, sizeof body, "%u", i);
        QS_CHECK(holds(event.message.body, body));
        qs_message_release(&event.message);
    }
}

/* ---- who must not wait ---- */

static void publish_at_once(struct engine *engine, const char *body)
{
    QS_CHECK_OK(qs_test_publish(engine->channel, "", "one", PERSISTENT, text(body), QS_NO_WAIT));
}

static void declare_one(struct engine *engine, bool dead_letters)
{
    struct qs_test_fields fields = qs_test_fields_of("x-max-length=1");

    if (dead_letters) {
        qs_test_put_text(&fields, "x-dead-letter-exchange", "");
        qs_test_put_text(&fields, "x-dead-letter-routing-key", "dead");
    }
    declare_with(engine, "one", &fields);
    declare(engine, "dead", QS_DURABLE);
}

/* Its head was dropped by the timer, some time later.  Only dead letters may wait for it. */
static void drop_the_head_before_anybody_can_get_it(bool dead_letters, bool is_busy)
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

QS_BOOL_TEST(test_a_full_queue_drops_its_head_before_anybody_can_get_it, dead_letters)
{
    drop_the_head_before_anybody_can_get_it(dead_letters, false);
    drop_the_head_before_anybody_can_get_it(dead_letters, true);
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
    struct qs_test_fields fields = qs_test_fields_of("x-message-ttl=10000");

    engine_init(engine, IN_MEMORY);
    engine->options.segment_entries = 64;
    engine_open(engine);
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
QS_BOOL_TEST(test_what_expired_while_the_store_was_closed_is_told_to_nobody, dead_letters)
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
