/* When the pager works, and when it leaves queues alone. */
#include "engine_fixture.h"

#define BUDGET (1u << 20)
#define BODY_BYTES 1000
#define MESSAGES 8000u /* eight times the budget */

static void start_small(struct engine *engine)
{
    engine_init(engine, IN_MEMORY);
    engine->options.memory_budget = BUDGET;
    engine->options.checkpoint_bytes = 0;
    engine->options.checkpoint_interval_ms = 0;
    engine->options.segment_entries = 1024;
    engine_open(engine);
    declare(engine, "q", QS_DURABLE);
}

static void publish_large(struct engine *engine, uint32_t number)
{
    QS_TEST_FREED char *body = make_body(BODY_BYTES, number);

    publish(engine, "q", body);
}

static qs_message get_large(struct engine *engine, uint32_t number)
{
    QS_TEST_FREED char *body = make_body(BODY_BYTES, number);
    qs_message message = get(engine, "q", body);

    return message;
}

/* Far more goes through than memory holds, with next to nothing in the queue at any time: there
 * is nothing to page. */
static void test_what_is_consumed_at_once_reaches_no_segment(void)
{
    struct engine engine;
    qs_stats stats;

    start_small(&engine);
    for (uint32_t i = 0; i < 4; i++) {
        publish_large(&engine, i);
    }
    for (uint32_t i = 0; i < MESSAGES; i++) {
        publish_large(&engine, i + 4);
        ack(&engine, get_large(&engine, i).delivery_tag, 0);
        QS_CHECK(stats_of(&engine).ram_bytes <= BUDGET);
    }
    stats = stats_of(&engine);
    QS_CHECK(stats.commits > 0 && stats.bytes_journalled > BUDGET);
    QS_CHECK(stats.messages_paged_out == 0 && stats.segments_written == 0);
    check_counts(&engine, "q", 4, 0);
    engine_stop(&engine);
}

/* The journal is not open while it is replayed, and the pager works already. */
static void test_a_journal_larger_than_memory_is_replayed(void)
{
    struct engine engine;

    start_small(&engine);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        publish_large(&engine, i);
    }
    QS_CHECK(stats_of(&engine).messages_paged_out > 0);
    QS_CHECK_OK(qs_store_sync(engine.store, QS_ERROR));
    engine_crash(&engine);
    QS_CHECK(stats_of(&engine).recovered_bytes > (uint64_t)MESSAGES * BODY_BYTES);
    QS_CHECK(stats_of(&engine).ram_bytes <= BUDGET);
    check_counts(&engine, "q", MESSAGES, 0);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        ack(&engine, get_large(&engine, i).delivery_tag, 0);
    }
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

/* Publishers have left what they may of the budget; then each settle is a record in memory until it
 * is written. */
static void test_settles_stay_within_a_budget_that_is_nearly_used_up(uint32_t count)
{
    struct engine engine;

    start_small(&engine);
    for (uint32_t i = 0; i < count; i++) {
        publish(&engine, "q", "a body of some bytes");
    }
    QS_CHECK(stats_of(&engine).messages_paged_out > 0);
    for (uint32_t i = 0; i < count; i++) {
        QS_CHECK_OK(qs_test_get(engine.channel, "q", QS_NO_ACK));
        QS_CHECK(i % 64 != 0 || stats_of(&engine).ram_bytes <= BUDGET);
    }
    get_nothing(&engine, "q");
    engine_stop(&engine);
}

int main(void)
{
    for (uint32_t i = 0; i < 8; i++) { /* how much is left differs */
        test_settles_stay_within_a_budget_that_is_nearly_used_up(16000 + 333 * i);
    }
    test_what_is_consumed_at_once_reaches_no_segment();
    test_a_journal_larger_than_memory_is_replayed();
    return 0;
}
